//! The gate: a semaphore that bounds how many tasks may be accepted and unended. A pool has one, and
//! so has each limited group.
//!
//! The *permits* of a gate are its bound: a pool's are its limit and its queue's capacity together,
//! a group's are its limit. A task takes a permit when it is accepted, and keeps it until it has
//! ended. So a submission learns from one word whether there is space: it takes a permit, or there
//! is none. The steps after that only decide where the task goes. They cannot run out of space,
//! because the queue has a cell for each permit.
//!
//! Submissions that wait for a permit stand in a [line](super::line). The word has a flag for it, so
//! the step that gives a permit back also tells whether any submission waits for it.
//!
//! | flag | while it is set | set by | cleared by |
//! |---|---|---|---|
//! | `CLOSED` | no permit can be taken | a shutdown | - |
//! | `ASLEEP` | no worker lives, and no permit is taken, or a spawner starts the first worker | the last worker, as it ends | the spawner of a first worker |
//! | `WAITING` | the line is not empty, and only its first entry may take a permit | a submission that joins an empty line | the thread that empties the line |
//!
//! `WAITING` changes only under the line's lock. The last worker sets `ASLEEP` by a step that fails
//! if a permit is taken. So a submission that has taken a permit and found `ASLEEP` clear may rely on
//! a living worker for as long as it keeps the permit.
//!
//! The design is that of a semaphore whose release hands permits on in order, as in tokio's
//! `batch_semaphore`.
//!
//! | pair | one side | the other side |
//! |---|---|---|
//! | S1 | a thread gives a permit back, or raises the bound, *then* reads `WAITING` (for a permit: by the same step) | a submission sets `WAITING`, *then* reads whether a permit is free |
//! | S2 | a task has ended, its worker is free, its cell is read, *then* its permit is given back | a thread takes the permit |
//! | S3 | the last worker sets `ASLEEP` if no permit is taken; a shutdown sets `CLOSED` | a submission takes a permit |

use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

const CLOSED: u64 = 1;
const ASLEEP: u64 = 2;
const WAITING: u64 = 4;
/// One permit, in the word's upper 61 bits.
const ONE: u64 = 8;

/// The right to have one unended task. [`Gate::give`] uses it up.
///
/// While a task lies in a mailbox or in the queue, its permit lies there, too. A mailbox or cell has
/// no memory for it: a permit takes no space.
#[derive(Debug)]
#[must_use = "a permit that is not given back is space that is lost for good"]
pub(crate) struct Permit(());

impl Permit {
    /// Leaves the permit at the place where its task is put.
    #[inline(always)]
    pub(crate) fn leave_with_task(self) {
        std::mem::forget(self);
    }

    /// Returns the permit of a task that has just been taken from its place, or of a task that is
    /// accepted and has no place.
    #[inline(always)]
    pub(crate) fn of_taken_task() -> Self {
        Self(())
    }
}

// In a release build, a permit has no `Drop`, so that a task needs none.
#[cfg(debug_assertions)]
impl Drop for Permit {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a permit is lost");
    }
}

/// The permits of queue cells that the queue's `head` has passed without a pop. [`Gate::give_all`]
/// uses them up.
#[derive(Debug, Default)]
#[must_use = "permits that are not given back are space that is lost for good"]
pub(crate) struct Freed {
    permits: u64,
    /// Set if `head` may have stopped before a dead cell, because it had passed many.
    pub(crate) more: bool,
}

impl Freed {
    /// Adds the permit of one cell.
    pub(crate) fn add_one(&mut self) {
        self.permits += 1;
        #[cfg(lazypool_shuttle)]
        IN_MOTION.set(IN_MOTION.get() + 1);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.permits == 0 && !self.more
    }
}

#[cfg(lazypool_shuttle)]
std::thread_local! {
    /// How many permits are in all values of type [`Freed`]. For shuttle's judge.
    static IN_MOTION: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(lazypool_shuttle)]
impl Freed {
    pub(crate) fn in_motion() -> u64 {
        IN_MOTION.get()
    }
}

