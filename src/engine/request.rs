//! What a submission asks for, and what becomes of it.

use crate::error::Refusal;
use crate::parts::completion::{mailbox_id, queue_id, WaitNode};
use crate::parts::deadline::{Deadline, Until};
use crate::parts::members::Members;
use crate::stats::WhenFull;
use crate::sync::Arc;
use crate::work::env::Env;
use crate::work::job::Task;
use crate::work::options::Times;
use std::time::Duration;

/// Where an accepted task went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Location {
    Mailbox { slot: usize, generation: u64 },
    Queue { position: u64 },
}

impl Location {
    /// What names the task in the decision of the worker that runs it.
    pub(crate) fn task_id(self) -> u64 {
        match self {
            Self::Mailbox { generation, .. } => mailbox_id(generation),
            Self::Queue { position } => queue_id(position),
        }
    }
}

/// Why a task came back.
#[derive(Debug)]
pub(crate) enum SubmitError {
    Refused(Refusal),
    /// The deadline passed before there was space.
    Expired,
}

impl SubmitError {
    /// Why it was refused, if nobody waits for its outcome.
    #[inline]
    pub(crate) fn into_refusal(self) -> Refusal {
        match self {
            Self::Refused(why) => why,
            Self::Expired => unreachable!("only where an outcome is awaited"),
        }
    }
}

/// One attempt's result, where the task was not accepted.
#[derive(Debug)]
pub(super) enum NotAccepted {
    /// Saturated, exactly.
    Saturated,
    /// Another thread is in the middle of a step: look again.
    Retry,
    Refused(Refusal),
}

/// A task in line.
pub(crate) struct Wanted {
    pub(super) task: Option<Task>,
    pub(super) members: Option<Arc<Members>>,
    /// Its owner is a future, which may never be polled again.
    pub(super) is_future: bool,
    /// When it was submitted, if ages are tracked.
    pub(super) submitted: u64,
}

/// A refused task goes back.
pub(crate) type Answer = Result<Location, (Task, Refusal)>;

impl Wanted {
    /// Takes the task out, to be given back.
    pub(super) fn refuse(&mut self, why: Refusal) -> Answer {
        if let (Some(members), true) = (&self.members, self.is_future) {
            // The group's wait must not depend on a poll.
            members.leave();
        }
        Err((self.task.take().expect("a refused task stays"), why))
    }

    /// Returns the task of a future that leaves the line.
    pub(super) fn withdraw(mut self) -> Task {
        if let Some(members) = &self.members {
            members.leave();
        }
        self.task.take().expect("a task waits")
    }
}

/// How long, and for what, a submission waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SubmitOptions<'a> {
    pub(crate) extras: &'a Extras,
    pub(crate) deadline: Option<&'a Deadline>,
    /// The caller's, who waits for the outcome. Without one it is refused as saturated at its deadline.
    pub(crate) node: Option<&'a WaitNode>,
    /// Somebody waits for the task's end: on a worker of the pool it must not queue.
    pub(crate) awaited: bool,
    /// Who waits is a worker of the pool, whichever thread submits.
    pub(crate) on_worker: bool,
    /// Its group, unless that is a scope.
    pub(crate) members: Option<&'a Arc<Members>>,
}

#[cold]
fn start_clock(env: &Env, deadline: &Deadline, node: &WaitNode) {
    node.set_deadline(env.due(deadline));
}

/// What a submitter, group or scope adds to each submission; durations count from there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extras {
    pub(crate) label: Option<&'static str>,
    /// What it does where there is no space; `None`: as the pool does.
    pub(crate) when_full: Option<WhenFull>,
    pub(crate) until: Until,
    pub(crate) min_remaining: Duration,
    pub(crate) run_limit: Duration,
}

impl Extras {
    pub(crate) const NONE: Self = Self {
        label: None,
        when_full: None,
        until: Until::NEVER,
        min_remaining: Duration::ZERO,
        run_limit: Duration::MAX,
    };

    /// A submission of a task that nobody waits for.
    #[inline]
    pub(crate) const fn plain(&self) -> SubmitOptions<'_> {
        SubmitOptions {
            extras: self,
            ..SubmitOptions::PLAIN
        }
    }

    /// The deadline of a submission, which counts from here, and the times of its task.
    pub(crate) fn times(&self, env: &Env) -> (Deadline, Option<Times>) {
        let deadline = Deadline::new(self.until);
        let due = env.due(&deadline);
        let times = Times::new(due, self.min_remaining, due, self.run_limit);
        (deadline, times)
    }

    /// Whether it says anything about the task, and not only about its submission.
    #[inline]
    pub(crate) fn wrap(&self) -> bool {
        self.label.is_some() || self.until != Until::NEVER || self.run_limit != Duration::MAX
    }
}

impl<'a> SubmitOptions<'a> {
    pub(crate) const PLAIN: Self = Self {
        extras: &Extras::NONE,
        deadline: None,
        node: None,
        awaited: false,
        on_worker: false,
        members: None,
    };

    /// Whether this thread, or who waits for the task, is a worker of the pool: then it must not
    /// wait for another.
    #[inline]
    pub(crate) fn is_on_worker(&self, env: &Env) -> bool {
        self.on_worker || env.is_own_worker()
    }

    /// Whether it waits for space where there is none; `pool`: whether the pool's
    /// submissions do.
    #[inline]
    pub(crate) fn blocks(&self, pool: bool) -> bool {
        self.extras.when_full.map_or(pool, WhenFull::blocks)
    }

    /// Why it is refused without space: on a worker of the pool that it must not wait there, if it would.
    #[inline]
    pub(crate) fn no_space(&self, env: &Env, pool: bool) -> SubmitError {
        let would_wait = self.awaited || self.blocks(pool);
        SubmitError::Refused(if would_wait && self.is_on_worker(env) {
            Refusal::OnWorker
        } else {
            Refusal::Saturated
        })
    }

    /// Why it comes back, if its deadline has passed.
    pub(crate) fn expired(&self) -> Option<SubmitError> {
        self.deadline.filter(|deadline| deadline.has_passed())?;
        Some(match self.node {
            Some(_) => SubmitError::Expired,
            None => SubmitError::Refused(Refusal::Saturated),
        })
    }

    /// Its deadline or the given one, whichever is first.
    pub(crate) fn earlier<'d>(&self, other: &'d Deadline) -> &'d Deadline
    where
        'a: 'd,
    {
        self.deadline.map_or(other, |own| own.earlier(other))
    }

    /// Starts the clock of a deadline, and tells the task, which may ask: before all that may take
    /// its time.
    #[inline]
    pub(crate) fn start(&self, env: &Env) {
        if let (Some(deadline), Some(node)) = (self.deadline, self.node) {
            start_clock(env, deadline, node);
        }
    }

    /// Returns `true` if its group is cancelled.
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.members.is_some_and(|members| members.is_cancelled())
    }
}
