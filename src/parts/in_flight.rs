//! Counts of workers that look at the queue, or are about to. Both counts are in one word, so that
//! one load reads them and one addition moves a worker from one count to the other.
//!
//! A thread that pushes a task may rely on a counted worker instead of looking for one.
//!
//! | count | what it counts | raised | lowered |
//! |---|---|---|---|
//! | awake | workers without a task that watch the queue, or are about to pop | before the worker becomes `Idle`, if it watches the queue, or `Searching` from `Paying`; right after it has left `Idle` by itself; or as it reads an order to look | once it has a task; before its last look at the queue; before it pays a debt that may need a lock, or calls user code; and before it asks its host whether it has to end |
//! | notified | workers told to look at the queue that have not begun to (`Notified`); threads that seek a worker to tell | before the worker leaves `Idle` or `Held` | when the worker counts as awake; when a worker with a start hook is registered; or when the thread has found none, before it looks again |
//!
//! Each unit of a count belongs to someone, who lowers it: a [`Notice`] to the thread that seeks, then to the slot
//! that is `Notified`; one of `awake` to a worker, which keeps it in its [`Awake`].
//!
//! A worker that is counted as awake runs no user code, and waits for no lock. Debug builds and models assert it. A thread
//! that seeks a worker may wait for a lock, or for the OS to start a thread. It pays nothing, and calls no wakers, while it has the notice: that is asserted, too.

use crate::parts::queue::Queue;
use crate::sync::{note_in_hand, set_relied_on, AtomicU64, InHand, Ordering};
use crossbeam_utils::CachePadded;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// One of the two counts, as the value that raises it by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count(u64);

const AWAKE: Count = Count(1);
const NOTIFIED: Count = Count(1 << 32);
/// The mask of one count.
const FIELD: u64 = (1 << 32) - 1;

/// One unit of the count `notified`. A thread has it while it seeks a worker to tell. It leaves the notice with the
/// worker's slot, from which the worker takes it; or it [forgoes](InFlight::forgo) it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a notice that is lost counts for ever"]
pub(crate) struct Notice(());

impl Notice {
    /// Leaves the notice with a slot, by a step to `Notified`.
    pub(super) fn leave_in_slot(self) {
        self.forget();
    }

    /// Returns the notice of a slot that has just left `Notified`.
    pub(super) fn of_slot() -> Self {
        Self::new()
    }

    /// Returns a notice that is in no count, for models.
    #[cfg(lazypool_loom)]
    pub(crate) fn of_model() -> Self {
        Self::new()
    }

    fn new() -> Self {
        note_in_hand(InHand::Notice, 1);
        Self(())
    }

    fn forget(self) {
        note_in_hand(InHand::Notice, -1);
        std::mem::forget(self);
    }
}

#[cfg(debug_assertions)]
impl Drop for Notice {
    fn drop(&mut self) {
        note_in_hand(InHand::Notice, -1);
        assert!(std::thread::panicking(), "a notice is lost");
    }
}

/// The duty of a worker that has left the count `awake`: others may have relied on it to look at the queue. So it
/// looks itself, or has another worker look (A2).
#[derive(Debug)]
#[must_use = "a task may be queued, and nobody looks"]
pub(crate) struct MustLook(());

impl MustLook {
    /// Looks at the queue. Returns `true` if a task is there. Then this worker searches, or owes a look.
    #[inline]
    #[must_use = "a task may be queued, and nobody looks"]
    pub(crate) fn look<T>(self, queue: &Queue<T>) -> bool {
        std::mem::forget(self);
        !queue.is_empty()
    }

    /// Does not look. For tests and models.
    #[cfg(any(test, lazypool_loom))]
    pub(crate) fn ignore(self) {
        std::mem::forget(self);
    }
}

#[cfg(debug_assertions)]
impl Drop for MustLook {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a look is forgotten");
    }
}

/// A worker's place in the count `awake`. The worker alone changes it. Others read it, to show a person whose units
/// the count has. So it is no atomic of `sync`: models need not explore it.
#[derive(Debug, Default)]
pub(crate) struct Awake(AtomicBool);

impl Awake {
    #[inline]
    pub(crate) fn is_counted(&self) -> bool {
        // Relaxed: a worker reads what it has written; others show it.
        self.0.load(Relaxed)
    }

    /// Counts the worker, if it is not counted yet.
    pub(crate) fn enter(&self, counts: &InFlight) {
        if !self.set(true) {
            counts.add(AWAKE);
        }
    }

    /// Counts the worker, which has been notified, as awake instead.
    pub(crate) fn enter_notified(&self, counts: &InFlight, notice: Notice) {
        if self.set(true) {
            return counts.forgo(notice);
        }
        notice.forget();
        counts.shift(NOTIFIED, AWAKE);
    }

