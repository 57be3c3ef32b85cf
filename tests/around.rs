//! Law 16 (around).

mod common;

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use common::gates::*;
use common::*;
use lazypool::{task, DeadlineError, Shutdown};

/// The ways in which a wrapper treats its task.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrap {
    Calls,
    CallsThrice,
    Ignores,
    PanicsBefore,
    PanicsAfter,
    CatchesAndPanics,
}

use Wrap::*;

impl Wrap {
    fn apply(self, task: &mut dyn FnMut(), unwound: &AtomicBool) {
        match self {
            Calls => task(),
            CallsThrice => (0..3).for_each(|_| task()),
            Ignores => {}
            PanicsBefore => quiet_panic("wrapper"),
            PanicsAfter => {
                task();
                panic::resume_unwind(Box::new(Bomb("a wrapper's payload")))
            }
            CatchesAndPanics => {
                let caught = panic::catch_unwind(AssertUnwindSafe(&mut *task));
                unwound.fetch_or(caught.is_err(), Ordering::SeqCst);
                task();
                quiet_panic("wrapper")
            }
        }
    }

    /// Returns how often it calls its argument.
    fn calls(self) -> u64 {
        match self {
            Calls | PanicsAfter => 1,
            CallsThrice => 3,
            CatchesAndPanics => 2,
            Ignores | PanicsBefore => 0,
        }
    }
}

/// Law 16: with any wrapper, each task runs once and has its own outcome. The wrapper's panics count
/// as those of a hook. The task's panic never unwinds into the wrapper.
#[test]
fn law16_a_wrapper_loses_nothing() {
    timed(|| {
        for wrap in [
            Calls,
            CallsThrice,
            Ignores,
            PanicsBefore,
            PanicsAfter,
            CatchesAndPanics,
        ] {
            for queue in [0, 3] {
                let [called, returned] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
                let unwound = Arc::new(AtomicBool::new(false));
                let (c, r, u) = (called.clone(), returned.clone(), unwound.clone());
                let pool = builder(1, queue)
                    .around(|_| panic!("replaced: a hook set twice counts once"))
                    .around(move |task| {
                        c.fetch_add(1, Ordering::SeqCst);
                        let mut watched = || {
                            task();
                            // Not reached if the task's panic unwinds into the wrapper.
                            r.fetch_add(1, Ordering::SeqCst);
                        };
                        wrap.apply(&mut watched, &u);
                    })
                    .build()
                    .expect("pool");
                let n = rounds(20);
                let ledger = Ledger::new(3 * n as usize);
                for id in (0..3 * n as usize).step_by(3) {
                    let call = mark(&ledger, id);
                    pool.do_with_deadline(call, LONG).unwrap();
                    let entry = ledger.entry(id + 1);
                    let task = move || {
                        entry.run();
                        quiet_panic("task")
                    };
                    let panic = panicked::<_, ()>(pool.do_with_deadline(task, Duration::MAX));
                    assert_eq!(panic.message().as_deref(), Some("task"), "{wrap:?}");
                    must_serve(&pool, mark(&ledger, id + 2));
                    settle(&pool);
                }
                ledger.assert_all_ran();
                let s = pool.stats();
                assert_eq!((s.completed, s.panicked), (2 * n, n), "{wrap:?}: {s:?}");
                assert_eq!(called.load(Ordering::SeqCst), 3 * n, "{wrap:?}");
                let calls = returned.load(Ordering::SeqCst);
                assert_eq!(calls, 3 * n * wrap.calls(), "{wrap:?}");
                assert!(!unwound.load(Ordering::SeqCst), "{wrap:?}: unwound");
                let panics = !matches!(wrap, Calls | CallsThrice | Ignores);
                assert_eq!(s.hook_panics, if panics { 3 * n } else { 0 }, "{wrap:?}");
                assert_eq!(s.spawned, 1, "{wrap:?}: {s:?}");
                check_at_rest(&pool, &s);
            }
        }
    });
}

