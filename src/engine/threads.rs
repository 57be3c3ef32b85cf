//! Threads: how workers are started, told to end, and joined.
//!
//! A slot on which a thread is being started is `Held`. The new thread waits until the spawner has
//! registered it and published its first order. Under the registry's lock, the spawner counts the
//! worker as living. If no other worker lives, the spawner also clears the queue's flag `ASLEEP`,
//! so that tasks may be queued from then on. In a pool with a start hook, the worker counts as busy
//! until the hook has ended. In a pool without one, a worker that is started for the queue counts
//! as notified.
//!
//! Threads join each other as they end, see [`thread`](crate::work::thread). A shutdown joins the
//! rest.

use super::core::{Core, Registry, WorkerEntry};
use super::request::Location;
use super::worker;
use crate::parts::backoff::Backoff;
use crate::parts::in_flight::{Seen, NOTIFIED, RETURNING};
use crate::parts::slot::{Claim, Slot};
use crate::sync::{lock, Arc, Ordering};
use crate::work::job::Task;
use crate::work::thread::{start, Thread};
use std::io;

/// The reason why no worker was started. If the spawner had popped a slot, the slot is free again,
/// or withheld.
#[derive(Debug)]
#[must_use]
pub(crate) enum NotSpawned {
    /// The pool is closed and needs no further worker, the limit is reached, or no slot was free.
    NotNeeded,
    /// The OS refused a thread.
    Failed(io::Error),
}

