//! The tasks of a group or scope: how many are pending, who waits for their end, and
//! how long all that is kept.
//!
//! # Counting
//!
//! Submitters count on a cache line of their own (`entered`), and so do the tasks that
//! end (`ended`): what is pending is the difference. One line for both would move
//! between all of them with every task.
//!
//! # Waiting
//!
//! A waiter sets `WAITED` in the word in which ends are counted, *then* reads the counts: an end
//! that comes later finds it. A submission that was refused takes back that it entered, *then*
//! reads whether somebody waits: one of the two sees the other.
//!
//! # Lifetime
//!
//! [`Members`] live as long as there is a [`Handle`] or a task pending; a task needs no
//! count of its own for that, and nothing that its submitter writes.
//!
//! | step on `ended` | by | |
//! |---|---|---|
//! | `+ ENDED` | a completed task's end, by one compare-and-swap, if nobody waits | its last touch |
//! | `+ ENDED + INSIDE` | any other end: also where somebody waits, or the step above failed | it is pending no more, but still looks whether to wake a waiter |
//! | `- INSIDE` | the same | its last touch |
//! | `+ WAITED`, `- WAITED` | the first that waits, the last that waits no more; under the lock | |
//! | `+ LEFT - entered * ENDED` | the handle's drop | `entered` is final: the word alone says from now on what is pending |
//!
//! The word is `LEFT` and nothing else once the handle is gone, nothing is pending and
//! nobody inside. It becomes that once, by one of these steps, and who makes it so frees
//! the memory. The steps acquire and release: all others' touches happen before.

use crate::parts::backoff::{BoundedSpin, Step};
use crate::parts::deadline::Deadline;
use crate::sync::{self, fork, lock, lock_unless, AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use crossbeam_utils::CachePadded;
use std::ops::Deref;
use std::ptr::NonNull;

/// A thread between the two steps that end a task: a worker, or one that cancels a group or
/// shuts down. Fewer than 2^20 threads can be between them at once.
const INSIDE: u64 = 1;
/// Somebody waits.
const WAITED: u64 = 1 << 20;
/// The handle is gone. Above it, 42 bits: more than 2^41 tasks are never pending.
const LEFT: u64 = 1 << 21;
const ENDED_SHIFT: u32 = 22;
const ENDED: u64 = 1 << ENDED_SHIFT;

/// How long a wait within a discard may take to notice its end.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Members {
    /// Tasks accepted, or being submitted.
    entered: CachePadded<AtomicU64>,
    ended: CachePadded<AtomicU64>,
    rare: Mutex<Rare>,
    all_ended: Condvar,
    pub(crate) cancelled: AtomicBool,
    /// Tasks taken out of the queue, whose captures are still to be dropped.
    discarding: AtomicU64,
    /// Of forks, when the set was made. In a forked child no task ends: nobody is waited for,
    /// or woken.
    generation: u64,
    /// Tells loom who touches the memory, when it goes, and that it goes.
    #[cfg(any(lazypool_loom, lazypool_shuttle))]
    alive: (sync::UnsafeCell<()>, sync::Track),
}

/// The ends that are not completions: counted with them in one step, under the lock. And what else
/// changes under it.
#[derive(Debug, Default)]
struct Rare {
    panicked: u64,
    discarded: u64,
    /// Who cancelled the set has left nothing of it queued.
    swept: bool,
    /// Threads that wait; `WAITED` says whether there are any.
    waiting: usize,
}

/// How a task has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Completed,
    Panicked,
    Discarded,
}

/// A pending task's way to its set, which [`Pending::end`] or [`Handle::refused`] takes from it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Pending(NonNull<Members>);

/// Keeps a set for those who submit to it and wait for it.
#[derive(Debug)]
pub(crate) struct Handle(NonNull<Members>);

// SAFETY: as a `&Members`, which is `Sync`; and whichever thread ends the task may free them.
unsafe impl Send for Pending {}

// SAFETY: as a `Box` or `Arc` of `Members`, which are `Send` and `Sync`.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Deref for Handle {
    type Target = Members;

    #[inline]
    fn deref(&self) -> &Members {
        // SAFETY: freed only after this handle's drop.
        unsafe { self.0.as_ref() }
    }
}

impl Handle {
    pub(crate) fn new() -> Self {
        Self::starting_at(0)
    }

    /// The same, as if so many tasks had entered and completed: tests start near the wrap.
    pub(crate) fn starting_at(tasks: u64) -> Self {
        let members = Box::new(Members {
            entered: CachePadded::new(AtomicU64::new(tasks)),
            ended: CachePadded::new(AtomicU64::new(tasks << ENDED_SHIFT)),
            rare: Mutex::new(Rare::default()),
            all_ended: Condvar::new(),
            cancelled: AtomicBool::new(false),
            discarding: AtomicU64::new(0),
            generation: fork::generation(),
            #[cfg(any(lazypool_loom, lazypool_shuttle))]
            alive: (sync::UnsafeCell::new(()), sync::Track::new(())),
        });
        Self(NonNull::from(Box::leak(members)))
    }

