//! Threads that the OS refuses, and workers that begin with a start hook.
#![cfg(lazypool_loom)]

use lazypool::model::{do_until, refuse_threads};
use lazypool::{DeadlineError, Pool, Refusal, Shutdown};
use loom::sync::mpsc;
use loom::thread;
use loom_tests::{
    at_any_moment, beside, call, check, cleaner, end, hook, one_waits_for_the_next, pool,
    pool_with, quietly, warm, warm_with, Ran,
};
use std::sync::Arc;
use std::time::Duration;

/// Makes a call that runs, or is refused because the OS refused a thread. Returns `true` if it ran.
fn may_run(pool: &Pool) -> bool {
    match pool.do_with_deadline(|| (), Duration::MAX) {
        Ok(()) => true,
        Err(DeadlineError::Refused(back)) => {
            assert!(matches!(back.reason(), Refusal::SpawnFailed(_)));
            false
        }
        Err(other) => panic!("{other}"),
    }
}

/// Two tasks, one after the other, come to a pool without threads that may have three workers and a
/// queue. Each task waits until both run. Excludes: a new worker that counts as awake although it
/// has a task: a submission would rely on it, and then the submission and the worker would each ask
/// for a thread. Preemptions: 4.
#[test]
fn two_threads_for_two_tasks() {
    check(Some(4), || {
        let pool = pool(3, 2);
        let (first, one) = mpsc::channel();
        let (second, two) = mpsc::channel();
        assert!(pool.serve(move || one.recv().unwrap()).is_ok());
        assert!(pool.serve(move || two.recv().unwrap()).is_ok());
        while pool.stats().running < 2 {
            thread::yield_now();
        }
        assert_eq!(pool.stats().spawned, 2);
        first.send(()).unwrap();
        second.send(()).unwrap();
        end(&pool);
    });
}

/// The cleaner retires the first worker; the OS refuses a thread for a second, and one in place of
/// the first. A task is handed to the first worker or queued for it, so it must look at the queue
/// before it ends. Excludes: a task queued after the worker's last look. Preemptions: 3.
#[test]
fn no_thread_against_retirement() {
    check(Some(3), || {
        let pool = Arc::new(warm(2, 1));
        refuse_threads(2);
        let cleaner = cleaner(&pool);
        may_run(&pool);
        cleaner.join().unwrap();
        refuse_threads(0);
        end(&pool);
    });
}

/// One task runs and one is queued. A raised limit asks for a thread, which the OS refuses, and a
/// push that comes meanwhile relies on that thread. Excludes: a failed start after which the
/// starting thread does not look again: the pushed task would stay queued beside an idle worker.
/// Preemptions: 3.
#[test]
fn no_thread_against_a_push_that_relies_on_it() {
    check(Some(3), || {
        let (open, gate) = mpsc::channel();
        let pool = Arc::new(quietly(|| {
            let pool = pool(2, 2);
            assert!(pool.serve(move || gate.recv().unwrap()).is_ok());
            while pool.stats().running == 0 {
                thread::yield_now();
            }
            pool.set_limit(1).unwrap();
            refuse_threads(3);
            assert!(pool.serve(|| ()).is_ok(), "space");
            pool
        }));
        let other = beside(&pool, move |pool| {
            let (ran, done) = mpsc::channel();
            open.send(()).unwrap();
            assert!(pool.serve(move || ran.send(()).unwrap()).is_ok());
            done.recv().unwrap();
        });
        pool.set_limit(2).unwrap();
        other.join().unwrap();
        refuse_threads(0);
        end(&pool);
    });
}

/// The only worker is in its stop hook while a task is queued, and the OS refuses threads once it
/// has ended. Excludes: a task that was queued during the hook and is left to a thread that cannot
/// be started. Preemptions: 2.
#[test]
fn no_thread_after_the_stop_hook() {
    check(Some(2), || {
        let pool = Arc::new(warm_with(1, 1, |b| b.on_worker_stop(hook())));
        refuse_threads(1);
        let cleaner = cleaner(&pool);
        may_run(&pool);
        cleaner.join().unwrap();
        refuse_threads(0);
        end(&pool);
    });
}

fn hooked(max: usize, min: usize, queue: usize) -> Pool {
    pool_with(max, queue, |b| b.min_workers(min).on_worker_start(hook()))
}

/// Workers that `build` starts, with or without a hook, are idle when it returns. Excludes: a
/// worker that no submission finds; a refusal; a further thread. Preemptions: 2.
#[test]
fn law05_built_workers_are_idle() {
    for has_hook in [false, true] {
        check(Some(2), move || {
            let pool = if has_hook {
                hooked(2, 2, 0)
            } else {
                pool_with(2, 0, |b| b.min_workers(2).idle_timeout(Duration::MAX))
            };
            assert_eq!(pool.stats().idle, 2);
            assert!(pool.serve(|| ()).is_ok());
            assert!(pool.serve(|| ()).is_ok());
            assert_eq!(pool.stats().spawned, 2);
            end(&pool);
        });
    }
}

/// A worker in its start hook has a task; another call finds it busy, or idle later. Excludes: a
/// task that is handed to it as it ends its hook, and lost; a refusal once it is idle. Preemptions:
/// 3.
#[test]
fn start_hook_against_claim() {
    check(Some(3), || {
        let pool = Arc::new(hooked(1, 0, 0));
        let other = beside(&pool, |pool| call(pool));
        let mine = call(&pool);
        assert!(other.join().unwrap() || mine, "refused for the other");
        assert!(call(&pool), "idle");
        end(&pool);
        assert_eq!(pool.stats().spawned, 1);
    });
}

