//! A worker's record of itself, on cache lines that other threads rarely read.
//!
//! It also says whether the running task is *abandoned*. A task is abandoned if its caller has left
//! or its handle has cancelled it (`decision`), if its own deadline has passed (`due`), or if its
//! group is cancelled (`group`). A cancel marks the records of the workers that run the group's
//! tasks. A worker that is about to start such a task later reads the group's flag itself, and does
//! not start it (P3).

use super::about::About;
use crate::parts::completion::Decision;
use crate::parts::in_flight::Awake;
use crate::parts::members::Members;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU64, Ordering, PlainU64};
use crate::work::env::NEVER;
use crate::work::job::TaskEnd;
use crate::work::owed::Kinds;
use std::time::Duration;

/// A worker's record. It belongs to the slot, and stays when the worker ends. Only the slot's
/// worker writes it, with four exceptions: the decision; the count of tasks that were taken back;
/// the mark of a cancelled group; and what its spawner writes before the worker's first order
/// (`tasks_before`, `is_new`).
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) decision: Decision,
    /// The number of tasks that the slot's workers have got and have no more, by what became of them. A
    /// thread that takes a task back from the mailbox counts it here as unrun.
    ended: [AtomicU64; 4],
    /// The number of tasks that the slot's workers took from the queue.
    taken: AtomicU64,
    /// The description of the latest task that has a label. In a pool that tracks ages, the
    /// description of the latest task.
    about: About,
    /// How many tasks had run on the slot before its worker started; [`NO_WORKER`] if it has none.
    tasks_before: AtomicU64,
    /// Set until the worker obeys its first order, in a pool with a start hook. The worker is not idle,
    /// and no thread relies on it, because the hook may take long.
    is_new: AtomicBool,
    /// The worker's place in the count `awake`.
    pub(crate) awake: Awake,
    /// What the worker is paying now, as [`Kinds`]: debts that may take long.
    pays: AtomicU64,
    /// Set while the worker sleeps, for a person who looks at a pool that hangs. So it is no atomic of `sync`: models need
    /// not explore it.
    sleeps: std::sync::atomic::AtomicBool,
    /// The id of the task to whose end the wakers belong that the worker calls, or called last. The worker's next step publishes it. It only chooses a worker, so it is no atomic
    /// of `sync`.
    calls_for: PlainU64,
    /// The running task's own deadline, as returned by
    /// [`Env::nanos`](crate::work::env::Env::nanos), or [`NEVER`].
    due: AtomicU64,
    /// The running task's group, or null. The group lives while the task runs. The lowest bit marks
    /// the group as cancelled. Both the worker and the cancelling thread may set the bit. At least
    /// one of them does, because it sees the other's step (P3).
    group: AtomicPtr<Members>,
}

/// The value of `tasks_before` of a slot without a worker.
const NO_WORKER: u64 = u64::MAX;

/// The counts of a slot, read one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tasks that are no longer here: completed, panicked, unrun, offered again (under another generation).
    pub(crate) ended: [u64; 4],
    pub(crate) taken: u64,
    /// The number of tasks handed over.
    pub(crate) generation: u64,
}

impl Tally {
    /// Returns how many tasks have run to their end.
    pub(crate) fn ran(self) -> u64 {
        let [completed, panicked, ..] = self.ended;
        completed.wrapping_add(panicked)
    }

    /// Returns how many tasks are no longer here, whether they ran or not.
    fn ended(self) -> u64 {
        self.ended.into_iter().fold(0, u64::wrapping_add)
    }

    /// Returns `true` if a task has been handed over or taken, and not yet been counted as ended.
    pub(crate) fn is_running(self) -> bool {
        let started = self.generation.wrapping_add(self.taken);
        // The difference is cut to 32 bits, because the generation has fewer than 64 bits and
        // wraps.
        started.wrapping_sub(self.ended()) as u32 != 0
    }
}

