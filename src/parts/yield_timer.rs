//! Decides when a worker that runs tasks back to back yields its CPU.
//!
//! A thread that never sleeps keeps its CPU for a whole time slice of the OS, which is some
//! milliseconds. If there are more workers, submitters and receivers than CPUs, some of them wait
//! that long for a CPU. So a worker yields between two tasks once it has run for [`LIMIT`] without
//! sleeping.
//!
//! Yielding can cost time: on Linux 6.18, a thread that yields goes to the end of the run queue. So
//! if other threads then keep the CPU for long, the worker yields less often. If its tasks are so
//! short that it runs them as fast as they are submitted, the worker does not yield at all. A yield
//! would only let other threads fill the queue, or make the scheduler move the worker away from its
//! caller. `benches/NOTEBOOK.md` has the measurements.
//!
//! While tasks are short, the clock is read more and more rarely, down to once every [`MANY`] + 1
//! tasks.

use crate::sync::Instant;
use std::cell::Cell;
use std::time::Duration;

/// The time for which a worker runs before it yields. It is shorter than a time slice of the OS. In
/// models no worker yields, because models must not depend on the clock.
const LIMIT: Duration = if cfg!(any(lazypool_loom, lazypool_shuttle)) {
    Duration::MAX
} else {
    Duration::from_micros(200)
};
/// The highest number of tasks in a row that start without a look at the clock. A worker whose
/// tasks are so short that it reaches this number does not yield.
const MANY: u32 = 127;

/// The number of tasks that a worker has run since it last slept or yielded, and the time that they
/// took.
#[derive(Debug)]
pub(crate) struct YieldTimer {
    /// The number of tasks that are still to start without a look at the clock.
    left: Cell<u32>,
    /// The value that `left` was set to at the last look, the time of that look, and the time at
    /// which the stretch began. The times are `None` until the first look of a stretch.
    last: Cell<(u32, Option<(Instant, Instant)>)>,
    /// The length of a stretch after which the worker yields.
    limit: Cell<Duration>,
}

impl YieldTimer {
    pub(crate) const fn new() -> Self {
        Self {
            left: Cell::new(0),
            last: Cell::new((0, None)),
            limit: Cell::new(LIMIT),
        }
    }

    /// Counts a task that is about to run. Returns `true` if the clock is to be read before it.
    #[inline]
    pub(crate) fn should_read_clock(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.wrapping_sub(1));
        left == 0
    }

    /// Ends the stretch, because the worker has slept. Its next tasks may be of another kind.
    pub(crate) fn end(&self) {
        self.left.set(0);
        self.last.set((0, None));
    }

    /// Notes a look at the clock, which shows the time `now`. Returns `true` if the stretch has
    /// reached its limit and its tasks are not too short. Then the worker yields, and a new stretch
    /// begins at the next look.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let (tasks, times) = self.last.get();
        let since = |then| now.saturating_duration_since(then);
        // As long as the tasks between two looks take little time, each look lets twice as many
        // tasks pass as the one before. Otherwise the worker looks again before its next task.
        let are_short = times.is_some_and(|(looked, _)| since(looked) < LIMIT / 4);
        let more = (2 * tasks + 1).min(MANY);
        let tasks = if are_short { more } else { 0 };
        self.left.set(tasks);
        let began = times.map_or(now, |(_, began)| began);
        let is_over = tasks < MANY && since(began) >= self.limit.get();
        self.last.set((tasks, (!is_over).then_some((now, began))));
        is_over
    }

    /// Adjusts the limit after a yield that lasted for `took`. A yield takes long if the other
    /// threads never yield. The worker then yields less often.
    pub(crate) fn has_yielded(&self, took: Duration) {
        self.limit.set(LIMIT.max(took / 4));
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;

    /// Returns the tasks before which the worker yields, if each task takes the time `each`.
    fn yields(timer: &YieldTimer, tasks: std::ops::Range<u32>, each: Duration) -> Vec<u32> {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        let start = *START.get_or_init(Instant::now);
        let over = |n: &u32| timer.should_read_clock() && timer.is_due(start + each * *n);
        tasks.filter(over).collect()
    }

    #[test]
    fn all_but_tiny_tasks_yield_once_the_limit_has_passed() {
        // Tasks take a tenth of a microsecond. The worker never yields until its tasks get longer.
        let timer = YieldTimer::new();
        assert!(yields(&timer, 1..10_000, LIMIT / 2_000).is_empty());
        assert!(yields(&timer, 500..700, LIMIT / 10)[0] < 500 + 128);
        // Tasks take two microseconds. The worker yields at the first look after the limit. At most
        // 32 tasks run between two looks.
        let first = yields(&YieldTimer::new(), 1..300, LIMIT / 100)[0];
        assert!((100..=132).contains(&first), "{first}");
        assert_eq!(yields(&YieldTimer::new(), 1..7, LIMIT), [2, 4, 6]);
        assert_eq!(yields(&YieldTimer::new(), 1..10, LIMIT / 2), [3, 6, 9]);
        // The tasks are long at first, and then short.
        let timer = YieldTimer::new();
        assert_eq!(yields(&timer, 1..5, LIMIT), [2, 4]);
        yields(&timer, 5_000..5_200, LIMIT / 1_000);
        assert!(timer.left.get() > 0);
    }

    #[test]
    fn beside_others_that_do_not_yield_a_worker_yields_less_often() {
        let timer = YieldTimer::new();
        timer.has_yielded(LIMIT * 3);
        assert_eq!(yields(&timer, 1..7, LIMIT), [2, 4, 6]);
        timer.end();
        timer.has_yielded(LIMIT * 12);
        assert_eq!(yields(&timer, 7..15, LIMIT), [10, 14]);
    }

    #[test]
    fn a_worker_that_sleeps_does_not_yield() {
        let (timer, start) = (YieldTimer::new(), Instant::now());
        for n in 0..100 {
            assert!(!timer.is_due(start + 2 * n * LIMIT));
            timer.end();
        }
    }
}
