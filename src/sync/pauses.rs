//! Pauses between steps, under `--cfg lazypool_pauses`: before each step on a shared word, and
//! before a lock, a thread may be stopped, for as long as a scheduler might. For the soak, the fuzz
//! targets and `.ci/paused`.

use std::cell::Cell;
use std::sync::atomic::{self, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

static ONE_IN: atomic::AtomicU32 = atomic::AtomicU32::new(UNSAID);
/// As `LAZYPOOL_PAUSES` says: how many steps, and optionally the first seed (`300,7`); or never.
const UNSAID: u32 = u32::MAX;
static COUNT: atomic::AtomicU64 = atomic::AtomicU64::new(0);

/// From now on each thread is stopped at one step in so many; 0: never.
pub fn pause_one_in(steps: u32) {
    ONE_IN.store(steps, Ordering::Relaxed);
}

/// How many pauses there have been.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// How often a thread is stopped where the environment asked for it: tests with many steps end, too.
const MOST: u32 = 300;

fn asked_for() -> (u32, u64) {
    static ASKED: OnceLock<(u32, u64)> = OnceLock::new();
    *ASKED.get_or_init(|| {
        let Ok(asked) = std::env::var("LAZYPOOL_PAUSES") else {
            return (0, 0);
        };
        let (steps, seed) = asked.split_once(',').unwrap_or((&asked, "0"));
        match (steps.parse(), seed.parse()) {
            (Ok(steps), Ok(seed)) => (steps, seed),
            _ => panic!("LAZYPOOL_PAUSES is STEPS or STEPS,SEED, but was {asked:?}"),
        }
    })
}

/// A quarter of the pauses gives the core away, a quarter is short, half take milliseconds; where
/// the environment gave a seed, a few take longer than most waits of a test.
pub(crate) fn step() {
    static SEED: atomic::AtomicU64 = atomic::AtomicU64::new(1);
    std::thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
        static STOPPED: Cell<u32> = const { Cell::new(0) };
    }
    let (one_in, seed) = match ONE_IN.load(Ordering::Relaxed) {
        UNSAID => asked_for(),
        said => (said, 0),
    };
    if one_in == 0 {
        return;
    }
    let mut state = STATE.get();
    if state == 0 {
        state = (seed << 32 | SEED.fetch_add(1, Ordering::Relaxed))
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
        if seed != 0 && STOPPED.replace(STOPPED.get().saturating_add(1)) >= MOST {
            return;
        }
        match state >> 8 & 3 {
            0 => std::thread::yield_now(),
            1 => std::thread::sleep(Duration::from_micros(state >> 20 & 127)),
            2 if seed != 0 && state >> 40 & 15 == 0 => {
                std::thread::sleep(Duration::from_millis(20 + (state >> 20 & 63)));
            }
            _ => std::thread::sleep(Duration::from_micros(1_000 + (state >> 20 & 2_047))),
        }
    }
}

macro_rules! paused {
    ($($name:ident($value:ty) { $($op:ident)* })*) => { $(
        #[derive(Debug, Default)]
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
    AtomicU32(u32) { fetch_add fetch_sub fetch_or }
    AtomicU64(u64) { fetch_add fetch_sub fetch_or fetch_and }
}
