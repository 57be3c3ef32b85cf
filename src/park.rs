//! How long to stay awake for something that is about to happen.
//!
//! A hand-over between two running threads takes a fraction of a microsecond,
//! waking a parked one tens of them. So: spin for a few microseconds where another
//! core can make progress meanwhile, offer the core a few times, then park. Between
//! two looks comes a pause: each look steals the cache line from the thread that is
//! about to write it.

use crate::sync::{spin_loop, thread};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[cfg(not(lazypool_loom))]
mod limits {
    /// Looks while spinning.
    pub(super) const LOOKS: u32 = 256;
    /// Looks of a long spin, which lasts longer than it takes to wake a thread.
    pub(super) const MANY_LOOKS: u32 = 16 * LOOKS;
    /// Pauses between two looks.
    pub(super) const PAUSES: u32 = 1;
    /// Looks before the core is offered for the first time where that has helped.
    pub(super) const FEW_LOOKS: u32 = 16;
    /// Times the core is offered before parking.
    pub(super) const YIELDS: u32 = 2;
    /// Looks before the core is offered, where it cannot be long.
    pub(super) const NEARLY: u32 = 32;
}

#[cfg(lazypool_loom)]
mod limits {
    pub(super) const LOOKS: u32 = 0;
    pub(super) const MANY_LOOKS: u32 = 0;
    pub(super) const FEW_LOOKS: u32 = 0;
    pub(super) const PAUSES: u32 = 1;
    pub(super) const YIELDS: u32 = 0;
    pub(super) const NEARLY: u32 = 3;
}

/// One wait that starts spinning and ends in the advice to park.
#[derive(Debug)]
pub(crate) struct Spin {
    looks: u32,
    yields: u32,
    /// Looks until the core is offered before its time; zero: it is not.
    offer_in: u32,
    offered: bool,
}

/// What the waiting thread just did.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Step {
    Spun,
    Yielded,
    /// Nothing: enough time has gone by to park.
    Spent,
}

impl Spin {
    /// `parallel`: another core can run what we wait for.
    #[inline]
    pub(crate) fn new(parallel: bool) -> Self {
        Self {
            looks: if parallel { limits::LOOKS } else { 0 },
            yields: limits::YIELDS,
            offer_in: 0,
            offered: false,
        }
    }

    /// Offers the core early, if what this thread waited for last came by that: it is
    /// likely to share its core with whoever brings it, and no kernel hurries to part
    /// two threads that never sleep.
    #[inline]
    pub(crate) fn offering(mut self, early: bool) -> Self {
        self.offer_in = if early { limits::FEW_LOOKS } else { 0 };
        self
    }

    /// Whether the step before was to offer the core.
    #[inline]
    pub(crate) fn has_offered(&self) -> bool {
        self.offered
    }

    #[inline]
    pub(crate) fn step(&mut self) -> Step {
        self.offered = false;
        if self.looks > 0 {
            self.looks -= 1;
            if self.offer_in > 0 {
                self.offer_in -= 1;
                if self.offer_in == 0 {
                    return self.offer();
                }
            }
            for _ in 0..limits::PAUSES {
                spin_loop();
            }
            Step::Spun
        } else if self.yields > 0 {
            self.yields -= 1;
            self.offer()
        } else {
            Step::Spent
        }
    }

