//! The enums `WhenFull` and `Shutdown`, and the words that stand for their values in a settings
//! file.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::duration;
use crate::error::ParseSettingError;

/// The policy of a submission if every worker is busy and the queue is full, or if its [limited
/// group](crate::Pool::limited_group) is full.
///
/// [`Builder::when_full`](crate::Builder::when_full) sets it for a pool, and
/// [`Pool::when_full`](crate::Pool::when_full) for some submissions. `Display` and `FromStr` use
/// the words of a settings file: `refuse`, `block`, and for [`BlockFor`](Self::BlockFor) `block:`
/// with a duration, such as `block:250ms` or `block:1m 30s`. The enum may grow: keep a `_` arm when
/// you match on it.
///
/// # First come, first served
///
/// All submissions of a pool that wait for space wait in one line. These are blocked threads, and
/// futures of [`serve_async`](crate::Awaitable::serve_async), which waits under every policy. They
/// get space in the order in which they came, whether or not their threads or futures run
/// meanwhile. A submission outside the line takes space before them only if it was already under
/// way when they began to wait. A submission that must not wait leaves the space to them. It is
/// refused only if at one moment of its call every worker was busy and the queue was full, or others
/// waited in line. A full limited group has [a line of its own](crate::docs::guarantees#guarantees).
///
/// # Examples
///
/// ```
/// use lazypool::{Pool, WhenFull};
///
/// let pool = Pool::builder()
///     .max_workers(1)
///     .when_full(WhenFull::Block)
///     .build()?;
/// for n in 0..100 {
///     // Waits for the one worker instead of being refused.
///     pool.serve(move || println!("{n}"))?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenFull {
    /// The submission is refused as [`Refusal::Saturated`](crate::Refusal::Saturated), or as
    /// [`Refusal::GroupFull`](crate::Refusal::GroupFull) if its group is full. It does not wait for
    /// space. This is the default.
    #[default]
    Refuse,
    /// The submission waits for space, [in line](Self#first-come-first-served): as long as it
    /// takes, or until its deadline, if it has one. If the task needs a new worker and the OS
    /// cannot create the thread, the submission does not wait. It is then refused as
    /// [`Refusal::SpawnFailed`](crate::Refusal::SpawnFailed).
    ///
    /// The wait blocks the calling thread; on a thread of an async runtime use
    /// [`serve_async`](crate::Awaitable::serve_async) instead. A submission that comes from a
    /// worker of the same pool does not wait, as the worker might wait for itself. It is refused as
    /// [`Refusal::OnWorker`](crate::Refusal::OnWorker).
    Block,
    /// The submission waits for space as with [`Block`](Self::Block), but for at most this time.
    /// After that it is refused as [`Refusal::Saturated`](crate::Refusal::Saturated), or as
    /// [`Refusal::GroupFull`](crate::Refusal::GroupFull) if it still waited for a place in its group.
    ///
    /// The time counts from the submission. `do_with_deadline` waits until this time or its
    /// deadline has passed, whichever is earlier. [`Duration::MAX`] is the same as
    /// [`Block`](Self::Block).
    ///
    /// [`Duration::ZERO`] is the same as [`Refuse`](Self::Refuse), so that code can pass on what is
    /// left of a time budget. `Display` then writes `refuse`. `FromStr` rejects `block:0s`, because
    /// a person who writes that into a file may mean either no wait or no limit.
    BlockFor(Duration),
}

impl WhenFull {
    /// Returns `true` if a submission with this policy may wait for space.
    pub(crate) fn blocks(self) -> bool {
        match self {
            Self::Refuse => false,
            Self::Block => true,
            Self::BlockFor(limit) => !limit.is_zero(),
        }
    }
}

/// Writes the policy in the notation of a settings file.
impl fmt::Display for WhenFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            // `BlockFor(0)` does what `Refuse` does. The text `block:0s` could not be read back,
            // because `FromStr` rejects it.
            Self::Refuse | Self::BlockFor(Duration::ZERO) => f.pad("refuse"),
            Self::Block => f.pad("block"),
            Self::BlockFor(limit) => f.pad(&format!("{BLOCK_FOR}{}", duration::Text(limit))),
        }
    }
}

/// The text before the duration of [`WhenFull::BlockFor`].
const BLOCK_FOR: &str = "block:";

/// Parses the policy, which is written as in a settings file.
///
/// ```
/// use lazypool::WhenFull;
/// use std::time::Duration;
///
/// assert_eq!("refuse".parse(), Ok(WhenFull::Refuse));
/// let patient: WhenFull = "block:250ms".parse()?;
/// assert_eq!(patient, WhenFull::BlockFor(Duration::from_millis(250)));
/// assert_eq!(patient.to_string(), "block:250ms");
/// # Ok::<(), lazypool::ParseSettingError>(())
/// ```
impl FromStr for WhenFull {
    type Err = ParseSettingError;

