//! What can go wrong, and how the closure comes back when it does.
//!
//! Three types carry a refusal. [`Refusal`] says why, [`Refused`] pairs that with the closure that was
//! not run, and [`DeadlineError`] adds what can happen to a caller that waits. [`BuildError`] is about
//! the builder, [`Panic`] and [`TaskPanic`] are about tasks that panicked, and [`Unfinished`] is about a
//! wait that ran out of time.
//!
//! Every error type here implements `Debug`, `Display` and [`Error`] whatever closure it carries.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::io;

use hidden::{Closure, Payload};

/// The largest `max_workers` that [`Builder::build`](crate::Builder::build) accepts.
pub(crate) const MAX_WORKERS: usize = 65_536;

/// The largest `queue_capacity` that [`Builder::build`](crate::Builder::build) accepts.
pub(crate) const MAX_QUEUE: usize = 1 << 24;

/// The two wrappers that make errors `Sync`. They have a module of their own so that the privacy of
/// their fields, which both safety arguments rest on, holds against the rest of this file too.
mod hidden {
    use std::any::Any;

    /// A closure on its way back: moved in, moved out, and never lent in between.
    pub(super) struct Closure<F>(F);

    // SAFETY: sharing a `Closure<F>` shares no `F`. The field is private to this module, no method takes
    // `&self` or `&mut self`, and there is no trait implementation, so `&Closure<F>` reaches nothing of
    // the `F` inside. Reaching it takes the `Closure<F>` by value, and moving that to another thread still
    // asks for `F: Send`, as `Send` is left to the compiler.
    unsafe impl<F> Sync for Closure<F> {}

    impl<F> Closure<F> {
        pub(super) const fn new(closure: F) -> Self {
            Self(closure)
        }

        pub(super) fn into_inner(self) -> F {
            self.0
        }
    }

    /// A caught panic payload: moved in and out, and in between only its text can be read.
    pub(super) struct Payload(Box<dyn Any + Send>);

    // SAFETY: the payload may be of a type that is not `Sync`, so nothing of such a type may be reached
    // through `&Payload`. The field is private to this module and the only method that takes `&self` is
    // `message`. It asks the payload for its `TypeId`, which comes from the vtable and reads none of the
    // payload's data, and goes on to read the data only as a `&'static str` or a `String`, both `Sync`.
    // All else takes the `Payload` by value, and the payload is `Send`.
    unsafe impl Sync for Payload {}

    impl Payload {
        pub(super) const fn new(payload: Box<dyn Any + Send>) -> Self {
            Self(payload)
        }

        pub(super) fn message(&self) -> Option<String> {
            // `&*`: a plain `&self.0` would pass the box itself as the `Any`.
            super::payload_message(&*self.0)
        }

        pub(super) fn into_inner(self) -> Box<dyn Any + Send> {
            self.0
        }
    }
}

/// The text of a panic payload, if it is one of the two types that `panic!` makes.
///
/// [`Panic`] is `Sync` because this reads the payload as nothing but a `&'static str` or a `String`.
/// A further type may be added only if it is `Sync`.
pub(crate) fn payload_message(payload: &(dyn Any + Send)) -> Option<String> {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        Some((*text).to_owned())
    } else {
        payload.downcast_ref::<String>().cloned()
    }
}

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
/// Every `serve` returns it when the pool does not take the task, and [`DeadlineError::Refused`] holds
/// one. The closure inside is untouched: retry it, run it on the calling thread with
/// [`run`](Self::run), or drop it. A refused closure never ran, not even partly.
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

