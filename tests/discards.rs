//! Law 10: a discard first settles all of its tasks. Then it drops their captures, as ordinary code
//! of the thread that discards. Such a drop may cancel tasks, wait for tasks and end pools.

mod common;

use std::sync::{mpsc, Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{Builder, CancelGuard, Group, Handle, Pool, Shutdown};

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
    let ways = ["group", "shutdown", "handle", "its drop", "pool's drop"];
    timed_each(ways, |way| {
        let discards = |b: Builder| b.shutdown_on_drop(Shutdown::Discard, Duration::ZERO);
        let pool = pool_with(1, 6, discards);
        let (busy, group) = (hold(&pool, 1), pool.group());
        let mut owner = Some(pool);
        let (tell, told) = mpsc::channel();
        let task = |_| {
            let tell = tell.clone();
            let here = on_drop(move || tell.send(thread::current().id()).unwrap());
            let captures = (Bomb("of a capture"), here);
            must_await(group.awaitable(), move || drop(captures))
        };
        let handles: Vec<_> = (0..6).map(task).collect();
        match way {
            "group" => group.cancel(),
            "shutdown" => owner.iter().for_each(|pool| {
                pool.shutdown(Shutdown::Cancel, Duration::ZERO);
            }),
            "handle" => handles.iter().for_each(Handle::cancel),
            "its drop" => drop(handles),
            _ => drop(owner.take()),
        }
        let here = thread::current().id();
        assert_eq!(Vec::from_iter(told.try_iter()), [here; 6], "{way}");
        assert_eq!((group.pending(), group.discarded()), (0, 6), "{way}");
        let Some(pool) = owner else { return };
        busy.open();
        assert_stats!(at_rest(&pool), discarded: 6, panicked: 0, hook_panics: 0);
    });
}

/// A capture waits for a group whose tasks are discarded with it, its own task included. The wait
/// may return before their captures are dropped.
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
    timed_each(product(ways, [0, 1, 2]), |(waits, discard)| {
        let (pool, _busy) = held(3);
        let group = pool.group();
        let its = group.clone();
        // Handles discard one task, a shutdown those before and behind it, too.
        let others = usize::from(discard == 0);
        (0..others).for_each(|_| must_serve_in(&group, || ()));
        let handle = must_await(group.awaitable(), dropping(move || waits(&its)));
        (0..others).for_each(|_| must_serve_in(&group, || ()));
        match discard {
            0 => drop(pool.shutdown(Shutdown::Discard, Duration::ZERO)),
            1 => handle.cancel(),
            _ => drop(handle),
        }
        assert_eq!((group.discarded(), group.pending()), (1 + 2 * others, 0));
    });
}

/// A `join` with a limit returns in time within a discard: it drops no other captures meanwhile.
#[test]
fn law21_a_join_with_a_limit_within_a_discard_drops_nothing_else() {
    timed_each([true, false], |by_shutdown| {
        let (other, gate) = (pool(1, 0), Gate::new());
        let running = must_await(other.awaitable(), gate.task());
        gate.wait_entered(1);
        let (tell, told) = mpsc::channel();
        discard(by_shutdown, 2, |_, group| {
            let tells = tell.clone();
            let joins = move || {
                let running = running.join_timeout(ms(10)).expect_err("it still runs");
                running.detach();
                tells.send("joined").unwrap();
            };
            must_serve_in(group, dropping(joins));
            must_serve_in(group, dropping(move || tell.send("dropped").unwrap()));
        });
        assert_eq!(Vec::from_iter(told.try_iter()), ["joined", "dropped"]);
    });
}

/// Several captures each shut the pool down, one within the other, while its worker waits for a
/// capture that the same discard drops after them. The inner calls return at once and report that
/// worker.
#[test]
fn law10_captures_may_end_the_pool_for_which_another_is_to_be_dropped() {
    let cases = product(MODES, product([true, false], [1, 3]));
    timed_each(cases, |(mode, (by_shutdown, captures))| {
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
    });
}

