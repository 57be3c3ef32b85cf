//! What tasks and hooks need of their pool, and nothing of how it works.

use crate::error::TaskPanic;
use crate::parts::deadline::Deadline;
use crate::stats::Shutdown;
use crate::sync::{fork, now, thread_local, AtomicU64, Instant, Ordering, PlainU64};
use crate::work::panics::contain;
use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::time::Duration;

type Hook<A> = Box<dyn Fn(A) + Send + Sync>;
pub(crate) type Around = Box<dyn Fn(&mut dyn FnMut()) + Send + Sync>;
type OnPanic = Box<dyn Fn(&TaskPanic<'_>) + Send + Sync>;

/// No deadline, where one is given as [`Env::nanos`].
pub(crate) const NEVER: u64 = u64::MAX;

/// What shutdowns have asked for; a mode of rank n asks for the first n of these.
const CLOSED: u64 = 1;
const DISCARDING: u64 = 1 << 1;
const CANCELLING: u64 = 1 << 2;
/// There are more workers than the pool's limit allows, so that each submission and each
/// worker has to look closer.
const SURPLUS: u64 = 1 << 3;
/// The pool tracks ages, for its whole life. Each submission looks closer.
const AGES: u64 = 1 << 4;

/// User code that runs on workers.
#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) start: Option<Hook<usize>>,
    pub(crate) stop: Option<Hook<usize>>,
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
    /// The pool that this thread is a worker of, and its slot. It needs no destructor, so those of
    /// the thread's other values can still ask.
    static OWNER: Cell<(u64, usize)> = const { Cell::new((0, 0)) };
}

pub(crate) struct Env {
    pub(crate) id: u64,
    pub(crate) name: String,
    /// What deadlines are counted from.
    pub(crate) epoch: Instant,
    pub(crate) hooks: Hooks,
    /// The flags above: none while the pool works as usual. In the upper half, the [`fork::generation`]
    /// that it was built in.
    phase: AtomicU64,
    /// On lines of its own: every submission reads the rest.
    pub(crate) counts: CachePadded<EnvCounts>,
    #[cfg(feature = "metrics")]
    pub(crate) series: crate::work::series::Series,
}

/// Written by workers, and by callers that leave.
#[derive(Debug, Default)]
pub(crate) struct EnvCounts {
    pub(crate) hook_panics: AtomicU64,
    /// Callers that left their running task, and tasks that ended past a deadline of their own.
    pub(crate) timed_out: AtomicU64,
}

impl Env {
    pub(crate) fn new(name: String, hooks: Hooks, tracks_ages: bool) -> Self {
        fork::watch();
        static NEXT: PlainU64 = PlainU64::new(1);
        Self {
            // Relaxed: a number.
            id: NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            name,
            epoch: now(),
            hooks,
            phase: AtomicU64::new(fork::generation() | if tracks_ages { AGES } else { 0 }),
            counts: CachePadded::default(),
            #[cfg(feature = "metrics")]
            series: crate::work::series::Series::default(),
        }
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.phase() & CLOSED != 0
    }

    /// Under the lock of the registry.
    pub(crate) fn set_surplus(&self, is_there: bool) {
        // ORDERING: P3: before who lowers the limit looks for idle workers.
        if is_there {
            self.phase.fetch_or(SURPLUS, Ordering::SeqCst);
        } else {
            self.phase.fetch_and(!SURPLUS, Ordering::SeqCst);
        }
    }

    pub(crate) fn has_start_hook(&self) -> bool {
        self.hooks.start.is_some()
    }

    pub(crate) fn tracks_ages(&self) -> bool {
        self.phase() & AGES != 0
    }

    /// Returns `true` if the pool is open, has no surplus workers and tracks no ages, this process built
    /// it, and `others`, a small number, is zero: by one comparison.
    #[inline]
    pub(crate) fn is_fast_path_open(&self, others: u64) -> bool {
        self.phase() | others == fork::generation()
    }

    /// Whether the pool is closed, or has surplus workers.
    #[inline]
    pub(crate) fn is_closed_or_over_limit(&self) -> bool {
        self.phase() & (CLOSED | SURPLUS) != 0
    }

    /// Whether this process is a child, made by `fork`, of the one that built the pool: there
    /// are no workers here, and threads that are no more may hold the pool's locks, and have
    /// stopped half-way in each of its steps.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.phase() & !(fork::STEP - 1) != fork::generation()
    }

    #[inline]
    fn phase(&self) -> u64 {
        // ORDERING: P3: a worker looks here after it has published that it is idle.
        self.phase.load(Ordering::SeqCst)
    }

    /// Whether queued tasks are to be discarded, and not to be run.
    pub(crate) fn is_discarding(&self) -> bool {
        self.phase() & DISCARDING != 0
    }

    pub(crate) fn is_cancelling(&self) -> bool {
        // Relaxed: a flag; whoever acts on it needs nothing it publishes.
        self.phase.load(Ordering::Relaxed) & CANCELLING != 0
    }

    /// Closes the pool; the strictest mode asked stays. Whether queued tasks are to be
    /// discarded.
    pub(crate) fn close(&self, mode: Shutdown) -> bool {
        let asked = (1 << mode.rank()) - 1;
        // ORDERING: P3: before who closes looks for idle workers.
        let before = self.phase.fetch_or(asked, Ordering::SeqCst);
        (before | asked) & DISCARDING != 0
    }

    /// When a deadline is, as [`Env::nanos`]; the clock is read if it was not.
    #[inline]
    pub(crate) fn due(&self, deadline: &Deadline) -> u64 {
        deadline.instant().map_or(NEVER, |at| self.nanos(at))
    }

    /// An instant as nanoseconds after the pool's epoch, plus one; beyond 584 years, 584
    /// years.
    pub(crate) fn nanos(&self, at: Instant) -> u64 {
        let after = at.saturating_duration_since(self.epoch).as_nanos() + 1;
        u64::try_from(after).unwrap_or(u64::MAX)
    }

    pub(crate) fn nanos_now(&self) -> u64 {
        self.nanos(now())
    }

    /// The instant again.
    pub(crate) fn instant(&self, nanos: u64) -> Instant {
        self.epoch + Duration::from_nanos(nanos - 1)
    }

    /// Runs a hook; its panic is contained and counted.
    pub(crate) fn hook(&self, f: impl FnOnce()) {
        if contain(f) {
            // Relaxed: a count.
            self.counts.hook_panics.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// From now on this thread is a worker of this pool.
    pub(crate) fn own_this_thread(&self, slot: usize) {
        OWNER.with(|owner| owner.set((self.id, slot)));
    }

    /// Whether this thread is a worker of this pool, its thread-local destructors
    /// included.
    #[inline]
    pub(crate) fn is_own_worker(&self) -> bool {
        OWNER.with(Cell::get).0 == self.id
    }

    /// The slot of this thread, if it is a worker of this pool, its thread-local destructors
    /// included: another may have the slot by then.
    pub(crate) fn own_slot(&self) -> Option<usize> {
        let (pool, slot) = OWNER.with(Cell::get);
        (pool == self.id).then_some(slot)
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl Env {
    /// For models: whether there are surplus workers.
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
