//! First aid for a pool that hangs: it looks for all that waits, and trusts no count and not the ready ring.
//!
//! A thread may have been stopped between two steps, or a fault of this crate may have left a count wrong. Then a task
//! waits that need not. CONTRIBUTING.md, "When a pool hangs", says how a person comes to this.

use crate::engine::shared::{Core, RegistryGuard};
use crate::parts::line::POOL;
use crate::sync::{Arc, Patience};
use crate::work::owed::{Due, Owed};

impl Core {
    /// Looks for all that waits in the pool: queued tasks, submissions in line, workers that have an order and
    /// sleep. If the counts of workers that look at the queue are wrong, has the pool rely on them no more.
    pub(crate) fn nudge(self: &Arc<Self>) {
        if self.env.is_forked() {
            return;
        }
        let mut owed = Owed::default();
        self.env.trust_counts(self.may_trust_counts());
        // A thread that is stopped may hold any lock. So this waits for none before it has done what needs no lock,
        // or another one (`Core::pay_others`).
        let woken = self.registry_by(Patience::Tries);
        let woken = woken.map(|registry| self.wake_told(registry)).is_ok();
        if self.look_anyway(&mut owed).is_err() {
            owed.look();
        }
        if self.gate.flags().is_closed() && self.gate.taken() == 0 {
            owed.note(Due::Over);
        }
        let passes = self.note_passes(&mut owed);
        self.pay(&mut owed);
        // What was held up by a lock that was only busy.
        if !woken {
            self.wake_told(self.registry());
        }
        if !passes {
            self.note_passes(&mut owed);
            self.pay(&mut owed);
        }
    }

    /// Notes the passes that threads owe in a healthy pool. If another thread has the lock of the lines, notes one, whose
    /// payer waits for the lock, and returns `false`.
    fn note_passes(&self, owed: &mut Owed) -> bool {
        let lines = self.host.line.passable(&self.gate);
        let is_known = lines.is_some();
        for (line, entries) in lines.unwrap_or_else(|| vec![(POOL, 1)]) {
            (0..entries).for_each(|_| owed.note(Due::Pass(line)));
        }
        is_known
    }

    /// Unparks the workers that sleep although they have an order.
    fn wake_told(&self, mut registry: RegistryGuard<'_>) {
        registry.wake_workers(|slot| {
            let it = &self.slots[slot];
            it.record.sleeps() && !it.load().is_idle()
        });
    }
}