    fn from_str(word: &str) -> Result<Self, ParseSettingError> {
        let allowed = "refuse, block, or block:<duration> such as block:250ms";
        match word {
            "refuse" => Ok(Self::Refuse),
            "block" => Ok(Self::Block),
            _ => match word.strip_prefix(BLOCK_FOR) {
                None => Err(ParseSettingError::new(word, None, allowed)),
                Some(limit) => match duration::parse(limit) {
                    Ok(Duration::ZERO) => Err(duration::Invalid::Zero),
                    limit => limit.map(Self::BlockFor),
                }
                .map_err(|why| ParseSettingError::new(word, Some(why), allowed)),
            },
        }
    }
}

/// The mode of a shutdown: how it treats the tasks that the pool has accepted.
///
/// [`Pool::shutdown`](crate::Pool::shutdown) takes a mode, and
/// [`Builder::shutdown_on_drop`](crate::Builder::shutdown_on_drop) sets the mode that a drop of the
/// pool uses. The modes are listed from the mildest to the strictest. If a pool is shut down more
/// than once, the strictest of the requested modes applies. `Display` and `FromStr` use the words
/// of a settings file: `drain`, `discard`, `cancel`. The enum may grow: keep a `_` arm when you
/// match on it.
///
/// # Examples
///
/// Let every task run for some time, then cancel what is left:
///
/// ```
/// use lazypool::{Pool, Shutdown};
/// use std::time::Duration;
///
/// let pool = Pool::builder().max_workers(1).build()?;
/// pool.serve(|| println!("one task"))?;
///
/// let mut report = pool.shutdown(Shutdown::Drain, Duration::from_secs(5));
/// if !report.is_clean() {
///     report = pool.shutdown(Shutdown::Cancel, Duration::from_secs(5));
/// }
/// println!("{} tasks discarded", report.discarded);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Shutdown {
    /// Every accepted task still runs, unless it expires or is cancelled.
    Drain,
    /// Tasks that a worker has started or been handed still run. Queued tasks are discarded:
    ///
    /// * A caller of `do_with_deadline` gets its closure back, as [`Refusal::Closed`](crate::Refusal::Closed).
    /// * A [`Handle`](crate::Handle) gets [`TaskError::Discarded`](crate::TaskError::Discarded).
    /// * A closure that was submitted with `serve` is dropped, and no caller is told. Only three
    ///   counters show the drop: [`Stats::discarded`](crate::Stats::discarded),
    ///   [`ShutdownReport::discarded`](crate::ShutdownReport::discarded), and the
    ///   [`discarded`](crate::Group::discarded) of its group.
    /// * The tasks of a scope are never discarded.
    ///
    /// The queue is emptied first, and all callers, handles and groups are told. The closures are
    /// dropped afterwards, on the thread that shuts the pool down. A concurrent `shutdown` does not
    /// wait for these drops. [`Pool`](crate::Pool#discarded-tasks) says what such a drop may do.
    Discard,
    /// Queued tasks are discarded as with [`Discard`](Self::Discard). In running tasks,
    /// [`task::is_cancelled`](crate::task::is_cancelled) turns true, so that they can stop early.
    Cancel,
}

impl Shutdown {
    /// Returns the mode as a number. A stricter mode has a higher number. No mode has the number 0,
    /// which stands for an open pool.
    pub(crate) const fn rank(self) -> u8 {
        match self {
            Self::Drain => 1,
            Self::Discard => 2,
            Self::Cancel => 3,
        }
    }
}

/// Writes the mode as the word that a settings file uses for it.
impl fmt::Display for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Drain => "drain",
            Self::Discard => "discard",
            Self::Cancel => "cancel",
        })
    }
}

/// Parses the mode from the word that a settings file uses for it.
///
/// ```
/// use lazypool::Shutdown;
///
/// assert_eq!("drain".parse(), Ok(Shutdown::Drain));
/// let error = "abort".parse::<Shutdown>().unwrap_err();
/// assert_eq!(error.to_string(), "\"abort\" is not allowed; allowed: drain, discard, cancel");
/// ```
impl FromStr for Shutdown {
    type Err = ParseSettingError;

    fn from_str(word: &str) -> Result<Self, ParseSettingError> {
        let modes = [Self::Drain, Self::Discard, Self::Cancel];
        let mode = modes.into_iter().find(|mode| mode.to_string() == word);
        mode.ok_or_else(|| ParseSettingError::new(word, None, "drain, discard, cancel"))
    }
}
