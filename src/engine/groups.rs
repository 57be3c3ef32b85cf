//! Members of groups: how their tasks are submitted and counted, and how a group cancels them.

use super::core::Core;
use super::request::{Extras, Location, SubmitError, SubmitOptions};
use super::submit::submit_with;
use crate::error::{Refusal, TaskError};
use crate::parts::members::{Members, Owner, Pending};
use crate::sync::Arc;
use crate::work::job::Job;

/// Submits a job as a member of a group, if one is given. A refused job comes back with the reason.
pub(crate) fn submit_member<J: Job>(
    core: &Arc<Core>,
    members: Option<&Owner>,
    job: J,
    extras: &Extras,
) -> Result<Location, (J, Refusal)> {
    let options = SubmitOptions {
        members: members.map(|members| &**members),
        ..extras.plain()
    };
    let pending = match core.enter(members) {
        Ok(pending) => pending,
        Err(why) => return Err((job, why)),
    };
    let location = submit_with(core, pending, job, options)?;
    if let Some(members) = members {
        core.member_accepted(members, location);
    }
    Ok(location)
}

impl Core {
    /// Enters a task into its group, if it has one, before the task is submitted. In a forked
    /// child, refuses the task before any lock is taken, because a thread that does not exist in
    /// the child may hold the lock.
    #[inline]
    pub(crate) fn enter(&self, members: Option<&Owner>) -> Result<Option<Pending>, Refusal> {
        if self.env.is_forked() {
            return Err(self.refuse_member(members));
        }
        let enter = |it: &Owner| it.enter().ok_or_else(|| self.refuse_member(Some(it)));
        members.map(enter).transpose()
    }

    /// Counts the refusal of a submission that could not enter its group, and returns the reason.
    /// The first of these that is true is the reason: this process is a forked child, the group is
    /// cancelled, the pool is closed, or else the group is full.
    #[cold]
    fn refuse_member(&self, members: Option<&Owner>) -> Refusal {
        let is_cancelled = members.is_some_and(|members| members.is_cancelled());
        let why = if is_cancelled && !self.env.is_forked() {
            Refusal::Cancelled
        } else {
            self.may_not_submit().unwrap_or(Refusal::GroupFull)
        };
        self.counts.refuse(SubmitError::Refused(why)).into_refusal()
    }

    /// Notes the queue position of an accepted member. If the group is cancelled by now, the cancel
    /// may have missed the task, because it read the positions before this one was noted (P3). So
    /// this thread takes the task out.
    #[inline]
    pub(super) fn member_accepted(self: &Arc<Self>, members: &Arc<Members>, location: Location) {
        if let (Location::Queue { position }, Some(queue)) = (location, &self.queue) {
            members.note(position, || queue.load_head());
        }
        if members.is_cancelled() {
            self.discard_queued(members);
        }
    }

    /// Cancels a group. Gives back the tasks that wait in line, marks the running tasks as
    /// abandoned, and discards the queued ones. The cost grows with the length of the line, the
    /// number of slots, and the number of the group's queued tasks.
    pub(crate) fn cancel_group(self: &Arc<Self>, members: &Arc<Members>) {
        members.cancel();
        if members.pending() == 0 {
            return;
        }
        self.turn_away(members);
        if self.env.is_forked() {
            return;
        }
        for slot in &self.slots {
            slot.record.abandon_group(members);
        }
        self.discard_queued(members);
    }

    /// Discards the queued tasks of a cancelled group.
    pub(super) fn discard_queued(self: &Arc<Self>, members: &Members) {
        let Some(queue) = &self.queue else { return };
        let positions = members.take_queued().into_iter();
        let taken = positions.filter_map(|position| queue.take(position));
        let taken = Vec::from_iter(taken.inspect(|task| self.count_unrun(task)));
        // If no task was taken out, there is no new space, so the line need not be served.
        if !taken.is_empty() {
            self.discard(taken, || TaskError::Cancelled);
        }
    }
}
