//! Law 21: handles. Each test is of one of its sentences; the last ones are about bad input.

mod common;

use std::cell::Cell;
use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::{pin, Pin};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use common::*;
use lazypool::{
    task, Awaitable, DeadlineError, Handle, Pool, Refusal, Refused, Shutdown, TaskError, WhenFull,
};
use static_assertions::{assert_impl_all, assert_not_impl_any};

assert_impl_all!(Handle<Cell<u8>>: Send, Sync, Unpin, std::fmt::Debug, Future);
assert_not_impl_any!(Handle<u8>: Clone);
assert_impl_all!(Awaitable<'static>: Copy, Send, Sync, std::fmt::Debug);
assert_impl_all!(TaskError: std::error::Error, Send, Sync);

// ---- tools ------------------------------------------------------------------------------

/// Wakes the thread that blocks on a future.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn woken(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn counted() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count::default());
    (Arc::clone(&count), Waker::from(count))
}

fn poll<R>(handle: &mut Handle<R>, waker: &Waker) -> Poll<Result<R, TaskError>> {
    Pin::new(handle).poll(&mut Context::from_waker(waker))
}

/// What a handle has, awaited in turns by a thread and as a future.
fn outcome<R>(handle: Handle<R>, turn: u64) -> Result<R, TaskError> {
    match turn % 3 {
        0 => handle.join(),
        1 => block_on(handle),
        _ => handle.join_timeout(LONG).map_err(drop).expect("soon"),
    }
}

/// A task that is at the gate, and wakes this at its end.
fn at_the_gate<W: Wake + Send + Sync + 'static>(
    gate: &Gate,
    on: Awaitable<'_>,
    wakes: W,
) -> Handle<()> {
    let mut handle = must_await(on, gate.task());
    gate.wait_entered(1);
    assert!(poll(&mut handle, &Waker::from(Arc::new(wakes))).is_pending());
    handle
}

/// A pool of one whose worker is at the gate, with a queue.
fn busy(gate: &Gate, queue: usize) -> Pool {
    let pool = pool(1, queue);
    let before = gate.entered();
    assert!(pool.serve(gate.task()).is_ok());
    gate.wait_entered(before + 1);
    pool
}

/// Says on which thread it is dropped.
struct DropsOn(mpsc::Sender<ThreadId>);

impl Drop for DropsOn {
    fn drop(&mut self) {
        self.0.send(thread::current().id()).unwrap_or(());
    }
}

/// A task that says on which thread it runs, then waits until it is cancelled or the gate opens;
/// whether it was cancelled.
fn until_cancelled(key: Key, started: mpsc::Sender<ThreadId>) -> bool {
    started.send(thread::current().id()).unwrap();
    while !task::is_cancelled() {
        if key.is_open() {
            return false;
        }
        thread::sleep(Duration::from_micros(100));
    }
    true
}

/// A task that waits until it is cancelled, then at the gate, and has this value: its handle, its
/// thread, and whether it was cancelled.
fn cancellable<R: Send + 'static>(
    pool: &Pool,
    gate: &Gate,
    value: R,
) -> (Handle<R>, ThreadId, mpsc::Receiver<bool>) {
    let key = gate.key();
    let (started, starts) = mpsc::channel();
    let (told, tells) = mpsc::channel();
    let handle = must_await(pool.awaitable(), move || {
        told.send(until_cancelled(key.clone(), started)).unwrap();
        key.pass();
        value
    });
    (handle, starts.recv().unwrap(), tells)
}

// ---- the value ----------------------------------------------------------------------------

