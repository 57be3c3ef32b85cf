//! What a pool tells about itself, and the two choices that its users make by name.

mod policy;
#[cfg(feature = "serde")]
mod serialize;
#[cfg(test)]
mod tests;

use std::fmt;

pub use policy::{Shutdown, WhenFull};

/// The figures of a pool: how its tasks ended, what it does now, and how its workers came and went.
///
/// [`Pool::stats`](crate::Pool::stats) takes them. The figures are read one after the other while the pool
/// works on, so two of them may be a moment apart. Even so, at every moment `workers == spawned - retired`,
/// `idle <= workers <= max_workers`, `running <= max_workers`, an accepted task that has not ended is in
/// `queued` or `running`, and no ending is counted before its acceptance. With no call under way and no
/// task starting or ending, the ledger balances:
///
/// ```text
/// accepted = completed + panicked + expired + discarded + queued + running
/// ```
///
/// A task is counted before anybody who waits for it is released: after
/// [`do_with_deadline`](crate::Pool::do_with_deadline) has returned a value, that task is in `completed`.
///
/// `Display` prints a table of two columns, a figure a line. With the feature `serde` the figures can be
/// serialized, each under its field's name. Later versions may add figures.
///
/// # Examples
///
/// ```
/// use lazypool::Pool;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::builder().max_workers(1).build()?;
/// assert_eq!(pool.stats().spawned, 0);
///
/// let answer = pool.do_with_deadline(|| 6 * 7, Duration::MAX)?;
/// assert_eq!(answer, 42);
///
/// let stats = pool.stats();
/// assert_eq!(stats.accepted, 1);
/// assert_eq!(stats.completed, 1);
/// println!("{stats}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Tasks the pool took.
    pub accepted: u64,
    /// Submissions the pool did not take, for whatever reason: the sum of [`refusals`](Self::refusals).
    ///
    /// A [`do_with_deadline`](crate::Pool::do_with_deadline) whose deadline passed while it waited for room
    /// counts here. One with a deadline of zero counts nowhere.
    pub refused: u64,
    /// Accepted tasks that ran and returned.
    pub completed: u64,
    /// Accepted tasks that ran and panicked, in the closure or in the drop of a capture or of a result
    /// nobody waited for any more.
    pub panicked: u64,
    /// Accepted tasks whose deadline passed before they started, or came too near
    /// ([`min_remaining`](crate::Submitter::min_remaining)). Callers got the closure back; a task of
    /// [`with_deadline`](crate::Submitter::with_deadline) was dropped, at the latest when its turn came.
    pub expired: u64,
    /// Accepted tasks that a shutdown or the cancelling of their group took back before they started.
    pub discarded: u64,
    /// Callers that left a running task at their deadline, and tasks of
    /// [`with_deadline`](crate::Submitter::with_deadline) that ended late. The task itself still ends as
    /// `completed` or `panicked`.
    pub timed_out: u64,
    /// The submissions in `refused`, by reason.
    pub refusals: Refusals,
    /// Of `running`: workers with a task that nobody waits for any more. Its caller left at the deadline, its
    /// group was cancelled, or it is past a deadline of its own
    /// ([`with_deadline`](crate::Submitter::with_deadline)). Dropping the pool does not wait for these.
    pub abandoned: usize,
    /// Submitters that wait for room now: see [`WhenFull::Block`] and [`WhenFull::BlockFor`].
    pub waiting: usize,
    /// Accepted tasks that wait for a worker now.
    pub queued: usize,
    /// Workers occupied now: each with a task that runs, was just handed over, or is just ending.
    pub running: usize,
    /// Workers alive now.
    pub workers: usize,
    /// Workers alive now that have nothing to do.
    pub idle: usize,
    /// The most workers that were ever alive at once.
    pub peak_workers: usize,
    /// Workers started so far.
    pub spawned: u64,
    /// Workers that ended so far, whether for want of work or by a shutdown.
    pub retired: u64,
    /// Times the system gave no thread for a worker.
    pub spawn_failures: u64,
    /// Panics in hooks: in `on_worker_start`, `on_worker_stop`, `around` or `on_panic`.
    pub hook_panics: u64,
}

