//! Retirement (`src/engine/lifecycle/retirement.rs`, `Worker::end`) beside other calls. Models have no
//! clock: another thread sweeps in the place of an idle worker.
#![cfg(lazypool_loom)]

use lazypool::model::{refuse_threads, sweep};
use lazypool::{Pool, Shutdown};
use loom::thread;
use loom_tests::{
    beside, call, check_pool, check_tasks, cleaner, hold, hook, quietly, scope_of_one,
    serve_beside, shut_down_beside, try_serve, try_serve_beside, two_call, warm, warm_pair,
};
use std::time::Duration;

/// Makes a call while the cleaner benches and then retires the only worker, which is idle. The task is
/// handed over; or pushed for the worker; or pushed while the worker is in its stop hook, between its
/// two looks at the queue. Excludes: a task given to a worker that ends; a refusal while the worker
/// moves from the ready ring to the bench, or its slot becomes free; a slot with two threads or none
/// (retirement against a new start); a queued task whose worker has ended. Preemptions: 3, with the
/// hook 2.
#[test]
fn cleaner_against_claim() {
    for (preemptions, setup) in [
        (3, warm(1, 0)),
        (3, warm(1, 2)),
        (2, warm(1, 1).with(|b| b.on_worker_stop(hook()))),
    ] {
        check_pool(preemptions, setup, |pool| {
            let cleaner = cleaner(pool);
            let value = pool.do_with_deadline(|| 1, Duration::MAX);
            assert_eq!(value.ok(), Some(1), "a pool of one with nothing to do");
            cleaner.join().unwrap();
        });
    }
}

/// The cleaner sweeps while a worker ends its task and goes idle. Excludes: a worker retired while
/// it holds a task; an idle worker that is neither listed nor on the bench. Preemptions: 3.
#[test]
fn cleaner_against_going_idle() {
    check_tasks(3, warm(1, 0), |pool, ran| {
        assert!(pool.serve(ran.task()).is_ok());
        sweep(pool);
        sweep(pool);
        1 + try_serve(pool, ran.task())
    });
}

/// A worker is on the bench while two threads submit, one of which has no last worker. Excludes: a
/// worker on the bench that neither or both of them claim; a thread started beside it. Preemptions:
/// 2.
#[test]
fn on_the_bench_against_claims() {
    check_pool(2, warm(1, 0), |pool| {
        quietly(|| sweep(pool));
        two_call(pool);
        loom::stop_exploring();
        let last = beside(pool, |pool| call(pool));
        assert!(last.join().unwrap(), "no last worker, but it can be found");
        loom::explore();
        assert_eq!(pool.stats().spawned, 1);
    });
}

/// A sweep moves the only worker from the ring to the bench while a thread without a last worker
/// submits. Excludes: a refusal, or a second thread, because the worker is in neither. Preemptions:
/// 3.
#[test]
fn law05_bench_against_claim() {
    check_pool(3, warm_pair(3, 0), |pool| {
        quietly(|| {
            while pool.stats().idle < 2 {
                thread::yield_now();
            }
        });
        let other = serve_beside(pool, || ());
        sweep(pool);
        other.join().unwrap();
        assert_eq!(pool.stats().spawned, 2, "one was idle all the time");
    });
}

/// A worker ends while a submission waits for its slot and a task is queued: the worker goes back
/// to the queue. Excludes: a worker that ends beside a queued task. Preemptions: 2.
#[test]
fn retiring_against_push() {
    check_pool(2, warm(1, 1), |pool| {
        quietly(|| sweep(pool)); // benched
        let submitter = beside(pool, |pool| pool.do_with_deadline(|| 1, Duration::MAX).ok());
        sweep(pool);
        sweep(pool);
        assert!(pool.serve(|| ()).is_ok());
        assert_eq!(submitter.join().unwrap(), Some(1));
    });
}

/// One of two workers ends while the other runs a task that waits for one that is pushed meanwhile.
/// Excludes: a task that was queued before the slot was free, and for which no thread is started.
/// Preemptions: 2.
#[test]
fn a_free_slot_against_push() {
    check_pool(2, warm_pair(2, 1), |pool| {
        let gate = hold(pool);
        let cleaner = cleaner(pool);
        gate.open_by_call(pool);
        cleaner.join().unwrap();
    });
}

/// Makes the pool's only worker end, and leave an entry in the ready ring.
fn end_a_listed_worker(pool: &Pool) {
    quietly(|| {
        // Claimed as a last worker, so its entry stays in the ready ring.
        assert!(call(pool));
        while pool.stats().workers > 0 {
            sweep(pool);
            thread::yield_now();
        }
    });
}

