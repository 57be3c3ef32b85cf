//! Law 13 (spawn failure). Each test says which start of a thread fails, and describes the state of
//! the pool at that time.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod common;
#[path = "common/shortage.rs"]
mod shortage;

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{BuildError, DeadlineError, Pool, Refusal, Refused, Shutdown, Submitter, WhenFull};
use shortage::{asked, Shortage};

/// Returns a pool whose workers call `deny` before each thread that they start, as by
/// [`Shortage::when`].
fn denied_in_workers(
    max: usize,
    queue: usize,
    idle_timeout: Duration,
    deny: impl FnMut() -> bool + Clone + Send + Sync + 'static,
) -> Pool {
    Pool::builder()
        .max_workers(max)
        .queue_capacity(queue)
        .idle_timeout(idle_timeout)
        .on_worker_start(move |_| {
            // The shortage lasts for as long as the worker lives.
            std::mem::forget(Shortage::when(deny.clone()));
        })
        .build()
        .expect("pool")
}

#[track_caller]
fn spawn_failed<F>(refused: Refused<F>) -> Refused<F> {
    assert!(
        matches!(refused.reason(), Refusal::SpawnFailed(_)),
        "{refused:?}"
    );
    assert!(!refused.is_saturated() && !refused.is_closed());
    assert!(refused.source().is_some(), "the system's error");
    refused
}

/// Fails to submit by each verb, and checks that the closures come back without having run.
#[track_caller]
fn fails_to_spawn(pool: &Pool) {
    let ledger = Ledger::new(3);
    let task = |id| {
        let entry = ledger.entry(id);
        move || entry.run()
    };
    spawn_failed(pool.serve(task(0)).expect_err("no thread")).run_anyway();
    for (id, d) in [(1, LONG), (2, Duration::MAX)] {
        match pool.do_with_deadline(task(id), d) {
            Err(DeadlineError::Refused(refused)) => spawn_failed(refused).into_inner()(),
            other => panic!("{other:?}"),
        }
    }
    ledger.assert_all_ran();
}

/// Law 13: if there is no worker and no thread can be started, a task comes back as `SpawnFailed`,
/// and slot and counters are as before. Each submission tries again, and succeeds once threads can
/// be started. See folly 1428, tokio 2309 and 8406, blocking 79.
#[test]
fn law13_no_thread_at_all() {
    timed(|| {
        for policy in [WhenFull::Refuse, WhenFull::Block] {
            for (max, queue) in [(1, 0), (3, 0), (1, 4), (3, 4)] {
                let pool = Pool::builder()
                    .max_workers(max)
                    .queue_capacity(queue)
                    .when_full(policy)
                    .idle_timeout(Duration::MAX)
                    .build()
                    .unwrap();
                let shortage = Shortage::total();
                // More failures than there are slots: no slot may be lost.
                for i in 1..=2 * max as u64 + 2 {
                    let before = asked();
                    fails_to_spawn(&pool);
                    assert!(asked() - before >= 3, "each submission tries");
                    let s = pool.stats();
                    assert_eq!((s.spawn_failures, s.refused), (3 * i, 3 * i), "{s:?}");
                    assert_eq!((s.accepted, s.queued, s.running), (0, 0, 0), "{s:?}");
                    assert_eq!((s.workers, s.spawned, s.retired), (0, 0, 0), "{s:?}");
                    assert_eq!((s.idle, s.peak_workers), (0, 0), "{s:?}");
                    assert!(pool.workers().is_empty());
                }
                drop(shortage);
                pool.do_with_deadline(|| (), LONG).unwrap();
                if policy == WhenFull::Refuse {
                    assert_cap_usable(&pool);
                    assert_eq!(pool.stats().spawned, max as u64);
                }
                check_at_rest(&pool, &pool.stats());
                assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
            }
        }
    });
}

