//! The memory that a task shares with the thread or future that waits for its end. It is on the
//! caller's stack; or on the heap, if the task has a handle.
//!
//! It holds the [`WaitNode`] and the outcome. The task owns the outcome until the task ends, writes
//! the outcome, and releases the waiter. From then on the waiter owns it.
//!
//! On the heap it also holds the closure, which the task's side takes out before the task ends. The
//! side that leaves last frees the memory. A handle's side that finds `DONE` is the last side. A
//! task's side that finds `GONE` is the last side.

use super::node::{WaitNode, WakeUp};
use crate::parts::deadline::Deadline;
use crate::sync::panics::drop_contained;
use crate::sync::UnsafeCell;
use std::any::Any;
use std::ptr::NonNull;
use std::task::Waker;

/// The shared memory. `X` is all else that the task needs. The outcome comes right before the
/// node, whose first field is `done`. So a small outcome is on the cache line that the waiter polls.
#[repr(C)]
pub(crate) struct Shared<O, X: ?Sized> {
    /// Owned by the task until it ends, and by the waiter from then on.
    outcome: UnsafeCell<Option<O>>,
    pub(crate) node: WaitNode,
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

    /// Writes the outcome for the waiter. Returns the waiter, which the calling thread must
    /// release.
    ///
    /// # Safety
    /// `this` is alive until the waiter is released. This is the only call for the task, made by
    /// the task or by the thread that discards it, before `done` is raised.
    pub(crate) unsafe fn answer(this: *const Self, outcome: Option<O>) -> Answered {
        // SAFETY: by this function's contract, the memory is alive, and no other thread touches the
        // outcome until `done` is raised. The value that is replaced is `None`, which needs no
        // drop.
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
    /// Takes the outcome. Returns `None` if it has been taken.
    ///
    /// # Safety
    /// The calling thread is the waiter, and has seen that the outcome is there.
    pub(crate) unsafe fn take(&self) -> Option<O> {
        // SAFETY: by this function's contract.
        self.outcome.with_mut(|place| unsafe { (*place).take() })
    }
}

type Closure<F> = UnsafeCell<Option<F>>;

/// The task's side. [`TaskSide::end`] uses it up.
#[derive(Debug)]
#[must_use = "the memory would leak, and the handle would wait for ever"]
pub(crate) struct TaskSide<F, O>(NonNull<Shared<O, Closure<F>>>);

/// The handle's side. It does not know the type of the closure. A drop of this side ends its use of
/// the shared memory. The side that leaves last frees the memory, and drops the outcome if it was
/// not taken.
#[derive(Debug)]
pub(crate) struct HandleSide<O>(NonNull<Shared<O, dyn Any>>);

// SAFETY: the handle's side gives access to the outcome only, and the outcome is `Send`. The
// handle's side may also free the memory. Then it drops the stored wake-up, which is `Send`, and
// the place of the closure, which the task's side has emptied.
unsafe impl<O: Send> Send for HandleSide<O> {}
// SAFETY: a shared reference gives access to the node's atomics, not to the outcome.
unsafe impl<O: Send> Sync for HandleSide<O> {}

/// Creates both sides of a new task. The task's side may be sent only if the closure and the
/// outcome are `Send`, because another thread may drop them.
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
        // SAFETY: the memory is freed only after this side has been released, which consumes it.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn node(&self) -> &WaitNode {
        let node = &self.shared().node;
        node.alive.touch();
        node
    }

    /// Takes the closure. Panics if it has been taken.
    pub(crate) fn take(&mut self) -> F {
        // SAFETY: only this side touches the closure.
        let closure = (self.shared().more).with_mut(|closure| unsafe { (*closure).take() });
        closure.expect("a task starts, or is dropped, once")
    }

    /// Ends the task by writing its outcome. The closure must have been taken.
    pub(crate) fn end(self, outcome: Option<O>) -> Answered {
        // SAFETY: the memory is alive until this side is released. This call consumes this side, so
        // it is the only call for the task.
        let mut answered = unsafe { Shared::answer(self.0.as_ptr(), outcome) };
        answered.shared = Some(self.0);
        std::mem::forget(self);
        answered
    }

    /// Returns the closure of a task that was not accepted. The handle's side must not have stored
    /// a waker.
    pub(crate) fn into_closure(mut self) -> F {
        let closure = self.take();
        // There is no outcome and no waker, so this only ends the task's use of the node.
        drop(self.end(None).release());
        closure
    }
}

