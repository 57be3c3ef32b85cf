//! Why a handle has no value.

use super::panic::Panic;
use std::error::Error;
use std::fmt;

/// Why a [`Handle`](crate::Handle) has no value.
///
/// In all cases but [`Panicked`](Self::Panicked) the closure never ran, not even partly.
/// Later versions may add variants.
///
/// # Examples
///
/// ```
/// use lazypool::{Pool, TaskError};
///
/// let fail = || -> u32 { panic!("no such file") };
/// let pool = Pool::builder().max_workers(1).build()?;
/// match pool.awaitable().serve(fail)?.join() {
///     Err(TaskError::Panicked(panic)) => {
///         assert_eq!(panic.message().as_deref(), Some("no such file"));
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum TaskError {
    /// The task panicked; [`Builder::on_panic`](crate::Builder::on_panic) has run.
    Panicked(Panic),
    /// No worker started the task by its [deadline](crate::Submitter::with_deadline), or with
    /// [enough time](crate::Submitter::min_remaining) left until it. The closure has been dropped.
    Expired,
    /// The task was cancelled before a worker started it: by its [handle](crate::Handle::cancel) or
    /// by its [group](crate::Group::cancel). The thread that cancelled it may still be dropping its
    /// closure.
    Cancelled,
    /// A [shutdown](crate::Shutdown) discarded the task before a worker started it. The thread that
    /// shut the pool down may still be dropping its closure.
    Discarded,
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(panic) => match panic.message() {
                Some(message) => write!(f, "the task panicked: {message}"),
                None => f.write_str("the task panicked with a payload that is not text"),
            },
            Self::Expired => f.write_str(
                "no worker started the task in time, or less than its `min_remaining` was left: it \
                 never ran",
            ),
            Self::Cancelled => f.write_str("the task was cancelled before it started"),
            Self::Discarded => f.write_str("a shutdown discarded the task before it started"),
        }
    }
}

impl Error for TaskError {}
