//! The pool: submissions, statistics, settings, shutdown.

use crate::builder::Builder;
use crate::core::host::NotStarted;
use crate::engine::lifecycle::shutdown::{self as end, WaitsFor};
use crate::engine::shared::Core;
use crate::engine::submit::{call, erase::submit, request::SubmitterOptions};
use crate::error::{BuildError, DeadlineError, LimitError, Refused};
use crate::group::Group;
use crate::handle::Awaitable;
use crate::scope::Scope;
use crate::stats::{Shutdown, ShutdownReport, Stats, WorkerSnapshot};
use crate::sync::{Arc, Ordering};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

/// A bounded pool of worker threads. It starts a thread for a task only if no worker is idle.
///
/// ```
/// use std::time::Duration;
/// let pool = lazypool::Pool::new(4)?;
/// pool.serve(|| println!("on a worker"))?;
/// let sum = pool.do_with_deadline(|| (1..=10).sum::<u32>(), Duration::from_secs(1));
/// assert_eq!(sum?, 55);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Submit work by [`serve`](Pool::serve), by [`do_with_deadline`](Pool::do_with_deadline), or
/// through [`awaitable`](Pool::awaitable), whose `serve` returns a future of the value. If every
/// worker is busy and the queue is full, the call is refused, and its error holds the closure; or
/// it waits, if [`WhenFull`](crate::WhenFull) says so. **A pool has no queue** unless
/// [`Builder::queue_capacity`] gives it one. It is not `Clone`: share it in an [`Arc`].
///
/// # Dropping a pool
///
/// Dropping the pool shuts it down as [`Builder::shutdown_on_drop`] says. By default the drop waits
/// until every accepted task has run. It waits even for a task that hangs, unless that task is
/// abandoned (see below). **A drop by a panic waits, too.** To limit that, set a timeout:
/// `shutdown_on_drop(Shutdown::Cancel, Duration::from_millis(100))`. A pool in a `static` is never
/// dropped.
///
/// # When the drop returns early
///
/// The drop does not wait for an [abandoned](Stats::abandoned) task: one whose caller left at the
/// deadline, that its handle or group cancelled, or that is past a deadline of its own. It may take
/// up to 50 ms to notice it. It does wait for a task that only [`Shutdown::Cancel`] cancels. **If
/// abandoned tasks keep all workers busy, the drop does not wait for queued tasks either.** They
/// run later, or are lost if the process exits before that.
///
/// It waits for nothing after a [`shutdown`](Pool::shutdown) that reported stragglers, because that
/// call said how long to wait; on a worker of the pool itself; and where a [`shutdown`](Pool::shutdown)
/// returns at once.
///
/// # Discarded tasks
///
/// A task is discarded if a [`shutdown`](Pool::shutdown), its [group](Group::cancel) or its
/// [handle](crate::Handle::cancel) takes it out of the pool before it starts. Such a call first
/// takes out all tasks that it discards: it counts them, gives callers their closures back, and
/// tells handles and groups. Then it drops what the closures captured, on its own thread. A worker
/// does so that comes to a task of a cancelled group, or whose waker drops a future.
///
/// Code in such a drop may use the pool. It never waits for a discarded task, because all of them have
/// ended. [`shutdown`](Pool::shutdown) and the drop of the same pool return at once. Tasks that the code
/// discards are dropped later by the outer call, so the stack does not grow. **In such a drop, do not
/// wait for a running task that itself waits for the drop of another such value**: that comes after this
/// drop. On a worker, do not wait for a task submitted before the drop began: it may come next there.
///
/// # After `fork`
///
/// In a child made by `fork`, use nothing of the parent's pool: see [`Forked`](crate::Refusal::Forked).
pub struct Pool {
    core: Arc<Core>,
    on_drop: (Shutdown, Duration),
}

// No panic leaves the pool in a broken state: those of user code are caught before its own steps.
impl UnwindSafe for Pool {}
impl RefUnwindSafe for Pool {}

