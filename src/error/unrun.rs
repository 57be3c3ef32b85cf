//! A closure that no worker started in time.

use std::error::Error;
use std::fmt;

use super::hidden::Closure;

/// A closure that no worker started by its deadline, or early enough for
/// [`min_remaining`](crate::Submitter::min_remaining).
///
/// [`DeadlineError::Expired`](crate::DeadlineError::Expired) holds one. The closure never ran, not
/// even partly. You can take it out to submit it again ([`into_inner`](Self::into_inner)), run it
/// on the calling thread ([`run`](Self::run)), or drop it.
///
/// `Unrun<F>` is `Send` if `F` is, and `Sync` for every `F`, because it never lends its closure by
/// reference.
///
/// # Examples
///
/// ```
/// use lazypool::{DeadlineError, Pool};
/// use std::time::Duration;
///
/// let pool = Pool::new(1)?;
/// // No time at all: the closure comes back at once.
/// match pool.do_with_deadline(|| 6 * 7, Duration::ZERO) {
///     Err(DeadlineError::Expired(unrun)) => assert_eq!(unrun.run(), 42),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Unrun<F> {
    closure: Closure<F>,
}

impl<F> Unrun<F> {
    pub(crate) const fn new(closure: F) -> Self {
        Self {
            closure: Closure::new(closure),
        }
    }

    /// Returns the closure, for instance to submit it again.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{DeadlineError, Pool};
    /// use std::time::Duration;
    ///
    /// let pool = Pool::new(1)?;
    /// let first = pool.do_with_deadline(|| 6 * 7, Duration::ZERO);
    /// let answer = match first {
    ///     // Once more, with a deadline that can be met.
    ///     Err(DeadlineError::Expired(unrun)) => {
    ///         pool.do_with_deadline(unrun.into_inner(), Duration::from_secs(60))
    ///     }
    ///     other => other,
    /// };
    /// assert_eq!(answer?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_inner(self) -> F {
        self.closure.into_inner()
    }

    /// Runs the closure on the calling thread and returns its value.
    ///
    /// A closure that runs here is not a task of the pool, and has no deadline: see
    /// [`Refused::run_anyway`](crate::Refused::run_anyway).
    ///
    /// # Panics
    ///
    /// Panics if the closure panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{DeadlineError, Pool};
    /// use std::time::Duration;
    ///
    /// let pool = Pool::new(1)?;
    /// if let Err(DeadlineError::Expired(unrun)) = pool.do_with_deadline(|| "late", Duration::ZERO) {
    ///     assert_eq!(unrun.run(), "late");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run<R>(self) -> R
    where
        F: FnOnce() -> R,
    {
        self.into_inner()()
    }
}

// This is written by hand, because a derive would require `F: Debug`, and closures are not `Debug`.
impl<F> fmt::Debug for Unrun<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unrun(..)")
    }
}

impl<F> fmt::Display for Unrun<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no worker started the closure in time, or less than its `min_remaining` was left: it never \
             ran",
        )
    }
}

impl<F> Error for Unrun<F> {}
