//! Why a pool did not take a task, and how the closure comes back.

use std::error::Error;
use std::fmt;
use std::io;

use super::hidden::Closure;

/// Why a pool did not take a task.
///
/// [`Refused::reason`] returns it. `Display` says in one line what happened; each variant below says what
/// you can do about it. The enum may grow: keep a `_` arm when you match on it.
///
/// # Examples
///
/// ```
/// use lazypool::{Pool, Refusal, Shutdown};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::builder().max_workers(1).build()?;
/// pool.shutdown(Shutdown::Drain, Duration::MAX);
///
/// if let Err(refused) = pool.serve(|| println!("never printed")) {
///     assert!(matches!(refused.reason(), Refusal::Closed));
///     assert_eq!(refused.to_string(), "the pool is shut down");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// Every worker was occupied and the queue was full.
    ///
    /// The pool has more work than it can do at the moment, and the same submission may be taken a little
    /// later. In a service, answer the request with an error such as 503. In a batch, run the closure on
    /// the calling thread with [`Refused::caller_runs`], or let submissions wait for room with
    /// [`WhenFull::Block`](crate::WhenFull::Block) or [`WhenFull::BlockFor`](crate::WhenFull::BlockFor).
    /// If it happens too often, see [`docs::sizing`](crate::docs::sizing).
    Saturated,
    /// The pool has been shut down or dropped.
    ///
    /// This is final: the pool takes no more tasks. Drop the closure, or submit it to another pool.
    Closed,
    /// The group that the task was served through has been cancelled.
    ///
    /// This is final for the group, but not for its pool. Usually nobody wants the closure any more, and
    /// you drop it. If somebody does, submit it to the pool itself or to a new group.
    Cancelled,
    /// The task needed a new worker thread, the system gave none, and no other worker could take it.
    ///
    /// The pool is as it was before, and the next submission that needs a thread tries again. Retry
    /// later, or run the closure on the calling thread with [`Refused::caller_runs`]. If it happens again
    /// and again, lower [`max_workers`](crate::Builder::max_workers) or
    /// [`stack_size`](crate::Builder::stack_size), or raise the system's limit on threads.
    SpawnFailed(io::Error),
    /// The submission came from a worker of this pool, and no idle or new worker could take the task.
    ///
    /// A worker that waits for its own pool may wait for itself. On a worker, therefore, no submission
    /// waits for room, and [`do_with_deadline`](crate::Pool::do_with_deadline) and
    /// [`Scope::serve`](crate::Scope::serve), whose caller waits for the task, do not queue it. Run the
    /// closure on the worker with [`Refused::caller_runs`], or use a second pool for nested work.
    /// [`Refused::is_saturated`] returns true for this reason, too.
    OnWorker,
    /// The pool belongs to the parent of this process, which was made by `fork`.
    ///
    /// A child has a copy of the pool's memory, but none of its threads. Build a new pool in the child.
    ///
    /// In the child no call to the parent's pool waits:
    ///
    /// * Every submission is refused with this reason at once, whatever its deadline or policy. (Only a
    ///   deadline of zero is [`Expired`](crate::DeadlineError::Expired), as always.)
    /// * [`shutdown`](crate::Pool::shutdown) and drops return at once, with a clean report: no worker is
    ///   left. The parent runs the tasks that the pool had accepted.
    /// * [`Group::wait`](crate::Group::wait) and [`scope`](crate::Pool::scope) return at once, whatever is
    ///   pending: none of their tasks runs in the child, or touches there what it borrowed.
    /// * [`stats`](crate::Pool::stats) counts refusals only, [`workers`](crate::Pool::workers) returns no
    ///   worker, and [`set_limit`](crate::Pool::set_limit) changes nothing.
    /// * A task or hook that calls `fork` should end its child by `exec` or `_exit`. If it returns in the
    ///   child instead, its thread ends there without counting the task or running another one. The child
    ///   process ends with its last thread.
    ///
    /// The parent's pool notices nothing. A child is recognised on Linux, Android, Apple's systems, the BSDs,
    /// illumos and Solaris, if it was made by `fork` (not by a system call that bypasses the C library).
    /// In a task that `fork` copied, [`task::deadline`](crate::task::deadline) is `None`.
    Forked,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text of the io::Error is left to `source()`, so that a printed chain says it once.
        f.write_str(match self {
            Self::Saturated => {
                "the pool is saturated: every worker is occupied, and the queue, if any, is full"
            }
            Self::Closed => "the pool is shut down",
            Self::Cancelled => "the group is cancelled",
            Self::SpawnFailed(_) => "no worker thread could be started",
            Self::OnWorker => {
                "no other worker is available, and a worker of this pool must not wait for one"
            }
            Self::Forked => "the pool belongs to the parent of this forked process",
        })
    }
}

