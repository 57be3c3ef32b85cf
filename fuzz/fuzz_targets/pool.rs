//! Sequences of calls on one pool, by one thread. Each is made once the effects of the one before
//! it are over, so a plain model knows the outcome of each call and each figure of the pool. What
//! happens if several threads call at once is for the models, the scenarios and the soak.
#![no_main]

#[path = "../shared/closure.rs"]
mod closure;

use closure::{defuse, get, take_back, Fate, Fault, Sums, Token, Value};
use lazypool::{DeadlineError, Group, Handle, Pool, Shutdown, TaskError, WhenFull};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use soak::{os::threads, spawn};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const LABEL: &str = "labeled";
/// A time far beyond any that a step here takes.
const LIMIT: Duration = Duration::from_secs(20);
/// A time longer than a run of the fuzzer.
const LONG: Duration = Duration::from_secs(1_000);
const SHORT: Duration = Duration::from_micros(100);
/// The number of tasks of the group that may be pending.
const GROUP_LIMIT: usize = 2;

fn time(n: u8) -> Duration {
    let short = Duration::from_micros(u64::from(n));
    [
        Duration::ZERO,
        Duration::from_nanos(1),
        short,
        LONG,
        Duration::MAX,
    ][usize::from(n % 5)]
}

#[derive(Debug, Clone, Copy, PartialEq, Arbitrary)]
enum With {
    Nothing,
    Label,
    /// It waits for space for a moment.
    BlockFor,
    /// It has a deadline, which passes while the task is queued.
    Deadline,
    Group,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Step {
    /// `true`: the task waits until its gate opens.
    Serve(bool, Fault, With),
    Await(bool, Fault, With),
    /// Polls a future that awaits space, once.
    AwaitSpace(bool),
    /// Joins, cancels, drops or detaches a handle; polls or drops a future.
    Use(u8),
    /// `true`: the call waits for space.
    Do(bool, Fault, u8, bool),
    Open(u8),
    Wait,
    Cancel,
    SetLimit(u8),
    /// Serves a task while the system refuses threads.
    NoThread,
    Shutdown(u8, u8),
}

#[derive(Debug, Arbitrary)]
struct Input {
    workers: u8,
    min: u8,
    queue: u8,
    retires: bool,
    on_drop: (u8, u8),
    /// `true`: the pool is dropped while tasks are held, if the drop does not wait for them.
    ends_held: bool,
    steps: Vec<Step>,
}

fn mode(n: u8) -> Shutdown {
    [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel][usize::from(n % 3)]
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// Not submitted yet: its future is in line.
    InLine,
    Queued,
    Running,
    Ended,
    /// The task never ran. This also holds for the next three states.
    Refused,
    Cancelled,
    Discarded,
    Expired,
}

use State::{Cancelled, Discarded, Ended, Expired, InLine, Queued, Running};

type Served = Pin<Box<dyn Future<Output = Result<Handle<Value>, &'static str>>>>;

struct Task {
    fate: Arc<Fate>,
    holds: bool,
    fault: Fault,
    with: With,
    state: State,
    /// `true` if its caller has left, or its handle has cancelled it.
    left: bool,
    handle: Option<Handle<Value>>,
    future: Option<Served>,
}

impl Task {
    /// Polls the future once, and keeps the handle that it gives.
    fn poll(&mut self) -> Option<Result<(), &'static str>> {
        let future = self.future.as_mut()?.as_mut();
        let Poll::Ready(served) = future.poll(&mut Context::from_waker(Waker::noop())) else {
            return None;
        };
        self.future = None;
        Some(served.map(|handle| self.handle = Some(handle)))
    }

    /// Polls the future once, if there is one. Returns `true` if the pool has refused the task.
    fn check_poll(&mut self) -> bool {
        let expected = match self.state {
            InLine => None,
            State::Refused => Some(Err("closed")),
            _ => Some(Ok(())),
        };
        let polled = self.future.is_some().then(|| self.poll());
        assert_eq!(polled.unwrap_or(expected), expected, "{:?}", self.fate);
        polled.is_some_and(|served| served.is_some_and(|served| served.is_err()))
    }

