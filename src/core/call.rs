//! `do_with_deadline`: a caller, its closure and its result.
//!
//! The closure travels in the task. The result comes back in a [`CallNode`] on the caller's stack.
//! The docs of [`completion`](crate::parts::completion) say which side owns the closure and the
//! result, and when.

use super::host::Host;
use super::submission::{Location, Submission, SubmitError};
use super::Core;
use crate::error::{DeadlineError, Panic, Refusal, Refused, TaskError, Unrun};
use crate::parts::backoff::{Backoff, Step};
use crate::parts::completion::{is_queued, Shared, WaitNode};
use crate::parts::deadline::Deadline;
use crate::parts::gate::Freed;
use crate::sync::panics::Payload;
use crate::sync::{abort_on_unwind, Arc, Ordering, UnsafeCell};
use crate::work::context::Ctx;
use crate::work::env::{Env, NEVER};
use crate::work::job::{End, HasEnded, Job, NeverRan, Release, Task, TaskEnd};
use crate::work::observe::Moment;
use crate::work::options::{Options, StoredOptions};
use crate::work::owed::{Debts, Owed};
use crossbeam_utils::CachePadded;

/// The host's side of a call: it submits the task, and notes what becomes of it.
///
/// # Safety
/// `submit` returns `Ok` only with the location that the core has given for this very task. The caller takes its task back from
/// there, or leaves the task that runs under that location's id. With another one it would leave while its own task uses its node.
pub(crate) unsafe trait Entrance<H> {
    /// Submits the task, by [`Core::accept`](super::Core::accept) or as one that waits for a permit. Takes it out of `task` if it is
    /// accepted, and leaves it there otherwise, also if its time is up (`Expired`). What it leads to is noted in `debts`. Before it
    /// waits for a permit, it pays what it owes by then, which may call user code.
    fn submit(
        &self,
        core: &Arc<Core<H>>,
        task: &mut Option<Task>,
        submission: Submission<'_>,
        debts: &mut Debts,
    ) -> Result<Location, SubmitError>;

    /// Called by a caller that has taken its task back. Takes the task out of its set of tasks; waits for no lock, and calls no user code.
    fn has_taken_back(&self, owed: &mut Owed);
}

/// A task that never started: another thread took it out, or its worker found that it must not run.
type Unstarted = (Task, SubmitError);

/// A caller's node, with the place for the outcome.
type CallNode<S, R> = Shared<Result<R, Payload>, Call<S>>;

/// The data that a caller's task needs beside the node and the outcome. It is here and not in the
/// task, so that it takes no space from the closure.
struct Call<S> {
    /// The task's options.
    options: S,
    /// The task, if it comes back unstarted. It is not a part of the outcome, so that the outcome
    /// stays small and shares a cache line with the word that the caller polls.
    unstarted: UnsafeCell<Option<Unstarted>>,
}

/// The task of a caller that waits. A `WaitJob` exists until the task has started, or until its caller has it back. Until then the
/// caller is in its call, so `waiter` is valid.
struct WaitJob<S, F, R> {
    waiter: *const CallNode<S, R>,
    /// Set if the task has options. The flag is here and not in the waiter, so that the worker need
    /// not load a cache line of the caller only to find that there are none.
    has_options: bool,
    f: F,
}

// SAFETY: only `call` makes a `WaitJob`. Its S, F and R are Send and 'static. S stays in the node, and is read by one thread at a time: by that which has the task's place. `call` returns
// only once it has the task back, has seen `done`, or has won the decision: that of this task, by the contract of `Entrance`. So the waiter outlives
// every access to it (N2, N4).
unsafe impl<S: StoredOptions, F: FnOnce() -> R, R> Job for WaitJob<S, F, R> {
    const HAS_CALLER: bool = true;

    #[inline]
    fn own_options(&self) -> Option<&impl StoredOptions> {
        self.has_options.then(|| {
            // SAFETY: the waiter is alive as long as this job exists.
            let waiter = unsafe { &*self.waiter };
            waiter.node.alive.touch();
            &waiter.more.options
        })
    }

