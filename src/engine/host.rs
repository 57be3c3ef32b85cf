//! The answers to the core's questions and requests. Each comes from the file of its subject.

use crate::core::host::{Host, NotStarted};
use crate::core::submission::Location;
use crate::core::worker::{Next, Worker};
use crate::core::Claim;
use crate::engine::shared::{Core, Shared};
use crate::parts::gate::Permit;
use crate::sync::{Arc, IsHeld, Patience};
use crate::work::job::{Task, TaskEnd};
use crate::work::owed::Owed;
use std::time::Duration;

// SAFETY: `spawn_with` returns the mailbox into which it has put this task.
unsafe impl Host for Shared {
    fn start_with(
        core: &Arc<Core>,
        slot: usize,
        task: &mut Option<Task>,
        permit: Permit,
        owed: &mut Owed,
    ) -> Result<Location, (Permit, NotStarted)> {
        core.spawn_with(slot, task, permit, owed)
    }

    fn take_slot(core: &Core) -> Option<usize> {
        core.take_slot()
    }

    fn start_searching(core: &Arc<Core>, owed: &mut Owed) -> Result<(), NotStarted> {
        core.spawn_searcher(owed)
    }

    #[inline(always)]
    fn has_reserve(core: &Core) -> bool {
        core.is_any_benched()
    }

    fn try_lock(core: &Core) -> Result<(), IsHeld> {
        core.registry_by(Patience::Tries).map(drop)
    }

    fn claim_reserve(core: &Core) -> Option<(usize, Claim<'_>)> {
        core.claim_benched()
    }

    fn stamp(core: &Core) -> u64 {
        (core.host.ages.as_ref()).map_or(0, |_| core.env.nanos_now())
    }

    fn has_pushed(core: &Arc<Core>, position: u64, stamp: u64, owed: &mut Owed) {
        if let Some(ages) = &core.host.ages {
            ages.note(&core.queue, position, stamp);
        }
        core.discard_if_late(position, owed);
    }

    fn count_unrun(core: &Core, end: TaskEnd) {
        match end {
            TaskEnd::Expired => core.host.counts.expire(),
            _ => core.host.counts.discard(),
        }
    }

    fn pass(core: &Arc<Core>, of: u64, patience: Patience, owed: &mut Owed) -> Result<(), IsHeld> {
        core.pass(of, patience, owed)
    }

    fn all_is_over(core: &Arc<Core>, patience: Patience) -> Result<(), IsHeld> {
        core.retire_idle(core.registry_by(patience)?);
        Ok(())
    }

    fn begin(worker: &Worker<'_, Self>) {
        worker.run_hook(worker.core.env.hooks.start.as_deref());
    }

    #[cold]
    fn may_have_to_end(worker: &Worker<'_, Self>) -> bool {
        worker.ctx.end_child();
        worker.core.env.may_have_to_end()
    }

    fn has_to_end(worker: &Worker<'_, Self>) -> bool {
        worker.ends_by_itself()
    }

    fn should_search(worker: &Worker<'_, Self>) -> bool {
        worker.has_reason_to_end()
    }

    fn end(worker: &Worker<'_, Self>) -> Option<Next> {
        worker.end()
    }

    fn has_ended(worker: &Worker<'_, Self>) {
        worker.run_stop_hook();
    }

    fn may_sleep(core: &Core) -> Option<Duration> {
        core.time_to_sleep()
    }
}
