//! The tasks of a group or scope: how many are pending, where they are queued, and which threads
//! wait for their end.
//!
//! A task is *pending* from its submission until its end or its refusal, including the time in
//! line. It is *inside* as long as it is pending. If it has a handle, it stays inside until the
//! handle has been told of its end. A wait ends only when nothing is inside. A full group has space
//! for the next task once a task is no longer pending.
//!
//! Submissions count the tasks that enter in one word, `entered`. The threads that end tasks count in
//! another, `left`. The tasks inside are the difference. In a group without a limit, and while no
//! thread waits, neither side reads the other's cache line. (A refusal writes `left`.)
//!
//! A wait ends if nothing was inside at one moment during it, even if the next task enters right
//! afterwards. So a thread that begins to wait sets [`WATCHED`] in `left`, under the lock. While the
//! flag is set, a thread that takes a task out first reads `entered`. If the task is the last one
//! inside, the thread takes it out under the lock, clears the flag, and adds one to `zeros`. A waiter
//! sleeps until `zeros` has changed. (A task that enters between that reading and the step counts as
//! the next task. The last one had ended before the reading.) The flag stays set until such a moment,
//! even if the waiter leaves at its deadline.
//!
//! A task inside holds no reference count of its group. A count would cost each task two more steps
//! on a word that submissions and workers share (`benches/NOTEBOOK.md`). An [`Owner`] keeps the
//! group alive. If an owner is dropped while a task is inside, it sets the flag, and leaves its
//! reference in the group. The last task inside takes that reference out.
//!
//! | pair | one side | the other side |
//! |---|---|---|
//! | J1 | a task ends: its work, then its count, then it stops being pending | a waiter or a cancel reads `left` |
//! | J2 | a task enters (`entered`), then leaves (`left`) | a thread reads `left`, then `entered`: it sees the entry of each task whose leave it saw |

use crate::parts::backoff::{BoundedSpin, Step};
use crate::parts::deadline::Deadline;
use crate::parts::gate::{Flags, Gate, Permit};
use crate::parts::positions::Positions;
use crate::sync::{
    self, fork, lock, lock_by, Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering, Patience,
    PlainU64,
};
use crossbeam_utils::CachePadded;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

/// A flag in [`Counts::left`]: the last task inside must leave under the lock.
const WATCHED: u64 = 1;
/// One unit of the middle of `left`, which counts the tasks that have ended and are still inside.
/// Each is in the hands of a thread, so there are fewer than 2^23.
const ENDED: u64 = 2;
/// One unit of the upper 40 bits of `left`, which count the tasks that have left, and wrap.
const LEFT: u64 = 1 << 24;

/// Returns how many tasks had entered and not left. If `entered` was read first, the result may be
/// too small, even negative, because other tasks may have entered and left in between.
fn inside(entered: u64, left: u64) -> i64 {
    let unused = LEFT.trailing_zeros();
    (entered.wrapping_sub(left / LEFT) << unused) as i64 >> unused
}

/// Returns how many tasks had entered and not ended.
fn pending(entered: u64, left: u64) -> i64 {
    inside(entered, left) - (left % LEFT / ENDED) as i64
}

#[derive(Debug)]
pub(crate) struct Members {
    /// The number of tasks that have ever entered. Written by submissions only.
    entered: CachePadded<AtomicU64>,
    counts: CachePadded<Counts>,
    /// The number of the group, which no other group of the process has. It is not zero.
    pub(crate) id: u64,
    /// Bounds how many tasks are accepted and pending at once. `None`: nothing does.
    gate: Option<Gate>,
    cancelled: AtomicBool,
    /// The generation of the process that created the group.
    generation: u64,
    /// How often the last task inside has left while the group was watched. Written only under the
    /// lock of `rare`. It has a cache line of its own because waiters spin on it.
    zeros: CachePadded<AtomicU64>,
    rare: Mutex<Rare>,
    all_ended: Condvar,
    /// The queue positions of tasks of the group. Submissions add them, and a cancel takes them.
    queued: CachePadded<Mutex<Positions>>,
}

