//! The counts of workers that are in no ring (`src/parts/in_flight.rs`): a submitter that looks for
//! such a worker sees it.
#![cfg(lazypool_loom)]

use lazypool::model::Counts;
use loom_tests::{check, one_sees_the_other};
use std::sync::Arc;

/// A worker adds itself to a count, then looks for submissions; a submitter announces itself, then
/// reads the counts. One of the two sees the other, even if the worker is in another count by then.
fn counted_is_seen(first: fn(&Counts), then: fn(&Counts), sees_nobody: fn(&Counts) -> bool) {
    check(None, move || {
        let counts = Arc::new(Counts::new());
        let seen = one_sees_the_other(&counts, first, then, sees_nobody);
        assert!(seen, "it was counted all the time");
    });
}

/// A worker is told to look at the queue, and arrives there. Excludes: a submitter that finds it in
/// neither count. All interleavings.
#[test]
fn from_notified_to_awake() {
    counted_is_seen(Counts::notify, Counts::arrive, Counts::is_zero);
}

/// A worker that watches the queue is told to end. Excludes: a submitter that finds it in neither
/// count. All interleavings.
#[test]
fn from_awake_to_its_end() {
    let awake = |counts: &Counts| {
        counts.notify();
        counts.arrive();
    };
    let ends = |counts: &Counts| {
        counts.begin_end();
        counts.stop_watching();
    };
    counted_is_seen(awake, ends, Counts::is_zero);
}

/// A worker on its way to the queue begins to search. Excludes: a submitter that announces itself
/// after that and finds no worker searching. All interleavings.
#[test]
fn who_searches_is_seen() {
    counted_is_seen(Counts::notify, Counts::arrive, |counts| {
        !counts.is_any_searching()
    });
}
