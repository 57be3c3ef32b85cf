//! Pools for the blocking work of async programs.

use super::{replying, Contender, Shape};
use futures_lite::future::block_on;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

/// What its row is called.
pub(crate) const TOKIO: &str = "tokio spawn_blocking";

/// `tokio::task::spawn_blocking`.
#[derive(Debug)]
pub(crate) struct Tokio(tokio::runtime::Runtime);

/// The crate `blocking`, whose pool is one per process.
#[derive(Debug)]
pub(crate) struct Blocking;

/// The crate `affinitypool`. A future of its that is dropped cancels its task,
/// so those of fire-and-forget tasks are kept.
pub(crate) struct Affinitypool {
    pool: affinitypool::Threadpool,
    kept: Mutex<Vec<Kept>>,
}

type Kept = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Futures that one producer keeps before it awaits the oldest.
const WINDOW: usize = 1024;

impl fmt::Debug for Affinitypool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Affinitypool").finish_non_exhaustive()
    }
}

impl Contender for Tokio {
    const NAME: &'static str = TOKIO;
    const DEADLINE: bool = true;
    const AWAITABLE: bool = true;

    fn build(shape: Shape) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(shape.workers)
            .enable_time()
            .build();
        Self(runtime.expect("the system gives threads"))
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        drop(self.0.spawn_blocking(f));
    }

    /// Nobody waits for it after the limit: a task that has not started then never does.
    fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
        limit: Duration,
    ) -> Option<R> {
        let waited = self.0.block_on(async {
            let mut task = tokio::task::spawn_blocking(f);
            let waited = tokio::time::timeout(limit, &mut task).await;
            if waited.is_err() {
                task.abort();
            }
            waited
        });
        waited.ok().map(|joined| joined.expect("no panic"))
    }

    /// On the blocking threads of the runtime that awaits it, as a program has one.
    async fn value<R: Send + 'static>(&self, f: impl FnOnce() -> R + Send + 'static) -> R {
        tokio::task::spawn_blocking(f).await.expect("no panic")
    }

    fn batch(&self, n: usize, f: fn(usize)) {
        let tasks: Vec<_> = (0..n)
            .map(|i| self.0.spawn_blocking(move || f(i)))
            .collect();
        self.0.block_on(async {
            for task in tasks {
                task.await.expect("no panic");
            }
        });
    }
}

impl Contender for Blocking {
    const NAME: &'static str = "blocking";
    const AWAITABLE: bool = true;

    fn build(shape: Shape) -> Self {
        let workers = NonZeroUsize::new(shape.workers).expect("at least one");
        blocking::set_max_blocking_threads(workers);
        Self
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        blocking::unblock(f).detach();
    }

    async fn value<R: Send + 'static>(&self, f: impl FnOnce() -> R + Send + 'static) -> R {
        blocking::unblock(f).await
    }

    fn batch(&self, n: usize, f: fn(usize)) {
        let tasks: Vec<_> = (0..n).map(|i| blocking::unblock(move || f(i))).collect();
        block_on(async {
            for task in tasks {
                task.await;
            }
        });
    }
}

impl Contender for Affinitypool {
    const NAME: &'static str = "affinitypool";
    const DEADLINE: bool = true;
    const AWAITABLE: bool = true;

    fn build(shape: Shape) -> Self {
        Self {
            pool: affinitypool::Builder::new()
                .worker_threads(shape.workers)
                .build(),
            kept: Mutex::new(Vec::new()),
        }
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        let task = Box::pin(self.pool.spawn(f));
        self.kept.lock().expect("no panic while held").push(task);
    }

    fn feed(&self, n: u64, f: impl FnOnce() + Clone + Send + 'static) {
        let mut tasks = VecDeque::with_capacity(WINDOW);
        for _ in 0..n {
            if tasks.len() == WINDOW {
                block_on(tasks.pop_front().expect("full"));
            }
            tasks.push_back(self.pool.spawn(f.clone()));
        }
        for task in tasks {
            block_on(task);
        }
    }

    /// Its future, dropped after the limit, cancels a task that has not started.
    fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
        limit: Duration,
    ) -> Option<R> {
        let (task, reply) = replying(f);
        let task = self.pool.spawn(task);
        let value = reply.recv_timeout(limit).ok();
        drop(task);
        value
    }

    async fn value<R: Send + 'static>(&self, f: impl FnOnce() -> R + Send + 'static) -> R {
        self.pool.spawn(f).await
    }

    fn batch(&self, n: usize, f: fn(usize)) {
        let tasks: Vec<_> = (0..n).map(|i| self.pool.spawn(move || f(i))).collect();
        block_on(async {
            for task in tasks {
                task.await;
            }
        });
    }
}

impl Drop for Affinitypool {
    fn drop(&mut self) {
        let kept = std::mem::take(self.kept.get_mut().expect("no panic while held"));
        block_on(async {
            for task in kept {
                task.await;
            }
        });
    }
}
