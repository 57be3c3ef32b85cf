//! Why a call with a deadline has no result.

use std::error::Error;
use std::fmt;

use super::{Panic, Refused, Unrun};

/// Why [`do_with_deadline`](crate::Pool::do_with_deadline) has no result to return.
///
/// The four variants are all there will be: match without a `_` arm. In the first two the closure never
/// ran, not even partly, and comes back. In the other two it did run, and is gone.
///
/// `DeadlineError<F>` is `Send` if `F` is, and `Sync` for every `F`. With `?`, it therefore goes into a
/// `Box<dyn Error + Send + Sync>` with any closure that a pool could have taken. Where the closure should
/// not travel with the error, [`without_closure`](Self::without_closure) lets go of it.
///
/// # Examples
///
/// ```
/// use lazypool::{DeadlineError, Pool};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::builder().max_workers(1).build()?;
/// match pool.do_with_deadline(|| 6 * 7, Duration::from_secs(60)) {
///     Ok(answer) => assert_eq!(answer, 42),
///     Err(DeadlineError::Refused(refused)) => println!("not taken: {refused}"),
///     Err(DeadlineError::Expired(_unrun)) => println!("no worker had time for it"),
///     Err(DeadlineError::TimedOut) => println!("started, but still not done"),
///     Err(DeadlineError::Panicked(panic)) => panic.resume(),
/// }
/// # Ok(())
/// # }
/// ```
pub enum DeadlineError<F> {
    /// The pool did not take the task, or a shutdown handed it back before it started.
    Refused(Refused<F>),
    /// The deadline passed before any worker started the closure: it never ran.
    Expired(Unrun<F>),
    /// The deadline passed while the closure was running.
    ///
    /// It still runs, its worker is occupied until it ends, and its result will be dropped. From now on
    /// [`task::is_cancelled`](crate::task::is_cancelled) is true inside it, so that it can stop early.
    TimedOut,
    /// The closure panicked, or the drop of something it captured did. Here is the payload.
    Panicked(Panic),
}

impl<F> DeadlineError<F> {
    /// The closure, where it never ran.
    ///
    /// `Some` for [`Refused`](Self::Refused) and [`Expired`](Self::Expired), `None` for
    /// [`TimedOut`](Self::TimedOut) and [`Panicked`](Self::Panicked): running a closure again that has
    /// already run, perhaps partly, is never this error's suggestion.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::Pool;
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// // No time at all: the closure comes back at once.
    /// let error = pool.do_with_deadline(|| 6 * 7, Duration::ZERO).unwrap_err();
    /// let closure = error.into_inner().expect("it never ran");
    /// assert_eq!(closure(), 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_inner(self) -> Option<F> {
        match self {
            Self::Refused(refused) => Some(refused.into_inner()),
            Self::Expired(unrun) => Some(unrun.into_inner()),
            Self::TimedOut | Self::Panicked(_) => None,
        }
    }

    /// Drops the closure, if it came back, and keeps what happened.
    ///
    /// The result has a type that can be named, and is `'static`, `Send` and `Sync` whatever `F` was.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{DeadlineError, Pool};
    /// use std::time::Duration;
    ///
    /// fn length(pool: &Pool, text: String) -> Result<usize, DeadlineError<()>> {
    ///     pool.do_with_deadline(move || text.len(), Duration::from_secs(60))
    ///         .map_err(DeadlineError::without_closure)
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// assert_eq!(length(&pool, "hello".to_owned())?, 5);
    /// # Ok(())
    /// # }
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
            Self::Expired(_) => {
                f.write_str("no worker started the closure in time: it never ran")
            }
            Self::TimedOut => f.write_str(
                "the deadline passed while the closure was running: it runs on, and its result will \
                 be dropped",
            ),
            Self::Panicked(panic) => match panic.message() {
                Some(message) => write!(f, "the closure panicked: {message}"),
                None => f.write_str("the closure panicked with a payload that is no text"),
            },
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
