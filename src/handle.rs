//! Tasks whose value is awaited, or fetched later.

use crate::engine::awaited::{self, Ticket};
use crate::engine::core::Core;
use crate::engine::request::Extras;
use crate::engine::serving::Serving;
use crate::error::{Refused, TaskError};
use crate::parts::deadline::Deadline;
use crate::parts::members::Members;
use crate::sync::Arc;
use std::fmt;
use std::future::Future;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Submits tasks whose value somebody wants: its [`serve`](Awaitable::serve) returns a [`Handle`].
///
/// [`Pool::awaitable`](crate::Pool::awaitable), [`Submitter::awaitable`](crate::Submitter::awaitable) and
/// [`Group::awaitable`](crate::Group::awaitable) return one. It borrows the pool, submitter or group, and
/// is cheap to copy. Its tasks have the options of that submitter or group.
///
/// ```
/// use lazypool::Pool;
/// use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::new(2)?;
/// let queries = pool.labeled("query").with_deadline(Duration::from_secs(1));
/// let handle = queries.awaitable().serve(|| 6 * 7)?;
/// assert_eq!(handle.join()?, 42);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy)]
pub struct Awaitable<'a> {
    core: &'a Arc<Core>,
    members: Option<&'a Arc<Members>>,
    extras: Extras,
}

// As for the pool that it borrows.
impl UnwindSafe for Awaitable<'_> {}
impl RefUnwindSafe for Awaitable<'_> {}

impl fmt::Debug for Awaitable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Awaitable")
            .field("options", &self.extras)
            .field("in_group", &self.members.is_some())
            .finish_non_exhaustive()
    }
}

impl<'a> Awaitable<'a> {
    pub(crate) fn new(
        core: &'a Arc<Core>,
        members: Option<&'a Arc<Members>>,
        extras: Extras,
    ) -> Self {
        Self {
            core,
            members,
            extras,
        }
    }

    /// Submits a task as [`Pool::serve`](crate::Pool::serve) does, and returns a [`Handle`] to its value.
    ///
    /// The task costs one allocation, whatever the size of the closure; waiting for it costs none.
    ///
    /// # Errors
    /// Those of [`Pool::serve`](crate::Pool::serve), and in a group those of
    /// [`Group::serve`](crate::Group::serve).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = lazypool::Pool::new(1)?;
    /// let handle = pool.awaitable().serve(|| 6 * 7)?;
    /// assert_eq!(handle.join()?, 42);
    /// # Ok(()) }
    /// ```
    #[doc(alias("execute", "spawn", "submit", "spawn_blocking"))]
    pub fn serve<F, R>(&self, closure: F) -> Result<Handle<R>, Refused<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let ticket = awaited::submit(self.core, self.members, &self.extras, closure)?;
        Ok(Handle { ticket })
    }

    /// The same as a future, which waits for space, without a thread, whatever the policy says. Its turn
    /// comes whether it is polled or not; dropped before, it leaves.
    pub fn serve_async<F, R>(&self, closure: F) -> ServeAsync<F, R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        ServeAsync(Serving::new(self.core, self.members, self.extras, closure))
    }
}

/// A submission that waits for space: a future of a [`Handle`].
#[must_use = "it submits nothing unless it is awaited"]
pub struct ServeAsync<F: FnOnce() -> R + Send + 'static, R: Send + 'static>(Serving<F, R>);

impl<F: FnOnce() -> R + Send + 'static, R: Send + 'static> Unpin for ServeAsync<F, R> {}

impl<F: FnOnce() -> R + Send + 'static, R: Send + 'static> fmt::Debug for ServeAsync<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeAsync").finish_non_exhaustive()
    }
}

impl<F: FnOnce() -> R + Send + 'static, R: Send + 'static> Future for ServeAsync<F, R> {
    type Output = Result<Handle<R>, Refused<F>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx.waker()).map_ok(|ticket| Handle { ticket })
    }
}

/// The value of a task, once there is one: a future for any runtime, which a thread can also
/// [`join`](Handle::join). [`Awaitable::serve`] returns it.
///
/// The value is there as soon as the task has ended and been counted. If the task panicked, or never ran,
/// there is a [`TaskError`] instead. It does not borrow the pool, and may outlive it.
///
/// **Dropping a handle cancels its task**, as [`cancel`](Handle::cancel) does; so a future that is dropped
/// at a timeout leaves no task behind that would still start. To let the task run on, use
/// [`detach`](Handle::detach).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// async fn sum(pool: &lazypool::Pool) -> Result<u64, Box<dyn std::error::Error>> {
///     let handle = pool.awaitable().serve(|| (1..=1_000_u64).sum())?;
///     Ok(handle.await?)
/// }
/// # Ok(()) }
/// ```
///
/// # As a future
///
/// Only the waker of the most recent poll is woken. Dropping the handle drops the waker. The worker calls the
/// waker once it is idle; if a task is queued, at the start of that task, before its closure. If the task is
/// cancelled or discarded, the thread that does so calls the waker. A panic in the waker is caught.
///
/// A waker must not block. One that does blocks the thread that calls it. If that is a worker, its next task
/// waits, too, even if another worker is idle, while the deadline of that task comes nearer; and a submission
/// to a full pool may wait for that worker. So take no lock in a waker that another thread may hold while it
/// submits.
///
/// A waker may submit tasks to the same pool. If a worker runs it,
/// [`do_with_deadline`](crate::Pool::do_with_deadline) and [`Scope::serve`](crate::Scope::serve) may refuse
/// them as [`OnWorker`](crate::Refusal::OnWorker) even if a worker is idle: it may be the one that runs the
/// waker. A waker's submission is also refused if it would have to wait for another thread's unfinished
/// internal step, which may be a step of that worker.
///
/// A handle that was ready must not be polled or joined again: that panics, as for most futures. In a
/// [forked](crate::Refusal::Forked) child a handle whose task has not ended is ready at once, with
/// [`TaskError::Discarded`]: the task does not run there.
#[must_use = "dropping a handle cancels its task; `detach` lets it run on"]
pub struct Handle<R> {
    ticket: Ticket<R>,
}

