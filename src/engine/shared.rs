//! The state of a pool beside that of its core.

use crate::core;
use crate::engine::figures::ages::Ages;
use crate::engine::figures::counts::RareCounts;
use crate::engine::submit::request::{Answer, WaitingTask};
use crate::parts::gate::WorkersKey;
use crate::parts::line::Lines;
use crate::parts::slot::{Sleeper, Slot};
use crate::stats::WhenFull;
use crate::sync::{AtomicBool, AtomicU64, Condvar, Guard, Instant, IsHeld, Mutex, Ordering};
use crate::sync::{Patience, TracedMutex};
use crate::work::env::{Env, WorkerId};
use crate::work::job::Task;
use crate::work::record::Record;
use crate::work::thread::{EndedThreads, Thread};
use crossbeam_utils::CachePadded;
use std::collections::{BTreeSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A pool: the core, and the state around it.
pub(crate) type Core = core::Core<Shared>;

/// The options of a pool, fixed by its builder.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) max_workers: usize,
    pub(crate) min_workers: usize,
    pub(crate) queue_capacity: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) idle_timeout: Duration,
    pub(crate) stack_size: Option<usize>,
    pub(crate) track_ages: bool,
}

/// The state that the registry's lock guards.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) key: WorkersKey,
    /// The number of workers that have been registered and have not left their slot yet.
    pub(crate) live: usize,
    /// The number of threads that the OS has been asked for, and that have neither been registered
    /// nor been refused yet.
    pub(crate) starting: usize,
    /// The number of `live` workers that have been told to end or have found that they must.
    pub(crate) retiring: usize,
    /// The threads that have left their slot and still run their stop hook.
    pub(crate) stopping: Vec<Stopping>,
    /// The limit: how many workers there may be, from 1 to `max_workers`.
    pub(crate) limit: usize,
    /// Slots that are kept out of the free ring because of the limit. There are `max_workers -
    /// limit` of them, or fewer while too many workers live. When a surplus worker ends, its slot
    /// is added.
    pub(crate) withheld: Vec<usize>,
    /// The threads of the workers that exist, indexed by slot. The vector ends at the highest slot
    /// ever used.
    pub(crate) workers: Vec<Option<Thread>>,
    /// The number of the last start on each slot (see [`WorkerId`]), and of all slots.
    pub(crate) starts: Vec<u64>,
    pub(crate) last_start: u64,
    /// The starts of the workers that have been reported as stragglers. Each worker is reported once.
    pub(crate) reported: BTreeSet<u64>,
    /// Slots of idle workers that a sweep took from the ready ring, each with the time of that
    /// sweep. The slot added last is at the back. An entry may be stale, because a worker leaves
    /// its entry here if it claims itself or is told to end.
    pub(crate) bench: VecDeque<(usize, Instant)>,
}

impl Registry {
    /// Returns `true` if the slot has a worker that has been registered.
    pub(crate) fn has_worker(&self, slot: usize) -> bool {
        matches!(self.workers.get(slot), Some(Some(_)))
    }

    /// Returns the worker that was started last on a slot.
    pub(crate) fn started_on(&self, slot: usize) -> WorkerId {
        let start = self.starts[slot];
        WorkerId { slot, start }
    }
}

/// The registry, locked. Workers that get an order under the lock are woken up once the lock is free, because they need
/// it next.
#[derive(Debug)]
pub(crate) struct RegistryGuard<'a> {
    // Dropped first.
    locked: Guard<'a, Registry>,
    sleepers: Sleepers,
    of: &'a TracedMutex<Registry>,
}

/// Workers that are to be woken up.
#[derive(Debug, Default)]
struct Sleepers(Vec<Sleeper>);

impl Drop for Sleepers {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Sleeper::unpark);
    }
}

impl<'a> RegistryGuard<'a> {
    fn new(of: &'a TracedMutex<Registry>, locked: Guard<'a, Registry>) -> Self {
        let sleepers = Sleepers::default();
        Self {
            locked,
            sleepers,
            of,
        }
    }

    /// Wakes a worker up once the lock is free.
    pub(crate) fn wakes(&mut self, worker: Sleeper) {
        self.sleepers.0.push(worker);
    }

    /// Wakes up the workers on these slots once the lock is free.
    pub(crate) fn wake_workers(&mut self, which: impl Fn(usize) -> bool) {
        let workers = self.locked.workers.iter().enumerate();
        let sleepers = workers.filter_map(|(slot, worker)| {
            let worker = worker.as_ref().filter(|_| which(slot))?;
            Some(Sleeper::of(worker.handle.thread()))
        });
        self.sleepers.0.extend(sleepers);
    }

