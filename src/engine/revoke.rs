//! Takes accepted tasks back, for their callers or handles.

use super::core::Core;
use super::request::Location;
use crate::parts::in_flight::NOTIFIED;
use crate::parts::slot::Claim;
use crate::work::job::Task;

impl Core {
    /// Takes a task back from the mailbox or the queue, and calls `count` to count it. Returns
    /// `None` if a worker has started it. The caller of this function serves the line once the task
    /// is settled.
    #[must_use]
    pub(super) fn withdraw(
        &self,
        location: Location,
        count: impl FnOnce(&Self, &Task),
    ) -> Option<Task> {
        let (slot, generation) = match location {
            Location::Mailbox { slot, generation } => (slot, generation),
            Location::Queue { position } => {
                let task = self.queue.as_ref()?.take(position)?;
                count(self, &task);
                return Some(task);
            }
        };
        let it = &self.slots[slot];
        let task = it.revoke(generation)?;
        count(self, &task);
        it.record.count_unrun();
        // The worker was awake, or has been unparked for this task, so it looks at the queue
        // instead. Until then it counts as notified. A worker in its start hook does not, because
        // the hook may take long.
        if !it.see().is_starting() {
            self.in_flight.add(NOTIFIED);
        }
        // SAFETY: this thread holds the slot, because this thread revoked the task. So a worker
        // that is `STARTING` stays so meanwhile.
        unsafe { it.send_searching(Claim::AWAKE) };
        Some(task)
    }
}
