//! Tasks that wait for a worker: a bounded FIFO of one cache line a task.
//!
//! A ring of cells, each with a stamp (the position it serves, and a [state](State))
//! and room for one task, after D. Vyukov's bounded MPMC queue (1024cores). A position
//! is reserved by moving `tail` or `head`; the stamp then says how far the cell is.
//! Added to that: an exact bound below the ring's size, tasks that can be taken out of
//! the middle, and two flags in `tail`.
//!
//! * `CLOSED`: nothing is pushed any more, but by who closes.
//! * `ASLEEP`: no worker lives, and nothing is queued. The last worker sets it before it
//!   gives its slot back, by a compare-and-swap that succeeds only on an empty queue; whoever
//!   has started a worker clears it. **So a task is queued only while a worker lives.**
//!
//! Every step into `Full` or `Revocable` releases the task; every step into `Held`, and
//! the read of a stamp before `head` moves past it, acquires it. Steps into `Empty` and
//! `Tombstone` release the emptied cell to the next push.
//!
//! And one flag in `head`: `GUARDED`. Only [`Queue::pop_guarded`] moves `head` then; a pop that is
//! under way when it is set fails. Who sets it thereby knows that every other pop came before.
//!
//! `try_pop` waits for nobody. It says `Empty` only if `head` met `tail`, and
//! `InProgress` while another thread is between two steps at the oldest position. A push
//! says `Full` only if `capacity` positions lay between two readings of an unmoved end
//! and no tombstone was found in any of them. `tombstones` grows before a cell becomes one and shrinks
//! after it stopped being one, so it never lags behind room that somebody was promised.
//!
//! Positions wrap at 2^64; one step is [`STEP`], so that flags and states fit below.

mod cell;
mod life;
mod revoke;
mod sweep;

use crate::parts::backoff::Backoff;
use crate::sync::{AtomicU64, Ordering};
use cell::{CellAt, Cells, Stamp, STEP};
pub(crate) use cell::{Queued, State};
use crossbeam_utils::CachePadded;
pub(crate) use sweep::Sweep;

const CLOSED: u64 = 1;
const ASLEEP: u64 = 2;
/// Of `head`.
const GUARDED: u64 = 1;
const FLAGS: u64 = STEP - 1;

#[derive(Debug)]
pub(crate) struct Queue<T> {
    cells: Cells<T>,
    /// What of a position says which lap.
    lap_mask: u64,
    /// In positions.
    capacity: u64,
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
    /// A `head` that a push has seen, on a line that only pushes touch: `head` was
    /// there or further, so a push that has room by it needs not ask the line that
    /// the pops move.
    head_seen: CachePadded<AtomicU64>,
    /// Rarely written: `tombstones`, and the pushes that went into one.
    tombstones: CachePadded<AtomicU64>,
    revived: AtomicU64,
    /// Where to begin to look for a tombstone: where the last one was made, or behind
    /// the one filled last, so that many are filled in one sweep.
    next_tombstone: AtomicU64,
    /// Where `tail` was at first.
    origin: u64,
}

// SAFETY: a cell's task is touched only by the thread that owns the cell by the
// module's steps.
unsafe impl<T: Send> Sync for Queue<T> {}

/// Why a push did not take the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum NotPushed {
    Full,
    /// There is room that a task taken out has left, and it is yet to be found: the next push
    /// with the same [`Sweep`] goes on.
    Looking,
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
    /// Another thread is between two steps at the oldest position.
    InProgress,
    /// Not to be popped but by [`Queue::pop_guarded`].
    Guarded,
}

impl<T: Queued> Queue<T> {
    /// A queue of at most `capacity` tasks (at least one), asleep.
    pub(crate) fn new(capacity: usize) -> Self {
        Self::starting_at(0, capacity)
    }