    /// Joins the task, which has ended, and compares the outcome with what became of it.
    fn check_outcome(&mut self) {
        let Some(outcome) = self.handle.take().map(Handle::join) else {
            return;
        };
        let expected = match &outcome {
            Ok(_) if self.fault == Fault::Nothing => Ended,
            Err(TaskError::Panicked(_)) if self.fault != Fault::Nothing => Ended,
            Err(TaskError::Cancelled) => Cancelled,
            Err(TaskError::Discarded) => Discarded,
            Err(TaskError::Expired) => Expired,
            other => panic!("{other:?}: {:?}", self.fate),
        };
        assert_eq!(self.state, expected, "{:?}", self.fate);
        defuse(outcome);
    }
}

/// The answer that is due to a submission.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Due {
    Runs,
    Queues,
    Full,
    Refused(&'static str),
}

struct Play {
    pool: Arc<Pool>,
    sums: Arc<Sums>,
    retires: bool,
    limit: usize,
    tasks: Vec<Task>,
    /// The places of the queue, oldest first. A place is `None` once its task was taken out.
    queue: VecDeque<Option<usize>>,
    line: VecDeque<usize>,
    group: Group,
    closed: Option<Shutdown>,
    /// Submissions that the pool counts, and those that it refused, by reason.
    offered: u64,
    refused: BTreeMap<&'static str, u64>,
    /// Calls that expired, accepted or not.
    expired: u64,
    timed_out: u64,
}

impl Play {
    // ---- the model --------------------------------------------------------------------

    fn count(&self, is: impl Fn(&Task) -> bool) -> usize {
        self.tasks.iter().filter(|t| is(t)).count()
    }

    fn running(&self) -> usize {
        self.count(|t| t.state == Running)
    }

    fn pending(&self) -> usize {
        self.count(|t| t.with == With::Group && matches!(t.state, Running | Queued))
    }

    fn is_abandoned(&self, task: &Task) -> bool {
        task.left || task.with == With::Group && self.group.is_cancelled()
    }

    /// Returns `true` if the task waits at its gate once it runs.
    fn holds(&self, task: &Task) -> bool {
        task.holds && !task.fate.open.load(SeqCst)
    }

    fn due(&self, with: With) -> Due {
        let in_group = with == With::Group;
        if self.closed.is_some() {
            Due::Refused("closed")
        } else if in_group && self.group.is_cancelled() {
            Due::Refused("cancelled")
        } else if in_group && self.pending() == GROUP_LIMIT {
            Due::Refused("group_full")
        } else if self.running() < self.limit {
            Due::Runs
        } else if self.queue.len() < self.pool.queue_capacity() {
            Due::Queues
        } else {
            Due::Full
        }
    }

    fn refuse(&mut self, why: &'static str) {
        self.offered += 1;
        *self.refused.entry(why).or_default() += 1;
    }

    fn accept(&mut self, n: usize, runs: bool) {
        self.offered += 1;
        if runs {
            self.start(n);
        } else {
            self.tasks[n].state = Queued;
            self.queue.push_back(Some(n));
        }
    }

    fn start(&mut self, n: usize) {
        let task = &self.tasks[n];
        self.tasks[n].state = match task.state {
            Queued if task.with == With::Deadline => Expired,
            _ if self.holds(task) => Running,
            _ => Ended,
        };
    }

    /// Takes a task out of the queue or the line, before it has run.
    fn take_out(&mut self, n: usize, state: State) {
        // A task that was cancelled after its deadline counts as expired.
        let is_late = state == Cancelled && self.tasks[n].with == With::Deadline;
        self.tasks[n].state = if is_late { Expired } else { state };
        self.line.retain(|&other| other != n);
        for place in &mut self.queue {
            place.take_if(|other| *other == n);
        }
    }

    fn take_out_all(&mut self, state: State, is: impl Fn(&Task) -> bool) {
        for n in 0..self.tasks.len() {
            if self.tasks[n].state == Queued && is(&self.tasks[n]) {
                self.take_out(n, state);
            }
        }
    }

    /// Does what follows from a change: held tasks that need not wait end, and others start.
    fn advance(&mut self) {
        for n in 0..self.tasks.len() {
            if self.tasks[n].state == Running && !self.holds(&self.tasks[n]) {
                self.tasks[n].state = Ended;
            }
        }
        loop {
            while self.queue.front() == Some(&None) {
                self.queue.pop_front();
            }
            let runs = self.running() < self.limit;
            if runs && !self.queue.is_empty() {
                let first = self.queue.pop_front().flatten();
                self.start(first.expect("no dead place is first"));
            } else if runs || self.queue.len() < self.pool.queue_capacity() {
                let Some(first) = self.line.pop_front() else {
                    return;
                };
                self.accept(first, runs);
            } else {
                return;
            }
        }
    }

