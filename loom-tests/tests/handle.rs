//! Handles (`src/handle.rs`, `src/parts/completion/shared.rs`): the two sides of a node on the
//! heap, first alone, then with a pool. If one side touches the node after it was freed, loom
//! reports it. Law 21.
#![cfg(lazypool_loom)]

use lazypool::model::{promise, Decision, Promised};
use lazypool::{Handle, Pool, Shutdown, TaskError};
use loom::sync::mpsc;
use loom::thread::{self, JoinHandle};
use loom_tests::{
    at_any_moment, beside, check, check_pool, end, hold, poll, quietly, shut_down_beside, warm,
    Flag, Ran, TwoWakers,
};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Returns a handle, and the thread of a worker that ends the handle's task.
fn ends<T: Send + 'static>(value: T) -> (Promised<T>, JoinHandle<()>) {
    let (task, handle) = promise();
    (handle, thread::spawn(move || task.end(value)))
}

/// A handle is dropped, perhaps after a poll, while its task ends. Excludes: a value dropped twice or
/// never; a node freed twice, never, or before the other side's last touch; a waker that is never
/// dropped, or called twice. All interleavings.
#[test]
fn end_against_drop() {
    for polls in [false, true] {
        check(None, move || {
            let values = Ran::new();
            let (mut handle, worker) = ends(values.task());
            let (flag, waker) = Flag::new();
            if polls {
                drop(handle.poll(&waker));
            }
            drop(handle);
            worker.join().unwrap();
            assert_eq!(values.alive(), 0);
            assert_eq!(Arc::strong_count(&flag), 2, "none is kept");
            assert!(flag.times() <= 1);
        });
    }
}

/// A handle is polled, then polled with another waker, while the task ends. Excludes: a lost
/// wake-up; a call of the first waker once the second poll has returned `Pending`; a waker that the
/// worker and the handle both own. All interleavings.
#[test]
fn end_against_a_change_of_waker() {
    check(None, || {
        let (mut handle, worker) = ends(7);
        let wakers = TwoWakers::new();
        assert_eq!(wakers.poll(|waker| handle.poll(waker)), 7);
        drop(handle);
        worker.join().unwrap();
        wakers.assert_end();
    });
}

/// A thread joins until a deadline that passes at any moment, then joins without one. Excludes: a
/// lost wake-up; a wake-up of a thread that no longer waits, in place of the one that does; an
/// outcome lost at the deadline. Preemptions: 3.
#[test]
fn end_against_join_at_its_limit() {
    check(Some(3), || {
        let (mut handle, worker) = ends(7);
        let value = at_any_moment(|deadline| {
            let value = handle.wait_until(deadline);
            value.unwrap_or_else(|| handle.wait())
        });
        assert_eq!(value, 7);
        worker.join().unwrap();
    });
}

/// A handle cancels its task as a worker starts it. Excludes: a cancel that neither abandons the task
/// nor keeps it from its start, or that does both. All interleavings.
#[test]
fn cancel_against_start() {
    check(None, || {
        let decision = Arc::new(Decision::new());
        let (mut task, handle) = promise();
        let worker = beside(&decision, move |decision| {
            let starts = task.start(decision);
            (task, starts)
        });
        handle.cancel(&decision);
        let (task, starts) = worker.join().unwrap();
        assert_eq!(decision.is_abandoned(), starts);
        task.end(());
    });
}

/// A handle is polled, then joined. If the end of the task takes the poll's waker, it must wake the
/// joining thread as well.
#[test]
fn a_poll_and_then_a_join() {
    check(Some(3), || {
        let (mut handle, worker) = ends(7);
        let (_flag, waker) = Flag::new();
        let value = handle.poll(&waker).unwrap_or_else(|| handle.wait());
        assert_eq!(value, 7);
        worker.join().unwrap();
    });
}

// ---- with a pool ---------------------------------------------------------------------------

/// Submits a task that counts its runs, and whose value counts its drops.
fn serve(pool: &Pool, ran: &Ran, values: &Ran) -> Handle<impl FnOnce() + Send + 'static> {
    let (f, value) = (ran.task(), values.task());
    let run = move || {
        f();
        value
    };
    pool.awaitable()
        .serve(run)
        .map_err(|refused| refused.without_closure())
        .unwrap()
}

fn assert_all_gone(pool: &Pool, ran: &Ran, values: &Ran) {
    end(pool);
    assert_eq!((ran.alive(), values.alive()), (0, 0), "dropped once");
    let stats = pool.stats();
    assert_eq!(ran.times() == 0, stats.discarded == 1, "{stats}");
    assert_eq!((stats.expired, stats.timed_out), (0, 0));
}

/// Runs a model with a task on its way to an idle worker (preemptions: 3), and with one in the queue
/// (preemptions: 2).
fn on_its_way(model: fn(&Pool)) {
    check(Some(3), move || model(&warm(1, 0).build()));
    check(Some(2), move || {
        let pool = warm(1, 1).build();
        assert!(pool.serve(|| ()).is_ok());
        model(&pool);
    });
}

