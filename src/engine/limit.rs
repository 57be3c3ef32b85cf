//! The limit: how many workers there may be at once. It can be changed at run time.
//!
//! A slot that is *withheld* has no thread and is not in the free ring, so no submission can start
//! a thread on it. With a limit of n, all slots except n are to be withheld. When the limit is
//! lowered, slots are taken out of the free ring at once. If these are too few, more slots are
//! withheld later: each thread that gives a slot back withholds that slot, under the registry's
//! lock, as long as too few are withheld. Claim B of `proofs.md` says how workers learn of the
//! limit.

use super::core::{Core, Registry};
use crate::sync::{lock, Arc};

impl Core {
    /// Returns how many slots are still to be withheld. Each of those slots has a worker, or a
    /// spawner has popped the slot from the free ring.
    pub(super) fn slots_to_withhold(&self, registry: &Registry) -> usize {
        self.settings.max_workers - registry.limit - registry.withheld.len()
    }

    /// Returns the highest number of workers that there may be now.
    pub(crate) fn limit(&self) -> usize {
        lock(&self.registry).limit
    }

    /// Sets the limit, which is from 1 to `max_workers`.
    pub(crate) fn set_limit(self: &Arc<Self>, limit: usize) {
        let mut registry = lock(&self.registry);
        registry.limit = limit;
        let stay = (self.settings.max_workers - limit).min(registry.withheld.len());
        let freed = registry.withheld.split_off(stay);
        for slot in &freed {
            self.free.push(*slot);
        }
        while self.slots_to_withhold(&registry) > 0 {
            // A slot that a spawner has popped is withheld when the spawner gives it back.
            let Some(slot) = self.free.pop() else { break };
            registry.withheld.push(slot);
        }
        self.tell_surplus(&registry);
        // Surplus workers that are idle are told to end. Workers that are in their start hook
        // without a task are taken as surplus first, as in `is_self_surplus`.
        let starting = self.in_start_hooks(&registry);
        for slot in 0..registry.workers.len() {
            if self.is_surplus(&registry, registry.retiring + starting) {
                self.retire(&mut registry, slot, false);
            }
        }
        drop(registry);
        // With a raised limit, submissions in line may have space, and a thread may be started for
        // queued tasks.
        self.serve_line();
        if !freed.is_empty() {
            self.notify_another();
        }
    }

    /// Sets or clears the flag that makes workers check whether they are surplus.
    pub(super) fn tell_surplus(&self, registry: &Registry) {
        self.env.set_surplus(self.slots_to_withhold(registry) > 0);
    }

    /// Returns `true` if the pool has more workers than its limit allows, not counting `retiring`
    /// workers, which end anyway. The last worker that stays is never surplus, because it must look
    /// after the queue.
    pub(super) fn is_surplus(&self, registry: &Registry, retiring: usize) -> bool {
        let beyond = (registry.live + registry.starting).saturating_sub(registry.limit);
        beyond > retiring && registry.live > retiring + 1
    }

    /// Returns `true` if the calling worker is surplus. Workers that are in their start hook
    /// without a task are taken as surplus before this worker, because they end by themselves after
    /// the hook.
    pub(super) fn is_self_surplus(&self, registry: &Registry) -> bool {
        self.is_surplus(registry, registry.retiring + self.in_start_hooks(registry))
    }

    /// Returns the number of workers without a task that are still in their start hook.
    fn in_start_hooks(&self, registry: &Registry) -> usize {
        (self.slots.iter().zip(&registry.workers))
            .filter(|(slot, worker)| worker.is_some() && slot.see().is_starting_without_task())
            .count()
    }
}