#[test]
fn law21_the_value_is_there_once_the_task_is_counted_and_its_worker_free() {
    timed(|| {
        for queue in [0, 4] {
            let pool = pool(1, queue);
            for n in 0..rounds(300) {
                // With one worker and no queue a worker that is not free would refuse this.
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
        // Then as a future, and again as a thread.
        let (count, waker) = counted();
        assert!(poll(&mut handle, &waker).is_pending());
        let handle = handle.join_timeout(ms(5)).expect_err("not yet");
        gate.open();
        assert_eq!(handle.join().unwrap(), "late");
        assert_eq!(count.woken(), 0, "its poll was not the last to wait");
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

/// Holds up its drop, and then says so.
struct Slow(Arc<AtomicBool>);

impl Drop for Slow {
    fn drop(&mut self) {
        thread::sleep(ms(5));
        self.0.store(true, Ordering::SeqCst);
        quiet_panic("contained");
    }
}

#[test]
fn law21_a_task_that_never_ran_says_why_once_its_closure_is_dropped() {
    timed(|| {
        for turn in 0..12 {
            let gate = Gate::new();
            let pool = busy(&gate, 4);
            let group = pool.group();
            let is_dropped = Arc::new(AtomicBool::new(false));
            let slow = Slow(Arc::clone(&is_dropped));
            let on = match turn % 4 {
                0 => pool.with_deadline(ms(1)).awaitable(),
                1 => pool.min_remaining(LONG).with_deadline(LONG / 2).awaitable(),
                2 => group.awaitable(),
                _ => pool.awaitable(),
            };
            let handle = must_await(on, move || drop(slow));
            assert!(!handle.is_finished());
            let waiter = thread::spawn(move || {
                let error = outcome(handle, turn / 4).unwrap_err();
                (error, is_dropped.load(Ordering::SeqCst))
            });
            match turn % 4 {
                0 | 1 => {
                    thread::sleep(ms(2));
                    gate.open();
                }
                2 => group.cancel(),
                _ => {
                    let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
                    assert_eq!(report.discarded, 1);
                }
            }
            let (error, was_dropped) = waiter.join().unwrap();
            assert!(was_dropped, "{error:?}");
            match turn % 4 {
                0 | 1 => assert!(matches!(error, TaskError::Expired), "{error:?}"),
                2 => assert!(matches!(error, TaskError::Cancelled), "{error:?}"),
                _ => assert!(matches!(error, TaskError::Discarded), "{error:?}"),
            }
            let stats = pool.stats();
            let expired = u64::from(turn % 4 < 2);
            assert_eq!((stats.expired, stats.discarded), (expired, 1 - expired));
            gate.open();
        }
    });
}

// ---- cancelled -----------------------------------------------------------------------------

#[test]
fn law21_a_queued_task_whose_handle_is_dropped_or_cancelled_never_runs() {
    timed(|| {
        for drops in [true, false] {
            let gate = Gate::new();
            let pool = busy(&gate, 3);
            let ledger = Ledger::new(3);
            let mut handles: Vec<_> = (0..3)
                .map(|id| {
                    let entry = ledger.entry(id);
                    must_await(pool.awaitable(), move || entry.run())
                })
                .collect();
            assert_eq!(pool.stats().queued, 3);
            // Out of the middle.
            let handle = handles.remove(1);
            if drops {
                drop(handle);
            } else {
                handle.cancel();
                assert!(handle.is_finished());
                handle.cancel();
                let error = handle.join().unwrap_err();
                assert!(matches!(error, TaskError::Cancelled), "{error:?}");
            }
            assert_eq!((ledger.runs(1), ledger.drops(1)), (0, 1), "on this thread");
            let stats = pool.stats();
            assert_eq!((stats.queued, stats.discarded, stats.expired), (2, 1, 0));
            gate.open();
            for handle in handles {
                handle.join().unwrap();
            }
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
            assert_eq!((ledger.runs(0), ledger.runs(1), ledger.runs(2)), (1, 0, 1));
            let stats = pool.stats();
            assert_eq!(
                (stats.accepted, stats.completed, stats.discarded),
                (4, 3, 1)
            );
        }
    });
}

/// The room that it leaves is told to who waits for it.
#[test]
fn law21_a_cancelled_task_makes_room() {
    timed(|| {
        let gate = Gate::new();
        let pool = Arc::new(busy(&gate, 1));
        let handle = must_await(pool.awaitable(), || ());
        let core = Arc::clone(&pool);
        let blocked = thread::spawn(move || {
            let on = core.when_full(WhenFull::Block).awaitable();
            must_await(on, || 5).join()
        });
        wait_until("a blocked submitter", || pool.stats().waiting == 1);
        drop(handle);
        wait_until("its task", || {
            pool.stats().queued == 1 && pool.stats().waiting == 0
        });
        gate.open();
        assert_eq!(blocked.join().unwrap().unwrap(), 5);
    });
}

#[test]
fn law21_a_running_task_whose_handle_is_dropped_is_abandoned_and_its_value_dropped_there() {
    timed(|| {
        for queue in [0, 2] {
            let pool = pool(1, queue);
            let gate = Gate::new();
            let (dropped, drops) = mpsc::channel();
            let (handle, worker, tells) = cancellable(&pool, &gate, DropsOn(dropped));
            assert_eq!(pool.stats().abandoned, 0);
            drop(handle);
            assert!(tells.recv().unwrap(), "it sees is_cancelled()");
            let stats = pool.stats();
            assert_eq!((stats.abandoned, stats.running), (1, 1), "{stats:?}");
            assert!(pool.workers()[0].abandoned);
            assert!(drops.try_recv().is_err());
            gate.open();
            assert_eq!(drops.recv().unwrap(), worker);
            wait_until("its end", || pool.stats().completed == 1);
            let stats = pool.stats();
            assert_eq!(
                (stats.abandoned, stats.discarded, stats.timed_out),
                (0, 0, 0)
            );
        }
    });
}

/// A cancel alone leaves the handle there: the task has run, so the handle has what it ends with.
#[test]
fn law21_a_running_task_that_is_cancelled_is_abandoned_and_its_handle_has_its_value() {
    timed(|| {
        for turn in 0..3 {
            let pool = pool(1, 0);
            let gate = Gate::new();
            let (handle, _, tells) = cancellable(&pool, &gate, 11);
            handle.cancel();
            handle.cancel();
            assert!(tells.recv().unwrap());
            assert_eq!(pool.stats().abandoned, 1);
            assert!(!handle.is_finished());
            gate.open();
            assert_eq!(outcome(handle, turn).unwrap(), 11);
            let stats = pool.stats();
            assert_eq!((stats.abandoned, stats.completed), (0, 1));
        }
    });
}

/// And its value is dropped on the worker where the handle goes before the end.
#[test]
fn law21_a_value_is_dropped_on_the_worker_if_a_cancelled_handle_goes() {
    timed(|| {
        let pool = pool(1, 0);
        let gate = Gate::new();
        let (dropped, drops) = mpsc::channel();
        let (handle, worker, _tells) = cancellable(&pool, &gate, DropsOn(dropped));
        handle.cancel();
        drop(handle);
        gate.open();
        assert_eq!(drops.recv().unwrap(), worker);
    });
}

/// Law 10: a drop of the pool does not wait for it, also if it has begun before.
#[test]
fn law21_a_drop_of_the_pool_does_not_wait_for_a_task_whose_handle_is_gone() {
    timed(|| {
        let gate = Gate::new();
        for before in [true, false] {
            let pool = pool(1, 0);
            let entered = gate.entered();
            let handle = must_await(pool.awaitable(), gate.task());
            gate.wait_entered(entered + 1);
            if before {
                drop(handle);
                drop(pool);
            } else {
                let ended = drop_aside(pool);
                assert!(ended.recv_timeout(ms(50)).is_err(), "somebody waits for it");
                handle.cancel();
                ended.recv_timeout(LIMIT).expect("nobody does");
                gate.open();
                handle.join().unwrap();
            }
        }
    });
}

#[test]
fn law21_detach_lets_the_task_run() {
    timed(|| {
        let gate = Gate::new();
        let pool = busy(&gate, 2);
        let (dropped, drops) = mpsc::channel();
        let (told, tells) = mpsc::channel();
        let queued = must_await(pool.awaitable(), move || {
            told.send(task::is_cancelled()).unwrap();
            DropsOn(dropped)
        });
        queued.detach();
        assert_eq!(pool.stats().queued, 1);
        gate.open();
        assert!(!tells.recv().unwrap());
        assert_ne!(drops.recv().unwrap(), thread::current().id());

        let gate = Gate::new();
        wait_until("rest", || pool.stats().running == 0);
        let running = must_await(pool.awaitable(), gate.task());
        gate.wait_entered(1);
        running.detach();
        let stats = pool.stats();
        assert_eq!((stats.abandoned, stats.running), (0, 1));
        gate.open();
        wait_until("its end", || pool.stats().completed == 3);
        assert_eq!(pool.stats().discarded, 0);
        // One that has ended.
        let ended = must_await(pool.awaitable(), || 5);
        wait_until("its end", || ended.is_finished());
        ended.detach();
    });
}

// ---- wakers ---------------------------------------------------------------------------------

#[test]
fn law21_only_the_waker_of_the_last_poll_is_woken() {
    timed(|| {
        let gate = Gate::new();
        let pool = busy(&gate, 1);
        let mut handle = must_await(pool.awaitable(), || 3);
        let (first, w1) = counted();
        let (second, w2) = counted();
        assert!(poll(&mut handle, &w1).is_pending());
        assert!(poll(&mut handle, &w1).is_pending());
        assert_eq!(Arc::strong_count(&first), 3, "one is kept");
        assert!(poll(&mut handle, &w2).is_pending());
        assert_eq!(Arc::strong_count(&first), 2, "none is kept");
        assert_eq!(Arc::strong_count(&second), 3);
        gate.open();
        wait_until("a wake-up", || second.woken() == 1);
        assert!(matches!(poll(&mut handle, &w2), Poll::Ready(Ok(3))));
        wait_until("none to be kept", || Arc::strong_count(&second) == 2);
        assert_eq!((first.woken(), second.woken()), (0, 1));
    });
}

#[test]
fn law21_no_waker_is_kept_once_the_handle_is_gone() {
    timed(|| {
        for way in 0..4 {
            let gate = Gate::new();
            let pool = busy(&gate, 1);
            let mut handle = must_await(pool.awaitable(), || 3);
            let (count, waker) = counted();
            assert!(poll(&mut handle, &waker).is_pending());
            match way {
                0 => drop(handle),
                1 => handle.detach(),
                2 => {
                    let handle = handle.join_timeout(ms(1)).unwrap_err();
                    assert_eq!(Arc::strong_count(&count), 2, "a thread waited last");
                    drop(handle);
                }
                _ => {
                    handle.cancel();
                    assert_eq!(count.woken(), 1, "it has an outcome");
                    drop(handle);
                }
            }
            assert_eq!(Arc::strong_count(&count), 2, "{way}");
            gate.open();
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
            assert_eq!(count.woken(), usize::from(way == 3), "{way}");
        }
    });
}

#[test]
fn law21_values_closures_and_wakers_are_dropped_once() {
    timed(|| {
        const TASKS: usize = 64;
        for round in 0..rounds(60) {
            let pool = pool(2, 16);
            let (closures, values) = (Ledger::new(TASKS), Ledger::new(TASKS));
            let (count, waker) = counted();
            let group = pool.group();
            let mut dice = Rng::new(round);
            let blocks = pool.when_full(WhenFull::Block);
            let mut left = Vec::new();
            for id in 0..TASKS {
                let (entry, value) = (closures.entry(id), values.entry(id));
                let on = match dice.below(3) {
                    0 => group.awaitable(),
                    1 => blocks.with_deadline(Duration::from_micros(300)).awaitable(),
                    _ => blocks.awaitable(),
                };
                let run = move || {
                    entry.run();
                    value
                };
                let Ok(mut handle) = on.serve(run) else {
                    continue;
                };
                match dice.below(6) {
                    0 => drop(handle),
                    1 => handle.detach(),
                    2 => match handle.join() {
                        Ok(_) => assert_eq!(closures.runs(id), 1),
                        Err(_) => assert_eq!((closures.runs(id), closures.drops(id)), (0, 1)),
                    },
                    3 => {
                        handle.cancel();
                        left.push(handle);
                    }
                    _ => {
                        if poll(&mut handle, &waker).is_pending() {
                            left.push(handle);
                        }
                    }
                }
                if id == TASKS / 2 && round % 3 == 0 {
                    group.cancel();
                }
            }
            let mode = [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel][round as usize % 3];
            if round % 2 == 0 {
                drop(left);
                assert!(pool.shutdown(mode, LIMIT).is_clean());
            } else {
                assert!(pool.shutdown(mode, LIMIT).is_clean());
                assert!(left.iter().all(Handle::is_finished));
                drop(left);
            }
            drop(pool);
            for id in 0..TASKS {
                assert_eq!((closures.drops(id), values.drops(id)), (1, 1), "{id}");
            }
            assert_eq!(Arc::strong_count(&count), 2);
        }
    });
}

// ---- as for `serve` ---------------------------------------------------------------------------

#[test]
fn law21_options_are_those_of_serve() {
    timed(|| {
        let gate = Gate::new();
        let pool = busy(&gate, 1);
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
        assert_eq!(refused.into_inner()(), 9, "it came back");
        let soon = pool.when_full(WhenFull::BlockFor(ms(10)));
        let start = Instant::now();
        assert!(soon.awaitable().serve(|| ()).unwrap_err().is_saturated());
        assert!(start.elapsed() >= ms(10));
        gate.open();
        assert_eq!(handle.join().unwrap(), (Some("mail"), true, true));
        // It may wait in the queue, and so is not refused as what a worker waits for.
        let pool = Arc::new(pool);
        let core = Arc::clone(&pool);
        let nested = must_await(pool.awaitable(), move || must_await(core.awaitable(), || 4));
        assert_eq!(nested.join().unwrap().join().unwrap(), 4);
        pool.shutdown(Shutdown::Drain, LIMIT);
        let refused = pool.awaitable().serve(|| ()).unwrap_err();
        assert!(refused.is_closed());
    });
}

/// One that is late sees so, and counts so; its handle has its value.
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
        wait_until("it to be late", || pool.stats().abandoned == 1);
        gate.open();
        assert!(handle.join().unwrap());
        assert_eq!(pool.stats().timed_out, 1);
    });
}

#[test]
fn law21_a_group_counts_its_awaited_tasks() {
    timed(|| {
        let gate = Gate::new();
        let pool = busy(&gate, 8);
        let group = pool.group();
        let good = must_await(group.awaitable(), || 1);
        let bad = must_await(group.awaitable(), || quiet_panic("bad"));
        let dropped = must_await(group.awaitable(), || 2);
        let detached = must_await(group.awaitable(), || 3);
        detached.detach();
        assert_eq!(group.pending(), 4);
        assert!(group.wait_timeout(ms(5)).is_err());
        drop(dropped);
        assert_eq!((group.pending(), group.discarded()), (3, 1));
        gate.open();
        group.wait();
        assert_eq!((group.completed(), group.panicked()), (2, 1));
        // They are released right after the tasks have been counted.
        wait_until("both handles", || good.is_finished() && bad.is_finished());
        assert_eq!(good.join().unwrap(), 1);
        assert!(bad.join().is_err());
        // Whoever has the value finds it counted in the group, too.
        for n in 0..rounds(100) {
            assert_eq!(must_await(group.awaitable(), move || n).join().unwrap(), n);
            assert_eq!(group.pending(), 0);
        }
        let gate = Gate::new();
        let key = gate.key();
        let (started, starts) = mpsc::channel();
        let running = must_await(group.awaitable(), move || until_cancelled(key, started));
        starts.recv().unwrap();
        let queued = must_await(group.awaitable(), || 4);
        group.cancel();
        assert!(matches!(queued.join(), Err(TaskError::Cancelled)));
        assert!(running.join().unwrap(), "it saw that");
        let refused = group.awaitable().serve(|| ()).unwrap_err();
        assert!(matches!(refused.reason(), Refusal::Cancelled));
    });
}

/// A task that was taken out with its group leaves a place, which may be another's when its handle is
/// dropped.
#[test]
fn law21_a_cancel_takes_no_other_task() {
    timed(|| {
        for _ in 0..rounds(20) {
            let gate = Gate::new();
            let pool = busy(&gate, 1);
            let group = pool.group();
            let (entered, enters) = mpsc::channel();
            let key = Gate::new();
            let holds = key.key();
            let slow = OnDrop(Some(move || {
                entered.send(()).unwrap();
                holds.pass();
            }));
            let taken = must_await(group.awaitable(), move || drop(slow));
            let canceller = thread::spawn(move || group.cancel());
            enters.recv().unwrap();
            // Taken out, and not yet ended.
            let other = pool.awaitable().serve(|| 5);
            assert!(!taken.is_finished());
            drop(taken);
            key.open();
            canceller.join().unwrap();
            gate.open();
            if let Ok(other) = other {
                assert_eq!(other.join().unwrap(), 5);
            }
        }
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
            assert!(handle.is_finished(), "the drop waits for it");
            assert_eq!(handle.join().unwrap(), n);
        }
        let gate = Gate::new();
        let pool = busy(&gate, 1);
        let handle = must_await(pool.awaitable(), || 1);
        pool.shutdown(Shutdown::Discard, Duration::ZERO);
        gate.open();
        drop(pool);
        assert!(matches!(handle.join(), Err(TaskError::Discarded)));
    });
}

// ---- bad input -------------------------------------------------------------------------------

#[test]
fn a_handle_that_was_ready_panics() {
    let pool = pool(1, 0);
    let mut handle = must_await(pool.awaitable(), || 3);
    wait_until("its end", || handle.is_finished());
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

/// Wakers that panic where they are told to: what to do is in the bits of their address.
struct Bad;

impl Bad {
    const CLONE: usize = 1;
    const WAKE: usize = 2;
    const DROP: usize = 4;

    fn waker(at: usize) -> Waker {
        // SAFETY: the table reads nothing but the address.
        unsafe { Waker::from_raw(Self::raw(ptr::without_provenance(at))) }
    }

    const fn raw(at: *const ()) -> RawWaker {
        RawWaker::new(at, &Self::TABLE)
    }

    const TABLE: RawWakerVTable = RawWakerVTable::new(
        |at| {
            Self::panic_if(at, Self::CLONE, "clone");
            Self::raw(at)
        },
        |at| Self::panic_if(at, Self::WAKE, "wake"),
        |_| unreachable!("wakers are woken by value"),
        |at| {
            if !thread::panicking() {
                Self::panic_if(at, Self::DROP, "drop");
            }
        },
    );

    fn panic_if(at: *const (), what: usize, name: &'static str) {
        if at.addr() & what != 0 {
            quiet_panic(name);
        }
    }
}

/// A panic is the poller's, or contained.
#[test]
fn wakers_that_panic_end_neither_worker_nor_pool() {
    timed(|| {
        for what in [Bad::CLONE, Bad::WAKE, Bad::DROP] {
            let gate = Gate::new();
            let pool = busy(&gate, 2);
            let bad = std::mem::ManuallyDrop::new(Bad::waker(what));
            let mut handle = must_await(pool.awaitable(), || 3);
            let (count, good) = counted();
            assert!(poll(&mut handle, &good).is_pending());
            let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut handle, &bad)));
            assert_eq!(polled.is_err(), what == Bad::CLONE);
            assert_eq!(Arc::strong_count(&count), 2, "the one before is not kept");
            if what == Bad::DROP {
                let changed = catch_unwind(AssertUnwindSafe(|| poll(&mut handle, &good)));
                assert!(changed.is_err(), "as the other is dropped");
            }
            let next = must_await(pool.awaitable(), || 4);
            gate.open();
            assert_eq!(handle.join().unwrap(), 3);
            assert_eq!(next.join().unwrap(), 4);
            let stats = pool.stats();
            assert_eq!((stats.completed, stats.panicked, stats.workers), (3, 0, 1));
            // In the last case it was stored again, and `join` may have come after the task's end.
            assert!(count.woken() <= usize::from(what == Bad::DROP));
        }
    });
}

