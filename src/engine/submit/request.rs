//! The options of a submission, and its result.

use crate::core::submission::{Location, Submission, SubmitError};
use crate::error::Refusal;
use crate::parts::deadline::{Deadline, Until};
use crate::parts::gate::{Gate, Permit};
use crate::parts::line::Waits;
use crate::parts::members::Members;
use crate::stats::WhenFull;
use crate::sync::Arc;
use crate::work::env::Env;
use crate::work::job::Task;
use crate::work::options::TaskTimes;
use std::cell::Cell;
use std::time::Duration;

/// An entry of the line: a task that waits for space.
pub(crate) struct WaitingTask {
    pub(crate) task: Task,
    pub(crate) members: Option<Arc<Members>>,
    /// The task's permit of its group, if the group has a limit, and the task has the permit already.
    pub(crate) of_group: Option<Permit>,
    /// Set if the owner is a future, which may never be polled again.
    pub(crate) is_future: bool,
    /// The time of the submission. Zero unless the pool tracks ages.
    pub(crate) submitted: u64,
}

/// The answer to an entry of the line. A refused task goes back to its owner. The refusal has been
/// counted.
pub(crate) type Answer = Result<Location, (Task, Refusal)>;

impl Waits for WaitingTask {
    fn group(&self) -> u64 {
        self.members.as_ref().map_or(0, |members| members.id)
    }

    fn group_gate(&self) -> &Gate {
        let gate = self.members.as_ref().and_then(|members| members.gate());
        gate.expect("only a limited group has a line")
    }
}

/// How a submission is made, and how long it may wait.
pub(crate) struct SubmitOptions<'a> {
    /// The options that a submitter, group or scope adds.
    pub(crate) extras: &'a SubmitterOptions,
    /// The thread that waits for the task, and until when. If its deadline passes before the task is
    /// accepted, a submission with a node fails as `Expired`, and a submission without a node is refused
    /// as `Saturated`.
    pub(crate) submission: Submission<'a>,
    /// The task's group. `None` if the task has no group or belongs to a scope.
    pub(crate) members: Option<&'a Arc<Members>>,
    /// The task's permit of its group. `None` if the group has no limit, or if the submission must
    /// wait for the permit.
    pub(crate) of_group: Cell<Option<Permit>>,
    /// Set if the task's group is full, and the submission waits for a permit of it.
    pub(crate) waits_for_group: bool,
}

/// The options that a submitter, group or scope adds to each submission. A deadline given as a
/// duration counts from the submission.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SubmitterOptions {
    pub(crate) label: Option<&'static str>,
    /// The policy if there is no space. `None` stands for the pool's policy.
    pub(crate) when_full: Option<WhenFull>,
    pub(crate) until: Until,
    pub(crate) min_remaining: Duration,
    pub(crate) run_limit: Duration,
}

impl SubmitterOptions {
    pub(crate) const NONE: Self = Self {
        label: None,
        when_full: None,
        until: Until::NEVER,
        min_remaining: Duration::ZERO,
        run_limit: Duration::MAX,
    };

    /// Returns the options of a submission whose outcome no thread waits for.
    #[inline]
    pub(crate) const fn plain(&self) -> SubmitOptions<'_> {
        SubmitOptions {
            extras: self,
            submission: Submission::PLAIN,
            members: None,
            of_group: Cell::new(None),
            waits_for_group: false,
        }
    }

    /// Returns the deadline of a submission that begins now, and the times of its task.
    pub(crate) fn times(&self, env: &Env) -> (Deadline, Option<TaskTimes>) {
        let deadline = Deadline::new(self.until);
        let due = env.due(&deadline);
        let times = TaskTimes::new(due, self.min_remaining, due, self.run_limit);
        (deadline, times)
    }

    /// Returns `true` if any option must be stored with the task. The other options concern only
    /// the submission.
    #[inline]
    pub(crate) fn wrap(&self) -> bool {
        self.label.is_some() || self.until != Until::NEVER || self.run_limit != Duration::MAX
    }
}

impl SubmitOptions<'_> {
    /// Returns the refusal of a submission that found no space. The reason is `OnWorker` if
    /// [`is_on_worker`](Submission::is_on_worker) applies, and a thread waits for the task or the policy
    /// is to wait for space (`blocks`). Otherwise it is `Saturated`.
    #[inline]
    pub(crate) fn no_space(&self, env: &Env, blocks: bool) -> SubmitError {
        let would_wait = self.submission.awaited || blocks;
        SubmitError::Refused(if would_wait && self.submission.is_on_worker(env) {
            Refusal::OnWorker
        } else {
            Refusal::Saturated
        })
    }

    /// Returns the error of a submission that has left the line because its time was up. `in_group`
    /// says that it has waited for a permit of its group.
    pub(crate) fn too_late(&self, in_group: bool) -> SubmitError {
        let is_past = self.submission.deadline.is_some_and(Deadline::has_passed);
        match self.submission.node {
            Some(_) if is_past => SubmitError::Expired,
            _ if in_group => SubmitError::Refused(Refusal::GroupFull),
            _ => SubmitError::Refused(Refusal::Saturated),
        }
    }

    /// Returns `true` if the submission waits where there is no space: its policy, or that of the
    /// pool, is to wait.
    #[inline]
    pub(crate) fn blocks(&self, pool: bool) -> bool {
        (self.extras.when_full).map_or(pool, WhenFull::blocks)
    }

    /// Returns the submission's group.
    #[inline]
    pub(crate) fn members(&self) -> Option<&Members> {
        self.members.map(|members| &**members)
    }

    /// Returns `true` if the submission's group is cancelled.
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.members().is_some_and(Members::is_cancelled)
    }
}
