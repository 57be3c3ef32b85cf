//! How long a thread stays awake for something that is about to happen.
//!
//! A hand-over between two running threads takes a fraction of a microsecond. Waking a parked
//! thread takes tens of microseconds. So a waiting thread spins for a few microseconds if another
//! core can make progress meanwhile, then yields a few times, then parks. It pauses between two
//! looks, because each look takes the cache line away from the thread that is about to write it.
//! The pause lasts at most about as long as a cache line takes from one core to another and back.

use crate::sync::{spin_loop, thread};
use std::cell::Cell;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// In models it makes no difference how long a thread spins.
const IN_MODELS: bool = cfg!(any(lazypool_loom, lazypool_shuttle));

/// The number of `spin_loop`s between two looks. One takes 10 to 140 cycles, depending on the
/// processor. Two of them must not last longer than the fastest round trip of a cache line, or the
/// thread sees its outcome late: `benches/NOTEBOOK.md` has the measurements.
const PAUSES: u32 = 2;
/// How often a thread looks while it spins.
const LOOKS: u32 = if IN_MODELS { 0 } else { 256 / PAUSES };
/// How often a thread looks in a long spin, which lasts longer than waking a thread takes.
const MANY_LOOKS: u32 = 16 * LOOKS;
/// How many looks come before the first yield, in a long spin or if an early yield has helped
/// before.
const FEW_LOOKS: u32 = 16 / PAUSES;
/// How often a thread yields before it parks.
const YIELDS: u32 = if IN_MODELS { 0 } else { 2 };
/// How many looks a [`Backoff`] makes before its first yield.
const TRIES: u32 = if IN_MODELS { 3 } else { 32 };
/// How often a [`Backoff`] yields before it sleeps instead. A sleep, unlike a yield, gives the core
/// even to threads of lower priority.
const YIELDS_BEFORE_SLEEP: u32 = if IN_MODELS { u32::MAX - TRIES } else { 64 };
/// How long a [`Backoff`] sleeps each time.
const NAP: Duration = Duration::from_micros(50);

/// A bounded spin: `step` spins, then yields, then returns `Spent`. The default is spent from the
/// start.
#[derive(Debug, Default)]
pub(crate) struct BoundedSpin {
    /// Looks that are left.
    looks: u32,
    /// Yields that are left once no looks are.
    yields: u32,
    /// Looks until the next yield, while looks are left.
    yield_in: u32,
}

/// The last step of a waiting thread.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Step {
    Spun,
    Yielded,
    /// The thread has done nothing: it has waited for long enough to park.
    Spent,
}

impl BoundedSpin {
    /// Creates a spin. `parallel`: another core can run the thread that this one waits for.
    /// `early`: yield after a few looks, because this thread's last wait ended right after it
    /// yielded. Then the two threads probably share a core, and no scheduler soon separates two
    /// threads that never sleep.
    #[inline]
    pub(crate) fn new(parallel: bool, early: bool) -> Self {
        Self {
            looks: if parallel { LOOKS } else { 0 },
            yields: YIELDS,
            yield_in: if early { FEW_LOOKS } else { u32::MAX },
        }
    }

    /// Spins or yields once, or returns `Spent`.
    #[inline]
    pub(crate) fn step(&mut self) -> Step {
        if self.looks > 0 {
            self.looks -= 1;
            self.yield_in -= 1;
            if self.yield_in > 0 {
                (0..PAUSES).for_each(|_| spin_loop());
                return Step::Spun;
            }
            self.yield_in = LOOKS;
        } else if self.yields > 0 {
            self.yields -= 1;
        } else {
            return Step::Spent;
        }
        thread::yield_now();
        Step::Yielded
    }
}

/// How long a worker spins before it sleeps. It spins longer, once, after it was woken soon after
/// it had gone to sleep.
///
/// Waking a thread takes longer than a spin lasts. So once a worker and a caller that waits for
/// each of its tasks have missed each other, they keep missing: each sleeps while the other is
/// being woken. One long spin breaks this cycle. It yields again and again, because the caller may
/// share the core and need it to receive its outcome. If tasks really come that slowly, a long spin
/// breaks nothing. So each one doubles the number of short sleeps before the next, until plain
/// spins have been enough for many tasks in a row.
///
/// After a few spins in vain, a worker does not spin at all until it has slept for a short time
/// again and its long spin has found something, or until it runs several tasks in a row. More tasks
/// may then come one by one, and without a spin each would have to wake the worker.
#[derive(Debug, Default)]
pub(crate) struct AdaptiveSpin {
    parallel: bool,
    /// Passed to [`BoundedSpin::new`] as `early`.
    yield_early: Cell<bool>,
    /// The next spin is a long one.
    long: Cell<bool>,
    /// Decides which short sleeps are followed by a long spin.
    rarely: Rarely,
    /// How many spins in a row have found nothing.
    misses: Cell<u32>,
}

/// Limits how often a remedy is tried that works at once or not at all: at the first occasion, then
/// after 1, 2, 4 and more occasions have passed. Many waits in a row without an occasion reset this.
#[derive(Debug, Default)]
pub(crate) struct Rarely {
    /// How many occasions are left to pass before the measure is taken again.
    passes: Cell<u32>,
    /// The value that `passes` got last. The next one is twice as large.
    pause: Cell<u32>,
    /// Waits without an occasion since the last occasion.
    enough: Cell<u32>,
}

