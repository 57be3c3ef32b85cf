//! Law 22: the ways in which `Awaitable::serve_async` ends before its task has space, or before its
//! future is polled again.

mod common;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{mpsc, Arc};
use std::task::{Poll, RawWaker, RawWakerVTable, Waker};
use std::thread;
use std::time::Duration;

use common::futures::{block_on, counted, poll};
use common::*;
use lazypool::{task, Pool, Refusal, Shutdown, TaskError};

const MODES: [Shutdown; 3] = [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel];

/// If the future is dropped before its turn, its closure is dropped there and never runs. The next
/// one in line gets the space.
#[test]
fn law22_dropped_before_its_turn_it_never_runs() {
    timed(|| {
        for grouped in [false, true] {
            let gate = Gate::new();
            let pool = occupied(&gate, 0);
            let group = pool.group();
            let on = if grouped {
                group.awaitable()
            } else {
                pool.awaitable()
            };
            let ledger = Ledger::new(3);
            let (count, waker) = counted();
            let mut futures: Vec<_> = (0..3)
                .map(|id| {
                    let entry = ledger.entry(id);
                    let mut future = on.serve_async(move || entry.run());
                    assert!(poll(&mut future, &waker).is_pending());
                    future
                })
                .collect();
            drop(futures.remove(0));
            assert_eq!((ledger.runs(0), ledger.drops(0)), (0, 1));
            assert_eq!(pool.stats().waiting, 2);
            assert_eq!(group.pending(), if grouped { 2 } else { 0 });
            gate.open();
            for future in futures {
                block_on(block_on(future).unwrap()).unwrap();
            }
            group.wait();
            assert_eq!((ledger.runs(0), ledger.runs(1), ledger.runs(2)), (0, 1, 1));
            assert_eq!(Arc::strong_count(&count), 2, "no waker is kept");
            let stats = settle(&pool);
            assert_eq!((stats.accepted, stats.discarded), (3, 0));
            check_at_rest(&pool, &stats);
        }
    });
}

/// If the future is dropped after its turn, unpolled, its task is cancelled as by its handle. A
/// queued task never runs.
#[test]
fn law22_dropped_after_its_turn_it_cancels_a_queued_task() {
    timed(|| {
        let (gate, next) = (Gate::new(), Gate::new());
        let pool = occupied(&gate, 1);
        must_serve(&pool, next.task());
        let ledger = Ledger::new(1);
        let entry = ledger.entry(0);
        let (count, waker) = counted();
        let mut future = pool.awaitable().serve_async(move || entry.run());
        assert!(poll(&mut future, &waker).is_pending());
        gate.open();
        next.wait_entered(1);
        wait_until("a wake-up", || count.woken() == 1);
        assert_eq!(pool.stats().queued, 1);
        drop(future);
        assert_eq!((ledger.runs(0), ledger.drops(0)), (0, 1));
        assert_eq!((pool.stats().discarded, pool.stats().queued), (1, 0));
        next.open();
        check_at_rest(&pool, &settle(&pool));
    });
}

/// If the future is dropped while its task runs, the task sees the cancel, and its worker counts as
/// abandoned.
#[test]
fn law22_dropped_after_its_turn_it_cancels_a_running_task() {
    timed(|| {
        let (gate, hold) = (Gate::new(), Gate::new());
        let pool = occupied(&gate, 0);
        let (told, tells) = mpsc::channel();
        let (key, (_, waker)) = (hold.key(), counted());
        let mut future = pool.awaitable().serve_async(move || {
            while !task::is_cancelled() {
                thread::sleep(ms(1));
            }
            told.send(()).unwrap();
            key.pass();
        });
        assert!(poll(&mut future, &waker).is_pending());
        gate.open();
        wait_until("the task to leave the line", || pool.stats().waiting == 0);
        drop(future);
        tells.recv_timeout(LIMIT).expect("the task sees the cancel");
        hold.wait_entered(1);
        assert_eq!((pool.stats().abandoned, pool.stats().discarded), (1, 0));
        hold.open();
        assert_eq!(settle(&pool).completed, 2);
    });
}

