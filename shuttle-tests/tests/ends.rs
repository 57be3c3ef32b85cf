//! Shutdowns, blocked submitters, retirement and hooks.
#![cfg(lazypool_shuttle)]

use lazypool::Shutdown;
use shuttle_tests::{explore, join_all, planned_panic, step, ticks, Bench, Dice, Via, MODES};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Asserts what a clean report promises: nothing is queued, and no task runs. Other threads may
/// still be about to count tasks that they took out of the queue.
fn shut_down(bench: &Bench, dice: &mut Dice, mode: Shutdown) {
    dice.pause(80);
    let timeout = match dice.below(4) {
        0 => Duration::ZERO,
        1 => ticks(dice.between(1, 40)),
        _ => Duration::MAX,
    };
    let report = bench.pool.shutdown(mode, timeout);
    assert!(timeout != Duration::MAX || report.is_clean(), "{report:?}");
    if report.is_clean() {
        let stats = bench.pool.stats();
        let left = (stats.running, stats.workers);
        assert_eq!(left, (0, 0), "after a clean report: {stats:?}");
        while bench.pool.stats().queued > 0 {
            lazypool::model::sleep(ticks(1));
        }
    }
}

/// Two or three shutdowns, in each pair of modes, beside submitters of all kinds.
#[test]
fn shutdowns() {
    explore("shutdowns", |dice| {
        let (workers, queue) = (dice.between(1, 3) as usize, dice.below(4) as usize);
        let blocks = dice.one_in(3);
        let bench = if blocks {
            Bench::blocking(workers, queue, |b| b)
        } else {
            Bench::new(workers, queue, |b| b)
        };
        let threads = dice.between(2, 5);
        let mut all = bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(1, 3) {
                bench.act(dice, 1);
            }
        });
        let modes: Vec<_> = (0..dice.between(1, 3)).map(|_| dice.of(&MODES)).collect();
        let discards = modes.iter().any(|mode| *mode != Shutdown::Drain);
        for mode in modes {
            all.extend(bench.submitters(dice, 1, move |bench, dice| shut_down(bench, dice, mode)));
        }
        join_all(all);
        bench.finish(discards);
    });
}

/// Submitters wait for space, and all of them get it.
#[test]
fn blocking() {
    explore("blocking", |dice| {
        let (workers, queue) = (dice.between(1, 3) as usize, dice.below(3) as usize);
        let bench = Bench::blocking(workers, queue, |b| b);
        let threads = dice.between(3, 6);
        let all = bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(1, 3) {
                if dice.one_in(2) {
                    assert!(bench.serve(Via::Pool, dice, 0), "it waits");
                } else {
                    let limit = Bench::limit(dice);
                    let done = bench.wait_small(limit);
                    assert!(done || limit != Duration::MAX, "it waits");
                }
            }
        });
        join_all(all);
        bench.wait_until_idle();
        bench.finish(false);
    });
}

/// Workers retire as soon as they are idle, or a little later, beside calls.
#[test]
fn retirement() {
    explore("retirement", |dice| {
        let (workers, queue) = (dice.between(1, 3) as usize, dice.below(3) as usize);
        let idle = ticks(dice.of(&[0, 0, 1, 10, 40]));
        let min = dice.below(2) as usize;
        let blocks = dice.one_in(4);
        let set = |b: lazypool::Builder| b.idle_timeout(idle).min_workers(min);
        let bench = if blocks {
            Bench::blocking(workers, queue, set)
        } else {
            Bench::new(workers, queue, set)
        };
        let threads = dice.between(1, 4);
        let all = bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(1, 4) {
                bench.act(dice, 0);
                for _ in 0..dice.of(&[0, 10, 100]) {
                    shuttle::thread::yield_now();
                }
            }
        });
        join_all(all);
        bench.wait_until_idle();
        if dice.one_in(4) {
            // All workers retire, except the minimum.
            while bench.pool.stats().workers > min {
                lazypool::model::sleep(ticks(20));
            }
        }
        bench.finish(false);
    });
}

