//! The queue of tasks that wait for a worker: a FIFO of one cache line per task.
//!
//! The queue is a ring of cells, after D. Vyukov's bounded MPMC queue (1024cores). Each cell has
//! space for one task and a stamp: the lap of the position that it serves, and a [state](CellState). A push
//! reserves a position by moving `tail`, then fills the cell. A thread that wants to take a task
//! first *holds* its cell. A pop holds the cell at `head`, and until it is done no other thread
//! moves `head`. A caller or a canceller may hold any cell, and leaves it *dead* when it takes the
//! task. So every queued task can be taken out by one compare-and-swap of its stamp.
//!
//! **Space.** Each task in the queue has a [permit](super::gate) of the pool, and there is a cell for
//! each permit. So a push always finds an empty cell. A dead cell keeps the permit of its task until
//! `head` passes it. A pop moves `head` after it has read the task. So all cells that `head` has
//! passed are empty, and a push need not look at a stamp.
//!
//! **Dead cells.** `head` passes a dead cell as soon as it is the oldest. Either of two threads sees
//! to that: the one that has made the oldest cell dead, or the one that has moved `head` to a dead
//! cell (Q1). They collect the permits of the cells in a [`Freed`]. One step passes some only; a thread that has passed that many says so, and
//! owes the next step.
//!
//! A pop waits for no other thread. It returns `Empty` only if `head` was equal to `tail`. It
//! returns `InProgress` while another thread is between two steps at the oldest position.
//!
//! A position is a *lap*, which counts how often the ring has been gone through, and the index of a
//! cell, times [`STEP`]. The index has as many bits as the number of cells needs, so that number need
//! not be a power of two (as in crossbeam's channels). Positions wrap at 2^64. States fit in the low
//! bits.
//!
//! | pair | one side | the other side |
//! |---|---|---|
//! | Q1 | a thread leaves a cell dead, *then* reads `head` | a thread moves `head`, *then* reads the stamp of the cell there |

mod cell;
mod take;

use super::gate::{Freed, Permit};
use crate::parts::backoff::IN_MODELS;
use crate::sync::{AtomicU64, Ordering};
pub(crate) use cell::CellState;
use cell::{CellAt, Cells, STEP};
use crossbeam_utils::CachePadded;

/// The most dead cells that one step passes, so that no step takes long.
const SKIPS: u32 = if IN_MODELS { 2 } else { 64 };

/// How often a pop looks at a cell that another thread holds before it returns `InProgress`.
const LOOKS: u32 = if IN_MODELS { 0 } else { 16 };

#[derive(Debug)]
pub(crate) struct Queue<T> {
    cells: Cells<T>,
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
    /// A value of `head` that a push has read. `head` may have moved on since. The tasks before this
    /// position have left their cells. A push that finds space by this value reads neither a stamp
    /// nor `head`, whose cache line pops write.
    head_seen: CachePadded<AtomicU64>,
}

// SAFETY: the queue owns its cells and their tasks, as a box owns its value.
unsafe impl<T: Send> Send for Queue<T> {}
// SAFETY: a cell has one owner at a time: the push that reserved its position, or the thread that
// holds the cell. Only the owner touches the task in it.
unsafe impl<T: Send> Sync for Queue<T> {}

/// The result of a pop.
#[derive(Debug)]
#[must_use]
pub(crate) enum Popped {
    /// The task has been moved out, from this position.
    Task(u64, Permit),
    Empty,
    /// This call has looked at as many dead cells as one step passes, and says so in `Freed::more`.
    Passed,
    /// Another thread is between two steps at the oldest position.
    InProgress,
}

impl<T> Queue<T> {
    /// Creates a queue of `cells` cells. `cells` is at least one, and at least the highest number of
    /// permits that there will ever be.
    pub(crate) fn new(cells: usize) -> Self {
        Self::starting_at(0, cells)
    }

    /// Creates a queue whose first position is `origin`, which begins a lap. For tests.
    pub(crate) fn starting_at(origin: u64, cells: usize) -> Self {
        let cells = Cells::new(cells);
        assert_eq!(origin & cells.index_mask(), 0);
        Self {
            cells,
            head: CachePadded::new(AtomicU64::new(origin)),
            tail: CachePadded::new(AtomicU64::new(origin)),
            head_seen: CachePadded::new(AtomicU64::new(origin)),
        }
    }

