//! The pool: submissions, statistics, settings, shutdown.

use crate::builder::Builder;
use crate::engine::call;
use crate::engine::core::Core;
use crate::engine::request::Extras;
use crate::engine::shutdown::{self as end, WaitsFor};
use crate::engine::submit::submit_plain;
use crate::engine::threads::{First, NotSpawned};
use crate::error::{BuildError, DeadlineError, Refused};
use crate::group::Group;
use crate::scope::Scope;
use crate::stats::{Shutdown, ShutdownReport, Stats, WhenFull, WorkerSnapshot};
use crate::submitter::Submitter;
use crate::sync::Arc;
use crate::work::job::Serve;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

/// A bounded pool of worker threads, each started only when no other is idle.
///
/// There are two ways to submit work. [`serve`](Pool::serve) hands a closure to a worker and
/// returns. [`do_with_deadline`](Pool::do_with_deadline) runs a closure on a worker and waits for
/// its value, at most until a deadline. When every worker is occupied and the queue is full, both
/// refuse, and the error holds the closure. A pool has no queue unless
/// [`Builder::queue_capacity`] gives it one. To share a pool, put it into an
/// [`Arc`].
///
/// # Dropping a pool
///
/// Dropping the pool shuts it down as [`Builder::shutdown_on_drop`] says. By default every accepted
/// task still runs, and the drop waits for that. It does not wait for an
/// [abandoned](Stats::abandoned) task: one whose caller left at its deadline, whose group was
/// cancelled, or that is past a deadline of its own. It does wait for a task of plain `serve`, even
/// one that hangs. If abandoned tasks occupy all workers, it does not wait for queued ones either:
/// they run later, if the process keeps running. A pool in a `static` is never dropped.
///
/// # After `fork`
///
/// A child process made by `fork` without `exec` has a copy of the pool's memory but none of its
/// threads. There, every submission is refused as [`Forked`](crate::Refusal::Forked), and
/// shutdowns, drops, waits and scopes return at once.
///
/// ```
/// use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = lazypool::Pool::new(4)?;
/// pool.serve(|| println!("on a worker"))?;
/// let sum = pool.do_with_deadline(|| (1..=10).sum::<u32>(), Duration::from_secs(1));
/// assert_eq!(sum?, 55);
/// # Ok(()) }
/// ```
pub struct Pool {
    core: Arc<Core>,
    on_drop: (Shutdown, Duration),
}

// No task sees the pool in a broken state after a panic: panics of user code are
// caught before they reach the pool's own steps.
impl UnwindSafe for Pool {}
impl RefUnwindSafe for Pool {}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("max_workers", &self.max_workers())
            .field("min_workers", &self.min_workers())
            .field("queue_capacity", &self.queue_capacity())
            .field("closed", &self.is_closed())
            .field("stats", &self.stats())
            .finish()
    }
}

impl Pool {
    /// Builds a pool of at most `max_workers` threads.
    ///
    /// All other settings have [`Builder`]'s defaults: no queue, and no worker before the first task.
    ///
    /// # Errors
    /// [`BuildError::ZeroWorkers`] if `max_workers` is 0, [`BuildError::TooManyWorkers`] if it is
    /// more than 65,536.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(2)?;
    /// assert_eq!(pool.max_workers(), 2);
    /// assert_eq!(pool.stats().workers, 0);
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    pub fn new(max_workers: usize) -> Result<Self, BuildError> {
        Self::builder().max_workers(max_workers).build()
    }

