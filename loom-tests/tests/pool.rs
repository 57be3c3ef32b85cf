//! A whole pool, of one worker unless a model says otherwise: how a task finds its worker.
#![cfg(lazypool_loom)]

use lazypool::model::assert_at_rest;
use lazypool::Shutdown;
use loom::thread;
use loom_tests::{
    beside, call, check, check_pool, check_tasks, hook, one_waits_for_the_next, pool, quietly,
    serve_beside, two_call, two_serve, warm, warm_pair, Ran,
};
use std::sync::Arc;
use std::time::Duration;

/// `do_with_deadline`, `serve` and a shutdown, one after the other, on a pool without threads.
/// Excludes: an end of the first task that leaves its worker unclaimable (the second call would be
/// refused); a lost wake-up of the worker, the caller or the shutdown; a worker that remains after
/// the shutdown; a result or task read before it was written. Preemptions: 3.
#[test]
fn do_serve_shutdown() {
    check(Some(3), || {
        let (pool, ran) = (pool(1, 0).build(), Ran::new());
        assert_eq!(pool.do_with_deadline(|| 1, Duration::MAX).ok(), Some(1));
        assert!(pool.serve(ran.task()).is_ok(), "the worker is free");
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        assert_eq!((ran.times(), ran.alive()), (1, 0));
        assert_eq!(pool.stats().completed, 2);
        assert_at_rest(&pool);
    });
}

/// A thread learns from the counters alone that a task has ended. Excludes: a task that is counted
/// before its worker is free. Preemptions: 3.
#[test]
fn counted_is_free() {
    check_pool(3, pool(1, 0), |pool| {
        assert!(pool.serve(|| ()).is_ok());
        while pool.stats().completed == 0 {
            thread::yield_now();
        }
        assert!(pool.serve(|| ()).is_ok(), "the worker is free");
    });
}

/// The first task of a pool submits another. Its submission finds the queue awake. Excludes: a live
/// worker beside a queue that sleeps. Preemptions: 3.
#[test]
fn the_first_task_queues() {
    check_pool(3, pool(1, 1), |pool| {
        let inner = Arc::clone(pool);
        let task = move || inner.serve(|| ()).is_ok();
        assert_eq!(pool.do_with_deadline(task, Duration::MAX).ok(), Some(true));
    });
}

/// One thread claims the worker as a last worker, which leaves its entry in the ready ring; another pops
/// that entry while the worker lists itself again. Excludes: an idle worker without an entry, which
/// a thread without a last worker would never find; a refusal of both. Preemptions: 3.
#[test]
fn stale_entry_against_relisting() {
    check_pool(3, warm(1, 0), |pool| {
        two_call(pool);
        loom::stop_exploring();
        let last = beside(pool, |pool| call(pool));
        assert!(last.join().unwrap(), "no last worker, but an entry");
        loom::explore();
    });
}

/// Two submissions at once to a pool without threads, which may have two workers. Excludes: a
/// refusal while a slot is free or is just being taken; a slot that both submissions take, or for
/// which two threads are started. Preemptions: 2.
#[test]
fn burst_onto_no_threads() {
    two_serve(2, pool(2, 0));
}

/// Two submissions at once to a pool without threads, which may have one worker and one queued
/// task. Both have space, whichever of them starts the worker. The other waits for its task, so no
/// later call looks at the queue. Excludes: a push that neither a worker in flight nor the new one
/// looks at; a refusal beside space in the queue. Preemptions: 2.
#[test]
fn burst_onto_one_worker_and_a_queue() {
    check_tasks(2, pool(1, 1), |pool, ran| {
        let other = beside(pool, |pool| assert!(call(pool)));
        assert!(pool.serve(ran.task()).is_ok());
        other.join().unwrap();
        1
    });
}

/// A task is pushed while the worker ends its task, finds the queue empty, publishes that it is
/// idle, looks again and parks (preemptions: 3). Or its last task came from the queue: it watches the
/// queue, stops, looks once more and parks, and a push that sees it awake notifies no worker
/// (preemptions: 4). No other thread looks at the queue. Excludes: a queued task beside a worker that
/// sleeps, or has stopped watching.
#[test]
fn push_against_park() {
    for (preemptions, setup) in [(3, warm(1, 1)), (4, warm(1, 2))] {
        check_tasks(preemptions, setup, |pool, ran| {
            // With more space in the queue, it is pushed for the sleeping worker.
            assert!(pool.serve(ran.task()).is_ok());
            assert!(call(pool), "queue");
            assert_eq!(ran.times(), 1);
            1
        });
    }
}

