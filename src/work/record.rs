//! What a worker writes of itself, on a line that others rarely read.

use crate::parts::completion::Decision;
use crate::parts::label::Label;
use crate::sync::{store_release, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A worker's record. It stays with the slot when the worker ends.
///
/// All counts only grow, so a task is never lost between two of them: it is running if it
/// was handed over or taken from the queue and has not ended.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) decision: Decision,
    /// Written by the worker of the slot only.
    completed: AtomicU64,
    panicked: AtomicU64,
    /// Tasks taken from the queue; the low 32 bits.
    taken: AtomicU32,
    /// Tasks that callers have taken back from the mailbox, in steps of [`REVOKED`]; below
    /// that, whether the worker is in its start hook.
    aside: AtomicU32,
    pub(crate) label: Label,
    /// The running task's own deadline, as [`Env::nanos`](crate::work::env::Env::nanos);
    /// zero: none.
    due: AtomicU64,
    /// The deadline of the last caller that left its task running, or tried to; the same.
    left_at: AtomicU64,
    /// The running task's group, by address, and [`CANCELLED`]. It stays from one task to the
    /// next of the same group, whose [`Members`](crate::parts::members::Members) are kept by
    /// the one until the other is taken.
    group: AtomicU64,
}

/// The running task's group has been found to be cancelled.
const CANCELLED: u64 = 1;

/// What a worker finds that runs a task of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum GroupEntry {
    /// A cancel that comes later finds it; whether one came before, it has to read.
    New,
    /// Its last task was of the group, too: a cancel has found it all the time.
    Again,
    /// And one has, between the two.
    Marked,
}

const IN_START_HOOK: u32 = 1;
const REVOKED: u32 = 2;

/// How often something happened at a slot: a reading in which all belongs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) completed: u64,
    pub(crate) panicked: u64,
    /// Tasks handed over.
    pub(crate) generation: u64,
    pub(crate) taken: u32,
    aside: u32,
}

impl Tally {
    /// Tasks that have run to their end.
    pub(crate) fn ended(self) -> u64 {
        self.completed.wrapping_add(self.panicked)
    }

    /// Whether a task was handed over or taken that has not ended.
    pub(crate) fn is_running(self) -> bool {
        // All in 31 bits: their differences are small.
        let started = (self.generation as u32).wrapping_add(self.taken);
        let ended = (self.ended() as u32).wrapping_add(self.aside / REVOKED);
        started.wrapping_sub(ended) << 1 != 0
    }
}

impl Record {
    pub(crate) fn new() -> Self {
        Self {
            decision: Decision::new(),
            completed: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
            taken: AtomicU32::new(0),
            aside: AtomicU32::new(0),
            label: Label::new(),
            due: AtomicU64::new(0),
            left_at: AtomicU64::new(0),
            group: AtomicU64::new(0),
        }
    }

    /// Worker: a task has ended.
    #[inline]
    pub(crate) fn count_end(&self, panicked: bool) {
        let count = if panicked {
            &self.panicked
        } else {
            &self.completed
        };
        // Relaxed: only this thread writes it.
        let ended = count.load(Ordering::Relaxed).wrapping_add(1);
        // ORDERING: L1: whoever sees the count sees the worker free.
        count.store(ended, Ordering::Release);
    }

    /// Worker: has taken a task from the queue.
    #[inline]
    pub(crate) fn count_taken(&self) {
        // Relaxed: only this thread writes it.
        let taken = self.taken.load(Ordering::Relaxed).wrapping_add(1);
        // ORDERING: L1: before the task's end is counted.
        self.taken.store(taken, Ordering::Release);
    }

    /// Caller: has taken its task back from the mailbox.
    pub(crate) fn count_revoked(&self) {
        // ORDERING: L1: after the task was counted as expired.
        self.aside.fetch_add(REVOKED, Ordering::SeqCst);
    }

    /// Whether the worker is in its start hook. Until that has ended it carries no order
    /// out.
    pub(crate) fn is_in_start_hook(&self) -> bool {
        // ORDERING: H1: asked by who is about to make the worker idle.
        self.aside.load(Ordering::SeqCst) & IN_START_HOOK != 0
    }

