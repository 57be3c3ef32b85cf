//! A wait that ran out of time.

use std::error::Error;
use std::fmt;

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
