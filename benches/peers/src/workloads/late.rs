//! How late a thread or a task may be, beside others: the longest of a thousand.

use super::tasks::holding;
use super::{quantiles, BUDGET, QUEUE, WORKERS};
use crate::contenders::Contender;
use crate::tally::{tick, Tally};
use crossbeam_utils::CachePadded;
use lazypool::WhenFull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The time that is given to the threads and tasks of one turn, in which some thousands of calls are measured.
const TURN: Duration = BUDGET.saturating_mul(8);
const QUANTILES: [f64; 2] = [0.5, 0.999];

/// Calls `f` for the time of a turn, and returns the two quantiles of its time in microseconds.
/// Sleeps before each call. Otherwise a thousand short calls would hide each long one.
fn each(mut f: impl FnMut()) -> Vec<f64> {
    let begin = Instant::now();
    let mut nanos = Vec::with_capacity(1 << 12);
    while begin.elapsed() < TURN {
        thread::sleep(Duration::from_micros(20));
        let start = Instant::now();
        f();
        nanos.push(start.elapsed().as_nanos() as u64);
    }
    quantiles(nanos, QUANTILES).into()
}

/// Measures submissions that must not wait, beside eight producers that wait for room.
pub(super) fn refuse<C: Contender>() -> Vec<f64> {
    let pool = C::build(WORKERS, 16, WhenFull::Block);
    let over = CachePadded::new(AtomicBool::new(false));
    let submitted = CachePadded::new(AtomicU64::new(0));
    let produce = || {
        while !over.load(Relaxed) {
            pool.execute(tick);
            submitted.fetch_add(1, Relaxed);
        }
    };
    let tally = Tally::start();
    let figures = thread::scope(|s| {
        (0..8).for_each(|_| drop(s.spawn(produce)));
        let figures = each(|| {
            let accepted = pool.at_once(tick);
            submitted.fetch_add(accepted.into(), Relaxed);
        });
        over.store(true, Relaxed);
        figures
    });
    tally.wait(submitted.load(Relaxed));
    figures
}

/// Measures from the moment at which a worker becomes free until it has run the task that is queued
/// behind 100,000 cancelled ones.
pub(super) fn cancelled<C: Contender>() -> Vec<f64> {
    const CANCELLED: usize = 100_000;
    let nanos = (0..5).map(|_| {
        let gate = Arc::default();
        let closed = Mutex::lock(&gate).expect("no thread panics");
        let pool = C::build(1, CANCELLED + 1, WhenFull::Block);
        let tally = Tally::start();
        pool.execute(holding(&gate));
        tally.wait(1);
        pool.cancel_queued(CANCELLED);
        pool.execute(tick);
        let start = Instant::now();
        drop(closed);
        tally.wait(2);
        start.elapsed().as_nanos() as u64
    });
    quantiles(nanos.collect(), [0.5, 1.0]).into()
}

/// Measures calls with a label, beside a thread that looks at the pool's workers again and again.
pub(super) fn watched<C: Contender>() -> Vec<f64> {
    let pool = C::build(1, QUEUE, WhenFull::Block);
    let over = CachePadded::new(AtomicBool::new(false));
    thread::scope(|s| {
        s.spawn(|| {
            while !over.load(Relaxed) {
                pool.look();
            }
        });
        let figures = each(|| {
            let value = pool.labeled_call(|| 1, Duration::from_secs(10));
            assert_eq!(value, Some(1));
        });
        over.store(true, Relaxed);
        figures
    })
}