    fn offer(&mut self) -> Step {
        self.offered = true;
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
/// ends that. Where tasks do come that slowly it ends nothing; so each doubles the
/// number of short sleeps before the next, until plain spins have been enough for
/// many tasks in a row.
#[derive(Debug)]
pub(crate) struct Habit {
    parallel: bool,
    /// See [`Spin::offering`].
    offers: Cell<bool>,
    long: Cell<bool>,
    /// Short sleeps before the next long spin, and before the one after that.
    passes: Cell<u32>,
    pause: Cell<u32>,
    /// Waits since the last sleep for which a plain spin was enough.
    enough: Cell<u32>,
}

impl Habit {
    /// As a sleep where two miss each other: one thread is woken meanwhile.
    const SHORT: Duration = Duration::from_micros(200);
    const LONGEST_PAUSE: u32 = 1 << 10;
    const MANY: u32 = 32;

    /// `parallel`: as for [`Spin::new`].
    pub(crate) fn new(parallel: bool) -> Self {
        Self {
            parallel,
            offers: Cell::new(false),
            long: Cell::new(false),
            passes: Cell::new(0),
            pause: Cell::new(0),
            enough: Cell::new(0),
        }
    }

    /// For a wait with another behind it.
    #[inline]
    pub(crate) fn first_spin(&self) -> Spin {
        Spin::new(self.parallel).offering(self.offers.get())
    }

    /// For a wait that ends in a sleep.
    #[inline]
    pub(crate) fn spin(&self) -> Spin {
        let mut spin = self.first_spin();
        if self.parallel && self.long.get() {
            spin.looks = limits::MANY_LOOKS;
        }
        spin
    }

    /// What it waited for came during that spin.
    #[inline]
    pub(crate) fn met(&self, spin: &Spin) {
        self.offers.set(spin.has_offered());
        let long = self.long.replace(false);
        if !long && self.pause.get() > 0 {
            self.enough.set(self.enough.get() + 1);
            if self.enough.get() == Self::MANY {
                self.pause.set(0);
                self.passes.set(0);
            }
        }
    }

    /// It did not.
    pub(crate) fn missed(&self) {
        self.offers.set(false);
        self.long.set(false);
    }

    /// It was woken, after so long.
    pub(crate) fn slept(&self, took: Duration) {
        self.enough.set(0);
        if took >= Self::SHORT {
            return;
        }
        match self.passes.get() {
            0 => {
                self.long.set(true);
                let pause = (2 * self.pause.get()).clamp(1, Self::LONGEST_PAUSE);
                self.pause.set(pause);
                self.passes.set(pause);
            }
            n => self.passes.set(n - 1),
        }
    }
}

/// Waits for a step that another thread is in the middle of: a few instructions
/// away unless that thread has lost its core.
#[derive(Debug, Default)]
pub(crate) struct Nearly(u32);

impl Nearly {
    pub(crate) fn wait(&mut self) {
        if self.0 < limits::NEARLY {
            self.0 += 1;
            spin_loop();
        } else {
            #[cfg(lazypool_loom)]
            crate::sync::assume_fairness();
            thread::yield_now();
        }
    }
}

/// Cores that can run threads of this process. Asked once: on Linux the answer takes
/// several files and tens of microseconds, more than all else of building a pool.
pub(crate) fn cores() -> usize {
    static CORES: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: two threads may both ask, and get the same.
    match CORES.load(Ordering::Relaxed) {
        0 => {
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            CORES.store(cores, Ordering::Relaxed);
            cores
        }
        cores => cores,
    }
}

#[cfg(all(test, not(lazypool_loom)))]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_micros(50);

    fn is_long(habit: &Habit) -> bool {
        habit.spin().looks == limits::MANY_LOOKS
    }

    #[test]
    fn one_long_spin_after_a_short_sleep() {
        let habit = Habit::new(true);
        assert!(!is_long(&habit));
        habit.slept(Duration::from_millis(1));
        assert!(!is_long(&habit), "it was idle");
        habit.slept(SOON);
        assert!(is_long(&habit));
        assert!(habit.spin().looks > 8 * Spin::new(true).looks);
        habit.met(&habit.spin());
        assert!(!is_long(&habit), "once");
        let alone = Habit::new(false);
        alone.slept(SOON);
        assert_eq!(alone.spin().looks, 0, "nobody runs meanwhile");
    }

    #[test]
    fn long_spins_in_vain_get_rare_and_come_back() {
        let habit = Habit::new(true);
        let until_long = |habit: &Habit| {
            let mut sleeps = 0_u32;
            while !is_long(habit) {
                habit.slept(SOON);
                sleeps += 1;
            }
            habit.missed();
            sleeps
        };
        let gaps: Vec<_> = (0..13).map(|_| until_long(&habit)).collect();
        assert_eq!(gaps[..5], [1, 2, 3, 5, 9]);
        assert_eq!(gaps[11..], [1 + Habit::LONGEST_PAUSE; 2]);
        // Plain spins that were enough, but not for many tasks in a row.
        let enough = |times| (0..times).for_each(|_| habit.met(&habit.spin()));
        enough(Habit::MANY - 1);
        habit.slept(SOON);
        enough(Habit::MANY - 1);
        assert_eq!(until_long(&habit), Habit::LONGEST_PAUSE);
        enough(Habit::MANY);
        assert_eq!([until_long(&habit), until_long(&habit)], [1, 2]);
    }

    #[test]
    fn the_core_is_offered_early_where_that_has_helped() {
        let habit = Habit::new(true);
        let until_offer = || {
            let mut spin = habit.spin();
            let looks = (1..).find(|_| spin.step() == Step::Yielded);
            (looks.expect("an offer"), spin)
        };
        let (looks, spin) = until_offer();
        assert_eq!(looks, limits::LOOKS + 1);
        habit.met(&spin);
        let (looks, mut spin) = until_offer();
        assert_eq!(looks, limits::FEW_LOOKS);
        for _ in limits::FEW_LOOKS..limits::LOOKS {
            assert_eq!(spin.step(), Step::Spun, "it goes on if that was in vain");
        }
        habit.met(&spin);
        assert_eq!(until_offer().0, limits::LOOKS + 1);
    }

    #[test]
    fn a_wait_ends_in_the_advice_to_park() {
        for (parallel, looks) in [(true, limits::LOOKS), (false, 0)] {
            let mut spin = Spin::new(parallel);
            for _ in 0..looks {
                assert_eq!(spin.step(), Step::Spun);
            }
            for _ in 0..limits::YIELDS {
                assert_eq!(spin.step(), Step::Yielded);
            }
            assert_eq!([spin.step(), spin.step()], [Step::Spent; 2]);
        }
    }

    #[test]
    fn a_step_of_another_is_awaited_spinning_and_then_without_the_core() {
        let mut nearly = Nearly::default();
        for looks in 1..=2 * limits::NEARLY {
            nearly.wait();
            assert_eq!(nearly.0, looks.min(limits::NEARLY));
        }
    }
}
