//! Sequences of calls on one pool, by one thread, with a ledger of the closures and of their places.
//! Each call is made once the pool is at rest: all that it can do without help is done. So the answer
//! to a call, and each figure, follow from what has been called before. What happens if several
//! threads call at once is for the models and the scenarios.
#![no_main]

#[path = "../shared/threads.rs"]
mod threads;

use lazypool::{
    DeadlineError, Group, Handle, Pool, Refused, ServeAsync, Shutdown, Stats, TaskError, WhenFull,
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
/// A deadline that has passed once it is looked at.
const PASSED: Duration = Duration::from_nanos(1);

fn time(n: u8) -> Duration {
    let short = Duration::from_micros(u64::from(n));
    [Duration::ZERO, PASSED, short, LONG, Duration::MAX][usize::from(n % 5)]
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
    Waits,
    /// It has a deadline, which passes while the task is queued or in line.
    Deadline,
    Group,
    /// It waits for a place in the group, and then for space, for a moment.
    GroupWaits,
}

impl With {
    fn is_in_group(self) -> bool {
        matches!(self, Self::Group | Self::GroupWaits)
    }

    fn waits(self) -> bool {
        matches!(self, Self::Waits | Self::GroupWaits)
    }
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
    /// Makes a call with a deadline.
    Do(Does, u8, With),
    Open(u8),
    Wait,
    Cancel,
    SetLimit(u8),
    Shutdown(u8, u8),
}

#[derive(Debug, Arbitrary)]
struct Input {
    /// The most workers; and the group's limit, which may be zero.
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
    /// Its deadline passes before a worker can start it.
    expires: bool,
    is_accepted: bool,
    /// Nobody waits for it any more: while it runs, its worker is abandoned.
    is_unwanted: bool,
    /// Why it was taken out of its line.
    turned_away: Option<&'static str>,
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
            Err(TaskError::Cancelled | TaskError::Discarded) => !has_run,
            Err(TaskError::Expired) => !has_run && self.expires,
            _ => false,
        };
        assert!(is_right, "{outcome:?}: {:?}", self.fate);
    }
}

/// Where the tasks are that are neither held nor over, by number, in the order of their turns.
#[derive(Debug, Clone, Default, PartialEq)]
struct Places {
    /// The queue's cells: those of queued tasks, and those of tasks that were taken out behind an
    /// older one. Each of them counts as an unended task (law 1).
    queue: Vec<usize>,
    line: Vec<usize>,
    group_line: Vec<usize>,
}

impl Places {
    fn waiting(&self) -> impl Iterator<Item = &usize> {
        self.line.iter().chain(&self.group_line)
    }
}

#[derive(Debug)]
struct Play {
    pool: Pool,
    retires: bool,
    group: Group,
    group_limit: usize,
    tasks: Vec<Task>,
    places: Places,
    /// How many submissions were refused, but for those of `Task::turned_away`.
    refused: u64,
    timed_out: u64,
    /// A shutdown has discarded queued tasks.
    discards: bool,
    is_limited: bool,
}

impl Play {
    fn count(&self, is: impl Fn(&Task) -> bool) -> usize {
        self.tasks.iter().filter(|t| is(t)).count()
    }

    fn is_busy(&self) -> bool {
        self.pool.stats().running >= self.pool.limit()
    }

    /// Returns `true` if the pool has space, with the tasks at these places.
    fn has_space(&self, places: &Places) -> bool {
        let unended = self.count(|t| t.fate.is_held()) + places.queue.len();
        unended < self.pool.limit() + self.pool.queue_capacity()
    }

    /// Returns `true` if the group has a place, with the tasks at these places.
    fn has_place(&self, places: &Places) -> bool {
        let unended = |n: &&usize| self.tasks[**n].in_group && !self.tasks[**n].fate.is_dropped();
        let placed = places.queue.iter().chain(&places.line).filter(unended);
        let held = self.count(|t| t.in_group && t.fate.is_held());
        held + placed.count() < self.group_limit
    }

