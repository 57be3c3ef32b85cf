//! The part of a pool that its tasks and hooks use. It does not know slots, the queue or the line.

use crate::error::TaskPanic;
use crate::parts::deadline::Deadline;
use crate::parts::gate::WorkersKey;
use crate::stats::Shutdown;
use crate::sync::panics::contain;
use crate::sync::{fork, now, thread_local, AtomicU64, Instant, Ordering, PlainU64};
use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::time::Duration;

type Hook = Box<dyn Fn(usize) + Send + Sync>;
pub(crate) type Around = Box<dyn Fn(&mut dyn FnMut()) + Send + Sync>;
type OnPanic = Box<dyn Fn(&TaskPanic<'_>) + Send + Sync>;

/// The value, in the unit of [`Env::nanos`], that stands for no deadline.
pub(crate) const NEVER: u64 = u64::MAX;

/// Flags of `Env::phase` that shutdowns set. A mode of rank n sets the first n of these.
const CLOSED: u64 = 1;
const DISCARDING: u64 = 1 << 1;
const CANCELLING: u64 = 1 << 2;
/// Set while the pool may have more workers than its limit allows. Meanwhile submissions and
/// workers do not use their fast paths, and workers check whether they have to end.
const SURPLUS: u64 = 1 << 3;
/// Set for good if the pool tracks ages. Submissions then do not use their fast path.
const AGES: u64 = 1 << 4;

/// Set while the counts of workers that look at the queue are not to be relied on, because a nudge has found them
/// wrong. Submissions then look for a worker themselves, and do not use their fast path.
const DISTRUSTS: u64 = 1 << 5;

/// User code that runs on workers.
#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) start: Option<Hook>,
    pub(crate) stop: Option<Hook>,
    pub(crate) around: Option<Around>,
    pub(crate) on_panic: Option<OnPanic>,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooks")
            .field("start", &self.start.is_some())
            .field("stop", &self.stop.is_some())
            .field("around", &self.around.is_some())
            .field("on_panic", &self.on_panic.is_some())
            .finish()
    }
}

thread_local! {
    /// The id of the pool whose worker this thread is, and that worker. The id is zero if
    /// this thread is not a worker. The value needs no destructor, so the destructors of the
    /// thread's other values can still read it.
    static OWNER: Cell<(u64, WorkerId)> = const { Cell::new((0, WorkerId { slot: 0, start: 0 })) };
}

/// A worker, also after it has left its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkerId {
    pub(crate) slot: usize,
    /// The number of its thread's start: no two threads of a pool have the same.
    pub(crate) start: u64,
}

/// The part of a pool that its tasks and hooks use.
pub(crate) struct Env {
    pub(crate) id: u64,
    pub(crate) name: String,
    /// The instant from which deadlines are counted.
    pub(crate) epoch: Instant,
    pub(crate) hooks: Hooks,
    /// The lower half has the flags above. The upper half is the [`fork::generation`] of the
    /// process that built the pool.
    phase: AtomicU64,
    /// On cache lines of its own, because every submission reads the other fields.
    pub(crate) counts: CachePadded<EnvCounts>,
    #[cfg(feature = "metrics")]
    pub(crate) series: crate::work::series::Series,
}

/// Counts that are written by workers, by callers that leave their tasks, and by any thread on
/// which a subscriber panics.
#[derive(Debug, Default)]
pub(crate) struct EnvCounts {
    pub(crate) hook_panics: AtomicU64,
    /// The number of callers that left their running task, plus the number of tasks that ended
    /// after a deadline of their own.
    pub(crate) timed_out: AtomicU64,
}

impl Env {
    pub(crate) fn new(name: String, hooks: Hooks, tracks_ages: bool) -> Self {
        fork::watch();
        static NEXT: PlainU64 = PlainU64::new(1);
        Self {
            // Relaxed: a unique number.
            id: NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            name,
            epoch: now(),
            hooks,
            phase: AtomicU64::new(fork::generation() | if tracks_ages { AGES } else { 0 }),
            counts: CachePadded::default(),
            #[cfg(feature = "metrics")]
            series: crate::work::series::Series::new(),
        }
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.phase() & CLOSED != 0
    }

    /// Sets or clears [`SURPLUS`].
    pub(crate) fn set_surplus(&self, is_there: bool, _: &mut WorkersKey) {
        self.set(SURPLUS, is_there);
    }

    /// Says whether the pool's threads may rely on the counts of workers that look at the queue.
    pub(crate) fn trust_counts(&self, may: bool) {
        self.set(DISTRUSTS, !may);
    }

    fn set(&self, flag: u64, is_set: bool) {
        // ORDERING: P3: set before the thread that lowers the limit, or nudges the pool, looks for idle workers.
        if is_set {
            self.phase.fetch_or(flag, Ordering::SeqCst);
        } else {
            self.phase.fetch_and(!flag, Ordering::SeqCst);
        }
    }

    pub(crate) fn trusts_counts(&self) -> bool {
        self.phase() & DISTRUSTS == 0
    }

