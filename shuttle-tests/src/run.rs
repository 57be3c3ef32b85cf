//! Runs a scenario under random schedules for a while. Each execution follows from a seed.

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Once};
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
    static STEPS: Cell<u64> = const { Cell::new(0) };
    static STOP: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

/// Returns the number of steps taken so far, by all threads of all executions.
pub(crate) fn steps() -> u64 {
    STEPS.get()
}

/// The number of steps that others may take while a thread is stopped.
const STOPPED: u64 = 3_000;

/// A thread that is stopped for a while, wherever it is.
struct Stop {
    at: u64,
    /// The stopped thread, and the step at which it was stopped.
    whom: Option<(TaskId, u64)>,
    look: Box<dyn Fn(usize, u64)>,
}

/// Stops the thread that runs at the given step of this execution, until no other thread can go on,
/// or the others have taken [`STOPPED`] steps. Then calls `look` with the thread, and with the step
/// by which every other thread had gone as far as it could.
pub(crate) fn stop_at(step: u64, look: impl Fn(usize, u64) + 'static) {
    STOP.set(Some(Stop {
        at: step,
        whom: None,
        look: Box::new(look),
    }));
}

impl Stop {
    /// Returns the thread that must not run at this step, if there is one.
    fn whom(&mut self, runnable: &[&Task], current: Option<TaskId>, step: u64) -> Option<TaskId> {
        if self.whom.is_none() && step >= self.at {
            // The first thread is not stopped: it waits for the others.
            let may_be =
                |id: &TaskId| usize::from(*id) != 0 && runnable.iter().any(|task| task.id() == *id);
            self.whom = current.filter(may_be).map(|id| (id, steps()));
        }
        let (stopped, since) = self.whom?;
        let is_alone = runnable.iter().all(|task| task.id() == stopped);
        let took = steps() - since;
        if took < STOPPED && !is_alone {
            return Some(stopped);
        }
        let until = if is_alone {
            steps()
        } else {
            since + STOPPED / 3
        };
        (self.at, self.whom) = (u64::MAX, None);
        // The panic hook reports a panic of `look`.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.look)(stopped.into(), until)));
        None
    }
}

/// Makes each panic that reaches the panic hook a failure, even if the library catches it, as it
/// does with those of tasks and hooks. Planned panics unwind without the hook.
fn watch_panics() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if let Some(plan) = PLAN.get() {
                if !FAILED.replace(true) {
                    let name = NAME.with_borrow(String::clone);
                    eprintln!("\n{name} failed: LAZYPOOL_SHUTTLE_SEED={plan}");
                    usual(info);
                    if let Some(stats) = crate::report() {
                        eprintln!("{stats:?}");
                    }
                }
            } else {
                usual(info);
            }
        }));
    });
}

