//! The two verbs, with a label.

use crate::engine::call;
use crate::engine::core::Core;
use crate::engine::request::SubmitOptions;
use crate::engine::submit::submit;
use crate::error::{DeadlineError, Refused};
use crate::sync::Arc;
use crate::work::job::Labelled;
use std::time::Duration;

/// A pool whose tasks carry a label; from [`Pool::labelled`](crate::Pool::labelled).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = lazypool::Pool::new(1)?;
/// let mail = pool.labelled("mail");
/// mail.serve(|| assert_eq!(lazypool::task::label(), Some("mail")))?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    core: &'a Arc<Core>,
    label: &'static str,
}

impl<'a> View<'a> {
    pub(crate) fn new(core: &'a Arc<Core>, label: &'static str) -> Self {
        Self { core, label }
    }

    /// [`Pool::serve`](crate::Pool::serve), with the label. It takes 16 of the 48 bytes that a
    /// closure may have without a box.
    ///
    /// # Errors
    /// As [`Pool::serve`](crate::Pool::serve).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = lazypool::Pool::new(1)?;
    /// pool.labelled("mail").serve(|| println!("sending"))?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "execute")]
    #[doc(alias = "spawn")]
    #[doc(alias = "submit")]
    #[doc(alias = "spawn_blocking")]
    pub fn serve<F>(&self, closure: F) -> Result<(), Refused<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let job = Labelled {
            label: self.label,
            f: closure,
        };
        // SAFETY: F is Send and 'static.
        unsafe { submit(self.core, job, &SubmitOptions::PLAIN) }
            .map_err(|(job, why)| Refused::new(job.f, why))
    }

    /// [`Pool::do_with_deadline`](crate::Pool::do_with_deadline), with the label.
    ///
    /// # Errors
    /// As [`Pool::do_with_deadline`](crate::Pool::do_with_deadline).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = lazypool::Pool::new(1)?;
    /// let n = pool.labelled("sum").do_with_deadline(|| 1 + 1, Duration::MAX);
    /// assert!(matches!(n, Ok(2)));
    /// # Ok(()) }
    /// ```
    #[doc(alias = "timeout")]
    #[doc(alias = "install")]
    #[doc(alias = "join_timeout")]
    pub fn do_with_deadline<F, R>(
        &self,
        closure: F,
        deadline: Duration,
    ) -> Result<R, DeadlineError<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        call::do_with_deadline(self.core, Some(self.label), closure, deadline)
    }
}
