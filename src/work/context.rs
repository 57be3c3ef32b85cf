//! The context of a worker. Code in the worker's tasks can query it.
//!
//! A worker has one [`Ctx`] on its stack for its whole life. The public functions of `task` find it
//! by a thread-local pointer.

use crate::error::TaskPanic;
use crate::parts::completion::{Remains, WaitNode};
use crate::parts::stretch::Stretch;
use crate::sync::{catch_unwind, exposed, fork, now, thread, thread_local, Instant, Ordering};
use crate::work::env::{Around, Env, NEVER};
use crate::work::observe::{self, Moment};
use crate::work::options::Options;
use crate::work::panics::{has_panicked, wake_and_drop, Payload};
use crate::work::record::Record;
use std::cell::Cell;
use std::panic::AssertUnwindSafe;

/// A bit of [`Ctx::todo`], set while a call of `help_others` is deferred.
const HELP_OTHERS: u8 = 1;
/// A bit of [`Ctx::todo`], always set if the pool tracks ages. The worker then notes the start of
/// each task.
const NOTE_START: u8 = 2;
/// A bit of [`Ctx::todo`], set while the call of a handle's waker is deferred.
const WAKE: u8 = 4;

/// The state of a worker that its tasks can query. The [`Record`] has the state that other threads
/// may read.
pub(crate) struct Ctx<'a> {
    pub(crate) env: &'a Env,
    pub(crate) record: &'a Record,
    pub(crate) slot: usize,
    /// Serves the line, and makes sure that another worker looks at the queue.
    help_others: &'a dyn Fn(),
    /// The node of the caller that submitted the running task by `do_with_deadline`. `None` for any
    /// other task. The caller may have left since.
    caller: Cell<Option<*const WaitNode>>,
    /// The label of the running task.
    pub(crate) label: Cell<Option<&'static str>>,
    /// The id by which the worker's decision names the task that runs or is about to run.
    pub(crate) task_id: Cell<u64>,
    /// The things to do before the next task's code is called: [`HELP_OTHERS`], [`NOTE_START`] and
    /// [`WAKE`].
    todo: Cell<u8>,
    /// The waker to call and the node to drop while [`WAKE`] is set. Both run user code.
    remains: Cell<Remains>,
    /// `true` while this worker runs user code (wakers, or drops of captures) although other
    /// threads see it as `Idle`.
    pub(crate) runs_idle: Cell<bool>,
    /// Set once another thread waits for the outcome of a task that has begun here.
    pub(crate) was_awaited: Cell<bool>,
    pub(crate) stretch: Stretch,
    /// The time at which the running task, or the one about to run, was submitted.
    pub(crate) submitted: Cell<Moment>,
}

thread_local! {
    /// The context of this thread, if it is a worker.
    static CURRENT: Cell<*const Ctx<'static>> = const { Cell::new(std::ptr::null()) };
}

