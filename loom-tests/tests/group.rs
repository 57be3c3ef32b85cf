//! Groups and scopes (`src/parts/members.rs`, `src/group.rs`, `src/scope.rs`): a group's last task
//! beside the thread that waits for it.
#![cfg(lazypool_loom)]

use lazypool::model::refuse_threads;
use lazypool::{Refusal, Shutdown};
use loom::cell::UnsafeCell;
use loom_tests::{
    beside, check, check_pool, check_tasks, end, hold, quietly, scope_of_one, shut_down_beside,
    warm, warm_pair, Flag, Ran,
};
use std::sync::Arc;
use std::time::Duration;

struct Borrowed(UnsafeCell<usize>);

// SAFETY: loom reports accesses that are not ordered.
unsafe impl Sync for Borrowed {}

/// A scope's only task writes to a variable that it borrows. Excludes: a scope that sleeps past its
/// last task; a scope that returns before the task's writes, before the task is counted, or before
/// the worker is free. Preemptions: 3.
#[test]
fn scope_against_last_task() {
    check_pool(3, warm(1, 0), |pool| {
        let value = Borrowed(UnsafeCell::new(0));
        pool.scope(|s| {
            let value = &value;
            let served = s.serve(move || {
                // SAFETY: only this task accesses the value until it has ended.
                value.0.with_mut(|v| unsafe { *v += 1 });
            });
            assert!(served.is_ok());
        });
        // SAFETY: the scope has returned, so its task has ended.
        assert_eq!(value.0.with(|v| unsafe { *v }), 1);
        assert_eq!(pool.stats().completed, 2);
        assert!(pool.serve(|| ()).is_ok(), "free");
    });
}

/// A group's wait against the end of its task, which has a handle. Excludes: a wait that ends before
/// the handle has its outcome. Preemptions: 2.
#[test]
fn wait_against_a_handles_outcome() {
    check_pool(2, warm(1, 0), |pool| {
        let group = pool.group();
        let handle = group.awaitable().serve(|| 7).ok().unwrap();
        group.wait();
        assert!(handle.is_finished());
        assert_eq!(handle.join().ok(), Some(7));
    });
}

/// A thread takes the value of the only task of a full group, and submits the next one. Excludes: a
/// refusal, because the task's place is freed only after its value is there; figures that do not
/// count the task yet. Preemptions: 2.
#[test]
fn a_value_and_then_the_next_task() {
    check_pool(2, warm(1, 0), |pool| {
        let group = pool.limited_group(1);
        let handle = group.awaitable().serve(|| 7).ok().unwrap();
        assert_eq!(handle.join().ok(), Some(7));
        assert_eq!((group.pending(), group.completed()), (0, 1));
        assert!(group.serve(|| ()).is_ok());
        group.wait();
    });
}

/// A group is cancelled while its queued task is popped, and another task joins. Excludes: a task
/// that both ran and was discarded, or neither; a task queued after the cancel had looked; a wait
/// that never ends. Preemptions: 2.
#[test]
fn cancel_against_serve() {
    check(Some(2), || {
        let (pool, ran) = (warm(1, 1).build(), Ran::new());
        let group = pool.group();
        let task = ran.task();
        let other = beside(&group, move |group| group.serve(task).is_ok());
        assert!(pool.serve(|| ()).is_ok());
        group.cancel();
        let accepted = usize::from(other.join().unwrap());
        group.wait();
        assert_eq!(ran.times() + group.discarded(), accepted);
        end(&pool);
        // A discarded task is settled first, and dropped later.
        assert_eq!(ran.alive(), 0);
    });
}

/// A group is cancelled while one of its tasks is pushed behind an occupied worker. Excludes: a
/// task that stays queued because the push and the cancel missed each other; a task accepted after
/// the cancel. Preemptions: 3.
#[test]
fn cancel_leaves_nothing_queued() {
    check_pool(3, warm(1, 1), |pool| {
        let gate = hold(pool);
        let ran = Ran::new();
        let group = pool.group();
        let task = ran.task();
        let other = beside(&group, move |group| group.serve(task).is_ok());
        group.cancel();
        let accepted = usize::from(other.join().unwrap());
        assert_eq!((group.pending(), group.discarded()), (0, accepted));
        let next = group.serve(|| ()).unwrap_err();
        assert!(matches!(next.reason(), Refusal::Cancelled));
        assert_eq!((ran.times(), ran.alive()), (0, 0));
        gate.open();
    });
}

