//! The public API, called by one thread that opens the gates at which its tasks wait. So it knows
//! the right outcome of each call. Where the outcome depends on timing, it knows bounds, and waits
//! until they meet.
//!
//! Inputs whose first byte is 128 or more are rounds of several threads under several faults at
//! once, as the soak plays them; at the end a table shows the pairs of faults that were met.
#![no_main]

#[path = "../shared/fate.rs"]
mod fate;
#[path = "../shared/handles.rs"]
mod handles;
#[path = "../shared/threads.rs"]
mod threads;

use fate::{add, defuse, explode, get, lock, take_back};
use fate::{Fate, Fault, Hold, Nest, Sums, Token, Value, Why, Work, LABEL};
use lazypool::{DeadlineError, Group, Handle, Pool, Shutdown, ShutdownReport, Stats, WhenFull};
use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use soak::faults::{Round, Table};
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};
use threads::threads;

#[derive(Debug, Clone, Copy)]
enum Limit {
    Zero,
    Nanosecond,
    Micros(u8),
    Long,
    Never,
}

#[derive(Debug, Clone, Copy)]
enum Pause {
    Zero,
    Micros(u8),
    Never,
}

#[derive(Debug, Clone, Copy)]
enum Through {
    Pool,
    Submitter,
    Group(bool),
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Serve(Work, Through),
    Do(Work, Limit, bool),
    Scope(u8, Work),
    /// Submits a task with a handle, in a group or not, with a run limit or not.
    Await(Work, Through, bool),
    /// Joins, cancels, drops or detaches one of the handles.
    Use(u8),
    /// Makes a call from another thread, which may have to wait.
    Aside(Work, Option<Limit>),
    Open(u8),
    /// Waits until all tasks have ended that can.
    Settle,
    /// Waits until idle workers have retired.
    Rest,
    Look,
    Wait(bool),
    Cancel(bool),
    Shutdown(u8, Pause),
}

/// Takes two or three bytes: see `Work`.
impl Arbitrary<'_> for Step {
    fn arbitrary(u: &mut Unstructured<'_>) -> arbitrary::Result<Self> {
        let byte = u.arbitrary::<u8>()?;
        let (kind, rest) = (byte & 15, byte >> 4);
        Ok(match kind {
            0..4 => Self::Serve(
                u.arbitrary()?,
                match rest {
                    0..6 => Through::Pool,
                    6..9 => Through::Submitter,
                    _ => Through::Group(rest & 1 == 0),
                },
            ),
            4..7 => {
                let work = u.arbitrary()?;
                Self::Do(work, u.arbitrary()?, rest & 1 == 0)
            }
            7 => Self::Scope(rest, u.arbitrary()?),
            8 if rest & 1 == 0 => Self::Aside(u.arbitrary()?, None),
            8 => {
                let work = u.arbitrary()?;
                Self::Aside(work, Some(u.arbitrary()?))
            }
            9 => Self::Open(rest),
            10 => Self::Use(rest),
            11 => Self::Settle,
            12 => {
                let through = match rest & 7 {
                    0..3 => Through::Pool,
                    3..5 => Through::Submitter,
                    n => Through::Group(n & 1 == 0),
                };
                Self::Await(u.arbitrary()?, through, rest & 8 != 0)
            }
            13 if rest < 4 => Self::Rest,
            13 => Self::Look,
            14 if rest & 2 == 0 => Self::Wait(rest & 1 == 0),
            14 => Self::Cancel(rest & 1 == 0),
            _ => Self::Shutdown(rest, u.arbitrary()?),
        })
    }
}

impl Arbitrary<'_> for Limit {
    fn arbitrary(u: &mut Unstructured<'_>) -> arbitrary::Result<Self> {
        Ok(match u.arbitrary::<u8>()? {
            0..8 => Self::Zero,
            8..16 => Self::Nanosecond,
            n @ 16..128 => Self::Micros(n - 16),
            128..192 => Self::Long,
            _ => Self::Never,
        })
    }
}

impl Arbitrary<'_> for Pause {
    fn arbitrary(u: &mut Unstructured<'_>) -> arbitrary::Result<Self> {
        Ok(match u.arbitrary::<u8>()? {
            0..64 => Self::Zero,
            n @ 64..128 => Self::Micros(n - 64),
            _ => Self::Never,
        })
    }
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum End {
    Shutdown(u8, Pause),
    Drop,
    /// Drops the pool while tasks are held, if the drop does not wait for them.
    DropHeld,
}

#[derive(Debug, Arbitrary)]
struct Input {
    workers: u8,
    min: u8,
    queue: u8,
    blocks: bool,
    retires: bool,
    hooks: u8,
    on_drop: Option<(u8, Pause)>,
    end: End,
    steps: Vec<Step>,
}

/// A time far beyond any that a step here takes.
const LIMIT: Duration = Duration::from_secs(20);
/// A time longer than a run of the fuzzer.
const LONG: Duration = Duration::from_secs(1_000);

fn mode(n: u8) -> Shutdown {
    [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel][usize::from(n % 3)]
}

