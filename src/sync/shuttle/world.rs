//! The state of one execution under shuttle, besides its threads: a clock, dice, and the order in
//! which accesses happen.
//!
//! **The clock** is a number of ticks, not a measurement. Each reading adds a tick. A thread that
//! waits for a time looks at the clock again and again, and each look adds a tick as well. Such a
//! look may also set the clock to the time it waits for, as if the system had run no other thread
//! meanwhile. So a deadline can pass between any two steps of other threads.
//!
//! **Order.** Values are sequentially consistent: a load returns the newest store, even if it is
//! `Relaxed`. Orderings decide what a store publishes. Each thread has a vector clock. A release
//! leaves it at the word or lock, an acquire takes it from there, and a read-modify-write continues
//! a release sequence, as in C++20. Two conflicting accesses to an
//! [`UnsafeCell`](super::UnsafeCell) panic unless one happens before the other. Three things are
//! left out: stale values of weak loads (loom has them), fences (the crate has none), and the
//! counts of an `Arc`.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// One tick of the clock.
pub(super) const TICK: Duration = Duration::from_micros(100);

/// The failures that may occur in an execution, and the seed of its dice.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The seed of the execution's dice. The schedule has a seed of its own.
    pub seed: u64,
    /// The system refuses one thread in `refuse_one_in`. Zero: it refuses none.
    pub refuse_one_in: u32,
    /// One call of `park` in `spurious_one_in` returns without a token. Zero: none does, so that a
    /// lost wake-up is a deadlock.
    pub spurious_one_in: u32,
    /// If `true`, each access to an atomic is printed.
    pub trace: bool,
}

/// A vector clock: for each thread, the number of its steps that happen before.
pub(super) type Stamp = Vec<u32>;

#[derive(Debug)]
struct World {
    options: Options,
    dice: u64,
    ticks: u64,
    /// The vector clocks of the threads, by number.
    stamps: Vec<Stamp>,
    /// The value that [`unfreed`] returns.
    unfreed: usize,
}

std::thread_local! {
    /// The state of the execution. Its threads share it, because they run on one thread of the
    /// system.
    static WORLD: RefCell<World> = const {
        RefCell::new(World {
            options: Options { seed: 0, refuse_one_in: 0, spurious_one_in: 0, trace: false },
            dice: 0,
            ticks: 0,
            stamps: Vec::new(),
            unfreed: 0,
        })
    };
    /// `true` during [`peek`].
    static PEEKS: Cell<bool> = const { Cell::new(false) };
    /// The functions that [`step`] calls before each step.
    static JUDGES: RefCell<Vec<Box<dyn Fn()>>> = const { RefCell::new(Vec::new()) };
}

fn with<R>(f: impl FnOnce(&mut World) -> R) -> R {
    WORLD.with(|world| f(&mut world.borrow_mut()))
}

/// Begins an execution. Its first thread calls this before anything else.
pub fn begin(options: Options) {
    PEEKS.set(false);
    JUDGES.take();
    super::thread::forget();
    super::local::forget();
    with(|world| {
        *world = World {
            options,
            dice: options.seed,
            ticks: 0,
            stamps: Vec::new(),
            unfreed: 0,
        }
    });
}

/// Changes the options of the execution from now on.
pub fn set_options(change: impl FnOnce(&mut Options)) {
    with(|world| change(&mut world.options));
}

/// Returns a random number below `n`.
pub fn below(n: u64) -> u64 {
    with(|world| {
        // The generator is SplitMix64.
        world.dice = world.dice.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = world.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    })
}

fn one_in(n: u32) -> bool {
    n > 0 && below(u64::from(n)) == 0
}

pub(super) fn thread_is_refused() -> bool {
    one_in(with(|world| world.options.refuse_one_in))
}

pub(super) fn parks_in_vain() -> bool {
    one_in(with(|world| world.options.spurious_one_in))
}

/// Returns how many parts of memory with a [`Track`](super::Track) the execution has not freed. It
/// must be zero once all its threads have ended.
#[must_use]
pub fn unfreed() -> usize {
    with(|world| world.unfreed)
}

pub(super) fn allocated() {
    with(|world| world.unfreed += 1);
}

pub(super) fn freed() {
    with(|world| world.unfreed -= 1);
}

/// Returns the number of ticks so far. Does not add one.
pub fn ticks() -> u64 {
    with(|world| world.ticks)
}

/// Returns the time, and adds a tick.
pub(crate) fn now() -> Instant {
    // Any instant will do, because only differences between two instants are used.
    static START: OnceLock<Instant> = OnceLock::new();
    let ticks = with(|world| {
        world.ticks += 1;
        world.ticks
    });
    let start = *START.get_or_init(Instant::now);
    start + TICK * u32::try_from(ticks).expect("a short execution")
}

/// Returns the tick at which a wait of `limit` ends that begins now.
pub(super) fn ends_after(limit: Duration) -> u64 {
    let ticks = limit.as_nanos().div_ceil(TICK.as_nanos());
    ticks_from_now(u64::try_from(ticks).unwrap_or(u64::MAX))
}

fn ticks_from_now(n: u64) -> u64 {
    ticks().saturating_add(n)
}

/// Looks at the clock for a thread that waits until the tick `end`. Returns `true` if the wait is
/// over. Otherwise adds a tick, or sets the clock to `end`, and lets other threads run.
pub(super) fn look(end: u64) -> bool {
    if ticks() >= end {
        return true;
    }
    if one_in(16) {
        with(|world| world.ticks = end);
        step();
    } else {
        with(|world| world.ticks += 1);
        rest();
    }
    false
}

