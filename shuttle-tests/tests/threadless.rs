//! Threads that the OS refuses.
#![cfg(lazypool_shuttle)]

use lazypool::model::set_options;
use shuttle_tests::{explore, join_all, wait_until, Bench};
use std::time::Duration;

/// Calls onto a pool without threads while threads are refused. The accepted tasks end without
/// help; the others come back. Law 13.
#[test]
fn no_threads() {
    explore("no_threads", |dice| {
        let (workers, queue, idle) = (dice.between(1, 3), dice.below(4), dice.idle());
        let bench = Bench::new(false, workers, queue, |b| b.idle_timeout(idle));
        let n = dice.of(&[1, 2, 2, 3, 5]);
        set_options(|o| o.refuse_one_in = n);
        let all = bench.crowd(dice, 2..=6, 1..=3, |bench, dice| bench.act(None, dice, 1));
        join_all(all);
        bench.wait_until_idle();
        if dice.one_in(2) {
            set_options(|o| o.refuse_one_in = 0);
            // The last closure is gone, but its worker may not be free yet.
            wait_until(|| bench.wait_small(Duration::MAX));
        }
        bench.end(Vec::new(), None);
    });
}