/// A shutdown or drop of another pool within a discard waits, as it does anywhere else.
#[test]
fn law10_a_shutdown_of_another_pool_within_a_discard_waits() {
    let cases = product([true, false], [true, false]);
    timed_each(cases, |(by_shutdown, drops)| {
        let (other, gate) = held(1);
        let ledger = Ledger::new(1);
        must_serve(&other, ledger.task(0));
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
        let its = pool_with(1, 1, |b| {
            let b = b.shutdown_on_drop(Shutdown::Discard, Duration::ZERO);
            b.on_panic(move |_| {
                let _captured = &bomb;
            })
        });
        let its_busy = Gate::new();
        let (tell, told) = mpsc::channel();
        // Called after the worker's thread has released its pool.
        let end = || at_thread_end(move || tell.send(()).unwrap());
        must_serve(&its, after(&its_busy, end));
        its_busy.wait_entered(1);
        let ledger = Ledger::new(1);
        must_serve(&its, ledger.task(0));
        let ends = move || {
            drop(its);
            its_busy.open();
            told.recv().unwrap();
        };
        let group = pool.group();
        must_serve_in(&group, dropping(ends));
        group.cancel();
        assert_eq!(ledger.fate(0), (0, 1));
        assert_eq!((group.discarded(), group.pending()), (1, 0));
        // This thread no longer counts as one that discards, so its wait does not return early.
        let group = pool.group();
        must_serve_in(&group, || ());
        assert!(group.wait_timeout(ms(1)).is_err());
    });
}

// ---------------------------------------------------------------------------------------------
// Many tasks: the stack does not grow with their number, nor the time faster than it
// ---------------------------------------------------------------------------------------------

/// With this many tasks, a stack overflows if each of them adds a level of calls.
const MANY: usize = cut(20_000) as usize;

/// Discards many tasks. `make` returns the group of one of them, and the action of its captures as
/// they are dropped.
fn discard_many<F>(by_shutdown: bool, make: impl Fn(&Arc<Pool>, &Group) -> (Group, F))
where
    F: FnOnce() + Send + 'static,
{
    let (pool, _busy) = held(MANY + MANY.div_ceil(100));
    let [group, other] = [(); 2].map(|()| pool.group());
    for n in 0..MANY {
        let (its, action) = make(&pool, &group);
        must_serve_in(&its, dropping(action));
        // Tasks of another group lie in between. A cancel leaves them queued.
        if n % 100 == 0 {
            must_serve_in(&other, || ());
        }
    }
    let start = Instant::now();
    discard_queued(by_shutdown, &pool, &group);
    let took = start.elapsed();
    // The limit is many times as long as the discard takes.
    assert!(took < limit(4), "{took:?}");
    let s = pool.stats();
    let others = s.discarded - MANY as u64;
    assert_eq!(others, other.discarded() as u64, "{s:?}");
    assert_eq!(other.discarded() > 0, by_shutdown);
    assert_eq!((group.pending(), s.completed), (0, 0), "{s:?}");
    assert_eq!(Arc::strong_count(&pool), 1, "an action was not dropped");
}

/// As it is dropped, each task cancels its group, which it shares with all others or has alone, or
/// shuts the pool down again.
#[test]
fn law10_tasks_that_each_discard_again() {
    isolated(|| {
        for by_shutdown in [true, false] {
            discard_many(by_shutdown, |_, group| {
                let guard = group.drop_guard();
                (group.clone(), move || drop(guard))
            });
        }
        discard_many(true, |pool, _| {
            let group = pool.group();
            let guard = group.drop_guard();
            (group, move || drop(guard))
        });
        discard_many(true, |pool, group| {
            let pool = Arc::clone(pool);
            let end = move || drop(pool.shutdown(Shutdown::Discard, Duration::ZERO));
            (group.clone(), end)
        });
    });
}

/// Each task joins the next one as it is dropped.
#[test]
fn law10_captures_that_join_one_another() {
    isolated_each([true, false], |by_shutdown| {
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
        discard_queued(by_shutdown, &pool, &group);
        assert_eq!((group.pending(), group.discarded()), (0, MANY));
    });
}

/// Many groups of one task each, which holds the guard of another group. The first guard is dropped
/// here or on a worker.
#[test]
fn law10_groups_that_cancel_one_another() {
    isolated_each([false, true], |on_worker| {
        let pool = pool(2, MANY);
        let (busy, start) = (Gate::new(), Gate::new());
        must_serve(&pool, busy.task());
        let (give, take) = mpsc::channel::<CancelGuard>();
        let drops = move || drop(take.try_recv());
        let worker = must_await(pool.awaitable(), after(&start, drops));
        busy.wait_entered(1);
        start.wait_entered(1);
        let mut last = pool.group().drop_guard();
        for _ in 0..MANY {
            let group = pool.group();
            let before = std::mem::replace(&mut last, group.drop_guard());
            must_serve_in(&group, move || drop(before));
        }
        match on_worker {
            true => give.send(last).unwrap(),
            false => drop(last),
        }
        start.open();
        worker.join().unwrap();
        assert_eq!(pool.stats().discarded, MANY as u64);
    });
}

