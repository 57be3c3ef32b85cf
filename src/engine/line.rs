//! Who gives space to the line, and how an owner waits in it; see [`Line`](crate::parts::line::Line).

use super::admission::Not;
use super::core::Core;
use super::request::{Location, SubmitError, SubmitOptions};
use crate::error::Refusal;
use crate::parts::backoff::Backoff;
use crate::parts::completion::WakeUp;
use crate::parts::deadline::Deadline;
use crate::parts::line::Left;
use crate::parts::members::Members;
use crate::sync::{thread, Arc};
use crate::work::job::Task;
use crate::work::panics::contain;
use std::task::Waker;

/// A task in line.
pub(crate) struct Wanted {
    task: Option<Task>,
    members: Option<Arc<Members>>,
    /// Its owner is a future, which may never be polled again.
    is_future: bool,
}

/// A refused task goes back.
pub(crate) type Answer = Result<Location, (Task, Refusal)>;

impl Wanted {
    /// Takes the task out, to be given back.
    fn refuse(&mut self, why: Refusal) -> Answer {
        if let (Some(members), true) = (&self.members, self.is_future) {
            // The group's wait must not depend on a poll.
            members.leave();
        }
        Err((self.task.take().expect("a refused task stays"), why))
    }
}

impl Wanted {
    /// Returns the task of a future that leaves the line.
    pub(super) fn withdraw(mut self) -> Task {
        if let Some(members) = &self.members {
            members.leave();
        }
        self.task.take().expect("a task waits")
    }
}

fn wake(wakers: Vec<Waker>) {
    for waker in wakers {
        contain(|| waker.wake());
    }
}

impl Core {
    /// Gives the line what space there is. Every thread that has made space calls this. It may call
    /// wakers and drop what tasks captured, that is, run user code.
    #[inline]
    pub(crate) fn serve_line(self: &Arc<Self>) {
        if self.line.waiting() != 0 {
            self.serve_waiting();
        }
    }

    #[cold]
    fn serve_waiting(self: &Arc<Self>) {
        let mut cancelled = Vec::new();
        // What this thread does for others leaves its own last worker as it is.
        let wakers = Self::keep_affinity(|| {
            (self.line).serve(|wanted| self.serve_one(wanted, &mut cancelled))
        });
        wake(wakers);
        for members in cancelled {
            self.discard_queued(&members);
        }
    }

    fn serve_one(
        self: &Arc<Self>,
        wanted: &mut Wanted,
        cancelled: &mut Vec<Arc<Members>>,
    ) -> Option<Answer> {
        let is_cancelled = |members: &Option<Arc<Members>>| {
            members
                .as_ref()
                .is_some_and(|members| members.is_cancelled())
        };
        if is_cancelled(&wanted.members) {
            return Some(wanted.refuse(Refusal::Cancelled));
        }
        match self.attempt(&mut wanted.task, self.queue.as_ref()) {
            Ok(location) => {
                if let Some(members) = wanted.members.take() {
                    self.note_member(&members, location);
                    if members.is_cancelled() {
                        cancelled.push(members);
                    }
                }
                Some(Ok(location))
            }
            Err(Not::Refused(why)) => Some(wanted.refuse(why)),
            // `Now`: the thread whose step this met serves the line, if its step makes space.
            Err(Not::Saturated | Not::Now) => None,
        }
    }

    /// Gives the tasks of a cancelled group back that wait in line.
    pub(super) fn turn_away(&self, members: &Members) {
        if self.line.waiting() == 0 {
            return;
        }
        let is_member = |wanted: &Wanted| {
            let own = wanted.members.as_deref();
            own.is_some_and(|own| std::ptr::eq(own, members))
        };
        wake((self.line).turn_away(is_member, |mut wanted| wanted.refuse(Refusal::Cancelled)));
    }

    /// Leaves the task in line. A thread sleeps until it has its answer, or until the earlier of its deadline
    /// and `room_within`; a future gets the ticket to fetch the answer with.
    pub(super) fn wait_for_space(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
        room_within: &Deadline,
    ) -> Result<Location, SubmitError> {
        let wake_up = match options.waker {
            None => WakeUp::Thread(thread::current()),
            Some(waker) => WakeUp::Task(waker.clone()),
        };
        let wanted = Wanted {
            task: task.take(),
            members: options.members.cloned(),
            is_future: options.waker.is_some(),
        };
        let ticket = self.line.join(wanted, wake_up);
        if let Some(members) = options.members.filter(|members| members.is_cancelled()) {
            // The cancel may have come too early to find it in line (P3).
            self.turn_away(members);
        }
        self.serve_waiting();
        if options.waker.is_some() {
            return Err(SubmitError::InLine(ticket));
        }
        let Some(answer) = self.await_answer(ticket, options.earlier(room_within), task) else {
            return Err((options.expired()).unwrap_or(SubmitError::Refused(Refusal::Saturated)));
        };
        match answer {
            Ok(location) => {
                if let Location::Mailbox { slot, generation } = location {
                    self.set_affinity(slot, generation);
                }
                Ok(location)
            }
            Err((back, why)) => {
                *task = Some(back);
                Err(SubmitError::Refused(why))
            }
        }
    }

    /// Sleeps until the answer is there. Returns `None` if the deadline came first; the task is back then.
    fn await_answer(
        &self,
        ticket: u64,
        deadline: &Deadline,
        task: &mut Option<Task>,
    ) -> Option<Answer> {
        let mut backoff = Backoff::default();
        loop {
            if let Some(answer) = self.line.fetch(ticket, None) {
                return Some(answer);
            }
            if !deadline.has_passed() {
                deadline.park();
                continue;
            }
            match self.line.leave(ticket) {
                Left::Answered(answer) => return Some(answer),
                Left::Unanswered(wanted) => {
                    *task = wanted.task;
                    return None;
                }
                Left::Served => backoff.wait(),
            }
        }
    }
}
