//! The limit: how many workers there may be at once, changed at run time.
//!
//! A slot that is *withheld* has no thread and is not in the free ring, so no submission can
//! start one on it. With a limit of n, all slots but n are to be withheld. Those in the free
//! ring are taken at once; the others are *owed*: whoever gives a slot back, under the
//! registry's lock, withholds it as long as one is owed.
//!
//! While a slot is owed there are too many workers, or threads being started. A flag beside the
//! pool's phase says so (`SURPLUS`), which every submission and every worker reads anyhow. Then
//!
//! * a submitter that has claimed an idle worker asks, under the lock, whether it is surplus,
//!   and if so sends it to its end instead;
//! * a spawner that finds a slot owed gives its own back, and starts nothing;
//! * a worker that looks at the queue finds it guarded, so that also a pop under way when the
//!   limit is lowered fails. It asks the same, pops under the lock if it may (Q3), and else goes
//!   idle;
//! * a worker that has gone idle asks before it sleeps. Who lowers the limit sets the flag, then
//!   looks for idle workers; a worker publishes `Idle`, then reads the flag (P9).
//!
//! One that is retiring while a slot is owed ends whatever is queued, if another worker lives that
//! is not on its way to its end (where one is just being started, it waits for the outcome: that
//! may fail); it notifies another before its stop hook, and once its slot is back. So no task is
//! stranded, or waits for a hook: it is left to a worker that lives and has not been told to end,
//! or to one that stays.

use super::core::{Core, Registry};
use crate::parts::queue::{Popped, Queue};
use crate::parts::slot::State;
use crate::sync::{self, lock, lock_unless, Arc, MutexGuard};
use crate::work::job::Task;

impl Registry {
    /// How many of so many workers have to end besides those that are retiring, while one stays.
    /// A slot that a spawner has popped and not begun is owed, too, but comes back by itself.
    fn surplus_of(&self, workers: usize, retiring: usize) -> usize {
        let others = workers.saturating_sub(retiring + 1);
        let beyond = (self.live + self.starting).saturating_sub(self.limit);
        beyond.saturating_sub(retiring).min(others)
    }
}

impl Core {
    /// Slots that are to be withheld and are not yet: of workers, threads being started, and
    /// spawners that are about to ask whether they may.
    pub(super) fn owed(&self, registry: &Registry) -> usize {
        self.settings.max_workers - registry.limit - registry.withheld.len()
    }

    pub(crate) fn limit(&self) -> usize {
        let registry = lock_unless(self.env.is_forked(), &self.registry);
        registry.map_or(self.settings.max_workers, |registry| registry.limit)
    }

    /// Sets the limit, 1 to `max_workers`.
    pub(crate) fn set_limit(self: &Arc<Self>, limit: usize) {
        if self.env.is_forked() {
            return;
        }
        let mut registry = lock(&self.registry);
        registry.limit = limit;
        while registry.withheld.len() > self.settings.max_workers - limit {
            if let Some(slot) = registry.withheld.pop() {
                self.free_slot(slot);
            }
        }
        while self.owed(&registry) > 0 {
            // What a spawner holds is withheld when it comes back.
            let Some(slot) = self.free.pop() else { break };
            registry.withheld.push(slot);
        }
        self.tell_surplus(&registry);
        self.retire_surplus(&registry);
        drop(registry);
        // There may be room now, for those who wait for it and for what is queued.
        self.settled();
        self.notify_another();
    }

    /// Under the lock: a slot without a thread is free again, or withheld.
    pub(super) fn put_back(&self, registry: &mut Registry, slot: usize) {
        if self.owed(registry) == 0 {
            return self.free_slot(slot);
        }
        registry.withheld.push(slot);
        self.tell_surplus(registry);
    }

    fn tell_surplus(&self, registry: &Registry) {
        if self.env.has_surplus() != (self.owed(registry) > 0) {
            self.env.set_surplus(self.owed(registry) > 0);
            if let Some(queue) = &self.queue {
                queue.guard(self.owed(registry) > 0);
            }
        }
    }

    /// Workers on their way to their end.
    pub(super) fn retiring(&self, registry: &Registry) -> usize {
        (registry.handles.iter().enumerate())
            .filter(|(slot, h)| h.is_some() && self.slots[*slot].see().state() == State::Retiring)
            .count()
    }

    /// How many more workers have to end, while one lives or is being started that need not.
    fn surplus(&self, registry: &Registry) -> usize {
        let there = registry.live + registry.starting;
        registry.surplus_of(there, self.retiring(registry))
    }

    fn is_one_surplus(&self, registry: &Registry) -> bool {
        self.surplus(registry) > 0
    }

    /// Worker that retires: whether it has to end whatever is queued. Others on their way to their
    /// end come first, which may be in their stop hooks: what is queued must not wait for those.
    pub(super) fn must_end(&self, registry: &Registry) -> bool {
        if self.owed(registry) == 0 {
            return false;
        }
        let others = self.retiring(registry) - 1;
        registry.surplus_of(registry.live, others) > 0
    }

    /// Worker that retires: waits as long as it depends on a thread being started whether it
    /// is one too many, or the last.
    pub(super) fn registry_to_end(&self) -> MutexGuard<'_, Registry> {
        let mut registry = lock(&self.registry);
        while self.owed(&registry) > 0
            && registry.starting > 0
            && self.retiring(&registry) == registry.live
        {
            registry = sync::wait(&self.changed, registry, None);
        }
        registry
    }

    /// Tells as many idle workers to end as there are too many.
    pub(super) fn retire_surplus(&self, registry: &Registry) {
        if self.owed(registry) == 0 {
            return;
        }
        let mut left = self.surplus(registry);
        for (slot, handle) in registry.handles.iter().enumerate() {
            if left == 0 {
                break;
            }
            if let Some(handle) = handle {
                left -= usize::from(self.retire(slot, handle, false));
            }
        }
    }

    /// Whether a worker that was just claimed may be given an order; else it is told to end.
    #[inline]
    pub(super) fn may_use(&self, slot: usize) -> bool {
        !self.env.has_surplus() || self.may_use_surplus(slot)
    }

    #[cold]
    fn may_use_surplus(&self, slot: usize) -> bool {
        let registry = lock(&self.registry);
        if !self.is_one_surplus(&registry) {
            return true;
        }
        // SAFETY: the caller has just claimed it.
        unsafe { self.make_idle(slot) };
        if let Some(Some(handle)) = registry.handles.get(slot) {
            // Another who claims it meanwhile asks the same.
            self.retire(slot, handle, false);
            // It may have slept when it was claimed, and its word says so no more.
            handle.thread().unpark();
        }
        false
    }

    /// Worker that searches a guarded queue: takes the next task, unless it is one too many
    /// (`None`). Under the lock: the limit stays as it is meanwhile.
    #[cold]
    pub(super) fn pop_by_leave(
        &self,
        queue: &Queue<Task>,
        place: &mut Option<Task>,
    ) -> Option<Popped> {
        let registry = lock(&self.registry);
        (!self.is_one_surplus(&registry)).then(|| queue.pop_guarded(place))
    }

    /// Tells a worker to end that this thread has made idle, if it is one too many, or the pool is
    /// closed.
    #[cold]
    pub(super) fn retire_if_due(&self, slot: usize) {
        let registry = lock(&self.registry);
        if let Some(Some(handle)) = registry.handles.get(slot) {
            if self.is_closed() || self.is_one_surplus(&registry) {
                self.retire(slot, handle, false);
            }
        }
    }
}
