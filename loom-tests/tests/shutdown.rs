//! The end of a pool (`src/engine/lifecycle/shutdown.rs`): accepted tasks run or are discarded, and no worker
//! is left.
#![cfg(lazypool_loom)]

use lazypool::model::{assert_at_rest, sweep};
use lazypool::{DeadlineError, Group, Pool, Shutdown, Stats};
use loom_tests::{
    beside, check, check_pool, pool, quietly, shut_down_beside, try_serve, warm, Gate, Ran,
};
use std::sync::Arc;
use std::time::Duration;

/// Asserts that after a shutdown in `mode` the pool is at rest, its figures add up, and every
/// accepted task ran once or was discarded, as the mode allows.
fn check_end(pool: &Pool, mode: Shutdown, ran: &Ran, accepted: usize) {
    let s = pool.stats();
    assert_eq!((s.workers, s.queued, s.running), (0, 0, 0), "{s}");
    assert_eq!(s.accepted, s.completed + s.discarded + s.expired, "{s}");
    if mode == Shutdown::Drain {
        assert_eq!(s.discarded, 0);
    }
    assert_eq!(ran.times() + s.discarded as usize, accepted);
    assert_eq!(ran.alive(), 0);
    assert_at_rest(pool);
}

/// A worker ends its task, with nothing or a task queued behind it, while the pool closes in each
/// mode. Excludes: a worker that misses both the closing and the order to end, and so remains; a
/// queued task that neither runs nor is discarded, as the mode allows. Preemptions: 3.
#[test]
fn going_idle_against_shutdown() {
    for (mode, queue) in [
        (Shutdown::Drain, 0),
        (Shutdown::Drain, 1),
        (Shutdown::Discard, 1),
        (Shutdown::Cancel, 1),
    ] {
        check(Some(3), move || {
            let pool = warm(1, queue).build();
            let ran = Ran::new();
            for _ in 0..=queue {
                assert!(pool.serve(ran.task()).is_ok());
            }
            let report = pool.shutdown(mode, Duration::MAX);
            assert!(report.is_clean());
            assert_eq!(report.discarded, pool.stats().discarded);
            check_end(&pool, mode, &ran, 1 + queue);
        });
    }
}

/// Two tasks are submitted while the pool closes. From case to case, they are handed to an idle
/// worker that is being told to end, they start the first thread, they are pushed, or they notify
/// that worker. Excludes: a task that is accepted and lost; a worker that remains. Preemptions: 3;
/// 2 for those that notify.
#[test]
fn submissions_against_shutdown() {
    for (preemptions, mode, workers, queue) in [
        (3, Shutdown::Drain, 1, 0),
        (3, Shutdown::Drain, 0, 0),
        (3, Shutdown::Drain, 1, 1),
        (3, Shutdown::Discard, 1, 1),
        (2, Shutdown::Drain, 1, 2),
        (2, Shutdown::Discard, 1, 2),
    ] {
        check(Some(preemptions), move || {
            let setup = [pool(1, queue), warm(1, queue)][workers];
            let (pool, ran) = (setup.build(), Ran::new());
            let tasks = [ran.task(), ran.task()];
            let submitter = beside(&pool, move |pool| tasks.map(|t| pool.serve(t).is_ok()));
            let report = pool.shutdown(mode, Duration::MAX);
            let spawned = pool.stats().spawned;
            let accepted = submitter.join().unwrap().iter().filter(|a| **a).count();
            assert!(pool.serve(|| ()).is_err_and(|e| e.is_closed()));
            // A submission may be accepted after the report, if it was under way before; its worker
            // must not stay.
            loom::stop_exploring();
            assert!(pool.shutdown(mode, Duration::MAX).is_clean() && report.is_clean());
            assert_eq!(pool.stats().spawned, spawned, "a thread after the report");
            check_end(&pool, mode, &ran, accepted);
        });
    }
}

/// Makes some submissions, with and without a group, while another thread retires the only worker,
/// cancels the group and shuts the pool down. Returns how many threads were started and how many
/// tasks were accepted at the clean report, and the figures after the submissions.
fn submit_beside_a_clean_end(submit: impl FnOnce(&Arc<Pool>, &Group)) -> (u64, u64, Stats) {
    let pool = warm(1, 1).build();
    let group = pool.group();
    let its = group.clone();
    let closer = beside(&pool, move |pool| {
        sweep(pool);
        sweep(pool);
        its.cancel();
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        (pool.stats().spawned, pool.stats().accepted)
    });
    submit(&pool, &group);
    let (spawned, accepted) = closer.join().unwrap();
    loom::stop_exploring();
    (spawned, accepted, pool.stats())
}