/// Prints an access if [`Options::trace`] is set, for a person who reads a replay.
#[track_caller]
pub(super) fn trace(access: &str, was: &dyn std::fmt::Debug, is: &dyn std::fmt::Debug) {
    if with(|world| world.options.trace) && !PEEKS.get() {
        let (me, at) = (me(), std::panic::Location::caller());
        eprintln!(
            "{me:3} {}:{} {access} {was:x?} -> {is:x?}",
            at.file(),
            at.line()
        );
    }
}

// ---- scheduling -----------------------------------------------------------------

/// Calls `judge` before each step, until the next execution begins.
pub fn judge_by(judge: Box<dyn Fn()>) {
    JUDGES.with_borrow_mut(|judges| judges.push(judge));
}

/// Marks a scheduling point: another thread may run here.
pub(super) fn step() {
    if !PEEKS.get() {
        JUDGES.with_borrow(|judges| judges.iter().for_each(|judge| judge()));
        // shuttle has no clock. It takes a `sleep` for a scheduling point.
        shuttle::thread::sleep(Duration::ZERO);
    }
}

struct InVain;

/// Lets other threads run, because this thread waits for a step of one of them. Unwinds out of a
/// [`peek`], during which no other thread can run.
pub(crate) fn rest() {
    if PEEKS.get() {
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

// ---- the happens-before order ---------------------------------------------------

/// Returns the number of the current thread.
pub(crate) fn me() -> usize {
    shuttle::current::get_current_task().map_or(0, usize::from)
}

fn join(into: &mut Stamp, from: &[u32]) {
    if into.len() < from.len() {
        into.resize(from.len(), 0);
    }
    for (mine, theirs) in into.iter_mut().zip(from) {
        *mine = (*mine).max(*theirs);
    }
}

/// Returns the thread's vector clock. The thread's own part of it is never zero.
fn stamp_of(world: &mut World, thread: usize) -> &mut Stamp {
    if world.stamps.len() <= thread {
        world.stamps.resize(thread + 1, Stamp::new());
    }
    let stamp = &mut world.stamps[thread];
    if stamp.len() <= thread {
        stamp.resize(thread + 1, 0);
        stamp[thread] = 1;
    }
    stamp
}

/// The vector clock that has been released at a word or a lock.
#[derive(Debug)]
pub(super) struct Published(RefCell<Stamp>);

impl Published {
    pub(super) const fn new() -> Self {
        Self(RefCell::new(Stamp::new()))
    }

    /// Adds the current thread's vector clock. If `anew`, first forgets the earlier releases.
    pub(super) fn release(&self, anew: bool) {
        let mut published = self.0.borrow_mut();
        if anew {
            published.clear();
        }
        let me = me();
        with(|world| {
            let stamp = stamp_of(world, me);
            join(&mut published, stamp);
            // The thread's later steps are not published.
            stamp[me] += 1;
        });
    }

    pub(super) fn acquire(&self) {
        let me = me();
        with(|world| join(stamp_of(world, me), &self.0.borrow()));
    }

    pub(super) fn forget(&self) {
        self.0.borrow_mut().clear();
    }
}

/// Notes that thread `to` has joined thread `from`: every step of `from` so far happens before the
/// next step of `to`.
pub(super) fn hand_on(from: usize, to: usize) {
    with(|world| {
        let known = stamp_of(world, from).clone();
        join(stamp_of(world, to), &known);
        stamp_of(world, from)[from] += 1;
    });
}

pub(super) fn acquires(order: Ordering) -> bool {
    matches!(
        order,
        Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst
    )
}

pub(super) fn releases(order: Ordering) -> bool {
    matches!(
        order,
        Ordering::Release | Ordering::AcqRel | Ordering::SeqCst
    )
}

/// The accesses to a cell: the last write and, by thread, the last read after it.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    write: (usize, u32),
    reads: Stamp,
}

impl Accesses {
    pub(super) const fn new() -> Self {
        Self {
            write: (0, 0),
            reads: Stamp::new(),
        }
    }

    #[track_caller]
    pub(super) fn read(&mut self) {
        let me = me();
        let (writer, at) = self.write;
        let now = with(|world| {
            let stamp = stamp_of(world, me);
            let known = stamp.get(writer).copied().unwrap_or(0);
            (known >= at).then(|| stamp[me])
        });
        let Some(now) = now else {
            panic!("data race: thread {me} reads what thread {writer} writes");
        };
        if self.reads.len() <= me {
            self.reads.resize(me + 1, 0);
        }
        self.reads[me] = now;
    }

    #[track_caller]
    pub(super) fn write(&mut self) {
        self.read();
        let me = me();
        let reads = std::mem::take(&mut self.reads);
        let (now, racing) = with(|world| {
            let stamp = stamp_of(world, me);
            let known = |thread: usize| stamp.get(thread).copied().unwrap_or(0);
            let racing = (0..reads.len()).find(|thread| reads[*thread] > known(*thread));
            (stamp[me], racing)
        });
        if let Some(reader) = racing {
            panic!("data race: thread {me} writes what thread {reader} reads");
        }
        self.write = (me, now);
    }
}

/// A marker that is erased when its memory is dropped. An access after that panics, unless the
/// memory has been overwritten with the marker since.
#[derive(Debug)]
pub(super) struct Alive(Cell<u32>);

impl Alive {
    const YES: u32 = 0x5A4C_19E7;

    pub(super) const fn new() -> Self {
        Self(Cell::new(Self::YES))
    }

    #[track_caller]
    pub(super) fn check(&self) {
        assert!(self.0.get() == Self::YES, "used after it is gone");
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        // `black_box` keeps the compiler from removing this write as a dead store.
        std::hint::black_box(&self.0).set(0);
    }
}
