//! Law 10 (shutdown).

mod common;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Barrier, Mutex, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{task, Builder, DeadlineError, Pool, Refusal, Shutdown, WhenFull};

const MODES: [Shutdown; 3] = [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel];

fn builder(max: usize, queue: usize) -> Builder {
    Pool::builder().max_workers(max).queue_capacity(queue)
}

fn pool(max: usize, queue: usize) -> Pool {
    builder(max, queue).build().expect("pool")
}

/// Asserts that every way to submit is refused as `Closed`, and that the closures come back without
/// having run.
#[track_caller]
fn assert_closed(pool: &Pool) {
    assert!(pool.is_closed());
    let before = pool.stats().refused;
    let ledger = Ledger::new(5);
    let task = |id| {
        let entry = ledger.entry(id);
        move || entry.run()
    };
    let view = pool.labeled("closed");
    for refused in [
        pool.serve(task(0)).expect_err("closed"),
        view.serve(task(1)).expect_err("closed"),
        pool.group().serve(task(2)).expect_err("closed"),
    ] {
        assert!(refused.is_closed() && !refused.is_saturated());
        assert!(matches!(refused.reason(), Refusal::Closed));
        refused.run_anyway();
    }
    for outcome in [
        pool.do_with_deadline(task(3), LONG),
        view.do_with_deadline(task(4), Duration::MAX),
    ] {
        match outcome {
            Err(DeadlineError::Refused(refused)) if refused.is_closed() => refused.into_inner()(),
            other => panic!("{other:?}"),
        }
    }
    ledger.assert_all_ran();
    assert_eq!(pool.stats().refused, before + 5);
}

/// Law 10: once `shutdown` is called, every submission is refused as `Closed`. That is so while
/// tasks still run, in a full pool, and after the end.
#[test]
fn law10_a_closed_pool_refuses() {
    timed(|| {
        for policy in [WhenFull::Refuse, WhenFull::Block] {
            for mode in MODES {
                for (max, queue) in [(1, 0), (2, 3)] {
                    let pool = builder(max, queue).when_full(policy).build().unwrap();
                    assert!(!pool.is_closed());
                    let gate = Gate::new();
                    for _ in 0..max + queue {
                        must_serve(&pool, gate.task());
                    }
                    gate.wait_entered(max);
                    let report = pool.shutdown(mode, Duration::ZERO);
                    assert!(!report.is_clean());
                    assert_closed(&pool);
                    gate.open();
                    assert!(pool.shutdown(mode, LIMIT).is_clean());
                    assert_closed(&pool);
                    check_at_rest(&pool, &pool.stats());
                }
            }
        }
        // This pool has never run a task.
        let pool = pool(4, 4);
        assert!(pool.shutdown(Shutdown::Drain, Duration::ZERO).is_clean());
        assert_closed(&pool);
        assert_eq!(pool.stats().spawned, 0);
    });
}

/// Law 10: submissions that wait for room are refused as `Closed` as soon as the pool is closed.
#[test]
fn law10_blocked_submissions_are_refused() {
    timed(|| {
        for mode in MODES {
            for queue in [0, 1] {
                let pool = builder(1, queue)
                    .when_full(WhenFull::Block)
                    .build()
                    .unwrap();
                let gate = Gate::new();
                for _ in 0..=queue {
                    must_serve(&pool, gate.task());
                }
                gate.wait_entered(1);
                thread::scope(|s| {
                    let _opener = gate.opener();
                    let calls: Vec<_> = (0..6)
                        .map(|i| {
                            let pool = &pool;
                            s.spawn(move || match i % 3 {
                                0 => pool.serve(|| ()).unwrap_err().is_closed(),
                                n => {
                                    let d = if n == 1 { LONG } else { Duration::MAX };
                                    match pool.do_with_deadline(|| (), d) {
                                        Err(DeadlineError::Refused(r)) => r.is_closed(),
                                        other => panic!("{other:?}"),
                                    }
                                }
                            })
                        })
                        .collect();
                    thread::sleep(ms(30));
                    assert!(calls.iter().all(|call| !call.is_finished()));
                    pool.shutdown(mode, Duration::ZERO);
                    // The gate is still shut, so the calls are refused because the pool is closed.
                    for call in calls {
                        assert!(call.join().unwrap());
                    }
                });
                assert_eq!(pool.stats().refused, 6);
            }
        }
    });
}

