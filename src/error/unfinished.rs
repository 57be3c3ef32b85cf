//! A wait that ran out of time.

use std::error::Error;
use std::fmt;

/// The error that [`Group::wait_timeout`](crate::Group::wait_timeout) returns if the timeout
/// elapses while tasks of the group are still pending.
///
/// # Examples
///
/// ```
/// use lazypool::Pool;
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// let pool = Pool::builder().max_workers(1).build()?;
/// let group = pool.group();
/// let (release, gate) = mpsc::channel::<()>();
/// group.serve(move || gate.recv().unwrap_or_default())?;
///
/// let unfinished = group.wait_timeout(Duration::from_millis(1)).unwrap_err();
/// assert_eq!(unfinished.pending(), 1);
/// drop(release);
/// group.wait();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    pending: usize,
}

impl Unfinished {
    pub(crate) const fn new(pending: usize) -> Self {
        Self { pending }
    }

    /// Returns how many tasks had not ended when the wait ended. Some may have ended since.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::Pool;
    /// use std::time::Duration;
    ///
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// let group = pool.group();
    /// group.serve(|| println!("quick"))?;
    /// if let Err(unfinished) = group.wait_timeout(Duration::from_secs(60)) {
    ///     println!("{} still to go", unfinished.pending());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn pending(&self) -> usize {
        self.pending
    }
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pending {
            1 => f.write_str("the wait timed out: 1 task has not ended"),
            pending => write!(f, "the wait timed out: {pending} tasks have not ended"),
        }
    }
}

impl Error for Unfinished {}
