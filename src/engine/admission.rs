//! Admission: a submission tries the ways to a worker in the order of the protocol page.

use super::core::Core;
use super::request::{Attempt, Extras, Location, SubmitError, SubmitOptions};
use super::saturation::AllBusy;
use super::threads::NotSpawned;
use crate::error::Refusal;
use crate::parts::backoff::{Backoff, BoundedSpin, IN_MODELS};
use crate::parts::deadline::Deadline;
use crate::parts::in_flight::Seen;
use crate::parts::queue::Queue;
use crate::parts::slot::Claim;
use crate::stats::WhenFull;
use crate::sync::Arc;
use crate::work::context::runs_idle;
use crate::work::job::Task;
use std::io;

/// The number of free places that the queue must have before a task is pushed for an idle worker.
/// In a short queue, half of the places (at least 4) are enough. In either case, at least
/// `max_workers` places must be free.
const SPARE: u64 = if IN_MODELS { 2 } else { 16 };

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
        self.submit_as(task, const { &Extras::NONE.plain() })
    }

    #[inline(always)]
    fn submit_as(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
    ) -> Result<Location, SubmitError> {
        if self.env.is_fast_path_open(self.line.waiting()) && !options.is_cancelled() {
            if let Some(location) = self.submit_fast(task, options) {
                return Ok(location);
            }
            // This check comes before the slow path, so that a saturated pool refuses the task
            // without a write to memory that workers read.
            let blocks = (options.extras.when_full).map_or(self.blocks, WhenFull::blocks);
            let may_wait = blocks || options.awaited && self.queue.is_some();
            if !may_wait && self.is_saturated(self.queue.as_ref()) {
                return Err(self.counts.refuse(options.no_space(&self.env, blocks)));
            }
        }
        self.submit_slowly(task, options)
    }

    /// Tries the two ways that most tasks take: to this thread's last worker, or into the queue.
    /// The queue is used if it has space, and if either a worker looks at it, or all workers are
    /// busy and no slot is free. Returns `None` if neither way takes the task.
    #[inline(always)]
    fn submit_fast(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
    ) -> Option<Location> {
        let mut even_parked = true;
        if let Some(queue) = &self.queue {
            if options.awaited {
                // First try a hand-over. It moves two cache lines between the cores: that of the
                // worker's slot, and the line that the caller waits on. The way through the queue
                // moves five.
                if let Some((slot, claim)) = self.claim_by_affinity(false) {
                    // SAFETY: `claim` came with `slot`, so this thread holds that slot (`Held`).
                    return Some(unsafe { self.hand_over(slot, claim, task) });
                }
            }
            if !(options.awaited && options.is_on_worker(&self.env)) {
                let seen = self.in_flight.see();
                let tail = queue.room()?;
                let awake = seen.is_any_awake();
                let all_busy = if awake { None } else { self.all_busy() };
                // Claim T2: the task is queued if a worker will look at the queue. An awake worker
                // watches the queue. A notified worker becomes `Idle` before it leaves the counts.
                // So if no worker is idle here, the notified worker still searches, or has taken a
                // task. If it has taken a task, `push_fast` notifies another worker.
                if all_busy.is_some()
                    || (awake || seen.is_any_searching() && !self.has_idle_candidate())
                        && self.may_queue()
                {
                    // SAFETY: `tail` is from `room`, above.
                    return unsafe { self.push_fast(queue, tail, task, options, all_busy) };
                }
                even_parked = !self.spreads(queue);
            }
        }
        let (slot, claim) = self.claim_by_affinity(even_parked)?;
        if claim.parked {
            options.start(&self.env);
        }
        // SAFETY: `claim` came with `slot`, so this thread holds that slot (`Held`).
        Some(unsafe { self.hand_over(slot, claim, task) })
    }

    /// Pushes the task at `tail`, or at a later position if another thread has pushed there. Then
    /// makes sure that a worker looks at the queue (A3). Returns `None` if the queue has no space.
    ///
    /// # Safety
    /// `tail` is from the queue's `room`.
    #[inline(always)]
    unsafe fn push_fast(
        self: &Arc<Self>,
        queue: &Queue<Task>,
        tail: u64,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
        all_busy: Option<AllBusy>,
    ) -> Option<Location> {
        // SAFETY: by this function's contract.
        let position = if unsafe { queue.push_at(tail, task) } {
            tail
        } else {
            options.start(&self.env);
            queue.push(task).ok()?
        };
        let looked_after = match all_busy {
            Some(all_busy) => !self.is_any_benched() && self.is_unchanged(all_busy),
            None => self.in_flight.see().is_any_searching(),
        };
        if !looked_after {
            options.start(&self.env);
            self.notify_another();
        }
        Some(Location::Queue { position })
    }

    /// Makes attempts until the task is accepted or refused, and waits in line if it may.
    ///
    /// A waker may run on a worker that other threads see as idle. If such a waker submits a task,
    /// the submission gives up after a number of attempts that end in `None`. They may fail
    /// because another thread has told that worker to search or to end. The worker obeys no order
    /// until the waker has returned, so further attempts might fail for ever.
    #[cold]
    fn submit_slowly(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
    ) -> Result<Location, SubmitError> {
        options.start(&self.env);
        let policy = options.extras.when_full.unwrap_or(self.settings.when_full);
        let blocks = policy.blocks();
        let own = options.is_on_worker(&self.env);
        // A worker of this pool must not wait for space, because that worker itself may have to
        // make the space.
        let mut may_wait = !own && blocks;
        // If a worker of this pool waits for the task's outcome, the task must not be queued
        // either. If all workers waited for queued tasks, none would be left to run them.
        let queue = (self.queue.as_ref()).filter(|_| !(own && options.awaited));
        let block_until = match policy {
            WhenFull::BlockFor(limit) if may_wait => Deadline::from_now(limit),
            _ => Deadline::never(),
        };
        let submitted = self.submitted_at();
        let mut backoff = Backoff::default();
        let mut spin = BoundedSpin::new(self.parallel, false);
        let why = loop {
            if options.is_cancelled() {
                break SubmitError::Refused(Refusal::Cancelled);
            }
            match self.attempt_after_line(task, may_wait, queue, submitted) {
                Some(Ok(location)) => return Ok(location),
                None if !(backoff.is_long() && runs_idle()) => backoff.wait(),
                Some(Err(Refusal::Saturated)) if may_wait && self.spin_for_space(&mut spin) => {}
                Some(Err(Refusal::Saturated)) if may_wait => {
                    match self.wait_for_space(task, options, &block_until, submitted) {
                        Ok(location) => return Ok(location),
                        // The time limit of `BlockFor` or the deadline has passed. If it was the
                        // deadline, the check below ends the loop. If not, there may be space that
                        // the line's server has not given away yet. So this submission tries again
                        // with `may_wait` cleared, and gives space to the line first (W3).
                        Err(Refusal::Saturated) => may_wait = false,
                        Err(why) => break SubmitError::Refused(why),
                    }
                }
                None | Some(Err(Refusal::Saturated)) => break options.no_space(&self.env, blocks),
                Some(Err(why)) => break SubmitError::Refused(why),
            }
            if let Some(why) = options.expired() {
                break why;
            }
        };
        Err(self.counts.refuse(why))
    }

    /// Makes one attempt to submit the task, unless other submissions wait in line (claim W).
    ///
    /// If others wait, a submission that may wait gets `Saturated`, and must join them. A
    /// submission that must not wait gets `Saturated` only if the pool is saturated. Otherwise it
    /// gives the free space to the line, unless another thread is doing so, and gets `None`. So it
    /// takes no space before the line does, and is refused only if there was no space.
    fn attempt_after_line(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        may_wait: bool,
        queue: Option<&Queue<Task>>,
        submitted: u64,
    ) -> Attempt {
        if self.line.waiting() == 0 || self.may_not_submit().is_some() {
            return self.attempt(task, queue, submitted);
        }
        // This check comes before the line's lock is taken, because threads that are refused in a
        // loop must not keep that lock busy.
        if may_wait || self.is_saturated(queue) {
            return Some(Err(Refusal::Saturated));
        }
        // If another thread serves the line, this thread does not call `serve_line`. The call would
        // leave an event, which makes the server try once more, although this thread has made no
        // space. Each turn of this submission's loop would leave such an event and keep the server
        // busy. The server may be a worker that has yet to look at the queue, and must not be kept
        // from it.
        if !self.line.is_served() {
            self.serve_line();
        }
        None
    }

    /// Makes one attempt to submit the task.
    ///
    /// The proofs rest on the order of the steps. Each step names the claims that it serves:
    ///
    /// 1. Laws 10 and 19: a closed pool or a forked child refuses the task, even if a worker is
    ///    idle.
    /// 2. T2, A2: if a worker is awake, the task goes into the queue, because that worker looks at
    ///    the queue before it rests. If a worker is idle and the queue has ample space, the task
    ///    also goes into the queue, and an idle worker is notified (way 4 of the page).
    /// 3. T2: the counts are read for the first time. This comes before the search for an idle
    ///    worker, because a worker that searches goes `Idle` before it leaves the count. So a
    ///    worker that is counted here and is not found idle in step 4 still searches, or has taken
    ///    a task.
    /// 4. T1, V: an idle worker takes the task. If none can be claimed, but an entry has since been
    ///    pushed into the ready ring, or a sweep is under way, the submission tries again. It must
    ///    not start a thread while a worker may be idle.
    /// 5. T2: the counts are read again, for workers that were sent to search since step 3. If a
    ///    worker searches, the task is queued, and that worker takes it. Without a queue, the
    ///    worker goes idle in a moment, so the submission tries again.
    /// 6. T, V: no worker is idle. Either none searches, or the queue does not take the task. A
    ///    thread is started if a slot is free.
    /// 7. A3, V: all workers are busy and no slot is free, so the task waits in the queue.
    /// 8. V: the steps above read one word after the other. This does not prove that at one moment
    ///    there was no space. Only `is_saturated` proves that.
    pub(super) fn attempt(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        queue: Option<&Queue<Task>>,
        submitted: u64,
    ) -> Attempt {
        // Step 1: laws 10 and 19.
        if let Some(why) = self.may_not_submit() {
            return Some(Err(why));
        }
        // Step 2: claims T2 and A2.
        if let Some(queue) = queue {
            let spreads = || self.has_idle_candidate() && self.spreads(queue);
            let is_any_awake = self.in_flight.see().is_any_awake();
            if is_any_awake && self.may_queue() || spreads() {
                if let Some(location) = self.enqueue(queue, task, submitted) {
                    return Some(Ok(location));
                }
            }
        }
        // Steps 3 and 4: claims T2 (first reading), T1 and V.
        let searching = self.in_flight.see().is_any_searching();
        if let Some((slot, claim)) = self.claim_idle() {
            // SAFETY: `claim` came with `slot`, so this thread holds that slot (`Held`).
            return Some(Ok(unsafe { self.hand_over(slot, claim, task) }));
        }
        if self.has_idle_candidate() {
            return None;
        }
        // Step 5: claim T2 (second reading).
        if (searching || self.in_flight.see().is_any_searching()) && self.may_queue() {
            // Without a queue, that worker goes idle in a moment, so the submission tries again.
            let queue = queue?;
            if let Some(location) = self.enqueue(queue, task, submitted) {
                return Some(Ok(location));
            }
        }
        // Step 6: claims T and V.
        if let Some(slot) = self.free.pop() {
            match self.spawn(slot, task) {
                Ok(Some(location)) => return Some(Ok(location)),
                Ok(None) | Err(NotSpawned::NotNeeded) => return None,
                Err(NotSpawned::Failed(error)) => {
                    return Some(self.without_thread(task, queue, submitted, error))
                }
            }
        }
        // Step 7: claims A3 and V.
        if let Some(queue) = queue.filter(|_| self.may_queue()) {
            if let Some(location) = self.enqueue(queue, task, submitted) {
                return Some(Ok(location));
            }
        }
        // Step 8: claim V. `Saturated` needs the proof of `is_saturated`.
        self.is_saturated(queue).then_some(Err(Refusal::Saturated))
    }

    /// Returns the reason if every submission is refused, whether there is space or not.
    pub(super) fn may_not_submit(&self) -> Option<Refusal> {
        let forked = self.env.is_forked().then_some(Refusal::Forked);
        forked.or_else(|| self.env.is_closed().then_some(Refusal::Closed))
    }

    /// Returns `true` if a task may enter the queue now (claim T3).
    ///
    /// In a pool with a start hook, no task may enter the queue while a slot is free, or while a
    /// worker is ending and will free its slot. The submission can start a thread on that slot,
    /// with the task in hand. If the task were queued instead, the worker started for the queue
    /// would run its hook first, and would count as busy meanwhile. So the task might wait although
    /// a thread could be started for it.
    #[inline]
    fn may_queue(&self) -> bool {
        self.env.hooks.start.is_none()
            || !self.in_flight.see().is_any_returning() && self.free.is_empty()
    }

    /// Places a task after the OS has refused a thread for it. Hands the task to an idle worker, or
    /// else pushes it into the queue, which accepts it only while a worker lives. If neither takes
    /// the task, returns the OS's error, or `Closed` if the pool has been closed.
    #[cold]
    fn without_thread(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        queue: Option<&Queue<Task>>,
        submitted: u64,
        error: io::Error,
    ) -> Result<Location, Refusal> {
        if let Some((slot, claim)) = self.claim_idle() {
            // SAFETY: `claim` came with `slot`, so this thread holds that slot (`Held`).
            return Ok(unsafe { self.hand_over(slot, claim, task) });
        }
        match queue.and_then(|queue| self.push(queue, task, submitted)) {
            Some(position) => {
                // This starts no thread, because the OS has just refused one. If no worker is idle,
                // a busy worker takes the task when its own task has ended.
                self.notify_idle(Seen::is_any_awake);
                Ok(Location::Queue { position })
            }
            // The pool was closed while the OS was asked for a thread.
            None if self.env.is_closed() => Err(Refusal::Closed),
            None => Err(Refusal::SpawnFailed(error)),
        }
    }

    /// Returns the current time if the pool tracks ages, otherwise zero.
    pub(super) fn submitted_at(&self) -> u64 {
        self.ages.as_ref().map_or(0, |_| self.env.nanos_now())
    }

    /// Pushes the task into the queue. If the pool tracks ages, notes when the task was submitted.
    /// Returns the task's position, or `None` if the queue is full, asleep or closed.
    fn push(&self, queue: &Queue<Task>, task: &mut Option<Task>, submitted: u64) -> Option<u64> {
        let position = queue.push(task).ok()?;
        if let Some(ages) = &self.ages {
            ages.note(queue, position, submitted);
        }
        Some(position)
    }

    /// Pushes the task into the queue, then makes sure that a worker looks at it (A3). Returns
    /// `None` if the queue is full, asleep or closed. The submission's next step or attempt finds
    /// out which of these is the case.
    fn enqueue(
        self: &Arc<Self>,
        queue: &Queue<Task>,
        task: &mut Option<Task>,
        submitted: u64,
    ) -> Option<Location> {
        let position = self.push(queue, task, submitted)?;
        if !self.in_flight.see().is_any_awake() {
            self.notify_unless(Seen::is_any_awake);
        }
        Some(Location::Queue { position })
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
    ) -> Location {
        let task = task.take().expect("a task to hand over");
        let revocable = task.table.offered;
        // SAFETY: by this function's contract.
        let generation = unsafe { self.slots[slot].hand_over(claim, task, revocable) };
        self.set_affinity(slot, generation);
        Location::Mailbox { slot, generation }
    }

    /// Returns `true` if a task should be queued rather than handed to an idle worker.
    ///
    /// In a burst, the first worker that wakes up can run all queued tasks. A task that was handed
    /// to a worker would wait until the OS gives that worker a core. Each queued task occupies a
    /// place that other submissions may need, so the queue must have space to spare.
    #[inline]
    fn spreads(&self, queue: &Queue<Task>) -> bool {
        let half = (self.settings.queue_capacity as u64 / 2).max(4);
        let spare = SPARE.min(half).max(self.settings.max_workers as u64);
        queue.has_room_for(spare) && self.may_queue()
    }
}
