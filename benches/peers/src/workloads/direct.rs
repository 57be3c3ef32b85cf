//! `serve` without a queue: an idle worker takes the task or it is refused, and
//! the producer tries again. Only tasks that ran are counted.

use super::{served, Add, WORKERS};
use crate::contenders::{Contender, Shape};
use crate::harness::{entrants, race, Entrant, Options, Pace, Trial};
use crate::limits::{spinning_round_trips, Patience, ROUND_TRIP};
use crate::tally::tick;
use std::hint::black_box;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
struct Direct {
    producers: u64,
    workers: usize,
    budget: Duration,
}

impl Direct {
    fn feed<C: Contender>(&self, pool: &C, n: u64) {
        let words = [1_u64, 2, 3];
        for _ in 0..n {
            let mut patience = Patience::default();
            while !pool.try_execute(move || {
                black_box(words);
                tick();
            }) {
                patience.wait();
            }
        }
    }
}

impl Trial for Direct {
    type Sample = f64;

    fn admits<C: Contender>(&self) -> bool {
        C::UNQUEUED && C::VARIANT.is_none()
    }

    fn sample<C: Contender>(&self, pace: &mut Pace) -> f64 {
        let pool = C::build(Shape::new(self.workers, 0).refusing());
        pace.run(self.budget, |n| {
            served(self.producers, n, |n| self.feed(&pool, n))
        })
    }
}

pub(crate) fn list(options: &Options, add: Add<'_>) {
    for (producers, workers) in [(1, 1), (1, WORKERS), (2, WORKERS)] {
        let workload = format!("direct/{producers}p/{workers}w");
        if !options.wants(&workload) {
            continue;
        }
        let budget = options.budget;
        let mut all = entrants(&Direct {
            producers,
            workers,
            budget,
        });
        all.push(Entrant::limit(ROUND_TRIP, move |pace| {
            pace.run(budget, spinning_round_trips)
        }));
        let title = format!(
            "serve without a queue, {workers} worker(s), {producers} producer(s), \
             closures of 24 bytes, only tasks that ran"
        );
        add(race(options.rounds, all, &workload, &title, "ns/task"));
    }
}
