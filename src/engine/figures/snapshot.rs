//! The figures that a pool reports.
//!
//! The figures on tasks come from counts that only grow: tasks handed over, pushed, taken from the
//! queue, ended, taken back. The numbers of queued and of running tasks are differences of these
//! counts. While a task moves, it may for a moment be in no figure, or in two. Once the pool is at
//! rest, the figures add up. Ends are read before acceptances (L1), so each task whose end is
//! counted is also counted as accepted. If the figures show no running task, they include the ends
//! of all tasks that have run.

use crate::engine::figures::tally_of;
use crate::engine::shared::{Core, Registry, Stopping};
use crate::parts::slot::State;
use crate::stats::{Stats, WorkerSnapshot};
use crate::sync::{AtomicU64, Ordering};
use crate::work::env::WorkerId;
use crate::work::owed::Kinds;
use std::time::Duration;

/// A worker that has not ended by the timeout of a shutdown.
pub(crate) struct Straggler {
    pub(crate) worker: WorkerId,
    pub(crate) snapshot: WorkerSnapshot,
    /// Set if it has no task, runs no user code, and is about to end, because nothing is queued. (A submission with a permit in
    /// hand may still give it a task.)
    pub(crate) ends: bool,
}

/// Returns `true` if a worker in this state, which runs no task and pays these debts, has no user code before it but for its hooks. One that has just taken a task may not
/// have counted it, and one that has ended a task not noted what it is about to pay.
fn rests(state: State, pays: Kinds) -> bool {
    use State::{Idle, Notified, Paying, Retiring};
    match state {
        Idle | Notified | Retiring => matches!(pays, Kinds::NONE | Kinds::END | Kinds::UPKEEP),
        _ => (state, pays) == (Paying, Kinds::END),
    }
}

impl Straggler {
    /// Returns a worker that has left its slot. Another worker may have the slot by now, whose task is none of this
    /// one's.
    pub(crate) fn without_slot(worker: WorkerId, tasks: u64) -> Self {
        let snapshot = WorkerSnapshot {
            slot: worker.slot,
            busy: false,
            label: None,
            abandoned: false,
            abandoned_for: None,
            running_for: None,
            tasks,
        };
        Self {
            worker,
            snapshot,
            ends: false,
        }
    }
}

/// How often a snapshot of a worker is tried whose tasks end meanwhile. Then it does not say that a task is abandoned.
const TRIES: usize = 8;

impl Core {
    /// Returns the pool's figures.
    pub(crate) fn stats(&self) -> Stats {
        let refusals = self.host.counts.refusals();
        let mut stats = Stats {
            refused: refusals.total(),
            refusals,
            ..Stats::default()
        };
        let counts = &self.host.counts;
        // ORDERING: L1: ends are read before acceptances.
        let load = |count: &AtomicU64| count.load(Ordering::SeqCst);
        (stats.spawned, stats.retired) = self.host.headcount.starts_and_ends();
        stats.workers = (stats.spawned - stats.retired) as usize;
        stats.expired = load(&counts.expired);
        stats.discarded = load(&counts.discarded);
        stats.timed_out = load(&self.env.counts.timed_out);
        let taken = self.add_slots(&mut stats);
        let pushed = self.queue.pushed();
        stats.accepted = stats.accepted.wrapping_add(pushed);
        // Tasks that expired or were discarded before they reached a worker have also left the
        // queue. The difference is clamped, because a task that has left the queue may not be
        // counted yet.
        let gone = taken.wrapping_add(stats.expired + stats.discarded);
        let queued = (pushed.wrapping_sub(gone) as i64).max(0) as usize;
        stats.queued = queued.min(self.queue_capacity);
        if stats.queued == 0 {
            stats.oldest_queued = None;
        }
        // Tasks beyond the capacity are in the queue only until the workers that are being woken for
        // them have taken them. They count as handed over.
        let handed_over = (queued - stats.queued).min(self.max_workers() - stats.running);
        stats.running += handed_over;
        stats.idle = stats.idle.saturating_sub(handed_over).min(stats.workers);
        // Relaxed: a figure, which may be behind.
        let peak = self.host.headcount.peak.load(Ordering::Relaxed) as usize;
        stats.peak_workers = peak.max(stats.workers);
        stats.waiting = self.host.line.waiting() as usize;
        stats.spawn_failures = load(&counts.spawn_failures);
        stats.hook_panics = load(&self.env.counts.hook_panics);
        stats
    }

