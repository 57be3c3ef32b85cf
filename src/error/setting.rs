//! A text that is not a value of a setting.

use std::error::Error;
use std::fmt;

use crate::duration;

/// The error that `FromStr` of [`WhenFull`](crate::WhenFull) and [`Shutdown`](crate::Shutdown)
/// returns if the text is not one of their words.
///
/// `Display` names the given text and the allowed words. If a duration in the text is invalid, it
/// also says why.
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
    /// Creates the error for the text `given`. `why` is set if only the duration in the text is
    /// wrong.
    pub(crate) fn new(given: &str, why: Option<duration::Invalid>, allowed: &'static str) -> Self {
        Self {
            given: given.to_owned(),
            why,
            allowed,
        }
    }

    /// Returns the text that was given.
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
