//! Ending a pool: close it, empty the queue if asked to, tell idle workers, wait for the
//! others, join.
//!
//! A task is queued only while a worker lives, and the last worker leaves only by putting an
//! empty queue to sleep, under the registry's lock. So once no worker lives and none is being
//! started, nothing is left.

use super::core::{Core, Registry};
use super::threads::NotSpawned;
use crate::parts::deadline::Deadline;
use crate::stats::{Shutdown, ShutdownReport, WorkerSnapshot};
use crate::sync::{self, lock, Arc, Ordering};
use crate::work::job::{NeverRan, Task};
use crate::work::observe;
use crate::work::record::Tally;
use crate::work::thread::join;
use std::time::Duration;

/// How long a drop of the pool may take to notice that nobody waits for a task any more.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// For whose tasks an end waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    All,
    /// Not for those that nobody waits for any more.
    Wanted,
}

/// Begins a shutdown, and waits for its end unless this is one of the workers, or a call within
/// the drop of a discarded task.
pub(crate) fn shutdown(
    core: &Arc<Core>,
    mode: Shutdown,
    timeout: Duration,
    waits_for: WaitsFor,
) -> ShutdownReport {
    if core.env.is_forked() {
        return forked(core);
    }
    let discards = core.close(mode);
    let waits = !core.env.is_own_worker() && !core.is_discarding();
    // The line learns it before captures are dropped, which may take its time.
    core.serve_line();
    let queued = if discards {
        core.take_out()
    } else {
        Vec::new()
    };
    core.retire_idle();
    core.discard(queued, NeverRan::Discarded);
    if core.env.is_forked() {
        // By a capture's drop.
        return forked(core);
    }
    let stragglers = if waits {
        wait(core, timeout, waits_for)
    } else {
        core.stragglers_and_self()
    };
    let report = ShutdownReport {
        // ORDERING: L1: as above.
        discarded: core.counts.shut_out.load(Ordering::SeqCst),
        stragglers,
    };
    if waits && !report.stragglers.is_empty() {
        // Relaxed: read by the same owner's drop.
        core.gave_up.store(true, Ordering::Relaxed);
        core.tell_stragglers(&report.stragglers);
    }
    report
}

/// A child made by `fork` has no workers.
fn forked(core: &Arc<Core>) -> ShutdownReport {
    // The drop of a thread's handle reads that thread's memory, which may be gone.
    std::mem::forget(Arc::clone(core));
    ShutdownReport {
        discarded: 0,
        stragglers: Vec::new(),
    }
}

/// Waits until every thread of the pool has ended and been joined. The timeout bounds the wait
/// for workers, those included that the OS is starting; what a joined thread's destructors take comes on
/// top.
fn wait(core: &Arc<Core>, timeout: Duration, waits_for: WaitsFor) -> Vec<WorkerSnapshot> {
    let deadline = Deadline::from_now(timeout);
    let mut registry = lock(&core.registry);
    let mut has_failed = false;
    while registry.live + registry.starting > 0 {
        if deadline.has_passed() {
            return core.stragglers(&registry);
        }
        let mut left = deadline.left();
        if waits_for == WaitsFor::Wanted {
            if core.runs_only_abandoned_tasks(&registry) {
                if has_failed || !core.lacks_a_worker(&registry) {
                    return core.stragglers(&registry);
                }
                // These workers may owe the queue a look, and pay only when their task ends: so start another.
                drop(registry);
                has_failed = matches!(core.spawn_searcher(), Err(NotSpawned::Failed(_)));
                registry = lock(&core.registry);
                if has_failed {
                    continue;
                }
            }
            left = Some(left.map_or(LOOK_AGAIN, |left| left.min(LOOK_AGAIN)));
        }
        registry = sync::wait(&core.changed, registry, left);
    }
    drop(registry);
    // One shutdown at a time: what another joins is this one's, too.
    let _turn = lock(&core.joining);
    let ended = std::mem::take(&mut *lock(&core.ended));
    join(ended);
    Vec::new()
}

impl Core {
    /// Takes all queued tasks out that a shutdown may discard.
    fn take_out(&self) -> Vec<Task> {
        let mut taken = Vec::new();
        let Some(queue) = &self.queue else {
            return taken;
        };
        let mut from = queue.first();
        while let Some(task) = queue.take_wanted(&mut from, |task| !task.must_run()) {
            self.counts.discard();
            taken.push(task);
        }
        // ORDERING: L1: the discards of this call come before its report.
        (self.counts.shut_out).fetch_add(taken.len() as u64, Ordering::SeqCst);
        taken
    }

    /// Tells subscribers once of each worker that has not ended.
    fn tell_stragglers(&self, stragglers: &[WorkerSnapshot]) {
        for straggler in stragglers {
            let mut registry = lock(&self.registry);
            let worker = registry.workers.get_mut(straggler.slot);
            let is_told = worker
                .and_then(Option::as_mut)
                .is_none_or(|worker| std::mem::replace(&mut worker.is_told, true));
            // A subscriber is user code.
            drop(registry);
            if !is_told {
                observe::straggler(&self.env, straggler);
            }
        }
    }

    /// With this thread, if it is a worker that has left its slot: its thread-local destructors run.
    fn stragglers_and_self(&self) -> Vec<WorkerSnapshot> {
        let registry = lock(&self.registry);
        let mut stragglers = self.stragglers(&registry);
        if let Some(own) = self.env.own_slot() {
            if stragglers.iter().all(|worker| worker.slot != own) {
                stragglers.push(self.snapshot(&registry, own));
            }
        }
        stragglers
    }

    /// Tells every idle worker to end.
    fn retire_idle(&self) {
        let mut registry = lock(&self.registry);
        for slot in 0..registry.workers.len() {
            self.retire(&mut registry, slot, false);
        }
        self.end_sweeps(&registry);
    }

    /// Whether tasks are queued that a further worker could run.
    fn lacks_a_worker(&self, registry: &Registry) -> bool {
        registry.live + registry.starting < registry.limit && !self.nothing_queued()
    }

    /// Whether at one moment every worker that there may be ran a task that nobody waits for: each
    /// did so before and after that moment, without an end in between.
    fn runs_only_abandoned_tasks(&self, registry: &Registry) -> bool {
        if registry.live == 0 || registry.starting > 0 {
            return false;
        }
        let before = self.abandoned_tallies(registry);
        before.is_some() && before == self.abandoned_tallies(registry)
    }

    /// What each worker runs, by its tasks so far, if nobody waits for any of them.
    fn abandoned_tallies(&self, registry: &Registry) -> Option<Vec<Tally>> {
        let now = self.env.nanos_now();
        let slots = self.slots.iter().zip(&registry.workers);
        slots
            .filter(|(_, worker)| worker.is_some())
            .map(|(slot, _)| {
                let tally = slot.record.tally(|| slot.see().generation());
                let is_abandoned = slot.record.is_abandoned(now);
                (is_abandoned && tally.is_running()).then_some(tally)
            })
            .collect()
    }
}
