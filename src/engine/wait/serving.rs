//! The future that waits for space for a task, then returns the task's handle. The task waits in
//! line without a thread, and gets its space whether the future is polled or not.

use crate::core::submission::Submission;
use crate::engine::handle::{Outcome, Ticket};
use crate::engine::shared::Core;
use crate::engine::submit::request::{Answer, SubmitOptions, SubmitterOptions};
use crate::engine::wait::admission::Admitted;
use crate::error::Refused;
use crate::parts::completion::{pair, HandleSide, TaskSide, WakeUp};
use crate::parts::members::{Owner, Pending};
use crate::stats::WhenFull;
use crate::sync::panics::drop_contained;
use crate::sync::{assert_unlocked, Arc};
use crate::work::job::Task;
use crate::work::observe::Moment;
use crate::work::options::TaskTimes;
use crate::work::owed::{exit_group, Owed};
use std::task::{Poll, Waker};

type ServeResult<F, R> = Result<Ticket<R>, Refused<F>>;

pub(crate) struct Serving<F: FnOnce() -> R + Send + 'static, R: Send + 'static> {
    core: Arc<Core>,
    members: Option<Owner>,
    extras: SubmitterOptions,
    /// `None` once the future has been polled.
    closure: Option<F>,
    /// The task's ticket, and its handle's side, while the task is in line.
    in_line: Option<(u64, HandleSide<Outcome<R>>)>,
}

impl<F: FnOnce() -> R + Send + 'static, R: Send + 'static> Serving<F, R> {
    pub(crate) fn new(
        core: Arc<Core>,
        members: Option<Owner>,
        extras: SubmitterOptions,
        closure: F,
    ) -> Self {
        Self {
            core,
            members,
            extras,
            closure: Some(closure),
            in_line: None,
        }
    }

    /// Submits the task at the first call, or puts it in line. Then fetches its answer. If there is none
    /// yet, stores the waker. If the clone of the waker panics, the task stays in line.
    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<ServeResult<F, R>> {
        if let Some(closure) = self.closure.take() {
            if let Some(served) = self.start(closure) {
                return Poll::Ready(served);
            }
        }
        let (ticket, _) =
            (self.in_line.as_ref()).expect("`ServeAsync` was polled after it had returned `Ready`");
        assert_unlocked();
        let mut wake_up = Some(WakeUp::Task(waker.clone()));
        let answer = self.core.host.line.fetch(*ticket, &mut wake_up);
        // The drop of a waker is user code. Its panic must not lose the answer.
        drop_contained(wake_up);
        let Some(answer) = answer else {
            return Poll::Pending;
        };
        let (_, side) = self.in_line.take().expect("it has an answer");
        Poll::Ready(self.answered(answer, side))
    }

    /// Submits the task, or puts it in line. Returns the result, or `None` if the task waits.
    fn start(&mut self, closure: F) -> Option<ServeResult<F, R>> {
        let core = &self.core;
        // The future waits, whatever the policy.
        let extras = SubmitterOptions {
            when_full: Some(WhenFull::Block),
            ..self.extras
        };
        let members = self.members.as_ref();
        let (deadline, times) = extras.times(&core.env);
        let submission = Submission {
            deadline: Some(&deadline),
            ..Submission::PLAIN
        };
        let options = SubmitOptions {
            submission,
            ..extras.plain()
        };
        let entered = match core.enter(members, &options) {
            Ok(entered) => entered,
            Err(why) => return Some(Err(Refused::new(closure, why.into_refusal()))),
        };
        let (pending, options) = entered.add_to(members, options);
        let (job, side) = pair(self.extras.label, closure);
        let task = Task::new(Moment::now(&core.env), (times, pending), job);
        let (mut task, mut debts) = (Some(task), None);
        let result = match core.admit_future(&mut task, &options, &mut debts) {
            Ok(Admitted::InLine(ticket)) => {
                self.in_line = Some((ticket, side));
                None
            }
            Ok(Admitted::Accepted(location)) => Some(Ok(Ticket::new(side, core, location))),
            Err(why) => {
                let task = task.expect("a refused task stays");
                let (closure, pending) = self.take_apart(task);
                exit_group(&mut debts, pending.and_then(Pending::exit));
                Some(Err(Refused::new(closure, why.into_refusal())))
            }
        };
        core.pay_debts(debts);
        result
    }

    /// Turns an answer into the result of the future.
    fn answered(&self, answer: Answer, side: HandleSide<Outcome<R>>) -> ServeResult<F, R> {
        match answer {
            Ok(location) => Ok(Ticket::new(side, &self.core, location)),
            Err((task, why)) => {
                let (closure, pending) = self.take_apart(task);
                debug_assert!(pending.is_none(), "who has refused it has taken it out");
                Err(Refused::new(closure, why))
            }
        }
    }

    /// Returns the closure of a task that was not accepted, and the task's place in its group.
    fn take_apart(&self, task: Task) -> (F, Option<Pending>) {
        // SAFETY: the line gives back only the task that `start` put into it, and `start` made that
        // task from these types.
        let ((_, pending), job) = unsafe {
            task.into_parts::<(Option<TaskTimes>, Option<Pending>), TaskSide<F, Outcome<R>>>()
        };
        (job.into_closure(), pending)
    }
}

impl<F: FnOnce() -> R + Send + 'static, R: Send + 'static> Drop for Serving<F, R> {
    /// Leaves the line. If the task has been accepted, cancels it, as a drop of its handle does.
    fn drop(&mut self) {
        let Some((ticket, side)) = self.in_line.take() else {
            return;
        };
        let mut owed = Owed::default();
        let task = match self.core.leave_line(ticket, &mut owed) {
            Ok(Ok(location)) => return drop(Ticket::new(side, &self.core, location)),
            Ok(Err((task, _))) => task,
            Err(left) => {
                owed.drop_wake_up(left.wake_up);
                left.task
            }
        };
        let (closure, pending) = self.take_apart(task);
        // Who has refused a task in line has taken it out of its group.
        owed.exit_group(pending.and_then(Pending::exit));
        drop(side);
        // The closure may have captured another future that waits. So it is dropped with nothing else
        // on the stack.
        owed.calls().drop_captured(Box::new(closure));
        self.core.pay(&mut owed);
    }
}
