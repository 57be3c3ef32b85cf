//! Threads: how workers and the cleaner are started, told to end, and joined.
//!
//! A slot that is being started is `Held` and in transit. Its thread waits until the
//! spawner has registered it and published its first order. Under the registry's lock the
//! spawner counts the worker as living, and wakes the queue if it slept: from then on tasks
//! may be queued.

use super::core::{Cleaner, Core, Registry};
use super::handle::{self, Handle};
use super::request::Location;
use crate::parts::in_flight::{NOTIFIED, TRANSIT};
use crate::parts::slot::HandOver;
use crate::sync::{lock, now, Arc, Ordering};
use crate::work::context::with_current;
use crate::work::job::Task;
use crate::work::observe::Starts;
use std::io;
use std::time::Duration;

/// A new worker's first order.
#[derive(Debug)]
pub(crate) enum First<'a> {
    /// Taken if there is a thread.
    Run(&'a mut Option<Task>),
    /// To look at the queue.
    Search,
    /// None.
    Idle,
}

/// Why no worker was started. The free entry is back in its ring.
#[derive(Debug)]
#[must_use]
pub(crate) enum NotSpawned {
    Closed,
    /// There are as many workers as the limit allows.
    Withheld,
    Failed(io::Error),
}

/// There is no cleaner, and need not be one.
pub(super) const ABSENT: u32 = 0;
/// There should be one, and is none yet: workers sleep on a timer, and start it.
pub(super) const MISSING: u32 = 1;
/// It sleeps, or is about to look around and sleep.
pub(super) const DOZING: u32 = 2;
/// It has been woken, or runs.
pub(super) const AWAKE: u32 = 3;
/// It may have to end.
pub(super) const MAY_END: u32 = 4;

/// How a task is handed over.
pub(super) fn how_to_hand_over(task: &Task) -> HandOver {
    if task.is_offered() {
        HandOver::Revocable
    } else {
        HandOver::Final
    }
}

impl Core {
    // ---- slots --------------------------------------------------------------------

    /// A slot without a thread. It is in transit until [`Core::spawn`] returns.
    pub(crate) fn take_free(&self) -> Option<usize> {
        if self.free.is_empty() {
            return None;
        }
        self.in_flight.add(TRANSIT);
        let slot = self.free.pop();
        if slot.is_none() {
            self.leave_transit();
        }
        slot
    }

    pub(super) fn free_slot(&self, slot: usize) {
        self.free
            .push(slot)
            .expect("one entry per slot at most: the ring has room");
    }

    /// Makes a worker idle that this thread holds: marked while it is in its start hook.
    /// Whether it was.
    ///
    /// # Safety
    /// This thread holds the slot (`Held`).
    pub(super) unsafe fn make_idle(&self, slot: usize) -> bool {
        let it = &self.slots[slot];
        let in_start_hook = it.record.is_in_start_hook();
        if in_start_hook {
            self.in_flight.mark();
            // SAFETY: by this function's contract.
            unsafe { it.publish_marked() };
        } else {
            // SAFETY: as above.
            unsafe { it.publish_idle(&self.ready, slot) };
        }
        in_start_hook
    }

    /// A slot or an attempt is in transit no more. Who waited for that looks again.
    pub(super) fn leave_transit(&self) {
        self.in_flight.sub(TRANSIT);
        self.settled();
    }

    /// What a submission may have waited for has come, or can no longer come.
    #[inline]
    pub(super) fn settled(&self) {
        if self.waiters.waiting() != 0 {
            self.waiters.notify_all();
        }
    }

    // ---- starting a worker --------------------------------------------------------

    /// Starts one of a new pool's `min_workers`.
    pub(crate) fn start_idle(self: &Arc<Self>) -> Result<(), NotSpawned> {
        let slot = self.take_free().expect("a new pool has free slots");
        let starts = Starts::new(&self.env);
        self.spawn(slot, First::Idle, &starts).map(drop)
    }

    /// Starts a worker on a slot from [`Core::take_free`], and gives it its first order. Notes what
    /// became of it.
    #[cold]
    pub(super) fn spawn(
        self: &Arc<Self>,
        slot: usize,
        first: First<'_>,
        starts: &Starts<'_>,
    ) -> Result<Option<Location>, NotSpawned> {
        let spawned = self.spawn_in_transit(slot, first);
        self.leave_transit();
        match &spawned {
            Ok(_) => starts.note_worker(slot),
            Err(NotSpawned::Failed(error)) => starts.note_failure(error),
            Err(NotSpawned::Closed | NotSpawned::Withheld) => {}
        }
        spawned
    }

