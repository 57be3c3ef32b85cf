//! Law 21: the outcome that a handle returns, and when; the options of a task with a handle. See
//! `handle_cancel.rs` for cancels by handles, `handle_wakers.rs` for wakers.

mod common;

use std::cell::Cell;
use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::futures::{block_on, counted, poll};
use common::*;
use lazypool::{task, Awaitable, Handle, Pool, Refusal, Shutdown, TaskError, WhenFull};
use static_assertions::{assert_impl_all, assert_not_impl_any};

assert_impl_all!(Handle<Cell<u8>>: Send, Sync, Unpin, std::fmt::Debug, Future);
assert_not_impl_any!(Handle<u8>: Clone);
assert_impl_all!(Awaitable<'static>: Copy, Send, Sync, std::fmt::Debug);
assert_impl_all!(TaskError: std::error::Error, Send, Sync);

/// Returns the outcome of a handle, which a thread joins or polls as a future, in turns.
fn outcome<R>(handle: Handle<R>, turn: u64) -> Result<R, TaskError> {
    match turn % 3 {
        0 => handle.join(),
        1 => block_on(handle),
        _ => handle
            .join_timeout(LONG)
            .map_err(drop)
            .expect("the task ends soon"),
    }
}

#[test]
fn law21_the_value_is_there_once_the_task_is_counted_and_its_worker_free() {
    timed(|| {
        for queue in [0, 4] {
            let pool = pool(1, queue);
            for n in 0..rounds(300) {
                // With one worker and no queue, this is refused unless the worker is free.
                let handle = must_await(pool.awaitable(), move || n);
                assert_eq!(outcome(handle, n).unwrap(), n);
                let stats = pool.stats();
                assert_eq!((stats.completed, stats.running), (n + 1, 0), "{stats:?}");
                assert_eq!(stats.accepted, n + 1);
            }
            assert_eq!(pool.stats().spawned, 1);
        }
    });
}

#[test]
fn law21_a_handle_waits_as_long_as_its_task_takes() {
    timed(|| {
        let gate = Gate::new();
        for turn in 0..3 {
            let pool = pool(1, 0);
            let gate = if turn == 0 { &gate } else { &Gate::new() };
            let key = gate.key();
            let handle = must_await(pool.awaitable(), move || {
                key.pass();
                7
            });
            gate.wait_entered(1);
            let waiter = thread::spawn(move || outcome(handle, turn));
            thread::sleep(ms(20));
            assert!(!waiter.is_finished());
            gate.open();
            assert_eq!(waiter.join().unwrap().unwrap(), 7);
        }
    });
}

#[test]
fn law21_join_timeout_gives_the_handle_back() {
    timed(|| {
        let pool = pool(1, 0);
        let gate = Gate::new();
        let key = gate.key();
        let handle = must_await(pool.awaitable(), move || {
            key.pass();
            String::from("late")
        });
        gate.wait_entered(1);
        let start = Instant::now();
        let handle = handle.join_timeout(ms(30)).expect_err("not yet");
        assert!(start.elapsed() >= ms(30));
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

#[test]
fn law21_a_panic_is_there_after_on_panic_has_run() {
    timed(|| {
        let told = Arc::new(AtomicUsize::new(0));
        let tells = Arc::clone(&told);
        let pool = Pool::builder()
            .max_workers(1)
            .on_panic(move |panic| {
                assert_eq!(panic.label, Some("import"));
                thread::sleep(ms(2));
                tells.fetch_add(1, Ordering::SeqCst);
            })
            .build()
            .unwrap();
        for n in 0..6 {
            let on = pool.labeled("import").awaitable();
            let handle = must_await(on, || -> u32 { quiet_panic("line 3 is empty") });
            let error = outcome(handle, n).unwrap_err();
            assert_eq!(told.load(Ordering::SeqCst) as u64, n + 1);
            assert_eq!(error.to_string(), "the task panicked: line 3 is empty");
            let TaskError::Panicked(panic) = error else {
                panic!("{error:?}")
            };
            assert_eq!(panic.message().as_deref(), Some("line 3 is empty"));
            assert_eq!(pool.stats().panicked, n + 1);
        }
    });
}

/// A value whose drop takes long, and then sets the flag.
struct Slow(Arc<AtomicBool>);

impl Drop for Slow {
    fn drop(&mut self) {
        thread::sleep(ms(5));
        self.0.store(true, Ordering::SeqCst);
        quiet_panic("contained");
    }
}

/// A task whose turn comes too late drops its closure before its handle reports `Expired`.
#[test]
fn law21_a_task_that_never_ran_says_why_once_its_closure_is_dropped() {
    timed(|| {
        for turn in 0..6 {
            let gate = Gate::new();
            let pool = occupied(&gate, 4);
            let is_dropped = Arc::new(AtomicBool::new(false));
            let slow = Slow(Arc::clone(&is_dropped));
            let on = match turn % 2 {
                0 => pool.with_deadline(ms(1)).awaitable(),
                _ => pool.min_remaining(LONG).with_deadline(LONG / 2).awaitable(),
            };
            let handle = must_await(on, move || drop(slow));
            assert!(!handle.is_finished());
            let waiter = thread::spawn(move || {
                let error = outcome(handle, turn / 2).unwrap_err();
                (error, is_dropped.load(Ordering::SeqCst))
            });
            thread::sleep(ms(2)); // past the deadline
            gate.open();
            let (error, was_dropped) = waiter.join().unwrap();
            assert!(was_dropped, "{error:?}");
            assert!(matches!(error, TaskError::Expired), "{error:?}");
            let stats = pool.stats();
            assert_eq!((stats.expired, stats.discarded), (1, 0));
        }
    });
}

/// A task that is taken out of the queue reports so at once, while its captures are still being
/// dropped.
#[test]
fn law21_a_task_that_was_taken_out_says_why_while_its_closure_is_dropped() {
    timed(|| {
        for turn in 0..6 {
            let (gate, slow) = (Gate::new(), Gate::new());
            let pool = Arc::new(occupied(&gate, 4));
            let group = pool.group();
            let key = slow.key();
            let capture = OnDrop(Some(move || {
                key.pass();
                quiet_panic("contained");
            }));
            let handle = must_await(group.awaitable(), move || drop(capture));
            let its = Arc::clone(&pool);
            let discarder = thread::spawn(move || match turn % 2 {
                0 => group.cancel(),
                _ => {
                    let report = its.shutdown(Shutdown::Discard, Duration::ZERO);
                    assert_eq!(report.discarded, 1);
                }
            });
            slow.wait_entered(1);
            assert!(handle.is_finished());
            let stats = pool.stats();
            assert_eq!((stats.expired, stats.discarded), (0, 1));
            let error = outcome(handle, turn / 2).unwrap_err();
            match turn % 2 {
                0 => assert!(matches!(error, TaskError::Cancelled), "{error:?}"),
                _ => assert!(matches!(error, TaskError::Discarded), "{error:?}"),
            }
            assert!(!discarder.is_finished());
            slow.open();
            discarder.join().expect("no panic");
            gate.open();
        }
    });
}

#[test]
fn law21_options_are_those_of_serve() {
    timed(|| {
        let gate = Gate::new();
        let pool = occupied(&gate, 1);
        let mail = pool.labeled("mail").with_deadline(LONG);
        let handle = must_await(mail.awaitable(), || {
            (
                task::label(),
                task::deadline().is_some(),
                task::remaining().is_some(),
            )
        });
        let refused = pool.awaitable().serve(|| 9).unwrap_err();
        assert!(matches!(refused.reason(), Refusal::Saturated));
        assert_eq!(refused.into_inner()(), 9, "the closure came back");
        let soon = pool.when_full(WhenFull::BlockFor(ms(10)));
        let start = Instant::now();
        assert!(soon.awaitable().serve(|| ()).unwrap_err().is_saturated());
        assert!(start.elapsed() >= ms(10));
        gate.open();
        assert_eq!(handle.join().unwrap(), (Some("mail"), true, true));
        // No worker blocks for this task, so it may be queued and is not refused as `OnWorker`.
        let pool = Arc::new(pool);
        let core = Arc::clone(&pool);
        let nested = must_await(pool.awaitable(), move || must_await(core.awaitable(), || 4));
        assert_eq!(nested.join().unwrap().join().unwrap(), 4);
        pool.shutdown(Shutdown::Drain, LIMIT);
        let refused = pool.awaitable().serve(|| ()).unwrap_err();
        assert!(refused.is_closed());
    });
}

/// A task that runs past its deadline can see that, and is counted as timed out. Its handle returns
/// its value.
#[test]
fn law21_a_task_that_runs_past_its_deadline() {
    timed(|| {
        let pool = pool(1, 0);
        let gate = Gate::new();
        let key = gate.key();
        let handle = must_await(pool.with_deadline(ms(500)).awaitable(), move || {
            key.pass();
            task::is_cancelled()
        });
        gate.wait_entered(1);
        wait_until("the task to be late", || pool.stats().abandoned == 1);
        gate.open();
        assert!(handle.join().unwrap());
        assert_eq!(pool.stats().timed_out, 1);
    });
}

#[test]
fn law21_a_handle_outlives_its_pool() {
    timed(|| {
        let pool = pool(1, 4);
        let handles: Vec<_> = (0..4)
            .map(|n| must_await(pool.awaitable(), move || n))
            .collect();
        drop(pool);
        for (n, handle) in handles.into_iter().enumerate() {
            assert!(handle.is_finished(), "the drop waits for the task");
            assert_eq!(handle.join().unwrap(), n);
        }
        let gate = Gate::new();
        let pool = occupied(&gate, 1);
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
    assert!(matches!(
        poll(&mut handle, Waker::noop()),
        Poll::Ready(Ok(3))
    ));
    assert!(handle.is_finished());
    handle.cancel();
    let again = catch_unwind(AssertUnwindSafe(|| poll(&mut handle, Waker::noop())));
    assert!(again.is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| handle.join())).is_err());
}

#[test]
fn values_that_panic_in_their_drop() {
    timed(|| {
        let pool = pool(1, 0);
        // The handle is dropped, so the worker drops the value, and the task counts as panicked
        // (law 7).
        let gate = Gate::new();
        let key = gate.key();
        let handle = must_await(pool.awaitable(), move || {
            key.pass();
            Bomb("value")
        });
        gate.wait_entered(1);
        drop(handle);
        gate.open();
        wait_until("the task to end", || pool.stats().running == 0);
        assert_eq!((pool.stats().panicked, pool.stats().completed), (1, 0));
        // The value is dropped with its handle, so the panic is that of the handle's drop.
        let handle = must_await(pool.awaitable(), || Bomb("value"));
        wait_until("the task to end", || handle.is_finished());
        assert!(catch_unwind(AssertUnwindSafe(|| drop(handle))).is_err());
        // The drop of a capture panics, and the handle returns that payload.
        let bomb = Bomb("capture");
        let handle = must_await(pool.awaitable(), move || {
            let _bomb = &bomb;
            7
        });
        let error = handle.join().unwrap_err();
        assert_eq!(error.to_string(), "the task panicked: capture");
        let stats = pool.stats();
        assert_eq!((stats.panicked, stats.completed, stats.workers), (2, 1, 1));
    });
}

/// A runtime that ends drops its futures, which cancels their tasks.
#[test]
fn a_runtime_that_ends_before_the_task() {
    timed(|| {
        let gate = Gate::new();
        let pool = occupied(&gate, 1);
        let (count, waker) = counted();
        let handle = must_await(pool.awaitable(), || 3);
        let mut future = Box::pin(handle);
        let pending = future.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(pending.is_pending());
        drop(future);
        assert_eq!((pool.stats().discarded, pool.stats().queued), (1, 0));
        gate.open();
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        assert_eq!((count.woken(), Arc::strong_count(&count)), (0, 2));
    });
}

/// Polls that change the waker, joins with a limit, and drops race the end of the task.
#[test]
fn the_end_beside_all_that_a_handle_does() {
    timed(|| {
        let pool = pool(2, 4);
        for round in 0..rounds(3_000) {
            let (first, w1) = counted();
            let (second, w2) = counted();
            let mut handle = must_await(pool.when_full(WhenFull::Block).awaitable(), move || round);
            for _ in 0..round % 7 {
                std::hint::spin_loop();
            }
            if poll(&mut handle, &w1).is_ready() {
                continue;
            }
            match round % 4 {
                0 => {
                    if poll(&mut handle, &w2).is_pending() {
                        wait_until("a wake-up", || second.woken() == 1);
                        let value = poll(&mut handle, &w2);
                        assert!(matches!(value, Poll::Ready(Ok(n)) if n == round));
                    }
                }
                1 => match handle.join_timeout(Duration::from_micros(round % 20)) {
                    Ok(value) => assert_eq!(value.unwrap(), round),
                    Err(handle) => assert_eq!(handle.join().unwrap(), round),
                },
                2 => drop(handle),
                _ => {
                    handle.cancel();
                    match handle.join() {
                        Ok(value) => assert_eq!(value, round),
                        Err(error) => assert!(matches!(error, TaskError::Cancelled)),
                    }
                }
            }
            assert!(first.woken() <= 1 && second.woken() <= 1);
        }
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        check_at_rest(&pool, &pool.stats());
    });
}

/// Law 21: a handle has its outcome before its group's wait ends, whether its task ran or not.
#[test]
fn law21_after_a_groups_wait_each_handle_is_finished() {
    let pool = pool(2, 64);
    for round in 0..rounds(300) {
        let group = pool.group();
        let serve = |n: u64| group.awaitable().serve(move || n).unwrap();
        let handles: Vec<_> = (0..16).map(serve).collect();
        if round % 2 == 1 {
            group.cancel();
        }
        group.wait();
        assert!(handles.iter().all(Handle::is_finished), "round {round}");
    }
}
