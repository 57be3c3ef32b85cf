//! The end of a pool. A shutdown closes the pool, empties the queue if asked to, and tells idle
//! workers to end. Then it waits until all workers have ended, and joins their threads.
//!
//! A task is queued only while a worker lives (A1). The last worker leaves only after it has put an
//! empty queue to sleep, under the registry's lock. So once no worker lives and none is being
//! started, nothing is left in the queue.

use super::core::{Core, Registry};
use super::threads::NotSpawned;
use crate::error::TaskError;
use crate::parts::deadline::Deadline;
use crate::parts::queue::Queue;
use crate::stats::{Shutdown, ShutdownReport, WorkerSnapshot};
use crate::sync::{self, lock, Arc, Ordering};
use crate::work::job::Task;
use crate::work::observe;
use crate::work::record::Tally;
use crate::work::thread::join;
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
    Wanted,
}

/// Begins a shutdown and waits for its end. Does not wait if this thread is a worker of the pool,
/// or runs user code of one of the pool's frames: see [`discard`](super::discard).
pub(crate) fn shutdown(
    core: &Arc<Core>,
    mode: Shutdown,
    timeout: Duration,
    waits_for: WaitsFor,
) -> ShutdownReport {
    if core.env.is_forked() {
        return forked(core);
    }
    core.env.close(mode);
    core.queue.iter().for_each(Queue::close);
    let waits = !core.env.is_own_worker() && !core.is_in_frame();
    core.in_frame(|frame| {
        // Refuses the submissions in line first, because the next steps may take long.
        core.serve_line();
        let queued = core.take_out().into_iter();
        queued.for_each(|task| frame.settle(task, || TaskError::Discarded));
        core.retire_idle();
    });
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
        core.gave_up.store(true, Ordering::Relaxed);
        core.tell_stragglers(&stragglers);
    }
    ShutdownReport {
        // ORDERING: L1: includes the discards of this call.
        discarded: core.counts.shut_out.load(Ordering::SeqCst),
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
fn wait(core: &Arc<Core>, timeout: Duration, waits_for: WaitsFor) -> Vec<WorkerSnapshot> {
    let deadline = Deadline::from_now(timeout);
    let mut registry = lock(&core.registry);
    let mut has_failed = false;
    while registry.live + registry.starting > 0 {
        if deadline.has_passed() {
            return core.stragglers(&registry);
        }
        let is_drop = waits_for == WaitsFor::Wanted;
        if is_drop && core.runs_only_abandoned_tasks(&registry) {
            // In these cases no worker can be started, or none is needed.
            if has_failed || registry.live >= registry.limit || core.nothing_queued() {
                return core.stragglers(&registry);
            }
            // A queued task may have been left to these workers, but they look at the queue only
            // when their tasks end. So another worker is started for the task.
            drop(registry);
            has_failed = matches!(core.spawn_searcher(), Err(NotSpawned::Failed(_)));
            registry = lock(&core.registry);
            if has_failed {
                continue;
            }
        }
        let left = [deadline.left(), is_drop.then_some(LOOK_AGAIN)];
        let left = left.into_iter().flatten().min();
        registry = sync::wait(&core.changed, registry, left);
    }
    drop(registry);
    // One shutdown joins at a time. So once this shutdown holds the lock, the threads that another
    // shutdown took from the list have been joined, too.
    let _turn = lock(&core.joining);
    let ended = std::mem::take(&mut *lock(&core.ended));
    join(ended);
    Vec::new()
}

impl Core {
    /// Takes out and counts the queued tasks, except those that must run. Returns no task unless
    /// queued tasks are to be discarded.
    fn take_out(&self) -> Vec<Task> {
        let mut taken = Vec::new();
        if let Some(queue) = self.queue.as_ref().filter(|_| self.env.is_discarding()) {
            let take = |position| queue.take_if(position, |task| !task.table.must_run);
            let tasks = queue.positions().filter_map(take);
            taken.extend(tasks.inspect(|_| self.counts.discard()));
        }
        // ORDERING: L1: the discards of this call come before its report.
        (self.counts.shut_out).fetch_add(taken.len() as u64, Ordering::SeqCst);
        taken
    }

    /// Tells subscribers which workers have not ended. Each worker is reported once.
    fn tell_stragglers(&self, stragglers: &[WorkerSnapshot]) {
        for straggler in stragglers {
            let mut registry = lock(&self.registry);
            let worker = registry.workers.get_mut(straggler.slot);
            let is_told = worker
                .and_then(Option::as_mut)
                .is_none_or(|worker| std::mem::replace(&mut worker.is_told, true));
            // The lock is released before the call of the subscriber, which is user code.
            drop(registry);
            if !is_told {
                observe::straggler(&self.env, straggler);
            }
        }
    }

    /// Returns the workers that have not ended. If this thread is a worker of the pool, includes
    /// that worker, even if it has left its slot and its thread-local destructors are running.
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

    /// Returns `true` if at one moment every worker ran an abandoned task, and no worker was being
    /// started. Each worker is checked twice. If it ran an abandoned task both times and its two
    /// tallies are equal, no task ended in between, so it ran that task from the first check to the
    /// second.
    fn runs_only_abandoned_tasks(&self, registry: &Registry) -> bool {
        let before = self.abandoned_tallies(registry);
        registry.starting == 0 && before.is_some() && before == self.abandoned_tallies(registry)
    }

    /// Returns the tally of each worker, or `None` if any worker is not running an abandoned task.
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