    fn spawn_in_transit(
        self: &Arc<Self>,
        slot: usize,
        first: First<'_>,
    ) -> Result<Option<Location>, NotSpawned> {
        debug_assert!(
            with_current(|ctx| ctx.is_none_or(|c| !c.owes_a_look.get())),
            "starting a thread takes time, and a task in hand has yet to start"
        );
        self.begin_start(slot, &first)?;
        let name = format!("{}-{slot}", self.env.name);
        let core = Arc::clone(self);
        let main = move || (core.mains.worker)(&core, slot);
        match handle::start(name, self.settings.stack_size, main) {
            Ok(handle) => Ok(self.register(slot, handle, first)),
            Err(error) => {
                self.start_failed(slot);
                Err(NotSpawned::Failed(error))
            }
        }
    }

    /// An error if the pool may have no further worker, or needs none: it is closed, and this
    /// one has neither a task nor anything queued to look at.
    fn begin_start(&self, slot: usize, first: &First<'_>) -> Result<(), NotSpawned> {
        let mut registry = lock(&self.registry);
        let is_of_use = matches!(first, First::Search) && !self.nothing_queued();
        if self.is_closed() && !is_of_use {
            self.put_back(&mut registry, slot);
            return Err(NotSpawned::Closed);
        }
        if self.owed(&registry) > 0 {
            self.put_back(&mut registry, slot);
            return Err(NotSpawned::Withheld);
        }
        registry.starting += 1;
        let it = &self.slots[slot];
        // SAFETY: the slot is from `take_free`, and given once.
        unsafe { it.begin_start() };
        if self.env.hooks.start.is_some() {
            it.record.begin_hook();
        }
        Ok(())
    }

