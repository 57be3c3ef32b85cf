//! Settings, verbs, options and disturbances of all kinds, any two of which meet; reads of a pool's
//! figures; two pools; a thread that is stopped.
#![cfg(lazypool_shuttle)]

use lazypool::model::set_options;
use lazypool::Builder;
use shuttle_tests::{
    explore, join_all, planned_panic, ticks, Adds, Bench, Dice, Doomed, Via, MODES,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// The actions of a hook: it takes some steps, submits, or panics.
fn hook(
    dice: &mut Dice,
    bench: &Arc<OnceLock<Weak<Bench>>>,
    panics: &Arc<AtomicU64>,
) -> impl Fn() + Send + Sync + 'static {
    let (bench, panics) = (Arc::clone(bench), Arc::clone(panics));
    let (seed, turns) = (dice.below(1 << 30), AtomicU64::new(0));
    let (may_serve, may_panic) = (dice.one_in(3), dice.one_in(4));
    move || {
        let turn = turns.fetch_add(1, Ordering::Relaxed);
        let mut dice = Dice::new(seed + turn);
        dice.pause(6);
        // The number is limited, so that the submissions come to an end.
        if may_serve && turn < 4 {
            if let Some(bench) = bench.get().and_then(Weak::upgrade) {
                bench.act_with(None, &mut dice, 0);
            }
        }
        if may_panic && dice.one_in(2) {
            panics.fetch_add(1, Ordering::Relaxed);
            planned_panic();
        }
    }
}

/// Returns a pool with any settings, and a count of the panics of its hooks.
fn any_pool(dice: &mut Dice) -> (Arc<Bench>, Arc<AtomicU64>) {
    let (workers, queue) = (dice.between(1, 3) as usize, dice.below(4) as usize);
    let panics = Arc::new(AtomicU64::new(0));
    let slot = Arc::new(OnceLock::new());
    let idle = dice.of(&[Duration::ZERO, ticks(10), Duration::MAX, Duration::MAX]);
    let min = dice.below(2) as usize * dice.between(1, workers as u64) as usize;
    let (start, stop, around) = (dice.one_in(4), dice.one_in(4), dice.one_in(4));
    let blocks = dice.one_in(3);
    let set = |b: Builder| {
        let mut b = b.idle_timeout(idle).min_workers(min);
        if start {
            let hook = hook(dice, &slot, &panics);
            b = b.on_worker_start(move |_| hook());
        }
        if stop {
            let hook = hook(dice, &slot, &panics);
            b = b.on_worker_stop(move |_| hook());
        }
        if around {
            let hook = hook(dice, &slot, &panics);
            b = b.around(move |run| {
                hook();
                run();
            });
        }
        b
    };
    let bench = if blocks {
        Bench::blocking(workers, queue, set)
    } else {
        Bench::new(workers, queue, set)
    };
    slot.set(Arc::downgrade(&bench)).expect("once");
    (bench, panics)
}

/// Sets the limit a few times.
fn move_limit(bench: &Arc<Bench>, dice: &mut Dice) {
    for _ in 0..dice.between(1, 3) {
        dice.pause(40);
        let limit = dice.between(1, bench.pool.max_workers() as u64) as usize;
        bench.pool.set_limit(limit).expect("within bounds");
        assert!(bench.pool.limit() <= bench.pool.max_workers());
    }
}

/// A pool with any settings gets calls by any verb with any options, and disturbances: a cancelled
/// group, a changing limit, a shutdown, threads that the OS refuses, reads of the figures. Two of
/// each kind meet in most executions.
#[test]
fn any_two() {
    explore("any_two", |dice| {
        let (bench, panics) = any_pool(dice);
        if dice.one_in(4) {
            let n = dice.of(&[1, 2, 3]);
            set_options(|o| o.refuse_one_in = n);
        }
        if dice.one_in(6) {
            set_options(|o| o.spurious_one_in = 8);
        }
        let mode = dice.of(&MODES);
        let shuts_down = dice.one_in(4);
        if shuts_down {
            bench.expect_cancel();
        }
        let doomed = Doomed::new(&bench, Adds::any(dice));
        let threads = dice.between(2, 4);
        let member = doomed.clone();
        let mut all = bench.submitters(dice, threads, move |bench, dice| {
            for _ in 0..dice.between(1, 3) {
                bench.act_with(Some(&member), dice, 1);
            }
        });
        let canceller = doomed.clone();
        all.extend(bench.submitters(dice, 1, move |_, dice| {
            dice.pause(120);
            canceller.wait_for(ticks(dice.below(10)));
            canceller.cancel(dice);
        }));
        if dice.one_in(3) {
            bench.expect_limit(1);
            all.extend(bench.submitters(dice, 1, move_limit));
        }
        if shuts_down {
            all.extend(bench.submitters(dice, 1, move |bench, dice| {
                dice.pause(120);
                let (limit, from) = (Bench::limit(dice), lazypool::model::ticks());
                let report = bench.pool.shutdown(mode, limit);
                let passed = ticks(lazypool::model::ticks() - from);
                assert!(
                    report.is_clean() || passed >= limit,
                    "never early: {report:?}"
                );
                let stats = bench.pool.stats();
                assert!(report.discarded <= stats.discarded, "{report:?}");
            }));
        }
        if dice.one_in(3) {
            all.extend(bench.submitters(dice, 1, |bench, dice| {
                for _ in 0..dice.between(1, 4) {
                    dice.pause(40);
                    bench.look_at_stats();
                    bench.look_at_workers();
                }
            }));
        }
        join_all(all);
        doomed.settle();
        bench.wait_until_idle();
        Arc::clone(&bench).finish(true);
        let panics = panics.load(Ordering::Relaxed);
        assert_eq!(bench.pool.stats().hook_panics, panics, "of hooks");
    });
}

