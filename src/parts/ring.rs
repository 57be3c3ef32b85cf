//! A bounded multi-producer multi-consumer ring of slot indices.
//!
//! The ring is a power-of-two array of words, its cells. Each cell holds the *lap* of the position
//! that it serves, a bit that says whether it is full, and the index. One compare-and-swap moves a
//! cell from `empty(lap)` to `full(lap, value)` (a push), or from there to `empty(lap + 1)` (a
//! pop). The shared positions `head` and `tail` only tell a thread which cell to look at. Each of
//! the two moves after the cell has changed, and any thread that notices the change may move it. So
//! no thread ever waits for another one, and the ring is lock-free. Its answers are exact:
//!
//! * `try_push` fails only if the cell at `tail` still holds a value of the lap before. Then the ring
//!   is full.
//! * `pop` fails only if the cell at `head` is still empty in the lap of `head`. Then the ring is
//!   empty.
//!
//! An operation reads `head` or `tail`, then the cell, and need not read `head` or `tail` again.
//! `tail` moves past a position only after the cell there has been filled. `head` moves past a
//! position only after the cell there has been emptied. So if a cell is not yet filled, neither
//! `head` nor `tail` has moved past it. If a cell is not yet emptied, `head` has not.
//!
//! The stamp in each cell comes from D. Vyukov's bounded MPMC queue (1024cores). Two more ideas
//! come from the "infinite array folded" queues of Feldman and Dechev and of Nikolaev (SCQ, 2019):
//! stamp and value share one word, and threads help each other.
//!
//! | from | to | by | ordering |
//! |---|---|---|---|
//! | `empty(n)` | `full(n, v)` | push | `SeqCst` CAS: publishes what was written before the push |
//! | `full(n, v)` | `empty(n + 1)` | pop | `SeqCst` CAS: takes `v` once |
//! | `tail = t` | `t + 1` | push or a helper | `SeqCst`: the cell at `t` is already full |
//! | `head = h` | `h + 1` | pop or a helper | `SeqCst`: the cell at `h` is already emptied |
//!
//! All steps are `SeqCst` rather than `AcqRel`, because a worker that lists itself and a submitter
//! that looks for a worker form store-buffering pairs (P1 of the protocol page). On x86-64
//! the instructions are the same.
//!
//! | pair | one side | the other side |
//! |---|---|---|
//! | R1 | a push fills the cell, then moves `tail` | a pop reads `head` and the cell, and empties it |
//!
//! Positions have 64 bits and wrap. A cell keeps the low 47 bits of the lap, and laps are compared
//! in these bits only. A thread could confuse two laps only if it stopped for 2^47 laps.

use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

const FULL: u64 = 1 << 16;
const LAP_SHIFT: u32 = 17;

/// The bits of a lap that a cell keeps.
const LAP: u64 = u64::MAX >> LAP_SHIFT;

const fn empty(lap: u64) -> u64 {
    lap << LAP_SHIFT
}

const fn is_of(cell: u64, lap: u64) -> bool {
    cell >> LAP_SHIFT == lap & LAP
}

const fn full(lap: u64, value: u16) -> u64 {
    lap << LAP_SHIFT | FULL | value as u64
}

#[derive(Debug)]
pub(crate) struct Ring {
    cells: Box<[AtomicU64]>,
    /// The base-2 logarithm of the number of cells.
    shift: u32,
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
}

impl Ring {
    /// Creates a ring with space for `capacity` indices, rounded up to a power of two. It holds the
    /// indices `0..filled`.
    pub(crate) fn new(capacity: usize, filled: usize) -> Self {
        Self::starting_at(0, capacity, filled)
    }

    /// Creates a ring as [`Ring::new`] does, but begins with the first position of lap `lap`. Tests
    /// start near the point at which positions wrap.
    pub(crate) fn starting_at(lap: u64, capacity: usize, filled: usize) -> Self {
        assert!(capacity <= 1 << 16 && filled <= capacity);
        let size = capacity.next_power_of_two();
        let shift = size.trailing_zeros();
        let cell = |i: usize| {
            AtomicU64::new(if i < filled {
                full(lap, i as u16)
            } else {
                empty(lap)
            })
        };
        let first = lap << shift;
        Self {
            cells: (0..size).map(cell).collect(),
            shift,
            head: CachePadded::new(AtomicU64::new(first)),
            tail: CachePadded::new(AtomicU64::new(first.wrapping_add(filled as u64))),
        }
    }

    fn cell(&self, position: u64) -> &AtomicU64 {
        &self.cells[position as usize & (self.cells.len() - 1)]
    }

    /// Adds an index. The ring must have space: each slot has at most one entry.
    ///
    /// # Panics
    /// If the ring is full.
    pub(crate) fn push(&self, value: usize) {
        (self.try_push(value)).expect("one entry per slot at most: the ring has space");
    }

