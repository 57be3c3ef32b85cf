//! The statistics of a pool, and the two policies `WhenFull` and `Shutdown` that settings use.

mod policy;
#[cfg(feature = "serde")]
mod serialize;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

pub use policy::{Shutdown, WhenFull};

/// The statistics of a pool: how its tasks ended, its current state, and how many workers it
/// started.
///
/// [`Pool::stats`](crate::Pool::stats) returns them. It reads the counters one after the other
/// while the pool goes on working, so the values of two counters may be from slightly different
/// moments. These relations always hold:
///
/// * `workers == spawned - retired`, `idle <= workers <= max_workers`, and `running <= max_workers`.
/// * An accepted task that has not ended counts in `queued` or in `running`. While a worker takes
///   it, or a cancel or shutdown takes it out of the pool, it may for a moment count in neither, or
///   in both.
/// * No task is counted as ended before it is counted as accepted.
/// * A task is counted before its caller is released. So once
///   [`do_with_deadline`](crate::Pool::do_with_deadline) has returned a value, `completed` includes
///   that task.
///
/// While no call is under way and no task is starting or ending, this also holds:
///
/// ```text
/// accepted = completed + panicked + expired + discarded + queued + running
/// ```
///
/// `Display` prints a table with one counter a line. With the feature `serde` the counters can be
/// serialized, each under the name of its field. Later versions may add counters.
///
/// # Examples
///
/// ```
/// use lazypool::Pool;
/// use std::time::Duration;
///
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
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Tasks that the pool took.
    pub accepted: u64,
    /// Submissions that the pool did not take, for any reason: the sum of
    /// [`refusals`](Self::refusals).
    ///
    /// A [`do_with_deadline`](crate::Pool::do_with_deadline) whose deadline passed while it waited
    /// for space is counted here. A call with a timeout of zero is not counted at all.
    pub refused: u64,
    /// Accepted tasks that ran and returned.
    pub completed: u64,
    /// Accepted tasks that ran and panicked: in the closure, in the drop of something that it
    /// captured, or in the drop of a result because the caller had left or the handle was gone.
    pub panicked: u64,
    /// Accepted tasks that were not started because their deadline had passed, or because less than
    /// [`min_remaining`](crate::Submitter::min_remaining) was left until it. The caller of
    /// [`do_with_deadline`](crate::Pool::do_with_deadline) got the closure back. A task that was
    /// submitted through [`with_deadline`](crate::Submitter::with_deadline) was dropped, at the
    /// latest when its turn came. A queued task also counts here if its handle or group cancels it
    /// after its deadline, for instance because a `timeout` drops the handle.
    pub expired: u64,
    /// Accepted tasks that were not started because of a shutdown, or because they were cancelled
    /// before their deadline: by their [`Group`](crate::Group::cancel), or by their
    /// [`Handle`](crate::Handle::cancel). A drop of the handle cancels, too.
    /// ([`Group::discarded`](crate::Group::discarded) also includes the `expired` tasks of the
    /// group.)
    pub discarded: u64,
    /// Tasks that were still running at their deadline. A task of
    /// [`do_with_deadline`](crate::Pool::do_with_deadline) is counted when its caller leaves. A
    /// task of [`with_deadline`](crate::Submitter::with_deadline) or
    /// [`run_limit`](crate::Submitter::run_limit) is counted when it ends. No task is counted
    /// twice. Each also ends as `completed` or `panicked`.
    pub timed_out: u64,
    /// The submissions that `refused` counts, by reason.
    pub refusals: RefusalCounts,
    /// Workers whose task is abandoned: its result is no longer wanted. Either the task's caller
    /// left at the deadline, its group or handle was cancelled, its handle was dropped, or it is
    /// past a deadline of its own ([`with_deadline`](crate::Submitter::with_deadline),
    /// [`run_limit`](crate::Submitter::run_limit)). `running` counts these workers, too. Dropping
    /// the pool does not wait for them.
    pub abandoned: usize,
    /// Submissions of threads and of futures that wait in line now, for space in the pool or for a
    /// place in a [limited group](crate::Pool::limited_group): see [`WhenFull::Block`],
    /// [`WhenFull::BlockFor`] and [`serve_async`](crate::Awaitable::serve_async).
    pub waiting: usize,
    /// The time since the start of the task that has been running for longest. `None` if no task
    /// runs, or if the pool does not [track ages](crate::Builder::track_ages).
    pub longest_running: Option<Duration>,
    /// The time since the oldest queued task was submitted, with the time that it has waited in line
    /// before. `None` if no task is queued, or if the
    /// pool does not [track ages](crate::Builder::track_ages).
    pub oldest_queued: Option<Duration>,
    /// Accepted tasks that wait for a worker now.
    pub queued: usize,
    /// Workers that have a task now, including workers whose task has just ended and is not counted
    /// yet. A worker that is in a start or stop hook and has no task counts neither here nor in
    /// `idle`.
    #[doc(alias = "active_count")]
    pub running: usize,
    /// Workers that exist now. A thread that has ended its work is no worker, although the
    /// destructors of its thread-local values may still run. A clean report
    /// ([`ShutdownReport::is_clean`]) says that all threads have ended.
    pub workers: usize,
    /// Workers that exist now and have no task. Workers that are in a start or stop hook, or that
    /// are ending, do not count. A worker that looks for a queued task counts.
    pub idle: usize,
    /// The largest number of workers that have existed at once.
    pub peak_workers: usize,
    /// Workers that have been started.
    pub spawned: u64,
    /// Workers that have ended, because they were idle, surplus, or shut down.
    pub retired: u64,
    /// How often the OS could not create a thread for a worker.
    pub spawn_failures: u64,
    /// Panics in the hooks `on_worker_start`, `on_worker_stop`, `around` and `on_panic`; and in
    /// `metrics` recorders and `tracing` subscribers when the pool itself calls them.
    pub hook_panics: u64,
}