/// A task is pushed while a worker parks for the first time and has no entry in a ring. The push
/// comes from the thread whose last worker it is, or from another thread. The
/// submission sees that nothing came into the rings, and does not check whether a worker is awake.
/// Excludes: a queued task whose worker came into the ready ring meanwhile; a push that was half
/// done when the worker looked at the queue before it released its caller, and at which the worker
/// does not look again. Preemptions: 3.
#[test]
fn push_against_first_park() {
    for is_last_worker in [true, false] {
        check_tasks(3, pool(1, 1), move |pool, ran| {
            quietly(|| assert!(pool.serve(ran.task()).is_ok(), "a new worker"));
            if is_last_worker {
                assert!(call(pool), "queue");
            } else {
                let other = beside(pool, |pool| assert!(call(pool), "queue"));
                other.join().unwrap();
            }
            assert_eq!(ran.times(), 1);
            1
        });
    }
}

/// A worker between two tasks looks at the queue, while one more task is submitted than the queue
/// has cells. Excludes: a refusal because the queue is full, while a worker without a task looks at
/// it. Preemptions: 3.
#[test]
fn space_for_a_worker_and_a_cell() {
    check_tasks(3, warm(1, 1), |pool, ran| {
        assert!(call(pool));
        assert!(pool.serve(ran.task()).is_ok());
        assert!(pool.serve(ran.task()).is_ok());
        2
    });
}

/// Two tasks are queued, the first of which waits for the second. One worker looks at the queue, and
/// another may be started, perhaps with a start hook. Or the first task's worker is notified as a
/// last worker, so that its entry stays in the ready ring: the second submission pops the entry and
/// notifies no worker. Excludes: a worker that takes a task and does not make sure that another takes
/// the next one; a task that stays queued after the hook; a submission that stops at the stale entry
/// although it could start a thread. Preemptions: 2.
#[test]
fn a_burst_spreads() {
    for (looks, setup) in [
        (true, warm(2, 2)),
        (true, warm(2, 2).with(|b| b.on_worker_start(hook()))),
        (false, warm(2, 2)),
    ] {
        check_pool(2, setup, move |pool| {
            // The worker of this task looks at the queue once it has ended.
            assert!(!looks || pool.serve(|| ()).is_ok());
            one_waits_for_the_next(pool);
        });
    }
}

/// A worker that watches the queue claims itself for a task that one thread pushes, while another
/// thread, whose last worker it is, hands it a task. Excludes: a task handed to a worker that looks at
/// the queue; a queued task that no worker looks at because its worker was given another; a wrong
/// count of workers that are awake. Preemptions: 2.
#[test]
fn self_claim_against_hand_over() {
    check_tasks(2, warm(1, 2), |pool, ran| {
        assert!(pool.serve(ran.task()).is_ok(), "it watches after this");
        let other = serve_beside(pool, ran.task());
        assert!(call(pool));
        other.join().unwrap();
        2
    });
}

/// One thread notifies a sleeping worker of a queued task, while another hands it a task. Excludes:
/// two orders for one worker; a queued task left beside it. Preemptions: 2.
#[test]
fn notify_against_hand_over() {
    check_tasks(2, warm(1, 2), |pool, ran| {
        let other = serve_beside(pool, ran.task());
        for _ in 0..2 {
            assert!(call(pool));
        }
        other.join().unwrap();
        1
    });
}

/// A worker whose task is awaited does not watch the queue after it. Another call pushes meanwhile.
/// Excludes: a worker that goes idle between that call's look at the rings and its push, and does
/// not look at the queue once it is idle. Preemptions: 2.
#[test]
fn push_against_end_of_an_awaited_task() {
    check_pool(2, warm(1, 1), |pool| {
        let other = beside(pool, |pool| assert!(call(pool)));
        assert!(call(pool));
        other.join().unwrap();
    });
}

/// Two workers are idle, and two tasks come, one of which waits for the other. Excludes: a third
/// thread that is started because the first task still seemed to be queued while a worker was
/// taking it. Preemptions: 2.
#[test]
fn two_idle_workers_and_no_third() {
    check_pool(2, warm_pair(3, 4), |pool| {
        quietly(|| {
            while pool.stats().idle < 2 {
                thread::yield_now();
            }
        });
        assert_eq!(pool.stats().spawned, 2);
        one_waits_for_the_next(pool);
        assert_eq!(pool.stats().spawned, 2);
    });
}
