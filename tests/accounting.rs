//! Law 9 (accounting).

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{DeadlineError, Pool, Shutdown, Stats, WhenFull};

/// Law 9: a new pool reports zero everywhere.
#[test]
fn law09_a_new_pool_reports_nothing() {
    let pool = pool(3, 4);
    assert_eq!(pool.stats(), Stats::default());
    assert!(pool.workers().is_empty());
}

/// Law 9: when a call returns a value or a panic, its task is counted and its worker is free: the
/// figures are exact after every single call.
#[test]
fn law09_counted_when_the_call_returns() {
    timed(|| {
        for queue in [0, 3] {
            let pool = pool(3, queue);
            let (mut completed, mut panicked) = (0, 0);
            for i in 0..rounds(3000) {
                if i % 5 == 0 {
                    panicked += 1;
                    let outcome = pool.do_with_deadline(|| quiet_panic("meant"), LONG);
                    assert!(matches!(outcome, Err::<(), _>(DeadlineError::Panicked(_))));
                } else {
                    completed += 1;
                    pool.do_with_deadline(move || i, Duration::MAX).unwrap();
                }
                let s = pool.stats();
                assert_eq!((s.completed, s.panicked), (completed, panicked), "{s:?}");
                assert_eq!((s.accepted, s.refused), (i + 1, 0), "{s:?}");
                assert_eq!((s.running, s.queued), (0, 0), "{s:?}");
                assert_eq!((s.workers, s.idle), (1, 1), "{s:?}");
                check_at_rest(&pool, &s);
            }
        }
    });
}

/// Law 9: with several callers, each sees at least its own calls counted, and no worker occupied
/// beyond the calls that are still under way.
#[test]
fn law09_counted_when_the_call_returns_to_many() {
    timed(|| {
        for (max, queue) in [(4, 0), (2, 4)] {
            let pool = pool(max, queue);
            let returned = AtomicU64::new(0);
            thread::scope(|s| {
                for _ in 0..4 {
                    s.spawn(|| {
                        for _ in 0..rounds(500) {
                            pool.do_with_deadline(thread::yield_now, LONG).unwrap();
                            let mine = returned.fetch_add(1, Ordering::SeqCst) + 1;
                            let s = pool.stats();
                            assert!(s.completed >= mine, "{mine} returned: {s:?}");
                        }
                    });
                }
            });
            let s = pool.stats();
            assert_eq!((s.running, s.queued, s.idle), (0, 0, s.workers), "{s:?}");
            check_at_rest(&pool, &s);
        }
    });
}