impl Pause {
    fn get(self) -> Duration {
        match self {
            Self::Zero => Duration::ZERO,
            Self::Micros(n) => Duration::from_micros(n.into()),
            Self::Never => Duration::MAX,
        }
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool, state: impl Fn() -> String) {
    let start = Instant::now();
    for round in 0.. {
        if done() {
            return;
        }
        assert!(start.elapsed() < LIMIT, "no end of {what}: {}", state());
        if round < 20 {
            thread::yield_now();
        } else {
            thread::sleep(Duration::from_micros(50));
        }
    }
}

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Came {
    /// A `serve` accepted the task.
    In,
    /// The caller left: `TimedOut`.
    Left,
    /// The call is over, and its task needs no more attention.
    Done,
}

/// An accepted task, or one that may still be accepted.
#[derive(Debug)]
struct Entry {
    fate: Arc<Fate>,
    work: Work,
    group: Option<usize>,
    label: bool,
    came: Came,
    /// `true` while its caller is on another thread and has not come back.
    aside: bool,
    /// `true` once its gate is open, or it was cancelled.
    freed: bool,
    /// `true` once it is known to have ended.
    ended: bool,
    /// `true` if no shutdown discards it.
    kept: bool,
    /// `true` once its handle has cancelled it.
    cancelled: bool,
    handle: Option<Handle<Value>>,
}

impl Entry {
    fn is_discarded(&self) -> bool {
        self.fate.is_dropped() && !self.fate.has_run()
    }

    /// Returns `true` if the task waits at its gate, or will unless it is discarded.
    fn is_held(&self) -> bool {
        let holds = self.work.hold != Hold::Nothing && !self.freed && !self.ended;
        holds && !self.fate.is_dropped()
    }
}

struct Play<'a> {
    input: &'a Input,
    pool: Arc<Pool>,
    sums: Arc<Sums>,
    max: usize,
    room: usize,
    blocks: bool,
    threads: u64,
    entries: Vec<Entry>,
    asides: Vec<(usize, thread::JoinHandle<Came>)>,
    /// For each caller that may have taken its task out of the queue: the number of entries that
    /// are older than that task, at most.
    taken_out: Vec<usize>,
    groups: [Group; 2],
    cancelled: [bool; 2],
    closed: Option<Shutdown>,
    /// `true` if nothing has been submitted or freed since all tasks had settled.
    settled: Cell<bool>,
    rests: u32,
}

/// The least number of accepted tasks that have not ended, and the greatest number of places that
/// are taken.
struct Load {
    least: usize,
    most: usize,
}

