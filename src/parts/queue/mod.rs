//! Tasks that wait for a worker: a bounded FIFO of one cache line a task.
//!
//! A ring of cells, each with a stamp (the position it serves, and a [state](State)) and space
//! for one task, after D. Vyukov's bounded MPMC queue (1024cores). A push reserves a position by
//! moving `tail`, then fills the cell. Whoever takes a task *holds* its cell first: a pop the cell
//! at `head`, and then it alone moves `head`; a caller or a canceller any cell, and then it leaves
//! the cell *dead*. So every queued task can be taken out by one compare-and-swap of its stamp.
//!
//! A pop moves `head` once it has read the task. So what `head` has passed is empty, and a push
//! looks at no stamp. A dead cell keeps its place until it is the oldest: then a pop moves `head`
//! past it, and so does a push that finds the queue full.
//!
//! Two flags stand in `tail`:
//!
//! * `CLOSED`: nothing is pushed any more.
//! * `ASLEEP`: no worker lives, and nothing is queued. The last worker sets it before it gives its
//!   slot back, by a compare-and-swap that succeeds only on an empty queue; whoever has started a
//!   worker clears it. **So a task is queued only while a worker lives.**
//!
//! A pop waits for nobody. It says `Empty` only if `head` met `tail`, and `InProgress` while
//! another thread is between two steps at the oldest position. A push says `Full` only if
//! `capacity` positions lay between two readings of an unmoved end and the oldest cell was not
//! dead.
//!
//! Positions wrap at 2^64; one step is [`STEP`], so that flags and states fit below.

mod cell;
mod take;

use crate::sync::{AtomicU64, Ordering};
pub(crate) use cell::State;
use cell::{CellAt, Cells, STEP};
use crossbeam_utils::CachePadded;

const CLOSED: u64 = 1;
const ASLEEP: u64 = 2;
const FLAGS: u64 = STEP - 1;

/// Dead cells that one pop skips before it gives up for now: the worker may have a caller to
/// release first.
const SKIPS: u32 = 64;

/// Looks at a cell that another thread holds, before a worker goes on without it.
const LOOKS: u32 = if cfg!(any(lazypool_loom, lazypool_shuttle)) {
    0
} else {
    16
};

#[derive(Debug)]
pub(crate) struct Queue<T> {
    cells: Cells<T>,
    /// What of a position says which lap.
    lap_mask: u64,
    /// In positions.
    capacity: u64,
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
    /// A `head` that a push has seen, on a line that only pushes touch: `head` was there or
    /// further, and what it passed has been read. So a push that has space by it need not look at
    /// the line that the pops move, nor at the cell.
    head_seen: CachePadded<AtomicU64>,
    /// Where `tail` was at first.
    origin: u64,
}

// SAFETY: it owns its cells and their tasks, as a box would.
unsafe impl<T: Send> Send for Queue<T> {}
// SAFETY: a cell's task is touched only by the thread that owns the cell by the module's steps.
unsafe impl<T: Send> Sync for Queue<T> {}

/// Why a push did not take the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum NotPushed {
    Full,
    /// No worker lives: the task needs a thread.
    Asleep,
    Closed,
}

/// What a pop found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Popped {
    /// The task is in the place; its position.
    Task(u64),
    Empty,
    /// Another thread is between two steps at the oldest position; or there are more dead cells
    /// than one pop skips.
    InProgress,
}

impl<T> Queue<T> {
    /// A queue of at most `capacity` tasks (at least one), asleep.
    pub(crate) fn new(capacity: usize) -> Self {
        Self::starting_at(0, capacity)
    }

    /// The same, with the first position at `origin`, a lap's first: tests start near the wrap.
    pub(crate) fn starting_at(origin: u64, capacity: usize) -> Self {
        assert!(capacity > 0);
        let cells = Cells::new(capacity.next_power_of_two());
        assert_eq!(origin & (cells.mask() | FLAGS), 0);
        Self {
            lap_mask: !(cells.mask() | FLAGS),
            cells,
            capacity: capacity as u64 * STEP,
            head: CachePadded::new(AtomicU64::new(origin)),
            tail: CachePadded::new(AtomicU64::new(origin | ASLEEP)),
            head_seen: CachePadded::new(AtomicU64::new(origin)),
            origin,
        }
    }

