//! Allocations, memory, and processor time at rest.
//!
//! Memory is measured in processes of their own: in a used one, a new stack may
//! be an old one.

use super::{Add, CHILD, QUEUE, WORKERS};
use crate::alloc;
use crate::contenders::{Contender, Lazypool, Shape};
use crate::harness::{entrants, race, race_into, Entrant, Options, Pace, Table, Trial, Workload};
use crate::machine::processor_time;
use crate::tally::{tick, Gate, Tally};
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

pub(crate) fn list(options: &Options, add: Add<'_>) {
    allocations(options, add);
    idle(options, add);
    memory(options, add);
}

// ---- allocations per operation ----------------------------------------------

#[derive(Clone, Copy, Debug)]
enum Operation {
    Serve,
    Timed,
    Group,
}

#[derive(Clone, Copy, Debug)]
struct Allocations(Operation);

impl Allocations {
    /// A thousand operations.
    fn thousand<C: Contender>(self, pool: &C) {
        let tally = Tally::start();
        match self.0 {
            Operation::Serve => {
                let words = [1_u64, 2, 3];
                pool.feed(1000, move || {
                    black_box(words);
                    tick();
                });
            }
            Operation::Timed => {
                let words = [1_u64, 2, 3];
                for _ in 0..1000 {
                    let task = move || {
                        tick();
                        black_box(words)
                    };
                    assert_eq!(pool.call(task, Duration::from_secs(10)), Some(words));
                }
            }
            Operation::Group => pool.batch(1000, |_| tick()),
        }
        tally.wait(1000);
    }
}

impl Trial for Allocations {
    type Sample = f64;

    fn admits<C: Contender>(&self) -> bool {
        C::VARIANT.is_none()
    }

    fn sample<C: Contender>(&self, _: &mut Pace) -> f64 {
        let pool = C::build(Shape::new(WORKERS, QUEUE));
        self.thousand(&pool);
        self.thousand(&pool);
        alloc::start();
        self.thousand(&pool);
        alloc::stop().calls as f64 / 1000.0
    }
}

fn allocations(options: &Options, add: Add<'_>) {
    for (operation, name, title) in [
        (Operation::Serve, "allocations/serve", "serve, 24 bytes"),
        (
            Operation::Timed,
            "allocations/timed",
            "do_with_deadline, 24 bytes in and out",
        ),
        (
            Operation::Group,
            "allocations/group",
            "a group of 1,000, its wait included",
        ),
    ] {
        if options.wants(name) {
            let title = format!("allocations per operation: {title}");
            let all = entrants(&Allocations(operation));
            add(race(options.rounds, all, name, &title, "allocations"));
        }
    }
}

// ---- processor time at rest ---------------------------------------------------

/// Microseconds of processor time in a second of idleness.
fn at_rest(span: Duration) -> f64 {
    // Workers fall asleep.
    thread::sleep(Duration::from_millis(30));
    let before = processor_time();
    thread::sleep(span);
    let used = processor_time() - before;
    used.as_secs_f64() * 1e6 / span.as_secs_f64()
}

#[derive(Clone, Copy, Debug)]
struct Idle {
    span: Duration,
}

impl Trial for Idle {
    type Sample = f64;

    fn admits<C: Contender>(&self) -> bool {
        C::VARIANT.is_none()
    }

    fn sample<C: Contender>(&self, _: &mut Pace) -> f64 {
        let tally = Tally::start();
        let pool = C::build(Shape::new(WORKERS, QUEUE));
        pool.feed(1000, tick);
        tally.wait(1000);
        at_rest(self.span)
    }
}

fn idle(options: &Options, add: Add<'_>) {
    if !options.wants("idle") {
        return;
    }
    let span = Duration::from_millis(options.scaled(150) as u64);
    let mut all = entrants(&Idle { span });
    all.push(Entrant::limit("no pool", move |_| at_rest(span)));
    let title = "processor time of an idle pool that has worked";
    add(race(options.rounds.min(5), all, "idle", title, "us/s"));
}

// ---- memory ---------------------------------------------------------------------

const WORKERS_MEASURED: usize = 64;
/// As many as every contender can hold.
const TASKS_MEASURED: usize = 1_000;

#[derive(Clone, Copy, Debug)]
struct Memory {
    heap: i64,
    resident: i64,
}

impl Memory {
    fn now() -> Self {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages = statm.split_whitespace().nth(1).and_then(|p| p.parse().ok());
        Self {
            heap: alloc::so_far().live,
            resident: pages.unwrap_or(0_i64) * 4096,
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            heap: self.heap - before.heap,
            resident: self.resident - before.resident,
        }
    }
}