    // ---- the calls --------------------------------------------------------------------

    fn task(&mut self, holds: bool, fault: Fault, with: With) -> (usize, Token) {
        let (sums, fate) = (Arc::clone(&self.sums), Arc::new(Fate::default()));
        self.tasks.push(Task {
            fate: Arc::clone(&fate),
            holds,
            fault,
            with,
            state: State::Refused,
            left: false,
            handle: None,
            future: None,
        });
        let token = Token {
            sums,
            fate,
            holds,
            fault,
        };
        (self.tasks.len() - 1, token)
    }

    fn submit(&mut self, holds: bool, mut fault: Fault, with: With, is_awaited: bool) {
        if is_awaited && fault == Fault::ResultExplodes {
            // Whether that panic counts depends on when the handle is dropped.
            fault = Fault::Nothing;
        }
        let due = self.due(with);
        let (n, token) = self.task(holds, fault, with);
        let pool = self.pool.when_full(WhenFull::Refuse);
        let (pool, label, timed) = match with {
            With::Nothing | With::Group => (pool, None, false),
            With::Label => (pool.labeled(LABEL), Some(LABEL), false),
            With::BlockFor => (pool.when_full(WhenFull::BlockFor(SHORT)), None, false),
            With::Deadline if due == Due::Queues => {
                (pool.with_deadline(Duration::from_nanos(1)), None, true)
            }
            With::Deadline => (pool.with_deadline(LONG), None, true),
        };
        let group = (with == With::Group).then_some(&self.group);
        let fate = Arc::clone(&self.tasks[n].fate);
        let task = move || token.run(label, timed);
        let served = match (is_awaited, group) {
            (true, _) => {
                let awaitable = group.map_or(pool.awaitable(), Group::awaitable);
                let served = awaitable.serve(task).map(Some);
                served.map_err(|back| take_back(back, &fate))
            }
            (false, Some(group)) => {
                let served = group.serve(|| drop(task())).map(|()| None);
                served.map_err(|back| take_back(back, &fate))
            }
            (false, None) => {
                let served = pool.serve(|| drop(task())).map(|()| None);
                served.map_err(|back| take_back(back, &fate))
            }
        };
        let served = served.map(|handle| self.tasks[n].handle = handle);
        self.answered(n, due, served);
    }

    /// Compares the answer to a submission with the one that was due.
    fn answered(&mut self, n: usize, due: Due, served: Result<(), &'static str>) {
        let expected = match due {
            Due::Runs | Due::Queues => Ok(()),
            Due::Full => Err("saturated"),
            Due::Refused(why) => Err(why),
        };
        assert_eq!(served, expected, "{due:?}: {self:?}");
        match served {
            Ok(()) => self.accept(n, due == Due::Runs),
            Err(why) => self.refuse(why),
        }
    }

    fn await_space(&mut self, holds: bool) {
        let due = self.due(With::Nothing);
        let (n, token) = self.task(holds, Fault::Nothing, With::Nothing);
        let future = self.pool.awaitable();
        let future = future.serve_async(move || token.run(None, false));
        let fate = Arc::clone(&self.tasks[n].fate);
        let future = async move { future.await.map_err(|back| take_back(back, &fate)) };
        self.tasks[n].future = Some(Box::pin(future));
        let served = self.tasks[n].poll();
        if due == Due::Full {
            assert_eq!(served, None, "{self:?}");
            self.tasks[n].state = InLine;
            self.line.push_back(n);
        } else {
            self.answered(n, due, served.expect("an answer at once"));
        }
    }

    fn use_one(&mut self, way: u8) {
        let is_kept = |t: &Task| t.handle.is_some() || t.future.is_some();
        let kept = self.count(is_kept).max(1);
        let mut tasks = self.tasks.iter_mut().enumerate();
        let mut kept = tasks
            .by_ref()
            .filter(|(_, t)| is_kept(t))
            .skip(usize::from(way >> 2) % kept);
        let Some((n, task)) = kept.next() else {
            return;
        };
        let Some(handle) = task.handle.take() else {
            if way & 1 != 0 {
                task.future = None;
                self.cancelled(n);
            } else if task.check_poll() {
                self.refuse("closed");
            }
            return;
        };
        match way & 3 {
            0 if matches!(task.state, Queued | Running) => {
                let back = handle.join_timeout(SHORT);
                task.handle = Some(back.expect_err("a task that has not ended"));
            }
            0 => {
                task.handle = Some(handle);
                task.check_outcome();
            }
            1 => {
                handle.cancel();
                task.handle = Some(handle);
                self.cancelled(n);
            }
            2 => {
                drop(handle);
                self.cancelled(n);
            }
            _ => handle.detach(),
        }
    }

