//! A bounded multi-producer multi-consumer ring of slot indices.
//!
//! A power-of-two array of words. Each word holds the *lap* of the position it
//! serves, whether it is full, and the index: so one compare-and-swap moves a
//! cell from `empty(lap)` to `full(lap, value)` (push) or from there to
//! `empty(lap + 1)` (pop). The shared positions `head` and `tail` only say
//! where to look; they are advanced after the cell, by whoever notices first.
//! No operation is ever half done in a way that another thread must wait for,
//! which makes the ring lock-free and its answers exact:
//!
//! * `push` fails only if the cell at `tail` still held the value of the lap
//!   before: the ring was full.
//! * `pop` fails only if the cell at `head` was still empty for `head`'s lap: the
//!   ring was empty.
//!
//! The end that was read before the cell need not be read again: it moves only
//! after the cell has left that lap, so a cell of the lap says that it has not.
//!
//! The sequence stamp per cell is D. Vyukov's (bounded MPMC queue, 1024cores);
//! stamping and value in one word, with helping, follows the "infinite array
//! folded" queues of Feldman and Dechev and of Nikolaev (SCQ, 2019).
//!
//! | from | to | by | ordering |
//! |---|---|---|---|
//! | `empty(n)` | `full(n, v)` | push | `SeqCst` CAS: publishes what was written before the push |
//! | `full(n, v)` | `empty(n + 1)` | pop | `SeqCst` CAS: takes `v` once |
//! | `tail = t` | `t + 1` | push or a helper | `SeqCst`: the cell at `t` is already full |
//! | `head = h` | `h + 1` | pop or a helper | `SeqCst`: the cell at `h` is already emptied |
//!
//! `SeqCst` rather than `AcqRel`: a worker that lists itself and a submitter
//! that looks for one form store-buffering pairs (P1 and P2 of the protocol page);
//! on x86-64 the instructions are the same.
//!
//! | pair | one side | the other side |
//! |---|---|---|
//! | R1 | a push fills the cell, then moves `tail` | a pop reads `head` and the cell, and empties it |
//!
//! Positions are 64 bits and wrap. A cell keeps the low 47 bits of the lap, and laps
//! are compared in these bits: two laps that a cell can confuse are 2^47 apart.

use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

const FULL: u64 = 1 << 16;
const LAP_SHIFT: u32 = 17;

/// The bits of a lap that a cell keeps.
const LAP: u64 = u64::MAX >> LAP_SHIFT;

const fn empty(lap: u64) -> u64 {
    lap << LAP_SHIFT
}

/// Whether a cell is of an earlier lap than `lap`: by less than half of all laps.
const fn is_before(cell: u64, lap: u64) -> bool {
    ((cell >> LAP_SHIFT).wrapping_sub(lap) & LAP) > LAP / 2
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
    /// log2 of the number of cells.
    shift: u32,
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
}

impl Ring {
    /// A ring with room for `capacity` indices, rounded up to a power of two,
    /// holding `0..filled`.
    pub(crate) fn new(capacity: usize, filled: usize) -> Self {
        Self::starting_at(0, capacity, filled)
    }

    /// The same, with the first position in lap `lap`: tests start near the wrap.
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

    /// Adds an index; gives it back if the ring was full.
    pub(crate) fn push(&self, value: usize) -> Result<(), usize> {
        debug_assert!(value < 1 << 16);
        loop {
            // ORDERING: R1, P2: the entry is in the ring before its slot is idle.
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
            } else if is_before(seen, lap) {
                return Err(value);
            } else {
                // Pushed for this position by another thread that has yet to say so (and
                // popped since, perhaps), or `tail` is old.
                self.advance(&self.tail, tail);
            }
        }
    }

    /// Takes the oldest index; `None` if the ring was empty.
    #[inline]
    #[must_use]
    pub(crate) fn pop(&self) -> Option<usize> {
        loop {
            // ORDERING: R1, P1, P2: after a push, or a look at other words.
            let head = self.head.load(Ordering::SeqCst);
            let lap = head >> self.shift;
            let cell = self.cell(head);
            let seen = cell.load(Ordering::SeqCst);
            if seen == empty(lap) {
                return None;
            } else if is_of(seen, lap) {
                let to = empty(lap.wrapping_add(1));
                if (cell.compare_exchange(seen, to, Ordering::SeqCst, Ordering::Relaxed)).is_ok() {
                    self.advance(&self.head, head);
                    return Some((seen & (FULL - 1)) as usize);
                }
            } else {
                // Taken by another thread that has yet to say so, or `head` is old.
                self.advance(&self.head, head);
            }
        }
    }

    /// Moves an end on, unless somebody did already. A failure is a success of
    /// another thread: ends only grow.
    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    fn advance(&self, end: &AtomicU64, from: u64) {
        // ORDERING: R1: the cell has changed before.
        let _ = end.compare_exchange(
            from,
            from.wrapping_add(1),
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
    }

    /// Whether the ring holds nothing at some moment during this call.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        loop {
            // ORDERING: R1, P1, P2: as `pop`.
            let head = self.head.load(Ordering::SeqCst);
            let seen = self.cell(head).load(Ordering::SeqCst);
            let lap = head >> self.shift;
            if is_of(seen, lap) {
                return seen == empty(lap);
            }
            self.advance(&self.head, head);
        }
    }

    /// Where the oldest entry is, and how many there are.
    pub(crate) fn held(&self) -> (u64, u64) {
        // ORDERING: P2: around a look at the slots.
        let head = self.head.load(Ordering::SeqCst);
        // Not the other way round: `tail` was here when `head` was read, too. A pop may have moved
        // `head` past an entry whose push is still to move `tail`.
        let held = self.pushes().wrapping_sub(head) as i64;
        (head, held.max(0) as u64)
    }

    /// Whether it was empty, if [`Ring::pushes`] is `pushes` before this and after.
    #[inline]
    pub(crate) fn is_drained(&self, pushes: u64) -> bool {
        // ORDERING: P2: around a look at other words.
        self.head.load(Ordering::SeqCst) == pushes
    }

    /// Grows by one with every push: two equal readings mean that nothing
    /// was pushed in between, but for a push that has filled its cell and not
    /// yet advanced this (which [`Ring::is_empty`] sees).
    #[inline]
    pub(crate) fn pushes(&self) -> u64 {
        // ORDERING: P1, P2: after a push, or around a look at other words.
        self.tail.load(Ordering::SeqCst)
    }
}

#[cfg(any(lazypool_shuttle, test))]
impl Ring {
    /// The entry at a position, if it is there.
    pub(crate) fn entry(&self, position: u64) -> Option<usize> {
        // ORDERING: P2: as `held`.
        let seen = self.cell(position).load(Ordering::SeqCst);
        let is_full = seen & !(FULL - 1) == full(position >> self.shift, 0);
        is_full.then_some((seen & (FULL - 1)) as usize)
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "ring_tests.rs"]
mod tests;
