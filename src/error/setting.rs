//! A word that no setting has.

use std::error::Error;
use std::fmt;

use crate::duration;

/// A text that is not the word for a [`WhenFull`](crate::WhenFull) or a [`Shutdown`](crate::Shutdown):
/// what their `FromStr` returns.
///
/// `Display` says what was given, what is wrong with it if that is more than its being unknown, and what
/// is allowed.
///
/// # Examples
///
/// ```
/// use lazypool::WhenFull;
///
/// let error = "wait".parse::<WhenFull>().unwrap_err();
/// assert_eq!(error.given(), "wait");
/// assert_eq!(
///     error.to_string(),
///     "\"wait\" is not allowed; allowed: refuse, block, or block:<duration> such as block:250ms"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseSettingError {
    given: String,
    why: Option<duration::Invalid>,
    allowed: &'static str,
}

impl ParseSettingError {
    /// `why`: where only its duration is wrong.
    pub(crate) fn new(given: &str, why: Option<duration::Invalid>, allowed: &'static str) -> Self {
        Self {
            given: given.to_owned(),
            why,
            allowed,
        }
    }

    /// The text that was given.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::Shutdown;
    ///
    /// let error = "Drain".parse::<Shutdown>().unwrap_err();
    /// assert_eq!(error.given(), "Drain");
    /// ```
    pub fn given(&self) -> &str {
        &self.given
    }
}

impl fmt::Display for ParseSettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not allowed", self.given)?;
        if let Some(why) = self.why {
            write!(f, " ({why})")?;
        }
        write!(f, "; allowed: {}", self.allowed)
    }
}

impl Error for ParseSettingError {}
