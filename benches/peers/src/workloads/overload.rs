//! Three times as much work with deadlines as the pool can do: how much of it is done in time.
//!
//! Each of 64 clients calls with a deadline, and calls again once it has its value or has given up;
//! refused, it waits for a tenth of a task. So they ask for 2,560 tasks a second, and eight workers
//! do 800. Tasks sleep, so the figure depends on which of them the pool starts, not on free cores.

use super::BUDGET;
use crate::contenders::Contender;
use lazypool::WhenFull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const WORKERS: usize = 8;
/// A tenth of the 100 ms and 250 ms of a service.
const TASK: Duration = Duration::from_millis(10);
const DEADLINE: Duration = Duration::from_millis(25);

/// Makes one call; returns 1 if its value came in time.
fn call<C: Contender>(pool: &C, alive: Arc<()>) -> u64 {
    let start = Instant::now();
    let task = move || {
        thread::sleep(TASK);
        drop(alive);
        0
    };
    let value = pool.call(task, DEADLINE);
    let in_time = start.elapsed() < DEADLINE;
    if value.is_none() && in_time {
        thread::sleep(TASK / 10);
    }
    u64::from(value.is_some() && in_time)
}

/// Returns the values that came in time, in percent of the tasks that the workers can do.
pub(super) fn overload<C: Contender>(queue: usize) -> Vec<f64> {
    let pool = C::build(WORKERS, queue, WhenFull::Refuse);
    let alive = Arc::new(());
    let (over, good) = (AtomicBool::new(false), AtomicU64::new(0));
    let client = || {
        while !over.load(Relaxed) {
            good.fetch_add(call(&pool, Arc::clone(&alive)), Relaxed);
        }
    };
    let good = thread::scope(|s| {
        (0..64).for_each(|_| drop(s.spawn(client)));
        // Until the first clients have given up.
        thread::sleep(2 * DEADLINE);
        let before = good.load(Relaxed);
        thread::sleep(8 * BUDGET);
        over.store(true, Relaxed);
        good.load(Relaxed) - before
    });
    drop(pool);
    // Tasks that are left must not run in the next contender's turn.
    while Arc::strong_count(&alive) > 1 {
        thread::sleep(TASK);
    }
    let capacity = (8 * BUDGET * WORKERS as u32).div_duration_f64(TASK);
    vec![100.0 * good as f64 / capacity]
}
