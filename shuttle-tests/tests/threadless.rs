//! Threads that the OS refuses; dead cells in a full queue; everything at once.
#![cfg(lazypool_shuttle)]

use lazypool::model::{self, set_options};
use shuttle_tests::{explore, join_all, ticks, Bench, Dice, Via, MODES};
use std::sync::Arc;
use std::time::Duration;

fn refuse_threads(dice: &mut Dice) {
    let n = dice.of(&[1, 2, 2, 3, 5]);
    set_options(|o| o.refuse_one_in = n);
}

/// Calls onto a pool without threads while threads are refused. The accepted tasks end without
/// help; the others come back. Law 13.
#[test]
fn no_threads() {
    explore("no_threads", |dice| {
        let (workers, queue) = (dice.between(1, 3) as usize, dice.below(4) as usize);
        let idle = dice.of(&[Duration::ZERO, Duration::MAX, Duration::MAX]);
        let bench = Bench::new(workers, queue, |b| b.idle_timeout(idle));
        refuse_threads(dice);
        let threads = dice.between(2, 6);
        let all = bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(1, 3) {
                bench.act(dice, 1);
            }
        });
        join_all(all);
        bench.wait_until_idle();
        if dice.one_in(2) {
            set_options(|o| o.refuse_one_in = 0);
            // The last closure is gone, but its worker may not be free yet.
            while !bench.wait_small(Duration::MAX) {
                shuttle::thread::yield_now();
            }
        }
        bench.finish(false);
    });
}

/// Short deadlines and a cancelled group leave dead cells in the queue; others push behind them,
/// perhaps while threads are refused.
#[test]
fn dead_cells() {
    explore("dead_cells", |dice| {
        let (workers, queue) = (dice.between(1, 2) as usize, dice.between(1, 4) as usize);
        let bench = Bench::new(workers, queue, |b| b);
        if dice.one_in(2) {
            refuse_threads(dice);
        }
        let group = bench.pool.group();
        let mut all = Vec::new();
        for _ in 0..dice.between(3, 6) {
            let (bench, group, mut dice) = (Arc::clone(&bench), group.clone(), dice.fork());
            all.push(model::spawn(move || {
                for _ in 0..dice.between(1, 3) {
                    match dice.below(4) {
                        0 => drop(bench.serve(Via::Pool, &mut dice, 0)),
                        1 => drop(bench.serve(Via::Group(&group), &mut dice, 0)),
                        2 => drop(bench.wait_small(ticks(dice.between(1, 6)))),
                        _ => drop(bench.wait_for(ticks(dice.between(1, 30)), &mut dice, 0)),
                    }
                }
            }));
        }
        for _ in 0..dice.below(2) {
            let (group, mut dice) = (group.clone(), dice.fork());
            all.push(model::spawn(move || {
                dice.pause(60);
                group.cancel();
            }));
        }
        join_all(all);
        group.wait();
        bench.wait_until_idle();
        bench.finish(true);
    });
}

/// One group, and two submitters more than there is space for, while threads are refused. This is
/// the smallest case in which a task that is taken back, because no thread was given, meets other
/// tasks.
#[test]
fn cancelled_without_threads() {
    explore("cancelled_without_threads", |dice| {
        let workers = dice.between(1, 2) as usize;
        let bench = Bench::new(workers, dice.between(1, 2) as usize, |b| b);
        refuse_threads(dice);
        let group = bench.pool.group();
        let mut all = Vec::new();
        for n in 0..3 {
            let (bench, group, mut dice) = (Arc::clone(&bench), group.clone(), dice.fork());
            all.push(model::spawn(move || {
                let via = if n == 0 {
                    Via::Group(&group)
                } else {
                    Via::Pool
                };
                bench.serve(via, &mut dice, 0);
            }));
        }
        let canceller = group.clone();
        all.push(model::spawn(move || canceller.cancel()));
        join_all(all);
        group.wait();
        bench.wait_until_idle();
        bench.finish(true);
    });
}

/// Everything that the other scenarios do, in any combination.
#[test]
fn storm() {
    explore("storm", |dice| {
        let (workers, queue) = (dice.between(1, 4) as usize, dice.below(5) as usize);
        let idle = dice.of(&[Duration::ZERO, ticks(10), Duration::MAX, Duration::MAX]);
        let blocks = dice.one_in(3);
        let min = dice.below(2) as usize;
        let set = |b: lazypool::Builder| b.idle_timeout(idle).min_workers(min);
        let bench = if blocks {
            Bench::blocking(workers, queue, set)
        } else {
            Bench::new(workers, queue, set)
        };
        if dice.one_in(3) {
            refuse_threads(dice);
        }
        if dice.one_in(4) {
            set_options(|o| o.spurious_one_in = 8);
        }
        let group = bench.pool.group();
        let mut all = Vec::new();
        for _ in 0..dice.between(2, 6) {
            let (bench, group, mut dice) = (Arc::clone(&bench), group.clone(), dice.fork());
            all.push(model::spawn(move || {
                for _ in 0..dice.between(1, 3) {
                    if dice.one_in(3) {
                        bench.serve(Via::Group(&group), &mut dice, 1);
                    } else {
                        bench.act(&mut dice, 1);
                    }
                }
            }));
        }
        if dice.one_in(3) {
            let (group, mut dice) = (group.clone(), dice.fork());
            all.push(model::spawn(move || {
                dice.pause(90);
                group.cancel();
            }));
        }
        let mode = dice.of(&MODES);
        if dice.one_in(3) {
            all.extend(bench.submitters(dice, 1, move |bench, dice| {
                dice.pause(120);
                bench.pool.shutdown(mode, Bench::limit(dice));
            }));
        }
        join_all(all);
        group.wait();
        bench.wait_until_idle();
        bench.finish(true);
    });
}
