//! Admission: who is asked in which order, and when a submission is refused.
//!
//! In this order: the last worker, if it is awake or there is no queue; the queue, while a worker
//! is awake that watches it; the queue again, if somebody is idle and there is room to spare: that
//! worker may be asleep, and in a burst the first to wake takes the task; an idle worker, the
//! marked ones last; one in its start hook; a free slot and a new thread; the queue; then a
//! refusal, or a wait for room. Where there is a queue, a plain task asks the last worker second.

use super::core::Core;
use super::counts::Reason;
use super::request::{no_room, Location, SubmitError, SubmitOptions};
use super::saturation::Occupied;
use super::threads::{how_to_hand_over, First, NotSpawned};
use super::wait::Wait;
use crate::error::Refusal;
use crate::parts::queue::{NotPushed, Queue, Sweep};
use crate::parts::slot::Claim;
use crate::sync::{thread, Arc};
use crate::work::job::Task;
use std::io;

/// As many tasks must find room in the queue where one is pushed for an idle worker, and as
/// many as there can be workers.
const SPARE: u64 = if cfg!(any(lazypool_loom, lazypool_shuttle)) {
    2
} else {
    16
};

/// One attempt's result, where the task was not accepted.
#[derive(Debug)]
enum Not {
    /// Saturated, exactly.
    Saturated,
    /// Something is half done: look again.
    Settled,
    Refused(Refusal),
}

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
        if self.is_open_to_newcomers() && !options.is_cancelled() {
            if let Some(location) = self.submit_fast(task, options) {
                return Ok(location);
            }
            // First of all the rest, so that a saturated pool refuses cheaply.
            if !options.blocks(self.blocks)
                && match &self.queue {
                    Some(queue) => !options.awaited && self.is_saturated(Some(queue)),
                    None => self.is_saturated(None),
                }
            {
                self.counts.refuse(Reason::Saturated);
                let nested = options.awaited && options.is_on_worker(&self.env);
                return Err(SubmitError::Refused(no_room(nested)));
            }
        }
        self.submit_slowly(task, options)
    }

    /// Neither closed, nor in a forked child, nor with submitters before whom some have to
    /// line up: the rest is for the slow way.
    #[inline]
    fn is_open_to_newcomers(&self) -> bool {
        self.env.is_usual_and_zero(self.waiters.aged())
    }

    /// The ways that most tasks go: to the worker that this thread's last task went to; or
    /// into the queue, if it has room and a worker watches it or nobody could be given the
    /// task.
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
                let awake = self.in_flight.see().is_any_awake();
                let tail = queue.room()?;
                let occupied = if awake { None } else { self.nobody_idle() };
                if awake || occupied.is_some() {
                    return self.push_fast(queue, tail, task, options, occupied);
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

    #[inline(always)]
    fn push_fast(
        self: &Arc<Self>,
        queue: &Queue<Task>,
        tail: u64,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
        occupied: Option<Occupied>,
    ) -> Option<Location> {
        let position = if queue.push_at(tail, task) {
            tail
        } else {
            options.start(&self.env);
            queue.push(task).ok()?
        };
        let looked_after = match occupied {
            Some(occupied) => self.is_still(occupied),
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
        if self.env.is_forked() {
            self.counts.refuse(Reason::of(&Refusal::Forked));
            return Err(SubmitError::Refused(Refusal::Forked));
        }
        if let Some(location) = self.push_behind_one(task, options) {
            return Ok(location);
        }
        options.start(&self.env);
        let mut wait = Wait::new(self, options);
        let why = loop {
            wait.before_try();
            let not = match self.attempt(task, options, &wait) {
                Ok(location) => return Ok(location),
                Err(not) => not,
            };
            let settled = match not {
                Not::Refused(why) => break SubmitError::Refused(why),
                Not::Saturated if !wait.may_block => {
                    break SubmitError::Refused(wait.no_room());
                }
                Not::Saturated => true,
                Not::Settled if wait.is_hurried() => {
                    break SubmitError::Refused(Refusal::OnWorker);
                }
                Not::Settled => false,
            };
            // Before the deadline is asked: if that is the earlier one, it has passed, too.
            let has_waited = settled && wait.room_within.has_passed();
            if options.has_expired() {
                break options.expired();
            }
            if has_waited {
                break SubmitError::Refused(Refusal::Saturated);
            }
            wait.before_next_try(settled);
        };
        drop(wait);
        self.counts.refuse(why.reason());
        Err(why)
    }

    /// In a burst most tasks come while a worker is on its way to the queue and nobody is idle: no
    /// reason to start another. Who is counted at first is idle before it is counted no more.
    fn push_behind_one(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
    ) -> Option<Location> {
        let queue = self.queue.as_ref()?;
        let may_queue = !(options.awaited && options.is_on_worker(&self.env));
        let is_one_on_its_way = self.in_flight.see().is_any_searching()
            && self.ready.is_empty()
            && !self.in_flight.is_any_marked();
        if !self.is_open_to_newcomers()
            || options.is_cancelled()
            || !may_queue
            || !is_one_on_its_way
        {
            return None;
        }
        self.push_fast(queue, queue.room()?, task, options, None)
    }

    fn attempt(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
        wait: &Wait<'_>,
    ) -> Result<Location, Not> {
        if self.is_closed() {
            return Err(Not::Refused(Refusal::Closed));
        }
        if options.is_cancelled() {
            return Err(Not::Refused(Refusal::Cancelled));
        }
        let queue = self.queue.as_ref().filter(|_| wait.may_queue);
        if let Some(queue) = queue {
            let awake = self.in_flight.see().is_any_awake();
            // For a worker in its start hook nothing is queued: it is as far away as a new thread.
            if awake || self.is_somebody_idle() && self.spreads(queue) {
                if let Some(location) = self.enqueue(queue, task, wait)? {
                    return Ok(location);
                }
            }
        }
        // Both read before looking for an idle worker: one that looks at the queue is idle
        // before it stops being counted, and one that comes out of its hook looks at it.
        let marked = self.in_flight.is_any_marked();
        let searching = self.in_flight.see().is_any_searching();
        if let Some((slot, claim)) = self.claim_idle() {
            return Ok(self.hand_over(slot, claim, task));
        }
        if (searching || self.has_worker_come()) && !wait.is_hurried() {
            // No reason to start another.
            let Some(queue) = queue else {
                return Err(Not::Settled);
            };
            if let Some(location) = self.enqueue(queue, task, wait)? {
                return Ok(location);
            }
        }
        if let Some(location) = self.start_one(queue, task, wait, marked)? {
            return Ok(location);
        }
        if let Some(queue) = queue {
            if let Some(location) = self.enqueue(queue, task, wait)? {
                return Ok(location);
            }
        }
        Err(if self.is_saturated_now(queue) {
            Not::Saturated
        } else {
            Not::Settled
        })
    }

    /// A worker in its start hook, which is as far from a task as a new thread; or a new
    /// thread. `None`: no slot is free.
    fn start_one(
        self: &Arc<Self>,
        queue: Option<&Queue<Task>>,
        task: &mut Option<Task>,
        wait: &Wait<'_>,
        marked: bool,
    ) -> Result<Option<Location>, Not> {
        if marked && !self.is_in_own_hook() {
            if let Some((slot, claim)) = self.claim_even_in_start_hook(wait) {
                return Ok(Some(self.hand_over(slot, claim, task)));
            }
            if self.has_worker_come() && !wait.is_hurried() {
                return Err(Not::Settled);
            }
        }
        let Some(slot) = self.take_free() else {
            return Ok(None);
        };
        match self.spawn(slot, First::Run(task), &wait.starts) {
            Ok(location) => Ok(location),
            Err(NotSpawned::Closed) => Err(Not::Refused(Refusal::Closed)),
            Err(NotSpawned::Withheld) => Ok(None),
            Err(NotSpawned::Failed(error)) => {
                self.without_thread(task, queue, wait, error).map(Some)
            }
        }
    }

    /// A marked worker, also one in its start hook. Not from a hook, whose own worker it may be;
    /// nor for a worker that waits for the task: the hook may wait for that worker.
    fn claim_even_in_start_hook(&self, wait: &Wait<'_>) -> Option<(usize, Claim)> {
        if self.is_in_own_hook() || !wait.may_queue {
            return None;
        }
        self.claim_marked(true)
            .filter(|(slot, _)| self.may_use(*slot))
    }

    /// Whether there is a worker to be had after all, which was not when the submission asked
    /// for one: called to the queue, it searches or is idle again; its start hook has ended.
    fn has_worker_come(&self) -> bool {
        self.in_flight.see().is_any_searching() || !self.ready.is_empty()
    }

    /// The system gave no thread: another worker, the queue while a worker lives, or back.
    #[cold]
    fn without_thread(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        queue: Option<&Queue<Task>>,
        wait: &Wait<'_>,
        error: io::Error,
    ) -> Result<Location, Not> {
        let claimed = self
            .claim_idle()
            .or_else(|| self.claim_even_in_start_hook(wait));
        if let Some((slot, claim)) = claimed {
            return Ok(self.hand_over(slot, claim, task));
        }
        match queue.map(|queue| push_patiently(queue, task, wait.options)) {
            Some(Ok(position)) => {
                self.notify_without_thread();
                Ok(Location::Queue { position })
            }
            Some(Err(NotPushed::Looking)) => Err(Not::Settled),
            Some(Err(NotPushed::Closed)) => Err(Not::Refused(Refusal::Closed)),
            Some(Err(NotPushed::Full | NotPushed::Asleep)) | None => {
                Err(Not::Refused(Refusal::SpawnFailed(error)))
            }
        }
    }

    /// `None`: full by what it has seen, or asleep.
    fn enqueue(
        self: &Arc<Self>,
        queue: &Queue<Task>,
        task: &mut Option<Task>,
        wait: &Wait<'_>,
    ) -> Result<Option<Location>, Not> {
        match queue.push_on(task, &wait.sweep) {
            Ok(position) => {
                if !self.in_flight.see().is_any_awake() {
                    self.notify_one_more(&wait.starts);
                }
                Ok(Some(Location::Queue { position }))
            }
            Err(NotPushed::Full | NotPushed::Looking | NotPushed::Asleep) => Ok(None),
            Err(NotPushed::Closed) => Err(Not::Refused(Refusal::Closed)),
        }
    }

    #[inline]
    fn hand_over(&self, slot: usize, claim: Claim, task: &mut Option<Task>) -> Location {
        let task = task.take().expect("a task to hand over");
        let how = how_to_hand_over(&task);
        // SAFETY: `claim` came with `slot`: this thread holds it (`Held`).
        let generation = unsafe { self.slots[slot].hand_over(claim, task, how) };
        self.set_affinity(slot, generation);
        Location::Mailbox { slot, generation }
    }

    /// Whether a task for an idle worker goes into the queue, and the worker is notified: in
    /// a burst, the first worker to wake takes the task. Until then the task takes room that
    /// others are promised, so there must be some to spare. Not in a hook, whose worker others
    /// may have to wait for.
    #[inline]
    fn spreads(&self, queue: &Queue<Task>) -> bool {
        queue.has_room_for(SPARE.max(self.settings.max_workers as u64)) && !self.is_in_own_hook()
    }
}

/// Looks through all of the queue for room, unless its time is up.
fn push_patiently(
    queue: &Queue<Task>,
    task: &mut Option<Task>,
    options: &SubmitOptions<'_>,
) -> Result<u64, NotPushed> {
    // From the start: of the room that there is now, none must be missed.
    let sweep = Sweep::default();
    loop {
        match queue.push_on(task, &sweep) {
            Err(NotPushed::Looking) if !options.has_expired() => thread::yield_now(),
            pushed => return pushed,
        }
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "admission_tests.rs"]
mod tests;
