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

/// A deadline that passes in the queue returns `Expired`, never before the deadline.
#[test]
fn law03_expires_in_the_queue() {
    timed(|| {
        let pool = pool(2, 3);
        let _gate = hold(&pool, 2);
        for d in [Duration::from_micros(1), ms(1), ms(30), ms(120)] {
            let back = takes(d, || expired(pool.do_with_deadline(|| 7, d)));
            assert_eq!(back.run(), 7);
        }
    });
}

/// One deadline covers the wait for room, the queue and the run. Its clock starts at the call, and
/// the caller is released at the deadline although its closure still runs.
#[test]
fn law03_one_deadline_from_the_call_to_the_end() {
    timed_each([(0, LIMIT), (1, LIMIT), (1, ms(700))], |(queue, d)| {
        let pool = pool_with(1, queue, |b| b.when_full(WhenFull::Block));
        let (first, second) = (Gate::new(), Gate::new());
        let (tell, told) = mpsc::channel();
        occupy(&pool, &first, 1);
        (0..queue).for_each(|_| must_serve(&pool, || ()));
        thread::scope(|s| {
            let _openers = (first.opener(), second.opener());
            let (pool, key) = (&pool, second.key());
            let call = s.spawn(move || {
                let task = move || {
                    tell.send(task::deadline().expect("a deadline")).unwrap();
                    key.pass();
                };
                let start = Instant::now();
                (start, pool.do_with_deadline(task, d), start.elapsed())
            });
            wait_in_line(pool, 1);
            let waits = Instant::now();
            thread::sleep(ms(50));
            first.open();
            if d == LIMIT {
                second.wait_entered(1);
                second.open();
            }
            let (start, outcome, took) = call.join().unwrap();
            match outcome {
                Ok(()) => assert_eq!(d, LIMIT),
                Err(DeadlineError::TimedOut | DeadlineError::Expired(_)) => {
                    assert!(took >= d && d < LIMIT, "{took:?}");
                }
                Err(other) => panic!("{other:?}"),
            }
            if let Ok(deadline) = told.try_recv() {
                assert!(deadline >= start + d, "earlier than the call's deadline");
                assert!(deadline <= waits + d, "the clock started after the call");
            }
            assert_eq!(second.is_open(), d == LIMIT);
        });
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
        zero(&pool); // room in the queue
        must_serve(&pool, || ());
        zero(&pool); // no room
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

/// `Duration::MAX`, and any deadline beyond the clock's range, waits for as long as the task takes.
#[test]
fn law03_far_deadlines_wait() {
    timed_each([0, 1], |queue| {
        let pool = pool(1, queue);
        for d in [
            Duration::MAX,
            Duration::MAX - Duration::from_nanos(1),
            Duration::from_secs(u64::MAX / 2),
            Duration::from_secs(i64::MAX as u64),
            Duration::from_secs(1 << 40),
        ] {
            let gate = Gate::new();
            thread::scope(|s| {
                let call = s.spawn(|| pool.do_with_deadline(gate.task(), d));
                let _opener = gate.opener();
                gate.wait_entered(1);
                thread::sleep(ms(10));
                assert!(!call.is_finished(), "a call with {d:?} did not wait");
                gate.open();
                call.join().unwrap().unwrap();
            });
        }
    });
}

/// `task::deadline()` is `None` under `serve` and with `Duration::MAX`. Otherwise it is the
/// caller's deadline: never earlier than by the caller's clock, and the moment that `remaining`
/// counts down to.
#[test]
fn law03_what_a_task_sees_of_its_deadline() {
    timed_each([0, 4], |queue| {
        let pool = pool(2, queue);
        let look = || (task::deadline(), task::remaining(), task::is_cancelled());
        // Some of these tasks run after one that had a deadline; nothing of it remains.
        for d in [Duration::MAX, LONG, Duration::MAX, ms(5000), Duration::MAX] {
            let (tx, rx) = mpsc::channel();
            must_serve(&pool, move || tx.send(look()).unwrap());
            assert_eq!(rx.recv().unwrap(), (None, None, false));
            settle(&pool);
            let start = Instant::now();
            let (deadline, remaining, cancelled) = pool.do_with_deadline(look, d).unwrap();
            let end = Instant::now();
            assert!(!cancelled);
            if d == Duration::MAX {
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
    timed_each(product([0, 2], [true, false]), |(queue, asks_early)| {
        let pool = pool(1, queue);
        let (tx, rx) = mpsc::channel();
        let looks = || {
            let tx = tx.clone();
            move || {
                let look = || (task::is_cancelled(), Instant::now(), task::deadline());
                let early = asks_early.then(look);
                wait_until("the caller to leave", task::is_cancelled);
                let seen = (early, task::deadline(), task::remaining());
                tx.send(seen).unwrap();
            }
        };
        let (mut start, mut outcome) = (Instant::now(), pool.do_with_deadline(looks(), ms(60)));
        // The machine may be too busy to start the task in time.
        while matches!(outcome, Err(DeadlineError::Expired(_))) {
            settle(&pool);
            (start, outcome) = (Instant::now(), pool.do_with_deadline(looks(), ms(60)));
        }
        let end = Instant::now();
        is_timed_out(outcome);
        drop(tx);
        let (early, deadline, remaining) = rx.recv().expect("the task ran to its end");
        if let Some((was_cancelled, at, early_deadline)) = early {
            assert_eq!(early_deadline, deadline);
            assert!(!was_cancelled || Some(at) >= deadline);
        }
        let deadline = deadline.expect("a deadline");
        assert!(start + ms(60) <= deadline && deadline <= end);
        assert_eq!(remaining, Some(Duration::ZERO));
        settle(&pool);
        assert!(!pool.do_with_deadline(task::is_cancelled, LONG).unwrap());
    });
}

/// A caller that left is counted, and its worker is shown as abandoned while the task runs. The
/// task's result is dropped once.
#[test]
fn law03_the_result_of_an_abandoned_task_is_dropped() {
    timed(|| {
        let pool = pool(2, 0);
        let (drops, gate) = (Tally::default(), Gate::new());
        let value = on_drop(drops.task());
        is_timed_out(pool.do_with_deadline(after(&gate, move || value), ms(1000)));
        assert_stats!(pool.stats(), timed_out: 1, running: 1, completed: 0);
        let workers = pool.workers();
        assert_eq!(workers.len(), 1);
        assert!(workers[0].busy && workers[0].abandoned, "{workers:?}");
        assert_eq!(drops.get(), 0);
        gate.open();
        let s = at_rest(&pool);
        assert_eq!(drops.get(), 1, "dropped before it is counted");
        assert_stats!(s, timed_out: 1, completed: 1, expired: 0);
        let workers = pool.workers();
        assert!(!workers[0].busy && !workers[0].abandoned, "{workers:?}");
        assert_eq!(workers[0].abandoned_for, None);
    });
}