    /// Returns a [`Builder`] with all settings at their defaults.
    ///
    /// ```
    /// let pool = lazypool::Pool::builder().max_workers(2).queue_capacity(64).build()?;
    /// assert_eq!(pool.queue_capacity(), 64);
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::new()
    }

    #[cfg(any(feature = "metrics", lazypool_loom, lazypool_shuttle))]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Hands `closure` to a worker and returns, without waiting for it to run.
    ///
    /// An idle worker takes the task. If no worker is idle, the pool starts one, up to
    /// [`max_workers`](Pool::max_workers). If it may start none, the task waits in the queue, if
    /// there is one with room. If the queue is full, the task is refused, unless
    /// [`WhenFull::Block`] or [`WhenFull::BlockFor`] lets the call wait for room.
    ///
    /// The pool catches a panic in the closure, counts it, and reports it to
    /// [`Builder::on_panic`]. A closure of up to 48 bytes (alignment up to 8) is stored without an
    /// allocation; a larger one is boxed.
    ///
    /// # Errors
    /// [`Refused`] holds the closure, which did not run, and the reason:
    ///
    /// * [`Saturated`](crate::Refusal::Saturated): at some moment during this call every worker
    ///   was occupied and the queue was full.
    /// * [`Closed`](crate::Refusal::Closed): the pool has been shut down.
    /// * [`SpawnFailed`](crate::Refusal::SpawnFailed): the task needed a new thread, the system
    ///   gave none, and neither another worker nor the queue could take the task.
    /// * [`OnWorker`](crate::Refusal::OnWorker): the call would have to wait, for room or for
    ///   another thread, and it comes from a worker of this pool, which must not wait.
    /// * [`Forked`](crate::Refusal::Forked): the process is a forked child of the one that built
    ///   the pool.
    ///
    /// ```
    /// use lazypool::{Pool, Refused};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::new(1)?;
    /// // Runs here if the pool is saturated; an error if it is shut down.
    /// pool.serve(|| println!("hello")).or_else(Refused::caller_runs)?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "execute")]
    #[doc(alias = "spawn")]
    #[doc(alias = "submit")]
    #[doc(alias = "spawn_blocking")]
    #[inline]
    pub fn serve<F>(&self, closure: F) -> Result<(), Refused<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        // SAFETY: F is Send and 'static.
        unsafe { submit_plain(&self.core, Serve { f: closure }) }
            .map_err(|(job, why)| Refused::new(job.f, why))
    }

    /// Runs `closure` on a worker and waits for its value, at most for `timeout`.
    ///
    /// The time counts from this call and covers everything: waiting for room, waiting in the
    /// queue, starting a thread, the hand-over, and running. [`Duration::ZERO`] gives the closure
    /// back at once. [`Duration::MAX`] waits as long as it takes.
    ///
    /// If no worker has started the closure by the deadline, it comes back, and has not run. If a
    /// worker has started it, this call returns, the closure runs on, and its worker stays
    /// occupied until it ends. The closure can ask
    /// [`task::is_cancelled`](crate::task::is_cancelled) whether its caller has left.
    ///
    /// A closure of up to 32 bytes (alignment up to 8) is stored without an allocation; a larger
    /// one is boxed. The value may have any size and alignment and is never boxed.
    ///
    /// **This call blocks its thread.** Do not call it on a thread of an async runtime; the page
    /// [`docs::async_code`](crate::docs::async_code) shows how to await a task instead.
    ///
    /// # Errors
    /// * [`Refused`](DeadlineError::Refused): the pool did not take the task, for a reason that
    ///   [`serve`](Pool::serve) lists, or a shutdown discarded it before it started. The error
    ///   holds the closure. On a worker of this pool the call never queues: if no worker is idle
    ///   and none can be started, it is refused as [`OnWorker`](crate::Refusal::OnWorker).
    /// * [`Expired`](DeadlineError::Expired): no worker started the closure in time. The error
    ///   holds the closure, which never ran.
    /// * [`TimedOut`](DeadlineError::TimedOut): a worker started the closure and it still runs.
    ///   The worker will drop its value.
    /// * [`Panicked`](DeadlineError::Panicked): the closure panicked, or the drop of something
    ///   that it captured did. The error holds the payload.
    ///
    /// ```
    /// use lazypool::{DeadlineError, Pool};
    /// use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::new(1)?;
    /// let n = pool.do_with_deadline(|| 6 * 7, Duration::from_secs(5));
    /// assert!(matches!(n, Ok(42)));
    ///
    /// let slow = || std::thread::sleep(Duration::from_millis(200));
    /// let late = pool.do_with_deadline(slow, Duration::from_millis(1));
    /// assert!(matches!(late, Err(DeadlineError::TimedOut | DeadlineError::Expired(_))));
    /// # Ok(()) }
    /// ```
    #[doc(alias = "timeout")]
    #[doc(alias = "install")]
    #[doc(alias = "join_timeout")]
    #[inline]
    pub fn do_with_deadline<F, R>(
        &self,
        closure: F,
        timeout: Duration,
    ) -> Result<R, DeadlineError<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        call::do_with_deadline(&self.core, closure, timeout)
    }

    /// Returns a [`Submitter`] that gives each of its tasks this label.
    ///
    /// [`workers`](Pool::workers) shows the label, [`Builder::on_panic`] gets it, and the task
    /// itself can ask for it ([`task::label`](crate::task::label)). With
    /// [`serve`](Submitter::serve) it takes 16 of the 48 bytes that a closure may have without an
    /// allocation; with [`do_with_deadline`](Submitter::do_with_deadline) it takes none.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = lazypool::Pool::new(1)?;
    /// let parsing = pool.labelled("parse");
    /// let label = parsing.do_with_deadline(lazypool::task::label, Duration::MAX);
    /// assert_eq!(label?, Some("parse"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn labelled(&self, label: &'static str) -> Submitter<'_> {
        Submitter::new(&self.core).labelled(label)
    }

    /// Returns a [`Submitter`] with this policy for a full pool, in place of
    /// [`Builder::when_full`]'s; see [`Submitter::when_full`].
    #[must_use]
    pub fn when_full(&self, policy: WhenFull) -> Submitter<'_> {
        Submitter::new(&self.core).when_full(policy)
    }

    /// Returns a [`Submitter`] whose tasks have a deadline, `d` after their submission: one that
    /// no worker has started by then is dropped. See [`Submitter::with_deadline`].
    #[must_use]
    pub fn with_deadline(&self, d: Duration) -> Submitter<'_> {
        Submitter::new(&self.core).with_deadline(d)
    }

    /// Returns a [`Submitter`] whose tasks are not started with less than `d` left until their
    /// deadline; see [`Submitter::min_remaining`].
    #[must_use]
    pub fn min_remaining(&self, d: Duration) -> Submitter<'_> {
        Submitter::new(&self.core).min_remaining(d)
    }

    /// Returns a new, empty [`Group`]: its tasks can be waited for, or cancelled, together.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = lazypool::Pool::builder().max_workers(2).queue_capacity(8).build()?;
    /// let group = pool.group();
    /// for n in 0..4 {
    ///     group.serve(move || println!("{n}"))?;
    /// }
    /// group.wait();
    /// assert_eq!(group.completed(), 4);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn group(&self) -> Group {
        Group::new(Arc::clone(&self.core), Extras::NONE)
    }

    /// Runs `f` on the calling thread with a [`Scope`], whose tasks may borrow. Returns `f`'s value
    /// once all tasks of the scope have ended.
    ///
    /// The tasks may borrow what outlives this call. A task that was accepted runs, whatever
    /// shutdown follows, unless it has a [deadline](Submitter::with_deadline) that passes first. On
    /// a worker of this pool, [`Scope::serve`] never queues. If the work of the scope has to be
    /// done in any case, run what is refused on the calling thread: [`Refused::run`].
    ///
    /// # Panics
    /// If `f` or one of the tasks panics, this call panics with the same payload once all tasks
    /// have ended. If several panic, the payload is `f`'s, otherwise that of the first task.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = lazypool::Pool::new(2)?;
    /// let (mut a, mut b) = (vec![3, 1, 2], vec![6, 5, 4]);
    /// pool.scope(|s| {
    ///     s.serve(|| a.sort()).unwrap_or_else(lazypool::Refused::run);
    ///     s.serve(|| b.sort()).unwrap_or_else(lazypool::Refused::run);
    /// });
    /// assert_eq!((a, b), (vec![1, 2, 3], vec![4, 5, 6]));
    /// # Ok(()) }
    /// ```
    pub fn scope<'env, F, T>(&self, f: F) -> T
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
    {
        crate::scope::scope(&self.core, Extras::NONE, f)
    }

    /// Returns the pool's statistics: what it has done since it was built, and what it does now.
    ///
    /// They are exact while the pool is at rest. While tasks come and go, the figures are read one
    /// after the other; [`Stats`] says what holds between them even then.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = lazypool::Pool::new(1)?;
    /// assert_eq!(pool.stats(), lazypool::Stats::default());
    /// println!("{}", pool.stats());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Returns a snapshot of each worker that exists now, in the order of their slots.
    ///
    /// ```
    /// let pool = lazypool::Pool::builder().max_workers(4).min_workers(2).build()?;
    /// assert_eq!(pool.workers().len(), 2);
    /// assert!(pool.workers().iter().all(|w| !w.busy));
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerSnapshot> {
        self.core.workers()
    }

    /// Returns how many workers may exist at once, as the builder set it; [`limit`](Pool::limit)
    /// may be lower.
    ///
    /// ```
    /// assert_eq!(lazypool::Pool::new(3)?.max_workers(), 3);
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    #[must_use]
    pub fn max_workers(&self) -> usize {
        self.core.settings.max_workers
    }

    /// Returns how many workers may exist at once now: [`max_workers`](Pool::max_workers), until
    /// [`set_limit`](Pool::set_limit) changes it.
    ///
    /// ```
    /// assert_eq!(lazypool::Pool::new(3)?.limit(), 3);
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    #[must_use]
    pub fn limit(&self) -> usize {
        self.core.limit()
    }

    /// Sets how many workers may exist at once, from 1 to [`max_workers`](Pool::max_workers), and
    /// returns without waiting.
    ///
    /// From then on no task starts while `n` others run, and a submission is refused as
    /// [`Saturated`](crate::Refusal::Saturated) when `n` workers are occupied and the queue is
    /// full. A task that was being started, handed over or taken from the queue during the call
    /// counts as running.
    ///
    /// If the limit is lowered, surplus workers end: idle ones at once, occupied ones after their
    /// task. It may be lower than [`min_workers`](Pool::min_workers). If it is raised, new
    /// workers are started as they are needed; queued tasks and submitters that wait for room get
    /// them, too.
    ///
    /// # Errors
    /// [`BuildError::ZeroWorkers`] if `n` is 0, [`BuildError::TooManyWorkers`] if it is more than
    /// `max_workers`. The limit then stays as it was.
    ///
    /// ```
    /// use lazypool::{BuildError, Pool};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::new(8)?;
    /// pool.set_limit(2)?; // the machine is busy with something else
    /// assert_eq!(pool.limit(), 2);
    /// let err = pool.set_limit(9).unwrap_err();
    /// assert!(matches!(err, BuildError::TooManyWorkers { given: 9, max: 8 }));
    /// # Ok(()) }
    /// ```
    pub fn set_limit(&self, n: usize) -> Result<(), BuildError> {
        let max = self.max_workers();
        match n {
            0 => Err(BuildError::ZeroWorkers),
            given if given > max => Err(BuildError::TooManyWorkers { given, max }),
            limit => {
                self.core.set_limit(limit);
                Ok(())
            }
        }
    }

    /// Returns how many workers [`Builder::build`] started; they do not retire when idle.
    ///
    /// ```
    /// assert_eq!(lazypool::Pool::new(3)?.min_workers(), 0);
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    #[must_use]
    pub fn min_workers(&self) -> usize {
        self.core.settings.min_workers
    }

    /// Returns how many tasks may wait for a worker; 0 if the pool has no queue.
    ///
    /// ```
    /// assert_eq!(lazypool::Pool::new(3)?.queue_capacity(), 0);
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    #[must_use]
    pub fn queue_capacity(&self) -> usize {
        self.core.settings.queue_capacity
    }

    /// Returns whether the pool has been shut down, so that submissions are refused as
    /// [`Closed`](crate::Refusal::Closed).
    ///
    /// ```
    /// use std::time::Duration;
    /// let pool = lazypool::Pool::new(1)?;
    /// assert!(!pool.is_closed());
    /// pool.shutdown(lazypool::Shutdown::Drain, Duration::MAX);
    /// assert!(pool.is_closed());
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    /// Closes the pool, and waits until every worker has ended and its thread has been joined, at
    /// most for `timeout`.
    ///
    /// From this call on, submissions are refused as [`Closed`](crate::Refusal::Closed), those that
    /// wait for room included. [`Shutdown`] says what becomes of accepted tasks. The report names
    /// the workers that have not ended.
    ///
    /// A pool can be shut down more than once and from several threads, and each call waits. The
    /// strictest mode stays in force. Called inside a task of the pool, this closes the pool and
    /// returns at once, with that task's worker among the stragglers; called in a thread-local
    /// destructor of a worker, it returns at once, without that worker in the report.
    ///
    /// `timeout` does not bound destructors: those of thread-local values that tasks left behind, and
    /// those of what discarded tasks captured, which run on the calling thread.
    ///
    /// ```
    /// use lazypool::{Pool, Shutdown};
    /// use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::new(1)?;
    /// pool.serve(|| std::thread::sleep(Duration::from_millis(10)))?;
    /// let report = pool.shutdown(Shutdown::Drain, Duration::from_secs(10));
    /// assert!(report.is_clean());
    /// assert_eq!(pool.stats().completed, 1);
    /// # Ok(()) }
    /// ```
    pub fn shutdown(&self, mode: Shutdown, timeout: Duration) -> ShutdownReport {
        end::shutdown(&self.core, mode, timeout, WaitsFor::All)
    }
}

