//! The tasks of a group or scope: how many are pending, where they are queued, and which threads
//! wait for their end.
//!
//! A task is *pending* from its submission until its end or its refusal, including the time in
//! line. It is *inside* as long as it is pending. If it has a handle, it stays inside until the
//! handle has been told of its end. A wait ends only when nothing is inside. A full group has space
//! for the next task once a task is no longer pending.
//!
//! A wait ends if nothing was inside at one moment during it, even if the next task enters right
//! afterwards. So the last task inside leaves under the lock, and adds one to `zeros` before it
//! releases the lock. A waiter reads `zeros` and then `tasks` under the same lock, and sleeps until
//! `zeros` has changed.
//!
//! A task inside holds no reference count of its group. A count would cost each task two more steps
//! on a word that submissions and workers share (`benches/NOTEBOOK.md`). An [`Owner`] keeps the
//! group alive. If the owner is dropped while a task is inside, the owner leaves its reference in
//! the group. The last task inside takes that reference out.
//!
//! | pair | one side | the other side |
//! |---|---|---|
//! | G1 | a task ends: its work, then its count, then it stops being pending | a waiter or a cancel reads `tasks` |

use crate::parts::backoff::{BoundedSpin, Step};
use crate::parts::deadline::Deadline;
use crate::sync::{self, fork, lock, Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use crossbeam_utils::CachePadded;
use std::ops::Deref;
use std::ptr::NonNull;

/// One unit of the lower half of [`Members::tasks`], which counts the tasks inside.
const INSIDE: u64 = 1;
/// One unit of the upper half, which counts the tasks inside that have ended.
const ENDED: u64 = 1 << 32;

fn inside(tasks: u64) -> u64 {
    tasks % ENDED
}

fn pending(tasks: u64) -> u64 {
    inside(tasks) - tasks / ENDED
}

#[derive(Debug)]
pub(crate) struct Members {
    /// Two counts: how many tasks are inside ([`INSIDE`]), and how many of these tasks have ended
    /// ([`ENDED`]). Written by submissions and by the threads that end tasks.
    tasks: CachePadded<AtomicU64>,
    /// The numbers of tasks that have ended, indexed by [`Ended`]. Written by the threads that end
    /// tasks: workers, and threads that discard tasks.
    ended: CachePadded<[AtomicU64; 3]>,
    /// The highest number of tasks that may be pending at once.
    limit: u64,
    cancelled: AtomicBool,
    /// The generation of the process that created the group.
    generation: u64,
    /// How often the last task inside has left. Written only under the lock of `rare`. It has a
    /// cache line of its own because waiters spin on it.
    zeros: CachePadded<AtomicU64>,
    rare: Mutex<Rare>,
    all_ended: Condvar,
    /// The queue positions of tasks of the group. Submissions add them. When the list is full,
    /// positions whose tasks have been popped are removed. A cancel takes the whole list.
    queued: CachePadded<Mutex<Vec<u64>>>,
}

/// The way in which a task has ended.
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

#[derive(Debug, Default)]
struct Rare {
    /// The number of threads that sleep until `zeros` changes.
    sleeping: usize,
    /// The owner's reference, if the owner was dropped while a task was inside.
    kept: Option<Arc<Members>>,
}

/// A reference through which tasks enter a group. Each group or scope has such a reference, and so
/// does a future that waits for space for a task of a group.
#[derive(Debug, Clone)]
pub(crate) struct Owner(Arc<Members>);

/// A task's reference to its group. It is used up in one of three ways: by [`Pending::end`], by
/// [`Pending::has_ended`] and then [`Pending::told`], or by [`Pending::leave`].
#[derive(Debug)]
pub(crate) struct Pending(NonNull<Members>);

// SAFETY: a `Pending` is a reference to `Members`, which is `Sync`. The last task inside may free
// the group, which is `Send`.
unsafe impl Send for Pending {}

impl Owner {
    /// Creates a group that allows `limit` pending tasks. The group can note `queued` queue
    /// positions before it allocates.
    pub(crate) fn new(limit: u64, queued: usize) -> Self {
        Self(Arc::new(Members {
            tasks: CachePadded::new(AtomicU64::new(0)),
            ended: CachePadded::default(),
            limit,
            cancelled: AtomicBool::new(false),
            generation: fork::generation(),
            zeros: CachePadded::new(AtomicU64::new(0)),
            rare: Mutex::default(),
            all_ended: Condvar::new(),
            queued: CachePadded::new(Mutex::new(Vec::with_capacity(queued))),
        }))
    }

    /// Counts a task as inside, before it is submitted. Returns `None` if the group is full.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Pending> {
        if self.limit == u64::MAX {
            // ORDERING: P3: raised before the submission reads whether the group is cancelled.
            self.tasks.fetch_add(INSIDE, Ordering::SeqCst);
        } else {
            let count = |tasks| (pending(tasks) < self.limit).then_some(tasks + INSIDE);
            // ORDERING: P3: as above.
            (self.tasks)
                .fetch_update(Ordering::SeqCst, Ordering::Relaxed, count)
                .ok()?;
        }
        // SAFETY: the task has just entered, and stays inside until a `Pending` of it is used up.
        Some(unsafe { Pending::of(&self.0) })
    }
}

