//! A closure that a pool did not take.

use std::error::Error;
use std::fmt;

use super::hidden::Closure;
use super::refusal::Refusal;

/// A closure that the pool did not take, and the reason.
///
/// Every `serve` returns it when the pool does not take the task, and
/// [`DeadlineError::Refused`](crate::DeadlineError::Refused) holds one. The closure never ran, not
/// even partly. You can run it on the calling thread ([`caller_runs`](Self::caller_runs)), take it
/// out to submit it again ([`into_inner`](Self::into_inner)), or drop it.
///
/// `Refused<F>` is `Send` if `F` is, and `Sync` for every `F`, because it never lends its closure
/// by reference. The operator `?` therefore converts it into a `Box<dyn Error + Send + Sync>` for
/// any closure that a pool could have taken. [`without_closure`](Self::without_closure) drops the
/// closure and keeps the reason. It returns a `Refused<()>`, for which you can write `Refused`, for
/// instance in [an error enum of your own](crate::docs::outcomes#an-error-enum-of-your-own).
///
/// # Examples
///
/// Back-pressure in one line: a task that the pool has no space for runs on the thread that submits
/// it. Once the pool is shut down, the task comes back as an error instead.
///
/// ```
/// use lazypool::{Pool, Refused};
///
/// let pool = Pool::builder().max_workers(1).build()?;
/// for n in 0..100 {
///     pool.serve(move || println!("{n}"))
///         .or_else(Refused::caller_runs)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What the closure captured
///
/// The values that a closure captured cannot be taken out of it. If you need such a value back,
/// there are two ways. You can run the closure or [submit it again](Self::into_parts), because it
/// still has its values. Or you can give the value a `Drop` that returns it to where it belongs.
/// That works however the task ends: it ran, it panicked, it was refused and dropped, it was
/// [discarded](crate::Shutdown::Discard), or its deadline passed.
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
/// let pool = Pool::new(1)?;
/// pool.shutdown(lazypool::Shutdown::Drain, std::time::Duration::MAX);
/// let (give, shelf) = channel();
/// let lent = Lent(vec![1, 2, 3], give);
/// assert!(pool.serve(move || println!("{:?}", lent.0)).is_err());
/// assert_eq!(shelf.try_recv()?, [1, 2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Refused<F = ()> {
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
    /// [`is_saturated`](Self::is_saturated) and [`is_closed`](Self::is_closed) are shorter tests
    /// for the two most frequent reasons. [`is_retryable`](Self::is_retryable) tells whether a
    /// retry may succeed.
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
    /// if let Err(refused) = pool.serve(|| ()) {
    ///     match refused.reason() {
    ///         Refusal::Closed => println!("time to stop"),
    ///         other => panic!("{other}"),
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn reason(&self) -> &Refusal {
        &self.reason
    }

    /// Returns the closure, for instance to submit it again.
    ///
    /// **Do not retry in a loop inside a task of the same pool**: the task keeps busy the very
    /// worker that the retry waits for. Outside the pool, retry with a pause, or let the submission
    /// wait ([`WhenFull`](crate::WhenFull)).
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::Pool;
    /// use std::thread;
    /// use std::time::Duration;
    ///
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// for n in 0..10 {
    ///     let mut task = move || println!("{n}");
    ///     // Retry for as long as the one worker is busy.
    ///     while let Err(refused) = pool.serve(task) {
    ///         if !refused.is_retryable() {
    ///             return Err(refused.into());
    ///         }
    ///         task = refused.into_inner();
    ///         thread::sleep(Duration::from_millis(1));
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_inner(self) -> F {
        self.closure.into_inner()
    }

    /// Returns the closure and the reason.
    ///
    /// This combines [`into_inner`](Self::into_inner) and [`reason`](Self::reason), for code that
    /// submits the closure again and keeps the reason, or the [`io::Error`](std::io::Error) in it.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{Pool, Refusal, Shutdown};
    /// use std::time::Duration;
    ///
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_parts(self) -> (F, Refusal) {
        (self.closure.into_inner(), self.reason)
    }

    /// Runs the closure on the calling thread if the pool had no space or no thread for it;
    /// otherwise returns the refusal.
    ///
    /// This is the caller-runs policy: `pool.serve(f).or_else(Refused::caller_runs)`. While the
    /// calling thread runs the task, it submits no other tasks. So producers slow down to the pace
    /// of the pool.
    ///
    /// This runs a closure that was refused as [`Saturated`](Refusal::Saturated),
    /// [`OnWorker`](Refusal::OnWorker) or [`SpawnFailed`](Refusal::SpawnFailed), because only space
    /// or a thread was missing. It runs no other closure: after a shutdown or a cancel the task is
    /// not wanted, and in a full group it would exceed the limit. **But on a worker**, a full group whose
    /// policy is to wait refuses as `OnWorker`, and this method then exceeds the limit. There, [submit
    /// with `Refuse`](crate::docs::recipes#a-share-for-each-tenant).
    ///
    /// A closure that runs here is not a task of the pool: see [`run_anyway`](Self::run_anyway).
    ///
    /// **This call nests.** If the closure submits a task in the same way and the pool is still
    /// full, that task runs inside this one. If each task submits its successor, the calls nest as
    /// deep as the chain is long, and some thousands of them overflow the stack, which aborts the
    /// process. So use this method for closures that submit nothing. In a task that submits further
    /// tasks, keep what is refused in a list and go on in a loop, which [cannot
    /// nest](crate::docs::recipes#tasks-that-submit-tasks).
    ///
    /// **This call takes as long as the closure.** Do not use it on a thread of an async runtime.
    ///
    /// # Errors
    ///
    /// Returns the refusal itself, which still holds the closure, if the pool is shut down, the
    /// group is cancelled or full, or the process is a forked child.
    ///
    /// # Panics
    ///
    /// Panics if the closure panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{Pool, Refused, Shutdown};
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// let pool = Pool::new(1)?;
    /// let (release, gate) = mpsc::channel::<()>();
    /// pool.serve(move || gate.recv().unwrap_or_default())?;
    ///
    /// // The one worker is busy: the task runs here.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn caller_runs<R>(self) -> Result<R, Self>
    where
        F: FnOnce() -> R,
    {
        match self.reason {
            Refusal::Saturated | Refusal::OnWorker | Refusal::SpawnFailed(_) => {
                Ok(self.run_anyway())
            }
            Refusal::Closed | Refusal::Cancelled | Refusal::Forked | Refusal::GroupFull => {
                Err(self)
            }
        }
    }

    /// Runs the closure on the calling thread, whatever the reason of the refusal, and returns its
    /// value.
    ///
    /// Use it for work that has to be done in any case, such as releasing something. It nests as
    /// [`caller_runs`](Self::caller_runs) does, and takes as long as the closure. For back-pressure
    /// use [`caller_runs`](Self::caller_runs): this method also runs a closure that was refused after a
    /// shutdown or a cancel. A shutdown that is meant to stop a producer then
    /// makes the producer do all the work itself, and the tasks of a cancelled group run after all.
    ///
    /// A closure that runs here is not a task of the pool. No shutdown waits for it, no cancel
    /// reaches it, no hook is called for it, and it is not counted. The functions of
    /// [`task`](crate::task) describe the task that the calling thread runs. On a thread that is
    /// not a worker, [`is_cancelled`](crate::task::is_cancelled) stays false.
    ///
    /// # Panics
    ///
    /// Panics if the closure panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{Pool, Refused, Shutdown};
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// pool.shutdown(Shutdown::Drain, Duration::MAX);
    ///
    /// // The main thread waits for this message, even if the pool is shut down.
    /// let (sender, receiver) = mpsc::channel();
    /// pool.serve(move || sender.send("done").unwrap_or_default())
    ///     .unwrap_or_else(Refused::run_anyway);
    /// assert_eq!(receiver.recv()?, "done");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_anyway<R>(self) -> R
    where
        F: FnOnce() -> R,
    {
        self.into_inner()()
    }

    /// Drops the closure and keeps the reason.
    ///
    /// The result has a type that can be named, so it can be stored or returned. It is `'static`,
    /// `Send` and `Sync` even if the closure borrowed something, as in a
    /// [`scope`](crate::Pool::scope).
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{Pool, Refused};
    ///
    /// fn greet(pool: &Pool, name: String) -> Result<(), Refused> {
    ///     pool.serve(move || println!("hello {name}"))
    ///         .map_err(Refused::without_closure)
    /// }
    ///
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// greet(&pool, "world".to_owned())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn without_closure(self) -> Refused<()> {
        drop(self.closure.into_inner());
        Refused::new((), self.reason)
    }

    /// Returns `true` if the reason is [`Refusal::Saturated`]: the pool was full.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::Pool;
    /// use std::sync::mpsc;
    ///
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// let (release, gate) = mpsc::channel::<()>();
    /// pool.serve(move || gate.recv().unwrap_or_default())?;
    ///
    /// // The one worker is busy and there is no queue.
    /// let refused = pool.serve(|| ()).unwrap_err();
    /// assert!(refused.is_saturated());
    /// drop(release);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn is_saturated(&self) -> bool {
        matches!(self.reason, Refusal::Saturated)
    }

    /// Returns `true` if the same call may succeed later: [`Refusal::Saturated`],
    /// [`Refusal::SpawnFailed`] or [`Refusal::GroupFull`]. (A group with a limit of 0 refuses
    /// as `GroupFull` for ever.)
    ///
    /// For [`Refusal::OnWorker`] this returns `false`. Inside a task of the same pool, do not retry
    /// in a loop even if this returns `true`, because the task keeps busy the worker that the retry
    /// waits for.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{Pool, Shutdown};
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// let pool = Pool::new(1)?;
    /// let (release, gate) = mpsc::channel::<()>();
    /// pool.serve(move || gate.recv().unwrap_or_default())?;
    /// assert!(pool.serve(|| ()).unwrap_err().is_retryable());
    ///
    /// drop(release);
    /// pool.shutdown(Shutdown::Drain, Duration::MAX);
    /// assert!(!pool.serve(|| ()).unwrap_err().is_retryable());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self.reason,
            Refusal::Saturated | Refusal::SpawnFailed(_) | Refusal::GroupFull
        )
    }

    /// Returns `true` if the pool has been shut down. A retry cannot succeed.
    ///
    /// The reason is then [`Refusal::Closed`]. For [`Refusal::Cancelled`], the reason that a
    /// cancelled group gives, this returns `false`.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{Pool, Shutdown};
    /// use std::time::Duration;
    ///
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// pool.shutdown(Shutdown::Drain, Duration::MAX);
    /// assert!(pool.serve(|| ()).unwrap_err().is_closed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn is_closed(&self) -> bool {
        matches!(self.reason, Refusal::Closed)
    }
}

// `Debug` is written by hand, because a derive would require `F: Debug`, and closures are not
// `Debug`.
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
        // `Display` already prints the reason, so `source` skips it and returns the reason's own
        // source.
        self.reason.source()
    }
}