impl Record {
    pub(crate) fn new() -> Self {
        Self {
            decision: Decision::default(),
            ended: Default::default(),
            taken: AtomicU64::new(0),
            about: About::default(),
            tasks_before: AtomicU64::new(NO_WORKER),
            is_new: AtomicBool::new(false),
            awake: Awake::default(),
            pays: AtomicU64::new(0),
            sleeps: std::sync::atomic::AtomicBool::new(false),
            calls_for: PlainU64::new(0),
            due: AtomicU64::new(NEVER),
            group: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Counts a task that has ended. Called by the slot's worker only.
    #[inline(always)]
    pub(crate) fn count_end(&self, ended: TaskEnd) {
        match ended {
            TaskEnd::Completed => count(&self.ended[0]),
            TaskEnd::Panicked => count(&self.ended[1]),
            TaskEnd::Expired | TaskEnd::Cancelled => self.count_unrun(),
        }
    }

    /// Counts a task that was taken from the queue. Called by the slot's worker only.
    #[inline]
    pub(crate) fn count_taken(&self) {
        count(&self.taken);
    }

    /// Counts a task that did not run. Called by the slot's worker, or by the thread that took the
    /// task back from the mailbox.
    pub(crate) fn count_unrun(&self) {
        // ORDERING: L1: raised after the pool's count of expired or of discarded tasks.
        self.ended[2].fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a task that was put into the mailbox again, once more. Called by the slot's worker only.
    pub(crate) fn count_offered_again(&self) {
        // ORDERING: L1: raised after the task is in the mailbox. So no reader finds the task nowhere.
        self.ended[3].fetch_add(1, Ordering::SeqCst);
    }

    /// Returns all counts, with the generation that `load` reads.
    pub(crate) fn tally(&self, see: impl FnOnce() -> u64) -> Tally {
        // ORDERING: L1: ends are read before starts, so no end is seen without its start.
        let load = |count: &AtomicU64| count.load(Ordering::SeqCst);
        Tally {
            ended: self.ended.each_ref().map(load),
            taken: load(&self.taken),
            generation: see(),
        }
    }

    /// Notes what the worker begins to pay; nothing once it has. Called by the slot's worker only.
    pub(crate) fn set_pays(&self, kinds: Kinds) {
        // Relaxed: for a person who looks at a pool that hangs.
        self.pays.store(kinds.0, Ordering::Relaxed);
    }

    /// Notes what the worker pays by `pay`, which may take long.
    pub(crate) fn while_paying<R>(&self, kinds: Kinds, pay: impl FnOnce() -> R) -> R {
        let before = self.replace_pays(kinds);
        let result = pay();
        self.set_pays(before);
        result
    }

    /// Notes what the worker pays from now on. Returns what it has paid until now.
    pub(crate) fn replace_pays(&self, kinds: Kinds) -> Kinds {
        let before = self.pays();
        self.set_pays(kinds);
        before
    }

    /// Notes the task whose wakers the worker is about to call.
    pub(crate) fn set_calls_for(&self, task_id: u64) {
        // Relaxed: the worker's step into `Calling` publishes it.
        self.calls_for
            .store(task_id, std::sync::atomic::Ordering::Relaxed);
    }

    /// Returns the id of the task whose wakers the worker calls. Read after its word.
    pub(crate) fn calls_for(&self) -> u64 {
        // Relaxed: as in `set_calls_for`.
        self.calls_for.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Notes whether the worker sleeps.
    pub(crate) fn set_sleeps(&self, sleeps: bool) {
        // Relaxed: as above.
        self.sleeps
            .store(sleeps, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn sleeps(&self) -> bool {
        // Relaxed: as above.
        self.sleeps.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns what the worker is paying.
    pub(crate) fn pays(&self) -> Kinds {
        // Relaxed: as above.
        Kinds(self.pays.load(Ordering::Relaxed))
    }

    // ---- abandoned tasks --------------------------------------------------------------

    /// Sets the running task's own deadline. Called by the slot's worker only.
    #[inline]
    pub(crate) fn set_due(&self, due: u64) {
        // Relaxed: a reader that gets an old value reads again later.
        self.due.store(due, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn due(&self) -> u64 {
        // Relaxed: see `set_due`.
        self.due.load(Ordering::Relaxed)
    }

    /// Returns whether the running task is abandoned. If a deadline is the reason, also returns the time from that
    /// deadline to `now`.
    pub(crate) fn abandoned(&self, now: u64) -> (bool, Option<Duration>) {
        let own = Some(self.due()).filter(|due| *due <= now);
        let passed = own.into_iter().chain(self.decision.left_at()).min();
        let since = passed.map(|passed| Duration::from_nanos(now.saturating_sub(passed)));
        (since.is_some() || self.is_abandoned_by_waiter(), since)
    }

    /// Notes the group of the task that begins. Returns `false`, and notes nothing, if the group is
    /// cancelled. Called by the slot's worker only.
    #[inline]
    #[must_use]
    pub(crate) fn enter_group(&self, group: &Members) -> bool {
        let group_ptr = std::ptr::from_ref(group).cast_mut();
        // ORDERING: P3: written before this worker reads whether the group is cancelled.
        self.group.swap(group_ptr, Ordering::SeqCst);
        if group.is_cancelled() {
            self.clear_group();
            return false;
        }
        true
    }

    /// Clears the group of the task that has ended. Called by the slot's worker only.
    #[inline]
    pub(crate) fn clear_group(&self) {
        // Relaxed: no thread relies on it.
        self.group.store(std::ptr::null_mut(), Ordering::Relaxed);
    }

    /// Marks the running task as abandoned, if it belongs to this cancelled group.
    pub(crate) fn abandon_group(&self, group: &Members) {
        let group = std::ptr::from_ref(group).cast_mut();
        let cancelled = group.map_addr(|addr| addr | CANCELLED);
        // ORDERING: P3: marked after the group's flag was set, or was read as set.
        let order = Ordering::SeqCst;
        let _ = (self.group).compare_exchange(group, cancelled, order, order);
    }

    /// Returns `true` if the running task's caller has left, or its handle or group cancelled it.
    pub(crate) fn is_abandoned_by_waiter(&self) -> bool {
        // ORDERING: P3: sees the mark of every cancel that has returned.
        let group = self.group.load(Ordering::SeqCst);
        self.decision.is_abandoned() || group.addr() & CANCELLED != 0
    }

    /// Returns `true` if the running task's waiter has left or cancelled it, or if its own deadline
    /// has passed at the time `now`.
    pub(crate) fn is_abandoned(&self, now: u64) -> bool {
        self.abandoned(now).0
    }

    /// Stores the label and the start of the task that begins. Called by the slot's worker only.
    pub(crate) fn describe(&self, label: Option<&'static str>, started: Option<u64>) {
        self.about.set(self.tally(|| 0).ended(), label, started);
    }

    /// Returns the label and the start of the task that is running according to this tally, if it
    /// has them.
    pub(crate) fn described(&self, tally: Tally) -> (Option<&'static str>, Option<u64>) {
        let running = tally.is_running().then(|| self.about.get(tally.ended()));
        running.flatten().unwrap_or_default()
    }

    // ---- the worker itself -------------------------------------------------------------

    /// Notes that the slot has a worker from now on.
    pub(crate) fn begin_worker(&self, has_hook: bool) {
        let before = self.tally(|| 0).ran();
        // Relaxed: a figure; and see `is_new`.
        self.tasks_before.store(before, Ordering::Relaxed);
        self.is_new.store(has_hook, Ordering::Relaxed);
    }

    /// Notes that the slot has no worker any more.
    pub(crate) fn end_worker(&self) {
        // Relaxed: a figure.
        self.tasks_before.store(NO_WORKER, Ordering::Relaxed);
    }

    /// Returns how many tasks had run on the slot before its worker started. Returns `None` if the
    /// slot has no worker.
    pub(crate) fn tasks_before(&self) -> Option<u64> {
        // Relaxed: a figure.
        let before = self.tasks_before.load(Ordering::Relaxed);
        (before != NO_WORKER).then_some(before)
    }

    /// Returns how many tasks the slot's worker has run, according to this tally; zero if the slot has no worker.
    pub(crate) fn tasks_of_worker(&self, tally: Tally) -> u64 {
        let ran = |before| tally.ran().saturating_sub(before);
        self.tasks_before().map_or(0, ran)
    }

    /// Returns `true` if the worker has a start hook and has not obeyed an order yet. A thread that
    /// holds the slot gets an exact answer.
    pub(crate) fn is_new(&self) -> bool {
        // Relaxed: written by the spawner before it gives the first order, and by the worker once it
        // has that order.
        self.is_new.load(Ordering::Relaxed)
    }

    /// Notes that the worker has its first order, if it was new.
    pub(crate) fn has_first_order(&self) {
        if self.is_new() {
            // Relaxed: see `is_new`.
            self.is_new.store(false, Ordering::Relaxed);
        }
    }
}

const CANCELLED: usize = 1;

/// Adds one to a word that only this thread writes.
#[inline]
fn count(word: &AtomicU64) {
    // Relaxed: only this thread writes it.
    let counted = word.load(Ordering::Relaxed).wrapping_add(1);
    // ORDERING: L1: an end is counted after the worker is free. A task taken from the queue is
    // counted after the queue accepted it.
    crate::sync::store_release(word, counted);
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl Record {
    /// Asserts that the slot has no group. Models call it once the slot has no thread.
    pub(crate) fn assert_at_rest(&self) {
        let group = self.group.load(Ordering::SeqCst);
        assert!(group.is_null(), "in a group");
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;
    use crate::parts::members::Owner;

    #[test]
    fn a_task_is_abandoned_from_its_deadline_on() {
        let record = Record::new();
        assert!(!record.is_abandoned(NEVER - 1));
        record.set_due(7);
        assert!(!record.is_abandoned(6) && record.is_abandoned(7));
        record.set_due(NEVER);
        assert!(!record.is_abandoned(NEVER - 1));
    }

    #[test]
    fn a_task_runs_from_its_start_to_its_end() {
        let record = Record::new();
        let runs = |generation| record.tally(|| generation).is_running();
        assert!(!runs(0) && runs(1));
        record.count_end(TaskEnd::Completed);
        assert!(!runs(1));
        record.count_taken();
        assert!(runs(1));
        record.count_end(TaskEnd::Panicked);
        assert!(!runs(1) && runs(2));
        record.count_unrun();
        assert!(!runs(2));
    }

    #[test]
    fn a_cancelled_group_abandons_its_own_task_only() {
        let (record, own, other) = (Record::new(), Owner::new(None, 0), Owner::new(None, 0));
        assert!(record.enter_group(&own));
        record.abandon_group(&other);
        assert!(!record.is_abandoned_by_waiter());
        record.abandon_group(&own);
        assert!(record.is_abandoned_by_waiter());
        record.clear_group();
        assert!(!record.is_abandoned_by_waiter());
        own.cancel();
        assert!(!record.enter_group(&own), "cancelled before it began");
        assert!(!record.is_abandoned_by_waiter());
    }

    #[test]
    fn a_label_is_that_of_its_task_only() {
        let record = Record::new();
        let label = |generation| record.described(record.tally(|| generation)).0;
        record.describe(Some("one"), None);
        assert_eq!((label(0), label(1)), (None, Some("one")));
        record.count_end(TaskEnd::Completed);
        assert_eq!((label(1), label(2)), (None, None), "the next has none");
        record.describe(Some("two"), None);
        assert_eq!(label(2), Some("two"));
    }

    /// A task that ends while a reader is between its two readings has started for it, and has not ended.
    #[test]
    fn ends_are_read_before_starts() {
        let record = Record::new();
        let tally = record.tally(|| {
            record.count_end(TaskEnd::Completed);
            1
        });
        assert_eq!((tally.ran(), tally.is_running()), (0, true));
    }

    #[test]
    fn counts_hold_at_their_wrap() {
        let record = Record::new();
        record.ended[0].store(u64::MAX, Ordering::SeqCst);
        record.count_end(TaskEnd::Panicked);
        record.count_end(TaskEnd::Completed);
        let tally = record.tally(|| 1);
        assert_eq!((tally.ended[0], tally.ran()), (0, 1));
    }
}
