//! The tasks of a group or scope: how many are pending, where they are queued, and which threads
//! wait for their end.
//!
//! A task is *pending* from its submission until its end or its refusal. The time in which it waits
//! in line is included.
//!
//! A wait ends if nothing was pending at one moment during it, even if the next task enters right
//! afterwards. So a task's end that leaves nothing pending takes that step under the lock, and adds
//! one to `zeros`. A waiter reads `zeros` and then `pending` under the same lock, and sleeps until
//! `zeros` has changed.
//!
//! | pair | one side | the other side |
//! |---|---|---|
//! | G1 | a task ends: its work, then its count, then it stops being pending | a waiter or a cancel reads `pending` |

use crate::parts::backoff::{BoundedSpin, Step};
use crate::parts::deadline::Deadline;
use crate::sync::{self, lock, Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use crossbeam_utils::CachePadded;

#[derive(Debug)]
pub(crate) struct Members {
    /// Changed by submissions and workers.
    pending: CachePadded<AtomicU64>,
    /// How many tasks have ended, by [`Ended`]. Changed by workers alone.
    ended: CachePadded<[AtomicU64; 3]>,
    /// The highest number of tasks that may be pending at once.
    limit: u64,
    cancelled: AtomicBool,
    /// How often `pending` has become zero. Changes only under the lock. It has a cache line of its
    /// own because waiters spin on it.
    zeros: CachePadded<AtomicU64>,
    /// The number of threads that sleep until `zeros` changes.
    sleeping: Mutex<usize>,
    all_ended: Condvar,
    /// Queue positions at which tasks of the group were accepted. When the list is full, positions
    /// whose tasks have been popped are dropped from it.
    /// Changed by submissions alone.
    queued: CachePadded<Mutex<Vec<u64>>>,
}

/// How a task has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Completed,
    Panicked,
    /// The task never ran.
    Discarded,
}

impl Ended {
    #[inline]
    pub(crate) fn ran(panicked: bool) -> Self {
        if panicked {
            Self::Panicked
        } else {
            Self::Completed
        }
    }
}

/// A pending task's reference to its group. The task calls [`Members::end`] or [`Members::leave`]
/// exactly once.
#[derive(Debug)]
pub(crate) struct Pending(pub(crate) Arc<Members>);

impl Members {
    /// Creates a group that allows `limit` pending tasks. It can note `queued` queue positions
    /// before it allocates again.
    pub(crate) fn new(limit: u64, queued: usize) -> Self {
        Self {
            pending: CachePadded::new(AtomicU64::new(0)),
            ended: CachePadded::default(),
            limit,
            cancelled: AtomicBool::new(false),
            zeros: CachePadded::new(AtomicU64::new(0)),
            sleeping: Mutex::new(0),
            all_ended: Condvar::new(),
            queued: CachePadded::new(Mutex::new(Vec::with_capacity(queued))),
        }
    }

