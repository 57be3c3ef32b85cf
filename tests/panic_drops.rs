//! Law 7 (panic), law 8 (drops) and law 16 (around).

mod common;

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use common::*;
use lazypool::{task, Builder, DeadlineError, Panic, Pool, Shutdown, Stats};

fn pool(max: usize, queue: usize) -> Pool {
    builder(max, queue).build().expect("pool")
}

fn builder(max: usize, queue: usize) -> Builder {
    Pool::builder()
        .max_workers(max)
        .queue_capacity(queue)
        .idle_timeout(Duration::MAX)
}

/// Returns the panic that the caller got.
#[track_caller]
fn panicked<F, R>(outcome: Result<R, DeadlineError<F>>) -> Panic {
    match outcome {
        Err(DeadlineError::Panicked(panic)) => panic,
        Err(other) => panic!("expected a panic, got {other:?}"),
        Ok(_) => panic!("expected a panic, got a value"),
    }
}

/// A payload whose drop panics with a payload whose drop panics, and so on.
struct Nested(u32);

impl Drop for Nested {
    fn drop(&mut self) {
        if self.0 > 0 && !thread::panicking() {
            panic::resume_unwind(Box::new(Nested(self.0 - 1)));
        }
    }
}

// ---------------------------------------------------------------------------------------------
// Law 7
// ---------------------------------------------------------------------------------------------

/// Law 7: a waiting caller gets the payload, of any type, and can raise the panic again.
#[test]
fn law07_the_caller_gets_the_payload() {
    timed(|| {
        for queue in [0, 2] {
            let pool = pool(1, queue);
            let call = |f: fn()| panicked(pool.do_with_deadline(f, LONG));

            assert_eq!(call(|| panic!("plain")).message().as_deref(), Some("plain"));
            assert_eq!(
                call(|| panic!("with {}", "parts")).message().as_deref(),
                Some("with parts")
            );
            let odd = call(|| panic::panic_any(17_u64));
            assert_eq!(odd.message(), None);
            let odd = odd.downcast::<String>().expect_err("not a String");
            assert_eq!(*odd.downcast::<u64>().expect("a u64"), 17);
            let boxed: Box<dyn Any + Send> = call(|| panic::panic_any(18_u8)).into_inner();
            assert_eq!(boxed.downcast_ref::<u8>(), Some(&18));
            let raised = call(|| panic::panic_any("again"));
            let again = panic::catch_unwind(AssertUnwindSafe(|| raised.resume())).unwrap_err();
            assert_eq!(again.downcast_ref::<&str>(), Some(&"again"));

            let s = pool.stats();
            assert_eq!((s.panicked, s.completed, s.spawned), (5, 0, 1), "{s:?}");
            assert_eq!((s.running, s.idle, s.hook_panics), (0, 1, 0), "{s:?}");
        }
    });
}

/// Law 7: a panic ends neither worker nor pool, whichever verb submitted the task. The same worker
/// runs the next tasks.
#[test]
fn law07_the_worker_survives() {
    timed(|| {
        for queue in [0, 4] {
            let pool = pool(1, queue);
            for i in 1..=rounds(200) {
                must_serve(&pool, || quiet_panic("served"));
                let s = settle(&pool);
                assert_eq!(s.panicked, 2 * i - 1, "{s:?}");
                panicked(pool.do_with_deadline(|| quiet_panic("called"), Duration::MAX));
                assert_eq!(
                    pool.stats().panicked,
                    2 * i,
                    "the panic is counted when the call returns"
                );
                assert_eq!(pool.do_with_deadline(|| 5, Duration::MAX).unwrap(), 5);
            }
            let s = pool.stats();
            assert_eq!((s.spawned, s.retired, s.refused), (1, 0, 0), "{s:?}");
            assert_eq!(s.completed, rounds(200), "{s:?}");
            check_at_rest(&pool, &s);
        }
    });
}