    fn cancelled(&mut self, n: usize) {
        match self.tasks[n].state {
            Queued => self.take_out(n, Cancelled),
            InLine => self.take_out(n, State::Refused),
            Running => self.tasks[n].left = true,
            _ => {}
        }
    }

    fn call(&mut self, holds: bool, fault: Fault, limit: u8, waits: bool) {
        let due = self.due(With::Nothing);
        let ends = match due {
            Due::Runs => !holds,
            Due::Queues => false,
            Due::Full => !waits,
            Due::Refused(_) => true,
        };
        let d = time(limit).min(if ends { Duration::MAX } else { SHORT });
        let (n, token) = self.task(holds, fault, With::Nothing);
        let policy = [WhenFull::Refuse, WhenFull::Block][usize::from(waits)];
        let (pool, timed) = (self.pool.when_full(policy), d != Duration::MAX);
        let before = self.pool.stats();
        let start = Instant::now();
        let outcome = pool.do_with_deadline(move || token.run(None, timed), d);
        let late = start.elapsed() >= d && d < LONG;
        let fate = Arc::clone(&self.tasks[n].fate);
        match outcome {
            Ok(_) | Err(DeadlineError::Panicked(_)) => {
                // The closure and its captures are gone before its caller is back.
                fate.check(true, true);
                let panics = !matches!(fault, Fault::Nothing | Fault::ResultExplodes);
                assert_eq!(outcome.is_err(), panics, "{self:?}");
                assert!(due == Due::Runs && ends, "{self:?}");
                match outcome {
                    Ok(value) => value.arrived(),
                    Err(panic) => defuse(panic),
                }
                self.accept(n, true);
                if !self.retires {
                    // The task is counted and its worker is free. A thread was started only if no
                    // worker was idle.
                    assert_eq!(self.differs(), None, "at once: {self:?}");
                    let started = self.pool.stats().spawned - before.spawned;
                    assert_eq!(started, u64::from(before.idle == 0), "{self:?}");
                }
            }
            Err(DeadlineError::TimedOut) => {
                assert!(due == Due::Runs && late, "{self:?}");
                self.timed_out += 1;
                self.tasks[n].left = true;
                self.accept(n, true);
            }
            Err(DeadlineError::Expired(unrun)) => {
                let is_due = d.is_zero() || !matches!(due, Due::Refused(_));
                assert!(late && is_due && (due != Due::Full || !ends || d.is_zero()));
                fate.check(false, false);
                defuse(unrun);
                if d.is_zero() {
                    return;
                }
                (self.offered, self.expired) = (self.offered + 1, self.expired + 1);
                if due == Due::Queues {
                    self.queue.push_back(None);
                }
            }
            Err(DeadlineError::Refused(back)) => {
                let why = take_back(back, &fate);
                self.answered(n, due, Err(why));
            }
        }
    }

    fn open(&mut self, n: u8) {
        let held: Vec<_> = self.tasks.iter().filter(|t| self.holds(t)).collect();
        if let Some(task) = held.get(usize::from(n) % held.len().max(1)) {
            task.fate.open.store(true, SeqCst);
        }
    }

    fn open_all(&mut self) {
        for task in &self.tasks {
            task.fate.open.store(true, SeqCst);
        }
        self.advance();
    }

    fn wait(&self) {
        let (group, pending) = (&self.group, self.pending());
        if pending > 0 {
            let unfinished = group.wait_timeout(SHORT).expect_err("tasks are pending");
            return assert_eq!(unfinished.pending(), pending, "{self:?}");
        }
        group.wait();
        let ended = group.completed() + group.panicked() + group.discarded();
        let accepted = |t: &Task| t.with == With::Group && t.state != State::Refused;
        let accepted = self.count(accepted);
        assert_eq!((group.pending(), ended), (0, accepted), "{self:?}");
    }

    fn cancel(&mut self) {
        self.group.cancel();
        self.take_out_all(Cancelled, |t| t.with == With::Group);
    }