impl Rarely {
    const LONGEST_PAUSE: u32 = 1 << 10;
    const MANY: u32 = 1 << 10;

    pub(crate) const fn new() -> Self {
        Self {
            passes: Cell::new(0),
            pause: Cell::new(0),
            enough: Cell::new(0),
        }
    }

    /// Counts an occasion. Returns `true` if the measure is to be taken now.
    pub(crate) fn is_time(&self) -> bool {
        self.enough.set(0);
        if let Some(left) = self.passes.get().checked_sub(1) {
            self.passes.set(left);
            return false;
        }
        let pause = (2 * self.pause.get()).clamp(1, Self::LONGEST_PAUSE);
        self.pause.set(pause);
        self.passes.set(pause);
        true
    }

    /// Counts a wait that gave no occasion.
    #[inline]
    pub(crate) fn went_well(&self) {
        if self.pause.get() > 0 {
            self.enough.set(self.enough.get() + 1);
            if self.enough.get() == Self::MANY {
                self.pause.set(0);
                self.passes.set(0);
            }
        }
    }
}

impl AdaptiveSpin {
    /// A sleep shorter than this suggests that a worker and a caller missed each other: one thread
    /// slept while the other was being woken.
    const SHORT: Duration = Duration::from_micros(200);
    /// After this many spins in vain, a worker stops spinning.
    const IN_VAIN: u32 = 3;

    /// Creates a worker's spin. `parallel`: as for [`BoundedSpin::new`].
    pub(crate) fn new(parallel: bool) -> Self {
        Self {
            parallel,
            ..Self::default()
        }
    }

    /// Calls `look` until it finds something or until it is time to sleep. That is at the end of
    /// the spin, or at once if the thread is to `stop`.
    ///
    /// The first look does not count as a spin. If it finds something, that was there already,
    /// perhaps since the thread slept.
    #[inline]
    pub(crate) fn look_for<T>(
        &self,
        mut look: impl FnMut() -> Option<T>,
        stop: impl Fn() -> bool,
    ) -> Option<T> {
        let mut found = look();
        if found.is_some() {
            return found;
        }
        let mut spin = self.spin();
        while !stop() {
            let step = spin.step();
            if step == Step::Spent {
                break;
            }
            found = look();
            if found.is_some() {
                self.met(step);
                return found;
            }
        }
        self.missed();
        None
    }

    #[inline]
    fn spin(&self) -> BoundedSpin {
        let mut spin = BoundedSpin::new(self.parallel, self.yield_early.get());
        if self.parallel && self.long.get() {
            (spin.looks, spin.yield_in) = (MANY_LOOKS, FEW_LOOKS);
        } else if self.misses.get() >= Self::IN_VAIN {
            (spin.looks, spin.yields) = (0, 0);
        }
        spin
    }

    /// Notes that a spin has found something after the step `after`.
    #[inline]
    fn met(&self, after: Step) {
        self.yield_early.set(after == Step::Yielded);
        self.misses.set(0);
        if !self.long.replace(false) {
            self.rarely.went_well();
        }
    }

    /// Notes that the worker has run several tasks in a row: they come faster than it runs them.
    /// The next spin yields early, because the thread that submits them may need this core.
    pub(crate) fn ran_several(&self) {
        self.misses.set(0);
        self.yield_early.set(true);
    }

    /// Notes that a spin has found nothing.
    fn missed(&self) {
        self.yield_early.set(false);
        self.long.set(false);
        self.misses.set(self.misses.get().saturating_add(1));
    }

    /// Notes that the worker was woken after a sleep that lasted for `took`.
    pub(crate) fn slept(&self, took: Duration) {
        if took >= Self::SHORT {
            self.rarely.enough.set(0);
        } else if self.rarely.is_time() {
            self.long.set(true);
        }
    }
}

/// A wait for a step that another thread is in the middle of. That thread is a few instructions
/// away from its end, unless it has lost its core. After some yields the wait sleeps, so that the
/// other thread gets a core even if it has a lower priority.
#[derive(Debug, Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    /// Waits once: spins at first, then yields, then sleeps.
    pub(crate) fn wait(&mut self) {
        self.0 = self.0.saturating_add(1);
        if self.0 <= TRIES {
            spin_loop();
        } else if self.0 <= TRIES + YIELDS_BEFORE_SLEEP {
            #[cfg(lazypool_loom)]
            crate::sync::assume_fairness();
            thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
    }

    /// Returns `true` if the wait has lasted for so long that it may never end.
    pub(crate) fn is_long(&self) -> bool {
        self.0 >= TRIES + 64
    }
}

/// Returns the number of cores that can run threads of this process. The OS is asked once: on Linux
/// the answer takes several files and tens of microseconds, which is more than the rest of building
/// a pool.
pub(crate) fn cores() -> usize {
    // An atomic, not a `OnceLock`: after a fork while another thread fills a `OnceLock`, it would
    // stay half filled in the child forever.
    static CORES: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: two threads may both ask the OS, and get the same answer.
    let mut cores = CORES.load(Ordering::Relaxed);
    if cores == 0 {
        cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        CORES.store(cores, Ordering::Relaxed);
    }
    cores
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "backoff_tests.rs"]
mod tests;