    /// Takes the worker out of the count, if it was counted. Then other threads may have relied on it.
    pub(crate) fn leave(&self, counts: &InFlight) -> Option<MustLook> {
        self.set(false).then(|| {
            counts.sub(AWAKE);
            MustLook(())
        })
    }

    /// Notes whether the worker is counted. Returns whether it was.
    fn set(&self, is_counted: bool) -> bool {
        let was_counted = self.is_counted();
        // Relaxed: as in `is_counted`.
        self.0.store(is_counted, Relaxed);
        set_relied_on(is_counted);
        was_counted
    }
}

#[derive(Debug, Default)]
pub(crate) struct InFlight(CachePadded<AtomicU64>);

/// One reading of both counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Seen {
    /// No worker looks, and none is about to.
    pub(crate) const NOBODY: Self = Self(0);

    #[inline]
    pub(crate) fn is_any_awake(self) -> bool {
        self.0 & FIELD != 0
    }

    /// Returns `true` if `awake` or `notified` is not zero. Then a worker is looking at the queue
    /// or is about to, or a thread is searching for a worker to send to the queue.
    #[inline]
    pub(crate) fn is_any_counted(self) -> bool {
        self.0 != 0
    }
}

impl InFlight {
    /// Counts a thread that seeks a worker to tell.
    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) fn notify(&self) -> Notice {
        self.add(NOTIFIED);
        Notice::new()
    }

    /// Lowers the count `notified`: no worker looks at the queue because of this notice.
    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) fn forgo(&self, notice: Notice) {
        notice.forget();
        self.sub(NOTIFIED);
    }

    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    fn add(&self, count: Count) {
        // ORDERING: P1: raised before the worker or its slot takes its next step.
        self.0.fetch_add(count.0, Ordering::SeqCst);
    }

    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    fn sub(&self, count: Count) {
        // ORDERING: P1: lowered after the step for which `add` raised it, and before the
        // worker's last look at the queue.
        let before = self.0.fetch_sub(count.0, Ordering::SeqCst);
        debug_assert_ne!((before / count.0) & FIELD, 0, "{count:?} is not raised");
    }

    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    fn shift(&self, from: Count, to: Count) {
        // ORDERING: P1: at every moment, one of the two counts includes the worker.
        let before = (self.0).fetch_add(to.0.wrapping_sub(from.0), Ordering::SeqCst);
        debug_assert_ne!((before / from.0) & FIELD, 0, "{from:?} is not raised");
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

#[cfg(lazypool_loom)]
impl Awake {
    /// Returns the place of a worker that is counted, for models.
    pub(crate) fn counted() -> Self {
        Self(AtomicBool::new(true))
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl InFlight {
    /// Asserts that every count is zero. Models call it after every thread has ended.
    pub(crate) fn assert_at_rest(&self) {
        assert!(!self.load().is_any_counted(), "in flight");
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;
    use crate::parts::cut::cut;

    #[test]
    fn counts_do_not_mix() {
        let counts = InFlight::default();
        assert!(!counts.load().is_any_counted());
        for (count, awake) in [(AWAKE, true), (NOTIFIED, false)] {
            for _ in 0..cut(70_000) {
                counts.add(count);
            }
            let seen = counts.load();
            assert_eq!((seen.is_any_awake(), seen.is_any_counted()), (awake, true));
            for _ in 0..cut(70_000) {
                counts.sub(count);
            }
        }
        assert_eq!(counts.figures(), [0, 0]);
    }

    #[test]
    fn a_worker_is_counted_once() {
        let (counts, worker) = (InFlight::default(), Awake::default());
        assert!(worker.leave(&counts).is_none());
        worker.enter(&counts);
        worker.enter(&counts);
        assert_eq!(counts.figures(), [1, 0]);
        let notice = counts.notify();
        assert_eq!(counts.figures(), [1, 1]);
        worker.enter_notified(&counts, notice);
        assert_eq!((counts.figures(), worker.is_counted()), ([1, 0], true));
        worker.leave(&counts).expect("counted").ignore();
        let notice = counts.notify();
        worker.enter_notified(&counts, notice);
        assert_eq!(counts.figures(), [1, 0]);
        worker.leave(&counts).expect("counted").ignore();
        let notice = counts.notify();
        counts.forgo(notice);
        assert_eq!((counts.figures(), worker.is_counted()), ([0, 0], false));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "is not raised")]
    fn a_count_below_zero_is_noticed() {
        let counts = InFlight::default();
        counts.add(AWAKE);
        counts.sub(NOTIFIED);
    }
}
