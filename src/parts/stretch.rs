//! When a worker that runs tasks back to back yields its CPU.
//!
//! A thread that never sleeps keeps its CPU for a whole time slice of the OS: some milliseconds. Where
//! workers and the threads that submit and receive are more than CPUs, each waits that long for the others.
//! So a worker yields between two tasks, once it has run for [`LIMIT`] without sleeping. It can lose by that:
//! on Linux 6.18, who yields goes to the end of the line. So it yields less often where others then keep
//! the CPU for long; and not at all while tasks are so short that they come as fast as they run: then the
//! others only fill the queue, or part a worker from its caller. `benches/NOTEBOOK.md` has what each gives.
//!
//! The clock is not read at each short task, but only after [`MANY`] of them.

use crate::sync::Instant;
use std::cell::Cell;
use std::time::Duration;

/// Shorter than the OS's time slices. Models do not depend on the clock: there no worker yields.
const LIMIT: Duration = if cfg!(any(lazypool_loom, lazypool_shuttle)) {
    Duration::MAX
} else {
    Duration::from_micros(200)
};
/// Short tasks between two looks at the clock.
const MANY: u32 = 127;

/// What a worker has run since it last slept or yielded.
#[derive(Debug)]
pub(crate) struct Stretch {
    /// Tasks until the next look at the clock.
    left: Cell<u32>,
    /// The same at the last look, when that was, and when the stretch began.
    last: Cell<(u32, Option<(Instant, Instant)>)>,
    limit: Cell<Duration>,
}

impl Stretch {
    pub(crate) const fn new() -> Self {
        Self {
            left: Cell::new(0),
            last: Cell::new((0, None)),
            limit: Cell::new(LIMIT),
        }
    }

    /// Before each task.
    #[inline]
    pub(crate) fn is_time_to_look(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.wrapping_sub(1));
        left == 0
    }

    /// The worker has slept: the tasks that come now may be others.
    pub(crate) fn end(&self) {
        self.left.set(0);
        self.last.set((0, None));
    }

    /// Whether it has lasted for its limit at the moment `now`. Then the worker yields, and another
    /// begins at the next look.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        let (tasks, times) = self.last.get();
        let since = |then| now.saturating_duration_since(then);
        // Twice as many as long as they are short, so that a few long ones are noticed.
        let are_short = times.is_some_and(|(looked, _)| since(looked) < LIMIT / 4);
        let tasks = if are_short {
            (2 * tasks + 1).min(MANY)
        } else {
            0
        };
        self.left.set(tasks);
        let began = times.map_or(now, |(_, began)| began);
        let is_over = tasks < MANY && since(began) >= self.limit.get();
        self.last.set((tasks, (!is_over).then_some((now, began))));
        is_over
    }

    /// Others had the CPU for so long. If they do not yield, the worker gives it to them less often.
    pub(crate) fn has_yielded(&self, took: Duration) {
        self.limit.set(LIMIT.max(took / 4));
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;

    /// At which tasks the worker yields, where each takes so long.
    fn yields(stretch: &Stretch, tasks: std::ops::Range<u32>, each: Duration) -> Vec<u32> {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        let start = *START.get_or_init(Instant::now);
        let over = |n: &u32| stretch.is_time_to_look() && stretch.is_over(start + each * *n);
        tasks.filter(over).collect()
    }

    #[test]
    fn all_but_tiny_tasks_yield_once_the_limit_has_passed() {
        // Of a tenth of a microsecond: never, until they get longer.
        let stretch = Stretch::new();
        assert!(yields(&stretch, 1..10_000, LIMIT / 2_000).is_empty());
        assert!(yields(&stretch, 500..700, LIMIT / 10)[0] < 500 + 128);
        // Of two microseconds: at the first look after the limit, where there are 32 between two at most.
        let first = yields(&Stretch::new(), 1..300, LIMIT / 100)[0];
        assert!((100..=132).contains(&first), "{first}");
        assert_eq!(yields(&Stretch::new(), 1..7, LIMIT), [2, 4, 6]);
        assert_eq!(yields(&Stretch::new(), 1..10, LIMIT / 2), [3, 6, 9]);
        // Long ones that become short.
        let stretch = Stretch::new();
        assert_eq!(yields(&stretch, 1..5, LIMIT), [2, 4]);
        yields(&stretch, 5_000..5_200, LIMIT / 1_000);
        assert!(stretch.left.get() > 0);
    }

    #[test]
    fn beside_others_that_do_not_yield_a_worker_yields_less_often() {
        let stretch = Stretch::new();
        stretch.has_yielded(LIMIT * 3);
        assert_eq!(yields(&stretch, 1..7, LIMIT), [2, 4, 6]);
        stretch.end();
        stretch.has_yielded(LIMIT * 12);
        assert_eq!(yields(&stretch, 7..15, LIMIT), [10, 14]);
    }

    #[test]
    fn who_sleeps_does_not_yield() {
        let (stretch, start) = (Stretch::new(), Instant::now());
        for n in 0..100 {
            assert!(!stretch.is_over(start + 2 * n * LIMIT));
            stretch.end();
        }
    }
}
