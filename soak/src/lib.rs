//! What the soak shares with the fuzz target `pool`: pools under several faults at once, and a
//! system that is short of threads. Linux only.

pub mod faults;
pub mod os;
pub mod rng;
pub mod spawn;

/// Steps forward anywhere, for who looks whether something hangs.
pub static PROGRESS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
