//! Handles: joined, awaited with changing wakers, cancelled, dropped and detached. Law 21.
#![cfg(lazypool_shuttle)]

use lazypool::WhenFull;
use shuttle_tests::{explore, planned_panic, step, Adds, Dice, Rig, Team};
use std::sync::Arc;

/// Submits a task with a handle, and ends the handle in one of the possible ways.
fn act(rig: &Arc<Rig>, team: &Team, dice: &mut Dice) {
    let (steps, panics) = (dice.below(4), dice.one_in(6));
    let work = move || {
        for _ in 0..steps {
            let _ = lazypool::task::is_cancelled();
            step();
        }
        if panics {
            planned_panic();
        }
    };
    let held = if dice.one_in(2) {
        let held = rig.handle(team.group.awaitable(), Adds::NOTHING, work);
        held.inspect(|_| team.count())
    } else {
        let blocks = rig.pool.when_full(WhenFull::Block);
        let on = blocks.labeled("awaited").awaitable();
        rig.handle(on, Adds::policy(WhenFull::Block), work)
    };
    if let Ok(held) = held {
        held.end(rig, dice);
    }
}

/// A task whose handle has the value is no longer pending in its group: tasks of a group of one that
/// are submitted back to back are never refused. Laws 1 and 21.
#[test]
fn back_to_back_in_a_group() {
    explore("back_to_back_in_a_group", |dice| {
        let workers = dice.between(1, 3);
        // There is space for all tasks.
        let rig = Rig::new(false, workers, 8, |b| b);
        let team = Team::limited(&rig, 1);
        let its = Arc::clone(&team);
        let mut all = rig.crowd(dice, 1..=1, 1..=1, move |rig, dice| {
            for _ in 0..4 {
                let held = its.handle(rig, step).expect("nothing is pending");
                held.join();
                dice.pause(2);
            }
        });
        all.extend(rig.crowd(dice, 0..=2, 1..=2, |rig, _| {
            rig.serve_small().expect("space");
        }));
        rig.end(all, Some(&team));
    });
}

/// Several threads use handles, with and without a group that may be cancelled, beside other calls,
/// a changing limit and perhaps a shutdown. Laws 2, 9, 21.
#[test]
fn handles() {
    explore("handles", |dice| {
        let (workers, queue) = (dice.between(1, 3), dice.below(5));
        let rig = Rig::new(true, workers, queue, |b| b);
        let team = Team::new(&rig, Adds::NOTHING, false);
        let mut all = team.crowd(&rig, dice, 2..=4, act);
        all.extend(team.maybe_cancel(&rig, dice, 60));
        all.extend(rig.maybe(dice, 4, 40, |rig, dice| rig.move_limit(dice)));
        all.extend(rig.maybe(dice, 4, 90, |rig, dice| rig.shut_down(dice)));
        rig.end(all, Some(&team));
    });
}