impl Play<'_> {
    fn state(&self) -> String {
        format!(
            "{:?}\n{:?}\n{:?}\n{:#?}",
            self.pool, self.sums, self.input, self.entries
        )
    }

    fn held(&self) -> usize {
        self.entries.iter().filter(|e| e.is_held()).count()
    }

    fn holding(&self) -> usize {
        let holding = |e: &&Entry| e.is_held() && e.fate.is_holding();
        self.entries.iter().filter(holding).count()
    }

    /// Returns the number of accepted tasks that no worker has started. It is exact while every
    /// worker is held.
    fn waiting(&self) -> usize {
        let waits = |f: &Fate| !f.has_run() && !f.is_dropped();
        let own = |e: &&Entry| e.came == Came::In && !e.aside && !e.ended && waits(&e.fate);
        let nested = lock(&self.sums.nested);
        self.entries.iter().filter(own).count() + nested.iter().filter(|f| waits(f)).count()
    }

    /// Returns the greatest possible number of dead places in the queue. The place of a task that
    /// was taken out stays taken while an older task is queued.
    fn dead(&self) -> usize {
        let waits = |f: &Fate| !f.has_run() && !f.is_dropped();
        let all_held = self.holding() == self.max;
        let nested = lock(&self.sums.nested).iter().any(|f| waits(f));
        let may_wait = |e: &Entry| {
            let nests = e.work.nest == Nest::Serve && (nested || !all_held && !e.ended);
            e.aside || nests || !e.ended && waits(&e.fate)
        };
        let Some(oldest) = self.entries.iter().position(may_wait) else {
            return 0;
        };
        let by_callers = self.taken_out.iter().filter(|&&older| older > oldest);
        let discarded = |e: &&Entry| e.came == Came::In && e.is_discarded();
        by_callers.count() + self.entries[oldest..].iter().filter(discarded).count()
    }

    fn load(&self) -> Load {
        // Each call of another thread may also submit a task from inside.
        let asides: usize = self.asides.len() * 2;
        let more = asides + self.dead();
        if self.holding() == self.max {
            let least = self.max + self.waiting();
            return Load {
                least,
                most: least + more,
            };
        }
        let mut load = Load {
            least: 0,
            most: more,
        };
        for entry in &self.entries {
            if entry.ended || entry.aside || entry.is_discarded() || entry.came == Came::Done {
                continue;
            }
            load.most += 1 + usize::from(entry.work.nest != Nest::Nothing);
            let may_go = self.is_cancelled(entry) && !entry.fate.is_holding();
            load.least += usize::from(entry.is_held() && !may_go);
        }
        if self.input.hooks & 1 != 0 {
            // A worker in a hook is busy even without a task, and an idle worker may come to its
            // stop hook.
            let stats = self.pool.stats();
            let idle = if self.input.retires { 0 } else { stats.idle };
            let busy = stats.workers.saturating_sub(idle);
            load.most = load.most.max(busy + load.most.min(self.room));
        }
        load
    }

    /// Returns `true` if its group or its handle has cancelled the task.
    fn is_cancelled(&self, entry: &Entry) -> bool {
        entry.cancelled || entry.group.is_some_and(|g| self.cancelled[g])
    }

    fn capacity(&self) -> usize {
        self.max + self.room
    }

    /// Returns `true` if every task without a gate will run without this thread's help.
    fn flows(&self) -> bool {
        self.held() < self.max
    }

    fn entry(&self, work: Work) -> Entry {
        Entry {
            fate: Arc::default(),
            work,
            group: None,
            label: false,
            came: Came::Done,
            aside: false,
            freed: false,
            ended: false,
            kept: false,
            cancelled: false,
            handle: None,
        }
    }

    fn free_entry(&mut self, index: usize) {
        self.entries[index].freed = true;
        self.entries[index].fate.open();
        self.settled.set(false);
    }

    fn open_all(&mut self) {
        (0..self.entries.len()).for_each(|n| self.free_entry(n));
    }

    // ---- submitting -----------------------------------------------------------------

    /// Asserts that this refusal was right.
    fn check_refusal(&self, why: Why, load: &Load, cancelled: bool) {
        let due = match why {
            Why::Saturated => !self.blocks && self.closed.is_none() && load.most >= self.capacity(),
            Why::Closed => self.closed.is_some(),
            Why::Cancelled => cancelled,
            Why::Other => false,
        };
        assert!(
            due,
            "{why:?}, {}..{}: {}",
            load.least,
            load.most,
            self.state()
        );
    }

    fn check_accepted(&self, load: &Load) {
        let due = self.closed.is_none() && load.least < self.capacity();
        assert!(
            due,
            "accepted, {}..{}: {}",
            load.least,
            load.most,
            self.state()
        );
    }

    /// Returns the number of threads started so far, if a worker is certainly idle: that one must
    /// be used before another thread is started.
    fn idle(&self) -> Option<u64> {
        let s = self.pool.stats();
        let sure = !self.input.retires && self.settled.get() && self.asides.is_empty();
        (sure && s.idle > 0).then_some(s.spawned)
    }

    fn check_lazy(&self, spawned: Option<u64>, work: Work) {
        if let (Some(spawned), Nest::Nothing) = (spawned, work.nest) {
            assert_eq!(self.pool.stats().spawned, spawned, "{}", self.state());
        }
    }

    fn serve(&mut self, work: Work, through: Through) {
        let load = self.load();
        if self.blocks && self.closed.is_none() && load.most >= self.capacity() && !self.flows() {
            return;
        }
        let mut entry = self.entry(work);
        let mut cancelled = false;
        match through {
            Through::Pool => {}
            Through::Submitter => entry.label = true,
            Through::Group(second) => {
                let n = usize::from(second);
                cancelled = self.cancelled[n];
                entry.group = Some(n);
            }
        }
        let idle = self.idle();
        self.settled.set(false);
        let (sums, fate) = (Arc::clone(&self.sums), Arc::clone(&entry.fate));
        let token = Token::new(&sums, &fate, work);
        add(&sums.offered);
        let label = entry.label.then_some(LABEL);
        let weight = [7_u64; 20];
        let small = move || drop(token.run(label, false));
        let outcome = if work.large {
            let large = move || {
                std::hint::black_box(weight);
                small();
            };
            self.offer(large, through, &fate)
        } else {
            self.offer(small, through, &fate)
        };
        match outcome {
            Ok(()) => {
                assert!(!cancelled);
                self.check_accepted(&load);
                self.check_lazy(idle, work);
                entry.came = Came::In;
                self.entries.push(entry);
            }
            Err(why) => {
                self.check_refusal(why, &load, cancelled);
                add(&sums.back);
                add(&sums.refused);
            }
        }
    }

    fn offer<F>(&self, f: F, through: Through, fate: &Fate) -> Result<(), Why>
    where
        F: FnOnce() + Send + 'static,
    {
        match through {
            Through::Pool => self.pool.serve(f),
            Through::Submitter => self.pool.labeled(LABEL).serve(f),
            Through::Group(n) => self.groups[usize::from(n)].serve(f),
        }
        .map_err(|refused| take_back(refused, fate))
    }

    fn call(&mut self, work: Work, limit: Limit, label: bool) {
        let mut limit = limit;
        let load = self.load();
        let full = load.least >= self.capacity() && !self.blocks;
        let certain = work.hold == Hold::Nothing && (self.flows() || full);
        if !certain && self.closed.is_none() && matches!(limit, Limit::Long | Limit::Never) {
            limit = Limit::Micros(200);
        }
        let all_held = self.holding() == self.max;
        let (idle, was_settled) = (self.idle(), self.settled.get());
        self.settled.set(false);
        let expired = self.pool.stats().expired;
        let mut entry = self.entry(work);
        entry.label = label;
        let (sums, fate) = (Arc::clone(&self.sums), Arc::clone(&entry.fate));
        let outcome = call(&self.pool, &sums, &fate, work, limit, label);
        match outcome {
            Outcome::Value | Outcome::Panicked => {
                assert!(!all_held && work.hold == Hold::Nothing, "{}", self.state());
                self.check_accepted(&load);
                self.check_lazy(idle, work);
                // A task that it submitted may still be under way.
                entry.ended = work.nest != Nest::Serve;
                entry.came = Came::Left;
                self.check_counted(was_settled && entry.ended);
                self.settled.set(was_settled && entry.ended);
            }
            Outcome::TimedOut => {
                assert!(!all_held, "{}", self.state());
                self.check_accepted(&load);
                // Freed, so that the task can see that its caller has left.
                entry.freed = work.hold == Hold::Watch;
                entry.came = Came::Left;
            }
            Outcome::Expired => {
                let free = self.closed.is_none() || matches!(limit, Limit::Zero);
                assert!(free, "{}", self.state());
                if self.pool.stats().expired > expired {
                    self.taken_out.push(self.entries.len());
                }
                return;
            }
            Outcome::Refused(why) => {
                self.check_refusal(why, &load, false);
                // The task was never queued, so no shutdown could have discarded it.
                add(&sums.refused);
                return;
            }
        }
        self.entries.push(entry);
    }

    fn scope(&mut self, count: u8, work: Work) {
        let count = usize::from(count % 5);
        let holds = work.hold != Hold::Nothing;
        let gates = if holds { count } else { 0 };
        if self.closed.is_none() && self.held() + gates >= self.max {
            return;
        }
        let was_settled = self.settled.replace(false);
        let local = [count; 4];
        let pool = Arc::clone(&self.pool);
        let mut accepted = Vec::new();
        let scope = catch_unwind(AssertUnwindSafe(|| {
            pool.scope(|s| {
                for _ in 0..count {
                    let load = self.load();
                    let mut entry = self.entry(work);
                    entry.came = Came::In;
                    entry.kept = true;
                    let (local, sums) = (&local, &self.sums);
                    add(&sums.offered);
                    let token = Token::new(sums, &entry.fate, work);
                    let served = s.serve(move || {
                        assert_eq!(local, &[count; 4]);
                        drop(token.run(None, false));
                    });
                    match served {
                        Ok(()) => {
                            self.check_accepted(&load);
                            accepted.push(self.entries.len());
                            self.entries.push(entry);
                        }
                        Err(refused) => {
                            let why = take_back(refused, &entry.fate);
                            self.check_refusal(why, &load, false);
                            add(&self.sums.back);
                            add(&self.sums.refused);
                        }
                    }
                }
                accepted.iter().for_each(|&n| self.free_entry(n));
            });
        }));
        // Otherwise a panic from the scope's body would be a fault of this target itself.
        let panics = !accepted.is_empty() && (work.panics() || work.fault == Fault::ResultExplodes);
        match scope {
            Ok(()) => assert!(!panics),
            Err(payload) if panics => defuse(payload),
            Err(payload) => std::panic::resume_unwind(payload),
        }
        for index in accepted {
            let entry = &mut self.entries[index];
            assert!(entry.fate.has_run() && entry.fate.is_dropped());
            entry.ended = work.nest != Nest::Serve;
        }
        self.check_counted(was_settled && work.nest != Nest::Serve);
    }

    fn aside(&mut self, work: Work, limit: Option<Limit>) {
        if self.asides.len() == 2 {
            return;
        }
        self.settled.set(false);
        let mut entry = self.entry(work);
        entry.aside = true;
        // When the caller leaves, the task goes on and this thread is not told.
        let leaves = limit.is_some_and(|l| !matches!(l, Limit::Long | Limit::Never));
        entry.freed = leaves && work.hold == Hold::Watch;
        let (pool, sums) = (Arc::clone(&self.pool), Arc::clone(&self.sums));
        let (fate, blocks) = (Arc::clone(&entry.fate), self.blocks);
        let helper = thread::spawn(move || {
            let saturated = |why| match why {
                Why::Saturated => assert!(!blocks),
                why => assert!(why == Why::Closed && pool.is_closed(), "{why:?}"),
            };
            let Some(limit) = limit else {
                add(&sums.offered);
                let token = Token::new(&sums, &fate, work);
                return match pool.serve(move || drop(token.run(None, false))) {
                    Ok(()) => Came::In,
                    Err(refused) => {
                        saturated(take_back(refused, &fate));
                        add(&sums.back);
                        add(&sums.refused);
                        Came::Done
                    }
                };
            };
            match call(&pool, &sums, &fate, work, limit, false) {
                Outcome::Value | Outcome::Panicked | Outcome::TimedOut => Came::Left,
                Outcome::Expired => Came::Done,
                Outcome::Refused(why) => {
                    saturated(why);
                    // The pool was closed, or a shutdown discarded the task from the queue.
                    add(if why == Why::Closed {
                        &sums.closed
                    } else {
                        &sums.refused
                    });
                    Came::Done
                }
            }
        });
        self.asides.push((self.entries.len(), helper));
        self.entries.push(entry);
    }

    /// Joins the threads that have come back, or with `all` every thread.
    fn meet(&mut self, all: bool) {
        for (index, helper) in std::mem::take(&mut self.asides) {
            if all || helper.is_finished() {
                let came = helper.join().expect("its checks hold");
                let entry = &mut self.entries[index];
                (entry.came, entry.aside) = (came, false);
                entry.ended = came == Came::Done;
                if entry.ended {
                    // The task may have been queued after all tasks that have an entry.
                    self.taken_out.push(self.entries.len());
                }
                self.settled.set(false);
            } else {
                self.asides.push((index, helper));
            }
        }
    }

    // ---- groups -----------------------------------------------------------------------

    fn members(&self, n: usize) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |e| e.group == Some(n))
    }

    fn wait_group(&mut self, second: bool) {
        let n = usize::from(second);
        let group = self.groups[n].clone();
        let held = self.members(n).filter(|e| e.is_held()).count();
        let sure = self
            .members(n)
            .filter(|e| e.is_held() && e.fate.is_holding());
        let sure = sure.count();
        if held == 0 && self.flows() {
            group.wait();
            let (ended, accepted) = (
                group.completed() + group.panicked() + group.discarded(),
                self.members(n).count(),
            );
            assert_eq!((group.pending(), ended), (0, accepted), "{}", self.state());
            for entry in self.entries.iter_mut().filter(|e| e.group == Some(n)) {
                entry.fate.check_ended();
                entry.ended |= entry.work.nest != Nest::Serve;
            }
        } else if let Err(unfinished) = group.wait_timeout(Duration::from_micros(50)) {
            assert!(unfinished.pending() >= sure.max(1), "{}", self.state());
        } else {
            assert_eq!(sure, 0, "{}", self.state());
        }
    }

    fn cancel(&mut self, second: bool) {
        let n = usize::from(second);
        // Otherwise a worker that the cancel frees may start a task before the cancel finds it.
        let frees = self
            .members(n)
            .any(|e| e.work.hold == Hold::Watch && e.fate.is_holding());
        let settled = self.holding() == self.max && !frees;
        self.groups[n].cancel();
        self.cancelled[n] = true;
        self.settled.set(false);
        for entry in self.entries.iter_mut().filter(|e| e.group == Some(n)) {
            let gone = entry.fate.has_run() || entry.fate.is_dropped();
            assert!(!settled || gone, "{entry:?} is still queued");
            entry.freed |= entry.work.hold == Hold::Watch;
        }
    }

    // ---- what must hold ---------------------------------------------------------------

    fn settle(&mut self) {
        if self.held() == 0 {
            self.meet(true);
        }
        if !self.asides.is_empty() {
            return;
        }
        let mut why = String::new();
        let why = std::cell::RefCell::new(&mut why);
        wait_for(
            "settling",
            || match self.balance() {
                Ok(()) => true,
                Err(text) => {
                    **why.borrow_mut() = text;
                    false
                }
            },
            || format!("{}: {}", why.borrow(), self.state()),
        );
        for entry in &mut self.entries {
            if entry.fate.is_dropped() {
                entry.fate.check_ended();
                entry.ended = true;
            }
        }
        self.settled.set(true);
    }

    /// Returns an error if the pool's figures are not those of the ledger. Right only once all
    /// tasks have ended that can.
    fn balance(&self) -> Result<(), String> {
        let (held, holding) = (self.held(), self.holding());
        if holding != held.min(self.max) {
            return Err(format!("{holding} of {held} at their gates"));
        }
        let waiting = if holding == self.max {
            self.waiting()
        } else {
            0
        };
        let s = self.pool.stats();
        if (s.running, s.queued) != (holding, waiting) {
            return Err(format!("{holding} running, {waiting} queued"));
        }
        self.tally(&s)
    }

    fn tally(&self, s: &Stats) -> Result<(), String> {
        let sums = &self.sums;
        let discarded = |e: &&Entry| e.came == Came::In && e.is_discarded();
        let silent = self.entries.iter().filter(discarded).count() as u64;
        let nested = lock(&sums.nested);
        let silent = silent
            + nested
                .iter()
                .filter(|f| f.is_dropped() && !f.has_run())
                .count() as u64;
        drop(nested);
        let ended = s.completed + s.panicked + s.expired + s.discarded;
        let checks = [
            ("ended", ended + (s.queued + s.running) as u64, s.accepted),
            ("offered", get(&sums.offered), s.accepted + s.refused),
            (
                "handed back",
                get(&sums.back) + silent,
                s.refused + s.expired + s.discarded,
            ),
            (
                "ran",
                get(&sums.ran),
                s.completed + s.panicked + s.running as u64,
            ),
            ("panicked", get(&sums.panics), s.panicked),
            ("timed out", get(&sums.timed_out), s.timed_out),
            ("workers", s.spawned - s.retired, s.workers as u64),
            ("idle", (s.running + s.idle) as u64, s.workers as u64),
            ("hook panics", get(&sums.hook_panics), s.hook_panics),
        ];
        for (what, expected, found) in checks {
            if expected != found {
                return Err(format!("{what}: {expected} and {found}"));
            }
        }
        let refused = get(&sums.refused);
        let (expired, closed) = (get(&sums.expired), get(&sums.closed));
        let bounds = s.refused >= refused
            && s.refused <= refused + expired + closed
            && s.expired <= expired
            && (silent..=silent + closed).contains(&s.discarded)
            && s.spawn_failures == 0
            && (self.input.hooks & 4 == 0 || get(&sums.told_of_panics) == s.panicked);
        if bounds {
            Ok(())
        } else {
            Err(format!("{silent} discarded in silence"))
        }
    }

    /// Asserts that a caller that learns of the end of tasks finds them counted and their workers
    /// free.
    fn check_counted(&self, was_settled: bool) {
        // The panic of a worker's hook may not be counted yet.
        let hooks = self.input.hooks & 9 == 9;
        if was_settled && self.asides.is_empty() && !hooks {
            if let Err(text) = self.balance() {
                panic!("{text}, at once: {}", self.state());
            }
        }
    }

    /// Asserts what must hold at any moment.
    fn look(&self) {
        let (load, holds) = (self.load(), self.holding());
        let s = self.pool.stats();
        let ended = s.completed + s.panicked + s.expired + s.discarded;
        let sound = ended <= s.accepted
            && s.running <= self.max
            && s.queued <= self.room
            && s.running + s.queued >= load.least.min(self.capacity())
            && s.running >= holds
            && s.idle <= s.workers
            && s.workers <= s.peak_workers
            && s.peak_workers <= self.max
            && s.workers as u64 == s.spawned - s.retired
            && (self.closed.is_some() || s.workers >= self.pool.min_workers())
            && (self.closed.is_some() || self.input.retires || s.retired == 0);
        assert!(sound, "{s:?}: {}", self.state());
        let holding = |e: &&Entry| e.is_held() && e.fate.is_holding();
        let labeled = self.entries.iter().filter(holding).filter(|e| e.label);
        let left = self.entries.iter().filter(holding);
        let left = left.filter(|e| (e.came == Came::Left || e.cancelled) && !e.aside);
        // Counted before the pool is read: more tasks may start.
        let (labeled, left) = (labeled.count(), left.count());
        let workers = self.pool.workers();
        let shown = workers.iter().filter(|w| w.label == Some(LABEL)).count();
        let abandoned = workers.iter().filter(|w| w.abandoned).count();
        assert!(workers.len() <= self.max, "{workers:?}");
        assert!(shown >= labeled, "{workers:?}: {}", self.state());
        assert!(abandoned >= left, "{workers:?}: {}", self.state());
    }

    /// Waits until idle workers have retired.
    fn rest(&mut self) {
        self.settle();
        if !self.settled.get() || !self.input.retires || self.rests == 2 {
            return;
        }
        self.rests += 1;
        let least = match self.closed {
            Some(_) => 0,
            None => self.pool.min_workers(),
        };
        let least = least.max(self.holding());
        let at_rest = || self.pool.stats().workers == least;
        wait_for("retirement", at_rest, || self.state());
        if least == 0 {
            wait_for("threads", || threads() == self.threads, || self.state());
        }
    }

    // ---- the end ----------------------------------------------------------------------

    fn shutdown(&mut self, mode: Shutdown, pause: Pause) -> ShutdownReport {
        let strictest = match (self.closed, mode) {
            (Some(Shutdown::Cancel), _) | (_, Shutdown::Cancel) => Shutdown::Cancel,
            (Some(Shutdown::Discard), _) | (_, Shutdown::Discard) => Shutdown::Discard,
            _ => Shutdown::Drain,
        };
        if strictest == Shutdown::Cancel {
            for entry in &mut self.entries {
                entry.freed |= entry.work.hold == Hold::Watch;
            }
        }
        let pause = match pause {
            Pause::Never if self.held() > 0 => Pause::Micros(100),
            pause => pause,
        };
        let (holding, all_held) = (self.holding(), self.holding() == self.max);
        self.closed = Some(strictest);
        self.settled.set(false);
        let start = Instant::now();
        let report = self.pool.shutdown(mode, pause.get());
        let took = start.elapsed();
        assert!(self.pool.is_closed());
        let discards = strictest != Shutdown::Drain;
        if all_held && discards && self.asides.is_empty() {
            assert_eq!(self.waiting(), 0, "{}", self.state());
        }
        if report.is_clean() {
            assert_eq!(holding, 0, "{report:?}: {}", self.state());
            let s = self.pool.stats();
            assert_eq!((s.workers, s.running, s.queued), (0, 0, 0), "{s:?}");
            assert!(s.discarded >= report.discarded, "{report:?}, {s:?}");
            // A worker that finds a task after its stop hook runs its start hook again.
            let (starts, stops) = (get(&self.sums.starts), get(&self.sums.stops));
            let hooked = starts == stops && starts >= s.spawned;
            assert!(hooked || self.input.hooks & 1 == 0, "{}", self.state());
            if self.asides.is_empty() {
                wait_for("threads", || threads() == self.threads, || self.state());
            }
        } else {
            let late = took >= pause.get() && report.stragglers.len() >= holding;
            assert!(late, "{report:?} after {took:?}: {}", self.state());
        }
        report
    }

    fn step(&mut self, step: Step) {
        self.meet(false);
        match step {
            Step::Serve(work, through) => self.serve(work, through),
            Step::Do(work, limit, label) => self.call(work, limit, label),
            Step::Scope(count, work) => self.scope(count, work),
            Step::Await(work, through, limited) => self.awaited(work, through, limited),
            Step::Use(n) => self.use_handle(n),
            Step::Aside(work, limit) => self.aside(work, limit),
            Step::Open(n) => {
                let held = |(n, e): (usize, &Entry)| e.is_held().then_some(n);
                let held: Vec<_> = self.entries.iter().enumerate().filter_map(held).collect();
                if let Some(&index) = held.get(usize::from(n) % held.len().max(1)) {
                    self.free_entry(index);
                }
            }
            Step::Settle => self.settle(),
            Step::Rest => self.rest(),
            Step::Look => self.look(),
            Step::Wait(second) => self.wait_group(second),
            Step::Cancel(second) => self.cancel(second),
            Step::Shutdown(n, pause) => drop(self.shutdown(mode(n), pause)),
        }
    }

    fn end(mut self) {
        let (on_drop, pause) = self.input.on_drop.unwrap_or((0, Pause::Never));
        let waits = matches!(pause, Pause::Never);
        let mut may_discard = self.closed.is_some_and(|mode| mode != Shutdown::Drain);
        let holds = matches!(self.input.end, End::DropHeld) && !waits && self.asides.is_empty();
        if !holds {
            self.open_all();
            self.meet(true);
        }
        if let End::Shutdown(n, pause) = self.input.end {
            self.shutdown(mode(n), pause);
            let last = self.shutdown(mode(n), Pause::Never);
            assert!(last.is_clean(), "{last:?}");
            may_discard |= mode(n) != Shutdown::Drain;
            self.tally(&self.pool.stats())
                .unwrap_or_else(|e| panic!("{e}: {}", self.state()));
        } else {
            may_discard |= mode(on_drop) != Shutdown::Drain;
        }
        let Self {
            pool,
            sums,
            mut entries,
            groups,
            cancelled,
            ..
        } = self;
        // This is the last handle to the pool, unless a task holds one for the moment.
        drop(pool);
        entries.iter().for_each(|e| e.fate.open());
        wait_for(
            "threads",
            || threads() == self.threads,
            || format!("{sums:?}\n{entries:#?}"),
        );
        assert!(groups[1].serve(|| ()).is_err());
        entries.retain(|e| e.came != Came::Done);
        for entry in &mut entries {
            let handle = entry.handle.take();
            let is_cancelled = entry.cancelled || entry.group.is_some_and(|g| cancelled[g]);
            if let Some(handle) = handle {
                assert!(handle.is_finished(), "{entry:?}");
                handles::check(handle.join(), entry, is_cancelled, may_discard);
            }
            entry.fate.check_ended();
            assert_eq!(Arc::strong_count(&entry.fate), 1, "{entry:?}");
            let may_go = may_discard && !entry.kept || is_cancelled;
            let ran = entry.fate.has_run();
            assert!(ran || may_go && entry.came == Came::In, "{entry:?}");
        }
        for fate in lock(&sums.nested).iter() {
            fate.check_ended();
            assert!(fate.has_run() || may_discard);
        }
        assert_eq!(get(&sums.results_made), get(&sums.results_dropped));
        assert_eq!(get(&sums.inside), 0, "{sums:?}");
        assert!(get(&sums.most_inside) <= self.max as u64, "{sums:?}");
        assert_eq!(get(&sums.starts), get(&sums.stops), "{sums:?}");
        let wrong = lock(&sums.wrong).take();
        assert_eq!(wrong, None, "{sums:?}");
    }
}

