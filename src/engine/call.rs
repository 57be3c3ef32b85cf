//! `do_with_deadline`: a caller, its closure and its result.
//!
//! The closure travels in the task, the result comes back in a [`Waiter`] on the caller's
//! stack. Who owns which of them when is decided in [`completion`](crate::parts::completion).

use super::core::Core;
use super::request::{Extras, Location, SubmitError, SubmitOptions};
use crate::error::{DeadlineError, Panic, Refusal, Refused, Unrun};
use crate::parts::backoff::Backoff;
use crate::parts::completion::{is_queued, Shared, WaitNode, Waited};
use crate::parts::deadline::{Deadline, Until};
use crate::parts::members::Ended;
use crate::sync::{exposed, Arc, Ordering};
use crate::work::context::Ctx;
use crate::work::env::{Env, NEVER};
use crate::work::job::{End, Job, NeverRan, Release, Task};
use crate::work::observe::Submitted;
use crate::work::options::{Options, Times};
use crate::work::panics::Payload;
use crossbeam_utils::CachePadded;
use std::time::Duration;

enum CallOutcome<R> {
    Ran(Result<R, Payload>),
    /// It never started: a shutdown discarded it, or its turn came when too little of its deadline
    /// was left.
    Unrun(Task, SubmitError),
}

/// What a caller waits with; in it lie the task's times.
type Waiter<R> = Shared<CallOutcome<R>, Option<Times>>;

/// The task of a caller that waits. As long as there is one, that is until the task is started,
/// discarded or back, the caller waits and its waiter is alive.
struct WaitJob<F, R> {
    waiter: *const Waiter<R>,
    /// What the worker needs to know before it has a result to write: here rather
    /// than in the node, whose line it then touches once and not twice.
    has_options: bool,
    f: F,
}

// SAFETY: `do_until` alone makes one. Its F and R are Send and 'static, and it returns only with the task
// back in hand, with `done` seen, or with the decision won: the waiter outlives every touch of it.
unsafe impl<F: FnOnce() -> R, R> Job for WaitJob<F, R> {
    const AWAITED: bool = true;

    #[inline]
    fn options<'a>(&'a self, stored: Options<'a>) -> Options<'a> {
        if !self.has_options {
            return stored;
        }
        // SAFETY: alive as long as this is there.
        let waiter = unsafe { &*self.waiter };
        waiter.node.alive.touch();
        Options {
            label: waiter.node.label,
            times: waiter.more,
            ..stored
        }
    }

    fn run(self, ctx: &Ctx<'_>, end: End<'_>) {
        let Self { waiter, f, .. } = self;
        let (decision, task_id) = (&ctx.record.decision, ctx.task_id.get());
        decision.start(task_id);
        // SAFETY: only the address is taken.
        let node = unsafe { std::ptr::addr_of!((*waiter).node) };
        if is_queued(task_id) {
            // SAFETY: the caller of a queued task cannot leave before it has been told the
            // slot: its node is alive. That of another may have left.
            unsafe { WaitNode::publish_slot(node, ctx.slot) };
        }

        // SAFETY: the decision was started for this node's caller.
        let (panicked, result) = unsafe { ctx.run_decided(Some(node), f, |waits| waits) };
        if result.is_none() {
            // It is counted as timed out already.
            ctx.record.set_due(NEVER);
        }
        end(Ended::ran(panicked));
        if let Some(result) = result {
            // Only now, so that the caller's line, which it polls, is taken from it once.
            // SAFETY: the decision is won: the caller waits for `done`.
            let answered = unsafe { Shared::answer(waiter, Some(CallOutcome::Ran(result))) };
            drop(answered.release());
        }
    }

    /// The caller gets it back. It can neither take the task back nor leave it: who discards took it
    /// out of the queue or the mailbox, and did not start it.
    fn discard(self, why: NeverRan) -> Release {
        let waiter = self.waiter;
        let why = match why {
            NeverRan::Expired => SubmitError::Expired,
            _ => SubmitError::Refused(Refusal::Closed),
        };
        let outcome = CallOutcome::Unrun(Task::new(Submitted::default(), (), self), why);
        Release {
            // SAFETY: the caller waits for `done`.
            caller: Some(unsafe { Shared::answer(waiter, Some(outcome)) }),
            ..Release::default()
        }
    }
}

/// Runs `f` on the pool and waits for it until the deadline, with what a submitter adds to it.
#[inline]
pub(crate) fn do_with<F, R>(
    core: &Arc<Core>,
    extras: &Extras,
    f: F,
    limit: Duration,
) -> Result<R, DeadlineError<F>>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let own = extras.until.left();
    if limit.min(own).is_zero() {
        return Err(DeadlineError::Expired(Unrun::new(f)));
    }
    let until = if own < limit {
        extras.until
    } else {
        Until::After(limit)
    };
    let deadline = Deadline::new(until);
    let least = extras.min_remaining;
    let before = (!least.is_zero()).then(|| core.env.due(&deadline));
    // Its deadline is the caller's.
    let times = Times::new(before.unwrap_or(NEVER), least, NEVER, extras.run_limit);
    do_until(core, extras, times, f, &deadline)
}