/// Chooses the running thread, in one execution after another.
struct Chooser {
    kinds: Vec<Kind>,
    /// The file to which each plan is written before its execution, for failures that end the
    /// process.
    log: Option<String>,
    /// A plan to run again, instead of new ones.
    replay: Option<Plan>,
    seeds: Dice,
    until: Instant,
    most: u64,
    executions: Arc<Cell64>,
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

/// A count that `run` and its scheduler share. Only one OS thread uses it.
type Cell64 = std::sync::atomic::AtomicU64;
const RELAXED: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

impl Scheduler for Chooser {
    fn new_execution(&mut self) -> Option<Schedule> {
        let n = self.executions.load(RELAXED);
        if n > 0 && !FAILED.get() {
            // All threads of the last execution have ended, and `PLAN` is still its plan.
            let left = lazypool::model::unfreed();
            assert_eq!(left, 0, "nodes of handles are not freed");
        }
        if FAILED.get() || n >= self.most || (n > 0 && Instant::now() >= self.until) {
            return None;
        }
        self.executions.fetch_add(1, RELAXED);
        self.plan = self.replay.unwrap_or_else(|| Plan {
            kind: self.kinds[n as usize % self.kinds.len()],
            // Short enough to be copied by hand.
            seed: self.seeds.next() >> 24,
            // This execution will be about as long as the last one.
            steps: self.step.max(20),
        });
        PLAN.set(Some(self.plan));
        if let Some(log) = &self.log {
            std::fs::write(log, format!("{}\n", self.plan)).expect("writable");
        }
        STOP.take();
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
        let stopped = STOP.with_borrow_mut(|stop| {
            (stop.as_mut()).and_then(|stop| stop.whom(runnable, current, self.step))
        });
        if FAILED.get() {
            return None;
        }
        let others: Vec<_>;
        let runnable = match stopped {
            None => runnable,
            Some(_) => {
                let others_than = |task: &&Task| Some(task.id()) != stopped;
                others = runnable.iter().copied().filter(others_than).collect();
                &others[..]
            }
        };
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

/// Runs the scenario for a while with each scheduler. The dice that it is given follow from the
/// seed, as does the schedule.
pub fn explore(name: &str, scenario: impl Fn(&mut Dice) + Send + Sync + 'static) {
    watch_panics();
    let scenario = Arc::new(scenario);
    let time = Duration::from_secs(number("LAZYPOOL_SHUTTLE_SECS", 5));
    if let Some(seed) = env("LAZYPOOL_SHUTTLE_SEED") {
        let plan = Plan::parse(&seed).expect("random:SEED or pctDEPTH:SEED:STEPS");
        run(name, vec![plan.kind], Some(plan), time, &scenario);
        return;
    }
    run(name, vec![Kind::Random], None, time, &scenario);
    run(
        name,
        vec![Kind::Pct(3), Kind::Pct(5)],
        None,
        time,
        &scenario,
    );
}

fn run(
    name: &str,
    kinds: Vec<Kind>,
    replay: Option<Plan>,
    time: Duration,
    scenario: &Arc<impl Fn(&mut Dice) + Send + Sync + 'static>,
) {
    let executions = Arc::new(Cell64::new(0));
    let start = Instant::now();
    let what = if kinds == [Kind::Random] {
        "random"
    } else {
        "pct"
    };
    // Each scenario gets seeds of its own.
    let place = name.bytes().fold(0, |n: u64, byte| {
        n.wrapping_mul(31).wrapping_add(byte.into())
    });
    let base = number("LAZYPOOL_SHUTTLE_BASE", 0) << 32;
    let chooser = Chooser {
        plan: Plan {
            kind: kinds[0],
            seed: 0,
            steps: 0,
        },
        kinds,
        log: env("LAZYPOOL_SHUTTLE_LOG"),
        replay,
        seeds: Dice::new(place ^ base),
        until: start + time,
        most: if replay.is_some() { 1 } else { u64::MAX },
        executions: Arc::clone(&executions),
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
    STEPS.set(0);
    let scenario = Arc::clone(scenario);
    let run = catch_unwind(AssertUnwindSafe(|| {
        Runner::new(chooser, config).run(move || {
            let seed = PLAN.get().expect("chosen").seed;
            lazypool::model::begin(lazypool::model::Options {
                seed: !seed,
                trace: env("LAZYPOOL_SHUTTLE_TRACE").is_some(),
                ..Default::default()
            });
            scenario(&mut Dice::new(seed.rotate_left(32)));
        })
    }));
    let failed = run.is_err() || FAILED.get();
    let n = executions.load(RELAXED);
    let took = start.elapsed().as_secs_f64();
    let steps = STEPS.get() / n.max(1);
    let plan = PLAN.take();
    println!(
        "{name}, {what}: {n} executions of {steps} steps in {took:.1} s, {:.0} a second",
        n as f64 / took
    );
    if let (true, Some(plan)) = (failed, plan) {
        panic!("{name} failed at execution {n}: LAZYPOOL_SHUTTLE_SEED={plan}");
    }
}
