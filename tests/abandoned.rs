//! Law 10: dropping a pool never waits for abandoned tasks.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{task, DeadlineError, Pool, Refused, Shutdown};

const MODES: [Shutdown; 3] = [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel];

/// Returns a pool whose drop waits without a limit.
fn pool(max: usize, queue: usize) -> Pool {
    let builder = Pool::builder().max_workers(max).queue_capacity(queue);
    builder.build().expect("pool")
}

fn is_waiting(ended: &mpsc::Receiver<()>) -> bool {
    ended.recv_timeout(ms(50)) == Err(mpsc::RecvTimeoutError::Timeout)
}

/// Law 10: each of the three causes counts in `Stats::abandoned`, and a drop does not wait.
#[test]
fn law10_a_drop_does_not_wait_for_what_was_abandoned_before() {
    timed(|| {
        let gate = Gate::new();
        for cause in 0..3 {
            let pool = pool(2, 2);
            let group = pool.group();
            let before = gate.entered();
            match cause {
                0 => {
                    let outcome = pool.do_with_deadline(gate.task(), ms(1000));
                    assert!(
                        matches!(outcome, Err(DeadlineError::TimedOut)),
                        "{outcome:?}"
                    );
                    gate.wait_entered(before + 1);
                }
                1 => {
                    group
                        .serve(gate.task())
                        .map_err(Refused::without_closure)
                        .unwrap();
                    gate.wait_entered(before + 1);
                    group.cancel();
                }
                _ => {
                    let outcome = pool.with_deadline(ms(1000)).serve(gate.task());
                    outcome.map_err(Refused::without_closure).unwrap();
                    gate.wait_entered(before + 1);
                    wait_until("the deadline", || pool.stats().abandoned == 1);
                }
            }
            let stats = pool.stats();
            assert_eq!(
                (stats.abandoned, stats.running),
                (1, 1),
                "{cause}: {stats:?}"
            );
            let workers = pool.workers();
            assert_eq!(workers.iter().filter(|w| w.abandoned).count(), 1);
            let start = Instant::now();
            drop(pool);
            assert!(start.elapsed() < LIMIT);
        }
    });
}

/// Law 10: a shutdown also waits for abandoned tasks.
#[test]
fn law10_a_shutdown_waits_for_what_was_abandoned() {
    timed(|| {
        let gate = Gate::new();
        let pool = pool(1, 0);
        let group = pool.group();
        must_serve_in(&group, gate.task());
        gate.wait_entered(1);
        group.cancel();
        let report = pool.shutdown(Shutdown::Drain, ms(20));
        assert_eq!(report.stragglers.len(), 1);
        assert!(report.stragglers[0].abandoned);
        gate.open();
        assert!(pool.shutdown(Shutdown::Drain, LONG).is_clean());
    });
}

/// Law 10: a drop after a shutdown that reported stragglers does not wait again, even if the pool
/// was told to wait on drop and the task is not abandoned.
#[test]
fn law10_a_drop_after_a_shutdown_that_gave_up_does_not_wait_again() {
    timed(|| {
        for (mode, then) in MODES.into_iter().zip([0, 1, 2]) {
            let gate = Gate::new();
            let builder = Pool::builder().max_workers(2).queue_capacity(2);
            let pool = builder
                .shutdown_on_drop(MODES[2 - then], Duration::MAX)
                .build()
                .expect("pool");
            must_serve(&pool, gate.task());
            gate.wait_entered(1);
            let report = pool.shutdown(mode, ms(1));
            assert_eq!(report.stragglers.len(), 1, "{mode:?}");
            let ended = drop_aside(pool);
            ended
                .recv_timeout(LIMIT)
                .expect("the drop does not wait again");
            assert_eq!(gate.entered(), 1, "the task is still at the gate");
        }
    });
}