/// Law 7: in each of cap + 1 rounds every task panics. All slots are usable again at once. See ants
/// 146, fasthttp 2219.
#[test]
fn law07_slots_are_usable_at_once() {
    timed(|| {
        for (max, queue) in [(1, 0), (3, 0), (4, 4)] {
            let pool = pool(max, queue);
            for round in 0..=max + queue {
                let gate = Gate::new();
                for i in 0..max + queue {
                    let key = gate.key();
                    let task = move || {
                        key.pass();
                        quiet_panic("meant")
                    };
                    if let Err(refused) = pool.serve(task) {
                        panic!("round {round}, task {i}: {refused:?}");
                    }
                }
                saturated(pool.serve(|| ()));
                gate.open();
                settle(&pool);
            }
            assert_cap_usable(&pool);
            let s = pool.stats();
            let tasks = (max + queue + 1) * (max + queue);
            assert_eq!((s.panicked, s.spawned), (tasks as u64, max as u64), "{s:?}");
        }
    });
}

/// Law 7: if the drop of a capture panics, the task counts once, as panicked. Its caller gets that
/// payload and no value.
#[test]
fn law07_a_captures_drop_panics() {
    timed(|| {
        for queue in [0, 2] {
            let hooks = Arc::new(AtomicU64::new(0));
            let seen = Arc::clone(&hooks);
            let pool = builder(1, queue)
                .on_panic(move |panic| {
                    assert_eq!(panic.message().as_deref(), Some("capture"));
                    seen.fetch_add(1, Ordering::SeqCst);
                })
                .build()
                .unwrap();
            let ran = Arc::new(AtomicU64::new(0));
            for i in 1..=20 {
                let bomb = Bomb("capture");
                let mark = Arc::clone(&ran);
                let panic = panicked(pool.do_with_deadline(
                    move || {
                        let _captured = &bomb;
                        mark.fetch_add(1, Ordering::SeqCst)
                    },
                    LONG,
                ));
                assert_eq!(panic.message().as_deref(), Some("capture"));
                let s = pool.stats();
                assert_eq!((s.panicked, s.completed), (2 * i - 1, 0), "{s:?}");

                let bomb = Bomb("capture");
                let mark = Arc::clone(&ran);
                must_serve(&pool, move || {
                    let _captured = &bomb;
                    mark.fetch_add(1, Ordering::SeqCst);
                });
                let s = settle(&pool);
                assert_eq!((s.panicked, s.completed), (2 * i, 0), "{s:?}");
                assert_eq!(hooks.load(Ordering::SeqCst), 2 * i);
            }
            assert_eq!(ran.load(Ordering::SeqCst), 40);
            let s = pool.stats();
            assert_eq!((s.spawned, s.hook_panics), (1, 0), "{s:?}");
            pool.do_with_deadline(|| (), Duration::MAX).unwrap();
        }
    });
}

/// Law 7: if the drop of a result panics after its caller left, the task counts once, as panicked.
/// If the result was delivered, the caller drops it, and the task counts as completed.
#[test]
fn law07_an_abandoned_results_drop_panics() {
    timed(|| {
        for queue in [0, 2] {
            let pool = pool(1, queue);
            let mut abandoned = 0;
            for round in 0.. {
                // A slow machine may start none of the first ten tasks in time.
                if round >= 10 && abandoned > 0 {
                    break;
                }
                let gate = Gate::new();
                let key = gate.key();
                let outcome = pool.do_with_deadline(
                    move || {
                        key.pass();
                        Bomb("result")
                    },
                    ms(20),
                );
                match outcome {
                    Err(DeadlineError::TimedOut) => abandoned += 1,
                    Err(DeadlineError::Expired(_)) => {}
                    other => panic!("{other:?}"),
                }
                gate.open();
                let s = settle(&pool);
                assert_eq!((s.panicked, s.completed), (abandoned, 0), "{s:?}");
                assert_eq!(s.timed_out, abandoned, "{s:?}");
                check_at_rest(&pool, &s);
            }
            let bomb = pool.do_with_deadline(|| Bomb("mine"), LONG).unwrap();
            assert_eq!(pool.stats().completed, 1);
            let drop_it = panic::catch_unwind(AssertUnwindSafe(|| drop(bomb)));
            assert!(drop_it.is_err());
            assert_eq!(pool.stats().spawned, 1);
        }
    });
}

