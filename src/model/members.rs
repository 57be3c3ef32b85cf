//! The members of a group, without a pool.

use crate::parts::deadline::Deadline;
use crate::parts::gate::Permit;
use crate::parts::members::{Ended, Leaving, Owner, Pending};
use std::time::Duration;

/// The members of a group. A clone is the same group.
#[derive(Debug, Clone)]
pub struct Members(Owner);

/// A pending task of a group, and its permit if the group has a limit.
#[derive(Debug)]
pub struct Member {
    pending: Pending,
    permit: Option<Permit>,
}

impl Members {
    /// Returns a group without tasks.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(Owner::new(None, 0))
    }

    /// Returns a group of which at most `limit` tasks may be pending.
    pub fn limited(limit: usize) -> Self {
        Self(Owner::new(Some(limit), 0))
    }

    /// Enters a task that is to be submitted. Returns `None` if the group is full.
    pub fn enter(&self) -> Option<Member> {
        let permit = match self.0.gate() {
            Some(gate) => Some(gate.take().ok()?.0),
            None => None,
        };
        let pending = self.0.enter();
        Some(Member { pending, permit })
    }

    /// Returns a function that says whether the group has been freed.
    pub fn is_freed(&self) -> impl Fn() -> bool {
        let group = std::sync::Arc::downgrade(&self.0);
        move || group.strong_count() == 0
    }

    /// Returns how many tasks have completed.
    pub fn completed(&self) -> u64 {
        self.0.ended(Ended::Completed)
    }

    /// Waits until there has been one moment during this call at which no task was pending.
    pub fn wait(&self) {
        assert!(self.0.wait(&Deadline::never(), false));
    }

    /// Waits with a deadline that has passed. Returns `true` if no task was pending.
    pub fn wait_no_longer(&self) -> bool {
        self.0.wait(&Deadline::from_now(Duration::ZERO), false)
    }

    /// Notes the position at which a task was queued. `passed` is the position up to which tasks
    /// have been popped.
    pub fn note(&self, position: u64, passed: u64) {
        self.0.note(position, || passed);
    }
}

forward! { Members:
    pending() -> u64;
    is_waited_for() -> bool;
    cancel();
    is_cancelled() -> bool;
    take_queued(head: u64) -> Vec<u64>;
}

impl Member {
    /// Takes the task out of the group, because its submission is refused.
    pub fn refuse(self) {
        if let Some(permit) = self.permit {
            let gate = self.pending.members().gate();
            let _ = gate.expect("it has permits").give(permit);
        }
        self.pending
            .exit()
            .into_iter()
            .for_each(Leaving::finish_now);
    }

    /// Counts the task as completed.
    pub fn complete(self) {
        self.end(Ended::Completed);
    }

    /// Counts the task as discarded.
    pub fn discard(self) {
        self.end(Ended::Discarded);
    }

    /// Counts the task as panicked.
    pub fn panic(self) {
        self.end(Ended::Panicked);
    }

    fn end(self, outcome: Ended) {
        if let Some(permit) = self.permit {
            permit.leave_with_task();
        }
        let gone = self.pending.end(outcome);
        assert_eq!(gone.line, None, "nothing is in line");
        gone.leaving.into_iter().for_each(Leaving::finish_now);
    }
}
