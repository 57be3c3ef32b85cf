//! The gate: a semaphore that bounds how many tasks may be accepted and unended. A pool has one, and
//! so has each limited group.
//!
//! The *permits* of a gate are its bound: a pool's are its limit and its queue's capacity together, a group's are its limit. A task
//! takes a permit when it is accepted, and keeps it until it has ended. So a submission learns from the gate whether there is space: it takes
//! a permit, or there is none. The steps after that only decide where the task goes. They cannot run out of space, because the queue has a
//! cell for each permit.
//!
//! Submissions count the permits ever taken in one word, `taken`. The threads that end tasks count the permits ever given back in another,
//! `given`. The difference is in use. Each word has a cache line of its own, so a submission and a task's end do not wait for each other's
//! line. A submission compares `taken` with `given_seen`, an older value of `given`. It reads `given` only if no permit is free by that
//! value, so about once in as many submissions as there are permits. If none is free by `given` either, then none was free when it read `bound`: it had read `taken` before, and reads `given` after that, and neither count falls. A
//! permit that it takes was free when it last read `bound`: it had read how many were given before, and `taken` does not move until
//! its step. If `given` is even larger than `taken` was, then `taken` has moved, and the submission tries again.
//!
//! Submissions that wait for a permit stand in a [line](super::line). Flags tell whether there are any:
//! one in `given`, for the step that gives a permit back, and one in `taken`, for submissions.
//!
//! | flag | in | while it is set | set by | cleared by |
//! |---|---|---|---|---|
//! | `CLOSED` | both | no permit can be taken | a shutdown, first in `taken` | - |
//! | `ASLEEP` | `taken` | no worker is registered: a submission that takes a permit starts one, or waits for the thread that does, or for the slot of the worker that has just ended | the last living worker, as it ends | the spawner of a first worker |
//! | `WAITING` | both | the line is not empty, and only its first entry may take a permit | a submission that joins an empty line, or moves on to one | the thread that empties the line |
//!
//! `WAITING` changes only under the line's lock. The last worker sets `ASLEEP` by a step that fails if a permit is taken. So a submission
//! that has taken a permit and found `ASLEEP` clear may rely on a living worker for as long as it keeps the permit.
//!
//! The design is that of a semaphore whose release hands permits on in order, as in tokio's `batch_semaphore`. The
//! two words are those of a ring with one counter for each side, as in `Members` and in the queue.
//!
//! | pair | one side | the other side |
//! |---|---|---|
//! | S1 | a thread gives a permit back, or raises the bound, *then* reads `WAITING` (for a permit: by the same step) | a submission sets `WAITING`, *then* reads whether a permit is free |
//! | S2 | a task has ended, and its cell is read or its mailbox empty, *then* its permit is given back (`given`, which another thread may copy to `given_seen`) | a thread reads `given` or `given_seen`, *then* takes the permit |
//! | S3 | the last worker sets `ASLEEP` if no permit is taken; a shutdown sets `CLOSED` (in `taken`) | a submission takes a permit |
//! | S4 | a shutdown sets `CLOSED` in `taken`, *then* in `given`, *then* reads whether a permit is in use | a thread gives a permit back, and reads `CLOSED` by the same step, *then* reads `taken` |

use crate::parts::backoff::IN_MODELS;
use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;
use std::fmt;

const CLOSED: u64 = 1;
const ASLEEP: u64 = 2;
const WAITING: u64 = 4;
/// Set in a [`Given`] only: the gate is closed, and no permit is in use any more.
const OVER: u64 = ASLEEP;
/// One permit, in the upper 61 bits of both words. The counts wrap.
const ONE: u64 = 8;

/// Returns how many permits are in use, by values of the two words. If `taken` was read first, the result
/// may be too small, even negative: others may have taken permits and given them back in between.
#[inline(always)]
fn in_use(taken: u64, given: u64) -> i64 {
    let flags = ONE - 1;
    (taken & !flags).wrapping_sub(given & !flags) as i64 >> ONE.trailing_zeros()
}