/// The counts that the threads that end tasks write: workers, and threads that discard or refuse
/// tasks. They share one cache line, which such a thread takes from another only once.
#[derive(Debug, Default)]
struct Counts {
    /// Two counts, [`LEFT`] and [`ENDED`], and the flag [`WATCHED`], which is set under the lock.
    left: AtomicU64,
    /// The numbers of accepted tasks that have ended, indexed by [`Ended`].
    ended: [AtomicU64; 3],
}

/// The way in which a task has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Completed,
    Panicked,
    /// The task never ran.
    Discarded,
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
/// [`Pending::has_ended`] and then [`Pending::has_left`], or by [`Pending::exit`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Pending(NonNull<Members>);

/// The last step of a task that must leave its group under the lock, because a thread waits for the last
/// task inside. The task is inside until [`Leaving::finish`].
#[derive(Debug)]
#[must_use = "the task is inside until `finish`"]
pub(crate) struct Leaving {
    group: Pending,
    /// What is to be added to `left`.
    step: u64,
}

/// What the end of a task that has left its group leads to.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Gone {
    /// The group's number, if a submission waits for the task's permit: the calling thread must pass that
    /// permit in that line.
    pub(crate) line: Option<u64>,
    pub(crate) leaving: Option<Leaving>,
}

// SAFETY: a `Pending` is a reference to `Members`, which is `Sync`. The last task inside may free
// the group, which is `Send`.
unsafe impl Send for Pending {}

impl Owner {
    /// Creates a group that allows `limit` accepted and pending tasks, or any number. The group can
    /// note `queued` queue positions before it allocates.
    pub(crate) fn new(limit: Option<usize>, queued: usize) -> Self {
        static NEXT: PlainU64 = PlainU64::new(1);
        Self(Arc::new(Members {
            // Relaxed: a unique number.
            id: NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            entered: CachePadded::default(),
            counts: CachePadded::default(),
            gate: limit.map(Gate::new),
            cancelled: AtomicBool::new(false),
            generation: fork::generation(),
            zeros: CachePadded::default(),
            rare: Mutex::default(),
            all_ended: Condvar::new(),
            queued: CachePadded::new(Mutex::new(Positions::with_capacity(queued))),
        }))
    }

