//! Functions with which the code inside a task asks about that task.
//!
//! A task can ask whether its result is still wanted, which deadline and which label it has, and
//! which worker runs it. On a thread that is not a worker of a pool these functions return `false`
//! or `None`.

use crate::sync::{now, to_std};
use crate::work::context::with_current;
use std::time::{Duration, Instant};

/// Returns `true` if this task should stop early, because its result is no longer wanted.
///
/// The result is `true` once one of these has happened: the task's caller has left at its deadline,
/// the task is past a deadline of its own ([`with_deadline`](crate::Submitter::with_deadline),
/// [`run_limit`](crate::Submitter::run_limit)), its [group](crate::Group::cancel) or its
/// [handle](crate::Handle::cancel) has been cancelled, its handle has been dropped, or its pool has
/// been shut down with [`Shutdown::Cancel`](crate::Shutdown::Cancel). It is `false` outside a
/// worker.
///
/// A pool cannot stop a task by force. A task that may take long should call this now and then.
///
/// ```
/// use std::time::Duration;
/// let pool = lazypool::Pool::new(1)?;
/// let left = pool.do_with_deadline(
///     || {
///         while !lazypool::task::is_cancelled() {
///             std::thread::yield_now();
///         }
///     },
///     Duration::from_millis(5),
/// );
/// // The result is `Expired` if the OS took longer than these 5 ms to start the worker.
/// use lazypool::DeadlineError::{Expired, TimedOut};
/// assert!(matches!(left, Err(TimedOut | Expired(_))));
/// assert!(!lazypool::task::is_cancelled());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn is_cancelled() -> bool {
    with_current(|ctx| ctx.is_cancelled())
}

/// Returns the deadline of this task.
///
/// If the task has several deadlines, such as that of its caller and that of a
/// [`run_limit`](crate::Submitter::run_limit), returns the earliest. Returns `None` if the task has
/// no deadline: it was served without [`with_deadline`](crate::Submitter::with_deadline) and
/// `run_limit`, or its timeout is [`Duration::MAX`]. Also returns `None` outside a worker.
///
/// ```
/// use std::time::{Duration, Instant};
/// let pool = lazypool::Pool::new(1)?;
/// let at = pool.do_with_deadline(lazypool::task::deadline, Duration::from_secs(60));
/// assert!(at?.unwrap() > Instant::now());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn deadline() -> Option<Instant> {
    with_current(|ctx| ctx.deadline()).map(to_std)
}

/// Returns the time that is left until the [`deadline`] of this task.
///
/// Returns zero once the deadline has passed. Returns `None` if the task has no deadline, and
/// outside a worker.
///
/// ```
/// use std::time::Duration;
/// let pool = lazypool::Pool::new(1)?;
/// let left = pool.do_with_deadline(lazypool::task::remaining, Duration::from_secs(60));
/// assert!(left?.unwrap() <= Duration::from_secs(60));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn remaining() -> Option<Duration> {
    with_current(|ctx| ctx.deadline()).map(|d| d.saturating_duration_since(now()))
}

/// Returns the label that this task was submitted with; see
/// [`Pool::labeled`](crate::Pool::labeled).
///
/// Returns `None` for a task without a label, and outside a worker.
///
/// ```
/// # use std::time::Duration;
/// let pool = lazypool::Pool::new(1)?;
/// let label = pool.labeled("parse").do_with_deadline(lazypool::task::label, Duration::MAX);
/// assert_eq!(label?, Some("parse"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn label() -> Option<&'static str> {
    with_current(|ctx| ctx.label.get())
}

/// Returns the slot of the worker that runs this task.
///
/// A slot is a worker's place in its pool: a number from 0 up to but not including
/// [`max_workers`](crate::Pool::max_workers). Outside a worker, this returns `None`.
///
/// ```
/// # use std::time::Duration;
/// let pool = lazypool::Pool::new(1)?;
/// let slot = pool.do_with_deadline(lazypool::task::slot, Duration::MAX);
/// assert_eq!(slot?, Some(0));
/// assert_eq!(lazypool::task::slot(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A slot has at most one worker at a time. Its number can therefore index data of a worker's own,
/// such as a connection. No two tasks use the lock around an entry at once. Unlike a thread-local value,
/// an entry outlives the thread: the next worker in the slot finds it. A hook set by
/// [`Builder::on_worker_stop`](crate::Builder::on_worker_stop) must not remove it: the worker has left its slot
/// by then, so the entry may be that of the next one.
///
/// ```
/// use lazypool::{task, Pool};
/// use std::sync::{Arc, Mutex};
///
/// struct Connection {
///     queries: u32,
/// }
///
/// let pool = Pool::builder().max_workers(4).queue_capacity(100).build()?;
/// let own: Arc<[Mutex<Option<Connection>>]> =
///     (0..pool.max_workers()).map(|_| Mutex::new(None)).collect();
/// let group = pool.group();
/// for _ in 0..100 {
///     let own = Arc::clone(&own);
///     group.serve(move || {
///         let slot = task::slot().expect("on a worker");
///         // Do not submit such tasks while this lock is held. If one is refused and then runs
///         // on this thread, it waits forever for the lock that this task holds.
///         let mut own = own[slot].lock().unwrap();
///         let connection = own.get_or_insert_with(|| Connection { queries: 0 }); // connects
///         connection.queries += 1;
///     })?;
/// }
/// group.wait();
/// let queries = |own: &Mutex<Option<Connection>>| own.lock().unwrap().as_ref().map(|c| c.queries);
/// assert_eq!(own.iter().filter_map(queries).sum::<u32>(), 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("worker_local", "index"))]
#[must_use]
pub fn slot() -> Option<usize> {
    with_current(|ctx| Some(ctx.slot))
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
