//! A node on the heap, which a task and its handle share.
//!
//! Beside the [`WaitNode`] it holds the closure, and later the outcome in its place. The task's
//! side owns both until it ends: it takes the closure, or drops it, writes the outcome, and releases
//! the handle. The handle's side takes the outcome. Who leaves last frees the node: the handle, where it
//! finds `DONE`; otherwise the task's side, which finds `GONE`.

use super::node::{WaitNode, Waited, WakeUp};
use crate::parts::deadline::Deadline;
use crate::sync::UnsafeCell;
use std::fmt;
use std::mem;
use std::ptr::NonNull;
use std::task::Waker;

enum Body<F, O> {
    Closure(F),
    Empty,
    Outcome(O),
}

struct Shared<F, O> {
    node: WaitNode,
    /// The task's side's until it ends; then the handle's; once both have left, who frees it.
    body: UnsafeCell<Body<F, O>>,
}

/// What is known of a node that is only to be released and freed.
trait Node {
    fn node(&self) -> &WaitNode;
}

/// The same for a handle, which knows no closure.
trait Promise<O>: Node {
    /// # Safety
    /// The outcome is there, and the body is the caller's.
    unsafe fn take(&self) -> Option<O>;
}

impl<F, O> Node for Shared<F, O> {
    fn node(&self) -> &WaitNode {
        &self.node
    }
}

impl<F, O> Shared<F, O> {
    /// # Safety
    /// The body is the caller's.
    unsafe fn replace(&self, body: Body<F, O>) -> Body<F, O> {
        // SAFETY: by this function's contract.
        (self.body).with_mut(|cell| unsafe { mem::replace(&mut *cell, body) })
    }
}

impl<F, O> Promise<O> for Shared<F, O> {
    unsafe fn take(&self) -> Option<O> {
        // SAFETY: by this function's contract.
        match unsafe { self.replace(Body::Empty) } {
            Body::Outcome(outcome) => Some(outcome),
            Body::Closure(_) | Body::Empty => None,
        }
    }
}

/// The task's side. It is consumed by [`TaskSide::release`]; dropping it would leak the node.
pub(crate) struct TaskSide<F, O>(NonNull<Shared<F, O>>);

impl<F, O> fmt::Debug for TaskSide<F, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskSide").finish_non_exhaustive()
    }
}

/// The handle's side. Dropping it leaves the node.
pub(crate) struct HandleSide<O> {
    /// `None`: the outcome has been taken.
    shared: Option<NonNull<dyn Promise<O>>>,
}

// SAFETY: of what is shared, the handle's side gives access to the outcome alone, which may be
// sent. The other side's closure and the stored wake-up may be, too.
unsafe impl<O: Send> Send for HandleSide<O> {}
// SAFETY: a shared reference leads to the node's atomics, not to the outcome.
unsafe impl<O: Send> Sync for HandleSide<O> {}

impl<O> fmt::Debug for HandleSide<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleSide").finish_non_exhaustive()
    }
}

/// Both sides of a new node. Closure and outcome may be dropped on another thread: the task's side
/// may be sent only if they may.
pub(crate) fn pair<F: 'static, O: 'static>(
    label: Option<&'static str>,
    f: F,
) -> (TaskSide<F, O>, HandleSide<O>) {
    let shared = NonNull::from(Box::leak(Box::new(Shared {
        node: WaitNode::new(label),
        body: UnsafeCell::new(Body::Closure(f)),
    })));
    let handle: NonNull<dyn Promise<O>> = shared;
    let shared_too = Some(handle);
    (TaskSide(shared), HandleSide { shared: shared_too })
}

impl<F: 'static, O: 'static> TaskSide<F, O> {
    fn shared(&self) -> &Shared<F, O> {
        // SAFETY: the node is freed only after this side has been released, which consumes it.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn label(&self) -> Option<&'static str> {
        self.shared().node.touch();
        self.shared().node.label
    }

    /// See [`WaitNode::tell_slot`].
    pub(crate) fn tell_slot(&self, slot: usize) -> bool {
        self.shared().node.tell_slot(slot)
    }

    /// Whether the handle is gone. If not, it may go at any time.
    pub(crate) fn is_gone(&self) -> bool {
        self.shared().node.is_gone()
    }

    /// The closure, once.
    pub(crate) fn take(&mut self) -> F {
        // SAFETY: this side's until it is released.
        match unsafe { self.shared().replace(Body::Empty) } {
            Body::Closure(f) => f,
            Body::Empty | Body::Outcome(_) => unreachable!("a task starts, or is dropped, once"),
        }
    }

