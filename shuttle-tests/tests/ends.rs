//! Shutdowns, retirement and hooks.
#![cfg(lazypool_shuttle)]

use lazypool::Shutdown;
use shuttle_tests::{
    explore, gate, join_all, planned_panic, step, ticks, wait_until, Adds, Dice, Meeting, Rig,
};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Up to three shutdowns, in each pair of modes, beside submitters of all kinds.
#[test]
fn shutdowns() {
    explore("shutdowns", |dice| {
        let (workers, queue) = (dice.between(1, 3), dice.below(4));
        let rig = Rig::new(dice.one_in(3), workers, queue, |b| b);
        let mut all = rig.crowd(dice, 2..=5, 1..=3, |rig, dice| rig.act(None, dice, 1));
        all.extend(rig.crowd(dice, 1..=3, 1..=1, |rig, dice| {
            dice.pause(80);
            rig.shut_down(dice);
        }));
        rig.end(all, None);
    });
}

/// Workers retire as soon as they are idle, or a little later, beside calls. Some start with a
/// hook, during which their first task may be taken back. Law 6.
#[test]
fn retirement() {
    explore("retirement", |dice| {
        let (workers, queue) = (dice.between(1, 3), dice.below(3));
        let idle = ticks(dice.of(&[0, 0, 1, 10, 40]));
        let (min, steps) = (dice.below(2) as usize, dice.below(8));
        let has_hook = dice.one_in(3);
        let rig = Rig::new(dice.one_in(4), workers, queue, |b| {
            let b = b.idle_timeout(idle).min_workers(min);
            if has_hook {
                b.on_worker_start(move |_| (0..steps).for_each(|_| step()))
            } else {
                b
            }
        });
        let all = rig.crowd(dice, 1..=4, 1..=4, |rig, dice| {
            rig.act(None, dice, 0);
            for _ in 0..dice.of(&[0, 10, 100]) {
                shuttle::thread::yield_now();
            }
        });
        join_all(all);
        rig.wait_until_idle();
        if dice.one_in(4) {
            // All workers retire, except the minimum.
            while rig.pool.stats().workers > min {
                lazypool::model::sleep(ticks(20));
            }
        }
        rig.end(Vec::new(), None);
    });
}

/// Of two idle workers, those on the bench are claimed while those that have just run a task list themselves in the ready ring. A
/// submission that looks at both in turn may find neither. It starts a thread only if at one moment no worker
/// was idle, also on a slot that has come free meanwhile. Law 5.
#[test]
fn one_idle_worker_after_another() {
    explore("one_idle_worker_after_another", |dice| {
        let rig = Rig::new(false, 3, dice.of(&[0, 2]), |b| b.idle_timeout(ticks(40)));
        let moves_limit = !dice.one_in(4);
        if moves_limit {
            rig.set_limit(2);
        }
        let both = Meeting::of(2);
        join_all(rig.crowd(dice, 2..=2, 1..=1, move |rig, _| {
            let both = Arc::clone(&both);
            assert!(
                rig.wait(Duration::MAX, move || both.meet()),
                "a worker each"
            );
        }));
        // A sweep puts both on the bench.
        lazypool::model::sleep(ticks(30));
        let mut all = rig.crowd(dice, 3..=3, 1..=2, |rig, dice| {
            dice.pause(6);
            let _ = rig.serve_small();
        });
        if moves_limit {
            all.push(rig.beside(dice, |rig, dice| {
                for limit in [3, 2, 3, 2, 3, 2, 3] {
                    dice.pause(3);
                    rig.set_limit(limit);
                }
            }));
        }
        rig.end(all, None);
    });
}

/// Returns the actions of a hook: it takes some steps, submits, or panics.
fn hook(
    dice: &mut Dice,
    rig: &Arc<OnceLock<Weak<Rig>>>,
    panics: &Arc<AtomicU64>,
) -> impl Fn() + Send + Sync + 'static {
    let (rig, panics) = (Arc::clone(rig), Arc::clone(panics));
    let (seed, turns) = (dice.below(1 << 30), AtomicU64::new(0));
    let (may_serve, may_panic) = (dice.one_in(2), dice.one_in(4));
    move || {
        let turn = turns.fetch_add(1, Ordering::Relaxed);
        let mut dice = Dice::new(seed + turn);
        dice.pause(6);
        // The number is limited, so that the submissions come to an end.
        if may_serve && turn < 4 {
            if let Some(rig) = rig.get().and_then(Weak::upgrade) {
                rig.act(None, &mut dice, 0);
            }
        }
        if may_panic && dice.one_in(2) {
            panics.fetch_add(1, Ordering::Relaxed);
            planned_panic();
        }
    }
}