    /// The same, with the first position at `origin`, a lap's first: tests start near the wrap.
    pub(crate) fn starting_at(origin: u64, capacity: usize) -> Self {
        assert!(capacity > 0);
        let cells = Cells::new(capacity.next_power_of_two());
        assert_eq!(origin & (cells.mask() | FLAGS), 0);
        if origin != 0 {
            for cell in (0..=cells.mask()).step_by(STEP as usize) {
                // Relaxed: nobody else has it yet. Cells are those of lap 0 at first.
                cells.at(cell).stamp.store(origin, Ordering::Relaxed);
            }
        }
        Self {
            lap_mask: !(cells.mask() | FLAGS),
            cells,
            capacity: capacity as u64 * STEP,
            head: CachePadded::new(AtomicU64::new(origin)),
            tail: CachePadded::new(AtomicU64::new(origin | ASLEEP)),
            head_seen: CachePadded::new(AtomicU64::new(origin)),
            tombstones: CachePadded::new(AtomicU64::new(0)),
            revived: AtomicU64::new(0),
            next_tombstone: AtomicU64::new(origin),
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

    /// Empties a cell: it serves the position one lap further.
    ///
    /// # Safety
    /// The cell is the caller's until then, has no task any more, and `head` has moved past it.
    #[inline]
    unsafe fn release(&self, place: CellAt<'_, T>, from: State) {
        let next = CellAt {
            lap: place.lap.wrapping_sub(self.lap_mask),
            ..place
        };
        // SAFETY: by this function's contract.
        unsafe { next.write(from, State::Empty) };
    }

    // ---- the ends ---------------------------------------------------------------

    #[inline]
    fn load_tail(&self) -> u64 {
        // ORDERING: P1, P2: a worker looks here after it has published that it is idle.
        self.tail.load(Ordering::SeqCst)
    }

    #[inline]
    fn load_head(&self) -> u64 {
        // ORDERING: P2: as `load_tail`; two equal readings around a look at other words
        // mean that nothing was popped meanwhile.
        self.head.load(Ordering::SeqCst) & !FLAGS
    }

    #[inline]
    fn see_head(&self) -> u64 {
        let head = self.load_head();
        // Relaxed: any `head` there ever was will do.
        if self.head_seen.load(Ordering::Relaxed) != head {
            self.head_seen.store(head, Ordering::Relaxed);
        }
        head
    }

    /// `head` may have been read late, and have passed `tail` since.
    #[inline]
    fn is_full_by(&self, tail: u64, head: u64) -> bool {
        tail.wrapping_sub(head) as i64 >= self.capacity as i64
    }

    // ---- pushing ----------------------------------------------------------------

    /// Where the next push goes, if there is room behind the last task; `None` once
    /// closed, and while asleep.
    #[inline]
    pub(crate) fn room(&self) -> Option<u64> {
        let tail = self.load_tail();
        let has_room = tail & FLAGS == 0
            && (!self.is_full_by(tail, self.head_seen.load(Ordering::Relaxed))
                || !self.is_full_by(tail, self.see_head()));
        has_room.then_some(tail)
    }

    /// Adds the task at `tail`, from [`Queue::room`], if nothing came in between.
    #[inline]
    #[must_use]
    pub(crate) fn push_at(&self, tail: u64, task: &mut Option<T>) -> bool {
        assert!(task.is_some(), "a task to push");
        let place = self.at(tail);
        // Acquires the emptied cell (Q2).
        if place.see() != place.stamp(State::Empty) {
            return false;
        }
        // ORDERING: P1, P3, P6: announces the task before this thread looks for an idle worker,
        // and at the flag of its group; and fails where the last worker has set `ASLEEP`.
        // Success says that there is room: `tail` has not moved since it was compared
        // with `head`, which only grows; and that it has no flag.
        let next = tail.wrapping_add(STEP);
        let reserved = self
            .tail
            .compare_exchange(tail, next, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        if reserved {
            // SAFETY: `tail` moved from this position: it is ours.
            unsafe { place.fill(task, State::Empty) };
        }
        reserved
    }

    /// [`Queue::push_on`], for the first time.
    pub(crate) fn push(&self, task: &mut Option<T>) -> Result<u64, NotPushed> {
        self.push_on(task, &Sweep::default())
    }

    /// Adds the task, if it has room, and returns its position.
    pub(crate) fn push_on(&self, task: &mut Option<T>, sweep: &Sweep) -> Result<u64, NotPushed> {
        // Also for a tombstone; the quick way calls `push_at` itself.
        assert!(task.is_some(), "a task to push");
        let mut backoff = Backoff::default();
        loop {
            let tail = self.load_tail();
            if tail & CLOSED != 0 {
                return Err(NotPushed::Closed);
            }
            if tail & ASLEEP != 0 {
                return Err(NotPushed::Asleep);
            }
            // Relaxed: any `head` there ever was will do.
            if self.is_full_by(tail, self.head_seen.load(Ordering::Relaxed)) {
                let head = self.see_head();
                if !self.is_full_by(tail, head) {
                    continue;
                }
                if self.load_tail() != tail || self.load_head() != head {
                    continue;
                }
                return self.revive(task, sweep, head, tail);
            }
            if self.push_at(tail, task) {
                return Ok(tail);
            }
            if self.load_tail() == tail {
                // The pop of the lap before has yet to empty the cell.
                backoff.wait();
            } else {
                crate::sync::spin_loop();
            }
        }
    }

    /// Whether there is room for several pushes, tombstones aside: as many as make it
    /// worth the while of one that found none to come back.
    pub(crate) fn has_ample_room(&self) -> bool {
        self.has_room_for((self.capacity / STEP / 4).clamp(1, 16))
    }

    /// Whether there is room for so many pushes, tombstones aside.
    pub(crate) fn has_room_for(&self, pushes: u64) -> bool {
        let tail = self.load_tail();
        let last = tail.wrapping_add((pushes - 1) * STEP);
        tail & FLAGS == 0 && !self.is_full_by(last, self.see_head())
    }

    // ---- popping ----------------------------------------------------------------

    /// Moves the oldest task into the place, once and not through others.
    #[inline]
    pub(crate) fn try_pop(&self, place: &mut Option<T>) -> Popped {
        let head = self.load_head();
        // Most tasks are there and stay until they are popped.
        let at = self.at(head);
        if at.see() == at.stamp(State::Full) && self.take_full(head, at, place) {
            return Popped::Task(head);
        }
        self.try_pop_slowly(place, false, None)
    }

    /// The same, guarded or not. Nobody sets or clears the guard meanwhile.
    pub(crate) fn pop_guarded(&self, place: &mut Option<T>) -> Popped {
        self.try_pop_slowly(place, true, None)
    }

    /// Sets the guard, or clears it.
    pub(crate) fn guard(&self, on: bool) {
        // ORDERING: Q3: every pop that did not see it has come before.
        if on {
            self.head.fetch_or(GUARDED, Ordering::SeqCst);
        } else {
            self.head.fetch_and(!GUARDED, Ordering::SeqCst);
        }
    }

    /// As [`Queue::try_pop`], with one look at the oldest cell where nothing is there yet:
    /// what is just being pushed may be missed. The task is [announced](Queued::announce) before
    /// `head` moves past it, also if another pop takes it then.
    #[inline]
    #[must_use]
    pub(crate) fn try_pop_ready(&self, place: &mut Option<T>, worker: &T::Worker) -> Option<u64> {
        let head = self.load_head();
        let at = self.at(head);
        let stamp = at.see();
        if stamp == at.stamp(State::Full) {
            T::announce(None, worker);
            if self.take_full(head, at, place) {
                return Some(head);
            }
        }
        if !stamp.is_behind(at.stamp(State::Empty)) {
            return None;
        }
        match self.try_pop_slowly(place, false, Some(worker)) {
            Popped::Task(position) => Some(position),
            Popped::Empty | Popped::InProgress | Popped::Guarded => None,
        }
    }

    /// Takes the task at `head`, whose stamp was `Full`, unless another pop does.
    #[inline]
    fn take_full(&self, head: u64, at: CellAt<'_, T>, place: &mut Option<T>) -> bool {
        let ours = self.advance_head(head);
        if ours {
            // SAFETY: `head` moved past `Full` by us.
            unsafe {
                *place = Some(at.read());
                self.release(at, State::Full);
            }
        }
        ours
    }

    #[inline(never)]
    fn try_pop_slowly(
        &self,
        place: &mut Option<T>,
        even_guarded: bool,
        worker: Option<&T::Worker>,
    ) -> Popped {
        loop {
            // ORDERING: P2, Q3: as `load_head`, with the guard.
            let head = self.head.load(Ordering::SeqCst);
            if head & GUARDED != 0 && !even_guarded {
                return Popped::Guarded;
            }
            let at = self.at(head);
            let stamp = at.see();
            if !stamp.is_of_lap(at.stamp(State::Empty)) {
                // `head` has moved, or the pop of the lap before has yet to empty the
                // cell: then nothing has been pushed there.
                if self.load_head() == head & !FLAGS {
                    return self.nothing_at(head);
                }
                continue;
            }
            match stamp.state() {
                State::Empty => {
                    if self.load_head() == head & !FLAGS {
                        return self.nothing_at(head);
                    }
                }
                State::Full => {
                    worker.inspect(|worker| T::announce(None, worker));
                    if self.take_full(head, at, place) {
                        return Popped::Task(head & !FLAGS);
                    }
                    crate::sync::spin_loop();
                }
                state @ (State::Revocable | State::Tombstone) => {
                    // SAFETY: held, in the state that it was seen in.
                    if at.hold(state) && unsafe { self.pop_held(head, state, place, worker) } {
                        return Popped::Task(head & !FLAGS);
                    }
                }
                State::Held => return Popped::InProgress,
            }
        }
    }

    /// At an unmoved `head` nothing was there.
    fn nothing_at(&self, head: u64) -> Popped {
        if self.load_tail() & !FLAGS == head & !FLAGS {
            Popped::Empty
        } else {
            Popped::InProgress // pushed, but for the stamp; or `head` has moved since
        }
    }

    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    fn advance_head(&self, head: u64) -> bool {
        let next = head.wrapping_add(STEP);
        // ORDERING: P2, Q3: on failure, too: whoever moved it, what this thread reads next
        // comes after.
        self.head
            .compare_exchange(head, next, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Whether the oldest task is there to be popped: a look at the line that its push
    /// writes last, and not at `tail`, which the next push wants to itself.
    #[inline]
    pub(crate) fn is_next_there(&self) -> bool {
        // Relaxed: a hint; `try_pop` looks again.
        let head = self.head.load(Ordering::Relaxed);
        let at = self.at(head);
        let stamp = Stamp(at.cell.stamp.load(Ordering::Relaxed));
        stamp.is_behind(at.stamp(State::Empty))
    }

    // ---- looks ------------------------------------------------------------------

    /// Whether there is nothing to pop; tombstones may make it say no in vain.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let head = self.load_head();
        self.load_tail() & !FLAGS == head
    }

    /// Whether there is no room. Two equal readings of [`Queue::pops`] around it mean that
    /// it was so at one moment.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        let tail = self.load_tail() & !FLAGS;
        let head = self.load_head();
        self.is_full_by(tail, head) && self.tombstones() == 0
    }

    /// Moves with every pop.
    #[inline]
    pub(crate) fn pops(&self) -> u64 {
        self.load_head()
    }

    /// Tasks ever accepted, and those pushed again.
    pub(crate) fn pushed(&self) -> u64 {
        // ORDERING: L1: an ending counted before is of a task counted here.
        let revived = self.revived.load(Ordering::SeqCst);
        (self.load_tail() & !FLAGS).wrapping_sub(self.origin) / STEP + revived
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl<T: Queued> Queue<T> {
    /// For models: full, but for a tombstone in the only cell. All is written `SeqCst`.
    pub(crate) fn of_a_tombstone() -> Self {
        let queue = Self::new(1);
        let stamp = queue.at(queue.origin).stamp(State::Tombstone);
        queue
            .at(queue.origin)
            .cell
            .stamp
            .store(stamp.0, Ordering::SeqCst);
        queue.tombstones.store(1, Ordering::SeqCst);
        queue
            .tail
            .store(queue.origin.wrapping_add(STEP), Ordering::SeqCst);
        queue
    }

    /// For models, once nobody uses it: nothing is left in it, not even a tombstone.
    pub(crate) fn assert_at_rest(&self) {
        assert!(self.is_empty(), "left in the queue");
        assert_eq!(self.tombstones(), 0, "tombstones counted, and there");
    }
}

// One line per queued task.
#[cfg(all(not(any(lazypool_loom, lazypool_shuttle)), target_pointer_width = "64"))]
const _: () = assert!(std::mem::size_of::<cell::Cell<[u64; 7]>>() == 64);

/// The legal steps, for who compares: from, to, by whom.
#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
pub(crate) fn legal_steps() -> impl Iterator<Item = (String, String, &'static str)> {
    let name = |state: &State| format!("{state:?}");
    cell::LEGAL
        .iter()
        .map(move |(from, to, by)| (name(from), name(to), *by))
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests;
