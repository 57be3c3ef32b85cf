//! Law 10: a discard first settles all of its tasks. Then it drops their captures, as ordinary code
//! of the thread that discards. Such a drop may cancel tasks, wait for tasks and end pools.

mod common;

use std::any::Any;
use std::cell::RefCell;
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::futures::block_on;
use common::gates::*;
use common::*;
use lazypool::{Group, Handle, Pool, Shutdown, TaskError};

/// Queues tasks, all of them in the group, and discards them by a shutdown or by cancelling the
/// group.
fn discard(by_shutdown: bool, queue: usize, make: impl FnOnce(&Pool, &Group)) {
    let (pool, busy) = held(queue);
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

/// Laws 7 and 8: captures are dropped on the thread that discards, once all handles and groups have
/// been told. Their panics are contained: all tasks are settled and all captures are dropped.
#[test]
fn law08_discarded_captures_drop_where_they_are_discarded() {
    timed(|| {
        for way in [
            "group",
            "shutdown",
            "handle",
            "handle's drop",
            "pool's drop",
        ] {
            let builder = builder(1, 6).shutdown_on_drop(Shutdown::Discard, Duration::ZERO);
            let (pool, busy) = (builder.build().expect("pool"), Gate::new());
            must_serve(&pool, busy.task());
            busy.wait_entered(1);
            let group = pool.group();
            let (tell, told) = mpsc::channel();
            let handles: Vec<_> = (0..6)
                .map(|_| {
                    let tell = tell.clone();
                    let here = on_drop(move || tell.send(thread::current().id()).unwrap());
                    let captures = (Bomb("of a capture"), here);
                    must_await(group.awaitable(), move || drop(captures))
                })
                .collect();
            match way {
                "group" => group.cancel(),
                "shutdown" => drop(pool.shutdown(Shutdown::Cancel, Duration::ZERO)),
                "handle" => handles.iter().for_each(Handle::cancel),
                "handle's drop" => drop(handles),
                _ => {
                    drop(pool);
                    assert_eq!((group.pending(), group.discarded()), (0, 6), "{way}");
                    assert_eq!(Vec::from_iter(told.try_iter()), [thread::current().id(); 6]);
                    continue;
                }
            }
            assert_eq!(Vec::from_iter(told.try_iter()), [thread::current().id(); 6]);
            let s = pool.stats();
            assert_eq!((s.discarded, s.queued, s.panicked), (6, 0, 0), "{way}");
            assert_eq!((group.pending(), group.discarded()), (0, 6), "{way}");
            busy.open();
            let s = settle(&pool);
            assert_eq!((s.panicked, s.hook_panics), (0, 0), "{way}");
            check_at_rest(&pool, &s);
        }
    });
}

/// The drop of a capture waits, in each possible way, for a task further back in the same discard.
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
                let joins = move || match waits(take.recv().unwrap()) {
                    Err(TaskError::Discarded) => assert!(by_shutdown),
                    Err(TaskError::Cancelled) => assert!(!by_shutdown),
                    other => panic!("{other:?}"),
                };
                must_serve_in(group, dropping(joins));
                give.send(must_await(group.awaitable(), || ())).unwrap();
            });
        }
    });
}

/// A capture joins a task that it has just cancelled itself, which is dropped after it.
#[test]
fn law10_a_capture_may_join_a_task_that_it_cancels() {
    timed(|| {
        let by_itself: [fn(&Group, &Handle<()>); 2] =
            [|group, _| group.cancel(), |_, handle| handle.cancel()];
        for cancels in by_itself {
            let (pool, _busy) = held(2);
            let (outer, inner) = (pool.group(), pool.group());
            let (give, take) = mpsc::channel();
            let (tell, told) = mpsc::channel();
            let its = inner.clone();
            let joins = move || {
                let handle: Handle<()> = take.recv().unwrap();
                cancels(&its, &handle);
                tell.send(handle.join()).unwrap();
            };
            must_serve_in(&outer, dropping(joins));
            give.send(must_await(inner.awaitable(), || ())).unwrap();
            outer.cancel();
            let outcome = told.recv().unwrap();
            assert!(matches!(outcome, Err(TaskError::Cancelled)), "{outcome:?}");
        }
    });
}