/// A task is taken back from a worker in its start hook; the worker stays busy until the hook has
/// ended. Excludes: a worker that never becomes idle; a refusal once it is idle. Preemptions: 2.
#[test]
fn start_hook_against_withdrawal() {
    check(Some(2), || {
        let pool = hooked(1, 0, 0);
        match at_any_moment(|deadline| do_until(&pool, || (), deadline)) {
            Ok(()) => assert!(call(&pool), "free"),
            Err(DeadlineError::Expired(_)) => {
                let next = pool.do_with_deadline(|| (), Duration::MAX);
                if let Err(DeadlineError::Refused(why)) = next {
                    assert!(why.is_saturated(), "in its hook");
                }
                while pool.stats().idle == 0 {
                    thread::yield_now();
                }
                assert!(pool.serve(|| ()).is_ok(), "idle");
            }
            Err(DeadlineError::TimedOut) => {}
            Err(other) => panic!("{other}"),
        }
        end(&pool);
        assert_eq!(pool.stats().spawned, 1);
    });
}

/// A task is taken back from a worker in its start hook while another is pushed: the worker ends
/// its hook and looks at the queue. Excludes: a queued task that no worker looks at, because the
/// worker is in no count during its hook. Preemptions: 2.
#[test]
fn start_hook_against_withdrawal_and_push() {
    check(Some(2), || {
        let pool = Arc::new(hooked(1, 0, 1));
        let other = beside(&pool, |pool| assert!(call(pool)));
        let _ = at_any_moment(|deadline| do_until(&pool, || (), deadline));
        other.join().unwrap();
        end(&pool);
        assert_eq!(pool.stats().spawned, 1);
    });
}

/// A worker that was started for a queued task begins with a hook. Excludes: a task that stays
/// queued beside a worker that ends its hook. Preemptions: 2.
#[test]
fn start_hook_against_queue() {
    check(Some(2), || {
        let pool = warm_with(2, 2, |b| b.on_worker_start(hook()));
        one_waits_for_the_next(&pool);
        end(&pool);
    });
}

/// Two submissions onto a pool without threads, then a shutdown. The OS refuses the first one's
/// thread; the queue sleeps until the second one has a thread. Excludes: an accepted task that no
/// worker looks at; a drain that reports clean with a task queued. Preemptions: 3.
#[test]
fn no_thread_for_one_of_two() {
    check(Some(3), || {
        let pool = Arc::new(pool(1, 1));
        refuse_threads(1);
        let ran = Ran::new();
        let task = ran.task();
        let other = beside(&pool, move |pool| usize::from(pool.serve(task).is_ok()));
        let mine = usize::from(pool.serve(ran.task()).is_ok());
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        let s = pool.stats();
        assert_eq!((s.queued, s.running), (0, 0), "{s}");
        let accepted = mine + other.join().unwrap();
        end(&pool);
        assert_eq!((ran.times(), ran.alive()), (accepted, 0));
    });
}

/// Two submissions onto a pool without threads and with one slot or two; the OS refuses both
/// threads. Excludes: a task accepted without a worker; a thread that the other submission has only
/// asked for, and that counts as a worker; a failure that is not counted. Preemptions: 3 and 2.
#[test]
fn no_thread_for_either_slot() {
    for (max_workers, preemptions) in [(1, 3), (2, 2)] {
        check(Some(preemptions), move || {
            let pool = Arc::new(pool(max_workers, 1));
            refuse_threads(2);
            let ran = Ran::new();
            let task = ran.task();
            let other = beside(&pool, move |pool| pool.serve(task).is_err());
            assert!(pool.serve(ran.task()).is_err());
            assert!(other.join().unwrap());
            assert_eq!(pool.stats().spawn_failures, 2);
            refuse_threads(0);
            end(&pool);
            assert_eq!((ran.times(), ran.alive()), (0, 0));
        });
    }
}

/// A group's task is queued and the OS refuses a thread for it, while the group is cancelled and a
/// second thread submits. Excludes: a submission that takes another one's task back from the queue.
/// Preemptions: 2.
#[test]
fn no_thread_against_cancel() {
    check(Some(2), || {
        let pool = Arc::new(pool(1, 1));
        refuse_threads(1);
        let (ran, others) = (Ran::new(), Ran::new());
        let group = pool.group();
        let canceller = beside(&group, |group| group.cancel());
        let task = others.task();
        let other = beside(&pool, move |pool| usize::from(pool.serve(task).is_ok()));
        let accepted = usize::from(group.serve(ran.task()).is_ok());
        canceller.join().unwrap();
        let others_accepted = other.join().unwrap();
        group.wait();
        assert_eq!(ran.times() + group.discarded(), accepted);
        end(&pool);
        assert_eq!((others.times(), others.alive()), (others_accepted, 0));
        assert_eq!(ran.alive(), 0);
    });
}

/// A scope's task is queued, another submission is refused a thread by the OS, and a shutdown
/// discards. Excludes: a scope that waits for a task without a worker. Preemptions: 2.
#[test]
fn no_thread_against_discard() {
    check(Some(2), || {
        let pool = Arc::new(pool(1, 1));
        refuse_threads(1);
        let (ran, others) = (Ran::new(), Ran::new());
        let task = others.task();
        let other = beside(&pool, move |pool| drop(pool.serve(task)));
        let closer = beside(&pool, |pool| {
            drop(pool.shutdown(Shutdown::Discard, Duration::MAX))
        });
        let accepted = pool.scope(|s| usize::from(s.serve(ran.task()).is_ok()));
        assert_eq!((ran.times(), ran.alive()), (accepted, 0));
        other.join().unwrap();
        closer.join().unwrap();
        end(&pool);
        assert_eq!(others.alive(), 0);
    });
}
