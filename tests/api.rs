//! The parts of the API that no law is about: the builder's settings, hooks, labels, `task`, and
//! the traits of the types. `src/error/tests.rs` tests what errors say, `.ci/api` the signatures.

mod common;

use std::cell::Cell;
use std::collections::HashSet;
use std::error::Error;
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::rc::Rc;
use std::str::FromStr;
use std::sync::{mpsc, Arc, Mutex};
use std::thread;

use common::*;
use lazypool::{
    task, BuildError, Builder, CancelGuard, DeadlineError, Group, LimitError, Panic,
    ParseSettingError, Pool, Refusal, RefusalCounts, Refused, Scope, Shutdown, ShutdownReport,
    Stats, Submitter, TaskPanic, Unfinished, Unrun, WhenFull, WorkerSnapshot,
};
use static_assertions::{assert_impl_all, assert_not_impl_any};

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
assert_impl_all!(ShutdownReport: Debug, Display, Clone, PartialEq, Send, Sync);
assert_impl_all!(Stats: Debug, Display, Clone, Copy, Default, PartialEq, Eq, Send, Sync);
assert_impl_all!(WorkerSnapshot: Debug, Clone, PartialEq, Send, Sync);
assert_impl_all!(TaskPanic<'static>: Debug);

// These three are `Sync` for every closure, since they give no access to it by reference. They are
// `Send` if the closure is.
assert_impl_all!(Refused<Rc<()>>: Sync, Debug, Display, Error);
assert_impl_all!(Refused<Cell<u8>>: Send, Sync);
assert_not_impl_any!(Refused<Rc<()>>: Send);
assert_impl_all!(Unrun<Rc<()>>: Sync, Debug, Display, Error);
assert_impl_all!(Unrun<Cell<u8>>: Send, Sync);
assert_not_impl_any!(Unrun<Rc<()>>: Send);
assert_impl_all!(DeadlineError<Rc<()>>: Sync, Debug, Display, Error);
assert_impl_all!(DeadlineError<Cell<u8>>: Send, Sync);
assert_not_impl_any!(DeadlineError<Rc<()>>: Send);

/// An error of a user's own, which holds the pool's errors without their closures.
#[derive(Debug)]
enum OwnError {
    Refused(Refused),
    Call(DeadlineError),
}

impl<F> From<Refused<F>> for OwnError {
    fn from(refused: Refused<F>) -> Self {
        Self::Refused(refused.without_closure())
    }
}

impl<F> From<DeadlineError<F>> for OwnError {
    fn from(error: DeadlineError<F>) -> Self {
        Self::Call(error.without_closure())
    }
}

assert_impl_all!(OwnError: Send, Sync);

/// The errors fit into an enum of a user's own, and `?` converts them for every closure.
#[test]
fn errors_fit_into_an_enum_of_a_users_own() {
    fn served(pool: &Pool) -> Result<(), OwnError> {
        let (local, sync) = (String::from("captured"), Cell::new(1));
        Ok(pool.serve(move || drop((local, sync)))?)
    }
    fn called(pool: &Pool) -> Result<u8, OwnError> {
        let sync = Cell::new(1);
        Ok(pool
            .limited_group(0)
            .do_with_deadline(move || sync.get(), LONG)?)
    }
    timed(|| {
        let pool = pool(1, 0);
        assert!(matches!(
            called(&pool),
            Err(OwnError::Call(DeadlineError::Refused(refused))) if refused.is_retryable()
        ));
        pool.shutdown(Shutdown::Drain, LIMIT);
        assert!(matches!(served(&pool), Err(OwnError::Refused(refused)) if refused.is_closed()));
    });
}

/// `build` refuses invalid settings, and its error names the setting.
#[test]
fn bad_input_is_refused() {
    use BuildError as E;
    let check = |what: &str, set: fn(Builder) -> Builder, is_right: fn(&E) -> bool| {
        let builder = set(Pool::builder().max_workers(3));
        let error = builder.build().expect_err("bad input");
        assert!(error.source().is_none(), "{what}: {error:?}");
        assert!(is_right(&error), "{what}: {error:?}");
    };
    assert!(matches!(Pool::new(0), Err(E::ZeroWorkers)));
    let zero = |e: &E| matches!(e, E::ZeroWorkers);
    check("no workers", |b| b.max_workers(0), zero);
    let many = |e: &E| matches!(*e, E::TooManyWorkers { given, max: 65_536 } if given > 65_536);
    check("one too many", |b| b.max_workers(65_537), many);
    check("far too many", |b| b.max_workers(usize::MAX), many);
    let exceeds = |e: &E| matches!(e, E::MinExceedsMax { min: 4, max: 3 });
    check("more than the maximum", |b| b.min_workers(4), exceeds);
    let long = |e: &E| matches!(*e, E::QueueTooLong { given: n, max } if max < n && max >= 65_536);
    check("longest queue", |b| b.queue_capacity(usize::MAX), long);
    const HALF: usize = isize::MAX as usize;
    check("half of that", |b| b.queue_capacity(HALF), long);
    let bad_name = |e: &E| matches!(e, E::BadThreadName);
    check("no name", |b| b.thread_name(""), bad_name);
    check("a nul inside", |b| b.thread_name("nul\0inside"), bad_name);
    const SIZES: (usize, usize) = (16_383, 16_384);
    let small = |e: &E| matches!(*e, E::StackTooSmall { given: g, min } if (g, min) == SIZES);
    check("a byte too small", |b| b.stack_size((16 << 10) - 1), small);
}

/// A pool may have up to 65,536 workers, and a queue of any length.
#[test]
fn the_largest_pool() {
    let pool = pool(65_536, 100_000);
    assert_eq!(pool.do_with_deadline(|| 1, LONG).unwrap(), 1);
    assert_eq!((pool.max_workers(), pool.workers().len()), (65_536, 1));
}

/// The defaults of the builder; of several calls of a setter the last one counts.
#[test]
fn builder_defaults() {
    let figures = |p: &Pool| (p.max_workers(), p.min_workers(), p.queue_capacity());
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let written = [Builder::default(), Pool::builder()].map(|b| format!("{b:?}"));
    assert_eq!(written[0], written[1]);
    let pool = Pool::builder().build().unwrap();
    assert_eq!(figures(&pool), (4 * cpus, 0, 0));
    assert!(!pool.is_closed());
    assert_eq!(figures(&Pool::new(3).unwrap()), (3, 0, 0));
    let pool = pool_with(9, 7, |b| {
        (b.max_workers(5).min_workers(4).min_workers(2)).queue_capacity(3)
    });
    assert_eq!(figures(&pool), (5, 2, 3));
}

/// Threads are called `{name}-{slot}`, `lazypool-{slot}` by default.
#[test]
fn threads_have_names() {
    timed(|| {
        let named = |name: &str, set: fn(Builder) -> Builder| {
            let pool = pool_with(3, 0, |b| set(b.min_workers(1)));
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
                assert!(slot < 3 && slots.insert(slot), "two workers with one slot");
            }
        };
        named("lazypool", |b| b);
        let again = |b: Builder| b.thread_name("a").thread_name(String::from("two words"));
        named("two words", again);
        const LONG_NAME: &str = "longer than any system shows";
        named(LONG_NAME, |b| b.thread_name(LONG_NAME));
    });
}