    fn start_failed(&self, slot: usize) {
        let mut registry = lock(&self.registry);
        registry.starting -= 1;
        let it = &self.slots[slot];
        if it.record.is_in_start_hook() {
            it.record.end_hook();
        }
        // SAFETY: begun by this thread, and the system gave none.
        unsafe { it.start_failed() };
        self.put_back(&mut registry, slot);
        self.changed.notify_all();
        drop(registry);
        // Relaxed: a count.
        self.counts.spawn_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// The thread exists: it is counted, and gets its first order.
    fn register(&self, slot: usize, handle: Handle, first: First<'_>) -> Option<Location> {
        let it = &self.slots[slot];
        let mut registry = lock(&self.registry);
        registry.starting -= 1;
        // SAFETY: held by this thread; the new one waits for its first order.
        unsafe { it.set_thread(handle.thread().clone()) };
        if registry.handles.len() <= slot {
            registry.handles.resize_with(slot + 1, || None);
        }
        registry.handles[slot] = Some(handle);
        let used = registry.handles.len();
        registry.tasks_before.resize(used, 0);
        registry.tasks_before[slot] = it.record.tally(|| 0).ended();
        registry.live += 1;
        registry.spawned += 1;
        registry.peak = registry.peak.max(registry.live);
        if let (Some(queue), 1) = (&self.queue, registry.live) {
            queue.wake();
        }
        self.want_cleaner(&registry, slot);
        // A shutdown may wait for `starting` to go down.
        self.changed.notify_all();
        let location = self.give_first_order(slot, first);
        // The limit may have been lowered while the thread was being started.
        self.retire_surplus(&registry);
        location
    }

    fn give_first_order(&self, slot: usize, first: First<'_>) -> Option<Location> {
        let it = &self.slots[slot];
        match first {
            First::Run(task) => {
                let task = task.take().expect("a task to begin with");
                let how = how_to_hand_over(&task);
                // SAFETY: held by this thread.
                let generation = unsafe { it.hand_first(task, how) };
                self.set_affinity(slot, generation);
                return Some(Location::Mailbox { slot, generation });
            }
            // In its start hook it looks at nothing: it comes to the queue after it.
            First::Search if !it.record.is_in_start_hook() => {
                self.in_flight.add(NOTIFIED);
                // SAFETY: held by this thread, and no order was given yet.
                unsafe { it.start_searching() };
            }
            First::Search | First::Idle => {
                // SAFETY: as above.
                unsafe { self.make_idle(slot) };
            }
        }
        None
    }

    // ---- telling a worker to end ----------------------------------------------------

    /// Tells every idle worker to end.
    pub(crate) fn retire_idle(&self) {
        let registry = lock(&self.registry);
        for (slot, handle) in registry.handles.iter().enumerate() {
            if let Some(handle) = handle {
                self.retire(slot, handle, false);
            }
        }
        self.wake_cleaner(&registry);
    }

    /// Tells an idle worker to end; the caller holds the registry's lock, so the handle is of
    /// the thread that is told.
    pub(crate) fn retire(&self, slot: usize, handle: &Handle, only_marked: bool) -> bool {
        if !self.slots[slot].see().is_idle() {
            return false;
        }
        self.in_flight.add(TRANSIT);
        let Some(claim) = self.slots[slot].retire(only_marked) else {
            self.leave_transit();
            return false;
        };
        if claim.marked {
            self.in_flight.unmark();
        }
        if claim.parked {
            handle.thread().unpark();
        }
        true
    }

    /// Joins threads from [`Registry::take_ending`].
    pub(crate) fn join(&self, ending: Vec<Handle>) {
        if ending.is_empty() {
            return;
        }
        let count = ending.len();
        ending.into_iter().for_each(Handle::join);
        let mut registry = lock(&self.registry);
        registry.joining -= count;
        self.changed.notify_all();
    }

    // ---- the cleaner's thread ---------------------------------------------------------

    pub(super) fn is_cleaner_of_use(&self, registry: &Registry) -> bool {
        registry.live > self.settings.min_workers
            && self.settings.idle_timeout != Duration::MAX
            && !self.is_closed()
    }

    /// Calls the cleaner to see whether it should end.
    pub(super) fn wake_cleaner(&self, registry: &Registry) {
        if let Cleaner::Here(cleaner) = &registry.cleaner {
            // ORDERING: P8: before it is unparked.
            self.cleaning.state.swap(MAY_END, Ordering::SeqCst);
            cleaner.thread().unpark();
        }
    }

    /// Sees to it that workers start a cleaner if there should be one; when the worker on the
    /// slot `new` has been started.
    fn want_cleaner(&self, registry: &Registry, new: usize) {
        // No clock in models: only one that acts at once has a thread there.
        let timed = cfg!(lazypool_loom) && !self.settings.idle_timeout.is_zero();
        if timed || !self.is_cleaner_of_use(registry) {
            return;
        }
        // ORDERING: P8: under the lock, as are all changes from and to ABSENT.
        if self.cleaning.state.load(Ordering::SeqCst) == ABSENT {
            self.put_cleaner_off();
            // ORDERING: P8: before who sleeps is woken.
            self.cleaning.state.swap(MISSING, Ordering::SeqCst);
            if registry.live == 1 {
                return;
            }
            // Who sleeps already could not know.
            let others = (registry.handles.iter().enumerate()).filter(|(slot, _)| *slot != new);
            for handle in others.filter_map(|(_, handle)| handle.as_ref()) {
                handle.thread().unpark();
            }
        }
    }

    /// A quarter of the timeout, and not less than a millisecond.
    pub(super) fn cleaner_pause(&self) -> Duration {
        (self.settings.idle_timeout / 4).max(Duration::from_millis(1))
    }

    /// Nobody tries to start the cleaner before that.
    fn put_cleaner_off(&self) {
        let due =
            (now().saturating_duration_since(self.env.epoch) + self.cleaner_pause()).as_nanos();
        // Relaxed: it says when, nothing else. Beyond 584 years, 584 years.
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        self.cleaning.due.store(due, Ordering::Relaxed);
    }

    /// Worker: starts the cleaner if there should be one; `false` if another is about to, or
    /// there should be none.
    pub(super) fn start_cleaner(self: &Arc<Self>) -> bool {
        let mut registry = lock(&self.registry);
        if let Cleaner::Starting | Cleaner::Here(_) = registry.cleaner {
            return false;
        }
        if !self.is_cleaner_of_use(&registry) {
            // The limit was lowered meanwhile: there is nobody for it to retire.
            // ORDERING: P8: under the lock, as are all changes from and to ABSENT.
            self.cleaning.state.swap(ABSENT, Ordering::SeqCst);
            return false;
        }
        let before = std::mem::replace(&mut registry.cleaner, Cleaner::Starting);
        self.put_cleaner_off();
        drop(registry);
        if let Cleaner::Ended(thread) = before {
            thread.join();
        }
        let name = format!("{}-cleaner", self.env.name);
        let core = Arc::clone(self);
        let started = handle::start(name, None, move || (core.mains.cleaner)(&core));
        let mut registry = lock(&self.registry);
        registry.cleaner = match started {
            Ok(handle) => {
                handle.thread().unpark();
                Cleaner::Here(handle)
            }
            Err(_) => {
                // Relaxed: a count.
                self.counts.spawn_failures.fetch_add(1, Ordering::Relaxed);
                Cleaner::Absent
            }
        };
        // A shutdown may wait for the outcome.
        self.changed.notify_all();
        true
    }
}

impl Registry {
    /// Workers' threads past their last step, to be given to [`Core::join`]: those whose
    /// thread-local destructors have run, so that who joins them waits for nothing. `all`: the
    /// others, too, and the last cleaner's; for who ends the pool.
    pub(super) fn take_ending(&mut self, all: bool) -> Vec<Handle> {
        let mut ending: Vec<_>;
        (ending, self.to_join) = std::mem::take(&mut self.to_join)
            .into_iter()
            .partition(|thread| all || thread.is_over());
        if all {
            match std::mem::take(&mut self.cleaner) {
                Cleaner::Ended(thread) => ending.push(thread),
                other => self.cleaner = other,
            }
        }
        self.joining += ending.len();
        ending
    }
}
