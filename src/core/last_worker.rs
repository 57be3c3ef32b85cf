//! The last worker of a thread: the one that it last gave a task or a notice; or the one that has given it an outcome since, if the node names a slot.
//!
//! That worker probably does not sleep yet, and its cache lines are near. So a thread tries it first. It
//! also keeps a sequential caller on one worker, however many there are.

use super::host::Host;
use super::submission::Location;
use super::{Claim, Core, TaskClaim};
use crate::parts::backoff::Throttle;
use crate::parts::completion::WaitNode;
use crate::sync::thread_local;
use std::cell::Cell;

/// No generation: the last worker is not to be claimed next.
const APART: u64 = u64::MAX;

thread_local! {
    /// This thread's last worker: its pool's id, its slot, and the generation of the task that was
    /// handed to it. The generation is zero if this thread notified the worker instead, if the task
    /// came from the queue, or if the last attempt to claim the worker failed. It is [`APART`] if this thread
    /// is to use another worker.
    static LAST_WORKER: Cell<(u64, usize, u64)> = const { Cell::new((0, 0, 0)) };
    /// This thread's last task: its pool's id, and the place where it was put last. Two kinds are noted: a task that may end with wakers to call, as it is placed (the
    /// host tells of it); and a call that was queued or offered again, as its outcome is there. (The end of another call leads to a waker only if it passes its permit. The thread's next
    /// task is queued then.)
    static LAST_TASK: Cell<(u64, Location)> = const { Cell::new((0, Location::Queue { position: 0 })) };
    /// Decides how often `result_came_after_yield` acts.
    static SEPARATIONS: Throttle = const { Throttle::new() };
}

impl<H: Host> Core<H> {
    /// Makes the worker on a slot this thread's last worker.
    #[inline]
    pub(crate) fn set_last_worker(&self, slot: usize, generation: u64) {
        LAST_WORKER.with(|it| it.set((self.env.id, slot, generation)));
    }

    /// Notes where this thread's last task was placed, if that task may end with wakers to call.
    pub(crate) fn set_last_task(&self, location: Location) {
        LAST_TASK.with(|it| it.set((self.env.id, location)));
    }

    /// Calls `f`, then restores this thread's last worker and task. So a thread that places other threads'
    /// tasks in `f` keeps those of its own tasks.
    pub(crate) fn keep_last_worker<R>(f: impl FnOnce() -> R) -> R {
        let before = (LAST_WORKER.with(Cell::get), LAST_TASK.with(Cell::get));
        let result = f();
        LAST_WORKER.with(|it| it.set(before.0));
        LAST_TASK.with(|it| it.set(before.1));
        result
    }

    /// Claims this thread's last worker, if it is idle. If the worker is parked, claims it only if `even_parked` is set.
    #[inline]
    pub(super) fn claim_last_worker(&self, even_parked: bool) -> Option<(usize, Claim<'_>)> {
        let (pool, slot, last) = LAST_WORKER.with(Cell::get);
        if pool != self.env.id || last == APART {
            return None;
        }
        let claim = self.slots[slot].claim_last_used(last, even_parked);
        // After a failed claim, the stored generation becomes zero. The next calls then load the
        // worker's word, and try a compare-and-swap only if the worker is idle, until this thread
        // gives that worker a task again. Otherwise submitters to a saturated pool would take the
        // workers' cache lines away from the workers again and again.
        if claim.is_none() && last != 0 {
            self.set_last_worker(slot, 0);
        }
        Some((slot, claim?))
    }

    /// Claims a worker if this thread's last worker calls the wakers to which the end of this thread's last task has led: an idle one, or else
    /// that one. So no thread is started for a caller that awaits one task after the other (law 5). This task waits for the
    /// wakers, and no other one that was handed over does (law 21).
    pub(super) fn claim_calling(&self) -> Option<(usize, TaskClaim<'_>)> {
        // Also if this thread is to use another worker next (`APART`): it would have to be started.
        let (pool, slot, _) = LAST_WORKER.with(Cell::get);
        let (its_pool, task) = LAST_TASK.with(Cell::get);
        if pool != self.env.id || its_pool != pool || !task.may_be_on(slot) {
            return None;
        }
        let task = task.task_id();
        if !self.calls_for(slot, task) {
            return None;
        }
        if let Some((idle, claim)) = self.claim_idle() {
            return Some((idle, claim.into()));
        }
        if !self.calls_for(slot, task) {
            return None;
        }
        Some((slot, self.claim_if_it_calls_for(slot, task)?))
    }

    /// Returns `true` if the worker on a slot calls the wakers of this task. It may be through with them right after that.
    fn calls_for(&self, slot: usize, task: u64) -> bool {
        let it = &self.slots[slot];
        it.load().is_calling() && it.record.calls_for() == task
    }

    /// Claims the worker on a slot, if it calls the wakers of this task.
    pub(crate) fn claim_if_it_calls_for(&self, slot: usize, task: u64) -> Option<TaskClaim<'_>> {
        let it = &self.slots[slot];
        let claim = it.claim_calling()?;
        // A claimed worker stays with these wakers. Before the claim, it may have gone on to another task, and to a stranger's wakers.
        if it.record.calls_for() == task {
            return Some(claim);
        }
        claim.send_uncounted();
        None
    }

    /// Notes that a result arrived after this thread had yielded its CPU.
    ///
    /// In that case the caller and the worker probably share a CPU. Neither of them sleeps, so the
    /// scheduler does not separate them, and they share the CPU call after call. To end this, the
    /// thread does not claim its last worker next, and parks at once in its next wait. Then another worker
    /// takes the next task, or the scheduler moves one of the two threads. If all CPUs are busy,
    /// this does not help. It only spreads the calls over more workers, so that none of them is
    /// idle for long enough to end (laws 5 and 6). So the thread does it rarely.
    pub(super) fn result_came_after_yield(&self) {
        if SEPARATIONS.with(Throttle::try_now) {
            let (pool, slot, _) = LAST_WORKER.with(Cell::get);
            LAST_WORKER.with(|it| it.set((pool, slot, APART)));
            WaitNode::park_next_time();
        }
    }

    /// Notes that a result arrived before this thread yielded its CPU.
    #[inline]
    pub(super) fn result_came_without_yield(&self) {
        SEPARATIONS.with(Throttle::went_well);
    }
}
