//! Retirement: which workers are surplus, and the thread that tells them.
//!
//! Looking at how long each worker has been idle does not work: where tasks come from
//! threads that share nothing, the ready ring hands them out in rotation, and a trickle
//! keeps every worker young. So the cleaner asks demand instead, by the second-chance rule
//! of page replacement (CLOCK, F. Corbato, 1968), with a mark instead of a hand:
//!
//! * Now and then it marks every idle worker. A submitter takes a marked one only if no other
//!   worker is idle, the one claimed last first, and that takes the mark away.
//! * A worker that is still marked after `idle_timeout` was not needed at any moment of that
//!   time, whichever others were: it is told to end.
//!
//! A marked worker was idle before, so nobody retires early; the next mark comes at most a
//! quarter of the timeout after a worker went idle, so nobody retires later than one and a
//! quarter timeouts and the finest tick. The thread exists only while there is a worker it
//! could retire, and for some moments after, in which it joins the last of them. With everybody
//! marked it sleeps until the first is due; with nobody there it sleeps until a worker about to
//! park wakes it (`DOZING`, pair P8 with `PARKED`).
//!
//! A worker starts it, too (`MISSING`): one that has been idle for a quarter of the timeout; or,
//! where all are woken before, any about to park a quarter later. So no submission starts a thread
//! it does not need (a task that is handed to that worker meanwhile waits), and a shutdown has that
//! worker, which has not ended, for its straggler while the system is slow. Where there is no
//! thread to be had, one of them tries again each quarter.

use super::core::{Cleaner, Core, Registry};
use super::threads::{ABSENT, AWAKE, DOZING, MISSING};
use crate::parts::slot::Word;
use crate::sync::{lock, now, thread, Arc, Instant, Ordering};
use std::time::Duration;

/// How often the cleaner looks, before it ends, whether the last workers have.
const REAPS: u32 = 20;

/// The finest time between two marks.
const FINEST: Duration = Duration::from_micros(250);

/// Since when a slot's worker has been marked, and idle: its word's generation tells whether
/// it has had a task since.
pub(crate) type Marked = Vec<Option<(u64, Instant)>>;

impl Core {
    /// Worker, about to park: sees to it that a cleaner will look at it.
    #[inline]
    pub(super) fn tell_cleaner(&self, slot: usize) {
        // ORDERING: P8: after the worker has said that it parks.
        if self.cleaning.state.load(Ordering::SeqCst) == DOZING {
            self.tell_cleaner_slowly(slot);
        }
    }

    #[cold]
    fn tell_cleaner_slowly(&self, slot: usize) {
        if !self.slots[slot].see().is_marked() {
            self.wake_dozing_cleaner();
        }
    }