#[cfg(debug_assertions)]
impl<F, O> Drop for TaskSide<F, O> {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a task has no outcome");
    }
}

impl<O> HandleSide<O> {
    fn shared(&self) -> &Shared<O, dyn Any> {
        // SAFETY: the memory is freed only after this side has left, which its drop does.
        unsafe { &*self.0.as_ptr() }
    }

    pub(crate) fn node(&self) -> &WaitNode {
        &self.shared().node
    }

    /// Returns `true` if the outcome is there. Otherwise stores `waker`, which replaces an earlier
    /// waker and is woken once the outcome comes.
    pub(crate) fn poll(&mut self, waker: &Waker) -> bool {
        self.node().register(waker)
    }

    /// Waits until the outcome is there. Returns `false` if the deadline passes first.
    pub(crate) fn wait(&mut self, deadline: &Deadline, parallel: bool) -> bool {
        // The waker of an earlier poll. A panic of its drop must not lose the handle.
        drop_contained(self.retract());
        // The worker may be taking the waker of an earlier poll (`TAKING`). It then wakes that
        // waker and does not unpark this thread, so this thread must not park. `has_outcome` finds
        // this state.
        let node = self.node();
        let is_done = node.has_outcome() || node.wait(deadline, parallel).is_some();
        if !is_done {
            drop(self.retract());
        }
        is_done
    }

    /// Takes the stored wake-up back.
    pub(crate) fn retract(&mut self) -> Option<WakeUp> {
        self.node().retract()
    }

    /// Takes the outcome, which must be there. Returns `None` if it has been taken.
    pub(crate) fn take(&mut self) -> Option<O> {
        assert!(self.node().has_outcome(), "an outcome to take");
        // SAFETY: the outcome is there, and the handle's side is the waiter.
        unsafe { self.shared().take() }
    }
}

impl<O> Drop for HandleSide<O> {
    fn drop(&mut self) {
        // SAFETY: this is the last use by the handle's side. The node's address is computed without
        // a reference to the rest of the memory.
        let (_wake_up, is_last) =
            unsafe { WaitNode::release_handle(&raw const (*self.0.as_ptr()).node) };
        if is_last {
            // SAFETY: the memory comes from `Box::leak`. The other side has been released, and this
            // one has left.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

/// A waiter whose outcome has been written. The holder of this value must release the waiter.
#[derive(Debug)]
#[must_use]
pub(crate) struct Answered {
    node: *const WaitNode,
    /// The shared memory that the node is part of, if it is on the heap.
    shared: Option<NonNull<dyn Any>>,
}

impl Answered {
    /// Releases the waiter. Returns the work that is left, which is user code.
    pub(crate) fn release(self) -> Remains {
        // SAFETY: `Shared::answer` made this value. By its contract, the node is alive until this
        // call. This call consumes the value, so it is the only call for the node.
        let (waker, is_last) = unsafe { WaitNode::release(self.node) };
        let shared = self.shared.filter(|_| is_last);
        std::mem::forget(self);
        // SAFETY: the memory comes from `Box::leak`, and both sides have left it.
        let node = shared.map(|shared| unsafe { Box::from_raw(shared.as_ptr()) });
        Remains { waker, node }
    }
}

#[cfg(debug_assertions)]
impl Drop for Answered {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a waiter is left waiting");
    }
}

/// The work that is left once a handle has been released. Both parts may run user code, which may
/// panic.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Remains {
    /// The waker to wake.
    pub(crate) waker: Option<Waker>,
    /// The memory of a handle that has left, to be dropped with all that is in it.
    pub(crate) node: Option<Box<dyn Any>>,
}

impl Remains {
    pub(crate) fn is_empty(&self) -> bool {
        self.waker.is_none() && self.node.is_none()
    }
}
