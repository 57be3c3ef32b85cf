//! A job's way into the pool and back.

use super::core::Core;
use super::request::{Extras, Location, SubmitError, SubmitOptions};
use crate::error::Refusal;
use crate::parts::deadline::Deadline;
use crate::sync::Arc;
use crate::work::job::{Job, Task};
use crate::work::options::{Labelled, Timed, Window};

/// Submits a job; refused, it comes back with the reason.
///
/// # Safety
/// As [`Task::new`].
#[inline]
pub(crate) unsafe fn submit<J: Job>(
    core: &Arc<Core>,
    job: J,
    options: &SubmitOptions<'_>,
) -> Result<Location, (J, Refusal)> {
    // SAFETY: by this function's contract.
    let mut task = Some(unsafe { Task::new(job) });
    match core.submit(&mut task, options) {
        Ok(location) => Ok(location),
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

/// Submits a job with what a submitter, group or scope adds to it.
///
/// # Safety
/// As [`Task::new`].
#[inline]
pub(crate) unsafe fn submit_with<J: Job>(
    core: &Arc<Core>,
    job: J,
    extras: &Extras,
    options: SubmitOptions<'_>,
) -> Result<Location, (J, Refusal)> {
    let options = options.or_when_full(extras.when_full);
    if extras.wrap() {
        // SAFETY: by this function's contract.
        unsafe { submit_wrapped(core, job, extras, options) }
    } else {
        // SAFETY: by this function's contract.
        unsafe { submit(core, job, &options) }
    }
}

/// # Safety
/// As [`Task::new`].
unsafe fn submit_wrapped<J: Job>(
    core: &Arc<Core>,
    job: J,
    extras: &Extras,
    options: SubmitOptions<'_>,
) -> Result<Location, (J, Refusal)> {
    let deadline = Deadline::from_now(extras.deadline);
    let window = Window::until(&deadline, extras.min_remaining, &core.env);
    // SAFETY, for all: what surrounds a job holds nothing but values; for the job by this
    // function's contract.
    match (extras.label, window) {
        // SAFETY: as above.
        (None, None) => unsafe { submit(core, job, &options) },
        (Some(label), None) => {
            // SAFETY: as above.
            unsafe { submit(core, Labelled { label, job }, &options) }
                .map_err(|(labelled, why)| (labelled.job, why))
        }
        (None, Some(window)) => {
            let options = options.served_until(&deadline);
            // SAFETY: as above.
            unsafe { submit(core, Timed { window, job }, &options) }
                .map_err(|(timed, why)| (timed.job, why))
        }
        (Some(label), Some(window)) => {
            let options = options.served_until(&deadline);
            // In this order: what is said of a late task carries its label.
            let job = Timed { window, job };
            // SAFETY: as above.
            unsafe { submit(core, Labelled { label, job }, &options) }
                .map_err(|(labelled, why)| (labelled.job.job, why))
        }
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
        SubmitError::Expired => {
            unreachable!("nobody waits for its end: at its deadline it is refused")
        }
    }
}
