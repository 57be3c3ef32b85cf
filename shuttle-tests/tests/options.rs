//! A limit that is set at run time.
#![cfg(lazypool_shuttle)]

use lazypool::model::set_options;
use shuttle_tests::{explore, Bench};

/// The limit rises and falls beside submissions, some of which may wait for space, beside
/// retirement, threads that the OS refuses, and perhaps a shutdown. Laws 1, 2, 4, 9, 13, 14.
#[test]
fn limits() {
    explore("limits", |dice| {
        let (workers, queue, idle) = (dice.between(2, 4), dice.below(4), dice.idle());
        let min = dice.between(0, 2) as usize;
        let bench = Bench::new(dice.one_in(2), workers, queue, |b| {
            b.idle_timeout(idle).min_workers(min)
        });
        if dice.one_in(3) {
            let n = dice.of(&[1, 2, 3]);
            set_options(|o| o.refuse_one_in = n);
        }
        let mut all = bench.crowd(dice, 2..=6, 1..=4, |bench, dice| bench.act(None, dice, 1));
        all.extend(bench.crowd(dice, 1..=2, 1..=1, |bench, dice| bench.move_limit(dice)));
        all.extend(bench.maybe(dice, 4, 90, |bench, dice| bench.shut_down(dice)));
        bench.end(all, None);
    });
}
