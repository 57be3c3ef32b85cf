//! The data of a submission beside its task, and its result.

use crate::error::Refusal;
use crate::parts::completion::{mailbox_id, queue_id, WaitNode};
use crate::parts::deadline::Deadline;
use crate::parts::gate::Flags;
use crate::work::env::Env;
use crate::work::job::Task;

/// The place where an accepted task was put. A worker that must [pay](super::pay) before it runs the task may have put it
/// into its mailbox again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Location {
    Mailbox { slot: usize, generation: u64 },
    Queue { position: u64 },
}

impl Location {
    /// Returns the place where the task with this node is now. `self` is where it was put at first.
    pub(crate) fn unless_offered_again(self, node: &WaitNode) -> Self {
        let again = node.offered_again();
        again.map_or(self, |(slot, generation)| Self::Mailbox {
            slot,
            generation,
        })
    }

    /// Returns `true` if the worker on that slot may have the task that was put here.
    pub(crate) fn may_be_on(self, on: usize) -> bool {
        match self {
            Self::Mailbox { slot, .. } => slot == on,
            Self::Queue { .. } => true,
        }
    }

    /// Returns the id by which the decision of a worker names this task.
    pub(crate) fn task_id(self) -> u64 {
        match self {
            Self::Mailbox { generation, .. } => mailbox_id(generation),
            Self::Queue { position } => queue_id(position),
        }
    }
}

/// Why [`Core::accept`](super::Core::accept) has not accepted a task.
#[derive(Debug)]
pub(crate) enum NotAccepted {
    /// No permit could be taken. The gate's flags say why.
    NoPermit(Flags),
    /// The task had a permit, and could not be placed.
    NotPlaced(Refusal),
}

impl NotAccepted {
    /// Returns the reason if the submission is refused whether it may wait or not. `None`: it needs a
    /// permit.
    pub(crate) fn into_refusal(self) -> Option<Refusal> {
        match self {
            Self::NotPlaced(why) => Some(why),
            Self::NoPermit(flags) => flags.is_closed().then_some(Refusal::Closed),
        }
    }
}

/// The reason why a task came back.
#[derive(Debug)]
pub(crate) enum SubmitError {
    Refused(Refusal),
    /// The deadline has passed, and the task has not started: there was no space, its caller took it back, or its worker
    /// found it too late.
    Expired,
}

impl SubmitError {
    /// Returns the reason for the refusal. Must not be called on `Expired`. A submission without a
    /// `node` never fails as `Expired`.
    #[inline]
    pub(crate) fn into_refusal(self) -> Refusal {
        match self {
            Self::Refused(why) => why,
            Self::Expired => unreachable!("only where an outcome is awaited"),
        }
    }
}

/// What a submission says of its deadline, and of the thread that waits for its task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Submission<'a> {
    /// The deadline of the submission.
    pub(crate) deadline: Option<&'a Deadline>,
    /// The node of a caller that waits for the outcome.
    pub(crate) node: Option<&'a WaitNode>,
    /// Set if a thread waits for the end of the task. If that thread is a worker of this pool, the
    /// task must not be queued. If all workers waited for queued tasks, no worker would be left to
    /// run them.
    pub(crate) awaited: bool,
    /// Set if the thread that waits for the task is a worker of this pool, although another thread may
    /// submit it.
    pub(crate) on_worker: bool,
}

impl Submission<'_> {
    /// No thread waits for the task.
    pub(crate) const PLAIN: Self = Self {
        deadline: None,
        node: None,
        awaited: false,
        on_worker: false,
    };

    /// Returns `true` if this thread, or the thread that waits for the task, is a worker of the
    /// pool. Then the submission must not wait for space, because that worker may have to make the
    /// space.
    #[inline]
    pub(crate) fn is_on_worker(&self, env: &Env) -> bool {
        self.on_worker || env.is_own_worker()
    }

    /// Returns `true` if a worker of the pool waits for the task, so that it must not be queued.
    #[inline]
    pub(crate) fn is_nested(&self, env: &Env) -> bool {
        self.awaited && self.is_on_worker(env)
    }

    /// Asserts, in debug builds and models, that this is said of such a task: a caller that is blocked for it has a node.
    #[inline(always)]
    pub(crate) fn assert_fits(&self, task: &Option<Task>) {
        let is_calls = || task.as_ref().is_some_and(|task| task.table.has_caller);
        debug_assert_eq!(is_calls(), self.node.is_some(), "a caller and its node");
        debug_assert!(self.awaited || self.node.is_none(), "a caller waits");
    }

    /// If the submission has a node, stores the deadline there, where the task can read it. A
    /// deadline that was given as a duration counts from the first look at it, which may be this
    /// call. So this must be called before any step that may take long.
    #[inline]
    pub(crate) fn start(&self, env: &Env) {
        if let (Some(deadline), Some(node)) = (self.deadline, self.node) {
            node.set_deadline(env.due(deadline));
        }
    }
}