    /// One more: before it is submitted.
    #[inline]
    pub(crate) fn enter(&self) -> Pending {
        // ORDERING: G1: before the task can end.
        self.entered.fetch_add(1, Ordering::SeqCst);
        Pending(self.0)
    }

    /// The way to the set for a task of it that is pending.
    ///
    /// # Safety
    /// In place of the task's own, from [`Handle::enter`], which is used no more.
    #[inline]
    pub(crate) unsafe fn pending_task(&self) -> Pending {
        Pending(self.0)
    }

    /// One that has entered is not accepted.
    pub(crate) fn refused(&self, task: Pending) {
        assert_eq!(task.0, self.0, "a task of this set");
        // ORDERING: G1: before it reads who waits.
        self.entered.fetch_sub(1, Ordering::SeqCst);
        // ORDERING: G1: after it was taken back.
        self.wake(self.ended.load(Ordering::SeqCst));
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Nobody enters without a handle.
        // ORDERING: G2: all touches through the handle come before.
        let entered = self.entered.load(Ordering::SeqCst);
        let step = LEFT.wrapping_sub(entered << ENDED_SHIFT);
        let before = self.ended.fetch_add(step, Ordering::SeqCst);
        // SAFETY: the word was last changed by this thread.
        unsafe { Members::free_if_left(self.0, before.wrapping_add(step)) }
    }
}

impl Pending {
    /// The set, as long as the task has not ended.
    #[inline]
    pub(crate) fn members(&self) -> &Members {
        // SAFETY: not freed while a task is pending; its end, or a refusal, consumes this.
        unsafe { self.0.as_ref() }
    }

    /// The task has ended: who waits for the set may go on.
    pub(crate) fn end(self, how: Ended) {
        // SAFETY: pending until the next step.
        let members = unsafe { self.0.as_ref() };
        members.touch();
        if how != Ended::Completed {
            return self.end_inside(how);
        }
        // Relaxed: compared below.
        let before = members.ended.load(Ordering::Relaxed);
        if before & WAITED != 0 {
            return self.end_inside(how);
        }
        let now = before.wrapping_add(ENDED);
        // ORDERING: G1, G2: releases all that the task did, where nobody waits: this thread's last
        // touch, but for the memory that it frees.
        let order = Ordering::SeqCst;
        let ended = (members.ended).compare_exchange(before, now, order, Ordering::Relaxed);
        match ended {
            // SAFETY: the word was last changed by this thread.
            Ok(_) => unsafe { Members::free_if_left(self.0, now) },
            Err(_) => self.end_inside(how),
        }
    }

    /// The same where somebody waits, or the word changes just now: not tried again, so that an
    /// end takes as many steps however many others there are.
    #[inline(never)]
    fn end_inside(self, how: Ended) {
        // SAFETY: pending until the next step, and inside until the one after.
        let members = unsafe { self.0.as_ref() };
        // ORDERING: G1, G2: releases all that the task did, and reads who waits.
        let count = || members.ended.fetch_add(ENDED + INSIDE, Ordering::SeqCst);
        let before = if how == Ended::Completed {
            count()
        } else {
            let mut rare = lock(&members.rare);
            match how {
                Ended::Panicked => rare.panicked += 1,
                _ => {
                    rare.discarded += 1;
                    // Relaxed: under the lock, as it is read.
                    members.discarding.fetch_sub(1, Ordering::Relaxed);
                }
            }
            count()
        };
        members.wake(before);
        members.touch();
        // ORDERING: G2: this thread's last touch, but for the memory that it frees.
        let before = members.ended.fetch_sub(INSIDE, Ordering::SeqCst);
        // SAFETY: the word was last changed by this thread.
        unsafe { Members::free_if_left(self.0, before - INSIDE) }
    }
}

impl Members {
    /// # Safety
    /// `ended` became `now` by this thread's step. Nothing is touched after it but what
    /// this frees.
    #[inline]
    unsafe fn free_if_left(this: NonNull<Self>, now: u64) {
        if now == LEFT {
            // SAFETY: made by `Box::leak`. No handle, nothing pending and nobody inside:
            // nobody else touches it, and no other step makes the word this again.
            drop(unsafe { Box::from_raw(this.as_ptr()) });
        }
    }

