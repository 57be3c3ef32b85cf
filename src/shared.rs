//! What a pool and its workers share, and how work gets in.
//!
//! # Submitting
//!
//! In this order: the queue, if a worker is looking at it or on its way there
//! (`seekers`); an idle worker, by this thread's hint, the ready ring, or the bench; a
//! free slot and a new thread; the queue; then a refusal, or a wait for room. An idle
//! worker that sleeps, or is not this thread's last, is not given the task if the queue
//! has room to spare: the task is pushed and the worker called, each further one for a
//! further task, and who comes first takes what there is. To come takes tens of
//! microseconds.
//!
//! # Never lost: who looks after a queued task
//!
//! `seekers` counts the workers without a task that will look at the queue again: awake,
//! or called. Every change below is a `SeqCst` read-modify-write followed
//! by `SeqCst` loads, so of two threads that each announce and then look, at
//! least one sees the other:
//!
//! 1. A submitter pushes, *then* reads `seekers`. Not zero: some seeker will
//!    look again. Zero: it calls an idle worker or starts one (`rouse`).
//! 2. A seeker that took a task decrements `seekers`, *then* looks whether there
//!    is more, and if so rouses the next: a burst spreads one by one. It looks once
//!    its task counts as started, whose caller may leave while a thread is started.
//! 3. A seeker about to sleep publishes that it is idle, decrements, *then*
//!    looks once more.
//! 4. A worker that ends looks under the registry's lock, before it gives its
//!    slot back. Until it has, `limbo` makes submitters wait for the outcome.
//! 5. An occupied worker looks when its task has ended.
//!
//! # Never refused in vain: `is_saturated`
//!
//! Workers and slots that are neither occupied nor visible through the rings are
//! counted in `transit` or `seekers` *before* they leave the rings and until they
//! are back: those called, benched workers, those told to end and slots being given a
//! thread (`limbo`), workers without an order in a start or stop hook (`hooked`). A submitter refuses only if, between two equal
//! readings of the rings' pushes and the queue's pops, with no seeker and nobody
//! in transit at either end, the free ring was empty, then the ready ring, and
//! then the queue full. A worker can have become unoccupied in between only by
//! entering the ready ring (seen), by an entry that another submission held and
//! followed through (occupied by that), or by an entry that a claim by hint had
//! left in the ring (it is seen idle, or its word has changed). So at the moment
//! the queue was found full, every worker was occupied. All of these words are
//! read-only in a saturated pool: a refusal moves no cache line.

use crate::cleaner::{Cleaner, Cleaning};
use crate::deadline::Deadline;
use crate::error::Refusal;
use crate::observe;
use crate::park::{Nearly, Spin, Step};
use crate::queue::{NotPushed, Queue};
use crate::ring::Ring;
use crate::room::{Blocked, Entry, Room};
use crate::slot::{Claim, For, Hand, Slot};
use crate::stats::{Shutdown, WhenFull};
use crate::sync::{
    catch_unwind, lock, thread, thread_local, Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering,
};
use crate::task::{drop_payload, with_current, Task};
use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

type Hook<A> = Box<dyn Fn(A) + Send + Sync>;
type Around = Box<dyn Fn(&mut dyn FnMut()) + Send + Sync>;
type OnPanic = Box<dyn Fn(&crate::error::TaskPanic<'_>) + Send + Sync>;

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

/// What a builder settled.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) max_workers: usize,
    pub(crate) min_workers: usize,
    pub(crate) queue_capacity: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) idle_timeout: Duration,
    pub(crate) thread_name: String,
    pub(crate) stack_size: Option<usize>,
}

/// Refusals, counted on a line per thread as far as there are lines.
#[derive(Debug)]
struct Refusals([CachePadded<[AtomicU64; REASONS]>; SHARDS]);

const SHARDS: usize = if cfg!(lazypool_loom) { 2 } else { 16 };

const REASONS: usize = 5;

/// Why a submission was not taken.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reason {
    Saturated,
    Closed,
    Cancelled,
    SpawnFailed,
    Expired,
}

impl Refusals {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self(std::array::from_fn(|_| {
            CachePadded::new(std::array::from_fn(|_| zero()))
        }))
    }

    #[inline]
    fn count(&self, reason: Reason) {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        std::thread_local! {
            /// Zero: not chosen yet.
            static SHARD: Cell<usize> = const { Cell::new(0) };
        }
        let shard = SHARD.with(|shard| {
            if shard.get() == 0 {
                shard.set(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) | SHARDS);
            }
            shard.get()
        });
        // Relaxed: a count.
        self.0[shard % SHARDS][reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn of(&self, reason: Reason) -> u64 {
        (self.0.iter())
            .map(|shard| shard[reason as usize].load(Ordering::Relaxed))
            .sum()
    }
}

/// Counts of what is rare.
#[derive(Debug)]
pub(crate) struct Counts {
    refused: Refusals,
    pub(crate) expired: AtomicU64,
    pub(crate) discarded: AtomicU64,
    /// Of those, by shutdowns.
    pub(crate) shut_out: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) spawn_failures: AtomicU64,
    pub(crate) hook_panics: AtomicU64,
    /// Queued, and given back because no thread was to be had after all.
    pub(crate) reclaimed: AtomicU64,
}

impl Counts {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            refused: Refusals::new(),
            expired: zero(),
            discarded: zero(),
            shut_out: zero(),
            timed_out: zero(),
            spawn_failures: zero(),
            hook_panics: zero(),
            reclaimed: zero(),
        }
    }

    pub(crate) fn refusals(&self) -> crate::stats::Refusals {
        crate::stats::Refusals {
            saturated: self.refused.of(Reason::Saturated),
            closed: self.refused.of(Reason::Closed),
            cancelled: self.refused.of(Reason::Cancelled),
            spawn_failed: self.refused.of(Reason::SpawnFailed),
            expired: self.refused.of(Reason::Expired),
        }
    }
}

