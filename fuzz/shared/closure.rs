//! The closures of the `pool` target, and the record of the fate of each.

use lazypool::{task, Refused};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::Arc;
use std::thread::{panicking, sleep};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Arbitrary)]
pub enum Fault {
    Nothing,
    Panics,
    PayloadExplodes,
    CaptureExplodes,
    ResultExplodes,
}

/// Counts of the events that the closures of one pool saw.
#[derive(Debug, Default)]
pub struct Sums {
    pub ran: AtomicU64,
    pub panics: AtomicU64,
    /// Results that have not been dropped.
    pub results: AtomicU64,
    pub inside: AtomicU64,
    pub most_inside: AtomicU64,
    /// Tasks with another label or deadline than they should have.
    pub wrong: AtomicU64,
}

pub fn add(n: &AtomicU64) {
    n.fetch_add(1, SeqCst);
}

pub fn get(n: &AtomicU64) -> u64 {
    n.load(SeqCst)
}

/// The fate of one closure, and its gate.
#[derive(Debug, Default)]
pub struct Fate {
    ran: AtomicU64,
    dropped: AtomicU64,
    pub holds: AtomicBool,
    pub open: AtomicBool,
}

impl Fate {
    /// Asserts how often the closure has run and been dropped.
    #[track_caller]
    pub fn check(&self, ran: bool, dropped: bool) {
        let seen = (get(&self.ran), get(&self.dropped));
        assert_eq!(seen, (ran.into(), dropped.into()), "runs and drops");
    }
}

/// Captured by each closure, to record its fate.
#[derive(Debug)]
pub struct Token {
    pub sums: Arc<Sums>,
    pub fate: Arc<Fate>,
    /// `true` if the task waits until its gate opens.
    pub holds: bool,
    pub fault: Fault,
}

impl Token {
    /// Runs the body of a task. Counts it in `wrong` unless it has this label, and a deadline
    /// exactly if `timed`.
    pub fn run(self, label: Option<&'static str>, timed: bool) -> Value {
        let (sums, fate) = (Arc::clone(&self.sums), Arc::clone(&self.fate));
        add(&fate.ran);
        add(&sums.ran);
        let inside = sums.inside.fetch_add(1, SeqCst) + 1;
        sums.most_inside.fetch_max(inside, SeqCst);
        if task::label() != label || task::deadline().is_some() != timed {
            add(&sums.wrong);
        }
        while self.holds && !fate.open.load(SeqCst) {
            fate.holds.store(true, SeqCst);
            sleep(Duration::from_micros(50));
        }
        fate.holds.store(false, SeqCst);
        match self.fault {
            Fault::Panics => {
                add(&sums.panics);
                explode();
            }
            Fault::PayloadExplodes => {
                add(&sums.panics);
                resume_unwind(Box::new(Bomb));
            }
            _ => {}
        }
        add(&sums.results);
        let is_bomb = self.fault == Fault::ResultExplodes;
        let value = Value { sums, is_bomb };
        // Not at the closing brace, where a panic of this drop would leak the value
        // (rust-lang/rust#47949).
        drop(self);
        value
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        add(&self.fate.dropped);
        let ran = get(&self.fate.ran) > 0;
        self.sums.inside.fetch_sub(ran.into(), SeqCst);
        if self.fault == Fault::CaptureExplodes && !panicking() {
            // A panic of this drop is the task's only if the task has run.
            self.sums.panics.fetch_add(ran.into(), SeqCst);
            explode();
        }
    }
}

/// The result of a task.
#[derive(Debug)]
pub struct Value {
    sums: Arc<Sums>,
    is_bomb: bool,
}

impl Value {
    /// Defuses the result, as it has arrived: only a result that no caller takes may panic in its
    /// drop.
    pub fn arrived(mut self) {
        self.is_bomb = false;
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.sums.results.fetch_sub(1, SeqCst);
        if self.is_bomb && !panicking() {
            add(&self.sums.panics);
            explode();
        }
    }
}

/// A panic payload whose drop panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !panicking() {
            explode();
        }
    }
}

/// Raises a panic that the fuzzer's panic hook does not see.
fn explode() -> ! {
    resume_unwind(Box::new("meant"))
}

/// Drops a value whose drop may panic, and catches the panic.
pub fn defuse<T>(what: T) {
    // The payload of that panic is a `&str`, whose drop cannot panic.
    catch_unwind(AssertUnwindSafe(|| drop(what))).unwrap_or_default();
}

/// Drops a closure that came back, and asserts that it has not run. Returns the reason.
#[track_caller]
pub fn take_back<F>(refused: Refused<F>, fate: &Fate) -> &'static str {
    fate.check(false, false);
    let why = refused.reason().as_str();
    defuse(refused);
    fate.check(false, true);
    why
}
