//! `do_with_deadline` (`wait.rs`): the two decisions between a caller and its
//! task, with a deadline that passes at any moment.
#![cfg(lazypool_loom)]

use lazypool::model::{deadline, do_until};
use lazypool::{DeadlineError, Pool};
use loom::thread;
use loom_tests::{check, end, pool, warm_pool, Ran};
use std::time::Duration;

/// Calls with a deadline that another thread lets pass, and checks that the
/// closure ran or came back, and that it and its result are dropped once, by
/// the end of the pool at the latest.
fn call_and_check(pool: &Pool) -> bool {
    let (deadline, alarm) = deadline();
    let clock = thread::spawn(move || alarm.go_off());
    let (ran, results) = (Ran::new(), Ran::new());
    let (f, result) = (ran.task(), results.task());
    let outcome = do_until(
        pool,
        move || {
            f();
            result
        },
        &deadline,
    );
    let free = match outcome {
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
        // Value or closure in hand, the worker is free: law 1.
        assert!(pool.serve(|| ()).is_ok());
    }
    clock.join().unwrap();
    end(pool);
    assert_eq!((ran.alive(), results.alive()), (0, 0), "dropped once");
    assert_eq!(ran.times() == 0, pool.stats().expired == 1);
    assert_eq!(!free, pool.stats().timed_out == 1);
    free
}

/// The task goes from hand to hand to an idle worker. Excludes: a closure that
/// ran and came back; a result that both or neither own; a worker that touches
/// the block of a caller that left; a pool of one that refuses after `Expired`.
/// Preemptions: 3.
#[test]
fn in_the_mailbox() {
    check(Some(3), || {
        call_and_check(&warm_pool(0));
    });
}

/// The same with a worker that is just being started. Preemptions: 3.
#[test]
fn in_the_hands_of_a_new_worker() {
    check(Some(3), || {
        call_and_check(&pool(1, 0));
    });
}

/// The same by way of the queue, behind another task: the caller must learn
/// which worker took it. Preemptions: 2.
#[test]
fn in_the_queue() {
    check(Some(2), || {
        let pool = warm_pool(1);
        let before = Ran::new();
        assert!(pool.serve(before.task()).is_ok());
        call_and_check(&pool);
        assert_eq!((before.times(), before.alive()), (1, 0));
    });
}

/// Two calls in a row on one worker, the first of which may leave its task
/// running: tickets tell them apart. Excludes: a second call decided by the
/// first one's end. Preemptions: 2.
#[test]
fn tickets_of_two_calls() {
    check(Some(2), || {
        let pool = warm_pool(0);
        let (first, alarm) = deadline();
        let clock = thread::spawn(move || alarm.go_off());
        let one = do_until(&pool, || 1, &first);
        match pool.do_with_deadline(|| 2, Duration::MAX) {
            Ok(two) => assert_eq!(two, 2),
            Err(e) => {
                let busy = matches!(one, Err(DeadlineError::TimedOut));
                assert!(busy, "{e}");
            }
        }
        clock.join().unwrap();
        end(&pool);
    });
}
