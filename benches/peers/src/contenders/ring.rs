//! A pool on crossbeam-queue's bounded ring, which has no way to wait: its users add one.
//!
//! A thread that finds nothing to do counts itself, looks again, and sleeps. A thread that pushes or
//! pops looks at the count afterwards. `push` and `pop` move the ring's positions, and `is_empty` and
//! `is_full` read them, all in `SeqCst`, as the counts are. So one of the two sees the other.

use super::{Boxed, Contender};
use crossbeam_queue::ArrayQueue;
use crossbeam_utils::{Backoff, CachePadded};
use lazypool::WhenFull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// The threads that wait for one thing.
#[derive(Default)]
struct Sleepers {
    count: CachePadded<AtomicUsize>,
    lock: Mutex<()>,
    wake_up: Condvar,
}

impl Sleepers {
    /// Returns the first value that `get` returns. Spins for a short time, and then sleeps while
    /// `idle` returns `true`.
    fn until<T>(&self, mut get: impl FnMut() -> Option<T>, idle: impl Fn() -> bool) -> T {
        loop {
            let backoff = Backoff::new();
            while !backoff.is_completed() {
                if let Some(got) = get() {
                    return got;
                }
                backoff.snooze();
            }
            let mut guard = self.lock.lock().expect("no thread panics");
            self.count.fetch_add(1, SeqCst);
            while idle() {
                guard = self.wake_up.wait(guard).expect("no thread panics");
            }
            self.count.fetch_sub(1, SeqCst);
        }
    }

    /// Wakes a thread, if one sleeps or is about to.
    fn wake_one(&self) {
        if self.count.load(SeqCst) > 0 {
            drop(self.lock.lock());
            self.wake_up.notify_one();
        }
    }
}

struct Shared {
    jobs: ArrayQueue<Boxed>,
    /// The workers that wait for a job.
    workers: Sleepers,
    /// The submitters that wait for space.
    submitters: Sleepers,
    ended: AtomicBool,
}

impl Shared {
    fn work(&self) {
        let next = || match self.jobs.pop() {
            None if self.ended.load(SeqCst) => Some(None),
            job => job.map(Some),
        };
        let idle = || self.jobs.is_empty() && !self.ended.load(SeqCst);
        while let Some(job) = self.workers.until(next, idle) {
            self.submitters.wake_one();
            job();
        }
    }

    /// Returns the job if there is no space.
    fn push(&self, job: Boxed) -> Result<(), Boxed> {
        self.jobs.push(job).map(|()| self.workers.wake_one())
    }
}

pub(crate) struct RingPool(Arc<Shared>);

impl Contender for RingPool {
    const NAME: &'static str = "crossbeam-queue";
    const BOUNDED: bool = true;

    fn build(workers: usize, queue: usize, _: WhenFull) -> Self {
        let shared = Arc::new(Shared {
            // The shortest ring has one place.
            jobs: ArrayQueue::new(queue.max(1)),
            workers: Sleepers::default(),
            submitters: Sleepers::default(),
            ended: AtomicBool::new(false),
        });
        for _ in 0..workers {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.work());
        }
        Self(shared)
    }

    #[inline(always)]
    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        let Err(job) = self.0.push(Box::new(f)) else {
            return;
        };
        let mut left = Some(job);
        let push = || match self.0.push(left.take()?) {
            Ok(()) => Some(()),
            Err(job) => {
                left = Some(job);
                None
            }
        };
        self.0.submitters.until(push, || self.0.jobs.is_full());
    }

    fn try_execute(&self, f: impl FnOnce() + Send + 'static) -> bool {
        self.0.push(Box::new(f)).is_ok()
    }
}

impl Drop for RingPool {
    fn drop(&mut self) {
        self.0.ended.store(true, SeqCst);
        drop(self.0.workers.lock.lock());
        self.0.workers.wake_up.notify_all();
    }
}