#[derive(Debug, Clone, Copy)]
enum Outcome {
    Value,
    Panicked,
    TimedOut,
    Expired,
    Refused(Why),
}

/// Makes one `do_with_deadline`, and asserts what must hold for any caller.
fn call(
    pool: &Pool,
    sums: &Arc<Sums>,
    fate: &Arc<Fate>,
    work: Work,
    limit: Limit,
    label: bool,
) -> Outcome {
    let d = match limit {
        Limit::Zero => Duration::ZERO,
        Limit::Nanosecond => Duration::from_nanos(1),
        Limit::Micros(n) => Duration::from_micros(u64::from(n) + 1),
        Limit::Long => LONG,
        Limit::Never => Duration::MAX,
    };
    let timed = d != Duration::MAX;
    let name = label.then_some(LABEL);
    let token = Token::new(sums, fate, work);
    let weight = [7_u64; 20];
    let small = move || token.run(name, timed);
    if work.large {
        let large = move || {
            std::hint::black_box(weight);
            small()
        };
        judge(pool, sums, fate, work, d, label, large)
    } else {
        judge(pool, sums, fate, work, d, label, small)
    }
}

fn judge<F>(
    pool: &Pool,
    sums: &Sums,
    fate: &Arc<Fate>,
    work: Work,
    d: Duration,
    label: bool,
    f: F,
) -> Outcome
where
    F: FnOnce() -> Value + Send + 'static,
{
    if !d.is_zero() {
        add(&sums.offered);
    }
    let start = Instant::now();
    let outcome = if label {
        pool.labeled(LABEL).do_with_deadline(f, d)
    } else {
        pool.do_with_deadline(f, d)
    };
    let took = start.elapsed();
    // The closure and its captures are gone before its caller is back.
    let gone = || {
        fate.check_ended();
        assert!(fate.has_run() && Arc::strong_count(fate) <= 2, "{fate:?}");
    };
    match outcome {
        Ok(value) => {
            gone();
            assert!(!work.panics(), "{work:?}");
            value.arrived();
            Outcome::Value
        }
        Err(DeadlineError::Panicked(panic)) => {
            gone();
            assert!(work.panics(), "{work:?}");
            defuse(panic);
            Outcome::Panicked
        }
        Err(DeadlineError::TimedOut) => {
            assert!(took >= d && d < LONG, "{took:?}, {d:?}");
            add(&sums.timed_out);
            Outcome::TimedOut
        }
        Err(DeadlineError::Expired(f)) => {
            assert!(took >= d && d < LONG, "{took:?}, {d:?}");
            fate.check_unrun();
            defuse(f);
            fate.check_ended();
            if !d.is_zero() {
                add(&sums.back);
                add(&sums.expired);
            }
            Outcome::Expired
        }
        Err(DeadlineError::Refused(refused)) => {
            add(&sums.back);
            Outcome::Refused(take_back(refused, fate))
        }
    }
}