// As for the pool. The value is returned whole or not at all.
impl<R> UnwindSafe for Handle<R> {}
impl<R> RefUnwindSafe for Handle<R> {}

// Nothing in a handle is pinned: the value is on the heap, and is moved out.
impl<R> Unpin for Handle<R> {}

impl<R> fmt::Debug for Handle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}

impl<R> Handle<R> {
    /// Blocks the calling thread until the task has ended, and returns its value.
    ///
    /// **Do not call this on a worker of the same pool: it can deadlock.** The task may need the worker
    /// that waits for it.
    ///
    /// # Errors
    /// [`TaskError`], if the task panicked or never ran.
    ///
    /// # Panics
    /// If the handle was ready before, as a future.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = lazypool::Pool::new(2)?;
    /// let halves = [1..=50, 51..=100].map(|half| pool.awaitable().serve(move || half.sum::<u32>()));
    /// let mut sum = 0;
    /// for half in halves {
    ///     sum += half.map_err(lazypool::Refused::without_closure)?.join()?;
    /// }
    /// assert_eq!(sum, 5050);
    /// # Ok(()) }
    /// ```
    pub fn join(mut self) -> Result<R, TaskError> {
        self.ticket.wait(&Deadline::never());
        self.ticket.take()
    }

    /// Does what [`join`](Handle::join) does, at most for `d`; then it gives the handle back, and the
    /// task goes on.
    ///
    /// [`Duration::ZERO`] does not wait, [`Duration::MAX`] waits as long as it takes.
    ///
    /// # Errors
    /// The handle, if the task has not ended; the inner error is that of `join`.
    ///
    /// # Panics
    /// As `join` does.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = lazypool::Pool::new(1)?;
    /// let (open, gate) = channel();
    /// let handle = pool.awaitable().serve(move || gate.recv()).map_err(|refused| refused.without_closure())?;
    /// let handle = handle.join_timeout(Duration::from_millis(1)).unwrap_err();
    /// open.send("open")?;
    /// assert_eq!(handle.join()??, "open");
    /// # Ok(()) }
    /// ```
    pub fn join_timeout(self, d: Duration) -> Result<Result<R, TaskError>, Self> {
        self.join_until(&Deadline::from_now(d))
    }

    pub(crate) fn join_until(mut self, deadline: &Deadline) -> Result<Result<R, TaskError>, Self> {
        if self.ticket.wait(deadline) {
            Ok(self.ticket.take())
        } else {
            Err(self)
        }
    }

    /// Returns whether [`join`](Handle::join) would return at once.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = lazypool::Pool::new(1)?;
    /// let handle = pool.awaitable().serve(|| 6 * 7)?;
    /// while !handle.is_finished() {
    ///     std::thread::yield_now();
    /// }
    /// assert_eq!(handle.join()?, 42);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.ticket.is_finished()
    }

    /// Cancels the task, and does not wait.
    ///
    /// * A task that no worker has taken never runs: its closure is dropped by this call, and it counts as
    ///   [`discarded`](crate::Stats::discarded). The handle has [`TaskError::Cancelled`].
    /// * In a running task [`task::is_cancelled`](crate::task::is_cancelled) turns true, and its worker
    ///   counts as [`abandoned`](crate::Stats::abandoned) until it ends. The handle still returns the
    ///   task's value or `Panicked`. If the handle is dropped before, the value is dropped on the worker.
    ///
    /// A task that has ended is not affected.
    ///
    /// ```
    /// use lazypool::task;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = lazypool::Pool::new(1)?;
    /// let handle = pool.awaitable().serve(|| (0_u64..).find(|_| task::is_cancelled()))?;
    /// handle.cancel();
    /// match handle.join() {
    ///     Ok(steps) => println!("it ran for {steps:?} steps"),
    ///     Err(error) => println!("{error}"), // before it started
    /// }
    /// # Ok(()) }
    /// ```
    pub fn cancel(&self) {
        self.ticket.cancel();
    }

    /// Drops the handle, and lets the task run. Its value is dropped on the worker; if the task has ended
    /// already, by this call.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = lazypool::Pool::new(1)?;
    /// pool.awaitable().serve(|| println!("runs"))?.detach();
    /// # drop(pool);
    /// # Ok(()) }
    /// ```
    pub fn detach(mut self) {
        self.ticket.detach();
    }
}

impl<R> Future for Handle<R> {
    type Output = Result<R, TaskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.ticket.poll(cx.waker()) {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }
}
