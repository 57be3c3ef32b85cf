//! Takes accepted tasks back, for their callers or handles.

use super::core::Core;
use super::request::Location;
use crate::parts::in_flight::NOTIFIED;
use crate::parts::slot::Claim;
use crate::work::job::Task;

impl Core {
    /// Takes a task back from the mailbox or the queue, and counts it by calling `count`. Returns
    /// `None` if a worker has started the task. Once the task is settled, the caller must serve the
    /// line.
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
        // The worker was awake, or has been unparked for this task. Now it looks at the queue
        // instead. It counts as notified until it does, unless it is in its start hook, which may
        // take long.
        if !it.see().is_starting() {
            self.in_flight.add(NOTIFIED);
        }
        // SAFETY: this thread holds the slot, because it revoked the task. So the worker cannot
        // leave its start hook meanwhile.
        unsafe { it.send_searching(Claim::AWAKE) };
        Some(task)
    }
}
