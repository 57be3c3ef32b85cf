//! The data that a pool and its workers share, and the functions on it that several files use.

use crate::parts::backoff::{cores, Rarely};
use crate::parts::completion::WaitNode;
use crate::parts::gate::Gate;
use crate::parts::in_flight::InFlight;
use crate::parts::line::Lines;
use crate::parts::queue::Queue;
use crate::parts::ring::Ring;
use crate::parts::slot::Slot;
use crate::stats::WhenFull;
use crate::sync::{thread_local, AtomicBool, AtomicU64, Condvar, Instant, Mutex, Ordering};
use crate::work::env::Env;
use crate::work::job::Task;
use crate::work::record::Record;
use crate::work::thread::{EndedThreads, Thread};
use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

use super::ages::Ages;
use super::counts::RareCounts;
use super::request::{Answer, Wanted};

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
    /// The number of workers that have been registered and have not left their slot yet.
    pub(crate) live: usize,
    /// The number of threads that the OS has been asked for, and that have neither been registered
    /// nor been refused yet.
    pub(crate) starting: usize,
    /// The number of `live` workers that have been told to end or have found that they must.
    pub(crate) retiring: usize,
    /// The slots that threads have left which still run their stop hook.
    pub(crate) stopping: Vec<usize>,
    /// The limit: how many workers there may be, from 1 to `max_workers`.
    pub(crate) limit: usize,
    /// Slots that are kept out of the free ring because of the limit. There are `max_workers -
    /// limit` of them, or fewer while too many workers live. When a surplus worker ends, its slot
    /// is added.
    pub(crate) withheld: Vec<usize>,
    /// The threads of the workers that exist, indexed by slot. The vector ends at the highest slot
    /// ever used.
    pub(crate) workers: Vec<Option<Thread>>,
    /// The slots whose workers have been reported as stragglers. Each worker is reported once.
    pub(crate) reported: Vec<usize>,
    /// Slots of idle workers that a sweep took from the ready ring, each with the time of that
    /// sweep. The slot added last is at the back. An entry may be stale, because a worker leaves
    /// its entry here if it claims itself or is told to end.
    pub(crate) bench: VecDeque<(usize, Instant)>,
}

/// How many workers there are and were. The registry's lock guards the changes. They are read without
/// it, so that no submission ever waits for a thread that reads figures.
#[derive(Debug, Default)]
pub(crate) struct Headcount {
    pub(crate) live: AtomicU64,
    pub(crate) spawned: AtomicU64,
    pub(crate) peak: AtomicU64,
    /// The slots below this number have been used. The others are as new.
    pub(crate) used: AtomicU64,
}

/// The shared state of a pool. The fields are grouped by the threads that read and write them. No
/// two groups share a cache line of 128 bytes:
///
/// | fields | read by | written by |
/// |---|---|---|
/// | `env` to `ages` | every submission and worker | only a close or a change of the limit |
/// | `gate`, `queue`, `ready`, `free`, `in_flight`, `line` | every submission and worker | every submission and worker; each moving word has a line of its own |
/// | `benched` | submissions | sweeps, and claims from the bench |
/// | `sweep_at` | workers about to sleep | sweeps |
/// | `counts` | `stats` | refusals, whose counts are spread over several lines; rare events |
/// | `registry` and the rest | starts, ends, `stats` | starts and ends |
#[repr(C)]
pub(crate) struct Core {
    pub(crate) env: Env,
    pub(crate) slots: Box<[Slot<Task, Record>]>,
    pub(crate) settings: Settings,
    /// Set if this process may use more than one core. Only then can spinning pay off.
    pub(crate) parallel: bool,
    /// Set if the pool's policy makes submissions wait for space. A submission's own `when_full`
    /// takes precedence.
    pub(crate) blocks: bool,
    /// When the queued tasks were submitted. `None` unless the pool tracks ages and has a queue.
    pub(super) ages: Option<Ages>,

    pub(crate) gate: Gate,
    /// Has a cell for each permit of the gate. In a pool whose `queue_capacity` is zero, a task lies
    /// here only for the moment in which the worker that takes it is between two steps.
    pub(crate) queue: Queue<Task>,
    pub(crate) ready: Ring,
    pub(crate) free: Ring,
    pub(crate) in_flight: InFlight,
    pub(crate) line: Lines<Wanted, Answer>,

    /// The length of `Registry::bench`. While a sweep or a claim changes the bench, an upper bound
    /// of that length.
    pub(crate) benched: CachePadded<AtomicU64>,
    /// The time at which the next sweep is due, as returned by [`Env::nanos`]. Idle workers sleep
    /// until then. Zero if no sweep is scheduled, because none could end a worker.
    pub(crate) sweep_at: CachePadded<AtomicU64>,
    pub(crate) counts: RareCounts,

    pub(crate) headcount: CachePadded<Headcount>,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) ended: EndedThreads,
    /// Locked by a shutdown while it joins threads.
    pub(crate) joining: Mutex<()>,
    /// Notified when a thread has been started, has ended, or could not be started.
    pub(crate) changed: Condvar,
    /// Set once a shutdown has timed out before all workers had ended.
    pub(crate) gave_up: AtomicBool,
}

thread_local! {
    /// This thread's last worker: its pool's id, its slot, and the generation of the task that was
    /// handed to it. The generation is zero if this thread notified the worker instead, if the task
    /// came from the queue, or if the last attempt to claim the worker failed.
    static AFFINITY: Cell<(u64, usize, u64)> = const { Cell::new((0, 0, 0)) };
    /// Decides how often `result_came_after_yield` acts.
    static SEPARATIONS: Rarely = const { Rarely::new() };
}

