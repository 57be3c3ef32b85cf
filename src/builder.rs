//! The builder, which collects a pool's settings.

use crate::engine::shared::{Core, Settings};
use crate::error::{BuildError, TaskPanic, MAX_WORKERS};
use crate::parts::backoff::cores;
use crate::stats::{Shutdown, WhenFull};
use crate::sync::Arc;
use crate::work::env::{Env, Hooks};
use std::time::Duration;

/// The settings of a new [`Pool`](crate::Pool).
///
/// [`Pool::builder`](crate::Pool::builder) returns a builder with all defaults. Each method sets
/// one setting, and [`build`](Builder::build) checks them all. If a setting or hook is set twice,
/// the last value applies.
///
/// ```
/// use lazypool::{Pool, Shutdown, WhenFull};
/// use std::time::Duration;
///
/// let pool = Pool::builder()
///     .max_workers(8)
///     .min_workers(1)
///     .queue_capacity(256)
///     .when_full(WhenFull::Block)
///     .idle_timeout(Duration::from_secs(30))
///     .shutdown_on_drop(Shutdown::Discard, Duration::from_secs(5))
///     .thread_name("crunch")
///     .on_panic(|p| eprintln!("slot {}: {:?}", p.slot, p.message()))
///     .build()?;
/// assert_eq!(pool.workers().len(), 1);
/// # Ok::<(), lazypool::BuildError>(())
/// ```
///
/// # Hooks
///
/// [`on_worker_start`](Builder::on_worker_start), [`on_worker_stop`](Builder::on_worker_stop),
/// [`around`](Builder::around) and [`on_panic`](Builder::on_panic) set hooks, which the workers
/// call.
///
/// * **A hook may block.** The description of each hook says what waits for it.
/// * **A hook may submit tasks** to its own pool, like any code on a worker. Such a submission
///   never waits for space. A task of `do_with_deadline` or of a scope goes to another worker, or
///   is refused as [`OnWorker`](crate::Refusal::OnWorker).
/// * **A panic in a hook** is caught, and counted in
///   [`Stats::hook_panics`](crate::Stats::hook_panics). The worker continues.
/// * **A hook is dropped**, with the values that it captured, once the pool, all its groups and
///   handles, and its threads are gone.
///
/// ```
/// use lazypool::Pool;
/// use std::cell::RefCell;
/// use std::time::Duration;
///
/// thread_local! {
///     /// Each worker has a buffer of its own.
///     static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
/// }
/// let pool = Pool::builder()
///     .on_worker_start(|_slot| BUFFER.with_borrow_mut(|b| b.reserve(4096)))
///     .on_worker_stop(|slot| println!("worker {slot} ends"))
///     .on_panic(|panic| eprintln!("{:?}: {:?}", panic.label, panic.message()))
///     .build()?;
/// let room = pool.do_with_deadline(|| BUFFER.with_borrow(Vec::capacity), Duration::MAX);
/// assert!(room? >= 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Priorities
///
/// A pool does not order its tasks by priority. Build one pool for each priority, with limits of
/// its own. Urgent tasks then never wait behind others, and neither pool takes the other's threads.
///
/// ```
/// use lazypool::{Pool, WhenFull};
///
/// // Requests are refused rather than answered late.
/// let urgent = Pool::builder().max_workers(8).queue_capacity(64).thread_name("urgent").build()?;
/// // Batch work has few threads, and its producers wait.
/// let batch = Pool::builder()
///     .max_workers(2)
///     .queue_capacity(10_000)
///     .when_full(WhenFull::Block)
///     .thread_name("batch")
///     .build()?;
/// batch.set_limit(1)?; // in busy hours
/// # drop(urgent);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use]
#[doc(alias = "priority")]
pub struct Builder {
    settings: Settings,
    thread_name: String,
    hooks: Hooks,
    on_drop: (Shutdown, Duration),
}