/// A handle is dropped while its task is handed over or queued, starts and ends. Excludes: a task
/// that ran and counts as discarded, or the reverse; a value dropped twice or never.
#[test]
fn drop_against_its_task() {
    on_its_way(|pool| {
        let (ran, values) = (Ran::new(), Ran::new());
        drop(serve(pool, &ran, &values));
        assert_all_gone(pool, &ran, &values);
    });
}

/// Cancels a task by its handle and waits. Excludes: `Cancelled` for a task that runs; a wait
/// without end; a pool of one that refuses once the handle is ready.
#[test]
fn cancel_against_its_task() {
    on_its_way(|pool| {
        let (ran, values) = (Ran::new(), Ran::new());
        let handle = serve(pool, &ran, &values);
        handle.cancel();
        match handle.join() {
            Ok(value) => {
                assert_eq!((ran.times(), ran.alive(), values.alive()), (1, 0, 1));
                drop(value);
            }
            // Its closure may still be being dropped, by the worker that has found the mark (law 21).
            Err(TaskError::Cancelled) => assert_eq!(ran.times(), 0),
            Err(other) => panic!("{other}"),
        }
        // In a pool with a queue, an older task may be queued before the one that was taken out, which
        // counts as long as that lasts (law 1).
        assert!(pool.serve(|| ()).is_ok() || pool.queue_capacity() > 0);
        assert_all_gone(pool, &ran, &values);
    });
}

/// A handle is awaited as a future. It is woken once the value is there and the worker is free.
/// Preemptions: 2.
#[test]
fn awaited() {
    check_pool(2, warm(1, 0), |pool| {
        let (flag, waker) = Flag::new();
        let mut handle = pool.awaitable().serve(|| 7).unwrap();
        let value = match poll(&mut handle, &waker) {
            Poll::Pending => {
                flag.wait();
                poll(&mut handle, &waker)
            }
            ready => ready,
        };
        assert!(matches!(value, Poll::Ready(Ok(7))));
        assert!(pool.serve(|| ()).is_ok());
    });
}

/// A thread awaits a task. Its next call comes as the worker calls that task's waker, or after that: the call is left to
/// that worker. Excludes: a call that the worker does not look for. Preemptions: 2.
#[test]
fn the_next_call_against_a_waker() {
    check_pool(2, warm(1, 0), |pool| {
        let (flag, waker) = Flag::new();
        let mut handle = pool.awaitable().serve(|| 7).unwrap();
        if poll(&mut handle, &waker).is_pending() {
            flag.wait();
            assert!(poll(&mut handle, &waker).is_ready());
        }
        assert_eq!(pool.do_with_deadline(|| 8, Duration::MAX).ok(), Some(8));
    });
}

// ---- discarded tasks are settled first, and dropped later ------------------------------------

/// A shutdown discards a task while its handle is dropped. Excludes: a task that both or neither
/// discard; a node freed twice, never, or while the other side uses it. Preemptions: 3.
#[test]
fn discard_against_drop() {
    check_pool(3, warm(1, 1), |pool| {
        let gate = hold(pool);
        let ran = Ran::new();
        let handle = pool.awaitable().serve(ran.task()).unwrap();
        let closer = shut_down_beside(pool, Shutdown::Discard, Duration::ZERO);
        drop(handle);
        closer.join().unwrap();
        assert_eq!((ran.times(), ran.alive()), (0, 0));
        assert_eq!(pool.stats().discarded, 1);
        gate.open();
    });
}

/// A capture whose drop waits until another thread has opened its gate.
struct WaitsInDrop(mpsc::Receiver<()>);

impl Drop for WaitsInDrop {
    fn drop(&mut self) {
        self.0.recv().unwrap();
    }
}

/// Cancels a group with two queued tasks. The drop of the first one's capture waits until another
/// thread has joined the second task's handle and waited for the group. Excludes: a second task that
/// is settled only after a capture was dropped: the capture and the thread would wait for each other
/// (laws 8 and 21). Preemptions: 3.
#[test]
fn settled_before_drops() {
    check_pool(3, warm(1, 2), move |pool| {
        let gate = hold(pool);
        let group = pool.group();
        let (say, seen) = mpsc::channel();
        let capture = WaitsInDrop(seen);
        let handle = quietly(|| {
            assert!(group.serve(move || drop(capture)).is_ok());
            group.awaitable().serve(|| ()).unwrap()
        });
        let canceller = beside(&group, |group| group.cancel());
        assert!(matches!(handle.join(), Err(TaskError::Cancelled)));
        group.wait();
        assert_eq!((group.pending(), group.discarded()), (0, 2));
        say.send(()).unwrap();
        canceller.join().unwrap();
        assert_eq!(pool.stats().discarded, 2);
        gate.open();
    });
}
