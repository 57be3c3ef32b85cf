//! Groups and scopes (`src/parts/members.rs`, `src/group.rs`, `src/scope.rs`): a group's last task
//! beside the thread that waits for it.
#![cfg(lazypool_loom)]

use lazypool::model::refuse_threads;
use lazypool::{Group, Refusal, Shutdown};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::mpsc;
use loom_tests::{beside, check, end, pool, quietly, warm_pair, warm_pool, Ran};
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
    check(Some(3), || {
        let pool = warm_pool(0);
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
        end(&pool);
    });
}

/// A group of two tasks on two workers: whichever task is the last wakes the waiter. Excludes: two
/// ends that each leave the wake-up to the other. Preemptions: 2.
#[test]
fn group_against_two_last_tasks() {
    check(Some(2), || {
        let pool = warm_pair(2, 0);
        let group = pool.group();
        assert!(group.serve(|| ()).is_ok());
        assert!(group.serve(|| ()).is_ok());
        group.wait();
        assert_eq!((group.pending(), group.completed()), (0, 2));
        end(&pool);
    });
}

/// A group's wait against the end of its task, which has a handle. Excludes: a wait that ends before
/// the handle has its outcome. Preemptions: 2.
#[test]
fn wait_against_a_handles_outcome() {
    check(Some(2), || {
        let pool = warm_pool(0);
        let group = pool.group();
        let handle = group.awaitable().serve(|| 7).ok().unwrap();
        group.wait();
        assert!(handle.is_finished());
        assert_eq!(handle.join().ok(), Some(7));
        end(&pool);
    });
}

/// A group is cancelled while its queued task is popped, and another task joins. Excludes: a task
/// that both ran and was discarded, or neither; a task queued after the cancel had looked; a wait
/// that never ends. Preemptions: 2.
#[test]
fn cancel_against_serve() {
    check(Some(2), || {
        let pool = warm_pool(1);
        let ran = Ran::new();
        let group = pool.group();
        let task = ran.task();
        let other = beside(&group, move |group| group.serve(task).is_ok());
        assert!(pool.serve(|| ()).is_ok());
        group.cancel();
        let accepted = usize::from(other.join().unwrap());
        group.wait();
        assert_eq!(ran.times() + group.discarded(), accepted);
        assert_eq!(ran.alive(), 0);
        end(&pool);
    });
}

/// A group is cancelled while one of its tasks is pushed behind an occupied worker. Excludes: a
/// task that stays queued because the push and the cancel missed each other; a task accepted after
/// the cancel. Preemptions: 3.
#[test]
fn cancel_leaves_nothing_queued() {
    check(Some(3), || {
        let (open, gate) = mpsc::channel();
        let pool = warm_pool(1);
        quietly(|| assert!(pool.serve(move || gate.recv().unwrap()).is_ok()));
        let ran = Ran::new();
        let group = pool.group();
        let task = ran.task();
        let other = beside(&group, move |group| group.serve(task).is_ok());
        group.cancel();
        let accepted = usize::from(other.join().unwrap());
        assert_eq!((group.pending(), group.discarded()), (0, accepted));
        assert!(group
            .serve(|| ())
            .is_err_and(|e| matches!(e.reason(), Refusal::Cancelled)));
        assert_eq!((ran.times(), ran.alive()), (0, 0));
        open.send(()).unwrap();
        end(&pool);
    });
}

/// A group is cancelled while its task is handed over or runs; the task goes on until the cancel
/// has returned. Excludes: a task that does not see the cancel by then; a worker that does not
/// count as abandoned (the tag on the worker's record, P3). Preemptions: 3.
#[test]
fn cancel_is_seen_once_it_has_returned() {
    check(Some(3), || {
        let pool = Arc::new(warm_pool(0));
        let (group, seen) = (pool.group(), Arc::clone(&pool));
        let (say, has_returned) = mpsc::channel();
        let served = group.serve(move || {
            has_returned.recv().unwrap();
            assert!(lazypool::task::is_cancelled());
            assert_eq!(seen.stats().abandoned, 1);
        });
        assert!(served.is_ok());
        group.cancel();
        say.send(()).unwrap();
        group.wait();
        end(&pool);
        assert_eq!(group.completed(), 1);
    });
}

/// One of two groups is cancelled as its task ends and the other group's task starts on the same
/// worker. Excludes: a cancel that tags the other group's task. Preemptions: 2.
#[test]
fn cancel_against_the_next_groups_task() {
    check(Some(2), || {
        let pool = warm_pool(1);
        let (group, other) = (pool.group(), pool.group());
        assert!(group.serve(|| ()).is_ok());
        let canceller = beside(&group, |group| group.cancel());
        assert!(other
            .serve(|| assert!(!lazypool::task::is_cancelled()))
            .is_ok());
        other.wait();
        canceller.join().unwrap();
        end(&pool);
    });
}

