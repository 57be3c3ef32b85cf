//! The queue of tasks that wait for a worker: a bounded FIFO of one cache line per task.
//!
//! The queue is a ring of cells, after D. Vyukov's bounded MPMC queue (1024cores). Each cell has
//! space for one task and a stamp: the position that it serves, and a [state](CellState). A push
//! reserves a position by moving `tail`, then fills the cell. A thread that wants to take a task
//! first *holds* its cell. A pop holds the cell at `head`, and until it is done no other thread
//! moves `head`. A caller or a canceller may hold any cell, and leaves it *dead* when it takes the
//! task. So every queued task can be taken out by one compare-and-swap of its stamp.
//!
//! A pop moves `head` after it has read the task. So all cells that `head` has passed are empty,
//! and a push need not look at a stamp. A dead cell keeps its place until it is the oldest. Then
//! the next pop, walk or push into a full queue moves `head` past it.
//!
//! Two flags are in `tail`:
//!
//! * `CLOSED`: every push fails from now on.
//! * `ASLEEP`: no worker lives, and nothing is queued. The last worker sets it before it gives its
//!   slot back, by a compare-and-swap that succeeds only if the queue is empty. The thread that has
//!   started a worker clears it. **So a task is queued only while a worker lives.**
//!
//! A pop waits for no other thread. It returns `Empty` only if `head` was equal to `tail`. It
//! returns `InProgress` while another thread is between two steps at the oldest position. A push
//! returns `Full` only if, while it looked, `head` did not move, `capacity` positions lay between
//! `head` and `tail`, and the oldest cell was not dead.
//!
//! Positions wrap at 2^64. They are multiples of [`STEP`], so flags and states fit in the low bits.

mod cell;
mod take;

use crate::parts::backoff::IN_MODELS;
use crate::sync::{AtomicU64, Ordering};
pub(crate) use cell::CellState;
use cell::{CellAt, Cells, STEP};
use crossbeam_utils::CachePadded;

const CLOSED: u64 = 1;
const ASLEEP: u64 = 2;
const FLAGS: u64 = STEP - 1;

/// The most dead cells that one pop skips. The popping worker may still have a caller to release,
/// so a pop must not take long.
const SKIPS: u32 = 64;

/// How often a pop looks at a cell that another thread holds before it returns `InProgress`.
const LOOKS: u32 = if IN_MODELS { 0 } else { 16 };

#[derive(Debug)]
pub(crate) struct Queue<T> {
    cells: Cells<T>,
    /// The highest number of queued tasks, multiplied by [`STEP`].
    capacity: u64,
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
    /// A value of `head` that a submission has read. `head` may have moved on since. The tasks
    /// before this position have left their cells. A push that finds space by this value reads
    /// neither a stamp nor `head`, whose cache line pops write. Only submissions use this field.
    head_seen: CachePadded<AtomicU64>,
}

// SAFETY: the queue owns its cells and their tasks, as a box owns its value.
unsafe impl<T: Send> Send for Queue<T> {}
// SAFETY: a cell has one owner at a time: the push that reserved its position, or the thread that
// holds the cell. Only the owner touches the task in it.
unsafe impl<T: Send> Sync for Queue<T> {}

/// The reason why a push did not take the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum NotPushed {
    Full,
    /// No worker lives, so the task needs a new thread.
    Asleep,
    Closed,
}

/// The result of a pop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Popped {
    /// The task has been moved out, from this position.
    Task(u64),
    Empty,
    /// Another thread is between two steps at the oldest position, or there are more dead cells
    /// than one pop skips.
    InProgress,
}

impl<T> Queue<T> {
    /// Creates a queue that is asleep, for at most `capacity` tasks. `capacity` is at least one.
    pub(crate) fn new(capacity: usize) -> Self {
        Self::starting_at(0, capacity)
    }

    /// Creates a queue whose first position is `origin`, which begins a lap. For tests.
    pub(crate) fn starting_at(origin: u64, capacity: usize) -> Self {
        assert!(capacity > 0);
        let cells = Cells::new(capacity.next_power_of_two());
        assert_eq!(origin & (cells.mask() | FLAGS), 0);
        Self {
            cells,
            capacity: capacity as u64 * STEP,
            head: CachePadded::new(AtomicU64::new(origin)),
            tail: CachePadded::new(AtomicU64::new(origin | ASLEEP)),
            head_seen: CachePadded::new(AtomicU64::new(origin)),
        }
    }

