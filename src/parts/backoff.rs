//! How long to stay awake for something that is about to happen.
//!
//! A hand-over between two running threads takes a fraction of a microsecond,
//! waking a parked one tens of them. So: spin for a few microseconds where another
//! core can make progress meanwhile, offer the core a few times, then park. Between
//! two looks comes a pause: each look steals the cache line from the thread that is
//! about to write it.

use crate::sync::{spin_loop, thread};
use std::cell::Cell;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// In models it makes no difference how long a thread spins.
const IN_MODELS: bool = cfg!(any(lazypool_loom, lazypool_shuttle));

/// Looks while spinning.
const LOOKS: u32 = if IN_MODELS { 0 } else { 256 };
/// Looks of a long spin, which lasts longer than it takes to wake a thread.
const MANY_LOOKS: u32 = 16 * LOOKS;
/// Looks before the core is offered for the first time where that has helped, and in a long spin.
const FEW_LOOKS: u32 = 16;
/// Times the core is offered before parking.
const YIELDS: u32 = if IN_MODELS { 0 } else { 2 };
/// Looks before the core is offered, where it cannot be long.
const TRIES: u32 = if IN_MODELS { 3 } else { 32 };
/// Times the core is offered before the thread sleeps instead, which gives the core even to
/// threads of lower priority.
const OFFERS: u32 = if IN_MODELS { u32::MAX - TRIES } else { 64 };
/// How long it sleeps each time.
const NAP: Duration = Duration::from_micros(50);

/// One wait that starts spinning and ends in the advice to park; by default it is there at once.
#[derive(Debug, Default)]
pub(crate) struct BoundedSpin {
    looks: u32,
    yields: u32,
    /// Looks until the core is offered while there are looks left.
    offer_in: u32,
}

/// What the waiting thread just did.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Step {
    Spun,
    Yielded,
    /// Nothing: enough time has gone by to park.
    Spent,
}

impl BoundedSpin {
    /// `parallel`: another core can run what we wait for. `early`: what this thread waited for last
    /// came as it offered its core. It is likely to share it with whoever brings that, and no
    /// kernel hurries to part two threads that never sleep.
    #[inline]
    pub(crate) fn new(parallel: bool, early: bool) -> Self {
        Self {
            looks: if parallel { LOOKS } else { 0 },
            yields: YIELDS,
            offer_in: if early { FEW_LOOKS } else { u32::MAX },
        }
    }

    #[inline]
    pub(crate) fn step(&mut self) -> Step {
        if self.looks > 0 {
            self.looks -= 1;
            self.offer_in -= 1;
            if self.offer_in > 0 {
                spin_loop();
                return Step::Spun;
            }
            self.offer_in = LOOKS;
        } else if self.yields > 0 {
            self.yields -= 1;
        } else {
            return Step::Spent;
        }
        thread::yield_now();
        Step::Yielded
    }
}

/// How long a worker spins before it sleeps: longer, once, where it was woken soon
/// after it had gone to sleep.
///
/// Waking a thread takes longer than a spin lasts. So a worker and a caller that
/// waits for each of its tasks, once they have missed each other, would go on to do
/// so: each sleeps while the other is being woken, call after call. One long spin
/// ends that. It offers its core again and again: the caller may share it, and have its
/// value since. Where tasks do come that slowly it ends nothing; so each doubles the
/// number of short sleeps before the next, until plain spins have been enough for
/// many tasks in a row.
///
/// After a few spins in vain it does not spin at all, until a long one finds something, or it
/// runs several tasks in a row: then more may come one by one, and each would have to wake it.
#[derive(Debug)]
pub(crate) struct AdaptiveSpin {
    parallel: bool,
    /// Early: see [`BoundedSpin::new`].
    offers: Cell<bool>,
    long: Cell<bool>,
    /// Of the short sleeps: which are followed by a long spin.
    rarely: Rarely,
    /// Spins in a row that have found nothing.
    misses: Cell<u32>,
}

/// Something that helps once or not at all: done at the first occasion, then after twice as
/// many occasions each time, until many waits in a row have given none.
#[derive(Debug)]
pub(crate) struct Rarely {
    /// Occasions to let pass, and how many the next time.
    passes: Cell<u32>,
    pause: Cell<u32>,
    /// Waits since the last occasion.
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

    /// An occasion: whether to do it now.
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

    /// A wait without one.
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
    /// As a sleep where two miss each other: one thread is woken meanwhile.
    const SHORT: Duration = Duration::from_micros(200);
    /// Spins in vain before it spins no more.
    const IN_VAIN: u32 = 3;

    /// `parallel`: as for [`BoundedSpin::new`].
    pub(crate) fn new(parallel: bool) -> Self {
        Self {
            parallel,
            offers: Cell::new(false),
            long: Cell::new(false),
            rarely: Rarely::new(),
            misses: Cell::new(0),
        }
    }

    /// Looks until it finds something, or until it is time to sleep: at the end of the spin,
    /// or at once if the thread is to `stop`.
    ///
    /// What the first look finds says nothing about spins: it was there already, perhaps
    /// since the thread slept.
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
        let mut spin = BoundedSpin::new(self.parallel, self.offers.get());
        if self.parallel && self.long.get() {
            (spin.looks, spin.offer_in) = (MANY_LOOKS, FEW_LOOKS);
        } else if self.misses.get() >= Self::IN_VAIN {
            (spin.looks, spin.yields) = (0, 0);
        }
        spin
    }

    /// What it waited for came during a spin, after that step.
    #[inline]
    fn met(&self, after: Step) {
        self.offers.set(after == Step::Yielded);
        self.misses.set(0);
        if !self.long.replace(false) {
            self.rarely.went_well();
        }
    }

    /// Tasks come faster than they are run. The next look offers its core early: the thread that
    /// submits them may need it.
    pub(crate) fn ran_several(&self) {
        self.misses.set(0);
        self.offers.set(true);
    }

    /// It did not.
    fn missed(&self) {
        self.offers.set(false);
        self.long.set(false);
        self.misses.set(self.misses.get().saturating_add(1));
    }

    /// It was woken, after so long.
    pub(crate) fn slept(&self, took: Duration) {
        if took >= Self::SHORT {
            self.rarely.enough.set(0);
        } else if self.rarely.is_time() {
            self.long.set(true);
        }
    }
}

/// Waits for a step that another thread is in the middle of: a few instructions
/// away unless that thread has lost its core. Then it sleeps, so that the thread gets one.
#[derive(Debug, Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    pub(crate) fn wait(&mut self) {
        self.0 = self.0.saturating_add(1);
        if self.0 <= TRIES {
            spin_loop();
        } else if self.0 <= TRIES + OFFERS {
            #[cfg(lazypool_loom)]
            crate::sync::assume_fairness();
            thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
    }

    /// Returns `true` if it has lasted for so long that it may never end.
    pub(crate) fn is_long(&self) -> bool {
        self.0 >= TRIES + 64
    }
}

/// Cores that can run threads of this process. Asked once: on Linux the answer takes
/// several files and tens of microseconds, more than all else of building a pool.
pub(crate) fn cores() -> usize {
    // No `OnceLock`: a fork while another thread fills it would leave it so in the child for ever.
    static CORES: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: two threads may both ask, and get the same.
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
