//! The context of a worker, which the code in its tasks can ask.
//!
//! A worker has one [`Ctx`] on its stack for life; a thread-local pointer to it is what the
//! public functions read.

use crate::error::TaskPanic;
use crate::parts::completion::{Remains, WaitNode};
use crate::parts::members::Members;
use crate::parts::stretch::Stretch;
use crate::sync::{catch_unwind, fork, now, thread, thread_local, AtomicBool, Instant, Ordering};
use crate::work::env::Env;
#[cfg(any(feature = "metrics", feature = "tracing"))]
use crate::work::observe::Watch;
use crate::work::observe::{self, Seen};
use crate::work::panics::{drop_payload, settle, Payload};
use crate::work::record::Record;
use std::cell::Cell;
use std::panic::AssertUnwindSafe;

/// The worker was awake, and is still to see to it that somebody looks at the queue in its place.
const A_LOOK: u8 = 1;
/// There is something in `remains`.
const REMAINS: u8 = 2;

/// What a task can ask of the worker that runs it. Lives on the worker's stack.
pub(crate) struct Ctx<'a> {
    pub(crate) env: &'a Env,
    pub(crate) record: &'a Record,
    pub(crate) slot: usize,
    /// Sees to it that somebody looks at the queue.
    look: &'a dyn Fn(),
    label: Cell<Option<&'static str>>,
    /// The node of the running task's caller, if it has a deadline.
    caller: Cell<Option<*const WaitNode>>,
    /// A caller waits for the running task, or did.
    awaited: Cell<bool>,
    /// The cancel flag of the running task's group; valid while it runs.
    group: Cell<*const AtomicBool>,
    /// The running task's own deadline, as [`Env::nanos`]; zero: none.
    due: Cell<u64>,
    /// That it has passed has been told.
    told_late: Cell<bool>,
    /// Names the task about to run to its decision.
    pub(crate) task_id: Cell<u64>,
    /// What is to be done before the next task's code: [`A_LOOK`], [`REMAINS`], or both.
    debts: Cell<u8>,
    /// A handle's waker, to be called: code of the user's, which comes last.
    remains: Cell<Remains>,
    pub(crate) stretch: Stretch,
    /// The submission of the task about to run.
    pub(crate) seen: Cell<Seen>,
}

impl std::fmt::Debug for Ctx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ctx")
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}

thread_local! {
    static CURRENT: Cell<*const Ctx<'static>> = const { Cell::new(std::ptr::null()) };
}

/// Calls `f` with the context of the worker that this thread is, if it is one.
pub(crate) fn with_current<R>(f: impl FnOnce(Option<&Ctx<'_>>) -> R) -> R {
    let current = CURRENT.try_with(Cell::get).unwrap_or(std::ptr::null());
    // SAFETY: not null only between `Ctx::enter` and its guard's drop, both on
    // this thread, during which the context is borrowed; `f` cannot keep it.
    f(unsafe { current.as_ref() })
}

/// Clears the thread's context when the worker's stack unwinds or returns.
#[derive(Debug)]
pub(crate) struct Entered<'a>(std::marker::PhantomData<&'a ()>);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.with(|c| c.set(std::ptr::null()));
    }
}

impl<'a> Ctx<'a> {
    pub(crate) fn new(env: &'a Env, record: &'a Record, slot: usize, look: &'a dyn Fn()) -> Self {
        Self {
            env,
            record,
            slot,
            look,
            label: Cell::new(None),
            caller: Cell::new(None),
            awaited: Cell::new(false),
            group: Cell::new(std::ptr::null()),
            due: Cell::new(0),
            told_late: Cell::new(false),
            task_id: Cell::new(0),
            debts: Cell::new(0),
            remains: Cell::default(),
            stretch: Stretch::new(),
            seen: Cell::default(),
        }
    }

