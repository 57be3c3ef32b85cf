//! A group of tasks and its wait, beside a plain loop; and how long a task must
//! be for two workers to beat that loop.

use super::{Add, QUEUE, WORKERS};
use crate::contenders::{Contender, Shape};
use crate::harness::{entrants, median, race, time, Entrant, Options, Pace, Trial};
use crate::tally::{tick, Tally};
use crate::work::{factorial_of_50, Work};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
struct Batch {
    tasks: usize,
    budget: Duration,
}

/// `batches` times a batch of `tasks`.
fn batches<C: Contender>(pool: &C, tasks: usize, f: fn(usize), batches: u64) -> Duration {
    let tally = Tally::start();
    let took = time(|| {
        for _ in 0..batches {
            pool.batch(tasks, f);
        }
    });
    // Here the contender's own wait must have seen to it.
    tally.check(batches * tasks as u64);
    took
}

fn plain(tasks: usize, f: fn(usize), batches: u64) -> Duration {
    time(|| {
        for _ in 0..batches {
            (0..tasks).for_each(f);
        }
    })
}

impl Batch {
    /// Per task, as the pace counts tasks.
    fn paced(&self, pace: &mut Pace, f: impl Fn(u64) -> Duration) -> f64 {
        let ns = pace.run(self.budget, f) / self.tasks as f64;
        pace.cpu = pace.cpu.map(|cpu| cpu / self.tasks as f64);
        ns
    }
}

impl Trial for Batch {
    type Sample = f64;

    fn admits<C: Contender>(&self) -> bool {
        C::VARIANT.is_none()
    }

    fn sample<C: Contender>(&self, pace: &mut Pace) -> f64 {
        let pool = C::build(Shape::new(WORKERS, QUEUE));
        self.paced(pace, |n| batches(&pool, self.tasks, factorial_of_50, n))
    }
}

/// Nanoseconds of work of one task of the break-even search.
static LENGTH: AtomicU64 = AtomicU64::new(0);

fn task(_: usize) {
    // Read through a static, as a batch hands its tasks nothing but a number.
    Work::of_nanos(LENGTH.load(Ordering::Relaxed) as f64).run();
    tick();
}

#[derive(Clone, Copy, Debug)]
struct BreakEven {
    budget: Duration,
}

const BREAK_EVEN_TASKS: usize = 256;

impl Trial for BreakEven {
    type Sample = f64;

    fn admits<C: Contender>(&self) -> bool {
        C::VARIANT.is_none()
    }

    /// The shortest task of a growing series with which the batch is faster than
    /// the loop, now and with the next length, too.
    fn sample<C: Contender>(&self, _: &mut Pace) -> f64 {
        let pool = C::build(Shape::new(WORKERS, QUEUE));
        let mut length = 20.0_f64;
        let mut faster_from = None;
        batches(&pool, BREAK_EVEN_TASKS, task, 2);
        while length < 100_000.0 {
            LENGTH.store(length as u64, Ordering::Relaxed);
            let total = length * BREAK_EVEN_TASKS as f64 * 1e-9;
            let times = (self.budget.as_secs_f64() / 16.0 / total).clamp(2.0, 200.0) as u64;
            let one = |f: &dyn Fn() -> Duration| {
                let samples: Vec<_> = (0..3).map(|_| f().as_secs_f64()).collect();
                median(&samples)
            };
            let pooled = one(&|| batches(&pool, BREAK_EVEN_TASKS, task, times));
            let looped = one(&|| plain(BREAK_EVEN_TASKS, task, times));
            if pooled >= looped {
                faster_from = None;
            } else if let Some(found) = faster_from {
                return found;
            } else {
                faster_from = Some(length);
            }
            length *= 1.4;
        }
        f64::NAN
    }
}

pub(crate) fn list(options: &Options, add: Add<'_>) {
    let budget = options.budget;
    for tasks in [1, 100, 1024] {
        let workload = format!("group/{tasks}");
        if !options.wants(&workload) {
            continue;
        }
        let batch = Batch { tasks, budget };
        let mut all = entrants(&batch);
        all.push(Entrant::limit("plain loop", move |pace| {
            batch.paced(pace, |n| plain(tasks, factorial_of_50, n))
        }));
        let title = format!("a group of {tasks} factorials of 50 and its wait, {WORKERS} workers");
        add(race(options.rounds, all, &workload, &title, "ns/task"));
    }
    if options.wants("break-even") {
        let title = format!(
            "the task length from which a group of {BREAK_EVEN_TASKS} on {WORKERS} workers \
             beats a plain loop"
        );
        let (rounds, all) = (options.rounds.min(5), entrants(&BreakEven { budget }));
        add(race(rounds, all, "break-even", &title, "ns of work"));
    }
}
