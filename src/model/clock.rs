//! A deadline by the clock of a shuttle execution.

use crate::parts::deadline;
use std::time::Duration;

/// The time at which a wait ends.
#[derive(Debug)]
pub struct Deadline(pub(super) deadline::Deadline);

impl Deadline {
    /// Returns a deadline that is `limit` from now.
    pub fn within(limit: Duration) -> Self {
        Self(deadline::Deadline::from_now(limit))
    }
}