/// Two submissions to a group with a limit of one, beside two idle workers. Excludes: two tasks
/// pending at once; a refusal other than `GroupFull`; a group that stays full. Preemptions: 2.
#[test]
fn two_serve_through_a_limited_group() {
    check(Some(2), || {
        let pool = warm_pair(2, 0);
        let group = pool.limited_group(1);
        let running = Arc::new(AtomicUsize::new(0));
        let serve = |group: &Group, running: Arc<AtomicUsize>| {
            let task = move || {
                assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0);
                running.fetch_sub(1, Ordering::SeqCst);
            };
            match group.serve(task) {
                Ok(()) => 1,
                Err(back) => {
                    assert!(matches!(back.reason(), Refusal::GroupFull));
                    0
                }
            }
        };
        let its = Arc::clone(&running);
        let other = beside(&group, move |group| serve(group, its));
        let mine = serve(&group, running);
        let accepted = mine + other.join().unwrap();
        assert_ne!(accepted, 0);
        group.wait();
        assert_eq!((group.pending(), group.completed()), (0, accepted));
        assert!(group.serve(|| ()).is_ok());
        end(&pool);
    });
}

/// Two groups, each with a queued task, are cancelled. Excludes: a lost increment of the count of
/// discarded tasks, or of tasks removed from the queue. Preemptions: 2.
#[test]
fn two_are_cancelled() {
    check(Some(2), || {
        let (open, gate) = mpsc::channel();
        let pool = warm_pool(2);
        let groups = [pool.group(), pool.group()];
        quietly(|| {
            assert!(pool.serve(move || gate.recv().unwrap()).is_ok());
            for group in &groups {
                assert!(group.serve(|| ()).is_ok());
            }
        });
        let other = beside(&groups[0], |group| group.cancel());
        groups[1].cancel();
        other.join().unwrap();
        assert_eq!((pool.stats().discarded, pool.stats().queued), (2, 0));
        open.send(()).unwrap();
        end(&pool);
    });
}

/// A group's queued task is discarded while a shutdown discards the queue, which leaves the scope's
/// task before it in place. Excludes: a task discarded by both or by neither; a lost increment of
/// the count of discarded tasks, or of tasks removed from the queue. Preemptions: 2.
#[test]
fn cancel_against_discard() {
    check(Some(2), || {
        let (open, gate) = mpsc::channel();
        let pool = warm_pool(2);
        let group = pool.group();
        let ran = Ran::new();
        pool.scope(|s| {
            quietly(|| {
                assert!(pool.serve(move || gate.recv().unwrap()).is_ok());
                assert!(s.serve(ran.task()).is_ok());
                assert!(group.serve(|| ()).is_ok());
            });
            let other = beside(&group, |group| group.cancel());
            assert!(!pool.shutdown(Shutdown::Discard, Duration::ZERO).is_clean());
            other.join().unwrap();
            assert_eq!((pool.stats().discarded, pool.stats().queued), (1, 1));
            open.send(()).unwrap();
        });
        assert_eq!((ran.times(), ran.alive()), (1, 0));
        end(&pool);
    });
}

/// A group of two tasks, one of which ends while the other is discarded. Excludes: a count of
/// pending tasks that loses one of the two ends. Preemptions: 2.
#[test]
fn cancel_against_end() {
    check(Some(2), || {
        let pool = warm_pool(1);
        let group = pool.group();
        assert!(group.serve(|| ()).is_ok());
        assert!(group.serve(|| ()).is_ok());
        group.cancel();
        group.wait();
        assert_eq!(group.completed() + group.discarded(), 2);
        end(&pool);
    });
}

/// A group's handle is dropped while its two tasks end on two workers. The last of the three frees
/// the memory that they share. Excludes: memory freed while another still uses it, freed twice, or
/// never freed. Preemptions: 2.
#[test]
fn handle_against_two_last_tasks() {
    check(Some(2), || {
        let pool = warm_pair(2, 0);
        let group = pool.group();
        assert!(group.serve(|| ()).is_ok());
        assert!(group.serve(|| ()).is_ok());
        drop(group);
        end(&pool);
    });
}

/// A waiter leaves at once and drops the handle, while the last task, which saw it wait, ends.
/// Excludes: a task that wakes a waiter in memory that was freed. Preemptions: 3.
#[test]
fn leaving_waiter_against_last_task() {
    check(Some(3), || {
        let pool = warm_pool(0);
        let group = pool.group();
        assert!(group.serve(|| ()).is_ok());
        group.wait();
        drop(group);
        end(&pool);
    });
}

