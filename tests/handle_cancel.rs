//! Law 21: a handle that is dropped, or told to cancel, cancels its task. A group's cancel does so
//! for its tasks.

mod common;

use std::sync::{mpsc, Arc};
use std::thread::{self, ThreadId};
use std::time::Duration;

use common::futures::block_on;
use common::*;
use lazypool::{task, Handle, Pool, Refusal, Shutdown, TaskError, WhenFull};

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

/// A value that reports on which thread it is dropped.
struct DropsOn(mpsc::Sender<ThreadId>);

impl Drop for DropsOn {
    fn drop(&mut self) {
        self.0.send(thread::current().id()).unwrap_or(());
    }
}

/// Reports on which thread it runs, then waits until the task is cancelled or the gate opens.
/// Returns `true` if the task was cancelled.
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

/// Serves a task that waits until it is cancelled, then at the gate, and returns `value`. Returns
/// its handle, the thread that runs it, and a receiver of whether it was cancelled.
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

#[test]
fn law21_a_queued_task_whose_handle_is_dropped_or_cancelled_never_runs() {
    timed(|| {
        for drops in [true, false] {
            let gate = Gate::new();
            let pool = occupied(&gate, 3);
            let ledger = Ledger::new(3);
            let mut handles: Vec<_> = (0..3)
                .map(|id| {
                    let entry = ledger.entry(id);
                    must_await(pool.awaitable(), move || entry.run())
                })
                .collect();
            assert_eq!(pool.stats().queued, 3);
            // Takes a task out of the middle of the queue.
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

/// The room that a cancelled task leaves goes to a submitter that waits for it.
#[test]
fn law21_a_cancelled_task_makes_room() {
    timed(|| {
        let gate = Gate::new();
        let pool = Arc::new(occupied(&gate, 1));
        let handle = must_await(pool.awaitable(), || ());
        let core = Arc::clone(&pool);
        let blocked = thread::spawn(move || {
            let on = core.when_full(WhenFull::Block).awaitable();
            must_await(on, || 5).join()
        });
        wait_until("a blocked submitter", || pool.stats().waiting == 1);
        drop(handle);
        wait_until("the submitter's task to be queued", || {
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
            assert!(tells.recv().unwrap(), "the task sees the cancel");
            let stats = pool.stats();
            assert_eq!((stats.abandoned, stats.running), (1, 1), "{stats:?}");
            assert!(pool.workers()[0].abandoned);
            assert!(drops.try_recv().is_err());
            gate.open();
            assert_eq!(drops.recv().unwrap(), worker);
            wait_until("the task to end", || pool.stats().completed == 1);
            let stats = pool.stats();
            assert_eq!(
                (stats.abandoned, stats.discarded, stats.timed_out),
                (0, 0, 0)
            );
        }
    });
}

/// A cancel alone keeps the handle: a task that has started runs to its end, and the handle returns
/// its value.
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

/// If the handle is dropped before the task ends, the value is dropped on the worker.
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

/// Law 10: a drop of the pool does not wait for the cancelled task, even if the drop began before
/// the cancel.
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
                assert!(
                    ended.recv_timeout(ms(50)).is_err(),
                    "the task's handle waits for it"
                );
                handle.cancel();
                ended
                    .recv_timeout(LIMIT)
                    .expect("no handle waits for a cancelled task");
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
        let pool = occupied(&gate, 2);
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
        wait_until("the pool to come to rest", || pool.stats().running == 0);
        let running = must_await(pool.awaitable(), gate.task());
        gate.wait_entered(1);
        running.detach();
        let stats = pool.stats();
        assert_eq!((stats.abandoned, stats.running), (0, 1));
        gate.open();
        wait_until("the task to end", || pool.stats().completed == 3);
        assert_eq!(pool.stats().discarded, 0);
        // This task has ended already.
        let ended = must_await(pool.awaitable(), || 5);
        wait_until("the handle to be released", || ended.is_finished());
        ended.detach();
    });
}

#[test]
fn law21_a_group_counts_its_awaited_tasks() {
    timed(|| {
        let gate = Gate::new();
        let pool = occupied(&gate, 8);
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
        // Handles are released right after their tasks have been counted.
        wait_until("both handles to be released", || {
            good.is_finished() && bad.is_finished()
        });
        assert_eq!(good.join().unwrap(), 1);
        assert!(bad.join().is_err());
        // A thread that has the value finds the task counted in the group, too.
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
        assert!(running.join().unwrap(), "the task saw the cancel");
        let refused = group.awaitable().serve(|| ()).unwrap_err();
        assert!(matches!(refused.reason(), Refusal::Cancelled));
    });
}

/// A task that its group's cancel takes out frees its place. Another task may be in that place when
/// the handle is dropped, which must not cancel it.
#[test]
fn law21_a_cancel_takes_no_other_task() {
    timed(|| {
        for _ in 0..rounds(20) {
            let (gate, slow) = (Gate::new(), Gate::new());
            let pool = occupied(&gate, 1);
            let group = pool.group();
            let key = slow.key();
            let capture = OnDrop(Some(move || key.pass()));
            let taken = must_await(group.awaitable(), move || drop(capture));
            let canceller = thread::spawn(move || group.cancel());
            slow.wait_entered(1);
            let other = must_await(pool.awaitable(), || 5);
            assert!(taken.is_finished());
            drop(taken);
            slow.open();
            canceller.join().unwrap();
            gate.open();
            assert_eq!(other.join().unwrap(), 5);
        }
    });
}
