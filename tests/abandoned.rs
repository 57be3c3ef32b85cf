//! Law 10: dropping a pool never waits for abandoned tasks. Law 17: how long a worker has been
//! abandoned.

mod common;

use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{Group, Pool, Shutdown};

fn is_waiting(ended: &mpsc::Receiver<()>) -> bool {
    ended.recv_timeout(ms(50)) == Err(mpsc::RecvTimeoutError::Timeout)
}

/// Why a task is abandoned: its caller leaves, its group is cancelled, its deadline or its run limit
/// passes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cause {
    Caller,
    Group,
    Deadline,
    RunLimit,
}

impl Cause {
    const ALL: [Self; 4] = [Self::Caller, Self::Group, Self::Deadline, Self::RunLimit];

    /// Serves a task that waits at the gate and is abandoned later, unless its caller has left it.
    /// Only the group must be cancelled; the deadlines pass after a second, enough to start a thread
    /// on a busy machine.
    fn serve(self, pool: &Pool, gate: &Gate) -> Group {
        let before = gate.entered();
        let mut group = pool.group();
        match self {
            Self::Caller => {
                is_timed_out(pool.do_with_deadline(gate.task(), ms(1000)));
                return group;
            }
            Self::Group => {}
            Self::Deadline => group = pool.with_deadline(ms(1000)).group(),
            Self::RunLimit => group = pool.run_limit(ms(1000)).group(),
        }
        must_serve_in(&group, gate.task());
        gate.wait_entered(before + 1);
        group
    }

    /// Serves such a task and waits until it is abandoned.
    fn abandon(self, pool: &Pool, gate: &Gate) {
        let group = self.serve(pool, gate);
        if self == Self::Group {
            group.cancel();
        }
        wait_until("an abandoned task", || pool.stats().abandoned == 1);
    }
}

/// Each of the causes counts in `Stats::abandoned`, and a drop does not wait.
#[test]
fn law10_a_drop_does_not_wait_for_what_was_abandoned_before() {
    timed(|| {
        let gate = Gate::new();
        for cause in Cause::ALL {
            let pool = pool(2, 2);
            cause.abandon(&pool, &gate);
            let stats = pool.stats();
            assert_eq!(
                (stats.abandoned, stats.running),
                (1, 1),
                "{cause:?}: {stats:?}"
            );
            assert_eq!(pool.workers().iter().filter(|w| w.abandoned).count(), 1);
            let start = Instant::now();
            drop(pool);
            assert!(start.elapsed() < LIMIT);
        }
    });
}

/// A shutdown also waits for abandoned tasks.
#[test]
fn law10_a_shutdown_waits_for_what_was_abandoned() {
    timed(|| {
        let pool = pool(1, 0);
        let gate = Gate::new();
        Cause::Group.abandon(&pool, &gate);
        let report = pool.shutdown(Shutdown::Drain, ms(20));
        assert_eq!(report.stragglers.len(), 1);
        assert!(report.stragglers[0].abandoned);
        gate.open();
        assert!(pool.shutdown(Shutdown::Drain, LONG).is_clean());
    });
}

/// A drop after a shutdown that reported stragglers does not wait again, even if the pool was told
/// to wait on drop and the task is not abandoned.
#[test]
fn law10_a_drop_after_a_shutdown_that_gave_up_does_not_wait_again() {
    use Shutdown::{Cancel, Discard, Drain};
    timed(|| {
        for (mode, on_drop) in [(Drain, Cancel), (Discard, Discard), (Cancel, Drain)] {
            let gate = Gate::new();
            let pool = pool_with(2, 2, |b| b.shutdown_on_drop(on_drop, Duration::MAX));
            occupy(&pool, &gate, 1);
            let report = pool.shutdown(mode, ms(1));
            assert_eq!(report.stragglers.len(), 1, "{mode:?}");
            let ended = drop_aside(pool);
            ended
                .recv_timeout(LIMIT)
                .expect("the drop does not wait again");
        }
    });
}

/// A drop waits if an earlier shutdown could not wait because a task of the pool called it.
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
        let ended = drop_aside(Arc::try_unwrap(pool).expect("the last handle of the pool"));
        assert!(is_waiting(&ended));
        gate.open();
        ended.recv_timeout(LIMIT).expect("the drop has returned");
    });
}

