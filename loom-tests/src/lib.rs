//! Helpers that the models share. This crate is empty without `--cfg lazypool_loom`; run `cargo
//! loom`.

#[cfg(not(lazypool_loom))]
const _: () = assert!(
    option_env!("LAZYPOOL_LOOM").is_none(),
    "`cargo loom` without `--cfg lazypool_loom`: unset RUSTFLAGS, which replaced it"
);

#[cfg(lazypool_loom)]
mod check {
    use std::time::Instant;

    /// Explores a model up to a number of preemptions; with `None`, explores all of it.
    ///
    /// Nothing else bounds the exploration: the environment variables with which loom would stop
    /// early, and report success, are refused.
    pub fn check(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        assert!(
            builder.max_duration.is_none() && builder.max_permutations.is_none(),
            "a model that ends early proves nothing: unset LOOM_MAX_*"
        );
        builder.preemption_bound = preemptions;
        builder.max_branches = 5_000;
        let runs = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let counter = std::sync::Arc::clone(&runs);
        let start = Instant::now();
        builder.check(move || {
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            model();
        });
        let runs = runs.load(std::sync::atomic::Ordering::Relaxed);
        println!("{runs} executions in {:.1?}", start.elapsed());
    }
}

#[cfg(lazypool_loom)]
pub use check::check;

#[cfg(lazypool_loom)]
mod parts {
    use lazypool::model::{assert_at_rest, deadline, sweep, Deadline};
    use lazypool::{Builder, Pool, Shutdown};
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;
    use std::time::Duration;

    /// Returns a pool whose idle workers never sweep, so that a model sweeps for them (`cleaner`).
    /// The timeout is one nanosecond: a model's sweep always finds it expired.
    pub fn pool(max_workers: usize, queue_capacity: usize) -> Pool {
        pool_with(max_workers, queue_capacity, |b| b)
    }

    /// Returns a [`pool`] with further settings.
    pub fn pool_with(
        max_workers: usize,
        queue_capacity: usize,
        set: impl FnOnce(Builder) -> Builder,
    ) -> Pool {
        let builder = Pool::builder()
            .max_workers(max_workers)
            .queue_capacity(queue_capacity)
            .idle_timeout(Duration::from_nanos(1));
        set(builder).build().expect("valid settings")
    }

    /// Runs `f` in one interleaving only. For the steps that lead up to a model's subject.
    pub fn quietly<R>(f: impl FnOnce() -> R) -> R {
        loom::stop_exploring();
        let result = f();
        loom::explore();
        result
    }

    /// Returns a [`pool`] of which one worker is idle, and is this thread's affinity.
    pub fn warm(max_workers: usize, queue_capacity: usize) -> Pool {
        warm_with(max_workers, queue_capacity, |b| b)
    }

    /// Returns a [`warm`] pool with further settings.
    pub fn warm_with(
        max_workers: usize,
        queue_capacity: usize,
        set: impl FnOnce(Builder) -> Builder,
    ) -> Pool {
        quietly(|| {
            let pool = pool_with(max_workers, queue_capacity, set);
            assert!(call(&pool));
            pool
        })
    }

    /// Runs an empty task and waits for it. Returns `true` if it ran.
    pub fn call(pool: &Pool) -> bool {
        pool.do_with_deadline(|| (), Duration::MAX).is_ok()
    }

    /// Submits a task that runs until its gate is opened.
    pub fn hold(pool: &Pool) -> loom::sync::mpsc::Sender<()> {
        let (open, gate) = loom::sync::mpsc::channel();
        quietly(|| {
            assert!(pool.serve(move || gate.recv().unwrap()).is_ok());
            while pool.stats().queued > 0 {
                loom::thread::yield_now();
            }
        });
        open
    }

    /// Calls `f` with a deadline that passes at any moment.
    pub fn at_any_moment<R>(f: impl FnOnce(&Deadline) -> R) -> R {
        let (deadline, alarm) = deadline();
        let clock = loom::thread::spawn(move || alarm.go_off());
        let result = f(&deadline);
        clock.join().unwrap();
        result
    }

    /// Returns a [`pool`] whose first two workers have each run a task, and are idle or about to
    /// be.
    pub fn warm_pair(max_workers: usize, queue_capacity: usize) -> Pool {
        warm_pair_with(max_workers, queue_capacity, |b| b)
    }

    /// Returns a [`warm_pair`] pool with further settings.
    pub fn warm_pair_with(
        max_workers: usize,
        queue_capacity: usize,
        set: impl FnOnce(Builder) -> Builder,
    ) -> Pool {
        quietly(|| {
            let pool = pool_with(max_workers, queue_capacity, set);
            let both = pool.group();
            both.serve(|| ()).unwrap();
            both.serve(|| ()).unwrap();
            both.wait();
            pool
        })
    }

