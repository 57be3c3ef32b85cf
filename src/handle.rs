//! Tasks whose value is awaited, or fetched later.

use crate::engine::handle::{self, Ticket};
use crate::engine::shared::Core;
use crate::engine::submit::request::SubmitterOptions;
use crate::engine::wait::serving::Serving;
use crate::error::{Refused, TaskError};
use crate::parts::deadline::Deadline;
use crate::parts::members::Owner;
use crate::sync::Arc;
use std::fmt;
use std::future::Future;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Submits tasks whose value is awaited or joined later. [`serve`](Awaitable::serve) returns a
/// [`Handle`]. [`serve_async`](Awaitable::serve_async) returns a future that waits for space and
/// then yields a [`Handle`].
///
/// [`Pool::awaitable`](crate::Pool::awaitable),
/// [`Submitter::awaitable`](crate::Submitter::awaitable) and
/// [`Group::awaitable`](crate::Group::awaitable) return an `Awaitable`. It borrows the pool or the
/// group, and is cheap to copy. Its tasks have the options of that submitter or group.
///
/// ```
/// use lazypool::Pool;
/// use std::time::Duration;
/// let pool = Pool::new(2)?;
/// let queries = pool.labeled("query").with_deadline(Duration::from_secs(1));
/// let handle = queries.awaitable().serve(|| 6 * 7)?;
/// assert_eq!(handle.join()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Awaitable<'a> {
    core: &'a Arc<Core>,
    members: Option<&'a Owner>,
    extras: SubmitterOptions,
}

// An `Awaitable` only borrows the pool, which is unwind safe.
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
        members: Option<&'a Owner>,
        extras: SubmitterOptions,
    ) -> Self {
        Self {
            core,
            members,
            extras,
        }
    }

    /// Submits a task as [`Pool::serve`](crate::Pool::serve) does, and returns a [`Handle`] to its
    /// value.
    ///
    /// The task costs one allocation, for a closure of any size. Waiting for it costs none.
    ///
    /// # Errors
    /// Returns the errors of [`Pool::serve`](crate::Pool::serve), and in a group those of
    /// [`Group::serve`](crate::Group::serve).
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// let handle = pool.awaitable().serve(|| 6 * 7)?;
    /// assert_eq!(handle.join()?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("execute", "spawn", "submit", "spawn_blocking"))]
    pub fn serve<F, R>(&self, closure: F) -> Result<Handle<R>, Refused<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let ticket = handle::submit(self.core, self.members, &self.extras, closure)?;
        Ok(Handle { ticket })
    }

    /// Returns a future that waits for space, submits a task as [`serve`](Awaitable::serve) does,
    /// and yields the [`Handle`]. The future waits without blocking a thread, whatever
    /// [`WhenFull`](crate::WhenFull) says.
    ///
    /// The first poll of the future submits the task. If the pool has no space, the task joins the
    /// pool's line, in which blocked threads wait, too. All of them get space in the order in which
    /// they came. **The task's turn comes whether the future is polled or not**: a future that is
    /// not polled holds up no other submission, and its task may run before the future is polled
    /// again.
    ///
    /// * **If the future is dropped before the task's turn**, the task leaves the line. Its closure
    ///   is dropped and never runs. If the future is dropped later, the task is cancelled, as if
    ///   its [`Handle`] had been dropped.
    /// * **A deadline** ([`with_deadline`](crate::Pool::with_deadline)) counts from the first poll.
    ///   There is no timer: a task that is past its deadline leaves the line when its turn comes,
    ///   and its handle then returns [`TaskError::Expired`]. To limit the wait, use the runtime's
    ///   timeout, which drops the future.
    /// * **A shutdown**, or the cancellation of the task's group, ends the wait at once. The future
    ///   then yields a [`Refused`], which holds the closure.
    /// * **In a group**, a task that waits is [pending](crate::Group::pending). If a [limited
    ///   group](crate::Pool::limited_group) is full, the task waits in the group's own line first.
    ///
    /// If you await the space and then the value of each task before you submit the next one, no
    /// task is refused, even on a pool with one worker. As with [`serve`](Awaitable::serve), a task
    /// costs one allocation.
    ///
    /// # Errors
    /// [`Refused`] holds the closure, which did not run. The reason is one of these, and never
    /// [`Saturated`](crate::Refusal::Saturated):
    ///
    /// * [`Closed`](crate::Refusal::Closed): the pool has been shut down, before or while the task
    ///   waited.
    /// * [`Cancelled`](crate::Refusal::Cancelled): the task's group has been cancelled, before or
    ///   while the task waited.
    /// * [`GroupFull`](crate::Refusal::GroupFull): the task's [limited
    ///   group](crate::Pool::limited_group) has a limit of zero. For a place of any other full group
    ///   the future waits.
    /// * [`SpawnFailed`](crate::Refusal::SpawnFailed): the task's turn came, the task needed a new
    ///   thread, and the OS could not create one.
    /// * [`OnWorker`](crate::Refusal::OnWorker): the first poll was on a worker of the same pool, and
    ///   the task would have had to wait.
    /// * [`Forked`](crate::Refusal::Forked): this process is a forked child of the process that
    ///   built the pool.
    ///
    /// # Panics
    /// The future panics if it is polled again after it was ready.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::error::Error;
    /// use std::future::Future;
    /// use std::pin::pin;
    /// use std::sync::Arc;
    /// use std::task::{Context, Poll, Wake};
    /// use std::thread::{self, Thread};
    ///
    /// struct Unpark(Thread);
    ///
    /// impl Wake for Unpark {
    ///     fn wake(self: Arc<Self>) {
    ///         self.0.unpark();
    ///     }
    /// }
    ///
    /// /// Awaits a future on this thread; each runtime has such a function.
    /// fn block_on<T>(future: impl Future<Output = T>) -> T {
    ///     let waker = Arc::new(Unpark(thread::current())).into();
    ///     let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    ///     loop {
    ///         match future.as_mut().poll(&mut context) {
    ///             Poll::Ready(value) => return value,
    ///             Poll::Pending => thread::park(),
    ///         }
    ///     }
    /// }
    ///
    /// let pool = lazypool::Pool::builder().max_workers(2).queue_capacity(2).build()?;
    /// let squares = async {
    ///     let mut tasks = Vec::new();
    ///     for n in 1..=100_u32 {
    ///         // Waits until the pool has space for one more task.
    ///         tasks.push(pool.awaitable().serve_async(move || n * n).await?);
    ///     }
    ///     let mut sum = 0;
    ///     for task in tasks {
    ///         sum += task.await?;
    ///     }
    ///     Ok::<_, Box<dyn Error + Send + Sync>>(sum)
    /// };
    /// assert_eq!(block_on(squares)?, 338_350);
    /// assert_eq!(pool.stats().refused, 0);
    /// # Ok::<(), Box<dyn Error + Send + Sync>>(())
    /// ```
    pub fn serve_async<F, R>(&self, closure: F) -> ServeAsync<F, R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let (core, members) = (Arc::clone(self.core), self.members.cloned());
        ServeAsync(Serving::new(core, members, self.extras, closure))
    }
}

