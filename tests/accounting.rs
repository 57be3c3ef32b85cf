//! Law 9 (accounting), and the ages that `Builder::track_ages` adds to the figures. `stress.rs`
//! checks the invariants and that no figure becomes smaller while many threads submit.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{Builder, Pool, Shutdown, Stats, WhenFull};

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

/// With several callers, each sees at least its own calls counted. Meanwhile, the invariants that
/// hold at every moment hold.
#[test]
fn law09_counted_when_the_call_returns_to_many() {
    timed_each([(4, 0), (2, 4)], |(max, queue)| {
        let pool = pool_with(max, queue, |b| b.idle_timeout(ms(1)));
        let returned = Tally::default();
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..rounds(500) {
                        pool.do_with_deadline(thread::yield_now, LONG).unwrap();
                        returned.add(1);
                        let mine = returned.get();
                        let s = pool.stats();
                        assert!(s.completed >= mine, "{mine} returned: {s:?}");
                        check_moment(&pool, &s);
                    }
                });
            }
        });
        assert_stats!(at_rest(&pool), completed: 4 * rounds(500), refused: 0);
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

/// A deadline that passes while the caller waits for room counts as refused.
#[test]
fn law09_expired_before_room_counts_as_refused() {
    timed(|| {
        let pool = pool_with(1, 0, |b| b.when_full(WhenFull::Block));
        let _gate = hold(&pool, 1);
        for i in 1..=5 {
            is_expired(pool.do_with_deadline(|| (), ms(2)));
            assert_stats!(pool.stats(), refused: i, expired: 0, accepted: 1, refusals.expired: i);
        }
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

/// `peak_workers` keeps the highest number of workers, and the counts of a worker's tasks are kept
/// after the worker has retired.
#[test]
fn law09_counts_survive_retirement() {
    timed(|| {
        let pool = pool_with(6, 0, |b| b.idle_timeout(ms(5)));
        let mut completed = 0;
        for (n, peak) in [(2, 2), (5, 5), (1, 5), (3, 5)] {
            run_at_once(&pool, n);
            completed += n as u64;
            await_workers(&pool, 0);
            let s = pool.stats();
            assert_stats!(s, peak_workers: peak, completed: completed, idle: 0, spawned: s.retired);
        }
    });
}

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
    let (pool, gate) = full(1);
    assert_stats!(pool.stats(), longest_running: None, oldest_queued: None);
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
