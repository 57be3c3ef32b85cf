//! A group's tasks, whatever else they are.

use super::core::Core;
use super::request::{Location, SubmitOptions};
use super::submit::submit_with;
use crate::error::Refusal;
use crate::parts::members::{Handle, Members};
use crate::sync::{Arc, Ordering};
use crate::work::job::{Job, NeverRan, Task};

/// Submits a job as a member of a group; refused, it comes back with the reason.
pub(crate) fn submit_member<J: Job>(
    core: &Arc<Core>,
    members: &Handle,
    job: J,
    options: SubmitOptions<'_>,
) -> Result<Location, (J, Refusal)> {
    let options = SubmitOptions {
        cancelled: Some(&members.cancelled),
        ..options
    };
    let location = submit_with(core, members.enter(), job, options)?;
    // ORDERING: P3: a cancel that looked through the queue before this task was in it has set the
    // flag before.
    if members.cancelled.load(Ordering::SeqCst) {
        core.discard(take_queued(core, members), NeverRan::Cancelled);
    }
    Ok(location)
}

/// Takes a group's tasks out of the queue, all before code of the user's runs, and tells who
/// waits for space.
pub(crate) fn take_queued(core: &Core, members: &Members) -> Vec<Task> {
    // A subscriber may have forked.
    if core.env.is_forked() {
        return Vec::new();
    }
    // No others pending: none queued. What is submitted from now on sees the flag.
    core.take_out(members.pending(), |task| task.is_of(members))
}