/// Builds a pool, occupies `occupied` of its workers and queues `queued` tasks.
fn filled<C: Contender>(shape: Shape, occupied: usize, queued: usize) -> Option<Memory> {
    tick(); // registers this thread
    let tally = Tally::start();
    let before = Memory::now();
    let pool = C::build(shape);
    let gate = Arc::new(Gate::default());
    for _ in 0..occupied {
        let gate = Arc::clone(&gate);
        pool.execute(move || {
            tick();
            gate.pass();
        });
    }
    for _ in 0..2000 {
        if tally.ran() == occupied as u64 {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    let full = tally.ran() == occupied as u64;
    let words = [1_u64, 2, 3];
    for _ in 0..queued {
        pool.execute(move || {
            black_box(words);
            tick();
        });
    }
    let used = Memory::now().since(before);
    gate.open();
    tally.wait((occupied + queued) as u64);
    full.then_some(used)
}

fn measure<C: Contender>(what: &str) -> Option<Memory> {
    match what {
        "empty" => filled::<C>(Shape::new(65_536, 0), 0, 0),
        "one worker" => filled::<C>(Shape::new(1, 16), 1, 0),
        "workers" => {
            let n = WORKERS_MEASURED + 1;
            filled::<C>(Shape::new(n, 16), n, 0)
        }
        "no task" => filled::<C>(Shape::new(1, 1), 1, 0),
        "tasks" => filled::<C>(Shape::new(1, TASKS_MEASURED), 1, TASKS_MEASURED),
        _ => None,
    }
}

/// Measures, and prints what `ask` reads; whether there was something to measure.
pub(super) fn report<C: Contender>(what: &str) -> bool {
    alloc::start();
    let found = measure::<C>(what);
    if let Some(Memory { heap, resident }) = found {
        println!("{heap} {resident}");
    }
    found.is_some()
}

fn ask(name: &str, what: &str) -> Option<Memory> {
    let program = std::env::current_exe().ok()?;
    let out = Command::new(program)
        .args([CHILD, name, what])
        .output()
        .ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    let mut numbers = text.split_whitespace().map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(Memory {
        heap: next()?,
        resident: next()?,
    })
}

#[derive(Clone, Copy, Debug)]
struct Each {
    with: &'static str,
    without: &'static str,
    count: usize,
}

impl Trial for Each {
    /// Bytes of heap, bytes resident.
    type Sample = (f64, f64);

    fn admits<C: Contender>(&self) -> bool {
        C::VARIANT.is_none()
    }

    fn sample<C: Contender>(&self, _: &mut Pace) -> (f64, f64) {
        let each = || {
            let used = ask(C::NAME, self.with)?.since(ask(C::NAME, self.without)?);
            let each = |bytes: i64| bytes as f64 / self.count as f64;
            Some((each(used.heap), each(used.resident)))
        };
        // One that starts fewer threads than it is asked to.
        each().unwrap_or((f64::NAN, f64::NAN))
    }
}

/// A race that becomes two tables.
fn heap_and_resident(
    rounds: usize,
    entrants: Vec<Entrant<(f64, f64)>>,
    workload: &'static str,
    title: String,
) -> Box<dyn Workload> {
    race_into(rounds, entrants, move |lanes| {
        let table = |kind: &str, of: fn(&(f64, f64)) -> f64| {
            let lanes: Vec<_> = lanes.iter().map(|l| l.map(of)).collect();
            let name = format!("{workload}/{kind}");
            Table::new(&name, &format!("{title}: {kind}"), "bytes", &lanes)
        };
        vec![table("heap", |s| s.0), table("resident", |s| s.1)]
    })
}

fn memory(options: &Options, add: Add<'_>) {
    let rounds = options.rounds.min(3);
    if options.wants("memory/empty") {
        let empty = Entrant::ours(Lazypool::<true>::NAME, |_| {
            let used = ask(Lazypool::<true>::NAME, "empty").expect("a child process");
            (used.heap as f64, used.resident as f64)
        });
        let title = String::from("an empty pool of 65,536 slots");
        add(heap_and_resident(
            rounds,
            vec![empty],
            "memory/empty",
            title,
        ));
    }
    if options.wants("memory/worker") {
        let all = entrants(&Each {
            with: "workers",
            without: "one worker",
            count: WORKERS_MEASURED,
        });
        let title = String::from("memory of a worker");
        add(heap_and_resident(rounds, all, "memory/worker", title));
    }
    if options.wants("memory/task") {
        let all = entrants(&Each {
            with: "tasks",
            without: "no task",
            count: TASKS_MEASURED,
        });
        let title = format!("memory of a queued task of 24 bytes, {TASKS_MEASURED} queued");
        add(heap_and_resident(rounds, all, "memory/task", title));
    }
}
