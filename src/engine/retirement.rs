//! The idle cleaner: which workers are surplus, and who tells them to end.
//!
//! How long each worker has been idle does not say how many are needed: the ready ring hands them
//! out in rotation, so a trickle of tasks keeps every worker young. So the cleaner measures demand.
//! At each sweep it moves all idle workers from the ready ring to a stack, the *bench*. Submissions
//! take a worker from the bench only if the ready ring is empty, and then the one that came to it
//! last. A worker that has sat on the bench for `idle_timeout` was not needed at any moment of that
//! time, whichever others were: it is told to end.
//!
//! A sweep comes every half of the timeout (half a millisecond at the least), and when the first
//! worker on the bench is due. So a worker is gone after one and a half timeouts at the latest.
//!
//! The cleaner is a thread, which exists only while there are more workers than `min_workers`. A
//! worker starts it that has slept for as long as a sweep takes to come (`clean_at`), so that a
//! submission starts no thread that it does not need. If the OS gives no thread, that worker makes
//! the sweep itself, and tries again at the next.

use super::core::{Cleaner, Core, Registry};
use crate::sync::{self, lock, now, thread, Arc, Instant, Ordering};
use crate::work::thread::start;
use std::time::Duration;

impl Core {
    pub(super) fn is_cleaner_of_use(&self, registry: &Registry) -> bool {
        registry.live > self.settings.min_workers
            && self.settings.idle_timeout != Duration::MAX
            && !self.is_closed()
    }

    /// Between two sweeps.
    fn pause(&self) -> Duration {
        (self.settings.idle_timeout / 2).max(Duration::from_micros(500))
    }

    /// A worker has been started: sees to it that a cleaner comes if there should be one. Models
    /// have no clock, and sweep themselves.
    pub(super) fn want_cleaner(&self, registry: &Registry) {
        let is_there = !matches!(registry.cleaner, Cleaner::Absent);
        if cfg!(lazypool_loom) || is_there || !self.is_cleaner_of_use(registry) {
            return;
        }
        // Relaxed: read under the lock, too, or by a worker that is unparked next.
        if self.clean_at.load(Ordering::Relaxed) == 0 {
            self.put_cleaner_off();
            // Those that sleep already do so without a timer.
            for worker in registry.workers.iter().flatten() {
                worker.thread.unpark();
            }
        }
    }

    fn put_cleaner_off(&self) {
        let at = self.env.nanos_now().saturating_add(
            // Beyond 584 years, 584 years.
            u64::try_from(self.pause().as_nanos()).unwrap_or(u64::MAX),
        );
        // Relaxed: as in `want_cleaner`.
        self.clean_at.store(at, Ordering::Relaxed);
    }

    /// The cleaner may have to end.
    pub(super) fn call_cleaner(&self, registry: &Registry) {
        if !self.is_cleaner_of_use(registry) {
            // Relaxed: a worker that misses it starts no cleaner.
            self.clean_at.store(0, Ordering::Relaxed);
            self.cleaner_called.notify_all();
        }
    }

    /// Worker: sleeps; on a timer only as long as there ought to be a cleaner and is none. It
    /// may return for no reason.
    pub(super) fn sleep_idle(self: &Arc<Self>) {
        // Relaxed: who sets it unparks this thread after that.
        match self.clean_at.load(Ordering::Relaxed) {
            0 => thread::park(),
            at => self.sleep_until(at),
        }
    }

    #[cold]
    fn sleep_until(self: &Arc<Self>, at: u64) {
        let left = || Duration::from_nanos(at.saturating_sub(self.env.nanos_now()));
        #[cfg(not(lazypool_loom))]
        if !left().is_zero() {
            thread::park_timeout(left());
        }
        if left().is_zero() {
            self.start_cleaner();
        }
    }

