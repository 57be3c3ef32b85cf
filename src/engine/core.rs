//! What a pool and its workers share: data, and the questions that every file asks of it.

use crate::parts::backoff::{cores, Rarely};
use crate::parts::completion::WaitNode;
use crate::parts::in_flight::InFlight;
use crate::parts::line::Line;
use crate::parts::queue::Queue;
use crate::parts::ring::Ring;
use crate::parts::slot::Slot;
use crate::stats::{Shutdown, WhenFull};
use crate::sync::{thread_local, Arc, AtomicBool, AtomicU64, Condvar, Instant, Mutex};
use crate::work::env::Env;
use crate::work::job::Task;
use crate::work::record::Record;
use crate::work::thread::{EndedThreads, Thread};
use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::time::Duration;

use super::ages::Ages;
use super::counts::RareCounts;
use super::request::{Answer, Wanted};

/// What a builder settled.
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

/// What a worker's thread runs, on its slot: a value, so that who starts a thread needs not know.
pub(crate) type Main = fn(&Arc<Core>, usize);

/// What the registry's lock guards.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// Workers that exist: started and not yet ended.
    pub(crate) live: usize,
    /// Threads that the OS has been asked for.
    pub(crate) starting: usize,
    /// Of those that exist: on their way to their end.
    pub(crate) retiring: usize,
    pub(crate) spawned: u64,
    pub(crate) retired: u64,
    pub(crate) peak: usize,
    /// How many workers there may be.
    pub(crate) limit: usize,
    /// Slots that are neither in use nor in the free ring: of all but `limit`, as many as could be had.
    pub(crate) withheld: Vec<usize>,
    /// By slot; as long as the highest slot ever used.
    pub(crate) workers: Vec<Option<WorkerEntry>>,
    /// Slots of idle workers that a sweep took from the ready ring, the latest last. A worker that
    /// claimed itself or was told to end has left its entry behind.
    pub(crate) bench: Vec<usize>,
}

/// A worker's thread, in the registry.
#[derive(Debug)]
pub(crate) struct WorkerEntry {
    pub(crate) thread: Thread,
    /// Tasks that ended on the slot before this worker started.
    pub(crate) tasks_before: u64,
    /// When a sweep put it on the bench last.
    pub(crate) benched: Option<Instant>,
    /// Subscribers have been told that it has not ended.
    pub(crate) is_told: bool,
}

/// In memory, on lines of 128 bytes:
///
/// | fields | read by | written by |
/// |---|---|---|
/// | `env` to `ages` | every submission and worker | none in service: a close, a change of the limit |
/// | `queue`, `ready`, `free`, `in_flight`, `line` | the same | the same; each moving word has a line of its own |
/// | `benched` | submissions | sweeps, and claims from the bench |
/// | `sweep_at` | workers about to sleep | sweeps |
/// | `counts` | `stats` | refusals, a line for each of several threads; what is rare |
/// | `registry` and the rest | starts, ends, `stats` | the same |
#[repr(C)]
pub(crate) struct Core {
    pub(crate) env: Env,
    pub(crate) slots: Box<[Slot<Task, Record>]>,
    pub(crate) settings: Settings,
    pub(crate) main: Main,
    /// More than one core: spinning can pay.
    pub(crate) parallel: bool,
    /// Submissions wait for space, if they do not say otherwise.
    pub(crate) blocks: bool,
    /// Of a pool with a queue that tracks them.
    pub(super) ages: Option<Ages>,

    pub(crate) queue: Option<Queue<Task>>,
    pub(crate) ready: Ring,
    pub(crate) free: Ring,
    pub(crate) in_flight: InFlight,
    pub(crate) line: Line<Wanted, Answer>,

    /// The length of the bench; more during a sweep.
    pub(crate) benched: CachePadded<AtomicU64>,
    /// When a worker that sleeps is to make the next sweep, as [`Env::nanos`]; zero: none is of use.
    pub(crate) sweep_at: CachePadded<AtomicU64>,
    pub(crate) counts: RareCounts,

    pub(crate) registry: Mutex<Registry>,
    pub(crate) ended: EndedThreads,
    /// Held by the shutdown that joins them.
    pub(crate) joining: Mutex<()>,
    /// A thread has been started, or has ended.
    pub(crate) changed: Condvar,
    /// A shutdown has waited in vain for a worker's end.
    pub(crate) gave_up: AtomicBool,
}