    pub(crate) fn tracks_ages(&self) -> bool {
        self.phase() & AGES != 0
    }

    /// Returns `true` if the fast path may be taken: the pool is open, has no surplus workers, tracks no ages and
    /// trusts its counts, and this process has built it. One comparison checks all of these conditions.
    ///
    /// `phase` has the flags in its lower half and a generation in its upper half. So it equals the
    /// generation of this process only if no flag is set and this process built the pool.
    #[inline]
    pub(crate) fn is_fast_path_open(&self) -> bool {
        self.phase() == fork::generation()
    }

    /// Returns `true` if workers may have to end: the pool is closed, or has surplus workers.
    #[inline]
    pub(crate) fn may_have_to_end(&self) -> bool {
        self.phase() & (CLOSED | SURPLUS) != 0
    }

    /// Returns `true` if this process was forked from the process that built the pool. A child has
    /// no workers. Threads that no longer exist may hold the pool's locks, or may have stopped
    /// between any two steps.
    ///
    /// Submissions, `shutdown` and drop check this first. In a child they take no lock, and return.
    /// A worker checks it after each task, hook and waker. In a child it ends the process before it
    /// looks for the next task.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        !self.is_own_process()
    }

    /// Returns `true` if this process has built the pool, so that the pool has workers here.
    #[inline]
    pub(crate) fn is_own_process(&self) -> bool {
        self.phase() & !(fork::STEP - 1) == fork::generation()
    }

    #[inline]
    fn phase(&self) -> u64 {
        // ORDERING: P3: a worker reads the flags after it has published that it is idle.
        self.phase.load(Ordering::SeqCst)
    }

    /// Returns `true` if queued tasks are to be discarded instead of run.
    pub(crate) fn is_discarding(&self) -> bool {
        self.phase() & DISCARDING != 0
    }

    pub(crate) fn is_cancelling(&self) -> bool {
        // Relaxed: a flag. Its reader relies on no other write of the thread that set it.
        self.phase.load(Ordering::Relaxed) & CANCELLING != 0
    }

    /// Closes the pool. After several calls, the strictest mode applies.
    pub(crate) fn close(&self, mode: Shutdown) {
        let asked = (1 << mode.rank()) - 1;
        // ORDERING: P3: set before the thread that closes the pool looks for idle workers.
        self.phase.fetch_or(asked, Ordering::SeqCst);
    }

    /// Returns a deadline in the unit of [`Env::nanos`]. Reads the clock, unless the deadline has
    /// read it already.
    #[inline]
    pub(crate) fn due(&self, deadline: &Deadline) -> u64 {
        deadline.instant().map_or(NEVER, |at| self.nanos(at))
    }

    /// Returns an instant as nanoseconds after the pool's epoch, plus one. An instant more than 584
    /// years after the epoch counts as 584 years.
    pub(crate) fn nanos(&self, at: Instant) -> u64 {
        let after = at.saturating_duration_since(self.epoch).as_nanos() + 1;
        u64::try_from(after).unwrap_or(u64::MAX)
    }

    pub(crate) fn nanos_now(&self) -> u64 {
        self.nanos(now())
    }

    /// Returns the instant for which [`Env::nanos`] returns `nanos`.
    pub(crate) fn instant(&self, nanos: u64) -> Instant {
        self.epoch + Duration::from_nanos(nanos - 1)
    }

    /// Runs a hook. Contains and counts its panic.
    pub(crate) fn hook(&self, f: impl FnOnce()) {
        if contain(f) {
            // Relaxed: a count.
            self.counts.hook_panics.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes this thread a worker of this pool, for good.
    pub(crate) fn own_this_thread(&self, worker: WorkerId) {
        OWNER.with(|owner| owner.set((self.id, worker)));
    }

    /// Returns `true` if this thread is a worker of this pool, even if the worker has ended and its
    /// thread-local destructors are running.
    #[inline]
    pub(crate) fn is_own_worker(&self) -> bool {
        OWNER.with(Cell::get).0 == self.id
    }

    /// Returns the worker that this thread is, if it is one of this pool. While its thread-local
    /// destructors run, another worker may have its slot already.
    pub(crate) fn own_worker(&self) -> Option<WorkerId> {
        let (pool, worker) = OWNER.with(Cell::get);
        (pool == self.id).then_some(worker)
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl Env {
    /// Returns `true`, in models, if there are surplus workers.
    pub(crate) fn is_over(&self) -> bool {
        self.phase() & SURPLUS != 0
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_name_one_instant_each() {
        let env = Env::new(String::new(), Hooks::default(), false);
        let years = |n: u64| Duration::from_secs(n * 365 * 24 * 60 * 60);
        for after in [0, 1, 60_000_000_000].map(Duration::from_nanos) {
            for after in [after, years(100) + after, years(292) + after] {
                let at = env.epoch + after;
                assert_eq!(u128::from(env.nanos(at)), after.as_nanos() + 1);
                assert_eq!(env.instant(env.nanos(at)), at);
            }
        }
    }
}
