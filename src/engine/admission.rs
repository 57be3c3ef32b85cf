//! Admission: how a submission is accepted or refused, and where an accepted task goes.
//!
//! A submission takes a permit of the [gate](crate::parts::gate). That decides: with a permit it is
//! accepted, without one it is refused or waits in line. Then [`Core::place`] finds a worker for the
//! task, or pushes it into the queue, which has a cell for each permit. So placing does not fail for
//! want of space. Two submissions give their permit back: one that the OS refuses a thread while no
//! worker lives, and one that must not be queued, because a worker of this pool waits for its task.

use super::core::Core;
use super::request::{Extras, Location, SubmitError, SubmitOptions};
use super::threads::NotSpawned;
use crate::error::Refusal;
use crate::parts::backoff::{Backoff, BoundedSpin, Step, IN_MODELS};
use crate::parts::deadline::Deadline;
use crate::parts::gate::{Permit, Seen as Permits};
use crate::parts::in_flight::Seen;
use crate::parts::slot::Claim;
use crate::stats::WhenFull;
use crate::sync::Arc;
use crate::work::job::Task;
use crate::work::owed::Owed;

/// How often a submission that must not be queued looks for an idle worker, while workers are in
/// motion.
const LOOKS: u32 = if IN_MODELS { 1 } else { 16 };

/// The result of the first poll of a future.
pub(super) enum Admitted {
    Accepted(Location),
    /// The task waits in line, with this ticket.
    InLine(u64),
}

impl Core {
    /// Submits the task. Takes it out of `task` if it is accepted, and leaves it there otherwise.
    pub(crate) fn submit(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
    ) -> Result<Location, SubmitError> {
        self.submit_as(task, options)
    }

    /// Submits the task without options. This is a separate function so that the compiler can
    /// remove the checks of options.
    pub(crate) fn submit_plain(
        self: &Arc<Self>,
        task: &mut Option<Task>,
    ) -> Result<Location, SubmitError> {
        self.submit_as(task, &Extras::NONE.plain())
    }

    #[inline(always)]
    fn submit_as(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
    ) -> Result<Location, SubmitError> {
        if self.env.is_fast_path_open() && !options.waits_for_group && !options.is_cancelled() {
            match self.gate.take() {
                Ok((permit, seen)) => {
                    return match self.place_fast(permit, seen, task, options) {
                        Ok(location) => Ok(location),
                        Err(permit) => self.place_slowly(permit, seen, task, options),
                    };
                }
                // A saturated pool refuses a task without a write to memory that workers read.
                Err(seen) if !seen.is_closed() && !options.blocks(self.blocks) => {
                    return Err(self.refuse(options, options.no_space(&self.env, false)));
                }
                Err(_) => {}
            }
        }
        self.submit_slowly(task, options)
    }

    /// Counts a refusal of a submission that is not in line. Gives its group's permit back.
    #[inline(always)]
    pub(super) fn refuse(
        self: &Arc<Self>,
        options: &SubmitOptions<'_>,
        why: SubmitError,
    ) -> SubmitError {
        let why = self.counts.refuse(why);
        if let Some(permit) = options.of_group.take() {
            let mut owed = Owed::default();
            self.give_to_group(options.members.map(|members| &**members), permit, &mut owed);
            self.pay(&mut owed);
        }
        why
    }

    /// Tries the two ways that most tasks take: to this thread's last worker, or into the queue.
    /// The queue is used if a worker looks at it, or if no worker is idle and no slot is free. Gives
    /// the permit back if neither way takes the task.
    #[inline(always)]
    fn place_fast(
        self: &Arc<Self>,
        permit: Permit,
        seen: Permits,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
    ) -> Result<Location, Permit> {
        let mut even_parked = true;
        if self.has_queue() && !seen.is_asleep() {
            if options.awaited {
                // First try a hand-over. It moves two cache lines between the cores: that of the
                // worker's slot, and the line that the caller waits on. The way through the queue
                // moves more.
                if let Some((slot, claim)) = self.claim_by_affinity(false) {
                    // SAFETY: `claim` came with `slot`, so this thread holds that slot (`Held`).
                    return Ok(unsafe { self.hand_over(slot, claim, task, permit) });
                }
            }
            if !(options.awaited && options.is_on_worker(&self.env)) {
                if self.in_flight.see().is_any_awake() || self.is_each_worker_busy() {
                    return Ok(self.push_fast(task, permit));
                }
                even_parked = false;
            }
        }
        let Some((slot, claim)) = self.claim_by_affinity(even_parked) else {
            return Err(permit);
        };
        if claim.parked {
            options.start(&self.env);
        }
        // SAFETY: `claim` came with `slot`, so this thread holds that slot (`Held`).
        Ok(unsafe { self.hand_over(slot, claim, task, permit) })
    }