/// Law 9: each refusal, expiry, time-out and discard is counted once, in the figure for its kind.
#[test]
fn law09_every_ending_is_counted_where_it_belongs() {
    timed(|| {
        let pool = pool(2, 2);
        let gate = Gate::new();
        // `running` counts tasks that have been handed over, started or not. `queued` counts the
        // rest. Both are exact at once.
        for i in 1..=4_usize {
            must_serve(&pool, gate.task());
            let s = pool.stats();
            assert_eq!(s.accepted, i as u64, "{s:?}");
            assert!(s.running + s.queued >= i, "{s:?}");
        }
        gate.wait_entered(2);
        let s = pool.stats();
        assert_eq!((s.running, s.queued), (2, 2), "{s:?}");
        assert_eq!((s.workers, s.idle, s.peak_workers), (2, 0, 2), "{s:?}");
        check_at_rest(&pool, &s);

        saturated(pool.serve(|| ()));
        assert_eq!(pool.stats().refused, 1);
        for d in [LONG, Duration::MAX] {
            let refused = pool.do_with_deadline(|| (), d);
            assert!(matches!(refused, Err(DeadlineError::Refused(_))));
        }
        let s = pool.stats();
        assert_eq!((s.refused, s.accepted), (3, 4), "{s:?}");
        let group = pool.group();
        group.cancel();
        assert!(group.serve(|| ()).is_err());

        gate.open();
        let s = settle(&pool);
        assert_eq!((s.completed, s.accepted), (4, 4), "{s:?}");

        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let left = pool.do_with_deadline(gate.task(), ms(1000));
        assert!(matches!(left, Err(DeadlineError::TimedOut)), "{left:?}");
        let s = pool.stats();
        // A time-out is not the end of a task: the task still runs.
        assert_eq!((s.timed_out, s.completed, s.running), (1, 4, 2), "{s:?}");
        assert_eq!(s.abandoned, 1, "{s:?}");
        let expired = pool.do_with_deadline(|| (), ms(20));
        assert!(matches!(expired, Err(DeadlineError::Expired(_))));
        let s = pool.stats();
        assert_eq!((s.expired, s.accepted, s.queued), (1, 7, 0), "{s:?}");
        check_at_rest(&pool, &s);

        must_serve(&pool, || ());
        must_serve(&pool, || ());
        let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
        assert_eq!(report.discarded, 2);
        let s = pool.stats();
        assert_eq!((s.discarded, s.queued, s.running), (2, 0, 2), "{s:?}");
        assert!(pool.serve(|| ()).is_err());
        assert!(pool.do_with_deadline(|| (), LONG).is_err());
        let s = pool.stats();
        let r = s.refusals;
        assert_eq!(s.refused, 6);
        assert_eq!((r.saturated, r.cancelled, r.closed), (3, 1, 2), "{s:?}");
        gate.open();
        assert!(pool.shutdown(Shutdown::Discard, LIMIT).is_clean());
        let s = pool.stats();
        assert_eq!((s.completed, s.running, s.workers), (6, 0, 0), "{s:?}");
        assert_eq!(s.abandoned, 0, "{s:?}");
        // A shutdown retires its workers.
        assert_eq!((s.spawned, s.retired, s.peak_workers), (2, 2, 2), "{s:?}");
        check_at_rest(&pool, &s);
    });
}

/// Law 9: a deadline that passes while the caller waits for room counts as refused.
#[test]
fn law09_expired_before_room_counts_as_refused() {
    timed(|| {
        let pool = Pool::builder()
            .max_workers(1)
            .when_full(WhenFull::Block)
            .build()
            .unwrap();
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        for i in 1..=5 {
            let outcome = pool.do_with_deadline(|| (), ms(2));
            assert!(matches!(outcome, Err(DeadlineError::Expired(_))));
            let s = pool.stats();
            assert_eq!((s.refused, s.expired, s.accepted), (i, 0, 1), "{s:?}");
            assert_eq!(s.refusals.expired, i, "{s:?}");
        }
    });
}

/// Law 9: `running` includes a task that was handed to a worker which has not started it yet.
#[test]
fn law09_running_counts_a_task_handed_over() {
    timed(|| {
        let gate = Gate::new();
        let key = gate.key();
        let pool = Pool::builder()
            .max_workers(2)
            .on_worker_start(move |_| key.pass())
            .build()
            .unwrap();
        // Declared before the pool because of the hook: the gate opens before the pool is dropped.
        let gate = gate;
        must_serve(&pool, || ());
        let s = pool.stats();
        assert_eq!((s.accepted, s.running, s.queued), (1, 1, 0), "{s:?}");
        assert_eq!((s.workers, s.idle, s.spawned), (1, 0, 1), "{s:?}");
        must_serve(&pool, || ());
        let s = pool.stats();
        assert_eq!((s.accepted, s.running, s.workers), (2, 2, 2), "{s:?}");
        check_moment(&pool, &s);
        saturated(pool.serve(|| ()));
        gate.open();
        assert_eq!(settle(&pool).completed, 2);
    });
}

/// Law 9: an accepted task that has not ended is in `queued` or `running` at every moment. Their
/// sum is never below the number of tasks that are known to be accepted and known not to have
/// ended.
#[test]
fn law09_no_task_is_out_of_sight() {
    timed(|| {
        for (max, queue, idle) in [(1, 4, Duration::MAX), (2, 6, ms(1)), (3, 0, ms(1))] {
            let pool = Pool::builder()
                .max_workers(max)
                .queue_capacity(queue)
                .idle_timeout(idle)
                .build()
                .unwrap();
            for round in 0..rounds(150) {
                let gate = Gate::new();
                // Short tasks in front of these move the tasks from the queue to workers meanwhile.
                let cap = max + queue;
                let short = cap / 2;
                for _ in 0..short {
                    must_serve(&pool, || spin(Duration::from_micros(20)));
                }
                for _ in short..cap {
                    must_serve(&pool, gate.task());
                }
                for _ in 0..30 {
                    let s = pool.stats();
                    check_moment(&pool, &s);
                    assert!(
                        s.running + s.queued >= cap - short,
                        "round {round}, {} tasks unended: {s:?}",
                        cap - short
                    );
                }
                gate.open();
                settle(&pool);
            }
        }
    });
}

