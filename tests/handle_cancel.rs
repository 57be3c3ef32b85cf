//! Law 21: a handle that is dropped, or told to cancel, cancels its task. A group's cancel does so
//! for its tasks. Law 17: which cancelled tasks count as expired.

mod common;

use std::sync::mpsc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use common::*;
use lazypool::{task, Handle, Pool, Shutdown, TaskError, WhenFull};

/// Returns a value that reports on which thread it is dropped.
fn drops_on() -> (impl Send + 'static, mpsc::Receiver<ThreadId>) {
    let (dropped, drops) = mpsc::channel();
    let tell = move || dropped.send(thread::current().id()).unwrap();
    (on_drop(tell), drops)
}

/// Serves a task that waits until it is cancelled, then at the gate, and returns `value`. Returns
/// its handle and its thread, once it runs.
fn cancellable<R: Send + 'static>(pool: &Pool, gate: &Gate, value: R) -> (Handle<R>, ThreadId) {
    let (key, (started, starts)) = (gate.key(), mpsc::channel());
    let handle = must_await(pool.awaitable(), move || {
        started.send(thread::current().id()).unwrap();
        wait_until("the cancel", task::is_cancelled);
        key.pass();
        value
    });
    (handle, starts.recv().unwrap())
}

#[test]
fn law21_a_queued_task_whose_handle_is_dropped_or_cancelled_never_runs() {
    timed_each([true, false], |drops| {
        let ledger = Ledger::new(3);
        let (pool, gate) = held(3);
        // Takes a task out of the middle of the queue.
        let queue = |id| must_await(pool.awaitable(), ledger.task(id));
        let [first, handle, last] = [0, 1, 2].map(queue);
        assert_eq!(pool.stats().queued, 3);
        if drops {
            drop(handle);
        } else {
            handle.cancel();
            assert!(handle.is_finished());
            handle.cancel();
            assert!(matches!(handle.join(), Err(TaskError::Cancelled)));
        }
        assert_eq!(ledger.fate(1), (0, 1), "on this thread");
        assert_stats!(pool.stats(), queued: 2, discarded: 1, expired: 0);
        gate.open();
        first.join().unwrap();
        last.join().unwrap();
        assert_eq!([0, 1, 2].map(|id| ledger.runs(id)), [1, 0, 1]);
        assert_stats!(at_rest(&pool), accepted: 4, completed: 3, discarded: 1);
    });
}

/// The room that a cancelled task leaves goes to a submitter that waits for it.
#[test]
fn law21_a_cancelled_task_makes_room() {
    timed(|| {
        let (pool, gate) = held(1);
        let handle = must_await(pool.awaitable(), || ());
        let blocked = beside(&pool, |pool| {
            let on = pool.when_full(WhenFull::Block).awaitable();
            must_await(on, || 5).join()
        });
        wait_in_line(&pool, 1);
        drop(handle);
        wait_in_line(&pool, 0);
        await_queued(&pool, 1);
        gate.open();
        assert_eq!(blocked.join().unwrap().unwrap(), 5);
    });
}

/// A running task whose handle is dropped is abandoned, and its value is dropped on the worker,
/// also if the handle was cancelled before.
#[test]
fn law21_a_running_task_whose_handle_is_dropped_is_abandoned() {
    timed_each([false, true], |cancels| {
        let (pool, gate) = (pool(1, 0), Gate::new());
        let (value, drops) = drops_on();
        let (handle, worker) = cancellable(&pool, &gate, value);
        assert_eq!(pool.stats().abandoned, 0);
        if cancels {
            handle.cancel();
        }
        drop(handle);
        gate.wait_entered(1); // the task has seen the cancel
        assert_stats!(pool.stats(), abandoned: 1, running: 1);
        assert!(pool.workers()[0].abandoned);
        assert!(drops.try_recv().is_err());
        gate.open();
        assert_eq!(drops.recv().unwrap(), worker);
        assert_stats!(settle(&pool), abandoned: 0, completed: 1, discarded: 0, timed_out: 0);
    });
}

/// A cancel alone keeps the handle: a task that has started runs to its end, and the handle returns
/// its value.
#[test]
fn law21_a_running_task_that_is_cancelled_is_abandoned_and_its_handle_has_its_value() {
    timed_each(0..3, |turn| {
        let (pool, gate) = (pool(1, 0), Gate::new());
        let (handle, _) = cancellable(&pool, &gate, 11);
        handle.cancel();
        gate.wait_entered(1);
        assert_eq!((pool.stats().abandoned, handle.is_finished()), (1, false));
        gate.open();
        assert_eq!(outcome_of(handle, turn).unwrap(), 11);
        assert_stats!(pool.stats(), abandoned: 0, completed: 1);
    });
}

/// Law 10: a drop of the pool does not wait for the cancelled task, even if the drop began before
/// the cancel.
#[test]
fn law21_a_drop_of_the_pool_does_not_wait_for_a_task_whose_handle_is_gone() {
    timed_each([true, false], |before| {
        let (gate, pool) = (Gate::new(), pool(1, 0));
        let handle = await_then(pool.awaitable(), &gate, || ());
        if before {
            drop(handle);
            drop(pool);
        } else {
            let ended = drop_aside(pool);
            assert!(ended.recv_timeout(ms(50)).is_err(), "the handle waits");
            handle.cancel();
            arrives("the end of the drop", &ended);
            gate.open();
            handle.join().unwrap();
        }
    });
}

