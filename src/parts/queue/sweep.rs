//! How far a submission has looked for room in the middle of a queue.

use std::cell::Cell;

/// At so many cells a push looks for a tombstone: some microseconds' worth. In models, whose
/// queues are short, at one.
pub(super) const LOOKS: u64 = if cfg!(any(lazypool_loom, lazypool_shuttle)) {
    1
} else {
    512
};

/// How far a submission has looked for a tombstone. A queue may be long: it goes on with its next
/// push, and asks its deadline in between.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// At how many cells, one after the other; zero at first, and once it has been at them all.
    looks: Cell<u64>,
    /// The next one's position.
    next: Cell<u64>,
    has_advanced: Cell<bool>,
}

impl Sweep {
    /// Whether a push has looked at some cells, and not yet at all.
    pub(crate) fn has_advanced(&self) -> bool {
        self.has_advanced.get()
    }

    /// The same; from now on it has not.
    pub(crate) fn take_advance(&self) -> bool {
        self.has_advanced.take()
    }

    pub(super) fn looks(&self) -> u64 {
        self.looks.get()
    }

    /// Where to go on; `None`: it has yet to begin.
    pub(super) fn next(&self) -> Option<u64> {
        (self.looks() != 0).then(|| self.next.get())
    }

    pub(super) fn advance(&self, next: u64) {
        self.looks.set(self.looks() + LOOKS);
        self.next.set(next);
        self.has_advanced.set(true);
    }

    /// The next push looks at all cells again.
    pub(crate) fn end(&self) {
        self.looks.set(0);
    }
}
