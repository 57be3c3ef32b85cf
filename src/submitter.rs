//! The submitter, which makes submissions with options.

mod options;

use crate::engine::group::submit_member;
use crate::engine::shared::Core;
use crate::engine::submit::call;
use crate::engine::submit::erase::submit_with;
use crate::engine::submit::request::SubmitterOptions;
use crate::error::{DeadlineError, Refused};
use crate::group::Group;
use crate::handle::Awaitable;
use crate::parts::deadline::Until;
use crate::parts::members::Owner;
use crate::pool::Pool;
use crate::scope::{self, Scope};
use crate::stats::WhenFull;
use crate::sync::{from_std, Arc};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant};

pub(crate) use options::options;

/// Submits work to a pool or a [`Group`] with options: a label, a policy for a full pool, a
/// deadline, a limit on the time that a task runs, and a minimum for the time that is left until
/// the deadline when a task starts.
///
/// [`Pool::labeled`], [`Pool::when_full`], [`Pool::with_deadline`], [`Pool::with_deadline_at`],
/// [`Pool::run_limit`] and [`Pool::min_remaining`] return a submitter, and so do the methods of the
/// same names of [`Group`]. A submitter's methods of these names add further options, in any order.
/// If an option is set twice, the last value applies.
///
/// A submitter borrows the pool or the group, and is cheap to copy.
///
/// ```
/// use lazypool::{Pool, WhenFull};
/// use std::time::Duration;
/// let pool = Pool::builder().max_workers(2).queue_capacity(8).build()?;
/// let mail = pool.labeled("mail").when_full(WhenFull::BlockFor(Duration::from_millis(50)));
/// mail.serve(|| assert_eq!(lazypool::task::label(), Some("mail")))?;
/// let soon = mail.with_deadline(Duration::from_secs(1));
/// soon.serve(|| assert!(lazypool::task::deadline().is_some()))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Groups and scopes
///
/// The groups and scopes that a submitter makes have its options. A group passes them on: its tasks
/// have the options of the submitter that made the group, unless the group's own submitter sets
/// them again.
///
/// The tasks of a submitter that a group returned are members of that group. A task is a member of
/// one group or scope. If such a submitter makes a group or a scope, the new one takes the place of
/// the old one: its tasks have the same options, but are **not members of the old group**, whose
/// limit, wait and cancellation do not include them.
///
/// ```
/// use std::time::Duration;
/// let pool = lazypool::Pool::builder().max_workers(2).queue_capacity(8).build()?;
/// let tenant = pool.with_deadline(Duration::from_secs(1)).limited_group(4);
/// let reads = tenant.labeled("read"); // has the deadline, too
/// let n = reads.do_with_deadline(|| 6 * 7, Duration::from_secs(5))?;
/// assert_eq!((n, tenant.completed()), (42, 1));
///
/// let other = reads.group(); // has the label and the deadline, but not the limit of 4
/// other.serve(|| assert_eq!(lazypool::task::label(), Some("read")))?;
/// other.wait();
/// assert_eq!((tenant.completed(), other.completed()), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Submitter<'a> {
    core: &'a Arc<Core>,
    /// The group that the tasks are members of.
    members: Option<&'a Owner>,
    extras: SubmitterOptions,
}

// A submitter only borrows the pool or the group, which are unwind safe.
impl UnwindSafe for Submitter<'_> {}
impl RefUnwindSafe for Submitter<'_> {}

impl fmt::Debug for Submitter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SubmitterOptions {
            label,
            when_full,
            until,
            min_remaining,
            run_limit,
        } = self.extras;
        f.debug_struct("Submitter")
            .field("label", &label)
            .field("when_full", &when_full)
            .field("deadline", &until)
            .field("min_remaining", &min_remaining)
            .field("run_limit", &run_limit)
            .field("in_group", &self.members.is_some())
            .finish_non_exhaustive()
    }
}

options!(Pool, "pool", "pool");

impl Pool {
    fn submitter(&self) -> Submitter<'_> {
        Submitter::new(self.core(), None, SubmitterOptions::NONE)
    }
}

