//! Workloads of tasks whose submitter waits for all of them together, or for none.

use super::{paced, quantiles, BUDGET, QUEUE, WORKERS};
use crate::contenders::Contender;
use crate::tally::{tick, Tally};
use crossbeam_utils::CachePadded;
use lazypool::WhenFull;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Returns the time from the start of `producers` threads until all of their `n` tasks have run.
/// The threads share one count of the tasks left, so they end at about the same time. A producer
/// that ended early would free a core for the pool's workers.
fn served(producers: u64, n: u64, submit: impl Fn() + Sync) -> Duration {
    let portion = (n / producers / 64).clamp(1, 256);
    let left = CachePadded::new(AtomicU64::new(n));
    let ready = Barrier::new(producers as usize);
    let produce = || {
        ready.wait();
        let start = Instant::now();
        let take = |left: u64| (left > 0).then(|| left.saturating_sub(portion));
        while let Ok(before) = left.fetch_update(Relaxed, Relaxed, take) {
            (0..before.min(portion)).for_each(|_| submit());
        }
        start
    };
    let tally = Tally::start();
    thread::scope(|s| {
        (1..producers).for_each(|_| drop(s.spawn(produce)));
        let start = produce();
        tally.wait(n);
        start.elapsed()
    })
}

/// Returns a task that captures an array, and uses all of it.
fn carrying() -> impl FnOnce() + Clone + Send + 'static {
    let words = [1_u64, 2, 3];
    move || {
        black_box(words);
        tick();
    }
}

/// Measures tasks through a queue, or without one. Producers wait for room.
pub(super) fn queue<C: Contender>(shape: (usize, usize), producers: u64, bytes: usize) -> Vec<f64> {
    let pool = C::build(shape.0, shape.1, WhenFull::Block);
    let [ns, _] = paced(|n| match bytes {
        0 => served(producers, n, || pool.execute(tick)),
        _ => served(producers, n, || pool.execute(carrying())),
    });
    vec![ns]
}

/// Measures 64 tasks for a pool whose workers sleep, until all tasks have run.
pub(super) fn burst<C: Contender>(workers: usize, queue: usize, micros: u64) -> Vec<f64> {
    const TASKS: u64 = 64;
    let pool = C::build(workers, queue, WhenFull::Block);
    let length = Duration::from_micros(micros);
    // The first burst starts the threads.
    let times = 1 + BUDGET.as_millis().div_ceil(4);
    let burst = |_| {
        // This is long enough for the workers of every pool to fall asleep.
        thread::sleep(Duration::from_millis(3));
        let tally = Tally::start();
        let start = Instant::now();
        for _ in 0..TASKS {
            pool.execute(move || {
                if !length.is_zero() {
                    thread::sleep(length);
                }
                tick();
            });
        }
        tally.wait(TASKS);
        start.elapsed().as_nanos() as u64
    };
    let samples: Vec<_> = (0..times).map(burst).skip(1).collect();
    quantiles(samples, [0.5, 0.95]).into()
}

/// Measures the time per task of a group of 1,024 tasks, including the wait for all.
pub(super) fn group<C: Contender>() -> Vec<f64> {
    const TASKS: usize = 1024;
    let pool = C::build(WORKERS, QUEUE, WhenFull::Block);
    let task = |i| {
        black_box(i);
        tick();
    };
    let [ns, _] = paced(|n| {
        let tally = Tally::start();
        let start = Instant::now();
        (0..n).for_each(|_| pool.batch(TASKS, task));
        let took = start.elapsed();
        tally.wait(n * TASKS as u64);
        took
    });
    vec![ns / TASKS as f64]
}

/// Measures refusals by a pool whose workers are all occupied and whose queue is full.
pub(super) fn refusal<C: Contender>() -> Vec<f64> {
    let gate = Arc::default();
    let closed = Mutex::lock(&gate).expect("no thread panics");
    let pool = C::build(WORKERS, QUEUE, WhenFull::Refuse);
    let tally = Tally::start();
    let ticks = saturate(&pool, WORKERS, &gate);
    let [ns, _] = paced(|n| {
        let start = Instant::now();
        for _ in 0..n {
            assert!(!pool.try_execute(carrying()), "the pool is saturated");
        }
        start.elapsed()
    });
    drop(closed);
    tally.wait(ticks);
    vec![ns]
}

/// Returns a task that holds its worker until it has the lock.
pub(crate) fn holding(gate: &Arc<Mutex<()>>) -> impl FnOnce() + Clone + Send + 'static {
    let gate = Arc::clone(gate);
    move || {
        tick();
        drop(gate.lock());
    }
}

/// Occupies all workers and fills the queue. Returns the number of tasks that will run.
pub(crate) fn saturate<C: Contender>(pool: &C, workers: usize, gate: &Arc<Mutex<()>>) -> u64 {
    let tally = Tally::start();
    for _ in 0..workers {
        // A pool without a queue refuses until a worker waits.
        while !pool.try_execute(holding(gate)) {
            thread::yield_now();
        }
    }
    tally.wait(workers as u64);
    let queued = std::iter::from_fn(|| pool.try_execute(tick).then_some(())).count();
    (workers + queued) as u64
}
