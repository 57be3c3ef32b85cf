//! Law 15 (scope), and the parts of laws 9, 10 and 14 about scopes. Programs that must not compile
//! are documentation tests.

mod common;

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{task, Pool, Refusal, Refused, Scope, Shutdown, WhenFull};

/// Law 15: `scope` returns the result of its closure once every task served in it has ended. Tasks
/// can borrow from outside, also mutably.
#[test]
fn law15_scope_waits_for_every_task() {
    timed(|| {
        for (max, queue) in [(1, 0), (2, 0), (3, 16)] {
            let pool = pool(max, queue);
            for _ in 0..rounds(200) {
                let mut numbers = [0_u64; 24];
                let sum = AtomicU64::new(0);
                let text = pool.scope(|scope| {
                    for (i, number) in (1..).zip(&mut numbers) {
                        let sum = &sum;
                        scope.serve_or_run(move || {
                            *number = i;
                            thread::yield_now();
                            sum.fetch_add(i, Ordering::Relaxed);
                        });
                    }
                    "returned"
                });
                assert_eq!(text, "returned");
                assert_eq!(numbers.iter().sum::<u64>(), 300);
                assert_eq!(sum.into_inner(), 300);
            }
            assert_eq!(pool.scope(|_| 5), 5);
        }
    });
}

/// Law 15: `scope` waits for a slow task, however early its closure returns.
#[test]
fn law15_scope_does_not_return_early() {
    timed(|| {
        for queue in [0, 2] {
            let pool = pool(1, queue);
            let gate = Gate::new();
            let done = AtomicBool::new(false);
            thread::scope(|s| {
                let _opener = gate.opener();
                let call = s.spawn(|| {
                    let key = gate.key();
                    pool.scope(|scope| {
                        let (key, done) = (&key, &done);
                        scope
                            .serve(move || {
                                key.pass();
                                done.store(true, Ordering::SeqCst);
                            })
                            .unwrap();
                    });
                    done.load(Ordering::SeqCst)
                });
                gate.wait_entered(1);
                thread::sleep(ms(20));
                assert!(!call.is_finished());
                gate.open();
                assert!(call.join().unwrap(), "returned before its task had ended");
            });
        }
    });
}

/// Law 9: when a scope's wait ends, its tasks are counted and their workers are free.
#[test]
fn law09_after_a_scope_all_is_counted_and_free() {
    timed(|| {
        for (max, queue) in [(1, 0), (3, 0), (2, 4)] {
            let pool = pool(max, queue);
            let cap = (max + queue) as u64;
            for round in 1..=rounds(300) {
                let captured = Arc::new(());
                pool.scope(|scope| {
                    for _ in 0..cap {
                        let captured = Arc::clone(&captured);
                        // The previous scope left no worker occupied, so no task may be refused.
                        scope.serve(move || drop(captured)).unwrap();
                    }
                });
                assert_eq!(Arc::strong_count(&captured), 1);
                let s = pool.stats();
                assert_eq!(
                    (s.completed, s.accepted),
                    (round * cap, round * cap),
                    "{s:?}"
                );
                assert_eq!((s.running, s.queued, s.idle), (0, 0, s.workers), "{s:?}");
                check_at_rest(&pool, &s);
            }
        }
    });
}

/// Law 15: a panic in a task is raised again in the caller, with its payload, once all tasks have
/// ended.
#[test]
fn law15_a_tasks_panic_is_raised_after_all_have_ended() {
    timed(|| {
        for queue in [0, 4] {
            let pool = pool(3, queue);
            for _ in 0..rounds(30) {
                let ended = AtomicUsize::new(0);
                let returned = AtomicBool::new(false);
                let caught = panic::catch_unwind(AssertUnwindSafe(|| {
                    pool.scope(|scope| {
                        let ended = &ended;
                        scope.serve(|| quiet_panic("from a task")).unwrap();
                        for _ in 0..2 {
                            scope
                                .serve(move || {
                                    thread::sleep(ms(2));
                                    ended.fetch_add(1, Ordering::SeqCst);
                                })
                                .unwrap();
                        }
                        returned.store(true, Ordering::SeqCst);
                    });
                }));
                let payload = caught.expect_err("raised again");
                assert_eq!(payload.downcast_ref::<&str>(), Some(&"from a task"));
                assert_eq!(ended.load(Ordering::SeqCst), 2);
                assert!(
                    returned.load(Ordering::SeqCst),
                    "the closure ran to its end"
                );
                assert_eq!(pool.stats().running, 0);
            }
            let s = pool.stats();
            assert_eq!(
                (s.panicked, s.completed),
                (rounds(30), 2 * rounds(30)),
                "{s:?}"
            );
            assert_cap_usable(&pool);
        }
    });
}

