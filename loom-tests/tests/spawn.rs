//! Threads that the OS refuses, and workers that begin with a start hook.
#![cfg(lazypool_loom)]

use lazypool::model::{do_until, refuse_threads};
use lazypool::{DeadlineError, Pool, Refusal, Shutdown};
use loom::sync::mpsc;
use loom::thread;
use loom_tests::{
    at_any_moment, beside, call, check, check_pool, check_tasks, cleaner, end, hook, pool, quietly,
    scope_of_one, serve_gated, shut_down_beside, try_serve, try_serve_beside, two_call, warm, Gate,
    Ran,
};
use std::sync::Arc;
use std::time::Duration;

/// Two tasks, one after the other, come to a pool without threads that may have three workers and a
/// queue. Each task waits until both run. Excludes: a new worker that counts as awake although it
/// has a task: a submission would rely on it, and then the submission and the worker would each ask
/// for a thread. Preemptions: 4.
#[test]
fn two_threads_for_two_tasks() {
    check_pool(4, pool(3, 2), |pool| {
        let gates = [(), ()].map(|()| serve_gated(pool));
        while pool.stats().running < 2 {
            thread::yield_now();
        }
        assert_eq!(pool.stats().spawned, 2);
        gates.iter().for_each(Gate::open);
    });
}

/// The cleaner retires the first worker while a task is handed to it or queued for it. The OS refuses a
/// thread for a second worker, and one in place of the first, which must look at the queue before it
/// ends; or the pool has one worker, and the task is queued while that is in its stop hook. Excludes:
/// a task queued after the worker's last look, or left to a thread that cannot be started.
/// Preemptions: 3, with the hook 2.
#[test]
fn no_thread_against_retirement() {
    for (preemptions, setup, refused) in [
        (3, warm(2, 1), 2),
        (2, warm(1, 1).with(|b| b.on_worker_stop(hook())), 1),
    ] {
        check_pool(preemptions, setup, move |pool| {
            refuse_threads(refused);
            let cleaner = cleaner(pool);
            match pool.do_with_deadline(|| (), Duration::MAX) {
                Ok(()) => {}
                Err(DeadlineError::Refused(back)) => {
                    assert!(matches!(back.reason(), Refusal::SpawnFailed(_)));
                }
                Err(other) => panic!("{other}"),
            }
            cleaner.join().unwrap();
            refuse_threads(0);
        });
    }
}

/// One task runs and one is queued. A raised limit asks for a thread, which the OS refuses, and a
/// push that comes meanwhile relies on that thread. Excludes: a failed start after which the
/// starting thread does not look again: the pushed task would stay queued beside an idle worker.
/// Preemptions: 3.
#[test]
fn no_thread_against_a_push_that_relies_on_it() {
    check(Some(3), || {
        let (pool, gate) = quietly(|| {
            let pool = pool(2, 2).build();
            let gate = serve_gated(&pool);
            while pool.stats().running == 0 {
                thread::yield_now();
            }
            pool.set_limit(1).unwrap();
            refuse_threads(3);
            assert!(pool.serve(|| ()).is_ok(), "space");
            (pool, gate)
        });
        let other = beside(&pool, move |pool| {
            let (ran, done) = mpsc::channel();
            gate.open();
            assert!(pool.serve(move || ran.send(()).unwrap()).is_ok());
            done.recv().unwrap();
        });
        pool.set_limit(2).unwrap();
        other.join().unwrap();
        refuse_threads(0);
        end(&pool);
    });
}

/// Explores a model of a pool of one whose worker begins with a hook. No other worker is started.
fn check_hooked(preemptions: usize, queue: usize, model: fn(&Arc<Pool>)) {
    check(Some(preemptions), move || {
        let pool = pool(1, queue).with(|b| b.on_worker_start(hook())).build();
        model(&pool);
        end(&pool);
        assert_eq!(pool.stats().spawned, 1);
    });
}

/// A worker in its start hook has a task; another call finds it busy, or idle later. Excludes: a
/// task that is handed to it as it ends its hook, and lost; a refusal once it is idle. Preemptions:
/// 3.
#[test]
fn start_hook_against_claim() {
    check_hooked(3, 0, |pool| {
        two_call(pool);
        assert!(call(pool), "idle");
    });
}

/// A task is taken back from a worker in its start hook; the worker stays busy until the hook has
/// ended. Excludes: a worker that never becomes idle; a refusal once it is idle. Preemptions: 2.
#[test]
fn start_hook_against_withdrawal() {
    check_hooked(2, 0, |pool| {
        match at_any_moment(|deadline| do_until(pool, || (), deadline)) {
            Ok(()) => assert!(call(pool), "free"),
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
    });
}

/// A task is taken back from a worker in its start hook while another is pushed: the worker ends
/// its hook and looks at the queue. Excludes: a queued task that no worker looks at, because the
/// worker is in no count during its hook. Preemptions: 2.
#[test]
fn start_hook_against_withdrawal_and_push() {
    check_hooked(2, 1, |pool| {
        let other = beside(pool, |pool| assert!(call(pool)));
        let _ = at_any_moment(|deadline| do_until(pool, || (), deadline));
        other.join().unwrap();
    });
}

/// Two submissions onto a pool without threads, then a shutdown. The OS refuses the first one's
/// thread; the queue sleeps until the second one has a thread. Excludes: an accepted task that no
/// worker looks at; a drain that reports clean with a task queued. Preemptions: 3.
#[test]
fn no_thread_for_one_of_two() {
    check_tasks(3, pool(1, 1), |pool, ran| {
        refuse_threads(1);
        let other = try_serve_beside(pool, ran.task());
        let mine = try_serve(pool, ran.task());
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        let s = pool.stats();
        assert_eq!((s.queued, s.running), (0, 0), "{s}");
        mine + other.join().unwrap()
    });
}

/// Two submissions onto a pool without threads and with one slot or two; the OS refuses both
/// threads. Excludes: a task accepted without a worker; a thread that the other submission has only
/// asked for, and that counts as a worker; a failure that is not counted. Preemptions: 3 and 2.
#[test]
fn no_thread_for_either_slot() {
    for (max_workers, preemptions) in [(1, 3), (2, 2)] {
        check_tasks(preemptions, pool(max_workers, 1), |pool, ran| {
            refuse_threads(2);
            let other = try_serve_beside(pool, ran.task());
            let accepted = try_serve(pool, ran.task()) + other.join().unwrap();
            assert_eq!(accepted, 0);
            assert_eq!(pool.stats().spawn_failures, 2);
            refuse_threads(0);
            accepted
        });
    }
}

/// A group's task is queued and the OS refuses a thread for it, while the group is cancelled and a
/// second thread submits. Excludes: a submission that takes another one's task back from the queue.
/// Preemptions: 2.
#[test]
fn no_thread_against_cancel() {
    check(Some(2), || {
        let pool = pool(1, 1).build();
        refuse_threads(1);
        let (ran, others) = (Ran::new(), Ran::new());
        let group = pool.group();
        let canceller = beside(&group, |group| group.cancel());
        let other = try_serve_beside(&pool, others.task());
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
        let pool = pool(1, 1).build();
        refuse_threads(1);
        let others = Ran::new();
        let other = try_serve_beside(&pool, others.task());
        let closer = shut_down_beside(&pool, Shutdown::Discard, Duration::MAX);
        scope_of_one(&pool);
        other.join().unwrap();
        closer.join().unwrap();
        end(&pool);
        assert_eq!(others.alive(), 0);
    });
}
