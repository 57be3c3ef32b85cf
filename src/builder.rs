//! A pool's settings.

use crate::engine::core::{Core, Mains, Settings};
use crate::engine::{retirement, worker};
use crate::error::TaskPanic;
use crate::error::{BuildError, MAX_QUEUE, MAX_WORKERS};
use crate::parts::backoff::cores;
use crate::stats::{Shutdown, WhenFull};
use crate::sync::Arc;
use crate::work::env::{Env, Hooks};
use std::time::Duration;

/// Settings of a [`Pool`](crate::Pool); from [`Pool::builder`](crate::Pool::builder).
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
#[derive(Debug)]
#[must_use]
pub struct Builder {
    settings: Settings,
    thread_name: String,
    hooks: Hooks,
    on_drop: (Shutdown, Duration),
}

/// The same as [`Pool::builder`](crate::Pool::builder).
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
            },
            thread_name: String::from("lazypool"),
            hooks: Hooks::default(),
            on_drop: (Shutdown::Drain, Duration::MAX),
        }
    }

    /// The most workers that ever exist at once: 1 to 65,536, any number. Default:
    /// four per core ([`std::thread::available_parallelism`], asked once in a
    /// process), for tasks that mostly wait; for pure CPU work, one per core is
    /// enough.
    #[doc(alias = "num_threads")]
    #[doc(alias = "size")]
    pub fn max_workers(mut self, n: usize) -> Self {
        self.settings.max_workers = n;
        self
    }

    /// Workers that [`build`](Builder::build) starts and that never retire.
    /// Default 0.
    pub fn min_workers(mut self, n: usize) -> Self {
        self.settings.min_workers = n;
        self
    }

    /// How many tasks may wait for a worker, at most 16,777,216. Default 0: a task
    /// is taken by a worker at once or refused.
    #[doc(alias = "queue_limit")]
    pub fn queue_capacity(mut self, n: usize) -> Self {
        self.settings.queue_capacity = n;
        self
    }

    /// Whether a submission to a saturated pool is refused, waits for room, or waits
    /// for some time. Default [`WhenFull::Refuse`]. On a worker of the pool nothing
    /// ever waits.
    pub fn when_full(mut self, policy: WhenFull) -> Self {
        self.settings.when_full = policy;
        self
    }

    /// How long a worker may be idle before it retires; it is gone within twice
    /// that (1 ms at the finest). Default 10 s. [`Duration::MAX`]: never;
    /// [`Duration::ZERO`]: as soon as it is idle.
    #[doc(alias = "keep_alive")]
    pub fn idle_timeout(mut self, d: Duration) -> Self {
        self.settings.idle_timeout = d;
        self
    }

    /// What dropping the pool does. Default ([`Shutdown::Drain`],
    /// [`Duration::MAX`]): every accepted task runs, and the drop waits for it.
    pub fn shutdown_on_drop(mut self, mode: Shutdown, timeout: Duration) -> Self {
        self.on_drop = (mode, timeout);
        self
    }

    /// The threads' names: `"{name}-{slot}"`, and `"{name}-cleaner"`. Default
    /// `"lazypool"`.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// The workers' stack size in bytes. Default: that of [`std::thread`].
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.settings.stack_size = Some(bytes);
        self
    }

    /// Called with the slot on each new worker, before its first task. A panic
    /// is contained and counted in [`Stats::hook_panics`](crate::Stats::hook_panics),
    /// as in all hooks; a hook set twice: the last one counts.
    #[doc(alias = "start_handler")]
    pub fn on_worker_start(mut self, f: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.hooks.start = Some(Box::new(f));
        self
    }

    /// Called with the slot on each worker that ends, after its last task. While
    /// it runs its slot is not free: submissions that would need it wait, whatever
    /// [`WhenFull`](crate::WhenFull) says. So it must not wait for a lock that a submitter
    /// may hold.
    #[doc(alias = "exit_handler")]
    pub fn on_worker_stop(mut self, f: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.hooks.stop = Some(Box::new(f));
        self
    }

    /// Wraps every task: `f` is called on the worker and calls its argument to
    /// run the task. If it does not, the task runs right after it; a second call
    /// does nothing. The argument never unwinds: a task's panic is caught inside.
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

    /// Called on the worker for every task that panicked, before a waiting caller
    /// gets the payload.
    #[doc(alias = "panic_handler")]
    pub fn on_panic(mut self, f: impl Fn(&TaskPanic<'_>) + Send + Sync + 'static) -> Self {
        self.hooks.on_panic = Some(Box::new(f));
        self
    }

    /// The pool's parts, once all is checked.
    pub(crate) fn into_core(self) -> Result<(Arc<Core>, (Shutdown, Duration)), BuildError> {
        let Self {
            settings,
            thread_name,
            hooks,
            on_drop,
        } = self;
        let max = settings.max_workers;
        let min = settings.min_workers;
        if max == 0 {
            return Err(BuildError::ZeroWorkers);
        }
        if max > MAX_WORKERS {
            return Err(BuildError::TooManyWorkers {
                given: max,
                max: MAX_WORKERS,
            });
        }
        if min > max {
            return Err(BuildError::MinExceedsMax { min, max });
        }
        if settings.queue_capacity > MAX_QUEUE {
            return Err(BuildError::QueueTooLong {
                given: settings.queue_capacity,
                max: MAX_QUEUE,
            });
        }
        if thread_name.contains('\0') {
            return Err(BuildError::BadThreadName);
        }
        let mains = Mains {
            worker: worker::main,
            cleaner: retirement::main,
        };
        let core = Core::new(Env::new(thread_name, hooks), settings, mains);
        Ok((Arc::new(core), on_drop))
    }
}
