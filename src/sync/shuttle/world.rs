//! The state of one execution under shuttle, besides its threads: a clock, failures of the system,
//! and checks between steps.
//!
//! **The clock** is a number of ticks, not a measurement. Each reading adds a tick. A thread that
//! sleeps, or waits with a timeout, looks at the clock again and again. Each look adds a tick, or
//! sets the clock to the end of that wait, as if the system had run no other thread meanwhile. So a
//! deadline can pass between any two steps of other threads.

use shuttle::rand::Rng;
use std::cell::{Cell, RefCell};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// One tick of the clock.
const TICK: Duration = Duration::from_micros(100);

/// The failures that may occur in an execution.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// On average, one in `refuse_one_in` requests for a thread is refused. If zero, none is.
    pub refuse_one_in: u32,
    /// On average, one in `spurious_one_in` calls of `park` returns without a token. If zero, none
    /// does, so a lost wake-up is a deadlock, which shuttle reports.
    pub spurious_one_in: u32,
    /// If `true`, each access to an atomic is printed.
    pub trace: bool,
}

// The threads of an execution share these values, because all of them run on one OS thread.
std::thread_local! {
    static OPTIONS: Cell<Options> = const {
        Cell::new(Options { refuse_one_in: 0, spurious_one_in: 0, trace: false })
    };
    static TICKS: Cell<u64> = const { Cell::new(0) };
    /// `true` during [`peek`].
    static PEEKS: Cell<bool> = const { Cell::new(false) };
    /// The functions that [`step`] calls before each step.
    static JUDGES: RefCell<Vec<Box<dyn Fn()>>> = const { RefCell::new(Vec::new()) };
}

/// Begins an execution. Its first thread calls this before anything else.
pub fn begin(options: Options) {
    OPTIONS.set(options);
    TICKS.set(0);
    PEEKS.set(false);
    JUDGES.take();
    super::local::forget();
    super::memory::forget();
}

/// Changes the options of the execution from now on.
pub fn set_options(change: impl FnOnce(&mut Options)) {
    let mut options = OPTIONS.get();
    change(&mut options);
    OPTIONS.set(options);
}

fn one_in(n: u32) -> bool {
    n > 0 && shuttle::rand::thread_rng().gen_range(0..n) == 0
}

pub(crate) fn refuses_thread() -> bool {
    step();
    let refuses = one_in(OPTIONS.get().refuse_one_in);
    if refuses {
        // A thread that tries again and again must not starve the others.
        rest();
    }
    refuses
}

pub(crate) fn parks_in_vain() -> bool {
    step();
    one_in(OPTIONS.get().spurious_one_in)
}

// ---- the clock ------------------------------------------------------------------

/// Returns the number of ticks so far. Does not add a tick.
pub fn ticks() -> u64 {
    TICKS.get()
}

/// Returns the time, and adds a tick.
pub(crate) fn now() -> Instant {
    // Any instant will do, because only differences between two instants are used.
    static START: OnceLock<Instant> = OnceLock::new();
    TICKS.set(ticks() + 1);
    let start = *START.get_or_init(Instant::now);
    start + TICK * u32::try_from(ticks()).expect("a short execution")
}

/// Returns the tick at which a wait ends if it begins now and lasts for `limit`.
pub(super) fn ends_after(limit: Duration) -> u64 {
    let wait = limit.as_nanos().div_ceil(TICK.as_nanos());
    ticks().saturating_add(u64::try_from(wait).unwrap_or(u64::MAX))
}

/// Looks at the clock for a thread that waits until the tick `end`. Returns `true` if the wait is
/// over. Otherwise adds a tick, or sets the clock to `end`, and lets other threads run.
pub(super) fn look(end: u64) -> bool {
    if ticks() >= end {
        return true;
    }
    if one_in(16) {
        TICKS.set(end);
        step();
    } else {
        TICKS.set(ticks() + 1);
        rest();
    }
    false
}

/// Waits until `time` has passed by the clock of the execution.
pub fn sleep(time: Duration) {
    let end = ends_after(time);
    while !look(end) {}
}

pub(crate) fn park_timeout(limit: Duration) {
    let end = ends_after(limit);
    let own = crate::sync::thread::current();
    while !own.take_token() && !look(end) {}
}

// ---- steps ----------------------------------------------------------------------

/// Calls `judge` before each step, until the next execution begins.
pub fn judge_by(judge: Box<dyn Fn()>) {
    JUDGES.with_borrow_mut(|judges| judges.push(judge));
}

/// Marks a scheduling point: another thread may run here.
pub(super) fn step() {
    if !peeks() {
        JUDGES.with_borrow(|judges| judges.iter().for_each(|judge| judge()));
        // shuttle has no clock. It treats a `sleep` as a scheduling point.
        shuttle::thread::sleep(Duration::ZERO);
    }
}

struct InVain;

/// Lets other threads run, because this thread waits for a step of one of them. Unwinds out of a
/// [`peek`], during which no other thread can run.
pub(crate) fn rest() {
    if peeks() {
        std::panic::resume_unwind(Box::new(InVain));
    }
    shuttle::thread::yield_now();
}

/// Calls `f` between two steps. Meanwhile no other thread runs, locks are ignored, and no access is
/// checked or published, so `f` must not write. Returns `None` if `f` would have to wait for a step
/// of another thread, or if this thread is in a `peek` already.
pub fn peek<R>(f: impl FnOnce() -> R) -> Option<R> {
    if PEEKS.replace(true) {
        return None; // a look within a look
    }
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    PEEKS.set(false);
    match seen {
        Ok(seen) => Some(seen),
        Err(payload) if payload.is::<InVain>() => None,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

pub(super) fn peeks() -> bool {
    PEEKS.get()
}

/// Prints an access if [`Options::trace`] is set, for a person who reads a replay.
#[track_caller]
pub(super) fn trace(was: &dyn std::fmt::Debug, is: &dyn std::fmt::Debug) {
    if OPTIONS.get().trace && !peeks() {
        let (me, at) = (super::me(), std::panic::Location::caller());
        eprintln!("{me:3} {at} {was:x?} -> {is:x?}");
    }
}