impl Deref for Owner {
    type Target = Arc<Members>;

    #[inline]
    fn deref(&self) -> &Arc<Members> {
        &self.0
    }
}

impl Drop for Owner {
    /// If a task is inside, leaves this reference in the group, where the last task inside drops
    /// it. Does nothing in a forked child, because no task ends there, and because a thread that
    /// does not exist there may hold the lock.
    fn drop(&mut self) {
        if self.is_any_inside() && self.generation == fork::generation() {
            let mut rare = lock(&self.rare);
            // The last task leaves under this lock, so it cannot leave now.
            if self.is_any_inside() {
                rare.kept = Some(Arc::clone(&self.0));
            }
        }
    }
}

impl Pending {
    /// Returns the reference of a task that is inside already.
    ///
    /// # Safety
    ///
    /// The task must stay inside until this reference is used up. If the task has another
    /// `Pending`, that must not be used after this one has been used up.
    #[inline]
    pub(crate) unsafe fn of(members: &Arc<Members>) -> Self {
        // SAFETY: the address of a value in an `Arc` is not null.
        Self(unsafe { NonNull::new_unchecked(Arc::as_ptr(members).cast_mut()) })
    }

    #[inline]
    pub(crate) fn members(&self) -> &Members {
        // SAFETY: the task is inside, so an owner or `Rare::kept` keeps the group alive.
        unsafe { self.0.as_ref() }
    }

    /// Counts a task that has ended and has no handle, and takes it out. After that, a wait for the
    /// group may end.
    #[inline]
    pub(crate) fn end(self, outcome: Ended) {
        self.count(outcome);
        self.leave();
    }

    /// Counts a task that has ended. It is no longer pending, and stays inside until
    /// [`told`](Self::told).
    #[inline]
    pub(crate) fn has_ended(&self, outcome: Ended) {
        self.count(outcome);
        // ORDERING: G1: releases the work of this task to a thread that reads that nothing is
        // pending.
        self.members().tasks.fetch_add(ENDED, Ordering::SeqCst);
    }

