//! A worker's decision and a caller's node, without a pool.

use super::Deadline;
use crate::parts::backoff::Backoff;
use crate::parts::completion::{self, WaitNode, Waited};
use crate::parts::deadline;
use crate::sync::UnsafeCell;

/// The decision of a worker.
#[derive(Debug)]
pub struct Decision(pub(super) completion::Decision);

/// A caller's memory, which goes when it does: its node, and room for the result.
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

// SAFETY: the memory that it leads to is touched by one thread at a time, as the decision and
// the node say. Else loom or shuttle reports it.
unsafe impl Send for Task {}

impl Call {
    /// A call whose task is the slot's `generation`-th.
    pub fn by_mailbox(generation: u64) -> Self {
        Self::new(completion::mailbox_id(generation))
    }

    /// A call whose task is queued at the position.
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

    /// The call may be moved no more, nor go before it has ended.
    pub fn task(&self) -> Task {
        Task {
            call: self,
            task_id: self.task_id,
        }
    }

    /// Tells the task its deadline, which is not zero.
    pub fn tell_deadline(&self, nanos: u64) {
        self.node.set_deadline(nanos);
    }

    /// Waits for the result, without a deadline.
    pub fn wait(&self) -> usize {
        let done = self.node.wait(&deadline::Deadline::never(), false);
        assert_ne!(done, Waited::Expired);
        self.take()
    }

    /// Waits for the result until the deadline, and then leaves.
    pub fn wait_until(&self, decision: &Decision, deadline: &Deadline) -> Option<usize> {
        match self.node.wait(&deadline.0, false) {
            Waited::Expired => self.leave(decision, 0),
            Waited::Done | Waited::DoneOnceOffered => Some(self.take()),
        }
    }

    /// Leaves its task, which somebody starts, once it knows the worker; the result, if
    /// that is delivered. `left_at` is for the task.
    pub fn leave(&self, decision: &Decision, left_at: u64) -> Option<usize> {
        let mut backoff = Backoff::default();
        while completion::is_queued(self.task_id) && self.node.worker_slot().is_none() {
            backoff.wait();
        }
        loop {
            if decision.0.leave(self.task_id, left_at) {
                return None;
            }
            if self.node.is_done() {
                return Some(self.take());
            }
            backoff.wait();
        }
    }

    fn take(&self) -> usize {
        // SAFETY: `done` was seen: the worker touches it no more. Else loom reports it.
        let outcome = self.outcome.with_mut(|o| unsafe { (*o).take() });
        outcome.expect("written before `done`")
    }
}

impl Decision {
    /// None yet.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(completion::Decision::new())
    }

    /// The worker starts the task, and tells its caller where.
    pub fn start(&self, task: &Task) {
        self.0.start(task.task_id);
        if completion::is_queued(task.task_id) {
            // SAFETY: the caller does not leave before it is told. Else loom reports it.
            unsafe { WaitNode::publish_slot(task.node(), 0) };
        }
    }

    /// The worker asks for the task's deadline.
    pub fn deadline(&self, task: &Task) -> u64 {
        // SAFETY: it runs, and its caller waits or says that it has left. Else loom reports it.
        unsafe { self.0.deadline(task.task_id, task.node()) }
    }

    /// The worker ends the task; whether its caller gets the result.
    pub fn end(&self, task: &Task, result: usize) -> bool {
        let waits = self.0.complete(task.task_id);
        if waits {
            // SAFETY: the decision is won: the caller waits. Else loom reports it.
            unsafe {
                (*task.call).outcome.with_mut(|o| *o = Some(result));
                WaitNode::release(task.node());
            }
        } else {
            self.0.forget(task.task_id);
        }
        waits
    }

    /// Whether the running task's caller has left.
    pub fn is_abandoned(&self) -> bool {
        self.0.is_abandoned()
    }
}

impl Task {
    fn node(&self) -> *const WaitNode {
        // SAFETY: only the address is taken.
        unsafe { std::ptr::addr_of!((*self.call).node) }
    }
}