/// Law 13: a pool that never got a thread shuts down and drops like any other. See folly 1428,
/// tokio 2309 and 8406, blocking 79.
#[test]
fn law13_shutdown_without_a_thread() {
    timed(|| {
        for by_drop in [false, true] {
            let pool = pool(2, 2);
            let _shortage = Shortage::total();
            fails_to_spawn(&pool);
            if by_drop {
                drop(pool);
            } else {
                assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
                assert!(pool.serve(|| ()).unwrap_err().is_closed());
            }
        }
    });
}

/// Law 13: if no thread can be started, a task is queued while a worker exists, and that worker
/// runs it. Every such submission tries again to start a thread.
#[test]
fn law13_to_the_queue_while_a_worker_lives() {
    timed(|| {
        let pool = pool(3, 4);
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let shortage = Shortage::total();
        let ledger = Ledger::new(4);
        for id in 0..4 {
            let entry = ledger.entry(id);
            let before = asked();
            must_serve(&pool, move || entry.run());
            assert!(asked() > before, "tries for a thread");
            let s = pool.stats();
            assert_eq!((s.queued, s.running), (id + 1, 1), "{s:?}");
            assert_eq!((s.spawn_failures, s.refused), (id as u64 + 1, 0), "{s:?}");
        }
        // The queue is full, but the pool is not saturated: some slots have no thread.
        let before = asked();
        let so_far = pool.stats().refusals.spawn_failed;
        spawn_failed(pool.serve(|| ()).expect_err("no room, no thread"));
        assert_eq!(pool.stats().refusals.spawn_failed, so_far + 1);
        assert!(asked() > before, "tries for a thread");
        assert_eq!(ledger.total_runs(), 0);
        gate.open();
        let s = settle(&pool);
        ledger.assert_all_ran();
        assert_eq!((s.spawned, s.workers, s.completed), (1, 1, 5), "{s:?}");
        drop(shortage);
        assert_cap_usable(&pool);
        assert_eq!(pool.stats().spawned, 3);
    });
}

/// Law 13: a task is queued even if the only free places are those of the oldest tasks, which were
/// taken out.
#[test]
fn law13_to_the_queue_however_long_it_is() {
    const LONG_QUEUE: usize = 4_096;
    const EXPIRED: usize = 200;
    timed(|| {
        let pool = pool(2, LONG_QUEUE);
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let _short = Shortage::total();
        for _ in 0..EXPIRED {
            let expired = pool.do_with_deadline(|| (), Duration::from_micros(10));
            assert!(matches!(expired, Err(DeadlineError::Expired(_))));
        }
        // Some of them may expire before they are queued.
        while pool.stats().queued < LONG_QUEUE {
            must_serve(&pool, || ());
        }
        spawn_failed(pool.serve(|| ()).unwrap_err());
        gate.open();
        let s = settle(&pool);
        assert_eq!(s.completed, 1 + LONG_QUEUE as u64, "{s:?}");
        check_at_rest(&pool, &s);
    });
}

/// Law 13: the task of a waiting caller is queued as well, within its deadline.
#[test]
fn law13_a_waiting_caller_queues() {
    timed(|| {
        let pool = pool(2, 1);
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        thread::scope(|s| {
            let _opener = gate.opener();
            let expired = s.spawn(|| {
                let _shortage = Shortage::total();
                pool.do_with_deadline(|| 1, ms(10))
            });
            let expired = expired.join().unwrap();
            assert!(
                matches!(expired, Err(DeadlineError::Expired(_))),
                "{expired:?}"
            );
            let call = s.spawn(|| {
                let _shortage = Shortage::total();
                pool.do_with_deadline(|| 1, LONG)
            });
            wait_until("the task to be queued", || pool.stats().queued == 1);
            gate.open();
            assert_eq!(call.join().unwrap().unwrap(), 1);
        });
        let s = pool.stats();
        assert_eq!((s.spawned, s.spawn_failures, s.expired), (1, 2, 1), "{s:?}");
        check_at_rest(&pool, &s);
    });
}

