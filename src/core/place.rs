//! How a task is accepted, and how it gets to a worker.
//!
//! A submission takes a permit of the [gate](crate::parts::gate). With a permit, there is space for the task.
//! Then [`Core::place`] finds a worker for it, or pushes it into the queue, which has a
//! cell for each permit. So placing does not fail for want of space. The task is accepted once a mailbox or a cell has it. Two kinds of submissions give their permit
//! back instead: one that the OS refuses a thread, if neither an idle worker nor the queue takes its task; and one
//! that must not be queued, because a worker of this pool waits for its task.

use super::host::{Host, NotStarted};
use super::submission::{Location, NotAccepted, Submission};
use super::{Claim, Core, TaskClaim};
use crate::error::Refusal;
use crate::parts::backoff::{Backoff, IN_MODELS};
use crate::parts::gate::{Flags, Permit};
use crate::parts::in_flight::Seen;
use crate::sync::{Arc, IsHeld, Patience};
use crate::work::job::Task;
use crate::work::owed::{Debts, Owed};

/// How often a submission that must not be queued looks for an idle worker again, because workers may be in motion.
const LOOKS: u32 = if IN_MODELS { 1 } else { 16 };

/// What a submission knows of its task once it has a permit.
pub(crate) struct Accepted {
    pub(crate) permit: Permit,
    /// The gate's flags as the permit was taken.
    pub(crate) flags: Flags,
    /// Set if a worker of this pool waits for the task, so that it must not be queued.
    pub(crate) nested: bool,
    /// What [`Host::has_pushed`] is to be told.
    pub(crate) stamp: u64,
}

impl<H: Host> Core<H> {
    // ---- accepting --------------------------------------------------------------------

    /// Accepts and places a task if a permit is free, in a pool that is in its usual state. Takes the
    /// task out of `task`, or leaves it there.
    #[inline(always)]
    pub(crate) fn accept(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        submission: Submission<'_>,
        debts: &mut Debts,
    ) -> Result<Location, NotAccepted> {
        submission.assert_fits(task);
        let (permit, flags) = self.gate.take().map_err(NotAccepted::NoPermit)?;
        self.place_fast(permit, flags, task, submission, debts)
            .or_else(|permit| self.place_slowly(permit, flags, task, submission, debts))
    }

    /// Accepts and places a task as [`Core::accept`] does, in a pool that may be in any state.
    pub(crate) fn accept_slowly(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        submission: Submission<'_>,
        debts: &mut Debts,
    ) -> Result<Location, NotAccepted> {
        submission.assert_fits(task);
        let (permit, flags) = self.gate.take().map_err(NotAccepted::NoPermit)?;
        self.place_slowly(permit, flags, task, submission, debts)
    }

    /// Places a task that has a permit, and did not take a fast way.
    #[cold]
    fn place_slowly(
        self: &Arc<Self>,
        permit: Permit,
        flags: Flags,
        task: &mut Option<Task>,
        submission: Submission<'_>,
        debts: &mut Debts,
    ) -> Result<Location, NotAccepted> {
        submission.start(&self.env);
        let accepted = Accepted {
            permit,
            flags,
            nested: submission.is_nested(&self.env),
            stamp: H::stamp(self),
        };
        let owed = debts.get_or_insert_default();
        // Way 2. A worker may wait for another one in a waker. So no task of a worker waits for wakers (law 14). Nor does one for a worker
        // that has to end (law 4).
        if !submission.is_on_worker(&self.env) && !self.env.may_have_to_end() {
            if let Some((slot, claim)) = self.claim_calling() {
                return Ok(self.hand_over(slot, claim, task, accepted.permit));
            }
        }
        self.place(accepted, task, owed)
            .map_err(NotAccepted::NotPlaced)
    }

    // ---- the fast ways ----------------------------------------------------------------