/// Law 7: no caller takes the payload of a served or abandoned task. The payload's drop panics, and
/// so does the drop of that panic's payload.
#[test]
fn law07_a_payloads_drop_panics() {
    timed(|| {
        for queue in [0, 2] {
            let pool = pool(1, queue);
            for depth in 1..5 {
                must_serve(&pool, move || {
                    panic::resume_unwind(Box::new(Nested(depth)));
                });
                let s = settle(&pool);
                assert_eq!(s.panicked, u64::from(depth), "each task counts once: {s:?}");
            }
            let gate = Gate::new();
            let key = gate.key();
            let outcome = pool.do_with_deadline(
                move || {
                    key.pass();
                    panic::resume_unwind(Box::new(Nested(3)))
                },
                ms(1000),
            );
            match outcome {
                Err::<(), _>(DeadlineError::TimedOut) => {}
                other => panic!("{other:?}"),
            }
            gate.open();
            let s = settle(&pool);
            assert_eq!((s.panicked, s.completed, s.timed_out), (5, 0, 1), "{s:?}");
            assert_eq!((s.spawned, s.hook_panics), (1, 0), "{s:?}");
            pool.do_with_deadline(|| (), Duration::MAX).unwrap();
            check_at_rest(&pool, &pool.stats());
        }
    });
}

