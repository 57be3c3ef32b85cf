//! Workers that the rings do not show, or that will look at the queue unasked: counts in
//! one word, so that one load reads them all and one addition moves a worker between
//! them.
//!
//! | count | of whom | from | until |
//! |---|---|---|---|
//! | awake | workers without a task that watch the queue | before they leave `Busy` or `Idle` | after they have a task, or before their last look at the queue |
//! | notified | workers told to look at the queue, and not there yet; attempts to tell one | before the worker leaves its ring | it is awake; or the attempt has found nobody, and then looks again |
//! | transit | slots that get a thread or lose it; attempts to notify that may start no thread | before the slot or worker leaves its ring | it is back, occupied, notified or idle |
//!
//! Beside them is the count of marked workers, which are idle: before they are marked,
//! until they are no more.
//!
//! A submission refuses only if all four are zero; see the protocol page.

use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// What a worker or an attempt counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(u64);

pub(crate) const AWAKE: Count = Count(1);
pub(crate) const NOTIFIED: Count = Count(1 << 20);
pub(crate) const TRANSIT: Count = Count(1 << 40);
/// Larger than the number of slots, and of threads that can be at once between counting
/// themselves and the step after it.
const FIELD: u64 = (1 << 20) - 1;

#[derive(Debug)]
pub(crate) struct InFlight(CachePadded<Counts>);

#[derive(Debug)]
struct Counts {
    moving: AtomicU64,
    marked: AtomicU64,
}

/// A reading of the counts that move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Seen {
    #[inline]
    pub(crate) fn is_any_awake(self) -> bool {
        self.0 & FIELD != 0
    }

    /// Somebody will look at the queue unasked, or is on the way there.
    #[inline]
    pub(crate) fn is_any_searching(self) -> bool {
        self.0 % TRANSIT.0 != 0
    }

    #[inline]
    pub(crate) fn is_any_in_transit(self) -> bool {
        self.0 >= TRANSIT.0
    }
}

impl InFlight {
    pub(crate) fn new() -> Self {
        Self(CachePadded::new(Counts {
            moving: AtomicU64::new(0),
            marked: AtomicU64::new(0),
        }))
    }

    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) fn add(&self, count: Count) {
        // ORDERING: P1, P4: before the next step of the worker or slot.
        self.0.moving.fetch_add(count.0, Ordering::SeqCst);
    }

    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) fn sub(&self, count: Count) {
        // ORDERING: P1, P4: after the step of the worker or slot, and before its last look.
        self.0.moving.fetch_sub(count.0, Ordering::SeqCst);
    }

    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) fn shift(&self, from: Count, to: Count) {
        // ORDERING: P1, P4: counted as one of the two at every moment.
        self.0
            .moving
            .fetch_add(to.0.wrapping_sub(from.0), Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn see(&self) -> Seen {
        // ORDERING: P1, P4: after a push, or around a look at the rings.
        Seen(self.0.moving.load(Ordering::SeqCst))
    }

    /// Nobody moves, and nobody is marked, at one moment. Who leaves one count for the other
    /// is in both for a while; so one of the two is read before and after the other: a worker
    /// that is marked at the first reading, and no more at the second, moves at the third.
    #[inline]
    pub(crate) fn is_nobody_at_all(&self) -> bool {
        // ORDERING: P1, P4: before a push, or around a look at the rings.
        let counts = &self.0;
        counts.moving.load(Ordering::SeqCst) | counts.marked.load(Ordering::SeqCst) == 0
            && counts.moving.load(Ordering::SeqCst) == 0
    }

    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) fn mark(&self) {
        // ORDERING: P4: before the worker is marked.
        self.0.marked.fetch_add(1, Ordering::SeqCst);
    }

    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) fn unmark(&self) {
        // ORDERING: P4: after the worker is marked no more.
        self.0.marked.fetch_sub(1, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn is_any_marked(&self) -> bool {
        // ORDERING: P1, P4: after a push, or around a look at the rings.
        self.0.marked.load(Ordering::SeqCst) != 0
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl InFlight {
    /// For the judge: awake, notified, in transit and marked.
    #[cfg(lazypool_shuttle)]
    pub(crate) fn figures(&self) -> [u64; 4] {
        let moving = self.see().0;
        let marked = self.0.marked.load(Ordering::SeqCst);
        let field = |count: Count| moving / count.0 & FIELD;
        [field(AWAKE), field(NOTIFIED), field(TRANSIT), marked]
    }

    /// For models, once every thread has ended.
    pub(crate) fn assert_at_rest(&self) {
        assert!(self.is_nobody_at_all(), "in flight or marked");
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;
    use crate::parts::cut::cut;

    #[test]
    fn counts_do_not_mix() {
        let counts = InFlight::new();
        assert!(counts.is_nobody_at_all());
        for (count, awake, searching, transit) in [
            (AWAKE, true, true, false),
            (NOTIFIED, false, true, false),
            (TRANSIT, false, false, true),
        ] {
            for _ in 0..cut(70_000) {
                counts.add(count);
            }
            let seen = counts.see();
            assert_eq!(seen.is_any_awake(), awake);
            assert_eq!(seen.is_any_searching(), searching);
            assert_eq!(seen.is_any_in_transit(), transit);
            for _ in 0..cut(70_000) {
                counts.sub(count);
            }
        }
        counts.add(TRANSIT);
        counts.shift(TRANSIT, NOTIFIED);
        counts.shift(NOTIFIED, AWAKE);
        assert!(counts.see().is_any_awake() && !counts.see().is_any_in_transit());
        counts.sub(AWAKE);
        counts.mark();
        assert!(!counts.is_nobody_at_all() && counts.is_any_marked());
        counts.unmark();
        assert!(!counts.is_any_marked());
    }

    /// As a worker that is told to end: marked, then in transit as well, then marked no more.
    #[test]
    fn who_moves_from_one_count_to_the_other_is_never_missed() {
        use std::sync::atomic::AtomicU64;
        let counts = &InFlight::new();
        let (begun, moved) = (&AtomicU64::new(0), &AtomicU64::new(0));
        // Close together, and yet not for ever on one core.
        let wait_a_bit = |turn: u32| {
            if turn % 1024 == 1023 {
                std::thread::yield_now();
            }
        };
        const ROUNDS: u64 = cut(5_000);
        std::thread::scope(|s| {
            s.spawn(move || {
                for round in 1..=ROUNDS {
                    for turn in 0.. {
                        if begun.load(Ordering::SeqCst) == round {
                            break;
                        }
                        wait_a_bit(turn);
                    }
                    counts.add(TRANSIT);
                    counts.unmark();
                    moved.store(round, Ordering::SeqCst);
                }
            });
            let mut missed = 0;
            for round in 1..=ROUNDS {
                counts.mark();
                begun.store(round, Ordering::SeqCst);
                for turn in 0.. {
                    if moved.load(Ordering::SeqCst) == round {
                        break;
                    }
                    missed += u64::from(counts.is_nobody_at_all());
                    wait_a_bit(turn);
                }
                counts.sub(TRANSIT);
            }
            assert_eq!(missed, 0);
        });
    }
}