fn build(input: &Input, max: usize, sums: &Arc<Sums>) -> Pool {
    let mut builder = Pool::builder()
        .max_workers(max)
        .min_workers(usize::from(input.min) % (max + 1))
        .queue_capacity(usize::from(input.queue % 5))
        .idle_timeout(if input.retires {
            Duration::from_millis(1)
        } else {
            Duration::MAX
        });
    if input.blocks {
        builder = builder.when_full(WhenFull::Block);
    }
    if let Some((n, pause)) = input.on_drop {
        builder = builder.shutdown_on_drop(mode(n), pause.get());
    }
    let panics = input.hooks & 8 != 0;
    let quiet = move |sums: &Sums| {
        if panics {
            add(&sums.hook_panics);
            explode();
        }
    };
    if input.hooks & 1 != 0 {
        let (of_start, of_stop) = (Arc::clone(sums), Arc::clone(sums));
        builder = builder
            .on_worker_start(move |_| {
                add(&of_start.starts);
                quiet(&of_start);
            })
            .on_worker_stop(move |_| {
                add(&of_stop.stops);
                quiet(&of_stop);
            });
    }
    if input.hooks & 2 != 0 {
        let (sums, calls) = (Arc::clone(sums), input.hooks >> 4);
        builder = builder.around(move |task| {
            (0..calls % 3).for_each(|_| task());
            quiet(&sums);
        });
    }
    if input.hooks & 4 != 0 {
        let sums = Arc::clone(sums);
        builder = builder.on_panic(move |_| {
            add(&sums.told_of_panics);
            quiet(&sums);
        });
    }
    builder.build().expect("valid settings")
}

