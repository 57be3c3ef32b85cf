//! The right to give a worker its next order.

use super::word::GENERATION;
use super::{Slot, State, Word};
use crate::parts::gate::Permit;
use crate::parts::in_flight::Notice;
use crate::sync::{assert_has_no, note_in_hand, thread, InHand};

/// The right to give a worker its next order: the slot is `Held`, by the thread that has this value. Each order uses it up.
///
/// It is made only by a step into `Held`, so there is one of them while a slot is `Held`, and none otherwise.
#[derive(Debug)]
#[must_use = "a worker whose claim is lost never gets an order again"]
pub(crate) struct Claim<'a, T, R> {
    slot: &'a Slot<T, R>,
    /// `true` if the worker is parked, and must be unparked once it has its order.
    parked: bool,
}

// In a release build, a claim has no `Drop`, as a `Permit`.
#[cfg(debug_assertions)]
impl<T, R> Drop for Claim<'_, T, R> {
    fn drop(&mut self) {
        note_in_hand(InHand::Slot, -1);
        assert!(std::thread::panicking(), "a claim is lost");
    }
}

impl<'a, T, R> Claim<'a, T, R> {
    /// Returns the claim of the thread that has just moved the slot from `before` to `Held`.
    #[inline]
    pub(super) fn of(slot: &'a Slot<T, R>, before: Word) -> Self {
        note_in_hand(InHand::Slot, 1);
        let parked = before.is_parked();
        Self { slot, parked }
    }

    /// Returns `true` if the worker sleeps until it gets its order.
    #[inline]
    pub(crate) fn is_parked(&self) -> bool {
        self.parked
    }

    /// Returns `true` if this is a claim on the worker of that slot.
    pub(crate) fn is_of(&self, slot: &Slot<T, R>) -> bool {
        std::ptr::eq(self.slot, slot)
    }

    /// Tells the worker to look at the queue, and wakes the worker if it sleeps. Others may rely on that: the
    /// notice counts until the worker has taken it.
    pub(crate) fn notify(self, notice: Notice) {
        notice.leave_in_slot();
        self.order(State::Notified, 0).1.unpark();
    }

    /// Sends the worker to look at the queue, once it has paid what it may owe. No thread may rely on that. The worker does not sleep, or
    /// the thread that had handed it a task is about to unpark it.
    pub(crate) fn send_uncounted(self) {
        self.order(State::Paying, 0).1.unpark();
    }

    /// Tells the worker to end. Returns it, to be woken up.
    pub(super) fn retire(self) -> Sleeper {
        self.order(State::Retiring, 0).1
    }

    /// Gives the worker its order by a step to the state `to`. Adds `more` to the word. Returns the word after the
    /// step, and the worker, to be woken up.
    #[inline]
    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    fn order(self, to: State, more: u64) -> (Word, Sleeper) {
        let (slot, parked) = self.into_parts();
        // The thread handle is cloned before the step. After the step the worker may end, and
        // another thread may take the slot.
        let sleeper = if parked {
            // SAFETY: only a spawner that holds the slot writes the handle. The spawner then takes
            // a step, and the claim has acquired that step.
            slot.thread.with(|t| unsafe { (*t).clone() })
        } else {
            None
        };
        (slot.shift(State::Held, to, more), Sleeper(sleeper))
    }

    /// Uses the claim up, for a step out of `Held`.
    #[inline(always)]
    fn into_parts(self) -> (&'a Slot<T, R>, bool) {
        let parts = (self.slot, self.parked);
        note_in_hand(InHand::Slot, -1);
        std::mem::forget(self);
        parts
    }

    // ---- spawning ---------------------------------------------------------------