    /// Returns `true` if no worker is idle and no slot is free. May miss a worker or a slot whose entry
    /// is being pushed. That worker, or the worker that leaves that slot, looks at the queue afterwards.
    #[inline(always)]
    fn is_each_worker_busy(&self) -> bool {
        self.ready.is_drained() && self.free.is_drained() && !self.is_any_benched()
    }

    /// Pushes the task. Then makes sure that a worker looks at the queue (A3).
    #[inline(always)]
    fn push_fast(self: &Arc<Self>, task: &mut Option<Task>, permit: Permit) -> Location {
        let position = self.queue.push(task, permit);
        let is_looked_after = self.in_flight.see().is_any_searching() || self.is_each_worker_busy();
        if !is_looked_after || !self.env.is_fast_path_open() {
            self.after_push(position);
        }
        Location::Queue { position }
    }

    #[cold]
    fn after_push(self: &Arc<Self>, position: u64) {
        let mut owed = Owed::default();
        self.look(Seen::is_any_searching, &mut owed);
        self.discard_if_late(position, &mut owed);
        self.pay(&mut owed);
    }

    /// Places a task that has a permit, and did not take a fast way.
    #[cold]
    fn place_slowly(
        self: &Arc<Self>,
        permit: Permit,
        seen: Permits,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
    ) -> Result<Location, SubmitError> {
        options.start(&self.env);
        let mut owed = Owed::default();
        let nested = options.awaited && options.is_on_worker(&self.env);
        let submitted = self.submitted_at();
        let placed = self.place(permit, seen, task, nested, submitted, &mut owed);
        let result = placed.map_err(|(permit, why)| {
            owed.give(&self.gate, permit);
            self.refuse(options, SubmitError::Refused(why))
        });
        self.pay(&mut owed);
        result
    }

    /// Admits a task that may have to wait, or whose pool is not in its usual state.
    #[cold]
    fn submit_slowly(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
    ) -> Result<Location, SubmitError> {
        options.start(&self.env);
        if let Some(why) = self.may_not_submit(options) {
            return Err(self.refuse(options, SubmitError::Refused(why)));
        }
        let policy = options.extras.when_full.unwrap_or(self.settings.when_full);
        // A worker of this pool must not wait for space, because that worker itself may have to
        // make the space.
        let may_wait = policy.blocks() && !options.is_on_worker(&self.env);
        let block_until = match policy {
            WhenFull::BlockFor(limit) if may_wait => Deadline::from_now(limit),
            _ => Deadline::never(),
        };
        if options.waits_for_group {
            // Only a submission that may wait comes here without its group's permit.
            return self.wait_for_space(task, options, &block_until);
        }
        let mut spin = BoundedSpin::new(self.parallel, false);
        loop {
            match self.gate.take() {
                Ok((permit, seen)) => return self.place_slowly(permit, seen, task, options),
                Err(seen) if seen.is_closed() => {
                    return Err(self.refuse(options, SubmitError::Refused(Refusal::Closed)));
                }
                Err(_) if may_wait && self.spin_for_space(&mut spin) => {}
                Err(_) if may_wait => return self.wait_for_space(task, options, &block_until),
                Err(_) => {
                    let why = options.no_space(&self.env, policy.blocks());
                    return Err(self.refuse(options, why));
                }
            }
        }
    }

