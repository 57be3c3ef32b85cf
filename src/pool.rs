//! The pool, and what it tells about itself.

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

/// A bounded pool of worker threads, started only when nobody is idle.
///
/// Work goes in by two verbs: [`serve`](Pool::serve) hands a closure over and
/// forgets it; [`do_with_deadline`](Pool::do_with_deadline) waits for its value,
/// but no longer than it is told. Both refuse, and give the closure back, when
/// every worker is occupied and the queue (if there is one) is full.
///
/// The pool owns its workers: share it in an [`Arc`](std::sync::Arc). Dropping it
/// does what [`Builder::shutdown_on_drop`] says; by default it lets every
/// accepted task run and waits for that. It never waits for a task that nobody
/// waits for any more ([`Stats::abandoned`]): a call that hangs, and whose caller has
/// left, does not keep the process from ending. A pool in a `static` is never dropped. A child made by `fork` without `exec`
/// has the pool's memory but not its threads: do not use the pool there.
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
    /// A pool of at most `max_workers` threads, the rest as
    /// [`Builder`] defaults: no queue, no worker before the first task.
    ///
    /// # Errors
    /// [`BuildError::ZeroWorkers`], [`BuildError::TooManyWorkers`] (more than
    /// 65,536).
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

    /// Settings to build a pool from.
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

    /// Hands `closure` to a worker and returns at once.
    ///
    /// An idle worker takes it; else a new one is started, up to
    /// [`max_workers`](Pool::max_workers); else it waits in the queue, if the
    /// pool has one with room. Nothing is allocated for closures of up to 48
    /// bytes (alignment up to 8); a larger one is boxed. A panic in it is caught,
    /// counted, and reported to [`Builder::on_panic`].
    ///
    /// # Errors
    /// The closure, unrun, and why: [`Saturated`](crate::Refusal::Saturated) if
    /// at some moment of this call every worker was occupied and the queue full
    /// (with [`WhenFull::Block`](crate::WhenFull::Block) the call waits instead, and
    /// blocks its thread; on a worker of this pool it is refused as
    /// [`OnWorker`](crate::Refusal::OnWorker)), [`Closed`](crate::Refusal::Closed)
    /// once a shutdown was asked for, [`SpawnFailed`](crate::Refusal::SpawnFailed) if
    /// a thread was needed and the system gave none.
    ///
    /// ```
    /// use lazypool::{Pool, Refused};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::new(1)?;
    /// // Run by the caller where the pool is saturated; an error once it is shut down:
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

    /// Runs `closure` on a worker and waits for its value, at most `timeout`.
    ///
    /// `timeout` is a duration that counts from this call. It covers everything:
    /// waiting for room ([`WhenFull::Block`](crate::WhenFull::Block)), queueing,
    /// starting a thread, hand-over and running. [`Duration::ZERO`] gives the
    /// closure back at once; [`Duration::MAX`] waits as long as it takes. The
    /// value may be of any size and alignment and is not boxed; nothing is
    /// allocated for closures of up to 32 bytes (alignment up to 8).
    ///
    /// When the deadline passes, a closure that no worker has started comes back
    /// unrun; one that runs goes on, and can see by
    /// [`task::is_cancelled`](crate::task::is_cancelled) that nobody waits.
    ///
    /// This **blocks the calling thread**: within an async runtime it blocks the
    /// executor. There, use [`serve`](Pool::serve) and send the value through a
    /// channel of the runtime.
    ///
    /// # Errors
    /// * [`Refused`](DeadlineError::Refused): as for [`serve`](Pool::serve), or a
    ///   shutdown discarded the task before it started. On a worker of this pool
    ///   the call never queues: if no worker is idle and none can be started, it
    ///   is refused as [`OnWorker`](crate::Refusal::OnWorker).
    /// * [`Expired`](DeadlineError::Expired): no worker started it in time; the
    ///   closure never ran.
    /// * [`TimedOut`](DeadlineError::TimedOut): it started and still runs; its
    ///   value will be dropped on the worker.
    /// * [`Panicked`](DeadlineError::Panicked): with the payload, also where what
    ///   the closure captured panicked when dropped.
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
        call::do_with_deadline(&self.core, None, closure, timeout)
    }

    /// The two verbs with a label on each task: shown by [`workers`](Pool::workers), given
    /// to [`Builder::on_panic`], and known to the task itself. It takes 16 of the 48 bytes
    /// that a closure may have without a box; none with
    /// [`do_with_deadline`](Submitter::do_with_deadline).
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

    /// The two verbs with a policy of their own where the pool is full, whatever the
    /// [builder](Builder::when_full) said; see [`Submitter::when_full`].
    #[must_use]
    pub fn when_full(&self, policy: WhenFull) -> Submitter<'_> {
        Submitter::new(&self.core).when_full(policy)
    }

    /// `serve` with a deadline, `d` after each submission: what has not been started by then
    /// is dropped; see [`Submitter::with_deadline`].
    #[must_use]
    pub fn with_deadline(&self, d: Duration) -> Submitter<'_> {
        Submitter::new(&self.core).with_deadline(d)
    }

    /// The two verbs for tasks that are not worth starting with less than `d` of their
    /// deadline left; see [`Submitter::min_remaining`].
    #[must_use]
    pub fn min_remaining(&self, d: Duration) -> Submitter<'_> {
        Submitter::new(&self.core).min_remaining(d)
    }

    /// A set of tasks to wait for, or to cancel, together.
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

    /// Runs `f`, whose tasks may borrow what outlives this call, and returns once
    /// all of them have ended.
    ///
    /// A task that was accepted runs, whatever shutdown is asked for meanwhile.
    /// On a worker of this pool, [`Scope::serve`] never queues. Where the scope's
    /// work has to be done in any case, run what is refused on the calling thread,
    /// whatever the reason: [`Refused::run`].
    ///
    /// # Panics
    /// If `f` panics, or one of the tasks does: with that payload, once all have
    /// ended.
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

    /// Counts since the pool was built, and what it is doing now.
    ///
    /// Exact at rest. While tasks come and go the figures are read one after the
    /// other: none is ever ahead of what it depends on (see [`Stats`]).
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

    /// The workers that exist now, by slot.
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

    /// The most workers that ever exist at once.
    ///
    /// ```
    /// assert_eq!(lazypool::Pool::new(3)?.max_workers(), 3);
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    #[must_use]
    pub fn max_workers(&self) -> usize {
        self.core.settings.max_workers
    }

    /// The most workers that may exist now; [`max_workers`](Pool::max_workers) at first.
    ///
    /// ```
    /// assert_eq!(lazypool::Pool::new(3)?.limit(), 3);
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    #[must_use]
    pub fn limit(&self) -> usize {
        self.core.limit()
    }

    /// Changes how many workers there may be, from 1 to [`max_workers`](Pool::max_workers),
    /// and returns at once. From then on no task is started while `n` others run; a
    /// submission is refused as saturated where `n` workers are occupied and the queue is full.
    ///
    /// Lowered: idle surplus workers end at once, occupied ones after their task, with or
    /// without tasks in the queue. What was being started or handed over during the call
    /// counts as running. A limit below [`min_workers`](Pool::min_workers) holds; raised
    /// again, workers are started as they are needed. Raised: submitters that wait for room,
    /// and queued tasks, get the new workers.
    ///
    /// # Errors
    /// [`BuildError::ZeroWorkers`] for 0, [`BuildError::TooManyWorkers`] for more than
    /// `max_workers`; the limit stays as it was.
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

    /// The workers that are started by [`Builder::build`] and never retire.
    ///
    /// ```
    /// assert_eq!(lazypool::Pool::new(3)?.min_workers(), 0);
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    #[must_use]
    pub fn min_workers(&self) -> usize {
        self.core.settings.min_workers
    }

    /// How many tasks may wait for a worker.
    ///
    /// ```
    /// assert_eq!(lazypool::Pool::new(3)?.queue_capacity(), 0);
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    #[must_use]
    pub fn queue_capacity(&self) -> usize {
        self.core.settings.queue_capacity
    }

    /// Whether a shutdown has been asked for: submissions are refused as
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

    /// Closes the pool and waits, at most `timeout`, until every worker has ended
    /// and its thread has been joined. It never returns earlier.
    ///
    /// `mode` says what becomes of accepted tasks; see [`Shutdown`]. It may be
    /// called again, with a stricter mode too, and from several threads; the
    /// strictest mode asked for stays. Called inside one of the pool's tasks it
    /// closes the pool and returns at once, its own worker among the stragglers.
    ///
    /// The report names the workers that are still busy. `timeout` does not
    /// bound thread-local destructors that tasks left behind.
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
    /// A setting out of bounds, named with what is allowed; or
    /// [`BuildError::Spawn`] if the system gives no thread for one of the
    /// `min_workers` (those already started have ended when this returns).
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
