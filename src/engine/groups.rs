//! A group's tasks, whatever else they are.

use super::core::Core;
use super::request::{Extras, Location, SubmitOptions};
use super::submit::submit_with;
use crate::error::Refusal;
use crate::parts::members::{Ended, Handle, Members, Pending};
use crate::sync::{Arc, Ordering};
use crate::work::context::Ctx;
use crate::work::job::{End, Ending, Job, NeverRan, Release, Task};
use crate::work::observe::Seen;

/// A job that is a member of a group.
struct Member<J> {
    pending: Pending,
    job: J,
}

impl<J: Job> Job for Member<J> {
    const AWAITED: bool = J::AWAITED;
    const OFFERED: bool = J::OFFERED;

    fn run(self, ctx: &Ctx<'_>, end: End<'_>) {
        let Self { pending, job } = self;
        // SAFETY: the task is pending until it has left the group.
        unsafe { ctx.enter_group(pending.members()) };
        let mut pending = Some(pending);
        job.run(ctx, &mut |how| {
            ctx.leave_group();
            end(how);
            if let Some(pending) = pending.take() {
                pending.end(match how {
                    Ending::Panicked => Ended::Panicked,
                    _ => Ended::Completed,
                });
            }
        });
    }

    fn discard(self, why: NeverRan, seen: Seen) -> Release {
        Release {
            group: Some(self.pending),
            ..self.job.discard(why, seen)
        }
    }

    fn members(&self) -> Option<&Members> {
        Some(self.pending.members())
    }
}

/// Submits a job as a member of a group; refused, it comes back with the reason.
///
/// # Safety
/// As [`Task::new`].
pub(crate) unsafe fn submit_member<J: Job>(
    core: &Arc<Core>,
    members: &Handle,
    job: J,
    extras: &Extras,
) -> Result<Location, (J, Refusal)> {
    let pending = members.enter();
    let options = SubmitOptions {
        cancelled: Some(&members.cancelled),
        ..SubmitOptions::PLAIN
    };
    // SAFETY: by this function's contract.
    match unsafe { submit_with(core, Member { pending, job }, extras, options) } {
        Ok(location) => {
            // ORDERING: P5: a cancel that looked through the queue before this task was
            // in it has set the flag before.
            if members.cancelled.load(Ordering::SeqCst) {
                core.discard(take_queued(core, members), NeverRan::Cancelled);
            }
            Ok(location)
        }
        Err((Member { pending, job }, why)) => {
            members.refused(pending);
            Err((job, why))
        }
    }
}

/// Takes a group's tasks out of the queue, all before code of the user's runs, and tells who
/// waits for room.
pub(crate) fn take_queued(core: &Core, members: &Members) -> Vec<Task> {
    // A subscriber may have forked.
    if core.env.is_forked() {
        return Vec::new();
    }
    // No others pending: none queued. What is submitted from now on sees the flag.
    core.take_out(members.pending(), |task| task.is_of(members))
}