    /// Admits the task of a future: accepts it, refuses it, or puts it in line. On a worker of this
    /// pool, which must not wait, a task without space is refused as `OnWorker`.
    pub(super) fn admit_future(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
        owed: &mut Owed,
    ) -> Result<Admitted, SubmitError> {
        if let Some(why) = self.may_not_submit(options) {
            return Err(self.refuse(options, SubmitError::Refused(why)));
        }
        if !options.waits_for_group {
            if let Ok((permit, seen)) = self.gate.take() {
                let submitted = self.submitted_at();
                let placed = self.place(permit, seen, task, false, submitted, owed);
                return placed.map(Admitted::Accepted).map_err(|(permit, why)| {
                    owed.give(&self.gate, permit);
                    self.refuse(options, SubmitError::Refused(why))
                });
            }
            if options.is_on_worker(&self.env) {
                let why = options.no_space(&self.env, true);
                return Err(self.refuse(options, why));
            }
        }
        let wanted = task.take().expect("a task to submit");
        self.join_line(wanted, options, None, owed)
            .map(Admitted::InLine)
            .map_err(|back| {
                *task = Some(back);
                let why = self.may_not_submit(options).unwrap_or(Refusal::Closed);
                self.refuse(options, SubmitError::Refused(why))
            })
    }

    /// Returns the reason if the submission is refused whether there is space or not.
    pub(super) fn may_not_submit(&self, options: &SubmitOptions<'_>) -> Option<Refusal> {
        if self.env.is_forked() {
            return Some(Refusal::Forked);
        }
        if options.is_cancelled() {
            return Some(Refusal::Cancelled);
        }
        self.gate.see().is_closed().then_some(Refusal::Closed)
    }

    /// Spins for a moment, and returns `true` as soon as there is ample space. A few short tasks may
    /// end soon, and a sleep costs more than the spin. Does not spin while other submissions wait in
    /// line, because they get the space first.
    fn spin_for_space(&self, spin: &mut BoundedSpin) -> bool {
        let ample = (self.settings.queue_capacity as u64 / 4).clamp(1, 16);
        while spin.step() != Step::Spent {
            let seen = self.gate.see();
            if seen.is_waited_for() || seen.is_closed() {
                return false;
            }
            if self.gate.free() >= ample {
                return true;
            }
        }
        false
    }

    /// Places an accepted task. `seen` is the gate's word from which its permit was taken. A `nested`
    /// task must not be queued: a worker of this pool waits for it.
    ///
    /// The order of the ways is that of the protocol page. Each step names the claims that it serves:
    ///
    /// 1. A1, A3: in a pool with a queue, the task goes there if a worker is awake, because that worker
    ///    looks at the queue before it rests. It also goes there if a worker is idle: an idle worker is
    ///    then notified.
    /// 2. T: an idle worker takes the task.
    /// 3. T: the task goes into the queue if a worker has become idle since step 2. In a pool with a
    ///    queue, it also goes there if a worker has been told to look at it.
    /// 4. T, F: a thread is started on a free slot. If the OS refuses it, another worker takes the
    ///    task, while one lives.
    /// 5. A1: all workers are busy, so the task waits in the queue. If no worker lives, another
    ///    thread is starting the first one on the last free slot. Then this thread tries again.
    pub(super) fn place(
        self: &Arc<Self>,
        mut permit: Permit,
        mut seen: Permits,
        task: &mut Option<Task>,
        nested: bool,
        submitted: u64,
        owed: &mut Owed,
    ) -> Result<Location, (Permit, Refusal)> {
        let mut backoff = Backoff::default();
        let mut looks = LOOKS;
        loop {
            // While this thread has its permit, the last worker stays (A1).
            let may_queue = !nested && !seen.is_asleep();
            // Step 1.
            let spreads = may_queue && self.has_queue();
            if spreads && (self.has_idle_candidate() || self.in_flight.see().is_any_awake()) {
                return Ok(self.enqueue(permit, task, submitted, Seen::is_any_awake, owed));
            }
            // Step 2.
            let searching = self.in_flight.see().is_any_searching();
            if let Some((slot, claim)) = self.claim_idle() {
                // SAFETY: `claim` came with `slot`, so this thread holds that slot (`Held`).
                return Ok(unsafe { self.hand_over(slot, claim, task, permit) });
            }
            // Step 3.
            let has_idle = self.has_idle_candidate();
            let searching = searching || self.in_flight.see().is_any_searching();
            if may_queue && (has_idle || searching && self.has_queue()) {
                return Ok(self.enqueue(permit, task, submitted, Seen::is_any_searching, owed));
            }
            if nested && (has_idle || searching) && looks > 0 {
                looks -= 1;
                backoff.wait();
                continue;
            }
            // Step 4.
            if let Some(slot) = self.free.pop() {
                let (back, why) = match self.spawn_with(slot, task, permit, owed) {
                    Ok(location) => return Ok(location),
                    Err(not_spawned) => not_spawned,
                };
                if let NotSpawned::Failed(error) = why {
                    return self.place_without_thread(back, task, nested, submitted, owed, error);
                }
                // The limit has been lowered, and the slot is withheld.
                (permit, seen) = (back, self.gate.see());
                continue;
            }
            // Step 5.
            if may_queue {
                return Ok(self.enqueue(permit, task, submitted, Seen::is_any_searching, owed));
            }
            if nested {
                return Err((permit, Refusal::OnWorker));
            }
            backoff.wait();
            seen = self.gate.see();
        }
    }