    /// There is an idle worker that the cleaner may not have seen.
    #[cold]
    pub(super) fn wake_dozing_cleaner(&self) {
        // ORDERING: P8: before it is unparked.
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

    /// Worker: sleeps; on a timer only as long as there ought to be a cleaner and is none. It
    /// may return for no reason.
    pub(super) fn sleep_idle(self: &Arc<Self>, slot: usize) {
        // ORDERING: P8: as in `tell_cleaner`.
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
        let left =
            |at: Duration| at.saturating_sub(now().saturating_duration_since(self.env.epoch));
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

    #[cold]
    #[cfg(lazypool_loom)]
    fn sleep_without_cleaner(self: &Arc<Self>, _: usize) {
        if !self.start_cleaner() {
            thread::park();
        }
    }

    /// Marks an idle worker, unless it is marked already.
    fn mark(&self, slot: usize) -> bool {
        self.in_flight.mark();
        let marked = self.slots[slot].mark();
        if !marked {
            self.in_flight.unmark();
        }
        marked
    }
}

/// What is left to do after a look around.
#[derive(Debug)]
pub(crate) enum Round {
    End,
    Sleep(Option<Duration>),
}

/// The cleaner's thread.
pub(crate) fn main(core: &Arc<Core>) {
    let state = &core.cleaning.state;
    let mut marked = Marked::new();
    let mut reaps_left = REAPS;
    while matches!(lock(&core.registry).cleaner, Cleaner::Starting) {
        thread::park(); // until it is registered
    }
    loop {
        // ORDERING: P8: before it looks who is idle.
        state.swap(DOZING, Ordering::SeqCst);
        if reaps_left > 0 && reap(core) {
            reaps_left -= 1;
            continue;
        }
        let round = look_around(core, &mut marked);
        match round {
            Round::End => return,
            // Whoever wakes it says so before; it may have before this thread was there to be
            // unparked.
            Round::Sleep(None) => {
                // ORDERING: P8: as above.
                while state.load(Ordering::SeqCst) == DOZING {
                    thread::park();
                }
            }
            Round::Sleep(Some(limit)) => sleep(core, limit),
        }
        reaps_left = REAPS;
        tick(core);
    }
}

/// Once it is of no use: joins workers that have ended. The last of them find nobody who ends after
/// them, and are a few instructions from their end. Whether one is not there yet; it has
/// waited a while then. Not for destructors that take their time: it still is the pool's
/// cleaner, and may be wanted again.
#[cfg(not(lazypool_loom))]
fn reap(core: &Core) -> bool {
    let mut registry = lock(&core.registry);
    if core.is_cleaner_of_use(&registry) || core.is_closed() {
        return false;
    }
    let ending = registry.take_ending(false);
    let is_one_left = !registry.to_join.is_empty();
    drop(registry);
    core.join(ending);
    if is_one_left {
        sleep(core, Duration::from_millis(1));
    }
    is_one_left
}

/// Threads end in their own time here.
#[cfg(lazypool_loom)]
fn reap(_: &Core) -> bool {
    false
}

#[cfg(not(lazypool_loom))]
fn sleep(core: &Core, limit: Duration) {
    // ORDERING: P8: as in `main`.
    if core.cleaning.state.load(Ordering::SeqCst) == DOZING {
        thread::park_timeout(limit);
    }
}

#[cfg(lazypool_loom)]
fn sleep(_: &Core, _: Duration) {
    unreachable!("its timeout is zero");
}

/// Woken by a worker going to sleep: others may follow, once a tick is enough for them all.
#[cfg(not(lazypool_loom))]
fn tick(core: &Core) {
    let until = now() + (core.settings.idle_timeout / 4).max(FINEST);
    // ORDERING: P8: as in `main`.
    while core.cleaning.state.load(Ordering::SeqCst) == AWAKE {
        let left = until.saturating_duration_since(now());
        if left.is_zero() {
            break;
        }
        thread::park_timeout(left);
    }
}

#[cfg(lazypool_loom)]
fn tick(_: &Core) {
    let _ = FINEST;
}

/// Marks whom it can, retires whose time has come.
pub(crate) fn look_around(core: &Core, marked: &mut Marked) -> Round {
    let mut guard = lock(&core.registry);
    let registry = &mut *guard;
    if !core.is_cleaner_of_use(registry) {
        // ORDERING: P8: under the lock, as are all changes from and to ABSENT.
        core.cleaning.state.swap(ABSENT, Ordering::SeqCst);
        match std::mem::take(&mut registry.cleaner) {
            Cleaner::Here(own) => registry.cleaner = Cleaner::Ended(own),
            other => registry.cleaner = other,
        }
        core.changed.notify_all();
        return Round::End;
    }
    marked.resize(registry.handles.len(), None);
    let mut surplus = surplus(core, registry);
    let now = now();
    let mut next: Option<Instant> = None;
    // The highest slots first: new workers begin in the lowest ones.
    for (slot, handle) in registry.handles.iter().enumerate().rev() {
        let Some(handle) = handle else { continue };
        let Some(since) = idle_since(core, slot, &mut marked[slot], now) else {
            continue;
        };
        if surplus == 0 {
            continue;
        }
        match since.checked_add(core.settings.idle_timeout) {
            Some(due) if due <= now => surplus -= usize::from(core.retire(slot, handle, true)),
            Some(due) => next = Some(next.map_or(due, |n| n.min(due))),
            None => {}
        }
    }
    Round::Sleep(next.map(|at| at.saturating_duration_since(now)))
}

/// How many workers more than `min_workers` are not on their way to their end.
fn surplus(core: &Core, registry: &Registry) -> usize {
    (registry.live - core.settings.min_workers).saturating_sub(core.retiring(registry))
}

/// Since when the worker has been idle and marked; marks it if it is idle. `None` if it is
/// not, or in its start hook.
fn idle_since(
    core: &Core,
    slot: usize,
    marked: &mut Option<(u64, Instant)>,
    now: Instant,
) -> Option<Instant> {
    let it = &core.slots[slot];
    let seen: Word = it.see();
    let is_marked = seen.is_idle() && (seen.is_marked() || core.mark(slot));
    if !is_marked || it.record.is_in_start_hook() {
        *marked = None;
        return None;
    }
    match *marked {
        Some((generation, since)) if generation == seen.generation() && seen.is_marked() => {
            Some(since)
        }
        _ => {
            *marked = Some((seen.generation(), now));
            Some(now)
        }
    }
}
