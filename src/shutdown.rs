//! Ending a pool: close it, empty the queue if asked to, tell idle workers,
//! wait for the others, join.

use crate::cleaner::Cleaner;
use crate::deadline::Deadline;
use crate::observe;
use crate::shared::{Registry, Shared};
use crate::slot::{Slot, STARTING};
use crate::stats::{Shutdown, ShutdownReport, WorkerSnapshot};
use crate::sync::{self, lock, Arc, Ordering};
use std::time::Duration;

/// Begins a shutdown, and waits for its end unless this is one of the workers.
pub(crate) fn shutdown(shared: &Arc<Shared>, mode: Shutdown, timeout: Duration) -> ShutdownReport {
    let discards = shared.close(mode);
    if discards {
        discard_queued(shared);
    }
    shared.room.notify_all();
    shared.retire_idle();
    let waits = !shared.is_own_worker();
    if waits {
        wait(shared, timeout);
    }
    let report = ShutdownReport {
        discarded: shared.counts.shut_out.load(Ordering::SeqCst),
        stragglers: stragglers(shared),
    };
    if waits {
        for worker in &report.stragglers {
            observe::straggler(shared, worker);
        }
    }
    report
}

/// Takes every task out of the closed queue.
fn discard_queued(shared: &Arc<Shared>) {
    let Some(queue) = &shared.queue else { return };
    loop {
        // The lock: a worker about to end looks at the queue under it, and must
        // not miss a task on its way from there to the kept ones.
        let mut registry = lock(&shared.registry);
        let mut next = None;
        queue.pop(&mut next);
        let Some(task) = next else { break };
        if task.is_kept() {
            registry.kept.push_back(task);
            shared.kept.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        drop(registry);
        let release = task.discard();
        shared.counts.discarded.fetch_add(1, Ordering::SeqCst);
        shared.counts.shut_out.fetch_add(1, Ordering::SeqCst);
        release.finish();
    }
    shared.wake_for_queue();
}

/// Waits until every thread of the pool has ended and been joined. The timeout
/// bounds the wait for workers, those included that the system is starting or that
/// are starting the cleaner; once none is left, what remains are the cleaner's and
/// the threads' last instructions.
fn wait(shared: &Arc<Shared>, timeout: Duration) {
    let deadline = Deadline::from_now(timeout);
    let mut registry = lock(&shared.registry);
    loop {
        let ending = registry.take_ending();
        if !ending.is_empty() {
            drop(registry);
            shared.join(ending);
            registry = lock(&shared.registry);
            continue;
        }
        let queued = shared.queue.as_ref().map_or(0, |q| q.len());
        let workers = registry.live + registry.starting;
        if workers > 0 || queued > 0 || !registry.kept.is_empty() {
            if timeout.is_zero() || deadline.has_passed() {
                return;
            }
            registry = sync::wait(&shared.changed, registry, deadline.left());
        } else if !matches!(registry.cleaner, Cleaner::Absent) || registry.joining > 0 {
            registry = sync::wait(&shared.changed, registry, None);
        } else {
            return;
        }
    }
}

/// The workers that exist, by slot.
pub(crate) fn workers(shared: &Shared) -> Vec<WorkerSnapshot> {
    existing(shared, &lock(&shared.registry))
}

/// These, and those that the system has been asked for.
fn stragglers(shared: &Shared) -> Vec<WorkerSnapshot> {
    let registry = lock(&shared.registry);
    let mut found = existing(shared, &registry);
    if registry.starting > 0 {
        let starting = |(_, slot): &(usize, &Slot)| slot.see().state() == STARTING;
        found.extend(
            (shared.slots.iter().enumerate())
                .filter(starting)
                .map(|(slot, it)| shared.snapshot(slot, it.own.tasks())),
        );
        found.sort_by_key(|worker| worker.slot);
    }
    found
}

fn existing(shared: &Shared, registry: &Registry) -> Vec<WorkerSnapshot> {
    let slots = registry.handles.iter().zip(&registry.tasks_before);
    (slots.enumerate())
        .filter(|(_, (handle, _))| handle.is_some())
        .map(|(slot, (_, before))| shared.snapshot(slot, *before))
        .collect()
}
