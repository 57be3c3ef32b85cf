//! Tasks that their callers take back.

use super::core::Core;
use super::request::Location;
use crate::sync::Arc;
use crate::work::job::Task;

impl Core {
    /// Takes a task back from where it was put; `None` if it is being started.
    #[must_use]
    pub(super) fn withdraw(self: &Arc<Self>, location: Location) -> Option<Task> {
        match location {
            Location::Mailbox { slot, generation } => self.withdraw_handed(slot, generation),
            Location::Queue { position } => self.withdraw_queued(position),
        }
    }

    fn withdraw_queued(&self, position: u64) -> Option<Task> {
        let queue = self.queue.as_ref()?;
        let task = queue.withdraw(position, || self.counts.expire_queued())?;
        self.notify_waiter();
        Some(task)
    }

    fn withdraw_handed(self: &Arc<Self>, slot: usize, generation: u64) -> Option<Task> {
        let it = &self.slots[slot];
        let task = it.revoke(generation)?;
        self.counts.expire_handed();
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
