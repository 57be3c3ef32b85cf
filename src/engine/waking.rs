//! Who looks after what is queued: idle workers, and how they are told.
//!
//! Pair P1 makes sure that no queued task is forgotten: a thread that pushes announces the
//! task, *then* looks for an idle worker; a worker publishes that it is idle, *then* looks
//! at the queue. The protocol page goes through the cases.

use super::core::Core;
use super::threads::First;
use crate::parts::in_flight::{Seen, NOTIFIED, TRANSIT};
use crate::parts::slot::Claim;
use crate::sync::Arc;

impl Core {
    // ---- claiming an idle worker ----------------------------------------------------

    /// Whether a worker is idle, or was a moment ago.
    #[inline]
    pub(super) fn is_somebody_idle(&self) -> bool {
        !self.ready.is_empty() || self.in_flight.is_any_marked()
    }

    /// The worker that this thread's last task went to, if it is idle; asleep only if
    /// `even_parked`.
    #[inline]
    pub(super) fn claim_by_affinity(&self, even_parked: bool) -> Option<(usize, Claim)> {
        let (slot, last) = self.affinity()?;
        let claim = self.slots[slot].claim_hinted(last, even_parked);
        // After a miss only a look, until a task goes there again: nobody's line is taken
        // away in a saturated pool.
        if claim.is_none() && last != 0 {
            self.set_affinity(slot, 0);
        }
        Some((slot, claim?))
    }

    /// An idle worker, the marked ones last.
    pub(super) fn claim_idle(&self) -> Option<(usize, Claim)> {
        self.claim_ready().or_else(|| self.claim_marked(false))
    }

    fn claim_ready(&self) -> Option<(usize, Claim)> {
        while let Some(slot) = self.ready.pop() {
            if let Some(claim) = self.slots[slot].claim_listed() {
                return Some((slot, claim));
            }
        }
        None
    }

    /// The marked worker with the lowest slot: the others get to retire. Those in their start
    /// hook are as far from a task as a new thread: only if `even_hooked`.
    pub(super) fn claim_marked(&self, even_hooked: bool) -> Option<(usize, Claim)> {
        if !self.in_flight.is_any_marked() {
            return None;
        }
        for (index, slot) in self.slots.iter().enumerate() {
            if !slot.see().is_marked() || slot.record.is_hooked() && !even_hooked {
                continue;
            }
            if let Some(claim) = slot.claim_marked() {
                self.in_flight.unmark();
                return Some((index, claim));
            }
        }
        None
    }

    // ---- notifying ------------------------------------------------------------------

    /// Tells an idle worker to look at the queue: the one of this thread's affinity, if it
    /// is idle.
    ///
    /// The attempt is in transit, not a worker that looks: who sees it relies on nobody.
    pub(super) fn wake_idle(&self) -> bool {
        if !self.is_somebody_idle() {
            return false;
        }
        self.in_flight.add(TRANSIT);
        let claimed = self.affinity().and_then(|(slot, _)| {
            let claim = self.slots[slot].claim_hinted(0, true)?;
            Some((slot, claim))
        });
        let Some((slot, claim)) = claimed.or_else(|| self.claim_idle()) else {
            self.leave_transit();
            return false;
        };
        self.set_affinity(slot, 0);
        self.in_flight.shift(TRANSIT, NOTIFIED);
        // SAFETY: claimed.
        unsafe { self.slots[slot].send_searching(claim) };
        self.settled();
        true
    }

    /// Sees to it that a worker looks at the queue: after a push into a pool that was busy;
    /// by a worker that looks no more, because it has a task; by a caller that took its task
    /// back. Whoever searches, or is on the way there, is enough.
    #[cold]
    pub(super) fn notify_another(self: &Arc<Self>) {
        self.notify_unless(Seen::is_any_searching);
    }

    /// After a push into a pool with idle workers. Where others are on their way, one more is
    /// told, so that a burst spreads.
    #[cold]
    pub(super) fn notify_one_more(self: &Arc<Self>) {
        self.notify_unless(Seen::is_any_awake);
    }

    /// Once through all who might look: awake, idle, on their way, not yet started. A worker
    /// that this misses is occupied, and looks when its task has ended; or in transit, and
    /// looks before it ends. If the system gives no thread, one lives: the queue is not
    /// asleep.
    fn notify_unless(self: &Arc<Self>, enough: impl Fn(Seen) -> bool) {
        if self.nothing_queued() || enough(self.in_flight.see()) || self.wake_idle() {
            return;
        }
        if self.in_flight.see().is_any_searching() {
            return;
        }
        if let Some(slot) = self.take_free() {
            let _ = self.spawn(slot, First::Search);
        }
    }
}