/// Law 13: without a queue a task comes back while the only worker is occupied. The slot can be
/// used as soon as threads can be started again.
#[test]
fn law13_without_a_queue_it_comes_back() {
    timed(|| {
        let pool = pool(2, 0);
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let shortage = Shortage::total();
        for i in 1..=5 {
            fails_to_spawn(&pool);
            let s = pool.stats();
            assert_eq!((s.workers, s.running, s.accepted), (1, 1, 1), "{s:?}");
            assert_eq!(s.spawn_failures, 3 * i, "{s:?}");
        }
        drop(shortage);
        let second = Gate::new();
        must_serve(&pool, second.task());
        second.wait_entered(1);
        saturated(pool.serve(|| ()));
        gate.open();
        second.open();
        settle(&pool);
        // An idle worker takes the task, so no thread is needed.
        let _shortage = Shortage::total();
        let before = asked();
        for _ in 0..20 {
            pool.do_with_deadline(|| (), LONG).unwrap();
        }
        assert_eq!(asked(), before);
    });
}

/// Law 13: a worker that becomes free while the system refuses the thread takes the task.
#[test]
fn law13_the_task_goes_to_another_worker() {
    timed(|| {
        for queue in [0, 2] {
            for call in [false, true] {
                let pool = Arc::new(pool(2, queue));
                let gate = Gate::new();
                must_serve(&pool, gate.task());
                gate.wait_entered(1);
                let ran = Arc::new(AtomicBool::new(false));
                let mark = Arc::clone(&ran);
                let watched = Arc::clone(&pool);
                let shortage = Shortage::when(move || {
                    gate.open();
                    wait_until("the worker to be idle", || watched.stats().idle == 1);
                    true
                });
                let task = move || mark.store(true, Ordering::SeqCst);
                if call {
                    pool.do_with_deadline(task, LONG).unwrap();
                } else {
                    must_serve(&pool, task);
                }
                drop(shortage);
                let s = settle(&pool);
                assert!(ran.load(Ordering::SeqCst));
                assert_eq!((s.spawn_failures, s.refused, s.spawned), (1, 0, 1), "{s:?}");
                assert_eq!(s.completed, 2, "{s:?}");
            }
        }
    });
}

/// Returns a pool with one worker of two, and the call that started that worker. The worker is in
/// its start hook until the gate opens; later it calls `deny` before each thread that it starts.
/// The call has a deadline of one second.
fn one_in_its_start_hook(
    queue: usize,
    gate: &Gate,
    deny: impl FnMut() -> bool + Clone + Send + Sync + 'static,
) -> (Arc<Pool>, Called) {
    let key = gate.key();
    let pool = Pool::builder()
        .max_workers(2)
        .queue_capacity(queue)
        .on_worker_start(move |slot| {
            if slot == 0 {
                key.pass();
                std::mem::forget(Shortage::when(deny.clone()));
            }
        })
        .build()
        .expect("pool");
    let pool = Arc::new(pool);
    let first = call_with_threads(&pool, 1, |pool| pool.labeled("first"), ms(1000));
    gate.wait_entered(1);
    (pool, first)
}

type Called = thread::JoinHandle<(Result<(), DeadlineError<()>>, u64)>;

/// Makes a call with the deadline `d` from a thread that can start `threads` threads. Returns the
/// call's outcome and the number of threads that it tried to start.
fn call_with_threads(
    pool: &Arc<Pool>,
    mut threads: u32,
    options: fn(&Pool) -> Submitter<'_>,
    d: Duration,
) -> Called {
    let pool = Arc::clone(pool);
    thread::spawn(move || {
        let _few = Shortage::when(move || {
            let denied = threads == 0;
            threads = threads.saturating_sub(1);
            denied
        });
        let outcome = options(&pool).do_with_deadline(|| (), d);
        (outcome.map_err(DeadlineError::without_closure), asked())
    })
}

