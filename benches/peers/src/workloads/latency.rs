//! Open loop: tasks arrive when they arrive, whether or not the pool keeps up.
//!
//! One worker, and one thread that submits and only watches the clock between
//! two arrivals: one core each. Both delays count from the moment at which the
//! task was *due*: a submission that had to wait is not forgiven.

use super::QUEUE;
use crate::contenders::{Contender, Shape};
use crate::harness::{entrants, figure, race, Kind, Options, Pace, Table, Trial};
use crate::tally::{tick, Tally};
use crate::work::Work;
use hdrhistogram::Histogram;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Work of one task.
const WORK: Duration = Duration::from_micros(10);

/// Nanoseconds since the program asked first.
fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

#[derive(Debug, Default)]
struct Task {
    due: AtomicU64,
    started: AtomicU64,
    ended: AtomicU64,
}

/// Delays of one sample, in nanoseconds.
#[derive(Debug)]
struct Delays {
    start: Histogram<u64>,
    completion: Histogram<u64>,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("bounds are in order")
}

#[derive(Clone, Copy, Debug)]
struct OpenLoop {
    /// Of one worker's time.
    load: f64,
    arrivals: usize,
}

impl Trial for OpenLoop {
    type Sample = Delays;

    fn sample<C: Contender>(&self, _: &mut Pace) -> Delays {
        let pool = C::build(Shape::new(1, QUEUE));
        let work = Work::of_nanos(WORK.as_nanos() as f64);
        let warm = Tally::start();
        pool.feed(100, tick);
        warm.wait(100);

        let tasks: &'static [Task] =
            Vec::leak((0..self.arrivals).map(|_| Task::default()).collect());
        let mean_gap = WORK.as_nanos() as f64 / self.load;
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let tally = Tally::start();
        let mut due = now() as f64;
        for task in tasks {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let uniform = ((random >> 11) + 1) as f64 / (1_u64 << 53) as f64;
            due += -uniform.ln() * mean_gap;
            task.due.store(due as u64, Ordering::Relaxed);
            while now() < due as u64 {
                spin_loop();
            }
            pool.execute(move || {
                task.started.store(now(), Ordering::Relaxed);
                work.run();
                task.ended.store(now(), Ordering::Relaxed);
                tick();
            });
        }
        tally.wait(self.arrivals as u64);
        drop(pool);
        tally.check(self.arrivals as u64);

        let mut delays = Delays {
            start: histogram(),
            completion: histogram(),
        };
        for task in tasks {
            let due = task.due.load(Ordering::Relaxed);
            let after = |t: &AtomicU64| t.load(Ordering::Relaxed).saturating_sub(due).max(1);
            delays.start.saturating_record(after(&task.started));
            delays.completion.saturating_record(after(&task.ended));
        }
        // SAFETY: leaked above from a `Vec` of this length; every task has run,
        // and nobody else knows of it.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(tasks).cast_mut()) });
        delays
    }

    fn admits<C: Contender>(&self) -> bool {
        C::VARIANT.is_none()
    }
}

pub(crate) fn run(options: &Options, done: &mut dyn FnMut(Table)) {
    for percent in [30, 60, 90] {
        let name = format!("latency/{percent}%");
        if !options.wants(&name) {
            continue;
        }
        let load = f64::from(percent) / 100.0;
        let gap = WORK.as_secs_f64() / load;
        let arrivals = (options.budget.as_secs_f64() * 2.5 / gap) as usize;
        let lanes = race(options.rounds, entrants(&OpenLoop { load, arrivals }));
        let merged: Vec<_> = lanes.iter().map(|l| merge(&l.samples)).collect();
        let medians: Vec<_> = lanes
            .iter()
            .map(|l| l.map(|d| d.start.value_at_quantile(0.5) as f64))
            .collect();
        let title = format!(
            "open-loop arrivals at {percent} % load, tasks of {} us, 1 worker: delay from when \
             a task was due to its start (ns: the median of p50; p99 and p99.9 of all rounds) \
             and to its end",
            WORK.as_micros()
        );
        let mut table = Table::new(&name, &title, "start p50", &medians);
        table.extra_heads = vec!["p99", "p99.9", "end p50", "p99", "p99.9"];
        for (row, delays) in table.rows.iter_mut().zip(&merged) {
            debug_assert!(row.kind != Kind::Limit);
            let at = |h: &Histogram<u64>, q| figure(h.value_at_quantile(q) as f64);
            row.p99 = delays.start.value_at_quantile(0.99) as f64;
            row.extra = vec![
                at(&delays.start, 0.99),
                at(&delays.start, 0.999),
                at(&delays.completion, 0.5),
                at(&delays.completion, 0.99),
                at(&delays.completion, 0.999),
            ];
        }
        done(table);
    }
}

fn merge(samples: &[Delays]) -> Delays {
    let mut all = Delays {
        start: histogram(),
        completion: histogram(),
    };
    for sample in samples {
        all.start.add(&sample.start).expect("same bounds");
        all.completion.add(&sample.completion).expect("same bounds");
    }
    all
}
