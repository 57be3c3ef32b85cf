//! Sets of tasks that can be waited for, or cancelled, together.

use crate::engine::group::submit_member;
use crate::engine::shared::Core;
use crate::engine::submit::call;
use crate::engine::submit::request::SubmitterOptions;
use crate::error::{DeadlineError, Refused, Unfinished};
use crate::handle::Awaitable;
use crate::parts::deadline::Deadline;
use crate::parts::members::{Ended, Owner};
use crate::submitter::{options, Submitter};
use crate::sync::Arc;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

/// A set of tasks that can be waited for, or cancelled, together.
///
/// [`Pool::group`](crate::Pool::group) returns a new one. A clone is a handle to the same group.
/// Dropping the last handle neither waits for the tasks nor cancels them; they run. To cancel them
/// when their owner is dropped, keep a [`drop_guard`](Group::drop_guard) in the owner. A group may
/// outlive its pool; its submissions are then refused as [`Closed`](crate::Refusal::Closed).
///
/// [`Pool::limited_group`](crate::Pool::limited_group) returns a group with a limit on its accepted
/// and unended tasks, such as a tenant's share of the pool. Beyond the limit, a submission is refused
/// as [`GroupFull`](crate::Refusal::GroupFull), or waits for a place of the group if its policy is to
/// wait.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::sync::Arc;
/// let pool = lazypool::Pool::builder().max_workers(2).queue_capacity(100).build()?;
/// let sum = Arc::new(AtomicU32::new(0));
/// let group = pool.group();
/// for n in 1..=100 {
///     let sum = Arc::clone(&sum);
///     group.serve(move || {
///         sum.fetch_add(n, Ordering::Relaxed);
///     })?;
/// }
/// group.wait();
/// assert_eq!(sum.load(Ordering::Relaxed), 5050);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Options
///
/// A group has the options and the verbs of a [`Submitter`]. So one group can include calls of
/// several kinds, each with its own label and deadline. Options add to those of the submitter that
/// made the group.
///
/// ```
/// use std::time::Duration;
/// let pool = lazypool::Pool::builder().max_workers(4).queue_capacity(64).build()?;
/// let tenant = pool.limited_group(8); // one share for all that the tenant asks for
/// let read = tenant.labeled("read");
/// let text = read.do_with_deadline(|| "text", Duration::from_millis(500))?;
/// let write = tenant.labeled("write").with_deadline(Duration::from_secs(5));
/// write.serve(move || println!("writing {text}"))?;
/// tenant.wait(); // for both kinds
/// assert_eq!(tenant.completed(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Results
///
/// If the tasks send their results through a channel, the results arrive in the order in which the
/// tasks end. To put them in the order of the submissions, send a number with each result:
///
/// ```
/// use std::sync::mpsc;
/// let pool = lazypool::Pool::builder().max_workers(2).queue_capacity(100).build()?;
/// let group = pool.group();
/// let (send, results) = mpsc::channel();
/// for n in 0..100_usize {
///     let send = send.clone();
///     group.serve(move || send.send((n, n * n)).unwrap_or_default())?;
/// }
/// drop(send); // the channel ends with the last task, even if one panics or is discarded
/// let mut squares = vec![None; 100];
/// for (n, square) in results {
///     squares[n] = Some(square); // `None` stays where a task has no result
/// }
/// assert!(squares.iter().enumerate().all(|(n, s)| *s == Some(n * n)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// In a [scope](crate::Pool::scope) each task can write to its own place:
///
/// ```
/// let pool = lazypool::Pool::new(2)?;
/// let words = ["one", "two", "three"];
/// let mut lengths = [0; 3];
/// pool.scope(|s| {
///     for (word, length) in words.iter().zip(&mut lengths) {
///         s.serve_or_run(|| *length = word.len());
///     }
/// });
/// assert_eq!(lengths, [3, 3, 5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Group {
    core: Arc<Core>,
    members: Owner,
    extras: SubmitterOptions,
}

// No code sees the group in a broken state after a panic, because panics of user code are caught
// before they reach the code of the group.
impl UnwindSafe for Group {}
impl RefUnwindSafe for Group {}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("pending", &self.pending())
            .field("completed", &self.completed())
            .field("panicked", &self.panicked())
            .field("discarded", &self.discarded())
            .field("inside", &self.members.inside())
            .field("permits", &self.members.permits())
            .finish()
    }
}

