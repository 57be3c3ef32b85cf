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
    use crate::check;
    use lazypool::model::{assert_at_rest, deadline, sweep, Deadline};
    use lazypool::{Builder, Pool, Shutdown};
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use loom::sync::mpsc;
    use loom::thread::{self, JoinHandle};
    use std::sync::Arc;
    use std::time::Duration;

    // ---- pools ---------------------------------------------------------------------------------

    /// The pool that a model begins with. Its idle workers never sweep, so that a model sweeps for
    /// them (`cleaner`). The timeout is one nanosecond: a model's sweep always finds it expired.
    #[derive(Debug, Clone, Copy)]
    pub struct Setup {
        max_workers: usize,
        queue_capacity: usize,
        /// The number of workers that have run a task.
        warm: usize,
        set: fn(Builder) -> Builder,
    }

    /// Returns the setup of a pool without threads.
    pub fn pool(max_workers: usize, queue_capacity: usize) -> Setup {
        Setup::of(max_workers, queue_capacity, 0)
    }

    /// Returns the setup of a pool of which one worker is idle, and is the building thread's
    /// last worker.
    pub fn warm(max_workers: usize, queue_capacity: usize) -> Setup {
        Setup::of(max_workers, queue_capacity, 1)
    }

    /// Returns the setup of a pool whose first two workers have each run a task, and are idle or
    /// about to be.
    pub fn warm_pair(max_workers: usize, queue_capacity: usize) -> Setup {
        Setup::of(max_workers, queue_capacity, 2)
    }

    impl Setup {
        fn of(max_workers: usize, queue_capacity: usize, warm: usize) -> Self {
            Self {
                max_workers,
                queue_capacity,
                warm,
                set: |builder| builder,
            }
        }

        /// Adds further settings.
        pub fn with(self, set: fn(Builder) -> Builder) -> Self {
            Self { set, ..self }
        }

        /// Builds the pool.
        pub fn build(self) -> Arc<Pool> {
            self.build_with(self.set)
        }

        /// Builds the pool with further settings that capture values.
        pub fn build_with(self, set: impl FnOnce(Builder) -> Builder) -> Arc<Pool> {
            let builder = Pool::builder()
                .max_workers(self.max_workers)
                .queue_capacity(self.queue_capacity)
                .idle_timeout(Duration::from_nanos(1));
            let build = || Arc::new(set(builder).build().expect("valid settings"));
            if self.warm == 0 {
                return build();
            }
            quietly(|| {
                let pool = build();
                if self.warm == 1 {
                    assert!(call(&pool));
                } else {
                    let both = pool.group();
                    both.serve(|| ()).unwrap();
                    both.serve(|| ()).unwrap();
                    both.wait();
                }
                pool
            })
        }
    }

    /// Explores a model of a pool up to a number of preemptions. Builds the pool before the model,
    /// and ends it after.
    pub fn check_pool(
        preemptions: usize,
        setup: Setup,
        model: impl Fn(&Arc<Pool>) + Send + Sync + 'static,
    ) {
        check(Some(preemptions), move || {
            let pool = setup.build();
            model(&pool);
            end(&pool);
        });
    }

    /// Explores a model as [`check_pool`] does. The model returns how many of its tasks were
    /// accepted. Asserts that these have run, each of them once, and that no task is left.
    pub fn check_tasks(
        preemptions: usize,
        setup: Setup,
        model: impl Fn(&Arc<Pool>, &Ran) -> usize + Send + Sync + 'static,
    ) {
        check(Some(preemptions), move || {
            let (pool, ran) = (setup.build(), Ran::new());
            let accepted = model(&pool, &ran);
            end(&pool);
            assert_eq!((ran.times(), ran.alive()), (accepted, 0));
        });
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

    // ---- calls ---------------------------------------------------------------------------------

    /// Runs `f` in one interleaving only. For the steps that lead up to a model's subject.
    pub fn quietly<R>(f: impl FnOnce() -> R) -> R {
        loom::stop_exploring();
        let result = f();
        loom::explore();
        result
    }

    /// Runs an empty task and waits for it. Returns `true` if it ran.
    pub fn call(pool: &Pool) -> bool {
        pool.do_with_deadline(|| (), Duration::MAX).is_ok()
    }

    /// Submits a task. Returns how many were accepted: one or none.
    pub fn try_serve(pool: &Pool, task: impl FnOnce() + Send + 'static) -> usize {
        usize::from(pool.serve(task).is_ok())
    }

    /// A gate, closed at first.
    #[derive(Debug)]
    pub struct Gate(mpsc::Sender<()>);

    impl Gate {
        /// Returns a gate, and a task that waits until the gate is opened.
        #[allow(clippy::new_ret_no_self)]
        pub fn new() -> (Self, impl FnOnce() + Send + 'static) {
            let (open, gate) = mpsc::channel();
            (Self(open), move || gate.recv().unwrap())
        }

        /// Opens the gate.
        pub fn open(&self) {
            self.0.send(()).unwrap();
        }

        /// Opens the gate in a task, and waits for that task.
        pub fn open_by_call(self, pool: &Pool) {
            let call = pool.do_with_deadline(move || self.open(), Duration::MAX);
            assert!(call.is_ok());
        }
    }

    /// Submits a task that runs until its gate is opened.
    pub fn serve_gated(pool: &Pool) -> Gate {
        let (gate, task) = Gate::new();
        assert!(pool.serve(task).is_ok());
        gate
    }

    /// Submits a task that runs until its gate is opened. Returns once no task is queued.
    pub fn hold(pool: &Pool) -> Gate {
        quietly(|| {
            let gate = serve_gated(pool);
            while pool.stats().queued > 0 {
                thread::yield_now();
            }
            gate
        })
    }

    /// Submits two tasks. The first ends only after the second.
    pub fn one_waits_for_the_next(pool: &Pool) {
        serve_gated(pool).open_by_call(pool);
    }

    /// Submits a task within a scope. Asserts that the task has run once the scope has ended,
    /// unless it was refused.
    pub fn scope_of_one(pool: &Pool) {
        let ran = Ran::new();
        let accepted = pool.scope(|s| usize::from(s.serve(ran.task()).is_ok()));
        assert_eq!((ran.times(), ran.alive()), (accepted, 0));
    }

    /// Calls `f` with a deadline that passes at any moment.
    pub fn at_any_moment<R>(f: impl FnOnce(&Deadline) -> R) -> R {
        let (deadline, alarm) = deadline();
        let clock = thread::spawn(move || alarm.go_off());
        let result = f(&deadline);
        clock.join().unwrap();
        result
    }

    /// Returns a hook in which other threads may run. It does not yield: in loom, a thread that has
    /// yielded goes on only once all others wait.
    pub fn hook() -> impl Fn(usize) + Send + Sync + 'static {
        let step = AtomicUsize::new(0);
        move |_| {
            step.fetch_add(1, Ordering::Relaxed);
        }
    }

    // ---- other threads -------------------------------------------------------------------------

    /// Spawns a thread that runs a closure with its own handle on the shared value.
    pub fn beside<T: Clone + 'static, R: 'static>(
        shared: &T,
        act: impl FnOnce(&T) -> R + 'static,
    ) -> JoinHandle<R> {
        let shared = shared.clone();
        thread::spawn(move || act(&shared))
    }

    /// Spawns a thread that submits a task, which is accepted.
    pub fn serve_beside(pool: &Arc<Pool>, task: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        beside(pool, |pool| assert!(pool.serve(task).is_ok()))
    }

    /// Spawns a thread that submits a task. Returns how many were accepted: one or none.
    pub fn try_serve_beside(
        pool: &Arc<Pool>,
        task: impl FnOnce() + Send + 'static,
    ) -> JoinHandle<usize> {
        beside(pool, |pool| try_serve(pool, task))
    }

    /// Spawns a thread that shuts the pool down. Returns `true` if its report is clean.
    pub fn shut_down_beside(
        pool: &Arc<Pool>,
        mode: Shutdown,
        timeout: Duration,
    ) -> JoinHandle<bool> {
        beside(pool, move |pool| pool.shutdown(mode, timeout).is_clean())
    }

    /// Spawns a thread that sweeps twice, as the cleaner does: it benches idle workers, then
    /// retires those that are still on the bench.
    pub fn cleaner(pool: &Arc<Pool>) -> JoinHandle<()> {
        beside(pool, |pool| {
            sweep(pool);
            sweep(pool);
        })
    }

    /// Makes a call from each of two threads, while there is space for one. Asserts that not both
    /// are refused.
    pub fn two_call(pool: &Arc<Pool>) {
        let other = beside(pool, |pool| call(pool));
        let mine = call(pool);
        assert!(other.join().unwrap() || mine, "refused for the other");
    }

    /// Submits a task from each of two threads. Both are accepted, and both run.
    pub fn two_serve(preemptions: usize, setup: Setup) {
        check_tasks(preemptions, setup, |pool, ran| {
            let other = serve_beside(pool, ran.task());
            assert!(pool.serve(ran.task()).is_ok());
            other.join().unwrap();
            2
        });
    }

    /// Runs an `event` while another thread first announces itself and then looks for the event.
    /// After the event this thread reads whether the other has announced itself; then it does
    /// `next`. Returns `true` if one of the two has seen the other.
    pub fn one_sees_the_other<T: 'static>(
        shared: &Arc<T>,
        event: impl FnOnce(&T),
        next: impl FnOnce(&T),
        looks_in_vain: impl FnOnce(&T) -> bool + 'static,
    ) -> bool {
        let asked = Arc::new(AtomicUsize::new(0));
        // Every write must be `SeqCst`, the first one included: see the README.
        asked.store(0, Ordering::SeqCst);
        let its = Arc::clone(&asked);
        let other = beside(shared, move |shared| {
            its.swap(1, Ordering::SeqCst);
            looks_in_vain(shared)
        });
        event(shared);
        let before = asked.load(Ordering::SeqCst) == 0;
        next(shared);
        let in_vain = other.join().unwrap();
        !(before && in_vain)
    }

    // ---- tasks that are counted ----------------------------------------------------------------

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
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    /// Polls a future once.
    pub fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(waker))
    }

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

    /// Two wakers, with which one answer is polled for.
    #[derive(Debug)]
    pub struct TwoWakers([(Arc<Flag>, Waker); 2]);

    impl TwoWakers {
        /// Returns two wakers that were not called yet.
        #[allow(clippy::new_without_default)]
        pub fn new() -> Self {
            Self([Flag::new(), Flag::new()])
        }

        /// Polls with the first waker, then with the second, and once more when the second is
        /// woken; then the answer must be there.
        pub fn poll<R>(&self, mut poll: impl FnMut(&Waker) -> Option<R>) -> R {
            let [(first, w1), (second, w2)] = &self.0;
            let answer = poll(w1).or_else(|| poll(w2));
            answer.unwrap_or_else(|| {
                second.wait();
                assert_eq!(first.times(), 0, "only the last is woken");
                poll(w2).expect("woken")
            })
        }

        /// Asserts that the wakers were called once at most, and that neither is kept.
        pub fn assert_end(self) {
            let [(first, w1), (second, w2)] = self.0;
            assert!(first.times() + second.times() <= 1);
            drop((w1, w2));
            let left = (Arc::strong_count(&first), Arc::strong_count(&second));
            assert_eq!(left, (1, 1), "none is kept");
        }
    }
}

#[cfg(lazypool_loom)]
pub use flag::{poll, Flag, TwoWakers};

#[cfg(lazypool_loom)]
pub use parts::*;
