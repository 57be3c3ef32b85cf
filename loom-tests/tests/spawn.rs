//! Threads that the system does not give, and those that begin with a hook.
#![cfg(lazypool_loom)]

use lazypool::model::{deadline, do_until, refuse_threads};
use lazypool::{DeadlineError, Pool, Refusal, Shutdown};
use loom::sync::mpsc;
use loom::thread;
use loom_tests::{
    beside, check, cleaner, end, hook, one_waits_for_the_next, pool, quietly, two_serve,
    warm_pool_with_stop_hook, Ran,
};
use std::sync::Arc;
use std::time::Duration;

/// A call that runs, or is refused for want of a thread; whether it ran.
fn call(pool: &Pool) -> bool {
    match pool.do_with_deadline(|| (), Duration::MAX) {
        Ok(()) => true,
        Err(DeadlineError::Refused(back)) => {
            assert!(matches!(back.reason(), Refusal::SpawnFailed(_)));
            false
        }
        Err(other) => panic!("{other}"),
    }
}

/// Two calls onto a pool of one worker and one cell; the first thread asked for
/// is not given. Excludes: a task queued while nobody lives to run it, a slot
/// lost with its thread, a later submission that does not try again.
/// Preemptions: 2.
#[test]
fn no_thread_against_push() {
    check(Some(2), || {
        let pool = Arc::new(pool(1, 1));
        refuse_threads(1);
        let other = beside(&pool, |pool| call(pool));
        let mine = call(&pool);
        let _ = other.join().unwrap() || mine;
        assert!(call(&pool), "one more thread to be had");
        assert_eq!(pool.stats().spawn_failures, 1);
        end(&pool);
    });
}

/// A worker that has taken one task while another was pushed, and has to start a
/// thread for that. Excludes (by an assertion where threads are started): a caller
/// that cannot leave meanwhile, because its task is taken and not yet started.
/// Preemptions: 2.
#[test]
fn a_task_starts_before_a_thread_is_started() {
    check(Some(2), || {
        let pool = quietly(|| {
            let pool = pool(2, 2);
            assert!(pool.do_with_deadline(|| (), Duration::MAX).is_ok());
            pool
        });
        for _ in 0..3 {
            assert!(pool.serve(|| ()).is_ok(), "a worker, or room");
        }
        end(&pool);
    });
}

/// Two tasks, one after the other, onto no threads, with room in the queue and for a third worker:
/// each task waits until both run. Excludes: a new worker that counts as awake though it has a
/// task; a submission that relies on it then asks for a thread, and so does the worker. Preemptions: 4.
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

/// Without a queue, against a shutdown. Excludes: a shutdown that waits for a
/// thread that never was. Preemptions: 3.
#[test]
fn no_thread_against_shutdown() {
    check(Some(3), || {
        let pool = Arc::new(pool(1, 0));
        refuse_threads(1);
        let other = beside(&pool, |pool| pool.serve(|| ()).is_ok());
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        assert!(!other.join().unwrap(), "no thread, or closed");
        end(&pool);
    });
}

/// No thread for a second worker while the cleaner retires the first, nor for one in its place:
/// the task is handed to or queued for that one, which must look before it ends. Excludes: a task queued
/// for a worker that has looked for the last time. Preemptions: 3.
#[test]
fn no_thread_against_retirement() {
    check(Some(3), || {
        let pool = Arc::new(quietly(|| {
            let pool = pool(2, 1);
            assert!(pool.do_with_deadline(|| (), Duration::MAX).is_ok());
            pool
        }));
        refuse_threads(2);
        let cleaner = cleaner(&pool);
        call(&pool);
        cleaner.join().unwrap();
        refuse_threads(0);
        end(&pool);
    });
}

/// One task runs and one is queued, no thread is to be had, and a raised limit asks for one: a push
/// that comes meanwhile relies on it. Excludes: a thread that was not given, and whose spawner does
/// not look again: that push's task stays queued beside an idle worker. Preemptions: 3.
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

/// The only worker is in its stop hook while a task is queued, and the system gives no thread
/// once it has ended. Excludes: a task that went in during the hook, and is left to a thread that
/// is not to be had. Preemptions: 2.
#[test]
fn no_thread_after_the_stop_hook() {
    check(Some(2), || {
        let pool = Arc::new(warm_pool_with_stop_hook(1, 1));
        refuse_threads(1);
        let cleaner = cleaner(&pool);
        call(&pool);
        cleaner.join().unwrap();
        refuse_threads(0);
        end(&pool);
    });
}

fn hooked(max: usize, min: usize, queue: usize) -> Pool {
    Pool::builder()
        .max_workers(max)
        .min_workers(min)
        .queue_capacity(queue)
        .idle_timeout(Duration::from_nanos(1))
        .on_worker_start(hook())
        .build()
        .expect("valid settings")
}

