//! Groups: the parts of laws 2, 7 and 9 about groups, and the documented properties of the type.
//! Groups and a shutdown: `discards.rs`, `slow_drops.rs`. On a worker of the pool: `blocking.rs`.

mod common;

use std::sync::{mpsc, Arc};
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{task, Group, Handle, Pool, Shutdown, TaskError};

/// Returns `pending`, `completed`, `panicked` and `discarded`.
fn figures(group: &Group) -> [usize; 4] {
    [
        group.pending(),
        group.completed(),
        group.panicked(),
        group.discarded(),
    ]
}

/// When a group's wait returns, its tasks are counted in the group and the pool, and their workers
/// are free: the whole cap can be used at once. A task has panicked if its closure did, or the drop
/// of a capture.
#[test]
fn law07_law09_after_a_groups_wait_all_is_counted_and_free() {
    timed_each([(1, 0), (3, 0), (2, 6)], |(max, queue)| {
        let pool = pool(max, queue);
        let (group, ran, cap) = (pool.group(), Arc::new(Tally::default()), max + queue);
        for round in 1..=rounds(300) as usize {
            for i in 0..cap {
                let ran = Arc::clone(&ran);
                let bomb = (i == 0 && round % 2 == 0).then(|| Bomb("capture"));
                // Right after a wait no worker is occupied, so no task may be refused.
                must_serve_in(&group, move || {
                    let _captured = &bomb;
                    ran.add(1);
                    if i == 0 && round % 2 == 1 {
                        quiet_panic("closure");
                    }
                });
            }
            if round % 2 == 0 {
                group.wait();
            } else {
                group.wait_timeout(LONG).unwrap();
            }
            assert_eq!(ran.get(), (round * cap) as u64);
            assert_eq!(Arc::strong_count(&ran), 1, "captures outlive the wait");
            let (panicked, completed) = (round, round * (cap - 1));
            assert_eq!(figures(&group), [0, completed, panicked, 0]);
            let s = check_at_rest(&pool);
            let (completed, panicked) = (completed as u64, panicked as u64);
            assert_stats!(s, running: 0, queued: 0, completed: completed, panicked: panicked);
            assert_stats!(s, idle: s.workers);
        }
    });
}

/// A group's wait waits for all tasks of that group and for no others. `wait_timeout` returns at
/// its timeout, never earlier, with the number of pending tasks.
#[test]
fn wait_waits_for_the_groups_own_tasks() {
    timed(|| {
        let pool = pool(4, 4);
        let (one, two) = (pool.group(), pool.group());
        // The group has no tasks, so the wait returns at once.
        one.wait();
        one.wait_timeout(Duration::ZERO).unwrap();
        one.wait_timeout(Duration::MAX).unwrap();
        let (mine, others) = (Gate::new(), Gate::new());
        must_serve(&pool, others.task());
        must_serve_in(&two, others.task());
        (0..3).for_each(|_| must_serve_in(&one, mine.task()));
        assert_eq!((one.pending(), two.pending()), (3, 1));
        thread::scope(|s| {
            let _openers = (others.opener(), mine.opener());
            let wait = || {
                one.wait();
                one.completed()
            };
            let limited = |d| one.wait_timeout(d).map_or(0, |()| one.completed());
            let limited = [LONG, Duration::MAX].map(|d| s.spawn(move || limited(d)));
            let waiters = [s.spawn(wait), s.spawn(wait)];
            for d in [Duration::ZERO, ms(1), ms(40)] {
                let unfinished = takes(d, || one.wait_timeout(d).unwrap_err());
                assert_eq!(unfinished.pending(), 3);
            }
            let all = limited.into_iter().chain(waiters);
            let all: Vec<_> = all.inspect(|w| assert!(!w.is_finished())).collect();
            mine.open();
            assert!(all.into_iter().all(|waiter| waiter.join().unwrap() == 3));
            // The gate of the other group's task is still shut.
            assert_eq!(two.pending(), 1);
        });
        two.wait();
        assert_eq!(figures(&two), [0, 1, 0, 0]);
    });
}

/// A cancel is seen by `is_cancelled` in the group's own tasks only. Queued tasks are discarded at
/// once, and later ones are refused as `Cancelled` for good. Laws 2 and 9. Law 8, the thread of the
/// drops: `discards.rs`.
#[test]
fn cancel_is_for_good_and_for_this_group_only() {
    timed(|| {
        let pool = pool(2, 8);
        let (group, other) = (pool.group(), pool.group());
        let gate = Gate::new();
        let (tx, seen) = mpsc::channel();
        for group in [&group, &other] {
            let (key, tx) = (gate.key(), tx.clone());
            must_serve_in(group, move || {
                let before = task::is_cancelled();
                key.pass();
                tx.send((before, task::is_cancelled())).unwrap();
            });
        }
        gate.wait_entered(2);
        let ledger = Ledger::new(4);
        for id in 0..4 {
            // Tasks of others are among them.
            must_serve_in(&group, ledger.task(id));
            match id % 2 {
                0 => must_serve(&pool, || ()),
                _ => must_serve_in(&other, || ()),
            }
        }
        assert_eq!(group.pending(), 5);
        group.clone().cancel();
        assert_eq!(figures(&group), [1, 0, 0, 4]);
        ledger.assert_none_ran();
        let s = assert_stats!(pool.stats(), discarded: 4, queued: 4, panicked: 0);
        check_moment(&pool, &s);

        assert_eq!(reason(group.serve(|| ())), "cancelled");
        assert_eq!(pool.stats().refused, 1);
        group.cancel();

        gate.open();
        let mut seen: Vec<_> = seen.iter().take(2).collect();
        seen.sort_unstable();
        assert_eq!(seen, [(false, false), (false, true)]);
        group.wait();
        other.wait();
        assert_eq!(figures(&group), [0, 1, 0, 4]);
        assert_eq!(figures(&other), [0, 3, 0, 0]);
        settle(&pool);
        assert_eq!(reason(group.serve(|| ())), "cancelled");
        must_serve_in(&other, || assert!(!task::is_cancelled()));
        other.wait();
        assert_eq!(other.panicked(), 0);
        at_rest(&pool);
        // The shutdown had nothing to discard.
        let report = pool.shutdown(Shutdown::Discard, LIMIT);
        assert!(report.is_clean() && report.discarded == 0);
        assert_eq!(pool.stats().discarded, 4);
    });
}

