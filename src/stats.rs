//! What a pool tells about itself, and the two choices that its users make by name.

use std::fmt;

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
/// `Display` prints a table of two columns, a figure a line. Later versions may add figures.
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
    /// Submissions the pool did not take, for whatever reason.
    ///
    /// A [`do_with_deadline`](crate::Pool::do_with_deadline) whose deadline passed while it waited for room
    /// counts here. One with a deadline of zero counts nowhere.
    pub refused: u64,
    /// Accepted tasks that ran and returned.
    pub completed: u64,
    /// Accepted tasks that ran and panicked, in the closure or in the drop of a capture or of a result
    /// nobody waited for any more.
    pub panicked: u64,
    /// Accepted tasks whose deadline passed before they started; their callers got the closure back.
    pub expired: u64,
    /// Accepted tasks that a shutdown or the cancelling of their group took back before they started.
    pub discarded: u64,
    /// Callers that left a running task at their deadline. The task itself still ends as `completed` or
    /// `panicked`.
    pub timed_out: u64,
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
    /// Every figure under its name, in the order of the table.
    fn rows(self) -> [(&'static str, u64); 16] {
        // Taken apart without `..`, so that a new figure cannot be left out of the table.
        let Self {
            accepted,
            refused,
            completed,
            panicked,
            expired,
            discarded,
            timed_out,
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
        [
            ("accepted", accepted),
            ("refused", refused),
            ("completed", completed),
            ("panicked", panicked),
            ("expired", expired),
            ("discarded", discarded),
            ("timed_out", timed_out),
            // No target of Rust has a `usize` wider than 64 bits.
            ("queued", queued as u64),
            ("running", running as u64),
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

/// One worker, as it was at the moment it was looked at.
///
/// [`Pool::workers`](crate::Pool::workers) gives one for every worker alive, and
/// [`ShutdownReport::stragglers`] one for every worker that was left. Later versions may add fields.
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
    /// Whether the caller of its task timed out and left, so that nobody waits for the result.
    pub abandoned: bool,
    /// How many tasks this worker has finished.
    pub tasks: u64,
}

/// What [`Pool::shutdown`](crate::Pool::shutdown) achieved within its time.
///
/// A pool with stragglers is closed all the same: they end on their own when their tasks do, and shutting
/// down again waits for them again. Later versions may add fields.
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

/// What a submission does when every worker is occupied and the queue is full.
///
/// Set it with [`Builder::when_full`](crate::Builder::when_full). The enum may grow: keep a `_` arm when
/// you match on it.
///
/// # Examples
///
/// ```
/// use lazypool::{Pool, WhenFull};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::builder()
///     .max_workers(1)
///     .when_full(WhenFull::Block)
///     .build()?;
/// for n in 0..100 {
///     // Waits for the one worker instead of being refused.
///     pool.serve(move || println!("{n}"))?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// It is refused at once, as [`Refusal::Saturated`](crate::Refusal::Saturated). This is the default.
    Refuse,
    /// It waits for room: `serve` for as long as it takes, `do_with_deadline` within its deadline.
    ///
    /// On a worker of the same pool nothing waits for room, as that could wait for itself. There, this is
    /// the same as [`Refuse`](Self::Refuse).
    Block,
}

/// What becomes of the tasks a pool has accepted when it shuts down.
///
/// [`Pool::shutdown`](crate::Pool::shutdown) takes one, and
/// [`Builder::shutdown_on_drop`](crate::Builder::shutdown_on_drop) says which one a drop of the pool uses.
/// The modes are listed from the mildest to the strictest. A pool that is shut down more than once keeps
/// to the strictest mode asked. The enum may grow: keep a `_` arm when you match on it.
///
/// # Examples
///
/// Ask kindly, then insist:
///
/// ```
/// use lazypool::{Pool, Shutdown};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::builder().max_workers(1).build()?;
/// pool.serve(|| println!("one task"))?;
///
/// let mut report = pool.shutdown(Shutdown::Drain, Duration::from_secs(5));
/// if !report.is_clean() {
///     report = pool.shutdown(Shutdown::Cancel, Duration::from_secs(5));
/// }
/// println!("{} tasks discarded", report.discarded);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shutdown {
    /// Every accepted task still runs.
    Drain,
    /// Tasks that a worker has started or been handed still run. Queued ones are discarded, and their
    /// `do_with_deadline` callers get the closure back. The tasks of a scope are never discarded.
    Discard,
    /// As [`Discard`](Self::Discard), and [`task::is_cancelled`](crate::task::is_cancelled) turns true in
    /// running tasks, so that those that look can stop early.
    Cancel,
}

impl Shutdown {
    /// The mode as a number: the stricter, the higher, and never the 0 that stands for an open pool.
    pub(crate) const fn rank(self) -> u8 {
        match self {
            Self::Drain => 1,
            Self::Discard => 2,
            Self::Cancel => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every figure different, and of different widths.
    fn sample() -> Stats {
        Stats {
            accepted: 1_234_567,
            refused: 12,
            completed: 1_234_000,
            panicked: 3,
            expired: 4,
            discarded: 5,
            timed_out: 6,
            queued: 555,
            running: 0,
            workers: 8,
            idle: 7,
            peak_workers: 16,
            spawned: 20,
            retired: 13,
            spawn_failures: 1,
            hook_panics: 2,
        }
    }

    fn snapshot() -> WorkerSnapshot {
        WorkerSnapshot {
            slot: 3,
            busy: true,
            label: Some("import"),
            abandoned: false,
            tasks: 9,
        }
    }

    #[test]
    fn stats_print_as_an_aligned_table() {
        let expected = "\
accepted        1234567
refused              12
completed       1234000
panicked              3
expired               4
discarded             5
timed_out             6
queued              555
running               0
workers               8
idle                  7
peak_workers         16
spawned              20
retired              13
spawn_failures        1
hook_panics           2";
        assert_eq!(sample().to_string(), expected);
    }

    #[test]
    fn every_line_of_the_table_is_equally_wide() {
        let largest = Stats {
            hook_panics: u64::MAX,
            ..Stats::default()
        };
        for stats in [Stats::default(), sample(), largest] {
            let table = stats.to_string();
            let width = table.lines().next().unwrap().len();
            assert!(table.lines().all(|line| line.len() == width), "{table}");
            assert_eq!(table.lines().count(), 16);
            assert!(!table.ends_with('\n'));
        }
    }

    #[test]
    fn the_table_names_figures_as_the_fields_are_named() {
        let debug = format!("{:?}", sample());
        for line in sample().to_string().lines() {
            let mut words = line.split_whitespace();
            let (name, figure) = (words.next().unwrap(), words.next().unwrap());
            assert!(debug.contains(&format!("{name}: {figure}")), "{line}");
            assert_eq!(words.next(), None);
        }
    }

    #[test]
    fn stats_are_plain_values() {
        let stats = sample();
        let copy = stats;
        assert_eq!(stats, copy);
        assert_ne!(stats, Stats::default());
        assert!(Stats::default()
            .rows()
            .iter()
            .all(|&(_, figure)| figure == 0));
    }

    #[test]
    fn a_report_is_clean_when_no_worker_is_left() {
        let mut report = ShutdownReport {
            discarded: 2,
            stragglers: Vec::new(),
        };
        assert!(report.is_clean());
        report.stragglers.push(snapshot());
        assert!(!report.is_clean());
        assert!(!report.clone().is_clean());
    }

    #[test]
    fn a_snapshot_shows_every_field() {
        assert_eq!(
            format!("{:?}", snapshot().clone()),
            "WorkerSnapshot { slot: 3, busy: true, label: Some(\"import\"), abandoned: false, tasks: 9 }"
        );
    }

    #[test]
    fn stricter_modes_rank_higher_and_none_ranks_zero() {
        let modes = [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel];
        assert_eq!(modes.map(Shutdown::rank), [1, 2, 3]);
    }

    #[test]
    fn what_a_pool_shares_between_threads_is_send_and_sync() {
        fn check<T: Send + Sync + 'static>() {}
        check::<Stats>();
        check::<WorkerSnapshot>();
        check::<ShutdownReport>();
        check::<WhenFull>();
        check::<Shutdown>();
    }
}
