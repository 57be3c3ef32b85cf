//! The public helper for tests: `testing::hold`.

mod common;

use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc;
use std::time::Duration;

use common::*;
use lazypool::{testing, TaskError, WhenFull};

/// Every worker is held, up to the pool's limit, and the queue is empty, whatever the policy. After
/// the release all work goes on.
#[test]
fn every_worker_is_held() {
    timed_each([(1, 0), (1, 8), (3, 2), (40, 1)], |(max, queue)| {
        let pool = pool_with(max, queue, |b| b.when_full(WhenFull::Block));
        for limit in [max, 1, max] {
            pool.set_limit(limit).unwrap();
            settle(&pool);
            let held = testing::hold(&pool);
            assert_stats!(pool.stats(), running: limit, queued: 0);
            let labels = pool.workers().into_iter().filter(|w| w.busy);
            assert!(labels.map(|w| w.label).all(|label| label == Some("held")));
            let on = pool.when_full(WhenFull::Refuse);
            let (tell, told) = mpsc::channel();
            for n in 0..queue {
                let tell = tell.clone();
                on.serve(move || tell.send(n).unwrap()).expect("space");
            }
            saturated(on.serve(|| ()));
            drop((held, tell));
            let mut told: Vec<_> = told.iter().collect();
            if limit > 1 {
                told.sort_unstable();
            }
            assert!(
                told.into_iter().eq(0..queue),
                "a single worker keeps the order"
            );
            settle(&pool);
        }
    });
}

/// A queued task cannot start before its deadline, and is taken out by its handle.
#[test]
fn a_held_pool_starts_nothing() {
    timed(|| {
        let pool = pool(2, 2);
        let held = testing::hold(&pool);
        is_expired(pool.do_with_deadline(|| (), ms(1)));
        let queued = must_await(pool.awaitable(), || ());
        queued.cancel();
        assert!(matches!(queued.join(), Err(TaskError::Cancelled)));
        held.release();
        at_rest(&pool);
    });
}

/// A pool that is not idle is a mistake of the test, and `hold` says so. It holds nothing then.
#[test]
fn a_busy_pool_is_not_held() {
    timed(|| {
        let (pool, gate) = held(0);
        let panic = panic::catch_unwind(AssertUnwindSafe(|| testing::hold(&pool).release()));
        let message = *panic.unwrap_err().downcast::<String>().unwrap();
        assert!(
            message.contains("not idle") && message.contains("saturated"),
            "{message}"
        );
        gate.open();
        settle(&pool);
        testing::hold(&pool).release();
        pool.shutdown(lazypool::Shutdown::Drain, Duration::MAX);
        assert!(panic::catch_unwind(AssertUnwindSafe(|| testing::hold(&pool).release())).is_err());
    });
}
