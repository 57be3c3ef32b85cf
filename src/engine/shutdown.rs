//! Ending a pool: close it, empty the queue if asked to, tell idle workers, wait for the
//! others, join.
//!
//! A task is queued only while a worker lives, and the last worker leaves only by putting an
//! empty queue to sleep, under the registry's lock. So once no worker lives and none is being
//! started, nothing is left.

use super::core::{Cleaner, Core, Registry};
use crate::parts::backoff::Backoff;
use crate::parts::deadline::Deadline;
use crate::parts::queue::{Popped, Queue};
use crate::stats::{Shutdown, ShutdownReport, WorkerSnapshot};
use crate::sync::{self, lock, thread_local, Arc, Ordering};
use crate::work::job::{discard_all, NeverRan, Task};
use crate::work::observe;
use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::time::Duration;

/// How many discards, one in the other, drop what others have taken out.
const NESTED: u32 = 2;

/// A slot whose task nobody waits for any more, and the task's label.
pub(crate) type Abandoned = (usize, Option<&'static str>);

/// For whose tasks an end waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    All,
    /// Not for those that nobody waits for any more.
    Wanted,
}

/// Begins a shutdown, and waits for its end unless this is one of the workers.
pub(crate) fn shutdown(
    core: &Arc<Core>,
    mode: Shutdown,
    timeout: Duration,
    whom: WaitsFor,
) -> ShutdownReport {
    let discards = core.close(mode);
    if !core.env.is_forked() {
        // Before what discarded tasks captured is dropped: that may take its time.
        core.waiters.notify_all();
        if let Some(end) = discards {
            discard_queued(core, end);
        }
    }
    // Or since then, by what a discarded task had captured.
    if core.env.is_forked() {
        return ShutdownReport {
            discarded: 0,
            stragglers: Vec::new(),
        };
    }
    core.retire_idle();
    let waits = !core.env.is_own_worker();
    let stragglers = if waits {
        wait(core, timeout, whom)
    } else {
        core.stragglers(&lock(&core.registry))
    };
    let report = ShutdownReport {
        // ORDERING: L1: the discards of this call come before.
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

thread_local! {
    /// Discards that this thread is in, one in the other.
    static DISCARDS: Cell<u32> = const { Cell::new(0) };
}

/// Takes every task out of the closed queue that was pushed before `end`, gives callers their closures
/// back, and only then drops what other tasks captured. A scope's tasks are pushed again, behind the
/// others.
fn discard_queued(core: &Arc<Core>, end: u64) {
    let (mut seen, mut fills) = (Vec::new(), false);
    while let Some(taken) = pop_one(core, end) {
        match taken {
            TakenOut::Call(task) => seen.push(task.discard(NeverRan::Discarded).release()),
            TakenOut::Listed => fills = true,
        }
    }
    core.notify_another();
    // Code of the user's: subscribers, then captures.
    for seen in seen {
        if core.env.is_forked() {
            let _never_dropped = ManuallyDrop::new(seen);
        }
    }
    // Of others' tasks, too: what is dropped may wait for this thread. But not one in the other
    // without end, where each capture ends the pool again.
    let depth = DISCARDS.try_with(Cell::get).unwrap_or(NESTED);
    if fills || depth < NESTED {
        let _ = DISCARDS.try_with(|discards| discards.set(depth + 1));
        let next = || lock(&core.registry).taken_out.pop_front();
        discard_all(&core.env, std::iter::from_fn(next), NeverRan::Discarded);
        let _ = DISCARDS.try_with(|discards| discards.set(depth));
    }
}

/// A task that a shutdown has taken out of the queue.
#[must_use]
enum TakenOut {
    /// Its caller waits for it.
    Call(Task),
    /// It is in the list of those whose captures are to be dropped.
    Listed,
}

/// Takes out the next task to discard, if there is one.
fn pop_one(core: &Core, end: u64) -> Option<TakenOut> {
    let queue = core.queue.as_ref()?;
    let mut backoff = Backoff::default();
    let mut place = None;
    while queue.is_before(end) {
        // Under the lock the last worker puts the queue to sleep: it must not miss a task on
        // its way from one place in it to another.
        let mut registry = lock(&core.registry);
        match queue.pop_guarded(&mut place) {
            Popped::Task(_) => {}
            Popped::Empty => return None,
            Popped::InProgress | Popped::Guarded => {
                drop(registry);
                backoff.wait();
                continue;
            }
        }
        let task = place.take()?;
        if !task.must_run() {
            // Under the lock, so that a clean report has them.
            core.counts.discard_queued();
            // ORDERING: L1: as `discard_queued`.
            core.counts.shut_out.fetch_add(1, Ordering::SeqCst);
            if task.is_awaited() {
                return Some(TakenOut::Call(task));
            }
            registry.taken_out.push_back(task);
            return Some(TakenOut::Listed);
        }
        queue.push_again(task);
        registry.pushed_again += 1;
        // ORDERING: L1: read under the lock, with `pushed_again`.
        core.counts.removed.fetch_add(1, Ordering::SeqCst);
    }
    None
}

/// Waits until every thread of the pool has ended and been joined. The timeout bounds the wait
/// for workers, those included that the system is starting or that are starting the cleaner;
/// once none is left, what remains are the cleaner's and the threads' last instructions. Whom it
/// gave up on: those that were left at that moment, as one that ends later is not joined.
fn wait(core: &Arc<Core>, timeout: Duration, whom: WaitsFor) -> Vec<WorkerSnapshot> {
    let deadline = Deadline::from_now(timeout);
    // Relaxed: a count, and a start that fails is told of by no other.
    let failures = || core.counts.spawn_failures.load(Ordering::Relaxed);
    let (failed, mut backoff) = (failures(), Backoff::default());
    let mut registry = lock(&core.registry);
    loop {
        let pops = core.queue.as_ref().map(Queue::pops);
        let is_unseen = core.lacks_a_worker(&registry) && failures() == failed;
        let (left, next_due) = core.workers_left(&registry, whom);
        if left == 0 && whom != WaitsFor::All && pops != core.queue.as_ref().map(Queue::pops) {
            // They were abandoned one after the other: one may have the task that was popped.
            continue;
        }
        let could_look = left == 0 && is_unseen;
        if left > 0 || could_look {
            if timeout.is_zero() || deadline.has_passed() {
                return core.stragglers(&registry);
            }
            if could_look {
                // Or the worker is about to: then somebody is notified, or will be counted.
                drop(registry);
                core.notify_another();
                backoff.wait();
                registry = lock(&core.registry);
                continue;
            }
            let left = deadline.left().into_iter().chain(next_due).min();
            registry = sync::wait(&core.changed, registry, left);
            continue;
        }
        let ending = registry.take_ending(true);
        if !ending.is_empty() {
            drop(registry);
            core.join(ending);
            registry = lock(&core.registry);
        } else if !matches!(registry.cleaner, Cleaner::Absent) || registry.joining > 0 {
            registry = sync::wait(&core.changed, registry, None);
        } else {
            // None; or those that an end need not wait for.
            return core.stragglers(&registry);
        }
    }
}

impl Core {
    /// How many workers an end still waits for, and when to look again unasked: a task may
    /// pass its own deadline.
    fn workers_left(&self, registry: &Registry, whom: WaitsFor) -> (usize, Option<Duration>) {
        let all = registry.live + registry.starting;
        if whom == WaitsFor::All {
            return (all, None);
        }
        let now = self.env.nanos_now();
        let (mut abandoned, mut next_due) = (0, None);
        for (slot, handle) in self.slots.iter().zip(&registry.handles) {
            let record = &slot.record;
            if handle.is_none() {
                continue;
            }
            if record.is_abandoned(now) {
                abandoned += 1;
            } else if let Some(due) = record.due() {
                let left = Duration::from_nanos(due.saturating_sub(now));
                next_due = Some(next_due.map_or(left, |next: Duration| next.min(left)));
            }
        }
        (all - abandoned, next_due)
    }

    /// Whether tasks are queued that a further worker could look at. A worker whose task nobody waits
    /// for may owe them that look, and not have come to it yet.
    fn lacks_a_worker(&self, registry: &Registry) -> bool {
        let there = registry.live + registry.starting;
        (1..registry.limit).contains(&there) && !self.nothing_queued()
    }

    /// A task is abandoned: a drop of the pool need not wait for it any more.
    pub(crate) fn tell_drop(&self) {
        if self.is_closed() {
            let registry = lock(&self.registry);
            self.changed.notify_all();
            drop(registry);
        }
    }

    /// Takes over what shutdowns have yet to drop of a group: what they drop meanwhile may wait for
    /// the group, on this thread or another.
    pub(crate) fn take_over(&self, group: *const ()) -> VecDeque<Task> {
        if !self.is_closed() || self.env.is_forked() {
            return VecDeque::new();
        }
        let is_ours = |task: &Task| task.group() == group;
        let mut registry = lock(&self.registry);
        if !registry.taken_out.iter().any(is_ours) {
            return VecDeque::new();
        }
        let all = std::mem::take(&mut registry.taken_out);
        let (ours, others) = all.into_iter().partition(is_ours);
        registry.taken_out = others;
        ours
    }

    /// A group has been cancelled: finds the workers that run its tasks.
    pub(crate) fn abandon_group(&self, group: *const ()) -> Vec<Abandoned> {
        let registry = lock(&self.registry);
        let slots = self.slots.iter().zip(&registry.handles).enumerate();
        let found = slots
            .filter(|(_, (it, handle))| handle.is_some() && it.record.find_cancelled(group))
            .map(|(slot, (it, _))| (slot, it.record.label.get()))
            .collect();
        self.changed.notify_all();
        drop(registry);
        found
    }

    /// Tells subscribers of them.
    pub(crate) fn tell_abandoned(&self, found: Vec<Abandoned>) {
        for (slot, label) in found {
            observe::worker_abandoned(&self.env, slot, label, "cancelled");
        }
    }

    /// The workers that exist, and those that the system has been asked for.
    fn stragglers(&self, registry: &Registry) -> Vec<WorkerSnapshot> {
        let mut found = self.existing(registry);
        if registry.starting > 0 {
            found.extend(self.starting(registry));
            found.sort_by_key(|worker| worker.slot);
        }
        found
    }
}