/// Why [`do_with_deadline`](crate::Pool::do_with_deadline) has no result to return.
///
/// The four variants are all there will be: match without a `_` arm. In the first two the closure never
/// ran, not even partly, and comes back. In the other two it did run, and is gone.
///
/// With `?`, this goes into a `Box<dyn Error + Send + Sync>` if the closure is `Sync`. Where it is not,
/// [`without_closure`](Self::without_closure) makes it so.
///
/// # Examples
///
/// ```
/// use lazypool::{DeadlineError, Pool};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::builder().max_workers(1).build()?;
/// match pool.do_with_deadline(|| 6 * 7, Duration::from_secs(60)) {
///     Ok(answer) => assert_eq!(answer, 42),
///     Err(DeadlineError::Refused(refused)) => println!("not taken: {refused}"),
///     Err(DeadlineError::Expired(_closure)) => println!("no worker had time for it"),
///     Err(DeadlineError::TimedOut) => println!("started, but still not done"),
///     Err(DeadlineError::Panicked(panic)) => panic.resume(),
/// }
/// # Ok(())
/// # }
/// ```
pub enum DeadlineError<F> {
    /// The pool did not take the task, or a shutdown handed it back before it started.
    Refused(Refused<F>),
    /// The deadline passed before any worker started the closure: it never ran.
    Expired(F),
    /// The deadline passed while the closure was running.
    ///
    /// It still runs, its worker is occupied until it ends, and its result will be dropped. From now on
    /// [`task::is_cancelled`](crate::task::is_cancelled) is true inside it, so that it can stop early.
    TimedOut,
    /// The closure panicked, or the drop of something it captured did. Here is the payload.
    Panicked(Panic),
}

impl<F> DeadlineError<F> {
    /// The closure, where it never ran.
    ///
    /// `Some` for [`Refused`](Self::Refused) and [`Expired`](Self::Expired), `None` for
    /// [`TimedOut`](Self::TimedOut) and [`Panicked`](Self::Panicked): running a closure again that has
    /// already run, perhaps partly, is never this error's suggestion.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::Pool;
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// // No time at all: the closure comes back at once.
    /// let error = pool.do_with_deadline(|| 6 * 7, Duration::ZERO).unwrap_err();
    /// let closure = error.into_inner().expect("it never ran");
    /// assert_eq!(closure(), 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_inner(self) -> Option<F> {
        match self {
            Self::Refused(refused) => Some(refused.into_inner()),
            Self::Expired(closure) => Some(closure),
            Self::TimedOut | Self::Panicked(_) => None,
        }
    }

    /// Drops the closure, if it came back, and keeps what happened.
    ///
    /// The result has a type that can be named, and is `'static`, `Send` and `Sync` whatever `F` was.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{DeadlineError, Pool};
    /// use std::time::Duration;
    ///
    /// fn length(pool: &Pool, text: String) -> Result<usize, DeadlineError<()>> {
    ///     pool.do_with_deadline(move || text.len(), Duration::from_secs(60))
    ///         .map_err(DeadlineError::without_closure)
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// assert_eq!(length(&pool, "hello".to_owned())?, 5);
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_closure(self) -> DeadlineError<()> {
        match self {
            Self::Refused(refused) => DeadlineError::Refused(refused.without_closure()),
            Self::Expired(closure) => {
                drop(closure);
                DeadlineError::Expired(())
            }
            Self::TimedOut => DeadlineError::TimedOut,
            Self::Panicked(panic) => DeadlineError::Panicked(panic),
        }
    }
}

impl<F> fmt::Debug for DeadlineError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => f.debug_tuple("Refused").field(refused).finish(),
            Self::Expired(_) => f.write_str("Expired(..)"),
            Self::TimedOut => f.write_str("TimedOut"),
            Self::Panicked(panic) => f.debug_tuple("Panicked").field(panic).finish(),
        }
    }
}

impl<F> fmt::Display for DeadlineError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => fmt::Display::fmt(refused, f),
            Self::Expired(_) => f.write_str(
                "the deadline passed before a worker started the closure: it never ran, and can be \
                 retried",
            ),
            Self::TimedOut => f.write_str(
                "the deadline passed while the closure was running: it runs on, and its result will \
                 be dropped",
            ),
            Self::Panicked(panic) => match panic.message() {
                Some(message) => write!(f, "the closure panicked: {message}"),
                None => f.write_str("the closure panicked with a payload that is no text"),
            },
        }
    }
}

impl<F> Error for DeadlineError<F> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(refused) => refused.source(),
            Self::Expired(_) | Self::TimedOut | Self::Panicked(_) => None,
        }
    }
}