#[cfg(debug_assertions)]
impl Drop for Freed {
    fn drop(&mut self) {
        assert!(
            self.permits == 0 || std::thread::panicking(),
            "permits are lost"
        );
    }
}

/// A reading of the word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen(u64);

impl Seen {
    /// Returns how many permits are taken.
    #[inline]
    pub(crate) fn taken(self) -> u64 {
        self.0 / ONE
    }

    #[inline]
    pub(crate) fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    #[inline]
    pub(crate) fn is_asleep(self) -> bool {
        self.0 & ASLEEP != 0
    }

    #[inline]
    pub(crate) fn is_waited_for(self) -> bool {
        self.0 & WAITING != 0
    }

    /// Returns `true` if the thread that has given a permit back has more to do: a submission waits,
    /// or the gate is closed.
    #[inline(always)]
    pub(crate) fn needs_care(self) -> bool {
        self.0 & (CLOSED | WAITING) != 0
    }
}

#[derive(Debug)]
pub(crate) struct Gate {
    word: CachePadded<AtomicU64>,
    /// How many permits there are.
    bound: CachePadded<AtomicU64>,
}

impl Gate {
    /// Creates an open gate with `bound` permits.
    pub(crate) fn new(bound: usize) -> Self {
        Self {
            word: CachePadded::new(AtomicU64::new(0)),
            bound: CachePadded::new(AtomicU64::new(bound as u64)),
        }
    }

    /// Creates the gate of a pool that has no worker yet.
    pub(crate) fn new_asleep(bound: usize) -> Self {
        let gate = Self::new(bound);
        // Relaxed: the gate is not shared yet.
        gate.word.fetch_or(ASLEEP, Ordering::Relaxed);
        gate
    }

    #[inline]
    pub(crate) fn load(&self) -> Seen {
        // ORDERING: S1, S3: read after this thread has joined the line, or before it ends.
        Seen(self.word.load(Ordering::SeqCst))
    }

    /// Returns how many permits there are.
    #[inline]
    pub(crate) fn bound(&self) -> u64 {
        // ORDERING: S1: read after this thread has joined the line.
        self.bound.load(Ordering::SeqCst)
    }

    /// Returns how many permits are free.
    pub(crate) fn free(&self) -> u64 {
        self.bound().saturating_sub(self.load().taken())
    }

    /// Takes a permit, unless none is free or one of `flags` is set. Returns the word that decided.
    #[inline(always)]
    fn take_unless(&self, flags: u64) -> Result<(Permit, Seen), Seen> {
        let mut word = self.load().0;
        loop {
            if word & flags != 0 {
                return Err(Seen(word));
            }
            let bound = self.bound();
            if word / ONE >= bound {
                // The bound may have fallen below this word after tasks had ended. So the word is read
                // again: none is free only if none is free now.
                word = self.load().0;
                if word & flags != 0 || word / ONE >= bound {
                    return Err(Seen(word));
                }
            }
            // ORDERING: S2: acquires what the permit's last task did. S3: fails if a flag was set.
            match (self.word).compare_exchange(word, word + ONE, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => return Ok((Permit(()), Seen(word))),
                Err(now) => word = now,
            }
        }
    }

    /// Takes a permit for a submission that does not stand in line. Fails if others wait in line.
    #[inline(always)]
    pub(crate) fn take(&self) -> Result<(Permit, Seen), Seen> {
        self.take_unless(CLOSED | WAITING)
    }

    /// Takes a permit for the first submission in line. The caller holds the line's lock.
    pub(crate) fn take_in_line(&self) -> Option<Permit> {
        self.take_unless(CLOSED).ok().map(|(permit, _)| permit)
    }

    /// Gives a permit back. Returns the word after that step.
    #[inline(always)]
    pub(crate) fn give(&self, permit: Permit) -> Seen {
        permit.leave_with_task();
        self.give_some(1)
    }

    /// Gives all permits back. Returns how many there were, and the word after that step.
    pub(crate) fn give_all(&self, freed: &mut Freed) -> (u64, Seen) {
        let permits = std::mem::take(&mut freed.permits);
        let seen = self.give_some(permits);
        #[cfg(lazypool_shuttle)]
        IN_MOTION.set(IN_MOTION.get() - permits);
        (permits, seen)
    }

