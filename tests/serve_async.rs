//! Law 22: `Awaitable::serve_async`, a submission that waits for space without a thread. Drops,
//! shutdowns, cancels and deadlines may end it before its task has space.

mod common;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use common::futures::{block_on, counted, poll, value_of, Bad};
use common::gates::MODES;
use common::*;
use lazypool::{task, Awaitable, Group, Pool, ServeAsync, Stats, TaskError, WhenFull};

/// Returns where a future submits its task: to the group, or to its pool.
fn on<'a>(pool: &'a Pool, group: &'a Group, grouped: bool) -> Awaitable<'a> {
    match grouped {
        true => group.awaitable(),
        false => pool.awaitable(),
    }
}

#[test]
fn law22_it_submits_at_its_first_poll() {
    timed(|| {
        fn is_send<T: Send + Unpin + std::fmt::Debug + 'static>(_: &T) {}
        let (pool, ledger) = (pool(1, 0), Ledger::new(1));
        // The future borrows neither the pool nor the `Awaitable`.
        is_send(&pool.awaitable().serve_async(|| std::cell::Cell::new(1)));
        is_send(&pool.group().awaitable().serve_async(|| ()));
        let future = pool.awaitable().serve_async(ledger.task(0));
        assert_eq!(ledger.drops(0), 0);
        drop(future);
        assert_eq!((ledger.runs(0), ledger.drops(0)), (0, 1));
        assert_eq!(pool.stats(), Stats::default());
        // If there is room, the first poll returns the handle.
        let mut future = pool.awaitable().serve_async(|| 3);
        let Poll::Ready(handle) = poll(&mut future, Waker::noop()) else {
            panic!("there is room")
        };
        assert_eq!(handle.unwrap().join().unwrap(), 3);
        let again = catch_unwind(AssertUnwindSafe(|| poll(&mut future, Waker::noop())));
        assert!(again.is_err(), "polled after it was ready");
    });
}

/// Without room the future waits under every policy, and is woken once there is room: by the waker
/// of its last poll. No thread waits.
#[test]
fn law22_it_waits_for_space_whatever_the_policy() {
    timed(|| {
        for (queue, policy) in [
            (0, WhenFull::Refuse),
            (1, WhenFull::Refuse),
            (1, WhenFull::Block),
            (0, WhenFull::BlockFor(ms(1))),
        ] {
            let (pool, gate) = full(queue);
            let ((first, w1), (second, w2)) = (counted(), counted());
            let on = pool.when_full(policy).labeled("later");
            let mut future = on.awaitable().serve_async(task::label);
            assert!(poll(&mut future, &w1).is_pending());
            thread::sleep(ms(2));
            assert!(poll(&mut future, &w2).is_pending());
            assert_eq!(Arc::strong_count(&first), 2, "the first waker is not kept");
            assert_eq!((pool.stats().waiting, second.woken()), (1, 0));
            gate.open();
            wait_until("a wake-up", || second.woken() == 1);
            let Poll::Ready(Ok(handle)) = poll(&mut future, &w2) else {
                panic!("woken in vain")
            };
            assert_eq!(handle.join().unwrap(), Some("later"));
            let stats = settle(&pool);
            assert_eq!((stats.waiting, stats.refused), (0, 1), "by `full`");
            assert_eq!(stats.peak_workers, 1);
            assert_eq!((first.woken(), Arc::strong_count(&second)), (0, 2));
        }
    });
}

/// Space goes to threads and futures in the order in which they came. A future that is forgotten or
/// never polled again gets its turn as the others do.
#[test]
fn law22_space_comes_in_order_without_polls() {
    timed(|| {
        for queue in [0, 1, 3] {
            let (pool, gate) = full(queue);
            let ran = Arc::new(Mutex::new(Vec::new()));
            let task = |n: usize| {
                let ran = Arc::clone(&ran);
                move || ran.lock().unwrap().push(n)
            };
            let mut futures = Vec::new();
            thread::scope(|s| {
                for n in 0..9 {
                    if n % 3 == 1 {
                        let (pool, task) = (&pool, task(n));
                        s.spawn(move || pool.when_full(WhenFull::Block).serve(task).unwrap());
                    } else {
                        let mut future = pool.awaitable().serve_async(task(n));
                        assert!(poll(&mut future, Waker::noop()).is_pending());
                        futures.push(future);
                    }
                    wait_in_line(&pool, n + 1);
                }
                gate.open();
            });
            wait_until("all tasks to run", || ran.lock().unwrap().len() == 9);
            assert_eq!(*ran.lock().unwrap(), (0..9).collect::<Vec<_>>());
            // The forgotten futures keep no task and no wait from ending.
            futures.drain(..2).for_each(std::mem::forget);
            drop(futures);
            assert_eq!(at_rest(&pool).completed, 10 + queue as u64);
        }
    });
}