/// Why a pool could not be built.
///
/// [`Builder::build`](crate::Builder::build) and [`Pool::new`](crate::Pool::new) return it. The fields and
/// the `Display` say what was given and what is allowed. The enum may grow: keep a `_` arm when you match
/// on it.
///
/// # Examples
///
/// ```
/// use lazypool::{BuildError, Pool};
///
/// let error = Pool::new(0).unwrap_err();
/// assert!(matches!(error, BuildError::ZeroWorkers));
/// assert_eq!(error.to_string(), "max_workers is 0; allowed: 1..=65536");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// `max_workers` is 0: such a pool could never run a task.
    ZeroWorkers,
    /// `max_workers` is larger than any pool may be.
    TooManyWorkers {
        /// The `max_workers` asked for.
        given: usize,
        /// The largest allowed.
        max: usize,
    },
    /// `min_workers` is larger than `max_workers`.
    MinExceedsMax {
        /// The `min_workers` asked for.
        min: usize,
        /// The `max_workers` it is to fit under.
        max: usize,
    },
    /// `queue_capacity` is larger than any queue may be.
    QueueTooLong {
        /// The `queue_capacity` asked for.
        given: usize,
        /// The largest allowed.
        max: usize,
    },
    /// `thread_name` contains a NUL byte, which no thread's name can.
    BadThreadName,
    /// A thread that has to exist from the start could not be started.
    ///
    /// Those that were started before it have ended again.
    Spawn(io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroWorkers => write!(f, "max_workers is 0; allowed: 1..={MAX_WORKERS}"),
            Self::TooManyWorkers { given, max } => {
                write!(f, "max_workers is {given}; allowed: 1..={max}")
            }
            Self::MinExceedsMax { min, max } => {
                write!(
                    f,
                    "min_workers is {min}; allowed: 0..={max}, as max_workers is {max}"
                )
            }
            Self::QueueTooLong { given, max } => {
                write!(f, "queue_capacity is {given}; allowed: 0..={max}")
            }
            Self::BadThreadName => {
                f.write_str("thread_name contains a NUL byte; allowed: any text without one")
            }
            Self::Spawn(_) => f.write_str(
                "a thread of the pool could not be started: lower min_workers or stack_size, or raise the \
                 system's limit on threads",
            ),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Spawn(error) => Some(error),
            Self::ZeroWorkers
            | Self::TooManyWorkers { .. }
            | Self::MinExceedsMax { .. }
            | Self::QueueTooLong { .. }
            | Self::BadThreadName => None,
        }
    }
}

/// The caught panic of a task: what [`DeadlineError::Panicked`] holds.
///
/// Read its text with [`message`](Self::message), take the payload out with
/// [`downcast`](Self::downcast) or [`into_inner`](Self::into_inner), or let the panic go on in the calling
/// thread with [`resume`](Self::resume). It is `Send` and `Sync`, so it fits into any error type.
///
/// # Examples
///
/// ```
/// use lazypool::{DeadlineError, Pool};
/// use std::time::Duration;
///
/// fn fail() -> u32 {
///     panic!("no such file");
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::builder().max_workers(1).build()?;
/// match pool.do_with_deadline(fail, Duration::MAX) {
///     Err(DeadlineError::Panicked(panic)) => {
///         assert_eq!(panic.message().as_deref(), Some("no such file"));
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Panic {
    payload: Payload,
}

impl Panic {
    pub(crate) const fn new(payload: Box<dyn Any + Send + 'static>) -> Self {
        Self {
            payload: Payload::new(payload),
        }
    }