/// Law 3: the start of a thread for another task holds no caller beyond its deadline. A caller that
/// takes its own task back starts no thread. A worker that starts a thread with the next caller's
/// task in hand lets that caller leave.
#[test]
fn law03_no_deadline_waits_for_a_thread_of_others() {
    timed(|| {
        let (hook, system) = (Gate::new(), Gate::new());
        let key = system.key();
        let (pool, first) = one_in_its_start_hook(8, &hook, move || {
            key.pass();
            true
        });
        let _open = system.opener();
        let plain: fn(&Pool) -> Submitter<'_> = |pool| pool.labeled("plain");
        let doomed = call_with_threads(
            &pool,
            0,
            |pool| pool.min_remaining(Duration::from_secs(7200)),
            Duration::from_secs(3600),
        );
        wait_until("the task without enough time to be queued", || {
            pool.stats().queued == 1
        });
        let second = call_with_threads(&pool, 0, plain, Duration::from_secs(5));
        wait_until("the second task to be queued", || pool.stats().queued == 2);
        let shortage = Shortage::total();
        must_serve(&pool, || ());
        drop(shortage);
        assert_eq!(pool.stats().queued, 3);

        let (outcome, asked) = first.join().unwrap();
        assert!(
            matches!(outcome, Err(DeadlineError::Expired(_))),
            "{outcome:?}"
        );
        assert_eq!(asked, 1, "threads asked for: its own worker's");
        // The worker takes the doomed task, which expires, then the second one. Now it must start a
        // thread for the third, which blocks in the system.
        hook.open();
        system.wait_entered(1);
        let (outcome, _) = second.join().unwrap();
        assert!(
            matches!(outcome, Err(DeadlineError::TimedOut)),
            "{outcome:?}"
        );
        let (outcome, _) = doomed.join().unwrap();
        assert!(
            matches!(outcome, Err(DeadlineError::Expired(_))),
            "{outcome:?}"
        );
        system.open();
        let s = settle(&pool);
        assert_eq!((s.completed, s.expired, s.timed_out), (2, 2, 1), "{s:?}");
    });
}

/// Laws 1 and 13: a worker in its start hook is busy even if its task was taken back. If no thread
/// can be started, the next task comes back or, with a queue, waits for that worker.
#[test]
fn law13_a_worker_in_its_start_hook_is_busy() {
    timed(|| {
        for queue in [0, 2] {
            let hook = Gate::new();
            let (pool, first) = one_in_its_start_hook(queue, &hook, || true);
            let (outcome, _) = first.join().unwrap();
            assert!(
                matches!(outcome, Err(DeadlineError::Expired(_))),
                "{outcome:?}"
            );
            let shortage = Shortage::total();
            for _ in 0..queue {
                must_serve(&pool, || ());
            }
            spawn_failed(pool.serve(|| ()).unwrap_err());
            drop(shortage);
            let s = pool.stats();
            assert_eq!((s.running, s.idle, s.queued), (0, 0, queue), "{s:?}");
            assert_eq!(s.spawn_failures, 1 + queue as u64, "{s:?}");
            hook.open();
            let s = settle(&pool);
            assert_eq!((s.completed, s.expired), (queue as u64, 1), "{s:?}");
            assert_eq!(s.spawned, 1, "{s:?}");
        }
    });
}

/// Law 13: whichever single start of a thread fails, a submitter's or a worker's, accepted tasks
/// run and others come back. Idle workers retire, the whole cap is usable, and the pool shuts down.
#[test]
fn law13_any_single_attempt_fails() {
    timed(|| {
        for queue in [0, 2] {
            for failing in 0..6_u64 {
                let attempts = Arc::new(AtomicU64::new(0));
                let deny = move || attempts.fetch_add(1, Ordering::SeqCst) == failing;
                let pool = denied_in_workers(3, queue, ms(10), deny.clone());
                let ran = Arc::new(AtomicU64::new(0));
                let mut accepted = 0;
                let shortage = Shortage::when(deny);
                for _ in 0..3 {
                    let gate = Gate::new();
                    for _ in 0..3 {
                        let mark = Arc::clone(&ran);
                        let key = gate.key();
                        let outcome = pool.serve(move || {
                            key.pass();
                            mark.fetch_add(1, Ordering::SeqCst);
                        });
                        match outcome {
                            Ok(()) => accepted += 1,
                            Err(refused) => drop(spawn_failed(refused)),
                        }
                    }
                    gate.open();
                    wait_until("accepted tasks to run", || {
                        ran.load(Ordering::SeqCst) == accepted
                    });
                    settle(&pool);
                    thread::sleep(ms(5));
                }
                drop(shortage);
                // A further task does not keep the workers from retiring.
                wait_until("workers to retire", || {
                    pool.do_with_deadline(|| (), LONG).unwrap();
                    let start = std::time::Instant::now();
                    while start.elapsed() < ms(200) && pool.stats().workers > 0 {
                        thread::sleep(ms(1));
                    }
                    pool.stats().workers == 0
                });
                assert_cap_usable(&pool);
                assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
                check_at_rest(&pool, &pool.stats());
            }
        }
    });
}