    fn node(&self) -> Option<&WaitNode> {
        // SAFETY: the waiter is alive as long as this job exists.
        Some(unsafe { &(*self.waiter).node })
    }

    fn run(self, ctx: &Ctx<'_>, end: End<'_>) -> HasEnded {
        let Self { waiter, f, .. } = self;
        let (decision, task_id) = (&ctx.record.decision, ctx.task_id.get());
        // Only the address: the caller may leave from the start on.
        // SAFETY: the waiter is alive as long as this job exists.
        let node: *const WaitNode = unsafe { &raw const (*waiter).node };
        decision.start(task_id);
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
        let has_ended = end.end(TaskEnd::ran(panicked));
        if let Some(result) = result {
            // The outcome is written only now, right before `done` is raised, because the caller
            // polls that cache line. An earlier write would move it between the cores once
            // more.
            // SAFETY: the decision is won, so the caller waits for `done`.
            let answered = unsafe { Shared::answer(waiter, Some(result)) };
            drop(answered.release());
        }
        has_ended
    }

    /// Gives the task back to its caller. The caller cannot take the task back, because the
    /// discarding thread has taken it out of the queue or the mailbox. The caller cannot leave it
    /// either, because no worker has started it.
    fn discard(self, why: NeverRan) -> Release {
        let waiter = self.waiter;
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
            caller: Some(answered),
            ..Release::default()
        }
    }
}

/// Runs `f` on the pool, and waits for the result until the deadline has passed. The task is submitted
/// through `entrance`, with these options.
#[inline]
pub(crate) fn call<H: Host, S: StoredOptions, F, R>(
    core: &Arc<Core<H>>,
    options: S,
    entrance: &impl Entrance<H>,
    f: F,
    deadline: &Deadline,
) -> Result<R, DeadlineError<F>>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let call = Call {
        options,
        unstarted: UnsafeCell::new(None),
    };
    // Padded, so that the waiter shares no cache line with other variables of this thread.
    let waiter = CachePadded::new(CallNode::new(None, call));
    let task = erase(&core.env, &waiter, f);
    let wait = || wait_for(core, entrance, &waiter.node, task, deadline);
    let (task, why) = match abort_on_unwind(wait) {
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
    Err(unsafe { return_task::<S, F, R>(task, why) })
}

// The following steps are separate functions. In an unoptimized build, each temporary copy of a
// large closure takes space in the frame of its function. In one function, all these copies would
// be on the stack at once.

