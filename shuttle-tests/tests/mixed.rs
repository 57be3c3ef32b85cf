//! Mixed verbs: panics, deadlines, nested calls, scopes; bursts.
#![cfg(lazypool_shuttle)]

use shuttle_tests::{explore, Bench};
use std::time::Duration;

/// Several threads each make a few calls of any verb. Laws 1 to 5, 7 to 9, 15, 17, 18.
#[test]
fn mixed_verbs() {
    explore("mixed_verbs", |dice| {
        let (workers, queue) = (dice.between(1, 4), dice.of(&[0, 0, 1, 2, 4]));
        let bench = Bench::new(false, workers, queue, |b| b);
        let all = bench.crowd(dice, 3..=8, 1..=4, |bench, dice| bench.act(None, dice, 1));
        bench.end(all, None);
    });
}

/// As many calls at once as there is space for. None is refused.
fn burst_onto(name: &str, min_workers: bool) {
    explore(name, move |dice| {
        let workers = dice.between(1, 4);
        let queue = if min_workers { 0 } else { dice.below(5) };
        let min = if min_workers { workers as usize } else { 0 };
        let bench = Bench::new(false, workers, queue, |b| b.min_workers(min));
        let all = bench.crowd(
            dice,
            workers + queue..=workers + queue,
            1..=1,
            |bench, dice| {
                if dice.one_in(2) {
                    assert!(bench.wait_small(Duration::MAX), "space for all");
                } else {
                    assert!(bench.serve_small().is_ok(), "space for all");
                }
            },
        );
        bench.end(all, None);
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
