//! How a submission waits in line for space, and how a thread that has made space passes it on. See
//! [`Lines`](crate::parts::line::Lines).
//!
//! A submission to a full group waits in the group's line for a permit of the group. With that permit
//! it needs one of the pool, and waits in the pool's line if there is none.

use crate::core::host::Host;
use crate::core::place::Accepted;
use crate::core::submission::{Location, SubmitError};
use crate::engine::shared::{Core, Shared};
use crate::engine::submit::request::{Answer, SubmitOptions, WaitingTask};
use crate::error::Refusal;
use crate::parts::backoff::Backoff;
use crate::parts::completion::WakeUp;
use crate::parts::deadline::Deadline;
use crate::parts::gate::{Flags, Permit};
use crate::parts::line::{Left, Passed, Turn, Unanswered, Waits, POOL};
use crate::parts::members::{Members, Pending};
use crate::sync::{thread, Arc, IsHeld, Patience};
use crate::work::job::Task;
use crate::work::owed::{Debts, Owed};

/// The reason why an owner has left the line before its turn.
pub(crate) struct LeftLine {
    pub(crate) task: Task,
    /// Set if the task has stood in the line of its group.
    pub(crate) in_group: bool,
    /// The owner's wake-up. The drop of a waker is user code, so it comes last.
    pub(crate) wake_up: Option<WakeUp>,
}

impl Core {
    // ---- passing ----------------------------------------------------------------------

    /// Passes a permit to the first submission in a line, if one is free. Does nothing and returns the error
    /// if another thread holds the lines' lock and this one only tries.
    pub(crate) fn pass(
        self: &Arc<Self>,
        line: u64,
        patience: Patience,
        owed: &mut Owed,
    ) -> Result<(), IsHeld> {
        if let Some(turn) = self.host.line.pass(line, &self.gate, patience)? {
            self.has_turn(line, turn, owed);
        }
        Ok(())
    }

    /// Goes on with an entry that has a permit of the gate of this line.
    fn has_turn(self: &Arc<Self>, line: u64, turn: Turn<WaitingTask>, owed: &mut Owed) {
        let (passed, permit, flags) = turn;
        match line {
            POOL => self.place_passed(passed, permit, flags, owed),
            _ => self.has_passed_in_group(passed, permit, owed),
        }
    }

    /// Gives an entry a permit of its group. It then takes a permit of the pool, or waits in the pool's
    /// line.
    fn has_passed_in_group(
        self: &Arc<Self>,
        mut passed: Passed<WaitingTask>,
        permit: Permit,
        owed: &mut Owed,
    ) {
        passed.task.of_group = Some(permit);
        match self.gate.take() {
            Ok((permit, flags)) => self.place_passed(passed, permit, flags, owed),
            Err(_) => {
                let members = passed.task.members.clone();
                // The thread that takes such entries out would miss one that joins after that.
                let is_over = || self.may_not_submit(members.as_deref()).is_some();
                match self.host.line.move_on(&self.gate, passed, is_over) {
                    Ok(Some(turn)) => self.has_turn(POOL, turn, owed),
                    Ok(None) => {}
                    Err(passed) => self.refuse_passed(passed, owed),
                }
            }
        }
    }

    /// Places the task of an entry that has a permit of the pool, and answers its owner.
    fn place_passed(
        self: &Arc<Self>,
        passed: Passed<WaitingTask>,
        permit: Permit,
        flags: Flags,
        owed: &mut Owed,
    ) {
        let members = passed.task.members.as_deref();
        if members.is_some_and(Members::is_cancelled) {
            owed.give(&self.gate, permit);
            return self.refuse_passed(passed, owed);
        }
        let Passed { owner, task } = passed;
        let WaitingTask {
            task,
            members,
            of_group,
            is_future,
            submitted,
        } = task;
        let mut task = Some(task);
        let accepted = Accepted {
            permit,
            flags,
            nested: false,
            stamp: submitted,
        };
        // The placing of another thread's task must not change this thread's last worker.
        match Self::keep_last_worker(|| self.place(accepted, &mut task, owed)) {
            Ok(location) => {
                if let Some(permit) = of_group {
                    permit.leave_with_task();
                }
                if let Some(members) = &members {
                    self.member_accepted(members, location, || &mut *owed);
                }
                self.answer(owner, Ok(location), owed);
            }
            Err(why) => {
                let task = task.expect("a refused task stays");
                let waiting = WaitingTask {
                    task,
                    members,
                    of_group,
                    is_future,
                    submitted,
                };
                self.answer_refused(owner, waiting, why, owed);
            }
        }
    }

    fn answer(&self, owner: Unanswered, answer: Answer, owed: &mut Owed) {
        if let Some(waker) = self.host.line.answer(owner, answer) {
            owed.calls().wake(waker);
        }
    }

    /// Refuses an entry because its group is cancelled or the pool is closed.
    fn refuse_passed(self: &Arc<Self>, passed: Passed<WaitingTask>, owed: &mut Owed) {
        let Passed {
            owner,
            task: waiting,
        } = passed;
        let members = waiting.members.as_deref();
        let why = match members.is_some_and(Members::is_cancelled) {
            true => Refusal::Cancelled,
            false => Refusal::Closed,
        };
        self.answer_refused(owner, waiting, why, owed);
    }

