//! Tasks that are taken out of the queue to be dropped: by a shutdown, with their group, or with their
//! handle.
//!
//! All are taken out before code of the user's runs, and put on a list of their pool. Then the thread
//! that took them out drops what they captured, one by one. What is dropped may itself shut a pool
//! down, cancel a group or drop a handle: such a call adds to its pool's list, and the outermost
//! discard of the thread sees to that. So it neither recurses nor waits. What is dropped may wait for
//! other threads, so those help: who begins to wait for a group drops what is listed of that group, and
//! who shuts the pool down drops all.

use super::core::{Core, Discarded};
use crate::parts::deadline::Deadline;
use crate::sync::{lock, thread_local, Arc};
use crate::work::job::{NeverRan, Task};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ptr;

/// The outermost discard of a thread, on its stack: pools to whose lists it has added.
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

impl Outermost {
    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    fn next_pool(&self) -> Option<Arc<Core>> {
        self.0.borrow_mut().pop()
    }
}

/// Calls `f` as a discard: within the one that this thread is in, or as its outermost.
fn as_discard(f: impl FnOnce(&Outermost)) {
    // SAFETY: not null only while what it points to is on this thread's stack, which its drop sees to.
    if let Some(outermost) = unsafe { OUTERMOST.with(Cell::get).as_ref() } {
        return f(outermost);
    }
    let own = Outermost::default();
    OUTERMOST.with(|outermost| outermost.set(&own));
    f(&own);
    while let Some(pool) = own.next_pool() {
        pool.drop_listed(|listed| listed.by == own.address(), &Deadline::never());
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

    /// Drops tasks that were taken out, or leaves that to the discard that this thread is in. Callers
    /// that wait get theirs back first.
    pub(crate) fn discard(self: &Arc<Self>, tasks: impl IntoIterator<Item = Task>, why: NeverRan) {
        let (calls, others): (Vec<_>, Vec<_>) = tasks.into_iter().partition(Task::is_awaited);
        as_discard(|outermost| {
            if !others.is_empty() {
                outermost.0.borrow_mut().push(Arc::clone(self));
            }
            let by = outermost.address();
            let listed = others.into_iter().map(|task| Discarded { task, why, by });
            lock(&self.discarded).extend(listed);
            for call in calls {
                // The caller's submission goes back to it, too.
                call.discard(why).release();
            }
        });
    }

    /// Drops one task now, also within a discard: somebody may wait for it next.
    pub(crate) fn discard_now(&self, task: Task, why: NeverRan) {
        as_discard(|_| self.drop_task(task, why));
    }

    /// Drops what others have put on the list, as long as there is time; not within a discard.
    pub(crate) fn help_discard(&self, whose: impl Fn(&Task) -> bool, deadline: &Deadline) {
        if !is_discarding() {
            as_discard(|_| self.drop_listed(|listed| whose(&listed.task), deadline));
        }
    }

    /// Within a discard, before a wait for a task that it may have put on the list: drops those.
    pub(crate) fn drop_own_discarded(&self, deadline: &Deadline) {
        let own = OUTERMOST.with(Cell::get).addr();
        if own != 0 {
            self.drop_listed(|listed| listed.by == own, deadline);
        }
    }

    fn drop_listed(&self, whose: impl Fn(&Discarded) -> bool, deadline: &Deadline) {
        let mut at = 0;
        while !self.env.is_forked() && !deadline.has_passed() {
            let mut list = lock(&self.discarded);
            // Those of one discard lie together: the next is likely to be where the last one was.
            let end = list.len();
            let found = (at.min(end)..end)
                .chain(0..at.min(end))
                .find(|n| whose(&list[*n]));
            at = found.unwrap_or(end);
            let Some(next) = list.remove(at) else { return };
            drop(list);
            self.drop_task(next.task, next.why);
        }
    }

    /// What is dropped may have forked: in the child nothing more of the parent's is.
    fn drop_task(&self, task: Task, why: NeverRan) {
        let left = task.discard(why);
        if self.env.is_forked() {
            let _never_dropped = ManuallyDrop::new(left);
            return;
        }
        left.release();
    }
}
