//! Law 22: `Awaitable::serve_async`, a submission that waits for space without a thread. See
//! `serve_async_ends.rs` for the ways in which others end it: drops, shutdowns, cancels, deadlines.

mod common;

use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;

use common::*;
use lazypool::{task, Stats, WhenFull};

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
        // If there is room, the first poll returns the handle.
        let mut future = pool.awaitable().serve_async(|| 3);
        let handle = ready(&mut future, Waker::noop());
        assert_eq!(handle.unwrap().join().unwrap(), 3);
        let again = catch_unwind(AssertUnwindSafe(|| poll(&mut future, Waker::noop())));
        assert!(again.is_err(), "polled after it was ready");
    });
}

/// Without room the future waits under every policy, and is woken once there is room: by the waker
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

/// Space goes to threads and futures in the order in which they came. A future that is forgotten or
/// never polled again gets its turn as the others do.
#[test]
fn law22_space_comes_in_order_without_polls() {
    timed_each([0, 1, 3], |queue| {
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
                    let future = pool.awaitable().serve_async(task(n));
                    futures.push(pending(future, Waker::noop()));
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
    });
}

/// On a pool of one, awaits of room and of a value follow one another: none is refused, and none
/// hangs.
#[test]
fn law22_back_to_back_awaits_on_a_pool_of_one() {
    timed_each([0, 1], |queue| {
        let pool = pool(1, queue);
        for n in 0..rounds(500) {
            assert_eq!(value_of(pool.awaitable().serve_async(move || n)), n);
            assert_eq!(pool.do_with_deadline(move || n, LONG).unwrap(), n);
        }
        assert_stats!(settle(&pool), refused: 0, spawned: 1);
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
