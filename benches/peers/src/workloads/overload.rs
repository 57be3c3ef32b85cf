//! The share of calls in time, if clients ask for three times as much work as the pool can do.
//!
//! Each of 64 clients calls with a deadline, and calls again once it has its value or has given up.
//! If it is refused, it first waits for a tenth of a task. So the clients ask for 2,560 tasks a
//! second, and eight workers do 800. Tasks sleep, so the figure depends on the choice of the tasks
//! that the pool starts, and not on free cores.

use super::{BUDGET, QUEUE};
use crate::contenders::Contender;
use lazypool::WhenFull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const WORKERS: usize = 8;
/// The time of a task. A service might have tasks of 100 ms and a deadline of 250 ms; here both are
/// a tenth of that.
const TASK: Duration = Duration::from_millis(10);
const DEADLINE: Duration = Duration::from_millis(25);

/// Makes one call. Returns 1 if its value came in time.
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
pub(super) fn overload<C: Contender>() -> Vec<f64> {
    let pool = C::build(WORKERS, QUEUE, WhenFull::Refuse);
    let alive = Arc::new(());
    let (over, good) = (AtomicBool::new(false), AtomicU64::new(0));
    let client = || {
        while !over.load(Relaxed) {
            good.fetch_add(call(&pool, Arc::clone(&alive)), Relaxed);
        }
    };
    let good = thread::scope(|s| {
        (0..64).for_each(|_| drop(s.spawn(client)));
        // Wait until the first clients have given up.
        thread::sleep(2 * DEADLINE);
        let before = good.load(Relaxed);
        thread::sleep(8 * BUDGET);
        over.store(true, Relaxed);
        good.load(Relaxed) - before
    });
    drop(pool);
    // Wait for the remaining tasks, so that none runs in the next contender's turn.
    while Arc::strong_count(&alive) > 1 {
        thread::sleep(TASK);
    }
    let capacity = (8 * BUDGET * WORKERS as u32).div_duration_f64(TASK);
    vec![100.0 * good as f64 / capacity]
}