/// A group is cancelled while its task is handed over or runs; the task goes on until the cancel
/// has returned. Excludes: a task that does not see the cancel by then; a worker that does not
/// count as abandoned (the tag on the worker's record, P3). Preemptions: 3.
#[test]
fn cancel_is_seen_once_it_has_returned() {
    check(Some(3), || {
        let pool = warm(1, 0).build();
        let (group, seen) = (pool.group(), Arc::clone(&pool));
        let (flag, waker) = Flag::new();
        let served = group.serve(move || {
            flag.wait();
            assert!(lazypool::task::is_cancelled());
            assert_eq!(seen.stats().abandoned, 1);
        });
        assert!(served.is_ok());
        group.cancel();
        // A task that had not started then never runs.
        waker.wake();
        group.wait();
        end(&pool);
        assert_eq!(group.completed() + group.discarded(), 1);
    });
}

/// One of two groups is cancelled as its task ends and the other group's task starts on the same
/// worker. Excludes: a cancel that tags the other group's task. Preemptions: 2.
#[test]
fn cancel_against_the_next_groups_task() {
    check_pool(2, warm(1, 1), |pool| {
        let (group, other) = (pool.group(), pool.group());
        assert!(group.serve(|| ()).is_ok());
        let canceller = beside(&group, |group| group.cancel());
        let task = || assert!(!lazypool::task::is_cancelled());
        assert!(other.serve(task).is_ok());
        other.wait();
        canceller.join().unwrap();
    });
}

/// A group's cancel discards its queued task while a shutdown discards the queue. A scope's task is
/// queued before it, and the shutdown leaves that task in place. Excludes: a task discarded by both
/// or by neither; a lost increment of the count of discarded tasks, or of tasks removed from the
/// queue. Preemptions: 2.
#[test]
fn cancel_against_discard() {
    check_tasks(2, warm(1, 2), |pool, ran| {
        let gate = hold(pool);
        let group = pool.group();
        pool.scope(|s| {
            quietly(|| {
                assert!(s.serve(ran.task()).is_ok());
                assert!(group.serve(|| ()).is_ok());
            });
            let other = beside(&group, |group| group.cancel());
            assert!(!pool.shutdown(Shutdown::Discard, Duration::ZERO).is_clean());
            other.join().unwrap();
            assert_eq!((pool.stats().discarded, pool.stats().queued), (1, 1));
            gate.open();
        });
        assert_eq!((ran.times(), ran.alive()), (1, 0));
        1
    });
}

/// A group's handle is dropped while its two tasks end on two workers. The last of the three frees
/// the memory that they share. Excludes: memory freed while another still uses it, freed twice, or
/// never freed. Preemptions: 2.
#[test]
fn handle_against_two_last_tasks() {
    check_pool(2, warm_pair(2, 0), |pool| {
        let group = pool.group();
        assert!(group.serve(|| ()).is_ok());
        assert!(group.serve(|| ()).is_ok());
        drop(group);
    });
}

/// A scope's task is queued while a shutdown discards the queue and the worker ends; perhaps the OS
/// gives no further thread. The shutdown leaves the task in place. Excludes: a scope's task that is
/// dropped; a scope that waits for workers that have all ended; a last worker that leaves the task
/// to a thread that cannot be started. Preemptions: 2.
#[test]
fn scope_against_discard() {
    for refused in [0, 9] {
        check_pool(2, warm(1, 1), move |pool| {
            refuse_threads(refused);
            assert!(pool.serve(|| ()).is_ok());
            let closer = shut_down_beside(pool, Shutdown::Discard, Duration::MAX);
            scope_of_one(pool);
            assert!(closer.join().unwrap() || refused > 0);
            refuse_threads(0);
        });
    }
}