#[inline]
pub(crate) fn do_until<F, R>(
    core: &Arc<Core>,
    extras: &Extras,
    times: Option<Times>,
    f: F,
    deadline: &Deadline,
) -> Result<R, DeadlineError<F>>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    // The worker's touches share no line with this thread's own variables.
    let waiter = CachePadded::new(Waiter::new(extras.label, times));
    let task = erase(&core.env, &waiter, f);
    let wait = || wait_for(core, &waiter.node, task, deadline, extras);
    let (task, why) = match exposed(wait) {
        CallEnd::TimedOut => return Err(DeadlineError::TimedOut),
        CallEnd::Back(task, why) => (task, why),
        CallEnd::Outcome => {
            // SAFETY: the caller, who has seen `done`.
            match unsafe { waiter.take() }.expect("written before `done` is raised") {
                CallOutcome::Ran(result) => {
                    return result.map_err(|payload| DeadlineError::Panicked(Panic::new(payload)));
                }
                CallOutcome::Unrun(task, why) => (task, why),
            }
        }
    };
    // SAFETY: only this call's task comes back to it.
    Err(unsafe { give_back::<F, R>(task, why) })
}

// Functions of their own: in an unoptimised build each temporary copy of a large
// closure stays in its function's frame.

#[inline]
fn erase<F: FnOnce() -> R, R>(env: &Env, waiter: &Waiter<R>, f: F) -> Task {
    let job = WaitJob {
        waiter,
        has_options: waiter.node.label.is_some() || waiter.more.is_some(),
        f,
    };
    Task::new(Submitted::now(env), (), job)
}

/// # Safety
/// The task was made from a `WaitJob` of these types.
// Inlined, it makes LLVM take a large closure apart, word by word: see `.ci/compile`.
#[cold]
#[inline(never)]
unsafe fn give_back<F: FnOnce() -> R, R>(task: Task, why: SubmitError) -> DeadlineError<F> {
    // SAFETY: by this function's contract.
    let ((), job) = unsafe { task.into_parts::<(), WaitJob<F, R>>() };
    match why {
        SubmitError::Expired => DeadlineError::Expired(Unrun::new(job.f)),
        why => DeadlineError::Refused(Refused::new(job.f, why.into_refusal())),
    }
}

/// How a call ends, before its types are looked at.
enum CallEnd {
    Outcome,
    TimedOut,
    Back(Task, SubmitError),
}

fn wait_for(
    core: &Arc<Core>,
    node: &WaitNode,
    task: Task,
    deadline: &Deadline,
    extras: &Extras,
) -> CallEnd {
    let options = SubmitOptions {
        deadline: Some(deadline),
        node: Some(node),
        awaited: true,
        ..extras.plain()
    };
    let mut task = Some(task);
    let location = match core.submit(&mut task, &options) {
        Ok(location) => location,
        Err(why) => return CallEnd::Back(task.expect("what is refused stays"), why),
    };
    let left_at = core.env.due(deadline);
    node.set_deadline(left_at);
    match node.wait(deadline, core.parallel) {
        Waited::Done => {
            core.result_came_without_yield();
            // The worker that took it from the queue is likely to be idle and awake.
            if let (Location::Queue { .. }, Some(slot)) = (&location, node.worker_slot()) {
                core.set_affinity(slot, 0);
            }
        }
        Waited::DoneOnceOffered => core.result_came_after_yield(),
        Waited::Expired => return leave(core, location, node, left_at),
    }
    CallEnd::Outcome
}

/// A caller at its deadline: takes the task back, or leaves it running, or gets the outcome that is
/// just being delivered.
#[cold]
fn leave(core: &Arc<Core>, location: Location, node: &WaitNode, left_at: u64) -> CallEnd {
    if let Some(task) = core.withdraw(location, |core, _| core.counts.expire()) {
        core.serve_line();
        return CallEnd::Back(task, SubmitError::Expired);
    }
    let mut backoff = Backoff::default();
    loop {
        let started_on = match location {
            Location::Mailbox { slot, .. } => Some(slot),
            Location::Queue { .. } => node.worker_slot(),
        };
        if let Some(slot) = started_on {
            let decision = &core.slots[slot].record.decision;
            if decision.leave(location.task_id(), left_at) {
                // Relaxed: a count.
                core.env.counts.timed_out.fetch_add(1, Ordering::Relaxed);
                return CallEnd::TimedOut;
            }
        }
        if node.is_done() {
            return CallEnd::Outcome;
        }
        backoff.wait();
    }
}
