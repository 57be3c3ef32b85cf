//! Submitters that wait for room (`room.rs`).
#![cfg(lazypool_loom)]

use lazypool::model::{deadline, do_until};
use lazypool::{DeadlineError, Pool, Shutdown, WhenFull};
use loom::sync::mpsc;
use loom::thread;
use loom_tests::{check, end, quietly, two_serve, Ran};
use std::sync::Arc;
use std::time::Duration;

fn blocking_pool() -> Pool {
    quietly(|| {
        let pool = Pool::builder()
            .max_workers(1)
            .when_full(WhenFull::Block)
            .idle_timeout(Duration::MAX)
            .build()
            .unwrap();
        assert!(pool.do_with_deadline(|| (), Duration::MAX).is_ok());
        pool
    })
}

/// Two submitters, one worker: whoever comes second waits until it is free.
/// Excludes: a submitter that sleeps although there is room. Preemptions: 2.
#[test]
fn blocked_against_room() {
    check(Some(2), || {
        two_serve(blocking_pool());
    });
}

/// A blocked submitter and a shutdown from within the task it waits for.
/// Excludes: a submitter that sleeps on although the pool has closed; one that
/// is accepted by it and lost. Preemptions: 3.
#[test]
fn blocked_against_shutdown() {
    check(Some(3), || {
        let pool = Arc::new(blocking_pool());
        let ran = Ran::new();
        let closer = Arc::clone(&pool);
        let close = move || drop(closer.shutdown(Shutdown::Drain, Duration::MAX));
        assert!(pool.serve(close).is_ok());
        let accepted = match pool.serve(ran.task()) {
            Ok(()) => 1,
            Err(back) => {
                assert!(back.is_closed());
                0
            }
        };
        end(&pool);
        assert_eq!((ran.times(), ran.alive()), (accepted, 0));
    });
}

/// The same, where that task ends only once the submitter has been told. Excludes: a
/// shutdown that leaves it to the end of a task to tell. Preemptions: 3.
#[test]
fn blocked_beside_shutdown() {
    check(Some(3), || {
        let pool = Arc::new(blocking_pool());
        let closer = Arc::clone(&pool);
        let (open, gate) = mpsc::channel();
        let close = move || {
            let _ = closer.shutdown(Shutdown::Drain, Duration::MAX);
            gate.recv().unwrap();
        };
        assert!(pool.serve(close).is_ok());
        assert!(pool.serve(|| ()).is_err_and(|back| back.is_closed()));
        open.send(()).unwrap();
        end(&pool);
    });
}

/// Two blocked submitters, one of which leaves at its deadline: the room it was
/// called for, if any, is the other's. Excludes: a call for room that is lost
/// with the one who was called. Four threads; preemptions: 1.
#[test]
fn room_is_passed_on() {
    check(Some(1), || {
        let pool = Arc::new(blocking_pool());
        assert!(pool.serve(|| ()).is_ok());
        let other = thread::spawn({
            let pool = Arc::clone(&pool);
            move || assert!(pool.serve(|| ()).is_ok())
        });
        let (deadline, alarm) = deadline();
        let clock = thread::spawn(move || alarm.go_off());
        let mine = do_until(&pool, || (), &deadline);
        assert!(!matches!(mine, Err(DeadlineError::Refused(_))));
        other.join().unwrap();
        clock.join().unwrap();
        end(&pool);
    });
}