/// Workers started by `build`, with and without a hook: they are idle when it returns. Excludes: a
/// worker that nobody finds, a refusal, a further thread. Preemptions: 2.
fn law05_built_workers_are_idle(hook: bool) {
    check(Some(2), move || {
        let pool = if hook {
            hooked(2, 2, 0)
        } else {
            let two = Pool::builder().max_workers(2).min_workers(2);
            two.idle_timeout(Duration::MAX)
                .build()
                .expect("valid settings")
        };
        assert_eq!(pool.stats().idle, 2);
        assert!(pool.serve(|| ()).is_ok());
        assert!(pool.serve(|| ()).is_ok());
        assert_eq!(pool.stats().spawned, 2);
        end(&pool);
    });
}

#[test]
fn law05_built_workers_are_idle_without_hook() {
    law05_built_workers_are_idle(false);
}

#[test]
fn law05_built_workers_are_idle_after_their_hooks() {
    law05_built_workers_are_idle(true);
}

/// A worker in its start hook has a task; another call finds it busy, or idle later. Excludes: a task
/// given to it as it ends its hook, and lost; a refusal once it is idle. Preemptions: 3.
#[test]
fn start_hook_against_claim() {
    check(Some(3), || {
        let pool = Arc::new(hooked(1, 0, 0));
        let call = |pool: &Pool| pool.do_with_deadline(|| (), Duration::MAX).is_ok();
        let other = beside(&pool, move |pool| call(pool));
        let mine = call(&pool);
        assert!(
            other.join().unwrap() || mine,
            "refused only in favor of the other"
        );
        assert!(call(&pool), "idle");
        end(&pool);
        assert_eq!(pool.stats().spawned, 1);
    });
}

/// The same where a task may wait for it. Excludes: a task that is queued beside a worker that ends
/// its hook, and is forgotten. Preemptions: 2.
#[test]
fn start_hook_against_push() {
    check(Some(2), || {
        let pool = Arc::new(hooked(1, 0, 1));
        let call = |pool: &Pool| assert!(pool.do_with_deadline(|| (), Duration::MAX).is_ok());
        let other = beside(&pool, move |pool| call(pool));
        call(&pool);
        other.join().unwrap();
        end(&pool);
        assert_eq!(pool.stats().spawned, 1);
    });
}

/// A task taken back from a worker in its start hook, which is busy until that has ended. Excludes: a
/// worker that never is idle; a refusal once it is. Preemptions: 2.
#[test]
fn start_hook_against_withdrawal() {
    check(Some(2), || {
        let pool = hooked(1, 0, 0);
        let (deadline, alarm) = deadline();
        let clock = thread::spawn(move || alarm.go_off());
        match do_until(&pool, || (), &deadline) {
            Ok(()) => {
                let next = pool.do_with_deadline(|| (), Duration::MAX);
                assert!(next.is_ok(), "free");
            }
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
        clock.join().unwrap();
        end(&pool);
        assert_eq!(pool.stats().spawned, 1);
    });
}

/// The same while a task is pushed: the worker comes out of its hook and looks at the queue. Excludes: a
/// queued task that nobody looks at, as the worker counts as nothing in its hook. Preemptions: 2.
#[test]
fn start_hook_against_withdrawal_and_push() {
    check(Some(2), || {
        let pool = Arc::new(hooked(1, 0, 1));
        let other = beside(&pool, |pool| {
            assert!(pool.do_with_deadline(|| (), Duration::MAX).is_ok())
        });
        let (deadline, alarm) = deadline();
        let clock = thread::spawn(move || alarm.go_off());
        let _ = do_until(&pool, || (), &deadline);
        other.join().unwrap();
        clock.join().unwrap();
        end(&pool);
        assert_eq!(pool.stats().spawned, 1);
    });
}

/// A worker started for a queued task, that begins with a hook. Excludes: a
/// queued task beside a worker that comes out of its hook. Preemptions: 2.
#[test]
fn start_hook_against_queue() {
    check(Some(2), || {
        let pool = quietly(|| {
            let pool = hooked(2, 0, 2);
            assert!(pool.do_with_deadline(|| (), Duration::MAX).is_ok());
            pool
        });
        one_waits_for_the_next(&pool);
        end(&pool);
    });
}

/// Two submissions start two workers with hooks. Excludes: a count of those awake that loses one of two
/// changes. Preemptions: 2.
#[test]
fn two_start_hooks() {
    check(Some(2), || {
        two_serve(hooked(2, 0, 0));
    });
}

/// Two submissions onto a pool without threads, the first of which the system refuses (the
/// queue sleeps until the second has one), then a shutdown. Excludes: a task accepted
/// that nobody looks at; a drain that reports clean with a task queued. Preemptions: 3.
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

/// The same without a thread for either. Excludes: a task accepted without a worker.
/// Preemptions: 3.
#[test]
fn no_thread_for_two() {
    no_thread_for_any(1, 3);
}

/// The same with a slot for each. Excludes: a thread that another submission asks for taken for
/// a worker, a failure that is not counted. Preemptions: 2.
#[test]
fn no_thread_for_either_slot() {
    no_thread_for_any(2, 2);
}

fn no_thread_for_any(max_workers: usize, preemptions: usize) {
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

/// A group's task whose thread the system refuses, a cancel of the group, and a second
/// submitter. Excludes: a task taken back from the queue that is another's. Preemptions: 2.
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

/// A scope's task, another submission whose thread the system refuses, and a discarding
/// shutdown. Excludes: a scope that waits for a task without a worker. Preemptions: 2.
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
