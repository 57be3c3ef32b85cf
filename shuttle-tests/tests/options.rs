//! A limit that is set at run time; deadlines of tasks; `min_remaining`; drops of a pool.
#![cfg(lazypool_shuttle)]

use lazypool::model::{self, set_options};
use lazypool::WhenFull;
use shuttle_tests::{explore, join_all, step, ticks, Bench, Dice, Via};
use std::sync::Arc;
use std::time::Duration;

/// Sets the limit a few times.
fn move_limit(bench: &Arc<Bench>, dice: &mut Dice) {
    for _ in 0..dice.between(1, 4) {
        dice.pause(40);
        let limit = dice.between(1, bench.pool.max_workers() as u64) as usize;
        bench.pool.set_limit(limit).expect("within bounds");
    }
}

/// The limit rises and falls beside submissions, retirement, threads that the OS refuses, and
/// perhaps a shutdown. Laws 1, 2, 4, 9, 13.
#[test]
fn limits() {
    explore("limits", |dice| {
        let (workers, queue) = (dice.between(2, 4) as usize, dice.below(4) as usize);
        let idle = dice.of(&[Duration::ZERO, ticks(10), Duration::MAX, Duration::MAX]);
        let min = dice.below(3) as usize;
        let bench = Bench::new(workers, queue, |b| {
            b.idle_timeout(idle).min_workers(min.min(workers))
        });
        bench.expect_limit(1);
        if dice.one_in(3) {
            let n = dice.of(&[1, 2, 3]);
            set_options(|o| o.refuse_one_in = n);
        }
        let threads = dice.between(2, 4);
        let mut all = bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(1, 4) {
                bench.act(dice, 1);
            }
        });
        let threads = dice.between(1, 2);
        all.extend(bench.submitters(dice, threads, move_limit));
        let closer = bench.may_shut_down(dice, 4, 90);
        let discards = closer.is_some();
        all.extend(closer);
        join_all(all);
        bench.wait_until_idle();
        bench.finish(discards);
    });
}

/// Once `set_limit` has returned, each worker runs at most one more task; after that no more tasks
/// run at once than the limit allows. This holds whatever was under way. Law 4.
#[test]
fn limit_is_exact() {
    explore("limit_is_exact", |dice| {
        let workers = dice.between(2, 4) as usize;
        let idle = dice.of(&[Duration::ZERO, ticks(10), Duration::MAX]);
        let queue = dice.below(4) as usize;
        let bench = Bench::new(workers, queue, |b| b.idle_timeout(idle));
        if dice.one_in(4) {
            set_options(|o| o.refuse_one_in = 3);
        }
        let threads = dice.between(2, 5);
        let mut all = bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(1, 5) {
                bench.act(dice, 0);
            }
        });
        all.extend(bench.submitters(dice, 1, move |bench, dice| {
            dice.pause(60);
            let limit = dice.between(1, workers as u64 - 1) as usize;
            bench.limit_for_good(limit);
            for _ in 0..dice.between(1, 5) {
                bench.act(dice, 0);
            }
        }));
        join_all(all);
        bench.wait_until_idle();
        bench.finish(false);
    });
}

/// Submitters wait for space while the limit falls and rises. Laws 4 and 14.
#[test]
fn limits_and_waiting() {
    explore("limits_and_waiting", |dice| {
        let (workers, queue) = (dice.between(2, 3) as usize, dice.below(3) as usize);
        let bench = Bench::blocking(workers, queue, |b| b);
        let threads = dice.between(3, 6);
        let mut all = bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(1, 3) {
                bench.serve(Via::Pool, dice, 0);
            }
        });
        all.extend(bench.submitters(dice, 1, move_limit));
        join_all(all);
        bench.wait_until_idle();
        bench.finish(false);
    });
}

/// Tasks with deadlines and with `min_remaining`, beside other calls, a changing limit and a
/// shutdown. Each closure runs once, is dropped once, or comes back once. Laws 2, 9, 17, 18.
#[test]
fn deadlines() {
    explore("deadlines", |dice| {
        let (workers, queue) = (dice.between(1, 3) as usize, dice.below(5) as usize);
        let idle = dice.of(&[Duration::ZERO, ticks(10), Duration::MAX]);
        let bench = Bench::new(workers, queue, |b| b.idle_timeout(idle));
        bench.expect_limit(1);
        let threads = dice.between(2, 5);
        let mut all = bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(1, 4) {
                let (d, least) = (ticks(dice.between(1, 40)), ticks(dice.below(20)));
                match dice.below(4) {
                    0 => bench.act(dice, 0),
                    1 => drop(bench.wait_not_in_vain(d, least)),
                    _ => drop(bench.serve_within(d, least, dice.below(30))),
                }
            }
        });
        if dice.one_in(3) {
            all.extend(bench.submitters(dice, 1, move |bench, dice| {
                dice.pause(60);
                let limit = dice.between(1, workers as u64) as usize;
                bench.pool.set_limit(limit).expect("within bounds");
            }));
        }
        let closer = bench.may_shut_down(dice, 4, 90);
        let discards = closer.is_some();
        all.extend(closer);
        join_all(all);
        bench.wait_until_idle();
        bench.finish(discards);
    });
}

/// A pool is dropped while a task runs that never returns: one of a group that may be cancelled, or
/// one that passes a deadline of its own. The drop ends. Law 10.
#[test]
fn drops() {
    explore("drops", |dice| {
        let (workers, queue) = (dice.between(1, 3) as usize, dice.below(3) as usize);
        let pool = lazypool::Pool::builder()
            .max_workers(workers)
            .queue_capacity(queue)
            .build()
            .expect("good settings");
        let gate = Arc::new(shuttle::sync::Mutex::new(()));
        let shut = gate.lock();
        let group = pool.group();
        for _ in 0..dice.between(1, 3) {
            let gate = Arc::clone(&gate);
            let task = move || drop(gate.lock());
            if dice.one_in(2) {
                let deadline = ticks(dice.between(1, 60));
                let _ = pool.with_deadline(deadline).serve(task);
            } else {
                let _ = group.serve(task);
            }
        }
        for _ in 0..dice.below(2) {
            let _ = pool.when_full(WhenFull::Refuse).serve(step);
        }
        let canceller = {
            let (group, mut dice) = (group.clone(), dice.fork());
            model::spawn(move || {
                dice.pause(60);
                group.cancel();
            })
        };
        drop(pool);
        drop(shut);
        canceller.join().expect("no panic");
        group.wait();
    });
}