/// Hooks and wrappers serve tasks or panic, while workers start and end. A wrapper runs its task,
/// forgets to, runs it twice, or panics before or after it. Laws 7, 16.
#[test]
fn hooks() {
    explore("hooks", |dice| {
        let (workers, queue, idle) = (dice.between(1, 3), dice.below(4), dice.idle());
        let (slot, panics) = (Arc::new(OnceLock::new()), Arc::default());
        // Workers that `build` starts are still in their start hook when the first call comes.
        let min = dice.of(&[0, 0, 1, workers]) as usize;
        let rig = Rig::new(dice.one_in(3), workers, queue, |mut b| {
            if dice.one_in(2) {
                let start = hook(dice, &slot, &panics);
                b = b.on_worker_start(move |_| start());
            }
            if dice.one_in(2) {
                let stop = hook(dice, &slot, &panics);
                b = b.on_worker_stop(move |_| stop());
            }
            if dice.one_in(3) {
                let (before, after) = (hook(dice, &slot, &panics), hook(dice, &slot, &panics));
                let runs = dice.of(&[0, 1, 1, 2]);
                b = b.around(move |run| {
                    before();
                    (0..runs).for_each(|_| run());
                    after();
                });
            }
            b.idle_timeout(idle).min_workers(min)
        });
        slot.set(Arc::downgrade(&rig)).expect("once");
        let mut all = rig.crowd(dice, 1..=4, 1..=3, |rig, dice| rig.act(None, dice, 1));
        all.extend(rig.maybe(dice, 3, 80, |rig, dice| rig.shut_down(dice)));
        rig.end(all, None);
        let panics = panics.load(Ordering::Relaxed);
        assert_eq!(rig.pool.stats().hook_panics, panics, "of hooks");
    });
}

/// A group's submission that waits in line behind others comes back once the group is cancelled.
#[test]
fn cancelled_in_line() {
    explore("cancelled_in_line", |dice| {
        let rig = Rig::new(true, 1, 0, |b| b);
        let (back, hold) = gate();
        rig.serve(Adds::NOTHING, hold).expect("a new pool");
        let mut all = rig.crowd(dice, 1..=1, 1..=1, |rig, _| {
            rig.serve_small().expect("it waits");
        });
        lazypool::model::sleep(ticks(40));
        let group = rig.pool.group();
        let member = group.clone();
        all.push(lazypool::model::spawn(move || {
            assert!(member.serve(|| ()).is_err(), "the worker is occupied");
            back.store(true, Ordering::SeqCst);
        }));
        dice.pause(20);
        group.cancel();
        join_all(all);
    });
}

/// Submitters wait for space while a thread shuts the pool down. The tasks end only once all
/// submitters are back, so the shutdown itself must tell them. Laws 10 and 14.
#[test]
fn closed_in_line() {
    explore("closed_in_line", |dice| {
        let (workers, queue, threads) = (dice.between(1, 2), dice.below(2), dice.between(1, 4));
        let rig = Rig::new(true, workers, queue, |b| b);
        let missing = Arc::new(AtomicUsize::new(threads as usize));
        for _ in 0..workers {
            let missing = Arc::clone(&missing);
            let task = move || wait_until(|| missing.load(Ordering::SeqCst) == 0);
            rig.serve(Adds::NOTHING, task).expect("a worker for each");
        }
        let mut all = rig.crowd(dice, threads..=threads, 1..=1, move |rig, dice| {
            dice.pause(30);
            let _ = rig.serve_small();
            missing.fetch_sub(1, Ordering::SeqCst);
        });
        let mode = dice.of(&[Shutdown::Drain, Shutdown::Discard]);
        if mode != Shutdown::Drain {
            rig.expect_discards();
        }
        all.push(rig.beside(dice, move |rig, dice| {
            dice.pause(90);
            let report = rig.pool.shutdown(mode, Duration::MAX);
            assert!(report.is_clean(), "{report:?}");
        }));
        rig.end(all, None);
    });
}
