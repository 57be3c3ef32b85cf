//! The two sides of a handle's node, without a pool.

use super::{Deadline, Decision};
use crate::parts::completion::{self, HandleSide, Remains, TaskSide};
use crate::parts::deadline;
use std::task::Waker;

const TASK_ID: u64 = 8;

/// The task's side of the node.
#[derive(Debug)]
pub struct Promise<T: 'static>(TaskSide<(), T>);

/// The handle's side of the node. A drop ends its use of the node.
#[derive(Debug)]
pub struct Promised<T>(HandleSide<T>);

// SAFETY: `pair` allows this if the closure and the outcome are `Send`. The closure is `()`, and
// the outcome is `Send` by the bound.
unsafe impl<T: Send> Send for Promise<T> {}

/// Returns both sides of a new node.
pub fn promise<T: Send + 'static>() -> (Promise<T>, Promised<T>) {
    let (task, handle) = completion::pair(None, ());
    (Promise(task), Promised(handle))
}

impl<T: Send + 'static> Promise<T> {
    /// Starts the task, as its worker does. Returns `false` if the handle has cancelled the task already.
    pub fn start(&mut self, decision: &Decision) -> bool {
        decision.0.start(TASK_ID);
        let is_cancelled = self.0.node().tell_slot(0);
        self.0.take();
        !is_cancelled
    }

    /// Ends the task. Drops the outcome if the handle has left or is leaving, and delivers it
    /// otherwise. Then calls the waker, or drops the node if the handle has left meanwhile.
    pub fn end(self, outcome: T) {
        let outcome = (!self.0.node().is_gone()).then_some(outcome);
        let Remains { waker, node } = self.0.end(outcome).release();
        waker.into_iter().for_each(Waker::wake);
        drop(node);
    }
}

impl<T: Send + 'static> Promised<T> {
    /// Returns the outcome if it is there. Otherwise `waker` is woken once the outcome is there.
    pub fn poll(&mut self, waker: &Waker) -> Option<T> {
        self.0.poll(waker).then(|| self.take())
    }

    /// Waits for the outcome, and returns it.
    pub fn wait(mut self) -> T {
        assert!(self.0.wait(&deadline::Deadline::never(), false));
        self.take()
    }

    /// Waits for the outcome until the deadline. Returns `None` if the deadline passes first.
    pub fn wait_until(&mut self, deadline: &Deadline) -> Option<T> {
        self.0.wait(&deadline.0, false).then(|| self.take())
    }

    /// Cancels the task, as a handle does after it has looked for the task in the queue and has not
    /// found it there.
    pub fn cancel(&self, decision: &Decision) {
        if self.0.node().cancel().is_some() {
            // `abandon` fails if the task has ended. There is nothing to cancel then.
            let _ = decision.0.abandon(TASK_ID, 0);
        }
    }

    fn take(&mut self) -> T {
        self.0.take().expect("it is there")
    }
}