    /// The task has ended, with its closure taken.
    pub(crate) fn end(self, outcome: Option<O>) -> Answered {
        if let Some(outcome) = outcome {
            // SAFETY: as in `take`. What is replaced is `Empty`.
            unsafe { self.shared().replace(Body::Outcome(outcome)) };
        }
        Answered(Whom::Handle(self.0))
    }
}

impl<O> HandleSide<O> {
    fn shared(&self) -> Option<&dyn Promise<O>> {
        // SAFETY: freed only after this side has left, which takes it.
        self.shared.map(|shared| unsafe { &*shared.as_ptr() })
    }

    /// `None`: the outcome has been taken.
    pub(crate) fn node(&self) -> Option<&WaitNode> {
        self.shared().map(|shared| shared.node())
    }

    /// Whether the outcome is there, or has been taken.
    pub(crate) fn is_finished(&self) -> bool {
        self.node().is_none_or(WaitNode::has_outcome)
    }

    /// Whether the outcome is there; otherwise `waker` is woken when it is, and no other.
    pub(crate) fn poll(&mut self, waker: &Waker) -> bool {
        self.node().is_none_or(|node| node.register(waker))
    }

    /// Waits until the outcome is there; `false` if the deadline came first.
    pub(crate) fn wait(&mut self, deadline: &Deadline, parallel: bool) -> bool {
        drop(self.retract());
        // The task's end may have taken the waker of an earlier poll: it wakes nobody else.
        let is_done = |node: &WaitNode| {
            node.has_outcome() || node.wait(deadline, parallel) != Waited::Expired
        };
        let is_done = self.node().is_none_or(is_done);
        if !is_done {
            drop(self.retract());
        }
        is_done
    }

    /// Takes the stored wake-up back.
    pub(crate) fn retract(&mut self) -> Option<WakeUp> {
        self.node().and_then(WaitNode::retract)
    }

    /// Takes the outcome, if it is there, and leaves.
    pub(crate) fn take(&mut self) -> Option<O> {
        let shared = self.shared().filter(|shared| shared.node().has_outcome())?;
        // SAFETY: it is there, and the task's side touches it no more.
        let outcome = unsafe { shared.take() };
        self.leave();
        outcome
    }

    /// Leaves. What is left of the outcome is dropped here if it is there, and else by the task's
    /// side.
    pub(crate) fn leave(&mut self) {
        let Some(shared) = self.shared.take() else {
            return;
        };
        // SAFETY: alive until this side has left.
        let (_wake_up, is_last) = unsafe { shared.as_ref() }.node().leave();
        if is_last {
            // SAFETY: made by `Box::leak`. The other side has been released, and this one leaves.
            drop(unsafe { Box::from_raw(shared.as_ptr()) });
        }
    }
}

impl<O> Drop for HandleSide<O> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Somebody waits, and the outcome is written: to be released.
#[must_use]
pub(crate) struct Answered(Whom);

enum Whom {
    Caller(*const WaitNode),
    Handle(NonNull<dyn Node>),
}

impl Answered {
    /// # Safety
    /// As [`WaitNode::release`], which is not called for it otherwise.
    pub(crate) unsafe fn caller(node: *const WaitNode) -> Self {
        Self(Whom::Caller(node))
    }

    /// Releases who waits. What remains is code of the user's.
    pub(crate) fn release(self) -> Remains {
        match self.0 {
            Whom::Caller(node) => {
                // SAFETY: as it was made; it is consumed.
                unsafe { WaitNode::release(node) };
                Remains::default()
            }
            Whom::Handle(shared) => {
                // SAFETY: the task's side, which is consumed; its outcome is written.
                let (waker, is_last) = unsafe { WaitNode::release_shared(shared.as_ref().node()) };
                let node = is_last.then(|| Owned(shared));
                Remains { waker, node }
            }
        }
    }
}

impl fmt::Debug for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answered").finish_non_exhaustive()
    }
}

/// What is left to do once a handle is released: both may run code of the user's, which may panic.
#[derive(Default)]
#[must_use]
pub(crate) struct Remains {
    /// To be woken.
    pub(crate) waker: Option<Waker>,
    /// The node of a handle that is gone, to be dropped with what is in it.
    pub(crate) node: Option<Owned>,
}

impl Remains {
    pub(crate) fn is_empty(&self) -> bool {
        self.waker.is_none() && self.node.is_none()
    }
}

/// A node that both sides have left.
pub(crate) struct Owned(NonNull<dyn Node>);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: made by `Box::leak`, and left by both sides.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
