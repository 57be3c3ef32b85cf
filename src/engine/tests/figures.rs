//! Tests of figures that several words have.

use super::*;
use crate::engine::shared::Headcount;
use std::sync::atomic::AtomicBool;

/// Law 9: `workers` is `spawned` less `retired`. Of two workers that start and end one after the other, one lives at most.
#[test]
fn starts_and_ends_are_of_one_moment() {
    let (counts, is_over) = (Headcount::default(), AtomicBool::new(false));
    let readings = thread::scope(|s| {
        s.spawn(|| {
            // Relaxed: a flag.
            while !is_over.load(Ordering::Relaxed) {
                // ORDERING: L1: as `Core::register` and a worker's end do.
                counts.spawned.fetch_add(1, Ordering::SeqCst);
                // ORDERING: L1: as above.
                counts.retired.fetch_add(1, Ordering::SeqCst);
            }
        });
        // Until the other thread has gone on often enough between two readings.
        let mut readings = vec![counts.starts_and_ends()];
        while (readings.len() as u64) < cut(2_000) {
            let reading = counts.starts_and_ends();
            if readings.last() != Some(&reading) {
                readings.push(reading);
            }
        }
        // Relaxed: a flag.
        is_over.store(true, Ordering::Relaxed);
        readings
    });
    assert!(readings.is_sorted_by_key(|(_, retired)| *retired));
    let of_two = readings
        .iter()
        .find(|(spawned, retired)| spawned - retired > 1);
    assert_eq!(of_two, None);
}
