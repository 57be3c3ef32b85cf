//! Faults combined: a number of pools, and a table of the pairs of faults that were met.

use soak::faults::{Round, Table};
use soak::rng::mix;
use std::sync::atomic::Ordering;

/// Plays `rounds` rounds, and prints the pairs of faults that met in one pool. Returns `false` if a
/// pair was never met.
pub(crate) fn play(seed: u64, rounds: u64, only: Option<u64>) -> bool {
    let mut met = Table::default();
    for number in 0..rounds {
        let number = only.unwrap_or(number);
        crate::ROUND.store(number, Ordering::SeqCst);
        met.add(&Round::drawn(mix(seed ^ mix(number))).play());
    }
    println!("Of {rounds} pools, seed {seed}: {met}");
    met.is_complete()
}
