//! Faults combined: small pools under several faults at once, and a table of the pairs of faults
//! that came together in one pool. A fault counts if it happened, not if it was planned.

use crate::rng::{mix, Rng};
use crate::{os, spawn, PROGRESS};
use lazypool::{task, BuildError, DeadlineError, Group, Pool, Refusal, Shutdown, WhenFull};
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Weak};
use std::task::{Context, Poll, Wake, Waker};
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
    "group full",
    "awaits space",
    "future dropped",
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
    GroupFull,
    AwaitsSpace,
    FutureDropped,
}

const COUNT: usize = Fault::FutureDropped as usize + 1;

/// Counts how often each fault happened to one pool, and the fates of its closures.
#[derive(Debug, Default)]
pub struct Seen {
    faults: [AtomicU64; COUNT],
    made: AtomicU64,
    ran: AtomicU64,
    gone: AtomicU64,
    /// Calls with a deadline of zero: the pool does not count them.
    zero: AtomicU64,
    /// Tasks that ran in `check_whole`, on a pool at rest.
    whole: AtomicU64,
    /// Refusals of such tasks while a worker was in a hook.
    hooked: AtomicU64,
    /// Futures that were dropped before their task ran. If one was in line, the pool does not count
    /// it.
    left: AtomicU64,
}

