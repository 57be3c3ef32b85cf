//! Tests of `Builder::track_ages`: how old running and queued tasks are.

mod common;

use common::{wait_until, Gate};
use lazypool::{Builder, Pool, WhenFull};
use std::thread;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(20);

fn pool(workers: usize, queue: usize, set: impl FnOnce(Builder) -> Builder) -> Pool {
    let builder = Pool::builder().max_workers(workers).queue_capacity(queue);
    set(builder.track_ages(true)).build().unwrap()
}

/// Asserts that the age began between two moments.
fn assert_since(age: impl FnOnce() -> Option<Duration>, before: Instant, after: Instant) {
    let least = after.elapsed();
    let age = age().expect("an age");
    assert!((least..=before.elapsed()).contains(&age), "{age:?}");
}

#[test]
fn a_pool_that_does_not_track_ages_has_none() {
    let pool = Pool::builder()
        .max_workers(1)
        .queue_capacity(1)
        .build()
        .unwrap();
    let gate = Gate::new();
    pool.serve(gate.task()).unwrap();
    gate.wait_entered(1);
    pool.serve(|| ()).unwrap();
    let stats = pool.stats();
    assert_eq!((stats.longest_running, stats.oldest_queued), (None, None));
    assert_eq!(pool.workers()[0].running_for, None);
    gate.open();
}

#[test]
fn a_tasks_age_counts_from_its_start() {
    for queue in [0, 4] {
        let pool = pool(2, queue, |builder| builder);
        assert_eq!(pool.stats().longest_running, None, "no task runs");
        let gates = [Gate::new(), Gate::new()];
        let mut moments = Vec::new();
        for gate in &gates {
            let before = Instant::now();
            pool.labeled("slow").serve(gate.task()).unwrap();
            gate.wait_entered(1);
            moments.push((before, Instant::now()));
            thread::sleep(PAUSE);
        }
        let longest = pool.stats().longest_running;
        assert!(longest >= Some(2 * PAUSE), "{longest:?}");
        assert_since(|| pool.stats().longest_running, moments[0].0, moments[0].1);
        let workers = || {
            let mut workers = pool.workers();
            workers.sort_by_key(|worker| worker.running_for);
            workers
        };
        assert_since(|| workers()[0].running_for, moments[1].0, moments[1].1);
        assert_since(|| workers()[1].running_for, moments[0].0, moments[0].1);
        assert!(workers().iter().all(|worker| worker.label == Some("slow")));
        gates[0].open();
        wait_until("a task to end", || pool.stats().running == 1);
        assert_since(|| pool.stats().longest_running, moments[1].0, moments[1].1);
        gates[1].open();
        wait_until("both tasks to end", || pool.stats().running == 0);
        assert_eq!(pool.stats().longest_running, None);
        assert!(pool
            .workers()
            .iter()
            .all(|worker| worker.running_for.is_none()));
    }
}

#[test]
fn a_queued_tasks_age_counts_from_its_submission() {
    let pool = pool(1, 4, |builder| builder);
    let gate = Gate::new();
    pool.serve(gate.task()).unwrap();
    gate.wait_entered(1);
    assert_eq!(pool.stats().oldest_queued, None, "none is queued");
    let before = Instant::now();
    let first = pool.awaitable().serve(|| ()).unwrap();
    let between = Instant::now();
    thread::sleep(PAUSE);
    pool.serve(|| ()).unwrap();
    let after = Instant::now();
    let oldest = pool.stats().oldest_queued;
    assert!(oldest >= Some(PAUSE), "{oldest:?}");
    assert_since(|| pool.stats().oldest_queued, before, between);
    // The oldest task is taken out, so the next one is now the oldest.
    drop(first);
    assert_since(|| pool.stats().oldest_queued, between, after);
    gate.open();
    wait_until("all tasks to end", || pool.stats().completed == 2);
    assert_eq!(pool.stats().oldest_queued, None);
}

#[test]
fn a_wait_for_space_is_part_of_the_age() {
    let pool = pool(1, 1, |builder| builder.when_full(WhenFull::Block));
    let [first, second] = [Gate::new(), Gate::new()];
    pool.serve(first.task()).unwrap();
    first.wait_entered(1);
    pool.serve(second.task()).unwrap();
    thread::scope(|s| {
        let before = Instant::now();
        s.spawn(|| pool.serve(|| ()).unwrap());
        wait_until("the task to wait in line", || pool.stats().waiting == 1);
        let after = Instant::now();
        thread::sleep(PAUSE);
        first.open();
        second.wait_entered(1);
        wait_until("the task to be queued", || pool.stats().queued == 1);
        let oldest = pool.stats().oldest_queued;
        assert!(oldest >= Some(PAUSE), "{oldest:?}");
        assert_since(|| pool.stats().oldest_queued, before, after);
        second.open();
    });
}

#[test]
fn ages_change_no_admission() {
    let pool = pool(2, 3, |builder| builder);
    let gate = Gate::new();
    for _ in 0..5 {
        pool.serve(gate.task()).unwrap();
    }
    assert!(pool.serve(|| ()).unwrap_err().is_saturated());
    gate.open();
    wait_until("all tasks to end", || pool.stats().completed == 5);
    for _ in 0..1000 {
        assert!(matches!(pool.do_with_deadline(|| 7, Duration::MAX), Ok(7)));
    }
    pool.set_limit(1).unwrap();
    wait_until("a worker to end", || pool.stats().workers == 1);
}
