//! The tasks of a group or scope: how many are pending, who waits for their end, and
//! how long all that is kept.
//!
//! # Counting
//!
//! Submitters count on a cache line of their own (`entered`), and so do the tasks that
//! end (`ended`): what is pending is the difference. One line for both would move
//! between all of them with every task. Neither count goes down: a submission that is refused ends.
//!
//! # Waiting
//!
//! A wait ends if at one moment of it nothing was pending, even if the next task enters at once. So
//! nobody may step past such a moment while somebody waits:
//!
//! 1. The first waiter sets `WAITED` in both words, under the lock, then reads what is pending.
//! 2. While it is set, tasks enter under the lock only.
//! 3. While it is set, the last pending task ends under the lock only. An end that finds that another
//!    task has entered and not ended is not the last: `entered` does not go down, and the end changes
//!    `ended` by a compare-and-swap.
//! 4. So an end under the lock sees exactly whether nothing is pending at that moment. If so, it adds
//!    one to `zeros`, and wakes the waiters, which compare.
//!
//! # Lifetime
//!
//! [`Members`] live as long as there is a [`Handle`] or a task pending; a task needs no
//! count of its own for that, and nothing that its submitter writes.
//!
//! | step on `ended` | by | |
//! |---|---|---|
//! | `+ ENDED` | a completed task's end, unless somebody waits and it may be the last | its last touch |
//! | `+ ENDED + INSIDE` | any other end, under the lock | it is pending no more, but still looks whether to wake a waiter |
//! | `- INSIDE` | the same | its last touch |
//! | `+ WAITED`, `- WAITED` | the first that waits, the last that waits no more; under the lock | |
//! | `+ LEFT - entered * ENDED` | the handle's drop | `entered` is final: the word alone says from now on what is pending |
//!
//! The word is `LEFT` and nothing else once the handle is gone, nothing is pending and
//! nobody inside. It becomes that once, by one of these steps, and who makes it so frees
//! the memory. The steps acquire and release: all others' touches happen before.
//!
//! | pair | one side | the other side |
//! |---|---|---|
//! | G1 | a task enters or ends: by compare-and-swap where nobody waits or another is pending, else under the lock; the last end says so in `zeros` | a waiter says so in both words, under the lock, reads what is pending, and then `zeros` |
//! | G2 | a handle, or a thread in an end, touches the members for the last time | who leaves last frees them |

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

/// `WAITED`, in `entered`. Above it, the count.
const ENTER_WAITED: u64 = 1;
const ENTERED_SHIFT: u32 = 1;
const ENTERED: u64 = 1 << ENTERED_SHIFT;

#[derive(Debug)]
pub(crate) struct Members {
    /// Tasks ever submitted.
    entered: CachePadded<AtomicU64>,
    ended: CachePadded<AtomicU64>,
    rare: Mutex<Rare>,
    /// Moments at which nothing was pending while somebody waited; written under the lock.
    zeros: AtomicU64,
    all_ended: Condvar,
    pub(crate) cancelled: AtomicBool,
    /// Who cancelled the set has left nothing of it queued.
    pub(crate) swept: AtomicBool,
    /// Of forks, when the set was made. In a forked child no task ends: nobody is waited for,
    /// or woken.
    generation: u64,
    alive: sync::Alive,
}