    /// Submits a task from each of two threads. Both are accepted, and both run.
    pub fn two_serve(pool: Pool) {
        let pool = Arc::new(pool);
        let ran = Ran::new();
        let task = ran.task();
        let other = beside(&pool, |pool| assert!(pool.serve(task).is_ok()));
        assert!(pool.serve(ran.task()).is_ok());
        other.join().unwrap();
        end(&pool);
        assert_eq!((ran.times(), ran.alive()), (2, 0));
    }

    /// Returns a hook in which other threads may run. It does not yield: in loom, a thread that has
    /// yielded goes on only once all others wait.
    pub fn hook() -> impl Fn(usize) + Send + Sync + 'static {
        let step = AtomicUsize::new(0);
        move |_| {
            step.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Spawns a thread that runs a closure with its own handle on the shared value.
    pub fn beside<T: Clone + 'static, R: 'static>(
        shared: &T,
        act: impl FnOnce(&T) -> R + 'static,
    ) -> loom::thread::JoinHandle<R> {
        let shared = shared.clone();
        loom::thread::spawn(move || act(&shared))
    }

    /// Spawns a thread that sweeps twice, as the cleaner does: it benches idle workers, then
    /// retires those that are still on the bench.
    pub fn cleaner(pool: &Arc<Pool>) -> loom::thread::JoinHandle<()> {
        beside(pool, |pool| {
            sweep(pool);
            sweep(pool);
        })
    }

    /// Submits two tasks to a worker that looks at the queue. The first ends only after the second.
    pub fn one_waits_for_the_next(pool: &Pool) {
        // The worker of this task looks at the queue once it has ended.
        assert!(pool.serve(|| ()).is_ok());
        let (open, gate) = loom::sync::mpsc::channel();
        assert!(pool.serve(move || gate.recv().unwrap()).is_ok());
        let second = pool.do_with_deadline(move || open.send(()).unwrap(), Duration::MAX);
        assert!(second.is_ok());
    }

    /// Ends the model, in one interleaving only, and asserts that the pool comes to rest.
    pub fn end(pool: &Pool) {
        loom::stop_exploring();
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        let s = pool.stats();
        let ended = s.completed + s.panicked + s.expired + s.discarded;
        assert_eq!((s.accepted, s.queued, s.running), (ended, 0, 0), "{s}");
        assert_eq!((s.workers, s.idle, s.spawned), (0, 0, s.retired), "{s}");
        assert_at_rest(pool);
    }

    /// Tasks that count how often they ran, and how many of them still exist, run or not.
    #[derive(Debug, Clone)]
    pub struct Ran {
        times: Arc<AtomicUsize>,
        alive: Arc<AtomicUsize>,
    }

    struct Alive(Arc<AtomicUsize>);

    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::AcqRel);
        }
    }

    impl Ran {
        /// Returns a counter without tasks.
        #[allow(clippy::new_without_default)]
        pub fn new() -> Self {
            Self {
                times: Arc::new(AtomicUsize::new(0)),
                alive: Arc::new(AtomicUsize::new(0)),
            }
        }

        /// Returns one more task.
        pub fn task(&self) -> impl FnOnce() + Send + 'static {
            self.alive.fetch_add(1, Ordering::AcqRel);
            let alive = Alive(Arc::clone(&self.alive));
            let times = Arc::clone(&self.times);
            move || {
                let _alive = alive;
                times.fetch_add(1, Ordering::AcqRel);
            }
        }

        /// Returns how often one of the tasks ran.
        pub fn times(&self) -> usize {
            self.times.load(Ordering::Acquire)
        }

        /// Returns the number of tasks that have neither run nor been dropped.
        pub fn alive(&self) -> usize {
            self.alive.load(Ordering::Acquire)
        }
    }
}

#[cfg(lazypool_loom)]
mod flag {
    use loom::sync::{Condvar, Mutex};
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    /// A waker that counts how often it is woken.
    #[derive(Debug)]
    pub struct Flag {
        woken: Mutex<usize>,
        told: Condvar,
    }

    impl Flag {
        /// Returns a flag and its waker.
        #[allow(clippy::new_ret_no_self)]
        pub fn new() -> (Arc<Self>, Waker) {
            let flag = Arc::new(Self {
                woken: Mutex::new(0),
                told: Condvar::new(),
            });
            (Arc::clone(&flag), Waker::from(flag))
        }

        /// Waits until the flag has been woken.
        pub fn wait(&self) {
            let mut woken = self.woken.lock().unwrap();
            while *woken == 0 {
                woken = self.told.wait(woken).unwrap();
            }
        }

        /// Returns how often the flag was woken.
        pub fn times(&self) -> usize {
            *self.woken.lock().unwrap()
        }
    }

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            *self.woken.lock().unwrap() += 1;
            self.told.notify_one();
        }
    }
}

#[cfg(lazypool_loom)]
pub use flag::Flag;

#[cfg(lazypool_loom)]
pub use parts::*;
