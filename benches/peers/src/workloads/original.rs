//! The five benchmarks of the original Go package, in shape: no queue; `Serve`, `Do` with a
//! deadline of two seconds, and nine of one to one of the other; from one thread, and from as
//! many as there are cores.
//!
//! There a refused submission counts as done, and is not tried again. Here it is not tried again
//! either, but time is divided by the tasks that ran, and the share that was refused stands
//! beside it. There the limit is 4,096 goroutines; one row has as many threads as its limit.

use super::{Add, WORKERS};
use crate::contenders::{Called, Contender, Lazypool, Shape};
use crate::harness::{entrants, race_into, Entrant, Options, Pace, Table, Trial};
use crate::tally::{tick, Tally};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(2);
/// As many workers as the original may have.
const ITS_LIMIT: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Original {
    threads: u64,
    /// How many in ten are `Do`.
    waits: u64,
    workers: usize,
    budget: Duration,
}

impl Original {
    /// Submits `n` tasks, each once; how many were taken.
    fn submit<C: Contender>(&self, pool: &C, n: u64) -> u64 {
        let mut taken = 0;
        for i in 1..=n {
            // The last ones of ten.
            if (i - 1) % 10 + self.waits >= 10 {
                match pool.try_call(tick, DEADLINE) {
                    Called::Value(()) => taken += 1,
                    Called::Refused => {}
                    Called::Late => panic!("{}: two seconds for nothing", C::NAME),
                }
            } else {
                taken += u64::from(pool.try_execute(tick));
            }
        }
        taken
    }

    /// Time until the tasks that were taken have run, and how many they are.
    fn run<C: Contender>(&self, pool: &C, n: u64) -> (Duration, u64) {
        let share = n.div_ceil(self.threads);
        let ready = Barrier::new(self.threads as usize);
        let taken = AtomicU64::new(0);
        let submit = || {
            let n = self.submit(pool, share);
            taken.fetch_add(n, Ordering::Relaxed);
        };
        let tally = Tally::start();
        let mut start = Instant::now();
        thread::scope(|s| {
            for _ in 1..self.threads {
                s.spawn(|| {
                    ready.wait();
                    submit();
                });
            }
            ready.wait();
            start = Instant::now();
            submit();
        });
        let taken = taken.into_inner();
        tally.wait(taken);
        (start.elapsed(), taken)
    }
}

impl Trial for Original {
    /// Nanoseconds per task that ran; percent of the submissions that were refused.
    type Sample = [f64; 2];

    fn admits<C: Contender>(&self) -> bool {
        C::UNQUEUED && C::VARIANT.is_none()
    }

    fn sample<C: Contender>(&self, pace: &mut Pace) -> [f64; 2] {
        let pool = C::build(Shape::new(self.workers, 0).refusing());
        let mut share = 0.0;
        let ns = pace.run(self.budget, |n| {
            let (took, ran) = self.run(&pool, n);
            share = ran as f64 / n as f64;
            took
        });
        pace.cpu = pace.cpu.map(|cpu| cpu / share);
        [ns / share, 100.0 * (1.0 - share).max(0.0)]
    }
}

pub(crate) fn list(options: &Options, add: Add<'_>) {
    let cores = WORKERS as u64;
    for (name, threads, waits, what) in [
        ("serve/serial", 1, 0, "Serve"),
        ("serve/parallel", cores, 0, "Serve"),
        ("do/serial", 1, 10, "Do"),
        ("do/parallel", cores, 10, "Do"),
        ("mixed/parallel", cores, 1, "nine Serve to one Do"),
    ] {
        let name = format!("original/{name}");
        if !options.wants(&name) {
            continue;
        }
        let original = Original {
            threads,
            waits,
            workers: WORKERS,
            budget: options.budget,
        };
        let mut all = entrants(&original);
        let large = Original {
            workers: ITS_LIMIT,
            ..original
        };
        let its_limit = Entrant::ours("lazypool, 4,096 workers", move |pace| {
            large.sample::<Lazypool<true>>(pace)
        });
        all.insert(1, its_limit);
        let title = format!(
            "the original Go package's benchmark: {what}, no queue, {threads} thread(s), \
             {WORKERS} workers; per task that ran, and refused submissions"
        );
        add(race_into(options.rounds, all, move |lanes| {
            let heads = ["ns/task", "% refused"];
            vec![Table::of_columns(&name, &title, heads, lanes)]
        }));
    }
}
