//! How late a caller comes back whose deadline has passed.

use super::{QUEUE, WORKERS};
use crate::contenders::{Contender, Shape, Variant};
use crate::harness::{entrants, figure, race, time, Entrant, Options, Pace, Table, Trial};
use crate::tally::{tick, Tally};
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_millis(1);
/// What the task takes instead.
const TASK: Duration = Duration::from_millis(3);

#[derive(Clone, Copy, Debug)]
struct Overshoot {
    calls: u64,
}

impl Trial for Overshoot {
    /// Nanoseconds past the deadline.
    type Sample = Vec<u64>;

    fn admits<C: Contender>(&self) -> bool {
        C::VARIANT != Some(Variant::Retrying)
    }

    fn sample<C: Contender>(&self, _: &mut Pace) -> Vec<u64> {
        let pool = C::build(Shape::new(WORKERS, QUEUE));
        assert_eq!(pool.call(|| 1, Duration::from_secs(10)), Some(1));
        (0..self.calls)
            .map(|_| {
                let tally = Tally::start();
                let alive = Arc::new(());
                let mine = Arc::clone(&alive);
                let task = move || {
                    thread::sleep(TASK);
                    tick();
                    drop(mine);
                };
                let mut value = None;
                let took = time(|| value = pool.call(task, DEADLINE));
                // Unless this thread itself lost its core for longer than the task took.
                assert!(
                    value.is_none() || took > TASK,
                    "it cannot have ended in time"
                );
                // It ends, or it was taken back before it started.
                while Arc::strong_count(&alive) > 1 {
                    thread::sleep(TASK / 8);
                }
                assert!(tally.ran() <= 1);
                took.saturating_sub(DEADLINE).as_nanos() as u64
            })
            .collect()
    }
}

/// How late the system is by itself.
fn parked_past(limit: Duration) -> u64 {
    let took = time(|| {
        let start = Instant::now();
        while let Some(left) = limit.checked_sub(start.elapsed()) {
            thread::park_timeout(left);
        }
    });
    took.saturating_sub(limit).as_nanos() as u64
}

pub(crate) fn run(options: &Options, done: &mut dyn FnMut(Table)) {
    if !options.wants("overshoot") {
        return;
    }
    let calls = options.scaled(20) as u64;
    let mut all = entrants(&Overshoot { calls });
    all.push(Entrant::limit("park_timeout", move |_| {
        (0..calls).map(|_| parked_past(DEADLINE)).collect()
    }));
    let lanes = race(options.rounds, all);
    let quantile = |samples: &[u64], q| {
        let mut h: Histogram<u64> =
            Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("bounds are in order");
        for s in samples {
            h.saturating_record((*s).max(1));
        }
        h.value_at_quantile(q) as f64
    };
    let medians: Vec<_> = lanes.iter().map(|l| l.map(|s| quantile(s, 0.5))).collect();
    let title = format!(
        "how late a caller returns after a deadline of {} ms that its task of {} ms misses \
         (ns: the median of p50; p99 of all rounds)",
        DEADLINE.as_millis(),
        TASK.as_millis()
    );
    let mut table = Table::new("overshoot", &title, "p50", &medians);
    table.extra_heads = vec!["p99"];
    for (row, lane) in table.rows.iter_mut().zip(&lanes) {
        row.p99 = quantile(&lane.samples.concat(), 0.99);
        row.extra = vec![figure(row.p99)];
    }
    done(table);
}
