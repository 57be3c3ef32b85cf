//! Tests what the recipe about cancellation tokens says of tokio-util's: the token ends a task, or
//! all tasks of a group.

use lazypool::{task, Pool};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const LIMIT: Duration = Duration::from_secs(30);

const RECIPES: &str = include_str!("../../../src/docs/recipes.md");

/// Asserts that the recipe has this line of code.
#[track_caller]
fn shown(code: &str) {
    assert!(RECIPES.contains(code), "not in the recipe: {code}");
}

/// Runs until the task is cancelled.
fn patient() {
    let start = Instant::now();
    while !task::is_cancelled() {
        assert!(start.elapsed() < LIMIT, "no cancel");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test]
async fn a_token_cancels_a_task() {
    let pool = Pool::builder().max_workers(1).build().expect("pool");
    let token = CancellationToken::new();
    shown("token.run_until_cancelled(handle).await");
    let handle = pool.awaitable().serve(|| 42).expect("it is idle");
    let value = token.run_until_cancelled(handle).await;
    assert_eq!(value.expect("not cancelled").expect("a value"), 42);

    let (tell, started) = mpsc::channel();
    let work = move || {
        tell.send(()).expect("the test waits for this");
        patient();
    };
    let handle = pool.awaitable().serve(work).expect("it is idle");
    started.recv_timeout(LIMIT).expect("it starts");
    let cancels = token.clone();
    tokio::spawn(async move { cancels.cancel() });
    assert!(token.run_until_cancelled(handle).await.is_none());
    // The task has seen that its handle is gone, and ends.
    assert!(pool.shutdown(lazypool::Shutdown::Drain, LIMIT).is_clean());
    assert_eq!(pool.stats().completed, 2);
}

#[tokio::test]
async fn a_token_cancels_a_group() {
    let pool = Pool::builder().max_workers(1).queue_capacity(2).build();
    let pool = pool.expect("pool");
    let (token, group) = (CancellationToken::new(), pool.group());
    shown("`token.cancelled().await; group.cancel();`");
    let (cancelled, cancels) = (token.clone(), group.clone());
    let bridge = tokio::spawn(async move {
        cancelled.cancelled().await;
        cancels.cancel();
    });
    for _ in 0..3 {
        group.serve(patient).expect("space");
    }
    assert!(!group.is_cancelled());
    token.cancel();
    bridge.await.expect("no panic");
    group.wait_timeout(LIMIT).expect("all have ended");
    assert_eq!(group.completed() + group.discarded(), 3);
}