/// Law 10: with `Drain` every accepted task runs, those in the queue included.
#[test]
fn law10_drain_runs_everything() {
    timed(|| {
        for (max, queue) in [(1, 0), (1, 40), (3, 40)] {
            let pool = pool(max, queue);
            let gate = Gate::new();
            let ledger = Ledger::new(max + queue);
            for id in 0..max + queue {
                let entry = ledger.entry(id);
                let key = gate.key();
                must_serve(&pool, move || {
                    key.pass();
                    entry.run();
                });
            }
            gate.wait_entered(max);
            thread::scope(|s| {
                let _opener = gate.opener();
                let down = s.spawn(|| pool.shutdown(Shutdown::Drain, Duration::MAX));
                wait_until("the pool to close", || pool.is_closed());
                thread::sleep(ms(5));
                assert!(!down.is_finished(), "returned with tasks unended");
                gate.open();
                let report = down.join().unwrap();
                assert!(report.is_clean());
                assert_eq!(report.discarded, 0);
            });
            ledger.assert_all_ran();
            let s = pool.stats();
            assert_eq!(
                (s.completed, s.discarded),
                ((max + queue) as u64, 0),
                "{s:?}"
            );
            assert_eq!((s.workers, s.retired), (0, s.spawned), "{s:?}");
            assert!(pool.workers().is_empty());
        }
    });
}

/// Law 10: a `Drain` whose timeout has passed goes on: in the end every accepted task has run.
#[test]
fn law10_drain_goes_on_after_its_timeout() {
    timed(|| {
        let pool = pool(1, 5);
        let gate = Gate::new();
        let ledger = Ledger::new(5);
        must_serve(&pool, gate.task());
        for id in 0..5 {
            let entry = ledger.entry(id);
            must_serve(&pool, move || entry.run());
        }
        assert!(!pool.shutdown(Shutdown::Drain, ms(5)).is_clean());
        assert_eq!(ledger.total_runs(), 0);
        gate.open();
        wait_until("the tasks to run", || ledger.total_runs() == 5);
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        ledger.assert_all_ran();
    });
}

