//! What a task shares with who waits for its end: on the caller's stack, or on the heap with a handle.
//!
//! Beside the [`WaitNode`] it holds the outcome. The task owns that until it ends, writes it, and
//! releases who waits; from then on it is theirs.
//!
//! On the heap there is also the closure, which the task's side takes, or drops. Who leaves last frees
//! the memory: the handle, where it finds `DONE`; otherwise the task's side, which finds `GONE`.

use super::node::{WaitNode, Waited, WakeUp};
use crate::parts::deadline::Deadline;
use crate::sync::UnsafeCell;
use std::any::Any;
use std::ptr::NonNull;
use std::task::Waker;

/// `X`: what else the task needs. The node first, so that the worker's touches of a small outcome are on
/// its lines.
#[repr(C)]
pub(crate) struct Shared<O, X: ?Sized> {
    pub(crate) node: WaitNode,
    /// The task's until it ends; then of who waits.
    outcome: UnsafeCell<Option<O>>,
    pub(crate) more: X,
}

impl<O, X> Shared<O, X> {
    pub(crate) fn new(label: Option<&'static str>, more: X) -> Self {
        Self {
            node: WaitNode::new(label),
            outcome: UnsafeCell::new(None),
            more,
        }
    }

    /// Answers who waits, who is to be released.
    ///
    /// # Safety
    /// It is alive until then. The one call by the task, or who discards it, before `done` is raised.
    pub(crate) unsafe fn answer(this: *const Self, outcome: Option<O>) -> Answered {
        // SAFETY: alive, and nobody else touches the outcome until `done`, by this function's contract.
        // What is replaced is `None`, which needs no drop.
        unsafe {
            (*this).outcome.with_mut(|place| place.write(outcome));
            Answered {
                node: &raw const (*this).node,
                shared: None,
            }
        }
    }
}

impl<O, X: ?Sized> Shared<O, X> {
    /// The outcome, once.
    ///
    /// # Safety
    /// The calling thread is the one that waited, and has seen that the outcome is there.
    pub(crate) unsafe fn take(&self) -> Option<O> {
        // SAFETY: by this function's contract.
        self.outcome.with_mut(|place| unsafe { (*place).take() })
    }
}

type Closure<F> = UnsafeCell<Option<F>>;

/// The task's side. It is consumed by [`TaskSide::end`]; dropping it would leak the memory.
#[derive(Debug)]
pub(crate) struct TaskSide<F, O>(NonNull<Shared<O, Closure<F>>>);

/// The handle's side, which does not know the closure. Dropping it leaves: what is there of the outcome
/// is dropped with it, or by the task's side.
#[derive(Debug)]
pub(crate) struct HandleSide<O>(NonNull<Shared<O, dyn Any>>);

// SAFETY: of what is shared, the handle's side gives access to the outcome alone, which may be
// sent. The other side's closure and the stored wake-up may be, too.
unsafe impl<O: Send> Send for HandleSide<O> {}
// SAFETY: a shared reference leads to the node's atomics, not to the outcome.
unsafe impl<O: Send> Sync for HandleSide<O> {}

/// Both sides of a new task. Closure and outcome may be dropped on another thread: the task's side
/// may be sent only if they may.
pub(crate) fn pair<F: 'static, O: 'static>(
    label: Option<&'static str>,
    f: F,
) -> (TaskSide<F, O>, HandleSide<O>) {
    let shared = Box::new(Shared::new(label, UnsafeCell::new(Some(f))));
    let shared = NonNull::from(Box::leak(shared));
    (TaskSide(shared), HandleSide(shared))
}

impl<F: 'static, O: 'static> TaskSide<F, O> {
    fn shared(&self) -> &Shared<O, Closure<F>> {
        // SAFETY: freed only after this side has been released, which consumes it.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn node(&self) -> &WaitNode {
        let node = &self.shared().node;
        node.alive.touch();
        node
    }

    /// Looks at the closure, which has not been taken.
    pub(crate) fn peek<T>(&self, look: impl FnOnce(&F) -> T) -> T {
        // SAFETY: this side's.
        let closure = (self.shared().more).with(|closure| unsafe { (*closure).as_ref() });
        look(closure.expect("a look before the start"))
    }

    /// The closure, once.
    pub(crate) fn take(&mut self) -> F {
        // SAFETY: this side's.
        let closure = (self.shared().more).with_mut(|closure| unsafe { (*closure).take() });
        closure.expect("a task starts, or is dropped, once")
    }

    /// The task has ended, with its closure taken.
    pub(crate) fn end(self, outcome: Option<O>) -> Answered {
        // SAFETY: alive until it is released; and this side is consumed.
        let answered = unsafe { Shared::answer(self.0.as_ptr(), outcome) };
        Answered {
            shared: Some(self.0),
            ..answered
        }
    }
}

impl<O> HandleSide<O> {
    fn shared(&self) -> &Shared<O, dyn Any> {
        // SAFETY: freed only after this side has left, by its drop.
        unsafe { &*self.0.as_ptr() }
    }

    pub(crate) fn node(&self) -> &WaitNode {
        &self.shared().node
    }

    /// Whether the outcome is there; otherwise `waker` is woken when it is, and no other.
    pub(crate) fn poll(&mut self, waker: &Waker) -> bool {
        self.node().register(waker)
    }

    /// Waits until the outcome is there; `false` if the deadline came first.
    pub(crate) fn wait(&mut self, deadline: &Deadline, parallel: bool) -> bool {
        drop(self.retract());
        // The task's end may have taken the waker of an earlier poll: it wakes nobody else.
        let node = self.node();
        let is_done = node.has_outcome() || node.wait(deadline, parallel) != Waited::Expired;
        if !is_done {
            drop(self.retract());
        }
        is_done
    }

    /// Takes the stored wake-up back.
    pub(crate) fn retract(&mut self) -> Option<WakeUp> {
        self.node().retract()
    }

    /// Takes the outcome, once it is there; `None`: it has been taken.
    pub(crate) fn take(&mut self) -> Option<O> {
        assert!(self.node().has_outcome(), "an outcome to take");
        // SAFETY: there, and this is the handle's side.
        unsafe { self.shared().take() }
    }
}

impl<O> Drop for HandleSide<O> {
    fn drop(&mut self) {
        // SAFETY: the handle's side goes. The node's address is taken without a reference to the rest.
        let (_wake_up, is_last) = unsafe { WaitNode::leave(&raw const (*self.0.as_ptr()).node) };
        if is_last {
            // SAFETY: made by `Box::leak`. The other side has been released, and this one leaves.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
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
    /// Releases who waits. What remains is code of the user's.
    pub(crate) fn release(self) -> Remains {
        // SAFETY: as it was made, by `Shared::answer`; it is consumed.
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
