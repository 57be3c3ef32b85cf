//! Law 21: on which thread the wakers of handles are called, and which of them. A waker that panics
//! or submits harms neither worker nor pool.

mod common;

use std::mem::ManuallyDrop;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{mpsc, Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{task, DeadlineError, Handle, Pool, Shutdown};

#[test]
fn law21_no_waker_is_kept_once_the_handle_is_gone() {
    timed_each(0..4, |way| {
        let (pool, gate) = held(1);
        let (count, waker) = counted();
        let handle = pending(must_await(pool.awaitable(), || 3), &waker);
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
                assert_eq!(count.woken(), 1, "the task has an outcome");
                drop(handle);
            }
        }
        assert_eq!(Arc::strong_count(&count), 2, "{way}");
        gate.open();
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        assert_eq!(count.woken(), usize::from(way == 3), "{way}");
    });
}

/// A panic of a waker reaches the thread that polls, or is caught.
#[test]
fn wakers_that_panic_end_neither_worker_nor_pool() {
    timed_each([Bad::CLONE, Bad::WAKE, Bad::DROP], |what| {
        let (pool, gate) = held(2);
        let bad = ManuallyDrop::new(Bad::waker(what));
        let (count, good) = counted();
        let mut handle = pending(must_await(pool.awaitable(), || 3), &good);
        let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut handle, &bad)));
        assert_eq!(polled.is_err(), what == Bad::CLONE);
        assert_eq!(Arc::strong_count(&count), 2, "the waker before is not kept");
        if what == Bad::DROP {
            let changed = catch_unwind(AssertUnwindSafe(|| poll(&mut handle, &good)));
            assert!(changed.is_err(), "the bad waker panics as it is dropped");
        }
        let next = must_await(pool.awaitable(), || 4);
        gate.open();
        assert_eq!(next.join().unwrap(), 4);
        // By now the worker has called the waker that panics when it is woken.
        assert_eq!(handle.join().unwrap(), 3);
        assert_stats!(pool.stats(), completed: 3, panicked: 0, workers: 1);
        assert_eq!(count.woken(), usize::from(what == Bad::DROP));
    });
}

/// A waker is called on the worker, or on the thread that discards the task.
#[test]
fn law21_a_waker_is_called_on_the_worker_or_on_the_thread_that_discards() {
    timed_each(0..4, |way| {
        let (pool, gate) = held(1);
        let group = pool.group();
        let (told, tells) = mpsc::channel();
        let mut handle = must_await(group.awaitable(), || thread::current().id());
        let waker = calling(move || told.send(thread::current().id()).unwrap_or(()));
        assert!(poll(&mut handle, &waker).is_pending());
        match way {
            0 => gate.open(),
            1 => handle.cancel(),
            2 => group.cancel(),
            _ => drop(pool.shutdown(Shutdown::Discard, Duration::ZERO)),
        }
        let on = tells.recv_timeout(LIMIT).expect("the waker is called");
        match poll(&mut handle, &waker) {
            Poll::Ready(Ok(worker)) => assert_eq!((way, on), (0, worker)),
            Poll::Ready(Err(_)) => assert!(way > 0 && on == thread::current().id()),
            Poll::Pending => panic!("{way}: woken in vain"),
        }
        gate.open();
    });
}

/// The wakers of tasks that are discarded together are called once all these tasks are settled, and
/// before any capture of these tasks is dropped.
#[test]
fn law10_wakers_of_discarded_tasks_are_called_once_all_are_settled() {
    timed_each([false, true], |by_shutdown| {
        let (pool, gate) = held(4);
        let group = pool.group();
        let (told, tells) = mpsc::channel();
        let handles = [0, 1, 2].map(|n| {
            let drops = told.clone();
            let capture = on_drop(move || drops.send((n, 0, 0)).unwrap());
            let mut handle = must_await(group.awaitable(), move || drop(capture));
            let (its, told) = (Arc::clone(&pool), told.clone());
            let looks = calling(move || {
                let stats = its.stats();
                told.send((9, stats.discarded, stats.queued)).unwrap();
            });
            assert!(poll(&mut handle, &looks).is_pending());
            handle
        });
        discard_queued(by_shutdown, &pool, &group);
        let events: Vec<_> = tells.try_iter().collect();
        assert_eq!(events[..3], [(9, 3, 0); 3], "wakers, with all settled");
        let oldest_first = [(0, 0, 0), (1, 0, 0), (2, 0, 0)];
        assert_eq!(events[3..], oldest_first, "drops");
        assert!(handles.iter().all(Handle::is_finished));
        gate.open();
    });
}