/// Law 7: `on_panic` runs on the worker before the caller gets the payload. It gets the task's
/// slot, label and payload.
#[test]
fn law07_on_panic_runs_before_the_caller_is_released() {
    timed(|| {
        for queue in [0, 2] {
            type Report = (usize, Option<&'static str>, Option<String>, ThreadId);
            let reports: Arc<Mutex<Vec<Report>>> = Arc::default();
            let sink = Arc::clone(&reports);
            let pool = builder(2, queue)
                .on_panic(|_| panic!("replaced: a hook set twice counts once"))
                .on_panic(move |panic| {
                    // Long enough for the test to notice a caller that is released too early.
                    thread::sleep(ms(2));
                    sink.lock().unwrap().push((
                        panic.slot,
                        panic.label,
                        panic.message(),
                        thread::current().id(),
                    ));
                })
                .build()
                .unwrap();
            for i in 0..20 {
                let (tx, rx) = mpsc::channel();
                let task = move || {
                    tx.send((task::slot().unwrap(), thread::current().id()))
                        .unwrap();
                    quiet_panic("reported")
                };
                let (label, outcome) = if i % 2 == 0 {
                    (None, pool.do_with_deadline(task, LONG))
                } else {
                    let view = pool.labeled("named");
                    (Some("named"), view.do_with_deadline(task, Duration::MAX))
                };
                let report = reports.lock().unwrap().pop();
                panicked::<_, ()>(outcome);
                let (slot, thread) = rx.recv().unwrap();
                let message = Some("reported".to_owned());
                assert_eq!(report, Some((slot, label, message, thread)));
            }
            // The hook also runs under `serve`, and for a payload that is not a message.
            pool.labeled("served")
                .serve(|| panic::resume_unwind(Box::new(3_i32)))
                .unwrap();
            settle(&pool);
            let (_, label, message, _) = reports.lock().unwrap().pop().expect("a report");
            assert_eq!((label, message), (Some("served"), None));
            // A task that does not panic is not reported.
            pool.do_with_deadline(|| (), LONG).unwrap();
            assert!(reports.lock().unwrap().is_empty());
            assert_eq!(pool.stats().hook_panics, 0);
        }
    });
}

/// Law 7: `on_panic` sees the payload itself.
#[test]
fn law07_on_panic_sees_the_payload() {
    timed(|| {
        let sum = Arc::new(AtomicU64::new(0));
        let sink = Arc::clone(&sum);
        let pool = builder(1, 0)
            .on_panic(move |panic| {
                if let Some(n) = panic.payload.downcast_ref::<u64>() {
                    sink.fetch_add(*n, Ordering::SeqCst);
                }
            })
            .build()
            .unwrap();
        let call = |n: u64| {
            panicked(pool.do_with_deadline(move || panic::resume_unwind(Box::new(n)), LONG))
                as Panic
        };
        assert_eq!(*call(40).downcast::<u64>().unwrap(), 40);
        assert_eq!(*call(2).downcast::<u64>().unwrap(), 2);
        assert_eq!(sum.load(Ordering::SeqCst), 42);
    });
}

/// Law 7: a panic of a hook ends no worker, changes no task's outcome and counts in `hook_panics`.
/// This holds for every hook, even if the drop of its payload panics.
#[test]
fn law07_hooks_panic() {
    timed(|| {
        for queue in [0, 2] {
            let stops = Arc::new(AtomicU64::new(0));
            let starts = Arc::new(AtomicU64::new(0));
            let (started, stopped) = (Arc::clone(&starts), Arc::clone(&stops));
            let pool = builder(2, queue)
                .on_worker_start(move |_| {
                    started.fetch_add(1, Ordering::SeqCst);
                    panic::resume_unwind(Box::new(Nested(2)))
                })
                .on_worker_stop(move |_| {
                    stopped.fetch_add(1, Ordering::SeqCst);
                    panic::resume_unwind(Box::new(Nested(2)))
                })
                .on_panic(|_| panic::resume_unwind(Box::new(Nested(2))))
                .build()
                .unwrap();
            assert_eq!(pool.do_with_deadline(|| 1, LONG).unwrap(), 1);
            assert_eq!(pool.stats().hook_panics, 1, "on_worker_start");
            for i in 1..=10 {
                let panic = panicked(pool.do_with_deadline(|| quiet_panic("task"), LONG));
                assert_eq!(panic.message().as_deref(), Some("task"));
                let s = pool.stats();
                assert_eq!((s.panicked, s.hook_panics), (i, 1 + i), "{s:?}");
                assert_eq!((s.spawned, s.completed), (1, i), "{s:?}");
                assert_eq!(pool.do_with_deadline(|| 2, LONG).unwrap(), 2);
            }
            assert_cap_usable(&pool);
            let s = pool.stats();
            assert_eq!((s.spawned, s.hook_panics), (2, 12), "{s:?}");
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
            let s = pool.stats();
            assert_eq!((s.retired, s.workers, s.hook_panics), (2, 0, 14), "{s:?}");
            assert_eq!(starts.load(Ordering::SeqCst), 2);
            assert_eq!(stops.load(Ordering::SeqCst), 2);
            check_at_rest(&pool, &s);
        }
    });
}

/// Laws 7 and 9: workers end by retirement, by shutdown and with panicking hooks, after tasks that
/// panic in every way. The count of workers is exact, and the full cap is usable again. See ants
/// 50.
#[test]
fn law07_law09_workers_end_by_every_path() {
    timed(|| {
        for queue in [0, 3] {
            let pool = Pool::builder()
                .max_workers(3)
                .queue_capacity(queue)
                .idle_timeout(ms(5))
                .on_worker_stop(|slot| {
                    if slot % 2 == 0 {
                        quiet_panic("stop");
                    }
                })
                .on_worker_start(|slot| {
                    if slot % 2 == 1 {
                        quiet_panic("start");
                    }
                })
                .on_panic(|_| quiet_panic("hook"))
                .build()
                .unwrap();
            for _ in 0..rounds(8) {
                assert_cap_usable(&pool);
                for kind in 0..12 {
                    let task = move || match kind % 4 {
                        0 => quiet_panic("task"),
                        1 => panic::resume_unwind(Box::new(Nested(2))),
                        2 => {
                            let _late = Bomb("inside");
                        }
                        _ => {}
                    };
                    let _ = pool.serve(task);
                    let bomb = (kind % 3 == 0).then(|| Bomb("capture"));
                    let outcome = pool.do_with_deadline(
                        move || {
                            let _captured = &bomb;
                        },
                        ms(100),
                    );
                    // The drop of a closure that comes back would panic here, so it is forgotten.
                    if let Err(error) = outcome {
                        std::mem::forget(error.into_inner());
                    }
                }
                let s = settle(&pool);
                check_at_rest(&pool, &s);
                // A worker in its stop hook would still occupy its slot when the next round begins.
                wait_until("workers to retire", || pool.stats().workers == 0);
                let s = pool.stats();
                assert_eq!((s.idle, s.spawned), (0, s.retired), "{s:?}");
            }
            assert_cap_usable(&pool);
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
            let s = pool.stats();
            assert_eq!((s.workers, s.idle, s.running), (0, 0, 0), "{s:?}");
            check_at_rest(&pool, &s);
        }
    });
}

/// Law 7: a task that panics after its caller left counts once, as panicked, and is reported.
#[test]
fn law07_an_abandoned_task_panics() {
    timed(|| {
        let reports = Arc::new(AtomicU64::new(0));
        let sink = Arc::clone(&reports);
        let pool = builder(1, 0)
            .on_panic(move |_| {
                sink.fetch_add(1, Ordering::SeqCst);
            })
            .build()
            .unwrap();
        let gate = Gate::new();
        let key = gate.key();
        let outcome = pool.do_with_deadline(
            move || {
                key.pass();
                quiet_panic("late")
            },
            ms(1000),
        );
        match outcome {
            Err::<(), _>(DeadlineError::TimedOut) => {}
            other => panic!("{other:?}"),
        }
        gate.open();
        let s = settle(&pool);
        assert_eq!((s.panicked, s.completed, s.timed_out), (1, 0, 1), "{s:?}");
        assert_eq!(reports.load(Ordering::SeqCst), 1);
    });
}

// ---------------------------------------------------------------------------------------------
// Law 8
// ---------------------------------------------------------------------------------------------

/// Reports on which thread it is dropped.
struct Tell(mpsc::Sender<ThreadId>);

impl Drop for Tell {
    fn drop(&mut self) {
        let _ = self.0.send(thread::current().id());
    }
}

/// Law 8: captures are dropped on the worker before the caller is released. This holds if the
/// closure returns or panics, uses its captures or not, and fits a slot or not.
#[test]
fn law08_captures_are_gone_when_the_call_returns() {
    timed(|| {
        for queue in [0, 2] {
            let pool = pool(2, queue);
            for i in 0..rounds(300) {
                let (tx, rx) = mpsc::channel();
                let tell = Tell(tx);
                let shared = Arc::new(());
                let held = Arc::clone(&shared);
                let weight = [i; 40];
                let on: ThreadId = match i % 3 {
                    0 => pool
                        .do_with_deadline(
                            move || {
                                let _captured = (&tell, &held);
                                thread::current().id()
                            },
                            Duration::MAX,
                        )
                        .unwrap(),
                    1 => pool
                        .do_with_deadline(
                            move || {
                                let _captured = (&tell, &held);
                                assert_eq!(weight[39], i);
                                thread::current().id()
                            },
                            LONG,
                        )
                        .unwrap(),
                    _ => *panicked(pool.do_with_deadline(
                        move || {
                            let _captured = (&tell, &held);
                            panic::resume_unwind(Box::new(thread::current().id()))
                        },
                        LONG,
                    ) as Result<(), _>)
                    .downcast()
                    .unwrap(),
                };
                assert_eq!(Arc::strong_count(&shared), 1, "captures outlive the call");
                assert_eq!(
                    rx.try_recv(),
                    Ok(on),
                    "dropped elsewhere than on the worker"
                );
                assert_ne!(on, thread::current().id());
            }
        }
    });
}

/// Law 8: a mebibyte captured by a task that has ended is freed before its caller returns. After a
/// time-out it is freed once the task ends. See pond 110.
#[test]
fn law08_captured_memory_is_gone() {
    timed(|| {
        let pool = pool(1, 1);
        let size = cut(1 << 20) as usize;
        for _ in 0..rounds(50) {
            let memory = Arc::new(vec![1_u8; size]);
            let weak = Arc::downgrade(&memory);
            let sum = pool.do_with_deadline(
                move || memory.iter().map(|&b| u32::from(b)).sum::<u32>(),
                LONG,
            );
            assert!(
                weak.upgrade().is_none(),
                "the captures still exist when the call returns"
            );
            assert_eq!(sum.unwrap(), size as u32);
            // The memory must not stay in a slot or a queue cell either.
            let memory = Arc::new(vec![1_u8; size]);
            let weak = Arc::downgrade(&memory);
            must_serve(&pool, move || drop(memory));
            settle(&pool);
            assert!(weak.upgrade().is_none(), "the captures still exist at rest");
        }
    });
}

/// Law 8: captures are dropped before the task is counted, and before its worker and its caller are
/// released. While the drop of a capture lasts, the task counts as running.
#[test]
fn law08_captures_drop_before_the_count_and_the_release() {
    struct Slow(Key);
    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.pass();
        }
    }
    timed(|| {
        for queue in [0, 2] {
            let pool = pool(1, queue);
            let gate = Gate::new();
            let slow = Slow(gate.key());
            must_serve(&pool, move || drop(slow));
            gate.wait_entered(1);
            let s = pool.stats();
            assert_eq!((s.completed, s.running, s.idle), (0, 1, 0), "{s:?}");
            gate.open();
            assert_eq!(settle(&pool).completed, 1);

            // The caller waits for the drop until its deadline.
            let gate = Gate::new();
            let slow = Slow(gate.key());
            let outcome = pool.do_with_deadline(
                move || {
                    let _captured = &slow;
                    7
                },
                ms(1000),
            );
            assert!(
                matches!(outcome, Err(DeadlineError::TimedOut)),
                "released before its captures were dropped: {outcome:?}"
            );
            gate.wait_entered(1);
            let s = pool.stats();
            assert_eq!((s.completed, s.running, s.timed_out), (1, 1, 1), "{s:?}");
            gate.open();
            assert_eq!(settle(&pool).completed, 2);
        }
    });
}