/// A group with two handles: a refused submission is the last thing pending while a thread waits
/// for the group. Excludes: a waiter that no thread wakes. Preemptions: 3.
#[test]
fn waiter_against_refused() {
    check(Some(3), || {
        let (open, gate) = mpsc::channel();
        let pool = warm_pool(0);
        quietly(|| assert!(pool.serve(move || gate.recv().unwrap()).is_ok()));
        let group = pool.group();
        let other = beside(&group, |group| assert!(group.serve(|| ()).is_err()));
        group.wait();
        other.join().unwrap();
        open.send(()).unwrap();
        end(&pool);
    });
}

/// Two tasks, the second of which enters before the first ends, while a thread reads the pending
/// count. Excludes: a read that finds the first gone and the second not there yet. Preemptions: 2.
#[test]
fn one_is_always_pending() {
    check(Some(2), || {
        let ([open, open_next], [gate, next]) = {
            let ((a, b), (c, d)) = (mpsc::channel(), mpsc::channel());
            ([a, c], [b, d])
        };
        let (pool, group) = quietly(|| {
            let pool = pool(2, 0);
            let group = pool.group();
            group.serve(move || gate.recv().unwrap()).unwrap();
            (pool, group)
        });
        let other = beside(&group, move |group| {
            assert!(group.serve(move || next.recv().unwrap()).is_ok());
            open.send(()).unwrap();
        });
        assert_ne!(group.pending(), 0);
        other.join().unwrap();
        open_next.send(()).unwrap();
        group.wait();
        end(&pool);
    });
}

/// Two submissions to one group at once; both are accepted, or one is refused. Excludes: a lost
/// increment of the count of tasks that entered. Preemptions: 2.
#[test]
fn two_enter() {
    check(Some(2), || {
        let pool = warm_pool(0);
        let group = pool.group();
        let other = beside(&group, |group| group.serve(|| ()).is_ok());
        let mine = group.serve(|| ()).is_ok();
        let accepted = usize::from(mine) + usize::from(other.join().unwrap());
        group.wait();
        assert_eq!((group.pending(), group.completed()), (0, accepted));
        end(&pool);
    });
}

/// Two threads wait for a group at once, and a third waits for it later. Excludes: a count of
/// waiters that loses one of two changes, and is zero later although a thread waits. Preemptions:
/// 1.
#[test]
fn two_waiters_and_a_third() {
    check(Some(1), || {
        let pool = warm_pool(0);
        let group = pool.group();
        assert!(group.serve(|| ()).is_ok());
        let other = beside(&group, |group| group.wait());
        group.wait();
        other.join().unwrap();
        assert!(group.serve(|| ()).is_ok());
        group.wait();
        assert_eq!((group.pending(), group.completed()), (0, 2));
        end(&pool);
    });
}

/// A scope's task is queued while a shutdown discards the queue and the worker ends. The shutdown
/// leaves the task in place. Excludes: a scope's task that is dropped; a scope that waits for
/// workers that have all ended. Preemptions: 2.
#[test]
fn scope_against_discard() {
    check(Some(2), || {
        let pool = Arc::new(warm_pool(1));
        let ran = Ran::new();
        assert!(pool.serve(|| ()).is_ok());
        let closer = beside(&pool, |pool| {
            pool.shutdown(lazypool::Shutdown::Discard, Duration::MAX)
                .is_clean()
        });
        let accepted = pool.scope(|s| usize::from(s.serve(ran.task()).is_ok()));
        assert_eq!((ran.times(), ran.alive()), (accepted, 0));
        assert!(closer.join().unwrap());
        end(&pool);
    });
}

/// A scope's task is queued while a shutdown discards the queue, the worker ends, and the OS gives
/// no further thread. Excludes: a last worker that leaves the task to a thread that cannot be
/// started. Preemptions: 2.
#[test]
fn scope_against_discard_without_thread() {
    check(Some(2), || {
        let pool = Arc::new(warm_pool(1));
        refuse_threads(9);
        let ran = Ran::new();
        assert!(pool.serve(|| ()).is_ok());
        let closer = beside(&pool, |pool| {
            drop(pool.shutdown(lazypool::Shutdown::Discard, Duration::MAX))
        });
        let accepted = pool.scope(|s| usize::from(s.serve(ran.task()).is_ok()));
        assert_eq!((ran.times(), ran.alive()), (accepted, 0));
        closer.join().unwrap();
        refuse_threads(0);
        end(&pool);
    });
}
