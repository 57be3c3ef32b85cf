//! Groups that are shared and cancelled.
#![cfg(lazypool_shuttle)]

use shuttle_tests::{explore, ticks, Adds, Bench, Team};
use std::sync::Arc;

/// Several threads serve through one group, some wait for it, and one may cancel it. Its figures
/// add up, and each wait ends.
#[test]
fn shared_group() {
    explore("shared_group", |dice| {
        let (workers, queue) = (dice.between(1, 3), dice.below(5));
        let bench = Bench::new(false, workers, queue, |b| b);
        let team = Team::new(&bench, Adds::NOTHING, false);
        let its = Arc::clone(&team);
        let mut all = bench.crowd(dice, 2..=5, 1..=4, move |bench, dice| {
            if dice.one_in(4) {
                bench.act(None, dice, 0);
            } else {
                its.act(bench, dice, 0);
            }
        });
        let its = Arc::clone(&team);
        all.extend(bench.crowd(dice, 0..=2, 1..=1, move |_, dice| {
            if dice.one_in(2) {
                its.group.wait();
            } else {
                its.wait_for(ticks(dice.between(1, 30)));
            }
        }));
        let its = Arc::clone(&team);
        all.extend(bench.maybe(dice, 2, 60, move |bench, dice| its.cancel(bench, dice)));
        bench.end(all, Some(&team));
    });
}
