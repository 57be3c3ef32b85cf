//! Threads: how workers are started, told to end, and joined.
//!
//! A slot that is being started is `Held`. With a start hook its worker counts as busy until the hook
//! ends; without one, a worker started for the queue counts as notified. The thread waits until the
//! spawner has registered it and published its first order. Under the registry's lock the spawner counts
//! the worker as living, and wakes the queue if it slept: from then on tasks may be queued.
//!
//! Threads join each other as they end, see [`thread`](crate::work::thread), and a shutdown joins the rest.

use super::core::{Core, Registry, WorkerEntry};
use super::request::Location;
use crate::parts::backoff::Backoff;
use crate::parts::in_flight::{Seen, NOTIFIED, RETURNING};
use crate::parts::slot::{Claim, Slot};
use crate::sync::{lock, Arc, Ordering};
use crate::work::job::Task;
use crate::work::observe;
use crate::work::thread::{start, Thread};
use std::io;

/// Why no worker was started. If a slot was popped, it is free again or withheld.
#[derive(Debug)]
#[must_use]
pub(crate) enum NotSpawned {
    /// The pool is closed, has as many workers as its limit allows, or no slot was free.
    NotNeeded,
    Failed(io::Error),
}

impl Core {
    /// Under the lock: a slot without a thread is free again, or withheld.
    pub(super) fn put_back(&self, registry: &mut Registry, slot: usize) {
        if self.slots_to_withhold(registry) == 0 {
            return self.free_slot(slot);
        }
        registry.withheld.push(slot);
        self.tell_surplus(registry);
    }

    pub(super) fn free_slot(&self, slot: usize) {
        self.free
            .push(slot)
            .expect("one entry per slot at most: the ring has space");
    }

    // ---- starting a worker --------------------------------------------------------

    /// Waits until the workers of a new pool are idle.
    pub(crate) fn await_idle(&self) {
        let mut backoff = Backoff::default();
        let is_idle =
            |(slot, worker): (&Slot<_, _>, &Option<_>)| worker.is_none() || slot.see().is_idle();
        while !(self.slots.iter().zip(&lock(&self.registry).workers)).all(is_idle) {
            backoff.wait();
        }
    }

    /// Starts a worker that looks at the queue. It counts as notified from here on, unless a start
    /// hook may delay it.
    pub(crate) fn spawn_searcher(self: &Arc<Self>) -> Result<(), NotSpawned> {
        if !self.env.has_start_hook() {
            self.in_flight.add(NOTIFIED);
        }
        let spawned = match self.free.pop() {
            Some(slot) => self.spawn(slot, None).map(drop),
            None => Err(NotSpawned::NotNeeded),
        };
        if let Err(why) = &spawned {
            self.start_no_searcher(why);
        }
        spawned
    }

    /// Takes the count back, and looks again for those who relied on it, or found the slot taken: for a
    /// slot, too, but not for one more thread where the OS gave none. Then a worker that is busy looks when
    /// its task has ended.
    pub(super) fn start_no_searcher(self: &Arc<Self>, why: &NotSpawned) {
        if !self.env.has_start_hook() {
            self.in_flight.sub(NOTIFIED);
        }
        match why {
            NotSpawned::NotNeeded => self.notify_another(),
            NotSpawned::Failed(_) => _ = self.notify_idle(Seen::is_any_searching),
        }
        self.serve_line();
    }

    /// Starts a worker on a slot whose free entry the caller popped. Its first order is the task,
    /// which is taken if there is a thread; without one it looks at the queue.
    #[cold]
    pub(super) fn spawn(
        self: &Arc<Self>,
        slot: usize,
        task: Option<&mut Option<Task>>,
    ) -> Result<Option<Location>, NotSpawned> {
        if let Err(why) = self.begin_start(slot, task.is_some()) {
            if task.is_some() {
                // While this thread had the slot, others queued tasks without a look for one.
                self.notify_another();
            }
            return Err(why);
        }
        let name = format!("{}-{slot}", self.env.name);
        let core = Arc::clone(self);
        let main = move || (core.main)(&core, slot);
        let ended = Arc::clone(&self.ended);
        match start(name, self.settings.stack_size, ended, main) {
            Ok(thread) => {
                let location = self.register(slot, thread, task);
                // The queue may sleep no more.
                self.serve_line();
                Ok(location)
            }
            Err(error) => {
                self.start_failed(slot);
                observe::spawn_failed(&self.env, &error);
                Err(NotSpawned::Failed(error))
            }
        }
    }

