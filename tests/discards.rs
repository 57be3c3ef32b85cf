//! Law 10: a discard first settles all of its tasks. Then it drops what they captured, as ordinary
//! code of the thread that discards. If such a drop waits for something, it waits as it would
//! anywhere else.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::futures::block_on;
use common::*;
use lazypool::{Group, Handle, Pool, Shutdown, TaskError};

/// With this many tasks, a stack overflows if each of them adds a level of calls.
const MANY: usize = cut(20_000) as usize;

/// Queues tasks, all of them in the group, and discards them by a shutdown or by cancelling the
/// group.
fn discard(by_shutdown: bool, queue: usize, make: impl FnOnce(&Pool, &Group)) {
    let busy = Gate::new();
    let pool = occupied(&busy, queue);
    let group = pool.group();
    make(&pool, &group);
    let queued = pool.stats().queued as u64;
    if by_shutdown {
        let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
        assert_eq!(report.discarded, queued);
    } else {
        group.cancel();
    }
    assert_eq!(pool.stats().discarded, queued);
    assert_eq!((group.pending(), group.discarded() as u64), (0, queued));
    busy.open();
}

/// The drop of a capture waits, in each possible way, for a task further back in the same discard.
/// Once, all of these waits hung except `join`.
#[test]
fn law10_a_capture_may_wait_in_any_way_for_a_task_that_is_discarded_with_it() {
    type Waits = fn(Handle<()>) -> Result<(), TaskError>;
    let ways: [Waits; 4] = [
        Handle::join,
        |handle| block_on(handle),
        |handle| handle.join_timeout(LONG).expect("the task has ended"),
        |handle| {
            while !handle.is_finished() {
                thread::yield_now();
            }
            handle.join()
        },
    ];
    timed(move || {
        for (by_shutdown, waits) in [true, false]
            .into_iter()
            .flat_map(|by| ways.map(|w| (by, w)))
        {
            discard(by_shutdown, 2, |_, group| {
                let (give, take) = mpsc::channel();
                let capture = OnDrop(Some(move || {
                    let outcome = waits(take.recv().unwrap());
                    assert!(outcome.is_err(), "the task never ran");
                }));
                must_serve_in(group, move || drop(capture));
                give.send(must_await(group.awaitable(), || ())).unwrap();
            });
        }
    });
}

/// Many discarded tasks, each of which joins the next one as it is dropped, need no more stack than
/// one.
#[test]
fn law10_captures_that_join_one_another_need_no_stack() {
    isolated("law10_captures_that_join_one_another_need_no_stack", || {
        for by_shutdown in [true, false] {
            discard(by_shutdown, MANY, |_, group| {
                let mut before = None::<mpsc::Sender<Handle<()>>>;
                for _ in 0..MANY {
                    let (give, take) = mpsc::channel::<Handle<()>>();
                    let capture = OnDrop(Some(move || {
                        if let Ok(next) = take.try_recv() {
                            assert!(next.join().is_err());
                        }
                    }));
                    let handle = must_await(group.awaitable(), move || drop(capture));
                    match before.replace(give) {
                        Some(before) => before.send(handle).unwrap(),
                        None => handle.detach(),
                    }
                }
            });
        }
    });
}

/// A `join` with a limit returns in time within a discard: it drops no other captures meanwhile.
#[test]
fn law21_a_join_with_a_limit_within_a_discard_drops_nothing_else() {
    timed(|| {
        for by_shutdown in [true, false] {
            let gate = Gate::new();
            let other = pool(1, 0);
            let running = must_await(other.awaitable(), gate.task());
            gate.wait_entered(1);
            let log = Arc::new(Mutex::new(Vec::new()));
            let back = Arc::new(Mutex::new(None));
            discard(by_shutdown, 2, |_, group| {
                let (first, keep) = (Arc::clone(&log), Arc::clone(&back));
                let capture = OnDrop(Some(move || {
                    let handle = running
                        .join_timeout(ms(10))
                        .expect_err("the task still runs");
                    *keep.lock().unwrap() = Some(handle);
                    first.lock().unwrap().push("joined");
                }));
                must_serve_in(group, move || drop(capture));
                let second = Arc::clone(&log);
                let capture = OnDrop(Some(move || second.lock().unwrap().push("dropped")));
                must_serve_in(group, move || drop(capture));
            });
            assert_eq!(*log.lock().unwrap(), ["joined", "dropped"]);
            gate.open();
            back.lock().unwrap().take().unwrap().join().unwrap();
        }
    });
}