    /// Waits on a condition variable for at most the time that is `left`; `None` means without a limit. A thread that waits has told
    /// no worker to end under this hold of the lock.
    pub(crate) fn wait(self, condition: &Condvar, left: Option<Duration>) -> Self {
        drop(self.sleepers);
        Self::new(self.of, self.of.wait(condition, self.locked, left))
    }
}

impl Deref for RegistryGuard<'_> {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.locked
    }
}

impl DerefMut for RegistryGuard<'_> {
    fn deref_mut(&mut self) -> &mut Registry {
        &mut self.locked
    }
}

/// A thread that has left its slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopping {
    pub(crate) worker: WorkerId,
    /// How many tasks it has run.
    pub(crate) tasks: u64,
}

/// How many workers there are and were. The registry's lock guards the changes. They are read without
/// it, so that no submission ever waits for a thread that reads figures.
#[derive(Debug, Default)]
pub(crate) struct Headcount {
    /// How many workers have been started, and how many have ended.
    pub(crate) spawned: AtomicU64,
    pub(crate) retired: AtomicU64,
    pub(crate) peak: AtomicU64,
    /// The slots below this number have been used. The others are as new.
    pub(crate) used: AtomicU64,
    /// How often a change of the limit has begun or ended to deal out the free slots. Odd while one does.
    pub(crate) deals: AtomicU64,
}

impl Headcount {
    /// Returns how many workers have been started, and how many of these have ended, at one moment.
    pub(crate) fn starts_and_ends(&self) -> (u64, u64) {
        // ORDERING: L1: ends are read before starts, and again after them. If none was counted between, both are of the moment
        // at which the starts were read.
        let ends = || self.retired.load(Ordering::SeqCst);
        loop {
            let (retired, spawned) = (ends(), self.spawned.load(Ordering::SeqCst));
            if retired == ends() {
                return (spawned, retired);
            }
        }
    }
}

/// The state of a pool beside that of its core. The fields are grouped by the threads that read and
/// write them. No two groups share a cache line of 128 bytes:
///
/// | fields | read by | written by |
/// |---|---|---|
/// | `min_workers` to `ages` | every submission and worker | only at the build |
/// | `line` | submissions that wait, and givers of permits that must pass one | the same |
/// | `benched` | submissions | sweeps, and claims from the bench |
/// | `sweep_at` | workers about to sleep | sweeps |
/// | `counts` | `stats` | refusals, whose counts are spread over several lines; rare events |
/// | `registry` and the rest | starts, ends, `stats` | starts and ends |
#[repr(C)]
pub(crate) struct Shared {
    pub(crate) min_workers: usize,
    pub(crate) when_full: WhenFull,
    /// Set if the pool's policy makes submissions wait for space. A submission's own `when_full`
    /// takes precedence.
    pub(crate) blocks: bool,
    pub(crate) idle_timeout: Duration,
    pub(crate) stack_size: Option<usize>,
    /// When the queued tasks were submitted. `None` unless the pool tracks ages.
    pub(crate) ages: Option<Ages>,

    pub(crate) line: Lines<WaitingTask, Answer>,

    /// The length of `Registry::bench`. While a sweep or a claim changes the bench, an upper bound
    /// of that length.
    pub(crate) benched: CachePadded<AtomicU64>,
    /// The time at which the next sweep is due, as returned by [`Env::nanos`]. Idle workers sleep
    /// until then. Zero if no sweep is scheduled, because none could end a worker.
    pub(crate) sweep_at: CachePadded<AtomicU64>,
    pub(crate) counts: RareCounts,

    pub(crate) headcount: CachePadded<Headcount>,
    pub(crate) registry: TracedMutex<Registry>,
    pub(crate) ended: EndedThreads,
    /// Locked by a shutdown while it joins threads.
    pub(crate) joining: Mutex<()>,
    /// Notified when a thread has been started, has ended, or could not be started.
    pub(crate) changed: Condvar,
    /// Set once a shutdown has timed out before all workers had ended.
    pub(crate) gave_up: AtomicBool,
}

