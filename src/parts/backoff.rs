//! How long a thread stays awake for something that is about to happen.
//!
//! A hand-over between two running threads takes a fraction of a microsecond. Waking a parked
//! thread takes tens of microseconds. So a waiting thread spins for a few microseconds if another
//! core can make progress meanwhile, then yields a few times, then parks.
//!
//! A spinning thread pauses between two looks, because each look takes the cache line away from the
//! thread that is about to write it. The pause is one `spin_loop`, the shortest that there is. It
//! takes 10 to 140 cycles, depending on the processor. A pause that is longer than a cache line
//! takes from one core to the other makes the thread see its outcome late. `benches/NOTEBOOK.md`
//! has the measurements.

use crate::sync::{spin_loop, thread};
use std::cell::Cell;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// `true` in models. There, it makes no difference how long a thread spins, and small constants mean
/// fewer interleavings.
pub(crate) const IN_MODELS: bool = cfg!(any(lazypool_loom, lazypool_shuttle));

/// The number of looks in a plain spin.
const LOOKS: u32 = if IN_MODELS { 0 } else { 256 };
/// The number of looks in a long spin. A long spin lasts longer than waking a thread takes.
const MANY_LOOKS: u32 = 16 * LOOKS;
/// The number of looks before the first yield, in a long spin and in a spin that yields early.
const FEW_LOOKS: u32 = 16;
/// The number of looks of a worker that lingers. They take about as long as a hand-over.
const LINGERS: u32 = if IN_MODELS { 0 } else { 4 };
/// The number of yields before a thread parks.
const YIELDS: u32 = if IN_MODELS { 0 } else { 2 };
/// The number of times that a [`Backoff`] spins before its first yield.
const TRIES: u32 = if IN_MODELS { 3 } else { 32 };
/// The number of yields after which a [`Backoff`] sleeps instead. A sleep gives the core even to
/// threads of lower priority, and a yield does not.
const YIELDS_BEFORE_SLEEP: u32 = if IN_MODELS { u32::MAX - TRIES } else { 64 };
/// The length of one sleep of a [`Backoff`].
const NAP: Duration = Duration::from_micros(50);

/// A bounded spin: `step` first spins, then yields, and then returns `Spent`. The default value is
/// spent from the start.
#[derive(Debug, Default)]
pub(crate) struct BoundedSpin {
    /// The number of looks that are left.
    looks: u32,
    /// The number of yields that are left. These yields come after the last look.
    yields: u32,
    /// The number of looks until the next yield.
    yield_in: u32,
}

/// The step that a waiting thread took last.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Step {
    Spun,
    Yielded,
    /// The thread has waited for long enough, and must park. `step` has neither spun nor yielded.
    Spent,
}

impl BoundedSpin {
    /// Creates a spin. `parallel` says whether another core can run the thread that this one waits
    /// for. If `early` is set, the spin yields after a few looks, in case the two threads share a
    /// core. They probably do if this thread's last wait ended right after a yield: the other
    /// thread probably used the yield to run on this core. A scheduler needs a long time to
    /// separate two threads that never sleep.
    #[inline]
    pub(crate) fn new(parallel: bool, early: bool) -> Self {
        Self {
            looks: if parallel { LOOKS } else { 0 },
            yields: YIELDS,
            yield_in: if early { FEW_LOOKS } else { u32::MAX },
        }
    }

    /// Leaves out the yields: after its looks, the thread parks.
    pub(crate) fn without_yields(self) -> Self {
        Self {
            yields: 0,
            yield_in: u32::MAX,
            ..self
        }
    }

    /// Returns `true` if the next step is a yield.
    #[inline]
    pub(crate) fn yields_next(&self) -> bool {
        match self.looks {
            0 => self.yields > 0,
            _ => self.yield_in == 1,
        }
    }

