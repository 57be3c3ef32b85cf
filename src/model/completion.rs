//! A worker's decision and a caller's node, without a pool.

use super::Deadline;
use crate::parts::backoff::Backoff;
use crate::parts::completion::{self, WaitNode};
use crate::parts::deadline;
use crate::sync::UnsafeCell;

/// The decision of a worker.
#[derive(Debug)]
pub struct Decision(pub(super) completion::Decision);

/// The memory on a caller's stack: its node, and a place for the result. It is gone once the caller
/// has left.
#[derive(Debug)]
pub struct Call {
    node: WaitNode,
    outcome: UnsafeCell<Option<usize>>,
    task_id: u64,
}

/// A call's task, on its way to a worker.
#[derive(Debug)]
pub struct Task {
    call: *const Call,
    task_id: u64,
}

// SAFETY: the decision and the node let one thread at a time touch the call's memory. If they did
// not, loom would report it.
unsafe impl Send for Task {}

impl Call {
    /// Returns a call whose task is handed over in a slot's mailbox. `generation` is the slot's
    /// generation for this task.
    pub fn by_mailbox(generation: u64) -> Self {
        Self::new(completion::mailbox_id(generation))
    }

    /// Returns a call whose task is queued at the position.
    pub fn by_queue(position: u64) -> Self {
        Self::new(completion::queue_id(position))
    }

    fn new(task_id: u64) -> Self {
        Self {
            node: WaitNode::new(None),
            outcome: UnsafeCell::new(None),
            task_id,
        }
    }

    /// Returns the call's task. From now on the call must not be moved. It must not be dropped
    /// before its wait has returned.
    pub fn task(&self) -> Task {
        Task {
            call: self,
            task_id: self.task_id,
        }
    }

    /// Stores the deadline for the task to read. It must not be zero.
    pub fn tell_deadline(&self, nanos: u64) {
        self.node.set_deadline(nanos);
    }

    /// Waits for the result, without a deadline.
    pub fn wait(&self) -> usize {
        let done = self.node.wait(&deadline::Deadline::never(), false);
        assert!(done.is_some());
        self.take()
    }

    /// Waits for the result until the deadline. Leaves the task if the deadline passes first.
    /// Returns `None` if the task was left.
    pub fn wait_until(&self, decision: &Decision, deadline: &Deadline) -> Option<usize> {
        match self.node.wait(&deadline.0, false) {
            None => self.leave(decision, 0),
            Some(_) => Some(self.take()),
        }
    }

    /// Leaves the task, and stores `left_at` as the deadline that the task reads. First waits until
    /// a worker has started the task, so a thread of the model must start it. Returns the result if
    /// it is delivered instead.
    pub fn leave(&self, decision: &Decision, left_at: u64) -> Option<usize> {
        let mut backoff = Backoff::default();
        while completion::is_queued(self.task_id) && self.node.worker_slot().is_none() {
            backoff.wait();
        }
        loop {
            if decision.0.abandon(self.task_id, left_at) {
                return None;
            }
            if self.node.is_done() {
                return Some(self.take());
            }
            backoff.wait();
        }
    }

    fn take(&self) -> usize {
        // SAFETY: this thread has seen `done`, after which the worker does not touch the call. If
        // it did, loom would report it.
        let outcome = self.outcome.with_mut(|o| unsafe { (*o).take() });
        outcome.expect("written before `done`")
    }
}

impl Decision {
    /// Returns the decision of a worker that has not had a task.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(completion::Decision::default())
    }

    /// Starts the task, as its worker does. The caller of a queued task learns the worker's slot.
    pub fn start(&self, task: &Task) {
        self.0.start(task.task_id);
        if completion::is_queued(task.task_id) {
            // SAFETY: the caller does not leave before it knows the slot. If it did, loom would
            // report it.
            unsafe { WaitNode::publish_slot(task.node(), 0) };
        }
    }

    /// Returns the task's deadline, as the worker reads it during the task.
    pub fn deadline(&self, task: &Task) -> u64 {
        // SAFETY: the task runs, and its caller waits or has marked in the decision that it has
        // left. If it had not, loom would report it.
        unsafe { self.0.deadline(task.task_id, task.node()) }
    }

    /// Ends the task, as its worker does. Returns `true` if the caller gets the result.
    pub fn end(&self, task: &Task, result: usize) -> bool {
        let waits = self.0.complete(task.task_id);
        if waits {
            // SAFETY: the worker has won the decision, so the caller waits until `release`. If it
            // did not, loom would report it.
            unsafe {
                (*task.call).outcome.with_mut(|o| *o = Some(result));
                let (waker, gone) = WaitNode::release(task.node());
                // The caller is a thread that waits, not a handle.
                assert!(waker.is_none() && !gone);
            }
        } else {
            self.0.forget(task.task_id);
        }
        waits
    }

    /// Returns `true` if the running task's caller has left.
    pub fn is_abandoned(&self) -> bool {
        self.0.is_abandoned()
    }
}

impl Task {
    fn node(&self) -> *const WaitNode {
        // SAFETY: this takes an address, and reads nothing.
        unsafe { std::ptr::addr_of!((*self.call).node) }
    }
}
