//! A small, repeatable random number generator: splitmix64, which may be preceded by given bytes.

use std::time::Duration;

/// A source of random numbers.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
    given: std::vec::IntoIter<u8>,
}

/// Takes one step of splitmix64, as a hash.
pub fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

impl Rng {
    /// Returns a source that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self {
            state: mix(seed),
            given: Vec::new().into_iter(),
        }
    }

    /// Returns a source that gives the bytes as numbers, one each. After them come numbers from the
    /// seed that the bytes make.
    pub fn of(bytes: impl Iterator<Item = u8>) -> Self {
        let given: Vec<u8> = bytes.collect();
        let seed = given.iter().fold(0, |n, &byte| mix(n ^ u64::from(byte)));
        Self {
            state: seed,
            given: given.into_iter(),
        }
    }

    /// Returns any number of 64 bits.
    pub fn draw(&mut self) -> u64 {
        if let Some(byte) = self.given.next() {
            return mix(byte.into());
        }
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n
    }

    /// Returns `true` once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of the items.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Returns a time shorter than `most` microseconds.
    pub fn micros(&mut self, most: u64) -> Duration {
        Duration::from_micros(self.below(most))
    }
}