    /// Adds the figures of all slots to `stats`. Returns the number of tasks taken from the queue,
    /// less those that a worker had and did not run, which are already in the counts of expired and
    /// discarded tasks.
    fn add_slots(&self, stats: &mut Stats) -> u64 {
        let mut taken = 0_u64;
        let now = self.env.nanos_now();
        let age = |since: u64| Duration::from_nanos(now.saturating_sub(since));
        for slot in self.used_slots() {
            let record = &slot.record;
            let tally = tally_of(slot);
            let [completed, panicked, unrun, offered_again] = tally.ended;
            stats.completed = stats.completed.wrapping_add(completed);
            stats.panicked = stats.panicked.wrapping_add(panicked);
            taken = taken.wrapping_add(tally.taken).wrapping_sub(unrun);
            let accepted_here = tally.generation.wrapping_sub(offered_again);
            stats.accepted = stats.accepted.wrapping_add(accepted_here);
            if tally.is_running() {
                stats.running += 1;
                let started = record.described(tally).1;
                stats.longest_running = stats.longest_running.max(started.map(age));
                stats.abandoned += usize::from(record.is_abandoned(now));
            } else if record.tasks_before().is_some() && slot.load().is_in_service() {
                stats.idle += usize::from(!record.is_new());
            }
        }
        let oldest = self
            .host
            .ages
            .as_ref()
            .and_then(|ages| ages.oldest(&self.queue));
        stats.oldest_queued = oldest.map(age);
        taken
    }

    /// Returns snapshots of the workers that exist, ordered by slot.
    pub(crate) fn workers(&self) -> Vec<WorkerSnapshot> {
        let snapshot = |slot| self.snapshot_of_worker(slot);
        (0..self.used_slots().len()).filter_map(snapshot).collect()
    }

    /// Returns snapshots of the threads that a shutdown waits for: the workers that exist, those that
    /// are being started, and those that have left their slot and run their stop hook.
    pub(crate) fn stragglers(&self, registry: &Registry) -> Vec<Straggler> {
        let is_there = |slot: &usize| {
            registry.has_worker(*slot) || registry.starting > 0 && self.slots[*slot].is_held()
        };
        let mut stragglers: Vec<_> = (0..self.slots.len())
            .filter(is_there)
            .map(|slot| self.straggler(registry, slot))
            .collect();
        let stopping = |it: &Stopping| Straggler::without_slot(it.worker, it.tasks);
        stragglers.extend(registry.stopping.iter().map(stopping));
        stragglers
    }

    fn straggler(&self, registry: &Registry, slot: usize) -> Straggler {
        let (it, record) = (&self.slots[slot], &self.slots[slot].record);
        let now = || {
            let tally = tally_of(it);
            let does_nothing = !tally.is_running() && rests(it.load().state(), record.pays());
            does_nothing.then_some(tally)
        };
        let before = now();
        let snapshot = self.snapshot(slot);
        let does_nothing = before.is_some() && before == now() && !record.is_new();
        Straggler {
            worker: registry.started_on(slot),
            snapshot,
            ends: registry.has_worker(slot) && does_nothing && self.queue.is_empty(),
        }
    }

    fn snapshot_of_worker(&self, slot: usize) -> Option<WorkerSnapshot> {
        (self.slots[slot].record.tasks_before()).map(|_| self.snapshot(slot))
    }

    /// Returns how many tasks the worker on a slot has run.
    pub(crate) fn tasks_of(&self, slot: usize) -> u64 {
        let it = &self.slots[slot];
        it.record.tasks_of_worker(tally_of(it))
    }

    /// Returns a snapshot of the worker on a slot.
    pub(crate) fn snapshot(&self, slot: usize) -> WorkerSnapshot {
        let it = &self.slots[slot];
        let record = &it.record;
        let read = || {
            let tally = tally_of(it);
            let described = record.described(tally);
            let abandoned = record.abandoned(self.env.nanos_now());
            // Both are of one task if none has ended between.
            let is_of_one = tally_of(it) == tally;
            (tally, described, is_of_one.then_some(abandoned))
        };
        let mut reading = read();
        for _ in 1..TRIES {
            if reading.2.is_none() {
                reading = read();
            }
        }
        let (tally, (label, started), abandoned) = reading;
        let (abandoned, abandoned_for) = abandoned.unwrap_or_default();
        let busy = tally.is_running();
        let now = self.env.nanos_now();
        WorkerSnapshot {
            slot,
            busy,
            label,
            abandoned: busy && abandoned,
            abandoned_for: abandoned_for.filter(|_| busy),
            running_for: started.map(|at| Duration::from_nanos(now.saturating_sub(at))),
            tasks: record.tasks_of_worker(tally),
        }
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;

    /// A worker that may be about to call user code, and has not said so yet, is told of as a straggler.
    #[test]
    fn a_worker_that_may_have_debts_does_not_end_by_itself() {
        use State::{Busy, Calling, Held, Idle, Notified, Offered, Paying, Retiring, Searching};
        for state in [Idle, Notified, Retiring] {
            assert!(rests(state, Kinds::NONE) && rests(state, Kinds::END));
            assert!(rests(state, Kinds::UPKEEP));
            assert!(!rests(state, Kinds::WAKERS));
        }
        assert!(rests(Paying, Kinds::END));
        assert!(!rests(Paying, Kinds::NONE) && !rests(Paying, Kinds::WAKERS));
        for state in [Busy, Calling, Held, Offered, Searching] {
            assert!(!rests(state, Kinds::NONE), "{state:?}");
        }
    }
}