/// A drop that waits returns as soon as the last task it waits for is abandoned.
#[test]
fn law10_a_drop_that_waits_sees_what_is_abandoned_meanwhile() {
    timed(|| {
        let gate = Gate::new();
        for cause in [Cause::Deadline, Cause::RunLimit, Cause::Group] {
            let pool = pool(1, 1);
            let group = cause.serve(&pool, &gate);
            let ended = drop_aside(pool);
            if cause == Cause::Group {
                assert!(is_waiting(&ended));
                group.cancel();
            }
            ended.recv_timeout(LIMIT).expect("the task is abandoned");
        }
    });
}

/// A caller that has left drops the last handle of the pool; that drop does not wait.
#[test]
fn law10_a_drop_by_the_caller_that_left() {
    timed(|| {
        let gate = Gate::new();
        let pool = Arc::new(pool(1, 1));
        let (core, task) = (Arc::clone(&pool), gate.task());
        let caller = thread::spawn(move || is_timed_out(core.do_with_deadline(task, ms(1000))));
        gate.wait_entered(1);
        drop(pool);
        caller.join().expect("no panic");
    });
}

/// Beside abandoned tasks, a drop waits for the tasks that are not abandoned, queued ones included.
#[test]
fn law10_a_drop_waits_for_the_others() {
    timed(|| {
        let (never, gate) = (Gate::new(), Gate::new());
        let (pool, ran) = (pool(2, 4), Tally::default());
        Cause::Group.abandon(&pool, &never);
        must_serve(&pool, gate.task());
        must_serve(&pool, ran.task());
        let ended = drop_aside(pool);
        assert!(is_waiting(&ended));
        gate.open();
        ended
            .recv_timeout(LIMIT)
            .expect("the other tasks have ended");
        assert_eq!(ran.get(), 1, "the queued task has run");
    });
}

/// A drop waits for queued tasks even if the only worker runs an abandoned task and has not yet made
/// sure that another worker looks at the queue.
#[test]
fn law10_a_drop_waits_for_what_an_abandoned_worker_left_queued() {
    timed(|| {
        for _ in 0..rounds(1000) {
            let pool = pool(2, 16);
            pool.do_with_deadline(|| (), LONG).unwrap();
            let (group, ran) = (pool.group(), Tally::default());
            must_serve_in(&group, || ());
            must_serve(&pool, ran.task());
            group.cancel();
            drop(pool);
            assert_eq!(ran.get(), 1);
        }
    });
}

/// A drop that waits respects the deadline of a task that starts only during the wait.
#[test]
fn law10_a_drop_knows_of_deadlines_that_begin_later() {
    timed(|| {
        let never = Gate::new();
        let (pool, first) = held(4);
        must_serve_in(&pool.with_deadline(ms(400)).group(), never.task());
        let ended = drop_aside(pool);
        assert!(is_waiting(&ended));
        first.open();
        ended
            .recv_timeout(LIMIT)
            .expect("at the deadline, or at once");
    });
}

/// `abandoned_for` is the time since the task's deadline passed, for each of the ways to set one.
/// It is `None` if no deadline passed.
#[test]
fn law17_how_long_a_worker_has_been_abandoned() {
    timed(|| {
        for cause in Cause::ALL {
            let pool = pool(1, 2);
            let (gate, start) = (Gate::new(), Instant::now());
            cause.abandon(&pool, &gate);
            let abandoned_for = || {
                let worker = pool.workers().remove(0);
                assert!(worker.abandoned);
                worker.abandoned_for
            };
            if cause == Cause::Group {
                assert_eq!(abandoned_for(), None);
            } else {
                let first = abandoned_for().expect("the deadline has passed");
                thread::sleep(ms(20));
                let second = abandoned_for().expect("the deadline has passed");
                assert!(second >= first + ms(20), "{cause:?}: {first:?}, {second:?}");
                assert!(
                    second + ms(1000) <= start.elapsed(),
                    "{cause:?}: {second:?}"
                );
            }
            gate.open();
            settle(&pool);
            assert_eq!(pool.workers()[0].abandoned_for, None);
        }
    });
}
