//! Law 9 (accounting), and the ages that `Builder::track_ages` adds to the figures. `stress.rs`
//! checks the invariants and that no figure becomes smaller while many threads submit.

mod common;

use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{Pool, Shutdown, Stats};

/// A new pool reports zero everywhere.
#[test]
fn law09_a_new_pool_reports_nothing() {
    let pool = pool(3, 4);
    assert_eq!(pool.stats(), Stats::default());
    assert!(pool.workers().is_empty());
}

/// When a call returns a value or a panic, its task is counted and its worker is free: the figures
/// are exact after every single call.
#[test]
fn law09_counted_when_the_call_returns() {
    timed_each([0, 3], |queue| {
        let pool = pool(3, queue);
        let mut ended = (0, 0);
        for i in 1..=rounds(3000) {
            if i % 5 == 0 {
                ended.1 += 1;
                panicked::<_, ()>(pool.do_with_deadline(|| quiet_panic("meant"), LONG));
            } else {
                ended.0 += 1;
                pool.do_with_deadline(move || i, Duration::MAX).unwrap();
            }
            let s = check_at_rest(&pool);
            assert_eq!((s.completed, s.panicked), ended, "{s:?}");
            assert_stats!(s, accepted: i, refused: 0, running: 0, queued: 0, workers: 1, idle: 1);
        }
    });
}

/// Each refusal, expiry, time-out and discard is counted once, in the figure for its kind.
#[test]
fn law09_every_ending_is_counted_where_it_belongs() {
    timed(|| {
        let pool = pool(2, 2);
        let gate = hold(&pool, 2);
        (0..2).for_each(|_| must_serve(&pool, gate.task()));
        assert_stats!(check_at_rest(&pool), running: 2, queued: 2, accepted: 4, workers: 2, idle: 0,
            peak_workers: 2);

        saturated(pool.serve(|| ()));
        for d in [LONG, Duration::MAX] {
            refused(pool.do_with_deadline(|| (), d));
        }
        let group = pool.group();
        group.cancel();
        assert_eq!(reason(group.serve(|| ())), "cancelled");
        gate.open();
        assert_stats!(settle(&pool), completed: 4, accepted: 4, refused: 4);

        let gate = hold(&pool, 1);
        is_timed_out(pool.do_with_deadline(gate.task(), ms(1000)));
        // A time-out is not the end of a task: the task still runs.
        assert_stats!(pool.stats(), timed_out: 1, completed: 4, running: 2, abandoned: 1);
        is_expired(pool.do_with_deadline(|| (), ms(20)));
        assert_stats!(check_at_rest(&pool), expired: 1, accepted: 7, queued: 0);

        (0..2).for_each(|_| must_serve(&pool, || ()));
        let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
        assert_eq!(report.discarded, 2);
        assert_stats!(pool.stats(), discarded: 2, queued: 0, running: 2);
        assert!(pool.serve(|| ()).is_err());
        assert!(pool.do_with_deadline(|| (), LONG).is_err());
        gate.open();
        assert!(pool.shutdown(Shutdown::Discard, LIMIT).is_clean());
        let s = check_at_rest(&pool);
        assert_stats!(s, refusals.saturated: 3, refusals.cancelled: 1, refusals.closed: 2);
        assert_stats!(s, completed: 6, running: 0, workers: 0);
        // A shutdown retires its workers.
        assert_stats!(s, spawned: 2, retired: 2, peak_workers: 2, abandoned: 0, refused: 6);
    });
}

/// `running` includes a task that was handed to a worker which has not started it yet.
#[test]
fn law09_running_counts_a_task_handed_over() {
    timed(|| {
        let (pool, gate) = gated(2, 0, |b, gate| b.on_worker_start(gate.hook()));
        for n in 1..=2 {
            must_serve(&pool, || ());
            let s = assert_stats!(pool.stats(), accepted: n as u64, running: n, workers: n,
                queued: 0, idle: 0);
            check_moment(&pool, &s);
        }
        saturated(pool.serve(|| ()));
        gate.open();
        assert_eq!(settle(&pool).completed, 2);
    });
}

/// `workers()` agrees with `stats()` at rest, and shows which workers are busy and with which task.
#[test]
fn law09_workers_agree_with_stats() {
    timed_each([0, 2], |queue| {
        let pool = pool(4, queue);
        let (gate, brief) = (Gate::new(), Gate::new());
        pool.labeled("held").serve(gate.task()).unwrap();
        must_serve(&pool, gate.task());
        gate.wait_entered(2);
        occupy(&pool, &brief, 1);
        brief.open();
        wait_until("the third worker to be idle", || pool.stats().idle == 1);
        let mut workers = pool.workers();
        workers.sort_by_key(|w| w.slot);
        workers.dedup_by_key(|w| w.slot);
        assert_eq!(workers.len(), 3);
        assert!(workers.iter().all(|w| w.slot < 4), "{workers:?}");
        assert_eq!(workers.iter().filter(|w| w.busy).count(), 2);
        let held = workers.iter().filter(|w| w.label == Some("held"));
        assert_eq!(held.filter(|w| w.busy && !w.abandoned).count(), 1);
        let idle = workers.iter().find(|w| !w.busy).unwrap();
        assert_eq!((idle.label, idle.abandoned, idle.tasks), (None, false, 1));
        gate.open();
        settle(&pool);
        for _ in 0..5 {
            pool.do_with_deadline(|| (), LONG).unwrap();
            let _ = pool.do_with_deadline(|| quiet_panic("meant"), LONG);
        }
        let workers = pool.workers();
        // Every task that ended, in whichever way, is counted for one worker.
        let tasks: u64 = workers.iter().map(|w| w.tasks).sum();
        assert_eq!(tasks, 13, "{workers:?}");
        assert!(workers.iter().all(|w| !w.busy && w.label.is_none()));
    });
}

const PAUSE: Duration = ms(20);

fn aged(workers: usize, queue: usize) -> Pool {
    pool_with(workers, queue, |b| b.track_ages(true))
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
    let (pool, gate) = full(1);
    assert_stats!(pool.stats(), longest_running: None, oldest_queued: None);
    assert_eq!(pool.workers()[0].running_for, None);
    gate.open();
}

#[test]
fn a_tasks_age_counts_from_its_start() {
    for queue in [0, 4] {
        let pool = aged(2, queue);
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

/// A wait for space is part of the age.
#[test]
fn a_queued_tasks_age_counts_from_its_submission() {
    let pool = aged(1, 1);
    let (first, second) = (Gate::new(), Gate::new());
    let oldest = || pool.stats().oldest_queued;
    occupy(&pool, &first, 1);
    assert_eq!(oldest(), None, "none is queued");
    let before = Instant::now();
    must_serve(&pool, second.task());
    let after = Instant::now();
    thread::sleep(PAUSE);
    assert!(oldest() >= Some(PAUSE), "{:?}", oldest());
    let waits = Instant::now();
    let future = pending(pool.awaitable().serve_async(|| ()), Waker::noop());
    let in_line = Instant::now();
    thread::sleep(PAUSE);
    assert_since(oldest, before, after);
    first.open();
    second.wait_entered(1);
    // The oldest task has left the queue, so the next one is now the oldest.
    await_queued(&pool, 1);
    assert!(oldest() >= Some(PAUSE), "{:?}", oldest());
    assert_since(oldest, waits, in_line);
    drop(future);
    assert_eq!(oldest(), None, "it was taken out");
}
