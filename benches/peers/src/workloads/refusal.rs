//! What a refusal costs: every worker occupied, the queue full.

use super::{Add, QUEUE, WORKERS};
use crate::contenders::{Contender, Shape};
use crate::harness::{entrants, race, time, Options, Pace, Trial};
use crate::tally::{tick, Gate, Tally};
use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
struct Refusal {
    budget: Duration,
}

/// Occupies all workers and fills the queue; returns the number of tasks.
pub(crate) fn saturate<C: Contender>(pool: &C, workers: usize, gate: &Arc<Gate>) -> u64 {
    let tally = Tally::start();
    for _ in 0..workers {
        let gate = Arc::clone(gate);
        let task = move || {
            tick();
            gate.pass();
            tick();
        };
        // Where a worker must be waiting already, it may take it a moment.
        while !pool.try_execute(task.clone()) {
            thread::yield_now();
        }
    }
    tally.wait(workers as u64);
    let mut queued = 0;
    while pool.try_execute(tick) {
        queued += 1;
    }
    2 * workers as u64 + queued
}

impl Trial for Refusal {
    type Sample = f64;

    fn admits<C: Contender>(&self) -> bool {
        C::BOUNDED
    }

    fn sample<C: Contender>(&self, pace: &mut Pace) -> f64 {
        let tally = Tally::start();
        let gate = Arc::new(Gate::default());
        let pool = C::build(Shape::new(WORKERS, QUEUE).refusing());
        let ticks = saturate(&pool, WORKERS, &gate);
        let words = [1_u64, 2, 3];
        let ns = pace.run(self.budget, |n| {
            time(|| {
                for _ in 0..n {
                    let taken = pool.try_execute(move || {
                        black_box(words);
                        tick();
                    });
                    assert!(!taken, "the pool is saturated");
                }
            })
        });
        gate.open();
        tally.wait(ticks);
        ns
    }
}

pub(crate) fn list(options: &Options, add: Add<'_>) {
    if options.wants("refusal") {
        let budget = options.budget;
        let title = format!(
            "a refusal: {WORKERS} workers occupied, a queue of {QUEUE} full, \
             closures of 24 bytes"
        );
        let all = entrants(&Refusal { budget });
        add(race(options.rounds, all, "refusal", &title, "ns/refusal"));
    }
}