    /// Counts a task that is about to be submitted. Returns `false` if the group is full.
    #[inline]
    pub(crate) fn enter(&self) -> bool {
        // ORDERING: P3: before the submission reads whether the group is cancelled.
        if self.limit == u64::MAX {
            self.pending.fetch_add(1, Ordering::SeqCst);
            return true;
        }
        let count = |pending| (pending < self.limit).then_some(pending + 1);
        // ORDERING: P3: as above.
        (self.pending)
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, count)
            .is_ok()
    }

    /// Counts a task that has ended, which is then no longer pending. Waiters may return from here
    /// on.
    #[inline]
    pub(crate) fn end(&self, outcome: Ended) {
        // Relaxed: the step that makes the task no longer pending publishes it.
        self.ended[outcome as usize].fetch_add(1, Ordering::Relaxed);
        self.leave();
    }

    /// Makes a task no longer pending.
    #[inline]
    pub(crate) fn leave(&self) {
        let count = |pending| (pending > 1).then(|| pending - 1);
        // ORDERING: G1: releases the work of this task, and acquires the work of tasks that ended
        // before, for a waiter.
        let left = (self.pending).fetch_update(Ordering::SeqCst, Ordering::Relaxed, count);
        if left.is_err() {
            self.leave_last();
        }
    }

    /// Makes the last pending task no longer pending, and counts that moment. Both steps happen
    /// under the lock. Otherwise a waiter could read `zeros` between them, find a new task pending,
    /// and then return for the moment before that task.
    #[inline(never)]
    fn leave_last(&self) {
        let sleeping = lock(&self.sleeping);
        // ORDERING: G1: as in `leave`.
        if self.pending.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        // ORDERING: G1: releases the work of all ended tasks.
        self.zeros.fetch_add(1, Ordering::Release);
        if *sleeping > 0 {
            self.all_ended.notify_all();
        }
    }

    pub(crate) fn pending(&self) -> u64 {
        // ORDERING: G1, P3: acquires the work of ended tasks; after a cancel has set its flag.
        self.pending.load(Ordering::SeqCst)
    }

    /// Returns how many tasks have ended in the given way.
    pub(crate) fn ended(&self, outcome: Ended) -> u64 {
        // Relaxed: a statistic, which publishes nothing.
        self.ended[outcome as usize].load(Ordering::Relaxed)
    }

    /// Waits until nothing is pending, or was pending at one moment of this call. Returns `false`
    /// if the deadline passes first.
    pub(crate) fn wait(&self, deadline: &Deadline, parallel: bool) -> bool {
        let mut sleeping = lock(&self.sleeping);
        let before = self.zeros();
        if self.pending() == 0 {
            return true;
        }
        drop(sleeping);
        let mut spin = BoundedSpin::new(parallel, false);
        while self.zeros() == before && spin.step() != Step::Spent {}
        sleeping = lock(&self.sleeping);
        *sleeping += 1;
        let mut ended = self.zeros() != before;
        while !ended {
            let left = deadline.left();
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            sleeping = sync::wait(&self.all_ended, sleeping, left);
            ended = self.zeros() != before;
        }
        *sleeping -= 1;
        ended
    }

    fn zeros(&self) -> u64 {
        // ORDERING: G1: acquires the work of the ended tasks.
        self.zeros.load(Ordering::Acquire)
    }

    // ---- cancelling -------------------------------------------------------------------

    /// Cancels the group for good.
    pub(crate) fn cancel(&self) {
        // ORDERING: P3: before the cancel looks for the group's tasks: pending, queued, in line,
        // running.
        self.cancelled.swap(true, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        // ORDERING: P3: after a task was accepted, or after its worker has noted that it runs the
        // task.
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Notes the position at which a task was queued, for [`take_queued`](Self::take_queued).
    /// `passed` returns the position up to which tasks have been popped.
    #[inline]
    pub(crate) fn note(&self, position: u64, passed: impl FnOnce() -> u64) {
        let mut queued = lock(&self.queued);
        if queued.len() == queued.capacity() {
            // The sign of the wrapping difference compares positions that may have wrapped.
            let passed = passed();
            queued.retain(|position| position.wrapping_sub(passed) as i64 >= 0);
            // Half of the list is free after this, so that the scan above stays rare.
            if 2 * queued.len() >= queued.capacity() {
                let more = queued.len().max(8);
                queued.reserve(more);
            }
        }
        queued.push(position);
    }

    /// Takes the positions noted so far. Some of these tasks may have been popped since.
    pub(crate) fn take_queued(&self) -> Vec<u64> {
        std::mem::take(&mut *lock(&self.queued))
    }
}

#[cfg(lazypool_loom)]
impl Members {
    /// Returns `true` if a thread sleeps in `wait`. Models ask.
    pub(crate) fn is_waited_for(&self) -> bool {
        *lock(&self.sleeping) > 0
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "members_tests.rs"]
mod tests;