/// As above, with the task's end after the poll: it is the worker that calls the waker.
#[test]
fn a_waker_that_panics_on_the_worker_is_contained() {
    timed(|| {
        let gate = Gate::new();
        let pool = busy(&gate, 2);
        let bad = Bad::waker(Bad::WAKE);
        let mut handle = must_await(pool.awaitable(), || 3);
        assert!(poll(&mut handle, &bad).is_pending());
        let next = must_await(pool.awaitable(), || 4);
        gate.open();
        assert_eq!(next.join().unwrap(), 4);
        wait_until("the outcome", || handle.is_finished());
        assert!(matches!(poll(&mut handle, &bad), Poll::Ready(Ok(3))));
        assert_eq!(pool.stats().workers, 1);
    });
}

/// Waits at a gate when it is woken.
struct Blocks(Key);

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        self.0.pass();
    }
}

/// A waker that blocks holds up its worker alone: not what is queued, nor who waits for room, for the
/// group or with a deadline.
#[test]
fn a_waker_that_blocks_holds_up_one_worker() {
    timed(|| {
        let pool = Arc::new(pool(2, 1));
        let (gates, waker_gate) = ([Gate::new(), Gate::new()], Gate::new());
        let group = pool.group();
        let handle = at_the_gate(&gates[0], group.awaitable(), Blocks(waker_gate.key()));
        assert!(pool.serve(gates[1].task()).is_ok());
        gates[1].wait_entered(1);
        // Awaited: its caller leaves at its deadline, whichever worker has its task.
        let core = Arc::clone(&pool);
        let caller = thread::spawn(move || {
            let start = Instant::now();
            let late = core.do_with_deadline(|| (), ms(2000));
            (late.is_ok(), start.elapsed())
        });
        wait_until("it to queue", || pool.stats().queued == 1);
        let core = Arc::clone(&pool);
        let blocked = thread::spawn(move || core.when_full(WhenFull::Block).serve(|| ()).is_ok());
        wait_until("a blocked submitter", || pool.stats().waiting == 1);
        gates[0].open();
        waker_gate.wait_entered(1);
        assert!(handle.is_finished());
        group.wait();
        assert!(blocked.join().unwrap(), "it found room");
        let (ran, took) = caller.join().unwrap();
        assert!(ran || took >= ms(2000));
        assert!(took < LIMIT, "{took:?}");
        gates[1].open();
        wait_until("the other worker", || pool.stats().queued == 0);
        waker_gate.open();
        handle.join().unwrap();
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    });
}

