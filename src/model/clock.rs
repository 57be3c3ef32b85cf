//! A deadline by the clock that shuttle's executions have.

use crate::parts::deadline;
use std::time::Duration;

/// When a wait ends.
#[derive(Debug)]
pub struct Deadline(pub(super) deadline::Deadline);

impl Deadline {
    /// So long from now.
    pub fn within(limit: Duration) -> Self {
        Self(deadline::Deadline::from_now(limit))
    }
}
