//! Laws 13 and 20: no thread can be started for a task in line. That task comes back as
//! `SpawnFailed`, and the line goes on with the next one.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod common;
#[path = "common/shortage.rs"]
mod shortage;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::futures::{block_on, counted, poll};
use common::*;
use lazypool::{Pool, Refusal, Shutdown, WhenFull};
use shortage::Shortage;

const IN_LINE: usize = 20;

/// Lets threads and futures wait in line, then raises the limit by one worker while every start of
/// a thread fails except the `good`-th. Returns how many tasks of the line were accepted.
fn raise_without_threads(pool: &Arc<Pool>, good: usize) -> usize {
    let (count, waker) = counted();
    let (mut threads, mut futures) = (Vec::new(), Vec::new());
    for id in 0..IN_LINE {
        if id % 2 == 0 {
            let its = Arc::clone(pool);
            threads.push(thread::spawn(move || {
                let served = its.when_full(WhenFull::Block).serve(|| ());
                served.map_err(|back| back.into_parts().1)
            }));
        } else {
            let mut future = pool.awaitable().serve_async(|| ());
            assert!(poll(&mut future, &waker).is_pending());
            futures.push(future);
        }
        wait_until("the submission to wait", || pool.stats().waiting == id + 1);
    }
    let mut asked = 0;
    let shortage = Shortage::when(move || {
        asked += 1;
        asked != good
    });
    pool.set_limit(2).expect("in range");
    drop(shortage);
    let mut accepted = 0;
    let mut take = |outcome: Result<(), Refusal>| match outcome {
        Ok(()) => accepted += 1,
        Err(Refusal::SpawnFailed(error)) => assert!(error.raw_os_error().is_some()),
        Err(other) => panic!("{other:?}"),
    };
    if good == 0 {
        assert_eq!((pool.stats().waiting, count.woken()), (0, IN_LINE / 2));
    }
    for thread in threads {
        take(thread.join().expect("no panic"));
    }
    for future in futures {
        let served = block_on(future).map_err(|back| back.into_parts().1);
        take(served.map(lazypool::Handle::detach));
    }
    accepted
}

/// With a queue or without, all tasks in line come back if the system has no thread. Later
/// submissions work as before.
#[test]
fn law13_a_line_without_a_thread_comes_back() {
    timed(|| {
        for queue in [0, 2] {
            let gate = Gate::new();
            let pool = Arc::new(pool(2, queue));
            pool.set_limit(1).unwrap();
            must_serve(&pool, gate.task());
            gate.wait_entered(1);
            (0..queue).for_each(|_| must_serve(&pool, || ()));
            assert_eq!(raise_without_threads(&pool, 0), 0);
            let stats = pool.stats();
            assert_eq!(stats.refusals.spawn_failed, IN_LINE as u64, "{stats:?}");
            assert!(stats.spawn_failures >= 1, "{stats:?}");
            assert_eq!((stats.workers, stats.running), (1, 1), "{stats:?}");
            // Later submissions try again to start a thread.
            must_serve(&pool, gate.task());
            gate.wait_entered(2);
            gate.open();
            settle(&pool);
            assert_cap_usable(&pool);
            check_at_rest(&pool, &settle(&pool));
        }
    });
}

/// The third start succeeds, and that worker runs the rest of the line.
#[test]
fn law20_a_line_goes_on_after_a_failed_start() {
    timed(|| {
        let gate = Gate::new();
        let pool = Arc::new(pool(2, 0));
        pool.set_limit(1).unwrap();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        assert_eq!(raise_without_threads(&pool, 3), IN_LINE - 2);
        assert_eq!(pool.stats().refusals.spawn_failed, 2);
        gate.open();
        let stats = settle(&pool);
        assert_eq!(stats.completed, 1 + IN_LINE as u64 - 2);
        check_at_rest(&pool, &stats);
    });
}

/// The only worker has just ended and the system has no thread for another: all tasks in line come
/// back, and no submission hangs.
#[test]
fn law13_a_line_beside_a_worker_that_ends_and_no_thread() {
    timed(|| {
        for _ in 0..rounds(50) {
            let pool = Pool::builder()
                .max_workers(1)
                .idle_timeout(Duration::ZERO)
                .build()
                .expect("pool");
            thread::scope(|s| {
                for _ in 0..3 {
                    s.spawn(|| {
                        let mut turn = 0;
                        let _shortage = Shortage::when(move || {
                            turn += 1;
                            turn % 2 == 0
                        });
                        for _ in 0..20 {
                            match pool.when_full(WhenFull::Block).serve(|| ()) {
                                Ok(()) => {}
                                Err(back) => match back.into_parts().1 {
                                    Refusal::SpawnFailed(_) => {}
                                    other => panic!("{other:?}"),
                                },
                            }
                        }
                    });
                }
            });
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
            check_at_rest(&pool, &pool.stats());
        }
    });
}
