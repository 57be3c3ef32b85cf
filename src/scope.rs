//! Scopes, whose tasks may borrow from the caller.
//!
//! They are sound for the same reasons as [`std::thread::scope`]. The types are invariant in both
//! lifetimes. The caller cannot choose the lifetime `'scope`. The call returns only after every
//! task has ended. User code cannot skip that wait, not even if the body panics.

use crate::core::submission::Submission;
use crate::engine::shared::Core;
use crate::engine::submit::erase::submit_with;
use crate::engine::submit::request::{SubmitOptions, SubmitterOptions};
use crate::error::Refused;
use crate::parts::deadline::Deadline;
use crate::parts::members::{Leaving, Owner, Pending};
use crate::sync::panics::{drop_contained, drop_payload, Payload};
use crate::sync::{abort_on_unwind, catch_unwind, lock, Arc, Mutex};
use crate::work::context::Ctx;
use crate::work::job::{End, HasEnded, Job, NeverRan, Release, TaskEnd};
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{resume_unwind, AssertUnwindSafe, RefUnwindSafe, UnwindSafe};

/// The part of a scope that its tasks refer to. It outlives them, because the call of the scope
/// returns only after all of them have ended.
#[derive(Debug)]
struct Inner {
    members: Owner,
    /// The payload of the first task that panicked.
    panic: Mutex<Option<Payload>>,
    /// `true` if the scope was opened on a worker of the pool. That worker waits for each task of
    /// the scope, even if another thread submits the task. A queued task might need that same
    /// worker, which would be a deadlock. So tasks of such a scope are never queued.
    on_worker: bool,
}

/// Submits tasks that may borrow. [`Pool::scope`](crate::Pool::scope) passes a `Scope` to its
/// closure.
///
/// Tasks may borrow what outlives the scope, but not what the closure itself owns:
///
/// ```
/// let pool = lazypool::Pool::new(2)?;
/// let outside = String::from("lives long enough");
/// pool.scope(|s| {
///     s.serve_or_run(|| println!("{outside}"));
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```compile_fail,E0373
/// let pool = lazypool::Pool::new(2)?;
/// pool.scope(|s| {
///     let inside = String::from("gone before the task ends");
///     s.serve_or_run(|| println!("{inside}"));
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A task may serve further tasks, which may borrow from outside the scope but not
/// from the task:
///
/// ```
/// let pool = lazypool::Pool::new(2)?;
/// let outside = 1;
/// pool.scope(|s| {
///     let first = || {
///         s.serve_or_run(|| println!("{outside}"));
///     };
///     s.serve_or_run(first);
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```compile_fail,E0373
/// let pool = lazypool::Pool::new(2)?;
/// pool.scope(|s| {
///     let first = || {
///         let local = 1;
///         s.serve_or_run(|| println!("{local}"));
///     };
///     s.serve_or_run(first);
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The scope cannot be kept after the call:
///
/// ```
/// let pool = lazypool::Pool::new(2)?;
/// let mut left = None;
/// pool.scope(|s| left = Some(s.serve(|| ()).is_ok()));
/// assert!(left.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```compile_fail,E0521
/// let pool = lazypool::Pool::new(2)?;
/// let mut left = None;
/// pool.scope(|s| left = Some(s));
/// assert!(left.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    core: Arc<Core>,
    inner: Inner,
    extras: SubmitterOptions,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

// No code sees the scope in a broken state after a panic, because panics of user code are caught
// before they reach the code of the scope.
impl UnwindSafe for Scope<'_, '_> {}
impl RefUnwindSafe for Scope<'_, '_> {}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

struct Scoped<F> {
    inner: *const Inner,
    /// The closure. It is not a plain `F`, because `Contents::run` takes this struct by value. With a plain
    /// `F`, the argument would promise that the closure's borrows stay valid until that function returns.
    /// But the borrowed data may be gone as soon as the task has left the scope, while the function is still
    /// returning.
    f: MaybeUninit<F>,
}

// SAFETY: a job must be `Send`, and what it borrows must live until it has run or been discarded.
// `F` is `Send`, and `inner` points to an `Inner`, which is `Sync`. `Scope::serve` adds the task to
// the scope, and `scope` returns only after every task of the scope has ended. A task ends after
// its closure has been consumed, so the closure's borrows and `inner` are valid until then.
unsafe impl<F: FnOnce() + Send> Job for Scoped<F> {
    const MUST_RUN: bool = true;

    unsafe fn take_pending(&self) -> Option<Pending> {
        // SAFETY: the scope lives until every task of it has left. The task is inside until this `Pending` is used up.
        // `serve` has another one, but uses it only if the pool refused the task. A refused task neither runs nor is discarded.
        Some(unsafe { Pending::of(&(*self.inner).members) })
    }

