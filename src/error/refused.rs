//! Why a pool did not take a task, and how the closure comes back.

use std::error::Error;
use std::fmt;
use std::io;

use super::hidden::Closure;

/// Why a pool did not take a task.
///
/// You get it from [`Refused::reason`]. Its `Display` names the remedy, so that a log line made from it
/// says what to do. The enum may grow: keep a `_` arm when you match on it.
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
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// Every worker was occupied and the queue was full.
    ///
    /// This passes: the same submission may be taken a moment later.
    Saturated,
    /// The pool has been shut down or dropped.
    ///
    /// This is final: the pool takes no task any more.
    Closed,
    /// The group that the task was served through has been cancelled.
    ///
    /// This is final for the group. Its pool and the pool's other groups go on.
    Cancelled,
    /// The task needed a new worker thread, the system gave none, and no other worker could take it.
    ///
    /// The pool is as it was before, and the next submission that needs a thread tries again.
    SpawnFailed(io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text of the io::Error is left to `source()`, so that a printed chain says it once.
        f.write_str(match self {
            Self::Saturated => {
                "the pool is saturated: retry later, run the closure yourself, raise max_workers or \
                 queue_capacity, or build with WhenFull::Block"
            }
            Self::Closed => {
                "the pool is shut down: run the closure yourself, or submit it to another pool"
            }
            Self::Cancelled => {
                "the group is cancelled: submit the closure to the pool or to a new group, or drop it"
            }
            Self::SpawnFailed(_) => {
                "no worker thread could be started: retry later, run the closure yourself, lower \
                 max_workers or stack_size, or raise the system's limit on threads"
            }
        })
    }
}

impl Error for Refusal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::SpawnFailed(error) => Some(error),
            Self::Saturated | Self::Closed | Self::Cancelled => None,
        }
    }
}

/// A closure that was not run, and the reason why.
///
/// Every `serve` returns it when the pool does not take the task, and
/// [`DeadlineError::Refused`](crate::DeadlineError::Refused) holds one. The closure inside is untouched:
/// retry it, run it on the calling thread with [`run`](Self::run), or drop it. A refused closure never
/// ran, not even partly.
///
/// `Refused<F>` is `Send` if `F` is, and `Sync` for every `F`, because it never lends its closure by
/// reference. It therefore goes through `?` into a `Box<dyn Error + Send + Sync>` with any closure that a
/// pool could have taken. Where the closure should not travel with the error,
/// [`without_closure`](Self::without_closure) lets go of it.
///
/// # Examples
///
/// Back-pressure in one line: a task that the pool cannot take runs on the thread that submits it.
///
/// ```
/// use lazypool::{Pool, Refused};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::builder().max_workers(1).build()?;
/// for n in 0..100 {
///     pool.serve(move || println!("{n}")).unwrap_or_else(Refused::run);
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

    /// Runs the closure on the calling thread and returns what it returns.
    ///
    /// This is the caller-runs policy: `pool.serve(f).unwrap_or_else(Refused::run)`. The calling thread is
    /// busy with the task instead of submitting more, so producers slow down to what the pool can take.
    ///
    /// The pool has no part in it. No hook is called, nothing is counted, and the functions of
    /// [`task`](crate::task) see whatever the calling thread is doing.
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
    /// let (sender, receiver) = mpsc::channel();
    /// pool.serve(move || sender.send("done").unwrap())
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

    /// Whether the pool was merely full, so that trying again may help: [`Refusal::Saturated`].
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
        matches!(self.reason, Refusal::Saturated)
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
