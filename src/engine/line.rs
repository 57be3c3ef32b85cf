//! How threads serve the line, and how a submission waits in it; see
//! [`Line`](crate::parts::line::Line).

use super::core::Core;
use super::request::{Answer, Location, SubmitOptions, Wanted};
use crate::error::Refusal;
use crate::parts::backoff::Backoff;
use crate::parts::completion::WakeUp;
use crate::parts::deadline::Deadline;
use crate::parts::line::Left;
use crate::parts::members::Members;
use crate::sync::{thread, Arc};
use crate::work::job::Task;
use crate::work::panics::drop_contained;

impl Core {
    /// Gives free space to the submissions in line. Every thread that has made space calls this
    /// (W1). This call may run user code: it may call wakers and drop the captures of tasks.
    ///
    /// The recursion is bounded. An attempt for an entry may make space and call this function
    /// again. The line has a server then, so the inner call only leaves an event and returns (W2).
    /// A waker may also call this function again. The inner call then leaves further wakers to the
    /// call of [`Core::in_frame`] that called this waker.
    #[inline]
    pub(crate) fn serve_line(self: &Arc<Self>) {
        if self.line.waiting() != 0 {
            self.serve_waiting();
        }
    }

    #[cold]
    fn serve_waiting(self: &Arc<Self>) {
        self.in_frame(|frame| {
            // An attempt for another thread's task must not change this thread's last worker.
            while let Some(waker) =
                Self::keep_affinity(|| self.line.serve(|wanted| self.serve_one(wanted)))
            {
                frame.add_waker(waker);
            }
        });
    }

    /// Attempts to submit the task of one entry. Returns the answer for its owner, or `None` if
    /// there is no space.
    fn serve_one(self: &Arc<Self>, wanted: &mut Wanted) -> Option<Answer> {
        let members = wanted.members.as_deref();
        if members.is_some_and(Members::is_cancelled) {
            return Some(wanted.refuse(Refusal::Cancelled));
        }
        match self.attempt(&mut wanted.task, self.queue.as_ref(), wanted.submitted) {
            Some(Ok(location)) => {
                if let Some(members) = wanted.members.take() {
                    self.member_accepted(&members, location);
                }
                Some(Ok(location))
            }
            // `None`: another thread is in the middle of a step. If that step makes space, that
            // thread serves the line afterwards.
            None | Some(Err(Refusal::Saturated)) => None,
            Some(Err(why)) => Some(wanted.refuse(why)),
        }
    }

    /// Takes the tasks of a cancelled group out of the line, and gives them back to their owners.
    pub(super) fn turn_away(&self, members: &Members) {
        if self.line.waiting() == 0 {
            return;
        }
        let is_member = |wanted: &Wanted| {
            let own = wanted.members.as_deref();
            own.is_some_and(|own| std::ptr::eq(own, members))
        };
        let answer = |mut wanted: Wanted| wanted.refuse(Refusal::Cancelled);
        self.in_frame(|frame| {
            let wakers = self.line.turn_away(is_member, answer);
            wakers.into_iter().for_each(|waker| frame.add_waker(waker));
        });
    }

    /// Puts the task at the end of the line, and serves the line once. Returns the ticket. `thread`
    /// is the owner's wake-up, or `None` if the owner is a future.
    pub(super) fn join_line(
        self: &Arc<Self>,
        task: Task,
        members: Option<&Arc<Members>>,
        submitted: u64,
        thread: Option<WakeUp>,
    ) -> u64 {
        let wanted = Wanted {
            task: Some(task),
            members: members.cloned(),
            is_future: thread.is_none(),
            submitted,
        };
        let ticket = self.line.join(wanted, thread);
        if let Some(members) = members.filter(|members| members.is_cancelled()) {
            // The cancel may have searched the line before the task joined it (P3).
            self.turn_away(members);
        }
        self.serve_waiting();
        ticket
    }

    /// Puts the task at the end of the line, and sleeps until it has an answer, or until the
    /// earlier of the submission's deadline and `block_until`. If that comes first, the error is
    /// `Saturated`.
    pub(super) fn wait_for_space(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
        block_until: &Deadline,
        submitted: u64,
    ) -> Result<Location, Refusal> {
        let wanted = task.take().expect("a task to submit");
        let thread = Some(WakeUp::Thread(thread::current()));
        let ticket = self.join_line(wanted, options.members, submitted, thread);
        let own = options.deadline.unwrap_or(block_until);
        let until = std::cmp::min_by_key(own, block_until, |deadline| self.env.due(deadline));
        let answer = loop {
            if let Some(answer) = self.line.fetch(ticket, &mut None) {
                break answer;
            }
            if !until.park() {
                break self.leave_line(ticket, Refusal::Saturated);
            }
        };
        let location = answer.map_err(|(back, why)| {
            *task = Some(back);
            why
        })?;
        if let Location::Mailbox { slot, generation } = location {
            self.set_affinity(slot, generation);
        }
        Ok(location)
    }

    /// Leaves the line, and returns the answer. If there is none yet, that is a refusal for the
    /// reason `why`.
    pub(super) fn leave_line(&self, ticket: u64, why: Refusal) -> Answer {
        let mut backoff = Backoff::default();
        loop {
            match self.line.leave(ticket) {
                Left::Answered(answer) => return answer,
                Left::Unanswered(mut wanted, wake_up) => {
                    drop_contained(wake_up);
                    return wanted.refuse(why);
                }
                Left::Served => backoff.wait(),
            }
        }
    }
}