    #[inline]
    fn at(&self, position: u64) -> CellAt<'_, T> {
        CellAt {
            cell: self.cells.at(position),
            lap: position & !self.cells.mask(),
        }
    }

    // ---- the ends ---------------------------------------------------------------

    #[inline]
    fn load_tail(&self) -> u64 {
        // ORDERING: P1, P2: a worker reads this after it has published that it is idle.
        self.tail.load(Ordering::SeqCst)
    }

    /// Returns `head`, which every pop moves.
    #[inline]
    pub(crate) fn load_head(&self) -> u64 {
        // ORDERING: P2: two equal readings prove that nothing was popped in between.
        self.head.load(Ordering::SeqCst)
    }

    #[inline]
    fn see_head(&self) -> u64 {
        let head = self.load_head();
        if self.load_head_seen() != head {
            // ORDERING: M1: releases to other pushes that the cells before `head` were read.
            self.head_seen.store(head, Ordering::Release);
        }
        head
    }

    #[inline]
    fn load_head_seen(&self) -> u64 {
        // ORDERING: M1: acquires that the cells before this position were read. It may be outdated.
        self.head_seen.load(Ordering::Acquire)
    }

    /// Returns `true` if `tail` is `capacity` tasks ahead of `head`. If `head` was read after
    /// `tail`, it may be ahead of `tail`. Then the difference is negative, and this is `false`.
    #[inline]
    fn is_full_by(&self, tail: u64, head: u64) -> bool {
        tail.wrapping_sub(head) as i64 >= self.capacity as i64
    }

    // ---- pushing ----------------------------------------------------------------

    /// Returns the position of the next push if there is space behind the last task. Returns `None`
    /// if the queue is full, closed or asleep.
    #[inline]
    pub(crate) fn room(&self) -> Option<u64> {
        let tail = self.load_tail();
        let has_room = tail & FLAGS == 0
            && (!self.is_full_by(tail, self.load_head_seen())
                || !self.is_full_by(tail, self.see_head()));
        has_room.then_some(tail)
    }

    /// Adds the task at `tail`. Returns `false` if another push was first or a flag has been set.
    ///
    /// # Safety
    /// `tail` has passed the checks of [`Queue::room`]: there was space by a `head` that this
    /// thread read (M1). Only that read proves that the cell's previous task has been moved out.
    #[inline]
    #[must_use]
    pub(crate) unsafe fn push_at(&self, tail: u64, task: &mut Option<T>) -> bool {
        assert!(task.is_some(), "a task to push");
        // ORDERING: P1, P3, P4: announces the task before this thread looks for an idle worker, and
        // before it reads the flag of the task's group. Fails if a flag of `tail` has been set.
        // Success proves that there is space: `tail` has not moved since it was compared with
        // `head`, and `head` only grows.
        let next = tail.wrapping_add(STEP);
        let reserved =
            (self.tail).compare_exchange(tail, next, Ordering::SeqCst, Ordering::Relaxed);
        if reserved.is_ok() {
            // SAFETY: there is a task (asserted). This thread moved `tail`, so the position is its
            // own. By this function's contract, `head` has passed the cell's last position.
            unsafe { self.at(tail).fill(task) };
        }
        reserved.is_ok()
    }

    /// Adds the task if there is space, and returns its position.
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
                // If `head` has not moved at the last check, the queue was full all the time, so no
                // push has moved `tail` either.
                let head = self.see_head();
                if self.is_full_by(tail, head) && !self.skip_dead(head) && self.load_head() == head
                {
                    return Err(NotPushed::Full);
                }
            } else {
                // SAFETY: no flag is set, and `load_head_seen` has shown that there is space.
                if unsafe { self.push_at(tail, task) } {
                    return Ok(tail);
                }
                crate::sync::spin_loop();
            }
        }
    }

    /// Returns `true` if there is space for a quarter of the capacity, clamped to 1 to 16 tasks. A
    /// submission that spins for space then tries again.
    pub(crate) fn has_ample_room(&self) -> bool {
        let places = (self.capacity / STEP / 4).clamp(1, 16);
        let tail = self.load_tail() & !FLAGS;
        // First look at the cell of the last task that must be popped to make this space. A read of
        // `head` would take its cache line away from the pops.
        let last = tail.wrapping_add((places - 1) * STEP);
        let task = self.at(last.wrapping_sub(self.capacity));
        task.see() != task.stamp(CellState::Full) && self.has_room_for(places)
    }

    /// Returns `true` if there is space for `pushes` tasks and no flag is set.
    pub(crate) fn has_room_for(&self, pushes: u64) -> bool {
        self.load_tail() & FLAGS == 0 && self.space() >= pushes
    }

    /// Returns the number of tasks for which there is space.
    pub(crate) fn space(&self) -> u64 {
        let tail = self.load_tail() & !FLAGS;
        let queued = tail.wrapping_sub(self.see_head()) as i64;
        // `head` is read after `tail`, and may lie beyond it.
        self.capacity.saturating_sub(queued.max(0) as u64) / STEP
    }

    // ---- popping ----------------------------------------------------------------

    /// Takes the task at `head`, unless another thread takes it first.
    #[inline(always)]
    fn try_pop_at(&self, head: u64, at: &CellAt<'_, T>, place: &mut Option<T>) -> bool {
        let taken = at.hold();
        if taken {
            // SAFETY: this thread holds the cell, which was `Full`.
            *place = Some(unsafe { at.read() });
            // ORDERING: M1, P2, P5: releases the cell, whose task was read, to the push one lap
            // later. Comes before this thread looks for submissions in line.
            let before = self.head.swap(head.wrapping_add(STEP), Ordering::SeqCst);
            debug_assert_eq!(before, head, "the cell's holder alone moves `head`");
            cell::taken(CellState::Held, CellState::Empty);
        }
        taken
    }

    /// Pops as [`Queue::try_pop`] does, for a worker that has a caller to release. Returns `None`
    /// if no task can be taken at once, so that the worker need not wait.
    #[inline]
    #[must_use]
    pub(crate) fn try_pop_ready(&self, place: &mut Option<T>) -> Option<u64> {
        let head = self.load_head();
        let at = self.at(head);
        // Look only once. A worker that looked again would stay close behind the pushing thread,
        // and the two would contend for the cache line of one cell after another.
        let seen = at.see();
        if !at.is_filled(seen) {
            return None;
        }
        if seen == at.stamp(CellState::Full) && self.try_pop_at(head, &at, place) {
            return Some(head);
        }
        match self.try_pop(place) {
            Popped::Task(position) => Some(position),
            Popped::Empty | Popped::InProgress => None,
        }
    }

    /// Moves the oldest task into `place`. Returns `InProgress` where it would have to wait.
    #[inline(never)]
    pub(crate) fn try_pop(&self, place: &mut Option<T>) -> Popped {
        let (mut skips, mut looks) = (SKIPS, LOOKS);
        loop {
            let head = self.load_head();
            let at = self.at(head);
            let seen = at.see();
            if seen == at.stamp(CellState::Full) {
                if self.try_pop_at(head, &at, place) {
                    return Popped::Task(head);
                }
            } else if seen == at.stamp(CellState::Dead) {
                self.skip_dead(head);
                if skips == 0 {
                    return Popped::InProgress;
                }
                skips -= 1;
            } else if seen == at.stamp(CellState::Held) {
                // Another thread holds the cell. If it is a pop, it is done in a few instructions.
                if looks == 0 {
                    return Popped::InProgress;
                }
                looks -= 1;
                crate::sync::spin_loop();
            } else if self.is_empty() {
                return Popped::Empty;
            } else if self.load_head() == head {
                // A push has moved `tail`. It had not written the stamp when this thread read it.
                return Popped::InProgress;
            }
        }
    }

    /// Moves `head` past the cell there if it is dead. Returns `true` if this thread did so.
    fn skip_dead(&self, head: u64) -> bool {
        let at = self.at(head);
        let next = head.wrapping_add(STEP);
        // ORDERING: M1, P2, P5: as in `try_pop_at`. A push must not miss the space of a dead cell.
        at.see_space() == at.stamp(CellState::Dead)
            && (self.head)
                .compare_exchange(head, next, Ordering::SeqCst, Ordering::Relaxed)
                .map(|_| cell::taken(CellState::Dead, CellState::Empty))
                .is_ok()
    }

    /// Returns `true` if a cell is filled: the oldest, or with `lead` the one a sixteenth of the
    /// capacity after it. Reads no `tail`, whose cache line the next push needs.
    #[inline]
    pub(crate) fn is_filled_after(&self, lead: bool) -> bool {
        let lead = if lead { self.capacity / 16 } else { 0 };
        // Relaxed: a hint; `try_pop` looks again.
        let head = self.head.load(Ordering::Relaxed);
        let at = self.at(head.wrapping_add(lead & !FLAGS));
        at.is_filled(at.cell.stamp.load(Ordering::Relaxed))
    }

    // ---- the flags --------------------------------------------------------------

    /// Refuses all further pushes.
    pub(crate) fn close(&self) {
        // ORDERING: P3: set before the thread that closes the pool looks for idle workers.
        self.tail.fetch_or(CLOSED, Ordering::SeqCst);
    }

    /// Sets `ASLEEP`. The last worker calls this before it leaves. From then on a task needs a new
    /// thread. Returns `false`, and sets nothing, if the queue is not empty.
    #[must_use]
    pub(crate) fn sleep(&self) -> bool {
        let asleep = |tail| (self.load_head() == tail & !FLAGS).then_some(tail | ASLEEP);
        // ORDERING: P4: fails if a push came first. This worker must then run the task.
        let slept = (self.tail).fetch_update(Ordering::SeqCst, Ordering::SeqCst, asleep);
        slept.is_ok()
    }

    /// Clears `ASLEEP`, because a worker has been started.
    pub(crate) fn wake(&self) {
        // ORDERING: P4: cleared once a worker is registered. Until then, every push fails.
        self.tail.fetch_and(!ASLEEP, Ordering::SeqCst);
    }

    // ---- looks ------------------------------------------------------------------

    /// Returns `true` if there is nothing to pop. Returns `false` if dead cells are left.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let head = self.load_head();
        self.load_tail() & !FLAGS == head
    }

    /// Returns `true` if all places are taken, provided that [`Queue::load_head`] still returns
    /// `head` afterwards. The oldest cell may be dead; see [`Queue::is_oldest_there`].
    #[inline]
    pub(crate) fn is_full(&self, head: u64) -> bool {
        self.is_full_by(self.load_tail() & !FLAGS, head)
    }

    /// Returns `true` if the cell at `head` is neither dead nor held. (A held cell may become
    /// dead.) If [`Queue::load_head`] still returns `head` afterwards, the cell has not been dead
    /// since it was filled.
    #[inline]
    pub(crate) fn is_oldest_there(&self, head: u64) -> bool {
        let at = self.at(head);
        let seen = at.see_space();
        seen != at.stamp(CellState::Dead) && seen != at.stamp(CellState::Held)
    }

    /// Returns the number of cells.
    pub(crate) fn cells(&self) -> usize {
        (self.cells.mask() / STEP) as usize + 1
    }

    /// Returns the index of the cell that serves a position.
    pub(crate) fn cell_of(&self, position: u64) -> usize {
        ((position & self.cells.mask()) / STEP) as usize
    }

    /// Returns how many tasks have ever been pushed. Except in tests, positions begin at zero.
    pub(crate) fn pushed(&self) -> u64 {
        // The division also drops the flags.
        self.load_tail() / STEP
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl<T> Queue<T> {
    /// Stores the stamp of a queued task again, with a `SeqCst` store. Models call this because
    /// loom orders a `SeqCst` load only with `SeqCst` stores.
    #[cfg(lazypool_loom)]
    pub(crate) fn stamp_again(&self, position: u64) {
        let at = self.at(position);
        (at.cell.stamp).store(at.stamp(CellState::Full), Ordering::SeqCst);
    }

    /// Skips the dead cells at `head`. Returns how many other cells are dead, or are held by a
    /// thread that may leave them dead. For shuttle's judge.
    #[cfg(lazypool_shuttle)]
    pub(crate) fn dead_places(&self) -> u64 {
        let (head, tail) = (self.load_head(), self.load_tail() & !FLAGS);
        let positions = (0..tail.wrapping_sub(head) / STEP).map(|n| head.wrapping_add(n * STEP));
        let stamps = positions.map(|position| (self.at(position), self.at(position).see()));
        let queued = stamps.skip_while(|(at, seen)| *seen == at.stamp(CellState::Dead));
        queued
            .filter(|(at, seen)| {
                [CellState::Dead, CellState::Held]
                    .map(|s| at.stamp(s))
                    .contains(seen)
            })
            .count() as u64
    }

    /// Asserts that the queue is empty. Models call it after every thread has ended.
    pub(crate) fn assert_at_rest(&self) {
        assert!(self.is_empty(), "left in the queue");
    }
}

// A queued task takes one cache line.
#[cfg(all(not(any(lazypool_loom, lazypool_shuttle)), target_pointer_width = "64"))]
const _: () = assert!(std::mem::size_of::<cell::Cell<[u64; 7]>>() == 64);

/// Returns the legal steps, to be compared with the protocol page.
#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
pub(crate) fn legal_steps() -> impl Iterator<Item = (CellState, CellState)> {
    use CellState::{Dead, Empty, Full, Held};
    let steps = |from: CellState| from.next().iter().map(move |to| (from, *to));
    [Empty, Full, Held, Dead].into_iter().flat_map(steps)
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests;
