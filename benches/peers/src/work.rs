//! Work of a known length.
//!
//! A loop of known speed, not a loop that watches the clock: a thread that
//! loses its core has not worked meanwhile.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

#[inline(never)]
fn steps(n: u64) -> u64 {
    let mut x = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..n {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x
}

fn steps_per_ns() -> f64 {
    static SPEED: OnceLock<f64> = OnceLock::new();
    *SPEED.get_or_init(|| {
        const STEPS: u64 = 200_000;
        let fastest = (0..30)
            .map(|_| {
                let start = Instant::now();
                black_box(steps(STEPS));
                start.elapsed().as_nanos() as f64
            })
            .fold(f64::INFINITY, f64::min);
        STEPS as f64 / fastest
    })
}

/// A piece of work of a given length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work(u64);

impl Work {
    pub(crate) fn of_nanos(ns: f64) -> Self {
        Self((ns * steps_per_ns()) as u64)
    }

    #[inline]
    pub(crate) fn run(self) {
        if self.0 > 0 {
            black_box(steps(self.0));
        }
    }
}

/// The factorial of 50, modulo 2^64 (as in the Go package whose figures we were
/// given): a task of some tens of nanoseconds.
pub(crate) fn factorial_of_50(_: usize) {
    let n = black_box(50_u64);
    black_box((1..=n).fold(1_u64, u64::wrapping_mul));
    crate::tally::tick();
}