/// A capture waits for a group whose tasks are discarded with it, before and behind it: the wait may
/// return before their captures are dropped.
#[test]
fn law10_a_capture_may_wait_for_a_group_that_is_discarded_with_it() {
    let ways: [fn(&Group); 3] = [
        Group::wait,
        |group| while group.wait_timeout(ms(1)).is_err() {},
        |group| {
            group.cancel();
            group.wait();
        },
    ];
    timed(move || {
        for waits in ways {
            let (pool, _busy) = held(3);
            let group = pool.group();
            let its = group.clone();
            must_serve_in(&group, || ());
            must_serve(&pool, dropping(move || waits(&its)));
            must_serve_in(&group, || ());
            let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
            assert_eq!(report.discarded, 3);
            assert_eq!((group.discarded(), group.pending()), (2, 0));
        }
    });
}

/// A task's handle is dropped or cancelled, and the drop of the task's capture waits for the task's
/// own group.
#[test]
fn law10_a_capture_may_wait_for_its_group_as_its_handle_goes() {
    timed(|| {
        for by_drop in [false, true] {
            let (pool, _busy) = held(1);
            let group = pool.group();
            let its = group.clone();
            let handle = must_await(group.awaitable(), dropping(move || its.wait()));
            if by_drop {
                drop(handle);
            } else {
                handle.cancel();
                let outcome = handle.join();
                assert!(matches!(outcome, Err(TaskError::Cancelled)), "{outcome:?}");
            }
            assert_eq!((group.discarded(), group.pending()), (1, 0));
        }
    });
}

/// A `join` with a limit returns in time within a discard: it drops no other captures meanwhile.
#[test]
fn law21_a_join_with_a_limit_within_a_discard_drops_nothing_else() {
    timed(|| {
        for by_shutdown in [true, false] {
            let (other, gate) = (pool(1, 0), Gate::new());
            let running = must_await(other.awaitable(), gate.task());
            gate.wait_entered(1);
            let log = Arc::new(Mutex::new(Vec::new()));
            let back = Arc::new(Mutex::new(None));
            discard(by_shutdown, 2, |_, group| {
                let (first, second) = (Arc::clone(&log), Arc::clone(&log));
                let keep = Arc::clone(&back);
                must_serve_in(
                    group,
                    dropping(move || {
                        let running = running.join_timeout(ms(10)).expect_err("it still runs");
                        *keep.lock().unwrap() = Some(running);
                        first.lock().unwrap().push("joined");
                    }),
                );
                must_serve_in(
                    group,
                    dropping(move || second.lock().unwrap().push("dropped")),
                );
            });
            assert_eq!(*log.lock().unwrap(), ["joined", "dropped"]);
            gate.open();
            back.lock().unwrap().take().unwrap().join().unwrap();
        }
    });
}

/// Several captures each shut the pool down, one within the other, while its worker waits for a
/// capture that the same discard drops after them. The inner calls return at once and report that
/// worker.
#[test]
fn law10_captures_may_end_the_pool_for_which_another_is_to_be_dropped() {
    timed(|| {
        for mode in MODES {
            for (by_shutdown, captures) in [(true, 1), (true, 3), (false, 1), (false, 3)] {
                let (pool, stop) = until_unsent(8);
                let group = pool.group();
                let (tell, told) = mpsc::channel();
                for _ in 0..captures {
                    let (its, tell) = (Arc::clone(&pool), tell.clone());
                    let ends = move || tell.send(its.shutdown(mode, Duration::MAX)).unwrap();
                    must_serve_in(&group, dropping(ends));
                }
                must_serve_in(&group, move || drop(stop));
                if by_shutdown {
                    let report = pool.shutdown(Shutdown::Discard, LIMIT);
                    assert!(report.is_clean(), "{report:?}");
                    assert_eq!(report.discarded, captures as u64 + 1);
                } else {
                    group.cancel();
                    assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
                }
                assert_eq!((group.discarded(), group.pending()), (captures + 1, 0));
                let inner: Vec<_> = told.try_iter().collect();
                assert_eq!(inner.len(), captures);
                assert!(inner.iter().all(|report| !report.is_clean()), "{inner:?}");
            }
        }
    });
}