    /// Places a task for which the OS has refused a thread. Hands it to an idle worker, or else pushes
    /// it into the queue while a worker lives. The queue takes it only within the pool's
    /// `queue_capacity`: there is space for it as long as there are workers, and here is none.
    #[cold]
    fn place_without_thread(
        self: &Arc<Self>,
        permit: Permit,
        task: &mut Option<Task>,
        nested: bool,
        submitted: u64,
        owed: &mut Owed,
        error: std::io::Error,
    ) -> Result<Location, (Permit, Refusal)> {
        if let Some((slot, claim)) = self.claim_idle() {
            // SAFETY: `claim` came with `slot`, so this thread holds that slot (`Held`).
            return Ok(unsafe { self.hand_over(slot, claim, task, permit) });
        }
        let is_full = self.queue.len() >= self.settings.queue_capacity as u64;
        if nested || is_full || self.gate.see().is_asleep() {
            return Err((permit, Refusal::SpawnFailed(error)));
        }
        let position = self.push(permit, task, submitted);
        // This starts no thread, because the OS has just refused one. If no worker is idle, a busy
        // worker takes the task when its own task has ended.
        self.notify_idle(Seen::is_any_awake);
        self.discard_if_late(position, owed);
        Ok(Location::Queue { position })
    }

    /// Returns the current time if the pool tracks ages, otherwise zero.
    pub(super) fn submitted_at(&self) -> u64 {
        self.ages.as_ref().map_or(0, |_| self.env.nanos_now())
    }

    /// Pushes the task into the queue, and returns its position. If the pool tracks ages, notes when
    /// the task was submitted.
    fn push(&self, permit: Permit, task: &mut Option<Task>, submitted: u64) -> u64 {
        let position = self.queue.push(task, permit);
        if let Some(ages) = &self.ages {
            ages.note(&self.queue, position, submitted);
        }
        position
    }

    /// Pushes the task into the queue, then makes sure that a worker looks at it, unless `enough` is
    /// true for the counts (A3).
    fn enqueue(
        self: &Arc<Self>,
        permit: Permit,
        task: &mut Option<Task>,
        submitted: u64,
        enough: fn(Seen) -> bool,
        owed: &mut Owed,
    ) -> Location {
        let position = self.push(permit, task, submitted);
        self.look(enough, owed);
        self.discard_if_late(position, owed);
        Location::Queue { position }
    }

    /// Hands the task to the claimed worker, which becomes this thread's last worker.
    ///
    /// # Safety
    /// This thread holds the slot by this claim (`Held`).
    #[inline]
    pub(super) unsafe fn hand_over(
        &self,
        slot: usize,
        claim: Claim,
        task: &mut Option<Task>,
        permit: Permit,
    ) -> Location {
        let task = task.take().expect("a task to hand over");
        let revocable = task.table.offered;
        // SAFETY: by this function's contract.
        let generation = unsafe { self.slots[slot].hand_over(claim, task, permit, revocable) };
        self.set_affinity(slot, generation);
        Location::Mailbox { slot, generation }
    }
}