impl Seen {
    fn note(&self, fault: Fault) {
        self.faults[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn has(&self, fault: usize) -> bool {
        self.faults[fault].load(Ordering::SeqCst) > 0
    }
}

/// The fate of one closure.
#[derive(Debug, Default)]
struct Fate {
    ran: AtomicU64,
    gone: AtomicU64,
}

impl Fate {
    /// Asserts that a closure that came back has neither run nor been dropped.
    fn check_unrun(&self, pool: &Pool) {
        let (ran, gone) = (self.ran.load(SeqCst), self.gone.load(SeqCst));
        assert!(
            (ran, gone) == (0, 0),
            "handed back, ran {ran} times, dropped {gone} times: {pool:?}"
        );
    }
}

/// Captured by each closure. Asserts that the closure runs at most once and is dropped once.
struct Ticket {
    seen: Arc<Seen>,
    fate: Arc<Fate>,
}

impl Ticket {
    fn new(seen: &Arc<Seen>) -> Self {
        seen.made.fetch_add(1, SeqCst);
        Self {
            seen: Arc::clone(seen),
            fate: Arc::default(),
        }
    }

    fn run(self) {
        assert!(
            self.fate.ran.fetch_add(1, SeqCst) == 0,
            "a closure ran twice"
        );
        self.seen.ran.fetch_add(1, SeqCst);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        assert!(
            self.fate.gone.fetch_add(1, SeqCst) == 0,
            "a closure was dropped twice"
        );
        self.seen.gone.fetch_add(1, SeqCst);
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

/// The faults that a round may have, one bit for each.
#[derive(Debug, Clone, Copy)]
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
        let turns = AtomicU64::new(rng.draw());
        let seen = Arc::clone(seen);
        let hook = Arc::new(
            move || match mix(turns.fetch_add(1, Ordering::Relaxed)) % 4 {
                0 if plan.has(Fault::HookSlow) => {
                    seen.note(Fault::HookSlow);
                    thread::sleep(Duration::from_millis(1));
                }
                1 if plan.has(Fault::HookPanics) => {
                    seen.note(Fault::HookPanics);
                    std::panic::resume_unwind(Box::new("meant"));
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
    if plan.has(Fault::NoThread) && rng.one_in(4) {
        spawn::refuse(0, 1);
    }
    let built = builder.build();
    spawn::refuse(0, 0);
    match built {
        Ok(pool) => {
            if min > 0 {
                assert!(pool.stats().workers >= min, "fewer than min: {pool:?}");
                seen.note(Fault::MinWorkers);
            }
            Some(Arc::new(pool))
        }
        Err(BuildError::Spawn(_)) => {
            seen.note(Fault::NoThread);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn check_reason(pool: &Pool, reason: &Refusal) {
    match reason {
        Refusal::Saturated | Refusal::SpawnFailed(_) | Refusal::Cancelled => {}
        Refusal::Closed => assert!(pool.is_closed(), "an open pool is closed: {pool:?}"),
        other => panic!("refused as {other:?}: {pool:?}"),
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
    let fate = Arc::clone(&ticket.fate);
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
        Ok(()) => assert!(
            fate.gone.load(SeqCst) == 1,
            "a value before its task's end: {pool:?}"
        ),
        Err(DeadlineError::Expired(unrun)) => {
            fate.check_unrun(pool);
            drop(unrun);
            assert!(vain || start.elapsed() >= d, "expired early: {pool:?}");
        }
        Err(DeadlineError::TimedOut) => assert!(start.elapsed() >= d, "early: {pool:?}"),
        Err(DeadlineError::Refused(refused)) => {
            fate.check_unrun(pool);
            check_reason(pool, refused.reason());
        }
        Err(DeadlineError::Panicked(panic)) => panic!("no task panics: {panic:?}"),
    }
}

/// The groups of a pool, one of which has a limit.
struct Groups {
    group: Group,
    limited: Group,
    limit: usize,
    /// Tasks that the group with a limit accepted.
    accepted: AtomicUsize,
    /// Futures of the group with a limit that were dropped in line.
    left: AtomicUsize,
}

impl Groups {
    fn new(pool: &Pool, rng: &mut Rng) -> Self {
        let limit = 1 + rng.below(2) as usize;
        Self {
            group: pool.group(),
            limited: pool.limited_group(limit),
            limit,
            accepted: AtomicUsize::new(0),
            left: AtomicUsize::new(0),
        }
    }

    /// Returns `true` if the reason is that the group is full, and asserts that the group has a
    /// limit.
    fn is_full(&self, reason: &Refusal, plan: Plan, seen: &Seen) -> bool {
        let is = matches!(reason, Refusal::GroupFull);
        assert!(
            !is || plan.has(Fault::GroupFull),
            "full without a limit: {reason:?}"
        );
        if is {
            seen.note(Fault::GroupFull);
        }
        is
    }

    fn wait(&self) {
        self.group.wait();
        self.limited.wait();
        let (accepted, left) = (self.accepted.load(SeqCst), self.left.load(SeqCst));
        let it = &self.limited;
        let ended = it.completed() + it.panicked() + it.discarded();
        assert!(
            it.pending() == 0 && (accepted..=accepted + left).contains(&ended),
            "{accepted} accepted, {left} left: {it:?}"
        );
    }
}

/// A waker that unparks the thread that polls.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Submits a task as a future, with or without a group; then awaits space or leaves the line.
fn serve_async<F>(
    pool: &Pool,
    groups: &Groups,
    plan: Plan,
    rng: &mut Rng,
    seen: &Arc<Seen>,
    fate: &Fate,
    task: F,
) where
    F: FnOnce() + Send + 'static,
{
    // Fills the pool first: otherwise there is space in most cases.
    for _ in 0..8 {
        let (ticket, pause) = (Ticket::new(seen), rng.micros(600));
        let filler = move || {
            thread::sleep(pause);
            ticket.run();
        };
        if pool.when_full(WhenFull::Refuse).serve(filler).is_err() {
            break;
        }
    }
    let in_group = plan.has(Fault::GroupFull) && rng.one_in(2);
    let mut future = if in_group {
        groups.limited.awaitable().serve_async(task)
    } else {
        pool.awaitable().serve_async(task)
    };
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let leaves = plan.has(Fault::FutureDropped) && (!plan.has(Fault::AwaitsSpace) || rng.one_in(2));
    let served = loop {
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(served) => break served,
            Poll::Pending if leaves => {
                seen.note(Fault::FutureDropped);
                thread::sleep(rng.micros(300));
                drop(future);
                if fate.ran.load(SeqCst) == 0 {
                    seen.left.fetch_add(1, SeqCst);
                }
                groups.left.fetch_add(usize::from(in_group), SeqCst);
                return;
            }
            Poll::Pending => {
                seen.note(Fault::AwaitsSpace);
                thread::park();
            }
        }
    };
    match served {
        Ok(handle) => {
            groups.accepted.fetch_add(usize::from(in_group), SeqCst);
            match rng.below(3) {
                0 => handle.detach(),
                1 => drop(handle),
                _ => drop(handle.join()),
            }
        }
        Err(refused) => {
            fate.check_unrun(pool);
            let reason = refused.reason();
            let saturated = matches!(reason, Refusal::Saturated);
            assert!(!saturated, "a future waits for space: {pool:?}");
            if !(in_group && groups.is_full(reason, plan, seen)) {
                check_reason(pool, reason);
            }
        }
    }
}

fn serve(pool: &Arc<Pool>, groups: &Groups, plan: Plan, rng: &mut Rng, seen: &Arc<Seen>) {
    let ticket = Ticket::new(seen);
    let fate = Arc::clone(&ticket.fate);
    let local = plan.has(Fault::LocalSubmits) || plan.has(Fault::LocalEnds);
    let ends = plan.has(Fault::LocalEnds) && (!plan.has(Fault::LocalSubmits) || rng.one_in(2));
    let of_local = local.then(|| (Arc::downgrade(pool), Arc::clone(seen)));
    let pause = rng.one_in(4).then(|| rng.micros(400));
    let task = move || {
        if let Some((pool, seen)) = of_local {
            // Sets one thread-local for each worker.
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
        2 if plan.has(Fault::GroupFull) => {
            let refused = groups.limited.serve(task).err();
            let pending = groups.limited.pending();
            assert!(pending <= groups.limit, "{pending} of {}", groups.limit);
            (groups.accepted).fetch_add(usize::from(refused.is_none()), SeqCst);
            let is_full = |reason| groups.is_full(reason, plan, seen);
            if refused
                .as_ref()
                .is_some_and(|refused| is_full(refused.reason()))
            {
                return fate.check_unrun(pool);
            }
            refused
        }
        2 | 3 => groups.group.serve(task).err(),
        4 | 5 if plan.has(Fault::AwaitsSpace) || plan.has(Fault::FutureDropped) => {
            return serve_async(pool, groups, plan, rng, seen, &fate, task);
        }
        _ => {
            let policy = WhenFull::BlockFor(Duration::from_millis(20));
            pool.when_full(policy).serve(task).err()
        }
    };
    if let Some(refused) = refused {
        fate.check_unrun(pool);
        check_reason(pool, refused.reason());
    }
}

/// Disturbs the pool while others submit.
fn disturb(pool: &Pool, groups: &Groups, round: &mut Round, seen: &Seen, busy: &AtomicUsize) {
    let (plan, calm, rng) = (round.plan, round.calm, &mut round.rng);
    for turn in 0_u32.. {
        if busy.load(Ordering::SeqCst) == 0 {
            break;
        }
        if plan.has(Fault::NoThread) && rng.one_in(2) {
            spawn::refuse(rng.below(3) as u32, 1 + rng.below(4) as u32);
        }
        if plan.has(Fault::LimitSet) {
            seen.note(Fault::LimitSet);
            let limit = 1 + rng.below(pool.max_workers() as u64) as usize;
            assert!(
                pool.set_limit(limit).is_ok(),
                "{limit} is in range: {pool:?}"
            );
        }
        let cancels = plan.has(Fault::GroupCancelled) && rng.one_in(8);
        for group in [&groups.group, &groups.limited] {
            if cancels && group.pending() > 0 && !group.is_cancelled() {
                seen.note(Fault::GroupCancelled);
                group.cancel();
            }
        }
        let ends = [
            (Fault::Drain, Shutdown::Drain),
            (Fault::Discard, Shutdown::Discard),
            (Fault::Cancel, Shutdown::Cancel),
        ];
        if turn > calm && rng.one_in(4) {
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
    spawn::refuse(0, 0);
}

/// The life of one pool, from its first task to its last thread.
#[derive(Debug)]
pub struct Round {
    plan: Plan,
    /// The number of calls that each submitter makes.
    calls: u32,
    /// The number of turns of `disturb` before the first shutdown.
    calm: u32,
    /// The choices for the pool's settings and for `disturb`.
    rng: Rng,
    submitters: [Rng; SUBMITTERS],
}

const SUBMITTERS: usize = 3;

impl Round {
    /// Returns a round with a random plan, in which each fault has a probability of one half.
    pub fn drawn(seed: u64) -> Self {
        Self {
            plan: Plan(mix(seed)),
            calls: 60,
            calm: 20,
            rng: Rng::new(seed),
            submitters: [1, 2, 3].map(|number| Rng::new(mix(seed ^ number))),
        }
    }

    /// Returns a short round. Its faults are the bits of the first three bytes; the bytes that
    /// follow are dealt to the four threads in turn and make their other choices.
    pub fn of(bytes: &[u8]) -> Self {
        let (faults, rest) = bytes.split_at(bytes.len().min(3));
        let every_fourth = |n: usize| Rng::of(rest.iter().skip(n).step_by(SUBMITTERS + 1).copied());
        Self {
            plan: Plan(faults.iter().fold(0, |n, &byte| n << 8 | u64::from(byte))),
            calls: 20,
            calm: 6,
            rng: every_fourth(0),
            submitters: [1, 2, 3].map(every_fourth),
        }
    }

    /// Plays the round. Returns the faults that it met.
    pub fn play(self) -> Arc<Seen> {
        play(self)
    }
}

fn play(mut round: Round) -> Arc<Seen> {
    let seen = Arc::new(Seen::default());
    let plan = round.plan;
    let threads = os::threads();
    let Some(pool) = build(plan, &mut round.rng, &seen) else {
        wait_for_threads(threads);
        return seen;
    };
    let groups = Groups::new(&pool, &mut round.rng);
    let busy = AtomicUsize::new(SUBMITTERS);
    let calls = round.calls;
    thread::scope(|s| {
        for rng in &round.submitters {
            let (pool, groups, seen, busy) = (&pool, &groups, &seen, &busy);
            let mut rng = rng.clone();
            s.spawn(move || {
                let rng = &mut rng;
                for _ in 0..calls {
                    if rng.one_in(2) {
                        call(pool, plan, rng, seen);
                    } else {
                        serve(pool, groups, plan, rng, seen);
                    }
                    if rng.one_in(8) {
                        thread::sleep(rng.micros(1_500));
                    }
                    PROGRESS.fetch_add(1, Ordering::Relaxed);
                }
                busy.fetch_sub(1, Ordering::SeqCst);
            });
        }
        disturb(&pool, &groups, &mut round, &seen, &busy);
    });
    groups.wait();
    check_whole(&pool, plan, &seen);
    let (spawn_failures, expired) = (pool.stats().spawn_failures, pool.stats().expired);
    let retired = plan.has(Fault::Retired) && pool.stats().retired > 0 && !pool.is_closed();
    if plan.has(Fault::Dropped) {
        seen.note(Fault::Dropped);
        drop(pool);
        wait_for_threads(threads);
    } else {
        let report = pool.shutdown(Shutdown::Drain, Duration::MAX);
        assert!(report.is_clean(), "not clean: {report:?}");
        wait_for_threads(threads);
        check_ledger(&pool, &seen);
    }
    let (made, gone) = (&seen.made, &seen.gone);
    let (made, gone) = (made.load(Ordering::SeqCst), gone.load(Ordering::SeqCst));
    assert!(made == gone, "{made} closures, {gone} dropped");
    for (fault, happened) in [
        (Fault::NoThread, spawn_failures > 0),
        (Fault::TakenBack, plan.has(Fault::TakenBack) && expired > 0),
        (Fault::Retired, retired),
    ] {
        if happened {
            seen.note(fault);
        }
    }
    seen
}

/// Asserts that an open pool at rest runs as many tasks at once as it has workers, whatever
/// happened before. A worker in a hook counts as busy, so a task that is refused for that is tried
/// again.
fn check_whole(pool: &Pool, plan: Plan, seen: &Seen) {
    // Destructors of thread-locals may submit or shut down at any time.
    let undisturbed = !plan.has(Fault::LocalSubmits) && !plan.has(Fault::LocalEnds);
    if !undisturbed || pool.is_closed() {
        return;
    }
    let workers = pool.max_workers();
    assert!(pool.set_limit(workers).is_ok(), "{workers}: {pool:?}");
    wait_for("an end of all tasks", || {
        let stats = pool.stats();
        (stats.running, stats.queued) == (0, 0)
    });
    let meet = Arc::new(Barrier::new(workers + 1));
    for _ in 0..workers {
        let serve = || {
            let meet = Arc::clone(&meet);
            let served = pool.when_full(WhenFull::Refuse).serve(move || {
                meet.wait();
            });
            served.map_err(|refused| refused.into_parts().1)
        };
        if plan.has(Fault::HookSlow) || plan.has(Fault::HookPanics) {
            wait_for("a worker out of its hook", || {
                let served = serve().is_ok();
                seen.hooked.fetch_add(u64::from(!served), SeqCst);
                served
            });
            continue;
        }
        let reason = serve();
        assert!(reason.is_ok(), "at rest, and refused: {reason:?}, {pool:?}");
    }
    meet.wait();
    seen.whole.fetch_add(workers as u64, SeqCst);
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed().as_secs() < 30, "no {what}");
        thread::sleep(Duration::from_micros(500));
    }
}

fn wait_for_threads(threads: usize) {
    wait_for("end of the pool's threads", || os::threads() == threads);
}

/// Asserts that the pool counted the events that its callers and closures saw.
fn check_ledger(pool: &Pool, seen: &Seen) {
    let s = pool.stats();
    let get = |n: &AtomicU64| n.load(Ordering::SeqCst);
    let ended = s.completed + s.panicked + s.expired + s.discarded;
    assert!(
        s.accepted == ended && (s.queued, s.running, s.workers) == (0, 0, 0),
        "the ledger does not balance: {s:?}"
    );
    let offered = get(&seen.made) - get(&seen.zero) + get(&seen.whole) + get(&seen.hooked);
    let left = get(&seen.left);
    assert!(
        (offered - left.min(offered)..=offered).contains(&(s.accepted + s.refused)),
        "{offered} offered, {left} left: {s:?}"
    );
    let ran = get(&seen.ran) + get(&seen.whole);
    assert!(ran == s.completed && s.panicked == 0, "{ran} ran: {s:?}");
}

/// For each pair of faults, the number of pools in which both happened.
#[derive(Debug, Default)]
pub struct Table {
    met: [[u64; COUNT]; COUNT],
}

impl Table {
    /// Counts one more pool.
    pub fn add(&mut self, seen: &Seen) {
        for a in (0..COUNT).filter(|&a| seen.has(a)) {
            for (b, count) in self.met[a].iter_mut().enumerate().take(a + 1) {
                *count += u64::from(seen.has(b));
            }
        }
    }

    fn never(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = (0..COUNT).flat_map(|a| (0..=a).map(move |b| (a, b)));
        let never = pairs.filter(|&(a, b)| self.met[a][b] == 0);
        never.map(|(a, b)| (NAMES[b], NAMES[a]))
    }

    /// Returns `true` if each pair was met.
    pub fn is_complete(&self) -> bool {
        self.never().next().is_none()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("those that had both faults; last in a line, the fault itself.\n\n")?;
        for (a, line) in self.met.iter().enumerate() {
            write!(f, "{a:2} {:16}", NAMES[a])?;
            for count in &line[..=a] {
                write!(f, "{count:5}")?;
            }
            writeln!(f)?;
        }
        for (a, b) in self.never() {
            writeln!(f, "never met: {a}, {b}")?;
        }
        Ok(())
    }
}
