//! `do_with_deadline`: a caller, its closure and its result.
//!
//! The closure travels in the task. The result comes back in a [`Waiter`] on the caller's stack.
//! The docs of [`completion`](crate::parts::completion) say which side owns the closure and the
//! result, and when.

use super::core::Core;
use super::request::{Extras, Location, SubmitError, SubmitOptions};
use super::submit::accept;
use crate::error::{DeadlineError, Panic, Refusal, Refused, TaskError, Unrun};
use crate::parts::backoff::{Backoff, Step};
use crate::parts::completion::{is_queued, Shared, WaitNode};
use crate::parts::deadline::{Deadline, Until};
use crate::parts::members::{Ended, Members, Owner, Pending};
use crate::sync::{exposed, Arc, Ordering, UnsafeCell};
use crate::work::context::Ctx;
use crate::work::env::{Env, NEVER};
use crate::work::job::{End, Job, NeverRan, Release, Task, TaskEnd};
use crate::work::observe::Moment;
use crate::work::options::{Options, Times};
use crate::work::owed::Owed;
use crate::work::panics::Payload;
use crossbeam_utils::CachePadded;
use std::ptr::NonNull;
use std::time::Duration;

/// A task that never started: a shutdown or its group discarded it, or too little time was left
/// until its deadline when its turn came.
type Unstarted = (Task, SubmitError);

/// A caller's node, with the place for the outcome.
type Waiter<R> = Shared<Result<R, Payload>, Call>;

/// What a caller's task needs beside the node and the outcome. It is here and not in the task, so
/// that it takes no space from the closure.
struct Call {
    times: Option<Times>,
    /// The task's group. The caller borrows it as long as the waiter exists.
    members: Option<NonNull<Arc<Members>>>,
    /// The task, if it comes back unstarted. It is not a part of the outcome, so that the outcome
    /// stays small and shares a cache line with the word that the caller polls.
    unstarted: UnsafeCell<Option<Unstarted>>,
}

/// The task of a caller that waits. A `WaitJob` exists until the task is started, discarded or
/// taken back. Until then the caller waits, so `waiter` is valid.
struct WaitJob<F, R> {
    waiter: *const Waiter<R>,
    /// Set if the task has a label, times or a group. The flag is here and not in the waiter, so that the
    /// worker need not load a cache line of the caller only to find that there are no options.
    has_options: bool,
    f: F,
}

// SAFETY: only `do_until` makes a `WaitJob`. Its F and R are Send and 'static. `do_until` returns
// only once it has the task back, has seen `done`, or has won the decision. So the waiter outlives
// every access to it (N2, N4).
unsafe impl<F: FnOnce() -> R, R> Job for WaitJob<F, R> {
    const AWAITED: bool = true;

    #[inline]
    fn add_options(&self, options: &mut Options<'_>) {
        if self.has_options {
            // SAFETY: the waiter is alive as long as this job exists.
            let waiter = unsafe { &*self.waiter };
            waiter.node.alive.touch();
            options.label = waiter.node.label;
            options.times = waiter.more.times;
            options.group = (waiter.more.members).map(|members| {
                // SAFETY: the waiter is alive, so its caller borrows the group. Later, the task
                // keeps the group alive, because it is inside (N7).
                unsafe { &*Arc::as_ptr(members.as_ref()) }
            });
        }
    }

    #[inline]
    fn pending(&self) -> Option<Pending> {
        if !self.has_options {
            return None;
        }
        // SAFETY: the waiter is alive as long as this job exists.
        let members = unsafe { &*self.waiter }.more.members?;
        // SAFETY: the waiter is alive, so its caller borrows the group. The task is inside until
        // this `Pending` is used up. The caller has another one, which it uses only if it gets the
        // task back neither run nor discarded.
        Some(unsafe { Pending::of(members.as_ref()) })
    }

