//! Runs a scenario under random schedules for a while. Each execution follows from a seed.

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;
use std::time::{Duration, Instant};

/// A number of steps that no execution takes if it comes to an end.
const TOO_MANY_STEPS: usize = 300_000;

/// A random number generator (SplitMix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Returns dice that throw the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns a number of the range.
    pub(crate) fn within(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        self.between(*range.start(), *range.end())
    }

    /// Draws the time after which idle workers retire: none, little, or no limit.
    pub fn idle(&mut self) -> Duration {
        self.of(&[
            Duration::ZERO,
            crate::ticks(10),
            Duration::MAX,
            Duration::MAX,
        ])
    }

    /// Returns `true` once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of the items.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// Lets others run for fewer than `most` steps.
    pub fn pause(&mut self, most: u64) {
        for _ in 0..self.below(most) {
            crate::step();
        }
    }

    /// Returns new dice, which throw other numbers.
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }
}

/// The way in which the next thread is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// Chooses any thread, at each step or once in a while.
    Random,
    /// Chooses by priorities that are random at first and change at a few random steps (Burckhardt
    /// et al., 2010). There is one change less than the depth.
    Pct(u32),
}

/// The schedulers, by turns. Each finds faults that the other misses.
const KINDS: [Kind; 4] = [Kind::Random, Kind::Pct(3), Kind::Random, Kind::Pct(5)];

/// The values that, together with the code, determine an execution.
#[derive(Debug, Clone, Copy)]
struct Plan {
    kind: Kind,
    seed: u64,
    /// The changes of priority lie among that many steps.
    steps: u64,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Random => write!(f, "random:{}", self.seed),
            Kind::Pct(depth) => write!(f, "pct{depth}:{}:{}", self.seed, self.steps),
        }
    }
}

impl Plan {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let kind = match parts.next()? {
            "random" => Kind::Random,
            pct => Kind::Pct(pct.strip_prefix("pct")?.parse().ok()?),
        };
        let seed = parts.next()?.parse().ok()?;
        let steps = parts.next().map_or(Some(1), |n| n.parse().ok())?;
        Some(Self { kind, seed, steps })
    }
}

thread_local! {
    /// The plan of the execution that runs on this OS thread.
    static PLAN: Cell<Option<Plan>> = const { Cell::new(None) };
    static NAME: RefCell<String> = const { RefCell::new(String::new()) };
    /// Set once a panic occurred that was not planned.
    static FAILED: Cell<bool> = const { Cell::new(false) };
    /// The numbers of executions so far, and of their steps.
    static EXECUTIONS: Cell<u64> = const { Cell::new(0) };
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Prints how to run the current execution again.
pub(crate) fn print_plan() {
    if let Some(plan) = PLAN.get() {
        let name = NAME.with_borrow(String::clone);
        eprintln!("\n{name} failed: LAZYPOOL_SHUTTLE_SEED={plan}");
    }
}

/// Makes each panic that reaches the panic hook a failure, even if the library catches it, as it
/// does with those of tasks and hooks. Planned panics unwind without the hook.
fn watch_panics() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_first = PLAN.get().is_none() || !FAILED.replace(true);
            if is_first {
                print_plan();
                usual(info);
                if let Some(stats) = crate::report() {
                    eprintln!("{stats:?}");
                }
            }
        }));
    });
}

/// Chooses the running thread, in one execution after another.
struct Chooser {
    /// A plan to run again, instead of new ones.
    replay: Option<Plan>,
    seeds: Dice,
    until: Instant,
    plan: Plan,
    dice: Dice,
    /// For `Random`: the thread goes on, except once in that many steps.
    switch_one_in: u64,
    /// For `Pct`: the threads' priorities, the highest of which runs. `changes` holds the steps
    /// that change one.
    priorities: Vec<i64>,
    lowest: i64,
    changes: Vec<u64>,
    step: u64,
}

