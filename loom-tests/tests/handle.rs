//! Handles (`src/handle.rs`, `src/parts/completion/shared.rs`): the two sides of a node on the heap, first
//! alone, then with a pool. That a touch of it after it was freed is one, loom sees. Law 21.
#![cfg(lazypool_loom)]

use lazypool::model::{deadline, join_until, promise, Decision};
use lazypool::{Handle, Pool, Shutdown, TaskError};
use loom::sync::mpsc;
use loom::thread;
use loom_tests::{beside, check, end, pool, quietly, warm_pool, Flag, Ran};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A handle goes while its task ends. Excludes: a value dropped twice or never; a node freed twice, never,
/// or before the other side's last touch. All interleavings.
#[test]
fn end_against_drop() {
    check(None, || {
        let values = Ran::new();
        let (task, handle) = promise();
        let value = values.task();
        let worker = thread::spawn(move || task.end(value));
        drop(handle);
        worker.join().unwrap();
        assert_eq!(values.alive(), 0);
    });
}

/// The same after a poll. Excludes also: a waker that is kept, or called twice. All interleavings.
#[test]
fn end_against_poll_and_drop() {
    check(None, || {
        let values = Ran::new();
        let (task, mut handle) = promise();
        let value = values.task();
        let worker = thread::spawn(move || task.end(value));
        let (flag, waker) = Flag::new();
        drop(handle.poll(&waker));
        drop(handle);
        worker.join().unwrap();
        assert_eq!(values.alive(), 0);
        assert_eq!(Arc::strong_count(&flag), 2, "none is kept");
        assert!(flag.times() <= 1);
    });
}

/// A poll, then one with another waker, while the task ends. Excludes: a lost wake-up; a wake-up of the
/// first waker once the second poll has returned `Pending` before the end; a waker that the worker and
/// the handle both own. All interleavings.
#[test]
fn end_against_a_change_of_waker() {
    check(None, || {
        let (task, mut handle) = promise();
        let worker = thread::spawn(move || task.end(7));
        let (first, w1) = Flag::new();
        let (second, w2) = Flag::new();
        let mut value = handle.poll(&w1);
        if value.is_none() {
            value = handle.poll(&w2);
        }
        if value.is_none() {
            second.wait();
            assert_eq!(first.times(), 0, "only the last is woken");
            value = handle.poll(&w2);
        }
        assert_eq!(value, Some(7));
        drop(handle);
        worker.join().unwrap();
        assert!(first.times() + second.times() <= 1);
        assert_eq!(
            (Arc::strong_count(&first), Arc::strong_count(&second)),
            (2, 2)
        );
    });
}

/// The same waker polls again, which changes nothing. All interleavings.
#[test]
fn end_against_a_second_poll() {
    check(None, || {
        let (task, mut handle) = promise();
        let worker = thread::spawn(move || task.end(7));
        let (flag, waker) = Flag::new();
        let mut value = handle.poll(&waker).or_else(|| handle.poll(&waker));
        if value.is_none() {
            flag.wait();
            value = handle.poll(&waker);
        }
        assert_eq!(value, Some(7));
        worker.join().unwrap();
    });
}

/// A thread joins until a deadline that passes at any moment, then as long as it takes. Excludes: a
/// lost wake-up; a thread woken that waits no more, in place of the one that does; an outcome lost at the
/// limit. Preemptions: 3.
#[test]
fn end_against_join_at_its_limit() {
    check(Some(3), || {
        let (deadline, alarm) = deadline();
        let clock = thread::spawn(move || alarm.go_off());
        let (task, mut handle) = promise();
        let worker = thread::spawn(move || task.end(7));
        let value = match handle.wait_until(&deadline) {
            Some(value) => value,
            None => handle.wait(),
        };
        assert_eq!(value, 7);
        worker.join().unwrap();
        clock.join().unwrap();
    });
}

/// The same, and then as a future. Preemptions: 3.
#[test]
fn end_against_join_and_then_poll() {
    check(Some(3), || {
        let (deadline, alarm) = deadline();
        let clock = thread::spawn(move || alarm.go_off());
        let (task, mut handle) = promise();
        let worker = thread::spawn(move || task.end(7));
        let (flag, waker) = Flag::new();
        let value = handle.wait_until(&deadline).unwrap_or_else(|| {
            handle.poll(&waker).unwrap_or_else(|| {
                flag.wait();
                handle.poll(&waker).expect("it was woken")
            })
        });
        assert_eq!(value, 7);
        worker.join().unwrap();
        clock.join().unwrap();
    });
}

/// A handle cancels its task as a worker starts it. Excludes: a cancel that neither tells the worker nor
/// is found by it. All interleavings.
#[test]
fn cancel_against_start() {
    check(None, || {
        let decision = Arc::new(Decision::new());
        let (mut task, handle) = promise();
        let worker = beside(&decision, move |decision| {
            task.start(decision);
            task
        });
        handle.cancel(&decision);
        let task = worker.join().unwrap();
        assert!(decision.is_abandoned());
        task.end(());
    });
}

