//! The counts of workers that are in no ring (`src/parts/in_flight.rs`): a submitter that looks for
//! such a worker sees it.
#![cfg(lazypool_loom)]

use lazypool::model::Counts;
use loom_tests::{check, one_sees_the_other};
use std::sync::Arc;

/// A worker adds itself to a count, then looks for submissions; a submitter announces itself, then
/// reads the counts. One of the two sees the other, even if the worker is in another count by then.
/// The worker is told to look at the queue, and arrives there; or it does so while a second one stops
/// watching. Excludes: a submitter that finds it in neither count. All interleavings.
#[test]
fn counted_is_seen() {
    type Case = (fn(&Counts), fn(&Counts));
    let cases: [Case; 2] = [
        (Counts::notify, Counts::arrive),
        (
            |counts| {
                counts.notify();
                counts.arrive();
                counts.notify();
            },
            |counts| {
                counts.stop_watching();
                counts.arrive();
            },
        ),
    ];
    for (first, then) in cases {
        check(None, move || {
            let counts = Arc::new(Counts::new());
            let sees_nobody = |counts: &Counts| !counts.is_any_counted();
            let seen = one_sees_the_other(&counts, first, then, sees_nobody);
            assert!(seen, "it was counted all the time");
        });
    }
}