/// Discards `tasks` tasks of which each holds the handle of the one before. Returns how long that
/// took.
fn cancel_chain(tasks: usize, by_shutdown: bool) -> Duration {
    let (pool, _busy) = held(tasks);
    let mut last = None::<Handle<()>>;
    for _ in 0..tasks {
        let before = last.take();
        last = Some(must_await(pool.awaitable(), move || drop(before)));
    }
    let start = Instant::now();
    if by_shutdown {
        pool.shutdown(Shutdown::Discard, Duration::ZERO);
    }
    drop(last);
    let took = start.elapsed();
    assert_eq!(pool.stats().discarded, tasks as u64);
    took
}

/// Each task cancels the next one as it is dropped. In quadratic time all would take a hundred
/// times as long as a tenth of them.
#[test]
fn law10_tasks_that_cancel_one_another() {
    isolated(|| {
        const ALL: usize = cut(200_000) as usize;
        for by_shutdown in [true, false] {
            let tenth = cancel_chain(ALL / 10, by_shutdown);
            let all = cancel_chain(ALL, by_shutdown);
            // The constant covers first accesses to memory pages, and a busy machine.
            let limit = 40 * tenth + Duration::from_secs(3);
            assert!(all < limit, "{all:?}, a tenth {tenth:?}");
        }
    });
}

/// A waker that drops a value.
struct Drops<T>(Mutex<Option<T>>);

impl<T: Send + 'static> Wake for Drops<T> {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

/// Each waker of a future in line makes space for the next future, or cancels its group.
#[test]
fn law10_wakers_in_line_that_wake_one_another() {
    const MANY: usize = cut(2_000) as usize;
    isolated_each([false, true], |by_group| {
        let (pool, _busy) = held(1);
        let first = must_await(pool.awaitable(), || ());
        let (mut last, mut futures) = (pool.group().drop_guard(), Vec::new());
        for _ in 0..MANY {
            let group = pool.group();
            let before = std::mem::replace(&mut last, group.drop_guard());
            let future = group.awaitable().serve_async(|| ());
            if by_group {
                let drops = Drops(Mutex::new(Some(before)));
                futures.push(pending(future, &Waker::from(Arc::new(drops))));
                continue;
            }
            before.disarm();
            let drops = Arc::new(Drops(Mutex::new(None)));
            let future = pending(future, &Waker::from(drops.clone()));
            *drops.0.lock().unwrap() = Some(future);
        }
        match by_group {
            true => drop(last),
            false => drop(first),
        }
        assert_eq!(pool.stats().waiting, 0);
    });
}

/// A capture cancels a group whose future waits in line, and waits until that future is woken.
#[test]
fn law10_a_capture_waits_for_a_future_that_it_cancels() {
    timed(|| {
        let (pool, _busy) = held(1);
        let (group, (tell, told)) = (pool.group(), mpsc::channel());
        let future = group.awaitable().serve_async(|| ());
        let guard = group.drop_guard();
        let waits = on_drop(move || {
            drop(guard);
            told.recv().unwrap();
        });
        let handle = must_await(pool.awaitable(), move || drop(waits));
        let _first = pending(pool.awaitable().serve_async(|| ()), Waker::noop());
        let tells = on_drop(move || tell.send(()).unwrap());
        let waker = Waker::from(Arc::new(Drops(Mutex::new(Some(tells)))));
        let _future = pending(future, &waker);
        drop(handle);
    });
}

/// A cancel calls the waker of a future in line. A shutdown in that waker does not wait.
#[test]
fn law10_a_shutdown_in_a_waker_returns_at_once() {
    timed(|| {
        let (pool, busy) = held(1);
        pool.serve(|| ()).unwrap();
        let (group, of_waker) = (pool.group(), pool.clone());
        let (tell, told) = mpsc::channel();
        let shuts = on_drop(move || {
            let report = of_waker.shutdown(Shutdown::Drain, Duration::MAX);
            tell.send(report.stragglers.len()).unwrap();
        });
        let waker = Waker::from(Arc::new(Drops(Mutex::new(Some(shuts)))));
        let _future = pending(group.awaitable().serve_async(|| ()), &waker);
        group.cancel();
        assert_eq!(told.try_recv(), Ok(1));
        busy.open();
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
    });
}