    #[inline(always)]
    fn give_some(&self, permits: u64) -> Seen {
        // ORDERING: S1, S2: releases what the task did. The step itself reads `WAITING`.
        let before = self.word.fetch_sub(permits * ONE, Ordering::SeqCst);
        debug_assert!(before / ONE >= permits, "a permit was given back twice");
        Seen(before.wrapping_sub(permits * ONE))
    }

    /// Changes the bound. Returns how many permits came free, and the word after that.
    pub(crate) fn set_bound(&self, bound: usize) -> (u64, Seen) {
        let bound = bound as u64;
        // ORDERING: S1: raised before this thread reads `WAITING`.
        let before = self.bound.swap(bound, Ordering::SeqCst);
        (bound.saturating_sub(before), self.load())
    }

    /// Closes the gate. No permit can be taken from now on.
    pub(crate) fn close(&self) {
        // ORDERING: S3: set before the thread that closes the pool looks for tasks and workers.
        self.word.fetch_or(CLOSED, Ordering::SeqCst);
    }

    /// Sets or clears `WAITING`. The caller holds the line's lock.
    pub(crate) fn set_waiting(&self, waits: bool) {
        // ORDERING: S1: set before this thread reads whether a permit is free.
        if waits {
            self.word.fetch_or(WAITING, Ordering::SeqCst);
        } else {
            self.word.fetch_and(!WAITING, Ordering::SeqCst);
        }
    }

    /// Sets `ASLEEP` for the last worker, which is about to leave. Returns `false`, and sets
    /// nothing, if a permit is taken: the worker must stay, because its task may need the worker.
    #[must_use]
    pub(crate) fn sleep(&self) -> bool {
        let asleep = |word| (Seen(word).taken() == 0).then_some(word | ASLEEP);
        // ORDERING: S3: fails if a submission has taken a permit first.
        let slept = (self.word).fetch_update(Ordering::SeqCst, Ordering::SeqCst, asleep);
        slept.is_ok()
    }

    /// Clears `ASLEEP`, because a worker has been started.
    pub(crate) fn wake(&self) {
        // ORDERING: S3: cleared once the worker is registered.
        self.word.fetch_and(!ASLEEP, Ordering::SeqCst);
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl Gate {
    /// Asserts that no permit is taken and no submission waits. Models call it after every thread
    /// has ended.
    pub(crate) fn assert_at_rest(&self) {
        let seen = self.load();
        assert_eq!(seen.taken(), 0, "permits are taken");
        assert!(!seen.is_waited_for(), "a submission waits");
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn as_many_permits_as_the_bound_says() {
        let gate = Gate::new(2);
        let first = gate.take().expect("free").0;
        let second = gate.take().expect("free").0;
        assert!(gate.take().is_err());
        assert_eq!((gate.set_bound(3).0, gate.free()), (1, 1));
        let third = gate.take().expect("free").0;
        assert_eq!((gate.set_bound(1).0, gate.free()), (0, 0));
        let given = [first, second, third].map(|permit| {
            let seen = gate.give(permit);
            (seen.taken(), gate.free())
        });
        assert_eq!(given, [(2, 0), (1, 0), (0, 1)]);
    }

    #[test]
    fn a_flag_turns_submissions_away() {
        let gate = Gate::new_asleep(1);
        assert!(gate.load().is_asleep());
        let permit = gate.take_in_line().expect("free");
        assert!(!gate.sleep(), "a permit is taken");
        gate.wake();
        gate.set_waiting(true);
        assert!(gate.give(permit).needs_care());
        assert!(gate.take().is_err(), "the first in line comes first");
        let _ = gate.give(gate.take_in_line().expect("free"));
        gate.set_waiting(false);
        let _ = gate.give(gate.take().expect("free").0);
        assert!(gate.sleep());
        gate.close();
        assert!(gate.take().is_err_and(Seen::is_closed) && gate.take_in_line().is_none());
    }
}