impl Error for Refusal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::SpawnFailed(error) => Some(error),
            Self::Saturated | Self::Closed | Self::Cancelled | Self::OnWorker | Self::Forked => {
                None
            }
        }
    }
}

/// A closure that the pool did not take, and the reason.
///
/// Every `serve` returns it when the pool does not take the task, and
/// [`DeadlineError::Refused`](crate::DeadlineError::Refused) holds one. The closure never ran, not even
/// partly. You can run it on the calling thread ([`caller_runs`](Self::caller_runs)), take it out to submit
/// it again ([`into_inner`](Self::into_inner)), or drop it.
///
/// `Refused<F>` is `Send` if `F` is, and `Sync` for every `F`, because it never lends its closure by
/// reference. The operator `?` therefore converts it into a `Box<dyn Error + Send + Sync>` for any closure
/// that a pool could have taken. [`without_closure`](Self::without_closure) drops the closure and keeps the
/// reason.
///
/// # Examples
///
/// Back-pressure in one line: a task that the pool has no room for runs on the thread that submits it.
/// Once the pool is shut down, it comes back as an error instead.
///
/// ```
/// use lazypool::{Pool, Refused};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::builder().max_workers(1).build()?;
/// for n in 0..100 {
///     pool.serve(move || println!("{n}"))
///         .or_else(Refused::caller_runs)?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// # What the closure captured
///
/// The values that a closure captured cannot be taken out of it. If you need one back, there are two ways.
/// Run the closure, or [submit it again](Self::into_parts): it still has its values. Or give the value a
/// `Drop` that returns it to where it belongs. That works however the task ends: it ran, it panicked, it was
/// refused and dropped, it was [discarded](crate::Shutdown::Discard), or its deadline passed.
///
/// ```
/// use lazypool::Pool;
/// use std::sync::mpsc::{channel, Sender};
///
/// /// A buffer that goes back to its shelf, however the task that holds it ends.
/// struct Lent(Vec<u8>, Sender<Vec<u8>>);
///
/// impl Drop for Lent {
///     fn drop(&mut self) {
///         // An error means that the shelf is gone.
///         self.1.send(std::mem::take(&mut self.0)).unwrap_or_default();
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::new(1)?;
/// pool.shutdown(lazypool::Shutdown::Drain, std::time::Duration::MAX);
/// let (give, shelf) = channel();
/// let lent = Lent(vec![1, 2, 3], give);
/// assert!(pool.serve(move || println!("{:?}", lent.0)).is_err());
/// assert_eq!(shelf.try_recv()?, [1, 2, 3]);
/// # Ok(())
/// # }
/// ```
pub struct Refused<F> {
    closure: Closure<F>,
    reason: Refusal,
}

impl<F> Refused<F> {
    pub(crate) const fn new(closure: F, reason: Refusal) -> Self {
        Self {
            closure: Closure::new(closure),
            reason,
        }
    }