    /// Tries the ways that most tasks take: to this thread's last worker (1), or into the queue, if a worker looks at it
    /// (3), or if no worker is idle and no slot is free (5). Returns the permit if none takes the task.
    #[inline(always)]
    fn place_fast(
        self: &Arc<Self>,
        permit: Permit,
        flags: Flags,
        task: &mut Option<Task>,
        submission: Submission<'_>,
        debts: &mut Debts,
    ) -> Result<Location, Permit> {
        let may_queue = self.has_queue() && !flags.is_asleep() && !submission.is_nested(&self.env);
        // A hand-over moves two cache lines between the cores: that of the worker's slot, and the one that a caller waits on. The
        // way through the queue moves more. But a parked worker is woken up here only if the task may not be queued.
        if submission.awaited || !may_queue {
            if let Some((slot, claim)) = self.claim_last_worker(!may_queue) {
                if claim.is_parked() {
                    submission.start(&self.env);
                }
                return Ok(self.hand_over(slot, claim, task, permit));
            }
        }
        if may_queue && (self.in_flight.load().is_any_awake() || self.is_each_worker_busy()) {
            return Ok(self.push_fast(task, permit, submission, debts));
        }
        Err(permit)
    }

    /// Returns `true` if no worker is idle and no slot is free. May miss a worker or a slot whose entry
    /// is being pushed. That worker, or the worker that leaves that slot, looks at the queue afterwards. Asks the ready ring before the reserve (T1). (A spawner that gives
    /// a slot back does not, if the OS has refused it a thread: F2.)
    #[inline(always)]
    fn is_each_worker_busy(&self) -> bool {
        self.ready.is_drained() && self.free.is_drained() && !H::has_reserve(self)
    }

    /// Pushes the task. Then makes sure that a worker looks at the queue (A3).
    #[inline(always)]
    fn push_fast(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        permit: Permit,
        submission: Submission<'_>,
        debts: &mut Debts,
    ) -> Location {
        let position = self.queue.push(task, permit);
        let is_looked_after = self.in_flight.load().is_any_counted() || self.is_each_worker_busy();
        if !is_looked_after || !self.env.is_fast_path_open() {
            self.look_after(position, submission, debts);
        }
        Location::Queue { position }
    }

    #[cold]
    fn look_after(self: &Arc<Self>, position: u64, submission: Submission<'_>, debts: &mut Debts) {
        submission.start(&self.env);
        let owed = debts.get_or_insert_default();
        self.look(Seen::is_any_counted, owed);
        // Without a stamp: this way is never open in a pool that needs stamps.
        H::has_pushed(self, position, 0, owed);
    }

    // ---- all ways -----------------------------------------------------------------------

    /// Places an accepted task. If it cannot be placed, gives its permit back.
    ///
    /// These are the ways 3 to 5 of the protocol page, with the claims that they serve:
    ///
    /// 3. T: a worker that is idle, or looks at the queue. If the task may be queued, it goes into the queue (A3): a worker that is
    ///    counted looks at the queue before it rests, and an idle one is notified. Otherwise an idle worker gets the task.
    /// 4. T, F: a thread is started on a free slot. If the OS refuses it, an idle worker takes the
    ///    task; or it is queued, while a worker lives, if it may be and the queue has space.
    /// 5. A1: all workers are busy, so the task waits in the queue. If no worker lives, another
    ///    thread has taken the last free slot to start a worker there, or the last living worker is about to give its slot back. Then this
    ///    thread tries again.
    pub(crate) fn place(
        self: &Arc<Self>,
        mut accepted: Accepted,
        task: &mut Option<Task>,
        owed: &mut Owed,
    ) -> Result<Location, Refusal> {
        let nested = accepted.nested;
        let mut backoff = Backoff::default();
        let mut looks = LOOKS;
        let mut listed = None;
        loop {
            // While this thread has its permit, the last living worker stays (A1).
            let may_wait = !nested && !accepted.flags.is_asleep();
            // Way 3.
            if may_wait && self.has_queue() {
                if self.has_worker_for_queue() {
                    return Ok(self.enqueue(accepted, task, Seen::is_any_awake, owed));
                }
            } else if let Some((slot, claim)) = self.claim_idle() {
                return Ok(self.hand_over(slot, claim, task, accepted.permit));
            }
            if nested && looks > 0 {
                looks -= 1;
                backoff.wait();
                continue;
            }
            // Way 4. Another look comes first: a worker that has become idle during the last one may have come for one that was
            // taken meanwhile (T1). A full pool, which starts no thread, does not read where workers write as they become idle.
            // So it does not take a slot that comes free after it has asked.
            let may_start = nested || !self.free.is_empty();
            if may_start && self.has_listed_since(&mut listed) {
                continue;
            }
            let free = match nested {
                true => H::take_slot(self),
                false if may_start => self.free.pop(),
                false => None,
            };
            if let Some(slot) = free {
                let (permit, why) = match H::start_with(self, slot, task, accepted.permit, owed) {
                    Ok(location) => return Ok(location),
                    Err(not_started) => not_started,
                };
                accepted.permit = permit;
                if let NotStarted::Failed(error) = why {
                    return self.place_without_thread(accepted, task, error, owed);
                }
                // The host may have no further worker to give, or has closed the gate.
                accepted.flags = self.gate.flags();
                continue;
            }
            // Way 5.
            if may_wait {
                return Ok(self.enqueue(accepted, task, Seen::is_any_counted, owed));
            }
            if nested {
                owed.give(&self.gate, accepted.permit);
                return Err(Refusal::OnWorker);
            }
            backoff.wait();
            accepted.flags = self.gate.flags();
        }
    }

