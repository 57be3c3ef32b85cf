//! A task with a handle: the call of [`call`](super::call) cut into its three steps, submit, wait,
//! leave, with its node on the heap.
//!
//! Who owns what of the node is said in [`completion`](crate::parts::completion). A handle that cancels
//! its task takes it out, from where it was put; or it leaves a mark in the node, and tells the worker
//! that runs the task. A worker that finds the mark as it starts the task tells itself.

use super::core::Core;
use super::groups::submit_member;
use super::request::{Extras, Location, SubmitOptions};
use super::submit::submit_with;
use crate::error::{Panic, Refused, TaskError};
use crate::parts::completion::{pair, HandleSide, TaskSide};
use crate::parts::deadline::Deadline;
use crate::parts::members::{Ended, Members};
use crate::sync::Arc;
use crate::work::context::Ctx;
use crate::work::job::{Captured, End, Job, NeverRan, Release};
use crate::work::options::{Options, Times};
use std::task::Waker;

pub(crate) type Outcome<R> = Result<R, TaskError>;

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
        if self.node().tell_slot(ctx.slot) {
            let _ = decision.leave(task_id, 0);
        }
        // SAFETY: its decision was started; no caller's node.
        let (panicked, result) = unsafe { ctx.run_decided(None, f, |_| !self.node().is_gone()) };
        end(Ended::ran(panicked));
        let outcome = result.map(|r| r.map_err(|payload| TaskError::Panicked(Panic::new(payload))));
        ctx.defer_wake(self.end(outcome).release());
    }

    fn discard(mut self, why: NeverRan) -> Release {
        let captured: Captured = Box::new(self.take().1);
        let why = match why {
            NeverRan::Expired => TaskError::Expired,
            NeverRan::Cancelled => TaskError::Cancelled,
            NeverRan::Discarded => TaskError::Discarded,
        };
        Release {
            caller: Some(self.end(Some(Err(why)))),
            captured: Some(captured),
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
    members: Option<&Arc<Members>>,
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
        Ok(location) => Ok(Ticket::new(side, core, location)),
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
    pub(super) fn new(side: HandleSide<Outcome<R>>, core: &Arc<Core>, location: Location) -> Self {
        Self {
            side,
            core: Arc::clone(core),
            location,
            is_detached: false,
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.side.node().has_outcome()
    }

    /// Waits until the outcome is there. Returns `false` if the deadline came first.
    pub(crate) fn wait(&mut self, deadline: &Deadline) -> bool {
        self.side.wait(deadline, self.core.parallel)
    }

    /// The outcome, if it is there, and otherwise the waker is called once it is.
    pub(crate) fn poll(&mut self, waker: &Waker) -> Option<Outcome<R>> {
        let is_there = self.is_finished() || self.side.poll(waker);
        is_there.then(|| self.take())
    }

    /// Returns the outcome, which is there.
    pub(crate) fn take(&mut self) -> Outcome<R> {
        (self.side.take()).expect("a `Handle` has no second outcome: it was ready before")
    }

    pub(crate) fn cancel(&self) {
        let node = self.side.node();
        if node.has_outcome() {
            return;
        }
        let core = &self.core;
        if let Some(task) = core.withdraw(self.location, Core::count_unrun) {
            return core.discard(vec![task], NeverRan::Cancelled);
        }
        if let Some(slot) = node.cancel() {
            let decision = &core.slots[slot].record.decision;
            let _ = decision.leave(self.location.task_id(), 0);
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