/// Workers that the rings do not show: three counts in one word, so that one
/// load reads them all and one addition moves a worker between them.
#[derive(Debug)]
pub(crate) struct Transit(AtomicU64);

pub(crate) const BENCHED: u64 = 1;
pub(crate) const LIMBO: u64 = 1 << 20;
pub(crate) const HOOKED: u64 = 1 << 40;
const FIELD: u64 = (1 << 20) - 1;

impl Transit {
    #[cfg_attr(lazypool_loom, track_caller)]
    pub(crate) fn add(&self, what: u64) {
        self.0.fetch_add(what, Ordering::SeqCst);
    }

    #[cfg_attr(lazypool_loom, track_caller)]
    pub(crate) fn sub(&self, what: u64) {
        self.0.fetch_sub(what, Ordering::SeqCst);
    }

    #[inline]
    fn is_nobody(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }

    /// Nobody who could be called, or may yet fail to start. A worker in its stop
    /// hook cannot, and looks at the queue after it.
    #[inline]
    fn nobody_to_call(&self) -> bool {
        self.0.load(Ordering::SeqCst) & ((FIELD * BENCHED) | (FIELD * LIMBO)) == 0
    }

    #[inline]
    fn any_benched(&self) -> bool {
        self.0.load(Ordering::SeqCst) & FIELD != 0
    }

    fn any_in_limbo(&self) -> bool {
        (self.0.load(Ordering::SeqCst) / LIMBO) & FIELD != 0
    }
}

/// As many tasks must find room in the queue where one is pushed for an idle worker, and
/// as many as there can be workers.
const SPARE: u64 = if cfg!(lazypool_loom) { 2 } else { 16 };

/// Workers without a task that will look at the queue: those awake, and those called
/// and not there yet. Two counts in one word.
#[derive(Debug)]
pub(crate) struct Seekers(AtomicU64);

/// Also counted as a seeker.
const CALLED: u64 = 1 << 32;

impl Seekers {
    /// A worker that is awake.
    #[cfg_attr(lazypool_loom, track_caller)]
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// A worker that is told to look; it says when it has [come](Seekers::came).
    #[cfg_attr(lazypool_loom, track_caller)]
    pub(crate) fn call(&self) {
        self.0.fetch_add(CALLED + 1, Ordering::SeqCst);
    }

    /// Nobody could be told. Who saw the count has left the queue to this thread.
    #[cfg_attr(lazypool_loom, track_caller)]
    fn uncall(&self) {
        self.0.fetch_sub(CALLED + 1, Ordering::SeqCst);
    }

    #[cfg_attr(lazypool_loom, track_caller)]
    pub(crate) fn came(&self) {
        self.0.fetch_sub(CALLED, Ordering::SeqCst);
    }

    #[cfg_attr(lazypool_loom, track_caller)]
    pub(crate) fn sub(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    #[inline]
    fn all(&self) -> u64 {
        self.0.load(Ordering::SeqCst) % CALLED
    }

    #[inline]
    fn any_awake(&self) -> bool {
        let word = self.0.load(Ordering::SeqCst);
        word % CALLED > word / CALLED
    }
}

/// What changes only with threads, under one lock.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// Workers that exist: started and not yet ended.
    pub(crate) live: usize,
    /// Threads that the system has been asked for: the slots in `STARTING`.
    pub(crate) starting: usize,
    pub(crate) spawned: u64,
    pub(crate) retired: u64,
    pub(crate) peak: usize,
    /// By slot; as long as the highest slot ever used.
    pub(crate) handles: Vec<Option<thread::JoinHandle<()>>>,
    /// By slot: tasks that ended there before its present worker started.
    pub(crate) tasks_before: Vec<u64>,
    pub(crate) cleaner: Cleaner,
    /// Threads past their last step, to be joined.
    pub(crate) graveyard: Vec<thread::JoinHandle<()>>,
    /// Taken from the graveyard, and being joined.
    pub(crate) joining: usize,
    /// Queued tasks that a discarding shutdown must let run.
    pub(crate) kept: VecDeque<Task>,
}

/// Where an accepted task went.
#[derive(Debug)]
pub(crate) enum Place {
    Mailbox { slot: usize, claim: u64 },
    Queue { position: u64 },
}

/// Why a task came back from `submit`.
#[derive(Debug)]
pub(crate) enum Denied {
    Refused(Refusal),
    /// The deadline passed before there was room.
    Expired,
}

impl Denied {
    fn reason(&self) -> Reason {
        match self {
            Self::Refused(Refusal::Saturated | Refusal::OnWorker) => Reason::Saturated,
            Self::Refused(Refusal::Closed | Refusal::Forked) => Reason::Closed,
            Self::Refused(Refusal::Cancelled) => Reason::Cancelled,
            Self::Refused(Refusal::SpawnFailed(_)) => Reason::SpawnFailed,
            Self::Expired => Reason::Expired,
        }
    }
}

/// How long, and for what, a submission waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience<'a> {
    deadline: Option<&'a Deadline>,
    /// Somebody waits for the task's end: on a worker of the pool it must not
    /// queue.
    awaited: bool,
    /// Its group's flag.
    cancelled: Option<&'a AtomicBool>,
}

