//! The tasks of a group or scope: how many are pending, where they are queued, and who waits for
//! their end.
//!
//! A task is *pending* from its submission, a wait in line included, to its end or refusal.
//!
//! A wait ends if at one moment of it nothing was pending, even if the next task enters at once. So the
//! end that leaves nothing pending takes the lock for that step, and adds one to `zeros`. A waiter reads
//! `zeros`, then what is pending, under the same lock, and sleeps until `zeros` has changed.
//!
//! | pair | one side | the other side |
//! |---|---|---|
//! | G1 | a task ends: all that it did, its count, then it is pending no more | a waiter, or a cancel, reads what is pending |

use crate::parts::backoff::{BoundedSpin, Step};
use crate::parts::deadline::Deadline;
use crate::sync::{self, lock, Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use crossbeam_utils::CachePadded;

#[derive(Debug)]
pub(crate) struct Members {
    pending: AtomicU64,
    /// By [`Ended`].
    ended: [AtomicU64; 3],
    /// At most so many may be pending.
    limit: u64,
    cancelled: AtomicBool,
    /// Moments at which nothing was pending; written under the lock. On a line of its own, as
    /// waiters spin on it.
    zeros: CachePadded<AtomicU64>,
    /// Threads that sleep until `zeros` changes.
    sleeping: Mutex<usize>,
    all_ended: Condvar,
    /// Queue positions at which tasks of the group were accepted; those that have been popped since
    /// are dropped when the list is full.
    queued: Mutex<Vec<u64>>,
}

/// How a task has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Completed,
    Panicked,
    /// It never ran.
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

/// A pending task's reference to its group. [`Members::end`] or [`Members::leave`] is to be called once.
#[derive(Debug)]
pub(crate) struct Pending(pub(crate) Arc<Members>);

impl Members {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            pending: AtomicU64::new(0),
            ended: Default::default(),
            limit,
            cancelled: AtomicBool::new(false),
            zeros: CachePadded::new(AtomicU64::new(0)),
            sleeping: Mutex::new(0),
            all_ended: Condvar::new(),
            queued: Mutex::default(),
        }
    }

    /// Counts a task that is about to be submitted. Returns `false` if the group is full.
    #[inline]
    pub(crate) fn enter(&self) -> bool {
        // ORDERING: P3: before the submission looks whether the group is cancelled.
        if self.limit == u64::MAX {
            self.pending.fetch_add(1, Ordering::SeqCst);
            return true;
        }
        // Relaxed: compared below.
        let mut before = self.pending.load(Ordering::Relaxed);
        while before < self.limit {
            let order = Ordering::SeqCst;
            match (self.pending).compare_exchange(before, before + 1, order, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => before = seen,
            }
        }
        false
    }

    /// A task has ended. Waiters may return from here on.
    #[inline]
    pub(crate) fn end(&self, how: Ended) {
        // Relaxed: published by the step below.
        self.ended[how as usize].fetch_add(1, Ordering::Relaxed);
        self.leave();
    }

    /// A task is pending no more.
    #[inline]
    pub(crate) fn leave(&self) {
        // Relaxed: compared below.
        let mut before = self.pending.load(Ordering::Relaxed);
        while before > 1 {
            // ORDERING: G1: releases what the task did, and acquires what others did, for a waiter.
            let order = Ordering::SeqCst;
            match (self.pending).compare_exchange(before, before - 1, order, Ordering::Relaxed) {
                Ok(_) => return,
                Err(seen) => before = seen,
            }
        }
        self.leave_last();
    }

    /// Both steps under the lock: a waiter that finds a task pending must not return for a moment that
    /// came before that task.
    #[inline(never)]
    fn leave_last(&self) {
        let sleeping = lock(&self.sleeping);
        // ORDERING: G1: as in `leave`.
        if self.pending.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        // ORDERING: G1: releases what all ended tasks did.
        self.zeros.fetch_add(1, Ordering::Release);
        if *sleeping > 0 {
            self.all_ended.notify_all();
        }
    }

    pub(crate) fn pending(&self) -> u64 {
        // ORDERING: G1, P3: what ended tasks did; after a cancel has set its flag.
        self.pending.load(Ordering::SeqCst)
    }

    /// Returns how many tasks have ended in this way.
    pub(crate) fn ended(&self, how: Ended) -> u64 {
        // Relaxed: a count.
        self.ended[how as usize].load(Ordering::Relaxed)
    }

    /// Waits until nothing is pending, or was at one moment of this call. Returns `false` if the deadline
    /// came first.
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
        // ORDERING: G1: acquires what the ended tasks did.
        self.zeros.load(Ordering::Acquire)
    }

    // ---- cancelling -------------------------------------------------------------------

    /// Cancels the group for good.
    pub(crate) fn cancel(&self) {
        // ORDERING: P3: before the cancel looks what is pending, queued, in line and running.
        self.cancelled.swap(true, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        // ORDERING: P3: after a task was accepted, or its worker has said that it runs it.
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Notes where a task was queued, for [`take_queued`](Self::take_queued). `passed` returns the position
    /// up to which tasks have been popped.
    #[inline]
    pub(crate) fn note(&self, position: u64, passed: impl FnOnce() -> u64) {
        let mut queued = lock(&self.queued);
        if queued.len() == queued.capacity() {
            // Positions may wrap.
            let passed = passed();
            queued.retain(|position| position.wrapping_sub(passed) as i64 >= 0);
            // Half of it stays free, so that this is rare.
            let room = queued.len().max(8);
            queued.reserve(room);
        }
        queued.push(position);
    }

    /// Returns the positions noted so far. Some of the tasks may have been popped.
    pub(crate) fn take_queued(&self) -> Vec<u64> {
        std::mem::take(&mut *lock(&self.queued))
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl Members {
    /// For models: whether a thread sleeps in `wait`.
    pub(crate) fn is_waited_for(&self) -> bool {
        *lock(&self.sleeping) > 0
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "members_tests.rs"]
mod tests;
