//! What a pool tells about itself.
//!
//! Every figure comes from counts that only grow: tasks handed over, pushed, taken from the
//! queue, ended, taken back. What is queued or runs is a difference of them, so a task is
//! never lost between two places, and no figure depends on a look at a queue in motion.
//! Counts of ends are read before counts of starts, so no end is seen without its start.

use super::core::{Core, Registry};
use crate::parts::slot::State;
use crate::stats::{Stats, WorkerSnapshot};
use crate::sync::{lock, AtomicU64, Ordering};

/// Figures that were read one after the other.
struct Collected {
    stats: Stats,
    /// Tasks that left the queue without a worker, read before all else.
    removed: u64,
    /// How many more are queued than the queue can hold, by figures of different moments.
    beyond: usize,
}

impl Collected {
    /// Nothing is queued beyond what the queue can hold. What is has been removed, and is counted
    /// as ended; or a worker that counts as idle has taken it; or it has been pushed in place of
    /// one that a busy worker has taken, and counts from the next look on.
    fn settled(self, capacity: usize) -> Stats {
        let Self {
            mut stats, beyond, ..
        } = self;
        if beyond == 0 {
            return stats;
        }
        stats.queued = capacity;
        let ended = stats.completed + stats.panicked + stats.expired + stats.discarded;
        let left = (stats.queued + beyond + stats.running) as u64;
        let twice = (ended + left).saturating_sub(stats.accepted);
        let beyond = (beyond as u64).saturating_sub(twice);
        let taken = beyond.min(stats.idle as u64);
        stats.running += taken as usize;
        stats.idle -= taken as usize;
        stats.accepted -= beyond - taken;
        stats
    }
}

impl Core {
    /// The figures; read twice, until no task has ended in between. In a forked child there
    /// is nothing but refusals.
    pub(crate) fn stats(&self) -> Stats {
        if self.env.is_forked() {
            let refusals = self.counts.refusals();
            return Stats {
                refused: refusals.total(),
                refusals,
                ..Stats::default()
            };
        }
        let mut seen = self.collect();
        for _ in 0..16 {
            let again = self.collect();
            let endings = |c: &Collected| {
                let s = &c.stats;
                (s.completed, s.panicked, s.expired, s.discarded, c.removed)
            };
            if endings(&again) == endings(&seen) {
                break;
            }
            seen = again;
        }
        seen.settled(self.settings.queue_capacity)
    }

    fn collect(&self) -> Collected {
        let counts = &self.counts;
        // ORDERING: L1: ends before starts.
        let load = |n: &AtomicU64| n.load(Ordering::SeqCst);
        // The lock holds the number of workers still.
        let registry = lock(&self.registry);
        // A task is removed after it was counted as ended: read the other way round, it is
        // never in neither.
        let removed = load(&counts.removed);
        let mut stats = Stats {
            expired: load(&counts.expired),
            discarded: load(&counts.discarded),
            timed_out: load(&counts.timed_out),
            workers: registry.live,
            peak_workers: registry.peak,
            spawned: registry.spawned,
            retired: registry.retired,
            spawn_failures: load(&counts.spawn_failures),
            hook_panics: load(&self.env.hook_panics),
            ..Stats::default()
        };
        let taken = self.collect_slots(&registry, &mut stats);
        let mut beyond = 0;
        if let Some(queue) = &self.queue {
            let pushed = queue.pushed();
            let accepted = pushed.wrapping_sub(registry.pushed_again);
            stats.accepted = stats.accepted.wrapping_add(accepted);
            // Their number is small: the low 32 bits are enough.
            let gone = taken.wrapping_add(removed as u32);
            stats.queued = (pushed as u32).wrapping_sub(gone) as usize;
            beyond = stats.queued.saturating_sub(self.settings.queue_capacity);
        }
        stats.refusals = counts.refusals();
        stats.refused = stats.refusals.total();
        stats.waiting = self.waiters.waiting() as usize;
        Collected {
            stats,
            removed,
            beyond,
        }
    }