/// Law 10: a drop waits if an earlier shutdown could not wait because a task of the pool called it.
#[test]
fn law10_a_drop_after_a_shutdown_that_did_not_wait_waits() {
    timed(|| {
        let gate = Gate::new();
        let pool = Arc::new(pool(2, 2));
        let (key, its) = (gate.key(), Arc::downgrade(&pool));
        must_serve(&pool, move || {
            let pool = its.upgrade().expect("the pool lives");
            let report = pool.shutdown(Shutdown::Drain, Duration::ZERO);
            assert_eq!(report.stragglers.len(), 1, "itself");
            drop(pool);
            key.pass();
        });
        gate.wait_entered(1);
        let pool = Arc::try_unwrap(pool).expect("the last handle of the pool");
        let ended = drop_aside(pool);
        assert!(is_waiting(&ended));
        gate.open();
        ended.recv_timeout(LIMIT).expect("the drop has returned");
    });
}

/// Law 10: a drop that waits returns as soon as the last task it waits for is abandoned.
#[test]
fn law10_a_drop_that_waits_sees_what_is_abandoned_meanwhile() {
    timed(|| {
        let gate = Gate::new();
        for cause in 0..2 {
            let pool = pool(1, 1);
            let group = pool.group();
            let before = gate.entered();
            match cause {
                0 => {
                    let outcome = pool.with_deadline(ms(1000)).serve(gate.task());
                    outcome.map_err(Refused::without_closure).unwrap();
                    gate.wait_entered(before + 1);
                    let ended = drop_aside(pool);
                    ended
                        .recv_timeout(LIMIT)
                        .expect("the drop returns once the task is late");
                }
                _ => {
                    group
                        .serve(gate.task())
                        .map_err(Refused::without_closure)
                        .unwrap();
                    gate.wait_entered(before + 1);
                    let ended = drop_aside(pool);
                    assert!(is_waiting(&ended));
                    group.cancel();
                    ended
                        .recv_timeout(LIMIT)
                        .expect("the drop returns once the task is cancelled");
                }
            }
        }
    });
}

/// Law 10: a caller that has left drops the last handle of the pool; that drop does not wait.
#[test]
fn law10_a_drop_by_the_caller_that_left() {
    timed(|| {
        let gate = Gate::new();
        let pool = Arc::new(pool(1, 1));
        let (core, task) = (Arc::clone(&pool), gate.task());
        let caller = thread::spawn(move || {
            let outcome = core.do_with_deadline(task, ms(1000));
            matches!(outcome, Err(DeadlineError::TimedOut))
        });
        gate.wait_entered(1);
        drop(pool);
        assert!(caller.join().expect("no panic"));
    });
}

/// Law 10: a drop waits for queued tasks even if the only worker runs an abandoned task and has not
/// yet made sure that another worker looks at the queue.
#[test]
fn law10_a_drop_waits_for_what_an_abandoned_worker_left_queued() {
    timed(|| {
        for _ in 0..rounds(3000) {
            let pool = pool(2, 16);
            pool.do_with_deadline(|| (), LONG).unwrap();
            let group = pool.group();
            must_serve_in(&group, || ());
            let ran = Arc::new(AtomicBool::new(false));
            let its = Arc::clone(&ran);
            must_serve(&pool, move || its.store(true, Ordering::SeqCst));
            group.cancel();
            drop(pool);
            assert!(ran.load(Ordering::SeqCst));
        }
    });
}

/// Law 10: beside abandoned tasks, a drop waits for the tasks that are not abandoned, queued ones
/// included.
#[test]
fn law10_a_drop_waits_for_the_others() {
    timed(|| {
        let (never, gate) = (Gate::new(), Gate::new());
        let pool = pool(2, 4);
        let outcome = pool.do_with_deadline(never.task(), ms(1000));
        assert!(
            matches!(outcome, Err(DeadlineError::TimedOut)),
            "{outcome:?}"
        );
        must_serve(&pool, gate.task());
        let (tell, told) = mpsc::channel();
        must_serve(&pool, move || tell.send(()).unwrap_or(()));
        let ended = drop_aside(pool);
        assert!(is_waiting(&ended));
        gate.open();
        ended
            .recv_timeout(LIMIT)
            .expect("the drop returns once the other tasks have ended");
        assert!(told.try_recv().is_ok(), "the queued task has run");
    });
}