impl Settings {
    /// Creates a pool with these settings.
    pub(crate) fn into_core(self, env: Env) -> Core {
        let Self {
            max_workers,
            min_workers,
            queue_capacity,
            when_full,
            idle_timeout,
            stack_size,
            track_ages,
        } = self;
        Core::new(env, max_workers, queue_capacity, |queue| Shared {
            min_workers,
            when_full,
            blocks: when_full.blocks(),
            idle_timeout,
            stack_size,
            ages: track_ages.then(|| Ages::new(queue)),
            line: Lines::new(),
            benched: CachePadded::new(AtomicU64::new(0)),
            sweep_at: CachePadded::new(AtomicU64::new(0)),
            counts: RareCounts::default(),
            headcount: CachePadded::default(),
            registry: TracedMutex::new(Registry {
                limit: max_workers,
                starts: vec![0; max_workers],
                ..Registry::default()
            }),
            ended: EndedThreads::default(),
            joining: Mutex::default(),
            changed: Condvar::new(),
            gave_up: AtomicBool::new(false),
        })
    }
}

impl Core {
    /// Locks the registry.
    pub(crate) fn registry(&self) -> RegistryGuard<'_> {
        let of = &self.host.registry;
        RegistryGuard::new(of, of.lock())
    }

    /// Locks the registry, as [`registry`](Self::registry) does. A thread that only tries gets an error if another
    /// one holds the lock.
    pub(crate) fn registry_by(&self, patience: Patience) -> Result<RegistryGuard<'_>, IsHeld> {
        let of = &self.host.registry;
        Ok(RegistryGuard::new(of, of.lock_by(patience)?))
    }

    /// Returns the slots that have ever had a worker. A slot that gets its first one meanwhile may be
    /// missing.
    pub(crate) fn used_slots(&self) -> &[Slot<Task, Record>] {
        // ORDERING: P3: read after a cancel has set its flag. L1: read before the slots.
        let used = self.host.headcount.used.load(Ordering::SeqCst);
        &self.slots[..used as usize]
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl Core {
    /// Asserts that nothing is left over, and that each slot is in the free ring or withheld, exactly
    /// once. Models call it after all threads have ended.
    pub(crate) fn assert_all_at_rest(&self) {
        self.host.line.assert_at_rest();
        let registry = self.host.registry.lock();
        let figures = (registry.live, registry.starting, registry.retiring);
        assert_eq!(figures, (0, 0, 0), "workers");
        assert_eq!(self.slots_to_withhold(&registry), 0, "slots to be withheld");
        assert!(!self.env.is_over(), "too many workers");
        let withheld = registry.withheld.clone();
        drop(registry);
        let mut free = self.assert_at_rest();
        free.extend(withheld);
        free.sort_unstable();
        let slots: Vec<_> = (0..self.slots.len()).collect();
        assert_eq!(free, slots, "the free ring, and what is withheld from it");
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;
    use crate::parts::gate::Gate;
    use crate::parts::in_flight::InFlight;
    use crate::parts::queue::Queue;
    use crate::parts::ring::Ring;
    use static_assertions::const_assert_eq;
    use std::mem::{align_of, offset_of, size_of};

    /// 128, or the target's padding if that is less, as on 32-bit x86.
    const LINE: usize = {
        let padding = align_of::<CachePadded<u8>>();
        if padding < 128 {
            padding
        } else {
            128
        }
    };

    /// Asserts that each field begins a cache line, so that it shares no line with the fields
    /// before it.
    macro_rules! begin_a_line {
        ($type:ty: $($field:ident)+) => {
            $(const_assert_eq!(offset_of!($type, $field) % LINE, 0);)+
        };
    }
    begin_a_line!(Core: env gate queue ready free in_flight host);
    begin_a_line!(Shared: line benched sweep_at counts headcount registry);

    #[test]
    fn no_word_that_all_read_has_a_neighbor_that_is_written() {
        assert_eq!(align_of::<Core>() % LINE, 0);
        // The size of each of these types is a multiple of a cache line, so the next field begins a
        // line.
        let whole = [
            size_of::<Env>(),
            size_of::<Gate>(),
            size_of::<Queue<Task>>(),
            size_of::<Ring>(),
            size_of::<InFlight>(),
            size_of::<Lines<WaitingTask, Answer>>(),
            size_of::<RareCounts>(),
            size_of::<Slot<Task, Record>>(),
        ];
        assert!(whole.iter().all(|size| size % LINE == 0), "{whole:?}");
        assert_eq!(align_of::<Slot<Task, Record>>() % LINE, 0);
        assert_eq!(offset_of!(Env, counts) % LINE, 0);
        let generation = crate::sync::fork::generation_address();
        assert_eq!(
            generation % LINE,
            0,
            "a static of the program's may be beside it"
        );
    }
}
