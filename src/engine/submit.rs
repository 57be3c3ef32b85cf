//! A job's way into the pool and back.

use super::core::Core;
use super::request::{SubmitError, SubmitOptions};
use crate::error::Refusal;
use crate::sync::Arc;
use crate::work::job::{Job, Task};

/// Submits a job; refused, it comes back with the reason.
///
/// # Safety
/// As [`Task::new`].
#[inline]
pub(crate) unsafe fn submit<J: Job>(
    core: &Arc<Core>,
    job: J,
    options: &SubmitOptions<'_>,
) -> Result<(), (J, Refusal)> {
    // SAFETY: by this function's contract.
    let mut task = Some(unsafe { Task::new(job) });
    match core.submit(&mut task, options) {
        Ok(_) => Ok(()),
        // SAFETY: only this call's task was there.
        Err(why) => Err(unsafe { give_back(task, why) }),
    }
}

/// The same without options.
///
/// # Safety
/// As [`Task::new`].
#[inline]
pub(crate) unsafe fn submit_plain<J: Job>(core: &Arc<Core>, job: J) -> Result<(), (J, Refusal)> {
    // SAFETY: by this function's contract.
    let mut task = Some(unsafe { Task::new(job) });
    match core.submit_plain(&mut task) {
        Ok(_) => Ok(()),
        // SAFETY: only this call's task was there.
        Err(why) => Err(unsafe { give_back(task, why) }),
    }
}

/// # Safety
/// The task, if there is one, was made from a `J`.
#[inline]
unsafe fn give_back<J: Job>(task: Option<Task>, why: SubmitError) -> (J, Refusal) {
    let task = task.expect("what is refused stays");
    // SAFETY: by this function's contract.
    let job = unsafe { task.into_job() };
    match why {
        SubmitError::Refused(why) => (job, why),
        SubmitError::Expired => unreachable!("without a deadline nothing expires"),
    }
}