    /// Spawner: the new worker begins with a start hook.
    pub(crate) fn begin_hook(&self) {
        // ORDERING: H1: published with the worker's first order.
        self.aside.fetch_add(IN_START_HOOK, Ordering::SeqCst);
    }

    /// Worker, or its spawner without a thread: no longer.
    pub(crate) fn end_hook(&self) {
        // ORDERING: H1: before the worker looks for its order.
        self.aside.fetch_sub(IN_START_HOOK, Ordering::SeqCst);
    }

    // ---- a task that nobody waits for ------------------------------------------------

    /// Worker: its task's own deadline; zero: no longer.
    pub(crate) fn set_due(&self, due: u64) {
        // ORDERING: A2: before the task runs.
        self.due.swap(due, Ordering::SeqCst);
    }

    /// The running task's own deadline.
    pub(crate) fn due(&self) -> Option<u64> {
        // ORDERING: A2: by who waits for the pool's end.
        Some(self.due.load(Ordering::SeqCst)).filter(|due| *due != 0)
    }

    /// Caller: is about to leave its task at its deadline; zero: without one.
    pub(crate) fn set_left_at(&self, deadline: u64) {
        // Relaxed: a figure.
        self.left_at.store(deadline, Ordering::Relaxed);
    }

    /// How long ago the deadline passed for which the running task is abandoned, if it is for one; at
    /// the moment `now`.
    pub(crate) fn abandoned_for(&self, now: u64) -> Option<Duration> {
        let own = self.due().filter(|due| *due <= now);
        // Relaxed: a figure.
        let callers = (self.decision.is_abandoned())
            .then(|| self.left_at.load(Ordering::Relaxed))
            .filter(|left_at| *left_at != 0);
        let passed = own.into_iter().chain(callers).min()?;
        Some(Duration::from_nanos(now.saturating_sub(passed)))
    }

    /// Worker: runs a task of this group.
    pub(crate) fn enter_group(&self, group: *const ()) -> GroupEntry {
        let group = group.addr() as u64;
        // Relaxed: only this thread changes it, but for the mark.
        let named = self.group.load(Ordering::Relaxed);
        if named == group {
            return GroupEntry::Again;
        }
        if named == group | CANCELLED {
            return GroupEntry::Marked;
        }
        // ORDERING: A1: before it reads whether the group is cancelled.
        self.group.swap(group, Ordering::SeqCst);
        GroupEntry::New
    }

    /// Worker: whether its last task was of a group.
    pub(crate) fn is_in_group(&self) -> bool {
        // Relaxed: as above.
        self.group.load(Ordering::Relaxed) != 0
    }

    /// Worker: its next task is of this group; null: of none, or there is none. To be called before
    /// anybody can see that that task is no more in the queue, or that the worker is idle: who
    /// sees that does not find the worker abandoned for a task that it has done.
    #[inline]
    pub(crate) fn leave_group_for(&self, next: *const ()) {
        // Relaxed: as above. A marked one is left in any case: it is marked anew.
        let group = self.group.load(Ordering::Relaxed);
        if group != 0 && group != next.addr() as u64 {
            self.leave_group();
        }
    }

    #[cold]
    fn leave_group(&self) {
        // ORDERING: A1: before `head` moves, or the worker is `Idle`.
        store_release(&self.group, 0);
    }

