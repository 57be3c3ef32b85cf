//! Ourselves.

use super::{Called, Contender, Shape, Variant};
use lazypool::{DeadlineError, Pool, WhenFull};
use std::thread;
use std::time::Duration;

/// What our rows are called: with a queue, and without.
pub(crate) const OURS: &str = "lazypool";
pub(crate) const UNQUEUED: &str = "lazypool, no queue";
/// Where a task is not started with less of its deadline left than it takes.
pub(crate) const GUARDED: &str = "lazypool, min_remaining";

/// `QUEUED`: with the queue that the workload asks for; otherwise without any,
/// for workloads that a pool without a queue can do, too.
#[derive(Debug)]
pub(crate) struct Lazypool<const QUEUED: bool>(Pool);

impl<const QUEUED: bool> Contender for Lazypool<QUEUED> {
    const NAME: &'static str = if QUEUED { OURS } else { UNQUEUED };
    const OURS: bool = true;
    const VARIANT: Option<Variant> = if QUEUED {
        None
    } else {
        Some(Variant::Unqueued)
    };
    const BOUNDED: bool = true;
    const UNQUEUED: bool = true;
    const DEADLINE: bool = true;
    const AWAITABLE: bool = true;

    fn build(shape: Shape) -> Self {
        let policy = if shape.refuse {
            WhenFull::Refuse
        } else {
            WhenFull::Block
        };
        let pool = Pool::builder()
            .max_workers(shape.workers)
            .queue_capacity(if QUEUED { shape.queue } else { 0 })
            .when_full(policy)
            .build();
        Self(pool.expect("settings are in bounds"))
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        if let Err(refused) = self.0.serve(f) {
            panic!("refused: {:?}", refused.reason());
        }
    }

    fn try_execute(&self, f: impl FnOnce() + Send + 'static) -> bool {
        self.0.serve(f).is_ok()
    }

    fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
        limit: Duration,
    ) -> Option<R> {
        self.0.do_with_deadline(f, limit).ok()
    }

    fn try_call<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
        limit: Duration,
    ) -> Called<R> {
        called(self.0.do_with_deadline(f, limit))
    }

    async fn value<R: Send + 'static>(&self, f: impl FnOnce() -> R + Send + 'static) -> R {
        match self.0.awaitable().serve(f) {
            Ok(task) => task.await.expect("no panic"),
            Err(refused) => panic!("refused: {:?}", refused.reason()),
        }
    }

    fn batch(&self, n: usize, f: fn(usize)) {
        let group = self.0.group();
        for i in 0..n {
            if let Err(refused) = group.serve(move || f(i)) {
                panic!("refused: {:?}", refused.reason());
            }
        }
        group.wait();
    }
}

/// Ourselves, refusing when full; the producer yields and tries again.
#[derive(Debug)]
pub(crate) struct Retrying(Lazypool<true>);

impl Contender for Retrying {
    const NAME: &'static str = "lazypool, retrying";
    const OURS: bool = true;
    const VARIANT: Option<Variant> = Some(Variant::Retrying);

    fn build(shape: Shape) -> Self {
        Self(Lazypool::build(shape.refusing()))
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        let mut task = f;
        while let Err(refused) = self.0 .0.serve(task) {
            assert!(refused.is_saturated(), "{:?}", refused.reason());
            task = refused.into_inner();
            thread::yield_now();
        }
    }
}

fn called<R, F>(outcome: Result<R, DeadlineError<F>>) -> Called<R> {
    match outcome {
        Ok(value) => Called::Value(value),
        Err(DeadlineError::Refused(_)) => Called::Refused,
        Err(_) => Called::Late,
    }
}

/// Ourselves, starting no task in vain: `min_remaining` is what a task takes.
#[derive(Debug)]
pub(crate) struct Guarded {
    pool: Lazypool<true>,
    takes: Duration,
}

impl Contender for Guarded {
    const NAME: &'static str = GUARDED;
    const OURS: bool = true;
    const BOUNDED: bool = true;
    const DEADLINE: bool = true;

    fn build(shape: Shape) -> Self {
        Self {
            pool: Lazypool::build(shape),
            takes: shape.takes,
        }
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        self.pool.execute(f);
    }

    fn try_call<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
        limit: Duration,
    ) -> Called<R> {
        let submitter = self.pool.0.min_remaining(self.takes);
        called(submitter.do_with_deadline(f, limit))
    }
}
