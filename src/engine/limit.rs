//! The limit: how many workers there may be at once, changed at run time.
//!
//! A slot that is *withheld* has no thread and is not in the free ring, so no submission can
//! start one on it. With a limit of n, all slots but n are to be withheld. Those in the free
//! ring are taken at once; the others are *owed*: whoever gives a slot back, under the
//! registry's lock, withholds it as long as one is owed. How workers learn of it: the protocol page.

use super::core::{Core, Registry};
use crate::sync::{lock, Arc};

impl Core {
    /// Slots that are to be withheld and are not yet: of workers, and of threads being started.
    pub(super) fn slots_to_withhold(&self, registry: &Registry) -> usize {
        self.settings.max_workers - registry.limit - registry.withheld.len()
    }

    pub(crate) fn limit(&self) -> usize {
        lock(&self.registry).limit
    }

    /// Sets the limit, 1 to `max_workers`.
    pub(crate) fn set_limit(self: &Arc<Self>, limit: usize) {
        let mut registry = lock(&self.registry);
        registry.limit = limit;
        let stay = (self.settings.max_workers - limit).min(registry.withheld.len());
        let freed = registry.withheld.split_off(stay);
        for slot in &freed {
            self.free_slot(*slot);
        }
        while self.slots_to_withhold(&registry) > 0 {
            // What a spawner has popped is withheld when it comes back.
            let Some(slot) = self.free.pop() else { break };
            registry.withheld.push(slot);
        }
        self.tell_surplus(&registry);
        self.retire_surplus(&mut registry);
        drop(registry);
        // There may be space now, for those who wait for it and for what is queued.
        self.serve_line();
        if !freed.is_empty() {
            self.notify_another();
        }
    }

    pub(super) fn tell_surplus(&self, registry: &Registry) {
        self.env.set_surplus(self.slots_to_withhold(registry) > 0);
    }

    /// Whether of `live` workers, `retiring` others of which are on their way to their end, one is
    /// too many. Not the last that stays: it has the queue to look after.
    pub(super) fn is_surplus(&self, registry: &Registry, retiring: usize) -> bool {
        let beyond = (registry.live + registry.starting).saturating_sub(registry.limit);
        beyond > retiring && registry.live > retiring + 1
    }

    /// The same for a worker that asks about itself. Those in their start hook are surplus first.
    pub(super) fn is_self_surplus(&self, registry: &Registry) -> bool {
        self.is_surplus(registry, registry.retiring + self.in_start_hooks(registry))
    }

    /// Workers without a task that are still in their start hook.
    fn in_start_hooks(&self, registry: &Registry) -> usize {
        (self.slots.iter().zip(&registry.workers))
            .filter(|(slot, worker)| worker.is_some() && slot.see().is_starting_without_task())
            .count()
    }

    /// Tells as many idle workers to end as there are too many. Workers still in their start hook are
    /// counted first: they end by themselves.
    fn retire_surplus(&self, registry: &mut Registry) {
        let starting = self.in_start_hooks(registry);
        for slot in 0..registry.workers.len() {
            if !self.is_surplus(registry, registry.retiring + starting) {
                return;
            }
            self.retire(registry, slot, false);
        }
    }
}
