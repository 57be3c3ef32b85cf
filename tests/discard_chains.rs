//! Law 10: however many tasks are discarded, and however they cancel one another, the stack does not
//! grow with their number, and the time in proportion to it.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

use common::gates::*;
use common::*;
use lazypool::{CancelGuard, Handle, Shutdown};

/// With this many tasks, a stack overflows if each of them adds a level of calls.
const MANY: usize = cut(20_000) as usize;

/// Asserts that a discard of many tasks has not taken a time that is quadratic in their number.
#[track_caller]
fn assert_quick(start: Instant) {
    let took = start.elapsed();
    // Many times as long as it takes.
    assert!(took < Duration::from_secs(4), "{took:?}");
}

/// Laws 2 and 7: each task of a group cancels the group as it is dropped. All are discarded by a
/// cancel, a shutdown, or a panic that drops the group's guard on the worker. Tasks of another group
/// lie in between, and stay.
#[test]
fn law10_tasks_that_each_guard_their_group() {
    isolated("law10_tasks_that_each_guard_their_group", || {
        for way in ["cancel", "shutdown", "panic"] {
            let pool = pool(1, MANY + MANY / 100);
            let (busy, ran) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
            let [group, other] = [(); 2].map(|()| pool.group());
            let (guard, wait) = (group.drop_guard(), busy.task());
            must_serve_in(if way == "panic" { &group } else { &other }, move || {
                wait();
                match way {
                    "panic" => {
                        let _guard = guard;
                        quiet_panic("on purpose");
                    }
                    _ => guard.disarm(),
                }
            });
            busy.wait_entered(1);
            for n in 0..MANY {
                let (guard, ran) = (group.drop_guard(), Arc::clone(&ran));
                must_serve_in(&group, move || {
                    ran.fetch_add(1, Ordering::SeqCst);
                    guard.disarm();
                });
                if n % 100 == 0 {
                    must_serve_in(&other, || ());
                }
            }
            let start = Instant::now();
            match way {
                "cancel" => group.cancel(),
                "shutdown" => drop(pool.shutdown(Shutdown::Discard, Duration::ZERO)),
                _ => busy.open(),
            }
            group.wait();
            assert_quick(start);
            assert_eq!((group.discarded(), group.pending()), (MANY, 0), "{way}");
            assert_eq!(ran.load(Ordering::SeqCst), 0);
            busy.open();
            other.wait();
            assert_eq!(group.panicked(), usize::from(way == "panic"));
            assert_eq!(other.discarded() > 0, way == "shutdown");
            check_at_rest(&pool, &settle(&pool));
        }
    });
}

/// Law 2: each task that a shutdown discards shuts the pool down again as it is dropped.
#[test]
fn law10_tasks_that_each_end_the_pool() {
    isolated("law10_tasks_that_each_end_the_pool", || {
        let (pool, _busy) = held(MANY);
        for _ in 0..MANY {
            let its = Arc::clone(&pool);
            let ends = move || drop(its.shutdown(Shutdown::Discard, Duration::ZERO));
            must_serve(&pool, dropping(ends));
        }
        let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
        assert_eq!(report.discarded, MANY as u64);
        assert_eq!(Arc::strong_count(&pool), 1, "each is dropped");
    });
}

/// Many tasks that each guard a group of their own are discarded quickly.
#[test]
fn law10_tasks_that_each_guard_a_group_of_their_own() {
    timed(|| {
        let (pool, _busy) = held(2 * MANY);
        for _ in 0..2 * MANY {
            let group = pool.group();
            let guard = group.drop_guard();
            must_serve_in(&group, move || drop(guard));
        }
        let start = Instant::now();
        let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
        assert_quick(start);
        assert_eq!(report.discarded, 2 * MANY as u64);
    });
}

/// Each task joins the next one as it is dropped.
#[test]
fn law10_captures_that_join_one_another() {
    isolated("law10_captures_that_join_one_another", || {
        for by_shutdown in [true, false] {
            let (pool, _busy) = held(MANY);
            let group = pool.group();
            let mut before = None::<mpsc::Sender<Handle<()>>>;
            for _ in 0..MANY {
                let (give, take) = mpsc::channel::<Handle<()>>();
                let joins = move || {
                    if let Ok(next) = take.try_recv() {
                        assert!(next.join().is_err());
                    }
                };
                let handle = must_await(group.awaitable(), dropping(joins));
                match before.replace(give) {
                    Some(before) => before.send(handle).unwrap(),
                    None => handle.detach(),
                }
            }
            if by_shutdown {
                pool.shutdown(Shutdown::Discard, Duration::ZERO);
            } else {
                group.cancel();
            }
            assert_eq!((group.pending(), group.discarded()), (0, MANY));
        }
    });
}

/// Many groups of one task each, which holds the guard of another group. The first guard is dropped
/// here or on a worker.
#[test]
fn law10_groups_that_cancel_one_another() {
    isolated("law10_groups_that_cancel_one_another", || {
        const ALL: usize = cut(100_000) as usize;
        for on_worker in [false, true] {
            let pool = pool(2, ALL);
            let busy = Gate::new();
            must_serve(&pool, busy.task());
            let (start, started) = mpsc::channel::<Option<CancelGuard>>();
            let (done, over) = mpsc::channel();
            must_serve(&pool, move || {
                drop(started.recv().ok());
                done.send(()).unwrap();
            });
            busy.wait_entered(1);
            wait_until("both workers to be busy", || pool.stats().running == 2);
            let mut guard = None;
            for _ in 0..ALL {
                let (group, inner) = (pool.group(), guard.take());
                must_serve_in(&group, move || drop::<Option<CancelGuard>>(inner));
                guard = Some(group.drop_guard());
            }
            if on_worker {
                start.send(guard).unwrap();
            } else {
                drop(guard);
            }
            drop(start);
            over.recv().unwrap();
            assert_eq!(pool.stats().discarded, ALL as u64);
        }
    });
}

/// Discards `tasks` tasks of which each holds the handle of the one before. Returns how long that
/// took.
fn cancel_chain(tasks: usize, by_shutdown: bool) -> Duration {
    let (pool, _busy) = held(tasks);
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
    took
}

/// Each task cancels the next one as it is dropped. In quadratic time all would take a hundred times
/// as long as a tenth of them.
#[test]
fn law10_tasks_that_cancel_one_another() {
    isolated("law10_tasks_that_cancel_one_another", || {
        const ALL: usize = cut(300_000) as usize;
        for by_shutdown in [true, false] {
            let tenth = cancel_chain(ALL / 10, by_shutdown);
            let all = cancel_chain(ALL, by_shutdown);
            // The constant covers first accesses to memory pages, and a busy machine.
            let limit = 40 * tenth + Duration::from_secs(3);
            assert!(all < limit, "{all:?}, a tenth {tenth:?}");
        }
    });
}
