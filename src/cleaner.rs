//! Retirement: which workers are surplus, and the thread that tells them.
//!
//! Looking at how long each worker has been idle does not work: where tasks
//! come from threads that share nothing, the ready ring hands them out in
//! rotation, and a trickle keeps every worker young. So the cleaner asks
//! demand instead, by the second-chance rule of page replacement (CLOCK,
//! F. Corbato, 1968), with a bench instead of a hand:
//!
//! * Now and then it marks every idle worker `BENCHED`. A submitter takes one of
//!   those only if no other worker is idle, the lowest slot first, and by that
//!   it is off the bench.
//! * A worker that is still benched after `idle_timeout` was not needed at any
//!   moment of that time, whichever others were: it is told to end.
//!
//! A benched worker was idle before, so nobody retires early; the next bench
//! comes at most a quarter of the timeout after a worker went idle, so nobody
//! retires later than one and a quarter timeouts and the finest tick. The thread
//! exists only while there is a worker it could retire. With everybody on the
//! bench it sleeps until the first is due; with nobody there it sleeps until a
//! worker about to park wakes it (`DOZING`, a Dekker pair with `PARKED`).
//!
//! A worker starts it, too (`MISSING`): one that has been idle for a quarter of the
//! timeout; or, where all are woken before, any about to park a quarter later. So no
//! submission waits for a thread it does not need, and a shutdown has that worker,
//! which has not ended, for its straggler while the system is slow. Where there is
//! no thread to be had, one of them tries again each quarter.

use crate::shared::{Registry, Shared, BENCHED};
use crate::slot::RETIRING;
use crate::sync::{lock, thread, Arc, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// There is no cleaner, and need not be one.
const ABSENT: u32 = 0;
/// There should be one, and is none yet: workers sleep on a timer, and start it.
const MISSING: u32 = 1;
/// It sleeps, or is about to look around and sleep.
const DOZING: u32 = 2;
/// It has been woken, or runs.
const AWAKE: u32 = 3;
/// It may have to end.
const CALLED: u32 = 4;

/// The finest time between two benches.
const FINEST: Duration = Duration::from_micros(250);

/// The cleaner's thread, in the registry.
#[derive(Debug, Default)]
pub(crate) enum Cleaner {
    #[default]
    Absent,
    Starting,
    Here(thread::JoinHandle<()>),
}

#[derive(Debug)]
pub(crate) struct Cleaning {
    state: AtomicU32,
    /// When to try to start it: nanoseconds after the pool's epoch.
    due: AtomicU64,
}

impl Cleaning {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU32::new(ABSENT),
            due: AtomicU64::new(0),
        }
    }

    /// Calls the cleaner to see whether it should end.
    pub(crate) fn wake(&self, registry: &Registry) {
        if let Cleaner::Here(cleaner) = &registry.cleaner {
            self.state.swap(CALLED, Ordering::SeqCst);
            cleaner.thread().unpark();
        }
    }
}

impl Shared {
    fn is_cleaner_of_use(&self, registry: &Registry) -> bool {
        registry.live > self.settings.min_workers
            && self.settings.idle_timeout != Duration::MAX
            && !self.is_closed()
    }

    /// Sees to it that workers start a cleaner if there should be one; when the
    /// worker on the slot `new` has been started.
    pub(crate) fn want_cleaner(&self, registry: &Registry, new: usize) {
        // No clock in models: only one that acts at once has a thread there.
        let timed = cfg!(lazypool_loom) && !self.settings.idle_timeout.is_zero();
        if timed || !self.is_cleaner_of_use(registry) {
            return;
        }
        // Under the lock, as are all changes from and to ABSENT.
        if self.cleaning.state.load(Ordering::SeqCst) == ABSENT {
            self.put_cleaner_off();
            self.cleaning.state.swap(MISSING, Ordering::SeqCst);
            if registry.live == 1 {
                return;
            }
            // Who sleeps already could not know.
            let others = registry
                .handles
                .iter()
                .enumerate()
                .filter(|(s, _)| *s != new);
            for handle in others.filter_map(|(_, handle)| handle.as_ref()) {
                handle.thread().unpark();
            }
        }
    }

    /// A quarter of the timeout, and not less than a millisecond.
    fn cleaner_pause(&self) -> Duration {
        (self.settings.idle_timeout / 4).max(Duration::from_millis(1))
    }

    /// Nobody tries to start the cleaner before that.
    fn put_cleaner_off(&self) {
        let due = (self.epoch.elapsed() + self.cleaner_pause()).as_nanos();
        // Relaxed: it says when, nothing else. Beyond 584 years, 584 years.
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        self.cleaning.due.store(due, Ordering::Relaxed);
    }

    /// Worker: starts the cleaner if there should be one; `false` if another is
    /// about to, or there should be none.
    fn start_cleaner(self: &Arc<Self>) -> bool {
        let mut registry = lock(&self.registry);
        let absent = matches!(registry.cleaner, Cleaner::Absent);
        if !absent || !self.is_cleaner_of_use(&registry) {
            return false;
        }
        registry.cleaner = Cleaner::Starting;
        self.put_cleaner_off();
        drop(registry);
        let shared = Arc::clone(self);
        let spawned = thread::Builder::new()
            .name(format!("{}-cleaner", self.settings.thread_name))
            .spawn(move || main(&shared));
        let mut registry = lock(&self.registry);
        registry.cleaner = match spawned {
            Ok(handle) => {
                handle.thread().unpark();
                Cleaner::Here(handle)
            }
            Err(_) => {
                self.counts.spawn_failures.fetch_add(1, Ordering::Relaxed);
                Cleaner::Absent
            }
        };
        true
    }

