//! The two sides of a handle's node, without a pool.

use super::{Deadline, Decision};
use crate::parts::completion::{self, HandleSide, TaskSide};
use crate::parts::deadline;
use crate::work::panics::wake_and_drop;
use std::task::Waker;

const TASK_ID: u64 = 8;

/// The task's side.
#[derive(Debug)]
pub struct Promise<T: 'static>(TaskSide<(), T>);

/// The handle's side. Dropping it leaves the node.
#[derive(Debug)]
pub struct Promised<T>(HandleSide<T>);

// SAFETY: as the task that it is part of: the outcome may be sent.
unsafe impl<T: Send> Send for Promise<T> {}

/// Both sides of a new node.
pub fn promise<T: Send + 'static>() -> (Promise<T>, Promised<T>) {
    let (task, handle) = completion::pair(None, ());
    (Promise(task), Promised(handle))
}

impl<T: Send + 'static> Promise<T> {
    /// The worker starts the task; one that was cancelled on its way is abandoned.
    pub fn start(&mut self, decision: &Decision) {
        self.0.take();
        decision.0.start(TASK_ID);
        if self.0.node().tell_slot(0) {
            assert!(
                decision.0.leave(TASK_ID, 0),
                "nobody else was told the slot"
            );
        }
    }

    /// The task ends, and the outcome is delivered if the handle is not gone; code of the user's comes last.
    pub fn end(self, outcome: T) {
        let outcome = (!self.0.node().is_gone()).then_some(outcome);
        wake_and_drop(self.0.end(outcome).release());
    }
}

impl<T: Send + 'static> Promised<T> {
    /// The outcome, if it is there.
    pub fn poll(&mut self, waker: &Waker) -> Option<T> {
        self.0.poll(waker).then(|| self.take())
    }

    /// Waits for the outcome.
    pub fn wait(mut self) -> T {
        assert!(self.0.wait(&deadline::Deadline::never(), false));
        self.take()
    }

    /// The same until the deadline.
    pub fn wait_until(&mut self, deadline: &Deadline) -> Option<T> {
        self.0.wait(&deadline.0, false).then(|| self.take())
    }

    /// Cancels the task, which nobody takes out.
    pub fn cancel(&self, decision: &Decision) {
        if self.0.node().cancel().is_some() {
            // Or it has ended.
            let _ = decision.0.leave(TASK_ID, 0);
        }
    }

    fn take(&mut self) -> T {
        self.0.take().expect("it is there")
    }
}
