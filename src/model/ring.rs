//! The ring of slot indices.

use crate::parts::ring;

/// The ring of slot indices.
#[derive(Debug)]
pub struct Ring(ring::Ring);

impl Ring {
    /// Returns a ring with space for `capacity` indices. It holds `0..filled`.
    pub fn new(capacity: usize, filled: usize) -> Self {
        Self(ring::Ring::new(capacity, filled))
    }
}

forward! { Ring:
    try_push(index: usize) -> Result<(), usize>;
    pop() -> Option<usize>;
    is_empty() -> bool;
}
