//! Law 22: the ways in which `Awaitable::serve_async` ends before its task has space, or before its
//! future is polled again.

mod common;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{task, TaskError};

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

/// If the future is dropped after its turn, unpolled, its task is cancelled as by its handle. A
/// queued task never runs.
#[test]
fn law22_dropped_after_its_turn_it_cancels_a_queued_task() {
    timed(|| {
        let (pool, gate) = held(1);
        let (next, ledger) = (Gate::new(), Ledger::new(1));
        must_serve(&pool, next.task());
        let (count, waker) = counted();
        let future = pending(pool.awaitable().serve_async(ledger.task(0)), &waker);
        gate.open();
        next.wait_entered(1);
        wait_until("a wake-up", || count.woken() == 1);
        assert_eq!(pool.stats().queued, 1);
        drop(future);
        assert_eq!(ledger.fate(0), (0, 1));
        assert_eq!((pool.stats().discarded, pool.stats().queued), (1, 0));
        next.open();
        at_rest(&pool);
    });
}

/// If the future is dropped while its task runs, the task sees the cancel, and its worker counts as
/// abandoned.
#[test]
fn law22_dropped_after_its_turn_it_cancels_a_running_task() {
    timed(|| {
        let (pool, gate) = held(0);
        let (hold, started) = (Gate::new(), Tally::default());
        let (key, start) = (hold.key(), started.task());
        let future = pool.awaitable().serve_async(move || {
            start();
            wait_until("the cancel", task::is_cancelled);
            key.pass();
        });
        let future = pending(future, Waker::noop());
        gate.open();
        wait_until("the task to start", || started.get() == 1);
        drop(future);
        hold.wait_entered(1);
        assert_eq!((pool.stats().abandoned, pool.stats().discarded), (1, 0));
        hold.open();
        assert_eq!(settle(&pool).completed, 2);
    });
}

/// A shutdown gives the closure back at once, while the worker is still busy.
#[test]
fn law22_a_shutdown_answers_it_at_once() {
    timed_each(MODES, |mode| {
        let (pool, gate) = full(1);
        let (count, waker) = counted();
        let mut future = pending(pool.awaitable().serve_async(|| 7), &waker);
        pool.shutdown(mode, Duration::ZERO);
        assert_eq!((count.woken(), pool.stats().waiting), (1, 0));
        let refused = ready(&mut future, &waker).unwrap_err();
        assert!(refused.is_closed());
        assert_eq!(refused.run_anyway(), 7);
        assert_eq!(pool.stats().refusals.closed, 1);
        gate.open();
        assert!(pool.shutdown(mode, Duration::MAX).is_clean());
        let later = block_on(pool.awaitable().serve_async(|| 7));
        assert_eq!(reason(later), "closed");
    });
}

/// The future does not keep the pool open, and outlives it.
#[test]
fn law22_a_drop_of_the_pool_answers_it() {
    timed(|| {
        let (pool, gate) = held(0);
        let (count, waker) = counted();
        let future = pending(pool.awaitable().serve_async(|| 7), &waker);
        let ended = drop_aside(pool);
        wait_until("a wake-up", || count.woken() == 1);
        assert_eq!(reason(block_on(future)), "closed");
        gate.open();
        arrives("the end of the drop", &ended);
    });
}

/// A cancel of the future's group gives the closure back at once. The group's wait returns without
/// another poll.
#[test]
fn law22_a_cancel_of_its_group_answers_it_at_once() {
    timed_each([0, 1], |queue| {
        let (pool, gate) = full(queue);
        let (group, other) = (pool.group(), pool.group());
        let (count, waker) = counted();
        let mut future = pending(group.awaitable().serve_async(|| 7), &waker);
        let kept = pending(other.awaitable().serve_async(|| 8), &waker);
        assert_eq!((group.pending(), other.pending()), (1, 1));
        group.cancel();
        assert_eq!((count.woken(), group.pending()), (1, 0));
        group.wait();
        let refused = ready(&mut future, &waker).unwrap_err();
        assert_eq!(refused.reason().as_str(), "cancelled");
        assert_eq!(refused.into_inner()(), 7);
        gate.open();
        assert_eq!(value_of(kept), 8);
        other.wait();
        assert_eq!((other.completed(), pool.stats().refusals.cancelled), (1, 1));
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