/// The number of rounds under several faults, and the pairs of faults that they met.
static MET: Mutex<(u64, Option<Table>)> = Mutex::new((0, None));

extern "C" fn tell() {
    if let (rounds, Some(met)) = &*lock(&MET) {
        eprintln!("Of {rounds} pools under several faults: {met}");
    }
}

fn combined(bytes: &[u8]) {
    static TELL: Once = Once::new();
    TELL.call_once(|| {
        // SAFETY: `tell` may run at the end of the process, at any time.
        assert_eq!(unsafe { libc::atexit(tell) }, 0);
    });
    let seen = Round::of(bytes).play();
    let (rounds, met) = &mut *lock(&MET);
    *rounds += 1;
    met.get_or_insert_default().add(&seen);
}

fuzz_target!(|bytes: &[u8]| {
    if let Some((128.., rest)) = bytes.split_first() {
        combined(rest);
    } else if let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(bytes)) {
        alone(&input);
    }
});

fn alone(input: &Input) {
    let threads = threads();
    let max = 1 + usize::from(input.workers % 4);
    let sums = Arc::new(Sums::default());
    let pool = Arc::new(build(input, max, &sums));
    assert_eq!(pool.stats().workers, pool.min_workers());
    let _ = sums.pool.set(Arc::downgrade(&pool));
    let mut play = Play {
        input,
        max,
        room: pool.queue_capacity(),
        blocks: input.blocks,
        threads,
        entries: Vec::new(),
        asides: Vec::new(),
        taken_out: Vec::new(),
        groups: [pool.group(), pool.group()],
        cancelled: [false; 2],
        closed: None,
        settled: Cell::new(false),
        rests: 0,
        pool,
        sums,
    };
    for &step in input.steps.iter().take(40) {
        play.step(step);
    }
    play.end();
}
