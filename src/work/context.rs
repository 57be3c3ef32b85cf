//! The context of a worker, which the code in its tasks can ask.
//!
//! A worker has one [`Ctx`] on its stack for life; a thread-local pointer to it is what the
//! public functions read.

use crate::error::TaskPanic;
use crate::parts::completion::{Remains, WaitNode};
use crate::parts::stretch::Stretch;
use crate::sync::{catch_unwind, fork, now, thread, thread_local, Instant, Ordering};
use crate::work::env::{Around, Env, NEVER};
use crate::work::observe::{self, Seen, Watch};
use crate::work::options::Options;
use crate::work::panics::{has_panicked, settle, Payload};
use crate::work::record::Record;
use std::cell::Cell;
use std::panic::AssertUnwindSafe;

/// What a task can ask of the worker that runs it: with the record, in which others read of it, too.
/// Lives on the worker's stack.
pub(crate) struct Ctx<'a> {
    pub(crate) env: &'a Env,
    pub(crate) record: &'a Record,
    pub(crate) slot: usize,
    /// Sees to it that somebody looks at the queue.
    look: &'a dyn Fn(),
    /// The node of the running task's caller, if one waits for it.
    caller: Cell<Option<*const WaitNode>>,
    /// That the running task's own deadline has passed has been told.
    told_late: Cell<bool>,
    /// Names the task about to run to its decision.
    pub(crate) task_id: Cell<u64>,
    /// It was awake, and is still to see to it that somebody looks at the queue in its place: before
    /// the next task's code.
    pub(crate) owes_look: Cell<bool>,
    /// There is something in `remains`.
    pub(crate) owes_remains: Cell<bool>,
    /// A handle's waker, to be called: code of the user's, which comes last.
    remains: Cell<Remains>,
    pub(crate) stretch: Stretch,
    /// The submission of the task about to run.
    pub(crate) seen: Cell<Seen>,
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
            caller: Cell::new(None),
            told_late: Cell::new(false),
            task_id: Cell::new(0),
            owes_look: Cell::new(false),
            owes_remains: Cell::new(false),
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

    /// The task about to run has these options. `false`: it comes too late to be started.
    ///
    /// # Safety
    /// Its group lives until [`Ctx::finish`].
    #[inline]
    pub(crate) unsafe fn begin(&self, options: &Options<'_>) -> bool {
        // First: what is said of a late task carries it.
        if options.label.is_some() {
            self.set_label(options.label);
        }
        if let Some(times) = options.times {
            let Some(due) = times.start(self.env) else {
                return false;
            };
            self.told_late.set(false);
            self.record.set_due(due);
        }
        if let Some(group) = options.group {
            self.record.set_group(group);
        }
        true
    }

    /// The task with options has ended: before the worker is free for another. If it is late, subscribers
    /// are told, if they may take their time.
    #[inline]
    pub(crate) fn finish(&self, is_labeled: bool, may_tell: bool) {
        self.record.set_group(std::ptr::null());
        if self.is_late(may_tell) {
            // Relaxed: a count.
            self.env.timed_out.fetch_add(1, Ordering::Relaxed);
        }
        self.record.set_due(NEVER);
        if is_labeled {
            self.set_label(None);
        }
    }

    fn set_label(&self, label: Option<&'static str>) {
        // SAFETY: the record is that of the worker's own slot, and a context stays on its thread.
        unsafe { self.record.label.set(label) };
    }

    /// Whether the running task's own deadline has passed; subscribers are told, if they may take their
    /// time.
    #[inline]
    fn is_late(&self, may_tell: bool) -> bool {
        let due = self.record.due();
        let is_late = due != NEVER && self.env.nanos_now() >= due;
        if is_late && may_tell && !self.told_late.replace(true) {
            observe::worker_abandoned(self.env, self.slot, self.label(), "deadline");
        }
        is_late
    }

    /// Runs a task whose end is decided between it and who waits: a caller of `do_with_deadline`, or a
    /// handle. Whether it panicked, and its result, if that is still wanted. Otherwise the result has
    /// been dropped, while the task still counts as running. `caller`: the node of a waiting
    /// caller. `is_wanted` is asked with whether somebody waits.
    ///
    /// # Safety
    /// This worker has started its decision for who waits, with this node.
    pub(crate) unsafe fn run_decided<R>(
        &self,
        caller: Option<*const WaitNode>,
        f: impl FnOnce() -> R,
        is_wanted: impl FnOnce(bool) -> bool,
    ) -> (bool, Option<Result<R, Payload>>) {
        let (decision, task_id) = (&self.record.decision, self.task_id.get());
        self.caller.set(caller);
        let result = self.call(f);
        // Subscribers are told of a run limit that has passed as long as the caller can leave.
        self.is_late(true);
        let waits = decision.complete(task_id);
        let (panicked, wanted) = if is_wanted(waits) {
            (result.is_err(), Some(result))
        } else {
            (self.drop_result(result), None)
        };
        if !waits {
            // Who left may have been just leaving, and does not exist in a forked child.
            self.end_if_forked();
            decision.forget(task_id);
        }
        self.caller.set(None);
        (panicked, wanted)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.env.is_forked() {
            // The caller's stack may be another's here.
            return None;
        }
        let callers = self.caller.get().map(|node| {
            // SAFETY: there only in `run_decided`, while the task runs.
            unsafe { self.record.decision.deadline(self.task_id.get(), node) }
        });
        let due = callers.unwrap_or(NEVER).min(self.record.due());
        (due != NEVER).then(|| self.env.instant(due))
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
        self.record.label.get()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        // SAFETY: not null only in a task of a group, which lives meanwhile.
        let group = unsafe { self.record.group().as_ref() };
        self.record.decision.is_abandoned()
            // Relaxed: a flag; whoever acts on it needs nothing it publishes.
            || group.is_some_and(|group| group.cancelled.load(Ordering::Relaxed))
            || self.is_late(true)
            || self.env.is_cancelling()
    }

    /// Does for others what could not be done before this task counted as started: it may start
    /// a thread, and the task's caller can leave only now.
    #[inline]
    pub(crate) fn pay_debts(&self) {
        // A burst spreads: one worker less that looks, so notify the next.
        if self.owes_look.replace(false) {
            (self.look)();
            // Subscribers hear of a thread that could not be started.
            self.end_if_forked();
        }
    }

    /// Leaves a handle's waker until the next task counts as started, or the worker is idle: nothing of
    /// the pool waits for code of the user's.
    pub(crate) fn owe(&self, remains: Remains) {
        if !remains.is_empty() {
            self.owes_remains.set(true);
            settle(self.remains.replace(remains));
        }
    }

    /// Sees to the look that is owed and calls the waker that is owed, before other code of the user's.
    #[cold]
    pub(crate) fn settle_debts(&self) {
        self.pay_debts();
        if self.owes_remains.replace(false) {
            settle(self.remains.take());
            self.end_if_forked();
        }
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
        if self.owes_look.get() | self.owes_remains.get() {
            self.settle_debts();
        }
        if self.stretch.is_time_to_look() {
            self.yield_if_due();
        }
        let watch = Watch::begin(self.seen.take(), self.env, self.record, self.slot);
        let result = match &self.env.hooks.around {
            None => catch_unwind(AssertUnwindSafe(f)),
            Some(around) => self.call_around(around, f),
        };
        watch.stop(self.env, self.record);
        if let Err(payload) = &result {
            self.report(payload);
        }
        watch.end(self.env);
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
        // A wrapper that did not call its argument: the task runs all the same.
        step();
        result.expect("the step has run")
    }

    /// Tells `on_panic` of a payload.
    #[cold]
    pub(crate) fn report(&self, payload: &Payload) {
        let panic = TaskPanic::new(self.slot, self.label(), &**payload);
        observe::task_panicked(self.env, &panic);
        if let Some(on_panic) = &self.env.hooks.on_panic {
            self.env.hook(|| on_panic(&panic));
        }
    }

    /// Drops what a call has returned and nobody waits for any more. Whether it panicked, in the
    /// call or in its drop, which is reported, too.
    fn drop_result<T>(&self, result: Result<T, Payload>) -> bool {
        let drop_value = |value| {
            catch_unwind(AssertUnwindSafe(|| drop(value)))
                .inspect_err(|payload| self.report(payload))
        };
        has_panicked(result.and_then(drop_value))
    }
}