    #[inline]
    fn count(&self, outcome: Ended) {
        // Relaxed: the step after which the task is no longer pending publishes this count.
        self.members().ended[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Takes out a task that has ended. Called once the task's handle has the outcome. After that,
    /// a wait for the group may end.
    #[inline]
    pub(crate) fn told(self) {
        self.leave_by(INSIDE + ENDED);
    }

    /// Takes out a task for which [`has_ended`](Self::has_ended) was not called.
    #[inline]
    pub(crate) fn leave(self) {
        self.leave_by(INSIDE);
    }

    #[inline]
    fn leave_by(self, step: u64) {
        // SAFETY: the group lives until the step below, and may be freed right after it. A
        // reference to the whole group would still have to be valid then. A reference to one atomic
        // word need not be.
        let tasks: &AtomicU64 = unsafe { &(*self.0.as_ptr()).tasks };
        let count = |tasks| (inside(tasks) > 1).then(|| tasks - step);
        // ORDERING: G1: releases the work of this task to a waiter. Also acquires the work of tasks
        // that ended before, so that the waiter sees their work, too.
        let left = tasks.fetch_update(Ordering::SeqCst, Ordering::Relaxed, count);
        if left.is_err() {
            self.leave_last(step);
        }
    }

    /// Takes out a task that may be the last one inside. If it is, adds one to `zeros`. This thread
    /// holds the lock for both steps. Without the lock, a new task could enter and a waiter could
    /// begin its wait between the two steps. The addition would then end the wait, although the new
    /// task has been inside since the wait began.
    #[inline(never)]
    fn leave_last(self, step: u64) {
        let members = self.0.as_ptr().cast_const();
        // SAFETY: the pointer comes from an `Arc` (`enter`), and the group lives while the task is
        // inside. The reference made here keeps the group alive until the lock is free again.
        let members = unsafe {
            Arc::increment_strong_count(members);
            Arc::from_raw(members)
        };
        let mut rare = lock(&members.rare);
        // ORDERING: G1: as in `leave_by`.
        if inside(members.tasks.fetch_sub(step, Ordering::SeqCst)) > 1 {
            return;
        }
        // ORDERING: G1: releases the work of all ended tasks.
        members.zeros.fetch_add(1, Ordering::Release);
        if rare.sleeping > 0 {
            members.all_ended.notify_all();
        }
        // `members` keeps the group alive, so nothing is freed under the lock.
        rare.kept = None;
    }
}

impl Members {
    /// Returns how many tasks have not ended.
    pub(crate) fn pending(&self) -> u64 {
        pending(self.tasks())
    }

    fn is_any_inside(&self) -> bool {
        inside(self.tasks()) > 0
    }

    fn tasks(&self) -> u64 {
        // ORDERING: G1, P3: acquires the work of ended tasks. A cancel sets its flag before this.
        self.tasks.load(Ordering::SeqCst)
    }

    /// Returns how many tasks have ended in this way.
    pub(crate) fn ended(&self, outcome: Ended) -> u64 {
        // Relaxed: a statistic, which publishes nothing.
        self.ended[outcome as usize].load(Ordering::Relaxed)
    }

    /// Waits until there has been one moment during this call at which nothing was inside. Returns
    /// `false` if the deadline passes first.
    pub(crate) fn wait(&self, deadline: &Deadline, parallel: bool) -> bool {
        let rare = lock(&self.rare);
        let before = self.zeros();
        if !self.is_any_inside() {
            return true;
        }
        drop(rare);
        let mut spin = BoundedSpin::new(parallel, false);
        while self.zeros() == before && spin.step() != Step::Spent {}
        let mut rare = lock(&self.rare);
        rare.sleeping += 1;
        let mut ended = self.zeros() != before;
        while !ended {
            let left = deadline.left();
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            rare = sync::wait(&self.all_ended, rare, left);
            ended = self.zeros() != before;
        }
        rare.sleeping -= 1;
        ended
    }

    fn zeros(&self) -> u64 {
        // ORDERING: G1: acquires the work of the ended tasks.
        self.zeros.load(Ordering::Acquire)
    }

    // ---- cancelling -------------------------------------------------------------------

    /// Cancels the group for good.
    pub(crate) fn cancel(&self) {
        // ORDERING: P3: set before the cancel looks for the group's tasks, wherever they are:
        // queued, in line or running.
        self.cancelled.swap(true, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        // ORDERING: P3: read after a task was accepted, or after a worker has noted that it runs
        // the task.
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Notes the position at which a task was queued, for [`take_queued`](Self::take_queued).
    /// `passed` returns the queue's `head`: the tasks at all positions before it are gone.
    #[inline]
    pub(crate) fn note(&self, position: u64, passed: impl FnOnce() -> u64) {
        let mut queued = lock(&self.queued);
        if queued.len() == queued.capacity() {
            // Positions may have wrapped, so the sign of the wrapping difference compares them.
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
    /// Returns `true` if a thread sleeps in `wait`. Used by models.
    pub(crate) fn is_waited_for(&self) -> bool {
        lock(&self.rare).sleeping > 0
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "members_tests.rs"]
mod tests;