/// The same where the next task of the worker is past its deadline and never runs: the one after it is
/// not yet in the worker's hand.
#[test]
fn a_waker_that_blocks_before_an_expired_task_holds_up_no_caller() {
    timed(|| {
        let pool = Arc::new(pool(1, 2));
        let (gate, waker_gate) = (Gate::new(), Gate::new());
        let first = at_the_gate(&gate, pool.awaitable(), Blocks(waker_gate.key()));
        let late = pool.with_deadline(ms(1));
        let mut expired = must_await(late.awaitable(), || ());
        let waker = Waker::from(Arc::new(Blocks(waker_gate.key())));
        assert!(poll(&mut expired, &waker).is_pending());
        thread::sleep(ms(2));
        let core = Arc::clone(&pool);
        let (told, back) = mpsc::channel();
        thread::spawn(move || told.send(core.do_with_deadline(|| (), ms(2000)).is_ok()));
        wait_until("both to queue", || pool.stats().queued == 2);
        gate.open();
        waker_gate.wait_entered(1);
        let ran = back.recv_timeout(LIMIT);
        waker_gate.open();
        assert_eq!(ran, Ok(false), "back at its deadline");
        first.join().unwrap();
        assert!(matches!(expired.join(), Err(TaskError::Expired)));
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    });
}