    /// Returns the answer to a submission that does not wait.
    fn answer(&self, in_group: bool) -> Answer {
        if self.pool.is_closed() {
            Some("closed")
        } else if in_group && self.group.is_cancelled() {
            Some("cancelled")
        } else if in_group && !self.has_place(&self.places) {
            Some("group_full")
        } else if !self.has_space(&self.places) || !self.places.line.is_empty() {
            Some("saturated")
        } else {
            None
        }
    }

    /// Returns `true` if a submission that may wait does so instead of this answer.
    fn is_waited_for(&self, answer: Answer) -> bool {
        answer == Some("saturated") || answer == Some("group_full") && self.group_limit > 0
    }

    /// Asserts that an answer is the one that was expected.
    fn check(&self, expected: Answer, answer: Answer) {
        // Of two reasons to refuse a task, the pool may name either.
        let is_either = expected == Some("closed") && self.group.is_cancelled();
        assert!(
            answer == expected || is_either && answer == Some("cancelled"),
            "{answer:?}, not {expected:?}: {self:#?}"
        );
    }

    /// Waits until the pool is at rest.
    fn settle(&mut self) {
        let start = Instant::now();
        loop {
            let places = self.places_at_rest();
            // The places are the same afterwards: nothing has moved meanwhile.
            if self.is_at_rest(&self.pool.stats(), &places) && places == self.places_at_rest() {
                for n in places.queue.iter().chain(&self.passed(&places)) {
                    self.tasks[*n].is_accepted = true;
                }
                self.places = places;
                return;
            }
            assert!(start.elapsed() < LIMIT, "not at {places:?}: {self:#?}");
            sleep(Duration::from_micros(20));
        }
    }

    /// Returns the tasks that have left their line because their turn came.
    fn passed(&self, places: &Places) -> Vec<usize> {
        let is_in_line = |n: &&usize| places.waiting().any(|other| other == *n);
        let left = self.places.waiting().filter(|n| !is_in_line(n));
        left.copied().collect()
    }

    /// Takes the tasks out of their lines that a shutdown or the group's cancel has refused.
    fn turn_away(&mut self, why: &'static str, of_group: bool) {
        let Places {
            line, group_line, ..
        } = &mut self.places;
        for list in [line, group_line] {
            list.retain(|&n| {
                let task = &mut self.tasks[n];
                let goes = !of_group || task.in_group;
                task.turned_away = goes.then_some(why);
                !goes
            });
        }
    }

    /// Returns where the tasks are once the pool is at rest: each task that has space has left its
    /// line, and no cell is left of a task that is over, unless an older task is queued before it.
    fn places_at_rest(&self) -> Places {
        let mut places = self.places.clone();
        let fate = |n: usize| &self.tasks[n].fate;
        let is_over = |n: usize| fate(n).has_run() || fate(n).is_dropped();
        loop {
            let begin = places.queue.iter().take_while(|n| is_over(**n)).count();
            places.queue.drain(..begin);
            let first = places.line.first().copied();
            let first_of_group = places.group_line.first().copied();
            if let Some(n) = first.filter(|&n| is_over(n) || self.has_space(&places)) {
                places.queue.push(n);
                places.line.remove(0);
            } else if let Some(n) =
                first_of_group.filter(|&n| is_over(n) || self.has_place(&places))
            {
                places.line.push(n);
                places.group_line.remove(0);
            } else {
                return places;
            }
        }
    }

