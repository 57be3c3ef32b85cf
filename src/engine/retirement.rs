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
//! worker on the bench is due. So a worker is gone after one and a half timeouts at the latest, or two if
//! an order comes to the worker that waits for the registry's lock to sweep.
//!
//! The cleaner has no thread of its own. As long as there are more workers than `min_workers`, idle ones
//! sleep until the next sweep is due (`sweep_at`), and the first to wake makes it. So none starts for it,
//! and none is left once it is of no use.

use super::core::{Core, Registry};
use crate::parts::slot::Claim;
use crate::sync::{lock, now, thread, try_lock, Instant, Ordering};
use std::time::Duration;

impl Core {
    fn is_cleaner_of_use(&self, registry: &Registry) -> bool {
        registry.live > self.settings.min_workers
            && self.settings.idle_timeout != Duration::MAX
            && !self.is_closed()
    }

    /// Between two sweeps.
    fn pause(&self) -> Duration {
        (self.settings.idle_timeout / 2).max(Duration::from_micros(500))
    }

    /// A worker has been started: from now on there are sweeps, if they are of use. Models have no clock,
    /// and sweep themselves.
    pub(super) fn begin_sweeps(&self, registry: &Registry) {
        let may_begin = !cfg!(lazypool_loom) && self.is_cleaner_of_use(registry);
        if may_begin && self.put_off(0, self.pause()).is_some() {
            // Those that sleep already do so without a timer.
            for worker in registry.workers.iter().flatten() {
                worker.thread.unpark();
            }
        }
    }

    /// A worker has ended, or the pool is closed: there may be no further sweeps.
    pub(super) fn end_sweeps(&self, registry: &Registry) {
        if !self.is_cleaner_of_use(registry) {
            // Relaxed: a worker that misses it wakes once in vain.
            self.sweep_at.store(0, Ordering::Relaxed);
        }
    }

    /// Puts the next sweep off, if it was to be made at `from`: until when.
    fn put_off(&self, from: u64, pause: Duration) -> Option<u64> {
        // Beyond 584 years, 584 years.
        let pause = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        let at = self.env.nanos_now().saturating_add(pause);
        // Relaxed: who sets it from zero unparks all workers after that.
        (self.sweep_at)
            .compare_exchange(from, at, Ordering::Relaxed, Ordering::Relaxed)
            .ok()
            .map(|_| at)
    }

    /// Worker: sleeps, until the next sweep at most, or makes that. It may return for no reason.
    pub(super) fn sleep_idle(&self) {
        // Relaxed: see `put_off`.
        match self.sweep_at.load(Ordering::Relaxed) {
            0 => thread::park(),
            at => self.sleep_until(at),
        }
    }

    #[cold]
    fn sleep_until(&self, at: u64) {
        let left = at.saturating_sub(self.env.nanos_now());
        if left > 0 {
            #[cfg(not(lazypool_loom))]
            thread::park_timeout(Duration::from_nanos(left));
            return;
        }
        // Of those that wake at the same time one sweeps, the others sleep on.
        let Some(at) = self.put_off(at, self.pause()) else {
            return;
        };
        let Some(mut registry) = try_lock(&self.registry) else {
            // Who holds it may be stopped. An order ends this nap.
            #[cfg(not(lazypool_loom))]
            thread::park_timeout(Duration::from_micros(50));
            self.put_off(at, Duration::ZERO);
            return;
        };
        let (start, pause) = (now(), self.pause());
        let due = self.sweep(&mut registry, start);
        self.end_sweeps(&registry);
        let next = due.map_or(pause, |due| due.saturating_duration_since(start));
        self.put_off(at, next.min(pause));
    }

    /// Benches whom it can, retires those whose time has come. When the next is due.
    pub(crate) fn sweep(&self, registry: &mut Registry, now: Instant) -> Option<Instant> {
        // Who has been claimed since, or has looked at the queue, is not idle, or is listed.
        registry
            .bench
            .retain(|slot| self.slots[*slot].see().is_benched());
        let (_, listed) = self.ready.held();
        // ORDERING: P2: counted before they leave the ring.
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
        // ORDERING: P2: after they are on the bench, or on their way to their end.
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
    pub(super) fn claim_benched(&self) -> Option<(usize, Claim)> {
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
        // ORDERING: P2: after the worker was claimed.
        self.benched
            .swap(registry.bench.len() as u64, Ordering::SeqCst);
        claimed
    }

    #[inline]
    pub(super) fn is_any_benched(&self) -> bool {
        // ORDERING: P1, P2: after a push, or around a look at the rings.
        self.benched.load(Ordering::SeqCst) != 0
    }
}