/// A group that outlives its pool refuses as `Closed`. Its figures stay, and its wait returns.
#[test]
fn a_group_outlives_its_pool() {
    timed_each([Duration::MAX, Duration::ZERO], |timeout| {
        let pool = pool_with(2, 0, |b| b.shutdown_on_drop(Shutdown::Drain, timeout));
        let (group, unused, gate) = (pool.group(), pool.group(), Gate::new());
        must_serve_in(&group, gate.task());
        must_serve_in(&group, || quiet_panic("meant"));
        if timeout == Duration::MAX {
            gate.open();
        }
        drop(pool);
        for group in [&group, &unused] {
            assert_eq!(reason(group.serve(|| ())), "closed");
        }
        gate.open();
        group.wait();
        group.cancel();
        assert_eq!(figures(&group), [0, 1, 1, 0]);
        unused.wait();
        let copy = group.clone();
        drop(group);
        assert!(copy.serve(|| ()).is_err());
    });
}

// ---------------------------------------------------------------------------------------------
// Law 2: no task starts once its group is cancelled, wherever it lies
// ---------------------------------------------------------------------------------------------

/// Submits a task in the group, with a handle or without.
fn submit(
    group: &Group,
    with_handle: bool,
    task: impl FnOnce() + Send + 'static,
) -> Option<Handle<()>> {
    if with_handle {
        return Some(must_await(group.awaitable(), task));
    }
    must_serve_in(group, task);
    None
}

/// Waits for the cancelled group, none of whose tasks may have started.
#[track_caller]
fn assert_none_started(pool: &Pool, group: &Group, ledger: &Ledger, handles: Vec<Handle<()>>) {
    group.wait();
    ledger.wait_drops();
    ledger.assert_none_ran();
    for handle in handles {
        let outcome = handle.join();
        assert!(matches!(outcome, Err(TaskError::Cancelled)), "{outcome:?}");
    }
    let tasks = ledger.tasks();
    assert_eq!(figures(group), [0, 0, 0, tasks]);
    assert_stats!(at_rest(pool), discarded: tasks as u64, abandoned: 0);
}

/// A task that was handed to a worker does not start after its group was cancelled. The worker may
/// still be in its start hook then.
#[test]
fn law02_no_task_handed_over_starts_after_a_cancel() {
    timed_each([false, true], |with_handle| {
        let (pool, hook) = gated(1, 0, |b, gate| b.on_worker_start(gate.hook()));
        let (group, ledger) = (pool.group(), Ledger::new(1));
        let handle = submit(&group, with_handle, ledger.task(0));
        hook.wait_entered(1);
        group.cancel();
        hook.open();
        assert_none_started(&pool, &group, &ledger, handle.into_iter().collect());
    });
}

/// Nor does a task that was handed to an idle worker which calls a waker.
#[test]
fn law02_no_task_handed_to_a_worker_that_calls_a_waker_starts_after_a_cancel() {
    timed_each([false, true], |with_handle| {
        let (pool, start, slow) = (pool(1, 0), Gate::new(), Gate::new());
        let key = slow.key();
        let handle = await_then(pool.awaitable(), &start, || ());
        let first = pending(handle, &calling(move || key.pass()));
        start.open();
        slow.wait_entered(1);
        let (group, ledger) = (pool.group(), Ledger::new(1));
        let handle = submit(&group, with_handle, ledger.task(0));
        group.cancel();
        slow.open();
        first.join().unwrap();
        assert_none_started(&pool, &group, &ledger, handle.into_iter().collect());
    });
}

/// No queued task starts once its group is cancelled, even while the cancel is under way: here, it
/// calls the waker of a future of the group. Meanwhile the worker is done with its task.
#[test]
fn law02_no_queued_task_starts_while_its_group_is_being_cancelled() {
    const QUEUED: usize = 8;
    timed_each([false, true], |with_handle| {
        let (pool, busy) = held(QUEUED);
        let busy = Arc::new(busy);
        let (group, ledger) = (pool.group(), Ledger::new(QUEUED));
        let tasks = (0..QUEUED).filter_map(|id| submit(&group, with_handle, ledger.task(id)));
        let handles = Vec::from_iter(tasks);
        let (its, opens, cancelled) = (Arc::clone(&pool), Arc::clone(&busy), group.clone());
        let waker = calling(move || {
            assert!(cancelled.is_cancelled());
            opens.open();
            settle(&its);
        });
        let future = pending(group.awaitable().serve_async(|| ()), &waker);
        group.cancel();
        assert!(busy.is_open(), "the waker was called");
        let refused = block_on(future).unwrap_err();
        assert_eq!(refused.reason().as_str(), "cancelled");
        assert_none_started(&pool, &group, &ledger, handles);
    });
}
