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
//! that looks for one form a Dekker pair (see `shared.rs`); on x86-64 the
//! instructions are the same.

use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

const FULL: u64 = 1 << 16;
const LAP_SHIFT: u32 = 17;

const fn empty(lap: u64) -> u64 {
    lap << LAP_SHIFT
}

const fn full(lap: u64, value: u16) -> u64 {
    lap << LAP_SHIFT | FULL | value as u64
}

/// What one look at one end of the ring found.
enum Look<T> {
    Done(T),
    Nothing,
    Again,
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
        assert!(capacity <= 1 << 16 && filled <= capacity);
        let size = capacity.next_power_of_two();
        let cell = |i: usize| {
            AtomicU64::new(if i < filled {
                full(0, i as u16)
            } else {
                empty(0)
            })
        };
        Self {
            cells: (0..size).map(cell).collect(),
            shift: size.trailing_zeros(),
            head: CachePadded::new(AtomicU64::new(0)),
            tail: CachePadded::new(AtomicU64::new(filled as u64)),
        }
    }

    fn cell(&self, position: u64) -> &AtomicU64 {
        &self.cells[position as usize & (self.cells.len() - 1)]
    }

    /// Adds an index; gives it back if the ring was full.
    pub(crate) fn push(&self, value: usize) -> Result<(), usize> {
        debug_assert!(value < 1 << 16);
        loop {
            match self.try_push(value as u16) {
                Look::Done(()) => return Ok(()),
                Look::Nothing => return Err(value),
                Look::Again => {}
            }
        }
    }

    #[inline]
    fn try_push(&self, value: u16) -> Look<()> {
        let tail = self.tail.load(Ordering::SeqCst);
        let lap = tail >> self.shift;
        let cell = self.cell(tail);
        let seen = cell.load(Ordering::SeqCst);
        if seen == empty(lap) {
            if cell
                .compare_exchange(seen, full(lap, value), Ordering::SeqCst, Ordering::Relaxed)
                .is_err()
            {
                return Look::Again;
            }
            self.advance(&self.tail, tail);
            return Look::Done(());
        }
        if seen >> LAP_SHIFT < lap {
            return Look::Nothing;
        }
        // Pushed for this position by another thread that has yet to say so (and
        // popped since, perhaps), or `tail` is old.
        self.advance(&self.tail, tail);
        Look::Again
    }

    /// Takes the oldest index; `None` if the ring was empty.
    #[inline]
    pub(crate) fn pop(&self) -> Option<usize> {
        loop {
            match self.try_pop() {
                Look::Done(value) => return Some(value),
                Look::Nothing => return None,
                Look::Again => {}
            }
        }
    }

    #[inline]
    fn try_pop(&self) -> Look<usize> {
        let head = self.head.load(Ordering::SeqCst);
        let lap = head >> self.shift;
        let cell = self.cell(head);
        let seen = cell.load(Ordering::SeqCst);
        if seen == empty(lap) {
            return Look::Nothing;
        }
        if seen >> LAP_SHIFT == lap {
            if cell
                .compare_exchange(seen, empty(lap + 1), Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
            {
                self.advance(&self.head, head);
                return Look::Done((seen & (FULL - 1)) as usize);
            }
        } else {
            // Taken by another thread that has yet to say so, or `head` is old.
            self.advance(&self.head, head);
        }
        Look::Again
    }

    /// Moves an end on, unless somebody did already. A failure is a success of
    /// another thread: ends only grow.
    #[cfg_attr(lazypool_loom, track_caller)]
    fn advance(&self, end: &AtomicU64, from: u64) {
        let _ = end.compare_exchange(from, from + 1, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Whether the ring holds nothing at some moment during this call.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        loop {
            let head = self.head.load(Ordering::SeqCst);
            let seen = self.cell(head).load(Ordering::SeqCst);
            let lap = head >> self.shift;
            if seen >> LAP_SHIFT == lap {
                return seen == empty(lap);
            }
            self.advance(&self.head, head);
        }
    }

    /// What the ring holds, oldest first, if that is `N` at most and holds still;
    /// places not needed are `None`.
    pub(crate) fn few<const N: usize>(&self) -> Option<[Option<usize>; N]> {
        let head = self.head.load(Ordering::SeqCst);
        let tail = self.tail.load(Ordering::SeqCst);
        let mut few = [None; N];
        for (position, place) in (head..tail).zip(&mut few) {
            let seen = self.cell(position).load(Ordering::SeqCst);
            if seen & !(FULL - 1) != full(position >> self.shift, 0) {
                return None;
            }
            *place = Some((seen & (FULL - 1)) as usize);
        }
        (tail.wrapping_sub(head) <= N as u64).then_some(few)
    }

    /// The number of pushes, if as many pops left the ring empty at one moment of this
    /// call, but for a push as in [`Ring::pushes`].
    #[inline]
    pub(crate) fn drained(&self) -> Option<u64> {
        let head = self.head.load(Ordering::SeqCst);
        // Not the other way round: `tail` was here when `head` was read, too.
        let tail = self.tail.load(Ordering::SeqCst);
        (tail == head).then_some(tail)
    }

    /// Grows by one with every push: two equal readings mean that nothing
    /// was pushed in between, but for a push that has filled its cell and not
    /// yet advanced this (which [`Ring::is_empty`] sees).
    #[inline]
    pub(crate) fn pushes(&self) -> u64 {
        self.tail.load(Ordering::SeqCst)
    }
}

#[cfg(all(test, not(lazypool_loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    /// It once waited for the slow thread.
    #[test]
    fn a_push_helps_over_a_cell_popped_before_tail_moved() {
        let ring = Ring::new(2, 0);
        // As a thread leaves it that has filled its cell and not yet moved `tail`,
        // after a pop of that cell.
        ring.cell(0).store(empty(1), Ordering::SeqCst);
        ring.head.store(1, Ordering::SeqCst);
        for lap in 0..3 {
            ring.push(5).unwrap();
            ring.push(6).unwrap();
            assert_eq!(ring.push(7), Err(7), "{lap}");
            assert_eq!(
                [ring.pop(), ring.pop(), ring.pop()],
                [Some(5), Some(6), None]
            );
        }
    }

    #[test]
    fn a_push_helps_over_a_cell_filled_before_tail_moved() {
        let ring = Ring::new(2, 0);
        ring.cell(0).store(full(0, 5), Ordering::SeqCst);
        assert_eq!(ring.push(6), Ok(()), "the ring was not full");
        assert_eq!(ring.push(7), Err(7));
        assert_eq!([ring.pop(), ring.pop()], [Some(5), Some(6)]);
    }

    #[test]
    fn a_few_are_seen_without_being_taken() {
        let ring = Ring::new(4, 0);
        assert_eq!(ring.few::<2>(), Some([None, None]));
        for lap in 0..3 {
            ring.push(7).unwrap();
            assert_eq!(ring.few::<2>(), Some([Some(7), None]), "{lap}");
            ring.push(5).unwrap();
            assert_eq!(ring.few::<2>(), Some([Some(7), Some(5)]));
            ring.push(6).unwrap();
            assert_eq!(ring.few::<2>(), None);
            assert_eq!([ring.pop(), ring.pop()], [Some(7), Some(5)]);
            assert_eq!(ring.few::<2>(), Some([Some(6), None]));
            assert_eq!(ring.pop(), Some(6));
        }
        assert!(ring.is_empty());
    }

    #[test]
    fn rounds_up_and_starts_filled() {
        for capacity in [1, 2, 3, 5, 64, 65, 65_536] {
            let ring = Ring::new(capacity, capacity);
            assert_eq!(ring.cells.len(), capacity.next_power_of_two());
            for i in 0..capacity {
                assert_eq!(ring.pop(), Some(i));
            }
            assert_eq!(ring.pop(), None);
            assert!(ring.is_empty());
        }
    }

    #[test]
    fn refuses_exactly_when_full() {
        for capacity in [1_usize, 2, 4, 8] {
            let ring = Ring::new(capacity, 0);
            for round in 0..100 {
                for i in 0..capacity {
                    let pushes = ring.pushes();
                    assert_eq!(ring.push(i), Ok(()));
                    assert_eq!(ring.pushes(), pushes + 1);
                }
                assert_eq!(ring.push(7), Err(7), "round {round}");
                for i in 0..capacity {
                    assert!(!ring.is_empty());
                    assert_eq!(ring.pop(), Some(i));
                }
                assert_eq!(ring.pop(), None);
            }
        }
    }

    /// Each index circulates: taken and put back by many threads, none is lost
    /// or doubled, and a push into a ring that has room never fails.
    #[test]
    fn circulates_without_loss() {
        const THREADS: usize = 4;
        let ring = Ring::new(3, 3);
        let held: Vec<AtomicUsize> = (0..3).map(|_| AtomicUsize::new(0)).collect();
        thread::scope(|s| {
            for _ in 0..THREADS {
                s.spawn(|| {
                    for _ in 0..20_000 {
                        if let Some(i) = ring.pop() {
                            assert_eq!(held[i].fetch_add(1, Ordering::SeqCst), 0);
                            held[i].fetch_sub(1, Ordering::SeqCst);
                            ring.push(i).expect("room for every index");
                        }
                    }
                });
            }
        });
        let mut left: Vec<_> = std::iter::from_fn(|| ring.pop()).collect();
        left.sort_unstable();
        assert_eq!(left, [0, 1, 2]);
    }
}
