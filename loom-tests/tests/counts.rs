//! The counts of workers that are in no ring (`src/parts/in_flight.rs`): a submitter that looks for
//! such a worker sees it.
#![cfg(lazypool_loom)]

use lazypool::model::Counts;
use loom_tests::{check, one_sees_the_other};
use std::sync::Arc;

/// A worker adds itself to a count, then looks for submissions; a submitter announces itself, then
/// reads the counts. One of the two sees the other, even if the worker is in another count by then.
/// The worker is told to look at the queue, and arrives there; or it watches the queue, and is told
/// to end; or it begins to search on its way. Excludes: a submitter that finds it in neither count,
/// or, once it searches, no worker searching. All interleavings.
#[test]
fn counted_is_seen() {
    type Case = (fn(&Counts), fn(&Counts), fn(&Counts) -> bool);
    let cases: [Case; 3] = [
        (Counts::notify, Counts::arrive, Counts::is_zero),
        (
            |counts| {
                counts.notify();
                counts.arrive();
            },
            |counts| {
                counts.begin_end();
                counts.stop_watching();
            },
            Counts::is_zero,
        ),
        (Counts::notify, Counts::arrive, |counts| {
            !counts.is_any_searching()
        }),
    ];
    for (first, then, sees_nobody) in cases {
        check(None, move || {
            let counts = Arc::new(Counts::new());
            let seen = one_sees_the_other(&counts, first, then, sees_nobody);
            assert!(seen, "it was counted all the time");
        });
    }
}