/// Calls `f` with the context of this thread. Returns the default value if this thread is not
/// a worker.
pub(crate) fn with_current<R: Default>(f: impl FnOnce(&Ctx<'_>) -> R) -> R {
    let current = CURRENT.try_with(Cell::get).unwrap_or(std::ptr::null());
    // SAFETY: the pointer is not null only during `Ctx::during` on this thread, which borrows the
    // context. `f` cannot keep the reference.
    unsafe { current.as_ref() }.map(f).unwrap_or_default()
}

/// Returns `true` if this thread is a worker that runs user code while other threads see it as
/// `Idle`. Meanwhile another thread may order this worker to search or to end. A submission by the
/// user code must not wait until the worker obeys, because it would wait for its own thread.
#[cold]
pub(crate) fn runs_idle() -> bool {
    with_current(|ctx| ctx.runs_idle.get())
}

impl<'a> Ctx<'a> {
    pub(crate) fn new(
        env: &'a Env,
        record: &'a Record,
        slot: usize,
        help_others: &'a dyn Fn(),
    ) -> Self {
        Self {
            env,
            record,
            slot,
            help_others,
            caller: Cell::new(None),
            label: Cell::new(None),
            task_id: Cell::new(0),
            todo: Cell::new(if env.tracks_ages() { NOTE_START } else { 0 }),
            remains: Cell::default(),
            runs_idle: Cell::new(false),
            was_awaited: Cell::new(false),
            stretch: Stretch::new(),
            submitted: Cell::default(),
        }
    }

    /// Calls `f`, which is the whole life of the worker. Meanwhile this is the thread's context.
    pub(crate) fn during(&self, f: impl FnOnce()) {
        CURRENT.with(|c| c.set(std::ptr::from_ref(self).cast()));
        // Destructors that ran after an unwind would find a context that is gone.
        exposed(f);
        CURRENT.with(|c| c.set(std::ptr::null()));
    }

    /// Publishes the options of the task about to run. Returns `false` if it is too late to start
    /// the task.
    ///
    /// # Safety
    /// The task's group lives until [`Ctx::finish`].
    #[inline]
    pub(crate) unsafe fn begin(&self, options: &Options<'_>) -> bool {
        if let Some(times) = options.times {
            let Some(due) = times.start(self.env) else {
                return false;
            };
            self.record.set_due(due);
        }
        if options.label.is_some() {
            self.label.set(options.label);
            self.record.describe(options.label, None);
        }
        if let Some(group) = options.group {
            self.record.set_group(group);
        }
        true
    }

    /// Clears the options of a task that has ended. Counts the task as timed out if its own
    /// deadline has passed. Called before the worker is free for another task.
    #[inline]
    pub(crate) fn finish(&self) {
        self.record.clear_group();
        if self.is_late() {
            // Relaxed: a count.
            self.env.counts.timed_out.fetch_add(1, Ordering::Relaxed);
        }
        self.record.set_due(NEVER);
        self.label.set(None);
    }

    /// Returns `true` if the running task's own deadline has passed.
    #[inline]
    fn is_late(&self) -> bool {
        let due = self.record.due();
        due != NEVER && self.env.nanos_now() >= due
    }

    /// Runs a task whose outcome goes to a waiter: a caller of `do_with_deadline`, or a handle. The
    /// waiter may leave meanwhile. Returns `true` if the task panicked; and its result, if the
    /// waiter still wants it. A result that is not wanted is dropped here, while the task still
    /// counts as running. A panic of this drop is reported, and counts as one of the task.
    ///
    /// `caller` is the caller's node; it is `None` for a handle. `is_wanted` is given `true` if the
    /// waiter has stayed, and returns `true` if the waiter wants the result.
    ///
    /// # Safety
    /// This worker has started the task's decision for that waiter and node.
    pub(crate) unsafe fn run_decided<R>(
        &self,
        caller: Option<*const WaitNode>,
        f: impl FnOnce() -> R,
        is_wanted: impl FnOnce(bool) -> bool,
    ) -> (bool, Option<Result<R, Payload>>) {
        let (decision, task_id) = (&self.record.decision, self.task_id.get());
        self.caller.set(caller);
        let result = self.call(f);
        let waits = decision.complete(task_id);
        let (panicked, wanted) = if is_wanted(waits) {
            (result.is_err(), Some(result))
        } else {
            let drop_value = |value| {
                catch_unwind(AssertUnwindSafe(|| drop(value)))
                    .inspect_err(|payload| self.report(payload))
            };
            (has_panicked(result.and_then(drop_value)), None)
        };
        if !waits {
            decision.forget(task_id);
        }
        self.caller.set(None);
        (panicked, wanted)
    }

    /// Returns the running task's deadline or its caller's, whichever is earlier.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let callers = self.caller.get().map(|node| {
            // SAFETY: only `run_decided` sets `caller`, and clears it once the task has ended. By
            // its contract, the decision was started for the caller with this node.
            unsafe { self.record.decision.deadline(self.task_id.get(), node) }
        });
        let due = callers.unwrap_or(NEVER).min(self.record.due());
        (due != NEVER).then(|| self.env.instant(due))
    }

    /// Returns `true` if the running task is abandoned or late, or the pool is shutting down in a
    /// mode that cancels tasks.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.record.is_abandoned_by_waiter() || self.is_late() || self.env.is_cancelling()
    }

    /// Calls user code that may call `fork`. In a forked child, this ends the process instead of
    /// returning, because the worker must not run the parent's tasks there.
    pub(crate) fn call_back(&self, f: impl FnOnce()) {
        f();
        if self.env.is_forked() {
            fork::end_child();
        }
    }

    /// Leaves the call of a handle's waker to [`Ctx::run_deferred`], which runs once this worker is
    /// idle or has started its next task. The waker may submit a task. If this worker were
    /// `Searching`, that submission would wait for its own thread.
    pub(crate) fn defer_wake(&self, remains: Remains) {
        if remains.waker.is_some() || remains.node.is_some() {
            self.remains.set(remains);
            self.todo.set(self.todo.get() | WAKE);
        }
    }

    #[inline]
    pub(crate) fn has_deferred_wake(&self) -> bool {
        self.todo.get() & WAKE != 0
    }

    /// Defers a call of `help_others`, because this worker has stopped looking at the queue or has
    /// made space.
    #[inline]
    pub(crate) fn defer_helping_others(&self) {
        self.todo.set(self.todo.get() | HELP_OTHERS);
    }

    /// Does the work that this worker has deferred for other threads. The work may start a thread
    /// and may call user code. The worker calls this when it is idle, has started its next task, or
    /// has ended, and before other steps that may take long. It does not call this after it has
    /// taken a task with a waiting caller and before it has started that task, because that caller
    /// could not leave meanwhile.
    #[inline]
    pub(crate) fn run_deferred(&self) {
        let todo = self.todo.replace(self.todo.get() & NOTE_START);
        if todo & HELP_OTHERS != 0 {
            self.call_back(self.help_others);
        }
        if todo & WAKE != 0 {
            self.call_back(|| wake_and_drop(self.remains.take()));
        }
    }

    /// Does the deferred work before a task's code is called. Notes the start if ages are tracked.
    #[cold]
    fn prepare(&self) {
        self.run_deferred();
        if self.todo.get() & NOTE_START != 0 {
            (self.record).describe(self.label.get(), Some(self.env.nanos_now()));
        }
    }

    /// Yields the CPU if this worker has run for a long time without sleeping. Called only after
    /// the task has started, so that the task's caller can leave meanwhile.
    #[cold]
    fn yield_if_due(&self) {
        let before = now();
        if self.stretch.is_over(before) {
            thread::yield_now();
            self.stretch
                .has_yielded(now().saturating_duration_since(before));
        }
    }

    /// Calls a task's code, within the `around` wrapper if there is one. A panic is caught and
    /// reported to `on_panic`. The captures of the code are dropped on return.
    #[inline]
    pub(crate) fn call<R>(&self, f: impl FnOnce() -> R) -> Result<R, Payload> {
        if self.todo.get() != 0 {
            self.prepare();
        }
        if self.stretch.is_time_to_look() {
            self.yield_if_due();
        }
        let started = Moment::now(self.env);
        let result = match &self.env.hooks.around {
            None => catch_unwind(AssertUnwindSafe(f)),
            Some(around) => self.call_around(around, f),
        };
        observe::task_ended(self, started);
        if let Err(payload) = &result {
            self.report(payload);
        }
        result
    }

    #[cold]
    fn call_around<R>(&self, around: &Around, f: impl FnOnce() -> R) -> Result<R, Payload> {
        let mut f = Some(f);
        let mut result = None;
        let mut step = || {
            if let Some(f) = f.take() {
                result = Some(catch_unwind(AssertUnwindSafe(f)));
            }
        };
        self.env.hook(|| around(&mut step));
        // Law 16: if the wrapper has not called its argument, the task runs now.
        step();
        result.expect("the step has run")
    }

    /// Reports a panic to subscribers and to `on_panic`.
    #[cold]
    pub(crate) fn report(&self, payload: &Payload) {
        let panic = TaskPanic::new(self.slot, self.label.get(), &**payload);
        observe::task_panicked(self.env, &panic);
        if let Some(on_panic) = &self.env.hooks.on_panic {
            self.env.hook(|| on_panic(&panic));
        }
    }
}