    /// Spins or yields once, or returns `Spent`.
    #[inline]
    pub(crate) fn step(&mut self) -> Step {
        if self.looks > 0 {
            self.looks -= 1;
            self.yield_in -= 1;
            if self.yield_in > 0 {
                spin_loop();
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

/// Decides how long a worker spins before it sleeps. If the worker is woken soon after it has gone
/// to sleep, its next spin is a long one.
///
/// Waking a thread takes longer than a spin lasts. So once a worker and a caller that waits for
/// each of its tasks have missed each other, they keep missing each other: each sleeps while the
/// other is being woken. One long spin breaks this cycle. A long spin yields again and again,
/// because the caller may share the core, and needs the core to receive its outcome. If the next
/// task takes even longer to come, a long spin does not help. So after each long spin, twice as
/// many short sleeps as before must pass until the next long spin. The number starts over once
/// plain spins have found something many times in a row.
///
/// After a few spins that found nothing, a worker stops spinning. It spins again once a long spin
/// after a short sleep has found something, or once the worker has run several tasks in a row. Then
/// more tasks may come one by one. Without spins, each of them would have to wake the worker.
#[derive(Debug, Default)]
pub(crate) struct AdaptiveSpin {
    parallel: bool,
    /// The value of `early` for the next [`BoundedSpin::new`].
    yield_early: Cell<bool>,
    /// `true` if the next spin is a long one.
    long: Cell<bool>,
    /// Decides after which short sleeps the next spin is a long one.
    rarely: Throttle,
    /// The number of spins in a row that have found nothing.
    misses: Cell<u32>,
}

/// Limits how often a remedy is tried. The remedy works either at once or not at all. An *occasion*
/// is a wait after which the remedy may help. The remedy is tried on the first occasion. Then one
/// occasion passes without a try, then 2, then 4, up to 1,024 between two tries. After many waits
/// in a row without an occasion, this begins anew.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    /// The number of occasions to let pass before the remedy is tried again.
    passes: Cell<u32>,
    /// The value that `passes` was last set to. Its next value is twice as large.
    pause: Cell<u32>,
    /// The number of waits in a row that went well. Not counted while `pause` is zero.
    enough: Cell<u32>,
}

impl Throttle {
    const LONGEST_PAUSE: u32 = 1 << 10;
    const MANY: u32 = 1 << 10;

    pub(crate) const fn new() -> Self {
        Self {
            passes: Cell::new(0),
            pause: Cell::new(0),
            enough: Cell::new(0),
        }
    }

    /// Counts an occasion on which the remedy could be tried. Returns `true` if the remedy should
    /// be tried on this occasion.
    pub(crate) fn try_now(&self) -> bool {
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

    /// Counts a wait without an occasion.
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
    /// The limit of a short sleep. A sleep shorter than this suggests that a worker and a caller
    /// missed each other: one slept while the other was being woken.
    const SHORT: Duration = Duration::from_micros(200);
    /// A worker stops spinning after this many spins in a row that found nothing.
    const IN_VAIN: u32 = 3;

    /// Creates a worker's spin. `parallel` has the same meaning as in [`BoundedSpin::new`].
    pub(crate) fn new(parallel: bool) -> Self {
        Self {
            parallel,
            ..Self::default()
        }
    }

    /// Calls `look` until it finds something. Returns `None` when it is time to sleep: at the end
    /// of the spin, or at once if `stop` returns `true`.
    ///
    /// The first look does not count as a spin. What it finds was there before the spin, and may
    /// have come while the thread slept. So it does not show that a spin helps.
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

    /// Calls `look` a few times, with a pause before each. Returns `true` as soon as `look` does.
    ///
    /// A worker does this before it says that it is idle. In a stream of tasks the next one comes within
    /// this time. Then the worker need not become idle and claim itself again, for which the submitting
    /// thread and the worker would take cache lines from each other.
    #[cold]
    pub(crate) fn linger(&self, look: impl Fn() -> bool) -> bool {
        self.parallel
            && (0..LINGERS).any(|_| {
                spin_loop();
                look()
            })
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

    /// Notes that the worker has run a task and already has the next one, so tasks come faster than
    /// it runs them. The next spin yields early, because the thread that submits the tasks may need this
    /// core.
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
        } else if self.rarely.try_now() {
            self.long.set(true);
        }
    }
}

/// A wait for another thread that is between two steps. That thread is a few instructions away from
/// its second step, unless it has lost its core. After some yields the wait sleeps, so that the
/// other thread gets a core even if it has a lower priority.
#[derive(Debug, Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    /// Waits once: spins at first, then yields, and then sleeps.
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
}

/// Returns the number of cores that can run threads of this process. Asks the OS at the first call,
/// and keeps the answer. On Linux, `std` reads several files for it. That takes tens of
/// microseconds, which is longer than the rest of building a pool.
pub(crate) fn cores() -> usize {
    // This is an atomic and not a `OnceLock`. If the process forked while another thread filled a
    // `OnceLock`, the child would wait forever for that thread, which does not exist there.
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
