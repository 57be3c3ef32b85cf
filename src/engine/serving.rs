//! The future that waits for space for a task, then returns the task's handle. The task waits in
//! line without a thread, and gets its space whether the future is polled or not.

use super::awaited::{Outcome, Ticket};
use super::core::Core;
use super::request::{Answer, Extras, SubmitError};
use crate::error::{Refusal, Refused};
use crate::parts::completion::{pair, HandleSide, TaskSide};
use crate::parts::members::{Owner, Pending};
use crate::sync::Arc;
use crate::work::job::Task;
use crate::work::observe::Moment;
use crate::work::options::Times;
use std::task::{Poll, Waker};

type Side<F, R> = TaskSide<(Option<Times>, F), Outcome<R>>;
type Served<F, R> = Result<Ticket<R>, Refused<F>>;

enum Stage<F, R> {
    /// The future has not been polled yet.
    New(F),
    /// The task is in line, with this ticket.
    InLine(u64, HandleSide<Outcome<R>>),
    Done,
}

pub(crate) struct Serving<F, R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    core: Arc<Core>,
    members: Option<Owner>,
    extras: Extras,
    stage: Stage<F, R>,
}

impl<F, R> Serving<F, R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    pub(crate) fn new(
        core: &Arc<Core>,
        members: Option<&Owner>,
        extras: Extras,
        closure: F,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            members: members.cloned(),
            extras,
            stage: Stage::New(closure),
        }
    }

    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<Served<F, R>> {
        if let Stage::InLine(ticket, _) = self.stage {
            return self.look(ticket, waker);
        }
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::New(closure) => self.start(closure, waker),
            _ => panic!("`ServeAsync` was polled after it had returned `Ready`"),
        }
    }

    /// Puts the task in line and serves the line, which submits the task if there is space.
    fn start(&mut self, closure: F, waker: &Waker) -> Poll<Served<F, R>> {
        let core = Arc::clone(&self.core);
        let pending = match core.enter(self.members.as_ref()) {
            Ok(pending) => pending,
            Err(why) => return Poll::Ready(Err(Refused::new(closure, why))),
        };
        let (_, times) = self.extras.times(&core.env);
        let (job, side) = pair(self.extras.label, (times, closure));
        let submitted = Moment::now(&core.env);
        let task = Task::new(submitted, pending, job);
        let submitted = core.submitted_at();
        let ticket = core.join_line(task, self.members.as_deref(), submitted, None);
        if !core.env.is_own_worker() {
            self.stage = Stage::InLine(ticket, side);
            return self.look(ticket, waker);
        }
        Poll::Ready(match core.leave_line(ticket) {
            Ok(answer) => self.answered(answer, side),
            Err(wanted) => self.answered(Err((wanted.withdraw(), Refusal::OnWorker)), side),
        })
    }

    /// Fetches the answer. If there is none yet, stores the waker. If the clone of the waker
    /// panics, the task stays in line.
    fn look(&mut self, ticket: u64, waker: &Waker) -> Poll<Served<F, R>> {
        let Some(answer) = self.core.line.fetch(ticket, Some(waker)) else {
            return Poll::Pending;
        };
        let Stage::InLine(_, side) = std::mem::replace(&mut self.stage, Stage::Done) else {
            unreachable!("its task is in line");
        };
        Poll::Ready(self.answered(answer, side))
    }

    /// Turns an answer into the result of the future.
    fn answered(&self, answer: Answer, side: HandleSide<Outcome<R>>) -> Served<F, R> {
        match answer {
            Ok(location) => Ok(Ticket::new(side, &self.core, location)),
            Err((task, why)) => {
                let why = self.core.counts.refuse(SubmitError::Refused(why));
                Err(Refused::new(self.take_apart(task), why.into_refusal()))
            }
        }
    }

    /// Returns the closure of a task that was not accepted.
    fn take_apart(&self, task: Task) -> F {
        // SAFETY: the line gives back only the task that `start` put into it, and `start` made that
        // task from these types.
        let (_, job) = unsafe { task.into_parts::<Option<Pending>, Side<F, R>>() };
        job.give_back().1
    }
}

impl<F, R> Drop for Serving<F, R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    /// Leaves the line. If the task has been accepted, cancels it, as a drop of its handle does.
    fn drop(&mut self) {
        let Stage::InLine(ticket, side) = std::mem::replace(&mut self.stage, Stage::Done) else {
            return;
        };
        let task = match self.core.leave_line(ticket) {
            Ok(Ok(location)) => return drop(Ticket::new(side, &self.core, location)),
            Ok(Err((task, _))) => task,
            Err(wanted) => wanted.withdraw(),
        };
        drop(side);
        drop(self.take_apart(task));
    }
}