/// Law 9: a task leaves `running` only once it is counted. So a thread that finds nothing queued
/// and nothing running finds every task counted.
#[test]
fn law09_nobody_is_free_before_the_count() {
    timed(|| {
        thread::scope(|s| {
            for (max, queue, fails) in [(1, 0, false), (1, 2, false), (2, 0, true), (2, 3, true)] {
                s.spawn(move || {
                    let pool = pool(max, queue);
                    for n in 1..=rounds(4000) {
                        if fails && n % 2 == 0 {
                            must_serve(&pool, || quiet_panic("meant"));
                        } else {
                            must_serve(&pool, || ());
                        }
                        let quiet = |s: &Stats| s.running == 0 && s.queued == 0;
                        wait_until("the pool to come to rest", || quiet(&pool.stats()));
                        let s = pool.stats();
                        assert_eq!(s.completed + s.panicked, n, "{s:?}");
                        check_at_rest(&pool, &s);
                    }
                });
            }
        });
    });
}

/// Checks that the figures which only ever grow have not become smaller.
fn check_monotone(before: &Stats, after: &Stats) {
    for (name, a, b) in [
        ("accepted", before.accepted, after.accepted),
        ("refused", before.refused, after.refused),
        ("completed", before.completed, after.completed),
        ("panicked", before.panicked, after.panicked),
        ("expired", before.expired, after.expired),
        ("discarded", before.discarded, after.discarded),
        ("timed_out", before.timed_out, after.timed_out),
        ("spawned", before.spawned, after.spawned),
        ("retired", before.retired, after.retired),
        ("hook_panics", before.hook_panics, after.hook_panics),
        (
            "peak_workers",
            before.peak_workers as u64,
            after.peak_workers as u64,
        ),
    ] {
        assert!(a <= b, "{name} went back: {before:?}, {after:?}");
    }
}

/// Law 9: under a mixed load the invariants hold at every moment and no figure underflows. At rest
/// the ledger balances, also after the final shutdown. See pond 14, 100.
#[test]
fn law09_invariants_under_a_mixed_load() {
    timed(|| {
        for (max, queue, idle, policy) in [
            (1, 0, ms(1), WhenFull::Refuse),
            (3, 0, Duration::MAX, WhenFull::Refuse),
            (2, 5, ms(1), WhenFull::Refuse),
            (3, 3, ms(1), WhenFull::Block),
        ] {
            let pool = Pool::builder()
                .max_workers(max)
                .queue_capacity(queue)
                .idle_timeout(idle)
                .when_full(policy)
                .build()
                .unwrap();
            let over = AtomicBool::new(false);
            let polls = AtomicU64::new(0);
            let at_work = AtomicU64::new(6);
            thread::scope(|s| {
                for _ in 0..2 {
                    s.spawn(|| {
                        let mut last = pool.stats();
                        while !over.load(Ordering::SeqCst) {
                            let now = pool.stats();
                            check_moment(&pool, &now);
                            check_monotone(&last, &now);
                            let workers = pool.workers();
                            assert!(workers.len() <= max, "{workers:?}");
                            last = now;
                            polls.fetch_add(1, Ordering::SeqCst);
                        }
                    });
                }
                for seed in 0..6 {
                    let (pool, over, at_work, polls) = (&pool, &over, &at_work, &polls);
                    s.spawn(move || {
                        let mut rng = Rng::new(seed + max as u64);
                        let begin = Instant::now();
                        // The load lasts until the figures have been read often enough; that takes
                        // longer on a busy machine.
                        let is_polled = || polls.load(Ordering::SeqCst) > 100;
                        let mut round = 0;
                        while round < rounds(250) || (!is_polled() && begin.elapsed() < LIMIT) {
                            round += 1;
                            let work = Duration::from_micros(rng.below(60));
                            let fails = rng.below(6) == 0;
                            let task = move || {
                                spin(work);
                                if fails {
                                    quiet_panic("meant");
                                }
                            };
                            match rng.below(4) {
                                0 => drop(pool.serve(task)),
                                1 => drop(pool.do_with_deadline(task, Duration::MAX)),
                                _ => {
                                    let d = Duration::from_micros(rng.below(100));
                                    drop(pool.do_with_deadline(task, d));
                                }
                            }
                            if rng.below(10) == 0 {
                                thread::sleep(Duration::from_micros(rng.below(3000)));
                            }
                        }
                        if at_work.fetch_sub(1, Ordering::SeqCst) == 1 {
                            settle(pool);
                            check_at_rest(pool, &pool.stats());
                            over.store(true, Ordering::SeqCst);
                        }
                    });
                }
            });
            assert!(polls.load(Ordering::SeqCst) > 100, "hardly polled");
            let s = pool.stats();
            check_at_rest(&pool, &s);
            let busy = Gate::new();
            must_serve(&pool, busy.task());
            busy.wait_entered(1);
            for _ in 0..queue {
                must_serve(&pool, || ());
            }
            pool.shutdown(Shutdown::Cancel, Duration::ZERO);
            check_moment(&pool, &pool.stats());
            busy.open();
            assert!(pool.shutdown(Shutdown::Cancel, LIMIT).is_clean());
            let s = pool.stats();
            check_at_rest(&pool, &s);
            assert_eq!((s.workers, s.spawned), (0, s.retired), "{s:?}");
        }
    });
}