impl Pool {
    /// Builds a pool of at most `max_workers` threads.
    ///
    /// All other settings have [`Builder`]'s defaults: no queue, and no worker before the first task.
    ///
    /// # Errors
    /// Returns [`BuildError::ZeroWorkers`] if `max_workers` is 0, and
    /// [`BuildError::TooManyWorkers`] if it is more than 65,536.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(2)?;
    /// assert_eq!((pool.max_workers(), pool.stats().workers), (2, 0));
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

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Hands `closure` to a worker and returns without waiting for the closure to run. Other pools
    /// call this `spawn`, `execute` or `submit`.
    ///
    /// The task goes to the first of these that can take it: an idle worker; a new worker, if the
    /// [`limit`](Pool::limit) allows one; the queue, if it has space. In a pool with a queue, the
    /// task may go through the queue even if a worker is idle. If none can take the task, it is
    /// refused, or the call waits for space, as [`WhenFull`](crate::WhenFull) says.
    ///
    /// The pool catches a panic in the closure, counts it, and reports it to
    /// [`Builder::on_panic`]. A small closure costs
    /// [no allocation](crate::docs::guarantees#closures-without-an-allocation).
    ///
    /// **Blocking.** With [`WhenFull::Refuse`](crate::WhenFull::Refuse), the default, this call does
    /// not wait for space. It may start a thread. See [what may block](crate::docs::async_code#what-may-block).
    ///
    /// # Errors
    /// Returns [`Refused`] with the closure, which did not run, and one of these reasons:
    ///
    /// * [`Saturated`](crate::Refusal::Saturated): at some moment during this call every worker
    ///   was busy and the queue was full, or others waited in line.
    /// * [`Closed`](crate::Refusal::Closed): the pool has been shut down.
    /// * [`SpawnFailed`](crate::Refusal::SpawnFailed): the task needed a new thread, the system
    ///   gave none, and neither another worker nor the queue could take the task.
    /// * [`OnWorker`](crate::Refusal::OnWorker): this call was made on a worker of this pool, and
    ///   would have had to wait for space. That worker itself may have to make the space.
    /// * [`Forked`](crate::Refusal::Forked): this process is a forked child of the pool's process.
    ///
    /// ```
    /// use lazypool::{Pool, Refused};
    /// let pool = Pool::new(1)?;
    /// // Runs here if the pool is saturated; an error if it is shut down.
    /// pool.serve(|| println!("hello")).or_else(Refused::caller_runs)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("execute", "spawn", "submit", "spawn_blocking"))]
    #[inline]
    pub fn serve<F>(&self, closure: F) -> Result<(), Refused<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        submit(&self.core, (), closure, |task, debts| {
            self.core.submit_plain(task, debts)
        })
        .map_err(|(closure, why)| Refused::new(closure, why))
    }

    /// Runs `closure` on a worker, and waits for its value for at most `timeout`.
    ///
    /// The time counts from this call and covers everything: waiting for space, waiting in the
    /// queue, starting a thread, the hand-off, and running. [`Duration::ZERO`] makes the call
    /// return `Expired` at once. [`Duration::MAX`] waits as long as it takes.
    ///
    /// If no worker has started the closure by the deadline, this call gives it back unrun. If a
    /// worker has started the closure, this call returns, but the closure runs on. Its worker stays
    /// busy until the closure ends. The closure can ask
    /// [`task::is_cancelled`](crate::task::is_cancelled) whether its caller has left.
    ///
    /// Neither a small closure nor the value costs an
    /// [allocation](crate::docs::guarantees#closures-without-an-allocation).
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
    /// * [`TimedOut`](DeadlineError::TimedOut): the deadline passed while the closure was running.
    ///   The closure runs on, and the worker will drop its value.
    /// * [`Panicked`](DeadlineError::Panicked): the closure panicked, or the drop of something
    ///   that it captured did. The error holds the payload.
    ///
    /// ```
    /// use lazypool::{DeadlineError, Pool};
    /// use std::time::Duration;
    /// let pool = Pool::new(1)?;
    /// let n = pool.do_with_deadline(|| 6 * 7, Duration::from_secs(5));
    /// assert!(matches!(n, Ok(42)));
    ///
    /// let slow = || std::thread::sleep(Duration::from_millis(200));
    /// let late = pool.do_with_deadline(slow, Duration::from_millis(1));
    /// assert!(matches!(late, Err(DeadlineError::TimedOut | DeadlineError::Expired(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("timeout", "install", "join_timeout"))]
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
        call::do_with(&self.core, None, &SubmitterOptions::NONE, closure, timeout)
    }

    /// Returns an [`Awaitable`]. Its `serve` returns a [`Handle`](crate::Handle): a future of the
    /// closure's value, which a thread can also join. Its
    /// [`serve_async`](crate::Awaitable::serve_async) waits for space without blocking a thread.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// let handle = pool.awaitable().serve(|| 6 * 7)?;
    /// assert_eq!(handle.join()?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn awaitable(&self) -> Awaitable<'_> {
        Awaitable::new(&self.core, None, SubmitterOptions::NONE)
    }

    /// Returns a new, empty [`Group`], whose tasks can be waited for, or cancelled, together.
    ///
    /// ```
    /// let pool = lazypool::Pool::builder().max_workers(2).queue_capacity(8).build()?;
    /// let group = pool.group();
    /// for n in 0..4 {
    ///     group.serve(move || println!("{n}"))?;
    /// }
    /// group.wait();
    /// assert_eq!(group.completed(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    #[doc(alias("JoinSet", "errgroup", "WaitGroup", "nursery"))]
    pub fn group(&self) -> Group {
        Group::new(Arc::clone(&self.core), SubmitterOptions::NONE, None)
    }

    /// Returns a new, empty [`Group`] with `max_pending` places: for tasks that are accepted and have not
    /// ended, or that wait for space in the pool. Beyond that, a submission is refused as [`GroupFull`](crate::Refusal::GroupFull), or waits
    /// in the group's line if its policy is to wait, and holds up no other group. A limit of 0 refuses
    /// every submission. With one for each tenant, none can take all space or, with a limit below
    /// `max_workers`, all workers ([recipe](crate::docs::recipes#a-share-for-each-tenant)). Each call
    /// returns a group with a limit of its own. Keep it in a variable: its options borrow it.
    ///
    /// A running task keeps its place until it ends, a queued one past its deadline until its turn
    /// comes. A queued task whose [`Handle`](crate::Handle) is cancelled gives it back at once.
    ///
    /// ```
    /// use lazypool::{Group, Pool};
    /// use std::collections::HashMap;
    /// let pool = Pool::builder().max_workers(8).queue_capacity(64).build()?;
    /// let mut tenants: HashMap<&str, Group> = HashMap::new();
    /// for tenant in ["ann", "bob", "ann"] {
    ///     let group = tenants.entry(tenant).or_insert_with(|| pool.limited_group(6));
    ///     group.serve(move || println!("for {tenant}"))?;
    /// }
    /// assert!(pool.limited_group(0).serve(|| ()).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    #[doc(alias("semaphore", "SetLimit"))]
    pub fn limited_group(&self, max_pending: usize) -> Group {
        let options = SubmitterOptions::NONE;
        Group::new(Arc::clone(&self.core), options, Some(max_pending))
    }

    /// Runs `f` on the calling thread with a [`Scope`], whose tasks may borrow. Returns `f`'s value
    /// once all tasks of the scope have ended.
    ///
    /// The tasks may borrow what outlives this call. An accepted task runs even if the pool is shut
    /// down, unless the task has a [deadline](crate::Submitter::with_deadline) that passes first.
    /// On a worker of this pool, [`Scope::serve`] never queues a task. If the work of the scope has
    /// to be done in any case, use [`Scope::serve_or_run`].
    ///
    /// # Panics
    /// If `f` or one of the tasks panics, this call panics once all tasks have ended. It panics
    /// with the payload of `f`, or else with that of the first task that panicked.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(2)?;
    /// let (mut a, mut b) = (vec![3, 1, 2], vec![6, 5, 4]);
    /// pool.scope(|s| {
    ///     s.serve_or_run(|| a.sort());
    ///     s.serve_or_run(|| b.sort());
    /// });
    /// assert_eq!((a, b), (vec![1, 2, 3], vec![4, 5, 6]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scope<'env, F, T>(&self, f: F) -> T
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
    {
        crate::scope::scope(&self.core, SubmitterOptions::NONE, f)
    }

    /// Returns the pool's current state, and its counters since it was built. All values are exact
    /// while no call is under way and no task starts or ends. [`Stats`] lists what always holds.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// assert_eq!(pool.stats(), lazypool::Stats::default());
    /// println!("{}", pool.stats());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Returns a snapshot of each worker that exists now, in the order of their slots.
    ///
    /// ```
    /// let pool = lazypool::Pool::builder().max_workers(4).min_workers(2).build()?;
    /// assert_eq!(pool.workers().iter().filter(|w| !w.busy).count(), 2);
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerSnapshot> {
        self.core.workers()
    }

    /// Returns the [`Builder::max_workers`] of the pool; its [`limit`](Pool::limit) may be lower.
    ///
    /// ```
    /// assert_eq!(lazypool::Pool::new(3).unwrap().max_workers(), 3);
    /// ```
    #[must_use]
    pub fn max_workers(&self) -> usize {
        self.core.max_workers()
    }

    /// Returns the present limit on the number of workers: [`max_workers`](Pool::max_workers),
    /// until [`set_limit`](Pool::set_limit) changes it.
    ///
    /// ```
    /// assert_eq!(lazypool::Pool::new(3).unwrap().limit(), 3);
    /// ```
    #[must_use]
    pub fn limit(&self) -> usize {
        self.core.limit()
    }

    /// Sets the highest number of workers that there may be, from 1 to
    /// [`max_workers`](Pool::max_workers). The call does not wait for workers to end.
    ///
    /// From then on no thread is started beyond `n`, and a submission is refused as
    /// [`Saturated`](crate::Refusal::Saturated) if `n` workers are busy and the queue is full.
    ///
    /// If the limit is lowered, surplus workers end. Idle workers end at once. A busy worker ends after its task, or
    /// after one more task that was already assigned to it. A limit below [`min_workers`](Pool::min_workers) ends some
    /// of them, too. If the limit is raised, workers are started for queued tasks, waiting submissions and new tasks.
    /// For queued tasks they come one after the other: each has the next one started once its
    /// [start hook](Builder::on_worker_start) has returned.
    /// The `min_workers` are not started in advance again. The [slots](crate::task::slot) of workers stay below
    /// `max_workers`, not below `n`.
    ///
    /// While there are more than `n` workers, the pool is slower: each submission takes a slower way, and each worker
    /// takes a lock before its next task. If more than `n` tasks hang, this lasts until enough of them have
    /// ended, or until the limit is raised.
    ///
    /// # Errors
    /// Returns [`LimitError`] if `n` is 0 or more than `max_workers`, and keeps the old limit.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(8)?;
    /// pool.set_limit(2)?; // the machine is busy with something else
    /// assert_eq!(pool.limit(), 2);
    /// assert!(pool.set_limit(9).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_limit(&self, n: usize) -> Result<(), LimitError> {
        let max = self.max_workers();
        if n == 0 || n > max {
            return Err(LimitError::new(n, max));
        }
        self.core.set_limit(n);
        Ok(())
    }

    /// Returns how many workers [`Builder::build`] started. That many workers do not retire when
    /// idle. Only a [lower limit](Pool::set_limit) or a shutdown ends them.
    ///
    /// ```
    /// assert_eq!(lazypool::Pool::new(3).unwrap().min_workers(), 0);
    /// ```
    #[must_use]
    pub fn min_workers(&self) -> usize {
        self.core.host.min_workers
    }

    /// Returns how many tasks may wait for a worker; 0 if the pool has no queue.
    ///
    /// ```
    /// assert_eq!(lazypool::Pool::new(3).unwrap().queue_capacity(), 0);
    /// ```
    #[must_use]
    pub fn queue_capacity(&self) -> usize {
        self.core.queue_capacity
    }

    /// Returns `true` if the pool has been shut down, so that submissions are refused as
    /// [`Closed`](crate::Refusal::Closed).
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// assert!(!pool.is_closed());
    /// pool.shutdown(lazypool::Shutdown::Drain, std::time::Duration::MAX);
    /// assert!(pool.is_closed());
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.core.env.is_closed()
    }

    /// Closes the pool. Then waits for at most `timeout` until every worker has ended and its
    /// thread has been joined.
    ///
    /// From this call on, submissions are refused as [`Closed`](crate::Refusal::Closed), including
    /// those that wait for space. The [`Shutdown`] mode decides which accepted tasks still run. The
    /// report lists the workers that have not ended: the *stragglers*.
    ///
    /// A pool can be shut down more than once and from several threads. Each call waits, and the
    /// strictest mode applies. Once a call has waited and reported stragglers, dropping the pool
    /// does not wait. A call in a task of the pool returns at once, with the task's worker among
    /// the stragglers. A call in a waker that the pool calls also returns at once. So does a call in
    /// the drop of a value that a [discarded task](Pool#discarded-tasks) captured, and in a subscriber of `tracing` that is told
    /// of a refused thread.
    ///
    /// `timeout` does not limit destructors. Those of thread-local values may delay the join of a
    /// thread. Those of values that discarded tasks captured run on the calling thread.
    ///
    /// ```
    /// use lazypool::{Pool, Shutdown};
    /// use std::time::Duration;
    /// let pool = Pool::new(1)?;
    /// pool.serve(|| std::thread::sleep(Duration::from_millis(10)))?;
    /// assert!(pool.shutdown(Shutdown::Drain, Duration::from_secs(10)).is_clean());
    /// assert_eq!(pool.stats().completed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self, mode: Shutdown, timeout: Duration) -> ShutdownReport {
        end::shutdown(&self.core, mode, timeout, WaitsFor::All)
    }
}