/// Calls its pool and waits for the task when it is woken; says how that ended.
struct Calls {
    pool: Arc<Pool>,
    ends: mpsc::Sender<Option<Refusal>>,
}

impl Calls {
    /// Has one woken by a task that ends after `before`. How its calls end.
    fn ends_of(pool: &Arc<Pool>, before: impl FnOnce()) -> [Option<Refusal>; 3] {
        let (gate, core) = (Gate::new(), Arc::clone(pool));
        let (ends, back) = mpsc::channel();
        let handle = at_the_gate(&gate, pool.awaitable(), Calls { pool: core, ends });
        before();
        gate.open();
        let next = || back.recv_timeout(LIMIT);
        let ends = [(); 3].map(|()| next().expect("it does not wait for itself"));
        handle.join().unwrap();
        ends
    }

    fn end<F>(&self, served: Result<(), Refused<F>>) {
        let why = served.err().map(|refused| refused.into_parts().1);
        self.ends.send(why).unwrap_or(());
    }
}

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        let called = self.pool.do_with_deadline(|| (), Duration::MAX);
        self.end(called.map_err(|error| match error {
            DeadlineError::Refused(refused) => refused,
            other => panic!("without a deadline: {other:?}"),
        }));
        self.pool.scope(|s| self.end(s.serve(|| ())));
        // Served by another thread: the worker that waits is the same.
        self.pool
            .scope(|s| thread::scope(|t| drop(t.spawn(|| self.end(s.serve(|| ()))))));
    }
}