    fn set_limit(&mut self, n: u8) {
        let (least, most) = (self.pool.min_workers().max(1), self.pool.max_workers());
        let limit = least + usize::from(n) % (most - least + 1);
        let before = self.pool.stats().spawned;
        assert!(self.pool.set_limit(limit).is_ok() && self.pool.limit() == limit);
        // No thread is started if the limit stays or falls.
        let started = self.pool.stats().spawned - before;
        assert!(started == 0 || limit > self.limit, "{self:?}");
        self.limit = limit;
    }

    fn no_thread(&mut self) {
        let (due, stats) = (self.due(With::Nothing), self.pool.stats());
        if due != Due::Runs || stats.idle > 0 {
            return;
        }
        let (n, token) = self.task(false, Fault::Nothing, With::Nothing);
        spawn::refuse(0, u32::MAX);
        let served = self.pool.serve(move || drop(token.run(None, false)));
        spawn::refuse(0, 0);
        let served = served.map_err(|back| take_back(back, &self.tasks[n].fate));
        if stats.workers > 0 && self.pool.queue_capacity() > 0 {
            self.answered(n, Due::Queues, served);
            // It waits for a worker, although more threads may be started.
            self.open_all();
        } else {
            self.answered(n, Due::Refused("spawn_failed"), served);
        }
    }

    fn shutdown(&mut self, mode: Shutdown, mut d: Duration) {
        if self.running() > 0 {
            d = d.min(SHORT);
        }
        let start = Instant::now();
        let report = self.pool.shutdown(mode, d);
        let late = start.elapsed() >= d;
        self.close(mode);
        let (s, left) = (self.pool.stats(), self.running());
        let stragglers = report.stragglers.len();
        let is_right = match report.is_clean() {
            true => (left, s.workers, s.running, s.queued) == (0, 0, 0, 0),
            false => late && stragglers >= left,
        };
        assert!(is_right, "{report:?}: {self:?}");
    }

