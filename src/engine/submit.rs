//! A job's way into the pool and back.

use super::core::Core;
use super::request::{Extras, Location, SubmitError, SubmitOptions};
use crate::error::Refusal;
use crate::sync::Arc;
use crate::work::job::{Job, Task};
use crate::work::options::{Due, Labeled, Limit, RunLimit, StartBy, Timed};

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
    let mut task = Some(unsafe { Task::new(&core.env, job) });
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
    let mut task = Some(unsafe { Task::new(&core.env, job) });
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
    let options = SubmitOptions {
        when_full: extras.when_full,
        ..options
    };
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
    let deadline = extras.until.deadline();
    let options = SubmitOptions {
        deadline: Some(&deadline),
        ..options
    };
    let due = options.due(&core.env).map(Due);
    let start_by = due.map_or(StartBy::ANY, |due| StartBy::of(due.0, extras.min_remaining));
    // SAFETY, for all: what surrounds a job holds nothing but values; for the job by this
    // function's contract.
    match (due, RunLimit::of(extras.run_limit)) {
        // SAFETY: as above.
        (None, None) => unsafe { submit_labeled(core, job, extras.label, &options) },
        (Some(due), None) => {
            let timed = Timed::new(start_by, due, job);
            // SAFETY: as above.
            unsafe { submit_timed(core, timed, extras.label, &options) }
        }
        (due, Some(limit)) => {
            let timed = Timed::new(start_by, (due.unwrap_or(Due::NEVER), limit), job);
            // SAFETY: as above.
            unsafe { submit_timed(core, timed, extras.label, &options) }
        }
    }
}

/// # Safety
/// As [`Task::new`].
unsafe fn submit_timed<L: Limit, J: Job>(
    core: &Arc<Core>,
    timed: Timed<L, J>,
    label: Option<&'static str>,
    options: &SubmitOptions<'_>,
) -> Result<Location, (J, Refusal)> {
    // SAFETY: by this function's contract.
    unsafe { submit_labeled(core, timed, label, options) }.map_err(|(timed, why)| (timed.job, why))
}

/// The label comes outermost: what is said of a late task carries it.
///
/// # Safety
/// As [`Task::new`].
unsafe fn submit_labeled<J: Job>(
    core: &Arc<Core>,
    job: J,
    label: Option<&'static str>,
    options: &SubmitOptions<'_>,
) -> Result<Location, (J, Refusal)> {
    match label {
        // SAFETY: by this function's contract.
        None => unsafe { submit(core, job, options) },
        Some(label) => {
            // SAFETY: by this function's contract; the label is a value.
            unsafe { submit(core, Labeled { label, job }, options) }
                .map_err(|(labeled, why)| (labeled.job, why))
        }
    }
}

/// # Safety
/// The task, if there is one, was made from a `J`.
#[inline]
unsafe fn give_back<J: Job>(task: Option<Task>, why: SubmitError) -> (J, Refusal) {
    let task = task.expect("what is refused stays");
    // SAFETY: by this function's contract.
    (unsafe { task.into_job() }, why.into_refusal())
}
