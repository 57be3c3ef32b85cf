//! Helpers that the integration tests share. This file: limits, waits for conditions, tests that
//! must not hang. The modules: pools, gates and submissions, outcomes, ledgers, futures, threads.
//!
//! No test here relies on time alone. Lower limits are exact, upper limits are generous, and a test
//! waits for each event that must happen.

// Each test binary compiles its own copy of this module and uses part of it.
#![allow(dead_code, unreachable_pub, unused_imports, unused_macros)]

mod checks;
mod cut;
#[cfg(unix)]
pub mod fork;
mod futures;
mod gates;
mod ledger;
#[cfg(target_os = "linux")]
pub mod os;
mod outcomes;
mod pools;
#[cfg(unix)]
pub mod programs;

use std::fmt::Debug;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use checks::assert_stats;
pub use checks::*;
pub(crate) use cut::cut;
pub(crate) use cut::limit;
pub use futures::*;
pub use gates::*;
pub use ledger::{Entry, Gauge, Ledger, Tally};
pub use outcomes::*;
pub use pools::*;

/// How long a condition may take before a test fails. Far longer than any healthy run needs.
pub const LIMIT: Duration = limit(30);

/// A stack size that no system can give to a thread. On 32-bit systems, a process whose memory is
/// in use does not have that much address space left.
pub const IMPOSSIBLE_STACK: usize = if cfg!(target_pointer_width = "64") {
    (1_u64 << 46) as usize
} else {
    7 << 29
};

/// A deadline that never passes during a test.
pub const LONG: Duration = limit(600);

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Returns `LAZYPOOL_STRESS`, the factor for the number of rounds, or 1 if it is not set.
pub fn stress() -> u64 {
    match std::env::var("LAZYPOOL_STRESS") {
        Ok(n) => n
            .parse()
            .expect("LAZYPOOL_STRESS must be a positive integer"),
        Err(_) => 1,
    }
}

/// Returns `n` rounds, multiplied by `LAZYPOOL_STRESS`; fewer under Miri.
pub fn rounds(n: u64) -> u64 {
    cut(n) * stress().max(1)
}

/// Waits until `cond` holds. Panics with `what` if that takes longer than [`LIMIT`].
#[track_caller]
pub fn wait_until(what: &str, mut cond: impl FnMut() -> bool) {
    let start = Instant::now();
    let mut turns = 0_u32;
    while !cond() {
        assert!(
            start.elapsed() < LIMIT,
            "waited {LIMIT:?} in vain for {what}"
        );
        turns += 1;
        if turns < 100 {
            thread::yield_now();
        } else {
            thread::sleep(Duration::from_micros(300));
        }
    }
}

/// Asserts that `f` takes at least that long, and returns its result.
#[track_caller]
pub fn takes<T>(least: Duration, f: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = f();
    let took = start.elapsed();
    assert!(took >= least, "returned after {took:?}, before {least:?}");
    result
}

/// Runs `body` on another thread and fails if it hangs, so that one lost wake-up does not hang the
/// whole suite.
#[track_caller]
pub fn timed(body: impl FnOnce() + Send + 'static) {
    let limit = limit(120) * u32::try_from(stress().max(1)).expect("stress");
    let (done, ended) = mpsc::channel();
    let handle = thread::spawn(move || {
        let outcome = panic::catch_unwind(AssertUnwindSafe(body));
        // The receiver is gone only if the limit has passed.
        let _ = done.send(());
        outcome
    });
    match ended.recv_timeout(limit) {
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs: not done in {limit:?}"),
        _ => match handle.join() {
            Ok(Ok(())) => {}
            Ok(Err(payload)) | Err(payload) => panic::resume_unwind(payload),
        },
    }
}

/// Runs `body` for each of the cases, as [`timed`] does. If it panics, prints the case.
#[track_caller]
pub fn timed_each<C: Debug>(
    cases: impl IntoIterator<Item = C> + Send + 'static,
    mut body: impl FnMut(C) + Send + 'static,
) {
    timed(move || {
        for case in cases {
            let name = format!("{case:?}");
            let _named = on_drop(|| {
                if thread::panicking() {
                    eprintln!("the case is {name}");
                }
            });
            body(case);
        }
    });
}

/// Returns each pair of an element of `a` and one of `b`.
pub fn product<A: Copy, B: Copy>(
    a: impl IntoIterator<Item = A>,
    b: impl IntoIterator<Item = B> + Clone,
) -> Vec<(A, B)> {
    let pairs = |a| b.clone().into_iter().map(move |b| (a, b));
    a.into_iter().flat_map(pairs).collect()
}

/// Calls its closure when it is dropped.
pub struct OnDrop<F: FnOnce()>(pub Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

/// Panics without calling the panic hook: no message, no backtrace, so thousands of panics are
/// cheap.
pub fn quiet_panic(message: &'static str) -> ! {
    panic::resume_unwind(Box::new(message))
}

/// A value whose drop panics.
#[derive(Debug)]
pub struct Bomb(pub &'static str);

impl Drop for Bomb {
    fn drop(&mut self) {
        // A second panic during an unwind aborts the process: that is a rule of the language.
        if !thread::panicking() {
            quiet_panic(self.0);
        }
    }
}

/// A small random number generator (xorshift64*) whose numbers depend only on the seed.
#[derive(Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Uses the CPU for about `d`.
pub fn spin(d: Duration) {
    let start = Instant::now();
    while start.elapsed() < d {
        std::hint::spin_loop();
    }
}

/// Returns a number that no other call in this process returns.
pub fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Runs `body` in another process, in which only this test has threads.
///
/// The process runs this test binary again with only the test in which `body` is written.
#[track_caller]
pub fn isolated<F: FnOnce() + Send + 'static>(body: F) {
    isolated_test(test_of::<F>(), || timed(body));
}

/// Runs `body` for each of the cases, as [`timed_each`] does, in a process like that of
/// [`isolated`].
#[track_caller]
pub fn isolated_each<C: Debug, F: FnMut(C) + Send + 'static>(
    cases: impl IntoIterator<Item = C> + Send + 'static,
    body: F,
) {
    isolated_test(test_of::<F>(), || timed_each(cases, body));
}

/// Returns the name of the test function in which a closure is written. The type of the closure is
/// called `binary::test::{{closure}}`.
fn test_of<F>() -> &'static str {
    let path = std::any::type_name::<F>();
    path.split("::").nth(1).expect("the name of a test")
}

#[track_caller]
fn isolated_test(name: &str, body: impl FnOnce()) {
    const VAR: &str = "LAZYPOOL_ISOLATED";
    if std::env::var(VAR).is_ok_and(|inside| inside == name) {
        return body();
    }
    let output = std::process::Command::new(std::env::current_exe().expect("current_exe"))
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(VAR, name)
        .output()
        .expect("this test binary again");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{name} on its own: {}\n{stdout}\n{stderr}",
        output.status
    );
}
