//! Law 21: the outcome that a handle returns, and when; the options of a task with a handle. See
//! `handle_cancel.rs` for cancels by handles, `handle_wakers.rs` for wakers.

mod common;

use std::cell::Cell;
use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{task, Awaitable, Handle, Shutdown, TaskError, WhenFull};
use static_assertions::{assert_impl_all, assert_not_impl_any};

assert_impl_all!(Handle<Cell<u8>>: Send, Sync, Unpin, std::fmt::Debug, Future);
assert_not_impl_any!(Handle<u8>: Clone);
assert_impl_all!(Awaitable<'static>: Copy, Send, Sync, std::fmt::Debug);
assert_impl_all!(TaskError: std::error::Error, Send, Sync);

/// A thread that has a task's value finds the task counted, its worker free, and its place in the
/// group free.
#[test]
fn law21_law22_the_value_is_there_once_the_task_is_counted_and_its_worker_free() {
    timed_each([0, 4], |queue| {
        let pool = pool(1, queue);
        let group = pool.limited_group(1);
        for n in 0..rounds(300) {
            // The group refuses this unless it is empty. With one worker and no queue, the pool
            // refuses it unless the worker is free.
            let handle = must_await(group.awaitable(), move || n);
            assert_eq!(outcome_of(handle, n).unwrap(), n);
            let pending = (group.pending(), group.completed() as u64);
            assert_eq!(pending, (0, 2 * n + 1));
            assert_stats!(pool.stats(), completed: 3 * n + 1, running: 0, accepted: 3 * n + 1);
            assert_eq!(value_of(group.awaitable().serve_async(move || n)), n);
            assert_eq!(pool.do_with_deadline(move || n, LONG).unwrap(), n);
        }
        assert_stats!(settle(&pool), refused: 0, spawned: 1);
    });
}

#[test]
fn law21_join_timeout_gives_the_handle_back() {
    timed(|| {
        let (pool, gate) = (pool(1, 0), Gate::new());
        let handle = await_then(pool.awaitable(), &gate, || String::from("late"));
        let handle = takes(ms(30), || handle.join_timeout(ms(30)).expect_err("not yet"));
        let mut handle = handle.join_timeout(Duration::ZERO).expect_err("not yet");
        assert!(!handle.is_finished());
        // The handle is polled as a future and then joined by a thread again.
        let (count, waker) = counted();
        assert!(poll(&mut handle, &waker).is_pending());
        let handle = handle.join_timeout(ms(5)).expect_err("not yet");
        gate.open();
        assert_eq!(handle.join().unwrap(), "late");
        assert_eq!(count.woken(), 0, "the waker was replaced by the last wait");
    });
}

/// A task whose turn comes too late drops its closure before its handle reports `Expired`.
#[test]
fn law21_a_task_that_never_ran_says_why_once_its_closure_is_dropped() {
    timed_each(0..6, |turn| {
        let (pool, gate) = held(4);
        let is_dropped = Arc::new(AtomicBool::new(false));
        let drops = Arc::clone(&is_dropped);
        let slow = on_drop(move || {
            thread::sleep(ms(5));
            drops.store(true, Ordering::SeqCst);
            quiet_panic("contained");
        });
        let on = match turn % 2 {
            0 => pool.with_deadline(ms(1)),
            _ => pool.min_remaining(LONG).with_deadline(LONG / 2),
        };
        let handle = must_await(on.awaitable(), move || drop(slow));
        assert!(!handle.is_finished());
        let waiter = thread::spawn(move || {
            let error = outcome_of(handle, turn / 2).unwrap_err();
            (error, is_dropped.load(Ordering::SeqCst))
        });
        thread::sleep(ms(2)); // past the deadline
        gate.open();
        let (error, was_dropped) = waiter.join().unwrap();
        assert!(matches!(error, TaskError::Expired), "{error:?}");
        assert!(was_dropped);
        assert_stats!(pool.stats(), expired: 1, discarded: 0);
    });
}

#[test]
fn law21_options_are_those_of_serve() {
    timed(|| {
        let (pool, gate) = held(1);
        let mail = pool.labeled("mail").with_deadline(LONG);
        let handle = must_await(mail.awaitable(), || (task::label(), task::remaining()));
        let refused = pool.awaitable().serve(|| 9).unwrap_err();
        assert!(refused.is_saturated());
        assert_eq!(refused.into_inner()(), 9, "the closure came back");
        let soon = pool.when_full(WhenFull::BlockFor(ms(10))).awaitable();
        let why = takes(ms(10), || reason(soon.serve(|| ())));
        assert_eq!(why, "saturated");
        gate.open();
        let (label, remaining) = handle.join().unwrap();
        assert!(label == Some("mail") && remaining.is_some());
        // No worker blocks for this task, so it may be queued and is not refused as `OnWorker`.
        let nested = on_worker(&pool, |pool| must_await(pool.awaitable(), || 4));
        assert_eq!(nested.join().unwrap(), 4);
        pool.shutdown(Shutdown::Drain, LIMIT);
        assert_eq!(reason(pool.awaitable().serve(|| ())), "closed");
    });
}

#[test]
fn law21_a_handle_outlives_its_pool() {
    timed(|| {
        let pool = pool(1, 4);
        let handles = [0, 1, 2, 3].map(|n| must_await(pool.awaitable(), move || n));
        drop(pool);
        for (n, handle) in handles.into_iter().enumerate() {
            assert!(handle.is_finished(), "the drop waits for the task");
            assert_eq!(handle.join().unwrap(), n);
        }
        let (pool, gate) = held(1);
        let handle = must_await(pool.awaitable(), || 1);
        pool.shutdown(Shutdown::Discard, Duration::ZERO);
        gate.open();
        drop(pool);
        assert!(matches!(handle.join(), Err(TaskError::Discarded)));
    });
}

#[test]
fn a_handle_that_was_ready_panics() {
    let pool = pool(1, 0);
    let mut handle = must_await(pool.awaitable(), || 3);
    wait_until("the task to end", || handle.is_finished());
    assert!(matches!(ready(&mut handle, Waker::noop()), Ok(3)));
    assert!(handle.is_finished());
    handle.cancel();
    let again = catch_unwind(AssertUnwindSafe(|| poll(&mut handle, Waker::noop())));
    assert!(again.is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| handle.join())).is_err());
}
