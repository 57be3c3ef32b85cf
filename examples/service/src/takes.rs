//! How long a task of a route takes, learned from the tasks that have run.

use lazypool::task;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long an answer may take from its task to the client.
const WAY_BACK: Duration = Duration::from_millis(5);

/// The times that tasks of one kind have taken. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Takes(Arc<Mutex<Option<Average>>>);

/// A moving average, and how far tasks are from it. TCP learns the time of a round trip in this way
/// (RFC 6298).
#[derive(Debug, Clone, Copy)]
struct Average {
    mean: Duration,
    deviation: Duration,
}

impl Takes {
    /// Returns how much of its deadline a task needs to have left when it starts, for
    /// [`min_remaining`](lazypool::Pool::min_remaining). Few tasks take longer than that. Until the
    /// first task has ended, returns half of the deadline. So a task of a first burst does not
    /// start if it has waited for longer than that.
    ///
    /// Returns at most seven eighths of the deadline. If tasks seem to take longer than that, a
    /// task that need not wait still starts, and shows whether they do.
    #[must_use]
    pub fn needs(&self, deadline: Duration) -> Duration {
        let Some(Average { mean, deviation }) = *self.lock() else {
            return deadline / 2;
        };
        let margin = (4 * deviation).max(mean / 8 + WAY_BACK);
        (mean + margin).min(deadline / 8 * 7)
    }

    /// Begins the measurement of a task, which calls this as it starts. Dropping the lap ends it.
    #[must_use]
    pub fn start(&self) -> Lap<'_> {
        Lap {
            takes: self,
            start: Instant::now(),
        }
    }

    /// Adds the time that a task took. A task that was cut off would have taken longer, so its time
    /// counts only if it is above the mean.
    fn learn(&self, took: Duration, cut_off: bool) {
        let mut average = self.lock();
        let Average { mean, deviation } = average.unwrap_or(Average {
            mean: took,
            deviation: took / 2,
        });
        if !cut_off || took >= mean {
            *average = Some(Average {
                mean: (7 * mean + took) / 8,
                deviation: (3 * deviation + took.abs_diff(mean)) / 4,
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Average>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The measurement of a running task.
#[derive(Debug)]
pub struct Lap<'a> {
    takes: &'a Takes,
    start: Instant,
}

impl Drop for Lap<'_> {
    fn drop(&mut self) {
        // A task that panics says nothing about how long the others take.
        if !thread::panicking() {
            self.takes.learn(self.start.elapsed(), task::is_cancelled());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(2);

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn teach(takes: &Takes, times: impl IntoIterator<Item = u64>) {
        for n in times {
            takes.learn(ms(n), false);
        }
    }

    fn learned(times: impl IntoIterator<Item = u64>) -> Takes {
        let takes = Takes::default();
        teach(&takes, times);
        takes
    }

    #[test]
    fn half_of_the_deadline_is_asked_for_before_a_task_has_ended() {
        assert_eq!(Takes::default().needs(DEADLINE), DEADLINE / 2);
    }

    #[test]
    fn tasks_of_one_length_need_little_more() {
        let needs = learned([100; 20]).needs(DEADLINE);
        assert!((ms(110)..ms(125)).contains(&needs), "{needs:?}");
    }

    #[test]
    fn few_tasks_take_longer_than_is_asked_for() {
        // Three in four take 20 to 40 ms, the others 80 to 160.
        let mut state = 1_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let n = state >> 33;
            (20 + n / 4 % 21) * if n % 4 == 0 { 4 } else { 1 }
        };
        let takes = learned((0..100).map(|_| next()));
        let mut longer = 0;
        for _ in 0..1_000 {
            let took = next();
            longer += usize::from(ms(took) > takes.needs(DEADLINE));
            teach(&takes, [took]);
        }
        assert!(longer < 50, "{longer} of 1000");
    }

    #[test]
    fn what_changes_is_learned_again() {
        let takes = learned([20; 50]);
        teach(&takes, [200; 20]);
        assert!(takes.needs(DEADLINE) > ms(200));
        teach(&takes, [20; 50]);
        assert!(takes.needs(DEADLINE) < ms(40));
    }

    #[test]
    fn a_task_that_is_cut_off_never_makes_less_of_it() {
        let takes = learned([100; 20]);
        let needs = takes.needs(DEADLINE);
        takes.learn(ms(1), true);
        assert_eq!(takes.needs(DEADLINE), needs);
        takes.learn(ms(500), true);
        assert!(takes.needs(DEADLINE) > ms(500));
    }

    #[test]
    fn tasks_longer_than_the_deadline_are_still_tried() {
        assert_eq!(learned([9_000]).needs(ms(800)), ms(700));
    }

    #[test]
    fn a_task_is_timed_until_its_lap_ends_unless_it_panics() {
        let takes = Takes::default();
        let timed = |f: fn()| {
            std::panic::catch_unwind(|| {
                let _lap = takes.start();
                f();
            })
        };
        timed(|| std::panic::resume_unwind(Box::new("on purpose"))).unwrap_err();
        assert!(takes.lock().is_none());
        timed(|| thread::sleep(ms(20))).unwrap();
        assert!(takes.needs(DEADLINE) >= ms(20));
    }
}
