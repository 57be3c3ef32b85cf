//! As services call: with a pause between two calls, or with more work than the cores can do.
//!
//! A caller that comes back after a pause finds its worker asleep: what counts is what it costs to
//! wake it, in time and in processor time. Where the cores are busy, workers and callers compete
//! for them.

use super::{Add, QUEUE};
use crate::contenders::{Contender, Shape, Variant};
use crate::harness::{entrants, quantiles, race_into, Options, Pace, Table, Trial};
use crate::machine::processor_time;
use crate::tally::{tick, Tally};
use crate::work::Work;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

/// Far away: nobody times out.
const LIMIT: Duration = Duration::from_secs(10);

/// One caller that sleeps between two calls.
#[derive(Clone, Copy, Debug)]
struct Apart {
    gap: Duration,
    calls: u64,
}

impl Trial for Apart {
    /// Two quantiles of the calls, in nanoseconds.
    type Sample = [f64; 2];

    fn admits<C: Contender>(&self) -> bool {
        C::VARIANT != Some(Variant::Retrying)
    }

    fn sample<C: Contender>(&self, pace: &mut Pace) -> [f64; 2] {
        let pool = C::build(Shape::new(1, QUEUE));
        let tally = Tally::start();
        let mut waits = Vec::with_capacity(self.calls as usize);
        let before = processor_time();
        for i in 0..self.calls {
            thread::sleep(self.gap);
            let i = black_box(i);
            let start = Instant::now();
            let value = pool.call(
                move || {
                    tick();
                    i + 1
                },
                LIMIT,
            );
            waits.push(start.elapsed().as_nanos() as u64);
            assert_eq!(value, Some(i + 1), "the value of its own task");
        }
        let cpu = (processor_time() - before).as_nanos() as f64;
        pace.cpu = Some(cpu / self.calls as f64);
        drop(pool);
        tally.check(self.calls);
        quantiles(waits.into_iter(), [0.5, 0.99])
    }
}

const CLIENTS: u64 = 16;
const BUSY_TASK: Duration = Duration::from_micros(200);

/// Clients that call again at once, with tasks that compute.
#[derive(Clone, Copy, Debug)]
struct Busy {
    workers: usize,
    /// Of each client.
    calls: u64,
}

impl Busy {
    fn client<C: Contender>(self, pool: &C, work: Work) -> Vec<u64> {
        let call = |_| {
            let task = move || {
                work.run();
                tick();
            };
            let start = Instant::now();
            assert_eq!(pool.call(task, LIMIT), Some(()), "ten seconds are enough");
            start.elapsed().as_nanos() as u64
        };
        (0..self.calls).map(call).collect()
    }
}

impl Trial for Busy {
    /// Tasks a second, and two quantiles of the calls in nanoseconds.
    type Sample = [f64; 3];

    fn admits<C: Contender>(&self) -> bool {
        C::VARIANT != Some(Variant::Retrying)
    }

    fn sample<C: Contender>(&self, pace: &mut Pace) -> [f64; 3] {
        let pool = C::build(Shape::new(self.workers, QUEUE));
        let work = Work::of_nanos(BUSY_TASK.as_nanos() as f64);
        let tally = Tally::start();
        let (before, start) = (processor_time(), Instant::now());
        let waits: Vec<u64> = thread::scope(|s| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| s.spawn(|| self.client(&pool, work)))
                .collect();
            let waits = clients.into_iter().map(|c| c.join().expect("no panic"));
            waits.flatten().collect()
        });
        let took = start.elapsed().as_secs_f64();
        let calls = CLIENTS * self.calls;
        let cpu = (processor_time() - before).as_nanos() as f64;
        pace.cpu = Some(cpu / calls as f64);
        drop(pool);
        tally.check(calls);
        let [p50, p99] = quantiles(waits.into_iter(), [0.5, 0.99]);
        [calls as f64 / took, p50, p99]
    }
}

pub(crate) fn list(options: &Options, add: Add<'_>) {
    for (name, micros) in [
        ("apart/60us", 60),
        ("apart/200us", 200),
        ("apart/1ms", 1000),
    ] {
        if !options.wants(name) {
            continue;
        }
        let gap = Duration::from_micros(micros);
        let calls = options.scaled(400) as u64;
        let title = format!(
            "do_with_deadline by a caller that sleeps {micros} us before each call, 1 worker, a fresh \
             pool each round"
        );
        let all = entrants(&Apart { gap, calls });
        add(race_into(options.rounds, all, move |lanes| {
            vec![Table::of_quantiles(name, &title, ["p50 ns", "p99"], lanes)]
        }));
    }
    for (name, workers) in [("busy/2w", 2), ("busy/4w", 4)] {
        if !options.wants(name) {
            continue;
        }
        let calls = options.scaled(60) as u64;
        let title = format!(
            "do_with_deadline by {CLIENTS} clients without a pause, {workers} workers, tasks that compute \
             for {} us",
            BUSY_TASK.as_micros()
        );
        let all = entrants(&Busy { workers, calls });
        add(race_into(options.rounds, all, move |lanes| {
            let heads = ["tasks/s", "p50 ns", "p99 ns"];
            vec![Table::of_columns(name, &title, heads, lanes).more_is_better()]
        }));
    }
}
