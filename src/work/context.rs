//! The context of a worker, which the code in its tasks can ask.
//!
//! A worker has one [`Ctx`] on its stack for life; a thread-local pointer to it is what the
//! public functions read.

use crate::error::TaskPanic;
use crate::parts::completion::WaitNode;
use crate::parts::members::Members;
use crate::sync::{catch_unwind, fork, thread_local, AtomicBool, Instant, Ordering};
use crate::work::env::Env;
#[cfg(any(feature = "metrics", feature = "tracing"))]
use crate::work::observe::Watch;
use crate::work::observe::{self, Seen, Starts};
use crate::work::panics::{drop_payload, Payload};
use crate::work::record::{GroupEntry, Record};
use std::cell::Cell;
use std::panic::AssertUnwindSafe;

/// What a worker does for others once its task counts as started.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Owed {
    /// Sees to it that somebody looks at the queue.
    Look,
    /// Tells who waits for room.
    Room,
    /// Tells a drop of the pool that nobody waits for the running task any more.
    Drop,
}

/// What a task can ask of the worker that runs it. Lives on the worker's stack.
pub(crate) struct Ctx<'a> {
    pub(crate) env: &'a Env,
    pub(crate) record: &'a Record,
    pub(crate) slot: usize,
    /// Pays what the worker owes.
    pay: &'a dyn Fn(Owed),
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
    /// The worker was awake before the task about to run, and has yet to see to it that
    /// somebody looks at the queue in its place.
    pub(crate) owes_a_look: Cell<bool>,
    /// For how many places in the queue the worker has yet to tell who waits for room.
    owes_room: Cell<u32>,
    /// The submission of the task about to run.
    pub(crate) seen: Cell<Seen>,
    /// Threads that the worker has started since its last task: told within the next, or at its
    /// end.
    pub(crate) starts: Starts<'a>,
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
    pub(crate) fn new(
        env: &'a Env,
        record: &'a Record,
        slot: usize,
        pay: &'a dyn Fn(Owed),
    ) -> Self {
        Self {
            env,
            record,
            slot,
            pay,
            label: Cell::new(None),
            caller: Cell::new(None),
            awaited: Cell::new(false),
            group: Cell::new(std::ptr::null()),
            due: Cell::new(0),
            told_late: Cell::new(false),
            task_id: Cell::new(0),
            owes_a_look: Cell::new(false),
            owes_room: Cell::new(0),
            seen: Cell::default(),
            starts: Starts::new(env),
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
        if due != 0 && self.env.is_closed() {
            // A drop that waits has to look again when it passes (A2).
            (self.pay)(Owed::Drop);
        }
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
        let Some(node) = self.caller.get() else {
            let due = self.due.get();
            return (due != 0).then(|| self.env.instant(due));
        };
        // SAFETY: there only in `with_caller`, while the task runs.
        let nanos = unsafe { self.record.decision.deadline(self.task_id.get(), node) };
        Some(self.env.instant(nanos))
    }

    /// Runs `f` as a task of the given group.
    pub(crate) fn with_group<R>(&self, members: &Members, f: impl FnOnce() -> R) -> R {
        self.group.set(&members.cancelled);
        match self.record.enter_group(members.address()) {
            GroupEntry::Again => {}
            // It is told of with this task's label.
            GroupEntry::Marked => self.found_cancelled(true),
            GroupEntry::New => {
                // ORDERING: A1: after this slot's record names the group.
                if members.cancelled.load(Ordering::SeqCst) {
                    self.found_cancelled(self.record.find_cancelled(members.address()));
                }
            }
        }
        let result = f();
        self.group.set(std::ptr::null());
        result
    }

    /// The task's group was cancelled while it was on its way here.
    #[cold]
    fn found_cancelled(&self, is_first: bool) {
        if is_first {
            (self.pay)(Owed::Drop);
        }
        // Before the subscriber, which may take its time, and submit.
        self.pay_debts();
        if is_first {
            observe::worker_abandoned(self.env, self.slot, self.label.get(), "cancelled");
        }
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
        // SAFETY: not null only in `with_group`, which borrows the flag while the task runs.
        if !group.is_null() && unsafe { &*group }.load(Ordering::Relaxed) {
            return true;
        }
        self.is_past_due() || self.env.is_cancelling()
    }

    /// The worker has made room in the queue, or is about to run a task that did.
    #[inline]
    pub(crate) fn owe_room(&self) {
        self.owes_room.set(self.owes_room.get() + 1);
    }

    /// Does for others what could not be done before this task counted as started: it may
    /// wait for another thread, or start one, and the task's caller can leave only now.
    #[inline]
    pub(crate) fn pay_debts(&self) {
        for _ in 0..self.owes_room.take() {
            (self.pay)(Owed::Room);
        }
        // A burst spreads: one worker less that looks, so notify the next.
        if self.owes_a_look.take() {
            (self.pay)(Owed::Look);
        }
    }

    /// Calls user code: within the wrapper if there is one, panics caught and
    /// reported to `on_panic`. What the code captured is dropped on return.
    #[inline]
    pub(crate) fn call<R>(&self, f: impl FnOnce() -> R) -> Result<R, Payload> {
        self.pay_debts();
        self.starts.tell();
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

    /// The task in hand does not run.
    pub(crate) fn forget_submission(&self) {
        self.seen.set(Seen::default());
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

#[cfg(all(test, feature = "tracing", not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;
    use crate::parts::members::{Ended, Handle};
    use crate::work::env::Hooks;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;
    use tracing::span::{Attributes, Id};
    use tracing::{Event, Metadata, Subscriber};

    /// Counts events.
    struct Counter(Arc<AtomicUsize>);

    impl Subscriber for Counter {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.is_event()
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// Threads that a worker has started while an order was on its way to it, or on its way to
    /// its end, are told before its next task runs, once; else at its end.
    #[test]
    fn a_workers_starts_are_told_within_its_next_task() {
        let (env, record) = (
            Env::new(String::from("starts"), Hooks::default()),
            Record::new(),
        );
        let told = Arc::new(AtomicUsize::new(0));
        let events = || told.load(Ordering::SeqCst);
        tracing::subscriber::with_default(Counter(Arc::clone(&told)), || {
            let ctx = Ctx::new(&env, &record, 0, &|_| ());
            ctx.starts.note_worker(1);
            ctx.starts.note_failure(&std::io::Error::other("no thread"));
            ctx.pay_debts();
            assert_eq!(events(), 0, "it may be idle, and claimed");
            assert_eq!(ctx.call(events).ok(), Some(2));
            assert_eq!(ctx.call(events).ok(), Some(2));
            ctx.starts.note_worker(1);
            drop(ctx);
            assert_eq!(events(), 3);
        });
        assert_eq!(env.hook_panics.load(Ordering::SeqCst), 0);
    }

    /// Laws 4 and 5: a worker whose task's group was cancelled on the way pays what it owes before its
    /// subscriber hears of that, which may take its time, and submit.
    #[test]
    fn what_a_worker_owes_comes_before_an_event() {
        let (env, record) = (
            Env::new(String::from("owes"), Hooks::default()),
            Record::new(),
        );
        let told = Arc::new(AtomicUsize::new(0));
        let events = || told.load(Ordering::SeqCst);
        let paid = Cell::new(Vec::new());
        let pay = |owed: Owed| {
            let mut all = paid.take();
            all.push((owed, events()));
            paid.set(all);
        };
        let group = Handle::new();
        let task = group.enter();
        group.cancelled.store(true, Ordering::SeqCst);
        tracing::subscriber::with_default(Counter(Arc::clone(&told)), || {
            let ctx = Ctx::new(&env, &record, 0, &pay);
            ctx.owe_room();
            ctx.owes_a_look.set(true);
            ctx.with_group(task.members(), || ());
        });
        assert!(matches!(
            paid.take()[..],
            [(Owed::Drop, 0), (Owed::Room, 0), (Owed::Look, 0)]
        ));
        assert_eq!(events(), 1);
        task.end(Ended::Completed);
    }
}
