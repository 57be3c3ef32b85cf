//! Tests `within` of the example without tokio, for tasks that end in time and tasks that do not.
//! The guide to async code shows the example's file; `guides.rs` compares the two.

#[allow(dead_code)] // its `main`
#[path = "../examples/smol.rs"]
mod smol;

use futures_lite::future::block_on;
use lazypool::{task, Pool, TaskError};
use std::panic::resume_unwind;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(600);
const LIMIT: Duration = Duration::from_secs(30);

fn pool(queue: usize) -> Pool {
    let builder = Pool::builder().max_workers(1).queue_capacity(queue);
    builder.build().expect("pool")
}

fn until(what: &str, cond: impl Fn() -> bool) {
    let start = Instant::now();
    while !cond() {
        assert!(start.elapsed() < LIMIT, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_value_and_a_panic() {
    let pool = pool(0);
    let tasks = pool.with_deadline(LONG);
    let value = tasks.awaitable().serve(|| 6 * 7).expect("it is idle");
    assert!(matches!(block_on(smol::within(LONG, value)), Some(Ok(42))));
    let panic = || -> u32 { resume_unwind(Box::new("on purpose")) };
    let panic = tasks.awaitable().serve(panic).expect("it is idle");
    let outcome = block_on(smol::within(LONG, panic));
    assert!(
        matches!(outcome, Some(Err(TaskError::Panicked(_)))),
        "{outcome:?}"
    );
}

/// The future is dropped at the limit. A running task is then cancelled, and a queued one never
/// starts.
#[test]
fn too_late() {
    let pool = pool(1);
    let (tell, told) = mpsc::channel();
    let running = pool.awaitable().serve(move || {
        tell.send("started").expect("it is waited for");
        until("the cancel", task::is_cancelled);
        tell.send("cancelled").expect("it is waited for");
    });
    let never = || -> u32 { panic!("it never starts") };
    let queued = pool.awaitable().serve(never);
    let (running, queued) = (running.expect("an idle pool"), queued.expect("space"));
    assert_eq!(told.recv_timeout(LIMIT), Ok("started"));
    let limit = Duration::from_millis(20);
    assert!(block_on(smol::within(limit, queued)).is_none());
    let stats = pool.stats();
    assert_eq!((stats.queued, stats.discarded), (0, 1), "{stats:?}");
    assert!(block_on(smol::within(limit, running)).is_none());
    assert_eq!(told.recv_timeout(LIMIT), Ok("cancelled"));
}
