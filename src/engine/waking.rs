//! Who is woken for a queued task: idle workers, and how they are told.

use super::core::Core;
use crate::parts::in_flight::{Seen, NOTIFIED};
use crate::parts::slot::Claim;
use crate::sync::Arc;

impl Core {
    // ---- claiming an idle worker ----------------------------------------------------

    /// Whether a worker may be idle. One that was claimed by affinity leaves its entry for as long as its
    /// task runs.
    pub(super) fn has_idle_candidate(&self) -> bool {
        !self.ready.is_empty() || self.is_any_benched()
    }

    /// The worker that this thread's last task went to, if it is idle; asleep only if
    /// `even_parked`.
    #[inline]
    pub(super) fn claim_by_affinity(&self, even_parked: bool) -> Option<(usize, Claim)> {
        let (slot, last) = self.affinity()?;
        let claim = self.slots[slot].claim_last_used(last, even_parked);
        // After a miss only a look, until a task goes there again: nobody's line is taken
        // away in a saturated pool.
        if claim.is_none() && last != 0 {
            self.set_affinity(slot, 0);
        }
        Some((slot, claim?))
    }

    /// An idle worker, those on the bench last.
    pub(super) fn claim_idle(&self) -> Option<(usize, Claim)> {
        while let Some(slot) = self.ready.pop() {
            if let Some(claim) = self.slots[slot].claim_listed() {
                return Some((slot, claim));
            }
        }
        self.claim_benched()
    }

    // ---- notifying ------------------------------------------------------------------

    /// Sees to it that a worker looks at the queue: after a push into a pool that was busy;
    /// by a worker that looks no more, because it has a task or has ended. Whoever searches, or
    /// is on the way there, is enough. If nobody is idle, a new worker looks.
    pub(super) fn notify_another(self: &Arc<Self>) {
        self.notify_unless(Seen::is_any_searching);
    }

    /// The same, where workers that are `enough` make it needless. After a push into a pool with idle
    /// workers those on their way are not, so that a burst spreads.
    #[cold]
    pub(super) fn notify_unless(self: &Arc<Self>, enough: fn(Seen) -> bool) {
        if !self.notify_idle(enough) {
            self.start_searcher();
        }
    }

    /// Tells an idle worker to look at the queue, unless there are `enough` who will; `false`: nobody is
    /// idle.
    ///
    /// An attempt counts as notified from before it claims a worker, so others may rely on it instead
    /// of making their own. If it finds nobody, it takes the count back and looks again: by then it
    /// sees what those others pushed.
    pub(super) fn notify_idle(&self, enough: impl Fn(Seen) -> bool) -> bool {
        loop {
            if self.nothing_queued() || enough(self.in_flight.see()) {
                return true;
            }
            if !self.has_idle_candidate() {
                return false;
            }
            self.in_flight.add(NOTIFIED);
            let last = self.affinity().and_then(|(slot, _)| {
                let claim = self.slots[slot].claim_last_used(0, true)?;
                Some((slot, claim))
            });
            if let Some((slot, claim)) = last.or_else(|| self.claim_idle()) {
                self.set_affinity(slot, 0);
                // SAFETY: `claim` came with `slot`: this thread holds it (`Held`).
                unsafe { self.slots[slot].send_searching(claim) };
                return true;
            }
            self.in_flight.sub(NOTIFIED);
        }
    }

    /// Nobody is idle: a new worker, unless somebody searches or is on the way. A worker that
    /// this misses is busy, and looks when its task has ended; or on its way to its end, and looks
    /// once its slot is free. If the OS gives no thread, a living worker takes the task after its own: tasks
    /// are queued only while one lives.
    fn start_searcher(self: &Arc<Self>) {
        // The queue after the count: whoever has taken the task is counted until then.
        if self.in_flight.see().is_any_searching() || self.nothing_queued() {
            return;
        }
        if !self.free.is_empty() {
            let _ = self.spawn_searcher();
        }
    }
}
