//! The future that waits for space for a task, then returns the task's handle. The task waits in
//! line without a thread, and gets its space whether the future is polled or not.

use super::awaited::{Outcome, Ticket};
use super::core::Core;
use super::request::{Answer, Extras, SubmitError};
use crate::error::{Refusal, Refused};
use crate::parts::completion::{pair, HandleSide, TaskSide, WakeUp};
use crate::parts::members::{Owner, Pending};
use crate::sync::Arc;
use crate::work::job::Task;
use crate::work::observe::Moment;
use crate::work::options::Times;
use crate::work::panics::drop_contained;
use std::task::{Poll, Waker};

type Served<F, R> = Result<Ticket<R>, Refused<F>>;

pub(crate) struct Serving<F: FnOnce() -> R + Send + 'static, R: Send + 'static> {
    core: Arc<Core>,
    members: Option<Owner>,
    extras: Extras,
    /// `None` once the future has been polled.
    closure: Option<F>,
    /// The task's ticket, and its handle's side, while the task is in line.
    in_line: Option<(u64, HandleSide<Outcome<R>>)>,
}

impl<F: FnOnce() -> R + Send + 'static, R: Send + 'static> Serving<F, R> {
    pub(crate) fn new(core: Arc<Core>, members: Option<Owner>, extras: Extras, closure: F) -> Self {
        Self {
            core,
            members,
            extras,
            closure: Some(closure),
            in_line: None,
        }
    }

    /// Puts the task in line at the first call. Then fetches its answer. If there is none yet,
    /// stores the waker. If the clone of the waker panics, the task stays in line.
    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<Served<F, R>> {
        if let Some(closure) = self.closure.take() {
            if let Some(served) = self.start(closure) {
                return Poll::Ready(served);
            }
        }
        let (ticket, _) =
            (self.in_line.as_ref()).expect("`ServeAsync` was polled after it had returned `Ready`");
        let mut wake_up = Some(WakeUp::Task(waker.clone()));
        let answer = self.core.line.fetch(*ticket, &mut wake_up);
        // The drop of a waker is user code. Its panic must not lose the answer.
        drop_contained(wake_up);
        let Some(answer) = answer else {
            return Poll::Pending;
        };
        let (_, side) = self.in_line.take().expect("it has an answer");
        Poll::Ready(self.answered(answer, side))
    }

    /// Puts the task in line and serves the line, which submits the task if there is space. Returns
    /// the result if the group refuses the task, or if this thread is a worker, which must not wait.
    fn start(&mut self, closure: F) -> Option<Served<F, R>> {
        let core = &self.core;
        let pending = match core.enter(self.members.as_ref()) {
            Ok(pending) => pending,
            Err(why) => return Some(Err(Refused::new(closure, why))),
        };
        let (_, times) = self.extras.times(&core.env);
        let (job, side) = pair(self.extras.label, closure);
        let task = Task::new(Moment::now(&core.env), (times, pending), job);
        let submitted = core.submitted_at();
        let ticket = core.join_line(task, self.members.as_deref(), submitted, None);
        if core.env.is_own_worker() {
            let answer = core.leave_line(ticket, Refusal::OnWorker);
            return Some(self.answered(answer, side));
        }
        self.in_line = Some((ticket, side));
        None
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
        let (_, job) = unsafe {
            task.into_parts::<(Option<Times>, Option<Pending>), TaskSide<F, Outcome<R>>>()
        };
        job.give_back()
    }
}

impl<F: FnOnce() -> R + Send + 'static, R: Send + 'static> Drop for Serving<F, R> {
    /// Leaves the line. If the task has been accepted, cancels it, as a drop of its handle does.
    fn drop(&mut self) {
        if let Some((ticket, side)) = self.in_line.take() {
            match self.core.leave_line(ticket, Refusal::Cancelled) {
                Ok(location) => drop(Ticket::new(side, &self.core, location)),
                Err((task, _)) => {
                    drop(side);
                    drop(self.take_apart(task));
                }
            }
        }
    }
}
