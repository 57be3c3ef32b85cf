//! The context of a worker. Code in the worker's tasks can query it.
//!
//! A worker has one [`Ctx`] on its stack for its whole life. The public functions of `task` find it
//! by a thread-local pointer.

use crate::error::TaskPanic;
use crate::parts::completion::{WaitNode, NO_TASK};
use crate::parts::yield_timer::YieldTimer;
use crate::sync::panics::{drop_contained, has_panicked, Payload};
use crate::sync::{
    abort_on_unwind, assert_not_relied_on, catch_unwind, fork, now, thread, thread_local, Instant,
    Ordering,
};
use crate::work::env::{Around, Env, NEVER};
use crate::work::job::{Captured, TaskEnd};
use crate::work::observe::{self, Moment};
use crate::work::options::Options;
use crate::work::owed::{Kinds, Owed};
use crate::work::record::Record;
use std::cell::{Cell, RefCell};
use std::panic::AssertUnwindSafe;

/// The state of a worker that its tasks can query. The [`Record`] has the state that other threads
/// may read.
pub(crate) struct Ctx<'a> {
    pub(crate) env: &'a Env,
    pub(crate) record: &'a Record,
    pub(crate) slot: usize,
    /// The debts of this worker. They are paid in the worker's loop and, if a task came with a debt, before that
    /// task's code.
    owed: RefCell<Owed>,
    /// Set if anything may be owed.
    owes: Cell<bool>,
    /// `Core::pay`.
    pay: &'a dyn Fn(&mut Owed),
    /// Set until the worker leaves its slot. After that the record may be that of the next worker.
    pub(crate) has_slot: Cell<bool>,
    /// The node of the caller that submitted the running task by `do_with_deadline`. `None` for any
    /// other task. The caller may have left since.
    caller: Cell<Option<*const WaitNode>>,
    /// The label of the running task.
    pub(crate) label: Cell<Option<&'static str>>,
    /// The id by which the worker's decision names the task that runs or is about to run.
    pub(crate) task_id: Cell<u64>,
    /// Set if the pool tracks ages. The worker then notes the start of each task.
    notes_start: bool,
    pub(crate) yield_timer: YieldTimer,
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

/// Calls `f`. If this thread is a worker, its record says meanwhile that it pays these kinds of debts.
pub(crate) fn while_paying<R>(kinds: Kinds, f: impl FnOnce() -> R) -> R {
    let replace = |kinds| {
        with_current(|ctx| {
            let has_slot = ctx.has_slot.get();
            has_slot.then(|| ctx.record.replace_pays(kinds))
        })
    };
    let before = replace(kinds);
    let result = f();
    before.and_then(replace);
    result
}

impl<'a> Ctx<'a> {
    pub(crate) fn new(
        env: &'a Env,
        record: &'a Record,
        slot: usize,
        pay: &'a dyn Fn(&mut Owed),
    ) -> Self {
        Self {
            env,
            record,
            slot,
            owed: RefCell::default(),
            owes: Cell::new(false),
            pay,
            has_slot: Cell::new(true),
            caller: Cell::new(None),
            label: Cell::new(None),
            task_id: Cell::new(NO_TASK),
            notes_start: env.tracks_ages(),
            yield_timer: YieldTimer::new(),
            submitted: Cell::default(),
        }
    }

    /// Calls `f`, which is the whole life of the worker. Meanwhile this is the thread's context.
    pub(crate) fn during(&self, f: impl FnOnce()) {
        CURRENT.with(|c| c.set(std::ptr::from_ref(self).cast()));
        // Destructors that ran after an unwind would find a context that is gone.
        abort_on_unwind(f);
        CURRENT.with(|c| c.set(std::ptr::null()));
    }

    /// Publishes the options of the task about to run. Returns an error if the task must not start:
    /// it is too late for it, or its group is cancelled.
    ///
    /// # Safety
    /// The task's group lives until [`Ctx::finish`] or an error.
    #[inline]
    pub(crate) unsafe fn begin(&self, options: &Options<'_>) -> Result<(), TaskEnd> {
        let due = match options.times.map(|times| times.start(self.env)) {
            None => None,
            Some(None) => return Err(TaskEnd::Expired),
            due => due.flatten(),
        };
        if let Some(group) = options.group {
            if !self.record.enter_group(group) {
                return Err(TaskEnd::Cancelled);
            }
        }
        if let Some(due) = due {
            self.record.set_due(due);
        }
        if options.label.is_some() {
            self.label.set(options.label);
            self.record.describe(options.label, None);
        }
        Ok(())
    }

