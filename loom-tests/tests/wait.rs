//! `do_with_deadline` (`src/core/call.rs`, `src/parts/completion`): the two races between a
//! caller and the worker that runs its task. The deadline passes at any moment.
#![cfg(lazypool_loom)]

use lazypool::model::{deadline, do_labeled_until, do_until};
use lazypool::{DeadlineError, Pool};
use loom_tests::{at_any_moment, beside, call, check, check_pool, end, pool, warm, Gate, Ran};
use std::time::Duration;

/// Makes a call with a deadline that passes at any moment. Asserts that the closure ran or came back,
/// and that the closure and its result are dropped once, at the latest by the end of the pool. `alone`
/// says that no older task can be queued before it. Then a task that came back leaves space.
fn calls(pool: &Pool, alone: bool) {
    let (ran, results) = (Ran::new(), Ran::new());
    let (f, result) = (ran.task(), results.task());
    let f = move || {
        f();
        result
    };
    let free = match at_any_moment(|deadline| do_until(pool, f, deadline)) {
        Ok(result) => {
            assert_eq!((ran.times(), ran.alive(), results.alive()), (1, 0, 1));
            drop(result);
            true
        }
        Err(DeadlineError::Expired(f)) => {
            assert_eq!((ran.times(), ran.alive(), results.alive()), (0, 1, 1));
            drop(f);
            assert_eq!(ran.alive(), 0);
            true
        }
        Err(DeadlineError::TimedOut) => false,
        Err(other) => panic!("{other}"),
    };
    if free {
        // The caller has its value or its closure, so the worker is free: law 1.
        assert!(pool.serve(|| ()).is_ok() || !alone);
    }
    end(pool);
    assert_eq!((ran.alive(), results.alive()), (0, 0), "dropped once");
    assert_eq!(ran.times() == 0, pool.stats().expired == 1);
    assert_eq!(!free, pool.stats().timed_out == 1);
}

/// The task is handed to an idle worker, or to one that is just being started (preemptions: 3); or it
/// is queued behind another one, or for a sleeping worker (preemptions: 2): the caller must learn
/// which worker popped it. Excludes: a closure that ran and came back; a result that both or neither
/// own; a worker that touches the node of a caller that left; a pool of one that refuses after
/// `Expired`.
#[test]
fn ran_or_came_back() {
    for (preemptions, setup) in [(3, warm(1, 0)), (3, pool(1, 0)), (2, warm(1, 2))] {
        check(Some(preemptions), move || calls(&setup.build(), true));
    }
    check(Some(2), || {
        let pool = warm(1, 1).build();
        let before = Ran::new();
        assert!(pool.serve(before.task()).is_ok());
        calls(&pool, false);
        assert_eq!((before.times(), before.alive()), (1, 0));
    });
}

/// Makes a call whose task asks for its deadline and ends only after its caller has left, on a worker
/// that has run one task before: the caller must find its own decision, and leave in time.
fn leaves(pool: &Pool) {
    let (gate, waits) = Gate::new();
    let task = move || {
        assert!(lazypool::task::deadline().is_some());
        waits();
    };
    match at_any_moment(|deadline| do_labeled_until(pool, task, deadline)) {
        Err(DeadlineError::TimedOut) => gate.open(),
        Err(DeadlineError::Expired(f)) => drop(f),
        _ => unreachable!("the gate is closed"),
    }
}

/// The task is handed to an idle worker (preemptions: 3), or pushed behind another, or for a sleeping
/// worker (preemptions: 2). Excludes: a caller that takes the decision on the task before for its own
/// (ids tell them apart); a caller that waits for the end of a task that it could leave, or takes the
/// read of its deadline for that end; a read of the label or the deadline that goes on after the node
/// is gone; a caller that is not told which worker to leave.
#[test]
fn left_in_time() {
    check_pool(3, warm(1, 0), |pool| leaves(pool));
    check_pool(2, warm(1, 1), |pool| {
        assert!(pool.serve(|| ()).is_ok());
        leaves(pool);
    });
}

/// A task ends as its caller leaves, and the next one starts on the same worker. Excludes: a caller
/// that has left and writes over the next task's word: that task's caller would wait for ever.
/// Preemptions: 3.
#[test]
fn the_next_task_against_leaving() {
    check_pool(3, warm(1, 0), |pool| {
        let next = beside(pool, |pool| pool.do_with_deadline(|| (), Duration::MAX));
        let (deadline, alarm) = deadline();
        let _ = do_until(pool, move || alarm.go_off(), &deadline);
        let next = next.join().unwrap();
        assert!(matches!(next, Ok(()) | Err(DeadlineError::Refused(_))));
    });
}

/// A caller takes its task back from a worker that sleeps or starts it, while another call comes.
/// Excludes: a call refused once the first caller has its task back and its worker is idle; a
/// worker that is told to look at the queue and never does, or stays counted for ever. Preemptions:
/// 2.
#[test]
fn taken_back_against_the_next_call() {
    check_pool(2, warm(1, 1), |pool| {
        let next = beside(pool, |pool| call(pool));
        let _ = at_any_moment(|deadline| do_until(pool, || (), deadline));
        assert!(next.join().unwrap(), "a worker, or the queue");
    });
}
