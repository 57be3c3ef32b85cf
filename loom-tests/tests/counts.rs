//! The counts of workers that no ring shows (`src/parts/in_flight.rs`): who is counted is seen.
#![cfg(lazypool_loom)]

use lazypool::model::Counts;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use loom_tests::check;
use std::sync::Arc;

/// A worker is counted, then looks; a submitter says so, then asks who is counted. One of the two
/// sees the other, whatever becomes of the worker after its look.
fn counted_is_seen(first: fn(&Counts), then: fn(&Counts), sees_nobody: fn(&Counts) -> bool) {
    check(None, move || {
        let counts = Arc::new(Counts::new());
        let asked = Arc::new(AtomicUsize::new(0));
        // Every write `SeqCst`, the first one, too: see the README.
        asked.store(0, Ordering::SeqCst);
        let submitter = thread::spawn({
            let (counts, asked) = (Arc::clone(&counts), Arc::clone(&asked));
            move || {
                asked.swap(1, Ordering::SeqCst);
                sees_nobody(&counts)
            }
        });
        first(&counts);
        let before = asked.load(Ordering::SeqCst) == 0;
        then(&counts);
        let nobody = submitter.join().unwrap();
        assert!(!(before && nobody), "it was counted all the time");
    });
}

/// A worker in its start hook: in transit, then marked as well, then marked only. Excludes:
/// "nobody" between the two counts. All interleavings.
#[test]
fn from_transit_to_marked() {
    let marks = |counts: &Counts| {
        counts.mark();
        counts.leave_transit();
    };
    counted_is_seen(Counts::enter_transit, marks, Counts::is_nobody_at_all);
}

/// A marked worker that is told to end, the other way round. Excludes: the same. All
/// interleavings.
#[test]
fn from_marked_to_transit() {
    let ends = |counts: &Counts| {
        counts.enter_transit();
        counts.unmark();
    };
    counted_is_seen(Counts::mark, ends, Counts::is_nobody_at_all);
}

/// A worker that is marked, and stays so. Excludes: "nobody is marked" after it was. All
/// interleavings.
#[test]
fn who_is_marked_is_seen() {
    counted_is_seen(Counts::mark, |_| (), |counts| !counts.is_any_marked());
}
