//! Mixed verbs: panics, deadlines, nested calls, scopes; bursts; a limit that is set at run time;
//! threads that the OS refuses; snapshots of a worker between two tasks.
#![cfg(lazypool_shuttle)]

use lazypool::model::set_options;
use lazypool::Shutdown;
use shuttle_tests::{explore, join_all, step, wait_until, Rig};
use std::time::Duration;

/// Several threads each make a few calls of any verb. Laws 1 to 5, 7 to 9, 15, 17, 18.
#[test]
fn mixed_verbs() {
    explore("mixed_verbs", |dice| {
        let (workers, queue) = (dice.between(1, 4), dice.of(&[0, 0, 1, 2, 4]));
        let rig = Rig::new(false, workers, queue, |b| b);
        let all = rig.crowd(dice, 3..=8, 1..=4, |rig, dice| rig.act(None, dice, 1));
        rig.end(all, None);
    });
}

/// As many calls at once as there is space for. None is refused.
fn burst_onto(name: &str, min_workers: bool) {
    explore(name, move |dice| {
        let workers = dice.between(1, 4);
        let queue = if min_workers { 0 } else { dice.below(5) };
        let min = if min_workers { workers as usize } else { 0 };
        let rig = Rig::new(false, workers, queue, |b| b.min_workers(min));
        let all = rig.crowd(
            dice,
            workers + queue..=workers + queue,
            1..=1,
            |rig, dice| {
                if dice.one_in(2) {
                    assert!(rig.wait_small(Duration::MAX), "space for all");
                } else {
                    assert!(rig.serve_small().is_ok(), "space for all");
                }
            },
        );
        rig.end(all, None);
    });
}

/// A pool without threads.
#[test]
fn burst() {
    burst_onto("burst", false);
}

/// A pool without a queue, whose workers are all started by `build`. Law 1.
#[test]
fn built_workers() {
    burst_onto("built_workers", true);
}

/// The limit rises and falls beside submissions, some of which may wait for space, beside
/// retirement, threads that the OS refuses, and perhaps a shutdown. Laws 1, 2, 4, 9, 13, 14.
#[test]
fn limits() {
    explore("limits", |dice| {
        let (workers, queue, idle) = (dice.between(2, 4), dice.below(4), dice.idle());
        let min = dice.between(0, 2) as usize;
        let rig = Rig::new(dice.one_in(2), workers, queue, |b| {
            b.idle_timeout(idle).min_workers(min)
        });
        if dice.one_in(3) {
            let n = dice.of(&[1, 2, 3]);
            set_options(|o| o.refuse_one_in = n);
        }
        let mut all = rig.crowd(dice, 2..=6, 1..=4, |rig, dice| rig.act(None, dice, 1));
        all.extend(rig.crowd(dice, 1..=2, 1..=1, |rig, dice| rig.move_limit(dice)));
        all.extend(rig.maybe(dice, 4, 90, |rig, dice| rig.shut_down(dice)));
        rig.end(all, None);
    });
}

/// Calls onto a pool without threads while threads are refused. The accepted tasks end without
/// help; the others come back. Law 13.
#[test]
fn no_threads() {
    explore("no_threads", |dice| {
        let (workers, queue, idle) = (dice.between(1, 3), dice.below(4), dice.idle());
        let rig = Rig::new(false, workers, queue, |b| b.idle_timeout(idle));
        let n = dice.of(&[1, 2, 2, 3, 5]);
        set_options(|o| o.refuse_one_in = n);
        let all = rig.crowd(dice, 2..=6, 1..=3, |rig, dice| rig.act(None, dice, 1));
        join_all(all);
        rig.wait_until_idle();
        if dice.one_in(2) {
            set_options(|o| o.refuse_one_in = 0);
            // The last closure is gone, but its worker may not be free yet.
            wait_until(|| rig.wait_small(Duration::MAX));
        }
        rig.end(Vec::new(), None);
    });
}

/// All that a snapshot of a worker says is of one task: those that have run too long have one label, the others have
/// another. Law 17.
#[test]
fn a_snapshot_is_of_one_task() {
    explore("a_snapshot_is_of_one_task", |dice| {
        let rig = Rig::new(false, 1, 4, |b| b);
        rig.judge_no_refusal();
        let reads = rig.beside(dice, |rig, _| {
            for worker in (0..8).flat_map(|_| rig.pool.workers()) {
                assert!(worker.abandoned || worker.abandoned_for.is_none());
                assert!(
                    !worker.abandoned || worker.label != Some("in time"),
                    "{worker:?}"
                );
            }
        });
        for _ in 0..dice.between(2, 5) {
            let _ = rig.pool.labeled("in time").serve(step);
            let late = rig.pool.labeled("late").run_limit(Duration::ZERO);
            let _ = late.serve(step);
        }
        join_all(vec![reads]);
        let report = rig.pool.shutdown(Shutdown::Drain, Duration::MAX);
        assert!(report.is_clean(), "{report:?}");
    });
}
