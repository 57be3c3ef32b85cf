//! The idle cleaner: it decides which idle workers are not needed, and tells them to end.
//!
//! The time for which a worker has been idle does not show how many workers are needed. The ready
//! ring hands workers out in rotation, so even a trickle of tasks gives every worker a task now and
//! then. The cleaner measures demand instead. Each sweep moves all idle workers from the ready ring
//! to a stack, the *bench*. Submissions take a worker from the bench only if the ready ring is
//! empty, and then the worker that was put there last. So a worker that has been on the bench for
//! `idle_timeout` was not needed at any moment of that time. It is told to end.
//!
//! A sweep takes place twice in each `idle_timeout`, but not more often than every half
//! millisecond. Another sweep takes place when the oldest worker on the bench has been there for
//! `idle_timeout`. So a worker that is not needed is gone after at most 1.5 timeouts. A sweep that finds the registry's
//! lock taken is tried again after a 32nd of a timeout, by whoever is idle then.
//!
//! The cleaner has no thread of its own. While there are more workers than `min_workers`, idle
//! workers sleep until the next sweep is due (`sweep_at`), and the first worker that wakes up makes
//! the sweep. So no thread is started for the cleaner, and none stays alive only for it.

use crate::core::Claim;
use crate::engine::shared::{Core, Registry, RegistryGuard};
use crate::sync::{now, Instant, Ordering, Patience};
use crate::work::context::while_paying;
use crate::work::owed::Kinds;
use std::time::Duration;

impl Core {
    /// Returns `true` if a sweep could end a worker, now or later.
    fn is_cleaner_of_use(&self, registry: &Registry) -> bool {
        registry.live > self.host.min_workers
            && self.host.idle_timeout != Duration::MAX
            && !self.env.is_closed()
    }

    /// Returns the time between two sweeps.
    fn pause(&self) -> Duration {
        (self.host.idle_timeout / 2).max(Duration::from_micros(500))
    }

    /// Schedules the first sweep, if sweeps could end a worker and none is scheduled. Called when a
    /// worker has been started. loom models have no clock, and call `sweep` themselves.
    pub(crate) fn begin_sweeps(&self, registry: &mut RegistryGuard<'_>) {
        let may_begin = !cfg!(lazypool_loom) && self.is_cleaner_of_use(registry);
        if may_begin && self.put_off(0, self.pause()).is_some() {
            // The workers that already sleep have set no timer. They are woken up to set one.
            registry.wake_workers(|_| true);
        }
    }

    /// Clears the time of the next sweep if sweeps could no longer end a worker. Called when a
    /// worker has ended, when the pool has been closed, and after a sweep.
    pub(crate) fn end_sweeps(&self, registry: &Registry) {
        if !self.is_cleaner_of_use(registry) {
            // Relaxed: a worker that does not see this wakes up once for nothing.
            self.host.sweep_at.store(0, Ordering::Relaxed);
        }
    }

    /// Moves the next sweep from the time `from` to `pause` from now. Returns the new time, or
    /// `None` if another thread has moved the sweep first.
    fn put_off(&self, from: u64, pause: Duration) -> Option<u64> {
        // A pause of more than 584 years is cut to 584 years.
        let pause = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        let at = self.env.nanos_now().saturating_add(pause);
        // Relaxed: the thread that changes `sweep_at` from zero then unparks all workers, so none
        // of them sleeps on without a timer.
        (self.host.sweep_at)
            .compare_exchange(from, at, Ordering::Relaxed, Ordering::Relaxed)
            .ok()
            .map(|_| at)
    }

