//! Tasks that are taken out of the queue to be dropped: by a shutdown, or with their group.
//!
//! All are taken out before code of the user's runs. Then what they captured is dropped, one by
//! one. What is dropped may itself shut a pool down, or cancel a group: such a call adds to its
//! pool's list, which the outermost discard of the thread empties. So it neither recurses nor
//! waits. Other threads that discard or wait empty the list, too: what is dropped may wait for them.

use super::core::Core;
use crate::parts::deadline::Deadline;
use crate::sync::{lock, thread_local, Arc};
use crate::work::job::{NeverRan, Task};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ptr;

/// The outermost discard of a thread, on its stack: pools whose lists it is still to empty.
#[derive(Default)]
struct Outermost(RefCell<Vec<Arc<Core>>>);

thread_local! {
    static OUTERMOST: Cell<*const Outermost> = const { Cell::new(ptr::null()) };
}

impl Drop for Outermost {
    fn drop(&mut self) {
        OUTERMOST.with(|outermost| outermost.set(ptr::null()));
    }
}

/// Whether this thread is dropping a discarded task: it must not wait for others.
pub(crate) fn is_discarding() -> bool {
    OUTERMOST.with(|outermost| !outermost.get().is_null())
}

impl Core {
    /// Takes the queued tasks out that are `unwanted`, and counts them; at most so many.
    pub(crate) fn take_out(&self, most: usize, unwanted: impl Fn(&Task) -> bool) -> Vec<Task> {
        let mut taken = Vec::new();
        let Some(queue) = self.queue.as_ref().filter(|_| most > 0) else {
            return taken;
        };
        let mut from = queue.first();
        while let Some(task) = queue.take_wanted(&mut from, &unwanted) {
            self.counts.discard();
            self.counts.remove_queued();
            task.begin_discard();
            taken.push(task);
            self.notify_waiter();
            if taken.len() == most {
                break;
            }
        }
        taken
    }

    /// Drops tasks that were taken out. Callers that wait get theirs back first.
    pub(crate) fn discard(self: &Arc<Self>, tasks: Vec<Task>, why: NeverRan) {
        let (calls, others): (Vec<_>, Vec<_>) = tasks.into_iter().partition(Task::is_awaited);
        lock(&self.discarded).extend(others.into_iter().map(|task| (task, why)));
        for call in calls {
            // The caller's submission goes back to it, too.
            drop(call.discard(why).release());
        }
        self.drop_discarded(&Deadline::never());
    }

    /// Empties the list, or leaves that to the discard that this thread is in, or at the deadline to
    /// those who filled it.
    pub(crate) fn drop_discarded(self: &Arc<Self>, deadline: &Deadline) {
        let outermost = OUTERMOST.with(Cell::get);
        // SAFETY: not null only while what it points to is on this thread's stack, which its drop
        // sees to.
        if let Some(outermost) = unsafe { outermost.as_ref() } {
            return outermost.0.borrow_mut().push(Arc::clone(self));
        }
        let own = Outermost::default();
        OUTERMOST.with(|outermost| outermost.set(&own));
        self.empty_discarded(deadline);
        loop {
            let Some(pool) = own.0.borrow_mut().pop() else {
                return;
            };
            pool.empty_discarded(&Deadline::never());
        }
    }

    fn empty_discarded(&self, deadline: &Deadline) {
        while !self.env.is_forked() && !deadline.has_passed() {
            let Some((task, why)) = lock(&self.discarded).pop_front() else {
                return;
            };
            let left = task.discard(why);
            if self.env.is_forked() {
                let _never_dropped = ManuallyDrop::new(left);
                return;
            }
            let _dropped_here = left.release();
        }
    }
}
