//! A task's membership of its group, as the task ends.

use crate::parts::members::{Ended, Gone, Pending};

/// The membership of a task that ends, if it is in a group.
///
/// A task with a waiter leaves its group in two steps: it has ended before the waiter is told, so that the group's figures have it,
/// and leaves after that, so that a wait for the group ends with all outcomes in place. If nobody waits for the
/// task itself, it ends and leaves by one locked step.
#[derive(Debug)]
#[must_use = "the task is inside its group until `leave`"]
pub(crate) struct Membership {
    pending: Option<Pending>,
    has_waiter: bool,
    /// How it has ended, once it has.
    outcome: Option<Ended>,
}

impl Membership {
    #[inline]
    pub(crate) fn new(pending: Option<Pending>, has_waiter: bool) -> Self {
        Self {
            pending,
            has_waiter,
            outcome: None,
        }
    }

    /// Returns `true` if the task is in a group.
    #[inline]
    pub(crate) fn exists(&self) -> bool {
        self.pending.is_some()
    }

    /// Notes how the task has ended. Called before its waiter is told. If a submission waits for the permit of the task, and the
    /// task does not leave at once, returns the group's number: the calling thread must pass the permit in that line.
    #[inline]
    #[must_use]
    pub(crate) fn has_ended(&mut self, outcome: Ended) -> Option<u64> {
        self.outcome = Some(outcome);
        let pending = self.pending.as_ref().filter(|_| self.has_waiter)?;
        pending.has_ended(outcome)
    }

    /// Takes the task out of its group. Called after [`has_ended`](Self::has_ended), once the waiter is told.
    #[inline]
    pub(crate) fn leave(self) -> Gone {
        let Some(pending) = self.pending else {
            return Gone::default();
        };
        let outcome = self.outcome.expect("it has ended");
        if !self.has_waiter {
            return pending.end(outcome);
        }
        Gone {
            line: None,
            leaving: pending.has_left(),
        }
    }
}
