//! More work than the pool can do, with deadlines: how much of it is done in time, and how
//! soon all is well again.
//!
//! Clients in a closed loop, eight times as many as workers. Each calls with a deadline, and
//! calls again once it has its value, or has given up; refused, it waits for a tenth of a task.
//! Tasks sleep: what is measured is who is started when, not who has a core.

use super::Add;
use crate::contenders::{Called, Contender, Guarded, Shape, GUARDED};
use crate::harness::{entrants, race_into, Entrant, Lane, Options, Pace, Table, Trial};
use crate::tally::{tick, Tally};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: usize = 64;
const WORKERS: usize = 8;
/// A tenth of the 100 ms and 250 ms of a service: so is what is called a second here.
const TASK: Duration = Duration::from_millis(10);
const DEADLINE: Duration = Duration::from_millis(25);
/// What a task is said to take: it may oversleep.
const TAKES: Duration = Duration::from_millis(12);
/// After the flood, so many clients ask for half of what the pool can do.
const AFTERWARDS: usize = WORKERS / 2;
/// For so long: a tenth of a second, as all else.
const WELL_MS: usize = 100;
/// By then it must be over: longer than it takes to do all that can have been left behind.
const GIVEN_UP: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
struct Overload {
    queue: usize,
    /// How long the flood is measured.
    flood: Duration,
    /// A tenth of a second: how long all must be well.
    well: Duration,
}

/// What came of a flood.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Values returned in time, and tasks that ran for nobody, in percent of what the workers
    /// can do.
    good: f64,
    vain: f64,
    /// Milliseconds from the flood's end until all is well.
    recovery: f64,
}

/// What the clients share.
#[derive(Debug, Default)]
struct Flood {
    ended: OnceLock<Instant>,
    good: AtomicU64,
    /// Clients for whom all is well again.
    well: AtomicUsize,
}

/// One call; whether its value came in time.
fn called<C: Contender>(pool: &C, alive: &Arc<()>) -> bool {
    let mine = Arc::clone(alive);
    let start = Instant::now();
    let task = move || {
        thread::sleep(TASK);
        tick();
        drop(mine);
    };
    match pool.try_call(task, DEADLINE) {
        Called::Value(()) => start.elapsed() <= DEADLINE,
        Called::Late => false,
        Called::Refused => {
            thread::sleep(TASK / 10);
            false
        }
    }
}

impl Overload {
    /// A client that stays: milliseconds from the flood's end until the first of the calls
    /// that all came in time for as long as it takes.
    fn stays<C: Contender>(&self, pool: &C, alive: &Arc<()>, flood: &Flood, ended: Instant) -> f64 {
        let mut since = None;
        loop {
            let start = Instant::now();
            if called(pool, alive) {
                since.get_or_insert(start);
            } else {
                since = None;
            }
            let well = since.is_some_and(|since| since.elapsed() >= self.well);
            if well || ended.elapsed() > GIVEN_UP {
                break;
            }
        }
        flood.well.fetch_add(1, Ordering::Relaxed);
        // The load stays what it is until it is well for all of them.
        while flood.well.load(Ordering::Relaxed) < AFTERWARDS {
            called(pool, alive);
        }
        (since.unwrap_or_else(Instant::now) - ended).as_secs_f64() * 1e3
    }

    fn client<C: Contender>(&self, pool: &C, alive: &Arc<()>, flood: &Flood, stays: bool) -> f64 {
        let ended = loop {
            if let Some(ended) = flood.ended.get() {
                break *ended;
            }
            if called(pool, alive) {
                flood.good.fetch_add(1, Ordering::Relaxed);
            }
        };
        if stays {
            self.stays(pool, alive, flood, ended)
        } else {
            0.0
        }
    }

    fn flooded<C: Contender>(&self, pool: &C, alive: &Arc<()>) -> Outcome {
        let flood = Flood::default();
        thread::scope(|s| {
            let client = |i| {
                let flood = &flood;
                s.spawn(move || self.client(pool, alive, flood, i < AFTERWARDS))
            };
            let clients: Vec<_> = (0..CLIENTS).map(client).collect();
            // Until those who came first have given up.
            thread::sleep(2 * DEADLINE);
            let tally = Tally::start();
            let before = flood.good.load(Ordering::Relaxed);
            let start = Instant::now();
            thread::sleep(self.flood);
            let took = start.elapsed();
            let (ran, good) = (tally.ran(), flood.good.load(Ordering::Relaxed) - before);
            flood.ended.set(Instant::now()).expect("ends once");
            let recovered = clients.into_iter().map(|c| c.join().expect("no panic"));
            let recovery = recovered.fold(0.0, f64::max);
            let capacity = WORKERS as f64 * took.as_secs_f64() / TASK.as_secs_f64();
            let share = |n: u64| 100.0 * n as f64 / capacity;
            Outcome {
                good: share(good),
                vain: share(ran.saturating_sub(good)),
                recovery,
            }
        })
    }
}

impl Trial for Overload {
    type Sample = Outcome;

    fn admits<C: Contender>(&self) -> bool {
        // A queue of 8 is for those who can bound it.
        C::DEADLINE && C::VARIANT.is_none() && (C::BOUNDED || self.queue > WORKERS)
    }

    fn sample<C: Contender>(&self, _: &mut Pace) -> Outcome {
        let shape = Shape {
            takes: TAKES,
            ..Shape::new(WORKERS, self.queue).refusing()
        };
        let pool = C::build(shape);
        let alive = Arc::new(());
        let outcome = self.flooded(&pool, &alive);
        drop(pool);
        // What was left behind has run, or never will.
        while Arc::strong_count(&alive) > 1 {
            thread::sleep(TASK);
        }
        outcome
    }
}

fn tables(name: &str, queue: usize, lanes: &[Lane<Outcome>]) -> Vec<Table> {
    let what = format!(
        "{CLIENTS} clients, {WORKERS} workers, tasks of {} ms, deadline {} ms \
         (a tenth of 100 and 250), a queue of {queue} where it can be bounded",
        TASK.as_millis(),
        DEADLINE.as_millis()
    );
    let shares: Vec<_> = lanes.iter().map(|l| l.map(|o| [o.good, o.vain])).collect();
    let recovery: Vec<_> = lanes.iter().map(|l| l.map(|o| o.recovery)).collect();
    let goodput = Table::of_columns(
        name,
        &format!("values in time under overload, and tasks that ran for nobody: {what}"),
        ["% of capacity", "in vain"],
        &shares,
    );
    let after = Table::new(
        &format!("{name}/after"),
        &format!(
            "from the end of that until calls of half the load all come back in time \
             for {WELL_MS} ms (a tenth of a second)"
        ),
        "ms",
        &recovery,
    );
    vec![goodput.more_is_better(), after]
}

pub(crate) fn list(options: &Options, add: Add<'_>) {
    for queue in [8, 1024] {
        let name = format!("overload/{queue}");
        if !options.wants(&name) {
            continue;
        }
        let overload = Overload {
            queue,
            flood: Duration::from_millis(options.scaled(600) as u64),
            well: Duration::from_millis(options.scaled(WELL_MS) as u64),
        };
        let mut all = entrants(&overload);
        let guarded = Entrant::ours(GUARDED, move |pace| overload.sample::<Guarded>(pace));
        // Behind ours without it.
        all.insert(1, guarded);
        // Long rounds, and steady ones.
        add(race_into(options.rounds.div_ceil(2), all, move |lanes| {
            tables(&name, queue, lanes)
        }));
    }
}