impl Builder {
    /// Builds the pool, and starts its [`min_workers`](Builder::min_workers).
    ///
    /// # Errors
    /// Returns a [`BuildError`] that names the setting that is out of bounds and the allowed
    /// values. Returns [`BuildError::Spawn`] if the OS cannot create a thread for one of the
    /// `min_workers`. The workers that were started have then ended.
    ///
    /// ```
    /// use lazypool::{BuildError, Pool};
    /// let err = Pool::builder().max_workers(2).min_workers(3).build().unwrap_err();
    /// assert!(matches!(err, BuildError::MinExceedsMax { min: 3, max: 2 }));
    /// ```
    pub fn build(self) -> Result<Pool, BuildError> {
        let (core, on_drop) = self.into_core()?;
        let min = core.host.min_workers;
        let pool = Pool { core, on_drop };
        for _ in 0..min {
            if let Err(NotStarted::Failed(error)) = pool.core.start_worker() {
                pool.shutdown(Shutdown::Drain, Duration::MAX);
                return Err(BuildError::Spawn(error));
            }
        }
        pool.core.await_idle();
        Ok(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let (mode, timeout) = self.on_drop;
        // Relaxed: `shutdown` borrows the pool, so its store to `gave_up` happens before this drop.
        let gave_up = self.core.host.gave_up.load(Ordering::Relaxed);
        let timeout = if gave_up { Duration::ZERO } else { timeout };
        end::shutdown(&self.core, mode, timeout, WaitsFor::NotAbandoned);
    }
}
