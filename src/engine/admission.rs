//! Admission: who is asked, in the order of the protocol page, and when a submission is refused.

use super::core::Core;
use super::request::{Location, NotAccepted, SubmitError, SubmitOptions};
use super::saturation::AllBusy;
use super::threads::NotSpawned;
use crate::error::Refusal;
use crate::parts::backoff::{Backoff, BoundedSpin};
use crate::parts::deadline::Deadline;
use crate::parts::in_flight::Seen;
use crate::parts::queue::Queue;
use crate::parts::slot::Claim;
use crate::stats::WhenFull;
use crate::sync::Arc;
use crate::work::context::runs_idle;
use crate::work::job::Task;
use std::io;

/// As many tasks must find space in the queue where one is pushed for an idle worker, and as
/// many as there can be workers.
const SPARE: u64 = if cfg!(any(lazypool_loom, lazypool_shuttle)) {
    2
} else {
    16
};

impl Core {
    /// Accepts the task, or leaves it.
    pub(crate) fn submit(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
    ) -> Result<Location, SubmitError> {
        self.submit_as(task, options)
    }

    /// The same without options, of which the compiler makes less.
    pub(crate) fn submit_plain(
        self: &Arc<Self>,
        task: &mut Option<Task>,
    ) -> Result<Location, SubmitError> {
        self.submit_as(task, &SubmitOptions::PLAIN)
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
            // First of all the rest, so that a saturated pool refuses cheaply.
            let may_wait = options.blocks(self.blocks) || options.awaited && self.queue.is_some();
            if !may_wait && self.is_saturated(self.queue.as_ref()) {
                // `false`: one that blocks may wait.
                return Err(self.counts.refuse(options.no_space(&self.env, false)));
            }
        }
        self.submit_slowly(task, options)
    }

    /// The ways that most tasks go: to the worker that this thread's last task went to; or
    /// into the queue, if it has space and a worker watches it or everybody is busy.
    #[inline(always)]
    fn submit_fast(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
    ) -> Option<Location> {
        let mut even_parked = true;
        if let Some(queue) = &self.queue {
            if options.awaited {
                // Two lines move instead of five: its worker's, and the caller's own.
                if let Some((slot, claim)) = self.claim_by_affinity(false) {
                    return Some(self.hand_over(slot, claim, task));
                }
            }
            if !(options.awaited && options.is_on_worker(&self.env)) {
                let seen = self.in_flight.see();
                let tail = queue.room()?;
                let awake = seen.is_any_awake();
                let all_busy = if awake { None } else { self.all_busy() };
                // A worker that searches is idle before it is counted no more. So if nobody is idle, it
                // still searches, or has taken a task, which the look after the push finds: no other
                // needs to be woken or started yet.
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
        Some(self.hand_over(slot, claim, task))
    }

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
            Some(all_busy) => !self.is_any_benched() && self.is_unchanged_since(all_busy),
            None => self.in_flight.see().is_any_searching(),
        };
        if !looked_after {
            options.start(&self.env);
            self.notify_another();
        }
        Some(Location::Queue { position })
    }

    #[cold]
    fn submit_slowly(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
    ) -> Result<Location, SubmitError> {
        options.start(&self.env);
        let own = options.is_on_worker(&self.env);
        let mut may_wait = !own && options.blocks(self.blocks);
        let queue = (self.queue.as_ref()).filter(|_| !(own && options.awaited));
        let block_until = match options.extras.when_full.unwrap_or(self.settings.when_full) {
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
                Ok(location) => return Ok(location),
                Err(NotAccepted::Refused(why)) => break SubmitError::Refused(why),
                Err(NotAccepted::Retry) if backoff.is_long() && runs_idle() => {
                    break options.no_space(&self.env, self.blocks);
                }
                Err(NotAccepted::Retry) => backoff.wait(),
                Err(NotAccepted::Saturated) if !may_wait => {
                    break options.no_space(&self.env, self.blocks)
                }
                Err(NotAccepted::Saturated) if self.spin_for_space(&mut spin) => {}
                Err(NotAccepted::Saturated) => {
                    match self.wait_for_space(task, options, &block_until, submitted) {
                        Ok(location) => return Ok(location),
                        // The time of `BlockFor` is up. The line may have had space that its server
                        // had not come to: the last attempt is that of one that must not wait.
                        Err(SubmitError::Refused(Refusal::Saturated)) => may_wait = false,
                        Err(why) => break why,
                    }
                }
            }
            if let Some(why) = options.expired() {
                break why;
            }
        };
        Err(self.counts.refuse(why))
    }

    /// Attempts to submit a task, unless others wait in line. Then a submission that may wait joins them. One
    /// that must not wait first gives the line what space there is: so it is refused only if there was
    /// none, and takes none before the line.
    fn attempt_after_line(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        may_wait: bool,
        queue: Option<&Queue<Task>>,
        submitted: u64,
    ) -> Result<Location, NotAccepted> {
        if self.line.waiting() == 0 || self.may_not_submit().is_some() {
            return self.attempt(task, queue, submitted);
        }
        // Before the line's lock, which a thread that refuses in a loop must not keep taking.
        if may_wait || self.is_saturated(queue) {
            return Err(NotAccepted::Saturated);
        }
        self.serve_line();
        Err(NotAccepted::Retry)
    }

    /// Makes one attempt to submit the task.
    pub(super) fn attempt(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        queue: Option<&Queue<Task>>,
        submitted: u64,
    ) -> Result<Location, NotAccepted> {
        if let Some(why) = self.may_not_submit() {
            return Err(NotAccepted::Refused(why));
        }
        if let Some(queue) = queue {
            let spreads = || self.has_idle_candidate() && self.spreads(queue);
            let is_any_awake = self.in_flight.see().is_any_awake();
            if is_any_awake && self.may_queue() || spreads() {
                if let Some(location) = self.enqueue(queue, task, submitted) {
                    return Ok(location);
                }
            }
        }
        // First: a worker that looks at the queue is idle before it stops being counted.
        let searching = self.in_flight.see().is_any_searching();
        if let Some((slot, claim)) = self.claim_idle() {
            return Ok(self.hand_over(slot, claim, task));
        }
        if self.has_idle_candidate() {
            return Err(NotAccepted::Retry);
        }
        if (searching || self.in_flight.see().is_any_searching()) && self.may_queue() {
            // No reason to start another.
            let Some(queue) = queue else {
                return Err(NotAccepted::Retry);
            };
            if let Some(location) = self.enqueue(queue, task, submitted) {
                return Ok(location);
            }
        }
        if let Some(slot) = self.free.pop() {
            match self.spawn(slot, Some(task)) {
                Ok(Some(location)) => return Ok(location),
                Ok(None) | Err(NotSpawned::NotNeeded) => return Err(NotAccepted::Retry),
                Err(NotSpawned::Failed(error)) => {
                    return self.without_thread(task, queue, submitted, error)
                }
            }
        }
        if let Some(queue) = queue.filter(|_| self.may_queue()) {
            if let Some(location) = self.enqueue(queue, task, submitted) {
                return Ok(location);
            }
        }
        Err(if self.is_saturated(queue) {
            NotAccepted::Saturated
        } else {
            NotAccepted::Retry
        })
    }

    /// Returns why every submission is refused, however much space there is.
    pub(super) fn may_not_submit(&self) -> Option<Refusal> {
        let forked = self.env.is_forked().then_some(Refusal::Forked);
        forked.or_else(|| self.is_closed().then_some(Refusal::Closed))
    }

    /// Whether a task may be queued. Not where a worker would be started to look at the queue, and go
    /// through a start hook first, busy without a task, while a thread can be started for this one, or
    /// as soon as a worker has ended.
    #[inline]
    fn may_queue(&self) -> bool {
        !self.env.has_start_hook()
            || !self.in_flight.see().is_any_returning() && self.free.is_empty()
    }

    /// The OS gave no thread: another worker, the queue while a worker lives, or back.
    #[cold]
    fn without_thread(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        queue: Option<&Queue<Task>>,
        submitted: u64,
        error: io::Error,
    ) -> Result<Location, NotAccepted> {
        if let Some((slot, claim)) = self.claim_idle() {
            return Ok(self.hand_over(slot, claim, task));
        }
        match queue.and_then(|queue| queue.push(task).ok()) {
            Some(position) => {
                self.note_queued(position, submitted);
                // Else a busy worker comes to it: there is no thread to be had.
                self.notify_idle(Seen::is_any_awake);
                Ok(Location::Queue { position })
            }
            // Meanwhile.
            None if self.is_closed() => Err(NotAccepted::Refused(Refusal::Closed)),
            None => Err(NotAccepted::Refused(Refusal::SpawnFailed(error))),
        }
    }

    /// Returns the time of a submission, if ages are tracked; otherwise zero.
    pub(super) fn submitted_at(&self) -> u64 {
        self.ages.as_ref().map_or(0, |_| self.env.nanos_now())
    }

    fn note_queued(&self, position: u64, submitted: u64) {
        if let (Some(ages), Some(queue)) = (&self.ages, &self.queue) {
            ages.note(queue, position, submitted);
        }
    }

    /// `None`: full, asleep, or closed, which the next attempt says.
    fn enqueue(
        self: &Arc<Self>,
        queue: &Queue<Task>,
        task: &mut Option<Task>,
        submitted: u64,
    ) -> Option<Location> {
        let position = queue.push(task).ok()?;
        self.note_queued(position, submitted);
        if !self.in_flight.see().is_any_awake() {
            self.notify_unless(Seen::is_any_awake);
        }
        Some(Location::Queue { position })
    }

    #[inline]
    fn hand_over(&self, slot: usize, claim: Claim, task: &mut Option<Task>) -> Location {
        let task = task.take().expect("a task to hand over");
        let revocable = task.is_offered();
        // SAFETY: `claim` came with `slot`: this thread holds it (`Held`).
        let generation = unsafe { self.slots[slot].hand_over(claim, task, revocable) };
        self.set_affinity(slot, generation);
        Location::Mailbox { slot, generation }
    }

    /// Whether a task for an idle worker goes into the queue, and the worker is notified: in
    /// a burst, the first worker to wake takes the task. Until then the task takes space that
    /// others are promised, so there must be some to spare.
    #[inline]
    fn spreads(&self, queue: &Queue<Task>) -> bool {
        let spare = SPARE.max(self.settings.max_workers as u64);
        queue.has_room_for(spare) && self.may_queue()
    }
}
