//! How a job enters the pool, and how it comes back if it is refused.

use crate::core::submission::{Location, Submission, SubmitError};
use crate::engine::shared::Core;
use crate::engine::submit::request::SubmitOptions;
use crate::error::Refusal;
use crate::parts::members::Pending;
use crate::sync::Arc;
use crate::work::job::{Job, Task};
use crate::work::observe::Moment;
use crate::work::options::StoredOptions;
use crate::work::owed::{exit_group, Debts};

/// The place where the task was put, or the refused job with the reason. The options that were
/// stored with a refused job are dropped.
type SubmitResult<J, L = Location> = Result<L, (J, Refusal)>;

/// Turns a job into a task, submits the task with `accept`, and pays the debts of that.
// Inlined, because a call would copy the closure. The loads of the copy are wider than the stores
// that have just written the closure, so the CPU could not forward the stores to the loads, and the
// loads would stall. Without inlining, each refusal took 4 ns longer.
#[inline(always)]
pub(crate) fn submit<S: StoredOptions, J: Job, L>(
    core: &Arc<Core>,
    stored: S,
    job: J,
    accept: impl FnOnce(&mut Option<Task>, &mut Debts) -> Result<L, SubmitError>,
) -> SubmitResult<J, L> {
    let mut task = Some(Task::new(Moment::now(&core.env), stored, job));
    let mut debts = None;
    let result = accept(&mut task, &mut debts).map_err(|why| {
        let task = task.expect("what is refused stays");
        // SAFETY: the task was made above, of these types.
        let (mut stored, job) = unsafe { task.into_parts::<S, J>() };
        exit_group(&mut debts, stored.take_pending().and_then(Pending::exit));
        (job, why.into_refusal())
    });
    core.pay_debts(debts);
    result
}

/// Submits a job with the options that a submitter, group or scope adds.
#[inline]
pub(crate) fn submit_with<S: StoredOptions, J: Job>(
    core: &Arc<Core>,
    stored: S,
    job: J,
    options: SubmitOptions<'_>,
) -> SubmitResult<J> {
    if options.extras.wrap() {
        submit_wrapped(core, stored, job, options)
    } else {
        submit(core, stored, job, |task, debts| {
            core.submit(task, &options, debts)
        })
    }
}

fn submit_wrapped<S: StoredOptions, J: Job>(
    core: &Arc<Core>,
    stored: S,
    job: J,
    options: SubmitOptions<'_>,
) -> SubmitResult<J> {
    let extras = options.extras;
    let (deadline, times) = extras.times(&core.env);
    let options = SubmitOptions {
        submission: Submission {
            deadline: Some(&deadline),
            ..options.submission
        },
        ..options
    };
    let accept = |task: &mut Option<Task>, debts: &mut Debts| core.submit(task, &options, debts);
    match (extras.label, times) {
        (Some(label), None) => submit(core, (label, stored), job, accept),
        (None, times) => submit(core, (times, stored), job, accept),
        (Some(label), times) => submit(core, (label, (times, stored)), job, accept),
    }
}
