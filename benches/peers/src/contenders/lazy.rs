//! Ourselves.

use super::{Contender, Shape};
use lazypool::{Pool, WhenFull};
use std::time::Duration;

/// `QUEUED`: with the queue that the workload asks for; otherwise without any,
/// for workloads that a pool without a queue can do, too.
#[derive(Debug)]
pub(crate) struct Lazypool<const QUEUED: bool>(Pool);

impl<const QUEUED: bool> Contender for Lazypool<QUEUED> {
    const NAME: &'static str = if QUEUED {
        "lazypool"
    } else {
        "lazypool, no queue"
    };
    const OURS: bool = true;
    const BOUNDED: bool = true;
    const UNQUEUED: bool = true;

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
