//! What a large cap costs those who do not use it. Ourselves only.

use super::Add;
use crate::harness::{race, time, Entrant, Options, Pace};
use crate::limits::Patience;
use crate::tally::{tick, Gate, Tally};
use lazypool::{Pool, WhenFull};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

const CAPS: [(usize, &str); 4] = [
    (2, "cap 2"),
    (64, "cap 64"),
    (4_096, "cap 4,096"),
    (65_536, "cap 65,536"),
];

fn pool(cap: usize, queue: usize) -> Pool {
    Pool::builder()
        .max_workers(cap)
        .queue_capacity(queue)
        .stack_size(64 * 1024)
        .build()
        .expect("settings are in bounds")
}

/// `do_with_deadline` with an idle worker at hand.
fn timed(cap: usize, budget: Duration, pace: &mut Pace) -> f64 {
    let pool = pool(cap, 0);
    pace.run(budget, |n| {
        let tally = Tally::start();
        let took = time(|| {
            for _ in 0..n {
                let ended = pool.do_with_deadline(tick, Duration::from_secs(10));
                assert!(ended.is_ok(), "an idle worker");
            }
        });
        tally.check(n);
        took
    })
}

/// `serve`, refused with every worker occupied.
fn refused(cap: usize, budget: Duration, pace: &mut Pace) -> f64 {
    let pool = pool(cap, 0);
    let tally = Tally::start();
    let gate = Arc::new(Gate::default());
    for _ in 0..cap {
        let gate = Arc::clone(&gate);
        let served = pool.serve(move || {
            tick();
            gate.pass();
        });
        assert!(served.is_ok(), "a thread for every slot");
    }
    tally.wait(cap as u64);
    let words = [1_u64, 2, 3];
    let ns = pace.run(budget, |n| {
        time(|| {
            for _ in 0..n {
                let served = pool.serve(move || {
                    black_box(words);
                    tick();
                });
                assert!(served.is_err_and(|r| r.is_saturated()));
            }
        })
    });
    gate.open();
    drop(pool);
    tally.check(cap as u64);
    ns
}

/// `serve` through a queue, with the worker that a sequential producer uses.
fn queued(cap: usize, budget: Duration, pace: &mut Pace) -> f64 {
    let pool = Pool::builder()
        .max_workers(cap)
        .queue_capacity(1024)
        .when_full(WhenFull::Block)
        .build()
        .expect("settings are in bounds");
    pace.run(budget, |n| {
        let tally = Tally::start();
        let took = time(|| {
            for i in 0..n {
                assert!(pool.serve(tick).is_ok());
                // No backlog: a large cap would answer it with threads.
                if i % 8 == 7 {
                    let mut patience = Patience::default();
                    while tally.ran() <= i {
                        patience.wait();
                    }
                }
            }
        });
        tally.wait(n);
        took
    })
}

pub(crate) fn list(options: &Options, add: Add<'_>) {
    let budget = options.budget;
    type Measure = fn(usize, Duration, &mut Pace) -> f64;
    let measures: [(&str, &str, Measure, usize); 3] = [
        ("caps/timed", "do_with_deadline, one caller", timed, 65_536),
        ("caps/served", "serve, 8 tasks at a time", queued, 65_536),
        // Needs as many threads as slots.
        ("caps/refused", "a refusal", refused, 4_096),
    ];
    for (name, title, measure, largest) in measures {
        if !options.wants(name) {
            continue;
        }
        let entrant =
            |(cap, name)| Entrant::ours(name, move |pace: &mut Pace| measure(cap, budget, pace));
        let caps = CAPS.into_iter().filter(|(cap, _)| *cap <= largest);
        let all = caps.map(entrant).collect();
        let title = format!("{title}, by the cap on workers");
        add(race(options.rounds, all, name, &title, "ns"));
    }
    if options.wants("build") {
        let entrant = |(cap, name)| {
            Entrant::ours(name, move |_: &mut Pace| {
                let mut built = None;
                let took = time(|| built = Some(black_box(pool(cap, 0))));
                drop(built);
                took.as_nanos() as f64
            })
        };
        let (rounds, all) = (options.rounds.max(5), CAPS.map(entrant).into());
        let title = "building a pool, by the cap on workers";
        add(race(rounds, all, "build", title, "ns"));
    }
}
