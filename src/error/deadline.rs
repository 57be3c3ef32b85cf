//! Why a call with a deadline has no result.

use std::error::Error;
use std::fmt;

use super::panic::Panic;
use super::refused::Refused;
use super::unrun::Unrun;

/// Why [`do_with_deadline`](crate::Pool::do_with_deadline) returned no value.
///
/// No variant will be added, so you can match without a `_` arm. `Refused` and `Expired` hold the
/// closure, which never ran, not even partly. With `TimedOut`, the closure was started and may
/// still be running. With `Panicked`, it ran, perhaps only partly.
///
/// `DeadlineError<F>` is `Send` if `F` is, and `Sync` for every `F`. The operator `?` therefore
/// converts it into a `Box<dyn Error + Send + Sync>` for any closure that a pool could have taken.
/// [`without_closure`](Self::without_closure) drops the closure and keeps the rest. It returns a
/// `DeadlineError<()>`, for which you can write `DeadlineError`, for instance in [an error enum of
/// your own](crate::docs::outcomes#an-error-enum-of-your-own).
///
/// # Examples
///
/// ```
/// use lazypool::{DeadlineError, Pool};
/// use std::time::Duration;
///
/// let pool = Pool::builder().max_workers(1).build()?;
/// match pool.do_with_deadline(|| 6 * 7, Duration::from_secs(60)) {
///     Ok(answer) => assert_eq!(answer, 42),
///     Err(DeadlineError::Refused(refused)) => println!("not taken: {refused}"),
///     Err(DeadlineError::Expired(_unrun)) => println!("no worker had time for it"),
///     Err(DeadlineError::TimedOut) => println!("started, but still not done"),
///     Err(DeadlineError::Panicked(panic)) => panic.resume(),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub enum DeadlineError<F = ()> {
    /// The pool did not take the task, or a shutdown or the cancellation of its group handed it back
    /// before it started.
    Refused(Refused<F>),
    /// No worker started the closure by the deadline, or early enough for
    /// [`min_remaining`](crate::Submitter::min_remaining). The closure never ran.
    Expired(Unrun<F>),
    /// The deadline passed while the closure was running.
    ///
    /// The closure still runs. Its worker stays busy until it ends, and then drops its result. From
    /// now on [`task::is_cancelled`](crate::task::is_cancelled) is true inside it, so that it can
    /// stop early.
    TimedOut,
    /// The closure panicked, or the drop of something that it captured did. This is the payload.
    Panicked(Panic),
}

impl<F> DeadlineError<F> {
    /// Returns the closure if it never ran.
    ///
    /// It is `Some` for [`Refused`](Self::Refused) and [`Expired`](Self::Expired). It is `None` for
    /// [`TimedOut`](Self::TimedOut) and [`Panicked`](Self::Panicked), where the closure has been
    /// started.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::Pool;
    /// use std::time::Duration;
    ///
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// // No time at all: the closure comes back at once.
    /// let error = pool.do_with_deadline(|| 6 * 7, Duration::ZERO).unwrap_err();
    /// let closure = error.into_inner().expect("it never ran");
    /// assert_eq!(closure(), 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_inner(self) -> Option<F> {
        match self {
            Self::Refused(refused) => Some(refused.into_inner()),
            Self::Expired(unrun) => Some(unrun.into_inner()),
            Self::TimedOut | Self::Panicked(_) => None,
        }
    }

    /// Drops the closure, if the error holds one, and keeps the rest.
    ///
    /// The result has a type that can be named, so it can be stored or returned. It is `'static`,
    /// `Send` and `Sync` for every `F`.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{DeadlineError, Pool};
    /// use std::time::Duration;
    ///
    /// fn length(pool: &Pool, text: String) -> Result<usize, DeadlineError> {
    ///     pool.do_with_deadline(move || text.len(), Duration::from_secs(60))
    ///         .map_err(DeadlineError::without_closure)
    /// }
    ///
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// assert_eq!(length(&pool, "hello".to_owned())?, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn without_closure(self) -> DeadlineError<()> {
        match self {
            Self::Refused(refused) => DeadlineError::Refused(refused.without_closure()),
            Self::Expired(unrun) => {
                drop(unrun);
                DeadlineError::Expired(Unrun::new(()))
            }
            Self::TimedOut => DeadlineError::TimedOut,
            Self::Panicked(panic) => DeadlineError::Panicked(panic),
        }
    }
}

impl<F> fmt::Debug for DeadlineError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => f.debug_tuple("Refused").field(refused).finish(),
            Self::Expired(unrun) => f.debug_tuple("Expired").field(unrun).finish(),
            Self::TimedOut => f.write_str("TimedOut"),
            Self::Panicked(panic) => f.debug_tuple("Panicked").field(panic).finish(),
        }
    }
}

impl<F> fmt::Display for DeadlineError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => fmt::Display::fmt(refused, f),
            Self::Expired(unrun) => fmt::Display::fmt(unrun, f),
            Self::TimedOut => f.write_str(
                "the deadline passed while the closure was running: it runs on, and its result will \
                 be dropped",
            ),
            Self::Panicked(panic) => fmt::Display::fmt(panic, f),
        }
    }
}

impl<F> Error for DeadlineError<F> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(refused) => refused.source(),
            Self::Expired(_) | Self::TimedOut | Self::Panicked(_) => None,
        }
    }
}