/// A waker runs on a worker that is idle already: that worker must not be given the task which it waits
/// for itself. Laws 14 and 21.
#[test]
fn a_waker_that_waits_for_its_pool_is_refused_or_served_by_another() {
    timed(|| {
        for (workers, queue) in [(1, 0), (1, 2), (2, 0), (2, 2)] {
            let pool = Arc::new(pool(workers, queue));
            for end in Calls::ends_of(&pool, || ()) {
                assert!(matches!(end, None | Some(Refusal::OnWorker)), "{end:?}");
            }
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        }
    });
}

/// Serves tasks to its pool until one is refused, when it is woken; says how many were accepted.
struct Serves {
    pool: Arc<Pool>,
    accepted: mpsc::Sender<usize>,
}

impl Wake for Serves {
    fn wake(self: Arc<Self>) {
        let mut accepted = 0;
        while self.pool.serve(|| ()).is_ok() {
            accepted += 1;
        }
        self.accepted.send(accepted).unwrap_or(());
    }
}

/// A submission of a waker's that finds the queue full does not wait for the worker that it runs on,
/// which was sent to look at the queue meanwhile.
#[test]
fn a_waker_that_serves_into_a_full_queue_is_refused() {
    timed(|| {
        for queue in [0, 2, 64] {
            let pool = Arc::new(pool(1, queue));
            let gate = Gate::new();
            let (accepted, back) = mpsc::channel();
            let core = Arc::clone(&pool);
            let serves = Serves {
                pool: core,
                accepted,
            };
            let handle = at_the_gate(&gate, pool.awaitable(), serves);
            gate.open();
            let accepted = back.recv_timeout(LIMIT).expect("it waits for nobody");
            assert!(accepted >= queue, "{accepted} of {queue}");
            handle.join().unwrap();
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
            assert_eq!(pool.stats().completed, accepted as u64 + 1);
        }
    });
}