    /// Counts a task as inside, before it is submitted.
    #[inline]
    pub(crate) fn enter(&self) -> Pending {
        // ORDERING: P3: raised before the submission reads whether the group is cancelled.
        self.entered.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the task has just entered, and stays inside until a `Pending` of it is used up.
        unsafe { Pending::of(&self.0) }
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
    /// it. Does nothing in a forked child, because no worker lives there, and because a thread that
    /// does not exist there may hold the lock.
    fn drop(&mut self) {
        if self.is_any_inside() && self.generation == fork::generation() {
            let mut rare = lock(&self.rare);
            // If a task is inside now, the last one leaves under this lock, so not yet.
            if self.watch(&mut rare) {
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

    /// Returns a reference that keeps the group alive even if the task leaves.
    pub(crate) fn share(&self) -> Arc<Members> {
        // SAFETY: this is the address of an `Arc` (`Pending::of`). The task inside keeps the group alive.
        let members = ManuallyDrop::new(unsafe { Arc::from_raw(self.0.as_ptr()) });
        Arc::clone(&members)
    }

    #[inline]
    pub(crate) fn members(&self) -> &Members {
        // SAFETY: the task is inside, so an owner or `Rare::kept` keeps the group alive.
        unsafe { self.0.as_ref() }
    }

    /// Counts an accepted task that has ended and has no handle, and takes it out. After that, a wait
    /// for the group may end.
    #[inline]
    pub(crate) fn end(self, outcome: Ended) -> Gone {
        self.count(outcome);
        let line = self.give_permit();
        let leaving = self.exit();
        Gone { line, leaving }
    }

    /// Gives the permit of an accepted task back to the group, if the group has a limit. Returns the
    /// group's number if a submission waits for it.
    #[inline]
    fn give_permit(&self) -> Option<u64> {
        let members = self.members();
        let gate = members.gate.as_ref()?;
        let given = gate.give(Permit::of_taken_task());
        given.is_waited_for().then_some(members.id)
    }

    #[inline]
    fn count(&self, outcome: Ended) {
        // Relaxed: the step after which the task is no longer pending publishes this count.
        self.members().counts.ended[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an accepted task that has ended. It is no longer pending, and stays inside until
    /// [`has_left`](Self::has_left). If a submission waits for a permit of the group, returns the group's
    /// number: the calling thread must pass the permit of this task in that line.
    #[inline]
    #[must_use]
    pub(crate) fn has_ended(&self, outcome: Ended) -> Option<u64> {
        self.count(outcome);
        // The permit comes first: a thread that reads that few tasks are pending finds space.
        let line = self.give_permit();
        // ORDERING: J1: releases the work of this task to a thread that reads that nothing is
        // pending.
        (self.members().counts.left).fetch_add(ENDED, Ordering::SeqCst);
        line
    }

    /// Takes out a task that has ended. Called once the task's handle has the outcome. After that,
    /// a wait for the group may end.
    #[inline]
    #[must_use]
    pub(crate) fn has_left(self) -> Option<Leaving> {
        self.leave_by(LEFT - ENDED)
    }

    /// Takes out a task that was not accepted. Does not give a permit back: a submission that was
    /// refused has done so.
    #[inline]
    #[must_use]
    pub(crate) fn exit(self) -> Option<Leaving> {
        self.leave_by(LEFT)
    }

    /// Takes the task out by adding `step` to `left`. If it must leave under the lock, returns that step.
    #[inline]
    fn leave_by(self, step: u64) -> Option<Leaving> {
        let group = self.0.as_ptr();
        // SAFETY: the group lives until the step below, and may be freed right after it. A
        // reference to the whole group would still have to be valid then. References to atomic
        // words alone need not be.
        let (entered, counts): (&AtomicU64, &Counts) =
            unsafe { (&(*group).entered, &(*group).counts) };
        let next = |seen: u64| {
            // ORDERING: J2: read after `left`. If `left` has not changed at the step, the
            // difference was exact at this reading. So another task was inside then. It still is
            // after the step, because `left` has not changed and `entered` only grows.
            let may = seen & WATCHED == 0 || inside(entered.load(Ordering::SeqCst), seen) > 1;
            may.then(|| seen.wrapping_add(step))
        };
        // ORDERING: J1: releases the work of this task to a waiter. Also acquires the work of tasks
        // that ended before, so that the waiter sees their work, too.
        let left = (counts.left).fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        left.is_err().then_some(Leaving { group: self, step })
    }
}

impl Leaving {
    /// Takes the task out under the lock. If it is the last one inside, clears the flag and adds one
    /// to `zeros`. Without the lock, a new task could enter and a waiter could begin its wait
    /// between the two steps. The addition would then end the wait, although the new task has been
    /// inside since the wait began.
    ///
    /// Returns itself as the error if another thread holds the lock and this one only tries. Does
    /// nothing in a forked child: a thread that does not exist there may hold the lock, and nobody waits.
    pub(crate) fn finish(self, patience: Patience) -> Result<(), Self> {
        if self.group.members().generation != fork::generation() {
            return Ok(());
        }
        // This keeps the group alive until the lock is free again.
        let members = self.group.share();
        let Ok(mut rare) = lock_by(&members.rare, patience) else {
            return Err(self);
        };
        let mut is_last = false;
        let next = |seen: u64| {
            is_last = inside(members.entered(), seen) == 1;
            let next = seen.wrapping_add(self.step);
            Some(if is_last { next & !WATCHED } else { next })
        };
        // ORDERING: J1: as in `leave_by`.
        let _ = (members.counts.left).fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        if is_last {
            // ORDERING: J1: releases the work of all ended tasks.
            members.zeros.fetch_add(1, Ordering::Release);
            if rare.sleeping > 0 {
                members.all_ended.notify_all();
            }
            // `members` keeps the group alive, so nothing is freed under the lock.
            rare.kept = None;
        }
        Ok(())
    }

    /// Takes the task out under the lock, and waits for that.
    pub(crate) fn finish_now(self) {
        let finished = self.finish(Patience::Waits);
        debug_assert!(finished.is_ok(), "it has waited");
    }
}

impl Members {
    /// Returns the group's limit, which is the largest number if it has none.
    pub(crate) fn limit(&self) -> u64 {
        self.gate.as_ref().map_or(u64::MAX, Gate::bound)
    }

    /// Returns the group's gate, if the group has a limit.
    #[inline]
    pub(crate) fn gate(&self) -> Option<&Gate> {
        self.gate.as_ref()
    }

    /// Returns how many tasks have not ended.
    pub(crate) fn pending(&self) -> u64 {
        self.at_one_moment(pending) as u64
    }

    /// Returns how many tasks are inside.
    pub(crate) fn inside(&self) -> u64 {
        self.at_one_moment(inside) as u64
    }

    /// Returns how many permits of a limited group are in use, how many there are, and its gate's flags.
    pub(crate) fn permits(&self) -> Option<(u64, u64, Flags)> {
        let gate = self.gate.as_ref();
        gate.map(|gate| (gate.taken(), gate.bound(), gate.flags()))
    }

    fn is_any_inside(&self) -> bool {
        self.inside() > 0
    }

    /// Calls `figure` with the values that `entered` and `left` had at one moment, and returns its
    /// result.
    fn at_one_moment(&self, figure: fn(u64, u64) -> i64) -> i64 {
        loop {
            let (left, entered) = (self.left(), self.entered());
            if self.left() == left {
                return figure(entered, left);
            }
        }
    }

    fn entered(&self) -> u64 {
        // ORDERING: P3: a cancel sets its flag before this.
        self.entered.load(Ordering::SeqCst)
    }

    fn left(&self) -> u64 {
        // ORDERING: J1, P3: acquires the work of ended tasks. A cancel sets its flag before this.
        self.counts.left.load(Ordering::SeqCst)
    }

    /// Begins to watch the group. Returns `false` if nothing is inside. The flag stays set even
    /// then.
    fn watch(&self, _: &mut Rare) -> bool {
        // ORDERING: J1: a task that leaves later sees the flag.
        self.counts.left.fetch_or(WATCHED, Ordering::SeqCst);
        self.is_any_inside()
    }

    /// Returns how many tasks have ended in this way.
    pub(crate) fn ended(&self, outcome: Ended) -> u64 {
        // Relaxed: a statistic, which publishes nothing.
        self.counts.ended[outcome as usize].load(Ordering::Relaxed)
    }

    /// Waits until there has been one moment during this call at which nothing was inside. Returns
    /// `false` if the deadline passes first.
    pub(crate) fn wait(&self, deadline: &Deadline, parallel: bool) -> bool {
        if !self.is_any_inside() {
            return true;
        }
        let mut rare = lock(&self.rare);
        let before = self.zeros();
        if !self.watch(&mut rare) {
            return true;
        }
        drop(rare);
        let mut spin = BoundedSpin::new(parallel, false);
        while self.zeros() == before && spin.step() != Step::Spent {}
        let mut rare = lock(&self.rare);
        rare.sleeping += 1;
        while self.zeros() == before && !deadline.has_passed() {
            rare = sync::wait(&self.all_ended, rare, deadline.left());
        }
        rare.sleeping -= 1;
        self.zeros() != before
    }

    fn zeros(&self) -> u64 {
        // ORDERING: J1: acquires the work of the ended tasks.
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
    /// `head` returns that of the queue: the tasks at all positions before it are gone.
    #[inline]
    pub(crate) fn note(&self, position: u64, head: impl FnOnce() -> u64) {
        lock(&self.queued).add(position, head);
    }

    /// Takes the positions noted so far, from the queue's `head` on. Some of these tasks may have been
    /// popped since.
    pub(crate) fn take_queued(&self, head: u64) -> Vec<u64> {
        lock(&self.queued).take_from(head)
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
