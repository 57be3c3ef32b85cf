//! Pauses between steps, under `--cfg lazypool_pauses`: before each step on a shared word a
//! thread may be stopped, for as long as a scheduler might. For the soak and the fuzz targets.

use std::cell::Cell;
use std::sync::atomic::{self, Ordering};
use std::time::Duration;

static ONE_IN: atomic::AtomicU32 = atomic::AtomicU32::new(0);
static COUNT: atomic::AtomicU64 = atomic::AtomicU64::new(0);

/// From now on each thread is stopped at one step in so many; 0: never.
pub fn pause_one_in(steps: u32) {
    ONE_IN.store(steps, Ordering::Relaxed);
}

/// How many pauses there have been.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

static REFILLED: atomic::AtomicU64 = atomic::AtomicU64::new(0);

/// How many tasks have been put where another was taken out of the queue.
pub fn refilled() -> u64 {
    REFILLED.load(Ordering::Relaxed)
}

pub(crate) fn note_refilled() {
    REFILLED.fetch_add(1, Ordering::Relaxed);
}

/// A quarter of the pauses gives the core away, a quarter is short, half take milliseconds.
fn step() {
    static SEED: atomic::AtomicU64 = atomic::AtomicU64::new(1);
    std::thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    let one_in = ONE_IN.load(Ordering::Relaxed);
    if one_in == 0 {
        return;
    }
    let mut state = STATE.get();
    if state == 0 {
        state = SEED
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            | 1;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    STATE.set(state);
    let drawn = state >> 16;
    if drawn % u64::from(one_in) == 0 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        match state >> 8 & 3 {
            0 => std::thread::yield_now(),
            1 => std::thread::sleep(Duration::from_micros(state >> 20 & 127)),
            _ => std::thread::sleep(Duration::from_micros(1_000 + (state >> 20 & 2_047))),
        }
    }
}

macro_rules! paused {
    ($($name:ident($value:ty) { $($op:ident)* })*) => { $(
        #[derive(Debug)]
        #[repr(transparent)]
        pub(crate) struct $name(atomic::$name);

        #[allow(dead_code)]
        impl $name {
            pub(crate) const fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                step();
                self.0.load(order)
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                step();
                self.0.store(value, order);
            }

            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.swap(value, order)
            }

            pub(crate) fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.compare_exchange(old, new, success, failure)
            }

            $(pub(crate) fn $op(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.$op(value, order)
            })*
        }
    )* };
}

paused! {
    AtomicBool(bool) {}
    AtomicU32(u32) { fetch_add fetch_sub }
    AtomicUsize(usize) { fetch_add fetch_sub }
    AtomicU64(u64) { fetch_add fetch_sub fetch_or fetch_and }
}