/// Two submissions at once: one drops the listing of a worker that has ended, while the other
/// starts the next worker on its slot. The model also runs with a queue, at which the new worker
/// looks first, and with an OS that refuses the first thread. Excludes: a listing that comes back,
/// or a state that is lost, because one of two changes of the slot's word is lost. Preemptions: 2.
#[test]
fn dropped_listing_against_start() {
    for (queue, refused) in [(0, 0), (1, 0), (0, 1)] {
        check_tasks(2, warm(1, queue), move |pool, ran| {
            end_a_listed_worker(pool);
            refuse_threads(refused);
            let other = try_serve_beside(pool, ran.task());
            try_serve(pool, ran.task()) + other.join().unwrap()
        });
    }
}

/// The cleaner, which has one worker to bench and retire, sweeps while a submission starts another
/// worker. Excludes: a refusal because a slot is neither free nor in use. Preemptions: 2.
#[test]
fn cleaner_against_start() {
    check_pool(2, warm(2, 0), |pool| {
        let cleaner = cleaner(pool);
        assert!(pool.serve(|| ()).is_ok());
        assert!(pool.serve(|| ()).is_ok());
        cleaner.join().unwrap();
    });
}

/// The cleaner retires a worker that ends with a hook, while a submission starts another worker.
/// The first worker is busy until its hook is over, and a submission may be refused for that.
/// Excludes: a slot that is lost. Preemptions: 2.
#[test]
fn law01_cleaner_against_start_with_stop_hook() {
    let setup = warm(2, 0).with(|b| b.on_worker_stop(hook()));
    check_pool(2, setup, |pool| {
        let cleaner = cleaner(pool);
        assert!(pool.serve(|| ()).is_ok(), "idle, or another slot");
        if let Err(refused) = pool.serve(|| ()) {
            assert!(refused.is_saturated());
        }
        cleaner.join().unwrap();
        // Both workers may be on their way to their end, and are busy until their hooks are over.
        let is_busy = |s: &lazypool::Stats| s.running > 0 || s.workers == 2 && s.idle == 0;
        while is_busy(&pool.stats()) {
            thread::yield_now();
        }
        assert!(pool.serve(|| ()).is_ok(), "idle, or a free slot");
    });
}

/// The last worker ends and puts the queue to sleep while two threads submit. Excludes: a task in a
/// queue that sleeps; a submission refused because the slot is not free yet; a submission that
/// starts a worker, wakes the queue, and loses the other's push. Preemptions: 2.
#[test]
fn last_worker_leaves_against_two() {
    check_tasks(2, warm(1, 2), |pool, ran| {
        quietly(|| sweep(pool)); // benched
        let other = serve_beside(pool, ran.task());
        let cleaner = cleaner(pool);
        assert!(pool.serve(ran.task()).is_ok());
        other.join().unwrap();
        cleaner.join().unwrap();
        2
    });
}

/// The last worker ends and puts the queue to sleep while a thread submits, for which the OS
/// refuses a thread. Excludes: a task that is accepted as the last worker ends, so that no worker
/// is left for it. Preemptions: 3.
#[test]
fn last_worker_leaves_against_no_thread() {
    check_tasks(3, warm(1, 1), |pool, ran| {
        refuse_threads(1);
        let cleaner = cleaner(pool);
        let accepted = try_serve(pool, ran.task());
        cleaner.join().unwrap();
        refuse_threads(0);
        accepted
    });
}

/// A scope's task is queued, a shutdown discards, and the cleaner tells the worker to end at the
/// same time. Excludes: a last worker that leaves the task behind. Preemptions: 2.
#[test]
fn retiring_against_discard() {
    check_pool(2, warm(1, 2), |pool| {
        let cleaner = cleaner(pool);
        let closer = shut_down_beside(pool, Shutdown::Discard, Duration::MAX);
        scope_of_one(pool);
        assert!(closer.join().unwrap());
        cleaner.join().unwrap();
    });
}

/// Two workers are benched while two tasks are handed over; or are on the bench and told to end while
/// one is handed over. Excludes: a refusal beside an idle worker. Preemptions: 2.
#[test]
fn benches_against_claims() {
    for (looks, tasks) in [(0, 2), (1, 1)] {
        check_pool(2, warm_pair(2, 0), move |pool| {
            quietly(|| (0..looks).for_each(|_| sweep(pool)));
            let cleaner = beside(pool, |pool| sweep(pool));
            for _ in 0..tasks {
                assert!(pool.serve(|| ()).is_ok(), "as many workers as tasks");
            }
            cleaner.join().unwrap();
        });
    }
}