    /// Worker: starts the cleaner, unless another does; if there is no thread to be had, it does
    /// what the cleaner would do now.
    pub(super) fn start_cleaner(self: &Arc<Self>) {
        let mut registry = lock(&self.registry);
        let is_there = !matches!(registry.cleaner, Cleaner::Absent);
        // Relaxed: under the lock. Of those that wake at the same time one is enough.
        // Zero: there is no timer any more.
        let at = self.clean_at.load(Ordering::Relaxed);
        let is_due = at != 0 && at <= self.env.nanos_now();
        if is_there || !is_due || !self.is_cleaner_of_use(&registry) {
            if is_due && matches!(registry.cleaner, Cleaner::Starting) {
                // Whoever starts it is slow: nobody spins until it is there.
                self.put_cleaner_off();
            }
            return;
        }
        registry.cleaner = Cleaner::Starting;
        self.put_cleaner_off();
        drop(registry);
        let name = format!("{}-cleaner", self.env.name);
        let core = Arc::clone(self);
        let ended = Arc::clone(&self.ended);
        let started = start(name, None, ended, move || (core.mains.cleaner)(&core));
        let mut registry = lock(&self.registry);
        match started {
            Ok(thread) => {
                registry.cleaner = Cleaner::Here(thread);
                // Relaxed: as in `want_cleaner`.
                self.clean_at.store(0, Ordering::Relaxed);
            }
            Err(_) => {
                registry.cleaner = Cleaner::Absent;
                // Who came to want one meanwhile saw one on its way.
                self.want_cleaner(&registry);
                self.sweep(&mut registry, now());
            }
        }
        // A shutdown may wait for the outcome, and so does the cleaner.
        self.changed.notify_all();
        self.cleaner_called.notify_all();
    }

    /// Benches whom it can, retires those whose time has come. When the next is due.
    pub(crate) fn sweep(&self, registry: &mut Registry, now: Instant) -> Option<Instant> {
        // Who has been claimed since, or has looked at the queue, is not idle, or is listed.
        registry
            .bench
            .retain(|slot| self.slots[*slot].see().is_benched());
        let (_, listed) = self.ready.held();
        // ORDERING: P4: counted before they leave the ring.
        self.benched.fetch_add(listed, Ordering::SeqCst);
        for _ in 0..listed {
            let Some(slot) = self.ready.pop() else { break };
            if self.slots[slot].bench() {
                registry.bench.push(slot);
                if let Some(Some(worker)) = registry.workers.get_mut(slot) {
                    worker.benched = Some(now);
                }
            }
        }
        let next = self.retire_due(registry, now);
        // ORDERING: P4: after they are on the bench, or on their way to their end.
        self.benched
            .swap(registry.bench.len() as u64, Ordering::SeqCst);
        next
    }

    /// Those first that have been on the bench for longest, down to `min_workers`.
    fn retire_due(&self, registry: &mut Registry, now: Instant) -> Option<Instant> {
        let mut surplus = registry
            .live
            .saturating_sub(self.settings.min_workers + registry.retiring);
        let mut gone = 0;
        let mut next = None;
        while let (Some(&slot), 1..) = (registry.bench.get(gone), surplus) {
            let since = (registry.workers[slot].as_ref()).and_then(|worker| worker.benched);
            let due = since.and_then(|since| since.checked_add(self.settings.idle_timeout));
            if due.is_none_or(|due| due > now) {
                next = due;
                break;
            }
            surplus -= usize::from(self.retire(registry, slot, true));
            gone += 1;
        }
        registry.bench.drain(..gone);
        next
    }

    /// Where the ready ring is empty: takes the worker that came to the bench last.
    pub(super) fn claim_benched(&self) -> Option<(usize, crate::parts::slot::Claim)> {
        if !self.is_any_benched() {
            return None;
        }
        let mut registry = lock(&self.registry);
        let claimed = loop {
            let Some(slot) = registry.bench.pop() else {
                break None;
            };
            if let Some(claim) = self.slots[slot].claim_benched() {
                break Some((slot, claim));
            }
        };
        // ORDERING: P4: after the worker was claimed.
        self.benched
            .swap(registry.bench.len() as u64, Ordering::SeqCst);
        claimed
    }

    #[inline]
    pub(super) fn is_any_benched(&self) -> bool {
        // ORDERING: P1, P4: after a push, or around a look at the rings.
        self.benched.load(Ordering::SeqCst) != 0
    }
}

/// The cleaner's thread.
pub(crate) fn main(core: &Arc<Core>) {
    let mut registry = lock(&core.registry);
    while matches!(registry.cleaner, Cleaner::Starting) {
        registry = sync::wait(&core.cleaner_called, registry, None);
    }
    while core.is_cleaner_of_use(&registry) {
        let next = core.sweep(&mut registry, now());
        let pause = next.map_or(Duration::MAX, |at| at.saturating_duration_since(now()));
        let pause = pause.min(core.pause());
        registry = sync::wait(&core.cleaner_called, registry, Some(pause));
    }
    if let Cleaner::Here(own) = std::mem::take(&mut registry.cleaner) {
        lock(&core.ended).push(own);
    }
    core.changed.notify_all();
}