impl Stats {
    /// Returns the name and the value of each counter, in the order in which `Display` prints them.
    /// A total comes before the counters that are parts of it. An age is included only if it is
    /// tracked. The pattern names all fields, without `..`, so that a new field cannot be left out.
    fn rows(self) -> Vec<(String, String)> {
        macro_rules! in_order {
            ($($total:ident)+; $parts:ident; $($figure:ident)+; $($age:ident)+) => {{
                let Self { $($total,)+ $parts, $($figure,)+ $($age,)+ } = self;
                let row = |name: &str, it: &dyn fmt::Display| (name.to_owned(), it.to_string());
                let mut rows = vec![$(row(stringify!($total), &$total)),+];
                for (reason, count) in $parts.by_reason() {
                    rows.push(row(&format!("{}.{reason}", stringify!($parts)), &count));
                }
                rows.extend([$(row(stringify!($figure), &$figure)),+]);
                $(rows.extend($age.map(|age| row(stringify!($age), &format!("{age:.1?}"))));)+
                rows
            }};
        }
        in_order! {
            accepted refused; refusals;
            completed panicked expired discarded timed_out
            waiting queued running abandoned
            workers idle peak_workers spawned retired spawn_failures hook_panics;
            longest_running oldest_queued
        }
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows();
        let wide = |text: &String| text.chars().count();
        let names = rows.iter().map(|(name, _)| wide(name)).max().unwrap_or(0);
        let figures = rows
            .iter()
            .map(|(_, figure)| wide(figure))
            .max()
            .unwrap_or(0);
        for (index, (name, figure)) in rows.into_iter().enumerate() {
            // There is no line break after the last line, because the code that prints the table
            // decides what follows.
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{name:<names$}  {figure:>figures$}")?;
        }
        Ok(())
    }
}

/// The submissions that a pool did not take, by reason.
///
/// [`Stats::refusals`] holds them. Each submission that [`Stats::refused`] counts is counted in one
/// of these fields. Later versions may add fields.
///
/// # Examples
///
/// ```
/// use lazypool::{Pool, Shutdown};
/// use std::time::Duration;
///
/// let pool = Pool::new(1)?;
/// pool.shutdown(Shutdown::Drain, Duration::MAX);
/// assert!(pool.serve(|| ()).is_err());
///
/// let stats = pool.stats();
/// assert_eq!(stats.refusals.closed, 1);
/// assert_eq!(stats.refused, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusalCounts {
    /// Refused as [`Saturated`](crate::Refusal::Saturated).
    pub saturated: u64,
    /// Refused as [`Closed`](crate::Refusal::Closed).
    pub closed: u64,
    /// Refused as [`Cancelled`](crate::Refusal::Cancelled).
    pub cancelled: u64,
    /// Refused as [`SpawnFailed`](crate::Refusal::SpawnFailed).
    pub spawn_failed: u64,
    /// Refused as [`OnWorker`](crate::Refusal::OnWorker).
    pub on_worker: u64,
    /// Refused as [`Forked`](crate::Refusal::Forked), in a forked child. The parent's counts do not
    /// include these.
    pub forked: u64,
    /// Not accepted because the deadline passed while the submission waited for space. The caller
    /// got the closure back as [`Expired`](crate::DeadlineError::Expired).
    pub expired: u64,
    /// Refused as [`GroupFull`](crate::Refusal::GroupFull).
    pub group_full: u64,
}

impl RefusalCounts {
    /// Returns the sum of all counts, which is [`Stats::refused`].
    pub(crate) fn total(self) -> u64 {
        self.by_reason().iter().map(|&(_, count)| count).sum()
    }