/// Laws 6 and 13: retirement never leaves a queued task without a worker, even if no other thread
/// can be started.
#[test]
fn law13_retirement_strands_no_queued_task() {
    timed(|| {
        for (max, idle) in [(1, Duration::ZERO), (2, Duration::ZERO), (2, ms(1))] {
            let pool = Pool::builder()
                .max_workers(max)
                .queue_capacity(8)
                .idle_timeout(idle)
                .build()
                .unwrap();
            let mut rng = Rng::new(max as u64);
            let ran = Arc::new(AtomicU64::new(0));
            let (mut accepted, mut failed) = (0, 0);
            for turn in 0..rounds(400) {
                // In every fourth turn a first task is served while threads can be started. The
                // tasks after it get no new thread.
                if turn % 4 == 0 {
                    let mark = Arc::clone(&ran);
                    must_serve(&pool, move || {
                        mark.fetch_add(1, Ordering::SeqCst);
                    });
                    accepted += 1;
                }
                {
                    let _shortage = Shortage::total();
                    thread::sleep(Duration::from_micros(rng.below(1500)));
                    for _ in 0..=rng.below(4) {
                        let mark = Arc::clone(&ran);
                        let outcome = pool.serve(move || {
                            mark.fetch_add(1, Ordering::SeqCst);
                        });
                        match outcome {
                            Ok(()) => accepted += 1,
                            Err(refused) => {
                                spawn_failed(refused);
                                failed += 1;
                            }
                        }
                    }
                }
                wait_until("accepted tasks to run", || {
                    ran.load(Ordering::SeqCst) == accepted
                });
            }
            let s = settle(&pool);
            assert_eq!((s.refused, s.accepted), (failed, accepted), "{s:?}");
            check_at_rest(&pool, &s);
        }
    });
}

/// Law 13: tasks accepted into the queue run under `Drain`, even if only one slot can get a thread.
#[test]
fn law13_drain_with_one_worker() {
    timed(|| {
        let pool = pool(4, 6);
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let ledger = Ledger::new(6);
        let _shortage = Shortage::total();
        for id in 0..6 {
            let entry = ledger.entry(id);
            must_serve(&pool, move || entry.run());
        }
        pool.shutdown(Shutdown::Drain, Duration::ZERO);
        gate.open();
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        ledger.assert_all_ran();
    });
}

/// Law 10: the timeout holds while the system is slow to start a thread, whose worker is then among
/// the stragglers. Once, `shutdown` waited for that thread however long it took.
#[test]
fn law10_a_slow_thread_start_is_a_straggler() {
    timed(|| {
        for queue in [0, 2] {
            let pool = pool(2, queue);
            let system = Gate::new();
            thread::scope(|s| {
                let submitter = s.spawn(|| {
                    let key = system.key();
                    let _slow = Shortage::when(move || {
                        key.pass();
                        false
                    });
                    pool.serve(|| ()).expect("accepted before the shutdown");
                });
                system.wait_entered(1);
                for timeout in [Duration::ZERO, ms(20)] {
                    let report = pool.shutdown(Shutdown::Drain, timeout);
                    let slots: Vec<_> = report.stragglers.iter().map(|w| w.slot).collect();
                    assert_eq!(slots, [0]);
                }
                assert_eq!((pool.stats().workers, pool.workers().len()), (0, 0));
                system.open();
                submitter.join().unwrap();
            });
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
            assert_eq!(pool.stats().completed, 1);
        }
    });
}

