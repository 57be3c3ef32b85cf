//! Pools of threads.

use super::{Called, Contender, Shape};
use std::fmt;
use std::time::Duration;

/// parkring's work-stealing pool.
pub(crate) struct ParkringPool(parkring::ThreadPool);

/// The crate `threadpool`.
#[derive(Debug)]
pub(crate) struct Threadpool(threadpool::ThreadPool);

/// The crate `rusty_pool`.
pub(crate) struct RustyPool(rusty_pool::ThreadPool);

/// The crate `rayon`.
#[derive(Debug)]
pub(crate) struct Rayon(rayon::ThreadPool);

/// The crate `threadfin`.
#[derive(Debug)]
pub(crate) struct Threadfin(threadfin::ThreadPool);

impl fmt::Debug for ParkringPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParkringPool").finish_non_exhaustive()
    }
}

impl fmt::Debug for RustyPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RustyPool").finish_non_exhaustive()
    }
}

impl Contender for ParkringPool {
    const NAME: &'static str = "parkring pool";

    fn build(shape: Shape) -> Self {
        Self(parkring::ThreadPool::new(shape.workers))
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        self.0.spawn(f);
    }
}

impl Contender for Threadpool {
    const NAME: &'static str = "threadpool";

    fn build(shape: Shape) -> Self {
        Self(threadpool::ThreadPool::new(shape.workers))
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        self.0.execute(f);
    }

    fn batch(&self, n: usize, f: fn(usize)) {
        for i in 0..n {
            self.0.execute(move || f(i));
        }
        self.0.join();
    }
}

impl Drop for Threadpool {
    fn drop(&mut self) {
        self.0.join();
    }
}

impl Contender for RustyPool {
    const NAME: &'static str = "rusty_pool";
    const AWAITABLE: bool = true;

    fn build(shape: Shape) -> Self {
        let keep_alive = Duration::from_secs(60);
        Self(rusty_pool::ThreadPool::new(
            shape.workers,
            shape.workers,
            keep_alive,
        ))
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        self.0.execute(f);
    }

    async fn value<R: Send + 'static>(&self, f: impl FnOnce() -> R + Send + 'static) -> R {
        self.0.evaluate(f).receiver.await.expect("no panic")
    }

    // `batch` with a latch, as where a pool has nothing of its own: `join` was
    // seen to return one task too early.
}

impl Contender for Rayon {
    const NAME: &'static str = "rayon";

    fn build(shape: Shape) -> Self {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(shape.workers)
            .build();
        Self(pool.expect("the system gives threads"))
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        self.0.spawn(f);
    }

    /// `in_place_scope`: the tasks are spawned by the caller, as elsewhere.
    fn batch(&self, n: usize, f: fn(usize)) {
        self.0.in_place_scope(|s| {
            for i in 0..n {
                s.spawn(move |_| f(i));
            }
        });
    }
}

impl Contender for Threadfin {
    const NAME: &'static str = "threadfin";
    const BOUNDED: bool = true;
    const UNQUEUED: bool = true;
    const DEADLINE: bool = true;
    const AWAITABLE: bool = true;

    fn build(shape: Shape) -> Self {
        let pool = threadfin::builder()
            .size(shape.workers)
            .queue_limit(shape.queue)
            .build();
        Self(pool)
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        drop(self.0.execute(f));
    }

    fn try_execute(&self, f: impl FnOnce() + Send + 'static) -> bool {
        self.0.try_execute(f).is_ok()
    }

    fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
        limit: Duration,
    ) -> Option<R> {
        self.0.execute(f).join_timeout(limit).ok()
    }

    fn try_call<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
        limit: Duration,
    ) -> Called<R> {
        match self.0.try_execute(f) {
            Ok(task) => Called::of(task.join_timeout(limit).ok()),
            Err(_) => Called::Refused,
        }
    }

    async fn value<R: Send + 'static>(&self, f: impl FnOnce() -> R + Send + 'static) -> R {
        self.0.execute(f).await
    }

    fn batch(&self, n: usize, f: fn(usize)) {
        let tasks: Vec<_> = (0..n).map(|i| self.0.execute(move || f(i))).collect();
        for task in tasks {
            task.join();
        }
    }
}