    /// Returns each count under its name. The pattern has no `..`, so that none can be left out.
    pub(crate) fn by_reason(self) -> [(&'static str, u64); 8] {
        macro_rules! named {
            ($($field:ident)+) => {{
                let Self { $($field),+ } = self;
                [$((stringify!($field), $field)),+]
            }};
        }
        named! { saturated closed cancelled spawn_failed on_worker forked expired group_full }
    }
}

/// The state of one worker when the snapshot was taken.
///
/// [`Pool::workers`](crate::Pool::workers) returns one for every worker that exists, and
/// [`ShutdownReport::stragglers`] holds one for every worker that had not ended. With the feature
/// `serde` it can be serialized. Later versions may add fields.
///
/// # Examples
///
/// ```
/// use lazypool::Pool;
/// use std::sync::mpsc;
///
/// let pool = Pool::builder().max_workers(1).build()?;
/// let (release, gate) = mpsc::channel::<()>();
/// pool.labeled("import")
///     .serve(move || gate.recv().unwrap_or_default())?;
///
/// for worker in pool.workers() {
///     let task = worker.label.unwrap_or("-");
///     println!("{}: busy {}, task {task}", worker.slot, worker.busy);
/// }
/// drop(release);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerSnapshot {
    /// The worker's place in the pool, from 0 up to but not including `max_workers`. The thread's
    /// name contains this number. Once the worker has ended, another worker may get the slot.
    pub slot: usize,
    /// `true` if the worker has a task.
    pub busy: bool,
    /// The label of that task, if it has one.
    pub label: Option<&'static str>,
    /// `true` if the result of that task is no longer wanted: see [`Stats::abandoned`].
    pub abandoned: bool,
    /// The time since that task's deadline passed. The deadline is either the one at which the
    /// task's caller left, or one of the task's own
    /// ([`with_deadline`](crate::Submitter::with_deadline),
    /// [`run_limit`](crate::Submitter::run_limit)). `None` if no deadline has passed, even if the
    /// task is abandoned, for instance because its group was cancelled.
    pub abandoned_for: Option<Duration>,
    /// The time for which its task has been running. `None` if it runs no task, or if the pool does
    /// not [track ages](crate::Builder::track_ages).
    pub running_for: Option<Duration>,
    /// How many tasks the worker has finished. Zero if it is known only by its thread, which runs its
    /// thread-local destructors.
    pub tasks: u64,
}

/// The result of [`Pool::shutdown`](crate::Pool::shutdown): discarded tasks, and workers that have
/// not ended.
///
/// The pool is closed even if some workers have not ended. These are called stragglers. A straggler
/// ends once it has no more tasks to run, and another call of `shutdown` waits for it again. With
/// the feature `serde` the report can be serialized. Later versions may add fields.
///
/// # Examples
///
/// ```
/// use lazypool::{Pool, Shutdown};
/// use std::time::Duration;
///
/// let pool = Pool::builder().max_workers(1).build()?;
/// pool.serve(|| println!("still runs"))?;
///
/// let report = pool.shutdown(Shutdown::Drain, Duration::from_secs(60));
/// for worker in &report.stragglers {
///     println!("worker {} is still at {:?}", worker.slot, worker.label);
/// }
/// assert_eq!(report.discarded, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// How many queued tasks the shutdowns of this pool have discarded so far.
    pub discarded: u64,
    /// The workers that had not ended when the call returned.
    pub stragglers: Vec<WorkerSnapshot>,
}

impl ShutdownReport {
    /// Returns `true` if every worker has ended, so that there are no stragglers.
    ///
    /// After a clean report no thread of the pool exists. (But for a call that must not wait, because it was made in a waker that the
    /// pool calls, in a subscriber that is told of a refused thread, or as the pool drops a value: threads may be about to end then.) Tasks may have been discarded all the
    /// same; [`discarded`](Self::discarded) counts them.
    ///
    /// # Examples
    ///
    /// ```
    /// use lazypool::{Pool, Shutdown};
    /// use std::time::Duration;
    ///
    /// let pool = Pool::builder().max_workers(1).build()?;
    /// pool.serve(|| println!("done before the shutdown returns"))?;
    /// assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_clean(&self) -> bool {
        self.stragglers.is_empty()
    }
}

/// One line for each straggler, in columns: its slot, what it does, its label, for how long its
/// task has been running, and for how long that task has been abandoned. Fields that do not apply are
/// left out. A clean report is one line that says so. There is no line break after the last line.
impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_clean() {
            return f.write_str("every worker has ended");
        }
        let rows: Vec<_> = self
            .stragglers
            .iter()
            .map(WorkerSnapshot::columns)
            .collect();
        let width = |column: usize| {
            let wide = rows.iter().map(|row| row[column].chars().count());
            wide.max().unwrap_or(0)
        };
        let widths = [width(0), width(1), width(2), width(3)];
        for (index, row) in rows.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            let mut line = String::new();
            for (text, width) in row.iter().zip(widths) {
                if width > 0 {
                    line += &format!("{text:<width$}  ");
                }
            }
            line += &row[4];
            f.write_str(line.trim_end())?;
        }
        Ok(())
    }
}

impl WorkerSnapshot {
    /// Returns the texts of the columns in which a report shows this worker.
    fn columns(&self) -> [String; 5] {
        let since = |what: &str, age: Option<Duration>| {
            age.map_or_else(String::new, |age| format!("{what} for {age:.1?}"))
        };
        let abandoned = match self.abandoned_for {
            None if self.abandoned => "abandoned".to_owned(),
            age => since("abandoned", age),
        };
        [
            format!("slot {}", self.slot),
            if self.busy { "busy" } else { "without a task" }.to_owned(),
            self.label
                .map_or_else(String::new, |label| format!("{label:?}")),
            since("running", self.running_for),
            abandoned,
        ]
    }
}