    /// Places a task for which the OS has refused a thread. Hands it to an idle worker, or else pushes
    /// it into the queue while a worker lives, unless the pool's
    /// `queue_capacity` is used up: the permit beyond that belongs to the thread that is not to be had.
    #[cold]
    fn place_without_thread(
        self: &Arc<Self>,
        accepted: Accepted,
        task: &mut Option<Task>,
        error: std::io::Error,
        owed: &mut Owed,
    ) -> Result<Location, Refusal> {
        let Accepted {
            permit,
            nested,
            stamp,
            ..
        } = accepted;
        if let Some((slot, claim)) = self.claim_idle() {
            return Ok(self.hand_over(slot, claim, task, permit));
        }
        let is_full = self.queue.len() >= self.queue_capacity as u64;
        if nested || is_full || self.gate.flags().is_asleep() {
            owed.give(&self.gate, permit);
            return Err(Refusal::SpawnFailed(error));
        }
        let position = self.queue.push(task, permit);
        // This starts no thread, because the OS has just refused one. If no worker is idle, a busy
        // worker takes the task when its own task has ended.
        self.tell_idle(Patience::Waits);
        H::has_pushed(self, position, stamp, owed);
        Ok(Location::Queue { position })
    }

    /// Pushes the task into the queue, then makes sure that a worker looks at it, unless `enough` is
    /// true for the counts (A3).
    fn enqueue(
        self: &Arc<Self>,
        accepted: Accepted,
        task: &mut Option<Task>,
        enough: fn(Seen) -> bool,
        owed: &mut Owed,
    ) -> Location {
        let position = self.queue.push(task, accepted.permit);
        self.look(enough, owed);
        H::has_pushed(self, position, accepted.stamp, owed);
        Location::Queue { position }
    }

