//! A small, repeatable random number generator: splitmix64.

use std::time::Duration;

/// A source of random numbers. The same seed gives the same numbers.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

/// Takes one step of splitmix64, as a hash.
pub(crate) fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// Returns any number of 64 bits.
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Returns a number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.draw() % n
    }

    /// Returns `true` once in `n` times.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of the items.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Returns a time shorter than `most` microseconds.
    pub(crate) fn micros(&mut self, most: u64) -> Duration {
        Duration::from_micros(self.below(most))
    }
}
