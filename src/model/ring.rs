//! The ring of slot indices.

use crate::parts::ring;

/// The ring of slot indices.
#[derive(Debug)]
pub struct Ring(ring::Ring);

impl Ring {
    /// Returns a ring with room for `capacity` indices. It holds `0..filled`.
    pub fn new(capacity: usize, filled: usize) -> Self {
        Self(ring::Ring::new(capacity, filled))
    }

    /// Adds an index at the end of the ring.
    ///
    /// # Errors
    /// Returns the index if the ring was full.
    pub fn push(&self, index: usize) -> Result<(), usize> {
        self.0.push(index)
    }

    /// Pops the oldest index.
    pub fn pop(&self) -> Option<usize> {
        self.0.pop()
    }

    /// Returns `true` if the ring held no index.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of pushes so far.
    pub fn pushes(&self) -> u64 {
        self.0.pushes()
    }

    /// Returns `true` if the ring was empty during this call. The result is right only if
    /// [`Ring::pushes`] returns `pushes` both before and after this call.
    pub fn is_drained(&self, pushes: u64) -> bool {
        self.0.is_drained(pushes)
    }
}