    /// Returns `true` if no task waits for a worker and no submission for space that it could have,
    /// each worker that is not needed has ended, and the figures are those of the ledger.
    fn is_at_rest(&self, s: &Stats, places: &Places) -> bool {
        let needed = match self.pool.is_closed() {
            true => 0,
            false if self.retires => self.pool.min_workers(),
            false => self.pool.limit(),
        };
        let held = self.count(|t| t.fate.is_held());
        let ran = self.count(|t| t.fate.has_run()) as u64;
        let panicked = self.count(|t| t.panics && t.fate.has_run() && t.fate.is_dropped());
        let abandoned = self.count(|t| t.is_unwanted && t.fate.is_held());
        let is_queued = |n: &&usize| !self.tasks[**n].fate.is_dropped();
        let queued = places.queue.iter().filter(is_queued).count();
        // No task starts before an older one.
        let in_order = !places.queue.iter().any(|n| self.tasks[*n].fate.has_run());
        let passed = self.passed(places);
        let is_accepted = |(n, t): (usize, &Task)| t.is_accepted || passed.contains(&n);
        let is_out = |t: &Task| !t.fate.has_run() && t.fate.is_dropped();
        let (mut accepted, mut expired, mut out) = (0, 0, 0);
        for (n, task) in self.tasks.iter().enumerate() {
            if is_accepted((n, task)) {
                accepted += 1;
                out += u64::from(is_out(task));
                expired += u64::from(is_out(task) && task.expires);
            }
        }
        let refused = self.refused + self.count(|t| t.turned_away.is_some()) as u64;
        let in_group = |n: &&usize| self.tasks[**n].in_group;
        let of_group = places
            .queue
            .iter()
            .filter(is_queued)
            .chain(places.waiting());
        let held_of_group = self.count(|t| t.in_group && t.fate.is_held());
        let pending = held_of_group + of_group.filter(in_group).count();
        in_order
            && (queued == 0 || held >= self.pool.limit())
            && (s.queued, s.waiting) == (queued, places.waiting().count())
            && (s.running, s.workers) == (held, held + s.idle)
            && s.workers <= needed.max(held)
            && s.workers as u64 == s.spawned - s.retired
            && s.abandoned == abandoned
            && (s.accepted, s.refused, s.timed_out) == (accepted, refused, self.timed_out)
            && (ran, panicked as u64) == (s.completed + s.panicked + held as u64, s.panicked)
            && s.expired + s.discarded == out
            // A shutdown may come before or after a task's deadline.
            && (s.expired == expired || self.discards && s.expired < expired)
            && self.group.pending() == pending
    }

    fn task(&mut self, does: Does, with: With) -> (usize, impl FnOnce() -> Arc<Fate> + Send) {
        let fate = Arc::<Fate>::default();
        let token = Token(Arc::clone(&fate));
        self.tasks.push(Task {
            fate,
            panics: does.panics,
            in_group: with.is_in_group(),
            expires: false,
            is_accepted: false,
            is_unwanted: false,
            turned_away: None,
            handle: None,
            future: None,
        });
        (self.tasks.len() - 1, move || token.run(does))
    }

    fn submit(&mut self, verb: Verb, does: Does, with: With) {
        let (expected, before) = (self.answer(with.is_in_group()), self.pool.stats());
        let joins = matches!(verb, Verb::AwaitSpace) && self.is_waited_for(expected);
        let is_queued = expected.is_none() && self.is_busy();
        let (n, run) = self.task(does, with);
        let task = &mut self.tasks[n];
        let policy = match with.waits() {
            true => WhenFull::BlockFor(SHORT),
            false => WhenFull::Refuse,
        };
        let pool = match with.is_in_group() {
            true => self.group.when_full(policy),
            false => self.pool.when_full(policy),
        };
        task.expires = with == With::Deadline && (is_queued || joins);
        let pool = match with {
            With::Deadline if task.expires => pool.with_deadline(PASSED),
            With::Deadline => pool.with_deadline(LONG),
            _ => pool,
        };
        let answer = match verb {
            Verb::Serve => {
                let served = pool.serve(|| drop(run()));
                served.err().and_then(|back| refused(back, &task.fate))
            }
            Verb::Await => match pool.awaitable().serve(run) {
                Ok(handle) => {
                    task.handle = Some(handle);
                    None
                }
                Err(back) => refused(back, &task.fate),
            },
            Verb::AwaitSpace => {
                task.future = Some(pool.awaitable().serve_async(Box::new(run)));
                match task.poll() {
                    Some(answer) => answer,
                    None => {
                        assert!(joins, "it waits: {self:#?}");
                        return match expected {
                            Some("saturated") => self.places.line.push(n),
                            _ => self.places.group_line.push(n),
                        };
                    }
                }
            }
        };
        assert!(!joins, "{answer:?}: it does not wait: {self:#?}");
        task.is_accepted = answer.is_none();
        self.refused += u64::from(answer.is_some());
        self.check(expected, answer);
        if is_queued {
            self.places.queue.push(n);
        }
        self.check_start(&before, answer.is_none());
    }

