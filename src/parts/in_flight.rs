//! Counts of workers that look at the queue, or are about to. Both counts are in one word, so that
//! one load reads them and one addition moves a worker from one count to the other.
//!
//! A thread that pushes a task may rely on a counted worker instead of looking for one.
//!
//! | count | what it counts | raised | lowered |
//! |---|---|---|---|
//! | awake | workers without a task that watch the queue, or are about to pop | before the worker leaves `Busy`; or right after it has left `Idle` | before its last look at the queue; before it calls user code, or waits for the lock of a leave or a pass; and before it asks its host whether it has to end |
//! | notified | workers told to look at the queue that have not begun to; threads that seek a worker to tell | before the worker leaves `Idle` or `Held` | when the worker counts as awake, or begins to call user code; when a worker with a start hook is registered; or when the thread has found none, before it looks again |
//!
//! No user code runs in a thread or worker while it is counted. But such a worker may wait for the lock of its host,
//! as it passes a permit. A thread that is stopped with that lock holds up the tasks that rely on the worker.

use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// One of the two counts, as the value that raises it by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(u64);

pub(crate) const AWAKE: Count = Count(1);
pub(crate) const NOTIFIED: Count = Count(1 << 32);
/// The mask of one count.
const FIELD: u64 = (1 << 32) - 1;

#[derive(Debug, Default)]
pub(crate) struct InFlight(CachePadded<AtomicU64>);

/// One reading of both counts.
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
        self.0 != 0
    }
}

impl InFlight {
    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) fn add(&self, count: Count) {
        // ORDERING: P1: raised before the worker or its slot takes its next step.
        self.0.fetch_add(count.0, Ordering::SeqCst);
    }

    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) fn sub(&self, count: Count) {
        // ORDERING: P1: lowered after the step for which `add` raised it, and before the
        // worker's last look at the queue.
        self.0.fetch_sub(count.0, Ordering::SeqCst);
    }

    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) fn shift(&self, from: Count, to: Count) {
        // ORDERING: P1: at every moment, one of the two counts includes the worker.
        (self.0).fetch_add(to.0.wrapping_sub(from.0), Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn load(&self) -> Seen {
        // ORDERING: P1: read after this thread has pushed a task into the queue.
        Seen(self.0.load(Ordering::SeqCst))
    }

    /// Returns the counts `awake` and `notified`.
    pub(crate) fn figures(&self) -> [u64; 2] {
        let counts = self.load().0;
        [AWAKE, NOTIFIED].map(|count| (counts / count.0) & FIELD)
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl InFlight {
    /// Asserts that every count is zero. Models call it after every thread has ended.
    pub(crate) fn assert_at_rest(&self) {
        assert!(!self.load().is_any_searching(), "in flight");
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;
    use crate::parts::cut::cut;

    #[test]
    fn counts_do_not_mix() {
        let counts = InFlight::default();
        assert!(!counts.load().is_any_searching());
        for (count, awake) in [(AWAKE, true), (NOTIFIED, false)] {
            for _ in 0..cut(70_000) {
                counts.add(count);
            }
            let seen = counts.load();
            assert_eq!(
                (seen.is_any_awake(), seen.is_any_searching()),
                (awake, true)
            );
            for _ in 0..cut(70_000) {
                counts.sub(count);
            }
        }
        counts.add(NOTIFIED);
        counts.shift(NOTIFIED, AWAKE);
        assert!(counts.load().is_any_awake());
        counts.sub(AWAKE);
        assert!(!counts.load().is_any_searching());
    }
}