    /// Returns the time until the next sweep: so long an idle worker may sleep. If a sweep is due already, makes the
    /// sweep instead, unless another thread sweeps or holds the registry's lock, and returns `None`.
    #[cold]
    pub(crate) fn time_to_sleep(&self) -> Option<Duration> {
        // Relaxed: see `put_off`.
        let at = self.host.sweep_at.load(Ordering::Relaxed);
        if at == 0 {
            return Some(Duration::MAX);
        }
        let left = at.saturating_sub(self.env.nanos_now());
        if left > 0 {
            return Some(Duration::from_nanos(left));
        }
        // If several workers wake up at the same time, one of them sweeps. The others sleep again: not until the next
        // sweep, because this one may find the lock taken, and then get a long task.
        if let Some(at) = self.put_off(at, self.pause() / 16) {
            while_paying(Kinds::UPKEEP, || self.sweep_if_free(at));
        }
        None
    }

    /// Sweeps, and schedules the next sweep in place of that at `at`. The OS may have stopped the thread that holds the
    /// lock. If this worker waited for the lock, it could not obey an order meanwhile.
    fn sweep_if_free(&self, at: u64) {
        let Ok(mut registry) = self.registry_by(Patience::Tries) else {
            return;
        };
        let (start, pause) = (now(), self.pause());
        let due = self.sweep(&mut registry, start);
        self.end_sweeps(&registry);
        let next = due.map_or(pause, |due| due.saturating_duration_since(start));
        self.put_off(at, next.min(pause));
    }

    /// Moves idle workers to the bench, and retires those that have been there for `idle_timeout`.
    /// Returns the time at which the next worker on the bench has to be retired.
    pub(crate) fn sweep(&self, registry: &mut RegistryGuard<'_>, now: Instant) -> Option<Instant> {
        let mut earlier = 0..registry.bench.len();
        let (_, listed) = self.ready.head_and_len();
        // ORDERING: P1: the workers are counted before they leave the ring.
        self.host.benched.fetch_add(listed, Ordering::SeqCst);
        let popped = std::iter::from_fn(|| self.ready.pop()).take(listed as usize);
        registry.bench.extend(popped.map(|slot| (slot, now)));
        // The first entries are from earlier sweeps, the others have just been popped. Earlier
        // entries are dropped if their workers have been claimed or told to end, or have gone idle
        // again through the ready ring. The latter do not count as benched until `bench` is called
        // for their new entry. If the earlier entries were checked before the ring is popped, a
        // worker could get two entries, and would end too early by the older time.
        registry.bench.retain(|(slot, _)| match earlier.next() {
            Some(_) => self.slots[*slot].load().is_benched(),
            None => self.slots[*slot].bench(),
        });
        let next = self.retire_due(registry, now);
        // ORDERING: P1: lowered after the workers are on the bench, or counted as ending.
        (self.host.benched).swap(registry.bench.len() as u64, Ordering::SeqCst);
        next
    }

    /// Retires the workers on the bench that have been there for `idle_timeout`, oldest first,
    /// until `min_workers` are left. Returns the time at which the next worker has to be retired.
    fn retire_due(&self, registry: &mut RegistryGuard<'_>, now: Instant) -> Option<Instant> {
        while registry.live > self.host.min_workers + registry.retiring {
            let (slot, since) = *registry.bench.front()?;
            let due = since.checked_add(self.host.idle_timeout);
            if due.is_none_or(|due| due > now) {
                return due;
            }
            registry.bench.pop_front();
            self.retire(registry, slot, true);
        }
        None
    }

    /// Claims the worker that was put on the bench last. Submissions call this when the ready ring
    /// is empty.
    pub(crate) fn claim_benched(&self) -> Option<(usize, Claim<'_>)> {
        if !self.is_any_benched() {
            return None;
        }
        let mut registry = self.registry();
        let claim = |(slot, _): (usize, _)| Some((slot, self.slots[slot].claim_benched()?));
        let claimed = std::iter::from_fn(|| registry.bench.pop_back()).find_map(claim);
        // ORDERING: P1: lowered after the worker was claimed.
        (self.host.benched).swap(registry.bench.len() as u64, Ordering::SeqCst);
        claimed
    }

    #[inline]
    pub(crate) fn is_any_benched(&self) -> bool {
        // ORDERING: P1: read after a push into the queue.
        self.host.benched.load(Ordering::SeqCst) != 0
    }
}
