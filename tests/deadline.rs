//! Law 3 (deadline). `stress.rs` compares the outcomes of many racing calls with the pool's counts.

mod common;

use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{task, DeadlineError, Pool, Shutdown, WhenFull};

/// The call returns `TimedOut` at its deadline, never before it, although the closure still runs.
#[test]
fn law03_times_out_while_the_closure_runs() {
    timed_each([0, 2], |queue| {
        let pool = pool(1, queue);
        for d in [Duration::from_micros(300), ms(1), ms(20), ms(150)] {
            let gate = Gate::new();
            let outcome = takes(d, || pool.do_with_deadline(gate.task(), d));
            // The gate is shut, so the closure cannot have ended.
            match outcome {
                Err(DeadlineError::TimedOut) => gate.wait_entered(1),
                // The worker did not get a CPU before the deadline.
                Err(DeadlineError::Expired(_)) if gate.entered() == 0 => {}
                other => panic!("{other:?}"),
            }
            gate.open();
            settle(&pool);
        }
    });
}

/// One deadline covers the wait for space, the queue and the run. Its clock starts at the call.
#[test]
fn law03_one_deadline_from_the_call_to_the_end() {
    timed_each([0, 1], |queue| {
        let pool = Arc::new(pool_with(1, queue, |b| b.when_full(WhenFull::Block)));
        let gate = filled(&pool);
        let call = beside(&pool, |pool| {
            let start = Instant::now();
            (start, pool.do_with_deadline(task::deadline, LONG).unwrap())
        });
        wait_in_line(&pool, 1);
        let waits = Instant::now();
        thread::sleep(ms(50));
        gate.open();
        let (start, deadline) = call.join().unwrap();
        let deadline = deadline.expect("a deadline");
        assert!(deadline >= start + LONG, "earlier than the call's deadline");
        assert!(deadline <= waits + LONG, "the clock started after the call");
    });
}

/// A deadline of zero returns `Expired` at once. The call does not look at the pool and is counted
/// nowhere.
#[test]
fn law03_a_zero_deadline_looks_at_nothing() {
    fn zero(pool: &Pool) {
        let before = pool.stats();
        for on in [pool.labeled("zero"), pool.when_full(WhenFull::Block)] {
            assert_eq!(expired(on.do_with_deadline(|| 5, Duration::ZERO)).run(), 5);
        }
        is_expired(pool.do_with_deadline(|| (), Duration::ZERO));
        assert_eq!(pool.stats(), before, "counted somewhere");
    }
    timed_each([WhenFull::Refuse, WhenFull::Block], |policy| {
        let pool = Arc::new(pool_with(1, 1, |b| b.when_full(policy)));
        zero(&pool); // no worker yet
        on_worker(&pool, |_| ());
        zero(&pool); // an idle worker
        let gate = hold(&pool, 1);
        zero(&pool); // space in the queue
        must_serve(&pool, || ());
        zero(&pool); // no space
        gate.open();
        settle(&pool);
        on_worker(&pool, |pool| {
            is_expired(pool.do_with_deadline(|| (), Duration::ZERO));
        });
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        zero(&pool); // closed
    });
    // The result is the same if the system has no thread to give.
    #[cfg(target_os = "linux")]
    zero(&pool_with(1, 0, |b| b.stack_size(IMPOSSIBLE_STACK)));
}

/// `task::deadline()` is `None` under `serve`, with `Duration::MAX`, and with any deadline beyond
/// the clock's range. Otherwise it is the
/// caller's deadline: never earlier than by the caller's clock, and the moment that `remaining`
/// counts down to.
#[test]
fn law03_what_a_task_sees_of_its_deadline() {
    timed_each([0, 4], |queue| {
        let pool = pool(2, queue);
        let look = || (task::deadline(), task::remaining(), task::is_cancelled());
        // Some of these tasks run after one that had a deadline; nothing of it remains.
        for d in [
            Duration::MAX,
            LONG,
            Duration::MAX - Duration::from_nanos(1),
            ms(5000),
            Duration::from_secs(i64::MAX as u64),
            Duration::from_secs(1 << 40),
        ] {
            let (tx, rx) = mpsc::channel();
            must_serve(&pool, move || tx.send(look()).unwrap());
            assert_eq!(rx.recv().unwrap(), (None, None, false));
            settle(&pool);
            let start = Instant::now();
            let (deadline, remaining, cancelled) = pool.do_with_deadline(look, d).unwrap();
            let end = Instant::now();
            assert!(!cancelled);
            if d > LONG {
                assert_eq!((deadline, remaining), (None, None));
            } else {
                let deadline = deadline.expect("a deadline");
                let remaining = remaining.expect("time left");
                assert!(deadline >= start + d && deadline <= end + d);
                assert!(remaining <= d && remaining >= deadline - end);
            }
        }
    });
}

/// A task sees that its caller has left: `is_cancelled` becomes true, never before the deadline,
/// and `remaining` stays at zero. The deadline is still that of the caller, even if the task asks
/// for it only then. The next task on that worker sees nothing of it.
#[test]
fn law03_a_task_sees_that_its_caller_left() {
    timed_each([0, 2], |queue| {
        let pool = pool(1, queue);
        let (tx, rx) = mpsc::channel();
        let call = || {
            let (tx, start) = (tx.clone(), Instant::now());
            let look = move || {
                wait_until("the caller to leave", task::is_cancelled);
                let left = Instant::now();
                tx.send((left, task::deadline(), task::remaining()))
            };
            (start, pool.do_with_deadline(look, ms(60)))
        };
        let (mut start, mut outcome) = call();
        // The machine may be too busy to start the task in time.
        while matches!(outcome, Err(DeadlineError::Expired(_))) {
            settle(&pool);
            (start, outcome) = call();
        }
        let end = Instant::now();
        is_timed_out(outcome);
        let (left, deadline, remaining) = arrives("the end of the task", &rx);
        let deadline = deadline.expect("a deadline");
        assert!(start + ms(60) <= deadline && deadline <= end && deadline <= left);
        assert_eq!(remaining, Some(Duration::ZERO));
        settle(&pool);
        assert!(!pool.do_with_deadline(task::is_cancelled, LONG).unwrap());
    });
}
