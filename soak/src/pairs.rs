//! Faults combined: small pools under several faults at once, and a table of which pairs of
//! faults came together in one pool, by what happened and not by what was planned.

use crate::load::check;
use crate::os;
use crate::rng::{mix, Rng};
use lazypool::{task, BuildError, DeadlineError, Group, Pool, Refusal, Shutdown, WhenFull};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

const NAMES: [&str; COUNT] = [
    "no thread",
    "group cancelled",
    "taken back",
    "hook slow",
    "hook panics",
    "drain",
    "discard",
    "cancel",
    "retired",
    "deadline zero",
    "deadline tiny",
    "beyond clock",
    "local submits",
    "local ends pool",
    "limit set",
    "block for",
    "serve deadline",
    "min remaining",
    "pool dropped",
    "min workers",
    "thread paused",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
enum Fault {
    NoThread,
    GroupCancelled,
    TakenBack,
    HookSlow,
    HookPanics,
    Drain,
    Discard,
    Cancel,
    Retired,
    Zero,
    Tiny,
    BeyondClock,
    LocalSubmits,
    LocalEnds,
    LimitSet,
    BlockFor,
    ServeDeadline,
    MinRemaining,
    Dropped,
    MinWorkers,
    Paused,
}

const COUNT: usize = Fault::Paused as usize + 1;
/// Without pauses in the library there are none to count.
const MET: usize = if cfg!(lazypool_pauses) {
    COUNT
} else {
    COUNT - 1
};

/// How often each fault happened to one pool, and its closures' fates.
#[derive(Debug, Default)]
struct Seen {
    faults: [AtomicU64; COUNT],
    made: AtomicU64,
    ran: AtomicU64,
    gone: AtomicU64,
    /// Calls with a deadline of zero: the pool does not count them.
    zero: AtomicU64,
}

impl Seen {
    fn note(&self, fault: Fault) {
        self.faults[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn has(&self, fault: usize) -> bool {
        self.faults[fault].load(Ordering::SeqCst) > 0
    }
}

/// Captured by each closure: runs at most once, is dropped once.
struct Ticket {
    seen: Arc<Seen>,
    ran: bool,
}

impl Ticket {
    fn new(seen: &Arc<Seen>) -> Self {
        seen.made.fetch_add(1, Ordering::Relaxed);
        Self {
            seen: Arc::clone(seen),
            ran: false,
        }
    }

    fn run(mut self) {
        check!(!self.ran, "a closure ran twice");
        self.ran = true;
        self.seen.ran.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.seen.gone.fetch_add(1, Ordering::Relaxed);
    }
}

/// A thread-local value of a worker, whose destructor uses the pool.
struct Local {
    pool: Weak<Pool>,
    seen: Arc<Seen>,
    ends: bool,
}

thread_local! {
    static LOCAL: RefCell<Option<Local>> = const { RefCell::new(None) };
}

impl Drop for Local {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else {
            return;
        };
        if self.ends {
            self.seen.note(Fault::LocalEnds);
            pool.shutdown(Shutdown::Drain, Duration::ZERO);
        } else {
            self.seen.note(Fault::LocalSubmits);
            let ticket = Ticket::new(&self.seen);
            drop(pool.serve(move || ticket.run()));
        }
    }
}

/// Which faults a round may have; each once in two.
#[derive(Clone, Copy)]
struct Plan(u64);

impl Plan {
    fn has(self, fault: Fault) -> bool {
        self.0 >> fault as usize & 1 == 1
    }
}

fn build(plan: Plan, rng: &mut Rng, seen: &Arc<Seen>) -> Option<Arc<Pool>> {
    let workers = 1 + rng.below(4) as usize;
    let min = if plan.has(Fault::MinWorkers) { 1 } else { 0 };
    let idle = if plan.has(Fault::Retired) {
        Duration::ZERO
    } else {
        Duration::from_secs(10)
    };
    let mut builder = Pool::builder()
        .max_workers(workers)
        .min_workers(min)
        .queue_capacity(rng.below(5) as usize)
        .when_full(rng.pick(&[WhenFull::Refuse, WhenFull::Block]))
        .idle_timeout(idle)
        .thread_name("pairs")
        .shutdown_on_drop(Shutdown::Drain, Duration::MAX);
    if plan.has(Fault::HookSlow) || plan.has(Fault::HookPanics) {
        let turns = AtomicU64::new(rng.next());
        let seen = Arc::clone(seen);
        let hook = Arc::new(
            move || match mix(turns.fetch_add(1, Ordering::Relaxed)) % 4 {
                0 if plan.has(Fault::HookSlow) => {
                    seen.note(Fault::HookSlow);
                    thread::sleep(Duration::from_millis(1));
                }
                1 if plan.has(Fault::HookPanics) => {
                    seen.note(Fault::HookPanics);
                    crate::books::quiet_panic();
                }
                _ => {}
            },
        );
        let (start, stop) = (Arc::clone(&hook), Arc::clone(&hook));
        builder = builder
            .on_worker_start(move |_| start())
            .on_worker_stop(move |_| stop())
            .around(move |task| {
                task();
                hook();
            });
    }
    match builder.build() {
        Ok(pool) => {
            if min > 0 {
                check!(pool.stats().workers >= min, "fewer than min: {pool:?}");
                seen.note(Fault::MinWorkers);
            }
            Some(Arc::new(pool))
        }
        Err(BuildError::Spawn(_)) => None,
        Err(error) => crate::fail(&format!("{error}")),
    }
}

fn check_reason(pool: &Pool, reason: &Refusal) {
    match reason {
        Refusal::Saturated | Refusal::SpawnFailed(_) | Refusal::Cancelled => {}
        Refusal::Closed => check!(pool.is_closed(), "an open pool is closed: {pool:?}"),
        other => crate::fail(&format!("refused as {other:?}: {pool:?}")),
    }
}

fn call(pool: &Pool, plan: Plan, rng: &mut Rng, seen: &Arc<Seen>) {
    let far = Duration::MAX - Duration::from_nanos(1);
    let (fault, d) = match rng.below(8) {
        0 if plan.has(Fault::Zero) => (Some(Fault::Zero), Duration::ZERO),
        1 if plan.has(Fault::Tiny) => (Some(Fault::Tiny), Duration::from_nanos(1)),
        2 if plan.has(Fault::BeyondClock) => (Some(Fault::BeyondClock), far),
        3 if plan.has(Fault::TakenBack) => (None, rng.micros(100)),
        _ => (None, Duration::from_millis(20)),
    };
    if let Some(fault) = fault {
        seen.note(fault);
    }
    if d.is_zero() {
        seen.zero.fetch_add(1, Ordering::Relaxed);
    }
    let ticket = Ticket::new(seen);
    let task = move || ticket.run();
    let start = Instant::now();
    let vain = plan.has(Fault::MinRemaining) && rng.one_in(2);
    let outcome = if vain {
        seen.note(Fault::MinRemaining);
        let least = Duration::from_millis(rng.below(25));
        let submitter = pool.min_remaining(least);
        submitter.do_with_deadline(task, d)
    } else {
        pool.do_with_deadline(task, d)
    };
    match outcome {
        Ok(()) => {}
        Err(DeadlineError::Expired(_)) => {
            check!(vain || start.elapsed() >= d, "expired early: {pool:?}");
        }
        Err(DeadlineError::TimedOut) => check!(start.elapsed() >= d, "early: {pool:?}"),
        Err(DeadlineError::Refused(refused)) => check_reason(pool, refused.reason()),
        Err(DeadlineError::Panicked(panic)) => crate::fail(&format!("no task panics: {panic:?}")),
    }
}

fn serve(pool: &Arc<Pool>, group: &Group, plan: Plan, rng: &mut Rng, seen: &Arc<Seen>) {
    let ticket = Ticket::new(seen);
    let local = plan.has(Fault::LocalSubmits) || plan.has(Fault::LocalEnds);
    let ends = plan.has(Fault::LocalEnds) && (!plan.has(Fault::LocalSubmits) || rng.one_in(2));
    let of_local = local.then(|| (Arc::downgrade(pool), Arc::clone(seen)));
    let pause = rng.one_in(4).then(|| rng.micros(400));
    let task = move || {
        if let Some((pool, seen)) = of_local {
            // One for each worker.
            LOCAL.with(|it| {
                let mut it = it.borrow_mut();
                if it.is_none() && task::slot().is_some() {
                    *it = Some(Local { pool, seen, ends });
                }
            });
        }
        if let Some(pause) = pause {
            thread::sleep(pause);
        }
        ticket.run();
    };
    let refused = match rng.below(6) {
        0 if plan.has(Fault::BlockFor) => {
            seen.note(Fault::BlockFor);
            let policy = WhenFull::BlockFor(rng.micros(2_000));
            pool.when_full(policy).serve(task).err()
        }
        1 if plan.has(Fault::ServeDeadline) => {
            seen.note(Fault::ServeDeadline);
            pool.with_deadline(rng.micros(1_000)).serve(task).err()
        }
        2 | 3 => group.serve(task).err(),
        _ => {
            let policy = WhenFull::BlockFor(Duration::from_millis(20));
            pool.when_full(policy).serve(task).err()
        }
    };
    if let Some(refused) = refused {
        check_reason(pool, refused.reason());
    }
}

#[cfg(lazypool_pauses)]
use lazypool::pauses;

/// As a library without them.
#[cfg(not(lazypool_pauses))]
mod pauses {
    pub(super) fn pause_one_in(_: u32) {}

    pub(super) fn count() -> u64 {
        0
    }
}

/// What happens to the pool while others submit.
fn disturb(pool: &Pool, group: &Group, plan: Plan, rng: &mut Rng, seen: &Seen, busy: &AtomicUsize) {
    for turn in 0_u32.. {
        if busy.load(Ordering::SeqCst) == 0 {
            break;
        }
        if plan.has(Fault::NoThread) {
            os::allow_threads(rng.one_in(2));
        }
        if plan.has(Fault::LimitSet) {
            seen.note(Fault::LimitSet);
            let limit = 1 + rng.below(pool.max_workers() as u64) as usize;
            check!(
                pool.set_limit(limit).is_ok(),
                "{limit} is in range: {pool:?}"
            );
        }
        let cancels = plan.has(Fault::GroupCancelled) && rng.one_in(8);
        if cancels && group.pending() > 0 && !group.is_cancelled() {
            seen.note(Fault::GroupCancelled);
            group.cancel();
        }
        let ends = [
            (Fault::Drain, Shutdown::Drain),
            (Fault::Discard, Shutdown::Discard),
            (Fault::Cancel, Shutdown::Cancel),
        ];
        if turn > 20 && rng.one_in(4) {
            for (fault, mode) in ends {
                if plan.has(fault) {
                    seen.note(fault);
                    pool.shutdown(mode, rng.micros(500));
                }
            }
        }
        let stats = pool.stats();
        if plan.has(Fault::Retired) && stats.retired > 0 && !pool.is_closed() {
            seen.note(Fault::Retired);
        }
        thread::sleep(rng.micros(600));
    }
    os::allow_threads(true);
}

/// One pool, from its first task to its last thread.
fn round(seed: u64) -> Arc<Seen> {
    let rng = &mut Rng::new(seed);
    let seen = Arc::new(Seen::default());
    // Each fault in one round of two.
    let plan = Plan(mix(seed));
    let threads = os::threads();
    let paused = pauses::count();
    pauses::pause_one_in(if plan.has(Fault::Paused) { 300 } else { 0 });
    let Some(pool) = build(plan, rng, &seen) else {
        return seen;
    };
    let group = pool.group();
    let busy = AtomicUsize::new(3);
    thread::scope(|s| {
        for number in 1..=3 {
            let (pool, group, seen, busy) = (&pool, &group, &seen, &busy);
            s.spawn(move || {
                let rng = &mut Rng::new(mix(seed ^ number));
                for _ in 0..60 {
                    if rng.one_in(2) {
                        call(pool, plan, rng, seen);
                    } else {
                        serve(pool, group, plan, rng, seen);
                    }
                    if rng.one_in(8) {
                        thread::sleep(rng.micros(1_500));
                    }
                    crate::books::add(&crate::books::PROGRESS);
                }
                busy.fetch_sub(1, Ordering::SeqCst);
            });
        }
        disturb(&pool, &group, plan, rng, &seen, &busy);
    });
    group.wait();
    let spawn_failures = pool.stats().spawn_failures;
    let expired = pool.stats().expired;
    if plan.has(Fault::Dropped) {
        seen.note(Fault::Dropped);
        drop(pool);
        wait_for_threads(threads);
    } else {
        let report = pool.shutdown(Shutdown::Drain, Duration::MAX);
        check!(report.is_clean(), "not clean: {report:?}");
        wait_for_threads(threads);
        check_ledger(&pool, &seen);
    }
    pauses::pause_one_in(0);
    let (made, gone) = (&seen.made, &seen.gone);
    let (made, gone) = (made.load(Ordering::SeqCst), gone.load(Ordering::SeqCst));
    check!(made == gone, "{made} closures, {gone} dropped");
    for (fault, happened) in [
        (Fault::NoThread, spawn_failures > 0),
        (Fault::TakenBack, plan.has(Fault::TakenBack) && expired > 0),
        (Fault::Paused, pauses::count() > paused),
    ] {
        if happened {
            seen.note(fault);
        }
    }
    seen
}

fn wait_for_threads(threads: usize) {
    let start = Instant::now();
    while os::threads() != threads {
        check!(
            start.elapsed().as_secs() < 30,
            "threads of the pool are left"
        );
        thread::sleep(Duration::from_micros(500));
    }
}

/// What the pool counted is what its callers and closures saw.
fn check_ledger(pool: &Pool, seen: &Seen) {
    let s = pool.stats();
    let get = |n: &AtomicU64| n.load(Ordering::SeqCst);
    let ended = s.completed + s.panicked + s.expired + s.discarded;
    check!(
        s.accepted == ended && (s.queued, s.running, s.workers) == (0, 0, 0),
        "the ledger does not balance: {s:?}"
    );
    let offered = get(&seen.made) - get(&seen.zero);
    check!(
        offered == s.accepted + s.refused,
        "{offered} offered: {s:?}"
    );
    let ran = get(&seen.ran);
    check!(ran == s.completed && s.panicked == 0, "{ran} ran: {s:?}");
}

/// Plays so many rounds, and prints which pairs of faults one pool had. Ends with an error if
/// a pair was never met.
pub(crate) fn play(seed: u64, rounds: u64) -> bool {
    let mut met = [[0_u64; COUNT]; COUNT];
    for number in 0..rounds {
        crate::ROUND.store(number, Ordering::SeqCst);
        let seen = round(mix(seed ^ mix(number)));
        for a in (0..COUNT).filter(|&a| seen.has(a)) {
            for (b, count) in met[a].iter_mut().enumerate().take(a + 1) {
                *count += u64::from(seen.has(b));
            }
        }
    }
    println!("Of {rounds} pools, seed {seed}: those that had both faults; last in a line, the fault itself.\n");
    let mut never = Vec::new();
    for a in 0..MET {
        let line: Vec<_> = met[a][..=a].iter().map(|n| format!("{n:5}")).collect();
        println!("{a:2} {:16}{}", NAMES[a], line.concat());
        never.extend(
            (0..=a)
                .filter(|&b| met[a][b] == 0)
                .map(|b| (NAMES[b], NAMES[a])),
        );
    }
    for (a, b) in &never {
        println!("never met: {a}, {b}");
    }
    never.is_empty()
}