/// In a pool of three: a worker over the limit of two that runs a waker at the second gate, as a third
/// has left; and another at a task's gate.
fn over_the_limit_in_a_waker(pool: &Pool) -> (Handle<()>, Gate, Gate) {
    let (gate, waker_gate) = (Gate::new(), Gate::new());
    let handle = at_the_gate(&gate, pool.awaitable(), Blocks(waker_gate.key()));
    let [leaves, other] = [Gate::new(), Gate::new()];
    for gate in [&leaves, &other] {
        pool.serve(gate.task()).unwrap();
        gate.wait_entered(1);
    }
    pool.set_limit(2).unwrap();
    gate.open();
    waker_gate.wait_entered(1);
    leaves.open();
    wait_until("the surplus worker to end", || pool.stats().workers == 2);
    (handle, waker_gate, other)
}

/// A worker over the limit that runs a waker is one of those that stay, as another one leaves: no
/// submission is refused beside it. Law 1.
#[test]
fn law01_a_worker_over_the_limit_that_runs_a_waker_can_be_had() {
    timed(|| {
        let pool = Arc::new(pool(3, 0));
        let (handle, waker_gate, other) = over_the_limit_in_a_waker(&pool);
        let core = Arc::clone(&pool);
        let served = thread::spawn(move || core.serve(|| ()).map_err(|back| back.into_parts().1));
        thread::sleep(ms(20));
        waker_gate.open();
        let served = served.join().unwrap();
        assert!(served.is_ok(), "{served:?} with one of two workers busy");
        other.open();
        handle.join().unwrap();
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    });
}

