//! Tasks that are taken out of the queue to be dropped: by a shutdown, or with their group.
//!
//! All are taken out before code of the user's runs. Then what they captured is dropped, one by
//! one, on the thread that discards them. What is dropped may itself shut a pool down, or cancel a
//! group: the outermost discard of the thread drops the tasks of these, too, so such calls neither
//! recurse nor wait.

use super::core::Core;
use crate::sync::{fork, thread_local};
use crate::work::job::{Discarded, Task};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;

thread_local! {
    /// What the outermost discard of this thread is still to drop; `None`: there is none.
    static LEFT: RefCell<Option<VecDeque<Task>>> = const { RefCell::new(None) };
}

/// Whether this thread is dropping a discarded task: it must not wait for others.
pub(crate) fn is_discarding() -> bool {
    LEFT.try_with(|left| left.borrow().is_some())
        .unwrap_or(false)
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
}

/// Drops tasks that were taken out, or leaves that to the discard that this thread is in. Callers
/// that wait get theirs back first.
pub(crate) fn discard(tasks: Vec<Task>) {
    let (calls, others): (Vec<_>, Vec<_>) = tasks.into_iter().partition(Task::is_awaited);
    let seen: Vec<_> = (calls.into_iter())
        .map(|task| task.discard().release())
        .collect();
    let process = fork::generation();
    // Subscribers, who may fork: in the child nothing more of the parent's is dropped.
    for seen in seen {
        if fork::generation() != process {
            let _never_dropped = ManuallyDrop::new(seen);
        }
    }
    let mut others = VecDeque::from(others);
    let is_nested = LEFT.try_with(|left| match &mut *left.borrow_mut() {
        Some(left) => {
            left.append(&mut others);
            true
        }
        none => {
            *none = Some(std::mem::take(&mut others));
            false
        }
    });
    match is_nested {
        Ok(true) => {}
        Ok(false) => {
            let next = || LEFT.with(|left| left.borrow_mut().as_mut()?.pop_front());
            drop_all(process, std::iter::from_fn(next));
            LEFT.with(|left| left.borrow_mut().take());
        }
        // The thread's last destructors run.
        Err(_) => drop_all(process, others.into_iter()),
    }
}

fn drop_all(process: u64, tasks: impl Iterator<Item = Task>) {
    for task in tasks {
        let left: Discarded = task.discard();
        if fork::generation() != process {
            let _never_dropped = ManuallyDrop::new(left);
            return;
        }
        let _dropped_here = left.release();
    }
}