    /// Worker, about to park: sees to it that a cleaner will look at it.
    #[inline]
    pub(crate) fn tell_cleaner(self: &Arc<Self>, slot: usize) {
        if self.cleaning.state.load(Ordering::SeqCst) == DOZING {
            self.tell_cleaner_slowly(slot);
        }
    }

    #[cold]
    fn tell_cleaner_slowly(self: &Arc<Self>, slot: usize) {
        if !self.slots[slot].see().is_benched() {
            let woken = self.cleaning.state.compare_exchange(
                DOZING,
                AWAKE,
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            if woken.is_ok() {
                if let Cleaner::Here(cleaner) = &lock(&self.registry).cleaner {
                    cleaner.thread().unpark();
                }
            }
        }
    }

    /// Worker: sleeps; on a timer only as long as there ought to be a cleaner and is
    /// none. It may return for no reason.
    pub(crate) fn sleep_idle(self: &Arc<Self>, slot: usize) {
        if self.cleaning.state.load(Ordering::SeqCst) == MISSING {
            self.sleep_without_cleaner(slot);
        } else {
            thread::park();
        }
    }

    #[cold]
    #[cfg(not(lazypool_loom))]
    fn sleep_without_cleaner(self: &Arc<Self>, slot: usize) {
        let pause = self.cleaner_pause();
        // Relaxed: as in `put_cleaner_off`.
        let due = || Duration::from_nanos(self.cleaning.due.load(Ordering::Relaxed));
        let left = |at: Duration| at.saturating_sub(self.epoch.elapsed());
        let mut limit = left(due());
        if limit.is_zero() {
            limit = left(due() + pause);
        }
        if limit.is_zero() {
            // Nobody has been idle for long enough: tasks go round.
            if self.start_cleaner() {
                return;
            }
            limit = pause;
        }
        thread::park_timeout(limit);
        if self.slots[slot].see().is_idle() && left(due()).is_zero() {
            self.start_cleaner();
        }
    }

    #[cfg(lazypool_loom)]
    fn sleep_without_cleaner(self: &Arc<Self>, _: usize) {
        if !self.start_cleaner() {
            thread::park();
        }
    }

    /// Marks an idle worker, unless it is benched already.
    pub(crate) fn bench(&self, slot: usize) -> bool {
        self.transit.add(BENCHED);
        let benched = self.slots[slot].bench();
        if !benched {
            self.transit.sub(BENCHED);
        }
        benched
    }
}

/// What is left to do after a look around.
pub(crate) enum Round {
    End,
    Sleep(Option<Duration>),
}

fn main(shared: &Arc<Shared>) {
    let state = &shared.cleaning.state;
    let tick = (shared.settings.idle_timeout / 4).max(FINEST);
    let mut since = Vec::new();
    while matches!(lock(&shared.registry).cleaner, Cleaner::Starting) {
        thread::park(); // until it is registered
    }
    loop {
        state.swap(DOZING, Ordering::SeqCst);
        match look_around(shared, &mut since) {
            Round::End => return,
            // Whoever wakes it says so before; it may have before this thread
            // was there to be unparked.
            Round::Sleep(None) => {
                while state.load(Ordering::SeqCst) == DOZING {
                    thread::park();
                }
            }
            #[cfg(not(lazypool_loom))]
            Round::Sleep(Some(limit)) if state.load(Ordering::SeqCst) == DOZING => {
                thread::park_timeout(limit);
            }
            #[cfg(not(lazypool_loom))]
            Round::Sleep(Some(_)) => {}
            #[cfg(lazypool_loom)]
            Round::Sleep(Some(_)) => unreachable!("its timeout is zero"),
        }
        // Woken by a worker going to sleep: others may follow, once a tick is
        // enough for them all.
        #[cfg(not(lazypool_loom))]
        {
            let until = Instant::now() + tick;
            while state.load(Ordering::SeqCst) == AWAKE {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                thread::park_timeout(left);
            }
        }
        #[cfg(lazypool_loom)]
        let _ = tick;
    }
}

/// Benches whom it can, retires whose time has come.
pub(crate) fn look_around(shared: &Shared, since: &mut Vec<Option<Instant>>) -> Round {
    let timeout = shared.settings.idle_timeout;
    let mut guard = lock(&shared.registry);
    let registry = &mut *guard;
    if !shared.is_cleaner_of_use(registry) {
        shared.cleaning.state.swap(ABSENT, Ordering::SeqCst);
        // Its own handle: it cannot join itself.
        if let Cleaner::Here(own) = std::mem::take(&mut registry.cleaner) {
            registry.graveyard.push(own);
        }
        shared.changed.notify_all();
        return Round::End;
    }
    since.resize(registry.handles.len(), None);
    let ending = (registry.handles.iter().enumerate())
        .filter(|(slot, h)| h.is_some() && shared.slots[*slot].see().state() == RETIRING)
        .count();
    let mut surplus = (registry.live - shared.settings.min_workers).saturating_sub(ending);
    let now = Instant::now();
    let mut next: Option<Instant> = None;
    // Submitters take the lowest benched slot; retire from the other end.
    for (slot, handle) in registry.handles.iter().enumerate().rev() {
        let Some(handle) = handle else { continue };
        let seen = shared.slots[slot].see();
        if !seen.is_idle() {
            continue;
        }
        if !seen.is_benched() {
            if !shared.bench(slot) {
                continue;
            }
            since[slot] = Some(now);
        }
        let due = since[slot].and_then(|at| at.checked_add(timeout));
        if surplus == 0 {
            continue;
        }
        match due {
            Some(due) if due <= now => surplus -= usize::from(shared.retire(slot, handle, true)),
            Some(due) => next = Some(next.map_or(due, |n| n.min(due))),
            None => {}
        }
    }
    Round::Sleep(next.map(|at| at.saturating_duration_since(now)))
}
