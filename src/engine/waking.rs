//! Who is woken for a queued task: idle workers, and how they are told.
//!
//! Pair P1 makes sure that no queued task is forgotten: a thread that pushes announces the
//! task, *then* looks for an idle worker; a worker publishes that it is idle, *then* looks
//! at the queue. The protocol page goes through the cases.

use super::core::Core;
use super::threads::First;
use crate::parts::in_flight::{Count, Seen, NOTIFIED, TRANSIT};
use crate::parts::slot::{Claim, Slot};
use crate::sync::Arc;
use crate::work::job::Task;
use crate::work::observe::Starts;
use crate::work::record::Record;

impl Core {
    // ---- claiming an idle worker ----------------------------------------------------

    /// Whether a worker is idle, or was a moment ago; those in their start hook aside.
    pub(super) fn is_somebody_idle(&self) -> bool {
        !self.ready.is_empty()
            || (self.marked_workers()).any(|(_, slot)| is_near(false, &slot.record))
    }

    /// The slots of marked workers, beginning with the one that was claimed last: others may be
    /// many slots away.
    pub(super) fn marked_workers(&self) -> impl Iterator<Item = (usize, &Slot<Task, Record>)> {
        // Relaxed: a hint.
        let first = self.last_marked.load(std::sync::atomic::Ordering::Relaxed) as usize;
        let all = match self.in_flight.is_any_marked() {
            true => 0..self.slots.len(),
            false => 0..0,
        };
        let turned = all.clone().skip(first).chain(all.take(first));
        turned
            .map(|index| (index, &self.slots[index]))
            .filter(|(_, slot)| slot.see().is_marked())
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
        // The limit may have been lowered since the submission found the pool as usual.
        let claim = claim.filter(|_| self.may_use(slot))?;
        Some((slot, claim))
    }

    /// An idle worker, the marked ones last.
    pub(super) fn claim_idle(&self) -> Option<(usize, Claim)> {
        loop {
            let (slot, claim) = self.claim_ready().or_else(|| self.claim_marked(false))?;
            if self.may_use(slot) {
                return Some((slot, claim));
            }
        }
    }

    fn claim_ready(&self) -> Option<(usize, Claim)> {
        while let Some(slot) = self.ready.pop() {
            if let Some(claim) = self.slots[slot].claim_listed() {
                return Some((slot, claim));
            }
        }
        None
    }

    /// The marked worker that was claimed last, if it can be had: the others get to retire. Those
    /// in their start hook are as far from a task as a new thread: only if `even_in_start_hook`.
    pub(super) fn claim_marked(&self, even_in_start_hook: bool) -> Option<(usize, Claim)> {
        let may = |record: &Record| is_near(even_in_start_hook, record);
        for (index, slot) in self.marked_workers() {
            if let Some(claim) = slot.claim_marked(may) {
                self.in_flight.unmark();
                // Relaxed: a hint.
                let order = std::sync::atomic::Ordering::Relaxed;
                self.last_marked.store(index as u64, order);
                return Some((index, claim));
            }
        }
        None
    }

    // ---- notifying ------------------------------------------------------------------

    /// Sees to it that a worker looks at the queue: after a push into a pool that was busy;
    /// by a worker that looks no more, because it has a task; by a caller that took its task
    /// back. Whoever searches, or is on the way there, is enough.
    #[cold]
    pub(super) fn notify_another(self: &Arc<Self>) {
        self.notify_another_noting(&Starts::new(&self.env));
    }

    /// The same where something is half done.
    #[cold]
    pub(super) fn notify_another_noting(self: &Arc<Self>, starts: &Starts<'_>) {
        if self.wake_idle(Seen::is_any_searching, NOTIFIED) == Notified::Nobody {
            self.start_searcher(starts);
        }
    }

    /// After a push into a pool with idle workers. Where others are on their way, one more is
    /// told, so that a burst spreads.
    #[cold]
    pub(super) fn notify_one_more(self: &Arc<Self>, starts: &Starts<'_>) {
        if self.wake_idle(Seen::is_any_awake, NOTIFIED) == Notified::Nobody {
            self.start_searcher(starts);
        }
    }

    /// After a push, where the system gives no thread: a worker lives.
    pub(super) fn notify_without_thread(&self) {
        let _ = self.wake_idle(Seen::is_any_awake, TRANSIT);
    }

    /// By a caller that took its task back, whose time is up: it starts no thread for others. If
    /// nobody is idle, the worker that it had has another order, or is in its start hook, and
    /// looks at the queue after that.
    pub(super) fn notify_in_time(&self) {
        let _ = self.wake_idle(Seen::is_any_searching, TRANSIT);
    }

    /// Tells an idle worker to look at the queue, unless there are `enough` who will.
    ///
    /// The attempt counts from before it claims a worker: as notified, so that others may rely on
    /// it. If it finds nobody, it takes the count back, and *then* looks again: that look is
    /// theirs, too. One that must start no thread cannot take that over for others: it counts as in
    /// transit, so that nobody relies on it.
    fn wake_idle(&self, enough: impl Fn(Seen) -> bool, attempt: Count) -> Notified {
        let in_transit = attempt == TRANSIT;
        loop {
            if self.nothing_queued() || enough(self.in_flight.see()) {
                return Notified::Enough;
            }
            if !self.is_somebody_idle() {
                return Notified::Nobody;
            }
            self.in_flight.add(attempt);
            let claimed = self.affinity().and_then(|(slot, _)| {
                let claim = self.slots[slot].claim_last_used(0, true)?;
                self.may_use(slot).then_some((slot, claim))
            });
            if let Some((slot, claim)) = claimed.or_else(|| self.claim_idle()) {
                self.set_affinity(slot, 0);
                if in_transit {
                    self.in_flight.shift(TRANSIT, NOTIFIED);
                }
                // SAFETY: `claim` came with `slot`: this thread holds it (`Held`).
                unsafe { self.slots[slot].send_searching(claim) };
                if in_transit {
                    self.settled();
                }
                return Notified::Enough;
            }
            if in_transit {
                self.leave_transit();
            } else {
                self.in_flight.sub(NOTIFIED);
            }
        }
    }

    /// Nobody is idle: a new worker, unless somebody searches or is on the way. A worker that
    /// this misses is occupied, and looks when its task has ended; or in transit, and looks
    /// before it ends. If the system gives no thread, one lives: the queue is not asleep.
    fn start_searcher(self: &Arc<Self>, starts: &Starts<'_>) {
        // The queue after the count: who has taken the task is counted until then.
        if self.in_flight.see().is_any_searching() || self.nothing_queued() {
            return;
        }
        if let Some(slot) = self.take_free() {
            let _ = self.spawn(slot, First::Search, starts);
        }
    }
}

/// Whether a worker is as near as a submission needs it: in its start hook only if that is allowed.
fn is_near(even_in_start_hook: bool, record: &Record) -> bool {
    even_in_start_hook || !record.is_in_start_hook()
}

/// Whether somebody will look at the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
enum Notified {
    Enough,
    /// Nobody is idle.
    Nobody,
}
