//! How an idle worker is claimed for a task, and how a worker is sent to look at the queue.

use super::core::Core;
use super::threads::NotSpawned;
use crate::parts::in_flight::{Seen, NOTIFIED};
use crate::parts::slot::Claim;
use crate::sync::Arc;
use crate::work::owed::Owed;

impl Core {
    // ---- claiming an idle worker ----------------------------------------------------

    /// Returns `true` if a worker may be idle. The entry of a worker that was claimed by affinity
    /// stays in the ready ring while its task runs, so this may be `true` although all workers are
    /// busy.
    #[inline]
    pub(super) fn has_idle_candidate(&self) -> bool {
        !self.ready.is_empty() || self.is_any_benched()
    }

    /// Claims this thread's last worker, if it is idle or calls user code. If the worker is parked,
    /// claims it only if `even_parked` is set.
    #[inline]
    pub(super) fn claim_by_affinity(&self, even_parked: bool) -> Option<(usize, Claim)> {
        let (slot, last) = self.affinity()?;
        let claim = self.slots[slot].claim_last_used(last, even_parked);
        // After a failed claim, the stored generation becomes zero. The next calls then load the
        // worker's word, and try a compare-and-swap only if the worker is idle, until this thread
        // gives that worker a task again. Otherwise submitters to a saturated pool would take the
        // workers' cache lines away from the workers again and again.
        if claim.is_none() && last != 0 {
            self.set_affinity(slot, 0);
        }
        Some((slot, claim?))
    }

    /// Claims an idle worker from the ready ring. If there is none, claims the worker that was put
    /// on the bench last.
    pub(super) fn claim_idle(&self) -> Option<(usize, Claim)> {
        while let Some(slot) = self.ready.pop() {
            if let Some(claim) = self.slots[slot].claim_listed() {
                return Some((slot, claim));
            }
        }
        self.claim_benched()
    }

    // ---- looking after the queue ------------------------------------------------------

    /// Makes sure that a worker looks at the queue, unless nothing is queued or `enough` returns
    /// `true` for the counts. Tells an idle worker, or else starts one, if a slot is free.
    ///
    /// After a push into a pool with idle workers, `enough` is `is_any_awake`: a notified worker is
    /// still waking up, and a burst of tasks should wake several workers. In all other cases it is
    /// `is_any_searching`.
    ///
    /// The loop ends: it goes on only after a start that was not needed. Then a free slot was
    /// withheld, or another thread has popped it to start a worker.
    #[cold]
    pub(super) fn look(self: &Arc<Self>, enough: fn(Seen) -> bool, owed: &mut Owed) {
        loop {
            if self.env.is_forked() || self.notify_idle(enough) {
                return;
            }
            // No worker is idle. This thread starts one, unless a worker searches already, nothing is
            // queued, or no slot is free. It ignores busy workers and workers that are ending. A busy
            // worker looks at the queue when its task has ended. A worker that is ending looks once
            // its slot is free. If the OS refuses a thread, a living worker takes the task after its
            // own task. Such a worker exists, because a queued task has a permit (A1).
            //
            // The counts are read before the queue. In the other order, a counted worker could take
            // the last task and leave the count between the two readings. A thread would then be
            // started for nothing.
            let searching = self.in_flight.see().is_any_searching();
            if searching || self.queue.is_empty() || self.free.is_empty() {
                return;
            }
            match self.spawn_searcher(owed) {
                Ok(()) => return,
                Err(NotSpawned::NotNeeded) => {}
                Err(NotSpawned::Failed(_)) => {
                    // Other threads may have relied on this start (A4).
                    self.notify_idle(Seen::is_any_searching);
                    return;
                }
            }
        }
    }

    /// Tells an idle worker to look at the queue, unless nothing is queued or `enough` returns
    /// `true` for the counts. Returns `false` if no worker is idle.
    ///
    /// This thread raises `notified` before it claims a worker. Other threads that see the count
    /// may skip their own search for a worker. So if this thread finds no worker, it lowers the
    /// count and looks again (A4). It then sees the tasks that those threads pushed.
    pub(super) fn notify_idle(&self, enough: impl Fn(Seen) -> bool) -> bool {
        loop {
            if self.queue.is_empty() || enough(self.in_flight.see()) {
                return true;
            }
            if !self.has_idle_candidate() {
                return false;
            }
            self.in_flight.add(NOTIFIED);
            if let Some((slot, claim)) = self.claim_idle() {
                self.set_affinity(slot, 0);
                // SAFETY: `claim` came with `slot`, so this thread holds that slot (`Held`).
                unsafe { self.slots[slot].send_searching(claim) };
                return true;
            }
            self.in_flight.sub(NOTIFIED);
        }
    }
}