/// Law 15: if several tasks panic, one of the panics is raised. A panic in the drop of a capture
/// counts as one.
#[test]
fn law15_several_panics() {
    timed(|| {
        let pool = pool(4, 0);
        let caught = panic::catch_unwind(AssertUnwindSafe(|| {
            pool.scope(|scope| {
                for _ in 0..4 {
                    scope.serve(|| quiet_panic("one of them")).unwrap();
                }
            });
        }));
        let payload = caught.expect_err("raised again");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"one of them"));
        let bomb = Bomb("capture");
        let caught = panic::catch_unwind(AssertUnwindSafe(|| {
            pool.scope(|scope| {
                scope
                    .serve(move || {
                        let _captured = &bomb;
                    })
                    .unwrap();
            });
        }));
        let payload = caught.expect_err("raised again");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"capture"));
        let s = pool.stats();
        assert_eq!((s.panicked, s.completed), (5, 0), "{s:?}");
    });
}

/// Laws 7 and 15: if a task has panicked, and then the drop of the scope's value panics too, the
/// task's payload is raised.
#[test]
fn law15_a_value_that_panics_beside_a_task() {
    timed(|| {
        let pool = pool(2, 0);
        let caught = panic::catch_unwind(AssertUnwindSafe(|| {
            pool.scope(|scope| {
                scope.serve(|| quiet_panic("task")).unwrap();
                Bomb("value")
            })
        }));
        let payload = caught.map(|_| ()).expect_err("raised again");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"task"));
    });
}

/// Law 15: borrowed data is not touched after `scope` returns, even if the scope's closure panics.
/// Its panic is raised once all tasks have ended.
#[test]
fn law15_the_closures_own_panic_waits_too() {
    timed(|| {
        for tasks_panic in [false, true] {
            for queue in [0, 3] {
                let pool = pool(2, queue);
                for _ in 0..rounds(30) {
                    let mut data = [0_u8; 64];
                    let touched = AtomicUsize::new(0);
                    let caught = panic::catch_unwind(AssertUnwindSafe(|| {
                        pool.scope(|scope| {
                            let (left, right) = data.split_at_mut(32);
                            for half in [left, right] {
                                let touched = &touched;
                                scope
                                    .serve(move || {
                                        thread::sleep(ms(1));
                                        half.fill(7);
                                        touched.fetch_add(1, Ordering::SeqCst);
                                        if tasks_panic {
                                            quiet_panic("task");
                                        }
                                    })
                                    .unwrap();
                            }
                            quiet_panic("closure");
                        });
                    }));
                    let payload = caught.expect_err("the closure's panic is raised");
                    let message = payload.downcast_ref::<&str>().expect("a message");
                    assert!(*message == "closure" || tasks_panic, "{message}");
                    assert_eq!(touched.load(Ordering::SeqCst), 2);
                    assert!(data.iter().all(|&byte| byte == 7));
                    data.fill(0);
                    thread::yield_now();
                    assert!(
                        data.iter().all(|&byte| byte == 0),
                        "the data was touched after the scope"
                    );
                }
            }
        }
    });
}

/// Laws 10 and 15: no shutdown discards an accepted task of a scope, not even a queued one. The
/// tasks see a `Cancel`. Afterwards the scope's `serve` is refused as `Closed`.
#[test]
fn law10_law15_no_shutdown_discards_a_scopes_tasks() {
    timed(|| {
        for mode in [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel] {
            let pool = pool(1, 6);
            let gate = Gate::new();
            let ledger = Ledger::new(4);
            let cancelled = AtomicUsize::new(0);
            let (tx, rx) = mpsc::channel();
            pool.scope(|scope| {
                let _opener = gate.opener();
                let key = gate.key();
                scope.serve(move || key.pass()).unwrap();
                gate.wait_entered(1);
                // They lie between tasks without a scope, which are discarded.
                for id in 0..4 {
                    let (entry, cancelled) = (ledger.entry(id), &cancelled);
                    if id % 2 == 0 {
                        let tx = tx.clone();
                        must_serve(&pool, move || tx.send(id).unwrap());
                    }
                    scope
                        .serve(move || {
                            entry.run();
                            cancelled.fetch_add(task::is_cancelled().into(), Ordering::SeqCst);
                        })
                        .unwrap();
                }
                let report = pool.shutdown(mode, ms(2));
                assert!(!report.is_clean());
                let gone = if mode == Shutdown::Drain { 0 } else { 2 };
                assert_eq!(report.discarded, gone);
                let s = pool.stats();
                assert_eq!(s.queued as u64, 6 - gone, "{s:?}");
                assert_eq!(ledger.total_runs(), 0);
                let refused = scope.serve(|| ()).unwrap_err();
                assert!(refused.is_closed(), "{refused:?}");
            });
            ledger.assert_all_ran();
            let seen = if mode == Shutdown::Cancel { 4 } else { 0 };
            assert_eq!(cancelled.load(Ordering::SeqCst), seen, "{mode:?}");
            let report = pool.shutdown(mode, LIMIT);
            assert!(report.is_clean());
            drop(tx);
            let others = rx.iter().count() as u64;
            assert_eq!(others + report.discarded, 2);
            check_at_rest(&pool, &pool.stats());
            // In a scope of a closed pool no task runs, and every closure comes back.
            let mut ran_here = false;
            pool.scope(|scope| {
                scope.serve_or_run(|| ran_here = true);
            });
            assert!(ran_here);
        }
    });
}