impl Builder {
    /// Builds the pool, and starts its [`min_workers`](Builder::min_workers).
    ///
    /// # Errors
    /// [`BuildError`] names the setting that is out of bounds, and what is allowed.
    /// [`BuildError::Spawn`] means that the system gave no thread for one of the `min_workers`;
    /// those that were started have ended when this returns.
    ///
    /// ```
    /// use lazypool::{BuildError, Pool};
    /// let err = Pool::builder().max_workers(2).min_workers(3).build().unwrap_err();
    /// assert!(matches!(err, BuildError::MinExceedsMax { min: 3, max: 2 }));
    /// ```
    pub fn build(self) -> Result<Pool, BuildError> {
        let (core, on_drop) = self.into_core()?;
        let min = core.settings.min_workers;
        let pool = Pool { core, on_drop };
        for _ in 0..min {
            let slot = pool.core.take_free().expect("a new pool has free slots");
            if let Err(NotSpawned::Failed(error)) = pool.core.spawn(slot, First::Idle) {
                pool.shutdown(Shutdown::Drain, Duration::MAX);
                return Err(BuildError::Spawn(error));
            }
        }
        Ok(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let (mode, timeout) = self.on_drop;
        end::shutdown(&self.core, mode, timeout, WaitsFor::Wanted);
    }
}