    /// Returns why the pool did not take the closure.
    ///
    /// [`is_saturated`](Self::is_saturated) and [`is_closed`](Self::is_closed) are shorter for the two most
    /// frequent reasons.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{Pool, Refusal, Shutdown};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// pool.shutdown(Shutdown::Drain, Duration::MAX);
    ///
    /// if let Err(refused) = pool.serve(|| ()) {
    ///     match refused.reason() {
    ///         Refusal::Closed => println!("time to stop"),
    ///         other => panic!("{other}"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub const fn reason(&self) -> &Refusal {
        &self.reason
    }

    /// Returns the closure, for instance to submit it again.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::Pool;
    /// use std::thread;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// for n in 0..10 {
    ///     let mut task = move || println!("{n}");
    ///     // Retry for as long as the one worker is occupied.
    ///     while let Err(refused) = pool.serve(task) {
    ///         if !refused.is_saturated() {
    ///             return Err(refused.into());
    ///         }
    ///         task = refused.into_inner();
    ///         thread::yield_now();
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_inner(self) -> F {
        self.closure.into_inner()
    }

    /// Returns the closure and the reason.
    ///
    /// It is [`into_inner`](Self::into_inner) and [`reason`](Self::reason) in one, for code that submits
    /// the closure again and keeps the reason, or the [`io::Error`] in it.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{Pool, Refusal, Shutdown};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (first, second) = (Pool::new(1)?, Pool::new(1)?);
    /// first.shutdown(Shutdown::Drain, Duration::MAX);
    ///
    /// if let Err(refused) = first.serve(|| println!("on the second pool")) {
    ///     let (task, reason) = refused.into_parts();
    ///     match reason {
    ///         Refusal::SpawnFailed(error) => return Err(error.into()),
    ///         reason => eprintln!("{reason}: trying the second pool"),
    ///     }
    ///     second.serve(task)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_parts(self) -> (F, Refusal) {
        (self.closure.into_inner(), self.reason)
    }

    /// Runs the closure on the calling thread if the pool had no room for it; otherwise returns the refusal.
    ///
    /// This is the caller-runs policy: `pool.serve(f).or_else(Refused::caller_runs)`. While the calling
    /// thread runs the task it submits no more, so producers slow down to the pace of the pool.
    ///
    /// It runs a closure that was refused as [`Saturated`](Refusal::Saturated),
    /// [`OnWorker`](Refusal::OnWorker) or [`SpawnFailed`](Refusal::SpawnFailed): only the room or the
    /// thread was missing. After a shutdown or a cancel somebody has decided that the task is not to run,
    /// and this does not run it either.
    ///
    /// A closure that runs here is not a task of the pool: no hook is called for it, it is not counted, and
    /// the functions of [`task`](crate::task) describe whatever the calling thread is doing.
    ///
    /// # Errors
    ///
    /// The refusal itself, which still holds the closure, if the pool is shut down, the group is cancelled,
    /// or the process is a forked child.
    ///
    /// # Panics
    ///
    /// If the closure panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{Pool, Refused, Shutdown};
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::new(1)?;
    /// let (release, gate) = mpsc::channel::<()>();
    /// pool.serve(move || gate.recv().unwrap_or_default())?;
    ///
    /// // The one worker is occupied: the task runs here.
    /// let (sender, receiver) = mpsc::channel();
    /// let task = move || sender.send("done").unwrap_or_default();
    /// pool.serve(task).or_else(Refused::caller_runs)?;
    /// assert_eq!(receiver.try_recv(), Ok("done"));
    ///
    /// // The pool is shut down: the task runs nowhere.
    /// drop(release);
    /// pool.shutdown(Shutdown::Drain, Duration::MAX);
    /// let refused = pool
    ///     .serve(|| unreachable!())
    ///     .or_else(Refused::caller_runs)
    ///     .unwrap_err();
    /// assert!(refused.is_closed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn caller_runs<R>(self) -> Result<R, Self>
    where
        F: FnOnce() -> R,
    {
        match self.reason {
            Refusal::Saturated | Refusal::OnWorker | Refusal::SpawnFailed(_) => Ok(self.run()),
            Refusal::Closed | Refusal::Cancelled | Refusal::Forked => Err(self),
        }
    }

    /// Runs the closure on the calling thread, whatever the reason of the refusal, and returns its value.
    ///
    /// Use it for work that has to be done in any case, such as releasing something. For back-pressure use
    /// [`caller_runs`](Self::caller_runs): `unwrap_or_else(Refused::run)` looks alike, but also runs what
    /// was refused after a shutdown or a cancel. A shutdown that is meant to stop a producer then makes the
    /// producer do all the work itself, and the tasks of a cancelled group run after all.
    ///
    /// A closure that runs here is not a task of the pool. No shutdown waits for it, no cancel reaches it,
    /// no hook is called for it, and it is not counted. The functions of [`task`](crate::task) describe
    /// whatever the calling thread is doing; on a thread that is not a worker
    /// [`is_cancelled`](crate::task::is_cancelled) stays false.
    ///
    /// # Panics
    ///
    /// If the closure panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{Pool, Refused, Shutdown};
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// pool.shutdown(Shutdown::Drain, Duration::MAX);
    ///
    /// // Somebody waits for this message, also when the pool is shut down.
    /// let (sender, receiver) = mpsc::channel();
    /// pool.serve(move || sender.send("done").unwrap_or_default())
    ///     .unwrap_or_else(Refused::run);
    /// assert_eq!(receiver.recv()?, "done");
    /// # Ok(())
    /// # }
    /// ```
    pub fn run<R>(self) -> R
    where
        F: FnOnce() -> R,
    {
        self.into_inner()()
    }

    /// Drops the closure and keeps the reason.
    ///
    /// The result has a type that can be named, so it can be stored or returned. It is `'static`, `Send`
    /// and `Sync` even if the closure borrowed something, as in a [`scope`](crate::Pool::scope).
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{Pool, Refused};
    ///
    /// fn greet(pool: &Pool, name: String) -> Result<(), Refused<()>> {
    ///     pool.serve(move || println!("hello {name}"))
    ///         .map_err(Refused::without_closure)
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// greet(&pool, "world".to_owned())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_closure(self) -> Refused<()> {
        drop(self.closure.into_inner());
        Refused::new((), self.reason)
    }

    /// Returns whether the pool was only full: a later try may succeed.
    ///
    /// That is [`Refusal::Saturated`] or [`Refusal::OnWorker`].
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::Pool;
    /// use std::sync::mpsc;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// let (release, gate) = mpsc::channel::<()>();
    /// pool.serve(move || gate.recv().unwrap_or_default())?;
    ///
    /// // The one worker is occupied and there is no queue.
    /// let refused = pool.serve(|| ()).unwrap_err();
    /// assert!(refused.is_saturated());
    /// drop(release);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn is_saturated(&self) -> bool {
        matches!(self.reason, Refusal::Saturated | Refusal::OnWorker)
    }

    /// Returns whether the pool has been shut down, so that trying again is of no use.
    ///
    /// That is [`Refusal::Closed`]. It is not [`Refusal::Cancelled`], the reason of a cancelled group.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{Pool, Shutdown};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// pool.shutdown(Shutdown::Drain, Duration::MAX);
    /// assert!(pool.serve(|| ()).unwrap_err().is_closed());
    /// # Ok(())
    /// # }
    /// ```
    pub const fn is_closed(&self) -> bool {
        matches!(self.reason, Refusal::Closed)
    }
}

// By hand, like the other implementations below: a derive would ask for `F: Debug`, which closures are not.
impl<F> fmt::Debug for Refused<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl<F> fmt::Display for Refused<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.reason, f)
    }
}

impl<F> Error for Refused<F> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The reason is what `Display` already prints, so the chain goes on behind it.
        self.reason.source()
    }
}
