//! Law 22: `Awaitable::serve_async`, a submission that waits for space without a thread, and
//! what ends it: drops, shutdowns, cancels, deadlines. See `line_crowd.rs` for a long line.

mod common;

use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{mpsc, Arc};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{task, Handle, Shutdown, Stats, TaskError, WhenFull};

#[test]
fn law22_the_future_is_send_whatever_it_captures_that_is_send() {
    fn is_send<T: Future + Send + Unpin + std::fmt::Debug + 'static>(_: &T) {}
    let pool = pool(1, 0);
    // The future borrows neither the pool nor the `Awaitable`.
    is_send(&pool.awaitable().serve_async(|| std::cell::Cell::new(1)));
    is_send(&pool.group().awaitable().serve_async(|| ()));
}

#[test]
fn law22_it_submits_at_its_first_poll() {
    timed(|| {
        let (pool, ledger) = (pool(1, 0), Ledger::new(1));
        let future = pool.awaitable().serve_async(ledger.task(0));
        assert_eq!(ledger.drops(0), 0);
        drop(future);
        assert_eq!(ledger.fate(0), (0, 1));
        assert_eq!(pool.stats(), Stats::default());
        // If there is space, the first poll returns the handle.
        let mut future = pool.awaitable().serve_async(|| 3);
        let handle = ready(&mut future, Waker::noop());
        assert_eq!(handle.unwrap().join().unwrap(), 3);
        let again = catch_unwind(AssertUnwindSafe(|| poll(&mut future, Waker::noop())));
        assert!(again.is_err(), "polled after it was ready");
    });
}

/// Without space the future waits under every policy, and is woken once there is space: by the waker
/// of its last poll. No thread waits.
#[test]
fn law22_it_waits_for_space_whatever_the_policy() {
    let cases = [
        (0, WhenFull::Refuse),
        (1, WhenFull::Refuse),
        (1, WhenFull::Block),
        (0, WhenFull::BlockFor(ms(1))),
    ];
    timed_each(cases, |(queue, policy)| {
        let (pool, gate) = full(queue);
        let ((first, w1), (second, w2)) = (counted(), counted());
        let on = pool.when_full(policy).labeled("later");
        let mut future = pending(on.awaitable().serve_async(task::label), &w1);
        thread::sleep(ms(2));
        assert!(poll(&mut future, &w2).is_pending());
        assert_eq!(Arc::strong_count(&first), 2, "the first waker is not kept");
        assert_eq!((pool.stats().waiting, second.woken()), (1, 0));
        gate.open();
        wait_until("a wake-up", || second.woken() == 1);
        let handle = ready(&mut future, &w2).map_err(drop).unwrap();
        assert_eq!(handle.join().unwrap(), Some("later"));
        // The only refusal is that by `full`.
        assert_stats!(settle(&pool), waiting: 0, refused: 1, peak_workers: 1);
        assert_eq!((first.woken(), Arc::strong_count(&second)), (0, 2));
    });
}

/// A submission that a shutdown refuses is refused as closed, also on a worker, where one without space
/// would be refused as `OnWorker`.
#[test]
fn law10_law22_a_closed_pool_refuses_on_a_worker_as_anywhere() {
    const SPACE: usize = 4_000;
    timed_each(0..cut(1_000), |round| {
        let pool = Arc::new(pool(2, SPACE));
        let (its, (tell, told)) = (Arc::clone(&pool), mpsc::channel());
        must_serve(&pool, move || {
            tell.send(None).unwrap();
            let refused = (0..SPACE).find_map(|_| {
                let mut future = its.awaitable().serve_async(|| ());
                let accepted = ready(&mut future, Waker::noop()).map(Handle::detach);
                accepted.err().map(|refused| refused.reason().as_str())
            });
            tell.send(Some(refused)).unwrap();
        });
        assert_eq!(told.recv().unwrap(), None);
        (0..20 * (round % 500)).for_each(|_| std::hint::spin_loop());
        pool.shutdown(Shutdown::Discard, LIMIT);
        let refused = told.recv().unwrap().expect("its end");
        assert!(matches!(refused, None | Some("closed")), "{refused:?}");
    });
}

/// On a worker of the same pool, the future is refused if it would have to wait, and accepted if
/// there is space. On a worker of another pool it waits.
#[test]
fn law22_on_a_worker_of_the_same_pool_it_does_not_wait() {
    timed(|| {
        for queue in [0, 1] {
            let pool = Arc::new(pool(1, queue));
            on_worker(&pool, move |pool| {
                let on = pool.awaitable();
                for _ in 0..queue {
                    block_on(on.serve_async(|| ()))
                        .expect("space in the queue")
                        .detach();
                }
                let mut future = on.serve_async(|| 5);
                let refused = ready(&mut future, Waker::noop()).unwrap_err();
                assert_eq!(refused.reason().as_str(), "on_worker");
                assert_eq!(refused.run_anyway(), 5);
            });
            assert_eq!(pool.stats().refusals.on_worker, 1);
        }
        let other = pool(1, 0);
        let (pool, gate) = full(0);
        let its = Arc::clone(&pool);
        let waits = move || value_of(its.awaitable().serve_async(|| 6));
        let waits = must_await(other.awaitable(), waits);
        wait_in_line(&pool, 1);
        gate.open();
        assert_eq!(waits.join().unwrap(), 6);
    });
}

