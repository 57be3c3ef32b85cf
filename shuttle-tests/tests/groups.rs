//! Groups that are shared and cancelled; scopes.
#![cfg(lazypool_shuttle)]

use lazypool::model::{self, set_options};
use lazypool::Shutdown;
use shuttle_tests::{explore, join_all, planned_panic, step, ticks, Bench, Dice, Via, MODES};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Several threads serve through one group, some wait for it, and one may cancel it. Its figures
/// add up, and each wait ends.
#[test]
fn shared_group() {
    explore("shared_group", |dice| {
        let (workers, queue) = (dice.between(1, 3) as usize, dice.below(5) as usize);
        let bench = Bench::new(workers, queue, |b| b);
        let group = bench.pool.group();
        let served = Arc::new(AtomicU64::new(0));
        let mut all = Vec::new();
        for _ in 0..dice.between(2, 5) {
            let (bench, group, served) = (Arc::clone(&bench), group.clone(), Arc::clone(&served));
            let mut dice = dice.fork();
            all.push(model::spawn(move || {
                for _ in 0..dice.between(1, 4) {
                    if dice.one_in(4) {
                        bench.wait_for(Bench::limit(&mut dice), &mut dice, 0);
                    } else if bench.serve(Via::Group(&group), &mut dice, 0) {
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }));
        }
        for _ in 0..dice.below(3) {
            let (group, mut dice) = (group.clone(), dice.fork());
            all.push(model::spawn(move || {
                if dice.one_in(2) {
                    group.wait();
                } else if let Err(left) = group.wait_timeout(ticks(dice.between(1, 30))) {
                    assert!(left.pending() > 0, "finished: {left:?}");
                }
            }));
        }
        let cancels = dice.one_in(2);
        if cancels {
            let (group, mut dice) = (group.clone(), dice.fork());
            all.push(model::spawn(move || {
                dice.pause(60);
                group.cancel();
                if dice.one_in(2) {
                    group.cancel();
                }
            }));
        }
        join_all(all);
        group.wait();
        let ended = group.completed() + group.panicked() + group.discarded();
        assert_eq!(ended as u64, served.load(Ordering::Relaxed), "{group:?}");
        assert_eq!(group.pending(), 0);
        bench.wait_until_idle();
        bench.finish(cancels);
    });
}

/// Scopes on several threads, beside other calls and a shutdown, perhaps while the OS refuses
/// threads. The tasks that a scope accepted run before it ends.
fn scopes(dice: &mut Dice, shuts_down: bool, refuses: bool) {
    let (workers, queue) = (dice.between(1, 3) as usize, dice.between(1, 4) as usize);
    let bench = Bench::new(workers, queue, |b| b);
    if refuses {
        let n = dice.between(1, 4) as u32;
        set_options(|o| o.refuse_one_in = n);
    }
    let threads = dice.between(1, 4);
    let mut all = bench.submitters(dice, threads, |bench, dice| {
        let ran = AtomicU64::new(0);
        let mut accepted = 0;
        let panics = dice.one_in(4);
        let scope = catch_unwind(AssertUnwindSafe(|| {
            bench.pool.scope(|s| {
                for _ in 0..dice.between(1, 3) {
                    let ticket = bench.ticket();
                    let (number, ran) = (ticket.number(), &ran);
                    let task = move || {
                        ticket.run(|| {
                            step();
                            ran.fetch_add(1, Ordering::Relaxed);
                        });
                        if panics {
                            planned_panic();
                        }
                    };
                    let answer = bench.call(number, task, |f| s.serve(f));
                    accepted += u64::from(answer.is_ok());
                }
            });
        }));
        assert!(scope.is_ok() || panics, "nobody panicked");
        assert_eq!(ran.load(Ordering::Relaxed), accepted, "`Ok` means it runs");
    });
    let threads = dice.below(3);
    all.extend(bench.submitters(dice, threads, |bench, dice| bench.act(dice, 0)));
    if shuts_down {
        let mode = dice.of(&MODES);
        all.extend(bench.submitters(dice, 1, move |bench, dice| {
            dice.pause(60);
            let report = bench.pool.shutdown(mode, Duration::MAX);
            assert!(report.is_clean(), "{report:?}");
        }));
    }
    join_all(all);
    set_options(|o| o.refuse_one_in = 0);
    bench.wait_until_idle();
    bench.finish(shuts_down);
}

#[test]
fn scopes_beside_others() {
    explore("scopes_beside_others", |dice| scopes(dice, false, false));
}

#[test]
fn scopes_against_shutdown() {
    explore("scopes_against_shutdown", |dice| scopes(dice, true, false));
}

#[test]
fn scopes_without_threads() {
    explore("scopes_without_threads", |dice| {
        let shuts_down = dice.one_in(2);
        scopes(dice, shuts_down, true);
    });
}

/// Callers open one scope after another, with one task each. As many callers as workers are never
/// refused, as a scope ends after its task's worker is free and its task is counted. Laws 1, 9, 15.
#[test]
fn scopes_one_by_one() {
    explore("scopes_one_by_one", |dice| {
        let (workers, queue) = (dice.between(1, 3), dice.below(2) as usize);
        let bench = Bench::new(workers as usize, queue, |b| b);
        let callers = dice.between(1, workers);
        let all = bench.submitters(dice, callers, move |bench, dice| {
            for n in 1..=dice.between(2, 4) {
                bench.pool.scope(|s| {
                    let ticket = bench.ticket();
                    let number = ticket.number();
                    let answer = bench.call(number, move || ticket.run(step), |f| s.serve(f));
                    assert!(answer.is_ok(), "a worker for each");
                });
                let completed = bench.pool.stats().completed;
                assert!(completed >= n, "{completed} of {n}");
            }
        });
        join_all(all);
        bench.finish(false);
    });
}

/// A scope and a discard beside the last worker, which may end while the OS gives no other. The
/// tasks that the scope accepted run. Laws 6, 13, 15.
#[test]
fn scope_against_discard() {
    explore("scope_against_discard", |dice| {
        let queue = dice.between(1, 2) as usize;
        let bench = Bench::new(1, queue, |b| b.idle_timeout(ticks(dice.of(&[0, 10]))));
        assert!(bench.serve_small().is_ok(), "a new pool");
        set_options(|o| o.refuse_one_in = 1);
        let all = bench.submitters(dice, 1, |bench, dice| {
            dice.pause(60);
            drop(bench.pool.shutdown(Shutdown::Discard, Duration::MAX));
        });
        let ran = AtomicU64::new(0);
        let mut accepted = 0;
        bench.pool.scope(|s| {
            for _ in 0..dice.between(1, 2) {
                let (ticket, ran) = (bench.ticket(), &ran);
                let number = ticket.number();
                let task = move || {
                    ticket.run(|| {
                        ran.fetch_add(1, Ordering::Relaxed);
                    });
                };
                dice.pause(20);
                accepted += u64::from(bench.call(number, task, |f| s.serve(f)).is_ok());
            }
        });
        assert_eq!(ran.load(Ordering::Relaxed), accepted, "`Ok` means it runs");
        join_all(all);
        bench.finish(true);
    });
}