/// A submission that waits for space: a future that yields a [`Handle`], or a [`Refused`].
/// [`Awaitable::serve_async`] returns this future, and its documentation says when the future is
/// ready and which errors it yields. Do not poll the future after it was ready.
///
/// The future does not borrow the pool, and may outlive it. The submission is then refused as
/// [`Closed`](crate::Refusal::Closed). Only the waker of the most recent poll is woken. The thread
/// that makes the space, such as a worker, calls this waker. Like the [waker of a
/// handle](Handle#as-a-future), this waker must not block, nor wait for the pool.
///
/// **Dropping the future** takes the task back. A task that still waits for space leaves the line
/// and never runs. A task that already has space is cancelled, as if its handle had been dropped.
///
/// ```
/// use std::future::Future;
/// use std::pin::pin;
/// use std::sync::mpsc::channel;
/// use std::task::{Context, Waker};
///
/// let pool = lazypool::Pool::new(1)?;
/// let (open, gate) = channel();
/// pool.serve(move || gate.recv().unwrap_or_default())?; // holds the only worker
///
/// let mut context = Context::from_waker(Waker::noop());
/// {
///     let mut task = pin!(pool.awaitable().serve_async(|| unreachable!("it never runs")));
///     assert_eq!(pool.stats().waiting, 0); // not polled yet
///     assert!(task.as_mut().poll(&mut context).is_pending());
///     assert_eq!(pool.stats().waiting, 1);
/// } // the drop takes the task out of the line
/// assert_eq!(pool.stats().waiting, 0);
/// open.send(())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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

/// A handle to the value of a task. It is a future for any runtime, and a thread can
/// [`join`](Handle::join) it, too. [`Awaitable::serve`] returns it.
///
/// The handle has the value as soon as the task has ended and been counted. If the task panicked or
/// never ran, the handle has a [`TaskError`] in place of the value:
///
/// * `Panicked`, once [`on_panic`](crate::Builder::on_panic) has run.
/// * `Expired`, once the closure has been dropped.
/// * `Cancelled` or `Discarded`, as soon as the task is out of the pool. The thread that took it
///   out may still be dropping the closure then.
///
/// A handle does not borrow the pool, and may outlive it.
///
/// **Dropping a handle cancels its task**, as [`cancel`](Handle::cancel) does. So a future that is
/// dropped at a timeout leaves behind no task that could still start. To let the task run on, use
/// [`detach`](Handle::detach).
///
/// ```
/// async fn sum(pool: &lazypool::Pool) -> Result<u64, Box<dyn std::error::Error>> {
///     let handle = pool.awaitable().serve(|| (1..=1_000_u64).sum())?;
///     Ok(handle.await?)
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # As a future
///
/// Only the waker of the most recent poll is woken. Dropping the handle drops the waker (within the drop of
/// another waker, or of what a discarded task captured: after that one). The worker
/// calls the waker right after the task has ended, before it looks for its next task. If the task is
/// cancelled or discarded, the thread that cancels or discards the task calls the waker. A panic in
/// the waker is caught.
///
/// **A waker must not block, nor wait for the pool**: while the waker runs, a worker, or the thread
/// that discards, cannot go on. So the waker must not wait for a task or for
/// space. It also must not take a lock that another thread holds while that thread waits for the
/// pool. The wakers of async runtimes do none of this. A waker may [`serve`](crate::Pool::serve) to
/// the pool with [`WhenFull::Refuse`](crate::WhenFull::Refuse). Such a submission is also refused
/// if it would have to wait for an unfinished step of a thread, because that thread may be the
/// worker that runs the waker.
///
/// Do not poll or join a handle again after a poll has returned the outcome: the call would panic,
/// as for most futures.
#[must_use = "dropping a handle cancels its task; `detach` lets it run on"]
pub struct Handle<R> {
    ticket: Ticket<R>,
}