/// Law 8: captures of discarded closures are dropped on the discarding thread before the shutdown
/// returns. Panics of these drops are caught.
#[test]
fn law08_discarded_captures_drop_where_they_are_discarded() {
    timed(|| {
        for mode in [Shutdown::Discard, Shutdown::Cancel] {
            for by_drop in [false, true] {
                let pool = builder(1, 30)
                    .shutdown_on_drop(mode, Duration::ZERO)
                    .build()
                    .unwrap();
                let gate = Gate::new();
                must_serve(&pool, gate.task());
                gate.wait_entered(1);
                let (tx, rx) = mpsc::channel();
                for i in 0..30 {
                    let tell = Tell(tx.clone());
                    let bomb = (i % 2 == 0).then(|| Bomb("discarded"));
                    let weight = [0_u64; 30];
                    if i % 3 == 0 {
                        must_serve(&pool, move || drop((bomb, tell)));
                    } else {
                        must_serve(&pool, move || drop((weight, bomb, tell)));
                    }
                }
                assert_eq!(pool.stats().queued, 30);
                if by_drop {
                    drop(pool);
                } else {
                    let report = pool.shutdown(mode, Duration::ZERO);
                    assert_eq!(report.discarded, 30);
                    let s = pool.stats();
                    assert_eq!((s.discarded, s.queued, s.panicked), (30, 0, 0), "{s:?}");
                }
                let here = thread::current().id();
                let threads: Vec<ThreadId> = rx.try_iter().collect();
                assert_eq!(threads, vec![here; 30], "{mode:?}, by drop: {by_drop}");
            }
        }
    });
}

