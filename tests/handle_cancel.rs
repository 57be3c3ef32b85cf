//! Law 21: a handle that is dropped, or told to cancel, cancels its task. A group's cancel does so
//! for its tasks. Law 17: which cancelled tasks count as expired.

mod common;

use std::sync::mpsc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use common::*;
use lazypool::{task, Handle, Shutdown, TaskError};

/// Returns a value that reports on which thread it is dropped.
fn drops_on() -> (impl Send + 'static, mpsc::Receiver<ThreadId>) {
    let (dropped, drops) = mpsc::channel();
    let tell = move || dropped.send(thread::current().id()).unwrap();
    (on_drop(tell), drops)
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

/// A running task whose handle is dropped or cancelled sees the cancel, is abandoned, and runs to its
/// end. The handle has its value; without a handle, the value is dropped on the worker.
#[test]
fn law21_a_running_task_whose_handle_is_dropped_or_cancelled_is_abandoned() {
    let joins = [Some(0), Some(1), Some(2)].map(|turn| (true, turn));
    let cases = [(false, None), (true, None)].into_iter().chain(joins);
    timed_each(cases, |(cancels, joins)| {
        let (pool, gate) = (pool(1, 0), Gate::new());
        let (value, drops) = drops_on();
        let (key, (started, starts)) = (gate.key(), mpsc::channel());
        let handle = must_await(pool.awaitable(), move || {
            started.send(thread::current().id()).unwrap();
            wait_until("the cancel", task::is_cancelled);
            key.pass();
            value
        });
        let worker = starts.recv().unwrap();
        assert_eq!(pool.stats().abandoned, 0);
        if cancels {
            handle.cancel();
        }
        assert!(!handle.is_finished());
        // Without a turn, this drops the handle.
        let joins = joins.map(|turn| (handle, turn));
        gate.wait_entered(1); // the task has seen the cancel
        assert_stats!(pool.stats(), abandoned: 1, running: 1);
        assert!(pool.workers()[0].abandoned);
        assert!(drops.try_recv().is_err());
        gate.open();
        let dropped_on = match joins {
            None => worker,
            Some((handle, turn)) => {
                drop(outcome_of(handle, turn).unwrap());
                assert_stats!(pool.stats(), abandoned: 0, completed: 1);
                thread::current().id()
            }
        };
        assert_eq!(drops.recv().unwrap(), dropped_on);
        assert_stats!(settle(&pool), abandoned: 0, completed: 1, discarded: 0, timed_out: 0);
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
/// whether its handle is dropped or cancelled, its group is cancelled, or a shutdown takes it out. A
/// run limit begins when the task starts, so it sets no deadline for a queued task.
#[test]
fn law10_law17_a_task_cancelled_after_its_deadline_counts_as_expired() {
    let options = ["deadline", "run limit", "long deadline", "no deadline"];
    let ways = ["handle's drop", "handle", "group", "shutdown"];
    timed_each(product(options, ways), |(option, way)| {
        let (pool, gate) = held(4);
        let on = match option {
            "deadline" => pool.with_deadline(ms(1)),
            "run limit" => pool.run_limit(ms(1)),
            "long deadline" => pool.with_deadline(LONG),
            _ => pool.with_deadline(Duration::MAX),
        };
        let expired = u64::from(option == "deadline");
        let group = on.group();
        let mut handle = Some(must_await(group.awaitable(), || ()));
        thread::sleep(ms(2));
        match way {
            "handle's drop" => drop(handle.take()),
            "handle" => handle.iter().for_each(Handle::cancel),
            "group" => group.cancel(),
            _ => {
                let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
                assert_eq!(report.discarded, 1 - expired);
            }
        }
        assert_stats!(pool.stats(), expired: expired, discarded: 1 - expired, queued: 0);
        assert_eq!(group.pending(), 0);
        match handle.map(Handle::join) {
            None => {}
            Some(Err(TaskError::Discarded)) => assert_eq!(way, "shutdown"),
            Some(Err(TaskError::Cancelled)) => assert_ne!(way, "shutdown"),
            Some(Err(TaskError::Expired)) => assert_eq!(expired, 1),
            other => panic!("{other:?}"),
        }
        gate.open();
        at_rest(&pool);
    });
}
