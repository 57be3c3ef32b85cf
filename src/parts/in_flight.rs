//! Counts of workers that have no task and may be in no ring. All counts are in one word, so that
//! one load reads them all and one addition moves a worker from one count to another.
//!
//! | count | what it counts | raised | lowered |
//! |---|---|---|---|
//! | awake | workers without a task that watch the queue | before the worker leaves `Busy` or `Idle` | after it has a task, or before its last look at the queue |
//! | notified | workers told to look at the queue that have not begun to; threads that seek a worker to tell | before the worker leaves `Idle` or `Held` | when the worker counts as awake; or when the thread has found none, before it looks again |
//! | returning | slots whose worker ends, in a pool without a stop hook | before the worker leaves `Idle` or the count awake | when the slot is in the free ring, or the worker counts as awake |
//!
//! A submission is refused as saturated only if all three counts are zero. Claim V in
//! `engine/proofs.md` has the proof.

use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// One of the three counts, as the value that raises it by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(u64);

pub(crate) const AWAKE: Count = Count(1);
pub(crate) const NOTIFIED: Count = Count(1 << 20);
pub(crate) const RETURNING: Count = Count(1 << 40);
/// The mask of one count. A count includes each slot at most once, and there are at most 65,536
/// slots. It also includes each thread that is currently notifying a worker at most once. So it
/// stays below 2^20 unless more than 900,000 threads notify at the same time.
const FIELD: u64 = (1 << 20) - 1;

#[derive(Debug, Default)]
pub(crate) struct InFlight(CachePadded<AtomicU64>);

/// One reading of all three counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Seen {
    #[inline]
    pub(crate) fn is_any_awake(self) -> bool {
        self.0 & FIELD != 0
    }

    /// Returns `true` if `awake` or `notified` is not zero. Then a worker is looking at the queue
    /// or is about to, or a thread is searching for a worker to send to the queue.
    #[inline]
    pub(crate) fn is_any_searching(self) -> bool {
        self.0 % RETURNING.0 != 0
    }

    #[inline]
    pub(crate) fn is_any_returning(self) -> bool {
        self.0 >= RETURNING.0
    }

    #[inline]
    pub(crate) fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl InFlight {
    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) fn add(&self, count: Count) {
        // ORDERING: P1, P2: raised before the worker or its slot takes its next step.
        self.0.fetch_add(count.0, Ordering::SeqCst);
    }

    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) fn sub(&self, count: Count) {
        // ORDERING: P1, P2: lowered after the step for which `add` raised it, and before the
        // worker's last look at the queue.
        self.0.fetch_sub(count.0, Ordering::SeqCst);
    }

    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) fn shift(&self, from: Count, to: Count) {
        // ORDERING: P1, P2: at every moment, one of the two counts includes the worker.
        (self.0).fetch_add(to.0.wrapping_sub(from.0), Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn see(&self) -> Seen {
        // ORDERING: P1, P2: read after this thread has pushed a task into the queue (P1), or before
        // and after it reads the rings (P2).
        Seen(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl InFlight {
    /// Returns the counts `awake`, `notified` and `returning`. The checks of shuttle's scenarios
    /// read them.
    #[cfg(lazypool_shuttle)]
    pub(crate) fn figures(&self) -> [u64; 3] {
        let counts = self.see().0;
        [AWAKE, NOTIFIED, RETURNING].map(|count| counts / count.0 & FIELD)
    }

    /// Asserts that every count is zero. Models call it after every thread has ended.
    pub(crate) fn assert_at_rest(&self) {
        assert!(self.see().is_zero(), "in flight");
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;
    use crate::parts::cut::cut;

    #[test]
    fn counts_do_not_mix() {
        let counts = InFlight::default();
        assert!(counts.see().is_zero());
        for (count, awake, searching) in [
            (AWAKE, true, true),
            (NOTIFIED, false, true),
            (RETURNING, false, false),
        ] {
            for _ in 0..cut(70_000) {
                counts.add(count);
            }
            let seen = counts.see();
            assert!(!seen.is_zero());
            assert_eq!(seen.is_any_awake(), awake);
            assert_eq!(seen.is_any_searching(), searching);
            for _ in 0..cut(70_000) {
                counts.sub(count);
            }
        }
        counts.add(RETURNING);
        counts.shift(RETURNING, NOTIFIED);
        counts.shift(NOTIFIED, AWAKE);
        assert!(counts.see().is_any_awake());
        counts.sub(AWAKE);
        assert!(counts.see().is_zero());
    }
}