/// The same with a queue: nobody relies on that worker as on one that looks at the queue. The submitter's last
/// worker is the other one; one without a last worker may be given the one in the waker, as everywhere. Law 1.
#[test]
fn law01_a_waker_on_a_worker_over_the_limit_holds_up_nothing_queued() {
    timed(|| {
        let pool = pool(3, 8);
        let (handle, waker_gate, other) = over_the_limit_in_a_waker(&pool);
        other.open();
        wait_until("the other's end", || pool.stats().running == 0);
        // Until it sleeps; awake it would look by itself.
        thread::sleep(ms(20));
        let (done, ran) = mpsc::channel();
        pool.serve(move || done.send(()).unwrap()).unwrap();
        let ran = ran.recv_timeout(LIMIT);
        waker_gate.open();
        assert_eq!(ran, Ok(()), "beside an idle worker");
        handle.join().unwrap();
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    });
}

/// In a closed pool a scope that a waker opens says so.
#[test]
fn law10_a_scope_of_a_waker_in_a_closed_pool() {
    timed(|| {
        let pool = Arc::new(pool(1, 0));
        let ends = Calls::ends_of(&pool, || {
            let report = pool.shutdown(Shutdown::Drain, ms(1));
            assert!(!report.is_clean(), "{report:?}");
        });
        for end in ends {
            assert!(matches!(end, Some(Refusal::Closed)), "{end:?}");
        }
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    });
}

#[test]
fn values_that_panic_in_their_drop() {
    timed(|| {
        let pool = pool(1, 0);
        // Nobody waits for it: law 7.
        let gate = Gate::new();
        let key = gate.key();
        let handle = must_await(pool.awaitable(), move || {
            key.pass();
            Bomb("value")
        });
        gate.wait_entered(1);
        drop(handle);
        gate.open();
        wait_until("its end", || pool.stats().running == 0);
        assert_eq!((pool.stats().panicked, pool.stats().completed), (1, 0));
        // It is dropped with its handle: the panic is of that drop.
        let handle = must_await(pool.awaitable(), || Bomb("value"));
        wait_until("its end", || handle.is_finished());
        assert!(catch_unwind(AssertUnwindSafe(|| drop(handle))).is_err());
        // A capture's: the handle has that payload.
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

/// A runtime that ends drops the futures that it has: their tasks are cancelled.
#[test]
fn a_runtime_that_ends_before_the_task() {
    timed(|| {
        let gate = Gate::new();
        let pool = busy(&gate, 1);
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

/// Polls that change the waker, joins with a limit, and drops beside the end of the task.
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