/// Returns a bound that the difference of two counts can be compared with.
fn clamp(bound: usize) -> u64 {
    (bound as u64).min(i64::MAX as u64)
}

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
    pub(super) fn of_taken_task() -> Self {
        Self(())
    }

    /// Returns a permit of no gate, for tests and models.
    #[cfg(any(test, lazypool_loom))]
    pub(crate) fn of_model() -> Self {
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

/// A key stands in what a lock guards, and nowhere else. So a thread that has it for itself holds the lock: that of a gate's line.
#[derive(Debug, Default)]
pub(crate) struct LineKey(());
/// The same for the lock under which a pool's workers are registered.
#[derive(Debug, Default)]
pub(crate) struct WorkersKey(());

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
            self.is_empty() || std::thread::panicking(),
            "permits are lost"
        );
    }
}

/// The flags of a gate, as a step has read them.
#[derive(Clone, Copy)]
pub(crate) struct Flags(u64);

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [(CLOSED, "CLOSED"), (ASLEEP, "ASLEEP"), (WAITING, "WAITING")];
        let set = names.iter().filter(|(flag, _)| self.0 & flag != 0);
        f.debug_set().entries(set.map(|(_, name)| name)).finish()
    }
}

impl Flags {
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
}

/// The gate's answer to a thread that has given permits back.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub(crate) struct Given(u64);

impl Given {
    /// Returns `true` if the thread has more to do: a submission waits, or the gate is closed.
    #[inline(always)]
    pub(crate) fn needs_care(self) -> bool {
        self.0 & (CLOSED | WAITING) != 0
    }

    #[inline]
    pub(crate) fn is_waited_for(self) -> bool {
        self.0 & WAITING != 0
    }

    /// Returns `true` if the gate is closed, and this thread has given the last permit back.
    pub(crate) fn is_over(self) -> bool {
        self.0 & OVER != 0
    }
}

#[derive(Debug)]
pub(crate) struct Gate {
    side: CachePadded<SubmitSide>,
    /// How many permits have ever been given back, and the flags `CLOSED` and `WAITING`.
    given: CachePadded<AtomicU64>,
}

/// The words that each submission reads, on one cache line.
#[derive(Debug)]
struct SubmitSide {
    /// How many permits have ever been taken, and the flags.
    taken: AtomicU64,
    /// A value of `given` that a submission has read.
    given_seen: AtomicU64,
    /// How many permits there are.
    bound: AtomicU64,
}

impl Gate {
    /// Creates an open gate with `bound` permits.
    pub(crate) fn new(bound: usize) -> Self {
        Self {
            side: CachePadded::new(SubmitSide {
                taken: AtomicU64::new(0),
                given_seen: AtomicU64::new(0),
                bound: AtomicU64::new(clamp(bound)),
            }),
            given: CachePadded::default(),
        }
    }

    /// Creates the gate of a pool that has no worker yet.
    pub(crate) fn new_asleep(bound: usize) -> Self {
        let gate = Self::new(bound);
        // Relaxed: the gate is not shared yet.
        gate.side.taken.fetch_or(ASLEEP, Ordering::Relaxed);
        gate
    }

    #[inline]
    fn load_taken(&self) -> u64 {
        // ORDERING: S1, S3, S4: read after this thread has joined the line or raised the bound, before
        // it ends, or after it has given back a permit of a closed gate.
        self.side.taken.load(Ordering::SeqCst)
    }

    #[inline]
    fn load_given(&self) -> u64 {
        // ORDERING: S1, S2, S4: read after this thread has set a flag there. Acquires what the tasks did
        // whose permits were given back.
        self.given.load(Ordering::SeqCst)
    }

    #[inline]
    pub(crate) fn flags(&self) -> Flags {
        Flags(self.load_taken())
    }

    /// Returns how many permits are in use. May be more than were ever in use at once, if permits were taken between the
    /// two readings. Zero is exact.
    pub(crate) fn taken(&self) -> u64 {
        let given = self.load_given();
        // Not negative, because `given` was read first.
        in_use(self.load_taken(), given) as u64
    }

    /// Returns how many permits there are.
    #[inline]
    pub(crate) fn bound(&self) -> u64 {
        // ORDERING: S1: read after this thread has joined the line.
        self.side.bound.load(Ordering::SeqCst)
    }

