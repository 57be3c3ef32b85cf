//! A slot's beginning and end: who gives it a thread, and how that thread leaves it.

use super::word::{LISTED, STARTING};
use super::{Claim, Slot, State, Word};
use crate::sync::thread;

impl<T, R> Slot<T, R> {
    // ---- retirement -------------------------------------------------------------

    /// Cleaner: follows an entry of the ready ring through, and drops the listing. Whether the
    /// worker is idle, and so on the bench from now on; the caller has counted it.
    #[must_use]
    pub(crate) fn bench(&self) -> bool {
        self.update(|word| Some(word.without(LISTED)))
            .is_some_and(Word::is_idle)
    }

    /// Tells an idle worker to end; a `benched` one only if it still is.
    #[must_use]
    pub(crate) fn retire(&self, benched: bool) -> Option<Claim> {
        let may = |word: Word| word.is_idle() && (word.is_benched() || !benched);
        self.leave_idle(State::Retiring, may)
    }

    // ---- spawning ---------------------------------------------------------------

    /// Spawner: takes the slot whose free entry it popped. If the worker has a start hook, it is
    /// starting until [`Slot::has_started`].
    ///
    /// # Safety
    /// The caller has popped the slot's entry of the free ring.
    pub(crate) unsafe fn begin_start(&self, has_hook: bool) {
        let starting = if has_hook { STARTING } else { 0 };
        self.shift(State::Free, State::Held, starting);
    }

    /// Spawner: the OS gave no thread.
    ///
    /// # Safety
    /// The caller has begun the start, and no thread came of it.
    pub(crate) unsafe fn start_failed(&self) {
        let starting = self.see().0 & STARTING;
        self.shift(State::Held, State::Free, starting.wrapping_neg());
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

    /// Worker: its start hook is over. Whether it has no order but to look at the queue; then `count`
    /// is called before that can be seen. `None`: a caller is just taking its task back.
    ///
    /// # Safety
    /// The caller is the slot's worker, which is starting.
    pub(crate) unsafe fn has_started(&self, count: impl FnOnce()) -> Option<bool> {
        let word = self.see();
        if word.state() == State::Held {
            return None;
        }
        let searches = word.is_starting_without_task();
        if searches {
            count();
        }
        // One that searches is nobody's but a popper's, who drops an old listing.
        self.update(|now| (searches || now == word).then(|| now.without(STARTING)))?;
        Some(searches)
    }
}
