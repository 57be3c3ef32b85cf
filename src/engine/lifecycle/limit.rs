//! The limit: how many workers there may be at once. It can be changed at run time.
//!
//! A slot that is *withheld* has no thread and is not in the free ring, so no submission can start
//! a thread on it. With a limit of n, all slots except n are to be withheld. When the limit is
//! lowered, slots are taken out of the free ring at once. If these are too few, more slots are
//! withheld later: each thread that gives a slot back withholds that slot, under the registry's
//! lock, as long as too few are withheld. Claim B of this room's page says how workers learn of the
//! limit.

use crate::engine::shared::{Core, Registry, RegistryGuard};
use crate::parts::slot::{Slot, State};
use crate::sync::{Arc, Ordering};
use crate::work::owed::Owed;
use crate::work::record::Record;

impl Core {
    /// Returns how many slots are still to be withheld. Each of those slots has a worker, or a
    /// spawner has popped the slot from the free ring.
    pub(crate) fn slots_to_withhold(&self, registry: &Registry) -> usize {
        self.max_workers() - registry.limit - registry.withheld.len()
    }

    /// Returns the highest number of workers that there may be now.
    pub(crate) fn limit(&self) -> usize {
        // The gate has the same number, and a reader takes no lock there.
        self.gate.bound() as usize - self.queue_capacity
    }

    /// Sets the limit, which is from 1 to `max_workers`.
    pub(crate) fn set_limit(self: &Arc<Self>, limit: usize) {
        let mut registry = self.registry();
        if limit == std::mem::replace(&mut registry.limit, limit) {
            return;
        }
        let deals = &self.host.headcount.deals;
        // ORDERING: P3: odd before there are more permits and before the slots leave the ring, and even after they
        // are back.
        deals.fetch_add(1, Ordering::SeqCst);
        let mut owed = Owed::default();
        let (permits, given) = self.gate.set_bound(limit + self.queue_capacity);
        if permits > 0 {
            owed.note_given(permits, given);
        }
        // All slots without a thread are dealt out anew: the highest are withheld, so that threads are
        // started on the lowest. A slot that a spawner has popped is withheld when the spawner gives it
        // back.
        let mut slots = std::mem::take(&mut registry.withheld);
        slots.extend(std::iter::from_fn(|| self.free.pop()));
        slots.sort_unstable();
        let free = slots.len() - self.slots_to_withhold(&registry).min(slots.len());
        registry.withheld = slots.split_off(free);
        slots.into_iter().for_each(|slot| self.free.push(slot));
        // ORDERING: P3: as above.
        deals.fetch_add(1, Ordering::SeqCst);
        self.tell_surplus(&mut registry);
        self.retire_needless(&mut registry);
        drop(registry);
        // A thread may be started for queued tasks; also for those of submissions that found no free
        // slot meanwhile.
        owed.look();
        self.pay(&mut owed);
    }

    /// Takes a free slot. If a change of the limit has the free slots in hand, waits for its end.
    pub(crate) fn take_slot(&self) -> Option<usize> {
        // ORDERING: P3: read before this thread looks at the ring, and after that.
        let deals = || self.host.headcount.deals.load(Ordering::SeqCst);
        let before = deals();
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        if before % 2 == 0 && deals() == before {
            return None;
        }
        let _registry = self.registry();
        self.free.pop()
    }

    /// Tells surplus workers that are idle to end. Those that are in their start hook without a task are
    /// taken as surplus first, as in `is_self_surplus`.
    pub(crate) fn retire_surplus(&self, registry: &mut RegistryGuard<'_>) {
        let new = self.new_without_task(registry);
        for slot in 0..registry.workers.len() {
            if self.is_surplus(registry, registry.retiring + new) {
                self.retire(registry, slot, false);
            }
        }
    }

    /// Sets or clears the flag that makes workers check whether they are surplus.
    pub(crate) fn tell_surplus(&self, registry: &mut Registry) {
        let is_there = self.slots_to_withhold(registry) > 0;
        self.env.set_surplus(is_there, &mut registry.key);
    }

    /// Returns `true` if the pool has more workers than its limit allows, not counting `retiring`
    /// workers, which end anyway, and those that are being started, for which the OS may give no thread. The last worker that stays is never surplus, because it must look
    /// after the queue.
    pub(crate) fn is_surplus(&self, registry: &Registry, retiring: usize) -> bool {
        let beyond = registry.live.saturating_sub(registry.limit);
        beyond > retiring && registry.live > retiring + 1
    }

    /// Returns `true` if the calling worker is surplus. Workers that are in their start hook without a
    /// task are taken as surplus before this worker, because they end by themselves after the hook.
    pub(crate) fn is_self_surplus(&self, registry: &Registry) -> bool {
        // The second step reads a word of each worker.
        let retiring = registry.retiring;
        self.is_surplus(registry, retiring)
            && self.is_surplus(registry, retiring + self.new_without_task(registry))
    }

    /// Returns the number of workers without a task that are still in their start hook.
    fn new_without_task(&self, registry: &Registry) -> usize {
        if self.env.hooks.start.is_none() {
            return 0;
        }
        let is_new =
            |slot: &Slot<_, Record>| slot.record.is_new() && slot.load().state() == State::Paying;
        (self.slots.iter().zip(&registry.workers))
            .filter(|(slot, worker)| worker.is_some() && is_new(slot))
            .count()
    }
}