/// Threads read a pool's figures and workers while tasks with labels come and go. Each read sees
/// the tasks that must be there. Law 9.
#[test]
fn figures() {
    explore("figures", |dice| {
        let (workers, queue) = (dice.between(1, 3) as usize, dice.below(4) as usize);
        let idle = dice.of(&[Duration::ZERO, ticks(10), Duration::MAX]);
        let bench = Bench::new(workers, queue, |b| b.idle_timeout(idle));
        let doomed = Doomed::new(&bench, Adds::any(dice));
        let member = doomed.clone();
        let threads = dice.between(1, 3);
        let mut all = bench.submitters(dice, threads, move |bench, dice| {
            for _ in 0..dice.between(1, 4) {
                bench.act_with(Some(&member), dice, 0);
            }
        });
        let threads = dice.between(1, 2);
        all.extend(bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(2, 6) {
                if dice.one_in(2) {
                    bench.look_at_stats();
                } else {
                    bench.look_at_workers();
                }
                dice.pause(10);
            }
        }));
        dice.pause(60);
        doomed.cancel(dice);
        join_all(all);
        doomed.settle();
        bench.wait_until_idle();
        bench.finish(true);
    });
}

/// The tasks of two pools submit to each other, and threads submit to both in turn. Each pool
/// refuses, runs and counts as if the other did not exist.
#[test]
fn two_pools() {
    explore("two_pools", |dice| {
        let pool = |dice: &mut Dice| {
            let (workers, queue) = (dice.between(1, 3) as usize, dice.below(3) as usize);
            let idle = dice.of(&[Duration::ZERO, ticks(10), Duration::MAX, Duration::MAX]);
            Bench::new(workers, queue, |b| b.idle_timeout(idle))
        };
        let both = [pool(dice), pool(dice)];
        if dice.one_in(4) {
            set_options(|o| o.refuse_one_in = 3);
        }
        let threads = dice.between(2, 4);
        let other = Arc::clone(&both[1]);
        let all = both[0].submitters(dice, threads, move |one, dice| {
            for _ in 0..dice.between(1, 4) {
                let (here, there) = if dice.one_in(2) {
                    (one, &other)
                } else {
                    (&other, one)
                };
                if dice.one_in(3) {
                    here.act(dice, 1);
                    continue;
                }
                // The task goes to the other pool and back: it ends by its deadline, or is refused.
                let (inner, home, mut dice_there) =
                    (Arc::clone(there), Arc::clone(here), dice.fork());
                let task = move || {
                    let mut dice = dice_there.fork();
                    // Waits for a limited time: its worker may wait for this task.
                    let back = move || {
                        if dice.one_in(2) {
                            home.serve(Via::Pool, &mut dice, 0);
                        } else {
                            home.wait_small(ticks(dice.between(1, 40)));
                        }
                    };
                    match dice_there.below(3) {
                        0 => drop(inner.serve_work(Via::Pool, back)),
                        1 => drop(inner.wait_small(ticks(dice_there.between(1, 40)))),
                        _ => drop(inner.wait_work_for(ticks(dice_there.between(1, 40)), back)),
                    }
                };
                if dice.one_in(2) {
                    here.serve_work(Via::Pool, task);
                } else {
                    here.wait_work_for(ticks(dice.between(1, 80)), task);
                }
            }
        });
        join_all(all);
        for bench in &both {
            bench.wait_until_idle();
        }
        for bench in both {
            bench.finish(false);
        }
    });
}

/// One thread is stopped for a while wherever it is. A caller whose task has ended meanwhile has
/// its outcome, as its release depends on no thread except its worker. Law 20.
#[test]
fn stopped() {
    explore("stopped", |dice| {
        let (workers, queue) = (dice.between(1, 3) as usize, dice.below(4) as usize);
        let idle = dice.of(&[Duration::ZERO, Duration::MAX, Duration::MAX]);
        let set = |b: Builder| b.idle_timeout(idle);
        let bench = if dice.one_in(3) {
            Bench::blocking(workers, queue, set)
        } else {
            Bench::new(workers, queue, set)
        };
        bench.stop_somebody(dice.below(1_200));
        let threads = dice.between(3, 6);
        let mut all = bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(1, 4) {
                if dice.one_in(2) {
                    let _ = bench.wait_small(Duration::MAX);
                } else {
                    bench.act(dice, 0);
                }
            }
        });
        if dice.one_in(2) {
            bench.expect_limit(1);
            all.extend(bench.submitters(dice, 1, move_limit));
        }
        if dice.one_in(4) {
            all.extend(bench.submitters(dice, 1, |bench, dice| {
                dice.pause(60);
                bench.look_at_stats();
            }));
        }
        join_all(all);
        bench.wait_until_idle();
        bench.finish(false);
    });
}
