#![doc = include_str!("group.md")]

use crate::core::submission::{Location, SubmitError};
use crate::engine::shared::Core;
use crate::engine::submit::erase::submit_with;
use crate::engine::submit::request::{SubmitOptions, SubmitterOptions};
use crate::error::{Refusal, TaskError};
use crate::parts::gate::Permit;
use crate::parts::members::{Members, Owner, Pending};
use crate::sync::Arc;
use crate::work::job::{Job, Task};
use crate::work::owed::Owed;

/// A task that has entered its group.
#[derive(Debug)]
pub(crate) struct Entered {
    pub(crate) pending: Option<Pending>,
    /// The task's permit, if the group has a limit and a permit was free.
    pub(crate) permit: Option<Permit>,
    /// Set if the submission has to wait for a permit of the group.
    pub(crate) waits: bool,
}

impl Entered {
    /// Adds the permit, or the need of one, to the options of the submission.
    pub(crate) fn add_to<'a>(
        self,
        members: Option<&'a Owner>,
        options: SubmitOptions<'a>,
    ) -> (Option<Pending>, SubmitOptions<'a>) {
        options.of_group.set(self.permit);
        let options = SubmitOptions {
            members: members.map(|members| &**members),
            waits_for_group: self.waits,
            ..options
        };
        (self.pending, options)
    }
}

/// Submits a job as a member of a group, if one is given. A refused job comes back with the reason.
#[inline]
pub(crate) fn submit_member<J: Job>(
    core: &Arc<Core>,
    members: Option<&Owner>,
    job: J,
    extras: &SubmitterOptions,
) -> Result<Location, (J, Refusal)> {
    let options = extras.plain();
    let entered = match core.enter(members, &options) {
        Ok(entered) => entered,
        Err(why) => return Err((job, why.into_refusal())),
    };
    let (pending, options) = entered.add_to(members, options);
    submit_with(core, pending, job, options)
}

impl Core {
    /// Enters a task into its group, if it has one, before the task is submitted. In a forked
    /// child, refuses the task before any lock is taken, because a thread that does not exist in
    /// the child may hold the lock.
    #[inline]
    pub(crate) fn enter(
        &self,
        members: Option<&Owner>,
        options: &SubmitOptions<'_>,
    ) -> Result<Entered, SubmitError> {
        let mut entered = Entered {
            pending: None,
            permit: None,
            waits: false,
        };
        let Some(members) = members else {
            return Ok(entered);
        };
        if let Some(gate) = members.gate() {
            match gate.take() {
                Ok((permit, _)) => entered.permit = Some(permit),
                Err(_) => {
                    self.may_wait_for_group(members, options)?;
                    entered.waits = true;
                }
            }
        }
        entered.pending = Some(members.enter());
        Ok(entered)
    }

    /// Returns an error, and counts the refusal, unless a submission to a full group may wait. The
    /// reasons that hold whether there is space or not come first. Otherwise the group is full. On a worker
    /// of the pool, which must not wait, a submission that would wait is refused as `OnWorker`.
    #[cold]
    fn may_wait_for_group(
        &self,
        members: &Members,
        options: &SubmitOptions<'_>,
    ) -> Result<(), SubmitError> {
        let may_wait = options.blocks(self.host.blocks) && members.limit() > 0;
        let why = match self.may_not_submit(Some(members)) {
            Some(why) => why,
            None if !may_wait => Refusal::GroupFull,
            None if options.submission.is_on_worker(&self.env) => Refusal::OnWorker,
            None => return Ok(()),
        };
        Err(self.host.counts.refuse(SubmitError::Refused(why)))
    }

    /// Notes the queue position of an accepted member. If the group is cancelled by now, the cancel
    /// may have missed the task, because it read the positions before this one was noted (P3). So
    /// this thread takes the task out, and leaves the others to the cancel.
    #[inline]
    pub(crate) fn member_accepted<'a>(
        self: &Arc<Self>,
        members: &Arc<Members>,
        location: Location,
        owed: impl FnOnce() -> &'a mut Owed,
    ) {
        let Location::Queue { position } = location else {
            return;
        };
        members.note(position, || self.queue.load_head());
        if members.is_cancelled() {
            self.discard_members([position], owed());
        }
    }

    /// Cancels a group. Gives back the tasks that wait in line, marks the running tasks as
    /// abandoned, and discards the queued ones. No task of the group starts after that, because a
    /// worker reads the group's flag before it starts a task. The cost grows with the number of
    /// slots that have been used, and with the number of the group's own tasks that are in line or
    /// queued.
    pub(crate) fn cancel_group(self: &Arc<Self>, members: &Arc<Members>) {
        members.cancel();
        if members.pending() == 0 || self.env.is_forked() {
            return;
        }
        let mut owed = Owed::default();
        self.turn_away(Some(members), &mut owed);
        for slot in self.used_slots() {
            slot.record.abandon_group(members);
        }
        self.discard_members(members.take_queued(self.queue.load_head()), &mut owed);
        self.pay(&mut owed);
    }

    /// Discards the tasks of a cancelled group at these positions.
    fn discard_members(&self, positions: impl IntoIterator<Item = u64>, owed: &mut Owed) {
        let count = |task: &Task| {
            self.count_removed(task);
            true
        };
        self.take_out(positions, count, || TaskError::Cancelled, owed);
    }
}
