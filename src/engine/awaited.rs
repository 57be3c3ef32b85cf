//! A task with a handle: the call of [`call`](super::call) cut into its three steps, submit, wait,
//! leave, with its node on the heap.
//!
//! Who owns what of the node is said in [`completion`](crate::parts::completion). A handle that cancels
//! its task takes it out, from where it was put; or it leaves a mark in the node, and tells the worker
//! that runs the task. A worker that finds the mark as it starts the task tells itself.

use super::core::Core;
use super::counts::Counts;
use super::discard::drop_listed;
use super::groups::submit_member;
use super::request::{Extras, Location, SubmitOptions};
use super::submit::submit_with;
use crate::error::{Panic, Refused, TaskError};
use crate::parts::completion::{pair, HandleSide, TaskSide};
use crate::parts::deadline::Deadline;
use crate::parts::members::{Ended, Handle as Members};
use crate::sync::Arc;
use crate::work::context::Ctx;
use crate::work::job::{End, Job, NeverRan, Release};
use crate::work::observe::{self, Seen};
use crate::work::options::{Options, Times};
use crate::work::panics::drop_contained;
use std::task::Waker;

type Outcome<R> = Result<R, TaskError>;

/// The task of a handle. Its times are beside its closure, so that it needs no second allocation.
// SAFETY: F and R are Send and 'static, and so is the rest of the node.
unsafe impl<F, R> Job for TaskSide<(Option<Times>, F), Outcome<R>>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    const OFFERED: bool = true;

    fn options<'a>(&'a self, stored: Options<'a>) -> Options<'a> {
        Options {
            label: self.node().label,
            times: self.peek(|(times, _)| *times),
            ..stored
        }
    }

    fn run(mut self, ctx: &Ctx<'_>, end: End<'_>) {
        let (_, f) = self.take();
        let (decision, task_id) = (&ctx.record.decision, ctx.task_id.get());
        decision.start(task_id);
        if self.node().tell_slot(ctx.slot) && decision.leave(task_id, 0) {
            // Before the subscriber, which may take its time.
            ctx.pay_debts();
            observe::worker_abandoned(ctx.env, ctx.slot, self.node().label, "cancelled");
        }
        // SAFETY: its decision was started; no caller's node.
        let (panicked, result) = unsafe { ctx.run_decided(None, f, |_| !self.node().is_gone()) };
        end(Ended::ran(panicked));
        let outcome = result.map(|r| r.map_err(|payload| TaskError::Panicked(Panic::new(payload))));
        ctx.owe(self.end(outcome).release());
    }

    fn discard(mut self, why: NeverRan, seen: Seen) -> Release {
        drop_contained(self.take().1);
        let why = match why {
            NeverRan::Expired => TaskError::Expired,
            NeverRan::Cancelled => TaskError::Cancelled,
            NeverRan::Discarded => TaskError::Discarded,
        };
        Release {
            caller: Some(self.end(Some(Err(why)))),
            seen,
            ..Release::default()
        }
    }
}

/// What a handle needs of its task and its pool.
pub(crate) struct Ticket<R> {
    side: HandleSide<Outcome<R>>,
    core: Arc<Core>,
    location: Location,
    /// Its task runs whatever becomes of it.
    is_detached: bool,
}

/// Submits a closure, to a group or to none.
pub(crate) fn submit<F, R>(
    core: &Arc<Core>,
    members: Option<&Members>,
    extras: &Extras,
    closure: F,
) -> Result<Ticket<R>, Refused<F>>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let (deadline, times) = extras.times(&core.env);
    let (task, side) = pair(extras.label, (times, closure));
    let rest = Extras {
        when_full: extras.when_full,
        ..Extras::NONE
    };
    let options = SubmitOptions {
        deadline: Some(&deadline),
        ..rest.plain()
    };
    let served = match members {
        None => submit_with(core, (), task, options),
        Some(members) => submit_member(core, members, task, options),
    };
    match served {
        Ok(location) => Ok(Ticket {
            side,
            core: Arc::clone(core),
            location,
            is_detached: false,
        }),
        Err((mut task, why)) => {
            let (_, closure) = task.take();
            drop(side);
            // Nobody has stored a waker, and there is no outcome: the node goes, and no more.
            drop(task.end(None).release());
            Err(Refused::new(closure, why))
        }
    }
}

impl<R> Ticket<R> {
    pub(crate) fn is_finished(&self) -> bool {
        self.side.node().has_outcome() || self.core.env.is_forked()
    }

    /// Waits until the outcome is there; `false` if the deadline came first. In a forked child it does
    /// not wait.
    pub(crate) fn wait(&mut self, deadline: &Deadline) -> bool {
        if self.core.env.is_forked() {
            return true;
        }
        if !self.is_finished() {
            drop_listed();
        }
        self.side.wait(deadline, self.core.parallel)
    }

    /// The outcome, if it is there, and otherwise the waker is called once it is.
    pub(crate) fn poll(&mut self, waker: &Waker) -> Option<Outcome<R>> {
        let is_there = self.is_finished() || self.side.poll(waker);
        is_there.then(|| self.take())
    }

    /// The outcome, which is there. In a forked child that may have been the parent's: here the task
    /// does not run.
    pub(crate) fn take(&mut self) -> Outcome<R> {
        if !self.side.node().has_outcome() {
            return Err(TaskError::Discarded);
        }
        (self.side.take()).expect("a `Handle` has no second outcome: it was ready before")
    }

    pub(crate) fn cancel(&self) {
        let node = self.side.node();
        if node.has_outcome() || self.core.env.is_forked() {
            return;
        }
        let core = &self.core;
        if let Some(task) = core.withdraw(self.location, Counts::discard) {
            return core.discard([task], NeverRan::Cancelled);
        }
        let Some(slot) = node.cancel() else { return };
        let decision = &core.slots[slot].record.decision;
        if decision.leave(self.location.task_id(), 0) {
            observe::worker_abandoned(&core.env, slot, node.label, "cancelled");
        }
    }

    pub(crate) fn detach(&mut self) {
        self.is_detached = true;
    }
}

impl<R> Drop for Ticket<R> {
    fn drop(&mut self) {
        if !self.is_detached {
            // Whom nobody is to wake any more.
            let _stored = self.side.retract();
            self.cancel();
        }
    }
}