impl<'a> Submitter<'a> {
    pub(crate) fn new(
        core: &'a Arc<Core>,
        members: Option<&'a Owner>,
        extras: SubmitterOptions,
    ) -> Self {
        Self {
            core,
            members,
            extras,
        }
    }

    /// Adds a label for each task; see [`Pool::labeled`].
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// pool.labeled("mail").serve(|| println!("sending"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    #[doc(alias = "labelled")]
    pub fn labeled(mut self, label: &'static str) -> Self {
        self.extras.label = Some(label);
        self
    }

    /// Sets what a submission does if every worker is busy and the queue is full, or if its [limited
    /// group](Pool::limited_group) is full. This overrides
    /// [`Builder::when_full`](crate::Builder::when_full).
    ///
    /// A submission made on a worker of the pool never waits for space.
    ///
    /// ```
    /// use lazypool::{Pool, WhenFull};
    /// let pool = Pool::new(1)?; // refuses when it is full
    /// let batch = pool.when_full(WhenFull::Block); // waits instead
    /// for n in 0..10 {
    ///     batch.serve(move || println!("{n}"))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn when_full(mut self, policy: WhenFull) -> Self {
        self.extras.when_full = Some(policy);
        self
    }

    /// Sets a deadline for each task, `d` after its submission.
    ///
    /// * A task that no worker has started by its deadline never starts. Its closure is dropped
    ///   when the task's turn in the queue comes, or earlier. The pool counts the task as
    ///   [`expired`](crate::Stats::expired). Its group counts it as
    ///   [`discarded`](Group::discarded), like every task that never started. A task whose handle
    ///   or group cancels it after its deadline also counts as expired.
    /// * A task that is still running at its deadline runs on, and
    ///   [`task::is_cancelled`](crate::task::is_cancelled) returns `true` in it. Its worker counts
    ///   as [`abandoned`](crate::Stats::abandoned) until the task ends. The task then counts as
    ///   [`timed_out`](crate::Stats::timed_out), and as completed or panicked.
    /// * A thread waits for space until the deadline at the latest. `serve` is then refused as
    ///   [`Saturated`](crate::Refusal::Saturated), or as [`GroupFull`](crate::Refusal::GroupFull) if
    ///   it still waited for a place in its group. `do_with_deadline` returns
    ///   [`Expired`](DeadlineError::Expired). [`serve_async`](crate::Awaitable::serve_async) has no
    ///   timer: it waits on, and the task expires when its turn comes.
    ///
    /// Deadlines are instants of [`Instant`]. While the machine is suspended, that clock may stand
    /// still, as it does on Linux. A deadline then comes later by the clock on the wall.
    ///
    /// With [`do_with_deadline`](Submitter::do_with_deadline), the earlier of this deadline and the
    /// call's own applies. [`Duration::MAX`] means no deadline, and so does a duration of more than
    /// 292 years. With [`Duration::ZERO`] no task is ever started: `serve` accepts a task if there
    /// is space, and lets it expire; `do_with_deadline` returns [`Expired`](DeadlineError::Expired)
    /// at once. With `serve`, a deadline [takes 24
    /// bytes](crate::docs::guarantees#closures-without-an-allocation) of the space that holds a
    /// closure without an allocation.
    ///
    /// ```
    /// use std::time::Duration;
    /// let pool = lazypool::Pool::builder().max_workers(1).queue_capacity(8).build()?;
    /// let soon = pool.with_deadline(Duration::from_millis(1));
    /// pool.serve(|| std::thread::sleep(Duration::from_millis(20)))?;
    /// soon.serve(|| unreachable!("too late for it"))?;
    /// # drop(pool);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_deadline(mut self, d: Duration) -> Self {
        self.extras.until = Until::After(d);
        self
    }

    /// Sets the deadline of each task to the instant `at`, whenever the task is submitted.
    ///
    /// This is [`with_deadline`](Submitter::with_deadline) with an absolute time. Use it for a time
    /// budget that several calls share, such as that of a request, or to hand the
    /// [deadline](crate::task::deadline) of one pool's task to another pool. If both this option
    /// and `with_deadline` are set, the one that was set last applies. If `at` has passed, the
    /// effect is that of `with_deadline(Duration::ZERO)`.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// let (front, back) = (lazypool::Pool::new(1)?, lazypool::Pool::new(1)?);
    /// let request = move || {
    ///     let at = lazypool::task::deadline().expect("its caller's");
    ///     let query = back.with_deadline_at(at);
    ///     query.do_with_deadline(lazypool::task::deadline, Duration::MAX).ok() == Some(Some(at))
    /// };
    /// assert!(front.do_with_deadline(request, Duration::from_secs(5))?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_deadline_at(mut self, at: Instant) -> Self {
        self.extras.until = Until::At(from_std(at));
        self
    }

    /// Sets a deadline for each task, `d` after its start.
    ///
    /// The time that a task waits in the queue does not count. A task that exceeds the limit is
    /// treated like a task past its [`with_deadline`](Submitter::with_deadline): it runs on,
    /// [`task::is_cancelled`](crate::task::is_cancelled) returns `true` in it, its worker counts as
    /// [`abandoned`](crate::Stats::abandoned), and it counts as
    /// [`timed_out`](crate::Stats::timed_out) when it ends. A task that does not ask `is_cancelled`
    /// is not stopped by its limit. If `with_deadline` is also set, the
    /// earlier deadline applies. This option alone does not make a queued task expire.
    ///
    /// With [`do_with_deadline`](Submitter::do_with_deadline),
    /// [`task::deadline`](crate::task::deadline) returns the earlier of this deadline and the
    /// caller's. The caller still waits until its own deadline.
    ///
    /// [`Duration::MAX`] means no limit, and so does a duration of more than 292 years. With
    /// [`Duration::ZERO`] each task is past its deadline as it starts. With `serve`, this option
    /// [takes 24 bytes](crate::docs::guarantees#closures-without-an-allocation) of the space that
    /// holds a closure without an allocation. If a deadline is set, too, both share these bytes.
    ///
    /// ```
    /// use std::time::Duration;
    /// let pool = lazypool::Pool::builder().max_workers(1).queue_capacity(8).build()?;
    /// let pages = pool.run_limit(Duration::from_millis(50)).group();
    /// for _ in 0..4 {
    ///     // Each task may run for 50 ms, however long it waits for the others.
    ///     pages.serve(|| assert!(lazypool::task::remaining().is_some()))?;
    /// }
    /// pages.wait();
    /// assert_eq!(pages.completed(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn run_limit(mut self, d: Duration) -> Self {
        self.extras.run_limit = d;
        self
    }

    /// Sets how much time must be left until a task's deadline when a worker starts the task.
    ///
    /// Set `d` to the time that such a task takes. Then an overloaded pool spends no time on tasks
    /// that would end too late. If less than `d` is left when the turn of a task comes, the task is
    /// not started. The caller of [`do_with_deadline`](Submitter::do_with_deadline) gets the
    /// closure back as [`Expired`](DeadlineError::Expired), even before the deadline. A task that
    /// was served through [`with_deadline`](Submitter::with_deadline) is dropped.
    ///
    /// This option has no effect on a task without a deadline. Here, a
    /// [`run_limit`](Submitter::run_limit) does not count as a deadline.
    ///
    /// **Keep `d` below the whole time from submission to deadline.** Otherwise no task is ever
    /// started, not even on an idle pool. Every task expires, so
    /// [`Stats::expired`](crate::Stats::expired) grows with [`accepted`](crate::Stats::accepted).
    /// The error's text names `min_remaining`, but does not say whether the deadline passed or too
    /// little time was left. If `d` is measured, limit it to a part of that time:
    /// `d.min(deadline / 8 * 7)` leaves each task an eighth of the time to reach a worker.
    ///
    /// ```
    /// use lazypool::{DeadlineError, Pool};
    /// use std::time::Duration;
    /// let pool = Pool::new(1)?;
    /// let takes = Duration::from_secs(2);
    /// let outcome = pool.min_remaining(takes).do_with_deadline(|| 1, Duration::from_secs(1));
    /// assert!(matches!(outcome, Err(DeadlineError::Expired(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn min_remaining(mut self, d: Duration) -> Self {
        self.extras.min_remaining = d;
        self
    }

    /// Submits a task as [`Pool::serve`] does, with the options of this submitter.
    ///
    /// # Errors
    /// Returns the errors of [`Pool::serve`], and in a group those of [`Group::serve`]. Also returns
    /// [`Saturated`](crate::Refusal::Saturated) if the task's deadline passes while the call waits
    /// for space in the pool, and [`GroupFull`](crate::Refusal::GroupFull) if it passes while the call
    /// waits for a place in the group.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// pool.labeled("mail").serve(|| println!("sending"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("execute", "spawn", "submit", "spawn_blocking"))]
    pub fn serve<F>(&self, closure: F) -> Result<(), Refused<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let served = match self.members {
            // A task without a group stores nothing for it.
            None => submit_with(self.core, (), closure, self.extras.plain()),
            members => submit_member(self.core, members, closure, &self.extras),
        };
        served
            .map(drop)
            .map_err(|(closure, why)| Refused::new(closure, why))
    }

    /// Runs a task as [`Pool::do_with_deadline`] does, with the options of this submitter.
    ///
    /// # Errors
    /// Returns the errors of [`Pool::do_with_deadline`], and in a group those of
    /// [`Group::do_with_deadline`]. Also returns [`Expired`](DeadlineError::Expired) if less than [`min_remaining`](Submitter::min_remaining)
    /// is left until the deadline when a worker is about to start the task.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let pool = lazypool::Pool::new(1)?;
    /// let n = pool.labeled("sum").do_with_deadline(|| 1 + 1, Duration::MAX);
    /// assert!(matches!(n, Ok(2)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("timeout", "install", "join_timeout"))]
    pub fn do_with_deadline<F, R>(
        &self,
        closure: F,
        timeout: Duration,
    ) -> Result<R, DeadlineError<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        call::do_with(self.core, self.members, &self.extras, closure, timeout)
    }

    /// Returns an [`Awaitable`] whose tasks have these options; see
    /// [`Pool::awaitable`](crate::Pool::awaitable).
    ///
    /// ```
    /// # use std::time::Duration;
    /// let pool = lazypool::Pool::new(1)?;
    /// let soon = pool.with_deadline(Duration::from_secs(1)).awaitable();
    /// assert!(soon.serve(|| lazypool::task::remaining().is_some())?.join()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn awaitable(&self) -> Awaitable<'a> {
        Awaitable::new(self.core, self.members, self.extras)
    }

    /// Returns a new [`Group`] whose tasks have these options; see [`Pool::group`]. Its tasks are
    /// not members of a group of this submitter: see [groups and scopes](Self#groups-and-scopes).
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// let group = pool.labeled("import").group();
    /// group.serve(|| assert_eq!(lazypool::task::label(), Some("import")))?;
    /// group.wait();
    /// assert_eq!(group.completed(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn group(&self) -> Group {
        Group::new(Arc::clone(self.core), self.extras, None)
    }

    /// Returns a new limited group whose tasks have these options; see [`Pool::limited_group`]. Its
    /// tasks are not members of a group of this submitter: see [groups and
    /// scopes](Self#groups-and-scopes).
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// let group = pool.labeled("ann").limited_group(1);
    /// group.serve(|| assert_eq!(lazypool::task::label(), Some("ann")))?;
    /// group.wait();
    /// assert_eq!(group.completed(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn limited_group(&self, max_pending: usize) -> Group {
        Group::new(Arc::clone(self.core), self.extras, Some(max_pending))
    }

    /// Runs `f` with a [`Scope`] whose tasks have these options; see [`Pool::scope`]. Its tasks are
    /// not members of a group of this submitter: see [groups and scopes](Self#groups-and-scopes).
    ///
    /// A task that was accepted with a [deadline](Submitter::with_deadline) is dropped without
    /// being run if no worker has started it by its deadline. All other accepted tasks run.
    ///
    /// # Panics
    /// Panics if `f` or one of the tasks panics, as [`Pool::scope`] does.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// let mut label = None;
    /// pool.labeled("sum").scope(|s| s.serve(|| label = lazypool::task::label()).is_ok());
    /// assert_eq!(label, Some("sum"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scope<'env, F, T>(&self, f: F) -> T
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
    {
        scope::scope(self.core, self.extras, f)
    }
}
