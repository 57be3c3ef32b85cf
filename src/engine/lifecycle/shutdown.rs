//! The end of a pool. A shutdown closes the pool, empties the queue if asked to, and tells idle
//! workers to end. Then it waits until all workers have ended, and joins their threads.
//!
//! A task is queued only while a worker lives (A1). The last worker leaves only after it has set the
//! gate's flag `ASLEEP`, under the registry's lock, which fails while a permit is taken. So once no
//! worker lives and none is being started, nothing is left in the queue.

use crate::core::host::NotStarted;
use crate::engine::figures::snapshot::Straggler;
use crate::engine::figures::tally_of;
use crate::engine::shared::{Core, Registry};
use crate::parts::backoff::Backoff;
use crate::parts::deadline::Deadline;
use crate::stats::{Shutdown, ShutdownReport};
use crate::sync::{lock, Arc, Ordering};
use crate::work::observe;
use crate::work::owed::Owed;
use crate::work::record::Tally;
use crate::work::thread::join;
use crate::work::user_code;
use std::time::Duration;

/// How long a drop of the pool waits before it checks again whether all workers run abandoned
/// tasks.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The tasks that a shutdown or drop waits for.
///
/// A drop of the pool does not wait for abandoned tasks. So a process can end even if the closure
/// of a timed-out call never returns. Every [`LOOK_AGAIN`], the drop checks whether all workers run
/// abandoned tasks. If they do not, it keeps waiting. If they do, it starts another worker if tasks
/// are queued and the limit allows one. If no worker is needed or can be started, it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// Waits for all accepted tasks.
    All,
    /// Waits for all accepted tasks except abandoned tasks, whose outcomes no thread waits for.
    NotAbandoned,
}

/// Begins a shutdown and waits for its end. Does not wait if this thread is a worker of the pool,
/// or runs user code of one of the pool's frames: see [`user_code`].
pub(crate) fn shutdown(
    core: &Arc<Core>,
    mode: Shutdown,
    timeout: Duration,
    waits_for: WaitsFor,
) -> ShutdownReport {
    if core.env.is_forked() {
        return forked(core);
    }
    // The mode is set before the gate is closed, so a thread that finds the gate closed finds the mode.
    core.env.close(mode);
    core.gate.close();
    let waits = !core.env.is_own_worker() && !user_code::is_calling(&core.env);
    let mut owed = Owed::default();
    // Refuses the submissions in line first, because the next steps may take long.
    core.turn_away(None, &mut owed);
    core.discard_all(&mut owed);
    core.retire_idle(core.registry());
    core.pay(&mut owed);
    if core.env.is_forked() {
        // A waker or the drop of a capture has forked, and this is the child.
        return forked(core);
    }
    let stragglers = if waits {
        wait(core, timeout, waits_for)
    } else {
        core.stragglers_and_self()
    };
    if waits && !stragglers.is_empty() {
        // Relaxed: only the drop of the `Pool` reads it, and every `shutdown` has returned by then.
        core.host.gave_up.store(true, Ordering::Relaxed);
        core.tell_stragglers(&stragglers);
    }
    let stragglers = stragglers.into_iter().map(|it| it.snapshot).collect();
    ShutdownReport {
        // ORDERING: L1: includes the discards of this call.
        discarded: core.host.counts.shut_out.load(Ordering::SeqCst),
        stragglers,
    }
}

/// Returns the report of a shutdown in a forked child, which has no workers.
fn forked(core: &Arc<Core>) -> ShutdownReport {
    // One reference is leaked, so that the pool is never dropped in the child. The drop of a
    // thread's handle reads memory of that thread, which may not exist in the child.
    std::mem::forget(Arc::clone(core));
    ShutdownReport {
        discarded: 0,
        stragglers: Vec::new(),
    }
}

