//! Tests of `Builder::track_ages`: how old running and queued tasks are.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{Builder, Pool, WhenFull};

const PAUSE: Duration = ms(20);

fn aged(workers: usize, queue: usize, set: impl FnOnce(Builder) -> Builder) -> Pool {
    pool_with(workers, queue, |b| set(b.track_ages(true)))
}

/// Asserts that the age began between two moments.
#[track_caller]
fn assert_since(age: impl FnOnce() -> Option<Duration>, before: Instant, after: Instant) {
    let least = after.elapsed();
    let age = age().expect("an age");
    assert!((least..=before.elapsed()).contains(&age), "{age:?}");
}

#[test]
fn a_pool_that_does_not_track_ages_has_none() {
    let gate = Gate::new();
    let pool = full(&gate, 1);
    let stats = pool.stats();
    assert_eq!((stats.longest_running, stats.oldest_queued), (None, None));
    assert_eq!(pool.workers()[0].running_for, None);
    gate.open();
}

#[test]
fn a_tasks_age_counts_from_its_start() {
    for queue in [0, 4] {
        let pool = aged(2, queue, |b| b);
        let longest = || pool.stats().longest_running;
        assert_eq!(longest(), None, "no task runs");
        let gates = [Gate::new(), Gate::new()];
        let [first, second] = gates.each_ref().map(|gate| {
            let before = Instant::now();
            occupy(&pool, gate, 1);
            let after = Instant::now();
            thread::sleep(PAUSE);
            (before, after)
        });
        assert!(longest() >= Some(2 * PAUSE), "{:?}", longest());
        assert_since(longest, first.0, first.1);
        let ages = || {
            let mut ages: Vec<_> = pool.workers().iter().map(|w| w.running_for).collect();
            ages.sort();
            ages
        };
        assert_since(|| ages()[0], second.0, second.1);
        assert_since(|| ages()[1], first.0, first.1);
        gates[0].open();
        wait_until("a task to end", || pool.stats().running == 1);
        assert_since(longest, second.0, second.1);
        gates[1].open();
        assert_eq!(settle(&pool).longest_running, None);
        assert_eq!(ages(), [None; 2]);
    }
}

#[test]
fn a_queued_tasks_age_counts_from_its_submission() {
    let pool = aged(1, 4, |b| b);
    let (gate, oldest) = (Gate::new(), || pool.stats().oldest_queued);
    occupy(&pool, &gate, 1);
    assert_eq!(oldest(), None, "none is queued");
    let before = Instant::now();
    let first = must_await(pool.awaitable(), || ());
    let between = Instant::now();
    thread::sleep(PAUSE);
    must_serve(&pool, || ());
    let after = Instant::now();
    assert!(oldest() >= Some(PAUSE), "{:?}", oldest());
    assert_since(oldest, before, between);
    // The oldest task is taken out, so the next one is now the oldest.
    drop(first);
    assert_since(oldest, between, after);
    gate.open();
    assert_eq!(settle(&pool).oldest_queued, None);
}

#[test]
fn a_wait_for_space_is_part_of_the_age() {
    let pool = aged(1, 1, |b| b.when_full(WhenFull::Block));
    let (first, second) = (Gate::new(), Gate::new());
    occupy(&pool, &first, 1);
    must_serve(&pool, second.task());
    thread::scope(|s| {
        let before = Instant::now();
        s.spawn(|| pool.serve(|| ()).unwrap());
        wait_in_line(&pool, 1);
        let after = Instant::now();
        thread::sleep(PAUSE);
        first.open();
        second.wait_entered(1);
        await_queued(&pool, 1);
        let oldest = || pool.stats().oldest_queued;
        assert!(oldest() >= Some(PAUSE), "{:?}", oldest());
        assert_since(oldest, before, after);
        second.open();
    });
}