/// Law 16: if a wrapper does not call its task, the task runs right after the wrapper, before
/// anything else on that worker.
#[test]
fn law16_the_task_runs_right_after() {
    timed(|| {
        for wrap in [Ignores, PanicsBefore] {
            let log: Arc<Mutex<Vec<&str>>> = Arc::default();
            let sink = Arc::clone(&log);
            let builder = builder(1, 8).around(move |task| {
                sink.lock().unwrap().push("wrapper");
                wrap.apply(task, &AtomicBool::new(false));
            });
            let pool = builder.build().expect("pool");
            let gate = Gate::new();
            for _ in 0..6 {
                let (sink, wait) = (Arc::clone(&log), gate.task());
                must_serve(&pool, move || {
                    sink.lock().unwrap().push("task");
                    wait();
                });
            }
            gate.open();
            settle(&pool);
            assert_eq!(*log.lock().unwrap(), ["wrapper", "task"].repeat(6));
        }
    });
}

/// Law 16: the wrapper runs on the worker, and `task::*` works in it before and after the task.
#[test]
fn law16_task_functions_work_in_the_wrapper() {
    type Look = (
        Option<&'static str>,
        Option<usize>,
        Option<Instant>,
        bool,
        ThreadId,
    );
    fn look() -> Look {
        let (label, slot, deadline) = (task::label(), task::slot(), task::deadline());
        assert_eq!(task::remaining().is_some(), deadline.is_some());
        let thread = thread::current().id();
        (label, slot, deadline, task::is_cancelled(), thread)
    }
    timed(|| {
        for queue in [0, 2] {
            let looks: Arc<Mutex<Vec<Look>>> = Arc::default();
            let sink = Arc::clone(&looks);
            let builder = builder(1, queue).around(move |task| {
                let before = look();
                task();
                sink.lock().unwrap().extend([before, look()]);
            });
            let pool = builder.build().expect("pool");
            for d in [LONG, Duration::MAX] {
                let inside = pool.labeled("seen").do_with_deadline(look, d).unwrap();
                assert_eq!((inside.0, inside.1), (Some("seen"), Some(0)));
                assert_eq!(inside.2.is_some(), d == LONG);
                assert_eq!(std::mem::take(&mut *looks.lock().unwrap()), [inside; 2]);
            }
            let (tx, rx) = mpsc::channel();
            must_serve(&pool, move || tx.send(look()).unwrap());
            settle(&pool);
            let inside = rx.recv().unwrap();
            assert_eq!((inside.0, inside.2), (None, None));
            assert_eq!(*looks.lock().unwrap(), [inside; 2]);
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
            let builder = builder(1, queue).around(move |task| {
                let key = slot.lock().unwrap().clone();
                key.expect("set").pass();
                task();
            });
            let pool = builder.build().expect("pool");
            for i in 0..10 {
                let gate = Gate::new();
                *current.lock().unwrap() = Some(gate.key());
                let ledger = Ledger::new(1);
                let outcome = pool.do_with_deadline(mark(&ledger, 0), ms(10 + i));
                assert!(!gate.key().is_open());
                assert_eq!(ledger.runs(0), 0);
                let runs = match outcome {
                    Err(DeadlineError::TimedOut) => 1,
                    outcome => {
                        expired(outcome);
                        0
                    }
                };
                gate.open();
                settle(&pool);
                assert_eq!((ledger.runs(0), ledger.drops(0)), (runs, 1));
            }
        }
    });
}

/// Law 16: a wrapper is called only for tasks that run.
#[test]
fn law16_no_wrapper_for_a_task_that_never_runs() {
    timed(|| {
        let calls = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&calls);
        let builder = builder(1, 2).around(move |task| {
            count.fetch_add(1, Ordering::SeqCst);
            task();
        });
        let pool = builder.build().expect("pool");
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        expired(pool.do_with_deadline(|| (), ms(5)));
        must_serve(&pool, || ());
        must_serve(&pool, || ());
        saturated(pool.serve(|| ()));
        pool.shutdown(Shutdown::Discard, Duration::ZERO);
        gate.open();
        assert!(pool.shutdown(Shutdown::Discard, LIMIT).is_clean());
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        let s = pool.stats();
        assert_eq!((s.completed, s.expired, s.discarded), (1, 1, 2), "{s:?}");
    });
}
