//! Tasks that their callers or their handles take back.

use super::core::Core;
use super::counts::Counts;
use super::request::Location;
use crate::parts::queue::Queue;
use crate::sync::Arc;
use crate::work::job::Task;

impl Core {
    /// Takes a caller's task back from where it was put, as expired; `None` if it is being started.
    #[must_use]
    pub(super) fn withdraw(self: &Arc<Self>, location: Location) -> Option<Task> {
        match location {
            Location::Mailbox { slot, generation } => {
                self.withdraw_handed(slot, generation, Counts::expire_handed)
            }
            Location::Queue { position } => {
                let count = || self.counts.expire_queued();
                self.withdraw_queued(|queue| queue.withdraw(position, count))
            }
        }
    }

    /// The same for a handle, as discarded. Another may have taken its task out before, so that one of
    /// others' is at the position now.
    #[must_use]
    pub(super) fn withdraw_cancelled(
        self: &Arc<Self>,
        location: Location,
        node: *const (),
    ) -> Option<Task> {
        match location {
            Location::Mailbox { slot, generation } => {
                self.withdraw_handed(slot, generation, Counts::discard_handed)
            }
            Location::Queue { position } => {
                let is_it = |task: &Task| task.is_of(node);
                let count = || self.counts.discard_queued();
                self.withdraw_queued(|queue| queue.withdraw_if(position, is_it, count))
            }
        }
    }

    fn withdraw_queued(&self, take: impl FnOnce(&Queue<Task>) -> Option<Task>) -> Option<Task> {
        let task = take(self.queue.as_ref()?)?;
        self.notify_waiter();
        Some(task)
    }

    fn withdraw_handed(
        self: &Arc<Self>,
        slot: usize,
        generation: u64,
        count: fn(&Counts),
    ) -> Option<Task> {
        let it = &self.slots[slot];
        let task = it.revoke(generation)?;
        count(&self.counts);
        it.record.count_revoked();
        // This thread does what the worker does after a task.
        // SAFETY: it holds the slot, by what it revoked.
        let was_in_start_hook = unsafe { self.make_idle(slot) };
        // ORDERING: H1: a worker that ended its hook before it was idle again goes to sleep
        // marked, and for the cleaner it was in its hook.
        if was_in_start_hook && !it.record.is_in_start_hook() {
            self.wake_dozing_cleaner();
        }
        self.notify_waiter();
        if self.env.is_closed_or_over() {
            self.retire_if_due(slot);
        }
        self.notify_in_time();
        Some(task)
    }
}