/// Law 10: with `Discard` and `Cancel`, started tasks run to their end and queued ones are
/// discarded. Waiting callers get their closures back, refused as `Closed`. See pond 138, 61.
#[test]
fn law10_discard_hands_queued_tasks_back() {
    timed(|| {
        for mode in [Shutdown::Discard, Shutdown::Cancel] {
            for d in [LONG, Duration::MAX] {
                let pool = pool(2, 6);
                let gate = Gate::new();
                let ledger = Ledger::new(8);
                for id in 0..2 {
                    let entry = ledger.entry(id);
                    let key = gate.key();
                    must_serve(&pool, move || {
                        key.pass();
                        entry.run();
                    });
                }
                gate.wait_entered(2);
                thread::scope(|s| {
                    let _opener = gate.opener();
                    let calls: Vec<_> = (2..5)
                        .map(|id| {
                            let (pool, ledger) = (&pool, &ledger);
                            s.spawn(move || {
                                let entry = ledger.entry(id);
                                pool.do_with_deadline(move || entry.run(), d)
                            })
                        })
                        .collect();
                    for id in 5..8 {
                        let entry = ledger.entry(id);
                        must_serve(&pool, move || entry.run());
                    }
                    wait_until("all tasks to be queued", || pool.stats().queued == 6);
                    let report = pool.shutdown(mode, Duration::ZERO);
                    assert_eq!((report.discarded, report.stragglers.len()), (6, 2));
                    assert!(!report.is_clean());
                    // These callers return before any worker is free again.
                    for (id, call) in (2..5).zip(calls) {
                        match call.join().unwrap() {
                            Err(DeadlineError::Refused(refused)) => {
                                assert!(refused.is_closed(), "{refused:?}");
                                assert_eq!((ledger.runs(id), ledger.drops(id)), (0, 0));
                                refused.run_anyway();
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                    for id in 5..8 {
                        assert_eq!((ledger.runs(id), ledger.drops(id)), (0, 1));
                    }
                });
                let report = pool.shutdown(mode, LIMIT);
                assert!(report.is_clean());
                assert_eq!(report.discarded, 6, "by this pool's shutdowns so far");
                for id in 0..5 {
                    assert_eq!((ledger.runs(id), ledger.drops(id)), (1, 1));
                }
                let s = pool.stats();
                assert_eq!((s.completed, s.discarded, s.refused), (2, 6, 0), "{s:?}");
                check_at_rest(&pool, &s);
            }
        }
    });
}

/// Law 10: tasks that were handed over but have not started also run under `Discard` and `Cancel`,
/// and waiting callers get their values. See pond 138, 61.
#[test]
fn law10_tasks_handed_over_run() {
    timed(|| {
        for mode in MODES {
            let gate = Gate::new();
            let key = gate.key();
            let pool = builder(2, 0)
                .on_worker_start(move |_| key.pass())
                .build()
                .unwrap();
            let gate = gate; // dropped before the pool
            let ledger = Ledger::new(2);
            let entry = ledger.entry(0);
            // Without a queue, an accepted task has been handed over to a worker.
            must_serve(&pool, move || entry.run());
            thread::scope(|s| {
                let _opener = gate.opener();
                let entry = ledger.entry(1);
                let call = s.spawn(|| pool.do_with_deadline(move || entry.run(), LONG));
                wait_until("both tasks to be handed over", || {
                    let s = pool.stats();
                    s.accepted == 2 && s.running == 2
                });
                let report = pool.shutdown(mode, ms(2));
                assert_eq!((report.discarded, report.stragglers.len()), (0, 2));
                assert_eq!(ledger.total_runs(), 0);
                gate.open();
                call.join().unwrap().expect("handed over, so it runs");
            });
            let report = pool.shutdown(mode, LIMIT);
            assert!(report.is_clean());
            assert_eq!(report.discarded, 0);
            ledger.assert_all_ran();
        }
    });
}

/// Law 10: `Cancel` makes `task::is_cancelled()` return true in running tasks. `Drain` and
/// `Discard` do not, but a later `Cancel` does.
#[test]
fn law10_cancel_is_seen_by_running_tasks() {
    timed(|| {
        for queue in [0, 2] {
            let pool = pool(2, queue);
            let (tx, rx) = mpsc::channel();
            let stop = Arc::new(AtomicBool::new(false));
            for labeled in [false, true] {
                let (tx, stop) = (tx.clone(), Arc::clone(&stop));
                let task = move || {
                    assert!(!task::is_cancelled());
                    tx.send("started").unwrap();
                    while !task::is_cancelled() && !stop.load(Ordering::SeqCst) {
                        thread::sleep(Duration::from_micros(200));
                    }
                    tx.send(if task::is_cancelled() {
                        "cancelled"
                    } else {
                        "?"
                    })
                    .unwrap();
                };
                if labeled {
                    pool.labeled("seen").serve(task).unwrap();
                } else {
                    must_serve(&pool, task);
                }
            }
            assert_eq!(rx.recv_timeout(LIMIT), Ok("started"));
            assert_eq!(rx.recv_timeout(LIMIT), Ok("started"));
            for mode in [Shutdown::Drain, Shutdown::Discard] {
                assert!(!pool.shutdown(mode, ms(20)).is_clean());
                assert!(rx.try_recv().is_err(), "{mode:?} cancels");
            }
            let report = pool.shutdown(Shutdown::Cancel, LIMIT);
            stop.store(true, Ordering::SeqCst);
            assert!(report.is_clean());
            assert_eq!(rx.try_recv(), Ok("cancelled"));
            assert_eq!(rx.try_recv(), Ok("cancelled"));
        }
    });
}

/// Law 10: a task with a waiting caller sees a `Cancel` too, and its caller gets its value.
#[test]
fn law10_cancel_is_seen_under_do_with_deadline() {
    timed(|| {
        for d in [LONG, Duration::MAX] {
            let pool = pool(1, 0);
            let gate = Gate::new();
            let key = gate.key();
            thread::scope(|s| {
                let call = s.spawn(|| {
                    pool.do_with_deadline(
                        move || {
                            key.pass();
                            wait_until("the cancel", task::is_cancelled);
                            11
                        },
                        d,
                    )
                });
                gate.wait_entered(1);
                gate.open();
                assert!(pool.shutdown(Shutdown::Cancel, LIMIT).is_clean());
                assert_eq!(call.join().unwrap().unwrap(), 11);
            });
            assert_eq!(pool.stats().timed_out, 0);
        }
    });
}

/// Law 10: the strictest mode so far stays in force. A later call with a milder mode changes
/// nothing.
#[test]
fn law10_the_strictest_mode_stays() {
    timed(|| {
        // First `Drain`; then `Discard`, while the first call waits, discards the queue.
        let pool = Arc::new(pool(1, 3));
        let gate = Gate::new();
        let ledger = Ledger::new(3);
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        for id in 0..3 {
            let entry = ledger.entry(id);
            must_serve(&pool, move || entry.run());
        }
        thread::scope(|s| {
            let _opener = gate.opener();
            let drain = s.spawn(|| pool.shutdown(Shutdown::Drain, Duration::MAX));
            wait_until("the pool to close", || pool.is_closed());
            let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
            assert_eq!(report.discarded, 3);
            gate.open();
            let report = drain.join().unwrap();
            assert!(report.is_clean());
            assert_eq!(report.discarded, 3);
        });
        assert_eq!(ledger.total_runs(), 0);

        // After `Cancel` and then milder modes, running tasks stay cancelled.
        let pool = Arc::new(self::pool(1, 0));
        let gate = Gate::new();
        let key = gate.key();
        let (tx, rx) = mpsc::channel();
        must_serve(&pool, move || {
            key.pass();
            tx.send(task::is_cancelled()).unwrap();
        });
        gate.wait_entered(1);
        for mode in [Shutdown::Cancel, Shutdown::Discard, Shutdown::Drain] {
            assert!(!pool.shutdown(mode, Duration::ZERO).is_clean());
        }
        gate.open();
        assert_eq!(rx.recv_timeout(LIMIT), Ok(true));
    });
}

/// Law 10: `shutdown` returns at its timeout, never earlier, and reports the stragglers. A call
/// after the task has ended is clean. See ants 259.
#[test]
fn law10_returns_at_its_timeout_with_the_stragglers() {
    timed(|| {
        for mode in MODES {
            let pool = pool(3, 0);
            let gate = Gate::new();
            must_serve(&pool, || ());
            settle(&pool);
            pool.labeled("long").serve(gate.task()).unwrap();
            let outcome = pool.do_with_deadline(gate.task(), ms(1000));
            assert!(matches!(outcome, Err(DeadlineError::TimedOut)));
            gate.wait_entered(2);
            for timeout in [Duration::ZERO, ms(1), ms(40), ms(120)] {
                let start = Instant::now();
                let report = pool.shutdown(mode, timeout);
                let took = start.elapsed();
                assert!(took >= timeout, "{took:?} of {timeout:?}");
                assert!(!gate.key().is_open());
                assert!(!report.is_clean());
                let mut who: Vec<_> = report
                    .stragglers
                    .iter()
                    .filter(|w| w.busy)
                    .map(|w| (w.label, w.abandoned))
                    .collect();
                who.sort_unstable();
                assert_eq!(who, [(None, true), (Some("long"), false)], "{report:?}");
            }
            gate.open();
            let report = pool.shutdown(mode, Duration::MAX);
            assert!(report.is_clean() && report.stragglers.is_empty());
            assert_eq!(pool.stats().completed, 3);
        }
    });
}

/// Law 10: `shutdown` returns once every worker has ended, not before and not only at its timeout.
/// By then `on_worker_stop` and the thread-local destructors have run (threads are joined).
#[test]
fn law10_no_thread_outlives_a_clean_report() {
    struct Slow(Arc<AtomicUsize>);
    impl Drop for Slow {
        fn drop(&mut self) {
            thread::sleep(ms(30));
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    thread_local! {
        static KEPT: RefCell<Option<Slow>> = const { RefCell::new(None) };
    }
    timed(|| {
        for (n, mode) in MODES.into_iter().cycle().take(9).enumerate() {
            let ended = Arc::new(AtomicUsize::new(0));
            let stopped = Arc::new(AtomicUsize::new(0));
            let stops = Arc::clone(&stopped);
            let pool = builder(4, n % 2 * 8)
                .thread_name("lp10t")
                .on_worker_stop(move |_| {
                    stops.fetch_add(1, Ordering::SeqCst);
                })
                .build()
                .unwrap();
            let gate = Gate::new();
            for _ in 0..4 {
                let (ended, key) = (Arc::clone(&ended), gate.key());
                must_serve(&pool, move || {
                    KEPT.set(Some(Slow(ended)));
                    key.pass();
                });
            }
            gate.wait_entered(4);
            gate.open();
            if n < 6 {
                let report = pool.shutdown(mode, Duration::MAX);
                assert!(report.is_clean());
            } else {
                drop(pool);
            }
            assert_eq!(ended.load(Ordering::SeqCst), 4, "{mode:?}: not joined");
            assert_eq!(stopped.load(Ordering::SeqCst), 4, "{mode:?}");
            // The system may list a thread for a moment after it was joined.
            #[cfg(target_os = "linux")]
            wait_within(ms(5000), "threads to be gone", || {
                os::workers_named("lp10t") == 0
            });
        }
    });
}

/// Law 10: `shutdown` may be called again, and from many threads at once. All calls return a clean
/// report.
#[test]
fn law10_from_many_threads() {
    timed(|| {
        for turn in 0..rounds(60) {
            let pool = pool(3, 8);
            let ledger = Ledger::new(11);
            let mut accepted = 0;
            for id in 0..11 {
                let entry = ledger.entry(id);
                must_serve(&pool, move || {
                    spin(Duration::from_micros(30));
                    entry.run();
                });
                accepted += 1;
            }
            let start = Barrier::new(6);
            let discarded: Vec<u64> = thread::scope(|s| {
                let calls: Vec<_> = (0..6)
                    .map(|i| {
                        let (pool, start) = (&pool, &start);
                        s.spawn(move || {
                            start.wait();
                            let mode = MODES[((turn + i) % 3) as usize];
                            let report = pool.shutdown(mode, Duration::MAX);
                            assert!(report.is_clean());
                            let again = pool.shutdown(Shutdown::Drain, Duration::ZERO);
                            assert!(again.is_clean());
                            again.discarded
                        })
                    })
                    .collect();
                calls.into_iter().map(|call| call.join().unwrap()).collect()
            });
            let s = pool.stats();
            check_at_rest(&pool, &s);
            assert_eq!(s.completed + s.discarded, accepted, "{s:?}");
            assert_eq!(s.completed, ledger.total_runs(), "{s:?}");
            assert_eq!(discarded, vec![s.discarded; 6], "so far");
            for id in 0..11 {
                assert_eq!(ledger.drops(id), 1);
            }
            assert!(pool.shutdown(Shutdown::Cancel, Duration::MAX).is_clean());
            drop(pool);
        }
    });
}

/// Law 10: within a task, `shutdown` closes the pool and returns at once, with any timeout. Its own
/// worker is among the stragglers. See pond 49.
#[test]
fn law10_inside_a_task() {
    timed(|| {
        for mode in MODES {
            for queue in [0, 3] {
                let pool = Arc::new(pool(2, queue));
                let gate = Gate::new();
                let ledger = Ledger::new(queue);
                must_serve(&pool, gate.task());
                gate.wait_entered(1);
                let weak = Arc::downgrade(&pool);
                let books = ledger.clone();
                let report = pool
                    .do_with_deadline(
                        move || {
                            let pool = weak.upgrade().unwrap();
                            for id in 0..queue {
                                let entry = books.entry(id);
                                must_serve(&pool, move || entry.run());
                            }
                            let report = pool.shutdown(mode, Duration::MAX);
                            // The other worker is held at the gate, so the call cannot have waited
                            // for it.
                            assert!(pool.is_closed());
                            assert!(pool.serve(|| ()).unwrap_err().is_closed());
                            let own = task::slot().unwrap();
                            assert!(report.stragglers.iter().any(|w| w.slot == own && w.busy));
                            assert_eq!(task::is_cancelled(), mode == Shutdown::Cancel);
                            report
                        },
                        LONG,
                    )
                    .unwrap();
                assert!(!report.is_clean());
                assert!(!gate.key().is_open());
                assert_eq!(report.stragglers.len(), 2, "{report:?}");
                let gone = if mode == Shutdown::Drain { 0 } else { queue };
                assert_eq!(report.discarded, gone as u64);
                gate.open();
                assert!(pool.shutdown(mode, LIMIT).is_clean());
                assert_eq!(ledger.total_runs(), (queue - gone) as u64);
                check_at_rest(&pool, &pool.stats());
            }
        }
    });
}

/// Law 10: within the pool's hooks, which run on its workers, `shutdown` returns at once. No worker
/// joins itself.
#[test]
fn law10_inside_a_hook() {
    timed(|| {
        for hook in 0..3 {
            let handle: Arc<OnceLock<Weak<Pool>>> = Arc::default();
            let calls = Arc::new(AtomicUsize::new(0));
            let (seen, count) = (Arc::clone(&handle), Arc::clone(&calls));
            let close = move || {
                if let Some(pool) = seen.get().and_then(Weak::upgrade) {
                    let report = pool.shutdown(Shutdown::Drain, Duration::MAX);
                    assert!(!report.is_clean());
                    count.fetch_add(1, Ordering::SeqCst);
                }
            };
            let builder = builder(2, 0).idle_timeout(ms(10));
            let builder = match hook {
                0 => builder.on_panic(move |_| close()),
                1 => builder.around(move |task| {
                    task();
                    close();
                }),
                _ => builder.on_worker_stop(move |_| close()),
            };
            let pool = Arc::new(builder.build().unwrap());
            handle.set(Arc::downgrade(&pool)).unwrap();
            let _ = pool.do_with_deadline(|| quiet_panic("meant"), LONG);
            wait_until("the hook to close the pool", || pool.is_closed());
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
            assert_eq!(calls.load(Ordering::SeqCst), 1, "hook {hook}");
            assert_eq!(pool.stats().hook_panics, 0);
        }
    });
}

/// Law 10: within a task of another pool `shutdown` waits as it does on any other thread.
#[test]
fn law10_inside_another_pools_task() {
    timed(|| {
        let other = Arc::new(pool(1, 0));
        let own = pool(1, 0);
        let gate = Gate::new();
        must_serve(&other, gate.task());
        thread::scope(|s| {
            let _opener = gate.opener();
            let inner = Arc::clone(&other);
            let key = gate.key();
            let call = s.spawn(|| {
                own.do_with_deadline(
                    move || {
                        let report = inner.shutdown(Shutdown::Drain, Duration::MAX);
                        (report.is_clean(), key.is_open())
                    },
                    Duration::MAX,
                )
            });
            thread::sleep(ms(30));
            assert!(!call.is_finished(), "did not wait");
            gate.open();
            assert_eq!(call.join().unwrap().unwrap(), (true, true));
        });
    });
}

/// Law 10: by default, dropping the pool drains it: every accepted task has run when the drop
/// returns.
#[test]
fn law10_drop_drains() {
    timed(|| {
        for queue in [0, 20] {
            for _ in 0..rounds(30) {
                let pool = pool(2, queue);
                let ledger = Ledger::new(2 + queue);
                for id in 0..2 + queue {
                    let entry = ledger.entry(id);
                    must_serve(&pool, move || {
                        spin(Duration::from_micros(50));
                        entry.run();
                    });
                }
                drop(pool);
                ledger.assert_all_ran();
            }
        }
    });
}

/// Law 10: dropping the pool does what `shutdown_on_drop` says. It discards or cancels, and stops
/// waiting at the timeout. The tasks that still run are not affected.
#[test]
fn law10_drop_does_as_told() {
    timed(|| {
        for mode in MODES {
            let pool = builder(1, 4)
                .thread_name("lp10d")
                .shutdown_on_drop(Shutdown::Drain, Duration::MAX)
                .shutdown_on_drop(mode, ms(40))
                .build()
                .unwrap();
            let gate = Gate::new();
            let key = gate.key();
            let (tx, rx) = mpsc::channel();
            must_serve(&pool, move || {
                key.pass();
                tx.send(task::is_cancelled()).unwrap();
            });
            gate.wait_entered(1);
            let ledger = Ledger::new(4);
            for id in 0..4 {
                let entry = ledger.entry(id);
                must_serve(&pool, move || entry.run());
            }
            let start = Instant::now();
            drop(pool);
            assert!(start.elapsed() >= ms(40), "gave up early");
            assert!(!gate.key().is_open());
            let gone = u32::from(mode != Shutdown::Drain);
            for id in 0..4 {
                assert_eq!((ledger.runs(id), ledger.drops(id)), (0, gone), "{mode:?}");
            }
            gate.open();
            assert_eq!(rx.recv_timeout(LIMIT), Ok(mode == Shutdown::Cancel));
            wait_until("the remaining tasks to end", || {
                (0..4).all(|id| ledger.drops(id) == 1)
            });
            assert_eq!(ledger.total_runs(), if gone == 1 { 0 } else { 4 });
            #[cfg(target_os = "linux")]
            wait_until("the worker to end", || os::workers_named("lp10d") == 0);
        }
        // With a timeout that is longer than needed, the drop returns when all tasks have ended.
        let pool = builder(2, 0)
            .shutdown_on_drop(Shutdown::Discard, Duration::MAX)
            .build()
            .unwrap();
        let ran = Arc::new(AtomicBool::new(false));
        let mark = Arc::clone(&ran);
        must_serve(&pool, move || {
            thread::sleep(ms(20));
            mark.store(true, Ordering::SeqCst);
        });
        drop(pool);
        assert!(ran.load(Ordering::SeqCst), "returned before its task ended");
    });
}

/// Law 10: if the pool is dropped on one of its own workers, the drop does not wait, and no worker
/// joins itself. Tasks of other workers and of the queue end as the mode says. See pond 49.
#[test]
fn law10_dropped_by_its_own_task() {
    timed(|| {
        for mode in MODES {
            for queue in [0, 3] {
                let pool = builder(2, queue)
                    .thread_name("lp10o")
                    .shutdown_on_drop(mode, Duration::MAX)
                    .build()
                    .unwrap();
                let pool = Arc::new(pool);
                let gate = Gate::new();
                let ledger = Ledger::new(2 + queue);
                let held = ledger.entry(0);
                let key = gate.key();
                must_serve(&pool, move || {
                    key.pass();
                    held.run();
                });
                gate.wait_entered(1);
                let (tx, rx) = mpsc::channel();
                let start = Gate::new();
                let ready = start.key();
                let inner = Arc::clone(&pool);
                let own = ledger.entry(1);
                must_serve(&pool, move || {
                    ready.pass();
                    drop(inner);
                    // Reached while the gate is shut only if the drop did not wait.
                    own.run();
                    tx.send(()).unwrap();
                });
                for id in 2..2 + queue {
                    let entry = ledger.entry(id);
                    must_serve(&pool, move || entry.run());
                }
                drop(pool);
                start.open();
                rx.recv_timeout(LIMIT).expect("the drop to return");
                assert_eq!(ledger.runs(0), 0);
                gate.open();
                wait_until("all tasks to end", || {
                    (0..2 + queue).all(|id| ledger.drops(id) == 1)
                });
                let queued = if mode == Shutdown::Drain { queue } else { 0 };
                assert_eq!(ledger.total_runs(), 2 + queued as u64, "{mode:?}");
                #[cfg(target_os = "linux")]
                wait_until("the workers to end", || os::workers_named("lp10o") == 0);
            }
        }
    });
}

/// Law 10: the last handle of a pool is dropped with a task's captures, or with its result that no
/// caller takes. See pond 49.
#[test]
fn law10_dropped_with_captures_or_results() {
    timed(|| {
        for turn in 0..rounds(60) {
            let pool = Arc::new(builder(2, 0).thread_name("lp10c").build().unwrap());
            let inner = Arc::clone(&pool);
            let gate = Gate::new();
            let key = gate.key();
            if turn % 2 == 0 {
                must_serve(&pool, move || {
                    key.pass();
                    let _captured = &inner;
                });
            } else {
                // The task is abandoned, so the worker drops the result.
                let outcome = pool.do_with_deadline(
                    move || {
                        key.pass();
                        inner
                    },
                    ms(20),
                );
                match outcome {
                    Err(DeadlineError::TimedOut | DeadlineError::Expired(_)) => {}
                    other => panic!("{other:?}"),
                }
            }
            drop(pool);
            gate.open();
        }
        #[cfg(target_os = "linux")]
        wait_until("the workers to end", || os::workers_named("lp10c") == 0);
    });
}

/// Law 10: a waiter drops the pool as soon as it is released. The worker's last steps touch no
/// freed memory. See folly 2093.
#[test]
fn law10_dropped_by_the_released_waiter() {
    timed(|| {
        for turn in 0..rounds(800) {
            let queue = (turn % 2) as usize * 2;
            let idle = if turn % 3 == 0 { ms(1) } else { ms(10_000) };
            let pool = builder(1, queue).idle_timeout(idle).build().unwrap();
            let value = pool.do_with_deadline(move || turn, LONG).unwrap();
            drop(pool);
            assert_eq!(value, turn);
        }
        // The drop happens on another thread than the one that built the pool, through a shared
        // handle.
        for turn in 0..rounds(200) {
            let pool = Arc::new(pool(2, 0));
            thread::scope(|s| {
                for _ in 0..2 {
                    let pool = Arc::clone(&pool);
                    s.spawn(move || assert_eq!(pool.do_with_deadline(|| 3, LONG).unwrap(), 3));
                }
                drop(pool);
            });
            let _ = turn;
        }
    });
}

/// Law 10: submitters race the shutdown. Each call runs its task or is refused with a reason; there
/// is no panic and no hang. See gammazero 76, pond 43, 138 and 61.
#[test]
fn law10_submitters_race_the_shutdown() {
    timed(|| {
        let handed_back = AtomicU64::new(0);
        for turn in 0..rounds(30) {
            let mode = MODES[(turn % 3) as usize];
            let queue = [0, 4, 64][(turn / 3 % 3) as usize];
            let policy = if turn % 2 == 0 {
                WhenFull::Refuse
            } else {
                WhenFull::Block
            };
            let pool = builder(3, queue)
                .when_full(policy)
                .idle_timeout(ms(1))
                .build()
                .unwrap();
            const CALLS: usize = 40;
            let ledger = Ledger::new(20 * CALLS);
            let accepted = AtomicU64::new(0);
            let start = Barrier::new(21);
            thread::scope(|s| {
                for me in 0..20 {
                    let (pool, ledger, start) = (&pool, &ledger, &start);
                    let (accepted, handed_back) = (&accepted, &handed_back);
                    s.spawn(move || {
                        start.wait();
                        for id in me * CALLS..(me + 1) * CALLS {
                            let entry = ledger.entry(id);
                            let task = move || {
                                spin(Duration::from_micros(10));
                                entry.run();
                            };
                            let refused = match me % 3 {
                                0 => match pool.serve(task) {
                                    Ok(()) => {
                                        accepted.fetch_add(1, Ordering::SeqCst);
                                        continue;
                                    }
                                    Err(refused) => refused,
                                },
                                n => {
                                    let d = if n == 1 { LONG } else { ms(3) };
                                    match pool.do_with_deadline(task, d) {
                                        Ok(()) => {
                                            assert_eq!(ledger.runs(id), 1);
                                            continue;
                                        }
                                        Err(DeadlineError::Refused(refused)) => refused,
                                        Err(
                                            DeadlineError::Expired(_) | DeadlineError::TimedOut,
                                        ) if n == 2 => continue,
                                        Err(other) => panic!("{other:?}"),
                                    }
                                }
                            };
                            assert_eq!((ledger.runs(id), ledger.drops(id)), (0, 0));
                            handed_back.fetch_add(1, Ordering::SeqCst);
                            if policy == WhenFull::Block {
                                assert!(refused.is_closed(), "{refused:?}");
                            } else {
                                assert!(refused.is_closed() || refused.is_saturated());
                            }
                        }
                    });
                }
                start.wait();
                thread::sleep(Duration::from_micros(turn % 7 * 100));
                let report = pool.shutdown(mode, Duration::MAX);
                assert!(report.is_clean());
            });
            assert_closed(&pool);
            let s = pool.stats();
            check_at_rest(&pool, &s);
            assert_eq!((s.running, s.queued, s.workers), (0, 0, 0), "{s:?}");
            assert_eq!(s.completed, ledger.total_runs(), "{s:?}");
            if mode == Shutdown::Drain {
                assert_eq!(s.discarded, 0, "{s:?}");
            }
            for id in 0..20 * CALLS {
                assert_eq!(ledger.drops(id), 1, "task {id}");
                assert!(ledger.runs(id) <= 1);
            }
        }
        assert!(handed_back.load(Ordering::SeqCst) > 0);
    });
}

/// Law 10: workers that become idle while the shutdown drains do end. Many pools, one after the
/// other, leave no thread behind. See ants 113.
#[cfg(target_os = "linux")]
#[test]
fn law10_many_pools_leave_no_thread() {
    isolated("law10_many_pools_leave_no_thread", || {
        let before = os::thread_total();
        for turn in 0..1600 {
            let pool = builder(2, (turn % 3) as usize)
                .idle_timeout(if turn % 4 == 0 { ms(1) } else { ms(10_000) })
                .build()
                .unwrap();
            must_serve(&pool, || ());
            let outcome = pool.do_with_deadline(|| 1, LONG);
            assert_eq!(outcome.unwrap(), 1);
            match turn % 4 {
                0 => drop(pool),
                n => {
                    let report = pool.shutdown(MODES[n as usize - 1], Duration::MAX);
                    assert!(report.is_clean());
                }
            }
        }
        wait_until("every thread to end", || os::thread_total() == before);
    });
}

/// Law 10: while a `Drain` waits, a queued call whose deadline passes expires. One whose deadline
/// does not pass gets its value. See pond 138, 61.
#[test]
fn law10_deadlines_pass_while_it_drains() {
    timed(|| {
        let pool = pool(1, 2);
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        thread::scope(|s| {
            let _opener = gate.opener();
            let patient = s.spawn(|| pool.do_with_deadline(|| 2, LONG));
            wait_until("a task to be queued", || pool.stats().queued == 1);
            let brief = s.spawn(|| pool.do_with_deadline(|| 1, ms(1000)));
            wait_until("both tasks to be queued", || pool.stats().queued == 2);
            let down = s.spawn(|| pool.shutdown(Shutdown::Drain, Duration::MAX));
            let expired = brief.join().unwrap();
            assert!(
                matches!(expired, Err(DeadlineError::Expired(_))),
                "{expired:?}"
            );
            assert!(!down.is_finished());
            gate.open();
            assert_eq!(patient.join().unwrap().unwrap(), 2);
            assert!(down.join().unwrap().is_clean());
        });
        let s = pool.stats();
        assert_eq!((s.completed, s.expired, s.discarded), (2, 1, 0), "{s:?}");
    });
}

/// Law 10: workers of `min_workers` that never had a task end as well. Their hooks run once each,
/// on their own threads.
#[test]
fn law10_unused_workers_end() {
    timed(|| {
        for mode in MODES {
            type Log = Mutex<Vec<(usize, thread::ThreadId)>>;
            let starts: Arc<Log> = Arc::default();
            let stops: Arc<Log> = Arc::default();
            let (a, b) = (Arc::clone(&starts), Arc::clone(&stops));
            let pool = builder(5, 0)
                .min_workers(5)
                .on_worker_start(move |slot| {
                    a.lock().unwrap().push((slot, thread::current().id()));
                })
                .on_worker_stop(move |slot| {
                    b.lock().unwrap().push((slot, thread::current().id()));
                })
                .build()
                .unwrap();
            assert!(pool.shutdown(mode, LIMIT).is_clean());
            let mut starts = starts.lock().unwrap().clone();
            let mut stops = stops.lock().unwrap().clone();
            starts.sort_unstable_by_key(|&(slot, _)| slot);
            stops.sort_unstable_by_key(|&(slot, _)| slot);
            assert_eq!(starts, stops);
            let slots: Vec<usize> = starts.iter().map(|&(slot, _)| slot).collect();
            assert_eq!(slots, [0, 1, 2, 3, 4]);
        }
    });
}

/// Law 19: after a fork without an exec, a call with a deadline in the child comes back at once
/// without having run. It does not wait for workers, which the child does not have. See rayon 708,
/// zarrs-python 195.
#[cfg(target_os = "linux")]
#[test]
fn law19_a_call_with_a_deadline_in_a_child() {
    isolated("law19_a_call_with_a_deadline_in_a_child", || {
        for queue in [0, 4] {
            let pool = builder(2, queue).build().unwrap();
            let gate = Gate::new();
            must_serve(&pool, gate.task());
            gate.wait_entered(1);
            pool.do_with_deadline(|| (), LONG).unwrap();
            wait_until("a worker to be idle", || pool.stats().idle == 1);
            // SAFETY: the child only calls the pool and `_exit`. All other threads of this program
            // sleep, so none of them holds a lock, and the C library makes its allocator usable in
            // the child.
            let child = unsafe { libc::fork() };
            assert!(child >= 0);
            if child == 0 {
                for _ in 0..3 {
                    let start = Instant::now();
                    let outcome = pool.do_with_deadline(|| 1, LONG);
                    let forked = matches!(&outcome, Err(DeadlineError::Refused(refused))
                        if matches!(refused.reason(), Refusal::Forked));
                    if !forked || start.elapsed() > LIMIT {
                        // SAFETY: `_exit` ends the child without running any code of its parent.
                        unsafe { libc::_exit(3) };
                    }
                    std::mem::forget(outcome);
                }
                // SAFETY: `_exit` ends the child without running any code of its parent.
                unsafe { libc::_exit(0) };
            }
            let mut status = 0;
            let mut ended = false;
            for _ in 0..1000 {
                // SAFETY: `status` is valid for the call; `child` is a child of this process.
                if unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child {
                    ended = true;
                    break;
                }
                thread::sleep(ms(30));
            }
            if !ended {
                // SAFETY: `child` is a child of this process that has not been waited for, so its
                // number still belongs to it.
                unsafe { libc::kill(child, libc::SIGKILL) };
            }
            assert!(ended, "the child hangs");
            assert_eq!(status, 0, "the child ended badly");
            gate.open();
            // The fork has not changed the parent's pool.
            assert_eq!(pool.do_with_deadline(|| 2, LONG).unwrap(), 2);
        }
    });
}
