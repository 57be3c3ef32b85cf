//! Ending a pool: close it, empty the queue if asked to, tell idle workers, wait for the
//! others, join.
//!
//! A task is queued only while a worker lives, and the last worker leaves only by putting an
//! empty queue to sleep, under the registry's lock. So once no worker lives and none is being
//! started, nothing is left.

use super::core::{Core, Registry};
use super::discard::is_discarding;
use super::threads::NotSpawned;
use crate::parts::deadline::Deadline;
use crate::stats::{Shutdown, ShutdownReport, WorkerSnapshot};
use crate::sync::{self, lock, Arc, Ordering};
use crate::work::job::NeverRan;
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
    whom: WaitsFor,
) -> ShutdownReport {
    let discards = core.close(mode);
    let waits = !core.env.is_own_worker() && !is_discarding();
    if !core.env.is_forked() {
        // Before what discarded tasks captured is dropped: that may take its time.
        core.waiters.notify_all();
        let most = if discards { usize::MAX } else { 0 };
        let queued = core.take_out(most, |task| !task.must_run());
        // ORDERING: L1: the discards of this call come before its report.
        let count = queued.len() as u64;
        core.counts.shut_out.fetch_add(count, Ordering::SeqCst);
        core.retire_idle();
        core.discard(queued, NeverRan::Discarded);
    }
    // Or since then, by what a discarded task had captured.
    if core.env.is_forked() {
        return ShutdownReport {
            discarded: 0,
            stragglers: Vec::new(),
        };
    }
    let stragglers = if waits {
        wait(core, timeout, whom)
    } else {
        core.stragglers_and_self()
    };
    let report = ShutdownReport {
        // ORDERING: L1: as above.
        discarded: core.counts.shut_out.load(Ordering::SeqCst),
        stragglers,
    };
    if waits {
        for worker in &report.stragglers {
            observe::straggler(&core.env, worker);
        }
    }
    report
}

/// Waits until every thread of the pool has ended and been joined. The timeout bounds the wait
/// for workers, those included that the OS is starting; what a joined thread's destructors take comes on
/// top.
fn wait(core: &Arc<Core>, timeout: Duration, whom: WaitsFor) -> Vec<WorkerSnapshot> {
    let deadline = Deadline::from_now(timeout);
    let mut registry = lock(&core.registry);
    let mut has_failed = false;
    while registry.live + registry.starting > 0 {
        if deadline.has_passed() {
            return core.stragglers(&mut registry);
        }
        let mut left = deadline.left();
        if whom == WaitsFor::Wanted {
            if core.is_nobody_wanted(&mut registry) {
                if has_failed || !core.lacks_a_worker(&registry) {
                    return core.stragglers(&mut registry);
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
    /// With this thread, if it is a worker that has left its slot: its thread-local destructors run.
    fn stragglers_and_self(&self) -> Vec<WorkerSnapshot> {
        let mut registry = lock(&self.registry);
        let mut stragglers = self.stragglers(&mut registry);
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
    fn is_nobody_wanted(&self, registry: &mut Registry) -> bool {
        if registry.live == 0 || registry.starting > 0 {
            return false;
        }
        registry.forget_ended_groups();
        let before = self.all_abandoned(registry);
        before.is_some() && before == self.all_abandoned(registry)
    }

    /// What each worker runs, by its tasks so far, if nobody waits for any of them.
    fn all_abandoned(&self, registry: &Registry) -> Option<Vec<Tally>> {
        let now = self.env.nanos_now();
        let slots = self.slots.iter().zip(&registry.workers);
        slots
            .filter(|(_, worker)| worker.is_some())
            .map(|(slot, _)| {
                let tally = slot.record.tally(|| slot.see().generation());
                let is_abandoned = registry.is_abandoned(&slot.record, now);
                (is_abandoned && tally.is_running()).then_some(tally)
            })
            .collect()
    }
}