/// Sets all settings to their defaults, as [`Pool::builder`](crate::Pool::builder) does.
impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            settings: Settings {
                max_workers: (4 * cores()).min(MAX_WORKERS),
                min_workers: 0,
                queue_capacity: 0,
                when_full: WhenFull::Refuse,
                idle_timeout: Duration::from_secs(10),
                stack_size: None,
                track_ages: false,
            },
            thread_name: String::from("lazypool"),
            hooks: Hooks::default(),
            on_drop: (Shutdown::Drain, Duration::MAX),
        }
    }

    /// Sets how many workers may exist at once, from 1 to 65,536.
    ///
    /// The default is four per core ([`std::thread::available_parallelism`], which each process
    /// reads once). This suits tasks that mostly wait. For pure CPU work, one worker per core is
    /// enough. The page [`docs::sizing`](crate::docs::sizing) says how to choose the number.
    ///
    /// A thread that only runs its last thread-local destructors no longer counts as a worker. So
    /// the process may have more threads of the pool than this number for a while.
    ///
    /// If the number is out of bounds, [`build`](Builder::build) fails with
    /// [`BuildError::ZeroWorkers`] or [`BuildError::TooManyWorkers`].
    #[doc(alias("num_threads", "size"))]
    pub fn max_workers(mut self, n: usize) -> Self {
        self.settings.max_workers = n;
        self
    }

    /// Sets how many workers [`build`](Builder::build) starts. They do not retire when idle.
    ///
    /// The default is 0, so each worker is started when a task needs it. If the number is above
    /// [`max_workers`](Builder::max_workers), `build` fails with [`BuildError::MinExceedsMax`]. If
    /// the OS cannot create a thread, `build` fails with [`BuildError::Spawn`].
    ///
    /// `build` returns once the [start hooks](Builder::on_worker_start) of these workers have
    /// returned and the workers are idle.
    ///
    /// A [limit](crate::Pool::set_limit) below this number also ends some of these workers. Raising
    /// the limit again does not restart them in advance. Workers are then started on demand, and up
    /// to this many of them do not retire when idle.
    pub fn min_workers(mut self, n: usize) -> Self {
        self.settings.min_workers = n;
        self
    }

    /// Sets how many tasks may wait in the queue for a worker, at most 16,777,216.
    ///
    /// The default is 0: there is no queue, and a task that neither an idle nor a new worker can
    /// take is refused. If the number is above the maximum, [`build`](Builder::build) fails with
    /// [`BuildError::QueueTooLong`].
    ///
    /// **Order.** Queued tasks start in the order in which they entered the queue. They run in
    /// parallel and end in any order. A task that is handed directly to an idle or a new worker
    /// does not enter the queue. It may start before a queued task whose worker is still waking up.
    /// If it can, the pool hands the task of a [`do_with_deadline`](crate::Pool::do_with_deadline)
    /// directly to a worker. If one step must follow another, put both into one task.
    ///
    /// **Size.** A queue should hold no more tasks than the workers can complete before the
    /// deadline of the last task in it. That is workers x (floor(deadline / task time) - 1),
    /// because each worker may have just started another task. In a longer queue, once it is full,
    /// nearly every task misses its deadline. The page [`docs::sizing`](crate::docs::sizing) says
    /// more, and covers task times that vary. If producers wait for space ([`WhenFull::Block`]), a
    /// few tasks for each worker are enough to keep it busy.
    ///
    /// **Memory.** `build` reserves 64 bytes of address space for each task that may be queued or run. Most
    /// operating systems provide the memory only as it is used.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let workers = 8;
    /// let (deadline, task_time) = (Duration::from_millis(250), Duration::from_millis(20));
    /// let tasks_in_time = (deadline.as_millis() / task_time.as_millis()) as usize; // rounded down
    /// let queue = workers * tasks_in_time.saturating_sub(1); // 0: no queue
    /// assert_eq!(queue, 88);
    /// let pool = lazypool::Pool::builder().max_workers(workers).queue_capacity(queue).build()?;
    /// # drop(pool);
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    #[doc(alias = "queue_limit")]
    pub fn queue_capacity(mut self, n: usize) -> Self {
        self.settings.queue_capacity = n;
        self
    }

    /// Sets what a submission does when every worker is busy and the queue is full, or when its
    /// [limited group](crate::Pool::limited_group) is full: it is refused, waits for space, or waits
    /// for some time.
    ///
    /// The default is [`WhenFull::Refuse`]. A submission made on a worker of the pool never waits
    /// for space. Instead of waiting, it is refused as [`OnWorker`](crate::Refusal::OnWorker).
    pub fn when_full(mut self, policy: WhenFull) -> Self {
        self.settings.when_full = policy;
        self
    }

    /// Sets how long a worker may be idle before it retires.
    ///
    /// A worker that has been idle for this time ends, unless only
    /// [`min_workers`](Builder::min_workers) workers are left. It ends after twice this time at the
    /// latest. The resolution is about 1 ms. With a shorter time, a worker may stay for 2 or 3 ms.
    /// The default is 10 s. With [`Duration::MAX`] no worker retires.
    ///
    /// With [`Duration::ZERO`] each worker retires as soon as the pool finds it idle. Nearly every
    /// task then starts a thread. This suits rare and long tasks, such as a nightly job.
    #[doc(alias = "keep_alive")]
    pub fn idle_timeout(mut self, d: Duration) -> Self {
        self.settings.idle_timeout = d;
        self
    }

    /// Sets how dropping the pool shuts it down, and the longest time that the drop waits.
    ///
    /// The default is [`Shutdown::Drain`] and [`Duration::MAX`]: the drop waits until every
    /// accepted task has run. But it does not wait for [abandoned](crate::Stats::abandoned) tasks.
    /// **If these keep all workers busy, the drop does not wait for queued tasks either**: see
    /// [when the drop returns early](crate::Pool#when-the-drop-returns-early).
    ///
    /// **A pool in a `static` is never dropped**, so this setting has no effect on it. When `main`
    /// returns, the process ends, even if tasks are still running. Shut the pool down before `main`
    /// returns.
    ///
    /// ```
    /// use lazypool::{Pool, Shutdown};
    /// use std::sync::LazyLock;
    /// use std::time::Duration;
    ///
    /// static POOL: LazyLock<Pool> = LazyLock::new(|| Pool::new(4).expect("within bounds"));
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     POOL.serve(|| println!("runs to its end"))?;
    ///     // The last line of `main`:
    ///     assert!(POOL.shutdown(Shutdown::Drain, Duration::from_secs(10)).is_clean());
    ///     Ok(())
    /// }
    /// ```
    pub fn shutdown_on_drop(mut self, mode: Shutdown, timeout: Duration) -> Self {
        self.on_drop = (mode, timeout);
        self
    }

    /// Sets the name of the pool. Its threads are named `"{name}-{slot}"`.
    ///
    /// The default is `"lazypool"`. An empty name, or one with a NUL byte, makes
    /// [`build`](Builder::build) fail with [`BuildError::BadThreadName`].
    ///
    /// **On Linux, keep it to 12 bytes.** The system shows the first 15 bytes of a thread's name,
    /// in `top`, `gdb` and `/proc`. If the name is longer, the system cuts off the dash and the
    /// slot, or a part of them, and you cannot tell the workers apart. (12 bytes leave space for
    /// slots up to 99.) Inside the process, [`Thread::name`](std::thread::Thread::name) returns the
    /// whole name.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// Sets the stack size of the workers in bytes.
    ///
    /// The default is that of [`std::thread`]. If the size is below 16,384 bytes,
    /// [`build`](Builder::build) fails with [`BuildError::StackTooSmall`]. If the OS's own minimum
    /// is higher, the stack has that size, which is about 24 KiB on Linux with a recent processor.
    /// That is enough for a small task, but not for a task that panics with `RUST_BACKTRACE=1`. Its
    /// stack overflows, which ends the process. Set 64 KiB or more if a task may panic.
    ///
    /// If the size is more than the OS can give, no thread can be started. Each submission is then
    /// refused as [`SpawnFailed`](crate::Refusal::SpawnFailed), and `build` with
    /// [`min_workers`](Builder::min_workers) fails with [`BuildError::Spawn`].
    ///
    /// **Nested calls.** If a task submits another task to the same pool, the pool never runs that
    /// task on the stack of the first one. If the first task would have to wait for a queued task,
    /// its submission is refused as [`OnWorker`](crate::Refusal::OnWorker). The first task may then
    /// run the refused closure itself, on its own stack
    /// ([`Refused::caller_runs`](crate::Refused::caller_runs),
    /// [`Refused::run_anyway`](crate::Refused::run_anyway)). So a task that submits tasks like
    /// itself nests one call deeper for each refusal. Limit the depth, or collect the refused
    /// closures and run them in a loop.
    ///
    /// ```
    /// use lazypool::{task, Pool, Refused};
    /// use std::time::Duration;
    /// static POOL: std::sync::OnceLock<Pool> = std::sync::OnceLock::new();
    /// let pool = Pool::builder().max_workers(2).stack_size(256 << 10).build()?;
    /// let pool = POOL.get_or_init(|| pool);
    /// let slots = pool.do_with_deadline(
    ///     || {
    ///         let nested = || {
    ///             // Both workers are busy, so this closure runs on the stack of its caller.
    ///             let refused = pool.do_with_deadline(task::slot, Duration::MAX).unwrap_err();
    ///             let third = refused.into_inner().expect("it never ran")();
    ///             (task::slot(), third)
    ///         };
    ///         let (second, third) = pool.do_with_deadline(nested, Duration::MAX).unwrap();
    ///         [task::slot(), second, third]
    ///     },
    ///     Duration::MAX,
    /// );
    /// let [first, second, third] = slots?;
    /// assert!(first != second && second == third);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.settings.stack_size = Some(bytes);
        self
    }

    /// Sets a hook that each new worker calls with its slot before its first task.
    ///
    /// During the hook, submissions treat the worker as busy. The task for which the worker was
    /// started waits for the hook. If the task's caller is in
    /// [`do_with_deadline`](crate::Pool::do_with_deadline), it takes the task back at its deadline.
    ///
    /// [`Builder`](Builder#hooks) says what a hook may do.
    #[doc(alias = "start_handler")]
    pub fn on_worker_start(mut self, f: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.hooks.start = Some(Box::new(f));
        self
    }

    /// Sets a hook that each worker calls with its slot when it has ended, after its last task. So each
    /// call of the start hook is followed by one call of this hook, on the same thread.
    ///
    /// The worker has left its slot before the hook. Another worker may have the slot by then, so more
    /// than `max_workers` threads may exist while stop hooks run, and what an application keeps for the slot may be
    /// that worker's. The hook delays no submission. A
    /// shutdown waits for the hook until its timeout.
    /// [`Builder`](Builder#hooks) says what a hook may do.
    #[doc(alias = "exit_handler")]
    pub fn on_worker_stop(mut self, f: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.hooks.stop = Some(Box::new(f));
        self
    }

    /// Sets a hook that wraps every task. The worker calls `f` for each task, and `f` runs the task
    /// by calling its argument.
    ///
    /// If `f` does not call its argument, the task runs right after `f`. A second call of the
    /// argument does nothing. The argument never unwinds, because a panic of the task is caught
    /// inside it. The time that `f` takes counts as running time of the task.
    /// [`Builder`](Builder#hooks) says what a hook may do.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// let pool = lazypool::Pool::builder()
    ///     .around(|task| {
    ///         let start = Instant::now();
    ///         task();
    ///         println!("{:?}: {:?}", lazypool::task::label(), start.elapsed());
    ///     })
    ///     .build()?;
    /// assert!(matches!(pool.do_with_deadline(|| 1, Duration::MAX), Ok(1)));
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    pub fn around(mut self, f: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> Self {
        self.hooks.around = Some(Box::new(f));
        self
    }

    /// Sets a hook that the worker calls for every task that panicked, before a caller that waits
    /// for the task gets the payload.
    ///
    /// If the deadline of a caller passes during the hook, its call returns
    /// [`TimedOut`](crate::DeadlineError::TimedOut). [`Builder`](Builder#hooks) says what a hook
    /// may do.
    #[doc(alias = "panic_handler")]
    pub fn on_panic(mut self, f: impl Fn(&TaskPanic<'_>) + Send + Sync + 'static) -> Self {
        self.hooks.on_panic = Some(Box::new(f));
        self
    }

    /// Sets whether the pool tracks how long ago queued tasks were submitted and how long tasks have run.
    ///
    /// The default is `false`. With `true`,
    /// [`Stats::longest_running`](crate::Stats::longest_running),
    /// [`Stats::oldest_queued`](crate::Stats::oldest_queued) and
    /// [`WorkerSnapshot::running_for`](crate::WorkerSnapshot::running_for) show which tasks hang,
    /// and for how long. The pool then reads the clock at each start of a task and at each
    /// submission. It uses 8 bytes for each place in the queue, from the start.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let pool = lazypool::Pool::builder().max_workers(1).track_ages(true).build()?;
    /// let (release, gate) = std::sync::mpsc::channel::<()>();
    /// pool.serve(move || gate.recv().unwrap_or_default())?;
    /// // An alert of a service:
    /// let hangs = |age: Option<Duration>| age.is_some_and(|age| age > Duration::from_secs(30));
    /// let stats = pool.stats();
    /// assert!(!hangs(stats.longest_running) && !hangs(stats.oldest_queued));
    /// # drop(release);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn track_ages(mut self, yes: bool) -> Self {
        self.settings.track_ages = yes;
        self
    }

    /// Checks all settings. Returns the pool's core, and the mode and timeout of the shutdown that
    /// dropping the pool begins.
    pub(crate) fn into_core(self) -> Result<(Arc<Core>, (Shutdown, Duration)), BuildError> {
        let Self {
            settings,
            thread_name,
            hooks,
            on_drop,
        } = self;
        check::max_workers(settings.max_workers)?;
        check::min_workers(settings.min_workers, settings.max_workers)?;
        check::queue_capacity(settings.queue_capacity)?;
        check::thread_name(&thread_name)?;
        settings.stack_size.map_or(Ok(()), check::stack_size)?;
        let env = Env::new(thread_name, hooks, settings.track_ages);
        let core = settings.into_core(env);
        Ok((Arc::new(core), on_drop))
    }
}

