//! The parts of the closures of the `pool` target, and the record of each closure's fate.

use lazypool::{task, DeadlineError, Pool, Refusal, Refused};
use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

pub const LABEL: &str = "view";

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Hold {
    Nothing,
    /// The task waits until its gate opens.
    Gate,
    /// The task waits until its gate opens or it is cancelled.
    Watch,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    Nothing,
    Panics,
    PayloadExplodes,
    CaptureExplodes,
    ResultExplodes,
}

/// The calls that a task makes on its own pool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Nest {
    Nothing,
    Serve,
    Do,
    Scope,
}

#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub hold: Hold,
    pub fault: Fault,
    pub nest: Nest,
    /// `true` if the closure does not fit into a task without a box.
    pub large: bool,
    /// `true` if the task ends only when its run limit has passed.
    pub overruns: bool,
}

/// Takes one byte, so that a short input makes many calls. Most tasks are plain.
impl Arbitrary<'_> for Work {
    fn arbitrary(u: &mut Unstructured<'_>) -> arbitrary::Result<Self> {
        let byte = u.arbitrary::<u8>()?;
        Ok(Self {
            hold: match byte & 3 {
                0 | 1 => Hold::Nothing,
                2 => Hold::Gate,
                _ => Hold::Watch,
            },
            fault: match byte >> 2 & 7 {
                0 => Fault::Panics,
                1 => Fault::PayloadExplodes,
                2 => Fault::CaptureExplodes,
                3 => Fault::ResultExplodes,
                _ => Fault::Nothing,
            },
            nest: match byte >> 5 {
                0 => Nest::Serve,
                1 => Nest::Do,
                2 => Nest::Scope,
                _ => Nest::Nothing,
            },
            large: byte == 255,
            overruns: false,
        })
    }
}

impl Work {
    pub const QUICK: Self = Self {
        hold: Hold::Nothing,
        fault: Fault::Nothing,
        nest: Nest::Nothing,
        large: false,
        overruns: false,
    };

    pub fn panics(&self) -> bool {
        !matches!(self.fault, Fault::Nothing | Fault::ResultExplodes)
    }
}

/// Counts of the events that the callers, closures and hooks of one pool saw.
#[derive(Debug, Default)]
pub struct Sums {
    /// Submissions, without those with a deadline of zero.
    pub offered: AtomicU64,
    /// Submissions whose closure came back.
    pub back: AtomicU64,
    /// Submissions that were certainly never accepted.
    pub refused: AtomicU64,
    /// Submissions that expired, accepted or not.
    pub expired: AtomicU64,
    /// Submissions that a shutdown refused or discarded.
    pub closed: AtomicU64,
    pub timed_out: AtomicU64,
    pub ran: AtomicU64,
    pub panics: AtomicU64,
    pub results_made: AtomicU64,
    pub results_dropped: AtomicU64,
    pub inside: AtomicU64,
    pub most_inside: AtomicU64,
    pub told_of_panics: AtomicU64,
    pub hook_panics: AtomicU64,
    pub starts: AtomicU64,
    pub stops: AtomicU64,
    /// The fates of tasks that `serve` accepted from inside tasks.
    pub nested: Mutex<Vec<Arc<Fate>>>,
    pub pool: OnceLock<Weak<Pool>>,
    /// The first fault that a worker found. A panic there would pass for a panic of the task.
    pub wrong: Mutex<Option<String>>,
}

pub fn add(n: &AtomicU64) {
    n.fetch_add(1, SeqCst);
}

pub fn get(n: &AtomicU64) -> u64 {
    n.load(SeqCst)
}

pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sums {
    fn check(&self, ok: bool, what: &str) {
        if !ok {
            lock(&self.wrong).get_or_insert_with(|| what.to_owned());
        }
    }
}

/// The fate of one closure, and its gate.
#[derive(Debug, Default)]
pub struct Fate {
    ran: AtomicU64,
    dropped: AtomicU64,
    holding: AtomicBool,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Fate {
    pub fn has_run(&self) -> bool {
        get(&self.ran) > 0
    }

    pub fn is_dropped(&self) -> bool {
        get(&self.dropped) > 0
    }

    /// Returns `true` if the task waits at its gate.
    pub fn is_holding(&self) -> bool {
        self.holding.load(SeqCst)
    }

    pub fn open(&self) {
        *lock(&self.open) = true;
        self.opened.notify_all();
    }

    pub fn check_unrun(&self) {
        assert_eq!((get(&self.ran), get(&self.dropped)), (0, 0));
    }

    pub fn check_ended(&self) {
        assert!(get(&self.ran) <= 1, "{self:?}");
        assert_eq!(get(&self.dropped), 1, "{self:?}");
    }
}

/// Captured by each closure, to record its fate.
#[derive(Debug)]
pub struct Token {
    pub sums: Arc<Sums>,
    pub fate: Arc<Fate>,
    work: Work,
}

impl Token {
    pub fn new(sums: &Arc<Sums>, fate: &Arc<Fate>, work: Work) -> Self {
        Self {
            sums: Arc::clone(sums),
            fate: Arc::clone(fate),
            work,
        }
    }