    /// An error if the pool may have no further worker, or needs none: it is closed, and this
    /// one has nothing queued to look at.
    fn begin_start(self: &Arc<Self>, slot: usize, has_task: bool) -> Result<(), NotSpawned> {
        let mut registry = lock(&self.registry);
        let is_of_use = !self.is_closed() || !has_task && !self.nothing_queued();
        if !is_of_use || self.slots_to_withhold(&registry) > 0 {
            self.put_back(&mut registry, slot);
            drop(registry);
            self.serve_line();
            return Err(NotSpawned::NotNeeded);
        }
        registry.starting += 1;
        // SAFETY: the slot's free entry was popped, and is used once.
        unsafe { self.slots[slot].begin_start(self.env.has_start_hook()) };
        Ok(())
    }

    fn start_failed(self: &Arc<Self>, slot: usize) {
        let mut registry = lock(&self.registry);
        registry.starting -= 1;
        // SAFETY: begun by this thread, and the OS gave none.
        unsafe { self.slots[slot].start_failed() };
        self.put_back(&mut registry, slot);
        self.changed.notify_all();
        drop(registry);
        // Relaxed: a count.
        self.counts.spawn_failures.fetch_add(1, Ordering::Relaxed);
        self.serve_line();
    }

    /// The thread exists: it is counted, and gets its first order.
    fn register(
        &self,
        slot: usize,
        thread: Thread,
        task: Option<&mut Option<Task>>,
    ) -> Option<Location> {
        let it = &self.slots[slot];
        let mut registry = lock(&self.registry);
        registry.starting -= 1;
        // SAFETY: held by this thread; the new one waits for its first order.
        unsafe { it.set_thread(thread.handle().clone()) };
        if registry.workers.len() <= slot {
            registry.workers.resize_with(slot + 1, || None);
        }
        registry.workers[slot] = Some(WorkerEntry {
            thread,
            tasks_before: it.record.tally(|| 0).ran(),
            benched: None,
            is_told: false,
        });
        registry.live += 1;
        registry.spawned += 1;
        registry.peak = registry.peak.max(registry.live);
        if let (Some(queue), 1) = (&self.queue, registry.live) {
            queue.wake();
        }
        self.begin_sweeps(&registry);
        // A shutdown may wait for `starting` to go down.
        self.changed.notify_all();
        let Some(task) = task else {
            // SAFETY: held by this thread.
            unsafe { it.send_searching(Claim::AWAKE) };
            return None;
        };
        let task = task.take().expect("a task to begin with");
        let revocable = task.is_offered();
        // SAFETY: held by this thread.
        let generation = unsafe { it.hand_over(Claim::AWAKE, task, revocable) };
        self.set_affinity(slot, generation);
        Some(Location::Mailbox { slot, generation })
    }

    // ---- the end of a worker --------------------------------------------------------

    /// A worker is about to be on its way to its end. It counts, but not where a stop hook may delay it.
    pub(super) fn begin_return(&self) {
        if self.env.hooks.stop.is_none() {
            self.in_flight.add(RETURNING);
        }
    }

    /// Its slot is free, or it stays.
    pub(super) fn end_return(&self) {
        if self.env.hooks.stop.is_none() {
            self.in_flight.sub(RETURNING);
        }
    }

    /// Tells an idle worker to end; a `benched` one only if it still is. The caller holds the
    /// registry's lock, so the thread is the one that is told.
    pub(super) fn retire(&self, registry: &mut Registry, slot: usize, benched: bool) -> bool {
        let Some(Some(worker)) = registry.workers.get(slot) else {
            return false;
        };
        self.begin_return();
        let Some(claim) = self.slots[slot].retire(benched) else {
            self.end_return();
            return false;
        };
        if claim.parked {
            worker.thread.unpark();
        }
        registry.retiring += 1;
        true
    }
}
