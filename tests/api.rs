//! The public API: what the builder accepts, hooks, labels, errors, and the traits of the types.

mod common;

use std::any::Any;
use std::cell::Cell;
use std::collections::HashSet;
use std::error::Error;
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::rc::Rc;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{
    task, BuildError, Builder, CancelGuard, DeadlineError, Group, LimitError, Panic,
    ParseSettingError, Pool, Refusal, RefusalCounts, Refused, Scope, Shutdown, ShutdownReport,
    Stats, Submitter, TaskPanic, Unfinished, Unrun, WhenFull, WorkerSnapshot,
};
use static_assertions::{assert_impl_all, assert_not_impl_any};

// ---------------------------------------------------------------------------------------------
// Traits of the types, checked by the compiler
// ---------------------------------------------------------------------------------------------

assert_impl_all!(Pool: Debug, Send, Sync, UnwindSafe, RefUnwindSafe);
assert_not_impl_any!(Pool: Clone);
assert_impl_all!(Builder: Debug, Default, Send);
assert_impl_all!(Submitter<'static>: Debug, Clone, Copy, Send, Sync, UnwindSafe, RefUnwindSafe);
assert_impl_all!(Group: Debug, Clone, Send, Sync, UnwindSafe, RefUnwindSafe);
assert_impl_all!(CancelGuard: Debug, Send, Sync, UnwindSafe, RefUnwindSafe);
assert_impl_all!(Scope<'static, 'static>: Debug, Send, Sync);
assert_impl_all!(WhenFull: Default, Debug, Clone, Copy, PartialEq, Eq, Hash, Display, FromStr, Send, Sync);
assert_impl_all!(Shutdown: Debug, Clone, Copy, PartialEq, Eq, Hash, Display, FromStr, Send, Sync);
assert_impl_all!(ParseSettingError: Debug, Clone, PartialEq, Eq, Display, Error, Send, Sync);
assert_impl_all!(RefusalCounts: Debug, Clone, Copy, Default, PartialEq, Eq, Send, Sync);
assert_impl_all!(BuildError: Debug, Display, Error, Send, Sync);
assert_impl_all!(LimitError: Debug, Clone, PartialEq, Eq, Display, Error, Send, Sync);
assert_impl_all!(Refusal: Debug, Display, Error, Send, Sync);
assert_impl_all!(Panic: Debug, Display, Send, Sync);
assert_impl_all!(Unfinished: Debug, Display, Error, Send, Sync);
assert_impl_all!(ShutdownReport: Debug, Clone, PartialEq, Send, Sync);
assert_impl_all!(Stats: Debug, Display, Clone, Copy, Default, PartialEq, Eq, Send, Sync);
assert_impl_all!(WorkerSnapshot: Debug, Clone, PartialEq, Send, Sync);
assert_impl_all!(TaskPanic<'static>: Debug);

// `Refused` is `Sync` for every closure, since it gives no access to the closure by reference. It
// is `Send` if its closure is.
assert_impl_all!(Refused<Rc<()>>: Sync, Debug, Display, Error);
assert_impl_all!(Refused<Cell<u8>>: Send, Sync);
assert_impl_all!(Refused<*const u8>: Sync);
assert_not_impl_any!(Refused<Rc<()>>: Send);

// `Unrun`, which holds an expired closure, has these traits too, and so has `DeadlineError`.
assert_impl_all!(Unrun<Rc<()>>: Sync, Debug, Display, Error);
assert_impl_all!(Unrun<Cell<u8>>: Send, Sync);
assert_not_impl_any!(Unrun<Rc<()>>: Send);
assert_impl_all!(DeadlineError<Rc<()>>: Sync, Debug, Display, Error);
assert_impl_all!(DeadlineError<Cell<u8>>: Send, Sync);
assert_impl_all!(DeadlineError<*const u8>: Sync);
assert_not_impl_any!(DeadlineError<Rc<()>>: Send);

/// A type without any trait, to be captured.
struct Plain(#[allow(dead_code)] Vec<u8>);

/// Error types implement the traits that `?` needs, for every type of closure.
#[test]
fn errors_convert_into_boxes() {
    type Boxed = Box<dyn Error + Send + Sync>;

    fn serve(pool: &Pool) -> Result<(), Boxed> {
        // The captures are neither `Sync` nor `Debug`.
        let captured = (Cell::new(1), Plain(Vec::new()));
        pool.serve(move || {
            let _ = (&captured.0, &captured.1);
        })?;
        Ok(())
    }
    fn call(pool: &Pool) -> Result<u8, Boxed> {
        let captured = (Cell::new(3), Plain(Vec::new()));
        let task = move || {
            let _ = &captured.1;
            captured.0.get()
        };
        Ok(pool.do_with_deadline(task, LONG)?)
    }
    fn stripped(pool: &Pool) -> Result<(), Boxed> {
        let captured = (Cell::new(1), Plain(Vec::new()));
        let task = move || drop(captured);
        pool.do_with_deadline(task, LONG)
            .map_err(DeadlineError::without_closure)?;
        let captured = (Cell::new(1), Plain(Vec::new()));
        let task = move || drop(captured);
        pool.serve(task).map_err(Refused::without_closure)?;
        Ok(())
    }
    let pool = Pool::new(1).unwrap();
    serve(&pool).unwrap();
    settle(&pool);
    assert_eq!(call(&pool).unwrap(), 3);
    stripped(&pool).unwrap();
    settle(&pool);
    pool.shutdown(Shutdown::Drain, LIMIT);
    for error in [
        serve(&pool).unwrap_err(),
        call(&pool).unwrap_err(),
        stripped(&pool).unwrap_err(),
    ] {
        assert!(!error.to_string().is_empty());
    }
}

/// Errors say what happened and hand the closure back. `source()` returns the `io::Error` if there
/// is one, otherwise `None`.
#[test]
fn errors_tell_and_hand_back() {
    let pool = Pool::new(1).unwrap();
    let gate = Gate::new();
    must_serve(&pool, gate.task());
    gate.wait_entered(1);

    let refused = pool.serve(|| ()).unwrap_err();
    assert!(refused.is_saturated() && !refused.is_closed());
    assert!(matches!(refused.reason(), Refusal::Saturated));
    assert!(refused.source().is_none());
    // The message is one line that says what happened.
    let line = refused.to_string();
    assert!(
        line.contains("saturated") && line.len() < 80 && !line.contains('\n'),
        "{line}"
    );
    assert_eq!(refused.reason().to_string(), line);
    let (task, reason) = refused.into_parts();
    assert!(matches!(reason, Refusal::Saturated));
    task();
    let refused = pool.serve(|| ()).unwrap_err();
    let bare = refused.without_closure();
    assert!(bare.is_saturated());
    bare.into_inner();

    let captured = Box::new(41);
    let refused = pool.do_with_deadline(move || *captured + 1, LONG);
    let Err(error @ DeadlineError::Refused(_)) = refused else {
        panic!("{refused:?}");
    };
    assert!(!error.to_string().is_empty());
    assert!(!format!("{error:?}").is_empty());
    assert_eq!(error.into_inner().expect("the closure never ran")(), 42);

    let error = pool.do_with_deadline(|| 7, Duration::ZERO).unwrap_err();
    assert!(!error.to_string().is_empty());
    assert!(matches!(error, DeadlineError::Expired(_)));
    assert_eq!(error.into_inner().expect("the closure never ran")(), 7);
    let error = pool.do_with_deadline(|| 7, Duration::ZERO).unwrap_err();
    assert!(matches!(
        error.without_closure(),
        DeadlineError::Expired(Unrun { .. })
    ));
    gate.open();
    settle(&pool);

    let gate = Gate::new();
    let error = pool.do_with_deadline(gate.task(), ms(1000)).unwrap_err();
    assert!(!error.to_string().is_empty());
    assert!(matches!(error, DeadlineError::TimedOut), "{error:?}");
    assert!(matches!(error.without_closure(), DeadlineError::TimedOut));
    assert!(DeadlineError::<fn()>::TimedOut.into_inner().is_none());
    gate.open();
    settle(&pool);

    let fails = || -> u8 { quiet_panic("told") };
    let error = pool.do_with_deadline(fails, LONG).unwrap_err();
    assert!(error.to_string().contains("told"), "{error}");
    match error.without_closure() {
        DeadlineError::Panicked(panic) => assert_eq!(panic.message().as_deref(), Some("told")),
        other => panic!("{other:?}"),
    }
    let error = pool.do_with_deadline(fails, LONG).unwrap_err();
    assert!(error.into_inner().is_none(), "the closure ran");

    pool.shutdown(Shutdown::Drain, LIMIT);
    let refused = pool.serve(|| ()).unwrap_err();
    assert!(refused.is_closed() && !refused.is_saturated());
    assert!(refused.source().is_none());
    assert_ne!(refused.reason().to_string(), Refusal::Saturated.to_string());
    let error: BuildError = BuildError::Spawn(io::Error::other("no thread"));
    assert!(error.source().is_some());
    assert!(BuildError::ZeroWorkers.source().is_none());
}

/// `Refused::run_anyway` returns what the closure returns.
#[test]
fn a_refused_closure_runs_with_its_result() {
    let pool = Pool::new(1).unwrap();
    pool.shutdown(Shutdown::Drain, Duration::ZERO);
    let text = String::from("mine");
    match pool.do_with_deadline(move || text, LONG) {
        Err(DeadlineError::Refused(refused)) => assert_eq!(refused.run_anyway(), "mine"),
        other => panic!("{other:?}"),
    }
}

/// The signatures as they are documented: names, parameters and results.
#[test]
fn signatures() {
    fn task() {}
    type Task = fn();
    let _: for<'p> fn(&'p Pool, &'static str) -> Submitter<'p> = Pool::labeled;
    let _: fn(&Pool, Instant) -> Submitter<'_> = Pool::with_deadline_at;
    let _: fn(&Pool, Duration) -> Submitter<'_> = Pool::run_limit;
    let _: fn(&Pool, usize) -> Result<(), LimitError> = Pool::set_limit;
    let _: fn(Refused<Task>) = Refused::run_anyway;
    let _: fn(Refused<Task>) -> Result<(), Refused<Task>> = Refused::caller_runs;
    let _: fn(&Refused<Task>) -> bool = Refused::is_saturated;
    let _: fn(&Refused<Task>) -> bool = Refused::is_retryable;
    let _: fn(&Refusal) -> &'static str = Refusal::as_str;
    let _: fn(Unrun<Task>) = Unrun::run;
    let _: fn(&LimitError) -> usize = LimitError::given;
    let _: fn(&LimitError) -> usize = LimitError::max;
    assert_eq!(WhenFull::default(), WhenFull::Refuse);

    let pool = Pool::new(1).unwrap();
    let submitter = pool.labeled("all").when_full(WhenFull::Refuse);
    let submitter = submitter.with_deadline(LONG).run_limit(LONG);
    let submitter = submitter.with_deadline_at(Instant::now() + LONG);
    let submitter = submitter.min_remaining(Duration::ZERO).labeled("all");
    submitter.scope(|s| s.serve_or_run(task));
    let counts: RefusalCounts = pool.stats().refusals;
    let each = [counts.saturated, counts.closed, counts.cancelled];
    assert_eq!(each, [0; 3]);
    let each = [
        counts.spawn_failed,
        counts.on_worker,
        counts.forked,
        counts.expired,
    ];
    assert_eq!(each, [0; 4]);
    let worker: WorkerSnapshot = pool.workers().remove(0);
    assert_eq!((worker.abandoned, worker.abandoned_for), (false, None));
    assert_eq!(pool.workers(), [worker]);
}

/// `Refused::caller_runs` runs a closure for which the pool had no room. It runs no closure once
/// the pool is shut down or the group cancelled.
#[test]
fn the_caller_runs_only_what_lacked_room() {
    timed(|| {
        let pool = Pool::new(1).unwrap();
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let here = thread::current().id();
        let ran = Arc::new(Mutex::new(Vec::new()));
        let task = || {
            let ran = Arc::clone(&ran);
            move || ran.lock().unwrap().push(thread::current().id())
        };
        pool.serve(task()).or_else(Refused::caller_runs).unwrap();
        assert_eq!(*ran.lock().unwrap(), [here]);

        let group = pool.group();
        group.cancel();
        let refused = group.serve(task()).or_else(Refused::caller_runs);
        assert!(matches!(refused.unwrap_err().reason(), Refusal::Cancelled));

        pool.shutdown(Shutdown::Drain, Duration::ZERO);
        let refused = pool.serve(task()).or_else(Refused::caller_runs);
        assert!(refused.unwrap_err().is_closed());
        match pool.do_with_deadline(task(), LONG) {
            Err(DeadlineError::Refused(refused)) => assert!(refused.caller_runs().is_err()),
            other => panic!("{other:?}"),
        }
        assert_eq!(ran.lock().unwrap().len(), 1, "nothing else ran");
        gate.open();
    });
}

// ---------------------------------------------------------------------------------------------
// The builder
// ---------------------------------------------------------------------------------------------

/// `build` refuses invalid settings, and its error names the setting.
#[test]
fn bad_input_is_refused() {
    let build = |builder: Builder| builder.build().expect_err("bad input");
    let b = Pool::builder;

    assert!(matches!(build(b().max_workers(0)), BuildError::ZeroWorkers));
    assert!(matches!(Pool::new(0), Err(BuildError::ZeroWorkers)));
    for given in [65_537, usize::MAX] {
        match build(b().max_workers(given)) {
            BuildError::TooManyWorkers { given: g, max } => assert_eq!((g, max), (given, 65_536)),
            other => panic!("{other:?}"),
        }
    }
    match build(b().max_workers(3).min_workers(4)) {
        BuildError::MinExceedsMax { min, max } => assert_eq!((min, max), (4, 3)),
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        build(b().max_workers(3).min_workers(usize::MAX)),
        BuildError::MinExceedsMax { .. }
    ));
    for given in [usize::MAX, usize::MAX / 2 + 1, isize::MAX as usize] {
        match build(b().max_workers(1).queue_capacity(given)) {
            BuildError::QueueTooLong { given: g, max } => {
                assert_eq!(g, given);
                assert!(max < given && max >= 65_536, "{max}");
            }
            other => panic!("{other:?}"),
        }
    }
    for name in ["", "\0", "nul\0inside", "end\0"] {
        let error = build(b().max_workers(1).thread_name(name));
        assert!(matches!(error, BuildError::BadThreadName), "{error:?}");
    }
    for builder in [
        b().max_workers(0),
        b().max_workers(65_537),
        b().max_workers(1).min_workers(2),
        b().max_workers(1).queue_capacity(usize::MAX),
        b().max_workers(1).thread_name("\0"),
        b().max_workers(1).thread_name(""),
        b().max_workers(1).stack_size(0),
    ] {
        let error = build(builder);
        assert!(!error.to_string().is_empty());
        assert!(error.source().is_none());
    }
}

/// If the system refuses a thread that `build` needs, `build` returns an error.
#[cfg(target_os = "linux")]
#[test]
fn an_impossible_stack_is_refused() {
    let builder = || Pool::builder().max_workers(2).stack_size(IMPOSSIBLE_STACK);
    match builder().min_workers(1).build() {
        Err(error @ BuildError::Spawn(_)) => tells_the_source(&error),
        other => panic!("{other:?}"),
    }
    let pool = builder().build().unwrap();
    tells_the_source(&pool.serve(|| ()).unwrap_err());
    tells_the_source(&pool.do_with_deadline(|| (), LONG).unwrap_err());
}

/// Returns `true` if the error's message contains the system's message. A log that prints an error
/// without its source then still has it.
#[cfg(target_os = "linux")]
#[track_caller]
fn tells_the_source(error: &dyn Error) {
    let source = error.source().expect("the system's error").to_string();
    assert!(
        error.to_string().ends_with(&format!(": {source}")),
        "{error}"
    );
}

/// A pool may have any number of workers from 1 to 65,536, not only powers of two, and a queue of
/// any length.
#[test]
fn any_number_of_workers() {
    timed(|| {
        for max in [1, 2, 3, 5, 6, 7, 9, 100] {
            for queue in [0, 1, 3, 6] {
                let pool = Pool::builder()
                    .max_workers(max)
                    .queue_capacity(queue)
                    .build()
                    .unwrap();
                assert_eq!(pool.max_workers(), max);
                assert_eq!(pool.queue_capacity(), queue);
                if max < 10 {
                    assert_cap_usable(&pool);
                    assert_cap_usable(&pool);
                }
            }
        }
        let pool = Pool::builder()
            .max_workers(65_536)
            .queue_capacity(100_000)
            .build()
            .unwrap();
        assert_eq!(pool.do_with_deadline(|| 1, LONG).unwrap(), 1);
        assert_eq!(pool.max_workers(), 65_536);
        assert_eq!(pool.workers().len(), 1);
    });
}

/// The defaults of the builder; of several calls of a setter the last one counts.
#[test]
fn builder_defaults() {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(
        format!("{:?}", Builder::default()),
        format!("{:?}", Pool::builder())
    );
    let pool = Pool::builder().build().unwrap();
    assert_eq!(pool.max_workers(), 4 * cpus);
    assert_eq!((pool.min_workers(), pool.queue_capacity()), (0, 0));
    assert!(!pool.is_closed());

    let pool = Pool::new(3).unwrap();
    assert_eq!((pool.max_workers(), pool.min_workers()), (3, 0));
    assert_eq!(pool.queue_capacity(), 0);

    let pool = Pool::builder()
        .max_workers(9)
        .max_workers(5)
        .min_workers(4)
        .min_workers(2)
        .queue_capacity(7)
        .queue_capacity(3)
        .build()
        .unwrap();
    assert_eq!((pool.max_workers(), pool.min_workers()), (5, 2));
    assert_eq!(pool.queue_capacity(), 3);
}

/// Threads are called `{name}-{slot}`, `lazypool-{slot}` by default.
#[test]
fn threads_have_names() {
    timed(|| {
        let named = |builder: Builder, name: &str| {
            let pool = builder.max_workers(3).min_workers(1).build().unwrap();
            let gate = Gate::new();
            let (tx, rx) = mpsc::channel();
            for _ in 0..3 {
                let (key, tx) = (gate.key(), tx.clone());
                must_serve(&pool, move || {
                    let name = thread::current().name().map(str::to_owned);
                    tx.send((name, task::slot().unwrap())).unwrap();
                    key.pass();
                });
            }
            let mut slots = HashSet::new();
            for (thread, slot) in rx.iter().take(3) {
                assert_eq!(thread, Some(format!("{name}-{slot}")));
                assert!(slot < 3);
                assert!(slots.insert(slot), "two workers with one slot");
            }
        };
        named(Pool::builder(), "lazypool");
        named(Pool::builder().thread_name("mine"), "mine");
        named(
            Pool::builder().thread_name(String::from("two words")),
            "two words",
        );
        named(Pool::builder().thread_name("a").thread_name("b"), "b");
        let long = "longer than any system shows";
        named(Pool::builder().thread_name(long), long);
    });
}

/// `stack_size` sets the stack of the workers: a task uses more than the usual two mebibytes of it.
#[test]
fn stack_size_is_used() {
    #[inline(never)]
    fn deep(n: usize) -> usize {
        let frame = std::hint::black_box([n; 4096]);
        if n == 0 {
            frame[0]
        } else {
            deep(n - 1) + frame[1] - n + 1
        }
    }
    timed(|| {
        let pool = Pool::builder()
            .max_workers(2)
            .stack_size(32 << 20)
            .build()
            .unwrap();
        // 300 frames of at least 32 KiB take more than 9 MiB.
        assert_eq!(pool.do_with_deadline(|| deep(300), LONG).unwrap(), 300);
    });
}

/// The smallest stack that `build` accepts is large enough to run tasks. `build` refuses a smaller
/// one.
#[test]
fn the_smallest_stack_runs_tasks() {
    timed(|| {
        let of = |bytes| Pool::builder().max_workers(1).stack_size(bytes).build();
        let pool = of(16 << 10).unwrap();
        assert_eq!(pool.do_with_deadline(|| 7, LONG).unwrap(), 7);
        assert_eq!(pool.awaitable().serve(|| 8).unwrap().join().unwrap(), 8);
        for bytes in [0, 1, (16 << 10) - 1] {
            let error = of(bytes).unwrap_err();
            assert!(
                matches!(error, BuildError::StackTooSmall { given, min } if given == bytes && min == 16 << 10),
                "{error:?}"
            );
        }
    });
}

// ---------------------------------------------------------------------------------------------
// Hooks
// ---------------------------------------------------------------------------------------------

/// `on_worker_start` and `on_worker_stop` run on the worker's own thread with its slot, each once:
/// the first before the worker's first task, the second after its last.
#[test]
fn hooks_frame_a_workers_life() {
    timed(|| {
        type Event = (&'static str, usize, thread::ThreadId);
        let log: Arc<Mutex<Vec<Event>>> = Arc::default();
        let note = |what: &'static str| {
            let log = Arc::clone(&log);
            move |slot: usize| {
                let id = thread::current().id();
                log.lock().unwrap().push((what, slot, id));
            }
        };
        let pool = Pool::builder()
            .max_workers(3)
            .idle_timeout(ms(5))
            .on_worker_start(|_| panic!("replaced: a hook set twice counts once"))
            .on_worker_stop(|_| panic!("replaced: a hook set twice counts once"))
            .on_worker_start(note("start"))
            .on_worker_stop(note("stop"))
            .build()
            .unwrap();
        for _ in 0..3 {
            let gate = Gate::new();
            for _ in 0..3 {
                let (key, task) = (gate.key(), note("task"));
                must_serve(&pool, move || {
                    key.pass();
                    task(task::slot().unwrap());
                });
            }
            gate.wait_entered(3);
            gate.open();
            wait_until("workers to retire", || pool.stats().workers == 0);
        }
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        let log = log.lock().unwrap();
        let threads: HashSet<_> = log.iter().map(|event| event.2).collect();
        assert_eq!(threads.len() as u64, pool.stats().spawned);
        for thread in threads {
            let mine: Vec<&Event> = log.iter().filter(|event| event.2 == thread).collect();
            let what: Vec<&str> = mine.iter().map(|event| event.0).collect();
            assert_eq!(what.first(), Some(&"start"), "{what:?}");
            assert_eq!(what.last(), Some(&"stop"), "{what:?}");
            let tasks = what.iter().filter(|what| **what == "task").count();
            assert_eq!(what.len(), tasks + 2, "{what:?}");
            assert!(
                mine.iter().all(|event| event.1 == mine[0].1),
                "events of one thread have one slot"
            );
        }
        assert_eq!(log.iter().filter(|event| event.0 == "task").count(), 9);
        assert_eq!(pool.stats().hook_panics, 0);
    });
}

/// When a worker is counted as retired, `on_worker_stop` has run for it.
#[test]
fn on_worker_stop_runs_before_the_count() {
    timed(|| {
        let stops = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&stops);
        let pool = Pool::builder()
            .max_workers(1)
            .idle_timeout(Duration::ZERO)
            .on_worker_stop(move |_| {
                thread::sleep(ms(1));
                count.fetch_add(1, Ordering::SeqCst);
            })
            .build()
            .unwrap();
        for _ in 0..rounds(20) {
            pool.do_with_deadline(|| (), LONG).unwrap();
            wait_until("the worker to retire", || pool.stats().workers == 0);
            let s = pool.stats();
            assert_eq!(stops.load(Ordering::SeqCst) as u64, s.retired, "{s:?}");
        }
    });
}

// ---------------------------------------------------------------------------------------------
// Views, labels, `task::*`
// ---------------------------------------------------------------------------------------------

/// Outside a worker, the functions of `task` report nothing, even if a pool exists.
#[test]
fn task_outside_a_worker() {
    let look = || {
        assert!(!task::is_cancelled());
        assert_eq!(task::deadline(), None);
        assert_eq!(task::remaining(), None);
        assert_eq!(task::label(), None);
        assert_eq!(task::slot(), None);
    };
    look();
    let pool = Pool::new(1).unwrap();
    pool.labeled("inside")
        .do_with_deadline(|| (), LONG)
        .unwrap();
    look();
    // A closure that comes back runs on its caller's thread.
    pool.shutdown(Shutdown::Cancel, LIMIT);
    match pool.labeled("inside").do_with_deadline(look, LONG) {
        Err(DeadlineError::Refused(refused)) => refused.run_anyway(),
        other => panic!("{other:?}"),
    }
    // A thread that a task started is not a worker.
    let pool = Pool::new(1).unwrap();
    pool.labeled("inside")
        .do_with_deadline(move || thread::spawn(look).join().unwrap(), LONG)
        .unwrap();
}

/// A view submits through the same two verbs as the pool. Its label is seen by its own tasks and by
/// no others.
#[test]
fn labels_reach_their_tasks_only() {
    timed(|| {
        for queue in [0, 4] {
            let pool = Pool::builder()
                .max_workers(1)
                .queue_capacity(queue)
                .build()
                .unwrap();
            let red = pool.labeled("red");
            let copy = red;
            for d in [LONG, Duration::MAX] {
                assert_eq!(red.do_with_deadline(task::label, d).unwrap(), Some("red"));
                assert_eq!(pool.do_with_deadline(task::label, d).unwrap(), None);
                assert_eq!(copy.do_with_deadline(task::label, d).unwrap(), Some("red"));
                let blue = pool.labeled("blue").do_with_deadline(task::label, d);
                assert_eq!(blue.unwrap(), Some("blue"));
            }
            let (tx, rx) = mpsc::channel();
            for label in [None, Some("red"), None, Some(""), Some("blue")] {
                settle(&pool);
                let tx = tx.clone();
                let task = move || tx.send(task::label()).unwrap();
                let outcome = match label {
                    Some(label) => pool.labeled(label).serve(task),
                    None => pool.serve(task),
                };
                outcome.map_err(Refused::without_closure).unwrap();
                assert_eq!(rx.recv_timeout(LIMIT), Ok(label));
            }
            settle(&pool);
            // The closure is large, and it has a label.
            let load = [7_u64; 20];
            let task = move || (task::label(), load[19]);
            assert_eq!(red.do_with_deadline(task, LONG).unwrap(), (Some("red"), 7));
            // The label of a running task can be seen from outside.
            let gate = Gate::new();
            red.serve(gate.task()).unwrap();
            gate.wait_entered(1);
            let workers = pool.workers();
            assert_eq!((workers[0].label, workers[0].busy), (Some("red"), true));
            gate.open();
            settle(&pool);
            assert_eq!(pool.workers()[0].label, None);
        }
    });
}

/// Refusals, deadlines and panics of a view are those of its pool.
#[test]
fn a_view_behaves_as_the_pool() {
    timed(|| {
        let pool = Pool::new(1).unwrap();
        let view = pool.labeled("view");
        let gate = Gate::new();
        view.serve(gate.task()).unwrap();
        saturated(view.serve(|| ()));
        match view.do_with_deadline(|| 4, LONG) {
            Err(DeadlineError::Refused(refused)) => assert_eq!(refused.run_anyway(), 4),
            other => panic!("{other:?}"),
        }
        gate.open();
        settle(&pool);
        let gate = Gate::new();
        let outcome = view.do_with_deadline(gate.task(), ms(1000));
        assert!(
            matches!(outcome, Err(DeadlineError::TimedOut)),
            "{outcome:?}"
        );
        gate.open();
        settle(&pool);
        let outcome = view.do_with_deadline(|| quiet_panic("seen"), LONG);
        match outcome {
            Err::<(), _>(DeadlineError::Panicked(panic)) => {
                assert_eq!(panic.message().as_deref(), Some("seen"));
            }
            other => panic!("{other:?}"),
        }
        let s = pool.stats();
        assert_eq!((s.accepted, s.refused, s.timed_out), (3, 2, 1), "{s:?}");
        // Other threads can use the view too.
        thread::scope(|scope| {
            scope.spawn(move || view.do_with_deadline(|| (), LONG).unwrap());
        });
    });
}

/// `task::*` inside a task that makes a nested call reports the outer task again afterwards.
#[test]
fn task_survives_nesting() {
    timed(|| {
        let pool = Arc::new(Pool::new(2).unwrap());
        let inner = Arc::clone(&pool);
        let outer = pool.labeled("outer").do_with_deadline(
            move || {
                let before = (task::label(), task::slot(), task::deadline());
                let nested = inner
                    .labeled("nested")
                    .do_with_deadline(|| (task::label(), task::slot(), task::deadline()), LONG)
                    .unwrap();
                // A refused closure that its caller runs sees the caller's own task.
                let full = Gate::new();
                must_serve(&inner, full.task());
                let look = || assert_eq!(task::label(), Some("outer"));
                let here = saturated(inner.labeled("back").serve(look));
                here.run_anyway();
                let after = (task::label(), task::slot(), task::deadline());
                assert_eq!(before, after);
                (before, nested)
            },
            ms(60_000),
        );
        let (before, nested) = outer.unwrap();
        assert_eq!((before.0, nested.0), (Some("outer"), Some("nested")));
        assert_ne!(before.1, nested.1);
        assert_ne!(before.2, nested.2);
        settle(&pool);
    });
}

// ---------------------------------------------------------------------------------------------
// Other tests
// ---------------------------------------------------------------------------------------------

/// `Stats` prints every figure, on several lines.
#[test]
fn stats_print_every_figure() {
    let mut s = Stats::default();
    s.accepted = 10_001;
    s.refused = 10_002;
    s.completed = 10_003;
    s.panicked = 10_004;
    s.expired = 10_005;
    s.discarded = 10_006;
    s.timed_out = 10_007;
    s.queued = 10_008;
    s.running = 10_009;
    s.workers = 10_010;
    s.idle = 10_011;
    s.peak_workers = 10_012;
    s.spawned = 10_013;
    s.retired = 10_014;
    s.spawn_failures = 10_015;
    s.hook_panics = 10_016;
    let text = s.to_string();
    for n in 10_001..=10_016 {
        assert!(text.contains(&n.to_string()), "{n} is missing:\n{text}");
    }
    assert!(text.lines().count() > 1, "a table:\n{text}");
    assert_eq!(s, s.clone());
    assert_ne!(s, Stats::default());
}

/// `Debug` of every public type prints something and does not block, not even while the pool is
/// busy.
#[test]
fn everything_is_debug() {
    timed(|| {
        let pool = Pool::new(1).unwrap();
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let group = pool.group();
        let report = pool.shutdown(Shutdown::Drain, Duration::ZERO);
        let shown = [
            format!("{pool:?}"),
            format!("{:?}", pool.labeled("x")),
            format!("{group:?}"),
            format!("{:?}", Pool::builder().around(|task| task())),
            format!("{:?}", pool.stats()),
            format!("{:?}", pool.workers()),
            format!("{report:?}"),
            format!("{:?}", pool.serve(|| ())),
            format!("{:?}", pool.do_with_deadline(|| (), LONG)),
            format!("{:?}", pool.scope(|scope| format!("{scope:?}"))),
        ];
        assert!(shown.iter().all(|text| text.len() > 2), "{shown:?}");
    });
}

/// A pool can be shared in an `Arc`, with other threads and its own tasks. It is `UnwindSafe`: it
/// can cross a `catch_unwind` and be used afterwards.
#[test]
fn a_pool_crosses_catch_unwind() {
    timed(|| {
        let pool = Pool::new(2).unwrap();
        let caught: Result<(), Box<dyn Any + Send>> = std::panic::catch_unwind(|| {
            pool.do_with_deadline(|| (), LONG).unwrap();
            quiet_panic("meant")
        });
        assert!(caught.is_err());
        assert_eq!(pool.do_with_deadline(|| 2, LONG).unwrap(), 2);
    });
}

/// The duration given to `do_with_deadline` counts from the call, not from the start of the task.
#[test]
fn remaining_counts_down() {
    timed(|| {
        let pool = Pool::new(1).unwrap();
        let start = Instant::now();
        let (first, second) = pool
            .do_with_deadline(
                || {
                    let first = task::remaining().unwrap();
                    thread::sleep(ms(5));
                    (first, task::remaining().unwrap())
                },
                LONG,
            )
            .unwrap();
        assert!(second + ms(5) <= first);
        assert!(first <= LONG && LONG - second <= start.elapsed());
    });
}