/// Laws 6 and 13: workers retire down to `min_workers` even if no thread can be started. Once, the
/// cleaner needed a thread, so no worker retired if the pool had the last thread that the system
/// gave.
#[test]
fn law06_retirement_needs_no_thread() {
    timed(|| {
        for (queue, min) in [(0, 0), (2, 0), (0, 1)] {
            let pool = Pool::builder()
                .max_workers(4)
                .min_workers(min)
                .queue_capacity(queue)
                .idle_timeout(ms(40))
                .on_worker_start(|_| std::mem::forget(Shortage::when(|| true)))
                .build()
                .expect("pool");
            for _ in 0..2 {
                let gate = Gate::new();
                for _ in 0..4 {
                    must_serve(&pool, gate.task());
                }
                // A worker that tries to start another gets no thread, so its task stays queued.
                wait_until("tasks at the gate", || {
                    gate.entered() + pool.stats().queued == 4
                });
                gate.open();
                settle(&pool);
                wait_until("workers to retire", || pool.stats().workers == min);
            }
            let s = settle(&pool);
            assert_eq!((s.completed, s.spawn_failures), (8, 0), "{s:?}");
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        }
    });
}

/// Law 6: surplus workers retire even if tasks keep all of them from sleeping for long.
#[test]
fn law06_retirement_while_tasks_go_round() {
    timed(|| {
        let pool = Pool::builder().max_workers(4).idle_timeout(ms(400));
        let pool = pool.build().expect("pool");
        let gate = Gate::new();
        for _ in 0..4 {
            must_serve(&pool, gate.task());
        }
        gate.wait_entered(4);
        gate.open();
        settle(&pool);
        wait_until("surplus workers to retire", || {
            // A new thread each time, which knows no worker yet.
            thread::scope(|s| {
                s.spawn(|| pool.do_with_deadline(|| (), LONG).expect("idle"));
            });
            thread::sleep(ms(20));
            pool.stats().workers == 1
        });
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    });
}

/// Law 6: a worker that went to sleep while it was not surplus retires once it is.
#[test]
fn law06_a_sleeper_becomes_surplus() {
    timed(|| {
        let pool = Pool::builder()
            .max_workers(2)
            .min_workers(1)
            .idle_timeout(ms(20))
            .build()
            .unwrap();
        let (first, second, system) = (Gate::new(), Gate::new(), Gate::new());
        must_serve(&pool, first.task());
        first.wait_entered(1);
        thread::scope(|s| {
            let _opener = system.opener();
            s.spawn(|| {
                let key = system.key();
                let _slow = Shortage::when(move || {
                    key.pass();
                    false
                });
                must_serve(&pool, second.task());
            });
            system.wait_entered(1);
            first.open();
            wait_until("the worker to be idle", || pool.stats().idle == 1);
            thread::sleep(ms(20)); // and asleep
        });
        second.wait_entered(1);
        wait_until("the surplus worker to retire", || pool.stats().workers == 1);
        second.open();
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    });
}

/// Law 13: if `build` cannot start `min_workers`, it fails with the system's error, and none of the
/// workers that did start is left.
#[test]
fn law13_build_cannot_start_min_workers() {
    timed(|| {
        for failing in 0..4_u64 {
            let starts = Arc::new(AtomicUsize::new(0));
            let stops = Arc::new(AtomicUsize::new(0));
            let (a, b) = (Arc::clone(&starts), Arc::clone(&stops));
            let mut attempt = 0;
            let shortage = Shortage::when(move || {
                attempt += 1;
                attempt == failing + 1
            });
            let outcome = Pool::builder()
                .max_workers(8)
                .min_workers(4)
                .thread_name("lp13b")
                .on_worker_start(move |_| {
                    a.fetch_add(1, Ordering::SeqCst);
                })
                .on_worker_stop(move |_| {
                    b.fetch_add(1, Ordering::SeqCst);
                })
                .build();
            drop(shortage);
            match outcome {
                Err(error @ BuildError::Spawn(_)) => {
                    assert!(error.source().is_some(), "{error:?}");
                    assert!(!error.to_string().is_empty());
                }
                other => panic!("attempt {failing} failed, yet {other:?}"),
            }
            wait_until("the workers that had started to end", || {
                os::workers_named("lp13b") == 0
            });
            let (starts, stops) = (starts.load(Ordering::SeqCst), stops.load(Ordering::SeqCst));
            assert_eq!(starts, stops, "hooks come in pairs");
        }
    });
}

