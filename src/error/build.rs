//! Why a pool could not be built.

use std::error::Error;
use std::fmt;
use std::io;

/// The largest `max_workers` that [`Builder::build`](crate::Builder::build) accepts.
pub(crate) const MAX_WORKERS: usize = 65_536;

/// The largest `queue_capacity` that [`Builder::build`](crate::Builder::build) accepts.
pub(crate) const MAX_QUEUE: usize = 1 << 24;

/// The smallest `stack_size` in bytes that [`Builder::build`](crate::Builder::build) accepts. It is
/// the minimum of most systems. The standard library would silently raise a smaller one.
pub(crate) const MIN_STACK: usize = 16 << 10;

/// Why a pool could not be built.
///
/// [`Builder::build`](crate::Builder::build) and [`Pool::new`](crate::Pool::new) return it.
/// `Display` names the given value and the allowed ones. The enum may grow: keep a `_` arm when you
/// match on it.
///
/// # Examples
///
/// ```
/// use lazypool::{BuildError, Pool};
///
/// let error = Pool::new(0).unwrap_err();
/// assert!(matches!(error, BuildError::ZeroWorkers));
/// assert_eq!(error.to_string(), "max_workers is 0; allowed: 1 or more");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// `max_workers` is 0. Such a pool could never run a task.
    ZeroWorkers,
    /// `max_workers` is larger than any pool allows.
    TooManyWorkers {
        /// The number that was given.
        given: usize,
        /// The largest number that is allowed.
        max: usize,
    },
    /// `min_workers` is larger than `max_workers`.
    MinExceedsMax {
        /// The `min_workers` that was given.
        min: usize,
        /// The `max_workers` of the same builder.
        max: usize,
    },
    /// `queue_capacity` is larger than any pool allows.
    QueueTooLong {
        /// The `queue_capacity` that was given.
        given: usize,
        /// The largest number that is allowed.
        max: usize,
    },
    /// `thread_name` is empty, or contains a NUL byte, which the name of a thread must not contain.
    BadThreadName,
    /// `stack_size` is smaller than 16 KiB, which is the minimum of most systems.
    StackTooSmall {
        /// The `stack_size` that was given, in bytes.
        given: usize,
        /// The smallest number of bytes that is allowed.
        min: usize,
    },
    /// The OS could not create a thread for one of the `min_workers`.
    ///
    /// The workers that had already been started have ended. Lower
    /// [`min_workers`](crate::Builder::min_workers) or [`stack_size`](crate::Builder::stack_size),
    /// or raise the OS's limit on threads. Both `Display` and `source()` give the OS's error.
    Spawn(io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroWorkers => f.write_str("max_workers is 0; allowed: 1 or more"),
            Self::TooManyWorkers { given, max } => {
                write!(f, "max_workers is {given}; allowed: 1..={max}")
            }
            Self::MinExceedsMax { min, max } => {
                write!(
                    f,
                    "min_workers is {min}; allowed: 0..={max}, as max_workers is {max}"
                )
            }
            Self::QueueTooLong { given, max } => {
                write!(f, "queue_capacity is {given}; allowed: 0..={max}")
            }
            Self::BadThreadName => {
                f.write_str("thread_name is empty or contains a NUL byte; allowed: any other text")
            }
            Self::StackTooSmall { given, min } => {
                write!(f, "stack_size is {given}; allowed: {min} or more")
            }
            Self::Spawn(error) => write!(f, "a worker thread could not be started: {error}"),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Spawn(error) => Some(error),
            _ => None,
        }
    }
}
