//! Workers that the rings do not show, or that will look at the queue unasked: counts in
//! one word, so that one load reads them all and one addition moves a worker between
//! them.
//!
//! | count | of whom | from | until |
//! |---|---|---|---|
//! | awake | workers without a task that watch the queue | before they leave `Busy` or `Idle` | after they have a task, or before their last look at the queue |
//! | notified | workers told to look at the queue, and not there yet; attempts to tell one | before the worker leaves `Idle` or `Held` | it is awake; or the attempt has found nobody, and then looks again |
//! | returning | slots whose worker ends, where no stop hook may delay it | before the worker leaves `Idle` or is counted awake no more | the slot is in the free ring, or the worker awake |
//!
//! A submission refuses only if all three are zero; see the protocol page.

use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// What a worker or an attempt counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(u64);

pub(crate) const NOBODY: Count = Count(0);
pub(crate) const AWAKE: Count = Count(1);
pub(crate) const NOTIFIED: Count = Count(1 << 20);
pub(crate) const RETURNING: Count = Count(1 << 40);
/// Larger than the number of slots, and of threads that can be at once between counting
/// themselves and the step after it.
const FIELD: u64 = (1 << 20) - 1;

#[derive(Debug)]
pub(crate) struct InFlight(CachePadded<AtomicU64>);

/// A reading of the counts.
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
        self.0 % RETURNING.0 != 0
    }

    #[inline]
    pub(crate) fn is_any_returning(self) -> bool {
        self.0 >= RETURNING.0
    }

    /// Returns `true` if no worker counts, or `own` alone.
    #[inline]
    pub(crate) fn is_only(self, own: Count) -> bool {
        self.0 == own.0
    }

    #[cfg(any(test, lazypool_loom, lazypool_shuttle))]
    pub(crate) fn is_nobody(self) -> bool {
        self.is_only(NOBODY)
    }
}

impl InFlight {
    pub(crate) fn new() -> Self {
        Self(CachePadded::new(AtomicU64::new(0)))
    }

    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) fn add(&self, count: Count) {
        // ORDERING: P1, P2: before the next step of the worker or slot.
        self.0.fetch_add(count.0, Ordering::SeqCst);
    }

    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) fn sub(&self, count: Count) {
        // ORDERING: P1, P2: after the step of the worker or slot, and before its last look.
        self.0.fetch_sub(count.0, Ordering::SeqCst);
    }

    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) fn shift(&self, from: Count, to: Count) {
        // ORDERING: P1, P2: counted as one of the two at every moment.
        self.0
            .fetch_add(to.0.wrapping_sub(from.0), Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn see(&self) -> Seen {
        // ORDERING: P1, P2: after a push, or around a look at the rings.
        Seen(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl InFlight {
    /// For the judge: awake, notified and returning.
    #[cfg(lazypool_shuttle)]
    pub(crate) fn figures(&self) -> [u64; 3] {
        let counts = self.see().0;
        [AWAKE, NOTIFIED, RETURNING].map(|count| counts / count.0 & FIELD)
    }

    /// For models, once every thread has ended.
    pub(crate) fn assert_at_rest(&self) {
        assert!(self.see().is_nobody(), "in flight");
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;
    use crate::parts::cut::cut;

    #[test]
    fn counts_do_not_mix() {
        let counts = InFlight::new();
        assert!(counts.see().is_nobody());
        for (count, awake, searching) in [
            (AWAKE, true, true),
            (NOTIFIED, false, true),
            (RETURNING, false, false),
        ] {
            for _ in 0..cut(70_000) {
                counts.add(count);
            }
            let seen = counts.see();
            assert!(!seen.is_nobody());
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
        assert!(counts.see().is_nobody());
    }
}