    /// Does what follows from a shutdown.
    fn close(&mut self, mode: Shutdown) {
        self.closed = match (self.closed, mode) {
            (Some(Shutdown::Cancel), _) => self.closed,
            (Some(Shutdown::Discard), Shutdown::Drain) => self.closed,
            _ => Some(mode),
        };
        while let Some(&n) = self.line.front() {
            self.take_out(n, State::Refused);
        }
        if mode != Shutdown::Drain {
            self.take_out_all(Discarded, |_| true);
        }
        self.advance();
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Serve(holds, fault, with) => self.submit(holds, fault, with, false),
            Step::Await(holds, fault, with) => self.submit(holds, fault, with, true),
            Step::AwaitSpace(holds) => self.await_space(holds),
            Step::Use(way) => self.use_one(way),
            Step::Do(holds, fault, limit, waits) => self.call(holds, fault, limit, waits),
            Step::Open(n) => self.open(n),
            Step::Wait => self.wait(),
            Step::Cancel => self.cancel(),
            Step::SetLimit(_) if self.closed.is_some() => {}
            Step::SetLimit(n) => self.set_limit(n),
            Step::NoThread => self.no_thread(),
            Step::Shutdown(n, limit) => self.shutdown(mode(n), time(limit)),
        }
        self.advance();
        self.settle();
    }

    // ---- what must hold ---------------------------------------------------------------

    /// Waits until the pool is as the model says.
    fn settle(&self) {
        let max = self.pool.max_workers();
        let most = match self.closed {
            Some(_) => 0,
            None if self.retires => self.pool.min_workers(),
            None => self.limit,
        };
        let most = most.max(self.running());
        let workers = || self.pool.stats().workers;
        wait_for(
            || self.differs().is_none() && workers() <= most,
            || format!("{} of {most}, {:?}: {self:?}", workers(), self.differs()),
        );
        assert!(get(&self.sums.most_inside) <= max as u64 && get(&self.sums.wrong) == 0);
        for task in self.tasks.iter().filter(|t| t.state != State::Refused) {
            let has_run = matches!(task.state, Running | Ended);
            let waits = matches!(task.state, InLine | Queued | Running);
            task.fate.check(has_run, !waits);
        }
    }

    /// Returns a figure of the pool that differs from the model's.
    fn differs(&self) -> Option<(&'static str, u64, u64)> {
        let (s, sums) = (self.pool.stats(), &self.sums);
        let count = |is: &dyn Fn(&Task) -> bool| self.count(is) as u64;
        let refused = |why: &str| self.refused.get(why).copied().unwrap_or_default();
        let running = self.running() as u64;
        let ended = s.completed + s.panicked + s.expired + s.discarded;
        let expired = self.expired + count(&|t| t.state == Expired);
        let discarded = count(&|t| matches!(t.state, Cancelled | Discarded));
        let left = count(&|t| t.state == Running && self.is_abandoned(t));
        let holding = count(&|t| t.fate.holds.load(SeqCst));
        let figures = [
            ("offered", self.offered, s.accepted + s.refused),
            (
                "accepted",
                s.accepted,
                ended + (s.queued + s.running) as u64,
            ),
            ("running", running, s.running as u64),
            ("at their gates", running, holding),
            ("queued", count(&|t| t.state == Queued), s.queued as u64),
            ("waiting", self.line.len() as u64, s.waiting as u64),
            ("saturated", refused("saturated"), s.refusals.saturated),
            ("closed", refused("closed"), s.refusals.closed),
            ("cancelled", refused("cancelled"), s.refusals.cancelled),
            ("group full", refused("group_full"), s.refusals.group_full),
            (
                "no thread",
                refused("spawn_failed"),
                s.refusals.spawn_failed,
            ),
            ("expired", expired, s.expired + s.refusals.expired),
            ("discarded", discarded, s.discarded),
            ("ran", get(&sums.ran), s.completed + s.panicked + running),
            ("panicked", get(&sums.panics), s.panicked),
            ("timed out", self.timed_out, s.timed_out),
            ("abandoned", left, s.abandoned as u64),
            ("workers", s.spawned - s.retired, s.workers as u64),
            ("idle", s.workers as u64, running + s.idle as u64),
        ];
        figures.into_iter().find(|(_, right, found)| right != found)
    }

    fn end(mut self, input: &Input, before: usize) {
        let (on_drop, time) = (mode(input.on_drop.0), time(input.on_drop.1));
        if !input.ends_held || time >= LONG {
            self.open_all();
            self.settle();
        }
        self.close(on_drop);
        let Self {
            pool,
            sums,
            mut tasks,
            group,
            ..
        } = self;
        drop(pool);
        for task in &mut tasks {
            task.fate.open.store(true, SeqCst);
            task.state = match task.state {
                Queued if task.with == With::Deadline => Expired,
                Queued | Running => Ended,
                state => state,
            };
        }
        wait_for(|| threads() == before, || String::from("threads are left"));
        assert!(group.serve(|| ()).is_err());
        for mut task in tasks {
            task.check_poll();
            task.check_outcome();
            task.fate.check(task.state == Ended, true);
            assert_eq!(Arc::strong_count(&task.fate), 1, "{:?}", task.fate);
        }
        assert_eq!((get(&sums.results), get(&sums.inside)), (0, 0));
    }
}

impl std::fmt::Debug for Play {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tasks = self.tasks.iter();
        let tasks = tasks.map(|t| (t.state, t.holds, t.fault, t.with, &t.fate));
        f.debug_list().entries(tasks).finish()?;
        write!(f, "\n{:?}\n{:?}, {:?}", self.pool, self.sums, self.queue)
    }
}

fn wait_for(mut done: impl FnMut() -> bool, state: impl FnOnce() -> String) {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > LIMIT {
            panic!("{}", state());
        }
        std::thread::sleep(Duration::from_micros(20));
    }
}

fuzz_target!(|input: Input| {
    let before = threads();
    let max = 1 + usize::from(input.workers % 4);
    let idle = [Duration::MAX, Duration::from_millis(1)][usize::from(input.retires)];
    let pool = Pool::builder()
        .max_workers(max)
        .min_workers(usize::from(input.min) % (max + 1))
        .queue_capacity(usize::from(input.queue % 5))
        .idle_timeout(idle)
        .shutdown_on_drop(mode(input.on_drop.0), time(input.on_drop.1));
    let pool = Arc::new(pool.build().expect("valid settings"));
    let mut play = Play {
        sums: Arc::default(),
        retires: input.retires,
        limit: max,
        tasks: Vec::new(),
        queue: VecDeque::new(),
        line: VecDeque::new(),
        group: pool.limited_group(GROUP_LIMIT),
        closed: None,
        offered: 0,
        refused: BTreeMap::new(),
        expired: 0,
        timed_out: 0,
        pool,
    };
    for &step in input.steps.iter().take(40) {
        play.step(step);
    }
    play.end(&input, before);
});
