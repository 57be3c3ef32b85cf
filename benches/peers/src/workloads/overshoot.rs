//! How late a caller comes back whose deadline has passed.

use super::{Add, QUEUE, WORKERS};
use crate::contenders::{Contender, Shape, Variant};
use crate::harness::{entrants, quantiles, race_into, time, Entrant, Options, Pace, Table, Trial};
use crate::tally::{tick, Tally};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_millis(1);
/// What the task takes instead.
const TASK: Duration = Duration::from_millis(3);

const QUANTILES: [f64; 2] = [0.5, 0.99];

#[derive(Clone, Copy, Debug)]
struct Overshoot {
    calls: u64,
}

impl Trial for Overshoot {
    /// Two quantiles of the nanoseconds past the deadline.
    type Sample = [f64; 2];

    fn admits<C: Contender>(&self) -> bool {
        C::VARIANT != Some(Variant::Retrying)
    }

    fn sample<C: Contender>(&self, _: &mut Pace) -> [f64; 2] {
        let pool = C::build(Shape::new(WORKERS, QUEUE));
        assert_eq!(pool.call(|| 1, Duration::from_secs(10)), Some(1));
        let late = (0..self.calls).map(|_| {
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
        });
        quantiles(late, QUANTILES)
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

pub(crate) fn list(options: &Options, add: Add<'_>) {
    if !options.wants("overshoot") {
        return;
    }
    let calls = options.scaled(20) as u64;
    let mut all = entrants(&Overshoot { calls });
    all.push(Entrant::limit("park_timeout", move |_| {
        quantiles((0..calls).map(|_| parked_past(DEADLINE)), QUANTILES)
    }));
    let title = format!(
        "how late a caller returns after a deadline of {} ms that its task of {} ms misses \
         (ns; percentiles of each round)",
        DEADLINE.as_millis(),
        TASK.as_millis()
    );
    add(race_into(options.rounds, all, move |lanes| {
        vec![Table::of_quantiles(
            "overshoot",
            &title,
            ["p50", "p99"],
            lanes,
        )]
    }));
}
