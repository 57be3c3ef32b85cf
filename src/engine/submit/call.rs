//! `do_with_deadline` through a submitter or a group: the options of the call, and its place in the
//! group.

use crate::core::call::{call, Entrance};
use crate::core::submission::{Location, Submission, SubmitError};
use crate::engine::shared::{Core, Shared};
use crate::engine::submit::request::{SubmitOptions, SubmitterOptions};
use crate::error::{DeadlineError, Unrun};
use crate::parts::deadline::{Deadline, Until};
use crate::parts::members::{Ended, Members, Owner, Pending};
use crate::sync::Arc;
use crate::work::env::NEVER;
use crate::work::job::Task;
use crate::work::options::{Options, StoredOptions, TaskTimes};
use crate::work::owed::{exit_group, Debts, Owed};
use std::cell::Cell;
use std::ptr::NonNull;
use std::time::Duration;

/// The options of a call's task.
struct CallOptions {
    label: Option<&'static str>,
    times: Option<TaskTimes>,
    /// The task's group. The caller borrows it for as long as these options exist.
    members: Option<NonNull<Arc<Members>>>,
}

// SAFETY: an `Arc<Members>` may be shared by threads.
unsafe impl Send for CallOptions {}

impl StoredOptions for CallOptions {
    #[inline]
    fn add_options<'a>(&'a self, options: &mut Options<'a>) {
        options.label = self.label;
        options.times = self.times;
        options.group = self.members.map(|members| {
            // SAFETY: the caller borrows the group. Later, the task keeps the group alive, because
            // it is inside (E8).
            unsafe { &*Arc::as_ptr(members.as_ref()) }
        });
    }

    #[inline]
    unsafe fn pending_of_call(&self) -> Option<Pending> {
        // SAFETY: the caller borrows the group. The task is inside until this `Pending` is used
        // up, by this function's contract. The caller has another one, which it uses only if it gets the task back neither run
        // nor discarded.
        (self.members).map(|members| unsafe { Pending::of(members.as_ref()) })
    }
}

/// How the task of a call enters its group and the pool.
struct Member<'a> {
    members: Option<&'a Owner>,
    extras: &'a SubmitterOptions,
    /// The place of an accepted task in its group, if the caller takes the task back. Otherwise the task uses its own up.
    pending: Cell<Option<Pending>>,
}

// SAFETY: `Core::submit` returns the location of the task that it is given: that which the core gave for it, or that of the line's answer,
// which has it from the core.
unsafe impl Entrance<Shared> for Member<'_> {
    fn submit(
        &self,
        core: &Arc<Core>,
        task: &mut Option<Task>,
        submission: Submission<'_>,
        debts: &mut Debts,
    ) -> Result<Location, SubmitError> {
        let options = SubmitOptions {
            submission,
            ..self.extras.plain()
        };
        let entered = core.enter(self.members, &options)?;
        let (pending, options) = entered.add_to(self.members, options);
        let submitted = core.submit(task, &options, debts);
        match submitted {
            Ok(_) => self.pending.set(pending),
            Err(_) => exit_group(debts, pending.and_then(Pending::exit)),
        }
        submitted
    }

    fn has_taken_back(&self, owed: &mut Owed) {
        if let Some(pending) = self.pending.take() {
            owed.note_gone(pending.end(Ended::Discarded));
        }
    }
}

/// Runs `f` on the pool, with the options of a submitter, as a member of a group if one is given.
/// Waits for the result until `limit` has passed, or until the submitter's deadline if that is
/// earlier.
#[inline]
pub(crate) fn do_with<F: FnOnce() -> R + Send + 'static, R: Send + 'static>(
    core: &Arc<Core>,
    members: Option<&Owner>,
    extras: &SubmitterOptions,
    f: F,
    limit: Duration,
) -> Result<R, DeadlineError<F>> {
    let own = extras.until.left();
    if limit.min(own).is_zero() {
        return Err(DeadlineError::Expired(Unrun::new(f)));
    }
    let until = if own < limit {
        extras.until
    } else {
        Until::After(limit)
    };
    do_until(core, members, extras, f, &Deadline::new(until))
}

#[inline]
pub(crate) fn do_until<F: FnOnce() -> R + Send + 'static, R: Send + 'static>(
    core: &Arc<Core>,
    members: Option<&Owner>,
    extras: &SubmitterOptions,
    f: F,
    deadline: &Deadline,
) -> Result<R, DeadlineError<F>> {
    let least = extras.min_remaining;
    let before = (!least.is_zero()).then(|| core.env.due(deadline));
    let options = CallOptions {
        label: extras.label,
        // The caller's deadline applies, so the task gets no deadline of its own.
        times: TaskTimes::new(before.unwrap_or(NEVER), least, NEVER, extras.run_limit),
        members: members.map(|members| NonNull::from(&**members)),
    };
    let member = Member {
        members,
        extras,
        pending: Cell::new(None),
    };
    call(core, options, &member, f, deadline)
}
