//! Submissions with options.

use crate::engine::call;
use crate::engine::core::Core;
use crate::engine::request::{Extras, SubmitOptions};
use crate::engine::submit::submit_with;
use crate::error::{DeadlineError, Refused};
use crate::group::Group;
use crate::handle::Awaitable;
use crate::scope::{self, Scope};
use crate::stats::WhenFull;
use crate::sync::Arc;
use crate::work::job::Serve;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

/// Submits work to a pool with options: a label, a policy for a full pool, a deadline, and the
/// minimum time left before its deadline at which a task may still start.
///
/// [`Pool::labelled`](crate::Pool::labelled), [`Pool::when_full`](crate::Pool::when_full),
/// [`Pool::with_deadline`](crate::Pool::with_deadline) and
/// [`Pool::min_remaining`](crate::Pool::min_remaining) return one. Its own methods of these names
/// add further options; if an option is set twice, the last one counts. The groups and scopes
/// that it makes have its options, too.
///
/// A submitter borrows the pool and is cheap to copy.
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

// As for the pool that it borrows.
impl UnwindSafe for Submitter<'_> {}
impl RefUnwindSafe for Submitter<'_> {}

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

    /// Adds a label for each task; see [`Pool::labelled`](crate::Pool::labelled).
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

    /// Sets what these submissions do when every worker is occupied and the queue is full,
    /// whatever [`Builder::when_full`](crate::Builder::when_full) says.
    ///
    /// A submission that comes from a worker of the pool never waits for room.
    ///
    /// ```
    /// use lazypool::{Pool, WhenFull};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::new(1)?; // refuses when it is full
    /// let batch = pool.when_full(WhenFull::Block); // waits instead
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

    /// Sets a deadline for each task, `d` after its submission.
    ///
    /// * A task that no worker has started by its deadline never starts. Its closure is dropped,
    ///   at the latest when its turn in the queue comes. It counts as
    ///   [`expired`](crate::Stats::expired), and in its group as
    ///   [`discarded`](Group::discarded), as all tasks that never started do there.
    /// * A task that is still running at its deadline runs on, and
    ///   [`task::is_cancelled`](crate::task::is_cancelled) turns true in it. Its worker counts as
    ///   [`abandoned`](crate::Stats::abandoned) until it ends. Then the task counts as
    ///   [`timed_out`](crate::Stats::timed_out), and as completed or panicked.
    /// * A submission that waits for room, or for a thread that is being started, waits until the
    ///   deadline at most. `serve` is then refused as [`Saturated`](crate::Refusal::Saturated), and
    ///   `do_with_deadline` returns [`Expired`](DeadlineError::Expired).
    ///
    /// With [`do_with_deadline`](Submitter::do_with_deadline) the earlier of the two deadlines
    /// counts. [`Duration::MAX`] means no deadline, and so does a time that the clock cannot
    /// express (292 years). With [`Duration::ZERO`] no task is ever started: `serve` accepts one if
    /// there is room, and else refuses it as [`Saturated`](crate::Refusal::Saturated);
    /// `do_with_deadline` accepts none, and returns [`Expired`](DeadlineError::Expired). With `serve`
    /// a deadline
    /// [takes room from the closure](crate::docs::guarantees#closures-without-an-allocation).
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

    /// Sets how much time must be left until its deadline for a task to be started.
    ///
    /// Set `d` to the time that such a task takes. An overloaded pool then does not spend its
    /// time on tasks that would end too late. When the turn of a task comes and less than `d` is
    /// left, it is not started: the caller of
    /// [`do_with_deadline`](Submitter::do_with_deadline) gets it back as
    /// [`Expired`](DeadlineError::Expired), even before the deadline, and a task that was served
    /// through [`with_deadline`](Submitter::with_deadline) is dropped.
    ///
    /// This option has no effect on a task without a deadline. If `d` is longer than the time from
    /// submission to deadline, no task is ever started. With `do_with_deadline` this option
    /// [takes room from the closure](crate::docs::guarantees#closures-without-an-allocation).
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

    /// Does what [`Pool::serve`](crate::Pool::serve) does, with these options.
    ///
    /// # Errors
    /// Those of [`Pool::serve`](crate::Pool::serve). The refusal is
    /// [`Saturated`](crate::Refusal::Saturated), too, if the task's deadline passes while the call
    /// waits for room.
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
        let served = unsafe { submit_with(self.core, job, &self.extras, SubmitOptions::PLAIN) };
        served
            .map(drop)
            .map_err(|(job, why)| Refused::new(job.f, why))
    }

    /// Does what [`Pool::do_with_deadline`](crate::Pool::do_with_deadline) does, with these
    /// options.
    ///
    /// # Errors
    /// Those of [`Pool::do_with_deadline`](crate::Pool::do_with_deadline). The error is
    /// [`Expired`](DeadlineError::Expired), too, if the task's turn comes with less than
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

    /// Returns an [`Awaitable`] whose tasks have these options; see
    /// [`Pool::awaitable`](crate::Pool::awaitable).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = lazypool::Pool::new(1)?;
    /// let soon = pool.with_deadline(Duration::from_secs(1)).awaitable();
    /// assert!(soon.serve(|| lazypool::task::remaining().is_some())?.join()?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn awaitable(&self) -> Awaitable<'a> {
        Awaitable::new(self.core, None, self.extras)
    }

    /// Returns a new [`Group`] whose tasks have these options; see
    /// [`Pool::group`](crate::Pool::group).
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

    /// Runs `f` with a [`Scope`] whose tasks have these options; see
    /// [`Pool::scope`](crate::Pool::scope).
    ///
    /// A task that was accepted with a [deadline](Submitter::with_deadline) is dropped, unrun, if
    /// no worker has started it by then. All others run.
    ///
    /// # Panics
    /// As [`Pool::scope`](crate::Pool::scope) does.
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