/// A group's queued task is cancelled after the only worker has ended, and a shutdown follows at
/// once; the task's submitter has yet to check whether a worker will take it. Excludes: a thread
/// that is started for a dead cell after a clean report. Preemptions: 2.
#[test]
fn cancelled_and_clean() {
    check(Some(2), || {
        let (spawned, _, now) = submit_beside_a_clean_end(|pool, group| {
            let _ = pool.serve(|| ());
            let _ = group.serve(|| ());
        });
        assert_eq!((now.spawned, now.workers), (spawned, 0), "{now}");
    });
}

/// The queue has a dead cell and the worker ends; a thread pushes past the dead cell while the pool
/// closes. Excludes: a task accepted after a clean report. Preemptions: 1.
#[test]
fn push_past_a_dead_cell_against_clean() {
    check(Some(1), || {
        let (_, accepted, now) = submit_beside_a_clean_end(|pool, group| {
            let other = beside(pool, |pool| drop(pool.serve(|| ())));
            let _ = group.serve(|| ());
            other.join().unwrap();
        });
        assert_eq!((now.accepted, now.workers), (accepted, 0), "{now}");
    });
}

/// A task is pushed behind a worker that ends with the pool, while the queue is still open.
/// Excludes: a task pushed after the worker's last look at the queue. Preemptions: 3.
#[test]
fn push_against_last_look() {
    check(Some(3), || {
        let (pool, ran) = (pool(1, 1).build(), Ran::new());
        quietly(|| assert!(pool.serve(ran.task()).is_ok()));
        let closer = shut_down_beside(&pool, Shutdown::Drain, Duration::MAX);
        let accepted = 1 + try_serve(&pool, ran.task());
        assert!(closer.join().unwrap());
        check_end(&pool, Shutdown::Drain, &ran, accepted);
    });
}

/// A shutdown discards a queued task whose caller waits. Excludes: a caller that waits for ever; a
/// closure that ran and came back. Preemptions: 2.
#[test]
fn caller_against_discard() {
    check(Some(2), || {
        let pool = warm(1, 1).build();
        let (before, ran) = (Ran::new(), Ran::new());
        let f = ran.task();
        let caller = beside(&pool, move |pool| pool.do_with_deadline(f, Duration::MAX));
        let accepted = try_serve(&pool, before.task());
        assert!(pool.shutdown(Shutdown::Discard, Duration::MAX).is_clean());
        match caller.join().unwrap() {
            Ok(()) => assert_eq!((ran.times(), ran.alive()), (1, 0)),
            Err(DeadlineError::Refused(back)) => {
                assert!(back.is_closed());
                assert_eq!((ran.times(), ran.alive()), (0, 1));
            }
            Err(other) => panic!("{other}"),
        }
        assert!(before.times() <= accepted && before.alive() == 0);
        assert_at_rest(&pool);
    });
}

/// Two shutdowns at once, one that drains and one that is stricter. Excludes: a shutdown that never
/// returns, or returns while a thread is left. Preemptions: 2.
#[test]
fn two_shutdowns() {
    check(Some(2), || {
        let (pool, ran) = (warm(1, 0).build(), Ran::new());
        assert!(pool.serve(ran.task()).is_ok());
        let other = shut_down_beside(&pool, Shutdown::Cancel, Duration::MAX);
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        assert!(other.join().unwrap());
        check_end(&pool, Shutdown::Cancel, &ran, 1);
    });
}

/// Two shutdowns at once, one that drains and one that is stricter, and a task that runs on.
/// Excludes: a change back to the milder mode. Preemptions: 3.
#[test]
fn the_strictest_mode_stays() {
    check_pool(3, warm(1, 0), |pool| {
        let (gate, waits) = Gate::new();
        let task = move || {
            waits();
            assert!(lazypool::task::is_cancelled());
        };
        assert!(quietly(|| pool.serve(task).is_ok()));
        let other = shut_down_beside(pool, Shutdown::Cancel, Duration::ZERO);
        let _ = pool.shutdown(Shutdown::Drain, Duration::ZERO);
        other.join().unwrap();
        gate.open();
    });
}