/// Laws 10 and 15: while shutdowns race scopes, every accepted task runs before its scope returns.
#[test]
fn law15_shutdown_races_scopes() {
    timed(|| {
        for turn in 0..rounds(60) {
            let modes = [Shutdown::Discard, Shutdown::Cancel, Shutdown::Drain];
            let mode = modes[(turn % 3) as usize];
            let pool = pool(2, (turn % 4) as usize * 3);
            thread::scope(|s| {
                for _ in 0..4 {
                    s.spawn(|| {
                        for _ in 0..50 {
                            let ran = AtomicU64::new(0);
                            let mut accepted = 0;
                            pool.scope(|scope| {
                                for _ in 0..4 {
                                    let ran = &ran;
                                    let task = move || {
                                        ran.fetch_add(1, Ordering::SeqCst);
                                    };
                                    accepted += u64::from(scope.serve(task).is_ok());
                                }
                            });
                            assert_eq!(ran.load(Ordering::SeqCst), accepted);
                        }
                    });
                }
                thread::sleep(Duration::from_micros(turn % 8 * 60));
                let report = pool.shutdown(mode, Duration::MAX);
                assert!(report.is_clean());
                assert_eq!(report.discarded, 0);
            });
            check_at_rest(&pool, &pool.stats());
        }
    });
}

/// Law 15: if the pool refuses a task, for any reason, `serve_or_run` runs it on the calling thread
/// before it returns. A panic of the task then unwinds through the scope like one of its closure.
#[test]
fn law15_serve_or_run_loses_nothing() {
    timed(|| {
        let here = thread::current().id();
        let pool = pool(1, 0);
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let mut ran_on = Vec::new();
        pool.scope(|scope| {
            let mut inner = None;
            pool.scope(|scope| scope.serve_or_run(|| inner = Some(thread::current().id())));
            assert_eq!(inner, Some(here), "the pool is saturated");
            scope.serve_or_run(|| ran_on.push(thread::current().id()));
        });
        assert_eq!(ran_on, [here]);
        gate.open();
        settle(&pool);
        pool.scope(|scope| scope.serve_or_run(|| ran_on.push(thread::current().id())));
        assert_ne!(ran_on[1], here, "the pool has a free worker");
        pool.shutdown(Shutdown::Drain, LIMIT);
        pool.scope(|scope| scope.serve_or_run(|| ran_on.push(thread::current().id())));
        assert_eq!(ran_on[2], here, "the pool is closed");
        let caught = std::panic::catch_unwind(|| {
            pool.scope(|scope| scope.serve_or_run(|| quiet_panic("here")));
        });
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"here"));
    });
}

/// Law 15: tasks may serve further tasks into their scope, and scopes may be nested.
#[test]
fn law15_scopes_grow_and_nest() {
    fn spread<'scope>(scope: &'scope Scope<'scope, '_>, ran: &'scope AtomicU64, depth: u32) {
        ran.fetch_add(1, Ordering::SeqCst);
        if depth > 0 {
            for _ in 0..2 {
                scope.serve_or_run(move || spread(scope, ran, depth - 1));
            }
        }
    }
    timed(|| {
        for (max, queue) in [(1, 0), (3, 0), (2, 32)] {
            let pool = pool(max, queue);
            for _ in 0..rounds(30) {
                let ran = AtomicU64::new(0);
                pool.scope(|scope| spread(scope, &ran, 5));
                assert_eq!(ran.load(Ordering::SeqCst), 63);

                let log = Mutex::new(Vec::new());
                pool.scope(|outer| {
                    let (pool, log) = (&pool, &log);
                    outer.serve_or_run(move || {
                        pool.scope(|inner| {
                            inner.serve_or_run(|| log.lock().unwrap().push("inner"));
                        });
                        log.lock().unwrap().push("outer");
                    });
                });
                assert_eq!(*log.lock().unwrap(), ["inner", "outer"]);
            }
        }
    });
}

