//! The panic of a task, for its caller and for the hook.

use std::any::Any;
use std::fmt;

use super::hidden::{payload_message, Payload};

/// The panic of a task, which the pool has caught.
///
/// [`DeadlineError::Panicked`](crate::DeadlineError::Panicked) holds one.
/// [`message`](Self::message) returns its text, [`downcast`](Self::downcast) and
/// [`into_inner`](Self::into_inner) return its payload, and [`resume`](Self::resume) continues the
/// panic on the calling thread. `Display` writes the text. A `Panic` is `Send` and `Sync`, so any
/// error type can hold it.
///
/// # Examples
///
/// ```
/// use lazypool::{DeadlineError, Pool};
/// use std::time::Duration;
///
/// let fail = || -> u32 { panic!("no such file") };
/// let pool = Pool::builder().max_workers(1).build()?;
/// match pool.do_with_deadline(fail, Duration::MAX) {
///     Err(DeadlineError::Panicked(panic)) => {
///         assert_eq!(panic.message().as_deref(), Some("no such file"));
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
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

    /// Returns the payload, as [`std::panic::catch_unwind`] would return it.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{DeadlineError, Pool};
    /// use std::time::Duration;
    ///
    /// let fail = || -> u32 { std::panic::panic_any(7_u32) };
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// if let Err(DeadlineError::Panicked(panic)) = pool.do_with_deadline(fail, Duration::MAX) {
    ///     let payload = panic.into_inner();
    ///     assert!(payload.is::<u32>());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_inner(self) -> Box<dyn Any + Send + 'static> {
        self.payload.into_inner()
    }

    /// Returns the payload as a `T`, if it is one.
    ///
    /// # Errors
    ///
    /// Returns the panic itself, unchanged, if its payload is of another type.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{DeadlineError, Pool};
    /// use std::time::Duration;
    ///
    /// let fail = || -> u32 { std::panic::panic_any(7_u32) };
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// if let Err(DeadlineError::Panicked(panic)) = pool.do_with_deadline(fail, Duration::MAX) {
    ///     match panic.downcast::<u32>() {
    ///         Ok(code) => assert_eq!(*code, 7),
    ///         Err(unknown) => unknown.resume(),
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn downcast<T: 'static>(self) -> Result<Box<T>, Self> {
        self.into_inner().downcast().map_err(Self::new)
    }

    /// Returns the text of the panic, if the payload is a `&'static str` or a `String`.
    ///
    /// The payload of `panic!` with a message is of one of these two types. `None` means that the
    /// payload is of another type, as with [`std::panic::panic_any`].
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{DeadlineError, Pool};
    /// use std::time::Duration;
    ///
    /// let fail = || -> u32 { panic!("line {} is empty", 3) };
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// if let Err(DeadlineError::Panicked(panic)) = pool.do_with_deadline(fail, Duration::MAX) {
    ///     assert_eq!(panic.message().as_deref(), Some("line 3 is empty"));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn message(&self) -> Option<String> {
        self.payload.message()
    }

    /// Continues the panic on the calling thread, as if the closure had run there.
    ///
    /// The panic hook of the process was called when the task panicked, and is not called again.
    ///
    /// # Panics
    ///
    /// Always panics, with the payload of this panic.
    ///
    /// # Examples
    ///
    /// ```should_panic
    /// use lazypool::{DeadlineError, Pool};
    /// use std::time::Duration;
    ///
    /// let fail = || -> u32 { panic!("goes on in the caller") };
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

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message() {
            Some(message) => write!(f, "the closure panicked: {message}"),
            None => f.write_str("the closure panicked with a payload that is not text"),
        }
    }
}

/// The panic of a task, as the hook [`on_panic`](crate::Builder::on_panic) gets it.
///
/// The hook runs on the worker. Once it has returned, the payload goes as a [`Panic`] to the caller
/// that waits for the task, or to the task's handle. Later versions may add fields.
///
/// # Examples
///
/// ```
/// use lazypool::Pool;
///
/// let pool = Pool::builder()
///     .max_workers(1)
///     .on_panic(|panic| {
///         let task = panic.label.unwrap_or("a task");
///         let message = panic.message().unwrap_or_default();
///         eprintln!("{task} panicked on worker {}: {message}", panic.slot);
///     })
///     .build()?;
/// pool.labeled("import").serve(|| panic!("line 3 is empty"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
pub struct TaskPanic<'a> {
    /// The slot of the worker that ran the task.
    pub slot: usize,
    /// The task's label, if it was submitted through [`Pool::labeled`](crate::Pool::labeled).
    pub label: Option<&'static str>,
    /// The payload of the panic.
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

    /// Returns the text of the panic, if the payload is a `&'static str` or a `String`; see
    /// [`Panic::message`].
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::Pool;
    ///
    /// let pool = Pool::builder()
    ///     .max_workers(1)
    ///     .on_panic(|panic| match panic.message() {
    ///         Some(message) => eprintln!("a task panicked: {message}"),
    ///         None => eprintln!("a task panicked"),
    ///     })
    ///     .build()?;
    /// pool.serve(|| panic!("line 3 is empty"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn message(&self) -> Option<String> {
        payload_message(self.payload)
    }
}

impl fmt::Debug for TaskPanic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Print the text of the payload. A derive would print "Any { .. }".
        f.debug_struct("TaskPanic")
            .field("slot", &self.slot)
            .field("label", &self.label)
            .field("message", &self.message())
            .finish_non_exhaustive()
    }
}
