//! The two verbs, with options.

use crate::engine::call;
use crate::engine::core::Core;
use crate::engine::request::{Extras, SubmitOptions};
use crate::engine::submit::submit_with;
use crate::error::{DeadlineError, Refused};
use crate::group::Group;
use crate::scope::{self, Scope};
use crate::stats::WhenFull;
use crate::sync::Arc;
use crate::work::job::Serve;
use std::fmt;
use std::time::Duration;

/// The verbs of a pool, with options for what is submitted through it; from
/// [`Pool::labelled`](crate::Pool::labelled), [`Pool::when_full`](crate::Pool::when_full),
/// [`Pool::with_deadline`](crate::Pool::with_deadline) or
/// [`Pool::min_remaining`](crate::Pool::min_remaining).
///
/// Options add up; of one that is set twice the last counts. It borrows the pool, and can be
/// copied. Tasks pay only for the options they have.
///
/// ```
/// use lazypool::{Pool, WhenFull};
/// use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::builder().max_workers(2).queue_capacity(8).build()?;
/// let mail = pool.labelled("mail").when_full(WhenFull::BlockFor(Duration::from_millis(50)));
/// mail.serve(|| assert_eq!(lazypool::task::label(), Some("mail")))?;
/// let group = mail.with_deadline(Duration::from_secs(1)).group();
/// group.serve(|| assert!(lazypool::task::deadline().is_some()))?;
/// group.wait();
/// # Ok(()) }
/// ```
#[derive(Clone, Copy)]
pub struct Submitter<'a> {
    core: &'a Arc<Core>,
    extras: Extras,
}

impl fmt::Debug for Submitter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Extras {
            label,
            when_full,
            deadline,
            min_remaining,
        } = self.extras;
        f.debug_struct("Submitter")
            .field("label", &label)
            .field("when_full", &when_full)
            .field("deadline", &deadline)
            .field("min_remaining", &min_remaining)
            .finish_non_exhaustive()
    }
}

impl<'a> Submitter<'a> {
    pub(crate) fn new(core: &'a Arc<Core>) -> Self {
        Self {
            core,
            extras: Extras::NONE,
        }
    }