options!(
    Group,
    "group",
    "tenant",
    "let tenant = pool.limited_group(8);"
);

#[cfg(any(test, lazypool_shuttle))]
impl Group {
    pub(crate) fn members(&self) -> &Owner {
        &self.members
    }
}

impl Group {
    fn submitter(&self) -> Submitter<'_> {
        Submitter::new(&self.core, Some(&self.members), self.extras)
    }

    /// Creates a group that allows at most `limit` pending tasks; `None` means any number.
    pub(crate) fn new(core: Arc<Core>, extras: SubmitterOptions, limit: Option<usize>) -> Self {
        // The initial capacity of the list in which the group keeps the queue positions of its tasks. A
        // submission usually allocates nothing for it (law 12).
        let queued = 8;
        Self {
            core,
            members: Owner::new(limit, queued),
            extras,
        }
    }

    /// Submits a task as [`Pool::serve`](crate::Pool::serve) does, as a member of this group.
    ///
    /// The group
    /// [takes space from the closure](crate::docs::guarantees#closures-without-an-allocation).
    ///
    /// # Errors
    /// Returns the errors of [`Pool::serve`](crate::Pool::serve). Also returns
    /// [`Cancelled`](crate::Refusal::Cancelled) once the group has been [cancelled](Group::cancel),
    /// and [`GroupFull`](crate::Refusal::GroupFull) if its tasks have reached its
    /// [limit](crate::Pool::limited_group). If the [policy](crate::WhenFull) is to wait, the
    /// submission waits for a place of the group first, and then for space in the pool. If its time
    /// ends before it has the place, the reason is `GroupFull`, too. On a worker of the pool it does
    /// not wait: the reason is [`OnWorker`](crate::Refusal::OnWorker).
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// let group = pool.group();
    /// group.serve(|| println!("hello"))?;
    /// group.wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("execute", "spawn", "submit", "spawn_blocking"))]
    pub fn serve<F>(&self, closure: F) -> Result<(), Refused<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        submit_member(&self.core, Some(&self.members), closure, &self.extras)
            .map(drop)
            .map_err(|(closure, why)| Refused::new(closure, why))
    }

    /// Runs a task as [`Pool::do_with_deadline`](crate::Pool::do_with_deadline) does, as a member of
    /// this group.
    ///
    /// The task is [pending](Group::pending) until it has ended, even if this call has returned
    /// before that, at its deadline. A closure that this call gives back because a worker did not
    /// start it in time counts as [`discarded`](Group::discarded). The group takes no space from
    /// the closure.
    ///
    /// If the group is [cancelled](Group::cancel) before a worker has started the closure, this
    /// call returns at once and gives the closure back as
    /// [`Cancelled`](crate::Refusal::Cancelled); if the task was handed to a worker that is in its start
    /// hook or in a waker, once that worker comes to it. If the closure is running,
    /// [`task::is_cancelled`](crate::task::is_cancelled) turns true in it. This call then waits on.
    ///
    /// # Errors
    /// Returns the errors of [`Pool::do_with_deadline`](crate::Pool::do_with_deadline), and as
    /// [`DeadlineError::Refused`] those of [`Group::serve`]. A call that waits for a place of a
    /// full group until its deadline returns [`DeadlineError::Expired`]. It is refused as
    /// [`GroupFull`](crate::Refusal::GroupFull) if its [policy](crate::WhenFull) does not wait, or
    /// not as long.
    ///
    /// ```
    /// use std::time::Duration;
    /// let pool = lazypool::Pool::new(1)?;
    /// let group = pool.group();
    /// assert_eq!(group.do_with_deadline(|| 6 * 7, Duration::from_secs(5))?, 42);
    /// assert_eq!(group.completed(), 1);
    ///
    /// group.cancel();
    /// assert!(group.do_with_deadline(|| 6 * 7, Duration::from_secs(5)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("timeout", "install", "join_timeout"))]
    pub fn do_with_deadline<F, R>(
        &self,
        closure: F,
        timeout: Duration,
    ) -> Result<R, DeadlineError<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        call::do_with(
            &self.core,
            Some(&self.members),
            &self.extras,
            closure,
            timeout,
        )
    }

    /// Returns an [`Awaitable`], which submits tasks as members of this group. Its `serve` returns
    /// a handle to the value of a task, and its `serve_async` a future of such a handle.
    /// [`Group::cancel`] also cancels these tasks.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// let group = pool.group();
    /// let handle = group.awaitable().serve(|| 6 * 7)?;
    /// group.wait();
    /// assert_eq!(handle.join()?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn awaitable(&self) -> Awaitable<'_> {
        Awaitable::new(&self.core, Some(&self.members), self.extras)
    }

    /// Blocks until no task of the group is pending. If no task was pending at one moment of the
    /// call, the call returns, even if other threads submit tasks after that moment. (For this
    /// call, a task with a handle is pending until the handle is ready.)
    ///
    /// When the call returns, each task that was submitted before the call has ended and is
    /// counted, the task's worker is free, and its [`Handle`](crate::Handle), if it has one, is
    /// ready. If a task was discarded, the thread that discarded it may still be dropping the
    /// values that the task captured. The calling thread spins for some microseconds at first, then
    /// sleeps.
    ///
    /// A task that **panicked** has ended like any other: `wait` returns and does not panic.
    /// [`Group::panicked`] counts it, and [`Builder::on_panic`](crate::Builder::on_panic) gets its
    /// payload. (A [scope](crate::Pool::scope) raises the panics of its tasks again.)
    ///
    /// There is no call that waits until a whole **pool is idle**, because other threads may submit
    /// tasks meanwhile. Put the tasks that you wait for into a group. To end a pool, use
    /// [`Pool::shutdown`](crate::Pool::shutdown).
    ///
    /// **Do not call this on a worker of the same pool: it can deadlock.** The group's tasks may
    /// need the worker that waits for them. Then this call never returns.
    ///
    /// ```
    /// let pool = lazypool::Pool::builder().max_workers(1).queue_capacity(1).build()?;
    /// let group = pool.group();
    /// group.wait(); // nothing to wait for
    /// group.serve(|| panic!("on purpose"))?;
    /// group.serve(|| println!("runs all the same"))?;
    /// group.wait(); // returns
    /// assert_eq!((group.panicked(), group.completed()), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("join", "wait_idle"))]
    pub fn wait(&self) {
        let never = Deadline::never();
        self.members.wait(&never, self.core.parallel);
    }

    /// Waits for at most `d` until no task of the group is pending; see [`Group::wait`]. With [`Duration::ZERO`], the
    /// call does not wait. If its time is zero or up, it may return a moment before the last handles are ready.
    ///
    /// # Errors
    /// Returns [`Unfinished`] if tasks are still pending after `d`. It holds their number.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use std::time::Duration;
    /// let pool = lazypool::Pool::new(1)?;
    /// let group = pool.group();
    /// let (open, gate) = channel();
    /// group.serve(move || gate.recv().unwrap_or_default())?;
    /// assert_eq!(group.wait_timeout(Duration::from_millis(1)).unwrap_err().pending(), 1);
    /// open.send(())?;
    /// group.wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_timeout(&self, d: Duration) -> Result<(), Unfinished> {
        let ended = if d.is_zero() {
            self.pending() == 0
        } else {
            let until = Deadline::from_now(d);
            self.members.wait(&until, self.core.parallel)
        };
        if ended {
            return Ok(());
        }
        match self.pending() {
            0 => Ok(()),
            pending => Err(Unfinished::new(pending)),
        }
    }

    /// Cancels the group for good, and does not wait for its tasks.
    ///
    /// * In its running tasks [`task::is_cancelled`](crate::task::is_cancelled) turns true, and their
    ///   workers count as [abandoned](crate::Stats::abandoned).
    /// * Its queued tasks are discarded. First all of them are taken out of the queue and counted,
    ///   their handles get [`TaskError::Cancelled`](crate::TaskError::Cancelled), and callers of
    ///   [`do_with_deadline`](Group::do_with_deadline) get their closures back. Then this call
    ///   drops what the tasks captured, oldest task first; see [discarded
    ///   tasks](crate::Pool#discarded-tasks). No worker starts one
    ///   after the first step of this call.
    /// * Its submissions that wait for space are refused as [`Cancelled`](crate::Refusal::Cancelled),
    ///   and so are new ones.
    ///
    /// [`Group::wait`] and a further `cancel` do not wait for the drops of this call.
    ///
    /// **Cost.** The time that this call takes grows with the number of the group's queued tasks,
    /// with the pool's `max_workers`, and with the number of its submissions that wait for space. It
    /// does not grow with the queued tasks of others, however many there are. If no task of the
    /// group is pending, the call only sets a flag.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// let group = pool.group();
    /// group.serve(|| while !lazypool::task::is_cancelled() {})?;
    /// group.cancel();
    /// group.wait();
    /// assert!(group.serve(|| ()).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self) {
        self.core.cancel_group(&self.members);
    }

    /// Returns `true` if the group has been cancelled.
    ///
    /// ```
    /// let group = lazypool::Pool::new(1)?.group();
    /// assert!(!group.is_cancelled());
    /// group.cancel();
    /// assert!(group.is_cancelled());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.members.is_cancelled()
    }

    /// Returns a guard that cancels the group when it is dropped.
    ///
    /// Keep it in the future that awaits the tasks, so that dropping the future cancels the group.
    /// [`CancelGuard::disarm`] drops the guard without cancelling.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// let group = pool.group();
    /// {
    ///     let _wanted = group.drop_guard();
    ///     group.serve(|| while !lazypool::task::is_cancelled() {})?;
    /// }
    /// assert!(group.is_cancelled());
    /// group.wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drop_guard(&self) -> CancelGuard {
        CancelGuard {
            group: Some(self.clone()),
        }
    }

    /// Returns how many tasks have not ended yet. This includes tasks that are currently being
    /// submitted, and tasks that wait in line: for space in the pool, or for a place in this group. So
    /// it can exceed the limit of a [limited group](crate::Pool::limited_group).
    ///
    /// ```
    /// assert_eq!(lazypool::Pool::new(1)?.group().pending(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn pending(&self) -> usize {
        self.members.pending() as usize
    }

    /// Returns how many tasks have run and returned.
    ///
    /// ```
    /// assert_eq!(lazypool::Pool::new(1)?.group().completed(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn completed(&self) -> usize {
        self.members.ended(Ended::Completed) as usize
    }

    /// Returns how many tasks have panicked.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// let group = pool.group();
    /// group.serve(|| panic!("on purpose"))?;
    /// group.wait();
    /// assert_eq!(group.panicked(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn panicked(&self) -> usize {
        self.members.ended(Ended::Panicked) as usize
    }

    /// Returns how many tasks were dropped before they started: by [`Group::cancel`] or
    /// their [`Handle`](crate::Handle), by a shutdown, or because of their
    /// [deadline](crate::Submitter::with_deadline).
    ///
    /// The pool splits these tasks into two counts. A task that was not started because of its
    /// deadline counts as [`Stats::expired`](crate::Stats::expired), and so does a task that was
    /// cancelled after its deadline. All others count as
    /// [`Stats::discarded`](crate::Stats::discarded).
    ///
    /// ```
    /// assert_eq!(lazypool::Pool::new(1)?.group().discarded(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn discarded(&self) -> usize {
        self.members.ended(Ended::Discarded) as usize
    }
}

/// A guard that cancels its group when it is dropped; [`Group::drop_guard`] returns one.
///
/// ```
/// fn import(pool: &lazypool::Pool, files: &[&'static str]) -> Result<(), lazypool::Refused> {
///     let group = pool.group();
///     let guard = group.drop_guard(); // if one file is refused, all others are cancelled
///     for &file in files {
///         let task = move || println!("reading {file}");
///         group.serve(task).map_err(lazypool::Refused::without_closure)?;
///     }
///     group.wait();
///     guard.disarm();
///     Ok(())
/// }
/// let pool = lazypool::Pool::builder().max_workers(1).queue_capacity(2).build()?;
/// import(&pool, &["a", "b"])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the guard cancels the group as soon as it is dropped"]
pub struct CancelGuard {
    /// `None` once the guard is disarmed.
    group: Option<Group>,
}

impl CancelGuard {
    /// Drops the guard without cancelling the group.
    ///
    /// ```
    /// let group = lazypool::Pool::new(1)?.group();
    /// group.drop_guard().disarm();
    /// assert!(!group.is_cancelled());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn disarm(mut self) {
        self.group = None;
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            group.cancel();
        }
    }
}