/// A shutdown gives the closure back at once, while the worker is still busy.
#[test]
fn law22_a_shutdown_answers_it_at_once() {
    timed(|| {
        for mode in MODES {
            let gate = Gate::new();
            let pool = occupied(&gate, 1);
            must_serve(&pool, || ());
            let (count, waker) = counted();
            let mut future = pool.awaitable().serve_async(|| 7);
            assert!(poll(&mut future, &waker).is_pending());
            pool.shutdown(mode, Duration::ZERO);
            assert_eq!((count.woken(), pool.stats().waiting), (1, 0));
            let Poll::Ready(Err(refused)) = poll(&mut future, &waker) else {
                panic!("the future was woken")
            };
            assert!(refused.is_closed());
            assert_eq!(refused.run_anyway(), 7);
            assert_eq!(pool.stats().refusals.closed, 1);
            gate.open();
            assert!(pool.shutdown(mode, Duration::MAX).is_clean());
            let late = block_on(pool.awaitable().serve_async(|| 7));
            assert!(late.unwrap_err().is_closed());
        }
    });
}

/// The future does not keep the pool open, and outlives it.
#[test]
fn law22_a_drop_of_the_pool_answers_it() {
    timed(|| {
        let gate = Gate::new();
        let pool = occupied(&gate, 0);
        let (count, waker) = counted();
        let mut future = pool.awaitable().serve_async(|| 7);
        assert!(poll(&mut future, &waker).is_pending());
        let ended = drop_aside(pool);
        wait_until("a wake-up", || count.woken() == 1);
        let refused = block_on(future).unwrap_err();
        assert!(refused.is_closed());
        gate.open();
        ended.recv_timeout(LIMIT).expect("the worker has ended");
    });
}

/// The cancel of its group gives the closure back at once. The group's wait returns without a poll.
#[test]
fn law22_a_cancel_of_its_group_answers_it_at_once() {
    timed(|| {
        for queue in [0, 1] {
            let gate = Gate::new();
            let pool = occupied(&gate, queue);
            (0..queue).for_each(|_| must_serve(&pool, || ()));
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
            assert!(matches!(refused.reason(), Refusal::Cancelled));
            assert_eq!(refused.into_inner()(), 7);
            gate.open();
            assert_eq!(block_on(block_on(kept).unwrap()).unwrap(), 8);
            other.wait();
            assert_eq!((other.completed(), pool.stats().refusals.cancelled), (1, 1));
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
        assert_eq!(
            block_on(block_on(future).unwrap()).unwrap(),
            1,
            "just begun"
        );

        for d in [Duration::ZERO, ms(1)] {
            let gate = Gate::new();
            let pool = occupied(&gate, 0);
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
            assert_eq!(block_on(block_on(far).unwrap()).unwrap(), None);
            let stats = settle(&pool);
            assert_eq!((stats.expired, stats.completed), (1, 2), "{stats:?}");
            check_at_rest(&pool, &stats);
        }
    });
}

/// Returns a waker whose clone panics.
fn bad_waker() -> Waker {
    const TABLE: RawWakerVTable = RawWakerVTable::new(
        |_| quiet_panic("clone"),
        |_| quiet_panic("wake"),
        |_| quiet_panic("wake"),
        |_| (),
    );
    // SAFETY: the functions of the table do not use the data pointer.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) }
}

/// If the clone of a waker panics, the poll panics. The future can be dropped, its task does not
/// run, and its group and the line are as before.
#[test]
fn law22_a_waker_whose_clone_panics_harms_nothing() {
    timed(|| {
        for (grouped, again) in [(false, false), (true, false), (false, true), (true, true)] {
            let gate = Gate::new();
            let pool: Pool = occupied(&gate, 0);
            let group = pool.group();
            let on = if grouped {
                group.awaitable()
            } else {
                pool.awaitable()
            };
            let ledger = Ledger::new(1);
            let entry = ledger.entry(0);
            let mut future = on.serve_async(move || entry.run());
            if again {
                assert!(poll(&mut future, Waker::noop()).is_pending());
            }
            let bad = bad_waker();
            let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut future, &bad)));
            assert!(polled.is_err());
            drop(future);
            assert_eq!(pool.stats().waiting, 0);
            assert_eq!((ledger.runs(0), ledger.drops(0)), (0, 1));
            assert_eq!(group.pending(), 0);
            gate.open();
            assert_eq!(
                block_on(block_on(on.serve_async(|| 4)).unwrap()).unwrap(),
                4
            );
            group.wait();
            check_at_rest(&pool, &settle(&pool));
        }
    });
}
