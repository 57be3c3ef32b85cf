//! Mixed verbs: panics, deadlines, nested calls; bursts; a sequential caller.
#![cfg(lazypool_shuttle)]

use shuttle_tests::{explore, join_all, Bench, Dice, Via};
use std::time::Duration;

fn size(dice: &mut Dice) -> (usize, usize) {
    (dice.between(1, 4) as usize, dice.of(&[0, 0, 1, 2, 4]))
}

/// Several threads each make a few calls of either verb. Laws 1 to 5, 7 to 9.
#[test]
fn mixed_verbs() {
    explore("mixed_verbs", |dice| {
        let (workers, queue) = size(dice);
        let bench = Bench::new(workers, queue, |b| b);
        let threads = dice.between(3, 8);
        let calls = dice.between(1, 4);
        let all = bench.submitters(dice, threads, move |bench, dice| {
            for _ in 0..calls {
                bench.act(dice, 1);
            }
        });
        join_all(all);
        bench.wait_until_idle();
        bench.finish(false);
    });
}

/// As many calls at once as there is space for, onto a pool without threads. None is refused.
#[test]
fn burst() {
    explore("burst", |dice| {
        let (workers, queue) = (dice.between(2, 4) as usize, dice.below(5) as usize);
        let bench = Bench::new(workers, queue, |b| b);
        let threads = (workers + queue) as u64;
        let all = bench.submitters(dice, threads, |bench, dice| {
            if dice.one_in(3) {
                assert!(bench.wait_small(Duration::MAX), "room for all");
            } else {
                bench.serve(Via::Pool, dice, 0);
            }
        });
        join_all(all);
        bench.wait_until_idle();
        bench.finish(false);
    });
}

/// As many calls at once as there are workers, which `build` starts and which look at the queue at
/// that moment. None is refused. Law 1.
#[test]
fn built_workers() {
    explore("built_workers", |dice| {
        let workers = dice.between(1, 3) as usize;
        let bench = Bench::new(workers, 0, |b| b.min_workers(workers));
        let all = bench.submitters(dice, workers as u64, |bench, dice| {
            if dice.one_in(2) {
                assert!(bench.wait_small(Duration::MAX), "a worker for each");
            } else {
                assert!(bench.serve_small().is_ok(), "a worker for each");
            }
        });
        join_all(all);
        bench.wait_until_idle();
        bench.finish(false);
    });
}

/// Callers wait for each of their tasks. As many callers as workers are never refused, and one
/// caller needs one worker. Laws 1, 3 and 5.
#[test]
fn sequential() {
    explore("sequential", |dice| {
        let (workers, queue) = size(dice);
        let callers = dice.between(1, workers as u64);
        let bench = Bench::new(workers, queue, |b| b);
        let all = bench.submitters(dice, callers, |bench, dice| {
            for _ in 0..dice.between(2, 5) {
                assert!(bench.wait_small(Duration::MAX), "a worker for each");
            }
        });
        join_all(all);
        let spawned = bench.pool.stats().spawned;
        // A worker that is about to look for a task is neither idle nor occupied, so several
        // callers may need one more worker each.
        assert!(callers > 1 || spawned == 1, "{spawned} workers for one");
        bench.finish(false);
    });
}