/// A waker may submit tasks. If the pool is full, its submission is refused, as that of any other
/// thread is.
#[test]
fn law21_a_waker_that_serves_into_a_full_pool_is_refused() {
    timed_each([(1, 0), (1, 64), (2, 0), (2, 2)], |(workers, queue)| {
        let pool = Arc::new(pool(workers, queue));
        let (gate, its) = (Gate::new(), Arc::clone(&pool));
        let (told, tells) = mpsc::channel();
        let serves = calling(move || {
            let accepted = (0..).take_while(|_| its.serve(|| ()).is_ok()).count();
            told.send(accepted).unwrap();
        });
        let mut handle = must_await(pool.awaitable(), gate.task());
        gate.wait_entered(1);
        assert!(poll(&mut handle, &serves).is_pending());
        gate.open();
        let accepted = tells.recv_timeout(LIMIT).expect("the waker does not block");
        assert!(accepted >= queue, "{accepted} of {queue}");
        handle.join().unwrap();
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        assert_eq!(pool.stats().completed, accepted as u64 + 1);
    });
}

/// Returns a pool with one worker, which is idle and calls the waker of a handle. The waker waits
/// at the gate.
fn calls_a_waker(max: usize, queue: usize, slow: &Gate) -> (Arc<Pool>, Handle<()>) {
    let (pool, start, key) = (Arc::new(pool(max, queue)), Gate::new(), slow.key());
    let handle = await_then(pool.awaitable(), &start, || ());
    let handle = pending(handle, &calling(move || key.pass()));
    start.open();
    slow.wait_entered(1);
    assert_stats!(pool.stats(), completed: 1, running: 0);
    (pool, handle)
}

/// Laws 20 and 21: while a waker runs, however long, all tasks run but one that was handed to its
/// worker. Formerly, the worker could be told to look at the queue, and all later submissions
/// relied on it.
#[test]
fn law20_law21_a_waker_that_does_not_return_holds_up_no_other_task() {
    let cases = [(2, 1, 2), (2, 64, 2), (8, 64, 40), (8, 64, 71)];
    timed_each(cases, |(max, queue, tasks)| {
        let slow = Gate::new();
        let (pool, _handle) = calls_a_waker(max, queue, &slow);
        let _open = slow.opener();
        let ran = Tally::default();
        let task = ran.clone();
        let submits = beside(&pool, move |pool| {
            (0..tasks).for_each(|_| must_serve(pool, task.task()));
        });
        wait_until("the tasks to run", || ran.get() >= tasks - 1);
        submits.join().unwrap();
        assert!(!slow.is_open());
    });
}

/// Law 5: a sequential submitter uses one worker. Its next task comes as that worker still calls the waker of the
/// last one, and waits for the waker. No thread is started for it.
#[test]
fn law05_a_task_that_comes_while_its_worker_calls_a_waker_needs_no_other_worker() {
    timed_each([0, 8], |queue| {
        let slow = Gate::new();
        let (pool, _handle) = calls_a_waker(3, queue, &slow);
        let _open = slow.opener();
        let (tell, told) = mpsc::channel();
        must_serve(&pool, move || tell.send(task::slot()).unwrap());
        assert_stats!(pool.stats(), spawned: 1, queued: 0, running: 1);
        slow.open();
        assert_eq!(arrives("the task", &told), Some(0));
        assert_stats!(at_rest(&pool), spawned: 1, completed: 2);
    });
}

/// A worker that is about to call a waker passes a freed permit first, and gives the task to another worker.
#[test]
fn law20_law21_a_worker_passes_no_task_to_itself_before_it_calls_a_waker() {
    timed_each([0, 4], |queue| {
        let (slow, start) = (Gate::new(), Gate::new());
        let pool = Arc::new(pool_with(2, queue, |b| b.min_workers(2)));
        let _open = slow.opener();
        wait_until("both workers", || pool.stats().idle == 2);
        // After these two calls the ready ring has the last worker of this thread first. It stays there as
        // this thread gives that worker the next task.
        pool.do_with_deadline(|| (), LIMIT).unwrap();
        let other = beside(&pool, |pool| pool.do_with_deadline(|| (), LIMIT).unwrap());
        other.join().unwrap();
        wait_until("both workers", || pool.stats().idle == 2);
        let (group, key) = (pool.limited_group(1), slow.key());
        let handle = await_then(group.awaitable(), &start, || ());
        let _handle = pending(handle, &calling(move || key.pass()));
        let ran = Tally::default();
        let in_line = Box::pin(group.awaitable().serve_async(ran.task()));
        let _in_line = pending(in_line, Waker::noop());
        start.open();
        slow.wait_entered(1);
        wait_until("the task in line", || ran.get() == 1);
        assert!(!slow.is_open());
    });
}

