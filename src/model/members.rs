//! The members of a group, without a pool.

use crate::parts::deadline::Deadline;
use crate::parts::members::{Ended, Handle, Pending};
use std::time::Duration;

/// The handle of a group.
#[derive(Debug)]
pub struct Members(Handle);

/// A task that is pending.
#[derive(Debug)]
pub struct Member(Pending);

impl Members {
    /// Nobody yet.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(Handle::new())
    }

    /// A task is to be submitted.
    pub fn enter(&self) -> Member {
        Member(self.0.enter())
    }

    /// It has been refused.
    pub fn refused(&self, member: Member) {
        member.0.refuse();
    }

    /// Tasks that are pending.
    pub fn pending(&self) -> usize {
        self.0.pending()
    }

    /// Tasks that have completed.
    pub fn completed(&self) -> usize {
        self.0.completed()
    }

    /// Tasks that have panicked.
    pub fn panicked(&self) -> usize {
        self.0.panicked()
    }

    /// Whether somebody waits.
    pub fn is_waited_for(&self) -> bool {
        self.0.is_waited_for()
    }

    /// Waits until nothing is pending, or was at one moment of this call.
    pub fn wait(&self) {
        assert!(self.0.wait(&Deadline::never(), false));
    }

    /// The same until the deadline; whether nothing was pending.
    pub fn wait_until(&self, deadline: &super::Deadline) -> bool {
        self.0.wait(&deadline.0, false)
    }

    /// The same, with a deadline that has passed.
    pub fn wait_no_longer(&self) -> bool {
        self.0.wait(&Deadline::from_now(Duration::ZERO), false)
    }
}

impl Member {
    /// The task has completed.
    pub fn complete(self) {
        self.0.end(Ended::Completed);
    }

    /// The task is discarded.
    pub fn discard(self) {
        self.0.end(Ended::Discarded);
    }

    /// The task has panicked.
    pub fn panic(self) {
        self.0.end(Ended::Panicked);
    }
}