impl Core {
    pub(crate) fn new(env: Env, settings: Settings) -> Self {
        let max = settings.max_workers;
        let permits = max + settings.queue_capacity;
        let queue = Queue::new(permits);
        Self {
            env,
            ages: settings.track_ages.then(|| Ages::new(&queue)),
            slots: (0..max).map(|_| Slot::new(Record::new())).collect(),
            gate: Gate::new_asleep(permits),
            queue,
            parallel: cores() > 1,
            blocks: settings.when_full.blocks(),
            ready: Ring::new(max, 0),
            free: Ring::new(max, max),
            in_flight: InFlight::default(),
            line: Lines::new(),
            benched: CachePadded::new(AtomicU64::new(0)),
            sweep_at: CachePadded::new(AtomicU64::new(0)),
            counts: RareCounts::default(),
            headcount: CachePadded::default(),
            registry: Mutex::new(Registry {
                limit: max,
                ..Registry::default()
            }),
            ended: EndedThreads::default(),
            joining: Mutex::default(),
            changed: Condvar::new(),
            gave_up: AtomicBool::new(false),
            settings,
        }
    }

    /// Returns the slots that have ever had a worker. A slot that gets its first one meanwhile may be
    /// missing.
    pub(crate) fn used_slots(&self) -> &[Slot<Task, Record>] {
        // ORDERING: P3: read after a cancel has set its flag. L1: read before the slots.
        let used = self.headcount.used.load(Ordering::SeqCst);
        &self.slots[..used as usize]
    }

    /// Returns `true` if the pool was built with a queue.
    #[inline]
    pub(crate) fn has_queue(&self) -> bool {
        self.settings.queue_capacity > 0
    }

    // ---- last-worker affinity ---------------------------------------------------

    /// Returns the slot of this thread's last worker and the generation stored with it, if that
    /// worker belongs to this pool.
    #[inline]
    pub(crate) fn affinity(&self) -> Option<(usize, u64)> {
        let (pool, slot, last) = AFFINITY.with(Cell::get);
        (pool == self.env.id).then_some((slot, last))
    }

    #[inline]
    pub(crate) fn set_affinity(&self, slot: usize, generation: u64) {
        AFFINITY.with(|it| it.set((self.env.id, slot, generation)));
    }

    /// Calls `f`, then restores this thread's last worker. So a thread that submits other threads'
    /// tasks in `f` keeps the last worker of its own tasks.
    pub(super) fn keep_affinity<R>(f: impl FnOnce() -> R) -> R {
        let before = AFFINITY.with(Cell::get);
        let result = f();
        AFFINITY.with(|it| it.set(before));
        result
    }

    /// Notes that a result arrived after this thread had yielded its CPU.
    ///
    /// In that case the caller and the worker probably share a CPU. Neither of them sleeps, so the
    /// scheduler does not separate them, and they share the CPU call after call. To end this, the
    /// thread forgets its last worker, and parks at once in its next wait. Then another worker
    /// takes the next task, or the scheduler moves one of the two threads. If all CPUs are busy,
    /// this does not help. It only spreads the calls over more workers, so that none of them is
    /// idle for long enough to end (laws 5 and 6). So the thread does it rarely.
    pub(crate) fn result_came_after_yield(&self) {
        if SEPARATIONS.with(Rarely::is_time) {
            AFFINITY.with(|it| it.set((0, 0, 0)));
            WaitNode::park_next_time();
        }
    }

    /// Notes that a result arrived before this thread yielded its CPU.
    #[inline]
    pub(crate) fn result_came_without_yield(&self) {
        SEPARATIONS.with(Rarely::went_well);
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl Core {
    /// Asserts that all counts are zero and that each slot is in the free ring exactly once. Models
    /// call it after all threads have ended.
    pub(crate) fn assert_at_rest(&self) {
        self.in_flight.assert_at_rest();
        self.gate.assert_at_rest();
        self.line.assert_at_rest();
        self.queue.assert_at_rest();
        let registry = crate::sync::lock(&self.registry);
        let figures = (registry.live, registry.starting, registry.retiring);
        assert_eq!(figures, (0, 0, 0), "workers");
        assert_eq!(self.slots_to_withhold(&registry), 0, "slots to be withheld");
        assert!(!self.env.is_over(), "too many workers");
        let withheld = registry.withheld.clone();
        drop(registry);
        let all = |ring: &Ring| {
            let mut slots: Vec<_> = std::iter::from_fn(|| ring.pop()).collect();
            slots.sort_unstable();
            slots
        };
        let listed = all(&self.ready);
        for (index, slot) in self.slots.iter().enumerate() {
            let times = listed.iter().filter(|&&l| l == index).count();
            assert!(times <= 1, "listed {times} times");
            slot.assert_at_rest(times == 1);
            slot.record.assert_at_rest();
        }
        let slots: Vec<_> = (0..self.slots.len()).collect();
        let mut free = all(&self.free);
        free.extend(withheld);
        free.sort_unstable();
        assert_eq!(free, slots, "the free ring, and what is withheld from it");
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;
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
    begin_a_line!(Core: env gate queue ready free in_flight line benched sweep_at counts headcount registry);

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
            size_of::<Lines<Wanted, Answer>>(),
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
