//! The function through which async code uses a pool, and its errors. Copy this file.
//!
//! It needs lazypool, and tokio for the timer.

use lazypool::{Refusal, Refused, Submitter, TaskError};
use std::time::Duration;
use std::{error, fmt};
use tokio::time::timeout;

/// Why a caller gets no value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Failed {
    /// There is no space. The same call may succeed in a moment.
    Busy,
    /// The caller's group has all the tasks that it may have.
    TooMany,
    /// The pool is shut down, or the group is cancelled.
    Closed,
    /// No worker started the work in time: it never ran.
    Expired,
    /// The deadline passed while the work ran. It runs on, and may still have an effect.
    TimedOut,
    Panicked,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "there is no space for the work",
            Self::TooMany => "too much work of this caller is under way",
            Self::Closed => "the service is shutting down, or the work was cancelled",
            Self::Expired => "the work was not started in time",
            Self::TimedOut => "the work takes too long, and runs on",
            Self::Panicked => "the work panicked",
        })
    }
}

impl error::Error for Failed {}

impl<F> From<Refused<F>> for Failed {
    fn from(refused: Refused<F>) -> Self {
        match refused.reason() {
            Refusal::GroupFull => Self::TooMany,
            _ if refused.is_retryable() => Self::Busy,
            _ => Self::Closed,
        }
    }
}

impl From<TaskError> for Failed {
    fn from(error: TaskError) -> Self {
        match error {
            TaskError::Panicked(_) => Self::Panicked,
            TaskError::Expired => Self::Expired,
            _ => Self::Closed, // by a shutdown, or a cancel of its group
        }
    }
}

/// Runs `work` and awaits its value, for at most `deadline`; no thread of the runtime waits for it.
/// `on` is a submitter of a pool or of a group, such as `pool.labeled("read")`.
pub(crate) async fn offload<T: Send + 'static>(
    on: Submitter<'_>,
    deadline: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failed> {
    let mut task = on.with_deadline(deadline).awaitable().serve(work)?;
    if let Ok(outcome) = timeout(deadline, &mut task).await {
        return Ok(outcome?);
    }
    task.cancel(); // if it is queued, it is over at once
    match task.join_timeout(Duration::ZERO) {
        Err(_runs_on) => Err(Failed::TimedOut),
        Ok(Err(TaskError::Cancelled)) => Err(Failed::Expired),
        Ok(outcome) => Ok(outcome?), // it has ended just now
    }
}