/// The same after a call was handed to the worker, and its caller has left at its deadline.
#[test]
fn law03_law21_a_call_that_leaves_a_worker_which_calls_a_waker() {
    timed_each([2, 8], |max| {
        let slow = Gate::new();
        let (pool, _handle) = calls_a_waker(max, 8, &slow);
        let _open = slow.opener();
        // This thread's last worker is the one that calls the waker.
        match pool.do_with_deadline(|| (), ms(50)) {
            Ok(()) | Err(DeadlineError::Expired(_)) => {}
            other => unexpected("a value or an expiry", other),
        }
        let ran = Tally::default();
        (0..8).for_each(|_| must_serve(&pool, ran.task()));
        wait_until("the tasks to run", || ran.get() >= 7);
        assert!(!slow.is_open());
    });
}

/// Law 14: a call on a worker goes to an idle or a new worker, and not to the caller's last worker while
/// that one calls a waker. The waker may wait for the call.
#[test]
fn law14_a_worker_gives_no_call_to_a_worker_that_calls_a_waker() {
    timed_each([0, 8], |queue| {
        let slow = Gate::new();
        let (pool, handle) = calls_a_waker(3, queue, &slow);
        let opener = slow.opener();
        // Another thread, because the last worker of this one calls the waker.
        let its = Arc::clone(&pool);
        let call = beside(&pool, move |pool| {
            let task = move || {
                // Now it is the last worker of the thread that runs this task, too.
                handle.join().expect("it has ended");
                its.do_with_deadline(|| 7, LIMIT).map_err(|e| e.to_string())
            };
            pool.do_with_deadline(task, LIMIT)
                .map_err(|e| e.to_string())
        });
        assert_eq!(call.join().expect("no panic"), Ok(Ok(7)));
        assert!(!slow.is_open());
        drop(opener);
    });
}

/// Law 1: a worker that calls a waker has no task. So the pool accepts as many tasks as if it were
/// at rest, and then refuses at once.
#[test]
fn law01_a_worker_that_calls_a_waker_causes_no_refusal() {
    let cases = [(1, 0), (1, 1), (2, 0), (2, 3), (8, 64)];
    timed_each(cases, |(max, queue)| {
        let (slow, gate) = (Gate::new(), Arc::new(Gate::new()));
        let (pool, _handle) = calls_a_waker(max, queue, &slow);
        let _open = (slow.opener(), gate.opener());
        let (its, held) = (Arc::clone(&pool), Arc::clone(&gate));
        returns("the last refusal", move || {
            burst(&its, &held);
            saturated(its.serve(|| ()));
        });
        assert!(!slow.is_open());
    });
}

/// Law 10: handles, each owned by the waker of the one before, are dropped with the first of them. The stack
/// does not grow with their number.
#[test]
fn law10_handles_whose_wakers_own_one_another() {
    const CHAIN: usize = cut(100_000) as usize;
    isolated(|| {
        let (pool, gate) = held(CHAIN);
        let mut first = None::<Handle<()>>;
        for _ in 0..CHAIN {
            let next = Mutex::new(first.take());
            let waker = calling(move || _ = next.is_poisoned());
            first = Some(pending(must_await(pool.awaitable(), || ()), &waker));
        }
        assert_eq!(pool.stats().queued, CHAIN);
        drop(first);
        assert_eq!(pool.stats().discarded, CHAIN as u64);
        gate.open();
        assert_stats!(settle(&pool), completed: 1, discarded: CHAIN as u64);
    });
}

/// Law 22: a thread that waits for a handle takes the waker of an earlier poll back. A panic of that waker's drop
/// loses neither the handle nor the task.
#[test]
fn law22_a_waker_whose_drop_panics_loses_no_handle() {
    timed(|| {
        let (pool, gate) = held(1);
        let bad = ManuallyDrop::new(Bad::waker(Bad::DROP));
        let handle = pending(must_await(pool.awaitable(), || 3), &bad);
        let handle = handle.join_timeout(ms(1)).unwrap_err();
        gate.open();
        assert_eq!(handle.join().unwrap(), 3);
        assert_stats!(settle(&pool), completed: 2, discarded: 0);
    });
}

/// Law 21: the value of a task whose unfinished handle is dropped is dropped on the worker, although the drop of the
/// handle's waker takes longer than the task.
#[test]
fn law21_the_value_of_a_dropped_handle_is_dropped_on_the_worker() {
    timed(|| {
        let (pool, gate) = (Arc::new(pool(1, 0)), Arc::new(Gate::new()));
        let (tell, told) = mpsc::channel();
        let (key, on) = (gate.key(), move || tell.send(task::slot()).unwrap());
        let handle = must_await(pool.awaitable(), move || {
            key.pass();
            on_drop(on)
        });
        gate.wait_entered(1);
        let (its, own) = (Arc::clone(&pool), Arc::clone(&gate));
        let until_ended = on_drop(move || {
            own.open();
            wait_until("the task's end", || its.stats().completed == 1);
        });
        let waker = calling(move || _ = &until_ended);
        let handle = pending(handle, &waker);
        drop(waker);
        drop(handle);
        assert_eq!(arrives("the drop", &told), Some(0));
    });
}