/// Law 8: a closure that expired in the queue is dropped by its caller and by no other thread.
#[test]
fn law08_expired_captures_are_the_callers() {
    timed(|| {
        let pool = pool(1, 1);
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let (tx, rx) = mpsc::channel();
        let tell = Tell(tx);
        let outcome = pool.do_with_deadline(move || drop(tell), ms(5));
        assert!(rx.try_recv().is_err(), "dropped by the pool");
        drop(outcome);
        assert_eq!(rx.try_recv(), Ok(thread::current().id()));
    });
}

// ---------------------------------------------------------------------------------------------
// Law 16
// ---------------------------------------------------------------------------------------------

/// The ways in which a wrapper treats its task.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrap {
    Calls,
    CallsTwice,
    Ignores,
    PanicsBefore,
    PanicsAfter,
    PanicsBetween,
    CatchesAndPanics,
}

const WRAPS: [Wrap; 7] = [
    Wrap::Calls,
    Wrap::CallsTwice,
    Wrap::Ignores,
    Wrap::PanicsBefore,
    Wrap::PanicsAfter,
    Wrap::PanicsBetween,
    Wrap::CatchesAndPanics,
];

impl Wrap {
    fn panics(self) -> bool {
        !matches!(self, Wrap::Calls | Wrap::CallsTwice | Wrap::Ignores)
    }

    fn apply(self, task: &mut dyn FnMut(), unwound: &AtomicBool) {
        match self {
            Wrap::Calls => task(),
            Wrap::CallsTwice => {
                task();
                task();
                task();
            }
            Wrap::Ignores => {}
            Wrap::PanicsBefore => quiet_panic("wrapper"),
            Wrap::PanicsAfter => {
                task();
                panic::resume_unwind(Box::new(Nested(2)))
            }
            Wrap::PanicsBetween => {
                task();
                let _ = panic::catch_unwind(AssertUnwindSafe(|| quiet_panic("inner")));
                task();
                quiet_panic("wrapper")
            }
            Wrap::CatchesAndPanics => {
                if panic::catch_unwind(AssertUnwindSafe(&mut *task)).is_err() {
                    unwound.store(true, Ordering::SeqCst);
                }
                quiet_panic("wrapper")
            }
        }
    }
}

