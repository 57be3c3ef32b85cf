//! How long to stay awake for something that is about to happen.
//!
//! A hand-over between two running threads takes a fraction of a microsecond,
//! waking a parked one tens of them. So: spin for one or two microseconds where
//! another core can make progress meanwhile, offer the core a few times, then
//! park. Between two looks come several pauses: each look steals the cache line
//! from the thread that is about to write it.

use crate::sync::{spin_loop, thread};

#[cfg(not(lazypool_loom))]
mod limits {
    /// Looks while spinning.
    pub(super) const LOOKS: u32 = 256;
    /// Pauses between two looks, at most.
    pub(super) const PAUSES: u32 = 1;
    /// Times the core is offered before parking.
    pub(super) const YIELDS: u32 = 2;
    /// Looks before the core is offered, where it cannot be long.
    pub(super) const NEARLY: u32 = 32;
}

#[cfg(lazypool_loom)]
mod limits {
    pub(super) const LOOKS: u32 = 0;
    pub(super) const PAUSES: u32 = 1;
    pub(super) const YIELDS: u32 = 0;
    pub(super) const NEARLY: u32 = 3;
}

/// One wait that starts spinning and ends in the advice to park.
#[derive(Debug)]
pub(crate) struct Spin {
    looks: u32,
    yields: u32,
}

/// What the waiting thread just did.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Step {
    Spun,
    Yielded,
    /// Nothing: enough time has gone by to park.
    Spent,
}

impl Spin {
    /// `parallel`: another core can run what we wait for.
    #[inline]
    pub(crate) fn new(parallel: bool) -> Self {
        Self {
            looks: if parallel { limits::LOOKS } else { 0 },
            yields: limits::YIELDS,
        }
    }

    #[inline]
    pub(crate) fn step(&mut self) -> Step {
        if self.looks > 0 {
            self.looks -= 1;
            for _ in 0..limits::PAUSES {
                spin_loop();
            }
            Step::Spun
        } else if self.yields > 0 {
            self.yields -= 1;
            thread::yield_now();
            Step::Yielded
        } else {
            Step::Spent
        }
    }
}

/// Waits for a step that another thread is in the middle of: a few instructions
/// away unless that thread has lost its core.
#[derive(Debug, Default)]
pub(crate) struct Nearly(u32);

impl Nearly {
    pub(crate) fn wait(&mut self) {
        if self.0 < limits::NEARLY {
            self.0 += 1;
            spin_loop();
        } else {
            #[cfg(lazypool_loom)]
            crate::sync::assume_fairness();
            thread::yield_now();
        }
    }
}

/// Whether more than one core can run threads of this process.
pub(crate) fn is_parallel() -> bool {
    std::thread::available_parallelism().is_ok_and(|n| n.get() > 1)
}