#[inline]
fn erase<S: StoredOptions, F: FnOnce() -> R, R>(env: &Env, waiter: &CallNode<S, R>, f: F) -> Task {
    let mut options = Options::default();
    waiter.more.options.add_options(&mut options);
    let job = WaitJob {
        waiter,
        has_options: !options.is_empty(),
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
unsafe fn return_task<S: StoredOptions, F: FnOnce() -> R, R>(
    task: Task,
    why: SubmitError,
) -> DeadlineError<F> {
    // SAFETY: by this function's contract.
    let ((), job) = unsafe { task.into_parts::<(), WaitJob<S, F, R>>() };
    match why {
        SubmitError::Expired => DeadlineError::Expired(Unrun::new(job.f)),
        SubmitError::Refused(why) => DeadlineError::Refused(Refused::new(job.f, why)),
    }
}

/// The end of a call, without the types of its closure and result.
enum CallEnd {
    Outcome,
    TimedOut,
    Back(Task, SubmitError),
}

/// Submits the task, and waits for its outcome.
fn wait_for<H: Host>(
    core: &Arc<Core<H>>,
    entrance: &impl Entrance<H>,
    node: &WaitNode,
    task: Task,
    deadline: &Deadline,
) -> CallEnd {
    let submission = Submission {
        deadline: Some(deadline),
        node: Some(node),
        awaited: true,
        ..Submission::PLAIN
    };
    let (mut task, mut debts) = (Some(task), None);
    let location = match entrance.submit(core, &mut task, submission, &mut debts) {
        Ok(location) => location,
        Err(why) => {
            core.pay_debts(debts);
            return CallEnd::Back(task.expect("what is refused stays"), why);
        }
    };
    let left_at = core.env.due(deadline);
    node.set_deadline(left_at);
    core.pay_debts(debts);
    match node.wait(deadline, core.parallel) {
        None => return time_out(core, location, entrance, node, left_at),
        Some(step) => {
            // A worker that took the task from the queue, or offered it again, has published its slot. It is probably
            // idle and does not sleep yet. So this thread tries that worker first for its next task.
            if let Some(slot) = node.worker_slot() {
                core.set_last_worker(slot, 0);
                core.set_last_task(location.unless_offered_again(node));
            }
            match step {
                Step::Yielded => core.result_came_after_yield(),
                _ => core.result_came_without_yield(),
            }
        }
    }
    CallEnd::Outcome
}

impl<H: Host> Core<H> {
    /// Takes a task back from the mailbox or the queue, and counts it by `count`. Returns `None` if a
    /// worker has started the task, or if another thread has taken it out first.
    #[must_use]
    pub(crate) fn withdraw(
        &self,
        location: Location,
        count: impl FnOnce(&Self, &Task),
        owed: &mut Owed,
    ) -> Option<Task> {
        let (slot, generation) = match location {
            Location::Mailbox { slot, generation } => (slot, generation),
            Location::Queue { position } => {
                let mut freed = Freed::default();
                let task = self.queue.take_if(position, &mut freed, |task| {
                    count(self, task);
                    true
                });
                owed.give_freed(&self.gate, &mut freed);
                return task;
            }
        };
        let it = &self.slots[slot];
        let (task, permit, claim) = it.revoke(generation)?;
        count(self, &task);
        it.record.count_unrun();
        // No thread may rely on the worker, which may be calling user code, so this is no notice.
        claim.send_uncounted();
        owed.give(&self.gate, permit);
        Some(task)
    }
}

/// Takes the task back, and counts it as expired. Returns `None` if a worker has started the task, or if
/// another thread has taken it out first.
#[cold]
fn take_back<H: Host>(
    core: &Arc<Core<H>>,
    location: Location,
    entrance: &impl Entrance<H>,
) -> Option<Task> {
    let mut owed = Owed::default();
    let count = |core: &Core<H>, _: &Task| H::count_unrun(core, TaskEnd::Expired);
    let task = core.withdraw(location, count, &mut owed);
    if task.is_some() {
        entrance.has_taken_back(&mut owed);
    }
    core.pay(&mut owed);
    task
}

/// Ends a call whose deadline has passed. Takes the task back if it has not started. Otherwise
/// leaves it running. If the outcome is already being delivered, waits for it instead.
#[cold]
fn time_out<H: Host>(
    core: &Arc<Core<H>>,
    first: Location,
    entrance: &impl Entrance<H>,
    node: &WaitNode,
    left_at: u64,
) -> CallEnd {
    let mut backoff = Backoff::default();
    while !node.is_done() {
        let location = first.unless_offered_again(node);
        if let Some(task) = take_back(core, location, entrance) {
            return CallEnd::Back(task, SubmitError::Expired);
        }
        let started_on = match location {
            Location::Mailbox { slot, .. } => Some(slot),
            Location::Queue { .. } => node.worker_slot(),
        };
        if let Some(slot) = started_on {
            let decision = &core.slots[slot].record.decision;
            if decision.abandon(location.task_id(), left_at) {
                // Relaxed: a count.
                core.env.counts.timed_out.fetch_add(1, Ordering::Relaxed);
                return CallEnd::TimedOut;
            }
        }
        backoff.wait();
    }
    CallEnd::Outcome
}