impl<'a> Patience<'a> {
    pub(crate) const FOREVER: Patience<'static> = Patience {
        deadline: None,
        awaited: false,
        cancelled: None,
    };

    pub(crate) fn caller(deadline: &'a Deadline) -> Self {
        Self {
            deadline: Some(deadline),
            awaited: true,
            cancelled: None,
        }
    }

    pub(crate) fn group(cancelled: &'a AtomicBool, awaited: bool) -> Self {
        Self {
            deadline: None,
            awaited,
            cancelled: Some(cancelled),
        }
    }

    fn has_expired(&self) -> bool {
        self.deadline.is_some_and(Deadline::has_passed)
    }

    /// Its own deadline or the given one, whichever is first.
    fn earlier<'d>(&self, other: &'d Deadline) -> &'d Deadline
    where
        'a: 'd,
    {
        match (self.deadline, other.instant()) {
            (Some(own), Some(at)) if own.instant().is_some_and(|own| own < at) => own,
            (Some(own), None) => own,
            _ => other,
        }
    }

    /// Starts the clock of a deadline: before all that may take its time.
    #[inline]
    fn start(&self) {
        if let Some(deadline) = self.deadline {
            deadline.instant();
        }
    }

    /// Relaxed: a flag; a cancel that races the submission may miss it or not.
    #[inline]
    fn is_cancelled(&self) -> bool {
        self.cancelled.is_some_and(|c| c.load(Ordering::Relaxed))
    }
}

/// Why a submission without room is refused; `nested`: as it must not wait here.
fn no_room(nested: bool) -> Refusal {
    if nested {
        Refusal::OnWorker
    } else {
        Refusal::Saturated
    }
}

/// What a submission saw before its push: nobody idle and no slot free, after so many
/// pushes into the two rings.
#[derive(Debug, Clone, Copy)]
struct Occupied {
    ready: u64,
    freed: u64,
}

/// One attempt's result, where the task was not accepted.
enum Not {
    /// Saturated, exactly.
    Room,
    /// Something is half done: look again.
    Settled,
    Refused(Refusal),
}

#[derive(Debug)]
pub(crate) struct Shared {
    // Read by every submission, written once or never.
    id: u64,
    phase: AtomicU64,
    /// What deadlines are counted from.
    pub(crate) epoch: Instant,
    pub(crate) slots: Box<[Slot]>,
    pub(crate) queue: Option<Queue>,
    pub(crate) settings: Settings,
    pub(crate) hooks: Hooks,
    /// More than one core: spinning can pay.
    pub(crate) parallel: bool,

    pub(crate) ready: Ring,
    free: Ring,
    pub(crate) seekers: CachePadded<Seekers>,
    pub(crate) transit: CachePadded<Transit>,
    /// Of those in a start hook, the ones that a task may be handed to.
    pub(crate) standby: AtomicU64,
    pub(crate) cleaning: Cleaning,
    pub(crate) room: Room,
    /// `registry.kept.len()`, readable without the lock.
    pub(crate) kept: AtomicU64,
    pub(crate) counts: Counts,
    #[cfg(feature = "metrics")]
    pub(crate) series: observe::Series,
    pub(crate) registry: Mutex<Registry>,
    /// A thread has ended, or a task was taken back.
    pub(crate) changed: Condvar,
}

thread_local! {
    /// The pool that this thread is a worker of. It needs no destructor, so
    /// those of the thread's other values can still ask.
    static OWNER: Cell<u64> = const { Cell::new(0) };

    /// The pool and slot that this thread's last task went to, and the number of
    /// that claim.
    static HINT: Cell<(u64, usize, u64)> = const { Cell::new((0, 0, 0)) };
}

impl Shared {
    pub(crate) fn new(settings: Settings, hooks: Hooks) -> Self {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let max = settings.max_workers;
        Self {
            id: NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            phase: AtomicU64::new(0),
            epoch: Instant::now(),
            slots: (0..max).map(|_| Slot::new()).collect(),
            queue: (settings.queue_capacity > 0).then(|| Queue::new(settings.queue_capacity)),
            hooks,
            parallel: crate::park::cores() > 1,
            ready: Ring::new(max, 0),
            free: Ring::new(max, max),
            seekers: CachePadded::new(Seekers(AtomicU64::new(0))),
            transit: CachePadded::new(Transit(AtomicU64::new(0))),
            standby: AtomicU64::new(0),
            cleaning: Cleaning::new(),
            room: Room::new(),
            kept: AtomicU64::new(0),
            counts: Counts::new(),
            #[cfg(feature = "metrics")]
            series: observe::Series::default(),
            registry: Mutex::new(Registry::default()),
            changed: Condvar::new(),
            settings,
        }
    }