    /// The payload as [`std::panic::catch_unwind`] would give it.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{DeadlineError, Pool};
    /// use std::time::Duration;
    ///
    /// fn fail() -> u32 {
    ///     std::panic::panic_any(7_u32);
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// if let Err(DeadlineError::Panicked(panic)) = pool.do_with_deadline(fail, Duration::MAX) {
    ///     let payload = panic.into_inner();
    ///     assert!(payload.is::<u32>());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_inner(self) -> Box<dyn Any + Send + 'static> {
        self.payload.into_inner()
    }

    /// The payload as a `T`, if it is one.
    ///
    /// # Errors
    ///
    /// The panic comes back unchanged if its payload is of another type.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{DeadlineError, Pool};
    /// use std::time::Duration;
    ///
    /// fn fail() -> u32 {
    ///     std::panic::panic_any(7_u32);
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// if let Err(DeadlineError::Panicked(panic)) = pool.do_with_deadline(fail, Duration::MAX) {
    ///     match panic.downcast::<u32>() {
    ///         Ok(code) => assert_eq!(*code, 7),
    ///         Err(unknown) => unknown.resume(),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn downcast<T: 'static>(self) -> Result<Box<T>, Self> {
        self.into_inner().downcast().map_err(Self::new)
    }

    /// The text of the panic, where the payload is a `&'static str` or a `String`.
    ///
    /// `panic!` with a message makes one of the two. `None` means that the payload is of another type, as
    /// [`std::panic::panic_any`] can make it.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{DeadlineError, Pool};
    /// use std::time::Duration;
    ///
    /// fn fail() -> u32 {
    ///     panic!("line {} is empty", 3);
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// if let Err(DeadlineError::Panicked(panic)) = pool.do_with_deadline(fail, Duration::MAX) {
    ///     assert_eq!(panic.message().as_deref(), Some("line 3 is empty"));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn message(&self) -> Option<String> {
        self.payload.message()
    }

    /// Lets the panic go on in the calling thread, as if the closure had run there.
    ///
    /// The process's panic hook has seen the panic on the worker and is not called again.
    ///
    /// # Panics
    ///
    /// Always, with this payload.
    ///
    /// # Examples
    ///
    /// ```should_panic
    /// use lazypool::{DeadlineError, Pool};
    /// use std::time::Duration;
    ///
    /// fn fail() -> u32 {
    ///     panic!("goes on in the caller");
    /// }
    ///
    /// let pool = Pool::builder().max_workers(1).build().unwrap();
    /// if let Err(DeadlineError::Panicked(panic)) = pool.do_with_deadline(fail, Duration::MAX) {
    ///     panic.resume();
    /// }
    /// ```
    pub fn resume(self) -> ! {
        std::panic::resume_unwind(self.into_inner())
    }
}

impl fmt::Debug for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Panic")
            .field("message", &self.message())
            .finish_non_exhaustive()
    }
}

/// A task's panic, as the [`on_panic`](crate::Builder::on_panic) hook sees it.
///
/// The hook runs on the worker, before the caller that waits for the task, if there is one, gets the
/// payload as a [`Panic`]. Later versions may add fields.
///
/// # Examples
///
/// ```
/// use lazypool::Pool;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::builder()
///     .max_workers(1)
///     .on_panic(|panic| {
///         let task = panic.label.unwrap_or("a task");
///         let message = panic.message().unwrap_or_default();
///         eprintln!("{task} panicked on worker {}: {message}", panic.slot);
///     })
///     .build()?;
/// pool.labelled("import").serve(|| panic!("line 3 is empty"))?;
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
pub struct TaskPanic<'a> {
    /// The slot of the worker that ran the task.
    pub slot: usize,
    /// The task's label, if it was submitted through [`Pool::labelled`](crate::Pool::labelled).
    pub label: Option<&'static str>,
    /// What the task panicked with.
    pub payload: &'a (dyn Any + Send),
}

impl<'a> TaskPanic<'a> {
    pub(crate) const fn new(
        slot: usize,
        label: Option<&'static str>,
        payload: &'a (dyn Any + Send),
    ) -> Self {
        Self {
            slot,
            label,
            payload,
        }
    }

    /// The text of the panic, where the payload is a `&'static str` or a `String`.
    ///
    /// The same as [`Panic::message`].
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::Pool;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder()
    ///     .max_workers(1)
    ///     .on_panic(|panic| match panic.message() {
    ///         Some(message) => eprintln!("a task panicked: {message}"),
    ///         None => eprintln!("a task panicked"),
    ///     })
    ///     .build()?;
    /// pool.serve(|| panic!("line 3 is empty"))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn message(&self) -> Option<String> {
        payload_message(self.payload)
    }
}

impl fmt::Debug for TaskPanic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text in place of the payload, of which a derive would print "Any { .. }".
        f.debug_struct("TaskPanic")
            .field("slot", &self.slot)
            .field("label", &self.label)
            .field("message", &self.message())
            .finish_non_exhaustive()
    }
}

/// A wait that ran out of time: what [`Group::wait_timeout`](crate::Group::wait_timeout) returns while
/// tasks of the group are still pending.
///
/// # Examples
///
/// ```
/// use lazypool::Pool;
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::builder().max_workers(1).build()?;
/// let group = pool.group();
/// let (release, gate) = mpsc::channel::<()>();
/// group.serve(move || gate.recv().unwrap_or_default())?;
///
/// let unfinished = group.wait_timeout(Duration::from_millis(1)).unwrap_err();
/// assert_eq!(unfinished.pending(), 1);
/// drop(release);
/// group.wait();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    pending: usize,
}

