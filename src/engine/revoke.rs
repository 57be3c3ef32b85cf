//! Takes accepted tasks back, for their callers or handles.

use super::core::Core;
use super::request::Location;
use crate::parts::in_flight::NOTIFIED;
use crate::parts::slot::Claim;
use crate::work::job::Task;

impl Core {
    /// Takes a task back from the mailbox or the queue, and calls `count` to count it. Returns
    /// `None` if a worker has started the task, or if another thread has taken it out first. The
    /// caller must serve the line once the task is settled.
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
        // The worker was awake, or has been unparked for this task. So it can look at the queue
        // instead, and counts as notified until it does. A worker in its start hook is not counted,
        // because submissions rely on the count, and the hook may take long.
        if !it.see().is_starting() {
            self.in_flight.add(NOTIFIED);
        }
        // SAFETY: this thread revoked the task, so it holds the slot (`Held`), and the claim is
        // `AWAKE`, as said above. While the slot is `Held`, the worker cannot end its start. So
        // what `is_starting` has returned is still true.
        unsafe { it.send_searching(Claim::AWAKE) };
        Some(task)
    }
}