    // ---- closing ----------------------------------------------------------------

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.phase.load(Ordering::SeqCst) != 0
    }

    pub(crate) fn is_cancelling(&self) -> bool {
        self.phase.load(Ordering::Relaxed) >= u64::from(Shutdown::Cancel.rank())
    }

    /// Closes the pool; the strictest mode asked stays.
    pub(crate) fn close(&self, mode: Shutdown) -> bool {
        let rank = u64::from(mode.rank());
        let before = self.phase.fetch_max(rank, Ordering::SeqCst);
        if let Some(queue) = &self.queue {
            queue.close();
        }
        before.max(rank) >= u64::from(Shutdown::Discard.rank())
    }

    // ---- user code ----------------------------------------------------------------

    /// Runs a hook; its panic is contained and counted.
    pub(crate) fn hook(&self, f: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
            self.counts.hook_panics.fetch_add(1, Ordering::Relaxed);
            drop_payload(payload);
        }
    }

    /// From now on this thread is a worker of this pool.
    pub(crate) fn own_this_thread(&self) {
        OWNER.with(|owner| owner.set(self.id));
    }

    /// Whether this thread is a worker of this pool, its thread-local destructors
    /// included.
    pub(crate) fn is_own_worker(&self) -> bool {
        OWNER.with(Cell::get) == self.id
    }

    /// Whether this thread is a worker of this pool in its start or stop hook, or
    /// past its last step.
    fn is_in_own_hook(&self) -> bool {
        self.is_own_worker() && with_current(|ctx| ctx.is_none_or(|c| c.in_hook.get()))
    }

    // ---- submitting ---------------------------------------------------------------

    /// Accepts the task, or leaves it.
    #[inline]
    pub(crate) fn submit(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        patience: Patience<'_>,
    ) -> Result<Place, Denied> {
        if !self.is_closed() && !patience.is_cancelled() {
            if let Some(place) = self.submit_at_once(task, patience) {
                return Ok(place);
            }
            // First of all the rest, so that a saturated pool refuses cheaply.
            if self.settings.when_full == WhenFull::Refuse
                && (self.queue.is_none() || !patience.awaited)
                && self.is_saturated(self.queue.as_ref())
            {
                self.counts.refused.count(Reason::Saturated);
                let nested = patience.awaited && self.is_own_worker();
                return Err(Denied::Refused(no_room(nested)));
            }
        }
        self.submit_slowly(task, patience)
    }

    /// The two ways that most tasks go: into the queue, if it has room and a worker is
    /// looking at it or nobody could be given the task; or to the worker that this
    /// thread's last task went to.
    #[inline]
    fn submit_at_once(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        patience: Patience<'_>,
    ) -> Option<Place> {
        let mut even_parked = true;
        if let Some(queue) = &self.queue {
            let sought = self.seekers.any_awake();
            let tail = queue.room()?;
            let may_queue = !(patience.awaited && self.is_own_worker());
            if may_queue {
                let occupied = if sought { None } else { self.occupied() };
                if sought || occupied.is_some() {
                    let position = if queue.push_at(tail, task) {
                        tail
                    } else {
                        self.push(queue, task).ok()?
                    };
                    if occupied.is_some_and(|o| self.is_still(o)) || self.is_looked_after(0) {
                        return Some(Place::Queue { position });
                    }
                    return self.look_after(queue, position, task, patience).ok();
                }
            }
            if sought {
                return None;
            }
            even_parked = !may_queue || !self.calls_for(queue);
        }
        let (slot, claim) = self.claim_hinted(even_parked)?;
        if claim.parked {
            patience.start();
        }
        Some(self.hand_over(slot, claim, task))
    }

    #[cold]
    fn submit_slowly(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        patience: Patience<'_>,
    ) -> Result<Place, Denied> {
        patience.start();
        let own = self.is_own_worker();
        let may_queue = !(own && patience.awaited);
        // Its worker is itself what such a submission would wait for.
        let in_hook = self.is_in_own_hook();
        let blocks = match self.settings.when_full {
            WhenFull::Refuse => false,
            WhenFull::Block => true,
            WhenFull::BlockFor(limit) => !limit.is_zero(),
        };
        let may_block = blocks && !own;
        let no_room = || no_room(own && (blocks || patience.awaited));
        let room_within = match self.settings.when_full {
            WhenFull::BlockFor(limit) => Deadline::from_now(limit),
            WhenFull::Refuse | WhenFull::Block => Deadline::never(),
        };
        let mut nearly = Nearly::default();
        let mut spin = Spin::new(self.parallel);
        let entry = Entry::new();
        let mut blocked: Option<Blocked<'_>> = None;
        let why = loop {
            if let Some(blocked) = &mut blocked {
                blocked.rejoin();
            }
            let not = match self.attempt(task, patience, may_queue) {
                Ok(place) => return Ok(place),
                Err(not) => not,
            };
            match not {
                Not::Refused(why) => break Denied::Refused(why),
                // Or a worker that is on its way, which does not wait for this one.
                Not::Settled if in_hook && self.seekers.all() == 0 => {
                    break Denied::Refused(no_room());
                }
                Not::Room if !may_block => break Denied::Refused(no_room()),
                Not::Room | Not::Settled if patience.has_expired() => break Denied::Expired,
                Not::Room if room_within.has_passed() => {
                    break Denied::Refused(Refusal::Saturated);
                }
                Not::Settled => nearly.wait(),
                Not::Room => match &blocked {
                    None if self.may_make_room(&mut spin) => {}
                    // Joined, it must look once more before it sleeps.
                    None => blocked = Some(self.room.join(&entry)),
                    Some(blocked) => blocked.sleep(patience.earlier(&room_within)),
                },
            }
        };
        self.counts.refused.count(why.reason());
        Err(why)
    }

    fn attempt(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        patience: Patience<'_>,
        may_queue: bool,
    ) -> Result<Place, Not> {
        if self.is_closed() {
            return Err(Not::Refused(Refusal::Closed));
        }
        if patience.is_cancelled() {
            return Err(Not::Refused(Refusal::Cancelled));
        }
        let queue = self.queue.as_ref().filter(|_| may_queue);
        // Read before anything that a worker becomes after its hook, and not from a
        // hook: its own worker may be the one.
        let standby = self.standby.load(Ordering::SeqCst) > 0 && !self.is_in_own_hook();
        let calls = |queue: &&Queue| self.is_somebody_idle() && self.calls_for(queue);
        if let Some(queue) = queue.filter(|queue| self.seekers.any_awake() || calls(queue)) {
            if let Some(place) = self.enqueue(queue, task, patience)? {
                return Ok(place);
            }
        }
        // Read before looking for an idle worker: a seeker is that before it stops
        // being counted.
        let sought = self.seekers.all() > 0;
        if let Some((slot, claim)) = self.claim_idle(For::Task) {
            return Ok(self.hand_over(slot, claim, task));
        }
        if sought {
            // No reason to start another.
            let Some(queue) = queue else {
                return Err(Not::Settled);
            };
            if let Some(place) = self.enqueue(queue, task, patience)? {
                return Ok(place);
            }
        }
        if standby {
            let (slot, claim) = self.claim_standby().ok_or(Not::Settled)?; // about to be idle
            return Ok(self.hand_over(slot, claim, task));
        }
        if let Some(slot) = self.take_free() {
            return match self.spawn(slot, First::Run(task)) {
                Ok(Some(place)) => Ok(place),
                Ok(None) => unreachable!("a first task has a place"),
                Err(NotSpawned::Closed) => Err(Not::Refused(Refusal::Closed)),
                Err(NotSpawned::Failed(error)) => self.without_thread(task, queue, error),
            };
        }
        if let Some(queue) = queue {
            if let Some(place) = self.enqueue(queue, task, patience)? {
                return Ok(place);
            }
        }
        Err(if self.is_saturated(queue) {
            Not::Room
        } else {
            Not::Settled
        })
    }

    /// The system gave no thread: another worker, the queue while a worker
    /// lives, or back.
    #[cold]
    fn without_thread(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        queue: Option<&Queue>,
        error: io::Error,
    ) -> Result<Place, Not> {
        if let Some((slot, claim)) = self.claim_idle(For::Task) {
            return Ok(self.hand_over(slot, claim, task));
        }
        let failed = Not::Refused(Refusal::SpawnFailed(error));
        let Some(queue) = queue else {
            return Err(failed);
        };
        // Under the lock a worker that lives looks at the queue again.
        let registry = lock(&self.registry);
        if registry.live == 0 {
            return Err(failed);
        }
        let pushed = queue.push(task);
        drop(registry);
        match pushed {
            Ok(position) => {
                self.rouse(queue, None, 0, false);
                Ok(Place::Queue { position })
            }
            Err(NotPushed::Closed) => {
                self.nudge_shutdown(); // not under the lock, as `Shared::push` would
                Err(Not::Refused(Refusal::Closed))
            }
            Err(NotPushed::Full) => Err(failed),
        }
    }

    #[inline]
    fn hand_over(&self, slot: usize, claim: Claim, task: &mut Option<Task>) -> Place {
        let task = task.take().expect("a task to hand over");
        let hand = Hand::of(&task);
        // SAFETY: claimed.
        unsafe { self.slots[slot].hand_over(claim, task, hand) };
        Place::Mailbox {
            slot,
            claim: claim.number,
        }
    }

    /// Whether every worker was occupied and the queue full at one moment
    /// during this call; see the module's doc.
    #[inline]
    fn is_saturated(&self, queue: Option<&Queue>) -> bool {
        let ready = self.ready.pushes();
        let freed = self.free.pushes();
        let pops = queue.map_or(0, Queue::pops);
        let settled = || self.seekers.all() == 0 && self.transit.is_nobody();
        settled()
            && self.free.drained() == Some(freed)
            && self.is_nobody_ready_while(|| queue.is_none_or(Queue::is_full))
            && settled()
            && self.ready.pushes() == ready
            && self.free.pushes() == freed
            && queue.is_none_or(|q| q.pops() == pops)
    }

    /// Whether `full`, during which no worker in the ready ring was idle: there was
    /// none in it, or a few that claims by hint had left there.
    #[inline]
    fn is_nobody_ready_while(&self, full: impl Fn() -> bool) -> bool {
        if self.ready.drained().is_some() {
            return full();
        }
        // One or two submitters with a hint leave as many.
        let Some(few) = self.ready.few::<2>() else {
            return false;
        };
        let see = || few.map(|slot| slot.map(|slot| self.slots[slot].see()));
        let seen = see();
        seen.iter().flatten().all(|seen| seen.is_occupied()) && full() && see() == seen
    }

    // ---- idle workers ---------------------------------------------------------------

    #[inline]
    fn claim_hinted(&self, even_parked: bool) -> Option<(usize, Claim)> {
        let (slot, last) = self.hint()?;
        match self.slots[slot].claim_hinted(For::Task, last, even_parked) {
            Some(claim) => {
                self.set_hint(slot, claim.number);
                return Some((slot, claim));
            }
            // After a miss only a look, until a task goes there again: nobody's line
            // is taken away in a saturated pool.
            None if last != 0 => self.set_hint(slot, 0),
            None => {}
        }
        None
    }

    #[inline]
    fn hint(&self) -> Option<(usize, u64)> {
        let (pool, slot, last) = HINT.with(Cell::get);
        (pool == self.id).then_some((slot, last))
    }

    #[inline]
    fn set_hint(&self, slot: usize, claim: u64) {
        HINT.with(|hint| hint.set((self.id, slot, claim)));
    }

    fn claim_idle(&self, purpose: For) -> Option<(usize, Claim)> {
        let claimed = self
            .claim_ready(purpose)
            .or_else(|| self.claim_benched(purpose));
        if let Some((slot, claim)) = &claimed {
            let last = match purpose {
                For::Task => claim.number,
                For::Wake => 0,
            };
            self.set_hint(*slot, last);
        }
        claimed
    }

    fn claim_ready(&self, purpose: For) -> Option<(usize, Claim)> {
        while let Some(slot) = self.ready.pop() {
            if let Some(claim) = self.slots[slot].claim_listed(purpose) {
                return Some((slot, claim));
            }
        }
        None
    }

    /// The benched worker with the lowest slot: the others get to retire.
    fn claim_benched(&self, purpose: For) -> Option<(usize, Claim)> {
        if !self.transit.any_benched() {
            return None;
        }
        for (index, slot) in self.slots.iter().enumerate() {
            if let Some(claim) = slot.claim_benched(purpose) {
                self.transit.sub(BENCHED);
                return Some((index, claim));
            }
            if !self.transit.any_benched() {
                break;
            }
        }
        None
    }

    /// A worker that is idle but for its start hook: started by `build`, or left by
    /// its caller there. It is as soon there as a new one.
    fn claim_standby(&self) -> Option<(usize, Claim)> {
        let (slot, claim) = (self.slots.iter().enumerate())
            .find_map(|(slot, it)| Some((slot, it.claim_standby()?)))?;
        self.standby.fetch_sub(1, Ordering::SeqCst);
        self.transit.sub(HOOKED);
        self.set_hint(slot, claim.number);
        Some((slot, claim))
    }

    /// Watches for room, which is a few short tasks' ends away, before it is worth
    /// the while to sleep for it; not in front of others who do.
    fn may_make_room(&self, spin: &mut Spin) -> bool {
        while self.room.waiting() == 0 && spin.step() != Step::Spent {
            let room = match &self.queue {
                Some(queue) => queue.has_ample_room(),
                None => !self.ready.is_empty(),
            };
            if room {
                return true;
            }
        }
        false
    }

    /// Room for one more task has come up.
    #[inline]
    pub(crate) fn made_room(&self) {
        self.room.notify();
    }

    // ---- the queue --------------------------------------------------------------------

    fn push(&self, queue: &Queue, task: &mut Option<Task>) -> Result<u64, NotPushed> {
        let pushed = queue.push(task);
        if pushed == Err(NotPushed::Closed) {
            // It may have counted for a moment.
            self.nudge_shutdown();
        }
        pushed
    }

    /// `None`: full.
    fn enqueue(
        self: &Arc<Self>,
        queue: &Queue,
        task: &mut Option<Task>,
        patience: Patience<'_>,
    ) -> Result<Option<Place>, Not> {
        match self.push(queue, task) {
            // One more is called, even if others are on their way: who comes first
            // takes what is there.
            Ok(position)
                if self.seekers.any_awake()
                    || self.nothing_queued()
                    || self.call_idle()
                    || self.is_looked_after(0) =>
            {
                Ok(Some(Place::Queue { position }))
            }
            Ok(position) => (self.look_after(queue, position, task, patience))
                .map(Some)
                .map_err(|error| Not::Refused(Refusal::SpawnFailed(error))),
            Err(NotPushed::Full) => Ok(None),
            Err(NotPushed::Closed) => Err(Not::Refused(Refusal::Closed)),
        }
    }

    /// Sees to it that the task that has just been pushed is looked at; where that takes
    /// a thread and none is to be had, it comes back.
    #[cold]
    fn look_after(
        self: &Arc<Self>,
        queue: &Queue,
        position: u64,
        task: &mut Option<Task>,
        patience: Patience<'_>,
    ) -> Result<Place, io::Error> {
        patience.start();
        match self.rouse(queue, Some(position), 0, true) {
            None => Ok(Place::Queue { position }),
            Some((back, error)) => {
                *task = Some(back);
                Err(error)
            }
        }
    }

    /// Whether there is nothing for a worker in the queue.
    #[inline]
    pub(crate) fn nothing_queued(&self) -> bool {
        self.queue.as_ref().is_none_or(Queue::is_empty) && self.kept.load(Ordering::SeqCst) == 0
    }

    /// Tasks in the queue, without the holes there; exact while nothing comes or goes,
    /// and too small only while a worker goes through holes, which goes on to what
    /// is behind them.
    fn queued(&self) -> u64 {
        let queued = self.queue.as_ref().map_or(0, Queue::len) as u64;
        queued + self.kept.load(Ordering::SeqCst)
    }

    /// Whether a worker will look at the queue, besides `known` seekers that have a
    /// task in view.
    #[inline]
    fn is_looked_after(&self, known: u64) -> bool {
        self.seekers.all() > known || self.is_everybody_occupied()
    }

    /// Sees to it that a queued task is looked at.
    pub(crate) fn wake_for_queue(self: &Arc<Self>) {
        self.call(0);
    }

    /// A seeker about to take one of several queued tasks: sees to it that
    /// another looks, too. Before it takes its own, whose caller could not leave
    /// while a thread is started.
    pub(crate) fn call_another(self: &Arc<Self>) {
        self.call(1);
    }

    fn call(self: &Arc<Self>, known: u64) {
        if let Some(queue) = &self.queue {
            if !self.nothing_queued() && !self.is_looked_after(known) {
                self.rouse(queue, None, known, true);
            }
        }
    }

    /// Nobody idle and no slot free, as far as that can be seen from the rings' ends;
    /// and nobody in transit who might be called.
    #[inline]
    fn occupied(&self) -> Option<Occupied> {
        if !self.transit.is_nobody() {
            return None;
        }
        Some(Occupied {
            ready: self.ready.drained()?,
            freed: self.free.drained()?,
        })
    }

    /// Whether nothing has come into the rings since, and nobody could be called now:
    /// who was occupied then looks at the queue after what this thread did since.
    ///
    /// A worker that looked at it before had come into the ready ring before, or was
    /// counted on the bench, or has ended and its slot come into the free ring: in each
    /// case all the way, before it looked.
    #[inline]
    fn is_still(&self, occupied: Occupied) -> bool {
        self.transit.nobody_to_call()
            && self.ready.pushes() == occupied.ready
            && self.free.pushes() == occupied.freed
    }

    /// Whether at one moment of this call nobody was idle, in transit or to be
    /// started: whoever lives is occupied, and looks at the queue afterwards.
    /// Without the second and third look, a spawn that failed meanwhile (its slot
    /// is in limbo, then pushed back) would pass for a worker.
    fn is_everybody_occupied(&self) -> bool {
        let freed = self.free.pushes();
        self.transit.nobody_to_call()
            && self.ready.is_empty()
            && self.free.is_empty()
            && self.transit.nobody_to_call()
            && self.free.pushes() == freed
    }

    /// Sees to it that a worker looks at the queue, besides `known` seekers. Where
    /// no thread is to be had and no worker lives, the task at `position` comes
    /// back.
    #[cold]
    fn rouse(
        self: &Arc<Self>,
        queue: &Queue,
        position: Option<u64>,
        known: u64,
        may_spawn: bool,
    ) -> Option<(Task, io::Error)> {
        let mut nearly = Nearly::default();
        // The queue after the seekers: one that has taken a task is counted until then.
        while self.seekers.all() <= known && self.queued() > known {
            if self.is_somebody_idle() {
                if self.call_idle() {
                    return None;
                }
                nearly.wait();
            } else if let Some(slot) = may_spawn.then(|| self.take_free()).flatten() {
                let Err(NotSpawned::Failed(error)) = self.spawn(slot, First::Seek) else {
                    return None;
                };
                let registry = lock(&self.registry);
                if registry.live > 0 {
                    return None; // it looks before it ends
                }
                if registry.starting > 0 {
                    drop(registry);
                    nearly.wait();
                    continue;
                }
                let position = position?;
                // SAFETY: no worker lives or can begin to, and the lock is held.
                let task = unsafe { queue.reclaim(position) }?;
                self.counts.reclaimed.fetch_add(1, Ordering::SeqCst);
                self.changed.notify_all();
                return Some((task, error));
            } else if self.transit.any_in_limbo() {
                // Only a submitter needs the outcome. Who calls without a task of
                // its own is a worker, or has one in mind, that lives and looks
                // at the queue again; it may be in limbo itself.
                position?;
                nearly.wait();
            } else if !may_spawn || self.is_everybody_occupied() {
                return None;
            }
        }
        None
    }

    /// Whether a task for an idle worker goes into the queue, and the worker is called:
    /// in a burst, who comes first takes what there is. Until then it takes room that
    /// others are promised, so there must be some to spare. Not in a hook, whose worker
    /// others may have to wait for.
    #[inline]
    fn calls_for(&self, queue: &Queue) -> bool {
        queue.has_room_for(SPARE.max(self.settings.max_workers as u64)) && !self.is_in_own_hook()
    }

    /// Whether a worker is idle, or was a moment ago.
    fn is_somebody_idle(&self) -> bool {
        !self.ready.is_empty() || self.transit.any_benched()
    }

    /// Sends an idle worker to the queue: the one of this thread's hint, if it is idle.
    /// If there is none, this thread looks after what is queued, and not only its own.
    fn call_idle(&self) -> bool {
        if !self.is_somebody_idle() {
            return false;
        }
        // Counted from before it is held, when it is neither idle nor a seeker.
        self.seekers.call();
        let hinted = self.hint().and_then(|(slot, _)| {
            let claim = self.slots[slot].claim_hinted(For::Wake, 0, true)?;
            Some((slot, claim))
        });
        let held = hinted.or_else(|| self.claim_idle(For::Wake));
        match held {
            // SAFETY: held.
            Some((slot, claim)) => unsafe { self.slots[slot].send_seeking(claim) },
            None => self.seekers.uncall(),
        }
        held.is_some()
    }

    /// Takes a queued task back from its place; `None` if it is being started.
    pub(crate) fn withdraw_queued(&self, position: u64) -> Option<Task> {
        let task = self.queue.as_ref()?.withdraw(position)?;
        self.counts.expired.fetch_add(1, Ordering::Relaxed);
        self.made_room();
        self.nudge_shutdown();
        Some(task)
    }

    /// Takes an offered task back; `None` if its worker has started it.
    pub(crate) fn withdraw_mailbox(self: &Arc<Self>, slot: usize, claim: u64) -> Option<Task> {
        let task = self.slots[slot].withdraw(claim)?;
        self.counts.expired.fetch_add(1, Ordering::SeqCst);
        self.release_withdrawn(slot);
        self.made_room();
        // What a worker does after it has published that it is idle.
        if self.is_closed() {
            self.retire_idle();
        }
        self.wake_for_queue();
        Some(task)
    }

    /// Makes a worker claimable whose task was taken back.
    fn release_withdrawn(&self, slot: usize) {
        let it = &self.slots[slot];
        if it.is_fresh() {
            self.transit.add(HOOKED);
            self.standby.fetch_add(1, Ordering::SeqCst);
            if it.leave_standby() {
                return;
            }
            self.standby.fetch_sub(1, Ordering::SeqCst);
            self.transit.sub(HOOKED);
        }
        it.publish_idle(&self.ready, slot);
    }

    /// A shutdown may wait for the queue to be empty.
    pub(crate) fn nudge_shutdown(&self) {
        if self.is_closed() {
            let _registry = lock(&self.registry);
            self.changed.notify_all();
        }
    }

    /// For models, once every thread has ended: nobody and nothing is counted any
    /// more, and every slot is in the free ring once.
    #[cfg(lazypool_loom)]
    pub(crate) fn assert_at_rest(&self) {
        assert_eq!(self.seekers.0.load(Ordering::SeqCst), 0, "seekers");
        assert_eq!(self.transit.0.load(Ordering::SeqCst), 0, "in transit");
        assert_eq!(self.standby.load(Ordering::SeqCst), 0, "on standby");
        let kept = lock(&self.registry).kept.len() as u64;
        assert_eq!((self.kept.load(Ordering::SeqCst), kept), (0, 0), "kept");
        self.room.assert_at_rest();
        if let Some(queue) = &self.queue {
            queue.assert_at_rest();
        }
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
        }
        let slots: Vec<_> = (0..self.slots.len()).collect();
        assert_eq!(all(&self.free), slots, "the free ring");
    }

    // ---- threads ------------------------------------------------------------------------

    /// A slot without a thread. It is in limbo until [`Shared::spawn`] returns.
    pub(crate) fn take_free(&self) -> Option<usize> {
        if self.free.is_empty() {
            return None;
        }
        self.transit.add(LIMBO);
        let slot = self.free.pop();
        if slot.is_none() {
            self.transit.sub(LIMBO);
        }
        slot
    }

    /// Starts a worker on a slot from [`Shared::take_free`], and gives it its
    /// first order.
    #[cold]
    pub(crate) fn spawn(
        self: &Arc<Self>,
        slot: usize,
        first: First<'_>,
    ) -> Result<Option<Place>, NotSpawned> {
        let spawned = self.spawn_in_limbo(slot, first);
        self.transit.sub(LIMBO);
        if spawned.is_err() {
            self.made_room();
        }
        match &spawned {
            Ok(_) => observe::worker_spawned(self, slot),
            Err(NotSpawned::Failed(error)) => observe::spawn_failed(self, error),
            Err(NotSpawned::Closed) => {}
        }
        spawned
    }

    fn spawn_in_limbo(
        self: &Arc<Self>,
        slot: usize,
        first: First<'_>,
    ) -> Result<Option<Place>, NotSpawned> {
        let it = &self.slots[slot];
        let hook = self.hooks.start.is_some();
        debug_assert!(
            with_current(|ctx| ctx.is_none_or(|c| !c.owes_a_look.get())),
            "starting a thread takes time, and a task in hand has yet to start"
        );
        {
            let mut registry = lock(&self.registry);
            // As a shutdown decides whether it is clean.
            if self.is_closed() && (!matches!(first, First::Seek) || self.queued() == 0) {
                self.free_slot(slot);
                return Err(NotSpawned::Closed);
            }
            registry.starting += 1;
            it.start(hook);
        }
        let mut builder =
            thread::Builder::new().name(format!("{}-{slot}", self.settings.thread_name));
        if let Some(bytes) = self.settings.stack_size {
            builder = builder.stack_size(bytes);
        }
        let shared = Arc::clone(self);
        // Not under the lock: the system may take its time.
        let spawned = builder.spawn(move || crate::worker::main(&shared, slot));
        let mut registry = lock(&self.registry);
        registry.starting -= 1;
        let handle = match spawned {
            Ok(handle) => handle,
            Err(error) => {
                it.start_failed(hook);
                self.free_slot(slot);
                self.changed.notify_all();
                drop(registry);
                self.counts.spawn_failures.fetch_add(1, Ordering::Relaxed);
                return Err(NotSpawned::Failed(error));
            }
        };
        // SAFETY: STARTING by us; the thread waits for its first order.
        unsafe { it.set_thread(handle.thread().clone()) };
        if registry.handles.len() <= slot {
            registry.handles.resize_with(slot + 1, || None);
        }
        registry.handles[slot] = Some(handle);
        let used = registry.handles.len();
        registry.tasks_before.resize(used, 0);
        registry.tasks_before[slot] = it.own.tasks();
        registry.live += 1;
        registry.spawned += 1;
        registry.peak = registry.peak.max(registry.live);
        self.want_cleaner(&registry, slot);
        // A shutdown may wait for `starting` to go down.
        self.changed.notify_all();
        let place = match first {
            First::Run(task) => {
                let task = task.take().expect("a task to begin with");
                let hand = Hand::of(&task);
                // SAFETY: as above.
                let claim = unsafe { it.hand_first(task, hand) };
                self.set_hint(slot, claim);
                Some(Place::Mailbox { slot, claim })
            }
            First::Seek if hook => {
                self.transit.add(HOOKED);
                it.start_warming();
                None
            }
            First::Idle if hook => {
                self.transit.add(HOOKED);
                self.standby.fetch_add(1, Ordering::SeqCst);
                it.start_standby();
                None
            }
            First::Seek => {
                self.seekers.call();
                it.start_seeking();
                None
            }
            First::Idle => {
                it.publish_idle(&self.ready, slot);
                None
            }
        };
        Ok(place)
    }

    pub(crate) fn free_slot(&self, slot: usize) {
        self.free
            .push(slot)
            .expect("one entry per slot at most: the ring has room");
    }

    /// Tells every idle worker to end.
    pub(crate) fn retire_idle(&self) {
        let registry = lock(&self.registry);
        for (slot, handle) in registry.handles.iter().enumerate() {
            if let Some(handle) = handle {
                self.retire(slot, handle, false);
            }
        }
        self.cleaning.wake(&registry);
    }

    /// Tells an idle worker to end; the caller holds the registry's lock, so the
    /// handle is of the thread that is told.
    pub(crate) fn retire(
        &self,
        slot: usize,
        handle: &thread::JoinHandle<()>,
        only_benched: bool,
    ) -> bool {
        self.transit.add(LIMBO);
        let Some(claim) = self.slots[slot].retire(only_benched) else {
            self.transit.sub(LIMBO);
            return false;
        };
        if claim.benched {
            self.transit.sub(BENCHED);
        }
        if claim.parked {
            handle.thread().unpark();
        }
        true
    }

    /// Joins threads that have ended but for their thread-local destructors.
    /// Not for submitters: those may take their time.
    pub(crate) fn join(&self, ending: Vec<thread::JoinHandle<()>>) {
        if ending.is_empty() {
            return;
        }
        let count = ending.len();
        for handle in ending {
            // A worker's panics are contained; there is nothing to report.
            let _ = handle.join();
        }
        let mut registry = lock(&self.registry);
        registry.joining -= count;
        self.changed.notify_all();
    }
}

impl Registry {
    /// All threads past their last step but this one, to be given to
    /// [`Shared::join`].
    pub(crate) fn take_ending(&mut self) -> Vec<thread::JoinHandle<()>> {
        if self.graveyard.is_empty() {
            return Vec::new();
        }
        let me = thread::current().id();
        let ending: Vec<_>;
        (self.graveyard, ending) = std::mem::take(&mut self.graveyard)
            .into_iter()
            .partition(|h| h.thread().id() == me);
        self.joining += ending.len();
        ending
    }
}

/// A new worker's first order.
#[derive(Debug)]
pub(crate) enum First<'a> {
    /// Taken if there is a thread.
    Run(&'a mut Option<Task>),
    Seek,
    Idle,
}

/// Why no worker was started. The free entry is back in its ring.
#[derive(Debug)]
pub(crate) enum NotSpawned {
    Closed,
    Failed(io::Error),
}