    fn run(self, ctx: &Ctx<'_>, end: End<'_>) -> HasEnded {
        let Self { inner, f } = self;
        // SAFETY: `inner` is part of the scope, which lives until every task of it has left. This task
        // leaves after this function, by its `pending`.
        let inner = unsafe { &*inner };
        // SAFETY: `serve` stored a closure in `f`. This call owns the task, so nothing else takes
        // the closure out.
        let result = ctx.call(unsafe { f.assume_init() });
        let panicked = result.is_err();
        if let Err(payload) = result {
            let mut first = lock(&inner.panic);
            if first.is_none() {
                *first = Some(payload);
            } else {
                drop(first);
                drop_payload(payload);
            }
        }
        end.end(TaskEnd::ran(panicked))
    }

    /// Drops the closure of a task whose deadline has passed. No shutdown discards a scope's task.
    fn discard(self, _: NeverRan) -> Release {
        // SAFETY: `serve` stored a closure in `f`. This call owns the task, so nothing else takes
        // the closure out.
        drop_contained(unsafe { self.f.assume_init() });
        Release::default()
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Submits a task as [`Pool::serve`](crate::Pool::serve) does; the task may borrow.
    ///
    /// `Ok` means that the task will run, even if the pool is shut down, unless the scope's
    /// [deadline](crate::Submitter::with_deadline) passes first. The scope
    /// [takes space from the closure](crate::docs::guarantees#closures-without-an-allocation).
    ///
    /// # Errors
    /// Returns the errors of [`Pool::serve`](crate::Pool::serve). If this is called on a worker of
    /// the same pool, or the scope was opened on one, the task is never queued. It is then refused
    /// as [`OnWorker`](crate::Refusal::OnWorker) if no worker is idle and none can be started.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// let mut n = 0;
    /// pool.scope(|s| s.serve(|| n += 1).or_else(lazypool::Refused::caller_runs).is_ok());
    /// assert_eq!(n, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("execute", "spawn", "submit", "spawn_blocking"))]
    pub fn serve<F>(&'scope self, closure: F) -> Result<(), Refused<F>>
    where
        F: FnOnce() + Send + 'scope,
    {
        let pending = self.inner.members.enter();
        let job = Scoped {
            inner: &self.inner,
            f: MaybeUninit::new(closure),
        };
        let options = SubmitOptions {
            submission: Submission {
                awaited: true,
                on_worker: self.inner.on_worker,
                ..Submission::PLAIN
            },
            ..self.extras.plain()
        };
        let served = submit_with(&self.core, (), job, options);
        served
            .map(|at| self.core.set_last_task(at))
            .map_err(|(job, why)| {
                pending.exit().into_iter().for_each(Leaving::finish_now);
                // SAFETY: `f` was made with a closure above, and `submit_with` returns a refused job
                // unchanged.
                Refused::new(unsafe { job.f.assume_init() }, why)
            })
    }

    /// Submits a task as [`serve`](Scope::serve) does. If the pool refuses the task, for any
    /// reason, runs the closure at once on the calling thread.
    ///
    /// A closure that runs here is not a task of the pool: see
    /// [`Refused::run_anyway`](crate::Refused::run_anyway). If it serves further tasks in the same
    /// way, these may run inside it, so a long chain of such tasks [overflows the
    /// stack](crate::docs::recipes#tasks-that-submit-tasks). A task that was accepted, but that no
    /// worker has started by the scope's [deadline](crate::Submitter::with_deadline), is dropped
    /// and does not run.
    ///
    /// # Panics
    /// Panics if the closure runs on the calling thread and panics.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(2)?;
    /// let mut squares = [0; 10];
    /// pool.scope(|s| {
    ///     for (n, square) in squares.iter_mut().enumerate() {
    ///         s.serve_or_run(move || *square = n * n);
    ///     }
    /// });
    /// assert_eq!(squares[9], 81);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn serve_or_run<F>(&'scope self, closure: F)
    where
        F: FnOnce() + Send + 'scope,
    {
        self.serve(closure).unwrap_or_else(Refused::run_anyway);
    }
}

pub(crate) fn scope<'env, F, T>(core: &Arc<Core>, extras: SubmitterOptions, f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope {
        core: Arc::clone(core),
        inner: Inner {
            members: Owner::new(None, 0),
            panic: Mutex::new(None),
            on_worker: core.env.is_own_worker(),
        },
        extras,
        scope: PhantomData,
        env: PhantomData,
    };
    let result = abort_on_unwind(|| {
        let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
        scope.inner.members.wait(&Deadline::never(), core.parallel);
        result
    });
    let panic = lock(&scope.inner.panic).take();
    match (result, panic) {
        (Ok(value), None) => value,
        (Ok(value), Some(payload)) => {
            drop_contained(value);
            resume_unwind(payload)
        }
        (Err(payload), panic) => {
            if let Some(panic) = panic {
                drop_payload(panic);
            }
            resume_unwind(payload)
        }
    }
}
