//! Open loop: tasks arrive when they arrive, whether or not the pool keeps up.
//!
//! One worker, and one thread that submits and only watches the clock between
//! two arrivals: one core each. Both delays count from the moment at which the
//! task was *due*: a submission that had to wait is not forgiven.
//!
//! Under the same load, every eighth arrival a wait with a limit for a value of the same work:
//! its time counts from the call, and what fell due meanwhile is submitted right after it, so
//! that the load stays what it is.

use super::{Add, QUEUE};
use crate::contenders::{Contender, Shape};
use crate::harness::{entrants, quantiles, race_into, Options, Pace, Table, Trial};
use crate::tally::{tick, Tally};
use crate::work::Work;
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

/// When tasks arrive: a Poisson process, the same for all.
struct Arrivals {
    random: u64,
    due: f64,
    mean_gap: f64,
}

impl Arrivals {
    fn from_now(load: f64) -> Self {
        Self {
            random: 0x2545_f491_4f6c_dd1d,
            due: now() as f64,
            mean_gap: WORK.as_nanos() as f64 / load,
        }
    }

    /// Waits until the next one is due, and says when that was.
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let uniform = ((self.random >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        self.due += -uniform.ln() * self.mean_gap;
        while now() < self.due as u64 {
            spin_loop();
        }
        self.due as u64
    }
}

#[derive(Debug, Default)]
struct Task {
    due: AtomicU64,
    started: AtomicU64,
    ended: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct OpenLoop {
    /// Of one worker's time.
    load: f64,
    arrivals: usize,
}

impl Trial for OpenLoop {
    /// Three quantiles of the delays to the start, and to the end, in nanoseconds.
    type Sample = [f64; 6];

    fn sample<C: Contender>(&self, _: &mut Pace) -> [f64; 6] {
        let pool = C::build(Shape::new(1, QUEUE));
        let work = Work::of_nanos(WORK.as_nanos() as f64);
        let warm = Tally::start();
        pool.feed(100, tick);
        warm.wait(100);

        let tasks: &'static [Task] =
            Vec::leak((0..self.arrivals).map(|_| Task::default()).collect());
        let tally = Tally::start();
        let mut arrivals = Arrivals::from_now(self.load);
        for task in tasks {
            task.due.store(arrivals.next(), Ordering::Relaxed);
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

        let delays = |to: fn(&Task) -> &AtomicU64| {
            let after_due = |task: &Task| {
                let due = task.due.load(Ordering::Relaxed);
                to(task).load(Ordering::Relaxed).saturating_sub(due)
            };
            quantiles(tasks.iter().map(after_due), [0.5, 0.99, 0.999])
        };
        let [a, b, c] = delays(|task| &task.started);
        let [d, e, f] = delays(|task| &task.ended);
        // SAFETY: leaked above from a `Vec` of this length; every task has run,
        // and nobody else knows of it.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(tasks).cast_mut()) });
        [a, b, c, d, e, f]
    }

    fn admits<C: Contender>(&self) -> bool {
        C::VARIANT.is_none()
    }
}

/// One arrival in so many is waited for.
const WAITED_FOR: usize = 8;
/// Far away: nobody times out.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
struct TimedWaits(OpenLoop);

impl Trial for TimedWaits {
    /// Three quantiles of the waits, in nanoseconds.
    type Sample = [f64; 3];

    fn admits<C: Contender>(&self) -> bool {
        self.0.admits::<C>()
    }

    fn sample<C: Contender>(&self, _: &mut Pace) -> [f64; 3] {
        let pool = C::build(Shape::new(1, QUEUE));
        let work = Work::of_nanos(WORK.as_nanos() as f64);
        let warm = Tally::start();
        pool.feed(100, tick);
        warm.wait(100);

        let task = move || {
            work.run();
            tick();
        };
        let tally = Tally::start();
        let mut arrivals = Arrivals::from_now(self.0.load);
        let mut waits = Vec::with_capacity(self.0.arrivals / WAITED_FOR);
        for i in 1..=self.0.arrivals {
            arrivals.next();
            if i % WAITED_FOR == 0 {
                let start = now();
                assert_eq!(pool.call(task, LIMIT), Some(()), "ten seconds are enough");
                waits.push(now() - start);
            } else {
                pool.execute(task);
            }
        }
        tally.wait(self.0.arrivals as u64);
        drop(pool);
        tally.check(self.0.arrivals as u64);
        quantiles(waits.into_iter(), [0.5, 0.99, 0.999])
    }
}

pub(crate) fn list(options: &Options, add: Add<'_>) {
    delays(options, add);
    timed_waits(options, add);
}

fn timed_waits(options: &Options, add: Add<'_>) {
    for percent in [30, 60, 90] {
        let name = format!("latency/timed/{percent}%");
        if !options.wants(&name) {
            continue;
        }
        let load = f64::from(percent) / 100.0;
        let gap = WORK.as_secs_f64() / load;
        // Enough waits for a thousandth of them to be some.
        let arrivals = (options.budget.as_secs_f64() * 6.0 / gap) as usize;
        let title = format!(
            "do_with_deadline under {percent} % load: open-loop arrivals of tasks of {} us, 1 \
             worker, one in {WAITED_FOR} waited for: from its call to its return (ns; \
             percentiles of each round)",
            WORK.as_micros()
        );
        let all = entrants(&TimedWaits(OpenLoop { load, arrivals }));
        add(race_into(options.rounds, all, move |lanes| {
            let heads = ["p50", "p99", "p99.9"];
            vec![Table::of_quantiles(&name, &title, heads, lanes)]
        }));
    }
}

fn delays(options: &Options, add: Add<'_>) {
    for percent in [30, 60, 90] {
        let name = format!("latency/{percent}%");
        if !options.wants(&name) {
            continue;
        }
        let load = f64::from(percent) / 100.0;
        let gap = WORK.as_secs_f64() / load;
        let arrivals = (options.budget.as_secs_f64() * 2.5 / gap) as usize;
        let title = format!(
            "open-loop arrivals at {percent} % load, tasks of {} us, 1 worker: delay from when \
             a task was due to its start and to its end (ns; percentiles of each round)",
            WORK.as_micros()
        );
        let heads = ["start p50", "p99", "p99.9", "end p50", "p99", "p99.9"];
        let all = entrants(&OpenLoop { load, arrivals });
        add(race_into(options.rounds, all, move |lanes| {
            vec![Table::of_quantiles(&name, &title, heads, lanes)]
        }));
    }
}
