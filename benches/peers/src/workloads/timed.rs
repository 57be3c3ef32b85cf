//! `do_with_deadline`, and what peers have for it: run a closure on a worker
//! and wait for its value with a limit.

use super::{Add, QUEUE, WORKERS};
use crate::contenders::{Contender, Shape, Variant};
use crate::harness::{entrants, race, Entrant, Options, Pace, Trial};
use crate::limits::{parked_round_trips, spinning_round_trips, ROUND_TRIP};
use crate::tally::{tick, Tally};
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Far away: nobody times out.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
struct Timed {
    callers: u64,
    workers: usize,
    budget: Duration,
}

impl Timed {
    fn call<C: Contender>(pool: &C, n: u64) {
        for i in 0..n {
            let i = black_box(i);
            let value = pool.call(
                move || {
                    tick();
                    i + 1
                },
                LIMIT,
            );
            assert_eq!(value, Some(i + 1), "the value of its own task");
        }
    }

    fn calls<C: Contender>(&self, pool: &C, n: u64) -> Duration {
        let share = n.div_ceil(self.callers);
        let ready = Barrier::new(self.callers as usize);
        let tally = Tally::start();
        let mut start = Instant::now();
        thread::scope(|s| {
            for _ in 1..self.callers {
                s.spawn(|| {
                    ready.wait();
                    Self::call(pool, share);
                });
            }
            ready.wait();
            start = Instant::now();
            Self::call(pool, share);
        });
        let took = start.elapsed();
        tally.check(share * self.callers);
        took
    }
}

impl Trial for Timed {
    type Sample = f64;

    fn admits<C: Contender>(&self) -> bool {
        C::VARIANT != Some(Variant::Retrying)
    }

    fn sample<C: Contender>(&self, pace: &mut Pace) -> f64 {
        let pool = C::build(Shape::new(self.workers, QUEUE));
        pace.run(self.budget, |n| self.calls(&pool, n))
    }
}

pub(crate) fn list(options: &Options, add: Add<'_>) {
    let budget = options.budget;
    for (callers, workers, name) in [
        (1, WORKERS, "timed/1c"),
        (2, WORKERS, "timed/2c"),
        (8, WORKERS, "timed/8c"),
        (8, 8, "oversubscribed/8c/8w"),
    ] {
        if !options.wants(name) {
            continue;
        }
        let mut all = entrants(&Timed {
            callers,
            workers,
            budget,
        });
        all.push(Entrant::limit(ROUND_TRIP, move |pace| {
            pace.run(budget, spinning_round_trips)
        }));
        all.push(Entrant::limit("parked round trip", move |pace| {
            pace.run(budget, parked_round_trips)
        }));
        let title = format!(
            "do_with_deadline, {callers} caller(s), {workers} workers; \
             all callers together, per call"
        );
        add(race(options.rounds, all, name, &title, "ns/call"));
    }
}
