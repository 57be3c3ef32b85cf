//! Law 10: dropping a pool never waits for abandoned tasks. Law 17: how long a worker has been
//! abandoned.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{Pool, Shutdown, WhenFull};

fn is_waiting(ended: &mpsc::Receiver<()>) -> bool {
    ended.recv_timeout(ms(50)) == Err(mpsc::RecvTimeoutError::Timeout)
}

/// Why a task is abandoned: its caller leaves, its group or its handle cancels it, its handle is dropped, its deadline or
/// its run limit passes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cause {
    Caller,
    Group,
    Handle,
    Dropped,
    Deadline,
    RunLimit,
}

impl Cause {
    /// Serves a task that waits at the gate. Returns the action that abandons the task. The action
    /// does nothing if a deadline or a run limit abandons the task. Both pass after a second, which
    /// is enough to start a thread on a busy machine.
    fn serve(self, pool: &Pool, gate: &Gate) -> Box<dyn FnOnce()> {
        let group = match self {
            Self::Caller => {
                is_timed_out(pool.do_with_deadline(gate.task(), ms(1000)));
                return Box::new(|| ());
            }
            Self::Deadline => pool.with_deadline(ms(1000)).group(),
            Self::RunLimit => pool.run_limit(ms(1000)).group(),
            Self::Group | Self::Handle | Self::Dropped => pool.group(),
        };
        let handle = must_await(group.awaitable(), gate.task());
        Box::new(move || match self {
            Self::Dropped => drop(handle),
            Self::Handle => {
                handle.cancel();
                handle.detach();
            }
            _ => {
                handle.detach();
                if self == Self::Group {
                    group.cancel();
                }
            }
        })
    }

    /// Serves such a task and waits until it is abandoned.
    fn abandon(self, pool: &Pool, gate: &Gate) {
        let abandons = self.serve(pool, gate);
        gate.wait_entered(1);
        abandons();
        wait_until("an abandoned task", || pool.stats().abandoned == 1);
    }
}

/// Each of the causes counts in `Stats::abandoned`, and a drop does not wait. `abandoned_for` is
/// the time since the task's deadline passed, and `None` if no deadline did.
#[test]
fn law10_law17_what_abandons_a_task() {
    use Cause::{Caller, Deadline, Dropped, Group, Handle, RunLimit};
    let causes = [Caller, Group, Handle, Dropped, Deadline, RunLimit];
    timed_each(causes, |cause| {
        let (gate, pool, start) = (Gate::new(), pool(2, 2), Instant::now());
        cause.abandon(&pool, &gate);
        assert_stats!(pool.stats(), abandoned: 1, running: 1);
        let abandoned_for = || {
            let abandoned = pool.workers().into_iter().filter(|w| w.abandoned);
            let all = Vec::from_iter(abandoned.map(|w| w.abandoned_for));
            assert_eq!(all.len(), 1);
            all[0]
        };
        if matches!(cause, Group | Handle | Dropped) {
            assert_eq!(abandoned_for(), None);
        } else {
            let first = abandoned_for().expect("the deadline has passed");
            thread::sleep(ms(20));
            let second = abandoned_for().expect("the deadline has passed");
            assert!(second >= first + ms(20), "{first:?}, {second:?}");
            let since = start.elapsed() - ms(1000);
            assert!(second <= since, "{second:?}");
        }
        let start = Instant::now();
        drop(pool);
        assert!(start.elapsed() < LIMIT);
    });
}

/// A drop after a shutdown that reported stragglers does not wait again, even if the pool was told
/// to wait on drop and the task is not abandoned.
#[test]
fn law10_a_drop_after_a_shutdown_that_gave_up_does_not_wait_again() {
    use Shutdown::{Cancel, Discard, Drain};
    let cases = [(Drain, Cancel), (Discard, Discard), (Cancel, Drain)];
    timed_each(cases, |(mode, on_drop)| {
        let gate = Gate::new();
        let pool = pool_with(2, 2, |b| b.shutdown_on_drop(on_drop, Duration::MAX));
        occupy(&pool, &gate, 1);
        let report = pool.shutdown(mode, ms(1));
        assert_eq!(report.stragglers.len(), 1, "{mode:?}");
        arrives("a drop that does not wait again", &drop_aside(pool));
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
        arrives("the end of the drop", &ended);
    });
}

/// A drop that waits returns as soon as the last task it waits for is abandoned, even if that task
/// starts only during the wait.
#[test]
fn law10_a_drop_that_waits_sees_what_is_abandoned_meanwhile() {
    use Cause::{Deadline, Dropped, Group, Handle, RunLimit};
    let causes = [Deadline, RunLimit, Group, Handle, Dropped];
    timed_each(product(causes, [false, true]), |(cause, later)| {
        let by_itself = matches!(cause, Deadline | RunLimit);
        let never = Gate::new();
        let (pool, first) = held(1);
        if !later {
            first.open();
            settle(&pool);
        }
        let abandons = cause.serve(&pool, &never);
        never.wait_entered(usize::from(!later));
        let ended = drop_aside(pool);
        assert!(is_waiting(&ended) || (by_itself && !later));
        first.open();
        if !by_itself {
            never.wait_entered(1);
            abandons();
        }
        arrives("the end of the drop", &ended);
    });
}

/// Law 17: all that a snapshot of a worker says is of one task.
#[test]
fn law17_a_snapshot_is_of_one_task() {
    const SHORT: Duration = Duration::from_micros(1);
    timed(|| {
        let pool = pool_with(1, 64, |b| b.when_full(WhenFull::Block));
        let done = AtomicBool::new(false);
        thread::scope(|s| {
            s.spawn(|| {
                let late = pool.labeled("late").run_limit(Duration::ZERO);
                while !done.load(Ordering::Relaxed) {
                    pool.labeled("in time").serve(|| spin(SHORT)).unwrap();
                    late.serve(|| spin(SHORT)).unwrap();
                }
            });
            let _done = on_drop(|| done.store(true, Ordering::Relaxed));
            for _ in 0..cut(800_000) {
                for worker in pool.workers() {
                    assert!(worker.abandoned || worker.abandoned_for.is_none());
                    assert!(
                        !worker.abandoned || worker.label != Some("in time"),
                        "{worker:?}"
                    );
                }
            }
        });
    });
}
