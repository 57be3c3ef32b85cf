//! How a slot gets its thread, and how that thread leaves it.

use super::word::LISTED;
use super::{Claim, Sleeper, Slot, State, Word};

impl<T, R> Slot<T, R> {
    // ---- retirement -------------------------------------------------------------

    /// Puts the worker of a popped entry of the ready ring on the bench, by clearing `LISTED`.
    /// Returns `true` if the worker is idle, and so is on the bench from now on. The cleaner has
    /// counted the worker as benched before it popped the entry (P1).
    #[must_use]
    pub(crate) fn bench(&self) -> bool {
        self.update(|word| Some(word.without(LISTED)))
            .is_some_and(Word::is_idle)
    }

    /// Tells the worker to end, if it is idle and, if `benched`, on the bench. Returns the worker, to be woken up, if it
    /// was told.
    #[must_use]
    pub(crate) fn retire(&self, benched: bool) -> Option<Sleeper> {
        let claim = match benched {
            true => self.claim_benched(),
            false => self.claim_idle(),
        };
        claim.map(Claim::retire)
    }

    // ---- spawning ---------------------------------------------------------------

    /// Takes the slot for a spawner.
    ///
    /// # Safety
    /// The caller has popped the slot's entry of the free ring.
    pub(crate) unsafe fn begin_start(&self) -> Claim<'_, T, R> {
        let held = self.shift(State::Free, State::Held, 0);
        Claim::of(self, held)
    }
}
