//! A slot's beginning and end: who gives it a thread, and how that thread leaves it.

use super::word::MARKED;
use super::{Claim, Slot, State};
use crate::sync::thread;

impl<T, R> Slot<T, R> {
    // ---- retirement -------------------------------------------------------------

    /// Cleaner: marks an idle worker; `false` if it is not idle, or marked. It has
    /// counted the mark.
    #[must_use]
    pub(crate) fn mark(&self) -> bool {
        let word = self.see();
        word.is_fresh_idle() && self.swap_if(word, word.and(MARKED)).is_ok()
    }

    /// Tells an idle worker to end: a marked one (cleaner), or any (shutdown, itself).
    #[must_use]
    pub(crate) fn retire(&self, only_marked: bool) -> Option<Claim> {
        self.leave_idle(State::Retiring, only_marked)
    }

    /// Worker that was told to end: stays, to look at the queue.
    ///
    /// # Safety
    /// The caller is the slot's worker, told to end.
    pub(crate) unsafe fn cancel_retirement(&self) {
        self.step(State::Retiring, State::Searching, 0);
    }

    /// Worker, its last act on the slot.
    ///
    /// # Safety
    /// The caller is the slot's worker, told to end, and touches nothing of the slot after this.
    pub(crate) unsafe fn vacate(&self) {
        self.step(State::Retiring, State::Free, 0);
    }

    // ---- spawning ---------------------------------------------------------------

    /// Spawner: takes the slot whose free entry it popped.
    ///
    /// # Safety
    /// The caller has popped the slot's entry of the free ring.
    pub(crate) unsafe fn begin_start(&self) {
        self.step(State::Free, State::Held, 0);
    }

    /// Spawner: there is no thread to be had.
    ///
    /// # Safety
    /// The caller has begun the start, and no thread came of it.
    pub(crate) unsafe fn start_failed(&self) {
        self.step(State::Held, State::Free, 0);
    }

    /// Spawner: the thread exists, and waits for its first order.
    ///
    /// # Safety
    /// The caller has begun the start (`Held` from `Free`), and the thread does not touch
    /// the slot's handle before the caller has published its first order.
    pub(crate) unsafe fn set_thread(&self, thread: thread::Thread) {
        // SAFETY: the slot is the caller's alone.
        self.thread.with_mut(|t| unsafe { *t = Some(thread) });
    }

    /// Spawner: the new worker starts by looking at the queue.
    ///
    /// # Safety
    /// The caller has begun the start, and this is the new worker's first order.
    pub(crate) unsafe fn start_searching(&self) {
        self.step(State::Held, State::Searching, 0);
    }
}
