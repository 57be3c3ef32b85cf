//! Tests of figures that several words have.

use super::*;
use crate::engine::shared::Headcount;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Law 9: `workers` is `spawned` less `retired`. Of two workers that start and end one after the other, one lives at most.
#[test]
fn starts_and_ends_are_of_one_moment() {
    let (counts, is_over) = (Headcount::default(), AtomicBool::new(false));
    thread::scope(|s| {
        s.spawn(|| {
            while !is_over.load(Relaxed) {
                // ORDERING: L1: as `Core::register` and a worker's end do.
                counts.spawned.fetch_add(1, Ordering::SeqCst);
                // ORDERING: L1: as `Core::register` and a worker's end do.
                counts.retired.fetch_add(1, Ordering::SeqCst);
            }
        });
        until(|| counts.starts_and_ends().1 > 0);
        let mut before = 0;
        for _ in 0..cut(200_000) {
            let (spawned, retired) = counts.starts_and_ends();
            let seen = (spawned - retired, retired.cmp(&before));
            before = retired;
            if seen.0 > 1 || seen.1.is_lt() {
                is_over.store(true, Relaxed);
                panic!("{seen:?}");
            }
        }
        is_over.store(true, Relaxed);
    });
}