    /// Refuses an entry, and counts the refusal.
    fn answer_refused(
        self: &Arc<Self>,
        owner: Unanswered,
        waiting: WaitingTask,
        why: Refusal,
        owed: &mut Owed,
    ) {
        let why = self
            .host
            .counts
            .refuse(SubmitError::Refused(why))
            .into_refusal();
        let WaitingTask {
            mut task,
            members,
            of_group,
            is_future,
            ..
        } = waiting;
        if let Some(permit) = of_group {
            self.give_to_group(members.as_deref(), permit, owed);
        }
        if is_future {
            // An owner that is a thread takes its task out of the group itself when it gets the
            // task back. A future may never be polled again. So this thread takes a future's task
            // out of the group. Otherwise the group's waiters would have to wait for the next poll.
            let leaving = task.take_pending().and_then(Pending::exit);
            // Now, if the lock is free: who fetches the answer then finds that nothing is pending.
            owed.exit_group(leaving.and_then(|leaving| leaving.finish(Patience::Tries).err()));
        }
        self.answer(owner, Err((task, why)), owed);
    }

    /// Gives a permit of a group back, and notes whether a submission waits for it.
    pub(crate) fn give_to_group(&self, members: Option<&Members>, permit: Permit, owed: &mut Owed) {
        let members = members.expect("the permit is one of the task's group");
        let gate = members.gate().expect("only a limited group has permits");
        let given = gate.give(permit);
        owed.pass_in(given.is_waited_for().then_some(members.id));
    }

    // ---- refusing ---------------------------------------------------------------------

    /// Takes the tasks of a cancelled group out of the lines, or all tasks of a closed pool (`None`),
    /// and gives them back to their owners. No further task joins, because the flag is set.
    pub(crate) fn turn_away(self: &Arc<Self>, group: Option<&Members>, owed: &mut Owed) {
        let group = group.map(|members| members.id);
        loop {
            let some = self.host.line.take_some(group, &self.gate);
            if some.is_empty() {
                return;
            }
            some.into_iter()
                .for_each(|passed| self.refuse_passed(passed, owed));
        }
    }

    // ---- waiting ----------------------------------------------------------------------

    /// Puts a task at the end of the line of its group, or of the pool's if it has a permit of its
    /// group or needs none. Returns its ticket. Gives the task back if it is refused at once.
    /// `thread` is the owner's wake-up, or `None` if the owner is a future.
    pub(crate) fn join_line(
        self: &Arc<Self>,
        task: Task,
        options: &SubmitOptions<'_>,
        thread: Option<WakeUp>,
        owed: &mut Owed,
    ) -> Result<u64, Task> {
        let waiting = WaitingTask {
            task,
            members: options.members.cloned(),
            of_group: options.of_group.take(),
            is_future: thread.is_none(),
            submitted: Shared::stamp(self),
        };
        let group = waiting.group();
        let line = if options.waits_for_group { group } else { POOL };
        let is_over = || self.may_not_submit(options.members()).is_some();
        match self
            .host
            .line
            .join(line, &self.gate, waiting, thread, is_over)
        {
            Ok((ticket, turn)) => {
                if let Some(turn) = turn {
                    self.has_turn(line, turn, owed);
                }
                Ok(ticket)
            }
            Err(waiting) => {
                options.of_group.set(waiting.of_group);
                Err(waiting.task)
            }
        }
    }

    /// Puts the task at the end of the line, and sleeps until it has an answer, or until the
    /// earlier of the submission's deadline and `block_until`.
    #[cold]
    pub(crate) fn wait_for_space(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
        block_until: &Deadline,
        debts: &mut Debts,
    ) -> Result<Location, SubmitError> {
        let waiting = task.take().expect("a task to submit");
        let thread = Some(WakeUp::Thread(thread::current()));
        let joined = self.join_line(waiting, options, thread, debts.get_or_insert_default());
        let ticket = match joined {
            Ok(ticket) => ticket,
            Err(back) => {
                *task = Some(back);
                let why = self
                    .may_not_submit(options.members())
                    .unwrap_or(Refusal::Closed);
                return Err(self.refuse(options, SubmitError::Refused(why), debts));
            }
        };
        // Others must not wait until this thread wakes up.
        self.pay_debts(debts.take());
        let own = options.submission.deadline.unwrap_or(block_until);
        let until = std::cmp::min_by_key(own, block_until, |deadline| self.env.due(deadline));
        let answer = loop {
            if let Some(answer) = self.host.line.fetch(ticket, &mut None) {
                break answer;
            }
            if !until.park() {
                match self.leave_line(ticket, debts.get_or_insert_default()) {
                    Ok(answer) => break answer,
                    Err(left) => {
                        *task = Some(left.task);
                        return Err(self.host.counts.refuse(options.too_late(left.in_group)));
                    }
                }
            }
        };
        let location = answer.map_err(|(back, why)| {
            *task = Some(back);
            SubmitError::Refused(why)
        })?;
        if let Location::Mailbox { slot, generation } = location {
            self.set_last_worker(slot, generation);
        }
        self.set_last_task(location);
        Ok(location)
    }

    /// Leaves the line. Returns the answer if there is one, or else the task, as the error.
    pub(crate) fn leave_line(&self, ticket: u64, owed: &mut Owed) -> Result<Answer, LeftLine> {
        let mut backoff = Backoff::default();
        loop {
            match self.host.line.remove(ticket, &self.gate) {
                Left::Answered(answer) => return Ok(answer),
                Left::Taken => backoff.wait(),
                Left::Unanswered(line, waiting, wake_up) => {
                    if let Some(permit) = waiting.of_group {
                        self.give_to_group(waiting.members.as_deref(), permit, owed);
                    }
                    return Err(LeftLine {
                        task: waiting.task,
                        in_group: line != POOL,
                        wake_up,
                    });
                }
            }
        }
    }
}
