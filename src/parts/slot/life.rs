//! How a slot gets its thread, and how that thread leaves it.

use super::word::LISTED;
use super::{Claim, Slot, State, Word};
use crate::sync::thread;

impl<T, R> Slot<T, R> {
    // ---- retirement -------------------------------------------------------------

    /// Puts the worker of a popped entry of the ready ring on the bench, by clearing `LISTED`.
    /// Returns `true` if the worker is idle, and so is on the bench from now on. The cleaner calls
    /// this after it has counted the worker as benched.
    #[must_use]
    pub(crate) fn bench(&self) -> bool {
        self.update(|word| Some(word.without(LISTED)))
            .is_some_and(Word::is_idle)
    }

    /// Tells an idle worker to end. If `benched`, does so only if the worker is still on the bench.
    /// Returns a claim, which says whether the caller must unpark the worker.
    #[must_use]
    pub(crate) fn retire(&self, benched: bool) -> Option<Claim> {
        let may = |word: Word| word.is_idle() && (word.is_benched() || !benched);
        self.leave_idle(State::Retiring, may)
    }

    // ---- spawning ---------------------------------------------------------------

    /// Takes the slot for a spawner.
    ///
    /// # Safety
    /// The caller has popped the slot's entry of the free ring.
    pub(crate) unsafe fn begin_start(&self) {
        self.shift(State::Free, State::Held, 0);
    }

    /// Gives the slot back because the OS refused a thread.
    ///
    /// # Safety
    /// The caller has begun the start, and no thread was created.
    pub(crate) unsafe fn start_failed(&self) {
        self.shift(State::Held, State::Free, 0);
    }

    /// Stores the new thread, which waits for its first order.
    ///
    /// # Safety
    /// The caller has begun the start (`Held` from `Free`). The new thread does not touch
    /// `self.thread` before the caller has published the thread's first order.
    pub(crate) unsafe fn set_thread(&self, thread: thread::Thread) {
        // SAFETY: by this function's contract, no other thread touches the handle now.
        self.thread.with_mut(|t| unsafe { *t = Some(thread) });
    }
}
