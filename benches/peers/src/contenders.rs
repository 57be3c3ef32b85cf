//! The pools under test.

mod ring;

use crate::instructions;
use crate::workloads::{self, Workload};
use crossbeam_channel::bounded;
use lazypool::{Pool, WhenFull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A pool under test.
pub(crate) trait Contender: Send + Sync + Sized + 'static {
    const NAME: &'static str;
    const PEER: bool = true;
    /// `true` if the pool can bound its queue and refuse.
    const BOUNDED: bool = false;

    /// Builds a pool of `workers` workers. `queue` and `full` are for a pool that can bound its
    /// queue. Other pools ignore them.
    fn build(workers: usize, queue: usize, full: WhenFull) -> Self;

    /// Submits a task without waiting for its end. Waits for room if the queue is bounded.
    fn execute(&self, f: impl FnOnce() + Send + 'static);

    /// Submits a task if there is room at once. Returns `false` if it is refused.
    fn try_execute(&self, _: impl FnOnce() + Send + 'static) -> bool {
        unreachable!("only asked of a BOUNDED contender")
    }

    /// Submits a task if there is room at once, to a pool whose submissions wait. Returns `false`
    /// if it is refused.
    fn at_once(&self, f: impl FnOnce() + Send + 'static) -> bool {
        self.try_execute(f)
    }

    /// Submits `n` tasks and cancels them. In a pool that cannot cancel tasks, each of them looks
    /// at a flag first.
    fn cancel_queued(&self, n: usize) {
        let cancelled = Arc::new(AtomicBool::new(false));
        for _ in 0..n {
            let cancelled = Arc::clone(&cancelled);
            self.execute(move || assert!(cancelled.load(Ordering::Relaxed), "it runs"));
        }
        cancelled.store(true, Ordering::Relaxed);
    }

    /// Looks at the pool's workers. Does nothing in a pool that does not show them.
    fn look(&self) {
        std::hint::spin_loop();
    }

    /// Makes a call with a label, in a pool that has labels.
    fn labeled_call(
        &self,
        f: impl FnOnce() -> u64 + Send + 'static,
        limit: Duration,
    ) -> Option<u64> {
        self.call(f, limit)
    }

    /// Runs `f` on a worker and waits for its value, at most for `limit`. A pool without such a
    /// wait uses a reply channel, as its users do. Returns `None` early if the task is refused.
    fn call(&self, f: impl FnOnce() -> u64 + Send + 'static, limit: Duration) -> Option<u64> {
        let (tx, rx) = bounded(1);
        let task = move || {
            // This fails if the caller has stopped waiting.
            let _ = tx.send(f());
        };
        if !Self::BOUNDED {
            self.execute(task);
        } else if !self.try_execute(task) {
            return None;
        }
        rx.recv_timeout(limit).ok()
    }

    /// Runs `f(0)` to `f(n - 1)` as `n` tasks and waits for all, with a latch.
    fn batch(&self, n: usize, f: fn(usize)) {
        let latch = Arc::new((AtomicUsize::new(n), thread::current()));
        for i in 0..n {
            let latch = Arc::clone(&latch);
            self.execute(move || {
                f(i);
                if latch.0.fetch_sub(1, Ordering::AcqRel) == 1 {
                    latch.1.unpark();
                }
            });
        }
        while latch.0.load(Ordering::Acquire) > 0 {
            thread::park();
        }
    }
}

/// A contender without its type, for a list.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// The kind in the table: `ours` or `peer`.
    pub(crate) kind: &'static str,
    pub(crate) workloads: fn() -> Vec<Workload>,
    pub(crate) perform: fn(&str, u64),
}

fn entry<C: Contender>() -> Entry {
    Entry {
        name: C::NAME,
        kind: ["ours", "peer"][usize::from(C::PEER)],
        workloads: workloads::all::<C>,
        perform: instructions::perform::<C>,
    }
}

/// Returns all contenders, in the order of the table.
pub(crate) fn all() -> [Entry; 16] {
    [
        entry::<Ours>(),
        entry::<Lazypool<1>>(),
        entry::<Lazypool<2>>(),
        entry::<Lazypool<3>>(),
        entry::<Lazypool<4>>(),
        entry::<Lazypool<5>>(),
        entry::<Lazypool<6>>(),
        entry::<Lazypool<7>>(),
        entry::<crossbeam_channel::Sender<Boxed>>(),
        entry::<parkring::channel::Sender<Boxed>>(),
        entry::<ring::RingPool>(),
        entry::<parkring::ThreadPool>(),
        entry::<threadpool::ThreadPool>(),
        entry::<rusty_pool::ThreadPool>(),
        entry::<rayon::ThreadPool>(),
        entry::<tokio::runtime::Runtime>(),
    ]
}

pub(crate) const OURS: &str = "lazypool";
/// A second copy of the code of [`OURS`]. The distance between the two shows the noise.
pub(crate) const AGAIN: &str = "lazypool, again";
pub(crate) const UNQUEUED: &str = "lazypool, no queue";
/// Waits by `Handle::join` in place of `do_with_deadline`.
const JOINED: &str = "lazypool, join";
const UNQUEUED_JOINED: &str = "lazypool, no queue, join";
/// Starts no task in vain, by `min_remaining`.
pub(crate) const GUARDED: &str = "lazypool, min_remaining";
/// With `track_ages`.
pub(crate) const AGES: &str = "lazypool, ages";
/// With a limited group that is never full.
pub(crate) const LIMITED: &str = "lazypool, limited group";
const WAYS: [&str; 8] = [
    OURS,
    AGAIN,
    UNQUEUED,
    JOINED,
    UNQUEUED_JOINED,
    GUARDED,
    AGES,
    LIMITED,
];

