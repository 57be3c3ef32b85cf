//! How an idle worker is claimed for a task, and how it is told to look at the queue.

use super::core::Core;
use crate::parts::in_flight::{Seen, NOTIFIED};
use crate::parts::slot::Claim;
use crate::sync::Arc;

impl Core {
    // ---- claiming an idle worker ----------------------------------------------------

    /// Returns `true` if a worker may be idle. The entry of a worker that was claimed by affinity
    /// stays in the ready ring while its task runs, so this may be `true` although all workers are
    /// busy.
    pub(super) fn has_idle_candidate(&self) -> bool {
        !self.ready.is_empty() || self.is_any_benched()
    }

    /// Claims this thread's last worker, if it is idle. If the worker is parked, claims it only if
    /// `even_parked` is set.
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

    // ---- notifying ------------------------------------------------------------------

    /// Makes sure that a worker looks at the queue, if anything is queued. An awake or notified
    /// worker is enough. If no worker is idle, starts one.
    ///
    /// Called after a push into a pool that was busy (A3); by a worker that stops looking at the
    /// queue, because it has a task or has ended (A2); after a start that was given up (A4); and
    /// after the limit was raised.
    ///
    /// # Why this does not recurse without bound
    /// The calls form a cycle: `notify_another`, [`Core::spawn_searcher`],
    /// [`Core::start_no_searcher`], `notify_another`. Another round follows only after
    /// `NotSpawned::NotNeeded`, and only if a task is queued, no worker is idle or counted, and a
    /// slot is free. There are three ways to get `NotSpawned::NotNeeded`:
    ///
    /// * Another thread popped the free slot before this thread could. That thread has made
    ///   progress. If it starts a worker, one free slot fewer is left.
    /// * The limit was reached, so this thread withheld the slot that it had popped. Then one free
    ///   slot fewer is left, too. There are at most `max_workers` free slots.
    /// * The pool was closed and nothing was queued. A closed queue takes no further push, so the
    ///   next round finds nothing queued, and ends.
    ///
    /// So before each further round, a free slot was used up, or another thread made progress.
    /// After `NotSpawned::Failed` there is no further round. The calls of [`Core::serve_line`] in
    /// between add at most one more such cycle, because they return at once while the line is being
    /// served.
    pub(super) fn notify_another(self: &Arc<Self>) {
        self.notify_unless(Seen::is_any_searching);
    }

    /// Makes sure that a worker looks at the queue, unless `enough` returns `true` for the counts.
    /// After a push into a pool with idle workers, `enough` is `is_any_awake`. A notified worker is
    /// not enough then, because it is still waking up, and a burst of tasks should wake several
    /// workers.
    #[cold]
    pub(super) fn notify_unless(self: &Arc<Self>, enough: fn(Seen) -> bool) {
        // A waker may have forked just before: a child starts no thread.
        if self.env.is_forked() || self.notify_idle(enough) {
            return;
        }
        // No worker is idle. This thread starts one, unless a worker searches already, nothing is
        // queued, or no slot is free. It ignores busy workers and workers that are ending. A busy
        // worker looks at the queue when its task has ended. A worker that is ending looks once its
        // slot is free. If the OS refuses a thread, a living worker takes the task after its own
        // task. Such a worker exists, because tasks are queued only while a worker lives (A1).
        //
        // The counts are read before the queue. In the other order, a counted worker could take the
        // last task and leave the count between the two readings. A thread would then be started
        // for nothing.
        let searching = self.in_flight.see().is_any_searching();
        if !searching && !self.nothing_queued() && !self.free.is_empty() {
            let _ = self.spawn_searcher();
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
            if self.nothing_queued() || enough(self.in_flight.see()) {
                return true;
            }
            if !self.has_idle_candidate() {
                return false;
            }
            self.in_flight.add(NOTIFIED);
            let last = self.claim_by_affinity(true);
            if let Some((slot, claim)) = last.or_else(|| self.claim_idle()) {
                self.set_affinity(slot, 0);
                // SAFETY: `claim` came with `slot`, so this thread holds that slot (`Held`).
                unsafe { self.slots[slot].send_searching(claim) };
                return true;
            }
            self.in_flight.sub(NOTIFIED);
        }
    }
}