impl Scheduler for Chooser {
    fn new_execution(&mut self) -> Option<Schedule> {
        let n = EXECUTIONS.get();
        if n > 0 && !FAILED.get() {
            // All threads of the last execution have ended, and `PLAN` is still its plan.
            let left = lazypool::model::unfreed();
            assert_eq!(left, 0, "nodes of handles are not freed");
        }
        let is_over = self.replay.is_some() || Instant::now() >= self.until;
        if FAILED.get() || n > 0 && is_over {
            return None;
        }
        EXECUTIONS.set(n + 1);
        self.plan = self.replay.unwrap_or_else(|| Plan {
            kind: KINDS[n as usize % KINDS.len()],
            // Short enough to be copied by hand.
            seed: self.seeds.next() >> 24,
            // This execution will be about as long as the last one.
            steps: self.step.max(20),
        });
        PLAN.set(Some(self.plan));
        self.dice = Dice::new(self.plan.seed);
        self.switch_one_in = self.dice.of(&[1, 1, 2, 4, 16]);
        self.priorities.clear();
        self.lowest = 0;
        self.changes.clear();
        if let Kind::Pct(depth) = self.plan.kind {
            let steps = self.plan.steps;
            self.changes = (1..depth).map(|_| 1 + self.dice.below(steps)).collect();
        }
        self.step = 0;
        Some(Schedule::new(self.plan.seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        yields: bool,
    ) -> Option<TaskId> {
        if FAILED.get() {
            return None;
        }
        self.step += 1;
        STEPS.set(STEPS.get() + 1);
        if let [only] = runnable {
            return Some(only.id());
        }
        match self.plan.kind {
            Kind::Random => Some(self.any(runnable, current, yields)),
            Kind::Pct(_) => Some(self.by_priority(runnable, current, yields)),
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.dice.next()
    }
}

impl Chooser {
    fn any(&mut self, runnable: &[&Task], current: Option<TaskId>, yields: bool) -> TaskId {
        let mut among = runnable.iter().map(|task| task.id());
        if let Some(current) = current.filter(|c| among.any(|id| id == *c)) {
            if !yields && !self.dice.one_in(self.switch_one_in) {
                return current;
            }
        }
        runnable[self.dice.below(runnable.len() as u64) as usize].id()
    }

    fn by_priority(&mut self, runnable: &[&Task], current: Option<TaskId>, yields: bool) -> TaskId {
        // The current thread may not be runnable any more.
        let newest = runnable.iter().map(|t| t.id()).chain(current).max();
        while self.priorities.len() <= newest.map_or(0, usize::from) {
            let priority = 1 + (self.dice.next() >> 2) as i64;
            self.priorities.push(priority);
        }
        if let Some(current) = current {
            if yields || self.changes.contains(&self.step) {
                self.lowest -= 1;
                self.priorities[usize::from(current)] = self.lowest;
            }
        }
        let priority = |task: &&&Task| self.priorities[usize::from(task.id())];
        runnable.iter().max_by_key(priority).expect("one").id()
    }
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str, default: u64) -> u64 {
    env(name).map_or(default, |n| n.parse().expect(name))
}

/// Runs the scenario for a while with each scheduler by turns. The dice that it is given follow from
/// the seed, as does the schedule.
pub fn explore(name: &str, scenario: impl Fn(&mut Dice) + Send + Sync + 'static) {
    watch_panics();
    let start = Instant::now();
    let time = Duration::from_secs(2 * number("LAZYPOOL_SHUTTLE_SECS", 5));
    let replay = env("LAZYPOOL_SHUTTLE_SEED")
        .map(|seed| Plan::parse(&seed).expect("random:SEED or pctDEPTH:SEED:STEPS"));
    // Each scenario gets seeds of its own.
    let place = (name.bytes()).fold(0, |n: u64, byte| n.wrapping_mul(31) + u64::from(byte));
    let base = number("LAZYPOOL_SHUTTLE_BASE", 0) << 32;
    let chooser = Chooser {
        replay,
        seeds: Dice::new(place ^ base),
        until: start + time,
        plan: Plan::parse("random:0").expect("a plan"),
        dice: Dice::new(0),
        switch_one_in: 1,
        priorities: Vec::new(),
        lowest: 0,
        changes: Vec::new(),
        step: 0,
    };
    let mut config = Config::new();
    config.stack_size = 0x3_0000;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(TOO_MANY_STEPS);
    config.silence_warnings = true;
    NAME.with_borrow_mut(|it| *it = name.to_owned());
    FAILED.set(false);
    EXECUTIONS.set(0);
    STEPS.set(0);
    let run = catch_unwind(AssertUnwindSafe(|| {
        Runner::new(chooser, config).run(move || {
            lazypool::model::begin(lazypool::model::Options {
                trace: env("LAZYPOOL_SHUTTLE_TRACE").is_some(),
                ..Default::default()
            });
            let seed = PLAN.get().expect("chosen").seed;
            scenario(&mut Dice::new(seed.rotate_left(32)));
        })
    }));
    let (n, took) = (EXECUTIONS.get(), start.elapsed().as_secs_f64());
    let steps = STEPS.get() / n.max(1);
    let plan = PLAN.take();
    println!(
        "{name}: {n} executions of {steps} steps in {took:.1} s, {:.0} a second",
        n as f64 / took
    );
    if let (true, Some(plan)) = (run.is_err() || FAILED.get(), plan) {
        panic!("{name} failed at execution {n}: LAZYPOOL_SHUTTLE_SEED={plan}");
    }
}
