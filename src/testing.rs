//! Helpers for tests of code that uses a pool.
//!
//! The guide [`docs::testing`](crate::docs::testing) shows how to test such code without sleeps.

use crate::error::Refused;
use crate::pool::Pool;
use crate::stats::WhenFull;
use std::sync::mpsc::{channel, Sender};
use std::time::Duration;

/// The time that [`hold`] waits for a worker. It is far longer than the start of a thread takes, so
/// that it passes only if the worker is busy.
const LIMIT: Duration = Duration::from_secs(30);

/// Occupies every worker of an idle pool until the returned value is dropped.
///
/// When this call returns, [`limit`](Pool::limit) tasks run, one on each worker, and nothing is
/// queued. From then on nothing depends on speed: further tasks go into the queue, a full queue
/// refuses, and a queued task does not start before its deadline passes.
///
/// These tasks have the label `held`. The pool counts them like others, for instance in
/// [`Stats::accepted`](crate::Stats::accepted).
///
/// Declare the value after the pool, so that it is dropped first: a drop of the pool, and a
/// [`shutdown`](Pool::shutdown) that drains, wait for these tasks.
///
/// # Panics
/// Panics if the pool refuses one of the tasks, or if a worker is busy with another task for 30
/// seconds.
///
/// ```
/// use lazypool::{testing, DeadlineError, Pool};
/// use std::time::Duration;
/// let pool = Pool::builder().max_workers(2).queue_capacity(1).build()?;
/// let held = testing::hold(&pool);
/// assert_eq!((pool.stats().running, pool.stats().queued), (2, 0));
///
/// // No worker can start this in time, however fast the machine is.
/// let expired = pool.do_with_deadline(|| 1, Duration::from_millis(1));
/// assert!(matches!(expired, Err(DeadlineError::Expired(_))));
///
/// let queued = pool.awaitable().serve(|| 2)?;
/// assert!(pool.serve(|| ()).unwrap_err().is_saturated()); // the queue is full
/// drop(held);
/// assert_eq!(queued.join()?, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn hold(pool: &Pool) -> Held {
    let tasks = pool.labeled("held").when_full(WhenFull::Refuse);
    let (tell, told) = channel();
    let mut held = Held(Vec::new());
    for _ in 0..pool.limit() {
        let (tell, (open, gate)) = (tell.clone(), channel::<()>());
        held.0.push(open);
        let task = move || {
            // It fails only if `hold` has panicked.
            let _ = tell.send(());
            // Nothing is ever sent: this returns once the sender is dropped.
            let _ = gate.recv();
        };
        if let Err(refused) = tasks.serve(task).map_err(Refused::without_closure) {
            panic!("the pool is not idle, and refuses a task: {refused}");
        }
    }
    for _ in 0..held.0.len() {
        assert!(
            told.recv_timeout(LIMIT).is_ok(),
            "the pool is not idle: a worker is busy with another task"
        );
    }
    held
}

/// Holds the workers of a pool; [`hold`] returns it.
///
/// Dropping it, or [`release`](Held::release), lets the workers go on. It does not wait until they
/// are free.
#[derive(Debug)]
#[must_use = "the workers are held only until it is dropped"]
pub struct Held(Vec<Sender<()>>);

impl Held {
    /// Lets the workers go on, as a drop does.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// let held = lazypool::testing::hold(&pool);
    /// assert!(pool.serve(|| ()).is_err());
    /// held.release();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn release(self) {}
}