// No code sees the handle in a broken state after a panic, because the handle returns the whole
// value or nothing.
impl<R> UnwindSafe for Handle<R> {}
impl<R> RefUnwindSafe for Handle<R> {}

// No field of a handle is pinned, because the value is on the heap and is moved out of there.
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
    /// **Do not call this on a worker of the same pool: it can deadlock.** The task may need the
    /// worker that waits for it.
    ///
    /// # Errors
    /// Returns a [`TaskError`] if the task panicked or never ran.
    ///
    /// # Panics
    /// Panics if an earlier poll of the handle has returned the outcome.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(2)?;
    /// let halves = [1..=50, 51..=100].map(|half| pool.awaitable().serve(move || half.sum::<u32>()));
    /// let mut sum = 0;
    /// for half in halves {
    ///     sum += half.map_err(lazypool::Refused::without_closure)?.join()?;
    /// }
    /// assert_eq!(sum, 5050);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn join(mut self) -> Result<R, TaskError> {
        self.ticket.wait(&Deadline::never());
        self.ticket.take()
    }

    /// Blocks the calling thread for at most `d` until the task has ended, and returns its value as
    /// [`join`](Handle::join) does. If the task has not ended by then, returns the handle, and the
    /// task is not affected.
    ///
    /// With [`Duration::ZERO`] the call does not wait. With [`Duration::MAX`] it has no time limit.
    ///
    /// A handle that comes back has no waker any more: this call has dropped that of an earlier poll. Poll the
    /// handle again to be woken.
    ///
    /// # Errors
    /// Returns the handle if the task has not ended. The inner result has the errors of `join`.
    ///
    /// # Panics
    /// Panics if an earlier poll of the handle has returned the outcome.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use std::time::Duration;
    /// let pool = lazypool::Pool::new(1)?;
    /// let (open, gate) = channel();
    /// let handle = pool.awaitable().serve(move || gate.recv()).map_err(|refused| refused.without_closure())?;
    /// let handle = handle.join_timeout(Duration::from_millis(1)).unwrap_err();
    /// open.send("open")?;
    /// assert_eq!(handle.join()??, "open");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
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

    /// Returns `true` if [`join`](Handle::join) would return at once.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// let handle = pool.awaitable().serve(|| 6 * 7)?;
    /// while !handle.is_finished() {
    ///     std::thread::yield_now();
    /// }
    /// assert_eq!(handle.join()?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.ticket.is_finished()
    }

    /// Cancels the task, and does not wait.
    ///
    /// * A task that no worker has taken never runs. It counts as
    ///   [`discarded`](crate::Stats::discarded), or as [`expired`](crate::Stats::expired) if its
    ///   deadline has passed. The handle has [`TaskError::Cancelled`] at once. Then this call drops
    ///   the closure (see [discarded tasks](crate::Pool#discarded-tasks)).
    /// * In a running task [`task::is_cancelled`](crate::task::is_cancelled) turns true, and its
    ///   worker counts as [`abandoned`](crate::Stats::abandoned) until the task ends. The handle
    ///   still returns the task's value or `Panicked`. If the handle is dropped before the task
    ///   ends, the value is dropped on the worker.
    ///
    /// A task that has ended is not affected.
    ///
    /// ```
    /// use lazypool::task;
    /// let pool = lazypool::Pool::new(1)?;
    /// let handle = pool.awaitable().serve(|| (0_u64..).find(|_| task::is_cancelled()))?;
    /// handle.cancel();
    /// match handle.join() {
    ///     Ok(steps) => println!("it ran for {steps:?} steps"),
    ///     Err(error) => println!("{error}"), // before it started
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self) {
        self.ticket.cancel();
    }

    /// Drops the handle, and lets the task run. The worker drops the task's value. If the task has
    /// already ended, this call drops the value.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// pool.awaitable().serve(|| println!("runs"))?.detach();
    /// # drop(pool);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
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