/// The time for `min_remaining`: a fifth more than the tasks of the workload `overload` sleep.
const TAKES: Duration = Duration::from_millis(12);

/// This crate's pool, in one of the ways of [`WAYS`].
pub(crate) struct Lazypool<const WAY: usize>(Pool);

pub(crate) type Ours = Lazypool<0>;

impl<const WAY: usize> Contender for Lazypool<WAY> {
    const NAME: &'static str = WAYS[WAY];
    const PEER: bool = false;
    const BOUNDED: bool = true;

    fn build(workers: usize, queue: usize, full: WhenFull) -> Self {
        let queued = !Self::NAME.contains("no queue");
        let pool = Pool::builder()
            .max_workers(workers)
            .queue_capacity(if queued { queue } else { 0 })
            .when_full(full)
            .track_ages(Self::NAME == AGES)
            .build();
        Self(pool.expect("settings are in bounds"))
    }

    // Inlined, as if the program called the pool directly.
    #[inline(always)]
    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        assert!(self.0.serve(f).is_ok(), "the pool waits for room");
    }

    fn try_execute(&self, f: impl FnOnce() + Send + 'static) -> bool {
        self.0.serve(f).is_ok()
    }

    fn call(&self, f: impl FnOnce() -> u64 + Send + 'static, limit: Duration) -> Option<u64> {
        // The numbers are places in `WAYS`. A comparison of names would cost time.
        match WAY {
            3 | 4 => self.0.awaitable().serve(f).ok()?.join().ok(),
            5 => self.0.min_remaining(TAKES).do_with_deadline(f, limit).ok(),
            _ => self.0.do_with_deadline(f, limit).ok(),
        }
    }

    fn at_once(&self, f: impl FnOnce() + Send + 'static) -> bool {
        self.0.when_full(WhenFull::Refuse).serve(f).is_ok()
    }

    fn cancel_queued(&self, n: usize) {
        let group = self.0.group();
        for _ in 0..n {
            assert!(group.serve(|| panic!("it runs")).is_ok(), "there is room");
        }
        group.cancel();
    }

    fn look(&self) {
        drop(std::hint::black_box(self.0.workers()));
    }

    fn labeled_call(
        &self,
        f: impl FnOnce() -> u64 + Send + 'static,
        limit: Duration,
    ) -> Option<u64> {
        let on = self.0.labeled("late");
        on.do_with_deadline(f, limit).ok()
    }

    fn batch(&self, n: usize, f: fn(usize)) {
        let group = match WAY {
            7 => self.0.limited_group(n),
            _ => self.0.group(),
        };
        for i in 0..n {
            assert!(group.serve(move || f(i)).is_ok(), "the pool waits for room");
        }
        group.wait();
    }
}

pub(crate) type Boxed = Box<dyn FnOnce() + Send + 'static>;

/// Implements a pool as programs without one do: a channel of boxed closures, and some threads.
macro_rules! channel {
    ($name:literal, $sender:ty, $bounded:expr) => {
        impl Contender for $sender {
            const NAME: &'static str = $name;
            const BOUNDED: bool = true;

            fn build(workers: usize, queue: usize, _: WhenFull) -> Self {
                let (jobs, work) = $bounded(queue);
                for _ in 0..workers {
                    let work = work.clone();
                    // The thread ends when the sender is dropped.
                    thread::spawn(move || {
                        work.into_iter().for_each(|job: Boxed| job());
                    });
                }
                jobs
            }

            #[inline(always)]
            fn execute(&self, f: impl FnOnce() + Send + 'static) {
                assert!(self.send(Box::new(f)).is_ok(), "threads live");
            }

            fn try_execute(&self, f: impl FnOnce() + Send + 'static) -> bool {
                self.try_send(Box::new(f)).is_ok()
            }
        }
    };
}

channel! { "crossbeam-channel", crossbeam_channel::Sender<Boxed>, bounded }
// The shortest queue of this channel has one place.
channel! { "parkring channel", parkring::channel::Sender<Boxed>, |n: usize| {
    parkring::channel::bounded(n.max(1))
} }

/// Implements a pool without a bounded queue, with the default `call` and `batch`.
macro_rules! pool {
    ($name:literal, $pool:ty, $execute:ident, $build:expr) => {
        impl Contender for $pool {
            const NAME: &'static str = $name;

            fn build(workers: usize, _: usize, _: WhenFull) -> Self {
                let build: fn(usize) -> Self = $build;
                build(workers)
            }

            #[inline(always)]
            fn execute(&self, f: impl FnOnce() + Send + 'static) {
                self.$execute(f);
            }
        }
    };
}

pool!("parkring pool", parkring::ThreadPool, spawn, Self::new);
pool!("threadpool", threadpool::ThreadPool, execute, Self::new);
pool!("rusty_pool", rusty_pool::ThreadPool, execute, |n| {
    Self::new(n, n, Duration::from_secs(60))
});
pool!("rayon", rayon::ThreadPool, spawn, |n| {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build();
    pool.expect("the system gives threads")
});

impl Contender for tokio::runtime::Runtime {
    const NAME: &'static str = "tokio spawn_blocking";

    fn build(workers: usize, _: usize, _: WhenFull) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(workers)
            .enable_time()
            .build();
        runtime.expect("the system gives threads")
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        drop(self.spawn_blocking(f));
    }

    /// Aborts the task after the limit. If it has not started by then, it never does.
    fn call(&self, f: impl FnOnce() -> u64 + Send + 'static, limit: Duration) -> Option<u64> {
        self.block_on(async {
            let mut task = tokio::task::spawn_blocking(f);
            let waited = tokio::time::timeout(limit, &mut task).await;
            task.abort();
            waited.ok()?.ok()
        })
    }
}
