//! Verbs, options and disturbances of all kinds, any two of which meet; two pools.
#![cfg(lazypool_shuttle)]

use lazypool::model::set_options;
use shuttle_tests::{disturb_threads, explore, join_all, ticks, Adds, Dice, Rig, Team};
use std::sync::Arc;

/// Calls by any verb with any options, beside disturbances: a cancelled group, a changing limit, a
/// shutdown, threads that the OS refuses, reads of the figures. Two of each kind meet in most
/// executions. Laws 1 to 18.
#[test]
fn any_two() {
    explore("any_two", |dice| {
        let (workers, queue, idle) = (dice.between(1, 3), dice.below(4), dice.idle());
        let min = dice.of(&[0, 0, 0, workers]) as usize;
        let rig = Rig::new(dice.one_in(3), workers, queue, |b| {
            b.idle_timeout(idle).min_workers(min)
        });
        disturb_threads(dice, 4, &[1, 2, 3]);
        let team = Team::new(&rig, Adds::any(dice), true);
        let member = Arc::clone(&team);
        let mut all = rig.crowd(dice, 2..=4, 1..=3, move |rig, dice| {
            rig.act(Some(&member), dice, 1);
        });
        let its = Arc::clone(&team);
        all.push(rig.beside(dice, move |rig, dice| {
            dice.pause(120);
            its.wait_for(ticks(dice.below(10)));
            its.cancel(rig, dice);
        }));
        all.extend(rig.maybe(dice, 3, 40, |rig, dice| rig.move_limit(dice)));
        all.extend(rig.maybe(dice, 4, 120, |rig, dice| rig.shut_down(dice)));
        if dice.one_in(2) {
            all.extend(rig.crowd(dice, 1..=2, 1..=4, |rig, dice| {
                dice.pause(40);
                rig.look();
            }));
        }
        rig.end(all, Some(&team));
    });
}

/// Makes a call of one pool, or one whose task makes a call of the other pool, whose task makes one
/// of the first.
fn there_and_back(here: &Arc<Rig>, there: &Arc<Rig>, dice: &mut Dice) {
    let (home, inner) = (Arc::clone(here), Arc::clone(there));
    let (mut out, mut back) = (dice.fork(), dice.fork());
    // Each waits for a limited time: its worker may wait for this task.
    let call = |rig: &Rig, limit, dice: &mut Dice, work: Box<dyn FnOnce() + Send>| {
        if dice.one_in(2) {
            let _ = rig.serve(Adds::NOTHING, work);
        } else {
            rig.wait(ticks(dice.between(1, limit)), work);
        }
    };
    let last = move || call(&home, 40, &mut back, Box::new(|| ()));
    let next = move || call(&inner, 40, &mut out, Box::new(last));
    call(here, 80, dice, Box::new(next));
}

/// The tasks of two pools submit to each other, and threads submit to both in turn. Each pool
/// refuses, runs and counts as if the other did not exist.
#[test]
fn two_pools() {
    explore("two_pools", |dice| {
        let both = [(), ()].map(|()| {
            let (workers, queue, idle) = (dice.between(1, 3), dice.below(3), dice.idle());
            Rig::new(false, workers, queue, |b| b.idle_timeout(idle))
        });
        if dice.one_in(4) {
            set_options(|o| o.refuse_one_in = 3);
        }
        let other = Arc::clone(&both[1]);
        let all = both[0].crowd(dice, 2..=4, 1..=4, move |one, dice| {
            let (here, there) = dice.of(&[(one, &other), (&other, one)]);
            if dice.one_in(3) {
                here.act(None, dice, 1);
            } else {
                there_and_back(here, there, dice);
            }
        });
        join_all(all);
        // A task of one may still be about to come to the other.
        for _ in 0..3 {
            both.iter().for_each(|rig| rig.wait_until_idle());
        }
        both.iter().for_each(|rig| rig.end(Vec::new(), None));
    });
}