    /// Stores the thread of a new worker, which waits for its first order.
    ///
    /// # Safety
    /// The claim is that of [`Slot::begin_start`]. The new thread does not touch
    /// `Slot::thread` before it has its first order.
    pub(crate) unsafe fn set_thread(&self, thread: thread::Thread) {
        // SAFETY: this thread holds the slot. By this function's contract, the worker does not touch the handle now.
        self.slot.thread.with_mut(|t| unsafe { *t = Some(thread) });
    }

    /// Gives the slot back because the OS refused a thread.
    ///
    /// # Safety
    /// The claim is that of [`Slot::begin_start`], and no thread was created.
    pub(crate) unsafe fn start_failed(self) {
        let (slot, _) = self.into_parts();
        slot.shift(State::Held, State::Free, 0);
    }
}

/// A worker that has an order. If it sleeps, it does not see the order before it is unparked.
#[derive(Debug)]
#[must_use = "it may sleep for ever"]
pub(crate) struct Sleeper(Option<thread::Thread>);

impl Sleeper {
    /// Returns a worker that may sleep.
    pub(crate) fn of(thread: &thread::Thread) -> Self {
        Self(Some(thread.clone()))
    }

    /// Wakes the worker up if it sleeps. This thread holds no lock, because the worker may need it next.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn unpark(mut self) {
        if let Some(sleeper) = self.0.take() {
            assert_has_no(&[InHand::Lock]);
            sleeper.unpark();
        }
    }
}

// In a release build, a sleeper has no `Drop`, as a `Permit`.
#[cfg(debug_assertions)]
impl Drop for Sleeper {
    fn drop(&mut self) {
        assert!(
            self.0.is_none() || std::thread::panicking(),
            "a worker sleeps on"
        );
    }
}

/// The right to hand a worker its next task. A worker that calls wakers gets no other order, but that it may be sent to look at the
/// queue, which it would do anyway.
#[derive(Debug)]
#[must_use = "a worker whose claim is lost never gets an order again"]
pub(crate) struct TaskClaim<'a, T, R>(Claim<'a, T, R>);

impl<'a, T, R> From<Claim<'a, T, R>> for TaskClaim<'a, T, R> {
    #[inline(always)]
    fn from(claim: Claim<'a, T, R>) -> Self {
        Self(claim)
    }
}

impl<T, R> TaskClaim<'_, T, R> {
    /// Returns `true` if this is a claim on the worker of that slot.
    pub(crate) fn is_of(&self, slot: &Slot<T, R>) -> bool {
        self.0.is_of(slot)
    }

    /// Hands the task to the worker, and wakes the worker if it sleeps. Returns the task's
    /// generation. The waiter of a `revocable` task may take it back until the worker takes it.
    #[inline]
    pub(crate) fn hand_over(self, task: T, permit: Permit, revocable: bool) -> u64 {
        permit.leave_with_task();
        // SAFETY: this thread holds the slot, by this claim. So the mailbox is empty, and only this thread may write
        // it.
        (self.0.slot.hot.mailbox).with_mut(|m| unsafe { (*m).write(task) });
        let to = match revocable {
            true => State::Offered,
            false => State::Busy,
        };
        let (after, sleeper) = self.0.order(to, GENERATION);
        sleeper.unpark();
        after.generation()
    }

    /// Hands over no task: sends the worker to look at the queue, as [`Claim::send_uncounted`] does.
    pub(crate) fn send_uncounted(self) {
        self.0.send_uncounted();
    }
}

#[cfg(any(all(test, not(lazypool_shuttle)), lazypool_loom))]
impl<'a, T, R> Claim<'a, T, R> {
    /// Leaves the claim with the slot, which stays `Held`. For tests and models.
    pub(crate) fn leave(self) {
        self.into_parts();
    }

    /// Returns the claim that was left with the slot. For tests and models.
    ///
    /// # Safety
    /// There is one.
    pub(crate) unsafe fn of_held(slot: &'a Slot<T, R>) -> Self {
        note_in_hand(InHand::Slot, 1);
        Self {
            slot,
            parked: false,
        }
    }
}
