//! A task with a handle whose submission waits for space as a future. The task stands in line without a
//! thread, and gets its space whether the future is polled or not.

use super::awaited::{Outcome, Ticket};
use super::core::Core;
use super::request::{Extras, SubmitError, SubmitOptions};
use crate::error::{Refusal, Refused};
use crate::parts::backoff::Backoff;
use crate::parts::completion::{pair, HandleSide, TaskSide};
use crate::parts::line::Left;
use crate::parts::members::{Members, Pending};
use crate::sync::Arc;
use crate::work::job::Task;
use crate::work::observe::Submitted;
use crate::work::options::Times;
use std::task::{Poll, Waker};

type Side<F, R> = TaskSide<(Option<Times>, F), Outcome<R>>;
type Served<F, R> = Result<Ticket<R>, Refused<F>>;

enum State<F, R> {
    New(F),
    InLine(u64, HandleSide<Outcome<R>>),
    Done,
}

pub(crate) struct Serving<F, R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    core: Arc<Core>,
    members: Option<Arc<Members>>,
    extras: Extras,
    state: State<F, R>,
}

impl<F, R> Serving<F, R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    pub(crate) fn new(
        core: &Arc<Core>,
        members: Option<&Arc<Members>>,
        extras: Extras,
        closure: F,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            members: members.cloned(),
            extras,
            state: State::New(closure),
        }
    }

    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<Served<F, R>> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::New(closure) => self.start(closure, waker),
            State::InLine(ticket, side) => self.look(ticket, side, waker),
            State::Done => panic!("`ServeAsync` was polled after it had returned `Ready`"),
        }
    }

    /// Submits the task, or leaves it in line.
    fn start(&mut self, closure: F, waker: &Waker) -> Poll<Served<F, R>> {
        let core = Arc::clone(&self.core);
        let may_enter = |members: &Members| !core.env.is_forked() && members.enter();
        if let Some(members) = self.members.as_ref().filter(|members| !may_enter(members)) {
            return Poll::Ready(Err(Refused::new(closure, core.refuse_member(members))));
        }
        let (_, times) = self.extras.times(&core.env);
        let (job, side) = pair(self.extras.label, (times, closure));
        let submitted = Submitted::now(&core.env);
        let mut task = Some(match &self.members {
            None => Task::new(submitted, (), job),
            Some(members) => Task::new(submitted, Pending(Arc::clone(members)), job),
        });
        let options = SubmitOptions {
            members: self.members.as_ref(),
            waker: Some(waker),
            ..Extras::NONE.plain()
        };
        match core.submit(&mut task, &options) {
            Ok(location) => {
                if let Some(members) = &self.members {
                    core.member_accepted(members, location);
                }
                Poll::Ready(Ok(Ticket::new(side, &core, location)))
            }
            Err(SubmitError::InLine(ticket)) => self.look(ticket, side, waker),
            Err(why) => {
                let task = task.expect("a refused task stays");
                if let Some(members) = &self.members {
                    members.leave();
                }
                Poll::Ready(Err(self.refused(task, why.into_refusal())))
            }
        }
    }

    /// Looks for the answer.
    fn look(
        &mut self,
        ticket: u64,
        side: HandleSide<Outcome<R>>,
        waker: &Waker,
    ) -> Poll<Served<F, R>> {
        match self.core.line.fetch(ticket, Some(waker)) {
            None => {
                self.state = State::InLine(ticket, side);
                Poll::Pending
            }
            Some(Ok(location)) => Poll::Ready(Ok(Ticket::new(side, &self.core, location))),
            Some(Err((task, why))) => {
                let why = self.core.counts.refuse(SubmitError::Refused(why));
                Poll::Ready(Err(self.refused(task, why.into_refusal())))
            }
        }
    }

    fn refused(&self, task: Task, why: Refusal) -> Refused<F> {
        Refused::new(self.take_apart(task), why)
    }

    /// Returns the closure of a task that was not accepted.
    fn take_apart(&self, task: Task) -> F {
        let mut job: Side<F, R> = if self.members.is_some() {
            // SAFETY: only this future's task comes back to it, made as a member's.
            unsafe { task.into_parts::<Pending, Side<F, R>>() }.1
        } else {
            // SAFETY: the same, as no member's.
            unsafe { task.into_parts::<(), Side<F, R>>() }.1
        };
        let (_, closure) = job.take();
        // No waker was stored in the node, and there is no outcome.
        drop(job.end(None).release());
        closure
    }
}

impl<F, R> Drop for Serving<F, R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    /// Leaves the line. If the task has been accepted, it is cancelled as by its handle's drop.
    fn drop(&mut self) {
        let State::InLine(ticket, side) = std::mem::replace(&mut self.state, State::Done) else {
            return;
        };
        let mut backoff = Backoff::default();
        let task = loop {
            match self.core.line.leave(ticket) {
                Left::Answered(Ok(location)) => {
                    return drop(Ticket::new(side, &self.core, location));
                }
                Left::Answered(Err((task, _))) => break task,
                Left::Unanswered(wanted) => break wanted.withdraw(),
                Left::Served => backoff.wait(),
            }
        };
        drop(side);
        drop(self.take_apart(task));
    }
}