    fn run(self, ctx: &Ctx<'_>, end: End<'_>) {
        let Self { waiter, f, .. } = self;
        let (decision, task_id) = (&ctx.record.decision, ctx.task_id.get());
        decision.start(task_id);
        // SAFETY: only the address is taken.
        let node = unsafe { std::ptr::addr_of!((*waiter).node) };
        if is_queued(task_id) {
            // SAFETY: the caller of a queued task cannot leave before it has been told the slot, so
            // its node is alive. This is the only call, because a job runs once. The caller of a
            // mailbox task knows the slot, and may have left already.
            unsafe { WaitNode::publish_slot(node, ctx.slot) };
        }

        // SAFETY: the decision was started for this node's caller.
        let (panicked, result) = unsafe { ctx.run_decided(Some(node), f, |waits| waits) };
        if result.is_none() {
            // The caller has left, and counts the task as timed out. The deadline is cleared here,
            // so that `finish` does not count the task as timed out again.
            ctx.record.set_due(NEVER);
        }
        end(TaskEnd::ran(panicked));
        if let Some(result) = result {
            // The outcome is written only now, right before `done` is raised, because the caller
            // polls that cache line. An earlier write would move the line between the cores once
            // more.
            // SAFETY: the decision is won, so the caller waits for `done`.
            let answered = unsafe { Shared::answer(waiter, Some(result)) };
            drop(answered.release());
        }
    }

    /// Gives the task back to its caller. The caller cannot take the task back, because the
    /// discarding thread has taken it out of the queue or the mailbox. The caller cannot leave it
    /// either, because no worker has started it.
    fn discard(self, why: NeverRan) -> Release {
        let (waiter, group) = (self.waiter, self.pending());
        let why = match why() {
            TaskError::Expired => SubmitError::Expired,
            TaskError::Cancelled => SubmitError::Refused(Refusal::Cancelled),
            _ => SubmitError::Refused(Refusal::Closed),
        };
        let task = Task::new(Moment::default(), (), self);
        // SAFETY: the caller waits for `done`.
        let answered = unsafe {
            ((*waiter).more.unstarted).with_mut(|place| *place = Some((task, why)));
            Shared::answer(waiter, None)
        };
        Release {
            group,
            caller: Some(answered),
            captured: None,
        }
    }
}

/// Runs `f` on the pool, with the options of a submitter, as a member of a group if one is given.
/// Waits for the result until `limit` has passed, or until the submitter's deadline if that is
/// earlier.
#[inline]
pub(crate) fn do_with<F: FnOnce() -> R + Send + 'static, R: Send + 'static>(
    core: &Arc<Core>,
    members: Option<&Owner>,
    extras: &Extras,
    f: F,
    limit: Duration,
) -> Result<R, DeadlineError<F>> {
    let own = extras.until.left();
    if limit.min(own).is_zero() {
        return Err(DeadlineError::Expired(Unrun::new(f)));
    }
    let until = if own < limit {
        extras.until
    } else {
        Until::After(limit)
    };
    do_until(core, members, extras, f, &Deadline::new(until))
}

#[inline]
pub(crate) fn do_until<F: FnOnce() -> R + Send + 'static, R: Send + 'static>(
    core: &Arc<Core>,
    members: Option<&Owner>,
    extras: &Extras,
    f: F,
    deadline: &Deadline,
) -> Result<R, DeadlineError<F>> {
    let least = extras.min_remaining;
    let before = (!least.is_zero()).then(|| core.env.due(deadline));
    // The caller's deadline applies, so the task gets no deadline of its own.
    let times = Times::new(before.unwrap_or(NEVER), least, NEVER, extras.run_limit);
    let call = Call {
        times,
        members: members.map(|members| NonNull::from(&**members)),
        unstarted: UnsafeCell::new(None),
    };
    // Padded, so that the waiter shares no cache line with other variables of this thread.
    let waiter = CachePadded::new(Waiter::new(extras.label, call));
    let task = erase(&core.env, &waiter, f);
    let wait = || wait_for(core, members, &waiter.node, task, deadline, extras);
    let (task, why) = match exposed(wait) {
        CallEnd::TimedOut => return Err(DeadlineError::TimedOut),
        CallEnd::Back(task, why) => (task, why),
        CallEnd::Outcome => {
            // SAFETY: this is the caller, and it has seen `done`.
            if let Some(result) = unsafe { waiter.take() } {
                return result.map_err(|payload| DeadlineError::Panicked(Panic::new(payload)));
            }
            // SAFETY: as above.
            let back = (waiter.more.unstarted).with_mut(|place| unsafe { (*place).take() });
            back.expect("an outcome, or the task")
        }
    };
    // SAFETY: the task that comes back is the one made by `erase` above, of these types.
    Err(unsafe { give_back::<F, R>(task, why) })
}