impl Core {
    /// Gives back a slot without a thread, under the registry's lock. If too few slots are withheld
    /// for the limit, withholds the slot. Otherwise the slot becomes free.
    pub(super) fn put_back(&self, registry: &mut Registry, slot: usize) {
        if self.slots_to_withhold(registry) == 0 {
            return self.free.push(slot);
        }
        registry.withheld.push(slot);
        self.tell_surplus(registry);
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

    /// Starts a worker that looks at the queue. The worker counts as notified from here on, unless
    /// a start hook may delay it.
    ///
    /// If the start fails, `start_no_searcher` repeats the search for a worker, and may call this
    /// function again. The recursion is bounded: see [`Core::notify_another`].
    pub(crate) fn spawn_searcher(self: &Arc<Self>) -> Result<(), NotSpawned> {
        if self.env.hooks.start.is_none() {
            self.in_flight.add(NOTIFIED);
        }
        let slot = self.free.pop().ok_or(NotSpawned::NotNeeded);
        slot.and_then(|slot| self.spawn(slot, &mut None))
            .map(drop)
            .inspect_err(|why| self.start_no_searcher(why))
    }

    /// Makes up for a start that failed (A4). Takes the planned worker out of the count `notified`,
    /// then searches for a worker again. Other threads may have skipped their search because they
    /// saw the count, or may have found no free slot because this thread held the slot.
    ///
    /// After `NotNeeded`, this searches for an idle worker, or else for another free slot. If the
    /// OS refused a thread, this searches for idle workers only, and does not ask for another
    /// thread. If none is idle, a busy worker looks at the queue when its task has ended.
    pub(super) fn start_no_searcher(self: &Arc<Self>, why: &NotSpawned) {
        if self.env.hooks.start.is_none() {
            self.in_flight.sub(NOTIFIED);
        }
        match why {
            NotSpawned::NotNeeded => self.notify_another(),
            NotSpawned::Failed(_) => _ = self.notify_idle(Seen::is_any_searching),
        }
        self.serve_line();
    }

    /// Starts a worker on a slot that the caller has popped from the free ring. If there is a task,
    /// and the OS gives a thread, the task is taken out and becomes the worker's first order. If
    /// there is no task, the worker looks at the queue. Returns the location of the task.
    #[cold]
    pub(super) fn spawn(
        self: &Arc<Self>,
        slot: usize,
        task: &mut Option<Task>,
    ) -> Result<Option<Location>, NotSpawned> {
        if let Err(why) = self.begin_start(slot, task.is_some()) {
            if task.is_some() {
                // While this thread held the slot, other submissions may have seen no free slot and
                // queued their tasks without a worker for them. So this thread looks for a worker.
                // If there is no task, `start_no_searcher` does this.
                self.notify_another();
            }
            return Err(why);
        }
        let name = format!("{}-{slot}", self.env.name);
        let core = Arc::clone(self);
        let main = move || worker::main(&core, slot);
        let ended = Arc::clone(&self.ended);
        match start(name, self.settings.stack_size, ended, main) {
            Ok(thread) => {
                let location = self.register(slot, thread, task);
                // If no other worker lived, `register` has woken up the queue. So there may be
                // space for the line now.
                self.serve_line();
                Ok(location)
            }
            Err(error) => {
                self.start_failed(slot);
                self.tell_spawn_failed(&error);
                Err(NotSpawned::Failed(error))
            }
        }
    }

    /// Begins a start. Gives the slot back and returns an error if the limit is reached. Does the
    /// same in a closed pool, unless the worker is started for the queue and a task is queued.
    fn begin_start(self: &Arc<Self>, slot: usize, has_task: bool) -> Result<(), NotSpawned> {
        let mut registry = lock(&self.registry);
        let is_of_use = !self.env.is_closed() || !has_task && !self.nothing_queued();
        if !is_of_use || self.slots_to_withhold(&registry) > 0 {
            self.put_back(&mut registry, slot);
            drop(registry);
            self.serve_line();
            return Err(NotSpawned::NotNeeded);
        }
        registry.starting += 1;
        // SAFETY: the caller popped the slot's free entry, and uses it once.
        unsafe { self.slots[slot].begin_start(self.env.hooks.start.is_some()) };
        Ok(())
    }

    /// Gives back the slot of a start for which the OS refused a thread.
    fn start_failed(self: &Arc<Self>, slot: usize) {
        let mut registry = lock(&self.registry);
        registry.starting -= 1;
        // SAFETY: this thread called `begin_start` for the slot, and the OS created no thread.
        unsafe { self.slots[slot].start_failed() };
        self.put_back(&mut registry, slot);
        self.changed.notify_all();
        drop(registry);
        // Relaxed: a count.
        self.counts.spawn_failures.fetch_add(1, Ordering::Relaxed);
        self.serve_line();
    }

    /// Registers a new thread, counts it, and gives it its first order.
    fn register(&self, slot: usize, thread: Thread, task: &mut Option<Task>) -> Option<Location> {
        let it = &self.slots[slot];
        let mut registry = lock(&self.registry);
        registry.starting -= 1;
        // SAFETY: this thread holds the slot. The new thread waits for its first order, and does
        // not touch the stored handle before that.
        unsafe { it.set_thread(thread.handle.thread().clone()) };
        if registry.workers.len() <= slot {
            registry.workers.resize_with(slot + 1, || None);
        }
        registry.workers[slot] = Some(WorkerEntry {
            thread,
            tasks_before: it.record.tally(|| 0).ran(),
            is_told: false,
        });
        registry.live += 1;
        registry.spawned += 1;
        registry.peak = registry.peak.max(registry.live);
        if let (Some(queue), 1) = (&self.queue, registry.live) {
            queue.wake();
        }
        self.begin_sweeps(&registry);
        // A shutdown may wait until `starting` is zero.
        self.changed.notify_all();
        // SAFETY: this thread has held the slot since `begin_start`. A new worker is not parked, so
        // the claim is `AWAKE`.
        unsafe {
            if task.is_some() {
                return Some(self.hand_over(slot, Claim::AWAKE, task));
            }
            it.send_searching(Claim::AWAKE);
        }
        None
    }

    // ---- the end of a worker --------------------------------------------------------

    /// Adds a worker that is about to become `Retiring` to the count `returning`. Does nothing in a
    /// pool with a stop hook, because a submission that sees the count tries again and again, and
    /// the hook may take long.
    pub(super) fn begin_return(&self) {
        if self.env.hooks.stop.is_none() {
            self.in_flight.add(RETURNING);
        }
    }

    /// Takes the worker out of `returning`. Called once its slot is free, or once it is clear that
    /// the worker stays.
    pub(super) fn end_return(&self) {
        if self.env.hooks.stop.is_none() {
            self.in_flight.sub(RETURNING);
        }
    }

    /// Tells the worker on a slot to end, if the worker is idle. If `benched` is set, the worker
    /// must also still be on the bench. The caller holds the registry's lock, so the slot keeps its
    /// thread meanwhile.
    pub(super) fn retire(&self, registry: &mut Registry, slot: usize, benched: bool) {
        let Some(Some(worker)) = registry.workers.get(slot) else {
            return;
        };
        self.begin_return();
        let Some(claim) = self.slots[slot].retire(benched) else {
            return self.end_return();
        };
        if claim.parked {
            worker.thread.handle.thread().unpark();
        }
        registry.retiring += 1;
    }
}