/// Law 13: a start that the system itself refuses, because of a stack that it cannot give, comes
/// back as `SpawnFailed`.
#[test]
fn law13_a_stack_the_system_cannot_give() {
    timed(|| {
        let builder = || Pool::builder().max_workers(2).stack_size(IMPOSSIBLE_STACK);
        match builder().min_workers(1).build() {
            Err(BuildError::Spawn(error)) => assert!(error.raw_os_error().is_some(), "{error}"),
            other => panic!("{other:?}"),
        }
        for queue in [0, 2] {
            let pool = builder().queue_capacity(queue).build().unwrap();
            for _ in 0..5 {
                fails_to_spawn(&pool);
            }
            let s = pool.stats();
            assert_eq!((s.spawn_failures, s.refused), (15, 15), "{s:?}");
            assert_eq!((s.accepted, s.workers, s.running), (0, 0, 0), "{s:?}");
            assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        }
    });
}

/// Law 13: under load, starts of threads fail at random for many submitters. Each task runs or
/// comes back, and in the end every slot is usable.
#[test]
fn law13_threads_fail_at_random() {
    timed(|| {
        for (max, queue, idle) in [
            (4, 0, Duration::ZERO),
            (4, 6, Duration::ZERO),
            (8, 2, ms(1)),
        ] {
            let pool = Pool::builder()
                .max_workers(max)
                .queue_capacity(queue)
                .idle_timeout(idle)
                .build()
                .unwrap();
            let n = rounds(300) as usize;
            let ledger = Ledger::new(4 * n);
            let failures = AtomicU64::new(0);
            let handed_back = AtomicU64::new(0);
            thread::scope(|s| {
                for part in 0..4 {
                    let (pool, ledger) = (&pool, &ledger);
                    let (failures, handed_back) = (&failures, &handed_back);
                    s.spawn(move || {
                        let mut rng = Rng::new(part as u64);
                        let mut dice = Rng::new(part as u64 + 100);
                        let _shortage = Shortage::when(move || dice.below(2) == 0);
                        for id in part * n..(part + 1) * n {
                            let entry = ledger.entry(id);
                            let work = Duration::from_micros(rng.below(200));
                            let task = move || {
                                thread::sleep(work);
                                entry.run();
                            };
                            let refused = if id % 2 == 0 {
                                pool.serve(task).err()
                            } else {
                                match pool.do_with_deadline(task, LONG) {
                                    Ok(()) => {
                                        assert_eq!(ledger.runs(id), 1);
                                        None
                                    }
                                    Err(DeadlineError::Refused(refused)) => Some(refused),
                                    Err(other) => panic!("{other:?}"),
                                }
                            };
                            if let Some(refused) = refused {
                                handed_back.fetch_add(1, Ordering::SeqCst);
                                if !refused.is_saturated() {
                                    spawn_failed(refused);
                                    failures.fetch_add(1, Ordering::SeqCst);
                                }
                            }
                            if rng.below(4) == 0 {
                                thread::sleep(Duration::from_micros(rng.below(2500)));
                            }
                        }
                    });
                }
            });
            let s = settle(&pool);
            check_at_rest(&pool, &s);
            let handed_back = handed_back.load(Ordering::SeqCst);
            assert_eq!(s.refused, handed_back, "{s:?}");
            assert_eq!(ledger.total_runs(), 4 * n as u64 - handed_back);
            assert!(s.spawn_failures >= failures.load(Ordering::SeqCst), "{s:?}");
            assert!(s.spawn_failures > 0, "nothing failed: {s:?}");
            for id in 0..4 * n {
                assert_eq!(ledger.drops(id), 1);
            }
            assert_cap_usable(&pool);
        }
    });
}
