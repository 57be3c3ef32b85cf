#![doc = include_str!("handle.md")]

use crate::core::submission::Location;
use crate::engine::group::submit_member;
use crate::engine::shared::Core;
use crate::engine::submit::request::SubmitterOptions;
use crate::error::{Panic, Refused, TaskError};
use crate::parts::completion::{pair, HandleSide, TaskSide, WaitNode};
use crate::parts::deadline::Deadline;
use crate::parts::members::Owner;
use crate::sync::Arc;
use crate::work::context::Ctx;
use crate::work::job::{End, HasEnded, Job, NeverRan, Release, Task, TaskEnd};
use crate::work::options::StoredOptions;
use crate::work::owed::Owed;
use std::task::Waker;

pub(crate) type Outcome<R> = Result<R, TaskError>;

/// The task of a handle. Its node has the label, beside the closure.
// SAFETY: as `Job` demands, the job may move to another thread and borrows nothing. `F` and `R` are
// `Send` and `'static`, and so is the rest of the node.
unsafe impl<F: FnOnce() -> R + Send + 'static, R: Send + 'static> Job for TaskSide<F, Outcome<R>> {
    const OFFERED: bool = true;

    fn own_options(&self) -> Option<&impl StoredOptions> {
        Some(&self.node().label)
    }

    fn node(&self) -> Option<&WaitNode> {
        Some(TaskSide::node(self))
    }

    fn run(mut self, ctx: &Ctx<'_>, end: End<'_>) -> HasEnded {
        let (decision, task_id) = (&ctx.record.decision, ctx.task_id.get());
        decision.start(task_id);
        if self.node().tell_slot(ctx.slot) {
            // The handle has cancelled the task, and has not found it: this worker had it in hand. If the handle
            // cancels once more, it finds the decision.
            if !decision.complete(task_id) {
                decision.forget(task_id);
            }
            ctx.may_owe();
            let has_ended = end.end(TaskEnd::Cancelled);
            let release = self.discard(|| TaskError::Cancelled);
            ctx.owe(|owed| release.settle(owed));
            return has_ended;
        }
        let f = self.take();
        // SAFETY: the decision was started above, and no caller's node is passed.
        let (panicked, result) = unsafe { ctx.run_decided(None, f, |_| !self.node().is_gone()) };
        // Another thread may register a waker until the outcome is there.
        ctx.may_owe();
        let has_ended = end.end(TaskEnd::ran(panicked));
        let outcome = result.map(|r| r.map_err(|payload| TaskError::Panicked(Panic::new(payload))));
        let remains = self.end(outcome).release();
        if !remains.is_empty() {
            ctx.owe(|owed| owed.calls().finish(remains));
        }
        has_ended
    }

    fn discard(mut self, why: NeverRan) -> Release {
        Release {
            captured: Some(Box::new(self.take())),
            caller: Some(self.end(Some(Err(why())))),
            group: None,
        }
    }
}

/// A handle's access to its task and its pool.
pub(crate) struct Ticket<R> {
    side: HandleSide<Outcome<R>>,
    core: Arc<Core>,
    /// The place where the task was put at first. `None` once the handle is detached, and so cannot cancel
    /// the task.
    location: Option<Location>,
}

/// Submits a closure as a task with a handle, in a group if `members` is given.
pub(crate) fn submit<F: FnOnce() -> R + Send + 'static, R: Send + 'static>(
    core: &Arc<Core>,
    members: Option<&Owner>,
    extras: &SubmitterOptions,
    closure: F,
) -> Result<Ticket<R>, Refused<F>> {
    let (task, side) = pair(extras.label, closure);
    let rest = SubmitterOptions {
        label: None,
        ..*extras
    };
    match submit_member(core, members, task, &rest) {
        Ok(location) => Ok(Ticket::new(side, core, location)),
        Err((task, why)) => Err(Refused::new(task.into_closure(), why)),
    }
}

impl<R> Ticket<R> {
    pub(crate) fn new(side: HandleSide<Outcome<R>>, core: &Arc<Core>, location: Location) -> Self {
        core.set_last_task(location);
        Self {
            side,
            core: Arc::clone(core),
            location: Some(location),
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.side.node().has_outcome()
    }

    /// Waits until the outcome is there. Returns `false` if the deadline came first.
    pub(crate) fn wait(&mut self, deadline: &Deadline) -> bool {
        self.side.wait(deadline, self.core.parallel)
    }

    /// Returns the outcome if it is there. Otherwise stores the waker, which is called once the
    /// outcome is there.
    pub(crate) fn poll(&mut self, waker: &Waker) -> Option<Outcome<R>> {
        self.side.poll(waker).then(|| self.take())
    }

    /// Takes the outcome, which must be there.
    pub(crate) fn take(&mut self) -> Outcome<R> {
        // The worker is probably idle or calls this handle's waker. It is this thread's last worker
        // now, so a sequential caller uses one worker, even if it awaits on several threads.
        if let (Some(slot), Some(location)) = (self.side.node().worker_slot(), self.location) {
            self.core.set_last_worker(slot, 0);
            self.core.set_last_task(location);
        }
        (self.side.take()).expect("a `Handle` has no second outcome: it was ready before")
    }

    /// Cancels the task. If no worker has started it, takes it out of the queue or the mailbox, and
    /// discards it. Otherwise marks it as cancelled. Does nothing if the task has ended.
    pub(crate) fn cancel(&self) {
        let mut owed = Owed::default();
        self.cancel_owing(&mut owed);
        self.core.pay(&mut owed);
    }

    /// Cancels the task, as [`cancel`](Self::cancel) does. Notes in `owed` what is left to do.
    fn cancel_owing(&self, owed: &mut Owed) {
        let (node, core) = (self.side.node(), &self.core);
        let Some(location) = self.location.filter(|_| !node.has_outcome()) else {
            return;
        };
        if let Some(slot) = node.cancel() {
            let decision = &core.slots[slot].record.decision;
            let _ = decision.abandon(location.task_id(), 0);
            return;
        }
        let count = |core: &Core, task: &Task| _ = core.count_removed(task);
        let task = core.withdraw(location, count, owed);
        core.discard(task, || TaskError::Cancelled, owed);
    }

    /// Lets the task continue after the handle has been dropped.
    pub(crate) fn detach(&mut self) {
        self.location = None;
    }
}

impl<R> Drop for Ticket<R> {
    fn drop(&mut self) {
        // First of all, so that a worker whose task is found abandoned keeps its value.
        self.side.node().begin_release();
        let mut owed = Owed::default();
        // The stored waker must not be called after the handle is gone.
        owed.drop_wake_up(self.side.retract());
        self.cancel_owing(&mut owed);
        self.core.pay(&mut owed);
    }
}