/// The bounds of each setting. Settings from a file are checked by the same functions.
pub(crate) mod check {
    use crate::error::{BuildError, MAX_QUEUE, MAX_WORKERS, MIN_STACK};

    pub(crate) fn max_workers(given: usize) -> Result<(), BuildError> {
        let max = MAX_WORKERS;
        match given {
            0 => Err(BuildError::ZeroWorkers),
            _ if given > max => Err(BuildError::TooManyWorkers { given, max }),
            _ => Ok(()),
        }
    }

    pub(crate) fn min_workers(min: usize, max: usize) -> Result<(), BuildError> {
        if min > max {
            return Err(BuildError::MinExceedsMax { min, max });
        }
        Ok(())
    }

    pub(crate) fn queue_capacity(given: usize) -> Result<(), BuildError> {
        let max = MAX_QUEUE;
        if given > max {
            return Err(BuildError::QueueTooLong { given, max });
        }
        Ok(())
    }

    pub(crate) fn thread_name(given: &str) -> Result<(), BuildError> {
        if given.is_empty() || given.contains('\0') {
            return Err(BuildError::BadThreadName);
        }
        Ok(())
    }

    pub(crate) fn stack_size(given: usize) -> Result<(), BuildError> {
        let min = MIN_STACK;
        if given < min {
            return Err(BuildError::StackTooSmall { given, min });
        }
        Ok(())
    }
}