/// Law 10: a drop that waits respects the deadline of a task that starts only during the wait.
#[test]
fn law10_a_drop_knows_of_deadlines_that_begin_later() {
    timed(|| {
        let (first, never) = (Gate::new(), Gate::new());
        let pool = pool(1, 4);
        must_serve(&pool, first.task());
        first.wait_entered(1);
        let late = pool.with_deadline(ms(400)).serve(never.task());
        late.map_err(Refused::without_closure).unwrap();
        let ended = drop_aside(pool);
        assert!(is_waiting(&ended));
        first.open();
        ended
            .recv_timeout(LIMIT)
            .expect("at the deadline, or at once");
    });
}

/// Law 10: the group of a task is cancelled while the task is being handed to a worker.
#[test]
fn law10_cancelled_on_the_way() {
    timed(|| {
        let gate = Gate::new();
        // Each drop may take 50 ms to notice that the task is abandoned.
        for round in 0..rounds(90) {
            let pool = pool(1, usize::from(round % 2 == 0));
            let group = pool.group();
            let key = gate.key();
            let task = move || {
                assert!(task::slot().is_some());
                key.pass();
            };
            group.serve(task).map_err(Refused::without_closure).unwrap();
            if round % 3 == 0 {
                thread::yield_now();
            }
            group.cancel();
            let start = Instant::now();
            drop(pool);
            assert!(start.elapsed() < LIMIT);
        }
    });
}

/// A `CancelGuard` cancels its group when it is dropped, unless it has been disarmed.
#[test]
fn a_guard_cancels_its_group() {
    timed(|| {
        let pool = pool(1, 2);
        let group = pool.group();
        group.drop_guard().disarm();
        assert!(!group.is_cancelled());
        let guard = group.drop_guard();
        let first = Gate::new();
        let task = first.task();
        group
            .serve(move || {
                task();
                assert!(task::is_cancelled());
            })
            .unwrap();
        group
            .serve(|| unreachable!("the task is queued behind the first"))
            .unwrap();
        drop(guard);
        assert!(group.is_cancelled());
        first.open();
        group.wait();
        assert_eq!((group.completed(), group.discarded()), (1, 1));
        let refused = group.serve(|| ()).expect_err("cancelled");
        assert!(matches!(refused.reason(), lazypool::Refusal::Cancelled));
    });
}

/// Law 17: `abandoned_for` is the time since the task's deadline passed, for each of the ways to
/// set one. It is `None` if no deadline passed.
#[test]
fn law17_how_long_a_worker_has_been_abandoned() {
    timed(|| {
        let gate = Gate::new();
        for cause in 0..3 {
            let pool = pool(1, 2);
            let before = gate.entered();
            let start = Instant::now();
            let d = ms(1000); // enough to start a thread on a busy machine
            let outcome = match cause {
                0 => {
                    let called = pool.do_with_deadline(gate.task(), d);
                    assert!(matches!(called, Err(DeadlineError::TimedOut)), "{called:?}");
                    Ok(())
                }
                1 => pool.with_deadline(d).serve(gate.task()),
                _ => pool.run_limit(d).serve(gate.task()),
            };
            outcome.map_err(Refused::without_closure).expect("room");
            gate.wait_entered(before + 1);
            let worker = || pool.workers().remove(0);
            wait_until("the deadline", || worker().abandoned);
            let first = worker().abandoned_for.expect("the deadline has passed");
            thread::sleep(ms(20));
            let second = worker().abandoned_for.expect("the deadline has passed");
            assert!(second >= first + ms(20), "{cause}: {first:?}, {second:?}");
            assert!(second + d <= start.elapsed(), "{cause}: {second:?}");
        }
        // A cancelled group abandons its task without a deadline.
        let pool = pool(1, 0);
        let group = pool.group();
        let before = gate.entered();
        let served = group.serve(gate.task()).map_err(Refused::without_closure);
        served.expect("room");
        gate.wait_entered(before + 1);
        let worker = pool.workers().remove(0);
        assert_eq!((worker.abandoned, worker.abandoned_for), (false, None));
        group.cancel();
        let worker = pool.workers().remove(0);
        assert_eq!((worker.abandoned, worker.abandoned_for), (true, None));
        gate.open();
        settle(&pool);
        assert_eq!(pool.workers()[0].abandoned_for, None);
    });
}
