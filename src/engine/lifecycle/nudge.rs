//! First aid for a pool that hangs: it looks for all that waits, and trusts no count and no ring.
//!
//! A thread may have been stopped between two steps, or a fault of this crate may have left a count wrong. Then a task
//! waits that need not. CONTRIBUTING.md, "When a pool hangs", says how a person comes to this.

use crate::engine::figures::findings::Finding;
use crate::engine::shared::{Core, Registry};
use crate::sync::{Arc, Patience};
use crate::work::owed::{Due, Owed};

impl Core {
    /// Looks for all that waits in the pool: queued tasks, submissions in line, workers that have an order and
    /// sleep. If a count of workers that look at the queue is wrong, has the pool rely on no such count from now on.
    pub(crate) fn nudge(self: &Arc<Self>) {
        if self.env.is_forked() {
            return;
        }
        let mut owed = Owed::default();
        // A thread that is stopped may hold any lock. So all that needs none comes first.
        if self.findings().0.iter().any(Finding::is_of_counts) {
            self.env.distrust_counts();
        }
        if let Ok(registry) = self.registry_by(Patience::Tries) {
            self.wake_told(&registry);
        }
        self.look_anyway(&mut owed);
        for (line, entries) in self.host.line.passable(&self.gate).unwrap_or_default() {
            (0..entries).for_each(|_| owed.note(Due::Pass(line)));
        }
        if self.gate.flags().is_closed() && self.gate.taken() == 0 {
            owed.note(Due::Over);
        }
        self.pay(&mut owed);
    }

    /// Unparks the workers that sleep although they have an order.
    fn wake_told(&self, registry: &Registry) {
        for (slot, worker) in self.slots.iter().zip(&registry.workers) {
            if let (Some(worker), true) = (worker, slot.record.sleeps() && !slot.load().is_idle()) {
                worker.handle.thread().unpark();
            }
        }
    }
}
