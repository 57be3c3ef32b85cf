//! What a person needs who has a pool that hangs.

use crate::pool::Pool;
use std::fmt;

/// First *findings*: what keeps workers, tasks or submissions waiting, and figures that do not fit together, each with a
/// word that says what to do about it; what to act on first comes first. Then the pool's settings, its [`Stats`](crate::Stats),
/// and the words from which the findings come. This waits for no lock, so it works in a pool that hangs. [`outcomes`](crate::docs::outcomes) says when to print it.
impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (findings, reading) = self.core().findings();
        f.debug_struct("Pool")
            .field("findings", &findings)
            .field("max_workers", &self.max_workers())
            .field("min_workers", &self.min_workers())
            .field("queue_capacity", &self.queue_capacity())
            .field("closed", &self.is_closed())
            .field("stats", &self.stats())
            .field("reading", &reading)
            .finish()
    }
}

impl Pool {
    /// Has the pool look for all that waits: first aid for a pool that hangs.
    ///
    /// In a healthy pool nothing waits that need not, and this call does nothing but that it may start a worker.
    /// It is for a service in which a thread is stopped between two steps, or this crate has a fault. It
    ///
    /// * notifies an idle worker for each queued task, or starts one;
    /// * passes free space to the submissions that wait;
    /// * wakes workers that sleep although they have a task.
    ///
    /// It trusts no count of the pool for that. If the counts of workers that look at the queue have been wrong for half a
    /// second, the pool does without them, and is a little slower, until a later call of this function finds both zero.
    ///
    /// It cannot help if all workers are in user code that does not return: [raise the limit](Pool::set_limit) then. Nor can it
    /// help the first task of a worker whose start hook does not return, nor
    /// if a thread that holds a lock of the pool is stopped. Then this call may wait for that thread. It also runs
    /// wakers, as other calls do. So call it on a thread of its own.
    ///
    /// ```
    /// let pool = lazypool::Pool::new(1)?;
    /// pool.serve(|| ())?;
    /// pool.nudge();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn nudge(&self) {
        self.core().nudge();
    }
}