impl Unfinished {
    pub(crate) const fn new(pending: usize) -> Self {
        Self { pending }
    }

    /// How many tasks had not ended when the wait gave up. Some may have ended since.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::Pool;
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// let group = pool.group();
    /// group.serve(|| println!("quick"))?;
    /// if let Err(unfinished) = group.wait_timeout(Duration::from_secs(60)) {
    ///     println!("{} still to go", unfinished.pending());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub const fn pending(&self) -> usize {
        self.pending
    }
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks = if self.pending == 1 { "task" } else { "tasks" };
        write!(
            f,
            "the time to wait has passed with {} {tasks} not ended",
            self.pending
        )
    }
}

impl Error for Unfinished {}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::marker::PhantomData;
    use std::panic::{catch_unwind, AssertUnwindSafe};
    use std::rc::Rc;
    use std::thread;

    use super::*;

    /// Answers whether the type of a value is `Send` or `Sync`: where the bound holds, the inherent
    /// method is found before the trait's.
    struct Probe<T>(PhantomData<T>);

    fn probe<T>(_: &T) -> Probe<T> {
        Probe(PhantomData)
    }

    impl<T: Send> Probe<T> {
        fn is_send(&self) -> bool {
            true
        }
    }

    impl<T: Sync> Probe<T> {
        fn is_sync(&self) -> bool {
            true
        }
    }

    trait Otherwise {
        fn is_send(&self) -> bool {
            false
        }
        fn is_sync(&self) -> bool {
            false
        }
    }

    impl<T> Otherwise for Probe<T> {}

    fn spawn_error() -> io::Error {
        io::Error::new(io::ErrorKind::WouldBlock, "no more threads")
    }

    fn refusals() -> [Refusal; 4] {
        [
            Refusal::Saturated,
            Refusal::Closed,
            Refusal::Cancelled,
            Refusal::SpawnFailed(spawn_error()),
        ]
    }

    /// Sets its cell when it is dropped.
    struct Flag(Rc<Cell<bool>>);

    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }

    #[test]
    fn refused_is_sync_for_every_closure_and_send_with_a_send_one() {
        let not_send = Rc::new(1);
        let refused = Refused::new(move || *not_send, Refusal::Saturated);
        assert!(probe(&refused).is_sync());
        // Not asked of a closure: what one captures is settled too late for the probe to say no.
        assert!(!probe(&Refused::new(Rc::new(1), Refusal::Saturated)).is_send());

        let send_not_sync = Cell::new(1);
        let refused = Refused::new(
            move || send_not_sync.get(),
            Refusal::SpawnFailed(spawn_error()),
        );
        assert!(probe(&refused).is_sync());
        assert!(probe(&refused).is_send());
        assert!(probe(&refused.without_closure()).is_send());
    }

    #[test]
    fn deadline_error_is_as_send_and_sync_as_its_closure() {
        let error = DeadlineError::Expired(Cell::new(1));
        assert!(probe(&error).is_send());
        assert!(!probe(&error).is_sync());

        let error = DeadlineError::Expired(Rc::new(1)).without_closure();
        assert!(probe(&error).is_send());
        assert!(probe(&error).is_sync());
    }

    #[test]
    fn the_other_errors_are_send_and_sync() {
        let panic = Panic::new(Box::new(Cell::new(1)));
        assert!(probe(&panic).is_send() && probe(&panic).is_sync());
        let error = BuildError::Spawn(spawn_error());
        assert!(probe(&error).is_send() && probe(&error).is_sync());
        let error = Unfinished::new(1);
        assert!(probe(&error).is_send() && probe(&error).is_sync());
    }

    #[test]
    fn a_shared_panic_can_be_read_from_other_threads() {
        let opaque = Panic::new(Box::new(Cell::new(1)));
        let text = Panic::new(Box::new("boom"));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    assert_eq!(opaque.message(), None);
                    assert_eq!(text.message().as_deref(), Some("boom"));
                });
            }
        });
    }

    #[test]
    fn question_mark_boxes_every_error() {
        type Boxed = Box<dyn Error + Send + Sync>;

        fn refused() -> Result<(), Boxed> {
            let not_sync = Cell::new(1);
            Err(Refused::new(move || not_sync.get(), Refusal::Closed))?
        }
        fn refused_without_closure() -> Result<(), Boxed> {
            let not_send = Rc::new(1);
            Err(Refused::new(not_send, Refusal::Closed).without_closure())?
        }
        fn deadline() -> Result<(), Boxed> {
            let sync = 1;
            Err(DeadlineError::Expired(move || sync))?
        }
        fn deadline_without_closure() -> Result<(), Boxed> {
            let not_send = Rc::new(1);
            Err(DeadlineError::Expired(not_send).without_closure())?
        }
        fn build() -> Result<(), Boxed> {
            Err(BuildError::ZeroWorkers)?
        }
        fn unfinished() -> Result<(), Boxed> {
            Err(Unfinished::new(1))?
        }

        assert!(refused().unwrap_err().to_string().contains("shut down"));
        let error = refused_without_closure().unwrap_err();
        assert!(error.downcast_ref::<Refused<()>>().unwrap().is_closed());
        assert!(deadline().unwrap_err().to_string().contains("never ran"));
        let error = deadline_without_closure().unwrap_err();
        assert!(error.is::<DeadlineError<()>>());
        assert!(build().unwrap_err().is::<BuildError>());
        assert!(unfinished().unwrap_err().is::<Unfinished>());
    }

    #[test]
    fn refused_gives_its_closure_back_unrun() {
        let runs = Cell::new(0);
        let refused = Refused::new(|| runs.set(runs.get() + 1), Refusal::Saturated);
        assert!(matches!(refused.reason(), Refusal::Saturated));
        let closure = refused.into_inner();
        assert_eq!(runs.get(), 0);
        closure();
        assert_eq!(runs.get(), 1);
    }

    #[test]
    fn run_runs_the_closure_once_and_returns_its_value() {
        let runs = Cell::new(0);
        let task = || {
            runs.set(runs.get() + 1);
            "value"
        };
        assert_eq!(Refused::new(task, Refusal::Closed).run(), "value");
        assert_eq!(runs.get(), 1);

        fn refuse<F>(closure: F) -> Result<&'static str, Refused<F>> {
            Err(Refused::new(closure, Refusal::Saturated))
        }
        assert_eq!(refuse(task).unwrap_or_else(Refused::run), "value");
        assert_eq!(runs.get(), 2);
    }

    #[test]
    fn a_panic_in_run_reaches_the_caller() {
        let refused = Refused::new(|| std::panic::resume_unwind(Box::new(7)), Refusal::Closed);
        let payload = catch_unwind(AssertUnwindSafe(|| refused.run::<()>())).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&7));
    }

    #[test]
    fn map_changes_the_closure_and_keeps_the_reason() {
        let refused = Refused::new(20, Refusal::SpawnFailed(spawn_error())).map(|n| n + 1);
        assert!(matches!(refused.reason(), Refusal::SpawnFailed(_)));
        assert_eq!(refused.into_inner(), 21);
    }

    #[test]
    fn without_closure_drops_the_closure_and_keeps_the_rest() {
        let dropped = Rc::new(Cell::new(false));
        let refused = Refused::new(Flag(dropped.clone()), Refusal::Cancelled).without_closure();
        assert!(dropped.get());
        assert!(matches!(refused.reason(), Refusal::Cancelled));

        let dropped = Rc::new(Cell::new(false));
        let error = DeadlineError::Expired(Flag(dropped.clone())).without_closure();
        assert!(dropped.get());
        assert!(matches!(error, DeadlineError::Expired(())));

        let error = DeadlineError::Refused(Refused::new(1, Refusal::Closed)).without_closure();
        assert!(matches!(error, DeadlineError::Refused(refused) if refused.is_closed()));
        let error = DeadlineError::<i32>::TimedOut.without_closure();
        assert!(matches!(error, DeadlineError::TimedOut));
        let panic = Panic::new(Box::new("boom"));
        let error = DeadlineError::<i32>::Panicked(panic).without_closure();
        assert!(
            matches!(error, DeadlineError::Panicked(panic) if panic.message().unwrap() == "boom")
        );
    }

    #[test]
    fn the_two_questions_tell_the_reasons_apart() {
        let answers = refusals().map(|reason| {
            let refused = Refused::new((), reason);
            (refused.is_saturated(), refused.is_closed())
        });
        let neither = (false, false);
        assert_eq!(answers, [(true, false), (false, true), neither, neither]);
    }

    #[test]
    fn only_a_closure_that_never_ran_comes_out_of_a_deadline_error() {
        let refused = Refused::new(1, Refusal::Saturated);
        assert_eq!(DeadlineError::Refused(refused).into_inner(), Some(1));
        assert_eq!(DeadlineError::Expired(2).into_inner(), Some(2));
        assert_eq!(DeadlineError::<i32>::TimedOut.into_inner(), None);
        let panic = Panic::new(Box::new("boom"));
        assert_eq!(DeadlineError::<i32>::Panicked(panic).into_inner(), None);
    }

    #[test]
    fn every_refusal_names_its_remedy() {
        let [saturated, closed, cancelled, spawn_failed] = refusals().map(|r| r.to_string());
        assert_eq!(
            saturated,
            "the pool is saturated: retry later, run the closure yourself, raise max_workers or \
             queue_capacity, or build with WhenFull::Block"
        );
        assert_eq!(
            closed,
            "the pool is shut down: run the closure yourself, or submit it to another pool"
        );
        assert_eq!(
            cancelled,
            "the group is cancelled: submit the closure to the pool or to a new group, or drop it"
        );
        assert_eq!(
            spawn_failed,
            "no worker thread could be started: retry later, run the closure yourself, lower \
             max_workers or stack_size, or raise the system's limit on threads"
        );
    }

    #[test]
    fn an_error_with_a_refusal_inside_says_what_the_refusal_says() {
        for (reason, again) in refusals().into_iter().zip(refusals()) {
            let text = reason.to_string();
            assert_eq!(Refused::new(Rc::new(1), reason).to_string(), text);
            let refused = Refused::new(Rc::new(1), again);
            assert_eq!(DeadlineError::Refused(refused).to_string(), text);
        }
    }

    #[test]
    fn deadline_errors_say_what_became_of_the_closure() {
        assert_eq!(
            DeadlineError::Expired(()).to_string(),
            "the deadline passed before a worker started the closure: it never ran, and can be retried"
        );
        assert_eq!(
            DeadlineError::<()>::TimedOut.to_string(),
            "the deadline passed while the closure was running: it runs on, and its result will be dropped"
        );
        let panicked = |payload| DeadlineError::<()>::Panicked(Panic::new(payload)).to_string();
        assert_eq!(panicked(Box::new("boom")), "the closure panicked: boom");
        assert_eq!(
            panicked(Box::new(7)),
            "the closure panicked with a payload that is no text"
        );
    }

    #[test]
    fn build_errors_say_what_was_given_and_what_is_allowed() {
        let max = MAX_WORKERS;
        let texts = [
            BuildError::ZeroWorkers,
            BuildError::TooManyWorkers { given: 70_000, max },
            BuildError::MinExceedsMax { min: 5, max: 4 },
            BuildError::QueueTooLong {
                given: 20_000_000,
                max: MAX_QUEUE,
            },
            BuildError::BadThreadName,
            BuildError::Spawn(spawn_error()),
        ]
        .map(|error| error.to_string());
        assert_eq!(
            texts,
            [
                "max_workers is 0; allowed: 1..=65536",
                "max_workers is 70000; allowed: 1..=65536",
                "min_workers is 5; allowed: 0..=4, as max_workers is 4",
                "queue_capacity is 20000000; allowed: 0..=16777216",
                "thread_name contains a NUL byte; allowed: any text without one",
                "a thread of the pool could not be started: lower min_workers or stack_size, or raise the \
                 system's limit on threads",
            ]
        );
    }

    #[test]
    fn unfinished_counts_what_is_pending() {
        assert_eq!(Unfinished::new(3).pending(), 3);
        let one = "the time to wait has passed with 1 task not ended";
        assert_eq!(Unfinished::new(1).to_string(), one);
        let two = "the time to wait has passed with 2 tasks not ended";
        assert_eq!(Unfinished::new(2).to_string(), two);
    }

    #[test]
    fn source_is_the_io_error_where_there_is_one() {
        fn is_spawn_error(error: &dyn Error) -> bool {
            error
                .source()
                .and_then(|source| source.downcast_ref::<io::Error>())
                .is_some_and(|source| source.kind() == io::ErrorKind::WouldBlock)
        }

        let refused = || Refused::new((), Refusal::SpawnFailed(spawn_error()));
        assert!(is_spawn_error(refused().reason()));
        assert!(is_spawn_error(&refused()));
        assert!(is_spawn_error(&refused().without_closure()));
        assert!(is_spawn_error(&DeadlineError::Refused(refused())));
        assert!(is_spawn_error(&BuildError::Spawn(spawn_error())));
    }

    #[test]
    fn source_is_none_elsewhere() {
        for reason in [Refusal::Saturated, Refusal::Closed, Refusal::Cancelled] {
            assert!(reason.source().is_none());
            assert!(Refused::new((), reason).source().is_none());
        }
        assert!(DeadlineError::Expired(()).source().is_none());
        assert!(DeadlineError::<()>::TimedOut.source().is_none());
        let panic = Panic::new(Box::new("boom"));
        assert!(DeadlineError::<()>::Panicked(panic).source().is_none());
        assert!(BuildError::ZeroWorkers.source().is_none());
        assert!(BuildError::BadThreadName.source().is_none());
        assert!(Unfinished::new(1).source().is_none());
    }

    #[test]
    fn debug_needs_nothing_of_the_closure() {
        let refused = Refused::new(|| (), Refusal::Saturated);
        assert_eq!(format!("{refused:?}"), "Refused { reason: Saturated, .. }");
        let error = DeadlineError::Refused(refused);
        assert_eq!(
            format!("{error:?}"),
            "Refused(Refused { reason: Saturated, .. })"
        );
        assert_eq!(
            format!("{:?}", DeadlineError::Expired(|| ())),
            "Expired(..)"
        );
        assert_eq!(format!("{:?}", DeadlineError::<()>::TimedOut), "TimedOut");
        let error = DeadlineError::<()>::Panicked(Panic::new(Box::new("boom")));
        assert_eq!(
            format!("{error:?}"),
            r#"Panicked(Panic { message: Some("boom"), .. })"#
        );
    }

    #[test]
    fn message_reads_both_kinds_of_text_and_no_other() {
        let message = |payload| Panic::new(payload).message();
        assert_eq!(message(Box::new("text")).as_deref(), Some("text"));
        let owned = String::from("owned");
        assert_eq!(message(Box::new(owned)).as_deref(), Some("owned"));
        assert_eq!(message(Box::new(7)), None);
        // A payload that is itself a box is not opened.
        let boxed: Box<dyn Any + Send> = Box::new("inner");
        assert_eq!(message(Box::new(boxed)), None);
    }

    #[test]
    fn message_reads_what_the_panic_macro_made() {
        let caught = catch_unwind(|| panic!("line {} is empty", 3)).unwrap_err();
        assert_eq!(
            Panic::new(caught).message().as_deref(),
            Some("line 3 is empty")
        );
        let caught = catch_unwind(|| panic!("boom")).unwrap_err();
        assert_eq!(Panic::new(caught).message().as_deref(), Some("boom"));
    }

    #[test]
    fn downcast_gives_the_payload_or_the_panic_back() {
        let panic = Panic::new(Box::new(7_u32));
        let panic = panic.downcast::<String>().expect_err("it is a u32");
        assert_eq!(*panic.downcast::<u32>().expect("it is a u32"), 7);
    }

    #[test]
    fn into_inner_gives_the_payload_itself() {
        let payload = Panic::new(Box::new(7_u32)).into_inner();
        assert_eq!(payload.downcast_ref::<u32>(), Some(&7));
    }

    #[test]
    fn resume_goes_on_with_the_same_payload() {
        let panic = Panic::new(Box::new(7_u32));
        let payload = catch_unwind(AssertUnwindSafe(|| panic.resume())).unwrap_err();
        assert_eq!(payload.downcast_ref::<u32>(), Some(&7));
    }

    #[test]
    fn task_panic_shows_where_and_what() {
        let panic = TaskPanic::new(2, Some("import"), &"boom");
        assert_eq!(panic.slot, 2);
        assert_eq!(panic.label, Some("import"));
        assert!(panic.payload.is::<&'static str>());
        assert_eq!(panic.message().as_deref(), Some("boom"));
        assert_eq!(
            format!("{panic:?}"),
            r#"TaskPanic { slot: 2, label: Some("import"), message: Some("boom"), .. }"#
        );
        assert_eq!(TaskPanic::new(0, None, &7).message(), None);
    }
}