// The following steps are separate functions. In an unoptimized build, each temporary copy of a
// large closure takes space in the frame of its function. In one function, all these copies would
// be on the stack at once.

#[inline]
fn erase<F: FnOnce() -> R, R>(env: &Env, waiter: &Waiter<R>, f: F) -> Task {
    let more = &waiter.more;
    let job = WaitJob {
        waiter,
        has_options: waiter.node.label.is_some() || more.times.is_some() || more.members.is_some(),
        f,
    };
    Task::new(Moment::now(env), (), job)
}

/// Returns the closure and the error of a task that did not run.
///
/// # Safety
/// The task was made from a `WaitJob` of these types.
// Not inlined, because LLVM would otherwise copy a large closure word by word. See `.ci/compile`.
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

/// The end of a call, without the types of its closure and result.
enum CallEnd {
    Outcome,
    TimedOut,
    Back(Task, SubmitError),
}

/// Enters the task into its group, submits it, and waits for its outcome.
fn wait_for(
    core: &Arc<Core>,
    members: Option<&Owner>,
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
    let entered = match core.enter(members, &options) {
        Ok(entered) => entered,
        Err(why) => return CallEnd::Back(task, why),
    };
    let (pending, options) = entered.add_to(members, options);
    let mut task = Some(task);
    let location = match accept(core, &mut task, &options) {
        Ok(location) => location,
        Err(why) => {
            pending.into_iter().for_each(Pending::leave);
            return CallEnd::Back(task.expect("what is refused stays"), why);
        }
    };
    let left_at = core.env.due(deadline);
    node.set_deadline(left_at);
    // If the group is cancelled by now, this discards the task, which then comes back.
    core.note_member(members, location);
    match node.wait(deadline, core.parallel) {
        None => {
            return leave(
                core,
                location,
                members.map(|members| &**members),
                node,
                left_at,
            )
        }
        Some(Step::Yielded) => core.result_came_after_yield(),
        Some(_) => {
            core.result_came_without_yield();
            // A worker that took the task from the queue has published its slot. It is probably
            // idle and still awake. So this thread tries that worker first for its next task.
            if let Some(slot) = node.worker_slot() {
                core.set_affinity(slot, 0);
            }
        }
    }
    CallEnd::Outcome
}

/// Takes the task back, counts it with `count`, and takes it out of its group. Returns `None` if a
/// worker has started the task, or if another thread has taken it out first.
#[cold]
fn take_back(
    core: &Arc<Core>,
    location: Location,
    members: Option<&Arc<Members>>,
    count: impl FnOnce(&Core, &Task),
) -> Option<Task> {
    let mut owed = Owed::default();
    let task = core.withdraw(location, count, &mut owed);
    if let (Some(_), Some(members)) = (&task, members) {
        // SAFETY: the task is inside until this `Pending` is used up. Nothing else takes it out,
        // because this thread has the task.
        owed.pass_in(unsafe { Pending::of(members) }.end(Ended::Discarded));
    }
    core.pay(&mut owed);
    task
}

/// Ends a call whose deadline has passed. Takes the task back if it has not started. Otherwise
/// leaves it running. If the outcome is already being delivered, waits for it instead.
#[cold]
fn leave(
    core: &Arc<Core>,
    location: Location,
    members: Option<&Arc<Members>>,
    node: &WaitNode,
    left_at: u64,
) -> CallEnd {
    if let Some(task) = take_back(core, location, members, |core, _| core.counts.expire()) {
        return CallEnd::Back(task, SubmitError::Expired);
    }
    let mut backoff = Backoff::default();
    while !node.is_done() {
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
        backoff.wait();
    }
    CallEnd::Outcome
}
