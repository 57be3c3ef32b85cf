//! Threads: how workers are started, told to end, and joined.
//!
//! A slot on which a thread is being started is `Held`. The new thread waits until the spawner has
//! registered it and published its first order. Under the registry's lock, the spawner counts the
//! worker as living. If no other worker lives, the spawner also clears the gate's flag `ASLEEP`, so
//! that tasks may be queued from then on. A new worker runs the start hook before it obeys its first
//! order.
//!
//! Threads join each other as they end, see [`thread`](crate::work::thread). A shutdown joins the
//! rest.

use crate::core::host::NotStarted;
use crate::core::submission::Location;
use crate::core::{worker, Claim};
use crate::engine::shared::{Core, Registry, RegistryGuard};
use crate::parts::backoff::Backoff;
use crate::parts::gate::Permit;
use crate::parts::in_flight::Notice;
use crate::sync::{Arc, Ordering, Patience};
use crate::work::env::WorkerId;
use crate::work::job::Task;
use crate::work::owed::Owed;
use crate::work::thread::{start, Thread};
use std::io;

/// The first order of a new worker.
enum First<'a> {
    Run(&'a mut Option<Task>, Permit),
    /// To look at the queue. Without a notice, no thread may rely on that.
    Search(Option<Notice>),
}

impl Core {
    /// Gives back a slot without a thread, under the registry's lock. If too few slots are withheld
    /// for the limit, withholds the slot. Otherwise the slot becomes free.
    pub(crate) fn return_slot(&self, registry: &mut Registry, slot: usize) {
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
        let is_idle = |slot: &usize| {
            let it = &self.slots[*slot];
            it.record.tasks_before().is_none() || it.load().is_idle()
        };
        while !(0..self.used_slots().len()).all(|slot| is_idle(&slot)) {
            backoff.wait();
        }
    }

    /// Starts a worker that looks at the queue, and pays what that leads to.
    pub(crate) fn start_worker(self: &Arc<Self>) -> Result<(), NotStarted> {
        let mut owed = Owed::default();
        let started = self.start_or_look(&mut owed);
        self.pay(&mut owed);
        started
    }

    /// Starts a worker that looks at the queue. Other threads rely on it from here on: it counts as
    /// notified until it looks at the queue or, in a pool with a start hook, until it is registered,
    /// because a hook may take long.
    pub(crate) fn spawn_searcher(self: &Arc<Self>, owed: &mut Owed) -> Result<(), NotStarted> {
        let notice = self.in_flight.notify();
        let slot = self.free.pop().ok_or(NotStarted::NotNeeded);
        let start = |slot| Ok((slot, self.start_thread(slot, false, owed)?));
        let (slot, (claim, thread)) = match slot.and_then(start) {
            Ok(started) => started,
            Err(why) => {
                self.in_flight.forgo(notice);
                return Err(why);
            }
        };
        if self.env.hooks.start.is_none() {
            self.register(slot, claim, thread, First::Search(Some(notice)));
            return Ok(());
        }
        self.register(slot, claim, thread, First::Search(None));
        self.in_flight.forgo(notice);
        // Other threads may have relied on this start (A4), and the hook may take long. This starts no
        // further thread for the same tasks: if no worker is idle, they wait for the hook, or a busy worker (guarantee 5).
        self.tell_idle(Patience::Waits);
        Ok(())
    }

    /// Starts a worker for a task that has a permit, on a slot that the caller has popped from the
    /// free ring. The task is the worker's first order. On failure, returns the permit.
    #[cold]
    pub(crate) fn spawn_with(
        self: &Arc<Self>,
        slot: usize,
        task: &mut Option<Task>,
        permit: Permit,
        owed: &mut Owed,
    ) -> Result<Location, (Permit, NotStarted)> {
        match self.start_thread(slot, true, owed) {
            Ok((claim, thread)) => {
                let location = self.register(slot, claim, thread, First::Run(task, permit));
                Ok(location.expect("the location of the task"))
            }
            Err(why) => Err((permit, why)),
        }
    }

    /// Asks the OS for a thread on a slot. Gives the slot back if there is no thread.
    fn start_thread(
        self: &Arc<Self>,
        slot: usize,
        has_task: bool,
        owed: &mut Owed,
    ) -> Result<(Claim<'_>, Thread), NotStarted> {
        let (claim, worker) = self.begin_start(slot, has_task)?;
        let name = format!("{}-{slot}", self.env.name);
        let core = Arc::clone(self);
        let main = move || worker::main(&core, worker);
        let ended = Arc::clone(&self.host.ended);
        match start(name, self.host.stack_size, ended, main) {
            Ok(thread) => Ok((claim, thread)),
            Err(error) => {
                self.start_failed(slot, claim);
                if cfg!(feature = "tracing") {
                    owed.calls().tell_refused(copy_of(&error));
                }
                Err(NotStarted::Failed(error))
            }
        }
    }

