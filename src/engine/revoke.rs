//! Tasks that their callers take back.

use super::core::Core;
use super::counts::Counts;
use super::request::Location;
use crate::work::job::Task;

impl Core {
    /// Takes a task back from where it was put; `None` if it is being started. It ends by that, as
    /// `count` says.
    #[must_use]
    pub(super) fn withdraw(&self, location: Location, count: fn(&Counts)) -> Option<Task> {
        let (slot, generation) = match location {
            Location::Mailbox { slot, generation } => (slot, generation),
            Location::Queue { position } => {
                let task = self.queue.as_ref()?.take(position)?;
                count(&self.counts);
                self.counts.remove_queued();
                self.notify_waiter();
                return Some(task);
            }
        };
        let it = &self.slots[slot];
        let task = it.revoke(generation)?;
        count(&self.counts);
        it.record.count_unrun();
        // The worker was awake, or has been woken for the task.
        self.send_to_queue(slot);
        Some(task)
    }
}
