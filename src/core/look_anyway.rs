//! Searches for a worker for the queue that rely on no count: a worker that is counted may be stopped.

use super::host::{Host, NotStarted};
use super::Core;
use crate::parts::slot::Slot;
use crate::sync::{Arc, IsHeld, Patience};
use crate::work::owed::Owed;

impl<H: Host> Core<H> {
    /// Tells an idle worker to look at the queue, if there is one that this thread may claim, and something is queued.
    /// The notice comes after the claim. So no thread relies on this one, which need not look further.
    pub(crate) fn tell_idle(&self, patience: Patience) {
        if self.queue.is_empty() {
            return;
        }
        if let Some((slot, claim)) = self.claim_by(patience) {
            self.set_last_worker(slot, 0);
            claim.notify(self.in_flight.notify());
        }
    }

    /// Starts a worker for the queue. If none comes, owes a look, because other threads may have relied on this start (A4).
    pub(crate) fn start_or_look(self: &Arc<Self>, owed: &mut Owed) -> Result<(), NotStarted> {
        H::start_searching(self, owed).inspect_err(|_| owed.look())
    }

    /// Makes workers look at the queue, whatever the counts and the ready ring say, and whoever looks already: that thread
    /// may be stopped. Notifies idle workers, until one that slept comes for each queue cell in use. If too few slept, starts one, if a slot is
    /// free. Returns the error if that needs the host's lock, and another thread has it.
    #[cold]
    pub(crate) fn look_anyway(self: &Arc<Self>, owed: &mut Owed) -> Result<(), IsHeld> {
        self.pass_some_dead(owed);
        let (mut idle, mut told) = (self.slots.iter().filter_map(Slot::claim_idle), 0);
        while told < self.queue.len() {
            let Some(claim) = idle.next() else {
                H::try_lock(self)?;
                let _ = self.start_or_look(owed);
                break;
            };
            // One that does not sleep may be stopped.
            told += u64::from(claim.is_parked());
            claim.notify(self.in_flight.notify());
        }
        Ok(())
    }
}
