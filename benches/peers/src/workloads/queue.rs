//! `serve` through a queue of 1,024 tasks: two workers; 1, 2 and 4 producers;
//! closures of several sizes; tasks of several lengths.

use super::{served, Add, QUEUE, WORKERS};
use crate::contenders::{Contender, Shape, Variant};
use crate::harness::{entrants, race, Entrant, Kind, Options, Pace, Trial};
use crate::limits::{through_a_queue, Job, RawRing};
use crate::tally::tick;
use crate::work::Work;
use crossbeam_queue::ArrayQueue;
use std::hint::black_box;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
struct Serve {
    producers: u64,
    /// Captured by the closure.
    bytes: usize,
    work: Work,
    budget: Duration,
}

impl Serve {
    fn feed<C: Contender>(&self, pool: &C, n: u64) {
        let work = self.work;
        match self.bytes {
            // A task that captures nothing knows its work from elsewhere: it is none.
            0 => pool.feed(n, tick),
            24 => pool.feed(n, carrying([work; 3])),
            48 => pool.feed(n, carrying([work; 6])),
            200 => pool.feed(n, carrying([work; 25])),
            other => unreachable!("{other} bytes"),
        }
    }
}

/// A task that captures an array, and uses all of it.
fn carrying<const N: usize>(words: [Work; N]) -> impl FnOnce() + Clone + Send + 'static {
    move || {
        black_box(&words)[0].run();
        tick();
    }
}

impl Trial for Serve {
    type Sample = f64;

    fn admits<C: Contender>(&self) -> bool {
        // The pool without a queue has a workload of its own.
        C::VARIANT != Some(Variant::Unqueued)
    }

    fn sample<C: Contender>(&self, pace: &mut Pace) -> f64 {
        let pool = C::build(Shape::new(WORKERS, QUEUE));
        pace.run(self.budget, |n| {
            served(self.producers, n, |n| self.feed(&pool, n))
        })
    }
}

pub(crate) fn list(options: &Options, add: Add<'_>) {
    for (name, nanos) in [("tiny", 0.0), ("1us", 1e3), ("100us", 1e5)] {
        for producers in [1, 2, 4] {
            for bytes in [0, 24, 48, 200] {
                let workload = format!("queue/{name}/{producers}p/{bytes}B");
                if nanos > 0.0 && bytes != 24 || !options.wants(&workload) {
                    continue;
                }
                let budget = options.budget;
                let work = Work::of_nanos(nanos);
                let serve = Serve {
                    producers,
                    bytes,
                    work,
                    budget,
                };
                let mut all = entrants(&serve);
                if nanos == 0.0 {
                    all.push(Entrant::limit("raw ring", move |pace| {
                        let workers = WORKERS as u64;
                        pace.run(budget, |n| {
                            through_a_queue::<RawRing<Job>>(producers, workers, n)
                        })
                    }));
                    all.push(Entrant::limit("ArrayQueue", move |pace| {
                        let workers = WORKERS as u64;
                        pace.run(budget, |n| {
                            through_a_queue::<ArrayQueue<Job>>(producers, workers, n)
                        })
                    }));
                } else {
                    all.push(plain_loop(work, budget));
                }
                let title = format!(
                    "serve through a queue of {QUEUE}, {WORKERS} workers, {name} tasks, \
                     {producers} producer(s), closures of {bytes} bytes"
                );
                add(race(options.rounds, all, &workload, &title, "ns/task"));
            }
        }
    }
}

/// The same work in a loop, on one thread.
fn plain_loop(work: Work, budget: Duration) -> Entrant<f64> {
    Entrant {
        name: "plain loop",
        kind: Kind::Limit,
        sample: Box::new(move |pace| {
            pace.run(budget, |n| {
                let start = Instant::now();
                for _ in 0..n {
                    carrying(black_box([work; 3]))();
                }
                start.elapsed()
            })
        }),
    }
}