/// On a pool of one, awaits of room and of a value follow one another: none is refused, and none
/// hangs.
#[test]
fn law22_back_to_back_awaits_on_a_pool_of_one() {
    timed(|| {
        for queue in [0, 1] {
            let pool = pool(1, queue);
            for n in 0..rounds(500) {
                assert_eq!(value_of(pool.awaitable().serve_async(move || n)), n);
                assert_eq!(pool.do_with_deadline(move || n, LONG).unwrap(), n);
            }
            let stats = settle(&pool);
            assert_eq!((stats.refused, stats.spawned), (0, 1));
        }
    });
}

/// On a worker of the same pool, the future is refused if it would have to wait, and accepted if
/// there is room. On a worker of another pool it waits.
#[test]
fn law22_on_a_worker_of_the_same_pool_it_does_not_wait() {
    timed(|| {
        for queue in [0, 1] {
            let pool = Arc::new(pool(1, queue));
            on_worker(&pool, move |pool| {
                let on = pool.awaitable();
                for _ in 0..queue {
                    block_on(on.serve_async(|| ()))
                        .expect("room in the queue")
                        .detach();
                }
                let mut future = on.serve_async(|| 5);
                let Poll::Ready(Err(refused)) = poll(&mut future, Waker::noop()) else {
                    panic!("the worker would wait for itself")
                };
                assert_eq!(refused.reason().as_str(), "on_worker");
                assert_eq!(refused.run_anyway(), 5);
            });
            assert_eq!(pool.stats().refusals.on_worker, 1);
        }
        let other = pool(1, 0);
        let (pool, gate) = full(0);
        let its = Arc::clone(&pool);
        let waits = must_await(other.awaitable(), move || {
            value_of(its.awaitable().serve_async(|| 6))
        });
        wait_in_line(&pool, 1);
        gate.open();
        assert_eq!(waits.join().unwrap(), 6);
    });
}

/// If the future is dropped before its turn, its closure is dropped there and never runs. The next
/// one in line gets the space.
#[test]
fn law22_dropped_before_its_turn_it_never_runs() {
    timed(|| {
        for grouped in [false, true] {
            let ledger = Ledger::new(3);
            let (pool, gate) = held(0);
            let group = pool.group();
            let on = on(&pool, &group, grouped);
            let (count, waker) = counted();
            let [first, second, third] = [0, 1, 2].map(|id| {
                let mut future = on.serve_async(ledger.task(id));
                assert!(poll(&mut future, &waker).is_pending());
                future
            });
            drop(first);
            assert_eq!((ledger.runs(0), ledger.drops(0)), (0, 1));
            assert_eq!(pool.stats().waiting, 2);
            assert_eq!(group.pending(), if grouped { 2 } else { 0 });
            gate.open();
            value_of(second);
            value_of(third);
            group.wait();
            assert_eq!([0, 1, 2].map(|id| ledger.runs(id)), [0, 1, 1]);
            assert_eq!(Arc::strong_count(&count), 2, "no waker is kept");
            let stats = at_rest(&pool);
            assert_eq!((stats.accepted, stats.discarded), (3, 0));
        }
    });
}

/// If the future is dropped after its turn, unpolled, its task is cancelled as by its handle. A
/// queued task never runs. A running one sees the cancel, and its worker counts as abandoned.
#[test]
fn law22_dropped_after_its_turn_it_cancels_its_task() {
    timed(|| {
        for queue in [1, 0] {
            let (pool, gate) = held(queue);
            let (next, own, started) = (Gate::new(), Gate::new(), Tally::default());
            (0..queue).for_each(|_| must_serve(&pool, next.task()));
            let (count, waker) = counted();
            let (key, start) = (own.key(), started.task());
            let mut future = pool.awaitable().serve_async(move || {
                start();
                wait_until("the cancel", task::is_cancelled);
                key.pass();
            });
            assert!(poll(&mut future, &waker).is_pending());
            gate.open();
            next.wait_entered(queue);
            wait_until("a wake-up", || count.woken() == 1);
            wait_until("the task to start", || started.get() == 1 - queue as u64);
            drop(future);
            own.wait_entered(1 - queue);
            let s = pool.stats();
            assert_eq!(
                (s.discarded, s.abandoned, s.queued),
                (queue as u64, 1 - queue, 0)
            );
            next.open();
            own.open();
            assert_eq!((at_rest(&pool).completed, own.entered()), (2, 1 - queue));
        }
    });
}