/// Law 14: on a worker of its own pool, `Scope::serve` never queues and never waits for room. An
/// idle or new worker takes the task; if there is neither, it is refused as `OnWorker` even though
/// the queue has room.
#[test]
fn law14_scope_serve_on_a_worker_never_queues() {
    timed(|| {
        for policy in [WhenFull::Refuse, WhenFull::Block] {
            let pool = Arc::new(
                Pool::builder()
                    .max_workers(2)
                    .queue_capacity(4)
                    .when_full(policy)
                    .build()
                    .unwrap(),
            );
            let inner = Arc::clone(&pool);
            let outcome = pool.do_with_deadline(
                move || {
                    let gate = Gate::new();
                    inner.scope(|scope| {
                        let _opener = gate.opener();
                        // A new worker takes the first task; no worker is left for the second.
                        let key = gate.key();
                        scope.serve(move || key.pass()).unwrap();
                        let refused = scope.serve(|| ()).unwrap_err();
                        assert_eq!(inner.stats().queued, 0);
                        matches!(refused.reason(), Refusal::OnWorker)
                    })
                },
                LONG,
            );
            assert!(outcome.unwrap());
            let s = settle(&pool);
            assert_eq!((s.spawned, s.refused, s.completed), (2, 1, 2), "{s:?}");
            // On another thread the task is queued.
            let gate = Gate::new();
            must_serve(&pool, gate.task());
            must_serve(&pool, gate.task());
            gate.wait_entered(2);
            pool.scope(|scope| {
                let _opener = gate.opener();
                scope.serve(|| ()).unwrap();
                assert_eq!(pool.stats().queued, 1);
            });
        }
    });
}

/// Law 14: a worker that opened a scope waits for each of its tasks. So none of these is queued or
/// waits for room, whichever thread serves it: that worker may be the only one.
#[test]
fn law14_nothing_queues_in_a_scope_that_a_worker_opened() {
    timed(|| {
        for policy in [WhenFull::Refuse, WhenFull::Block] {
            let builder = Pool::builder().max_workers(1).queue_capacity(4);
            let pool = Arc::new(builder.when_full(policy).build().unwrap());
            let other = Pool::new(1).unwrap();
            let inner = Arc::clone(&pool);
            let outcome = pool.do_with_deadline(
                move || {
                    inner.scope(|scope| {
                        let serve = || scope.serve(|| ()).map_err(Refused::without_closure);
                        let by_thread = thread::scope(|s| s.spawn(serve).join().unwrap());
                        let mut by_worker = Ok(());
                        other.scope(|s| {
                            s.serve(|| by_worker = serve()).unwrap();
                        });
                        [by_thread, by_worker]
                            .map(|served| matches!(served.unwrap_err().reason(), Refusal::OnWorker))
                    })
                },
                LONG,
            );
            assert_eq!(outcome.unwrap(), [true; 2]);
            let s = settle(&pool);
            assert_eq!((s.refused, s.completed), (2, 1), "{s:?}");
        }
    });
}

/// A scope's tasks have no deadline and no label; in all else they are like other tasks.
#[test]
fn a_scopes_tasks_look_like_served_ones() {
    timed(|| {
        let pool = pool(1, 0);
        let mut seen = None;
        pool.scope(|scope| {
            scope
                .serve(|| {
                    let slot = task::slot();
                    let quiet = !task::is_cancelled() && task::remaining().is_none();
                    seen = Some((task::deadline(), task::label(), slot, quiet));
                })
                .unwrap();
        });
        assert_eq!(seen, Some((None, None, Some(0), true)));
        // Refused closures come back with their borrows.
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        let mut text = String::from("borrowed");
        pool.scope(|scope| {
            let refused = scope.serve(|| text.push('!')).unwrap_err();
            assert!(refused.is_saturated());
            assert!(refused.caller_runs().is_ok());
        });
        assert_eq!(text, "borrowed!");
    });
}

/// Law 15 with large closures, which do not fit a slot, and with captures that borrow and have
/// drops.
#[test]
fn law15_large_closures_and_drops() {
    struct Mark<'a>(&'a AtomicUsize);
    impl Drop for Mark<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    timed(|| {
        for (max, queue) in [(1, 0), (2, 4)] {
            let pool = pool(max, queue);
            for _ in 0..rounds(100) {
                let drops = AtomicUsize::new(0);
                let sum = AtomicU64::new(0);
                pool.scope(|scope| {
                    for i in 0..6 {
                        let (mark, sum) = (Mark(&drops), &sum);
                        let load = [i; 50];
                        scope.serve_or_run(move || {
                            let _mark = &mark;
                            sum.fetch_add(load.iter().sum::<u64>(), Ordering::SeqCst);
                        });
                    }
                });
                assert_eq!(drops.load(Ordering::SeqCst), 6);
                assert_eq!(sum.load(Ordering::SeqCst), 15 * 50);
            }
        }
    });
}