impl Stats {
    /// Every figure under its name, in the order of the table: each part below its sum.
    fn rows(self) -> [(&'static str, u64); 23] {
        // Taken apart without `..`, so that a new figure cannot be left out of the table.
        let Self {
            accepted,
            refused,
            completed,
            panicked,
            expired,
            discarded,
            timed_out,
            refusals,
            abandoned,
            waiting,
            queued,
            running,
            workers,
            idle,
            peak_workers,
            spawned,
            retired,
            spawn_failures,
            hook_panics,
        } = self;
        let Refusals {
            saturated,
            closed,
            cancelled,
            spawn_failed,
            expired: expired_outside,
        } = refusals;
        [
            ("accepted", accepted),
            ("refused", refused),
            ("refusals.saturated", saturated),
            ("refusals.closed", closed),
            ("refusals.cancelled", cancelled),
            ("refusals.spawn_failed", spawn_failed),
            ("refusals.expired", expired_outside),
            ("completed", completed),
            ("panicked", panicked),
            ("expired", expired),
            ("discarded", discarded),
            ("timed_out", timed_out),
            // No target of Rust has a `usize` wider than 64 bits.
            ("waiting", waiting as u64),
            ("queued", queued as u64),
            ("running", running as u64),
            ("abandoned", abandoned as u64),
            ("workers", workers as u64),
            ("idle", idle as u64),
            ("peak_workers", peak_workers as u64),
            ("spawned", spawned),
            ("retired", retired),
            ("spawn_failures", spawn_failures),
            ("hook_panics", hook_panics),
        ]
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows();
        let names = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let largest = rows.iter().map(|&(_, figure)| figure).max().unwrap_or(0);
        let digits = largest.to_string().len();
        for (index, (name, figure)) in rows.into_iter().enumerate() {
            // Between the lines only: what follows the table is up to whoever prints it.
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{name:<names$}  {figure:>digits$}")?;
        }
        Ok(())
    }
}

/// The submissions that a pool did not take, by reason: [`Stats::refusals`].
///
/// Each submission that counts in [`Stats::refused`] counts in one of these. Later versions may tell
/// further reasons apart.
///
/// # Examples
///
/// ```
/// use lazypool::{Pool, Shutdown};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::new(1)?;
/// pool.shutdown(Shutdown::Drain, Duration::MAX);
/// assert!(pool.serve(|| ()).is_err());
///
/// let stats = pool.stats();
/// assert_eq!(stats.refusals.closed, 1);
/// assert_eq!(stats.refused, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusals {
    /// Refused as [`Saturated`](crate::Refusal::Saturated) or [`OnWorker`](crate::Refusal::OnWorker).
    pub saturated: u64,
    /// Refused as [`Closed`](crate::Refusal::Closed), or as [`Forked`](crate::Refusal::Forked) in a
    /// forked child.
    pub closed: u64,
    /// Refused as [`Cancelled`](crate::Refusal::Cancelled).
    pub cancelled: u64,
    /// Refused as [`SpawnFailed`](crate::Refusal::SpawnFailed).
    pub spawn_failed: u64,
    /// Never accepted, as the deadline passed while the submission waited for room. The caller got the
    /// closure back as [`Expired`](crate::DeadlineError::Expired).
    pub expired: u64,
}

impl Refusals {
    /// All of them: [`Stats::refused`].
    pub(crate) fn total(self) -> u64 {
        self.by_reason().iter().map(|&(_, count)| count).sum()
    }

    /// Each under its name.
    pub(crate) fn by_reason(self) -> [(&'static str, u64); 5] {
        let Self {
            saturated,
            closed,
            cancelled,
            spawn_failed,
            expired,
        } = self;
        [
            ("saturated", saturated),
            ("closed", closed),
            ("cancelled", cancelled),
            ("spawn_failed", spawn_failed),
            ("expired", expired),
        ]
    }
}

/// One worker, as it was at the moment it was looked at.
///
/// [`Pool::workers`](crate::Pool::workers) gives one for every worker alive, and
/// [`ShutdownReport::stragglers`] one for every worker that was left. With the feature `serde` it can be
/// serialized. Later versions may add fields.
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
/// pool.labelled("import")
///     .serve(move || gate.recv().unwrap_or_default())?;
///
/// for worker in pool.workers() {
///     let task = worker.label.unwrap_or("-");
///     println!("{}: busy {}, task {task}", worker.slot, worker.busy);
/// }
/// drop(release);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerSnapshot {
    /// The worker's place in the pool, from 0 up to but not including `max_workers`. It is the number in
    /// the thread's name, and a later worker may get it again.
    pub slot: usize,
    /// Whether the worker is occupied with a task.
    pub busy: bool,
    /// The label of its task, if it is occupied and the task has one.
    pub label: Option<&'static str>,
    /// Whether nobody waits for its task any more: see [`Stats::abandoned`].
    pub abandoned: bool,
    /// How many tasks this worker has finished.
    pub tasks: u64,
}

/// What [`Pool::shutdown`](crate::Pool::shutdown) achieved within its time.
///
/// A pool with stragglers is closed all the same: they end on their own when their tasks do, and shutting
/// down again waits for them again. With the feature `serde` the report can be serialized. Later versions
/// may add fields.
///
/// # Examples
///
/// ```
/// use lazypool::{Pool, Shutdown};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::builder().max_workers(1).build()?;
/// pool.serve(|| println!("still runs"))?;
///
/// let report = pool.shutdown(Shutdown::Drain, Duration::from_secs(60));
/// for worker in &report.stragglers {
///     println!("worker {} is still at {:?}", worker.slot, worker.label);
/// }
/// assert_eq!(report.discarded, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Queued tasks that the shutdowns of this pool have discarded so far.
    pub discarded: u64,
    /// The workers that had not ended when the call returned.
    pub stragglers: Vec<WorkerSnapshot>,
}

impl ShutdownReport {
    /// Whether no worker is left.
    ///
    /// After a clean report no thread of the pool exists any more. Tasks may have been discarded even so:
    /// [`discarded`](Self::discarded) counts them.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{Pool, Shutdown};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// pool.serve(|| println!("done before the shutdown returns"))?;
    /// assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_clean(&self) -> bool {
        self.stragglers.is_empty()
    }
}