    /// The same, with a label on each task; see [`Pool::labelled`](crate::Pool::labelled).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = lazypool::Pool::new(1)?;
    /// pool.labelled("mail").serve(|| println!("sending"))?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn labelled(self, label: &'static str) -> Self {
        let label = Some(label);
        let extras = Extras {
            label,
            ..self.extras
        };
        Self { extras, ..self }
    }

    /// The same, with a policy of its own where every worker is occupied and the queue is
    /// full. On a worker of the pool nothing ever waits for room.
    ///
    /// ```
    /// use lazypool::{Pool, WhenFull};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::new(1)?; // its requests are refused when it is full
    /// let batch = pool.when_full(WhenFull::Block); // a producer waits instead
    /// for n in 0..10 {
    ///     batch.serve(move || println!("{n}"))?;
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn when_full(self, policy: WhenFull) -> Self {
        let when_full = Some(policy);
        let extras = Extras {
            when_full,
            ..self.extras
        };
        Self { extras, ..self }
    }

    /// The same, with a deadline for each task that is served, `d` after its submission.
    ///
    /// A task that no worker has started by then never is: its closure is dropped, at the
    /// latest when its turn comes, and counted as [`expired`](crate::Stats::expired); its
    /// group counts it as discarded. One that runs past it sees
    /// [`task::is_cancelled`](crate::task::is_cancelled), and ends as
    /// [`timed_out`](crate::Stats::timed_out) and completed or panicked; nobody waits for it
    /// any more ([`Stats::abandoned`](crate::Stats::abandoned)). Waiting for room ends at the
    /// deadline, as [`Saturated`](crate::Refusal::Saturated); so does waiting for a thread that
    /// is just being started, or ends.
    ///
    /// [`do_with_deadline`](Submitter::do_with_deadline) keeps the earlier of both.
    /// [`Duration::MAX`], and what is beyond the clock (292 years), is no deadline;
    /// [`Duration::ZERO`] accepts a task and never starts it. A deadline takes 16 of the 48
    /// bytes that a closure may have without a box.
    ///
    /// ```
    /// use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = lazypool::Pool::builder().max_workers(1).queue_capacity(8).build()?;
    /// let soon = pool.with_deadline(Duration::from_millis(1));
    /// pool.serve(|| std::thread::sleep(Duration::from_millis(20)))?;
    /// soon.serve(|| unreachable!("too late for it"))?;
    /// # drop(pool);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_deadline(self, d: Duration) -> Self {
        let extras = Extras {
            deadline: d,
            ..self.extras
        };
        Self { extras, ..self }
    }

    /// The same, for tasks that are not started with less than `d` of their deadline left:
    /// of [`with_deadline`](Submitter::with_deadline), or of
    /// [`do_with_deadline`](Submitter::do_with_deadline), whose caller gets the closure back as
    /// [`Expired`](DeadlineError::Expired) when its turn comes, even before the deadline. So an
    /// overloaded pool does not spend its time on answers that come too late: `d` is what a
    /// task takes.
    ///
    /// Without a deadline it says nothing. With `d` longer than the deadline, no task is ever
    /// started. It takes 8 of the 32 bytes that a closure of `do_with_deadline` may have without
    /// a box.
    ///
    /// ```
    /// use lazypool::{DeadlineError, Pool};
    /// use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::new(1)?;
    /// let takes = Duration::from_secs(2);
    /// let outcome = pool.min_remaining(takes).do_with_deadline(|| 1, Duration::from_secs(1));
    /// assert!(matches!(outcome, Err(DeadlineError::Expired(_))));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn min_remaining(self, d: Duration) -> Self {
        let extras = Extras {
            min_remaining: d,
            ..self.extras
        };
        Self { extras, ..self }
    }

    /// [`Pool::serve`](crate::Pool::serve), with the options.
    ///
    /// # Errors
    /// As [`Pool::serve`](crate::Pool::serve); and
    /// [`Saturated`](crate::Refusal::Saturated) if the task's deadline passes while it waits
    /// for room.
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
        let job = Serve { f: closure };
        // SAFETY: F is Send and 'static.
        unsafe { submit_with(self.core, job, &self.extras, SubmitOptions::PLAIN) }
            .map_err(|(job, why)| Refused::new(job.f, why))
    }

    /// [`Pool::do_with_deadline`](crate::Pool::do_with_deadline), with the options.
    ///
    /// # Errors
    /// As [`Pool::do_with_deadline`](crate::Pool::do_with_deadline); and
    /// [`Expired`](DeadlineError::Expired) when its turn comes with less than
    /// [`min_remaining`](Submitter::min_remaining) left.
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
        timeout: Duration,
    ) -> Result<R, DeadlineError<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        call::do_with(self.core, &self.extras, closure, timeout)
    }

    /// [`Pool::group`](crate::Pool::group), whose tasks have the options.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = lazypool::Pool::new(1)?;
    /// let group = pool.labelled("import").group();
    /// group.serve(|| assert_eq!(lazypool::task::label(), Some("import")))?;
    /// group.wait();
    /// assert_eq!(group.completed(), 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn group(&self) -> Group {
        Group::new(Arc::clone(self.core), self.extras)
    }

    /// [`Pool::scope`](crate::Pool::scope), whose tasks have the options. A task that was
    /// accepted with a [deadline](Submitter::with_deadline) runs, but for that deadline.
    ///
    /// # Panics
    /// As [`Pool::scope`](crate::Pool::scope).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = lazypool::Pool::new(1)?;
    /// let mut label = None;
    /// pool.labelled("sum").scope(|s| s.serve(|| label = lazypool::task::label()).is_ok());
    /// assert_eq!(label, Some("sum"));
    /// # Ok(()) }
    /// ```
    pub fn scope<'env, F, T>(&self, f: F) -> T
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
    {
        scope::scope(self.core, self.extras, f)
    }
}
