//! Laws 13 and 20: no thread can be started for a task in line. That task comes back as
//! `SpawnFailed`, and the line goes on with the next one.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod common;
#[path = "common/shortage.rs"]
mod shortage;

use std::sync::Arc;
use std::thread;

use common::futures::{block_on, counted, poll};
use common::*;
use lazypool::{Handle, Pool, Refusal, Refused, WhenFull};
use shortage::Shortage;

const IN_LINE: usize = 20;

/// Returns the reason of a refusal, which must be `SpawnFailed`.
fn told<T, F>(served: Result<T, Refused<F>>) -> Result<T, ()> {
    served.map_err(|back| match back.into_parts().1 {
        Refusal::SpawnFailed(error) => assert!(error.raw_os_error().is_some()),
        other => panic!("{other:?}"),
    })
}

/// Returns a pool with a limit of one and a full queue, whose worker holds a task at the gate.
fn limited(gate: &Gate, queue: usize) -> Arc<Pool> {
    let pool = Arc::new(pool(2, queue));
    pool.set_limit(1).unwrap();
    occupy(&pool, gate, 1);
    (0..queue).for_each(|_| must_serve(&pool, || ()));
    pool
}

/// Lets threads and futures wait in line, then raises the limit by one worker while every start of
/// a thread fails except the `good`-th. Returns how many tasks of the line were accepted.
fn raise_without_threads(pool: &Arc<Pool>, good: usize) -> usize {
    let (count, waker) = counted();
    let (mut threads, mut futures) = (Vec::new(), Vec::new());
    for id in 0..IN_LINE {
        if id % 2 == 0 {
            let its = Arc::clone(pool);
            threads.push(thread::spawn(move || {
                told(its.when_full(WhenFull::Block).serve(|| ()))
            }));
        } else {
            let mut future = pool.awaitable().serve_async(|| ());
            assert!(poll(&mut future, &waker).is_pending());
            futures.push(future);
        }
        wait_in_line(pool, id + 1);
    }
    let mut asked = 0;
    let shortage = Shortage::when(move || {
        asked += 1;
        asked != good
    });
    pool.set_limit(2).expect("in range");
    drop(shortage);
    if good == 0 {
        assert_eq!((pool.stats().waiting, count.woken()), (0, IN_LINE / 2));
    }
    let threads = threads.into_iter().map(|thread| thread.join().unwrap());
    let futures = futures.into_iter().map(|future| told(block_on(future)));
    (threads.chain(futures.map(|told| told.map(Handle::detach))))
        .filter(Result::is_ok)
        .count()
}

/// With a queue or without, all tasks in line come back if the system has no thread. Later
/// submissions try again to start one.
#[test]
fn law13_a_line_without_a_thread_comes_back() {
    timed(|| {
        for queue in [0, 2] {
            let gate = Gate::new();
            let pool = limited(&gate, queue);
            assert_eq!(raise_without_threads(&pool, 0), 0);
            let stats = pool.stats();
            assert_eq!(stats.refusals.spawn_failed, IN_LINE as u64, "{stats:?}");
            assert!(stats.spawn_failures >= 1, "{stats:?}");
            assert_eq!((stats.workers, stats.running), (1, 1), "{stats:?}");
            occupy(&pool, &gate, 1);
            gate.open();
            settle(&pool);
            assert_cap_usable(&pool);
            at_rest(&pool);
        }
    });
}

/// The third start succeeds, and that worker runs the rest of the line.
#[test]
fn law20_a_line_goes_on_after_a_failed_start() {
    timed(|| {
        let gate = Gate::new();
        let pool = limited(&gate, 0);
        assert_eq!(raise_without_threads(&pool, 3), IN_LINE - 2);
        assert_eq!(pool.stats().refusals.spawn_failed, 2);
        gate.open();
        assert_eq!(at_rest(&pool).completed, 1 + IN_LINE as u64 - 2);
    });
}
