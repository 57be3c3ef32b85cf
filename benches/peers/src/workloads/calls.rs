//! Workloads of calls, which wait with a deadline.

use super::{paced, quantiles, BUDGET, QUEUE, WORKERS};
use crate::contenders::Contender;
use crate::machine::processor_time;
use crate::tally::{tick, Tally};
use crossbeam_utils::CachePadded;
use lazypool::WhenFull;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// A time longer than any call takes.
const LIMIT: Duration = Duration::from_secs(10);

fn call<C: Contender>(pool: &C, i: u64) {
    let i = black_box(i);
    let task = move || {
        tick();
        i + 1
    };
    assert_eq!(pool.call(task, LIMIT), Some(i + 1), "its own value");
}

/// Measures calls back to back. Returns the time per call, for all callers together.
pub(super) fn timed<C: Contender>(callers: u64) -> Vec<f64> {
    let pool = C::build(WORKERS, QUEUE, WhenFull::Block);
    let figures = paced(|n| {
        let share = n.div_ceil(callers);
        let ready = Barrier::new(callers as usize);
        let caller = || {
            ready.wait();
            let start = Instant::now();
            (0..share).for_each(|i| call(&pool, i));
            start
        };
        let tally = Tally::start();
        let start = thread::scope(|s| {
            (1..callers).for_each(|_| drop(s.spawn(caller)));
            caller()
        });
        let took = start.elapsed();
        tally.wait(share * callers);
        took
    });
    figures.into()
}

/// Measures calls with pauses: the caller sleeps before each call, so the worker sleeps, too.
pub(super) fn apart<C: Contender>(micros: u64) -> Vec<f64> {
    let calls = 10 * BUDGET.as_millis() as u64;
    let pool = C::build(1, QUEUE, WhenFull::Block);
    let before = processor_time();
    let one = |i| {
        thread::sleep(Duration::from_micros(micros));
        let start = Instant::now();
        call(&pool, i);
        start.elapsed().as_nanos() as u64
    };
    let waits = (0..calls).map(one).collect();
    let cpu = (processor_time() - before).as_secs_f64() * 1e6 / calls as f64;
    let [p50, p99] = quantiles(waits, [0.5, 0.99]);
    vec![p50, p99, cpu]
}

/// Returns the time in nanoseconds that a cache line takes to get from one spinning thread to
/// another and back. This is the 25th percentile of many stretches, because the two threads may
/// have shared a core in the slower ones.
pub(crate) fn spinning_round_trip() -> f64 {
    const STRETCHES: u64 = 64;
    const TRIPS: u64 = 128;
    let ball = CachePadded::new(AtomicU64::new(0));
    let wait = |awaited| {
        let mut looks = 0_u32;
        while ball.load(Ordering::Acquire) != awaited {
            spin_loop();
            looks += 1;
            // Yield, because the other thread may wait for this core.
            if looks.is_multiple_of(1024) {
                thread::yield_now();
            }
        }
    };
    thread::scope(|s| {
        s.spawn(|| {
            for trip in 0..STRETCHES * TRIPS {
                wait(2 * trip + 1);
                ball.store(2 * trip + 2, Ordering::Release);
            }
        });
        let trip = |trip| {
            ball.store(2 * trip + 1, Ordering::Release);
            wait(2 * trip + 2);
        };
        let stretch = |i| {
            let start = Instant::now();
            (i * TRIPS..(i + 1) * TRIPS).for_each(trip);
            start.elapsed().as_nanos() as u64
        };
        let [quarter, _] = quantiles((0..STRETCHES).map(stretch).collect(), [0.25, 0.5]);
        1e3 * quarter / TRIPS as f64
    })
}