/// A shutdown or drop of another pool within a discard waits, as it does anywhere else.
#[test]
fn law10_a_shutdown_of_another_pool_within_a_discard_waits() {
    timed(|| {
        for (by_shutdown, drops) in [(true, true), (true, false), (false, true), (false, false)] {
            let (other, gate) = held(1);
            let ledger = Ledger::new(1);
            must_serve(&other, mark(&ledger, 0));
            let books = ledger.clone();
            discard(by_shutdown, 1, |_, group| {
                let ends = move || {
                    let opener = thread::spawn(move || {
                        thread::sleep(ms(10));
                        gate.open();
                    });
                    if drops {
                        drop(other);
                    } else {
                        assert!(other.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
                    }
                    assert_eq!(books.runs(0), 1, "the other pool has drained");
                    opener.join().unwrap();
                };
                must_serve_in(group, dropping(ends));
            });
            ledger.assert_all_ran();
        }
    });
}

/// A capture's drop shuts down another pool, whose worker waits until a capture of a queued task of
/// that pool is dropped. That capture is dropped at once, because each pool has its own list.
#[test]
fn law10_a_discard_of_another_pool_within_one_drops_its_own_captures_at_once() {
    timed(|| {
        let (other, stop) = until_unsent(1);
        must_serve(&other, move || drop(stop));
        let its = Arc::clone(&other);
        discard(true, 1, move |_, group| {
            let ends = move || assert!(its.shutdown(Shutdown::Discard, LIMIT).is_clean());
            must_serve_in(group, dropping(ends));
        });
        assert_eq!((other.stats().discarded, other.stats().workers), (1, 0));
    });
}

/// Laws 7 and 10: a discarded capture drops another pool. A task of that pool is discarded too, and
/// a hook of that pool panics as it is dropped: the discard must not keep that pool alive, or the
/// panic unwinds through it.
#[test]
fn law10_a_discard_keeps_no_pool_alive_that_it_drops() {
    timed(|| {
        let (pool, _busy) = held(1);
        let bomb = Bomb("of a hook");
        let its = builder(1, 1)
            .shutdown_on_drop(Shutdown::Discard, Duration::ZERO)
            .on_panic(move |_| {
                let _captured = &bomb;
            })
            .build()
            .expect("pool");
        let its_busy = Gate::new();
        let (tell, told) = mpsc::channel();
        let wait = its_busy.task();
        must_serve(&its, move || {
            // Dropped when the thread ends, after it has released its pool.
            thread_local!(static END: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) });
            END.set(Some(Box::new(on_drop(move || tell.send(()).unwrap()))));
            wait();
        });
        its_busy.wait_entered(1);
        let ledger = Ledger::new(1);
        must_serve(&its, mark(&ledger, 0));
        let ends = move || {
            drop(its);
            its_busy.open();
            told.recv().unwrap();
        };
        let group = pool.group();
        must_serve_in(&group, dropping(ends));
        group.cancel();
        assert_eq!((ledger.runs(0), ledger.drops(0)), (0, 1));
        assert_eq!((group.discarded(), group.pending()), (1, 0));
        // This thread no longer counts as one that discards, so its wait does not return early.
        let group = pool.group();
        must_serve_in(&group, || ());
        assert!(group.wait_timeout(ms(1)).is_err());
    });
}