/// A poll, then a join: the task's end may just take the waker of the first, and wakes nobody else.
#[test]
fn a_poll_and_then_a_join() {
    check(Some(3), || {
        let (task, mut handle) = promise();
        let worker = thread::spawn(move || task.end(7));
        let (_flag, waker) = Flag::new();
        let value = handle.poll(&waker).unwrap_or_else(|| handle.wait());
        assert_eq!(value, 7);
        worker.join().unwrap();
    });
}

// ---- with a pool ---------------------------------------------------------------------------

/// A task that counts its runs, and a value that counts its drops.
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

/// A handle that is dropped while its task is handed over, starts and ends.
fn drops(pool: &Pool) {
    let (ran, values) = (Ran::new(), Ran::new());
    drop(serve(pool, &ran, &values));
    assert_all_gone(pool, &ran, &values);
}

/// Excludes: a task that ran and counts as discarded, or the reverse; a value dropped twice or never.
/// Preemptions: 3.
#[test]
fn drop_in_the_mailbox() {
    check(Some(3), || drops(&warm_pool(0)));
}

/// The same with a worker that is just being started. Preemptions: 2.
#[test]
fn drop_in_the_hands_of_a_new_worker() {
    check(Some(2), || drops(&pool(1, 0)));
}

/// The same by way of the queue. Preemptions: 2.
#[test]
fn drop_in_the_queue() {
    check(Some(2), || {
        let pool = warm_pool(1);
        assert!(pool.serve(|| ()).is_ok());
        drops(&pool);
    });
}

/// A handle that cancels its task and waits. Excludes: `Cancelled` of one that runs; a wait without end;
/// a pool of one that refuses once the handle is ready.
fn cancels(pool: &Pool) {
    let (ran, values) = (Ran::new(), Ran::new());
    let handle = serve(pool, &ran, &values);
    handle.cancel();
    match handle.join() {
        Ok(value) => {
            assert_eq!((ran.times(), ran.alive(), values.alive()), (1, 0, 1));
            drop(value);
        }
        Err(TaskError::Cancelled) => {
            assert_eq!((ran.times(), ran.alive(), values.alive()), (0, 0, 0));
        }
        Err(other) => panic!("{other}"),
    }
    assert!(pool.serve(|| ()).is_ok());
    assert_all_gone(pool, &ran, &values);
}

/// Preemptions: 3.
#[test]
fn cancel_in_the_mailbox() {
    check(Some(3), || cancels(&warm_pool(0)));
}

/// Preemptions: 2.
#[test]
fn cancel_in_the_queue() {
    check(Some(2), || {
        let pool = warm_pool(1);
        assert!(pool.serve(|| ()).is_ok());
        cancels(&pool);
    });
}

/// A handle is detached while its task starts and ends: it runs. Preemptions: 3.
#[test]
fn detach_against_the_end() {
    check(Some(3), || {
        let pool = warm_pool(0);
        let (ran, values) = (Ran::new(), Ran::new());
        serve(&pool, &ran, &values).detach();
        assert_all_gone(&pool, &ran, &values);
        assert_eq!(ran.times(), 1);
    });
}

/// A join until a deadline that passes at any moment, then a drop. Preemptions: 2.
#[test]
fn join_at_its_limit_and_drop() {
    check(Some(2), || {
        let pool = warm_pool(0);
        let (deadline, alarm) = deadline();
        let clock = thread::spawn(move || alarm.go_off());
        let (ran, values) = (Ran::new(), Ran::new());
        let handle = serve(&pool, &ran, &values);
        drop(join_until(handle, &deadline));
        clock.join().unwrap();
        assert_all_gone(&pool, &ran, &values);
    });
}

/// A future: it is woken once the value is there, and the worker free. Preemptions: 2.
#[test]
fn awaited() {
    check(Some(2), || {
        let pool = warm_pool(0);
        let (flag, waker) = Flag::new();
        let mut handle = pool.awaitable().serve(|| 7).unwrap();
        let mut poll = || Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
        let mut value = poll();
        if value.is_pending() {
            flag.wait();
            value = poll();
        }
        assert!(matches!(value, Poll::Ready(Ok(7))));
        assert!(pool.serve(|| ()).is_ok());
        end(&pool);
    });
}

/// A group is cancelled while a handle of a queued task of it is dropped: one of the two discards it.
/// Preemptions: 2.
#[test]
fn group_cancel_against_drop() {
    check(Some(2), || {
        let pool = warm_pool(1);
        let (open, gate) = mpsc::channel::<()>();
        quietly(|| assert!(pool.serve(move || gate.recv().unwrap()).is_ok()));
        let (group, ran) = (pool.group(), Ran::new());
        let handle = group.awaitable().serve(ran.task());
        let handle = handle.map_err(|refused| refused.without_closure()).unwrap();
        let canceller = beside(&group, |group| group.cancel());
        drop(handle);
        canceller.join().unwrap();
        assert_eq!((ran.times(), ran.alive()), (0, 0));
        assert_eq!((group.pending(), group.discarded()), (0, 1));
        open.send(()).unwrap();
        end(&pool);
        assert_eq!(pool.stats().discarded, 1);
    });
}