    /// Runs the body of a task. `timed` is `true` if the task has a deadline.
    pub fn run(self, label: Option<&'static str>, timed: bool) -> Value {
        let (sums, fate, work) = (Arc::clone(&self.sums), Arc::clone(&self.fate), self.work);
        add(&fate.ran);
        add(&sums.ran);
        let inside = sums.inside.fetch_add(1, SeqCst) + 1;
        sums.most_inside.fetch_max(inside, SeqCst);
        sums.check(task::label() == label, "another label");
        sums.check(task::deadline().is_some() == timed, "another deadline");
        sums.check(task::slot().is_some(), "no slot");
        nest(&sums, work.nest);
        match work.hold {
            Hold::Nothing => {}
            Hold::Gate => {
                fate.holding.store(true, SeqCst);
                let mut open = lock(&fate.open);
                while !*open {
                    open = (fate.opened.wait(open)).unwrap_or_else(PoisonError::into_inner);
                }
            }
            Hold::Watch => {
                fate.holding.store(true, SeqCst);
                while !*lock(&fate.open) && !task::is_cancelled() {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        }
        if work.overruns {
            while task::remaining() != Some(Duration::ZERO) {
                std::thread::sleep(Duration::from_micros(20));
            }
            sums.check(task::is_cancelled(), "late, and not cancelled");
            add(&sums.timed_out);
        }
        match work.fault {
            Fault::Panics => {
                add(&sums.panics);
                explode();
            }
            Fault::PayloadExplodes => {
                add(&sums.panics);
                // By `resume_unwind`, which the fuzzer's panic hook does not see.
                resume_unwind(Box::new(Bomb));
            }
            _ => {}
        }
        let value = Value::new(&sums, work.fault == Fault::ResultExplodes);
        // Not at the closing brace, where a panic of this drop would leak the value
        // (rust-lang/rust#47949).
        drop(self);
        value
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        add(&self.fate.dropped);
        let ran = self.fate.has_run();
        if ran {
            self.sums.inside.fetch_sub(1, SeqCst);
        }
        if self.work.fault == Fault::CaptureExplodes && !std::thread::panicking() {
            if ran {
                add(&self.sums.panics);
            }
            explode();
        }
    }
}

/// The result of a task.
#[derive(Debug)]
pub struct Value {
    sums: Arc<Sums>,
    bomb: bool,
}

impl Value {
    fn new(sums: &Arc<Sums>, bomb: bool) -> Self {
        add(&sums.results_made);
        Self {
            sums: Arc::clone(sums),
            bomb,
        }
    }

    /// Defuses the result, as it has arrived: only a result that no caller takes may panic in its
    /// drop.
    pub fn arrived(mut self) {
        self.bomb = false;
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        add(&self.sums.results_dropped);
        if self.bomb && !std::thread::panicking() {
            add(&self.sums.panics);
            explode();
        }
    }
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            explode();
        }
    }
}

/// Raises a panic that the fuzzer's panic hook does not see.
pub fn explode() -> ! {
    resume_unwind(Box::new("meant"))
}

/// Drops a value whose drop may panic, and catches the panic.
pub fn defuse<T>(what: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(what))) {
        // The payload of that panic is a text.
        drop(payload);
    }
}

/// Makes a call from inside a task. There no call waits for space, and only `serve` queues, so none
/// of this can hang.
fn nest(sums: &Arc<Sums>, nest: Nest) {
    if nest == Nest::Nothing {
        return;
    }
    let Some(pool) = sums.pool.get().and_then(Weak::upgrade) else {
        return;
    };
    let fate = Arc::new(Fate::default());
    let token = || Token::new(sums, &fate, Work::QUICK);
    let refused = |why: &Refusal| {
        let known = match why {
            Refusal::Saturated | Refusal::OnWorker => true,
            Refusal::Closed => pool.is_closed(),
            _ => false,
        };
        sums.check(known && !fate.has_run(), "a nested refusal");
        add(&sums.refused);
        add(&sums.back);
    };
    match nest {
        Nest::Nothing => unreachable!(),
        Nest::Serve => {
            add(&sums.offered);
            let token = token();
            match pool.serve(move || drop(token.run(None, false))) {
                Ok(()) => lock(&sums.nested).push(Arc::clone(&fate)),
                Err(back) => refused(back.reason()),
            }
        }
        Nest::Do => {
            add(&sums.offered);
            let token = token();
            match pool.do_with_deadline(move || token.run(None, false), Duration::MAX) {
                Ok(value) => value.arrived(),
                Err(DeadlineError::Refused(back)) => refused(back.reason()),
                Err(other) => sums.check(false, &format!("a nested call: {other:?}")),
            }
        }
        Nest::Scope => {
            let here = [7_u8; 100];
            add(&sums.offered);
            let token = token();
            pool.scope(|s| {
                let served = s.serve(|| {
                    token.sums.check(here == [7; 100], "a borrowed array");
                    drop(token.run(None, false));
                });
                if let Err(back) = served {
                    refused(back.reason());
                }
            });
            sums.check(fate.is_dropped(), "a scope left its task");
        }
    }
}

/// The reason of a refusal, without the closure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Why {
    Saturated,
    Closed,
    Cancelled,
    Other,
}

/// Drops a closure that came back, and asserts that it has not run.
pub fn take_back<F>(refused: Refused<F>, fate: &Fate) -> Why {
    fate.check_unrun();
    let why = match refused.reason() {
        Refusal::Saturated => Why::Saturated,
        Refusal::Closed => Why::Closed,
        Refusal::Cancelled => Why::Cancelled,
        _ => Why::Other,
    };
    defuse(refused);
    fate.check_ended();
    why
}