    /// Hands the task to the claimed worker of a slot, which becomes this thread's last worker.
    #[inline]
    pub(crate) fn hand_over<'a>(
        &self,
        slot: usize,
        claim: impl Into<TaskClaim<'a>>,
        task: &mut Option<Task>,
        permit: Permit,
    ) -> Location {
        let task = task.take().expect("a task to hand over");
        let (claim, revocable) = (claim.into(), task.table.offered);
        debug_assert!(claim.is_of(&self.slots[slot]));
        let generation = claim.hand_over(task, permit, revocable);
        self.set_last_worker(slot, generation);
        Location::Mailbox { slot, generation }
    }

    // ---- claiming an idle worker ----------------------------------------------------

    /// Returns `true` if a worker may be idle. The entry of a worker that was claimed as a last worker
    /// stays in the ready ring while its task runs, so this may be `true` although all workers are
    /// busy.
    #[inline]
    fn has_idle_candidate(&self) -> bool {
        !self.ready.is_empty() || H::has_reserve(self)
    }

    /// Returns `true` if a worker looks at the queue, was told to, or may be idle. The counts are read on both sides of the
    /// look for an idle worker, because that one may have been told meanwhile (T2).
    fn has_worker_for_queue(&self) -> bool {
        let is_any_counted = || self.relied_on().is_any_counted();
        is_any_counted() || self.has_idle_candidate() || is_any_counted()
    }

    /// Returns `true` unless no worker has listed itself since this was last asked. Then the look since that time has seen all that are idle.
    fn has_listed_since(&self, listed: &mut Option<u64>) -> bool {
        let now = self.ready.pushed();
        listed.replace(now) != Some(now)
    }

    /// Claims an idle worker from the ready ring. If there is none, asks the host for one.
    pub(crate) fn claim_idle(&self) -> Option<(usize, Claim<'_>)> {
        self.claim_ready().or_else(|| H::claim_reserve(self))
    }

    /// Claims an idle worker as a thread with this patience may. One that only tries asks the ready ring alone, because the
    /// reserve is behind the host's lock.
    pub(super) fn claim_by(&self, patience: Patience) -> Option<(usize, Claim<'_>)> {
        match patience {
            Patience::Waits => self.claim_idle(),
            Patience::Tries => self.claim_ready(),
        }
    }

    /// Claims an idle worker from the ready ring.
    fn claim_ready(&self) -> Option<(usize, Claim<'_>)> {
        std::iter::from_fn(|| self.ready.pop())
            .find_map(|slot| Some((slot, self.slots[slot].claim_listed()?)))
    }

    // ---- looking after the queue ------------------------------------------------------

    /// Makes sure that a worker looks at the queue, unless nothing is queued or `enough` returns
    /// `true` for the counts. Tells an idle worker, or else starts one, if a slot is free.
    ///
    /// After a push into a pool with idle workers, `enough` is `is_any_awake`: a notified worker is
    /// still waking up, and a burst of tasks should wake several workers. In all other cases it is
    /// `is_any_counted`.
    ///
    /// The loop ends: it goes on only for a second look, or if a worker has become idle meanwhile; once after a lock was found free; or after a
    /// start that was not needed. Then there may be no further worker, nothing is queued, or another thread has popped the
    /// free slot to start one.
    #[cold]
    pub(crate) fn look(self: &Arc<Self>, enough: fn(Seen) -> bool, owed: &mut Owed) {
        let looked = self.look_by(enough, Patience::Waits, owed);
        debug_assert!(looked.is_ok(), "it has waited");
    }

    /// Looks as [`look`](Self::look) does. A thread that only tries gets an error if no worker in the ready ring
    /// is idle, and another thread holds the lock that is needed to find or to start one.
    pub(super) fn look_by(
        self: &Arc<Self>,
        enough: fn(Seen) -> bool,
        mut patience: Patience,
        owed: &mut Owed,
    ) -> Result<(), IsHeld> {
        let mut listed = None;
        loop {
            if self.notify_idle(enough, patience) {
                return Ok(());
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
            let searching = self.relied_on().is_any_counted();
            if searching || self.queue.is_empty() {
                return Ok(());
            }
            let is_free = !self.free.is_empty();
            if patience == Patience::Tries && (is_free || H::has_reserve(self)) {
                H::try_lock(self)?;
                patience = Patience::Waits;
                continue;
            }
            if !is_free {
                return Ok(());
            }
            // As in way 4 (T1).
            if self.has_listed_since(&mut listed) {
                continue;
            }
            match H::start_searching(self, owed) {
                Ok(()) => return Ok(()),
                Err(NotStarted::NotNeeded) => {}
                Err(NotStarted::Failed(_)) => {
                    // Other threads may have relied on this start (A4). If no worker is idle, their tasks wait for a busy
                    // one, as if they had been refused a thread (F2).
                    self.tell_idle(patience);
                    return Ok(());
                }
            }
        }
    }

    /// Tells an idle worker to look at the queue, unless nothing is queued or `enough` returns
    /// `true` for the counts. Returns `false` if no worker is idle that this thread may claim.
    ///
    /// This thread raises `notified` before it claims a worker. Other threads that see the count
    /// may skip their own search for a worker. So if this thread finds no worker, it lowers the
    /// count and looks again (A4). It then sees the tasks that those threads pushed.
    #[must_use = "others may have relied on this thread's notice, so it has to look further"]
    fn notify_idle(&self, enough: fn(Seen) -> bool, patience: Patience) -> bool {
        let even_reserve = patience == Patience::Waits;
        loop {
            if self.queue.is_empty() || enough(self.relied_on()) {
                return true;
            }
            if self.ready.is_empty() && !(even_reserve && H::has_reserve(self)) {
                return false;
            }
            let notice = self.in_flight.notify();
            if let Some((slot, claim)) = self.claim_by(patience) {
                self.set_last_worker(slot, 0);
                claim.notify(notice);
                return true;
            }
            self.in_flight.forgo(notice);
        }
    }

    /// Returns the counts, as far as this thread may rely on them.
    fn relied_on(&self) -> Seen {
        match self.env.trusts_counts() {
            true => self.in_flight.load(),
            false => Seen::NOBODY,
        }
    }
}
