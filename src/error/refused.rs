//! Why a pool did not take a task, and how the closure comes back.

use std::error::Error;
use std::fmt;
use std::io;

use super::hidden::Closure;

/// Why a pool did not take a task.
///
/// You get it from [`Refused::reason`]. `Display` says in one short line what happened; what can be done
/// about it stands here, at each variant. The enum may grow: keep a `_` arm when you match on it.
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
    /// This passes: the same submission may be taken a moment later. Retry it, or run the closure on the
    /// calling thread with [`Refused::caller_runs`]. If it happens too often, raise
    /// [`max_workers`](crate::Builder::max_workers) or
    /// [`queue_capacity`](crate::Builder::queue_capacity), or let submissions wait for room with
    /// [`WhenFull::Block`](crate::WhenFull::Block) or [`WhenFull::BlockFor`](crate::WhenFull::BlockFor).
    Saturated,
    /// The pool has been shut down or dropped.
    ///
    /// This is final: the pool takes no task any more. Drop the closure, or submit it to another pool.
    Closed,
    /// The group that the task was served through has been cancelled.
    ///
    /// This is final for the group. Its pool and the pool's other groups go on. Usually the closure has
    /// become pointless and is dropped; if not, submit it to the pool itself or to a new group.
    Cancelled,
    /// The task needed a new worker thread, the system gave none, and no other worker could take it.
    ///
    /// The pool is as it was before, and the next submission that needs a thread tries again. Retry
    /// later, or run the closure on the calling thread with [`Refused::caller_runs`]. If it happens again
    /// and again, lower [`max_workers`](crate::Builder::max_workers) or
    /// [`stack_size`](crate::Builder::stack_size), or raise the system's limit on threads.
    SpawnFailed(io::Error),
    /// The submission would have had to wait, and came from a worker of this pool.
    ///
    /// A worker that waits for its own pool may wait for itself. Therefore nothing waits for room there,
    /// and what somebody would wait for ([`do_with_deadline`](crate::Pool::do_with_deadline),
    /// [`Scope::serve`](crate::Scope::serve)) does not queue there. Run the closure on the worker with
    /// [`Refused::caller_runs`], or use a second pool for nested work.
    /// [`Refused::is_saturated`] is true for it, too.
    OnWorker,
    /// The pool belongs to the parent of this process, which was made by `fork`.
    ///
    /// A child has a copy of the pool's memory, but none of its threads. Build a new pool in the child.
    Forked,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text of the io::Error is left to `source()`, so that a printed chain says it once.
        f.write_str(match self {
            Self::Saturated => {
                "the pool is saturated: every worker is occupied and the queue is full"
            }
            Self::Closed => "the pool is shut down",
            Self::Cancelled => "the group is cancelled",
            Self::SpawnFailed(_) => "no worker thread could be started",
            Self::OnWorker => "the task would have to wait, on a worker of the same pool",
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

/// A closure that was not run, and the reason why.
///
/// Every `serve` returns it when the pool does not take the task, and
/// [`DeadlineError::Refused`](crate::DeadlineError::Refused) holds one. The closure inside is untouched:
/// retry it, run it on the calling thread with [`caller_runs`](Self::caller_runs), or drop it. A refused
/// closure never ran, not even partly.
///
/// `Refused<F>` is `Send` if `F` is, and `Sync` for every `F`, because it never lends its closure by
/// reference. It therefore goes through `?` into a `Box<dyn Error + Send + Sync>` with any closure that a
/// pool could have taken. Where the closure should not travel with the error,
/// [`without_closure`](Self::without_closure) lets go of it.
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

    /// Turns what was submitted inside back into what the caller handed in; the reason stays.
    pub(crate) fn map<G>(self, f: impl FnOnce(F) -> G) -> Refused<G> {
        Refused::new(f(self.closure.into_inner()), self.reason)
    }

    /// Why the closure was not taken.
    ///
    /// [`is_saturated`](Self::is_saturated) and [`is_closed`](Self::is_closed) ask the two usual questions.
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

    /// Gives the closure back, for instance to submit it again.
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

    /// Gives the closure and the reason back, each by value.
    ///
    /// It is [`into_inner`](Self::into_inner) and [`reason`](Self::reason) in one, for code that submits
    /// the closure again and keeps the reason, or its [`io::Error`].
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

    /// Runs the closure on the calling thread if the pool had no room for it, and gives it back otherwise.
    ///
    /// This is the caller-runs policy: `pool.serve(f).or_else(Refused::caller_runs)`. The calling thread is
    /// busy with the task instead of submitting more, so producers slow down to what the pool can take.
    ///
    /// It runs what was refused as [`Saturated`](Refusal::Saturated), [`OnWorker`](Refusal::OnWorker) or
    /// [`SpawnFailed`](Refusal::SpawnFailed). There, only the room or the thread was missing. After a
    /// shutdown or a cancel somebody has decided that the task shall not run, and it does not run here
    /// either.
    ///
    /// The pool has no part in a run on the calling thread. No hook is called, nothing is counted, and the
    /// functions of [`task`](crate::task) see whatever the calling thread is doing.
    ///
    /// # Errors
    ///
    /// The refusal itself, closure included, if the pool is shut down, the group is cancelled, or the
    /// process is a forked child.
    ///
    /// # Panics
    ///
    /// A panic in the closure goes straight to the caller.
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

    /// Runs the closure on the calling thread, whatever the reason, and returns what it returns.
    ///
    /// Use it for work that has to be done in any case, such as releasing something. For back-pressure use
    /// [`caller_runs`](Self::caller_runs). `unwrap_or_else(Refused::run)` looks the same, but goes on after
    /// a shutdown and after a cancel: each task that is refused as [`Closed`](Refusal::Closed) or
    /// [`Cancelled`](Refusal::Cancelled) then runs on the thread that submits it. A shutdown that is meant
    /// to stop a producer turns it into the one worker, and the tasks of a cancelled group run after all.
    ///
    /// A closure that runs here is no task of the pool. No shutdown waits for it and no cancel reaches it:
    /// [`task::is_cancelled`](crate::task::is_cancelled) is about whatever the calling thread is doing, and
    /// on a thread that is no worker it stays false. No hook is called, and nothing is counted.
    ///
    /// # Panics
    ///
    /// A panic in the closure goes straight to the caller.
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
    /// The result no longer holds what the closure captured and has a type that can be named, so it can be
    /// stored or returned. It is `'static`, `Send` and `Sync` whatever `F` was, also where the closure
    /// borrowed, as in a [`scope`](crate::Pool::scope).
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
        self.map(drop)
    }

    /// Whether the pool was merely full, so that trying again may help.
    ///
    /// It is true for [`Refusal::Saturated`] and for [`Refusal::OnWorker`].
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

    /// Whether the pool has been shut down, so that trying again is of no use: [`Refusal::Closed`].
    ///
    /// A cancelled group refuses with [`Refusal::Cancelled`], which is not this.
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