/// If the future is dropped before its turn, its closure is dropped there and never runs. The next
/// one in line gets the space.
#[test]
fn law22_dropped_before_its_turn_it_never_runs() {
    timed_each([false, true], |grouped| {
        let ledger = Ledger::new(3);
        let (pool, gate) = held(0);
        let group = pool.group();
        let on = [pool.awaitable(), group.awaitable()][usize::from(grouped)];
        let (count, waker) = counted();
        let submit = |id| pending(on.serve_async(ledger.task(id)), &waker);
        let [first, second, third] = [0, 1, 2].map(submit);
        drop(first);
        assert_eq!(ledger.fate(0), (0, 1));
        assert_eq!(pool.stats().waiting, 2);
        assert_eq!(group.pending(), if grouped { 2 } else { 0 });
        gate.open();
        value_of(second);
        value_of(third);
        group.wait();
        assert_eq!([0, 1, 2].map(|id| ledger.runs(id)), [0, 1, 1]);
        assert_eq!(Arc::strong_count(&count), 2, "no waker is kept");
        assert_stats!(at_rest(&pool), accepted: 3, discarded: 0);
    });
}

/// If the future is dropped after its turn, unpolled, its task is cancelled as by its handle: a
/// queued task never runs, and a running one sees the cancel.
#[test]
fn law22_dropped_after_its_turn_it_cancels_its_task() {
    timed_each([1, 0], |queue| {
        let (pool, gate) = held(queue);
        let (next, ledger) = (Gate::new(), Ledger::new(1));
        (0..queue).for_each(|_| must_serve(&pool, next.task()));
        let (count, waker) = counted();
        let (run, key) = (ledger.task(0), next.key());
        let future = pool.awaitable().serve_async(move || {
            run();
            wait_until("the cancel", task::is_cancelled);
            key.pass();
        });
        let future = pending(future, &waker);
        gate.open();
        wait_until("a wake-up", || count.woken() == 1);
        let started = 1 - queue as u32;
        wait_until("the task to start", || ledger.runs(0) == started);
        next.wait_entered(queue);
        assert_eq!(pool.stats().queued, queue);
        drop(future);
        next.wait_entered(1);
        assert_eq!(ledger.fate(0), (started, 1));
        let abandoned = started as usize;
        assert_stats!(pool.stats(), abandoned: abandoned, queued: 0, discarded: queue as u64);
        next.open();
        assert_stats!(at_rest(&pool), completed: 2);
    });
}

/// A shutdown, a drop of the pool, and a cancel of the future's group give the closure back at
/// once, while the worker is still busy. The future does not keep the pool open, and the group's
/// wait returns without another poll.
#[test]
fn law22_a_shutdown_and_a_cancel_answer_it_at_once() {
    let ways = ["drain", "discard", "cancel", "drop", "group", "group"];
    timed_each(ways.into_iter().enumerate(), |(n, way)| {
        let (pool, gate) = full(n % 2);
        let (group, other) = (pool.group(), pool.group());
        let (count, waker) = counted();
        let mut future = pending(group.awaitable().serve_async(|| 7), &waker);
        assert_eq!((group.pending(), pool.stats().waiting), (1, 1));
        // The gate is dropped before the pool.
        let (mut pool, gate, mut kept, mut dropped) = (Some(pool), gate, None, None);
        match (way, pool.as_ref().unwrap()) {
            ("group", pool) => {
                kept = Some(pending(other.awaitable().serve_async(|| 8), &waker));
                group.cancel();
                assert_eq!((pool.stats().waiting, other.pending()), (1, 1));
            }
            ("drop", _) => {
                dropped = pool.take().map(drop_aside);
                wait_until("a wake-up", || count.woken() == 1);
            }
            (_, pool) => {
                pool.shutdown(MODES[n], Duration::ZERO);
                assert_eq!(pool.stats().waiting, 0);
            }
        }
        assert_eq!((count.woken(), group.pending()), (1, 0));
        group.wait();
        let refused = ready(&mut future, &waker).unwrap_err();
        let why = if way == "group" {
            "cancelled"
        } else {
            "closed"
        };
        assert_eq!(refused.reason().as_str(), why);
        assert_eq!(refused.into_inner()(), 7);
        if let Some(pool) = &pool {
            let counts = pool.stats().refusals;
            let counts = (counts.closed, counts.cancelled);
            assert_eq!(counts, if way == "group" { (0, 1) } else { (1, 0) });
        }
        gate.open();
        match (dropped, kept) {
            (Some(ended), _) => arrives("the end of the drop", &ended),
            (_, Some(kept)) => assert_eq!((value_of(kept), other.completed()), (8, 1)),
            _ => {
                let pool = pool.unwrap();
                assert!(pool.shutdown(MODES[n], Duration::MAX).is_clean());
                let later = block_on(pool.awaitable().serve_async(|| 7));
                assert_eq!(reason(later), "closed");
            }
        }
    });
}

