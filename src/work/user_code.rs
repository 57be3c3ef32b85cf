//! Where a pool calls user code on behalf of other threads: wakers, drops of captures, subscribers.
//!
//! [`call`] is called with nothing held. The code may call the pool again, and so may owe further
//! calls. These do not nest. They are added to the *frame* of the outer call, further up this thread's
//! stack:
//!
//! * A waker that comes up within a waker is called once that waker has returned.
//! * A value that comes up anywhere within a frame is dropped once the outer drop has returned.
//! * The exception: a waker that comes up within the drop of a value is called there, because that drop may wait for
//!   what the waker wakes.
//!
//! So the stack does not grow with the number of calls. Each pool has its own frame, because a drop
//! may wait for another pool, which may need its own drops for that.
//!
//! # Where user code runs
//!
//! | code | on | state of a worker | before it |
//! |---|---|---|---|
//! | a task, in its `around` wrapper; drops of its captures | worker | `Busy` | `Ctx::call`: all debts are paid, the caller can leave |
//! | the value of a task whose waiter has left | worker | `Busy` | the task counts as running |
//! | captures of a task whose turn came too late | worker | `Busy` | all debts are paid; after it, its waiter is told |
//! | `on_panic`, subscribers of a panic | worker | `Busy` | as the task |
//! | wakers | any thread, at the end of its call, or before it waits in one; worker | `Calling`, and if it is claimed meanwhile: `Held`, `Offered`, `Busy`, `Paying`; `Paying`; before a task that it has taken: `Busy`; `Offered`, and `Held` while the caller takes the task back | [`wake`], [`call`]: all debts to others are paid |
//! | captures that were discarded; subscribers of a refused thread | the same | `Paying`; before a task that it has taken: `Busy`; `Offered`, and `Held` or `Paying` if the caller takes the task back | [`call`]: the same |
//! | subscribers of a refused thread, for which the last look of a worker has asked | ended worker | none: the slot is free | [`call`]: all debts to others are paid |
//! | the start hook | new worker | that of its first order, which may be a task; `Held` and `Paying` if its waiter takes that task back | no thread relies on it to look at the queue |
//! | the stop hook | ended worker | none: the slot is free | its last look is paid |
//! | a recorder of metrics | worker | `Busy` | as the task |
//! | `Waker::clone` of a poll, and the drop of the waker that it replaces | the polling thread | - | nothing is held |
//! | subscribers of a straggler | the thread in `shutdown` | - | nothing is held |
//!
//! Debug builds and models assert, wherever a panic of such code is caught, and where a waker is cloned or
//! taken back, that the thread holds no lock, and here that it holds no other worker's slot; and on a worker that it does not count as awake and owes
//! other threads nothing.

use crate::sync::panics::{contain, drop_contained};
use crate::sync::{abort_on_unwind, assert_holds_nothing, thread_local};
use crate::work::context::while_paying;
use crate::work::env::Env;
use crate::work::observe;
use crate::work::owed::{Calls, Kinds};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

/// The calls that a thread is about to make for a pool. The frame lies on the thread's stack, and is
/// linked to the frame around it.
struct Frame {
    pool: u64,
    calls: RefCell<Calls>,
    /// Set while a waker runs.
    wakes: Cell<bool>,
    outer: Option<NonNull<Frame>>,
}

thread_local! {
    /// The innermost frame of this thread.
    static INNERMOST: Cell<Option<NonNull<Frame>>> = const { Cell::new(None) };
}

impl Frame {
    /// Calls all wakers, unless this is called within a waker.
    fn wake_all(&self, env: &Env) {
        if self.wakes.replace(true) {
            return;
        }
        while !env.is_forked() {
            let waker = self.calls.borrow_mut().next_waker();
            let Some(waker) = waker else { break };
            while_paying(Kinds::WAKERS, || contain(|| waker.wake()));
        }
        self.wakes.set(false);
    }

    /// Drops one value; or tells subscribers of one refused thread if no value is left. Returns
    /// `false` if neither is left.
    fn step(&self, env: &Env) -> bool {
        let value = self.calls.borrow_mut().next_value();
        if value.is_some() {
            while_paying(Kinds::CAPTURES, || drop_contained(value));
            return true;
        }
        let refused = self.calls.borrow_mut().next_refused();
        let tell = |error| while_paying(Kinds::REFUSED, || observe::spawn_failed(env, error));
        refused.as_ref().map(tell).is_some()
    }
}

/// Calls `f` with this thread's frame for a pool, or `None` if it has none.
fn with_frame<R>(env: &Env, f: impl FnOnce(Option<&Frame>) -> R) -> R {
    // SAFETY: a frame is on the list only while `call`, further up this thread's stack, owns it.
    let next = |frame: Option<NonNull<Frame>>| frame.map(|frame| unsafe { frame.as_ref() });
    let mut frames = std::iter::successors(next(INNERMOST.with(Cell::get)), |f| next(f.outer));
    f(frames.find(|frame| frame.pool == env.id))
}

/// Returns `true` if this thread calls user code of this pool.
pub(crate) fn is_calling(env: &Env) -> bool {
    with_frame(env, |frame| frame.is_some())
}

/// Calls user code: first the wakers, then the rest, oldest first. If this thread already calls user code of
/// this pool, the outer call does it, as the module's doc says. In a child that this code has forked, calls
/// nothing more.
#[cold]
pub(crate) fn call(env: &Env, mut calls: Calls) {
    let is_nested = with_frame(env, |outer| {
        let Some(outer) = outer else { return false };
        outer.calls.borrow_mut().take_from(&mut calls);
        outer.wake_all(env);
        true
    });
    if is_nested {
        return;
    }
    let rest = in_frame(env, calls, |own| {
        own.wake_all(env);
        while !env.is_forked() && own.step(env) {}
    });
    debug_assert!(rest.is_empty(), "all was called");
}

/// Calls the wakers, on a worker. Returns the rest, with what has come up meanwhile.
#[cold]
pub(crate) fn wake(env: &Env, calls: Calls) -> Calls {
    in_frame(env, calls, |own| own.wake_all(env))
}

/// Calls `f` with a new frame of these calls. Returns those that are left.
fn in_frame(env: &Env, calls: Calls, f: impl FnOnce(&Frame)) -> Calls {
    assert_holds_nothing();
    let own = Frame {
        pool: env.id,
        calls: RefCell::new(calls),
        wakes: Cell::new(false),
        outer: INNERMOST.with(Cell::get),
    };
    INNERMOST.with(|it| it.set(Some(NonNull::from(&own))));
    // Panics of user code are contained, so nothing unwinds. So the frame is always taken off the
    // list before it is dropped.
    abort_on_unwind(|| f(&own));
    INNERMOST.with(|it| it.set(own.outer));
    if env.is_forked() {
        // The child must not drop anything that belongs to the parent's pool.
        std::mem::forget(own);
        return Calls::default();
    }
    own.calls.into_inner()
}
