//! For the code inside a task: whether anybody still waits for it, how long, and
//! what it is called. Outside a worker these functions say `false` or `None`.

use crate::sync::{now, told};
use crate::work::context::{with_current, Ctx};
use std::time::{Duration, Instant};

/// Whether the caller of this task left at its deadline, or its group or pool
/// was cancelled. `false` outside a worker.
///
/// Long tasks look at it now and then and return early.
///
/// ```
/// use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = lazypool::Pool::new(1)?;
/// let left = pool.do_with_deadline(
///     || {
///         while !lazypool::task::is_cancelled() {
///             std::thread::yield_now();
///         }
///     },
///     Duration::from_millis(5),
/// );
/// // `Expired` where the system took longer than that to start the worker.
/// use lazypool::DeadlineError::{Expired, TimedOut};
/// assert!(matches!(left, Err(TimedOut | Expired(_))));
/// assert!(!lazypool::task::is_cancelled());
/// # Ok(()) }
/// ```
#[must_use]
pub fn is_cancelled() -> bool {
    with_current(|ctx| ctx.is_some_and(Ctx::is_cancelled))
}

/// When the caller of this task leaves; `None` under `serve`, for a deadline of
/// [`Duration::MAX`] and outside a worker.
///
/// ```
/// use std::time::{Duration, Instant};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = lazypool::Pool::new(1)?;
/// let at = pool.do_with_deadline(lazypool::task::deadline, Duration::from_secs(60));
/// assert!(at?.unwrap() > Instant::now());
/// # Ok(()) }
/// ```
#[must_use]
pub fn deadline() -> Option<Instant> {
    with_current(|ctx| ctx?.deadline()).map(told)
}

/// How long the caller of this task still waits (zero once it has left); `None`
/// where [`deadline`] is.
///
/// ```
/// use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = lazypool::Pool::new(1)?;
/// let left = pool.do_with_deadline(lazypool::task::remaining, Duration::from_secs(60));
/// assert!(left?.unwrap() <= Duration::from_secs(60));
/// # Ok(()) }
/// ```
#[must_use]
pub fn remaining() -> Option<Duration> {
    with_current(|ctx| ctx?.deadline()).map(|d| d.saturating_duration_since(now()))
}

/// The label this task was submitted with; see
/// [`Pool::labelled`](crate::Pool::labelled).
///
/// ```
/// # use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = lazypool::Pool::new(1)?;
/// let label = pool.labelled("parse").do_with_deadline(lazypool::task::label, Duration::MAX);
/// assert_eq!(label?, Some("parse"));
/// # Ok(()) }
/// ```
#[must_use]
pub fn label() -> Option<&'static str> {
    with_current(|ctx| ctx.and_then(Ctx::label))
}

/// The slot of the worker that this thread is, below
/// [`max_workers`](crate::Pool::max_workers); `None` outside a worker.
///
/// ```
/// # use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = lazypool::Pool::new(1)?;
/// let slot = pool.do_with_deadline(lazypool::task::slot, Duration::MAX);
/// assert_eq!(slot?, Some(0));
/// assert_eq!(lazypool::task::slot(), None);
/// # Ok(()) }
/// ```
#[must_use]
pub fn slot() -> Option<usize> {
    with_current(|ctx| ctx.map(|c| c.slot))
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn outside_a_worker_there_is_nothing_to_know() {
        assert!(!is_cancelled());
        assert_eq!(
            (deadline(), remaining(), label(), slot()),
            (None, None, None, None)
        );
    }
}