/// A deadline counts from the first poll. It has no timer: a task whose deadline passes in line
/// ends at its turn, and its handle returns `Expired`.
#[test]
fn law22_a_deadline_counts_from_the_first_poll_and_ends_at_its_turn() {
    timed(|| {
        let idle = pool(1, 0);
        let future = idle.with_deadline(ms(500)).awaitable().serve_async(|| 1);
        thread::sleep(ms(550));
        assert_eq!(value_of(future), 1, "just begun");

        for d in [Duration::ZERO, ms(1)] {
            let (pool, gate) = held(0);
            let (count, waker) = counted();
            let [on, far] = [d, Duration::MAX].map(|d| pool.with_deadline(d));
            let too_late = || unreachable!("too late");
            let mut late = pending(on.awaitable().serve_async(too_late), &waker);
            let far = pending(far.awaitable().serve_async(task::deadline), &waker);
            thread::sleep(ms(2));
            assert_eq!(count.woken(), 0, "no timer");
            assert!(poll(&mut late, &waker).is_pending());
            gate.open();
            let outcome: Result<(), _> = block_on(block_on(late).expect("accepted"));
            assert!(matches!(outcome, Err(TaskError::Expired)), "{outcome:?}");
            assert_eq!(value_of(far), None);
            assert_stats!(at_rest(&pool), expired: 1, completed: 2);
        }
    });
}

/// If the clone of a waker panics, the poll panics. The future can be dropped, its task does not
/// run, and its group and the line are as before.
#[test]
fn law22_a_waker_whose_clone_panics_harms_nothing() {
    timed_each(product([false, true], [false, true]), |(again, grouped)| {
        let ledger = Ledger::new(1);
        let (pool, gate) = held(0);
        let group = pool.group();
        let on = [pool.awaitable(), group.awaitable()][usize::from(grouped)];
        let mut future = on.serve_async(ledger.task(0));
        if again {
            future = pending(future, Waker::noop());
        }
        let bad = Bad::waker(Bad::CLONE);
        let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut future, &bad)));
        assert!(polled.is_err());
        drop(future);
        assert_eq!((pool.stats().waiting, group.pending()), (0, 0));
        assert_eq!(ledger.fate(0), (0, 1));
        gate.open();
        assert_eq!(value_of(on.serve_async(|| 4)), 4);
        group.wait();
        at_rest(&pool);
    });
}

/// If the drop of a waker panics, neither the answer of its future nor a task in line is lost.
#[test]
fn law22_a_waker_whose_drop_panics_loses_nothing() {
    timed_each(["accepted", "refused", "left"], |way| {
        let ledger = Ledger::new(1);
        let (pool, gate) = held(0);
        let group = pool.group();
        let bad = ManuallyDrop::new(Bad::waker(Bad::DROP));
        let mut future = pending(group.awaitable().serve_async(ledger.task(0)), &bad);
        match way {
            "accepted" => {
                gate.open();
                wait_until("the task has ended", || group.pending() == 0);
            }
            "refused" => group.cancel(),
            _ => {}
        }
        if way != "left" {
            assert!(poll(&mut future, &bad).is_ready(), "{way}");
        }
        drop(future);
        assert_eq!((pool.stats().waiting, group.pending()), (0, 0));
        assert_eq!(ledger.fate(0), (u32::from(way == "accepted"), 1), "{way}");
        gate.open();
        group.wait();
        at_rest(&pool);
    });
}

/// Law 9: what a future in line was refused counts when it is refused. It need not be polled.
#[test]
fn law09_a_refused_future_counts_at_once() {
    timed_each(["closed", "cancelled"], |why| {
        let (pool, gate) = held(0);
        let group = pool.group();
        let submit = |_| pending(group.awaitable().serve_async(|| ()), Waker::noop());
        let mut futures = [(); 3].map(submit).into_iter();
        match why {
            "closed" => _ = pool.shutdown(Shutdown::Drain, Duration::ZERO),
            _ => group.cancel(),
        }
        let assert_counted = || {
            let s = assert_stats!(pool.stats(), refused: 3, waiting: 0);
            assert_eq!(s.refusals.closed + s.refusals.cancelled, 3, "{s:?}");
        };
        assert_counted();
        drop(futures.next());
        futures.for_each(|future| assert_eq!(reason(block_on(future)), why));
        assert_counted();
        gate.open();
    });
}
