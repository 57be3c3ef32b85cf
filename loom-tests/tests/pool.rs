//! The whole pool, of one worker unless a model says otherwise: how a task
//! finds its worker.
#![cfg(lazypool_loom)]

use lazypool::{Pool, Shutdown};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use loom_tests::{check, pool, Ran};
use std::sync::Arc;
use std::time::Duration;

/// `do_with_deadline`, `serve` and a shutdown, one after the other. Excludes: an
/// end to the first task that leaves its worker unclaimable (the second call
/// would be refused), a lost wake-up of worker, caller or shutdown, a worker
/// left behind, a result or task read before it was written. All interleavings.
#[test]
fn do_serve_shutdown() {
    check(None, || {
        let pool = pool(1, 0);
        assert_eq!(pool.do_with_deadline(|| 1, Duration::MAX).ok(), Some(1));
        let ran = Ran::new();
        assert!(pool.serve(ran.task()).is_ok(), "the worker is free");
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        assert_eq!(ran.times(), 1);
        assert_eq!(pool.stats().completed, 2);
    });
}

/// Calls back to back on a pool of one, whose worker spins not at all and parks
/// whenever it can: each hand-over but the first goes to an idle worker, asleep
/// or about to be. Excludes: a lost wake-up between claim and park, a refusal
/// of a free worker. All interleavings.
#[test]
fn claim_against_park() {
    check(None, || {
        let pool = pool(1, 0);
        for n in 0..3 {
            assert_eq!(pool.do_with_deadline(move || n, Duration::MAX).ok(), Some(n));
        }
        assert_eq!(pool.stats().spawned, 1);
    });
}

/// One thread claims by its hint, past the entry in the ready ring; another pops
/// that entry while the worker lists itself again. Excludes: an idle worker
/// without an entry, which a thread without a hint would never find. 
#[test]
fn stale_entry_against_relisting() {
    check(Some(2), || {
        let pool = Arc::new(pool(1, 0));
        // This thread's hint, and an entry of the then idle worker.
        assert!(pool.do_with_deadline(|| (), Duration::MAX).is_ok());
        let other = thread::spawn({
            let pool = Arc::clone(&pool);
            move || pool.do_with_deadline(|| (), Duration::MAX).is_ok()
        });
        let mine = pool.do_with_deadline(|| (), Duration::MAX).is_ok();
        let others = other.join().unwrap();
        assert!(mine || others, "refused only in favour of the other");
        let last = thread::spawn({
            let pool = Arc::clone(&pool);
            move || pool.do_with_deadline(|| (), Duration::MAX).is_ok()
        });
        assert!(last.join().unwrap(), "no hint, but an entry");
    });
}

/// A burst onto a pool without threads: two submissions, two workers allowed.
/// Excludes: a refusal while a slot is free or is just being taken, a slot given
/// to two threads, a submission that starts a second thread on one slot.
#[test]
fn burst_onto_no_threads() {
    check(Some(2), || {
        let pool = Arc::new(pool(2, 0));
        let ran = Ran::new();
        let other = thread::spawn({
            let (pool, task) = (Arc::clone(&pool), ran.task());
            move || assert!(pool.serve(task).is_ok())
        });
        assert!(pool.serve(ran.task()).is_ok());
        other.join().unwrap();
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        assert_eq!(ran.times(), 2);
    });
}

/// Two submissions to one worker and one queued task: room for both, whoever
/// starts the thread. Excludes: a push that neither a seeker nor a newly started
/// worker looks at, a refusal with room in the queue.
#[test]
fn burst_onto_one_worker_and_a_queue() {
    check(Some(2), || {
        let pool = Arc::new(pool(1, 1));
        let ran = Ran::new();
        let other = thread::spawn({
            let (pool, task) = (Arc::clone(&pool), ran.task());
            move || assert!(pool.serve(task).is_ok())
        });
        assert!(pool.serve(ran.task()).is_ok());
        other.join().unwrap();
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        assert_eq!(ran.times(), 2);
    });
}

/// A push while the worker ends its task, looks at the queue in vain, publishes
/// that it is idle, and parks. Excludes: a queued task beside a sleeping worker.
/// Nobody but the two is there to look again. 
#[test]
fn push_against_park() {
    check(Some(3), || {
        let pool = pool(1, 1);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..2 {
            let ran = Arc::clone(&ran);
            pool.serve(move || {
                ran.fetch_add(1, Ordering::Relaxed);
            })
            .map_err(|e| e.without_closure())
            .expect("a worker and a cell");
        }
        // Through the queue or from hand to hand, it must be woken for this one.
        let last = pool.do_with_deadline(|| (), Duration::MAX);
        assert!(last.is_ok() || ran.load(Ordering::Relaxed) < 2);
    });
}

/// Two workers, one of them idle, two tasks by way of the queue: a seeker that
/// takes a task calls the next. Excludes: a queued task beside an idle worker
/// while the other is occupied for long (here: until the second task has run).
#[test]
fn a_burst_spreads() {
    check(Some(2), || {
        let pool = Pool::builder()
            .max_workers(2)
            .min_workers(2)
            .queue_capacity(2)
            .build()
            .unwrap();
        let gate = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let opened = Arc::clone(&gate);
        pool.serve(move || {
            while !opened.load(Ordering::Acquire) {
                thread::yield_now();
            }
        })
        .map_err(|e| e.without_closure())
        .expect("room");
        pool.serve(move || gate.store(true, Ordering::Release))
            .map_err(|e| e.without_closure())
            .expect("room");
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
    });
}