/// The ends that are not completions: counted with them in one step, under the lock. And what else
/// changes under it.
#[derive(Debug, Default)]
struct Rare {
    panicked: u64,
    discarded: u64,
    refused: u64,
    /// Threads that wait; `WAITED` says whether there are any.
    waiting: usize,
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

/// A pending task's way to its set, which [`Pending::end`] or [`Pending::refuse`] takes from it.
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
            entered: CachePadded::new(AtomicU64::new(tasks << ENTERED_SHIFT)),
            ended: CachePadded::new(AtomicU64::new(tasks << ENDED_SHIFT)),
            rare: Mutex::new(Rare::default()),
            zeros: AtomicU64::new(0),
            all_ended: Condvar::new(),
            cancelled: AtomicBool::new(false),
            swept: AtomicBool::new(false),
            generation: fork::generation(),
            alive: sync::Alive::new(),
        });
        Self(NonNull::from(Box::leak(members)))
    }

    /// One more: before it is submitted.
    #[inline]
    pub(crate) fn enter(&self) -> Pending {
        // Relaxed: compared below.
        let mut before = self.entered.load(Ordering::Relaxed);
        while before & ENTER_WAITED == 0 {
            let now = before.wrapping_add(ENTERED);
            // ORDERING: G1: before the task can end.
            let order = Ordering::SeqCst;
            match (self.entered).compare_exchange(before, now, order, Ordering::Relaxed) {
                Ok(_) => return Pending(self.0),
                Err(seen) => before = seen,
            }
        }
        self.enter_waited()
    }

    #[cold]
    fn enter_waited(&self) -> Pending {
        let _rare = lock_unless(self.is_forked(), &self.rare);
        // ORDERING: G1: under the lock.
        self.entered.fetch_add(ENTERED, Ordering::SeqCst);
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
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Nobody enters without a handle.
        // ORDERING: G2: all touches through the handle come before.
        let entered = self.entered.load(Ordering::SeqCst) >> ENTERED_SHIFT;
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
        match how {
            Ended::Completed => self.complete(),
            Ended::Panicked => self.end_locked(|rare| rare.panicked += 1),
            Ended::Discarded => self.end_locked(|rare| rare.discarded += 1),
        }
    }

    /// The task is not accepted.
    pub(crate) fn refuse(self) {
        self.end_locked(|rare| rare.refused += 1);
    }

    #[inline]
    fn complete(self) {
        // SAFETY: pending until the step below.
        let members = unsafe { self.0.as_ref() };
        members.alive.touch();
        // Relaxed: compared below.
        let mut before = members.ended.load(Ordering::Relaxed);
        while before & WAITED == 0 || members.is_another_pending(before) {
            let now = before.wrapping_add(ENDED);
            // ORDERING: G1, G2: releases all that the task did: this thread's last touch, but for
            // the memory that it frees.
            let order = Ordering::SeqCst;
            match (members.ended).compare_exchange(before, now, order, Ordering::Relaxed) {
                // SAFETY: the word was last changed by this thread.
                Ok(_) => return unsafe { Members::free_if_left(self.0, now) },
                Err(seen) => before = seen,
            }
        }
        self.end_locked(|_| ());
    }

    #[inline(never)]
    fn end_locked(self, count: impl FnOnce(&mut Rare)) {
        // SAFETY: pending until the next step on `ended`, and inside until the one after.
        let members = unsafe { self.0.as_ref() };
        members.alive.touch();
        let is_forked = members.is_forked();
        let mut rare = lock_unless(is_forked, &members.rare);
        if let Some(rare) = &mut rare {
            count(rare);
        }
        // ORDERING: G1, G2: releases all that the task did; under the lock.
        let before = members.ended.fetch_add(ENDED + INSIDE, Ordering::SeqCst);
        if before & WAITED != 0 && members.has_ended() && !is_forked {
            // ORDERING: G1: releases what the ended tasks did.
            members.zeros.fetch_add(1, Ordering::Release);
            members.all_ended.notify_all();
        }
        drop(rare);
        members.alive.touch();
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

    /// Whether more than one was pending when `ended` was this, and its handle there. May say no
    /// although it is so.
    fn is_another_pending(&self, ended: u64) -> bool {
        // Relaxed: `entered` does not go down, so an old value errs on the safe side only.
        let entered = self.entered.load(Ordering::Relaxed) >> ENTERED_SHIFT;
        let others = entered.wrapping_sub(ended >> ENDED_SHIFT).wrapping_sub(1);
        ((others << ENDED_SHIFT) as i64) > 0
    }

    /// Tasks ever submitted, and how many of them are pending.
    fn entered_and_pending(&self) -> (u64, u64) {
        // ORDERING: G1: acquires what the ended tasks did; two equal readings of `ended` mean
        // that `entered` belongs to them.
        let ended = || self.ended.load(Ordering::SeqCst) >> ENDED_SHIFT;
        let mut before = ended();
        loop {
            let entered = self.entered.load(Ordering::SeqCst) >> ENTERED_SHIFT;
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
            let others = pending + rare.panicked + rare.discarded + rare.refused;
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

    /// Waits until nothing is pending, or was at one moment of this call; `false` if the deadline
    /// came first, or this is a forked child, where it does not wait.
    pub(crate) fn wait(&self, deadline: &Deadline, parallel: bool) -> bool {
        if self.has_ended() {
            return true;
        }
        if self.is_forked() {
            return false;
        }
        let mut rare = lock(&self.rare);
        let before = self.zeros();
        self.count_waiter(&mut rare);
        let mut ended = self.has_ended();
        if !ended {
            drop(rare);
            // Not at the words that the ends of tasks change: that would hold them up.
            let mut spin = BoundedSpin::new(parallel, false);
            while self.zeros() == before && spin.step() != Step::Spent {}
            rare = lock(&self.rare);
        }
        while !ended {
            ended = self.zeros() != before;
            let left = deadline.left();
            if ended || left.is_some_and(|left| left.is_zero()) {
                break;
            }
            rare = sync::wait(&self.all_ended, rare, left);
        }
        rare.waiting -= 1;
        if rare.waiting == 0 {
            // ORDERING: G1: after its last look, under the lock.
            self.ended.fetch_sub(WAITED, Ordering::SeqCst);
            self.entered.fetch_sub(ENTER_WAITED, Ordering::SeqCst);
        }
        ended
    }

    fn zeros(&self) -> u64 {
        // ORDERING: G1: acquires what the ended tasks did.
        self.zeros.load(Ordering::Acquire)
    }

    fn count_waiter(&self, rare: &mut Rare) {
        rare.waiting += 1;
        if rare.waiting == 1 {
            // ORDERING: G1: before it looks what is pending, under the lock. `entered` first: an
            // end that finds the flag must find it there.
            self.entered.fetch_add(ENTER_WAITED, Ordering::SeqCst);
            self.ended.fetch_add(WAITED, Ordering::SeqCst);
        }
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl Members {
    /// For models.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.ended.load(Ordering::SeqCst) & WAITED != 0
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "members_tests.rs"]
mod tests;
