//! Groups that are shared and cancelled.
#![cfg(lazypool_shuttle)]

use shuttle_tests::{explore, ticks, Adds, Dice, Rig, Team};
use std::sync::Arc;

/// Several threads serve through one group, some wait for it, and one may cancel it. Its figures
/// add up, and each wait ends.
#[test]
fn shared_group() {
    explore("shared_group", |dice| {
        let (workers, queue) = (dice.between(1, 3), dice.below(5));
        let rig = Rig::new(false, workers, queue, |b| b);
        let team = Team::new(&rig, Adds::NOTHING, false);
        let act = |rig: &Arc<Rig>, team: &Team, dice: &mut Dice| team.act(rig, dice, 0);
        let mut all = team.crowd(&rig, dice, 2..=5, act);
        let its = Arc::clone(&team);
        all.extend(rig.crowd(dice, 0..=2, 1..=1, move |_, dice| {
            if dice.one_in(2) {
                its.group.wait();
            } else {
                its.wait_for(ticks(dice.between(1, 30)));
            }
        }));
        all.extend(team.maybe_cancel(&rig, dice, 60));
        rig.end(all, Some(&team));
    });
}