    #[inline]
    fn at(&self, position: u64) -> CellAt<'_, T> {
        CellAt {
            cell: self.cells.at(position),
            lap: position & self.lap_mask,
        }
    }

    // ---- the ends ---------------------------------------------------------------

    #[inline]
    fn load_tail(&self) -> u64 {
        // ORDERING: P1, P2: a worker looks here after it has published that it is idle.
        self.tail.load(Ordering::SeqCst)
    }

    /// Moves with every pop.
    #[inline]
    pub(crate) fn load_head(&self) -> u64 {
        // ORDERING: P2: two equal readings around a look at other words mean that nothing was
        // popped meanwhile.
        self.head.load(Ordering::SeqCst)
    }

    #[inline]
    fn see_head(&self) -> u64 {
        let head = self.load_head();
        if self.load_head_seen() != head {
            // ORDERING: M1: passes on that what `head` has passed was read.
            self.head_seen.store(head, Ordering::Release);
        }
        head
    }

    #[inline]
    fn load_head_seen(&self) -> u64 {
        // ORDERING: M1: any `head` there ever was will do.
        self.head_seen.load(Ordering::Acquire)
    }

    /// `head` may have been read late, and have passed `tail` since.
    #[inline]
    fn is_full_by(&self, tail: u64, head: u64) -> bool {
        tail.wrapping_sub(head) as i64 >= self.capacity as i64
    }

    // ---- pushing ----------------------------------------------------------------

    /// Where the next push goes, if there is space behind the last task; `None` once closed,
    /// and while asleep.
    #[inline]
    pub(crate) fn room(&self) -> Option<u64> {
        let tail = self.load_tail();
        let has_room = tail & FLAGS == 0
            && (!self.is_full_by(tail, self.load_head_seen())
                || !self.is_full_by(tail, self.see_head()));
        has_room.then_some(tail)
    }

    /// Adds the task at `tail`, if nothing came in between.
    ///
    /// # Safety
    /// `tail` is from this queue's [`Queue::room`]: there was space, by a `head` that this thread has
    /// read (M1). Nothing else tells that the cell's last task was read.
    #[inline]
    #[must_use]
    pub(crate) unsafe fn push_at(&self, tail: u64, task: &mut Option<T>) -> bool {
        assert!(task.is_some(), "a task to push");
        // ORDERING: P1, P3, P4: announces the task before this thread looks for an idle worker,
        // and at the flag of its group; and fails where the last worker has set `ASLEEP`.
        // Success says that there is space: `tail` has not moved since it was compared with
        // `head`, which only grows; and that it has no flag.
        let next = tail.wrapping_add(STEP);
        let reserved = self
            .tail
            .compare_exchange(tail, next, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        if reserved {
            // SAFETY: `tail` moved from this position: it is ours. By this function's contract `head` has
            // passed the position a lap before.
            unsafe { self.at(tail).fill(task) };
        }
        reserved
    }

    /// Adds the task, if there is space, and returns its position.
    pub(crate) fn push(&self, task: &mut Option<T>) -> Result<u64, NotPushed> {
        loop {
            let tail = self.load_tail();
            if tail & CLOSED != 0 {
                return Err(NotPushed::Closed);
            }
            if tail & ASLEEP != 0 {
                return Err(NotPushed::Asleep);
            }
            if self.is_full_by(tail, self.load_head_seen()) {
                let head = self.see_head();
                if !self.is_full_by(tail, head) || self.load_tail() != tail {
                    continue;
                }
                if self.skip_dead(head) {
                    continue;
                }
                if self.load_head() == head {
                    return Err(NotPushed::Full);
                }
            // SAFETY: there is space by `load_head_seen`, as in `room`.
            } else if unsafe { self.push_at(tail, task) } {
                return Ok(tail);
            }
            crate::sync::spin_loop();
        }
    }

    /// Whether there is space for several pushes: as many as make it worth the while of one that
    /// found none to come back.
    pub(crate) fn has_ample_room(&self) -> bool {
        let places = (self.capacity / STEP / 4).clamp(1, 16);
        let tail = self.load_tail() & !FLAGS;
        // First at the task that must be popped for that: a look at `head` would take its line from the pops.
        let last = tail.wrapping_add((places - 1) * STEP);
        let task = self.at(last.wrapping_sub(self.capacity));
        task.see() != task.stamp(State::Full) && self.has_room_for(places)
    }

    /// Whether there is space for so many pushes.
    pub(crate) fn has_room_for(&self, pushes: u64) -> bool {
        self.load_tail() & FLAGS == 0 && self.space() >= pushes
    }

    /// For how many tasks there is space.
    pub(crate) fn space(&self) -> u64 {
        let tail = self.load_tail() & !FLAGS;
        let queued = tail.wrapping_sub(self.see_head());
        // `head` may have been read late, and have passed `tail` since.
        let queued = if (queued as i64) < 0 { 0 } else { queued };
        self.capacity.saturating_sub(queued) / STEP
    }

    // ---- popping ----------------------------------------------------------------

    /// Takes the task at `head`, unless another is faster.
    #[inline(always)]
    fn try_pop_at(&self, head: u64, at: &CellAt<'_, T>, place: &mut Option<T>) -> bool {
        let taken = at.hold();
        if taken {
            // SAFETY: held, with a task in it.
            *place = Some(unsafe { at.read() });
            // ORDERING: M1, P2, P5: what the task is read from goes to the push a lap further; and
            // before this thread looks who waits for space.
            let before = self.head.swap(head.wrapping_add(STEP), Ordering::SeqCst);
            debug_assert_eq!(before, head, "who holds the cell at `head` alone moves it");
            cell::taken(State::Held, State::Empty);
        }
        taken
    }

    /// As [`Queue::try_pop`], for a worker that has a caller to release: where nothing is there
    /// to be taken at once, it goes on without.
    #[inline]
    #[must_use]
    pub(crate) fn try_pop_ready(&self, place: &mut Option<T>) -> Option<u64> {
        let head = self.load_head();
        let at = self.at(head);
        // One look: a second one keeps this worker in step with a pusher, line by line.
        let seen = at.see();
        if !at.is_filled(seen) {
            return None;
        }
        if seen == at.stamp(State::Full) && self.try_pop_at(head, &at, place) {
            return Some(head);
        }
        match self.try_pop(place) {
            Popped::Task(position) => Some(position),
            Popped::Empty | Popped::InProgress => None,
        }
    }

    /// Moves the oldest task into the place, once and not through others.
    #[inline(never)]
    pub(crate) fn try_pop(&self, place: &mut Option<T>) -> Popped {
        let (mut skips, mut looks) = (SKIPS, LOOKS);
        loop {
            let head = self.load_head();
            let at = self.at(head);
            let seen = at.see();
            if seen == at.stamp(State::Full) {
                if self.try_pop_at(head, &at, place) {
                    return Popped::Task(head);
                }
            } else if seen == at.stamp(State::Dead) {
                self.skip_dead(head);
                if skips == 0 {
                    return Popped::InProgress;
                }
                skips -= 1;
            } else if seen == at.stamp(State::Held) {
                // Another pop is a few instructions from its end.
                if looks == 0 {
                    return Popped::InProgress;
                }
                looks -= 1;
                crate::sync::spin_loop();
            } else if self.load_head() == head {
                // Nothing has been pushed there yet.
                return if self.load_tail() & !FLAGS == head {
                    Popped::Empty
                } else {
                    Popped::InProgress // pushed, but for the stamp; or `head` has moved since
                };
            }
        }
    }

    /// Moves `head` past a dead cell, if that is the oldest.
    fn skip_dead(&self, head: u64) -> bool {
        let at = self.at(head);
        let next = head.wrapping_add(STEP);
        // ORDERING: M1, P2, P5: as a pop.
        let skipped = at.see_space() == at.stamp(State::Dead)
            && (self.head)
                .compare_exchange(head, next, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok();
        if skipped {
            cell::taken(State::Dead, State::Empty);
        }
        skipped
    }

    /// Whether the oldest cell has been filled: a look at the line that its push writes last, and
    /// not at `tail`, which the next push wants to itself.
    #[inline]
    pub(crate) fn is_next_there(&self) -> bool {
        // Relaxed: a hint; `try_pop` looks again.
        let head = self.head.load(Ordering::Relaxed);
        let at = self.at(head);
        at.is_filled(at.cell.stamp.load(Ordering::Relaxed))
    }

    // ---- the flags --------------------------------------------------------------

    /// Refuses all further pushes.
    pub(crate) fn close(&self) {
        // ORDERING: P3: before who closes looks for idle workers.
        self.tail.fetch_or(CLOSED, Ordering::SeqCst);
    }

    /// The last worker, before it leaves: from now on a task needs a thread. `false` if
    /// there is something in the queue.
    #[must_use]
    pub(crate) fn sleep(&self) -> bool {
        loop {
            let tail = self.load_tail();
            if self.load_head() != tail & !FLAGS {
                return false;
            }
            // ORDERING: P4: against the push that this worker would have to see.
            let slept = self.tail.compare_exchange(
                tail,
                tail | ASLEEP,
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            if slept.is_ok() {
                return true;
            }
        }
    }

    /// A worker lives.
    pub(crate) fn wake(&self) {
        // ORDERING: P4: as `sleep`.
        self.tail.fetch_and(!ASLEEP, Ordering::SeqCst);
    }

    // ---- looks ------------------------------------------------------------------

    /// Whether there is nothing to pop; dead cells may make it say no in vain.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let head = self.load_head();
        self.load_tail() & !FLAGS == head
    }

    /// Whether all places are taken, as long as [`Queue::load_head`] is `head`. They may be skipped yet:
    /// see [`Queue::is_oldest_there`].
    #[inline]
    pub(crate) fn is_full(&self, head: u64) -> bool {
        self.is_full_by(self.load_tail() & !FLAGS, head)
    }

    /// Whether the oldest cell, at `head`, has not been dead since it was filled, if [`Queue::load_head`]
    /// is `head` after this. Not while somebody holds it: it may be dead next.
    #[inline]
    pub(crate) fn is_oldest_there(&self, head: u64) -> bool {
        let at = self.at(head);
        let seen = at.see_space();
        seen != at.stamp(State::Dead) && seen != at.stamp(State::Held)
    }

    /// Returns the positions of the queued tasks, oldest first.
    pub(crate) fn queued(&self) -> impl Iterator<Item = u64> + '_ {
        let (head, tail) = (self.load_head(), self.load_tail() & !FLAGS);
        // `tail` is not behind `head`, which was read first.
        let positions =
            (0..tail.wrapping_sub(head) / STEP).map(move |n| head.wrapping_add(n * STEP));
        positions.filter(|position| {
            let at = self.at(*position);
            at.see() == at.stamp(State::Full)
        })
    }

    /// Returns the number of cells.
    pub(crate) fn cells(&self) -> usize {
        (self.cells.mask() / STEP) as usize + 1
    }

    /// Returns the index of the cell that serves a position.
    pub(crate) fn cell_of(&self, position: u64) -> usize {
        ((position & self.cells.mask()) / STEP) as usize
    }

    /// Tasks ever accepted.
    pub(crate) fn pushed(&self) -> u64 {
        (self.load_tail() & !FLAGS).wrapping_sub(self.origin) / STEP
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl<T> Queue<T> {
    /// For models: the stamp of a task that was pushed, stored again, so that loom takes all `SeqCst`
    /// loads of it from now on for such.
    #[cfg(lazypool_loom)]
    pub(crate) fn stamp_again(&self, position: u64) {
        let at = self.at(position);
        (at.cell.stamp).store(at.stamp(State::Full), Ordering::SeqCst);
    }

    /// For the judge: cells that are dead, or held by somebody who may leave them so, from the oldest on
    /// that is not dead.
    #[cfg(lazypool_shuttle)]
    pub(crate) fn dead_places(&self) -> u64 {
        let (head, tail) = (self.load_head(), self.load_tail() & !FLAGS);
        let positions = (0..tail.wrapping_sub(head) / STEP).map(|n| head.wrapping_add(n * STEP));
        let stamps = positions.map(|position| (self.at(position), self.at(position).see()));
        let queued = stamps.skip_while(|(at, seen)| *seen == at.stamp(State::Dead));
        queued
            .filter(|(at, seen)| {
                [State::Dead, State::Held]
                    .map(|s| at.stamp(s))
                    .contains(seen)
            })
            .count() as u64
    }

    /// For models, once nobody uses it: nothing is left in it.
    pub(crate) fn assert_at_rest(&self) {
        assert!(self.is_empty(), "left in the queue");
    }
}

// One line per queued task.
#[cfg(all(not(any(lazypool_loom, lazypool_shuttle)), target_pointer_width = "64"))]
const _: () = assert!(std::mem::size_of::<cell::Cell<[u64; 7]>>() == 64);

/// The legal steps, for who compares.
#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
pub(crate) fn legal_steps() -> impl Iterator<Item = (State, State)> {
    let states = [State::Empty, State::Full, State::Held, State::Dead];
    (states.into_iter()).flat_map(|from| from.next().iter().map(move |to| (from, *to)))
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests;