    /// Adds an index. Gives it back as the error if the ring is full.
    pub(crate) fn try_push(&self, value: usize) -> Result<(), usize> {
        debug_assert!(value < 1 << 16);
        loop {
            // ORDERING: R1, P1: the entry is in the ring before its slot is idle.
            let tail = self.tail.load(Ordering::SeqCst);
            let lap = tail >> self.shift;
            let cell = self.cell(tail);
            let seen = cell.load(Ordering::SeqCst);
            if seen == empty(lap) {
                let to = full(lap, value as u16);
                if (cell.compare_exchange(seen, to, Ordering::SeqCst, Ordering::Relaxed)).is_ok() {
                    self.advance(&self.tail, tail);
                    return Ok(());
                }
            } else if is_of(seen, lap.wrapping_sub(1)) {
                // The cell still holds the value of the lap before.
                return Err(value);
            } else {
                // Another thread has filled the cell, and a pop may even have emptied it since. If
                // `tail` has not moved meanwhile, this thread moves it.
                self.advance(&self.tail, tail);
            }
        }
    }

    /// Returns `head` and the cell's word there: full, or empty if the ring was empty at some moment
    /// during this call.
    #[inline]
    fn oldest(&self) -> (u64, u64) {
        loop {
            // ORDERING: R1, P1: read after this thread has pushed a task into the queue (P1),
            // or has read a count of workers in flight.
            let head = self.head.load(Ordering::SeqCst);
            let seen = self.cell(head).load(Ordering::SeqCst);
            if is_of(seen, head >> self.shift) {
                return (head, seen);
            }
            // Another thread has taken the entry. If `head` has not moved meanwhile, this thread
            // moves it.
            self.advance(&self.head, head);
        }
    }

    /// Takes the oldest index. Returns `None` if the ring is empty.
    #[inline]
    #[must_use]
    pub(crate) fn pop(&self) -> Option<usize> {
        loop {
            let (head, seen) = self.oldest();
            if seen & FULL == 0 {
                return None;
            }
            // ORDERING: R1: takes the entry once.
            let cell = self.cell(head);
            let to = empty((head >> self.shift).wrapping_add(1));
            if (cell.compare_exchange(seen, to, Ordering::SeqCst, Ordering::Relaxed)).is_ok() {
                self.advance(&self.head, head);
                return Some((seen & (FULL - 1)) as usize);
            }
        }
    }

    /// Moves `head` or `tail` from the position `from` to the next one. On failure another thread
    /// has moved it already, since both only grow.
    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    fn advance(&self, end: &AtomicU64, from: u64) {
        // ORDERING: R1: `head` or `tail` moves after the cell has changed.
        let next = from.wrapping_add(1);
        let _ = end.compare_exchange(from, next, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Returns `true` if the ring was empty at some moment during this call.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest().1 & FULL == 0
    }

    /// Returns how many pushes are complete, as a number that wraps. If it is the same before and after a look that has found the
    /// ring empty, the ring was empty from that look on.
    #[inline]
    pub(crate) fn pushed(&self) -> u64 {
        // ORDERING: R1, P1: a worker that is idle has completed its push before.
        self.tail.load(Ordering::SeqCst)
    }

    /// Returns `true` if each push that is complete has been popped. Reads the two ends only. Misses a
    /// push that has filled its cell and not yet moved `tail`.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        // ORDERING: R1, P1: read after this thread has pushed a task into the queue. A worker that is
        // idle has completed its push before.
        self.head.load(Ordering::SeqCst) == self.tail.load(Ordering::SeqCst)
    }

    /// Returns the position of the oldest entry, and the number of entries.
    pub(crate) fn head_and_len(&self) -> (u64, u64) {
        // ORDERING: P1: in one total order with the steps of the slots.
        let head = self.head.load(Ordering::SeqCst);
        // `head` is read first, because it may pass a `tail` that was read before. The difference
        // can still be negative, because a pop may have moved `head` past an entry whose push has
        // not yet moved `tail`.
        let held = self.tail.load(Ordering::SeqCst).wrapping_sub(head) as i64;
        (head, held.max(0) as u64)
    }
}

#[cfg(any(lazypool_shuttle, test))]
impl Ring {
    /// Returns the index at a position, if an entry is there.
    pub(crate) fn entry(&self, position: u64) -> Option<usize> {
        // ORDERING: P1: as in `head_and_len`.
        let seen = self.cell(position).load(Ordering::SeqCst);
        let is_full = seen & !(FULL - 1) == full(position >> self.shift, 0);
        is_full.then_some((seen & (FULL - 1)) as usize)
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "ring_tests.rs"]
mod tests;
