//! Law 22: `Awaitable::serve_async`, a submission that waits for space without a thread. See
//! `serve_async_ends.rs` for the ways in which others end it: drops, shutdowns, cancels, deadlines.

mod common;

use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use common::futures::{block_on, counted, poll, value_of};
use common::*;
use lazypool::{task, Pool, Shutdown, Stats, WhenFull};

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
            let gate = Gate::new();
            let pool = full(&gate, queue);
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
            let gate = Gate::new();
            let pool = full(&gate, queue);
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
        let gate = Gate::new();
        let (pool, other) = (Arc::new(full(&gate, 0)), pool(1, 0));
        let its = Arc::clone(&pool);
        let waits = must_await(other.awaitable(), move || {
            value_of(its.awaitable().serve_async(|| 6))
        });
        wait_in_line(&pool, 1);
        gate.open();
        assert_eq!(waits.join().unwrap(), 6);
    });
}

/// A future that began to wait on another thread may be polled on a worker.
#[test]
fn law22_polled_again_on_a_worker_it_waits_on() {
    timed(|| {
        let pool = pool(1, 0);
        let gate = Gate::new();
        let place = Arc::new(Mutex::new(None));
        let (key, takes) = (gate.key(), Arc::clone(&place));
        must_serve(&pool, move || {
            key.pass();
            let mut place = takes.lock().unwrap();
            assert!(poll(place.as_mut().unwrap(), Waker::noop()).is_pending());
        });
        gate.wait_entered(1);
        let mut future = pool.awaitable().serve_async(|| 7);
        assert!(poll(&mut future, Waker::noop()).is_pending());
        *place.lock().unwrap() = Some(future);
        gate.open();
        assert_eq!(settle(&pool).panicked, 0);
        let future = place.lock().unwrap().take().unwrap();
        assert_eq!(value_of(future), 7);
    });
}

/// A waker that serves a task and adds 100 to the count; the task adds 1.
struct Again(Arc<Pool>, AtomicUsize);

impl Wake for Again {
    fn wake(self: Arc<Self>) {
        let this = Arc::clone(&self);
        // Refused if the task in line takes the room.
        let _ = self.0.serve(move || {
            this.1.fetch_add(1, Ordering::SeqCst);
        });
        self.1.fetch_add(100, Ordering::SeqCst);
    }
}

/// The waker of a future in line may submit a task, as the waker of a handle may.
#[test]
fn law21_a_waker_in_line_may_serve() {
    timed(|| {
        for queue in [0, 1, 2] {
            let gate = Gate::new();
            let pool = Arc::new(full(&gate, queue));
            let again = Arc::new(Again(Arc::clone(&pool), AtomicUsize::new(0)));
            let waker = Waker::from(Arc::clone(&again));
            let mut futures = [0, 1, 2].map(|n| pool.awaitable().serve_async(move || n));
            for future in &mut futures {
                assert!(poll(future, &waker).is_pending());
            }
            gate.open();
            wait_until("three wake-ups", || again.1.load(Ordering::SeqCst) >= 300);
            assert_eq!(futures.map(value_of), [0, 1, 2]);
            at_rest(&pool);
        }
    });
}

/// Does what a thread of the storm does in a round. Returns `true` if its task is sure to run or has
/// run.
fn one_of_a_storm(pool: &Pool, dice: &mut Rng, task: impl FnOnce() + Send + 'static) -> bool {
    let on = pool.awaitable();
    let short = Duration::from_micros(dice.below(300));
    let blocks = pool.when_full(WhenFull::Block);
    match dice.below(6) {
        0 => {
            let mut future = on.serve_async(task);
            drop(poll(&mut future, Waker::noop()));
            return false;
        }
        1 => block_on(on.serve_async(task)).unwrap().detach(),
        2 => value_of(on.serve_async(task)),
        3 => blocks.serve(task).unwrap(),
        4 => {
            return pool
                .when_full(WhenFull::BlockFor(short))
                .serve(task)
                .is_ok()
        }
        _ => {
            let limit = 1 + dice.below(pool.max_workers() as u64) as usize;
            pool.set_limit(limit).unwrap();
            return blocks.do_with_deadline(task, short).is_ok();
        }
    }
    true
}

/// Laws 2 and 4: of many futures and threads some are dropped and some are late, while the limit
/// changes. Every closure runs or is dropped once.
#[test]
fn law02_a_storm_of_futures_and_threads() {
    timed(|| {
        for (workers, queue) in [(1, 0), (2, 0), (1, 1), (2, 3)] {
            let pool = pool_with(workers, queue, |b| b.idle_timeout(ms(1)));
            let each = rounds(1_000) as usize;
            let (ledger, sure) = (Ledger::new(6 * each), Tally::default());
            thread::scope(|s| {
                for t in 0..6 {
                    let (pool, ledger, sure) = (&pool, &ledger, &sure);
                    s.spawn(move || {
                        let mut dice = Rng::new(t as u64);
                        for id in t * each..(t + 1) * each {
                            sure.add(one_of_a_storm(pool, &mut dice, ledger.task(id)).into());
                        }
                    });
                }
            });
            assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
            assert!(ledger.total_runs() >= sure.get());
            assert!((0..6 * each).all(|id| ledger.drops(id) == 1));
            let stats = pool.stats();
            assert_eq!((stats.waiting, stats.completed), (0, ledger.total_runs()));
            check_at_rest(&pool, &stats);
        }
    });
}