/// Law 16: with any wrapper, each task runs once and has its own outcome. The wrapper's panics
/// count as those of a hook. The task's panic never unwinds into the wrapper.
#[test]
fn law16_a_wrapper_loses_nothing() {
    timed(|| {
        for wrap in WRAPS {
            for queue in [0, 3] {
                let calls = Arc::new(AtomicU64::new(0));
                let returned = Arc::new(AtomicU64::new(0));
                let unwound = Arc::new(AtomicBool::new(false));
                let (c, r, u) = (calls.clone(), returned.clone(), unwound.clone());
                let pool = builder(1, queue)
                    .around(|_| panic!("replaced: a hook set twice counts once"))
                    .around(move |task| {
                        c.fetch_add(1, Ordering::SeqCst);
                        let mut watched = || {
                            task();
                            // This line is not reached if the task's panic unwinds into the
                            // wrapper.
                            r.fetch_add(1, Ordering::SeqCst);
                        };
                        wrap.apply(&mut watched, &u);
                    })
                    .build()
                    .unwrap();
                let n = rounds(20) as usize;
                let ledger = Ledger::new(3 * n);
                for i in 0..n {
                    let entry = ledger.entry(i);
                    let value = pool.do_with_deadline(
                        move || {
                            entry.run();
                            i
                        },
                        LONG,
                    );
                    assert_eq!(value.unwrap(), i, "{wrap:?}");
                    let entry = ledger.entry(n + i);
                    let panic = panicked(pool.do_with_deadline(
                        move || {
                            entry.run();
                            quiet_panic("task")
                        },
                        Duration::MAX,
                    ) as Result<(), _>);
                    assert_eq!(panic.message().as_deref(), Some("task"), "{wrap:?}");
                    let entry = ledger.entry(2 * n + i);
                    must_serve(&pool, move || entry.run());
                    settle(&pool);
                }
                ledger.assert_all_ran();
                let s = pool.stats();
                let n = n as u64;
                assert_eq!(
                    calls.load(Ordering::SeqCst),
                    3 * n,
                    "{wrap:?}: once per task"
                );
                assert_eq!((s.completed, s.panicked), (2 * n, n), "{wrap:?}: {s:?}");
                let hook_panics = if wrap.panics() { 3 * n } else { 0 };
                assert_eq!(s.hook_panics, hook_panics, "{wrap:?}");
                assert_eq!(s.spawned, 1, "{wrap:?}: {s:?}");
                assert!(!unwound.load(Ordering::SeqCst), "{wrap:?}: unwound");
                let per_task = match wrap {
                    Wrap::Ignores | Wrap::PanicsBefore => 0,
                    Wrap::CallsTwice => 3,
                    Wrap::PanicsBetween => 2,
                    _ => 1,
                };
                assert_eq!(
                    returned.load(Ordering::SeqCst),
                    3 * n * per_task,
                    "{wrap:?}"
                );
                check_at_rest(&pool, &s);
            }
        }
    });
}

/// Law 16: if a wrapper does not call its task, the task runs right after the wrapper, before
/// anything else on that worker. Its caller notices no difference.
#[test]
fn law16_the_task_runs_right_after() {
    timed(|| {
        for wrap in [Wrap::Ignores, Wrap::PanicsBefore] {
            let log: Arc<Mutex<Vec<String>>> = Arc::default();
            let sink = Arc::clone(&log);
            let pool = builder(1, 8)
                .around(move |task| {
                    sink.lock().unwrap().push("wrapper".into());
                    wrap.apply(task, &AtomicBool::new(false));
                })
                .build()
                .unwrap();
            let gate = Gate::new();
            must_serve(&pool, gate.task());
            gate.wait_entered(1);
            log.lock().unwrap().clear();
            for i in 0..5 {
                let sink = Arc::clone(&log);
                must_serve(&pool, move || {
                    sink.lock().unwrap().push(format!("task {i}"));
                });
            }
            gate.open();
            settle(&pool);
            let log = log.lock().unwrap();
            assert_eq!(log.len(), 10, "{log:?}");
            for pair in log.chunks(2) {
                assert_eq!(pair[0], "wrapper", "{log:?}");
                assert!(pair[1].starts_with("task"), "{log:?}");
            }
        }
    });
}