thread_local! {
    /// The pool and slot of the worker that this thread last gave a task to, notified, or was served by,
    /// and the generation of a task that went there; zero: none since a miss.
    static AFFINITY: Cell<(u64, usize, u64)> = const { Cell::new((0, 0, 0)) };
    /// How rarely a call that ended only after a yield gives up its last worker.
    static SEPARATIONS: Rarely = const { Rarely::new() };
}

impl Core {
    pub(crate) fn new(env: Env, settings: Settings, main: Main) -> Self {
        let max = settings.max_workers;
        let queue = (settings.queue_capacity > 0).then(|| Queue::new(settings.queue_capacity));
        let tracked = queue.as_ref().filter(|_| settings.track_ages);
        Self {
            env,
            ages: tracked.map(Ages::new),
            slots: (0..max).map(|_| Slot::new(Record::new())).collect(),
            queue,
            main,
            parallel: cores() > 1,
            blocks: settings.when_full.blocks(),
            ready: Ring::new(max, 0),
            free: Ring::new(max, max),
            in_flight: InFlight::new(),
            line: Line::new(),
            benched: CachePadded::new(AtomicU64::new(0)),
            sweep_at: CachePadded::new(AtomicU64::new(0)),
            counts: RareCounts::default(),
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

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.env.is_closed()
    }

    /// Closes the pool; the strictest mode asked stays. Whether queued tasks are to be discarded.
    pub(crate) fn close(&self, mode: Shutdown) -> bool {
        let discards = self.env.close(mode);
        self.queue.iter().for_each(Queue::close);
        discards
    }

    /// Whether there is nothing for a worker in the queue.
    #[inline]
    pub(crate) fn nothing_queued(&self) -> bool {
        self.queue.as_ref().is_none_or(Queue::is_empty)
    }

    // ---- last-worker affinity ---------------------------------------------------

    /// This thread's last worker in this pool.
    #[inline]
    pub(crate) fn affinity(&self) -> Option<(usize, u64)> {
        let (pool, slot, last) = AFFINITY.with(Cell::get);
        (pool == self.env.id).then_some((slot, last))
    }

    #[inline]
    pub(crate) fn set_affinity(&self, slot: usize, generation: u64) {
        AFFINITY.with(|it| it.set((self.env.id, slot, generation)));
    }

    /// What `f` does for others leaves this thread's last worker as it is.
    pub(super) fn keep_affinity<R>(f: impl FnOnce() -> R) -> R {
        let before = AFFINITY.with(Cell::get);
        let result = f();
        AFFINITY.with(|it| it.set(before));
        result
    }

    pub(crate) fn forget_affinity() {
        AFFINITY.with(|it| it.set((0, 0, 0)));
    }

    /// A result came once this thread had offered its CPU. A worker that shares the CPU would
    /// do so call after call: neither sleeps, so no kernel parts them. Another worker, or the same if
    /// this thread sleeps once, may run beside it, unless every CPU is busy; there a change would
    /// only keep all workers in use (laws 5 and 6). So it is tried rarely.
    pub(crate) fn result_came_after_yield(&self) {
        if SEPARATIONS.with(Rarely::is_time) {
            Self::forget_affinity();
            WaitNode::park_next_time();
        }
    }

    /// A result came without that.
    #[inline]
    pub(crate) fn result_came_without_yield(&self) {
        SEPARATIONS.with(Rarely::went_well);
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl Core {
    /// For models, once every thread has ended: nobody and nothing is counted any more, and
    /// every slot is in the free ring once.
    pub(crate) fn assert_at_rest(&self) {
        self.in_flight.assert_at_rest();
        assert_eq!(self.line.waiting(), 0, "waiting");
        if let Some(queue) = &self.queue {
            queue.assert_at_rest();
        }
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

    const LINE: usize = 128;

    /// Asserts that a field begins a line, so that the fields before it and it share none.
    macro_rules! begin_a_line {
        ($type:ty: $($field:ident)+) => {
            $(const_assert_eq!(offset_of!($type, $field) % LINE, 0);)+
        };
    }
    begin_a_line!(Core: env queue ready free in_flight line benched sweep_at counts registry);

    #[test]
    fn no_word_that_all_read_has_a_neighbor_that_is_written() {
        assert_eq!(align_of::<Core>() % LINE, 0);
        // What `Core` holds by value is whole lines, and so is what in it is written.
        let whole = [
            size_of::<Env>(),
            size_of::<Queue<Task>>(),
            size_of::<Ring>(),
            size_of::<InFlight>(),
            size_of::<Line<Wanted, Answer>>(),
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
