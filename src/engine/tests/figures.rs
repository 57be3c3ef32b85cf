//! Tests of figures that several words have.

use super::*;
use crate::engine::shared::Headcount;

/// Law 9: `workers` is `spawned` less `retired`. Of two workers that start and end one after the other, one lives at most.
#[test]
fn starts_and_ends_are_of_one_moment() {
    let counts = Headcount::default();
    thread::scope(|s| {
        let writer = s.spawn(|| {
            for _ in 0..cut(200_000) {
                // ORDERING: L1: as `Core::register` and a worker's end do.
                counts.spawned.fetch_add(1, Ordering::SeqCst);
                // ORDERING: L1: as above.
                counts.retired.fetch_add(1, Ordering::SeqCst);
            }
        });
        let mut before = 0;
        while !writer.is_finished() {
            let (spawned, retired) = counts.starts_and_ends();
            assert!(
                spawned - retired <= 1 && retired >= before,
                "{spawned} {retired} {before}"
            );
            before = retired;
        }
    });
}