    /// The group is cancelled: whether the worker runs a task of it, and this is the first
    /// to find so.
    #[must_use]
    pub(crate) fn find_cancelled(&self, group: *const ()) -> bool {
        let group = group.addr() as u64;
        // ORDERING: A1: after the group's flag was set.
        self.group
            .compare_exchange(group, group | CANCELLED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Whether nobody waits for the running task any more; at the moment `now`.
    pub(crate) fn is_abandoned(&self, now: u64) -> bool {
        // ORDERING: A1, A2: by who waits for the pool's end, after it has closed it.
        self.decision.is_abandoned()
            || self.group.load(Ordering::SeqCst) & CANCELLED != 0
            || self.due().is_some_and(|due| due <= now)
    }

    /// All counts, with the generation that `see` reads.
    pub(crate) fn tally(&self, see: impl Fn() -> u64) -> Tally {
        // ORDERING: L1: ends before starts, so that no end is seen without its start.
        let read = || Tally {
            completed: self.completed.load(Ordering::SeqCst),
            panicked: self.panicked.load(Ordering::SeqCst),
            aside: self.aside.load(Ordering::SeqCst) & !IN_START_HOOK,
            taken: self.taken.load(Ordering::SeqCst),
            generation: see(),
        };
        let mut before = read();
        // A worker that ends tasks faster than they are counted here is running.
        for _ in 0..16 {
            let after = read();
            if after == before {
                break;
            }
            before = after;
        }
        before
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl Record {
    /// For models, once the slot has no thread.
    pub(crate) fn assert_at_rest(&self, generation: u64) {
        assert!(!self.is_in_start_hook(), "in a hook");
        assert!(!self.tally(|| generation).is_running(), "running");
        assert_eq!(self.group.load(Ordering::SeqCst), 0, "in a group");
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_task_runs_from_its_start_to_its_end() {
        let record = Record::new();
        let runs = |generation| record.tally(|| generation).is_running();
        assert!(!runs(0) && runs(1));
        record.count_end(false);
        assert!(!runs(1));
        record.count_taken();
        assert!(runs(1));
        record.count_end(true);
        assert!(!runs(1) && runs(2));
        record.count_revoked();
        assert!(!runs(2));
        record.begin_hook();
        assert!(record.is_in_start_hook() && !runs(2));
        record.end_hook();
        let tally = record.tally(|| 2);
        assert_eq!((tally.completed, tally.panicked, tally.ended()), (1, 1, 2));
        assert!(!record.is_in_start_hook());
    }

    #[test]
    fn a_worker_stays_in_a_group_until_another_task_or_the_cancel() {
        let record = Record::new();
        let (group, other) = ([0_u64; 1], [0_u64; 1]);
        let (group, other) = (group.as_ptr().cast(), other.as_ptr().cast());
        let named = || record.group.load(Ordering::SeqCst) & !CANCELLED;
        assert_eq!(record.enter_group(group), GroupEntry::New);
        record.leave_group_for(group);
        assert_eq!(record.enter_group(group), GroupEntry::Again);
        record.leave_group_for(other);
        assert_eq!(named(), 0);
        assert_eq!(record.enter_group(other), GroupEntry::New);
        assert!(!record.find_cancelled(group));
        record.leave_group_for(std::ptr::null());
        assert_eq!(named(), 0);
        assert!(!record.find_cancelled(other));
        assert_eq!(record.enter_group(other), GroupEntry::New);
        assert!(record.find_cancelled(other) && !record.find_cancelled(other));
        assert!(record.is_abandoned(0));
        assert_eq!(record.enter_group(other), GroupEntry::Marked);
        // The next of that group is marked anew, and told of.
        record.leave_group_for(other);
        assert!(!record.is_abandoned(0));
        assert_eq!(record.enter_group(other), GroupEntry::New);
    }

    #[test]
    fn counts_hold_at_their_wrap() {
        let record = Record::new();
        record.completed.store(u64::MAX, Ordering::SeqCst);
        record.taken.store(u32::MAX, Ordering::SeqCst);
        record
            .aside
            .store(u32::MAX - IN_START_HOOK, Ordering::SeqCst);
        // Ended 2^64 - 1, revoked 2^31 - 1, taken 2^32 - 1: so many were handed over.
        let generation = (u64::MAX).wrapping_add(u64::from(u32::MAX / 2));
        let generation = generation.wrapping_sub(u64::from(u32::MAX));
        let runs = |more| record.tally(|| generation.wrapping_add(more)).is_running();
        assert!(!runs(0) && runs(1));
        record.count_revoked();
        assert!(!runs(1) && !record.is_in_start_hook());
        record.count_taken();
        assert!(runs(1));
        record.count_end(false);
        assert!(!runs(1) && runs(2));
    }
}
