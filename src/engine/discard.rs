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
//! once, and their captures are added to the *frame* of the outer discard, further up this thread's
//! stack. The outer discard drops them, so nested discards do not deepen the stack. A thread that
//! serves the line has a frame, too, for the wakers of futures. A waker may drop another future, and
//! so make space for a third. Wakers that come up within a waker are called once it has returned.
//! Those that come up within the drop of a capture are called there, because that drop may wait for
//! what they wake. A shutdown of the pool that is called by user code of a frame does not wait. It
//! might wait for a task that waits until this thread drops another capture: a deadlock.

use super::core::Core;
use super::request::Location;
use crate::parts::completion::Remains;
use crate::parts::in_flight::NOTIFIED;
use crate::parts::slot::Claim;
use crate::sync::{exposed, thread_local, Arc};
use crate::work::env::Env;
use crate::work::job::{Captured, NeverRan, Task};
use crate::work::observe;
use crate::work::panics::{contain, drop_contained};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::ptr::NonNull;
use std::task::Waker;

/// User code that a thread is about to run for a pool. It lies on the thread's stack, and is linked
/// to the frame around it.
#[derive(Default)]
pub(super) struct Frame {
    pool: u64,
    wakers: RefCell<VecDeque<Waker>>,
    /// The latest waker. So a single one is kept without an allocation (law 12).
    waker: Cell<Option<Waker>>,
    /// Set while the frame is filled or a waker runs: a call within that calls no other waker.
    busy: Cell<bool>,
    captured: RefCell<VecDeque<Captured>>,
    /// Failed starts of threads that subscribers have not been told of.
    refused: RefCell<VecDeque<io::Error>>,
    outer: Option<NonNull<Frame>>,
}

thread_local! {
    /// The innermost frame of this thread.
    static INNERMOST: Cell<Option<NonNull<Frame>>> = const { Cell::new(None) };
}

impl Frame {
    /// Settles a task, and keeps its waker and captures for `step`.
    pub(super) fn settle(&self, task: Task, why: NeverRan) {
        let (Remains { waker, node }, captured) = task.discard(why).tell_ended();
        // A node is left only if its handle is gone. The node holds no user value, because the
        // closure has been taken, and the outcome is an error of this crate. So this drop runs no
        // user code.
        drop(node);
        waker.into_iter().for_each(|waker| self.add_waker(waker));
        self.captured.borrow_mut().extend(captured);
    }

    pub(super) fn add_waker(&self, waker: Waker) {
        let before = self.waker.replace(Some(waker));
        self.wakers.borrow_mut().extend(before);
    }

    /// Calls `fill`, then the wakers, unless this is called within such a call.
    fn run(&self, env: &Env, fill: impl FnOnce(&Self)) {
        let was_busy = self.busy.replace(true);
        fill(self);
        if !was_busy {
            while !env.is_forked() {
                let waker = self.wakers.borrow_mut().pop_front();
                let Some(waker) = waker.or_else(|| self.waker.take()) else {
                    break;
                };
                contain(|| waker.wake());
            }
            self.busy.set(false);
        }
    }

    /// Drops one capture; or reports one refused thread if no capture is left. Returns `false` if
    /// neither is left. A capture's drop may wait, so wakers that come up within it are called
    /// there.
    fn step(&self, env: &Env) -> bool {
        let captured = self.captured.borrow_mut().pop_front();
        if captured.is_some() {
            drop_contained(captured);
            return true;
        }
        let refused = self.refused.borrow_mut().pop_front();
        refused
            .inspect(|error| observe::spawn_failed(env, error))
            .is_some()
    }
}

impl Core {
    /// Calls `f` with this thread's innermost frame for this pool, or `None` if it has none.
    fn with_frame<R>(&self, f: impl FnOnce(Option<&Frame>) -> R) -> R {
        // SAFETY: a frame is on the list only while `in_frame`, further up this thread's stack, owns
        // it.
        let next = |frame: Option<NonNull<Frame>>| frame.map(|frame| unsafe { frame.as_ref() });
        let mut frames = std::iter::successors(next(INNERMOST.with(Cell::get)), |f| next(f.outer));
        f(frames.find(|frame| frame.pool == self.env.id))
    }

    /// Returns `true` if this thread is in a discard of this pool's tasks, or calls a waker of a
    /// future of this pool.
    pub(crate) fn is_in_frame(&self) -> bool {
        self.with_frame(|frame| frame.is_some())
    }

    /// Calls `fill`, which runs no user code, but adds it to the frame. Then calls the frame's
    /// wakers, unless this is called within a waker or `fill`. If this thread already has a frame for
    /// this pool, that is the frame, and its owner drops the captures. Otherwise drops them last.
    pub(super) fn in_frame(&self, fill: impl FnOnce(&Frame)) {
        let own = Frame {
            pool: self.env.id,
            outer: INNERMOST.with(Cell::get),
            ..Frame::default()
        };
        let is_outermost = self.with_frame(|outer| {
            if outer.is_none() {
                INNERMOST.with(|it| it.set(Some(NonNull::from(&own))));
            }
            exposed(|| outer.unwrap_or(&own).run(&self.env, fill));
            outer.is_none()
        });
        if !is_outermost {
            return;
        }
        // Panics of user code are contained, so nothing unwinds, here or above. So the frame is
        // always taken off the list before it is dropped.
        while !self.env.is_forked() && own.step(&self.env) {}
        INNERMOST.with(|it| it.set(own.outer));
        if self.env.is_forked() {
            // A waker or a drop has forked, and this is the child. It must not drop anything that
            // belongs to the parent's pool.
            std::mem::forget(own);
        }
    }

    /// Tells subscribers, which are user code, that the OS has refused a thread. If this thread has a
    /// frame, it may be serving the line, so the frame's owner tells them.
    pub(super) fn tell_spawn_failed(&self, error: &io::Error) {
        self.with_frame(|frame| match frame {
            None => observe::spawn_failed(&self.env, error),
            Some(frame) => {
                let copy = io::Error::new(error.kind(), error.to_string());
                frame.refused.borrow_mut().push_back(copy);
            }
        });
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
        let times = task.times();
        if times.is_some_and(|times| times.due() <= self.env.nanos_now()) {
            self.counts.expire();
        } else {
            self.counts.discard();
        }
    }

    /// Settles tasks that were taken out and counted, and serves the line. Their wakers and captures
    /// are user code of the frame: see [`Core::in_frame`].
    pub(crate) fn discard(self: &Arc<Self>, tasks: Vec<Task>, why: NeverRan) {
        self.in_frame(|frame| {
            tasks.into_iter().for_each(|task| frame.settle(task, why));
            self.serve_line();
        });
    }
}