    /// Begins a start. Gives the slot back and returns an error if the limit is reached; or if the
    /// worker is to look at the queue, the pool is closed and nothing is queued.
    fn begin_start(
        &self,
        slot: usize,
        has_task: bool,
    ) -> Result<(Claim<'_>, WorkerId), NotStarted> {
        let mut registry = self.registry();
        let is_of_use = has_task || !self.env.is_closed() || !self.queue.is_empty();
        if !is_of_use || self.slots_to_withhold(&registry) > 0 {
            self.return_slot(&mut registry, slot);
            return Err(NotStarted::NotNeeded);
        }
        registry.starting += 1;
        registry.last_start += 1;
        registry.starts[slot] = registry.last_start;
        let used = &self.host.headcount.used;
        // Relaxed: only threads with the registry's lock write it.
        if used.load(Ordering::Relaxed) <= slot as u64 {
            // ORDERING: P3, L1: set before the slot gets a task.
            used.swap(slot as u64 + 1, Ordering::SeqCst);
        }
        // SAFETY: the caller popped the slot's free entry, and uses it once.
        let claim = unsafe { self.slots[slot].begin_start() };
        Ok((claim, registry.started_on(slot)))
    }

    /// Gives back the slot of a start for which the OS refused a thread.
    fn start_failed(&self, slot: usize, claim: Claim<'_>) {
        let mut registry = self.registry();
        registry.starting -= 1;
        let counts = &self.host.counts;
        // Relaxed: figures.
        counts.spawn_failures.fetch_add(1, Ordering::Relaxed);
        (counts.refused_at).store(self.queue.pushed() + 1, Ordering::Relaxed);
        // SAFETY: the claim is that of `begin_start`, and the OS created no thread.
        unsafe { claim.start_failed() };
        self.return_slot(&mut registry, slot);
        self.host.changed.notify_all();
    }

    /// Registers a new thread, counts it, and gives it its first order.
    fn register(
        &self,
        slot: usize,
        claim: Claim<'_>,
        thread: Thread,
        first: First<'_>,
    ) -> Option<Location> {
        let it = &self.slots[slot];
        let mut registry = self.registry();
        registry.starting -= 1;
        // SAFETY: the claim is that of `begin_start`. The new thread waits for its first order, and does
        // not touch the stored handle before that.
        unsafe { claim.set_thread(thread.handle.thread().clone()) };
        if registry.workers.len() <= slot {
            registry.workers.resize_with(slot + 1, || None);
        }
        registry.workers[slot] = Some(thread);
        registry.live += 1;
        it.record.begin_worker(self.env.hooks.start.is_some());
        let figures = &self.host.headcount;
        // ORDERING: L1: as `retired`, in one order for all readers.
        figures.spawned.fetch_add(1, Ordering::SeqCst);
        // Relaxed: a figure, which only threads with the registry's lock write.
        let peak = figures.peak.load(Ordering::Relaxed);
        (figures.peak).store(peak.max(registry.live as u64), Ordering::Relaxed);
        if registry.live == 1 {
            self.gate.wake(&mut registry.key);
        }
        self.begin_sweeps(&mut registry);
        let mut location = None;
        match first {
            First::Run(task, permit) => location = Some(self.hand_over(slot, claim, task, permit)),
            First::Search(Some(notice)) => claim.notify(notice),
            First::Search(None) => claim.send_uncounted(),
        }
        // An idle worker may have stayed as the last one (X2, B3). It does not end for this one if this one is in its start
        // hook without a task, which its order says.
        self.retire_needless(&mut registry);
        // A shutdown may wait until `starting` is zero.
        self.host.changed.notify_all();
        location
    }

    // ---- the end of a worker --------------------------------------------------------

    /// Tells the worker on a slot to end, if the worker is idle. If `benched` is set, the worker
    /// must also still be on the bench.
    pub(crate) fn retire(&self, registry: &mut RegistryGuard<'_>, slot: usize, benched: bool) {
        if let Some(worker) = self.slots[slot].retire(benched) {
            registry.retiring += 1;
            registry.wakes(worker);
        }
    }

    /// Tells the idle workers to end for which the pool has no use: all of a closed pool, and those beyond the limit.
    pub(crate) fn retire_needless(&self, registry: &mut RegistryGuard<'_>) {
        if self.env.is_closed() {
            for slot in 0..registry.workers.len() {
                self.retire(registry, slot, false);
            }
        } else if self.slots_to_withhold(registry) > 0 {
            self.retire_surplus(registry);
        }
    }

    /// Tells every idle worker of the closed pool to end, and shutdowns to look whether all have ended.
    pub(crate) fn retire_idle(&self, mut registry: RegistryGuard<'_>) {
        self.retire_needless(&mut registry);
        self.end_sweeps(&registry);
        self.host.changed.notify_all();
    }
}

/// Returns a copy of an error, for subscribers. The original goes to the caller.
fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
