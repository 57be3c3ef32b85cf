//! Mixed verbs: panics, deadlines, nested calls, scopes; bursts; a limit that is set at run time;
//! threads that the OS refuses.
#![cfg(lazypool_shuttle)]

use lazypool::model::set_options;
use shuttle_tests::{explore, join_all, wait_until, Rig};
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
