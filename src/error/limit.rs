//! A limit that a pool cannot have.

use std::error::Error;
use std::fmt;

/// A limit on workers that the pool cannot have: 0, or more than its `max_workers`.
///
/// [`Pool::set_limit`](crate::Pool::set_limit) returns it. `Display` names the given value and the
/// allowed ones.
///
/// # Examples
///
/// ```
/// let pool = lazypool::Pool::new(8)?;
/// let error = pool.set_limit(9).unwrap_err();
/// assert_eq!((error.given(), error.max()), (9, 8));
/// assert_eq!(error.to_string(), "the limit is 9; allowed: 1..=8");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitError {
    given: usize,
    max: usize,
}

impl LimitError {
    pub(crate) const fn new(given: usize, max: usize) -> Self {
        Self { given, max }
    }

    /// Returns the limit that was given.
    ///
    /// ```
    /// assert_eq!(lazypool::Pool::new(8)?.set_limit(0).unwrap_err().given(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn given(&self) -> usize {
        self.given
    }

    /// Returns the largest limit that is allowed: the pool's `max_workers`. The smallest is 1.
    ///
    /// ```
    /// assert_eq!(lazypool::Pool::new(8)?.set_limit(0).unwrap_err().max(), 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn max(&self) -> usize {
        self.max
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the limit is {}; allowed: 1..={}", self.given, self.max)
    }
}

impl Error for LimitError {}
