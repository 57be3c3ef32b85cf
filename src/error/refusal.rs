//! Why a pool did not take a task.

use std::error::Error;
use std::fmt;
use std::io;

/// Why a pool did not take a task.
///
/// [`Refused::reason`](crate::Refused::reason) returns it. `Display` says in one line what
/// happened; each variant below says what you can do about it. The enum may grow: keep a `_` arm
/// when you match on it.
///
/// # Examples
///
/// ```
/// use lazypool::{Pool, Refusal, Shutdown};
/// use std::time::Duration;
///
/// let pool = Pool::builder().max_workers(1).build()?;
/// pool.shutdown(Shutdown::Drain, Duration::MAX);
///
/// if let Err(refused) = pool.serve(|| println!("never printed")) {
///     assert!(matches!(refused.reason(), Refusal::Closed));
///     assert_eq!(refused.to_string(), "the pool is shut down");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// As many accepted tasks had not ended as the pool's limit and the capacity of its queue allow
    /// together; or other submissions waited for space, and this one was not to wait.
    ///
    /// A pool has no queue unless it was built with a
    /// [`queue_capacity`](crate::Builder::queue_capacity).
    ///
    /// The pool has more work than it can do at the moment, and the same submission may be taken a
    /// little later. In a service, answer the request with an error such as 503. In a batch, run
    /// the closure on the calling thread with
    /// [`Refused::caller_runs`](crate::Refused::caller_runs), or let submissions wait for space:
    /// with [`WhenFull::Block`](crate::WhenFull::Block) or
    /// [`WhenFull::BlockFor`](crate::WhenFull::BlockFor), in async code with
    /// [`serve_async`](crate::Awaitable::serve_async). If it happens too often, see
    /// [`docs::sizing`](crate::docs::sizing).
    Saturated,
    /// The pool has been shut down or dropped.
    ///
    /// This is final: the pool takes no more tasks. Drop the closure, or submit it to another pool.
    Closed,
    /// The group that the task was served through has been cancelled.
    ///
    /// This is final for the group, but not for its pool. Usually the closure is no longer wanted,
    /// and you drop it. If you still need it to run, submit it to the pool itself or to a new
    /// group.
    Cancelled,
    /// The task needed a new worker thread, the OS could not create one, and neither another worker
    /// nor the queue could take the task.
    ///
    /// The pool is as it was before, and the next submission that needs a thread tries again. Retry
    /// later, or run the closure on the calling thread with
    /// [`Refused::caller_runs`](crate::Refused::caller_runs). If it happens again and again, lower
    /// [`max_workers`](crate::Builder::max_workers) or [`stack_size`](crate::Builder::stack_size),
    /// or raise the OS's limit on threads. Both `Display` and
    /// `source()` give the OS's error.
    SpawnFailed(io::Error),
    /// The submission came from a worker of this pool, or through a scope that was opened on such a
    /// worker, and would have had to wait: for space, for a place in its full
    /// [limited group](crate::Pool::limited_group), or for a queued task.
    ///
    /// A worker that waits for its own pool may wait for itself. So on a worker, no submission
    /// waits for space, not even a [`serve_async`](crate::Awaitable::serve_async) that is first
    /// polled there. The tasks of [`do_with_deadline`](crate::Pool::do_with_deadline) and
    /// [`Scope::serve`](crate::Scope::serve) are also not queued there. Their caller is the worker,
    /// which waits for them, and a queued task might need that same worker. Run the closure on the
    /// worker with [`Refused::caller_runs`](crate::Refused::caller_runs) if it submits no further
    /// tasks; if it does, [use a loop](crate::docs::recipes#tasks-that-submit-tasks). Or use a second
    /// pool for nested work.
    ///
    /// In a limited group the missing place may be the group's, and `caller_runs` then runs the
    /// closure beyond the limit. Submit with [`WhenFull::Refuse`](crate::WhenFull::Refuse) there: a
    /// full group then refuses as [`GroupFull`](Self::GroupFull).
    OnWorker,
    /// This process was made by `fork`, and the pool belongs to its parent.
    ///
    /// A child has a copy of the pool's memory, but none of its threads. Build a new pool in the
    /// child.
    ///
    /// In the child every submission is refused with this reason at once, for any deadline and
    /// policy. (Only a deadline of zero is [`Expired`](crate::DeadlineError::Expired), as always.)
    /// [`shutdown`](crate::Pool::shutdown) and the drop of the pool return at once, with a clean
    /// report. Use nothing else of the parent's pools there: a wait for a group, handle or scope
    /// may never end.
    ///
    /// A task that calls `fork` must call `exec` or `_exit` in the child. The child never runs
    /// another task of the parent.
    ///
    /// The parent's pool notices nothing. A child is recognized on Linux, Android, Apple's systems,
    /// the BSDs, illumos and Solaris, if it was made by `fork` (not by a system call that bypasses
    /// the C library).
    Forked,
    /// The group that the task was served through has given out as many places as its
    /// [limit](crate::Pool::limited_group) allows: to unended tasks, and to submissions that wait for space
    /// in the pool.
    ///
    /// The pool itself may have space. A submission whose policy is to wait, and one that awaits space,
    /// waits for a place of the group instead, unless the limit is zero; it is refused as `GroupFull`
    /// only when its time is up. On a worker of the pool it is refused as [`OnWorker`](Self::OnWorker).
    /// Retry once tasks of the group have ended; a service answers "too many requests" (429).
    /// [`Refused::caller_runs`](crate::Refused::caller_runs) does not run such a closure, as that would
    /// exceed the limit.
    GroupFull,
}

impl Refusal {
    /// Returns the reason as one word, for the label of a metric: `saturated`, `closed`,
    /// `cancelled`, `spawn_failed`, `on_worker`, `forked` or `group_full`.
    ///
    /// [`RefusalCounts`](crate::RefusalCounts) has a field of the same name for each.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{Pool, Shutdown};
    /// use std::time::Duration;
    ///
    /// let pool = Pool::new(1)?;
    /// pool.shutdown(Shutdown::Drain, Duration::MAX);
    /// let refused = pool.serve(|| ()).unwrap_err();
    /// assert_eq!(refused.reason().as_str(), "closed");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Saturated => "saturated",
            Self::Closed => "closed",
            Self::Cancelled => "cancelled",
            Self::SpawnFailed(_) => "spawn_failed",
            Self::OnWorker => "on_worker",
            Self::Forked => "forked",
            Self::GroupFull => "group_full",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Saturated => {
                "the pool is saturated: all workers are busy, and there is no queue or no space in it"
            }
            Self::Closed => "the pool is shut down",
            Self::Cancelled => "the group is cancelled",
            // `source()` returns this error, too. But most logs print no source, and the error's
            // text shows whether a limit on threads or a lack of memory was the cause.
            Self::SpawnFailed(error) => {
                return write!(f, "no worker thread could be started: {error}");
            }
            Self::OnWorker => "a worker of the pool must not wait for another one",
            Self::Forked => "the pool belongs to the parent of this forked process",
            Self::GroupFull => "the group has as many unended tasks as its limit allows",
        })
    }
}

impl Error for Refusal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::SpawnFailed(error) => Some(error),
            _ => None,
        }
    }
}