/// A shutdown, and a drop of the pool, give the closure back at once, while the worker is still busy.
/// The future outlives the pool.
#[test]
fn law22_a_shutdown_answers_it_at_once() {
    timed(|| {
        for mode in MODES.map(Some).into_iter().chain([None]) {
            let (pool, gate) = full(1);
            let (count, waker) = counted();
            let mut future = pool.awaitable().serve_async(|| 7);
            assert!(poll(&mut future, &waker).is_pending());
            let answers = |mut future: ServeAsync<_, _>| {
                assert_eq!(count.woken(), 1);
                let Poll::Ready(Err(refused)) = poll(&mut future, &waker) else {
                    panic!("the future was woken")
                };
                assert!(refused.is_closed());
                assert_eq!(refused.run_anyway(), 7);
            };
            if let Some(mode) = mode {
                pool.shutdown(mode, Duration::ZERO);
                assert_eq!(pool.stats().waiting, 0);
                answers(future);
                assert_eq!(pool.stats().refusals.closed, 1);
                let next = block_on(pool.awaitable().serve_async(|| 7));
                assert_eq!(reason(next), "closed");
            } else {
                let ended = drop_aside(pool);
                wait_until("a wake-up", || count.woken() == 1);
                answers(future);
                gate.open();
                ended.recv_timeout(LIMIT).expect("the worker has ended");
            }
        }
    });
}

/// The cancel of its group gives the closure back at once. The group's wait returns without a poll.
#[test]
fn law22_a_cancel_of_its_group_answers_it_at_once() {
    timed(|| {
        for queue in [0, 1] {
            let (pool, gate) = full(queue);
            let (group, other) = (pool.group(), pool.group());
            let (count, waker) = counted();
            let mut future = group.awaitable().serve_async(|| 7);
            let mut kept = other.awaitable().serve_async(|| 8);
            assert!(poll(&mut future, &waker).is_pending());
            assert!(poll(&mut kept, &waker).is_pending());
            assert_eq!((group.pending(), other.pending()), (1, 1));
            group.cancel();
            assert_eq!((count.woken(), group.pending()), (1, 0));
            group.wait();
            let Poll::Ready(Err(refused)) = poll(&mut future, &waker) else {
                panic!("the future was woken")
            };
            assert_eq!(refused.reason().as_str(), "cancelled");
            assert_eq!(refused.into_inner()(), 7);
            gate.open();
            assert_eq!(value_of(kept), 8);
            other.wait();
            assert_eq!((other.completed(), pool.stats().refusals.cancelled), (1, 1));
        }
    });
}

/// A deadline counts from the first poll. It has no timer: a task whose deadline passes in line ends
/// at its turn, and its handle returns `Expired`.
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
            let late = pool.with_deadline(d).awaitable();
            let mut late = late.serve_async(|| unreachable!("too late"));
            let far = pool.with_deadline(Duration::MAX).awaitable();
            let mut far = far.serve_async(task::deadline);
            assert!(poll(&mut late, &waker).is_pending());
            assert!(poll(&mut far, &waker).is_pending());
            thread::sleep(ms(2));
            assert_eq!(count.woken(), 0, "no timer");
            assert!(poll(&mut late, &waker).is_pending());
            gate.open();
            let outcome: Result<(), _> = block_on(block_on(late).expect("accepted"));
            assert!(matches!(outcome, Err(TaskError::Expired)), "{outcome:?}");
            assert_eq!(value_of(far), None);
            let stats = at_rest(&pool);
            assert_eq!((stats.expired, stats.completed), (1, 2), "{stats:?}");
        }
    });
}

/// If the clone of a waker panics, the poll panics. The future can be dropped, its task does not
/// run, and its group and the line are as before.
#[test]
fn law22_a_waker_whose_clone_panics_harms_nothing() {
    timed(|| {
        for (grouped, again) in [(false, false), (true, false), (false, true), (true, true)] {
            let ledger = Ledger::new(1);
            let (pool, gate) = held(0);
            let group = pool.group();
            let on = on(&pool, &group, grouped);
            let mut future = on.serve_async(ledger.task(0));
            if again {
                assert!(poll(&mut future, Waker::noop()).is_pending());
            }
            let bad = Bad::waker(Bad::CLONE);
            let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut future, &bad)));
            assert!(polled.is_err());
            drop(future);
            assert_eq!((pool.stats().waiting, group.pending()), (0, 0));
            assert_eq!((ledger.runs(0), ledger.drops(0)), (0, 1));
            gate.open();
            assert_eq!(value_of(on.serve_async(|| 4)), 4);
            group.wait();
            at_rest(&pool);
        }
    });
}