/// Law 16: the wrapper runs on the worker, and `task::*` works in it before and after the task.
#[test]
fn law16_task_functions_work_in_the_wrapper() {
    timed(|| {
        type Look = (
            Option<&'static str>,
            Option<usize>,
            Option<std::time::Instant>,
            bool,
            ThreadId,
        );
        fn look() -> Look {
            let (label, slot, deadline) = (task::label(), task::slot(), task::deadline());
            assert_eq!(task::remaining().is_some(), deadline.is_some());
            let id = thread::current().id();
            (label, slot, deadline, task::is_cancelled(), id)
        }
        for queue in [0, 2] {
            let looks: Arc<Mutex<Vec<Look>>> = Arc::default();
            let sink = Arc::clone(&looks);
            let pool = builder(1, queue)
                .around(move |task| {
                    let before = look();
                    task();
                    let after = look();
                    sink.lock().unwrap().extend([before, after]);
                })
                .build()
                .unwrap();
            for d in [LONG, Duration::MAX] {
                let view = pool.labeled("seen");
                let inside = view.do_with_deadline(look, d).unwrap();
                assert_eq!(inside.0, Some("seen"));
                assert_eq!(inside.1, Some(0));
                assert_eq!(inside.2.is_some(), d == LONG);
                let seen = std::mem::take(&mut *looks.lock().unwrap());
                assert_eq!(seen, vec![inside; 2]);
            }
            let (tx, rx) = mpsc::channel();
            must_serve(&pool, move || tx.send(look()).unwrap());
            settle(&pool);
            let inside = rx.recv().unwrap();
            assert_eq!((inside.0, inside.2), (None, None));
            assert_eq!(*looks.lock().unwrap(), vec![inside; 2]);
        }
    });
}

/// Laws 3 and 16: a wrapper that is slow before its task does not hold the caller beyond the
/// deadline. A closure that came back never runs; any other runs once.
#[test]
fn law03_law16_a_slow_wrapper_does_not_hold_the_caller() {
    timed(|| {
        for queue in [0, 2] {
            let current: Arc<Mutex<Option<Key>>> = Arc::default();
            let slot = Arc::clone(&current);
            let pool = builder(1, queue)
                .around(move |task| {
                    let key = slot.lock().unwrap().clone();
                    if let Some(key) = key {
                        key.pass();
                    }
                    task();
                })
                .build()
                .unwrap();
            for i in 0..10 {
                let gate = Gate::new();
                *current.lock().unwrap() = Some(gate.key());
                let ledger = Ledger::new(1);
                let entry = ledger.entry(0);
                let outcome = pool.do_with_deadline(move || entry.run(), ms(10 + i));
                assert!(!gate.key().is_open());
                assert_eq!(ledger.runs(0), 0);
                let runs = match outcome {
                    Err(DeadlineError::TimedOut) => 1,
                    Err(DeadlineError::Expired(f)) => {
                        drop(f);
                        0
                    }
                    other => panic!("{other:?}"),
                };
                gate.open();
                settle(&pool);
                assert_eq!((ledger.runs(0), ledger.drops(0)), (runs, 1));
            }
        }
    });
}

/// Laws 4 and 16: a wrapper is called only for tasks that run, and on no more threads than there
/// are workers.
#[test]
fn law16_no_wrapper_for_a_task_that_never_runs() {
    timed(|| {
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let pool = builder(1, 2)
            .around(move |task| {
                count.fetch_add(1, Ordering::SeqCst);
                task();
            })
            .build()
            .unwrap();
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        assert!(matches!(
            pool.do_with_deadline(|| (), ms(5)),
            Err(DeadlineError::Expired(_))
        ));
        must_serve(&pool, || ());
        must_serve(&pool, || ());
        saturated(pool.serve(|| ()));
        pool.shutdown(Shutdown::Discard, Duration::ZERO);
        gate.open();
        assert!(pool.shutdown(Shutdown::Discard, LIMIT).is_clean());
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        let s: Stats = pool.stats();
        assert_eq!((s.completed, s.expired, s.discarded), (1, 1, 2), "{s:?}");
    });
}