    /// Clears the options of a task that has ended. Counts the task as timed out if it has run, and its own
    /// deadline has passed. Called before the worker is free for another task.
    #[inline]
    pub(crate) fn finish(&self, ended: TaskEnd) {
        self.record.clear_group();
        if ended.has_run() && self.is_late() {
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
        if !self.has_slot.get() {
            return None;
        }
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
        let record_says = self.record.is_abandoned_by_waiter() || self.is_late();
        self.has_slot.get() && record_says || self.env.is_cancelling()
    }

    /// Calls user code that may call `fork`. In a forked child, this ends the process instead of
    /// returning, because the worker must not run the parent's tasks there.
    pub(crate) fn call_back(&self, f: impl FnOnce()) {
        self.assert_not_relied_on();
        f();
        self.end_child();
    }

    /// Ends the process if it is a forked child.
    pub(crate) fn end_child(&self) {
        if self.env.is_forked() {
            fork::end_child();
        }
    }

    /// Asserts, in debug builds and models, that no thread relies on this worker to look at the queue, and
    /// that it owes other threads nothing. User code may take long.
    #[inline(always)]
    fn assert_not_relied_on(&self) {
        assert_not_relied_on();
        if cfg!(debug_assertions) {
            assert!(!self.owed.borrow().is_owed_to_others(), "others first");
        }
    }

    /// Notes what this worker owes, by a call of `note`.
    #[cold]
    pub(crate) fn owe(&self, note: impl FnOnce(&mut Owed)) {
        note(&mut self.owed.borrow_mut());
        self.owes.set(true);
    }

    /// Notes that the end of the running task may lead to debts. Called before that end: so the worker is not idle until
    /// it has paid them.
    #[inline]
    pub(crate) fn may_owe(&self) {
        self.owes.set(true);
    }

    /// Returns `true` if this worker may owe anything.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        self.owes.get()
    }

    /// Returns `true` if this worker owes anything. Slower than [`owes`](Self::owes), and exact.
    #[cold]
    pub(crate) fn has_debts(&self) -> bool {
        self.owes.set(!self.owed.borrow().is_empty());
        self.owes()
    }

    /// Takes out what this worker owes, and calls `f`, which pays it or a part of it. Notes again what is left.
    #[cold]
    pub(crate) fn with_owed(&self, f: impl FnOnce(&mut Owed)) {
        self.owes.set(false);
        let mut owed = self.owed.take();
        f(&mut owed);
        if !owed.is_empty() {
            self.owe(|it| it.add(owed));
        }
    }

    /// Pays all that this worker owes.
    #[cold]
    pub(crate) fn pay(&self) {
        if self.owes() {
            self.with_owed(|owed| {
                let kinds = owed.kinds();
                let pay = || self.call_back(|| (self.pay)(owed));
                self.record.while_paying(kinds, pay);
            });
        }
    }

    /// Drops the captures of a task whose turn came too late. All debts are paid.
    pub(crate) fn drop_captured(&self, captured: Option<Captured>) {
        if captured.is_some() {
            debug_assert!(
                !self.owes(),
                "a drop that may take long, before others are told"
            );
            let drop_it = || self.call_back(|| _ = drop_contained(captured));
            self.record.while_paying(Kinds::CAPTURES, drop_it);
        }
    }

    /// Notes the start of the task.
    #[cold]
    fn note_start(&self) {
        (self.record).describe(self.label.get(), Some(self.env.nanos_now()));
    }

    /// Yields the CPU if this worker has run for a long time without sleeping. Called only after
    /// the task has started, so that the task's caller can leave meanwhile.
    #[cold]
    fn yield_if_due(&self) {
        let before = now();
        if self.yield_timer.is_due(before) {
            thread::yield_now();
            self.yield_timer
                .has_yielded(now().saturating_duration_since(before));
        }
    }

    /// Calls a task's code, within the `around` wrapper if there is one. A panic is caught and
    /// reported to `on_panic`. The captures of the code are dropped on return.
    #[inline]
    pub(crate) fn call<R>(&self, f: impl FnOnce() -> R) -> Result<R, Payload> {
        debug_assert!(!self.owes(), "it would wait for the task");
        if self.notes_start {
            self.note_start();
        }
        if self.yield_timer.should_read_clock() {
            self.yield_if_due();
        }
        self.assert_not_relied_on();
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
                // The wrapper may have forked (law 19).
                self.end_child();
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
