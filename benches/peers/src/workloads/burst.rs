//! What an idle pool does with its first tasks: a burst onto parked workers,
//! one task onto a parked worker, one task onto a pool that was just built.

use super::{Add, QUEUE, WORKERS};
use crate::contenders::{Contender, Shape};
use crate::harness::{entrants, median, race, time, Entrant, Options, Pace, Trial};
use crate::limits::{parked_round_trips, threads};
use crate::tally::{tick, Tally};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for every pool's workers to fall asleep.
const REST: Duration = Duration::from_millis(3);

const COMPUTING: &str = "burst/64 computing";

#[derive(Clone, Copy, Debug)]
struct Burst {
    tasks: u64,
    /// How long each of them sleeps.
    length: Duration,
    times: usize,
    /// Whether the submitter keeps its core to itself after the last task.
    computes: bool,
}

/// Spins: the wait for a few tasks must not add a timer's slack. It offers its core
/// meanwhile: the kernel may wake a worker on it though another is idle.
fn wait_spinning(tally: &Tally, n: u64) {
    let start = Instant::now();
    while tally.ran() < n {
        for _ in 0..64 {
            std::hint::spin_loop();
        }
        thread::yield_now();
        if start.elapsed() > Duration::from_millis(1) {
            return tally.wait(n);
        }
    }
}

/// As a submitter that has work of its own to do.
fn wait_computing(tally: &Tally, n: u64) {
    let start = Instant::now();
    while tally.ran() < n {
        std::hint::spin_loop();
        if start.elapsed() > Duration::from_millis(20) {
            return tally.wait(n);
        }
    }
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

impl Trial for Burst {
    type Sample = f64;

    fn admits<C: Contender>(&self) -> bool {
        C::VARIANT.is_none()
    }

    fn sample<C: Contender>(&self, _: &mut Pace) -> f64 {
        let pool = C::build(Shape::new(WORKERS, QUEUE));
        let length = self.length;
        let wait = if self.computes {
            wait_computing
        } else {
            wait_spinning
        };
        let total = Tally::start();
        let warm = 100;
        pool.feed(warm, tick);
        total.wait(warm);
        let samples: Vec<_> = (0..self.times)
            .map(|_| {
                thread::sleep(REST);
                let tally = Tally::start();
                let took = time(|| {
                    pool.feed(self.tasks, move || {
                        if !length.is_zero() {
                            thread::sleep(length);
                        }
                        tick();
                    });
                    wait(&tally, self.tasks);
                });
                took.as_nanos() as f64
            })
            .collect();
        drop(pool);
        total.wait(warm + self.times as u64 * self.tasks);
        if self.computes {
            // Most bursts go well everywhere.
            mean(&samples)
        } else {
            median(&samples)
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct First {
    times: usize,
}

impl Trial for First {
    type Sample = f64;

    fn admits<C: Contender>(&self) -> bool {
        // One pool per process, which is never empty again.
        C::VARIANT.is_none() && C::NAME != "blocking"
    }

    fn sample<C: Contender>(&self, _: &mut Pace) -> f64 {
        let samples: Vec<_> = (0..self.times)
            .map(|_| {
                let tally = Tally::start();
                let start = Instant::now();
                let pool = C::build(Shape::new(WORKERS, QUEUE));
                pool.execute(tick);
                wait_spinning(&tally, 1);
                let took = start.elapsed();
                drop(pool);
                tally.wait(1);
                took.as_nanos() as f64
            })
            .collect();
        median(&samples)
    }
}

pub(crate) fn list(options: &Options, add: Add<'_>) {
    let budget = options.budget;
    let times = options.scaled(20);
    let (none, long) = (Duration::ZERO, Duration::from_millis(1));
    for (tasks, length, times, name, title) in [
        (
            64,
            none,
            times,
            "burst/64",
            "64 tasks onto an idle pool, until all ran",
        ),
        (
            64,
            long,
            times.div_ceil(5),
            "burst/64 of 1 ms",
            "64 tasks that sleep 1 ms onto an idle pool, until all ran",
        ),
        (
            64,
            none,
            3 * times,
            COMPUTING,
            "64 tasks onto an idle pool, until all ran, while the submitter computes; mean",
        ),
        (
            1,
            none,
            times,
            "first/parked",
            "one task onto a parked worker, until it ran",
        ),
    ] {
        if !options.wants(name) {
            continue;
        }
        let mut all = entrants(&Burst {
            tasks,
            length,
            times,
            computes: name == COMPUTING,
        });
        all.push(Entrant::limit("parked round trip", move |pace| {
            pace.run(budget, parked_round_trips)
        }));
        add(race(options.rounds, all, name, title, "ns"));
    }
    if options.wants("first/built") {
        let mut all = entrants(&First { times });
        all.push(Entrant::limit("thread start and join", move |pace| {
            pace.run(budget, |n| threads(n, tick))
        }));
        let title = "a pool is built and its first task runs";
        add(race(options.rounds, all, "first/built", title, "ns"));
    }
}