/// A shutdown or drop of another pool within a discard waits, as it does anywhere else.
#[test]
fn law10_a_shutdown_of_another_pool_within_a_discard_waits() {
    timed(|| {
        for (by_shutdown, drops) in [(true, true), (true, false), (false, true), (false, false)] {
            let gate = Arc::new(Gate::new());
            let other = pool(1, 1);
            let ran = Arc::new(AtomicUsize::new(0));
            must_serve(&other, gate.task());
            gate.wait_entered(1);
            let runs = Arc::clone(&ran);
            must_serve(&other, move || {
                runs.fetch_add(1, Ordering::SeqCst);
            });
            let opens = Arc::clone(&gate);
            discard(by_shutdown, 1, |_, group| {
                let seen = Arc::clone(&ran);
                let capture = OnDrop(Some(move || {
                    let opener = thread::spawn(move || {
                        thread::sleep(ms(10));
                        opens.open();
                    });
                    if drops {
                        drop(other);
                    } else {
                        let report = other.shutdown(Shutdown::Drain, Duration::MAX);
                        assert!(report.is_clean(), "{report:?}");
                    }
                    assert_eq!(seen.load(Ordering::SeqCst), 1, "the other pool has drained");
                    opener.join().unwrap();
                }));
                must_serve_in(group, move || drop(capture));
            });
            assert_eq!(ran.load(Ordering::SeqCst), 1);
        }
    });
}

/// A capture's drop shuts down another pool, whose worker waits until a capture of a queued task of
/// that pool is dropped. That capture is dropped at once, because each pool has its own list of
/// captures.
#[test]
fn law10_a_discard_of_another_pool_within_one_drops_its_own_captures_at_once() {
    timed(|| {
        let other = Arc::new(pool(1, 1));
        let (stop, stopped) = mpsc::channel::<()>();
        let (told, started) = mpsc::channel();
        must_serve(&other, move || {
            told.send(()).unwrap();
            let _ = stopped.recv();
        });
        started.recv().unwrap();
        must_serve(&other, move || drop(stop));
        let its = Arc::clone(&other);
        discard(true, 1, move |_, group| {
            let capture = OnDrop(Some(move || {
                let report = its.shutdown(Shutdown::Discard, LIMIT);
                assert!(report.is_clean(), "{report:?}");
            }));
            must_serve_in(group, move || drop(capture));
        });
        assert_eq!((other.stats().discarded, other.stats().workers), (1, 0));
    });
}

/// If the drops of captures panic, all tasks are settled and all other captures are dropped.
#[test]
fn law07_captures_that_panic_as_their_tasks_are_discarded() {
    timed(|| {
        for way in 0..4 {
            let busy = Gate::new();
            let pool = occupied(&busy, 6);
            let (group, ledger) = (pool.group(), Ledger::new(6));
            let handles: Vec<_> = (0..6)
                .map(|id| {
                    let load = (Bomb("of a capture"), ledger.entry(id));
                    must_await(group.awaitable(), move || drop(load))
                })
                .collect();
            match way {
                0 => group.cancel(),
                1 => {
                    let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
                    assert_eq!(report.discarded, 6);
                }
                2 => handles.iter().for_each(Handle::cancel),
                _ => drop(handles),
            }
            let stats = pool.stats();
            assert_eq!((stats.discarded, stats.queued, stats.panicked), (6, 0, 0));
            assert_eq!((group.pending(), group.discarded()), (0, 6));
            assert!((0..6).all(|id| (ledger.runs(id), ledger.drops(id)) == (0, 1)));
            busy.open();
            let stats = settle(&pool);
            assert_eq!((stats.panicked, stats.hook_panics), (0, 0), "{way}");
            check_at_rest(&pool, &stats);
        }
    });
}

/// Discards `tasks` tasks that cancel one another. Returns how long that took.
fn cancel_chain(tasks: usize, by_shutdown: bool) -> Duration {
    let busy = Gate::new();
    let pool = occupied(&busy, tasks);
    let mut last = None::<Handle<()>>;
    for _ in 0..tasks {
        let next = last.take();
        last = Some(must_await(pool.awaitable(), move || drop(next)));
    }
    let start = Instant::now();
    if by_shutdown {
        let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
        assert_eq!(report.discarded, tasks as u64);
    }
    drop(last);
    let took = start.elapsed();
    assert_eq!(pool.stats().discarded, tasks as u64);
    busy.open();
    took
}

/// A million tasks that cancel one another need the stack of one, and time in proportion to their
/// number. In quadratic time they would take a hundred times as long as a tenth of them, which is
/// minutes.
#[test]
fn law10_a_million_tasks_that_cancel_one_another() {
    isolated("law10_a_million_tasks_that_cancel_one_another", || {
        const ALL: usize = cut(1_000_000) as usize;
        for by_shutdown in [true, false] {
            let tenth = cancel_chain(ALL / 10, by_shutdown);
            let all = cancel_chain(ALL, by_shutdown);
            // The constant covers first accesses to memory pages, and a busy machine.
            let limit = 40 * tenth + Duration::from_secs(3);
            assert!(all < limit, "{all:?}, a tenth {tenth:?}");
        }
    });
}

/// Many groups with one task each, where each task holds the guard of another group, need no more
/// stack than one.
#[test]
fn law10_many_groups_that_cancel_one_another() {
    isolated("law10_many_groups_that_cancel_one_another", || {
        const ALL: usize = cut(100_000) as usize;
        let busy = Gate::new();
        let pool = occupied(&busy, ALL);
        let mut guard = None;
        for _ in 0..ALL {
            let (group, inner) = (pool.group(), guard.take());
            must_serve_in(&group, move || drop::<Option<lazypool::CancelGuard>>(inner));
            guard = Some(group.drop_guard());
        }
        drop(guard);
        assert_eq!(pool.stats().discarded, ALL as u64);
        busy.open();
    });
}