    /// A task has been taken out of the queue, to be dropped.
    pub(crate) fn begin_discard(&self) {
        // Relaxed: whoever reads it looks again.
        self.discarding.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether discarded tasks are still to be dropped.
    pub(crate) fn is_discarding(&self) -> bool {
        // Relaxed: as above.
        self.discarding.load(Ordering::Relaxed) != 0
    }

    /// Waits, within the drop of a discarded task, until nothing else is pending than tasks to be
    /// dropped; `false` if the deadline came first.
    pub(crate) fn wait_within_discard(&self, deadline: &Deadline) -> bool {
        let mut guard = lock(&self.rare);
        loop {
            // Relaxed: as in `begin_discard`.
            if self.pending() as u64 <= self.discarding.load(Ordering::Relaxed) || self.is_forked()
            {
                return true;
            }
            let left = deadline.left().unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN);
            if deadline.has_passed() {
                return false;
            }
            guard = sync::wait(&self.all_ended, guard, Some(left));
        }
    }

    /// What tells one set from another, as long as either lives.
    pub(crate) fn address(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// Whether a cancel has left nothing of the set queued.
    pub(crate) fn is_swept(&self) -> bool {
        lock(&self.rare).swept
    }

    /// A cancel has left nothing of the set queued.
    pub(crate) fn set_swept(&self) {
        lock(&self.rare).swept = true;
    }

    #[inline(always)]
    fn touch(&self) {
        #[cfg(any(lazypool_loom, lazypool_shuttle))]
        self.alive.0.with(|_| ());
    }

    /// Wakes who waited when `ended` was this, if nothing is pending.
    #[inline]
    fn wake(&self, ended: u64) {
        if ended & WAITED != 0 && self.has_ended() && !self.is_forked() {
            drop(lock(&self.rare));
            self.all_ended.notify_all();
        }
    }

    /// Tasks accepted or being submitted, and how many of them are pending.
    fn entered_and_pending(&self) -> (u64, u64) {
        // ORDERING: G1: acquires what the ended tasks did; two equal readings of `ended` mean
        // that `entered` belongs to them.
        let ended = || self.ended.load(Ordering::SeqCst) >> ENDED_SHIFT;
        let mut before = ended();
        loop {
            let entered = self.entered.load(Ordering::SeqCst);
            let after = ended();
            if after == before {
                let pending = entered.wrapping_sub(after) << ENDED_SHIFT >> ENDED_SHIFT;
                return (entered, pending);
            }
            before = after;
        }
    }

    pub(crate) fn pending(&self) -> usize {
        self.entered_and_pending().1 as usize
    }

    fn has_ended(&self) -> bool {
        self.pending() == 0
    }

    #[cold]
    fn is_forked(&self) -> bool {
        self.generation != fork::generation()
    }

    pub(crate) fn completed(&self) -> usize {
        self.of_rare(|rare| {
            let (entered, pending) = self.entered_and_pending();
            let others = pending + rare.panicked + rare.discarded;
            entered.wrapping_sub(others)
        })
    }

    pub(crate) fn panicked(&self) -> usize {
        self.of_rare(|rare| rare.panicked)
    }

    pub(crate) fn discarded(&self) -> usize {
        self.of_rare(|rare| rare.discarded)
    }

    /// Zero in a child that was forked just while another thread held the lock.
    fn of_rare(&self, figure: impl FnOnce(&Rare) -> u64) -> usize {
        let rare = lock_unless(self.is_forked(), &self.rare);
        rare.map_or(0, |rare| figure(&rare) as usize)
    }

    /// Waits until nothing is pending; `false` if the deadline came first, or this is a forked
    /// child, where it does not wait.
    pub(crate) fn wait(&self, deadline: &Deadline, parallel: bool) -> bool {
        if self.is_forked() {
            return self.has_ended();
        }
        let mut spin = BoundedSpin::new(parallel);
        while spin.step() != Step::Spent {
            if self.has_ended() {
                return true;
            }
        }
        let mut guard = lock(&self.rare);
        guard.waiting += 1;
        if guard.waiting == 1 {
            // ORDERING: G1: before it looks what is pending.
            self.ended.fetch_add(WAITED, Ordering::SeqCst);
        }
        let ended = loop {
            if self.has_ended() {
                break true;
            }
            let left = deadline.left();
            if left.is_some_and(|left| left.is_zero()) {
                break false;
            }
            guard = sync::wait(&self.all_ended, guard, left);
        };
        guard.waiting -= 1;
        if guard.waiting == 0 {
            // ORDERING: G1: after its last look.
            self.ended.fetch_sub(WAITED, Ordering::SeqCst);
        }
        ended
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl Drop for Members {
    fn drop(&mut self) {
        self.alive.0.with_mut(|_| ());
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "members_tests.rs"]
mod tests;