#[test]
fn law21_detach_lets_the_task_run() {
    timed(|| {
        let (pool, gate) = held(2);
        let (value, drops) = drops_on();
        let (told, tells) = mpsc::channel();
        let queued = must_await(pool.awaitable(), move || {
            told.send(task::is_cancelled()).unwrap();
            value
        });
        queued.detach();
        assert_eq!(pool.stats().queued, 1);
        gate.open();
        assert!(!tells.recv().unwrap());
        assert_ne!(drops.recv().unwrap(), thread::current().id());

        let gate = Gate::new();
        settle(&pool);
        await_then(pool.awaitable(), &gate, || ()).detach();
        assert_stats!(pool.stats(), abandoned: 0, running: 1);
        gate.open();
        assert_stats!(settle(&pool), completed: 3, discarded: 0);
        let ended = must_await(pool.awaitable(), || 5);
        wait_until("the handle to be released", || ended.is_finished());
        ended.detach();
    });
}

#[test]
fn law21_a_group_counts_its_awaited_tasks() {
    timed(|| {
        let (pool, gate) = held(16);
        let group = pool.group();
        let good = must_await(group.awaitable(), || 1);
        let bad = must_await(group.awaitable(), || quiet_panic("bad"));
        let dropped = must_await(group.awaitable(), || 2);
        must_await(group.awaitable(), || 3).detach();
        assert_eq!(group.pending(), 4);
        assert!(group.wait_timeout(ms(5)).is_err());
        drop(dropped);
        assert_eq!((group.pending(), group.discarded()), (3, 1));
        gate.open();
        group.wait();
        assert_eq!((group.completed(), group.panicked()), (2, 1));
        assert_eq!(good.join().unwrap(), 1);
        assert!(bad.join().is_err());
        // A handle has its outcome before its group's wait ends.
        for n in 0..rounds(300) {
            let handles = [(); 16].map(|()| must_await(group.awaitable(), move || n));
            group.wait();
            assert!(handles.iter().all(Handle::is_finished), "round {n}");
        }
        let gate = Gate::new();
        let running = await_then(group.awaitable(), &gate, task::is_cancelled);
        let queued = must_await(group.awaitable(), || 4);
        group.cancel();
        assert!(matches!(queued.join(), Err(TaskError::Cancelled)));
        gate.open();
        assert!(running.join().unwrap(), "the task saw the cancel");
        assert_eq!(reason(group.awaitable().serve(|| ())), "cancelled");
    });
}

/// A task that its group's cancel takes out frees its place. Another task may be in that place when
/// the handle is dropped, which must not cancel it.
#[test]
fn law21_a_cancel_takes_no_other_task() {
    timed_each(0..rounds(20), |_| {
        let (pool, gate) = held(1);
        let (group, slow) = (pool.group(), Gate::new());
        let taken = must_await(group.awaitable(), dropping(slow.task()));
        let canceller = thread::spawn(move || group.cancel());
        slow.wait_entered(1);
        let other = must_await(pool.awaitable(), || 5);
        assert!(taken.is_finished());
        drop(taken);
        slow.open();
        canceller.join().unwrap();
        gate.open();
        assert_eq!(other.join().unwrap(), 5);
    });
}

/// A queued task that is cancelled after its deadline has passed counts as expired, not discarded,
/// whether its handle is dropped or cancelled, or its group is cancelled. A run limit begins when
/// the task starts, so it sets no deadline for a queued task.
#[test]
fn law17_a_task_cancelled_after_its_deadline_counts_as_expired() {
    let options = ["deadline", "run limit", "long deadline", "no deadline"];
    let ways = ["handle's drop", "handle", "group"];
    timed_each(product(options, ways), |(option, way)| {
        let (pool, gate) = held(4);
        let (on, expired, discarded) = match option {
            "deadline" => (pool.with_deadline(ms(1)), 1, 0),
            "run limit" => (pool.run_limit(ms(1)), 0, 1),
            "long deadline" => (pool.with_deadline(LONG), 0, 1),
            _ => (pool.with_deadline(Duration::MAX), 0, 1),
        };
        let group = on.group();
        let mut handle = Some(must_await(group.awaitable(), || ()));
        thread::sleep(ms(2));
        match way {
            "handle's drop" => drop(handle.take()),
            "handle" => handle.iter().for_each(Handle::cancel),
            _ => group.cancel(),
        }
        assert_stats!(pool.stats(), expired: expired, discarded: discarded, queued: 0);
        assert_eq!(group.pending(), 0);
        match handle.map(Handle::join) {
            None | Some(Err(TaskError::Cancelled)) => {}
            Some(Err(TaskError::Expired)) => assert_eq!(expired, 1),
            other => panic!("{other:?}"),
        }
        gate.open();
        at_rest(&pool);
    });
}

/// A queued task that a shutdown discards counts as discarded, even if its deadline has passed.
#[test]
fn law10_a_late_task_that_a_shutdown_discards_counts_as_discarded() {
    timed(|| {
        let (pool, gate) = held(4);
        must_await(pool.with_deadline(ms(1)).awaitable(), || ()).detach();
        thread::sleep(ms(2));
        let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
        assert_eq!(report.discarded, 1);
        assert_stats!(pool.stats(), discarded: 1, expired: 0);
        gate.open();
    });
}