/// Hooks serve tasks or panic, while workers start and end.
#[test]
fn hooks() {
    explore("hooks", |dice| {
        let (workers, queue) = (dice.between(1, 3) as usize, dice.below(4) as usize);
        let slot: Arc<OnceLock<Weak<Bench>>> = Arc::default();
        // A task that a stop hook submits may need a new worker, whose stop hook submits as well,
        // and so on.
        let left = Arc::new(AtomicUsize::new(16));
        let hook = |dice: &mut Dice| {
            let (slot, seed) = (Arc::clone(&slot), dice.below(1 << 30));
            let left = Arc::clone(&left);
            let (serves, panics) = (dice.one_in(2), dice.one_in(8));
            let verb = dice.below(3);
            move |index: usize| {
                let mut dice = Dice::new(seed + index as u64);
                dice.pause(6);
                let serves = serves && left.load(Ordering::Relaxed) > 0;
                if let (true, Some(bench)) = (serves, slot.get().and_then(Weak::upgrade)) {
                    left.fetch_sub(1, Ordering::Relaxed);
                    if verb == 0 {
                        bench.wait_small(ticks(dice.below(10)));
                    } else {
                        let _ = bench.serve_small();
                    }
                }
                if panics {
                    planned_panic();
                }
            }
        };
        let (start, stop) = (hook(dice), hook(dice));
        let idle = dice.of(&[Duration::ZERO, ticks(10), Duration::MAX]);
        let (starts, stops) = (!dice.one_in(3), !dice.one_in(3));
        // Workers that `build` starts are still in their start hook when the first call comes.
        let min = dice.of(&[0, 0, 1, workers]);
        let bench = Bench::new(workers, queue, |mut b| {
            if starts {
                b = b.on_worker_start(start);
            }
            if stops {
                b = b.on_worker_stop(stop);
            }
            b.idle_timeout(idle).min_workers(min)
        });
        slot.set(Arc::downgrade(&bench)).expect("once");
        let threads = dice.between(1, 4);
        let mut all = bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(1, 3) {
                bench.act(dice, 1);
            }
        });
        let discards = dice.one_in(3);
        if discards {
            let mode = dice.of(&MODES);
            all.extend(bench.submitters(dice, 1, move |bench, dice| shut_down(bench, dice, mode)));
        }
        join_all(all);
        bench.wait_until_idle();
        bench.finish(discards);
    });
}

/// A task is the first one of a worker and is taken back while the worker's start hook ends. The
/// worker retires like any other, also if the cleaner has no other worker to look after.
#[test]
fn taken_back_as_the_hook_ends() {
    explore("taken_back_as_the_hook_ends", |dice| {
        let idle = ticks(dice.of(&[0, 10, 40]));
        let steps = dice.below(8);
        let bench = Bench::new(2, dice.below(2) as usize, |b| {
            b.idle_timeout(idle).on_worker_start(move |_| {
                for _ in 0..steps {
                    step();
                }
            })
        });
        assert!(bench.wait_small(Duration::MAX));
        lazypool::model::sleep(ticks(dice.between(10, 40)));
        let done = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&done);
        let long = move || {
            while !until.load(Ordering::SeqCst) {
                shuttle::thread::yield_now();
            }
        };
        assert!(
            bench.pool.serve(long).is_ok(),
            "a worker is idle, or can be started"
        );
        dice.pause(200);
        let _ = bench
            .pool
            .do_with_deadline(|| (), ticks(dice.between(1, 12)));
        while bench.pool.stats().workers > 1 {
            lazypool::model::sleep(ticks(20));
        }
        done.store(true, Ordering::SeqCst);
        bench.pool.shutdown(Shutdown::Drain, Duration::MAX);
    });
}

/// A group's submission that waits in line behind others comes back once the group is cancelled.
#[test]
fn cancelled_in_line() {
    explore("cancelled_in_line", |dice| {
        let bench = Bench::blocking(1, 0, |b| b);
        let back = Arc::new(AtomicBool::new(false));
        let held = Arc::clone(&back);
        let task = move || {
            while !held.load(Ordering::SeqCst) {
                shuttle::thread::yield_now();
            }
        };
        bench.pool.serve(task).expect("a new pool");
        let all = bench.submitters(dice, 1, |bench, _| {
            bench.pool.serve(|| ()).expect("it waits");
        });
        lazypool::model::sleep(ticks(40));
        let group = bench.pool.group();
        let member = group.clone();
        let newcomer = lazypool::model::spawn(move || {
            assert!(member.serve(|| ()).is_err(), "the worker is occupied");
            back.store(true, Ordering::SeqCst);
        });
        dice.pause(20);
        group.cancel();
        join_all(all);
        join_all(vec![newcomer]);
        drop((group, bench));
    });
}

/// Submitters wait for space while a thread shuts the pool down. The tasks end only once all
/// submitters are back, so the shutdown itself must tell them. Laws 10 and 14.
#[test]
fn closed_in_line() {
    explore("closed_in_line", |dice| {
        let (workers, queue) = (dice.between(1, 2) as usize, dice.below(2) as usize);
        let bench = Bench::blocking(workers, queue, |b| b);
        let threads = dice.between(1, 4);
        let missing = Arc::new(AtomicUsize::new(threads as usize));
        for _ in 0..workers {
            let missing = Arc::clone(&missing);
            let task = move || {
                while missing.load(Ordering::SeqCst) > 0 {
                    shuttle::thread::yield_now();
                }
            };
            assert!(bench.serve_work(Via::Pool, task), "a worker for each");
        }
        let mut all = bench.submitters(dice, threads, move |bench, dice| {
            dice.pause(30);
            let _ = bench.serve_small();
            missing.fetch_sub(1, Ordering::SeqCst);
        });
        let mode = dice.of(&[Shutdown::Drain, Shutdown::Discard]);
        all.extend(bench.submitters(dice, 1, move |bench, dice| {
            dice.pause(90);
            let report = bench.pool.shutdown(mode, Duration::MAX);
            assert!(report.is_clean(), "{report:?}");
        }));
        join_all(all);
        bench.finish(mode != Shutdown::Drain);
    });
}
