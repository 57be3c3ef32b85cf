//! A node on the heap, which a task and its handle share.
//!
//! Beside the [`WaitNode`] it holds the closure, and later the outcome. The task's side owns both until
//! it ends: it takes the closure, or drops it, writes the outcome, and releases the handle. The handle's
//! side takes the outcome. Who leaves last frees the node: the handle, where it finds `DONE`; otherwise
//! the task's side, which finds `GONE`.

use super::node::{WaitNode, Waited, WakeUp};
use crate::parts::deadline::Deadline;
use crate::sync::UnsafeCell;
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::task::Waker;

/// `C`: the closure's cell, which the handle's side does not know: there it is `dyn Any`.
struct Shared<O, C: ?Sized> {
    node: WaitNode,
    /// The task's side's until it ends; then the handle's.
    outcome: UnsafeCell<Option<O>>,
    /// The task's side's.
    closure: C,
}

type Closure<F> = UnsafeCell<Option<F>>;

/// The task's side. It is consumed by [`TaskSide::end`]; dropping it would leak the node.
pub(crate) struct TaskSide<F, O>(NonNull<Shared<O, Closure<F>>>);

impl<F, O> fmt::Debug for TaskSide<F, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskSide").finish_non_exhaustive()
    }
}

/// The handle's side. Dropping it leaves the node.
pub(crate) struct HandleSide<O> {
    /// `None`: the outcome has been taken.
    shared: Option<NonNull<Shared<O, dyn Any>>>,
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
        outcome: UnsafeCell::new(None),
        closure: UnsafeCell::new(Some(f)),
    })));
    let shared_too = Some(shared as NonNull<Shared<O, dyn Any>>);
    (TaskSide(shared), HandleSide { shared: shared_too })
}

impl<F: 'static, O: 'static> TaskSide<F, O> {
    fn shared(&self) -> &Shared<O, Closure<F>> {
        // SAFETY: the node is freed only after this side has been released, which consumes it.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn label(&self) -> Option<&'static str> {
        self.shared().node.alive.touch();
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
        // SAFETY: this side's.
        let closure = (self.shared().closure).with_mut(|closure| unsafe { (*closure).take() });
        closure.expect("a task starts, or is dropped, once")
    }

    /// The task has ended, with its closure taken.
    pub(crate) fn end(self, outcome: Option<O>) -> Answered {
        let shared = self.shared();
        // SAFETY: this side's until it is released. Nothing is replaced.
        (shared.outcome).with_mut(|place| unsafe { *place = outcome });
        Answered {
            node: &shared.node,
            shared: Some(self.0),
        }
    }
}

impl<O> HandleSide<O> {
    fn shared(&self) -> Option<&Shared<O, dyn Any>> {
        // SAFETY: freed only after this side has left, which takes it.
        self.shared.map(|shared| unsafe { &*shared.as_ptr() })
    }

    /// `None`: the outcome has been taken.
    pub(crate) fn node(&self) -> Option<&WaitNode> {
        self.shared().map(|shared| &shared.node)
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
        let shared = self.shared().filter(|shared| shared.node.has_outcome())?;
        // SAFETY: it is there, and the task's side touches it no more.
        let outcome = (shared.outcome).with_mut(|place| unsafe { (*place).take() });
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
        let (_wake_up, is_last) = unsafe { shared.as_ref() }.node.leave();
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
#[derive(Debug)]
#[must_use]
pub(crate) struct Answered {
    node: *const WaitNode,
    /// What the node is part of, on the heap.
    shared: Option<NonNull<dyn Any>>,
}

impl Answered {
    /// # Safety
    /// As [`WaitNode::release`], which is not called for it otherwise.
    pub(crate) unsafe fn caller(node: *const WaitNode) -> Self {
        Self { node, shared: None }
    }

    /// Releases who waits. What remains is code of the user's.
    pub(crate) fn release(self) -> Remains {
        // SAFETY: as it was made: of a caller, or the task's side; it is consumed.
        let (waker, is_last) = unsafe { WaitNode::release(self.node) };
        let shared = self.shared.filter(|_| is_last);
        // SAFETY: made by `Box::leak`, and left by both sides.
        let node = shared.map(|shared| unsafe { Box::from_raw(shared.as_ptr()) });
        Remains { waker, node }
    }
}

/// What is left to do once a handle is released: both may run code of the user's, which may panic.
#[derive(Default)]
#[must_use]
pub(crate) struct Remains {
    /// To be woken.
    pub(crate) waker: Option<Waker>,
    /// The node of a handle that is gone, to be dropped with what is in it.
    pub(crate) node: Option<Box<dyn Any>>,
}

impl Remains {
    pub(crate) fn is_empty(&self) -> bool {
        self.waker.is_none() && self.node.is_none()
    }
}