    /// Returns how many permits are free.
    pub(crate) fn free(&self) -> u64 {
        self.bound().saturating_sub(self.taken())
    }

    /// Takes a permit, unless none is free or one of `flags` is set. Returns the flags that it found.
    #[inline(always)]
    fn take_unless(&self, flags: u64) -> Result<(Permit, Flags), Flags> {
        let side = &*self.side;
        let mut taken = self.load_taken();
        loop {
            if taken & flags != 0 {
                return Err(Flags(taken));
            }
            // ORDERING: S2: acquires what the permit's last task did. Read before `bound`, so that a grant is of that moment.
            let seen = side.given_seen.load(Ordering::Acquire);
            let bound = self.bound();
            if in_use(taken, seen) >= bound as i64 {
                let given = self.refresh(seen);
                if in_use(taken, given) >= bound as i64 {
                    return Err(Flags(taken));
                }
                // The bound may have been lowered before these permits came back.
                if in_use(taken, given) >= self.bound() as i64 {
                    continue;
                }
            }
            // ORDERING: S3: fails if a flag was set, or if `taken` has moved.
            let (from, to, order) = (taken, taken.wrapping_add(ONE), Ordering::SeqCst);
            match side.taken.compare_exchange(from, to, order, order) {
                Ok(_) => return Ok((Permit(()), Flags(taken))),
                Err(now) => taken = now,
            }
        }
    }

    /// Reads `given` for submissions.
    #[inline]
    fn refresh(&self, seen: u64) -> u64 {
        let given = self.load_given();
        if given != seen {
            // ORDERING: S2: releases to other submissions what this thread has acquired.
            self.side.given_seen.store(given, Ordering::Release);
        }
        given
    }

    /// Takes a permit for a submission that does not stand in line. Fails if others wait in line.
    #[inline(always)]
    pub(crate) fn take(&self) -> Result<(Permit, Flags), Flags> {
        self.take_unless(CLOSED | WAITING)
    }

    /// Takes a permit for the first submission in line. Returns the flags that it found.
    pub(crate) fn take_in_line(&self, _: &mut LineKey) -> Option<(Permit, Flags)> {
        self.take_unless(CLOSED).ok()
    }

    /// Gives a permit back.
    #[inline(always)]
    pub(crate) fn give(&self, permit: Permit) -> Given {
        permit.leave_with_task();
        self.give_some(1)
    }

    /// Gives all permits back. Also returns how many there were.
    pub(crate) fn give_all(&self, freed: &mut Freed) -> (u64, Given) {
        let permits = std::mem::take(&mut freed.permits);
        if permits == 0 {
            return (0, Given(0));
        }
        let given = self.give_some(permits);
        #[cfg(lazypool_shuttle)]
        IN_MOTION.set(IN_MOTION.get() - permits);
        (permits, given)
    }

    #[inline(always)]
    fn give_some(&self, permits: u64) -> Given {
        // ORDERING: S1, S2, S4: releases what the task did. The step itself reads the flags.
        let before = self.given.fetch_add(permits * ONE, Ordering::SeqCst);
        // Models do without this reading, which would add an order to theirs.
        debug_assert!(
            IN_MODELS || in_use(self.load_taken(), before) >= permits as i64,
            "a permit was given back twice"
        );
        if before & CLOSED != 0 {
            return self.given_to_closed(before.wrapping_add(permits * ONE));
        }
        Given(before)
    }

    /// Finds out whether the permits that this thread has given back were the last ones. `given` is the
    /// word after that.
    #[cold]
    fn given_to_closed(&self, given: u64) -> Given {
        // No permit can be taken any more. So one thread only, the last one to move `given`, finds that
        // none is in use.
        let is_over = in_use(self.load_taken(), given) == 0;
        Given(given & (CLOSED | WAITING) | if is_over { OVER } else { 0 })
    }

    /// Changes the bound. Returns by how many it was raised, and whether submissions wait for permits.
    pub(crate) fn set_bound(&self, bound: usize) -> (u64, Given) {
        let bound = clamp(bound);
        // ORDERING: S1: raised before this thread reads `WAITING`.
        let before = self.side.bound.swap(bound, Ordering::SeqCst);
        (
            bound.saturating_sub(before),
            Given(self.load_taken() & WAITING),
        )
    }