// ---- discarded tasks are settled first, and dropped later ------------------------------------

/// A pool of one whose worker runs a task until the gate is opened, with room in its queue.
fn occupied(queue_capacity: usize) -> (Arc<Pool>, mpsc::Sender<()>) {
    let pool = warm_pool(queue_capacity);
    let (open, gate) = mpsc::channel();
    quietly(|| assert!(pool.serve(move || gate.recv().unwrap()).is_ok()));
    (Arc::new(pool), open)
}

/// A shutdown discards a task while its handle is dropped. Excludes: a task that both discard, or neither; a
/// node freed twice, never, or while the other side is at it. Preemptions: 3.
#[test]
fn discard_against_drop() {
    check(Some(3), || {
        let (pool, open) = occupied(1);
        let ran = Ran::new();
        let handle = pool.awaitable().serve(ran.task()).unwrap();
        let closer = beside(&pool, |pool| {
            drop(pool.shutdown(Shutdown::Discard, Duration::ZERO));
        });
        drop(handle);
        closer.join().unwrap();
        assert_eq!((ran.times(), ran.alive()), (0, 0));
        assert_eq!(pool.stats().discarded, 1);
        open.send(()).unwrap();
        end(&pool);
    });
}

/// A capture whose drop waits until another thread has said so.
struct WaitsInDrop(mpsc::Receiver<()>);

impl Drop for WaitsInDrop {
    fn drop(&mut self) {
        self.0.recv().unwrap();
    }
}

/// A cancelled group has two queued tasks. The first one's capture waits, in its drop, for what another
/// thread sees of the second. Excludes: a task that is settled after a capture was dropped, whose waiter and
/// that capture wait for each other (laws 8 and 21). `see`: given the second one's handle.
fn settled_before_drops(see: impl Fn(Handle<()>, &lazypool::Group) + Send + Sync + Copy + 'static) {
    check(Some(3), move || {
        let (pool, open) = occupied(2);
        let group = pool.group();
        let (say, seen) = mpsc::channel();
        let capture = WaitsInDrop(seen);
        let handle = quietly(|| {
            assert!(group.serve(move || drop(capture)).is_ok());
            group.awaitable().serve(|| ()).unwrap()
        });
        let canceller = beside(&group, |group| group.cancel());
        see(handle, &group);
        say.send(()).unwrap();
        canceller.join().unwrap();
        assert_eq!(pool.stats().discarded, 2);
        open.send(()).unwrap();
        end(&pool);
    });
}

/// By a join. Preemptions: 3.
#[test]
fn settled_before_drops_for_a_join() {
    settled_before_drops(|handle, _| {
        assert!(matches!(handle.join(), Err(TaskError::Cancelled)));
    });
}

/// By polls. Preemptions: 3.
#[test]
fn settled_before_drops_for_a_poll() {
    settled_before_drops(|mut handle, _| {
        let (flag, waker) = Flag::new();
        let mut poll = || Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
        let mut outcome = poll();
        if outcome.is_pending() {
            flag.wait();
            outcome = poll();
        }
        assert!(matches!(outcome, Poll::Ready(Err(TaskError::Cancelled))));
    });
}

/// By a group's wait. Preemptions: 3.
#[test]
fn settled_before_drops_for_a_groups_wait() {
    settled_before_drops(|handle, group| {
        group.wait();
        assert_eq!((group.pending(), group.discarded()), (0, 2));
        assert!(handle.join().is_err());
    });
}

// ---- wakers after the release ----------------------------------------------------------------

/// Submits a task.
struct Submits {
    pool: Arc<Pool>,
    ran: Ran,
    flag: Arc<Flag>,
}

impl Wake for Submits {
    fn wake(self: Arc<Self>) {
        let served = self.pool.serve(self.ran.task());
        assert!(served.is_ok(), "its worker is free");
        Arc::clone(&self.flag).wake();
    }
}

/// A waker submits to the pool of one that calls it. Excludes: a worker that calls it before it is
/// free, or that waits for itself; a submission that is lost. Preemptions: 3.
#[test]
fn a_waker_that_submits() {
    check(Some(3), || {
        let pool = Arc::new(warm_pool(0));
        let (ran, (flag, _)) = (Ran::new(), Flag::new());
        let waker = Waker::from(Arc::new(Submits {
            pool: Arc::clone(&pool),
            ran: ran.clone(),
            flag: Arc::clone(&flag),
        }));
        let mut handle = pool.awaitable().serve(|| 7).unwrap();
        let mut poll = || Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
        let mut value = poll();
        let is_woken = value.is_pending();
        if is_woken {
            flag.wait();
            value = poll();
        }
        assert!(matches!(value, Poll::Ready(Ok(7))));
        end(&pool);
        assert_eq!((ran.times(), ran.alive()), (usize::from(is_woken), 0));
    });
}
