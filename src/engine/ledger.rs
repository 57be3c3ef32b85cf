//! The figures that a pool reports.
//!
//! The figures on tasks come from counts that only grow: tasks handed over, pushed, taken from the
//! queue, ended, taken back. The numbers of queued and of running tasks are differences of these
//! counts. While a task moves, it may for a moment be in no figure, or in two. Once the pool is at
//! rest, the figures add up. Ends are read before acceptances (L1), so each task whose end is
//! counted is also counted as accepted. If the figures show no running task, they include the ends
//! of all tasks that have run.

use super::core::{Core, Registry};
use crate::stats::{Stats, WorkerSnapshot};
use crate::sync::{lock, AtomicU64, Ordering};
use std::time::Duration;

impl Core {
    /// Returns the pool's figures.
    pub(crate) fn stats(&self) -> Stats {
        let refusals = self.counts.refusals();
        let mut stats = Stats {
            refused: refusals.total(),
            refusals,
            ..Stats::default()
        };
        let counts = &self.counts;
        // ORDERING: L1: ends are read before acceptances.
        let load = |count: &AtomicU64| count.load(Ordering::SeqCst);
        let registry = lock(&self.registry);
        stats.expired = load(&counts.expired);
        stats.discarded = load(&counts.discarded);
        stats.timed_out = load(&self.env.counts.timed_out);
        let taken = self.add_slots(&registry, &mut stats);
        if let Some(queue) = &self.queue {
            let pushed = queue.pushed();
            stats.accepted = stats.accepted.wrapping_add(pushed);
            // Tasks that expired or were discarded before they reached a worker have also left the
            // queue. The difference is clamped, because a task that has left the queue may not be
            // counted yet.
            let gone = taken.wrapping_add(stats.expired + stats.discarded);
            let queued = pushed.wrapping_sub(gone) as i64;
            stats.queued = queued.clamp(0, self.settings.queue_capacity as i64) as usize;
        }
        stats.workers = registry.live;
        stats.peak_workers = registry.peak;
        stats.spawned = registry.spawned;
        stats.retired = registry.spawned - registry.live as u64;
        drop(registry);
        stats.waiting = self.line.waiting() as usize;
        stats.spawn_failures = load(&counts.spawn_failures);
        stats.hook_panics = load(&self.env.counts.hook_panics);
        stats
    }

    /// Adds the figures of all slots to `stats`. Returns the number of tasks taken from the queue,
    /// less two kinds of tasks: the next task of a worker, which still counts as queued, and tasks
    /// that a worker had and did not run, which are already in the counts of expired and discarded
    /// tasks.
    fn add_slots(&self, registry: &Registry, stats: &mut Stats) -> u64 {
        let mut taken = 0_u64;
        let now = self.env.nanos_now();
        let age = |since: u64| Duration::from_nanos(now.saturating_sub(since));
        for (slot, worker) in self.slots.iter().zip(&registry.workers) {
            let tally = slot.record.tally(|| slot.see().generation());
            let [completed, panicked, unrun] = tally.ended;
            stats.completed = stats.completed.wrapping_add(completed);
            stats.panicked = stats.panicked.wrapping_add(panicked);
            // A worker runs one task at a time. If it has already taken its next task, that task
            // counts as queued.
            let next = u64::from(tally.unended().saturating_sub(1));
            taken = taken.wrapping_add(tally.taken).wrapping_sub(next + unrun);
            stats.accepted = stats.accepted.wrapping_add(tally.generation);
            if tally.is_running() {
                stats.running += 1;
                let started = slot.record.described(tally).1;
                stats.longest_running = stats.longest_running.max(started.map(age));
                stats.abandoned += usize::from(slot.record.is_abandoned(now));
            } else if worker.is_some() && slot.see().is_in_service() {
                stats.idle += 1;
            }
        }
        let ages = self.ages.as_ref().zip(self.queue.as_ref());
        let oldest = ages.and_then(|(ages, queue)| ages.oldest(queue));
        stats.oldest_queued = oldest.map(age);
        taken
    }

    /// Returns snapshots of the workers that exist, ordered by slot.
    pub(crate) fn workers(&self) -> Vec<WorkerSnapshot> {
        let registry = lock(&self.registry);
        (0..registry.workers.len())
            .filter(|slot| registry.workers[*slot].is_some())
            .map(|slot| self.snapshot(&registry, slot))
            .collect()
    }

    /// Returns snapshots of the workers that exist, and of the slots on which a thread is being
    /// started.
    pub(super) fn stragglers(&self, registry: &Registry) -> Vec<WorkerSnapshot> {
        let is_there = |slot: &usize| {
            matches!(registry.workers.get(*slot), Some(Some(_)))
                || registry.starting > 0 && self.slots[*slot].is_held()
        };
        (0..self.slots.len())
            .filter(is_there)
            .map(|slot| self.snapshot(registry, slot))
            .collect()
    }

    /// Returns a snapshot of the worker on a slot.
    pub(super) fn snapshot(&self, registry: &Registry, slot: usize) -> WorkerSnapshot {
        let it = &self.slots[slot];
        let record = &it.record;
        let tally = record.tally(|| it.see().generation());
        let (busy, tasks) = (tally.is_running(), tally.ran());
        let (label, started) = record.described(tally);
        let worker = registry.workers.get(slot).and_then(Option::as_ref);
        let now = self.env.nanos_now();
        WorkerSnapshot {
            slot,
            busy,
            label,
            abandoned: busy && record.is_abandoned(now),
            abandoned_for: record.abandoned_for(now).filter(|_| busy),
            running_for: started.map(|at| Duration::from_nanos(now.saturating_sub(at))),
            tasks: worker.map_or(0, |worker| tasks.saturating_sub(worker.tasks_before)),
        }
    }
}