    /// Closes the gate. No permit can be taken from now on.
    pub(crate) fn close(&self) {
        // ORDERING: S3: set before the thread that closes the pool looks for tasks and workers.
        self.side.taken.fetch_or(CLOSED, Ordering::SeqCst);
        // ORDERING: S4: set after that, and before that thread reads whether a permit is in use.
        self.given.fetch_or(CLOSED, Ordering::SeqCst);
    }

    /// Sets or clears `WAITING`.
    pub(crate) fn set_waiting(&self, waits: bool, _: &mut LineKey) {
        // ORDERING: S1: set before this thread reads whether a permit is free.
        let order = Ordering::SeqCst;
        for word in [&self.side.taken, &*self.given] {
            if waits {
                word.fetch_or(WAITING, order);
            } else {
                word.fetch_and(!WAITING, order);
            }
        }
    }

    /// Sets `ASLEEP` for the last worker, which is about to leave. Returns `false`, and sets
    /// nothing, if a permit is in use, or was meanwhile: the worker must stay, because its task may need the worker.
    #[must_use]
    pub(crate) fn sleep(&self, _: &mut WorkersKey) -> bool {
        // `given` is read after `taken`. If `taken` is unchanged at the step, nothing was in use then.
        let asleep = |taken| (in_use(taken, self.load_given()) == 0).then_some(taken | ASLEEP);
        // ORDERING: S3: fails if a submission has taken a permit first.
        let slept = (self.side.taken).fetch_update(Ordering::SeqCst, Ordering::SeqCst, asleep);
        slept.is_ok()
    }

    /// Clears `ASLEEP`, because a worker has been started.
    pub(crate) fn wake(&self, _: &mut WorkersKey) {
        // ORDERING: S3: cleared once the worker is registered.
        self.side.taken.fetch_and(!ASLEEP, Ordering::SeqCst);
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl Gate {
    /// Asserts that no permit is taken and no submission waits. Models call it after every thread
    /// has ended.
    pub(crate) fn assert_at_rest(&self) {
        assert_eq!(self.taken(), 0, "permits are taken");
        let words = self.load_taken() | self.load_given();
        assert_eq!(words & WAITING, 0, "a submission waits");
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
            let _ = gate.give(permit);
            (gate.taken(), gate.free())
        });
        assert_eq!(given, [(2, 0), (1, 0), (0, 1)]);
        let _ = gate.set_bound(usize::MAX);
        let _ = gate.give(gate.take().expect("more than any count").0);
    }

    #[test]
    fn a_flag_turns_submissions_away() {
        let gate = Gate::new_asleep(1);
        let (line, workers) = (&mut LineKey(()), &mut WorkersKey(()));
        assert!(gate.flags().is_asleep());
        let permit = gate.take_in_line(line).expect("free").0;
        assert!(!gate.sleep(workers), "a permit is taken");
        gate.wake(workers);
        gate.set_waiting(true, line);
        assert!(gate.give(permit).needs_care());
        assert!(gate.take().is_err(), "the first in line comes first");
        let _ = gate.give(gate.take_in_line(line).expect("free").0);
        gate.set_waiting(false, line);
        let _ = gate.give(gate.take().expect("free").0);
        let last = gate.take().expect("free").0;
        gate.close();
        assert!(gate.take().is_err_and(Flags::is_closed) && gate.take_in_line(line).is_none());
        assert!(gate.give(last).is_over() && gate.sleep(workers));
    }

    #[test]
    fn the_counts_wrap() {
        let gate = Gate::new(2);
        let almost = u64::MAX - (2 * ONE - 1);
        for word in [&gate.side.taken, &gate.side.given_seen, &gate.given] {
            word.store(almost, Ordering::SeqCst);
        }
        for _ in 0..5 {
            let both = [(), ()].map(|()| gate.take().expect("free").0);
            assert!(gate.take().is_err() && (gate.taken(), gate.free()) == (2, 0));
            for permit in both {
                assert!(!gate.give(permit).needs_care());
            }
            assert_eq!(gate.free(), 2);
        }
    }
}