    /// Adds up the slots. Tasks taken from the queue; the low 32 bits.
    fn collect_slots(&self, registry: &Registry, stats: &mut Stats) -> u32 {
        let mut taken = 0_u32;
        let now = self.env.nanos_now();
        for (slot, handle) in self.slots.iter().zip(&registry.handles) {
            let tally = slot.record.tally(|| slot.see().generation());
            stats.completed = stats.completed.wrapping_add(tally.completed);
            stats.panicked = stats.panicked.wrapping_add(tally.panicked);
            stats.accepted = stats.accepted.wrapping_add(tally.generation);
            taken = taken.wrapping_add(tally.taken);
            if tally.is_running() {
                stats.running += 1;
                stats.abandoned += usize::from(slot.record.is_abandoned(now));
            } else if handle.is_some() {
                stats.idle += 1;
            }
        }
        taken
    }

    /// The workers that exist, by slot.
    pub(crate) fn workers(&self) -> Vec<WorkerSnapshot> {
        if self.env.is_forked() {
            return Vec::new();
        }
        self.existing(&lock(&self.registry))
    }

    pub(super) fn existing(&self, registry: &Registry) -> Vec<WorkerSnapshot> {
        let slots = registry.handles.iter().zip(&registry.tasks_before);
        (slots.enumerate())
            .filter(|(_, (handle, _))| handle.is_some())
            .map(|(slot, (_, before))| self.snapshot(slot, Some(*before)))
            .collect()
    }

    /// Those that the system has been asked for.
    pub(super) fn starting<'a>(
        &'a self,
        registry: &'a Registry,
    ) -> impl Iterator<Item = WorkerSnapshot> + 'a {
        let is_registered = |slot| matches!(registry.handles.get(slot), Some(Some(_)));
        (self.slots.iter().enumerate())
            .filter(move |(slot, it)| it.see().state() == State::Held && !is_registered(*slot))
            .map(|(slot, _)| self.snapshot(slot, None))
    }

    /// `before`: tasks that ended on the slot before this worker; `None`: all.
    fn snapshot(&self, slot: usize, before: Option<u64>) -> WorkerSnapshot {
        let it = &self.slots[slot];
        let record = &it.record;
        let tally = record.tally(|| it.see().generation());
        let busy = tally.is_running();
        let now = self.env.nanos_now();
        let tasks = tally.ended();
        WorkerSnapshot {
            slot,
            busy,
            label: record.label.get().filter(|_| busy),
            abandoned: busy && record.is_abandoned(now),
            abandoned_for: record.abandoned_for(now).filter(|_| busy),
            tasks: tasks.saturating_sub(before.unwrap_or(tasks)),
        }
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;

    /// Accepted, ended, queued, running, idle; of a queue that holds two.
    fn settled(figures: [u64; 5]) -> [u64; 5] {
        let [accepted, discarded, queued, running, idle] = figures;
        let stats = Stats {
            accepted,
            discarded,
            queued: queued as usize,
            running: running as usize,
            idle: idle as usize,
            ..Stats::default()
        };
        let seen = Collected {
            stats,
            removed: 0,
            beyond: queued.saturating_sub(2) as usize,
        };
        let s = seen.settled(2);
        let of = |figure: usize| figure as u64;
        [
            s.accepted,
            s.discarded,
            of(s.queued),
            of(s.running),
            of(s.idle),
        ]
    }

    #[test]
    fn what_the_queue_cannot_hold_is_counted_elsewhere() {
        assert_eq!(settled([3, 0, 2, 1, 1]), [3, 0, 2, 1, 1], "it holds two");
        assert_eq!(settled([3, 0, 3, 0, 1]), [3, 0, 2, 1, 0], "taken");
        assert_eq!(settled([5, 3, 3, 0, 1]), [5, 3, 2, 0, 1], "removed");
        assert_eq!(settled([4, 0, 3, 1, 0]), [3, 0, 2, 1, 0], "pushed since");
    }
}