    /// Asserts that a submission has started no thread without need (law 5), and that the first
    /// workers have the first slots.
    fn check_start(&self, before: &Stats, is_accepted: bool) {
        let now = self.pool.stats();
        // An idle worker may be about to retire. In a pool without a queue, one that looks around, and
        // is counted as idle, cannot be relied on.
        let is_left_alone = self.retires || self.pool.queue_capacity() == 0;
        let may_start = before.idle == 0 && before.running < self.pool.limit();
        assert!(
            now.spawned == before.spawned || is_accepted && (may_start || is_left_alone),
            "{before:?}: {self:#?}"
        );
        if now.retired == 0 && !self.retires && !self.is_limited {
            let slots = self.pool.workers().into_iter().map(|worker| worker.slot);
            assert!(slots.eq(0..now.workers), "{self:#?}");
        }
    }

    fn use_one(&mut self, way: u8) {
        let is_kept = |t: &Task| t.handle.is_some() || t.future.is_some();
        let kept: Vec<_> = (0..self.tasks.len())
            .filter(|n| is_kept(&self.tasks[*n]))
            .collect();
        let Some(&n) = kept.get(usize::from(way >> 2) % kept.len().max(1)) else {
            return;
        };
        let is_in_line = self.places.waiting().any(|other| *other == n);
        let task = &mut self.tasks[n];
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
                task.is_unwanted = true;
                handle.cancel();
                task.handle = Some(handle);
            }
            (2, Some(handle)) => {
                task.is_unwanted = true;
                drop(handle);
            }
            (_, Some(handle)) => handle.detach(),
            (0 | 1, None) => {
                task.is_unwanted = true;
                task.future = None;
                let Places {
                    line, group_line, ..
                } = &mut self.places;
                line.retain(|other| *other != n);
                group_line.retain(|other| *other != n);
                assert!(!is_in_line || task.fate.is_dropped(), "{:?}", task.fate);
            }
            (_, None) => {
                let (start, turned_away) = (Instant::now(), task.turned_away);
                let mut answer = task.poll();
                // A task may start before its owner has the answer. A refusal is there at once.
                let may_be_late = !is_in_line && turned_away.is_none();
                while answer.is_none() && may_be_late && start.elapsed() < LIMIT {
                    sleep(Duration::from_micros(20));
                    answer = task.poll();
                }
                let expected = (!is_in_line).then_some(turned_away);
                assert_eq!(answer, expected, "{self:#?}");
            }
        }
    }

    fn call(&mut self, does: Does, limit: u8, with: With) {
        let in_group = with.is_in_group();
        let (expected, before) = (self.answer(in_group), self.pool.stats());
        let runs = expected.is_none() && !self.is_busy();
        let waits = with.waits() && self.is_waited_for(expected);
        let ends = runs && !does.holds || expected.is_some() && !waits;
        let limit = time(limit).min(if ends { Duration::MAX } else { SHORT });
        let (n, run) = self.task(does, with);
        let fate = Arc::clone(&self.tasks[n].fate);
        let policy = [WhenFull::Refuse, WhenFull::Block][usize::from(with.waits())];
        let pool = match in_group {
            true => self.group.when_full(policy),
            false => self.pool.when_full(policy),
        };
        let pool = match with {
            With::Deadline => pool.with_deadline(LONG),
            _ => pool,
        };
        let start = Instant::now();
        let outcome = pool.do_with_deadline(run, limit);
        let (now, elapsed) = (self.pool.stats(), start.elapsed());
        // It is counted once, as soon as it is back. With a limit of zero it is not counted.
        let refused_now = now.refused - before.refused;
        let accepted = now.accepted - before.accepted;
        let counted = u64::from(!limit.is_zero());
        assert_eq!(accepted + refused_now, counted, "{self:#?}");
        self.refused += refused_now;
        self.tasks[n].is_accepted = accepted > 0;
        match outcome {
            Err(DeadlineError::Refused(back)) => {
                assert!(expected.is_some() && !waits && refused_now > 0, "{self:#?}");
                return self.check(expected, refused(back, &fate));
            }
            Err(DeadlineError::Expired(back)) => {
                take_back(back, &fate);
                assert!(elapsed >= limit, "{elapsed:?} of {limit:?}: {self:#?}");
                let was_late = now.refusals.expired - before.refusals.expired;
                assert_eq!(was_late, refused_now, "{self:#?}");
                assert!(expected.is_none() || accepted == 0, "{self:#?}");
                self.tasks[n].expires = true;
                if accepted > 0 && !runs {
                    self.places.queue.push(n);
                }
            }
            Err(DeadlineError::TimedOut) => {
                assert!(runs && accepted > 0 && elapsed >= limit, "{self:#?}");
                self.timed_out += 1;
                self.tasks[n].is_unwanted = true;
            }
            Ok(_) | Err(DeadlineError::Panicked(_)) => {
                // Before the caller is back, the closure is gone, its task is counted, and its
                // worker is free.
                let ended = now.completed + now.panicked - before.completed - before.panicked;
                let is_free = (now.running, ended) == (before.running, 1);
                assert!(runs && ends && fate.is_dropped() && is_free, "{self:#?}");
                assert_eq!(outcome.is_err(), does.panics, "{fate:?}");
            }
        }
        self.check_start(&before, accepted > 0);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Submit(verb, does, with) => self.submit(verb, does, with),
            Step::Use(way) => self.use_one(way),
            Step::Do(does, limit, with) => self.call(does, limit, with),
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
                let members = self.tasks.iter_mut().filter(|t| t.in_group);
                members.for_each(|t| t.is_unwanted = true);
                self.turn_away("cancelled", true);
            }
            Step::SetLimit(_) if self.pool.is_closed() => {}
            Step::SetLimit(n) => {
                let (least, most) = (self.pool.min_workers().max(1), self.pool.max_workers());
                let limit = least + usize::from(n) % (most - least + 1);
                self.is_limited = true;
                assert!(self.pool.set_limit(limit).is_ok() && self.pool.limit() == limit);
            }
            Step::Shutdown(n, limit) => {
                let modes = [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel];
                let held = self.pool.stats().running > 0;
                let limit = time(limit).min(if held { SHORT } else { Duration::MAX });
                let report = self.pool.shutdown(modes[usize::from(n % 3)], limit);
                let now = self.pool.stats();
                assert!(!report.is_clean() || now.workers == 0, "{self:#?}");
                self.discards |= n % 3 > 0;
                // The strictest mode stays.
                assert!(now.waiting == 0, "{self:#?}");
                assert!(!self.discards || now.queued == 0, "{self:#?}");
                self.turn_away("closed", false);
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
        self.turn_away("closed", false);
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
    let group_limit = usize::from(input.workers / 4 % 4);
    let idle = [Duration::MAX, Duration::from_millis(1)][usize::from(input.retires)];
    let pool = Pool::builder()
        .max_workers(max)
        .min_workers(usize::from(input.min) % (max + 1))
        .queue_capacity(usize::from(input.queue % 5))
        .idle_timeout(idle);
    let pool = pool.build().expect("valid settings");
    let mut play = Play {
        retires: input.retires,
        group: pool.limited_group(group_limit),
        group_limit,
        tasks: Vec::new(),
        places: Places::default(),
        refused: 0,
        timed_out: 0,
        discards: false,
        is_limited: false,
        pool,
    };
    for &step in input.steps.iter().take(40) {
        play.step(step);
    }
    play.end();
    threads::wait_until_ended(before);
});
