//! The label of a running task (`src/parts/label.rs`), which snapshots read meanwhile.
#![cfg(lazypool_loom)]

use lazypool::model::Label;
use loom_tests::{beside, check};
use std::sync::Arc;

/// A worker that labels two tasks, beside a snapshot.
/// Excludes: the start of one label with the length of another. Preemptions: 3.
#[test]
fn set_against_get() {
    check(Some(3), || {
        let label = Arc::new(Label::new());
        let worker = beside(&label, |label| {
            label.set(Some("one"));
            label.set(Some("another"));
        });
        assert!([None, Some("one"), Some("another")].contains(&label.get()));
        worker.join().unwrap();
        assert_eq!(label.get(), Some("another"));
    });
}
