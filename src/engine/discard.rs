//! Tasks that are taken out of the queue to be dropped: by a shutdown, with their group, or with their
//! handle.
//!
//! All of them are taken out before code of the user's runs. Then the thread that took them out drops
//! what they captured, one by one. What is dropped may itself shut a pool down, cancel a group or drop a
//! handle: such a call leaves the tasks that it takes out to the discard that its thread is in. A
//! shutdown, cancel or group's wait there does not wait; a handle's first drops what is listed.

use super::core::Core;
use crate::sync::{fork, thread_local};
use crate::work::job::{NeverRan, Task};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::ptr;

/// What a thread has taken out and is still to drop, on its stack; with the [`fork::generation`] of its
/// pool, which it does not keep alive: the drop of a pool's hooks may panic.
type List = RefCell<VecDeque<(u64, Task, NeverRan)>>;

thread_local! {
    /// The list of the discard that this thread is in.
    static LIST: Cell<*const List> = const { Cell::new(ptr::null()) };
}

/// Calls `f` with the list of the discard that this thread is in, if it is in one.
fn with_list<R>(f: impl FnOnce(Option<&List>) -> R) -> R {
    // SAFETY: not null only while `discard`, further up this thread's stack, keeps the list.
    f(unsafe { LIST.with(Cell::get).as_ref() })
}

/// Whether this thread is dropping a discarded task: then it must not wait for others.
pub(crate) fn is_discarding() -> bool {
    with_list(|list| list.is_some())
}

/// Drops what this thread has taken out and is still to drop. A caller that is about to wait for a
/// task may have that one among them.
pub(crate) fn drop_listed() {
    with_list(|list| list.map(drop_all));
}

fn drop_all(list: &List) {
    loop {
        let Some((generation, task, why)) = list.borrow_mut().pop_front() else {
            return;
        };
        let left = task.discard(why);
        if generation != fork::generation() {
            // What was dropped has forked: in the child nothing more of the parent's is.
            let _never_dropped = ManuallyDrop::new((left, list.take()));
            return;
        }
        left.release();
    }
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
    pub(crate) fn discard(&self, tasks: impl IntoIterator<Item = Task>, why: NeverRan) {
        let (calls, others): (Vec<_>, Vec<_>) = tasks.into_iter().partition(Task::is_awaited);
        for call in calls {
            // The caller's submission goes back to it, too.
            call.discard(why).release();
        }
        let generation = self.env.generation();
        let others = others.into_iter().map(|task| (generation, task, why));
        let own = List::default();
        let is_outermost = with_list(|outer| {
            outer.unwrap_or(&own).borrow_mut().extend(others);
            outer.is_none()
        });
        if is_outermost {
            LIST.with(|list| list.set(&own));
            // Nothing in it unwinds: all code of the user's is contained.
            drop_all(&own);
            LIST.with(|list| list.set(ptr::null()));
        }
    }
}