/// Waits until every thread of the pool has ended and has been joined. Returns the workers that
/// have not ended by the timeout. The timeout limits the wait for workers, including those that the
/// OS is starting. It does not limit the joins, which wait for the threads' thread-local
/// destructors.
fn wait(core: &Arc<Core>, timeout: Duration, waits_for: WaitsFor) -> Vec<Straggler> {
    let deadline = Deadline::from_now(timeout);
    let mut registry = core.registry();
    let (mut has_failed, mut backoff) = (false, Backoff::default());
    // A submission that has taken a permit and has no worker yet is about to start one.
    while registry.live + registry.starting + registry.stopping.len() > 0 || core.gate.taken() > 0 {
        if deadline.has_passed() {
            let stragglers = core.stragglers(&registry);
            if !stragglers.is_empty() {
                return stragglers;
            }
            // A submission took its permit before the gate was closed, and has not placed its task
            // yet. A report now would be clean, and then that task would run.
            drop(registry);
            backoff.wait();
            registry = core.registry();
            continue;
        }
        let is_drop = waits_for == WaitsFor::NotAbandoned;
        if is_drop && core.has_only_abandoned_tasks(&registry) {
            // In these cases no worker can be started, or none is needed.
            if has_failed || registry.live >= registry.limit || core.queue.is_empty() {
                return core.stragglers(&registry);
            }
            // The OS may have refused a thread for a queued task, which then waits for these workers (F2). They look
            // at the queue only when their tasks end. So another worker is started for the task.
            drop(registry);
            has_failed = matches!(core.start_worker(), Err(NotStarted::Failed(_)));
            registry = core.registry();
            if has_failed {
                continue;
            }
        }
        let left = [deadline.left(), is_drop.then_some(LOOK_AGAIN)];
        let left = left.into_iter().flatten().min();
        registry = registry.wait(&core.host.changed, left);
    }
    drop(registry);
    // One shutdown joins at a time. So once this shutdown holds the lock, the threads that another
    // shutdown took from the list have been joined, too.
    let _turn = lock(&core.host.joining);
    let ended = std::mem::take(&mut *lock(&core.host.ended));
    join(ended);
    Vec::new()
}

impl Core {
    /// Tells subscribers which workers have not ended, and will not end by themselves. Each worker is reported once.
    fn tell_stragglers(&self, stragglers: &[Straggler]) {
        for straggler in stragglers.iter().filter(|straggler| !straggler.ends) {
            // The lock is released before the call of the subscriber, which is user code.
            let is_new = self.registry().reported.insert(straggler.worker.start);
            if is_new {
                observe::straggler(&self.env, &straggler.snapshot);
            }
        }
    }

    /// Returns the workers that have not ended. If this thread is a worker of the pool, includes
    /// that worker, even if it has left its slot and its thread-local destructors are running.
    fn stragglers_and_self(&self) -> Vec<Straggler> {
        let registry = self.registry();
        let mut stragglers = self.stragglers(&registry);
        if let Some(own) = self.env.own_worker() {
            if stragglers.iter().all(|straggler| straggler.worker != own) {
                stragglers.push(Straggler::without_slot(own, 0));
            }
        }
        stragglers
    }

    /// Returns `true` if at one moment there were workers, each of them ran an abandoned task, no worker was being
    /// started, and all other accepted tasks were queued. Each worker is checked twice. If it ran an abandoned task both
    /// times and its two tallies are equal, no task ended in between, so it ran that task from the first check to the
    /// second.
    fn has_only_abandoned_tasks(&self, registry: &Registry) -> bool {
        let before = self.abandoned_tallies(registry);
        // The gate is closed, so no permit is taken any more. One that a submission has in hand counts until its task is queued.
        let taken = self.gate.taken();
        let placed = registry.live as u64 + self.queue.len();
        registry.live > 0
            && registry.starting == 0
            && taken <= placed
            && before.is_some()
            && before == self.abandoned_tallies(registry)
    }

    /// Returns the tally of each worker, or `None` if any worker is not running an abandoned task.
    fn abandoned_tallies(&self, registry: &Registry) -> Option<Vec<Tally>> {
        let now = self.env.nanos_now();
        let slots = self.slots.iter().zip(&registry.workers);
        slots
            .filter(|(_, worker)| worker.is_some())
            .map(|(slot, _)| {
                let tally = tally_of(slot);
                let is_abandoned = slot.record.is_abandoned(now);
                (is_abandoned && tally.is_running()).then_some(tally)
            })
            .collect()
    }
}
