//! How a worker ends: when it may, when it must stay after all, and its last steps on its slot.

use crate::core::worker::{Next, Worker};
use crate::engine::shared::{Registry, RegistryGuard, Shared, Stopping};
use crate::parts::slot::State;
use crate::sync::{lock, thread, IsHeld, Ordering, Patience};
use crate::work::owed::{Kinds, Owed};

impl Worker<'_, Shared> {
    /// Returns `true` if this worker may have to end. A thread that closes the pool or lowers the
    /// limit sets a flag, then looks for idle workers. This worker first becomes idle, then reads
    /// the flag. So that thread finds this worker idle, or this worker sees the flag (P3). Also returns `true`
    /// if another thread holds the lock: it may have been stopped, and this worker may get a task.
    pub(crate) fn has_reason_to_end(&self) -> bool {
        match self.core.registry_by(Patience::Tries) {
            Ok(registry) => self.may_end_closed(&registry) || self.core.is_self_surplus(&registry),
            Err(IsHeld) => true,
        }
    }

    /// Returns `true` if the pool is closed and does not need this worker. The last worker stays until
    /// all permits are free, because a submission may be about to place its task. The thread that gives
    /// the last permit back then tells this worker to end.
    fn may_end_closed(&self, registry: &Registry) -> bool {
        let core = self.core;
        core.env.is_closed()
            && core.queue.is_empty()
            && (registry.live > registry.retiring + 1 || core.gate.taken() == 0)
    }

    /// Begins this worker's end if it is surplus, or if the pool is closed and does not need it.
    /// The worker is `Paying`. Returns `true` if it has to end.
    pub(crate) fn ends_by_itself(&self) -> bool {
        let core = self.core;
        let mut registry = core.registry();
        let ends = self.may_end_closed(&registry) || core.is_self_surplus(&registry);
        if ends {
            registry.retiring += 1;
            // SAFETY: this thread is the slot's worker, `Paying`.
            unsafe { self.it.step(State::Paying, State::Retiring) };
        }
        ends
    }

    /// Ends this worker, unless it is needed after all. The worker was told to end, or has found
    /// that it must. Returns its next step, or `None` if it has ended.
    pub(crate) fn end(&self) -> Option<Next> {
        let record = &self.it.record;
        if !self.pay_if_free() {
            // It asks again once it has paid.
            // SAFETY: this thread is the slot's worker, `Retiring`.
            unsafe { self.it.step(State::Retiring, State::Paying) };
            record.while_paying(Kinds::END, || self.is_not_retiring_now());
            return Some(Next::Search(None));
        }
        let registry = record.while_paying(Kinds::END, || self.core.registry());
        if self.is_needed(&registry) {
            self.stay(registry);
            return Some(Next::Search(None));
        }
        (!self.vacate(registry)).then_some(Next::Search(None))
    }

    /// Returns `true` if this worker must not end. This is so if it is not surplus, and a task is
    /// queued or the open pool would be left with fewer than `min_workers` workers.
    fn is_needed(&self, registry: &Registry) -> bool {
        let core = self.core;
        let is_missed = registry.live - registry.retiring < core.host.min_workers;
        !core.is_surplus(registry, registry.retiring - 1)
            && (is_missed && !core.env.is_closed() || !core.queue.is_empty())
    }

    /// Makes the worker `Paying` again, instead of ending it. Then it searches.
    fn stay(&self, mut registry: RegistryGuard<'_>) {
        registry.retiring -= 1;
        // SAFETY: this thread is the slot's worker, `Retiring`.
        unsafe { self.it.step(State::Retiring, State::Paying) };
    }

    /// Takes the worker's last steps on the slot. The last worker stays (`false`) if a permit is taken,
    /// because the task that has it may need a worker.
    fn vacate(&self, mut registry: RegistryGuard<'_>) -> bool {
        let core = self.core;
        if registry.live == 1 && !core.gate.sleep(&mut registry.key) {
            self.stay(registry);
            // The thread that has the permit is between two steps.
            thread::yield_now();
            return false;
        }
        let slot = self.ctx.slot;
        registry.live -= 1;
        registry.retiring -= 1;
        // ORDERING: L1: an end is counted after its start.
        core.host.headcount.retired.fetch_add(1, Ordering::SeqCst);
        let own = registry.workers[slot].take();
        lock(&core.host.ended).extend(own);
        if core.env.hooks.stop.is_some() {
            let (worker, tasks) = (registry.started_on(slot), core.tasks_of(slot));
            registry.stopping.push(Stopping { worker, tasks });
        }
        self.it.record.end_worker();
        self.ctx.has_slot.set(false);
        // SAFETY: this thread is the slot's worker, `Retiring`, and touches nothing of the slot
        // after this step. Its thread is already on the list of threads to be joined.
        unsafe { self.it.step(State::Retiring, State::Free) };
        core.return_slot(&mut registry, slot);
        core.end_sweeps(&registry);
        core.host.changed.notify_all();
        drop(registry);
        // A submission that pushed a task before the slot was free could not start a thread on that
        // slot, so another worker must look for the task (A2).
        let mut owed = Owed::default();
        owed.look();
        self.ctx.call_back(|| core.pay(&mut owed));
        true
    }

    /// Leaves the number of workers that end, because this worker has a debt to pay first. It asks again after that.
    fn is_not_retiring_now(&self) {
        self.core.registry().retiring -= 1;
    }

    // ---- hooks ----------------------------------------------------------------------

    /// Runs a hook, if there is one. The hook may fork: see [`Ctx::call_back`].
    ///
    /// [`Ctx::call_back`]: crate::work::context::Ctx::call_back
    pub(crate) fn run_hook(&self, hook: Option<&(dyn Fn(usize) + Send + Sync)>) {
        if let Some(hook) = hook {
            (self.ctx).call_back(|| self.core.env.hook(|| hook(self.ctx.slot)));
        }
    }

    /// Runs the stop hook, if there is one. The slot is free by then, and another worker may have it. A
    /// shutdown waits for this hook.
    pub(crate) fn run_stop_hook(&self) {
        let core = self.core;
        if core.env.hooks.stop.is_some() {
            self.run_hook(core.env.hooks.stop.as_deref());
            let mut registry = core.registry();
            let is_own = |it: &Stopping| Some(it.worker) == core.env.own_worker();
            let own = registry.stopping.iter().position(is_own);
            registry
                .stopping
                .swap_remove(own.expect("noted in `vacate`"));
            core.host.changed.notify_all();
        }
    }
}