    /// Makes this the thread's context until the guard drops.
    pub(crate) fn enter(&self) -> Entered<'_> {
        CURRENT.with(|c| c.set(std::ptr::from_ref(self).cast()));
        Entered(std::marker::PhantomData)
    }

    /// Runs `f` as a task with a label.
    pub(crate) fn with_label<R>(&self, label: Option<&'static str>, f: impl FnOnce() -> R) -> R {
        if label.is_none() {
            return f();
        }
        self.set_label(label);
        let result = f();
        self.set_label(None);
        result
    }

    pub(crate) fn set_label(&self, label: Option<&'static str>) {
        self.label.set(label);
        // SAFETY: the record is that of the worker's own slot, and a context stays on its thread.
        unsafe { self.record.label.set(label) };
    }

    /// The running task has a deadline of its own; zero: no longer.
    pub(crate) fn set_due(&self, due: u64) {
        self.due.set(due);
        self.told_late.set(false);
        self.record.set_due(due);
    }

    /// The running task has ended, and has no deadline of its own any more. Whether that has
    /// passed.
    pub(crate) fn end_due(&self) -> bool {
        let due = self.due.get();
        self.set_due(0);
        due != 0 && self.env.nanos_now() >= due
    }

    /// Whether the running task's own deadline has passed.
    pub(crate) fn is_past_due(&self) -> bool {
        let due = self.due.get();
        let is_past = due != 0 && self.env.nanos_now() >= due;
        if is_past && !self.told_late.replace(true) {
            observe::worker_abandoned(self.env, self.slot, self.label.get(), "deadline");
        }
        is_past
    }

    /// Runs `f` as a task whose caller waits; with the caller's node, if there is a
    /// deadline.
    ///
    /// # Safety
    /// The node is that of the caller for whom this worker has started its decision.
    pub(crate) unsafe fn with_caller<R>(
        &self,
        caller: Option<*const WaitNode>,
        f: impl FnOnce() -> R,
    ) -> R {
        self.awaited.set(true);
        self.caller.set(caller);
        let result = f();
        self.caller.set(None);
        self.awaited.set(false);
        result
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.env.is_forked() {
            // The caller's stack may be another's here.
            return None;
        }
        let own = Some(self.due.get()).filter(|due| *due != 0);
        let callers = self.caller.get().map(|node| {
            // SAFETY: there only in `with_caller`, while the task runs.
            unsafe { self.record.decision.deadline(self.task_id.get(), node) }
        });
        let due = own.into_iter().chain(callers).min()?;
        Some(self.env.instant(due))
    }

    /// From now on, and until [`Ctx::leave_group`], the task is one of the given group, whose members
    /// outlive that.
    ///
    /// # Safety
    /// They do.
    pub(crate) unsafe fn enter_group(&self, members: &Members) {
        self.group.set(&members.cancelled);
        self.record.set_group(members.address());
    }

    pub(crate) fn leave_group(&self) {
        self.record.set_group(std::ptr::null());
        self.group.set(std::ptr::null());
    }

    /// After code of the user's, which may have called `fork`: the child ends. It does not count or
    /// release the task, nor take another: that is left to the parent.
    #[cold]
    pub(crate) fn end_if_forked(&self) {
        if self.env.is_forked() {
            fork::end_child();
        }
    }

    pub(crate) fn label(&self) -> Option<&'static str> {
        self.label.get()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        if self.awaited.get() && self.record.decision.has_left(self.task_id.get()) {
            return true;
        }
        let group = self.group.get();
        // Relaxed: a flag; whoever acts on it needs nothing it publishes.
        // SAFETY: not null only in a group, which outlives that.
        if !group.is_null() && unsafe { &*group }.load(Ordering::Relaxed) {
            return true;
        }
        self.is_past_due() || self.env.is_cancelling()
    }

    /// The worker looks at the queue no more: others may have relied on it.
    #[inline]
    pub(crate) fn owe_a_look(&self) {
        self.owe_that(A_LOOK);
    }

    /// Does for others what could not be done before this task counted as started: it may start
    /// a thread, and the task's caller can leave only now.
    #[inline]
    pub(crate) fn pay_debts(&self) {
        // A burst spreads: one worker less that looks, so notify the next.
        if self.paid(A_LOOK) {
            (self.look)();
            // Subscribers hear of a thread that could not be started.
            self.end_if_forked();
        }
    }

    #[inline]
    fn owe_that(&self, debt: u8) {
        self.debts.set(self.debts.get() | debt);
    }

    /// Whether it was owed; it is no more.
    #[inline]
    fn paid(&self, debt: u8) -> bool {
        let debts = self.debts.get();
        self.debts.set(debts & !debt);
        debts & debt != 0
    }

    /// Leaves a handle's waker until the next task counts as started, or the worker is idle: nothing of
    /// the pool waits for code of the user's.
    pub(crate) fn owe(&self, remains: Remains) {
        if !remains.is_empty() {
            self.owe_that(REMAINS);
            settle(self.remains.replace(remains));
        }
    }

    /// Sees to the look that is owed and calls the waker that is owed, before other code of the user's.
    #[inline]
    pub(crate) fn settle_debts(&self) {
        self.pay_debts();
        if self.paid(REMAINS) {
            self.settle_remains();
        }
    }

    #[inline]
    pub(crate) fn owes_remains(&self) -> bool {
        self.debts.get() & REMAINS != 0
    }

    #[cold]
    fn settle_remains(&self) {
        settle(self.remains.take());
        self.end_if_forked();
    }

    /// Only now that the task has started: its caller can leave meanwhile.
    #[cold]
    fn yield_if_due(&self) {
        let before = now();
        if self.stretch.is_over(before) {
            thread::yield_now();
            self.stretch
                .has_yielded(now().saturating_duration_since(before));
        }
    }

    /// Calls user code: within the wrapper if there is one, panics caught and
    /// reported to `on_panic`. What the code captured is dropped on return.
    #[inline]
    pub(crate) fn call<R>(&self, f: impl FnOnce() -> R) -> Result<R, Payload> {
        if self.debts.get() != 0 {
            self.settle_debts();
        }
        if self.stretch.is_time_to_look() {
            self.yield_if_due();
        }
        #[cfg(any(feature = "metrics", feature = "tracing"))]
        let watch = Watch::begin(self.seen.take(), self.env, self.label.get(), self.slot);
        let result = match &self.env.hooks.around {
            None => catch_unwind(AssertUnwindSafe(f)),
            Some(_) => self.call_around(f),
        };
        #[cfg(any(feature = "metrics", feature = "tracing"))]
        watch.stop(self.env, self.label.get());
        if let Err(payload) = &result {
            self.report(payload);
        }
        #[cfg(any(feature = "metrics", feature = "tracing"))]
        watch.end(self.env);
        result
    }

    #[cold]
    fn call_around<R>(&self, f: impl FnOnce() -> R) -> Result<R, Payload> {
        let mut f = Some(f);
        let mut result = None;
        let mut step = || {
            if let Some(f) = f.take() {
                result = Some(catch_unwind(AssertUnwindSafe(f)));
            }
        };
        if let Some(around) = &self.env.hooks.around {
            self.env.hook(|| around(&mut step));
        }
        // A wrapper that did not call its argument: the task runs all the same.
        step();
        result.expect("the step has run")
    }

    /// Tells `on_panic` of a payload.
    #[cold]
    pub(crate) fn report(&self, payload: &Payload) {
        let panic = TaskPanic::new(self.slot, self.label.get(), &**payload);
        observe::task_panicked(self.env, &panic);
        if let Some(on_panic) = &self.env.hooks.on_panic {
            self.env.hook(|| on_panic(&panic));
        }
    }

    /// Drops what a call has returned and nobody waits for any more. Whether it panicked, in the
    /// call or in its drop.
    pub(crate) fn drop_result<T>(&self, result: Result<T, Payload>) -> bool {
        match result {
            Ok(value) => self.drop_reported(value),
            Err(payload) => {
                drop_payload(payload);
                true
            }
        }
    }

    /// Drops a value that nobody waits for any more; a panic of its `Drop` is
    /// reported. Returns whether there was one.
    pub(crate) fn drop_reported<T>(&self, value: T) -> bool {
        match catch_unwind(AssertUnwindSafe(|| drop(value))) {
            Ok(()) => false,
            Err(payload) => {
                self.report(&payload);
                drop_payload(payload);
                true
            }
        }
    }
}
