//! The part of the soak that the fuzz target `pool` uses, too: pools under several faults at once,
//! and an OS that refuses threads. Linux only.

pub mod faults;
pub mod os;
pub mod rng;
pub mod spawn;

/// Counts steps of any thread. If it stands still, something hangs.
pub static PROGRESS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