/// `stack_size` sets the stack of the workers: a task uses more than the usual two mebibytes of it.
/// The smallest stack that `build` accepts is large enough to run tasks.
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
        // 300 frames of at least 32 KiB take more than 9 MiB.
        let pool = pool_with(2, 0, |b| b.stack_size(32 << 20));
        assert_eq!(pool.do_with_deadline(|| deep(300), LONG).unwrap(), 300);
        let pool = pool_with(1, 0, |b| b.stack_size(16 << 10));
        assert_eq!(pool.do_with_deadline(|| 7, LONG).unwrap(), 7);
        assert_eq!(pool.awaitable().serve(|| 8).unwrap().join().unwrap(), 8);
    });
}

/// `on_worker_start` and `on_worker_stop` run on the worker's own thread with its slot, each once:
/// the first before the worker's first task, the second after its last.
#[test]
fn hooks_frame_a_workers_life() {
    timed(|| {
        type Event = (&'static str, usize, thread::ThreadId);
        let log: Arc<Mutex<Vec<Event>>> = Arc::default();
        let note = |what: &'static str| {
            let log = Arc::clone(&log);
            move |slot: usize| (log.lock().unwrap()).push((what, slot, thread::current().id()))
        };
        let pool = pool_with(3, 0, |b| {
            b.idle_timeout(ms(5))
                .on_worker_start(|_| panic!("replaced: a hook set twice counts once"))
                .on_worker_stop(|_| panic!("replaced: a hook set twice counts once"))
                .on_worker_start(note("start"))
                .on_worker_stop(note("stop"))
        });
        for _ in 0..3 {
            let gate = Gate::new();
            for _ in 0..3 {
                let task = note("task");
                must_serve(&pool, after(&gate, move || task(task::slot().unwrap())));
            }
            gate.wait_entered(3);
            gate.open();
            await_workers(&pool, 0);
        }
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        let log = log.lock().unwrap();
        let threads: HashSet<_> = log.iter().map(|event| event.2).collect();
        assert_eq!(threads.len() as u64, pool.stats().spawned);
        for thread in threads {
            let mine: Vec<&Event> = log.iter().filter(|event| event.2 == thread).collect();
            let what: Vec<&str> = mine.iter().map(|event| event.0).collect();
            assert_eq!((what.first(), what.last()), (Some(&"start"), Some(&"stop")));
            let tasks = what.iter().filter(|what| **what == "task").count();
            assert_eq!(what.len(), tasks + 2, "{what:?}");
            let mut slots = mine.iter().map(|event| event.1);
            assert!(slots.all(|slot| slot == mine[0].1), "one thread, one slot");
        }
        assert_eq!(log.iter().filter(|event| event.0 == "task").count(), 9);
        assert_eq!(pool.stats().hook_panics, 0);
    });
}
