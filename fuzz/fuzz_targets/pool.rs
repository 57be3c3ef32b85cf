//! Sequences of calls on one pool, by one thread, with a ledger of the closures. Each call is made
//! once the pool is at rest: all that it can do without help is done. So a call's answer follows
//! from the figures before it. What happens if several threads call at once is for the models and
//! the scenarios.
#![no_main]

#[path = "../shared/threads.rs"]
mod threads;

use lazypool::{
    DeadlineError, Group, Handle, Pool, Refused, ServeAsync, Shutdown, TaskError, WhenFull,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A time far beyond any that a step here takes.
const LIMIT: Duration = Duration::from_secs(20);
/// A time longer than a run of the fuzzer.
const LONG: Duration = Duration::from_secs(1_000);
const SHORT: Duration = Duration::from_micros(100);
/// The number of tasks of the group that may be pending.
const GROUP_LIMIT: usize = 2;

fn time(n: u8) -> Duration {
    let short = Duration::from_micros(u64::from(n));
    let nanosecond = Duration::from_nanos(1);
    [Duration::ZERO, nanosecond, short, LONG, Duration::MAX][usize::from(n % 5)]
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Verb {
    Serve,
    Await,
    /// Polls a future that awaits space, once.
    AwaitSpace,
}

#[derive(Debug, Clone, Copy, PartialEq, Arbitrary)]
enum With {
    Nothing,
    /// It waits for space for a moment.
    BlockFor,
    /// It has a deadline, which passes while the task is queued.
    Deadline,
    Group,
}

/// What a task does.
#[derive(Debug, Clone, Copy, Arbitrary)]
struct Does {
    /// It waits until its gate opens.
    holds: bool,
    panics: bool,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Step {
    Submit(Verb, Does, With),
    /// Joins, cancels, drops or detaches a handle; polls or drops a future.
    Use(u8),
    /// Makes a call with a deadline. `true`: it waits for space.
    Do(Does, u8, bool),
    Open(u8),
    Wait,
    Cancel,
    SetLimit(u8),
    Shutdown(u8, u8),
}

#[derive(Debug, Arbitrary)]
struct Input {
    workers: u8,
    min: u8,
    queue: u8,
    retires: bool,
    steps: Vec<Step>,
}

/// The fate of one closure, and its gate. It is also the value of its task.
#[derive(Debug, Default)]
struct Fate {
    runs: AtomicU64,
    drops: AtomicU64,
    at_gate: AtomicBool,
    open: AtomicBool,
}

impl Fate {
    fn has_run(&self) -> bool {
        self.runs.load(SeqCst) > 0
    }

    fn is_dropped(&self) -> bool {
        self.drops.load(SeqCst) > 0
    }

    fn is_held(&self) -> bool {
        self.at_gate.load(SeqCst) && !self.open.load(SeqCst)
    }
}

/// Captured by each closure, to record its fate.
struct Token(Arc<Fate>);

impl Token {
    fn run(self, does: Does) -> Arc<Fate> {
        self.0.runs.fetch_add(1, SeqCst);
        while does.holds && !self.0.open.load(SeqCst) {
            self.0.at_gate.store(true, SeqCst);
            sleep(Duration::from_micros(50));
        }
        if does.panics {
            // The fuzzer's panic hook does not see it.
            resume_unwind(Box::new("meant"));
        }
        Arc::clone(&self.0)
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.0.drops.fetch_add(1, SeqCst);
    }
}

/// Drops a closure that came back, and asserts that it has not run.
fn take_back<C>(closure: C, fate: &Fate) {
    assert!(!fate.has_run() && !fate.is_dropped(), "{fate:?}");
    drop(closure);
    assert!(fate.is_dropped(), "{fate:?}");
}

/// The answer to a submission: `None` if the task was accepted, or why not.
type Answer = Option<&'static str>;

fn refused<C>(refused: Refused<C>, fate: &Fate) -> Answer {
    let why = refused.reason().as_str();
    take_back(refused, fate);
    Some(why)
}

type Work = Box<dyn FnOnce() -> Arc<Fate> + Send>;

#[derive(Debug)]
struct Task {
    fate: Arc<Fate>,
    panics: bool,
    in_group: bool,
    handle: Option<Handle<Arc<Fate>>>,
    future: Option<ServeAsync<Work, Arc<Fate>>>,
}

impl Task {
    /// Polls the future once, and keeps the handle that it gives. Returns the answer, if there is
    /// one.
    fn poll(&mut self) -> Option<Answer> {
        let future = Pin::new(self.future.as_mut()?);
        let Poll::Ready(served) = future.poll(&mut Context::from_waker(Waker::noop())) else {
            return None;
        };
        self.future = None;
        let served = served.map(|handle| self.handle = Some(handle));
        Some(served.map_or_else(|back| refused(back, &self.fate), |()| None))
    }

    fn check(&self, outcome: Result<Arc<Fate>, TaskError>) {
        let (has_run, panics) = (self.fate.has_run(), self.panics);
        let is_right = match &outcome {
            Ok(value) => Arc::ptr_eq(value, &self.fate) && has_run && !panics,
            Err(TaskError::Panicked(_)) => has_run && panics,
            Err(TaskError::Cancelled | TaskError::Discarded | TaskError::Expired) => !has_run,
            _ => false,
        };
        assert!(is_right, "{outcome:?}: {:?}", self.fate);
    }
}

#[derive(Debug)]
struct Play {
    pool: Pool,
    retires: bool,
    group: Group,
    tasks: Vec<Task>,
    /// The most places of the queue that tasks may have left dead behind an older task.
    dead: usize,
}

impl Play {
    fn count(&self, is: impl Fn(&Task) -> bool) -> usize {
        self.tasks.iter().filter(|t| is(t)).count()
    }

    fn is_busy(&self) -> bool {
        self.pool.stats().running >= self.pool.limit()
    }

    /// Returns the answers that a submission may get now.
    fn answers(&self, in_group: bool) -> Vec<Answer> {
        let (queued, capacity) = (self.pool.stats().queued, self.pool.queue_capacity());
        let is_cancelled = in_group && self.group.is_cancelled();
        if self.pool.is_closed() || is_cancelled {
            let closed = self.pool.is_closed().then_some(Some("closed"));
            let cancelled = is_cancelled.then_some(Some("cancelled"));
            return closed.into_iter().chain(cancelled).collect();
        } else if in_group && self.group.pending() == GROUP_LIMIT {
            return vec![Some("group_full")];
        }
        let has_space = (!self.is_busy() || queued < capacity).then_some(None);
        let is_full = self.is_busy() && queued + self.dead >= capacity;
        let is_full = is_full.then_some(Some("saturated"));
        has_space.into_iter().chain(is_full).collect()
    }

    fn check(&self, answers: &[Answer], answer: Answer) {
        assert!(
            answers.contains(&answer),
            "{answer:?}, not {answers:?}: {self:#?}"
        );
    }

    /// Waits until the pool is at rest.
    fn settle(&mut self) {
        let start = Instant::now();
        while !self.is_at_rest() {
            assert!(start.elapsed() < LIMIT, "{self:#?}");
            sleep(Duration::from_micros(20));
        }
        if self.pool.stats().queued == 0 {
            self.dead = 0;
        }
    }

    /// Returns `true` if no task waits for a worker and no submission for space that it could have,
    /// each worker that is not needed has ended, and the figures add up.
    fn is_at_rest(&self) -> bool {
        let (s, closed) = (self.pool.stats(), self.pool.is_closed());
        let is_full = self.is_busy() && s.queued + self.dead >= self.pool.queue_capacity();
        let turned_away = |t: &Task| closed || t.in_group && self.group.is_cancelled();
        let in_line = self.count(|t| t.future.is_some() && !turned_away(t));
        let needed = match closed {
            true => 0,
            false if self.retires => self.pool.min_workers(),
            false => self.pool.limit(),
        };
        let held = self.count(|t| t.fate.is_held());
        let ran = self.count(|t| t.fate.has_run()) as u64;
        let panicked = self.count(|t| t.panics && t.fate.has_run() && t.fate.is_dropped());
        let ended = s.completed + s.panicked + s.expired + s.discarded;
        (s.queued == 0 || self.is_busy())
            && (s.waiting == 0 || is_full && s.waiting <= in_line)
            && (s.running, s.workers) == (held, held + s.idle)
            && s.workers <= needed.max(held)
            && s.workers as u64 == s.spawned - s.retired
            && s.accepted == ended + (s.queued + s.running) as u64
            && (ran, panicked as u64) == (s.completed + s.panicked + held as u64, s.panicked)
    }

    fn task(&mut self, does: Does, in_group: bool) -> (usize, impl FnOnce() -> Arc<Fate> + Send) {
        let fate = Arc::<Fate>::default();
        let token = Token(Arc::clone(&fate));
        self.tasks.push(Task {
            fate,
            panics: does.panics,
            in_group,
            handle: None,
            future: None,
        });
        (self.tasks.len() - 1, move || token.run(does))
    }

    fn submit(&mut self, verb: Verb, does: Does, with: With) {
        let in_group = with == With::Group;
        let answers = self.answers(in_group);
        let is_queued = answers == [None] && self.is_busy();
        let (n, run) = self.task(does, in_group);
        let task = &mut self.tasks[n];
        let pool = self.pool.when_full(WhenFull::Refuse);
        let pool = match with {
            With::BlockFor => pool.when_full(WhenFull::BlockFor(SHORT)),
            With::Deadline if is_queued => pool.with_deadline(Duration::from_nanos(1)),
            With::Deadline => pool.with_deadline(LONG),
            _ => pool,
        };
        let awaitable = if in_group {
            self.group.awaitable()
        } else {
            pool.awaitable()
        };
        let answer = match verb {
            Verb::Serve if in_group => {
                let served = self.group.serve(|| drop(run()));
                served.err().and_then(|back| refused(back, &task.fate))
            }
            Verb::Serve => {
                let served = pool.serve(|| drop(run()));
                served.err().and_then(|back| refused(back, &task.fate))
            }
            Verb::Await => match awaitable.serve(run) {
                Ok(handle) => {
                    task.handle = Some(handle);
                    None
                }
                Err(back) => refused(back, &task.fate),
            },
            Verb::AwaitSpace => {
                task.future = Some(awaitable.serve_async(Box::new(run)));
                match task.poll() {
                    Some(answer) => answer,
                    None => return assert!(answers.contains(&Some("saturated")), "{self:#?}"),
                }
            }
        };
        self.check(&answers, answer);
    }

    fn use_one(&mut self, way: u8) {
        let is_kept = |t: &&mut Task| t.handle.is_some() || t.future.is_some();
        let mut kept: Vec<_> = self.tasks.iter_mut().filter(is_kept).collect();
        let at = usize::from(way >> 2) % kept.len().max(1);
        let Some(task) = kept.get_mut(at) else {
            return;
        };
        self.dead += 1;
        match (way & 3, task.handle.take()) {
            (0, Some(handle)) => {
                let has_ended = task.fate.is_dropped();
                let joined = handle.join_timeout(SHORT);
                assert_eq!(joined.is_ok(), has_ended, "{:?}", task.fate);
                match joined {
                    Ok(outcome) => task.check(outcome),
                    Err(handle) => task.handle = Some(handle),
                }
            }
            (1, Some(handle)) => {
                handle.cancel();
                task.handle = Some(handle);
            }
            (2, Some(handle)) => drop(handle),
            (_, Some(handle)) => handle.detach(),
            (0 | 1, None) => task.future = None,
            (_, None) => {
                if let Some(answer) = task.poll() {
                    self.check(&[None, Some("closed"), Some("cancelled")], answer);
                }
            }
        }
    }

    fn call(&mut self, does: Does, limit: u8, waits: bool) {
        let (answers, before) = (self.answers(false), self.pool.stats());
        let runs = answers == [None] && !self.is_busy();
        let ends = runs && !does.holds || self.pool.is_closed();
        let limit = time(limit).min(if ends { Duration::MAX } else { SHORT });
        let (n, run) = self.task(does, false);
        let fate = Arc::clone(&self.tasks[n].fate);
        let policy = [WhenFull::Refuse, WhenFull::Block][usize::from(waits)];
        let outcome = self.pool.when_full(policy).do_with_deadline(run, limit);
        match outcome {
            Err(DeadlineError::Refused(back)) => {
                return self.check(&answers, refused(back, &fate));
            }
            Err(DeadlineError::Expired(back)) => {
                take_back(back, &fate);
                self.dead += 1;
            }
            Err(DeadlineError::TimedOut) => assert!(runs, "{self:#?}"),
            Ok(_) | Err(DeadlineError::Panicked(_)) => {
                // Before the caller is back, the closure is gone, its task is counted, and its
                // worker is free.
                let now = self.pool.stats();
                let ended = now.completed + now.panicked - before.completed - before.panicked;
                let is_free = (now.running, ended) == (before.running, 1);
                assert!(runs && ends && fate.is_dropped() && is_free, "{self:#?}");
                assert_eq!(outcome.is_err(), does.panics, "{fate:?}");
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Submit(verb, does, with) => self.submit(verb, does, with),
            Step::Use(way) => self.use_one(way),
            Step::Do(does, limit, waits) => self.call(does, limit, waits),
            Step::Open(n) => {
                let held: Vec<_> = self.tasks.iter().filter(|t| t.fate.is_held()).collect();
                if let Some(task) = held.get(usize::from(n) % held.len().max(1)) {
                    task.fate.open.store(true, SeqCst);
                }
            }
            Step::Wait => {
                let (pending, waited) = (self.group.pending(), self.group.wait_timeout(SHORT));
                let left = waited.map_or_else(|unfinished| unfinished.pending(), |()| 0);
                assert_eq!(left, pending, "{self:#?}");
            }
            Step::Cancel => {
                self.group.cancel();
                self.dead += GROUP_LIMIT;
            }
            Step::SetLimit(_) if self.pool.is_closed() => {}
            Step::SetLimit(n) => {
                let (least, most) = (self.pool.min_workers().max(1), self.pool.max_workers());
                let limit = least + usize::from(n) % (most - least + 1);
                assert!(self.pool.set_limit(limit).is_ok() && self.pool.limit() == limit);
            }
            Step::Shutdown(n, limit) => {
                let modes = [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel];
                let held = self.pool.stats().running > 0;
                let limit = time(limit).min(if held { SHORT } else { Duration::MAX });
                let report = self.pool.shutdown(modes[usize::from(n % 3)], limit);
                let workers = self.pool.stats().workers;
                assert!(!report.is_clean() || workers == 0, "{self:#?}");
            }
        }
        self.settle();
    }

    /// Opens all gates and shuts the pool down. Each task ends, and no closure or value is left.
    fn end(mut self) {
        let open = |task: &Task| task.fate.open.store(true, SeqCst);
        self.tasks.iter().for_each(open);
        self.settle();
        let report = self.pool.shutdown(Shutdown::Drain, LIMIT);
        assert!(report.is_clean(), "{report:?}: {self:#?}");
        self.settle();
        assert_eq!(self.group.pending(), 0, "{self:#?}");
        for mut task in self.tasks {
            task.poll();
            if let Some(handle) = task.handle.take() {
                task.check(handle.join());
            }
            let counts = [&task.fate.runs, &task.fate.drops].map(|count| count.load(SeqCst));
            assert!(counts[0] <= 1 && counts[1] == 1, "{:?}", task.fate);
            assert_eq!(Arc::strong_count(&task.fate), 1, "its value is left");
        }
    }
}

fuzz_target!(|input: Input| {
    let before = threads::count();
    let max = 1 + usize::from(input.workers % 4);
    let idle = [Duration::MAX, Duration::from_millis(1)][usize::from(input.retires)];
    let pool = Pool::builder()
        .max_workers(max)
        .min_workers(usize::from(input.min) % (max + 1))
        .queue_capacity(usize::from(input.queue % 5))
        .idle_timeout(idle);
    let pool = pool.build().expect("valid settings");
    let mut play = Play {
        retires: input.retires,
        group: pool.limited_group(GROUP_LIMIT),
        tasks: Vec::new(),
        dead: 0,
        pool,
    };
    for &step in input.steps.iter().take(40) {
        play.step(step);
    }
    play.end();
    threads::wait_until_ended(before);
});