    #[inline]
    fn at(&self, position: u64) -> CellAt<'_, T> {
        CellAt {
            cell: self.cells.at(position),
            lap: position & !self.cells.index_mask(),
        }
    }

    /// Returns the position after this one.
    #[inline(always)]
    fn after(&self, position: u64) -> u64 {
        if position & self.cells.index_mask() != self.cells.last() {
            position.wrapping_add(STEP)
        } else {
            (position | self.cells.index_mask()).wrapping_add(1)
        }
    }

    /// Returns how many positions have been used before this one.
    fn number(&self, position: u64) -> u64 {
        (self.lap_of(position))
            .wrapping_mul(self.cells.len())
            .wrapping_add(self.cell_of(position) as u64)
    }

    // ---- the ends ---------------------------------------------------------------

    #[inline]
    fn load_tail(&self) -> u64 {
        // ORDERING: P1: a worker reads this after it has published that it is idle.
        self.tail.load(Ordering::SeqCst)
    }

    /// Returns `head`, which every pop moves.
    #[inline]
    pub(crate) fn load_head(&self) -> u64 {
        // ORDERING: P1, Q1: read after this thread has published that it is idle, or has left a cell
        // dead.
        self.head.load(Ordering::SeqCst)
    }

    // ---- pushing ----------------------------------------------------------------

    /// Returns `true` if `head` has passed the last position of the cell at `tail`, if `passed` is a
    /// value of `head`, perhaps an old one.
    #[inline(always)]
    fn is_passed(&self, tail: u64, passed: u64) -> bool {
        tail.wrapping_sub(passed) <= self.cells.index_mask()
    }

    /// Adds a task, and returns its position.
    ///
    /// # Panics
    /// Panics if there is no task, or if there are more permits than cells.
    #[inline(always)]
    pub(crate) fn push(&self, task: &mut Option<T>, permit: Permit) -> u64 {
        assert!(task.is_some(), "a task to push");
        permit.leave_with_task();
        let mut tail = self.load_tail();
        loop {
            // ORDERING: M1: acquires that the cells before this position were read.
            if !self.is_passed(tail, self.head_seen.load(Ordering::Acquire)) {
                tail = self.refresh(tail);
                continue;
            }
            // ORDERING: P1, P3: announces the task before this thread looks for an idle worker, and
            // before it reads the flag of the task's group.
            let next = self.after(tail);
            match (self.tail).compare_exchange(tail, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => break,
                Err(now) => tail = now,
            }
            crate::sync::spin_loop();
        }
        // SAFETY: there is a task (asserted). This thread moved `tail`, so the position is its own.
        // `tail` has not moved since it was compared with `head_seen`, and `head` only grows. So
        // `head` has passed the cell's last position.
        unsafe { self.at(tail).fill(task) };
        tail
    }

    /// Reads `head` for pushes. Returns the current `tail`.
    #[cold]
    fn refresh(&self, tail: u64) -> u64 {
        let head = self.load_head();
        // ORDERING: M1: releases to other pushes that the cells before `head` were read.
        self.head_seen.store(head, Ordering::Release);
        let now = self.load_tail();
        // This thread has a permit whose task is not in the queue. So fewer permits than there are
        // cells are in the queue, unless a permit was given back twice.
        assert!(
            now != tail || self.is_passed(tail, head),
            "more tasks are queued than there are permits"
        );
        now
    }

    // ---- popping ----------------------------------------------------------------

    /// Takes the task at `head`, unless another thread takes it first.
    #[inline(always)]
    fn try_pop_at(
        &self,
        head: u64,
        at: &CellAt<'_, T>,
        place: &mut Option<T>,
        freed: &mut Freed,
    ) -> Option<Permit> {
        let held = at.hold()?;
        let next = self.after(head);
        held.pop(place, || {
            // ORDERING: M1, Q1: releases the cell, whose task was read, to the push one lap later. Comes
            // before this thread looks at the next cell.
            let before = self.head.swap(next, Ordering::SeqCst);
            debug_assert_eq!(before, head, "the cell's holder alone moves `head`");
        });
        if self.is_dead(next) {
            self.pass_dead(freed);
        }
        Some(Permit::of_taken_task())
    }

    /// Moves the oldest task into `place`. Returns `InProgress` where it would have to wait. Adds the
    /// permits of dead cells to `freed`.
    #[inline]
    pub(crate) fn try_pop(&self, place: &mut Option<T>, freed: &mut Freed) -> Popped {
        let head = self.load_head();
        let at = self.at(head);
        if at.load() == at.stamp(CellState::Full) {
            if let Some(permit) = self.try_pop_at(head, &at, place, freed) {
                return Popped::Task(head, permit);
            }
        }
        self.try_pop_slowly(place, freed)
    }

    #[inline(never)]
    fn try_pop_slowly(&self, place: &mut Option<T>, freed: &mut Freed) -> Popped {
        let mut looks = LOOKS;
        loop {
            let head = self.load_head();
            let at = self.at(head);
            let seen = at.load();
            if seen == at.stamp(CellState::Full) {
                if let Some(permit) = self.try_pop_at(head, &at, place, freed) {
                    return Popped::Task(head, permit);
                }
            } else if seen == at.stamp(CellState::Dead) {
                self.pass_dead(freed);
                if freed.more {
                    return Popped::Passed;
                }
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

    #[inline]
    fn is_dead(&self, position: u64) -> bool {
        let at = self.at(position);
        // ORDERING: Q1: read after this thread has moved `head`.
        at.cell.stamp.load(Ordering::SeqCst) == at.stamp(CellState::Dead)
    }

    /// Moves `head` past the dead cells there. Adds their permits to `freed`. Sets `Freed::more` if it
    /// has passed as many as one step passes.
    #[cold]
    pub(crate) fn pass_dead(&self, freed: &mut Freed) {
        for _ in 0..SKIPS {
            let head = self.load_head();
            if !self.is_dead(head) {
                return;
            }
            // ORDERING: M1, Q1: as in `try_pop_at`.
            let next = self.after(head);
            let passed =
                (self.head).compare_exchange(head, next, Ordering::SeqCst, Ordering::SeqCst);
            if passed.is_ok() {
                cell::assert_step(CellState::Dead, CellState::Empty);
                freed.add_one();
            }
        }
        freed.more = true;
    }

    /// Returns `true` if the oldest cell is filled. Reads no `tail`, whose cache line the next push
    /// needs. May miss a push.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        // Relaxed: a hint; `try_pop` looks again.
        let at = self.at(self.head.load(Ordering::Relaxed));
        at.is_filled(at.cell.stamp.load(Ordering::Relaxed))
    }

    // ---- looks ------------------------------------------------------------------

    /// Returns `true` if there is nothing to pop. Returns `false` if dead cells are left.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let head = self.load_head();
        self.load_tail() == head
    }

    /// Returns how many cells are in use: never more than as this thread read `tail`, and fewer if cells have come free meanwhile.
    pub(crate) fn len(&self) -> u64 {
        // In this order, so that the result is never above what was in use: a full queue was full (F1).
        let tail = self.load_tail();
        self.used_from(self.load_head(), tail)
    }

    /// Returns how many positions there are from `head` to `tail`, or zero if `head` is the later one.
    fn used_from(&self, head: u64, tail: u64) -> u64 {
        let mask = self.cells.index_mask();
        // Signed, because the thread may have been stopped between the two loads. Laps wrap.
        let laps = (tail & !mask).wrapping_sub(head & !mask) as i64 / (mask + 1) as i64;
        let cells = self.cell_of(tail) as i64 - self.cell_of(head) as i64;
        (laps * self.cells.len() as i64 + cells).max(0) as u64
    }

    /// Returns the position and the state of the oldest cell.
    pub(crate) fn oldest(&self) -> (u64, CellState) {
        let head = self.load_head();
        let at = self.at(head);
        let seen = at.load();
        let states = [CellState::Full, CellState::Held, CellState::Dead];
        let state = states.into_iter().find(|state| at.stamp(*state) == seen);
        (head, state.unwrap_or(CellState::Empty))
    }

    /// Returns the number of cells.
    pub(crate) fn cells(&self) -> usize {
        self.cells.len() as usize
    }

    /// Returns how often the array had been gone through before a position was used.
    pub(crate) fn lap_of(&self, position: u64) -> u64 {
        position / (self.cells.index_mask() + 1)
    }

    /// Returns the index of the cell that serves a position.
    pub(crate) fn cell_of(&self, position: u64) -> usize {
        ((position & self.cells.index_mask()) / STEP) as usize
    }

    /// Returns how many positions `head` has passed.
    pub(crate) fn popped(&self) -> u64 {
        self.number(self.load_head())
    }

    /// Returns how many tasks have ever been pushed. Except in tests, positions begin at zero.
    pub(crate) fn pushed(&self) -> u64 {
        self.number(self.load_tail())
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

    /// Returns how many cells are dead, or are held by a thread that may leave them dead. For shuttle's
    /// judge.
    #[cfg(lazypool_shuttle)]
    pub(crate) fn dead_cells(&self) -> u64 {
        let (mut position, tail) = (self.load_head(), self.load_tail());
        let mut dead = 0;
        while position != tail {
            let at = self.at(position);
            let may_be_dead = [CellState::Dead, CellState::Held].map(|state| at.stamp(state));
            dead += u64::from(may_be_dead.contains(&at.load()));
            position = self.after(position);
        }
        dead
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