/// Law 9: `workers()` agrees with `stats()` at rest, and shows which workers are busy and with
/// which task.
#[test]
fn law09_workers_agree_with_stats() {
    timed(|| {
        for queue in [0, 2] {
            let pool = pool(4, queue);
            let gate = Gate::new();
            pool.labeled("held").serve(gate.task()).unwrap();
            must_serve(&pool, gate.task());
            gate.wait_entered(2);
            let brief = Gate::new();
            must_serve(&pool, brief.task());
            brief.wait_entered(1);
            brief.open();
            wait_until("the third worker to be idle", || pool.stats().idle == 1);
            let mut workers = pool.workers();
            workers.sort_by_key(|w| w.slot);
            assert_eq!(workers.len(), 3);
            let slots: Vec<usize> = workers.iter().map(|w| w.slot).collect();
            assert!(slots.windows(2).all(|w| w[0] < w[1]), "{slots:?}");
            assert!(slots.iter().all(|&slot| slot < 4), "{slots:?}");
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
        }
    });
}

/// Law 9: `peak_workers` keeps the highest number of workers; `workers` is the present one.
#[test]
fn law09_peak_workers_remembers() {
    timed(|| {
        let pool = Pool::builder()
            .max_workers(6)
            .idle_timeout(ms(5))
            .build()
            .unwrap();
        for (n, peak) in [(2, 2), (5, 5), (1, 5), (3, 5)] {
            let gate = Gate::new();
            for _ in 0..n {
                must_serve(&pool, gate.task());
            }
            assert_eq!(pool.stats().peak_workers, peak);
            gate.open();
            wait_until("workers to retire", || pool.stats().workers == 0);
            let s = pool.stats();
            assert_eq!((s.peak_workers, s.idle), (peak, 0), "{s:?}");
        }
    });
}

/// Law 9: the counts of a worker's tasks are kept after the worker has retired.
#[test]
fn law09_counts_survive_retirement() {
    timed(|| {
        let pool = Arc::new(
            Pool::builder()
                .max_workers(3)
                .idle_timeout(Duration::ZERO)
                .build()
                .unwrap(),
        );
        for i in 1..=rounds(40) {
            pool.do_with_deadline(|| (), LONG).unwrap();
            let _ = pool.do_with_deadline(|| quiet_panic("meant"), LONG);
            wait_until("workers to retire", || pool.stats().workers == 0);
            let s = pool.stats();
            assert_eq!(
                (s.completed, s.panicked, s.accepted),
                (i, i, 2 * i),
                "{s:?}"
            );
        }
    });
}
