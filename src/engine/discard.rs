//! Tasks that are taken out of the pool to be dropped. A shutdown takes out all queued tasks,
//! except those of scopes, which must run. A group's cancel takes out the tasks at the positions
//! that the group has noted. A handle that cancels takes out its own task, from the queue or a
//! mailbox.
//!
//! First, all these tasks are counted and *settled*: callers get their tasks back, handles get
//! their outcomes, and groups are told of the end. No user code runs meanwhile. So no thread has to
//! wait until captures are dropped. Next, this thread serves the line, because there is space now.
//! Last, it calls the handles' wakers, and drops the captures of the closures, oldest first.
//!
//! The drop of a capture may itself discard tasks of the same pool. Those tasks are settled at
//! once. Their wakers and captures are added to the *frame* of the outer discard, further up this
//! thread's stack. The outer discard calls the wakers and drops the captures, so nested discards do
//! not deepen the stack. A shutdown of the pool that is called within a discard does not wait.
//! Otherwise it would wait for a running task, and that task may wait until this thread drops
//! another capture, which would be a deadlock.

use super::core::Core;
use super::request::Location;
use crate::parts::completion::Remains;
use crate::parts::in_flight::NOTIFIED;
use crate::parts::slot::Claim;
use crate::sync::{thread_local, Arc};
use crate::work::env::NEVER;
use crate::work::job::{Captured, NeverRan, Task};
use crate::work::panics::{contain, drop_contained};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr;
use std::task::Waker;

/// A discard in progress. It lies on the thread's stack, and is linked to the discard around it.
struct Frame {
    pool: u64,
    wakers: RefCell<VecDeque<Waker>>,
    captured: RefCell<VecDeque<Captured>>,
    outer: *const Frame,
}

thread_local! {
    /// The frame of the innermost discard that this thread is in.
    static INNERMOST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}

impl Frame {
    /// Settles a task, and keeps its waker and captures for `step`.
    fn settle(&self, task: Task, why: NeverRan) {
        let (Remains { waker, node }, captured) = task.discard(why).tell_ended();
        // A node is left only if its handle is gone. The node holds no user value, because the
        // closure has been taken, and the outcome is an error of this crate. So this drop runs no
        // user code.
        drop(node);
        self.wakers.borrow_mut().extend(waker);
        self.captured.borrow_mut().extend(captured);
    }

    /// Calls one waker, or drops one capture if no waker is left. Returns `false` if neither is
    /// left.
    fn step(&self) -> bool {
        let waker = self.wakers.borrow_mut().pop_front();
        if let Some(waker) = waker {
            contain(|| waker.wake());
            return true;
        }
        let captured = self.captured.borrow_mut().pop_front();
        captured.map(drop_contained).is_some()
    }
}

impl Core {
    /// Calls `f` with this thread's innermost frame for this pool, or `None` if this thread is not
    /// in a discard of the pool's tasks.
    fn with_frame<R>(&self, f: impl FnOnce(Option<&Frame>) -> R) -> R {
        // SAFETY: a frame is on the list only while `discard`, further up this thread's stack, owns
        // it.
        let next = |frame: *const Frame| unsafe { frame.as_ref() };
        let mut frames = std::iter::successors(next(INNERMOST.with(Cell::get)), |f| next(f.outer));
        f(frames.find(|frame| frame.pool == self.env.id))
    }

    /// Returns `true` if this thread is in a discard of this pool's tasks.
    pub(crate) fn is_discarding(&self) -> bool {
        self.with_frame(|frame| frame.is_some())
    }

    /// Takes a task back from the mailbox or the queue, and calls `count` to count it. Returns
    /// `None` if a worker has started the task, or if another thread has taken it out first. The
    /// caller must serve the line once the task is settled.
    #[must_use]
    pub(super) fn withdraw(
        &self,
        location: Location,
        count: impl FnOnce(&Self, &Task),
    ) -> Option<Task> {
        let (slot, generation) = match location {
            Location::Mailbox { slot, generation } => (slot, generation),
            Location::Queue { position } => {
                let task = self.queue.as_ref()?.take(position)?;
                count(self, &task);
                return Some(task);
            }
        };
        let it = &self.slots[slot];
        let task = it.revoke(generation)?;
        count(self, &task);
        it.record.count_unrun();
        // The worker was awake, or has been unparked for this task. So it can look at the queue
        // instead, and counts as notified until it does. A worker in its start hook is not counted,
        // because submissions rely on the count, and the hook may take long.
        if !it.see().is_starting() {
            self.in_flight.add(NOTIFIED);
        }
        // SAFETY: this thread revoked the task, so it holds the slot (`Held`), and the claim is
        // `AWAKE`, as said above. While the slot is `Held`, the worker cannot end its start. So
        // what `is_starting` has returned is still true.
        unsafe { it.send_searching(Claim::AWAKE) };
        Some(task)
    }

    /// Counts an accepted task that will not run: as expired if its deadline has passed, otherwise
    /// as discarded.
    pub(super) fn count_unrun(&self, task: &Task) {
        let due = task.due();
        if due != NEVER && due <= self.env.nanos_now() {
            self.counts.expire();
        } else {
            self.counts.discard();
        }
    }

    /// Settles tasks that were taken out and counted. Then calls their wakers and drops their
    /// captures. If this thread is already in a discard of the pool's tasks, leaves these two steps
    /// to the outermost discard.
    pub(crate) fn discard(self: &Arc<Self>, tasks: Vec<Task>, why: NeverRan) {
        if tasks.is_empty() {
            return;
        }
        let own = Frame {
            pool: self.env.id,
            wakers: RefCell::default(),
            captured: RefCell::default(),
            outer: INNERMOST.with(Cell::get),
        };
        let is_outermost = self.with_frame(|outer| {
            let frame = outer.unwrap_or(&own);
            tasks.into_iter().for_each(|task| frame.settle(task, why));
            outer.is_none()
        });
        if !is_outermost {
            return self.serve_line();
        }
        // Panics of user code are contained, so nothing below unwinds. So the frame is always taken
        // off the list before it is dropped.
        INNERMOST.with(|it| it.set(&raw const own));
        self.serve_line();
        while !self.env.is_forked() && own.step() {}
        INNERMOST.with(|it| it.set(own.outer));
        if self.env.is_forked() {
            // A waker or a drop has forked, and this is the child. It must not drop anything that
            // belongs to the parent's pool.
            std::mem::forget(own);
        }
    }
}
