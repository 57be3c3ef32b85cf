//! The functions through which async code uses a pool, and their errors. Copy this file.
//!
//! It needs lazypool, and tokio for the timer.

use lazypool::{task, Handle, Refusal, Refused, Submitter, TaskError, WhenFull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{error, fmt};
use tokio::time::timeout;

/// Why a caller gets no value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Failed {
    /// There is no space, or none came in time: the work never ran. It may succeed in a moment. (Also on
    /// a worker of the pool, which must not wait for space.)
    Busy,
    /// The caller's group has all the tasks that it may have: the work never ran.
    TooMany,
    /// The pool is shut down, or the group is cancelled.
    Closed,
    /// No worker started the work in time: it never ran.
    Expired,
    /// The deadline passed while a worker had the work. It may run on, and may have an effect.
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
            Self::TimedOut => "the work takes too long, and may run on",
            Self::Panicked => "the work panicked",
        })
    }
}

impl error::Error for Failed {}

impl<F> From<Refused<F>> for Failed {
    fn from(refused: Refused<F>) -> Self {
        match refused.reason() {
            Refusal::GroupFull => Self::TooMany,
            Refusal::OnWorker => Self::Busy,
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
/// Never waits for space. `on` is a submitter of a pool or of a group, such as
/// `pool.labeled("read")`.
#[allow(dead_code)] // a service may need only the other
pub(crate) async fn offload<T: Send + 'static>(
    on: Submitter<'_>,
    deadline: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failed> {
    let tasks = on.when_full(WhenFull::Refuse).with_deadline(deadline);
    let task = tasks.awaitable().serve(move || in_time(work))?;
    value_of(task, deadline).await
}

/// As [`offload`], but if the pool or the group is full, waits in line until `deadline`.
#[allow(dead_code)] // as above
pub(crate) async fn offload_waiting<T: Send + 'static>(
    on: Submitter<'_>,
    deadline: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failed> {
    let start = Instant::now();
    // If this caller gives up just as a worker starts the work, the first of them sets the flag.
    let decided = Arc::new(AtomicBool::new(false));
    let starts = Arc::clone(&decided);
    let work = move || {
        let first = !starts.swap(true, Ordering::Relaxed);
        first.then(|| in_time(work)).flatten()
    };
    let tasks = on.with_deadline(deadline).awaitable();
    match timeout(deadline, tasks.serve_async(work)).await {
        Ok(task) => value_of(task?, deadline.saturating_sub(start.elapsed())).await,
        Err(_) if decided.swap(true, Ordering::Relaxed) => Err(Failed::TimedOut),
        Err(_) => Err(Failed::Busy),
    }
}

/// Runs `work`. Returns its value only if it ended by its deadline: past that, `is_cancelled` may
/// have told it to stop early.
fn in_time<T>(work: impl FnOnce() -> T) -> Option<T> {
    let value = work();
    (task::remaining() != Some(Duration::ZERO)).then_some(value)
}

/// Awaits the value of a task for at most `limit`. Then cancels the task.
async fn value_of<T>(mut task: Handle<Option<T>>, limit: Duration) -> Result<T, Failed> {
    if let Ok(outcome) = timeout(limit, &mut task).await {
        return outcome?.ok_or(Failed::TimedOut);
    }
    task.cancel(); // if it is queued, it is over at once
    match task.join_timeout(Duration::ZERO) {
        Ok(Err(TaskError::Cancelled)) => Err(Failed::Expired), // it never ran
        Ok(Err(error)) => Err(error.into()),
        Ok(Ok(_)) | Err(_) => Err(Failed::TimedOut), // it has ended just now, or runs on
    }
}
