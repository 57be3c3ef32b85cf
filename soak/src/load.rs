//! The calls of the submitters, and the assertions for each call.

use crate::books::{add, as_caller, caller_runs, get, quiet_panic, Books, Ticket, Value, PROGRESS};
use crate::handles::{self, Awaited, Told, Witness};
use crate::plan::Plan;
use crate::rng::Rng;
use lazypool::{task, DeadlineError, Group, Pool, Refusal, Refused, Shutdown, WhenFull};
use std::hint::{black_box, spin_loop};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const LABEL: &str = "soak";
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// The place from which a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    Outside,
    OwnWorker,
    OtherPool,
}

/// The behavior of a closure, packed into one number so that a closure with its ticket still fits
/// into a slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Act(pub(crate) u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Nothing,
    Yields,
    Spins,
    Sleeps,
    AwaitsCancel,
    Submits,
    ShutsDown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Panics,
    CaptureExplodes,
    ResultExplodes,
    PayloadExplodes,
}

impl Act {
    /// The behavior of a closure that does nothing, under `serve`.
    pub(crate) const IDLE: Self = Self(1 << 9);

    pub(crate) fn random(rng: &mut Rng, plan: &Plan, depth: u32) -> Self {
        let does = match rng.below(200) {
            0..90 => Does::Nothing,
            90..120 => Does::Yields,
            120..160 => Does::Spins,
            160..170 => Does::Sleeps,
            170..180 => Does::AwaitsCancel,
            180..199 if plan.nests && depth == 0 => Does::Submits,
            199 if plan.closes_inside && depth == 0 && rng.one_in(8) => Does::ShutsDown,
            _ => Does::Nothing,
        };
        let most = match does {
            Does::Spins => 80,
            Does::Sleeps => 2_000,
            _ => 6_000,
        };
        let fault = match rng.below(40 * u64::from(plan.faults).max(1)) {
            _ if plan.faults == 0 => Fault::None,
            0 => Fault::Panics,
            1 => Fault::CaptureExplodes,
            2 => Fault::ResultExplodes,
            3 => Fault::PayloadExplodes,
            _ => Fault::None,
        };
        Self(does as u64 | (fault as u64) << 4 | rng.below(most) << 16 | rng.draw() << 32)
    }

    pub(crate) fn labeled(self, yes: bool) -> Self {
        Self(self.0 | u64::from(yes) << 8)
    }

    pub(crate) fn without_end(self, yes: bool) -> Self {
        Self(self.0 | u64::from(yes) << 9)
    }

    /// Makes the closure run until its own deadline has passed.
    pub(crate) fn overrunning(self) -> Self {
        Self(self.0 | 1 << 10)
    }

    /// Makes the drop of the result not panic.
    pub(crate) fn without_bomb(self) -> Self {
        match self.fault() {
            Fault::ResultExplodes => Self(self.0 & !(15 << 4)),
            _ => self,
        }
    }

    /// Returns `true` if the drop of the capture panics.
    pub(crate) fn bomb(self) -> bool {
        self.fault() == Fault::CaptureExplodes
    }

    /// Returns `true` if the caller gets a panic's payload.
    pub(crate) fn panics(self) -> bool {
        !matches!(self.fault(), Fault::None | Fault::ResultExplodes)
    }

    fn overruns(self) -> bool {
        self.0 >> 10 & 1 == 1
    }

    fn does(self) -> Does {
        [
            Does::Nothing,
            Does::Yields,
            Does::Spins,
            Does::Sleeps,
            Does::AwaitsCancel,
            Does::Submits,
            Does::ShutsDown,
        ][self.0 as usize & 15]
    }

    fn fault(self) -> Fault {
        [
            Fault::None,
            Fault::Panics,
            Fault::CaptureExplodes,
            Fault::ResultExplodes,
            Fault::PayloadExplodes,
        ][(self.0 >> 4) as usize & 15]
    }

    fn length(self) -> Duration {
        Duration::from_micros(self.0 >> 16 & 0xFFFF)
    }
}

/// A panic payload whose drop panics.
struct PayloadBomb;

impl Drop for PayloadBomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            quiet_panic();
        }
    }
}

/// Drops a value whose drop may panic, and catches the panic.
pub(crate) fn defuse<T>(what: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(what)));
}

/// The body of every closure.
pub(crate) fn body(ticket: Ticket, act: Act) -> Value {
    ticket.run(act.0);
    if !caller_runs() {
        let labeled = act.0 >> 8 & 1 == 1;
        let unbounded = act.0 >> 9 & 1 == 1;
        if (task::label() == Some(LABEL)) != labeled || task::deadline().is_none() != unbounded {
            add(&ticket.books.wrong);
        }
    }
    let start = Instant::now();
    let length = act.length();
    match act.does() {
        Does::Nothing => {}
        Does::Yields => thread::yield_now(),
        Does::Spins => {
            while start.elapsed() < length {
                spin_loop();
            }
        }
        Does::Sleeps => thread::sleep(length),
        Does::AwaitsCancel => {
            while start.elapsed() < length && !task::is_cancelled() {
                thread::sleep(Duration::from_micros(100));
            }
        }
        Does::Submits if !caller_runs() => nest(&ticket.books, act),
        Does::ShutsDown if !caller_runs() => {
            if let Some(pool) = ticket.books.own.get().and_then(Weak::upgrade) {
                let mode = [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel];
                let report = pool.shutdown(mode[(act.0 >> 32) as usize % 3], LONG);
                if report.is_clean() {
                    // Such a shutdown reports its own worker as a straggler.
                    add(&ticket.books.wrong);
                }
            }
        }
        Does::Submits | Does::ShutsDown => {}
    }
    if act.overruns() && !caller_runs() {
        while task::remaining() != Some(Duration::ZERO) {
            thread::sleep(Duration::from_micros(100));
        }
        if !task::is_cancelled() {
            add(&ticket.books.wrong);
        }
        add(&ticket.books.timed_out);
    }
    ticket.end();
    let fault = act.fault();
    match fault {
        Fault::Panics => {
            ticket.note_panic();
            quiet_panic();
        }
        Fault::PayloadExplodes => {
            ticket.note_panic();
            resume_unwind(Box::new(PayloadBomb));
        }
        _ => {}
    }
    let value = Value::new(&ticket.books, act.0, fault == Fault::ResultExplodes);
    // Not at the closing brace, where a panic of this drop would leak the value
    // (rust-lang/rust#47949).
    drop(ticket);
    value
}

/// Submits tasks from inside a task.
fn nest(books: &Arc<Books>, act: Act) {
    let mut rng = Rng::new(act.0);
    let own = books.own.get().and_then(Weak::upgrade);
    let peer = books
        .peer
        .get()
        .and_then(|(pool, books)| Some((pool.upgrade()?, books.upgrade()?)));
    match (own, peer) {
        (_, Some((pool, books))) if rng.one_in(5) => {
            handles::one(&pool, &books, &mut rng, From::OtherPool, 1);
        }
        (_, Some((pool, books))) if rng.one_in(2) => {
            one(&pool, &books, &mut rng, From::OtherPool, 1);
        }
        (Some(pool), _) if rng.one_in(5) => {
            scope(&pool, books, &mut rng, From::OwnWorker, 1, 3);
        }
        (Some(pool), _) if rng.one_in(4) => {
            handles::one(&pool, books, &mut rng, From::OwnWorker, 1);
        }
        (Some(pool), _) => one(&pool, books, &mut rng, From::OwnWorker, 1),
        (None, _) => {}
    }
}

/// Ends the process if a call broke a law.
macro_rules! check {
    ($ok:expr, $($what:tt)+) => {
        if !$ok {
            crate::fail(&format!($($what)+));
        }
    };
}
pub(crate) use check;

/// Asserts that the pool may have refused for this reason.
pub(crate) fn check_refusal(pool: &Pool, reason: &Refusal, plan: &Plan, from: From) {
    match reason {
        Refusal::Saturated => {
            check!(!plan.careful, "refused with room to spare: {:?}", pool);
            let blocks = plan.policy == WhenFull::Block;
            check!(!blocks, "a blocking pool refused: {:?}", pool);
        }
        Refusal::OnWorker => {
            check!(!plan.careful, "refused with room to spare: {:?}", pool);
            check!(from == From::OwnWorker, "on no worker: {from:?}, {pool:?}");
        }
        Refusal::Closed => check!(pool.is_closed(), "an open pool is closed: {pool:?}"),
        Refusal::SpawnFailed(error) => {
            check!(plan.threads_fail, "no thread: {error}; {pool:?}");
        }
        other => crate::fail(&format!("refused as {other:?}: {pool:?}")),
    }
}

/// Takes a refused closure back: drops it, or runs it as its caller.
pub(crate) fn take_back<F: FnOnce() -> R, R>(refused: Refused<F>, books: &Books, rng: &mut Rng) {
    add(&books.back);
    if rng.one_in(4) {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            as_caller(|| defuse(refused.run_anyway()));
        }))
        .map_err(defuse);
    } else {
        defuse(refused);
    }
}

fn deadline(rng: &mut Rng, plan: &Plan, from: From) -> Duration {
    if plan.careful {
        return Duration::MAX;
    }
    match rng.below(100) {
        0..4 => Duration::ZERO,
        4..10 => Duration::from_nanos(1),
        10..35 => rng.micros(100),
        35..55 => rng.micros(3_000),
        // Without a limit, a task could wait for ever: the other pool may be waiting for this one.
        _ if from == From::OtherPool => rng.micros(5_000),
        55..75 => LONG,
        _ => Duration::MAX,
    }
}

/// Makes one call of either verb, and asserts that its outcome is right.
pub(crate) fn one(pool: &Pool, books: &Arc<Books>, rng: &mut Rng, from: From, depth: u32) {
    let plan = &books.plan;
    let labeled = rng.one_in(3);
    let large = rng.one_in(10);
    let act = Act::random(rng, plan, depth).labeled(labeled);
    let bomb = act.fault() == Fault::CaptureExplodes;
    let serves = !plan.careful && rng.one_in(2);
    let was_closed = pool.is_closed();
    // Without a limit, this call could wait for ever: the other pool may be waiting for this one.
    let serves = serves && !(from == From::OtherPool && plan.policy == WhenFull::Block);
    let weight = [act.0; 24];
    if serves {
        let act = act.without_end(true);
        let ticket = Ticket::new(books, act.0, bomb);
        let small = move || drop(body(ticket, act));
        let outcome = if large {
            let big = move || {
                black_box(weight);
                small();
            };
            serve(pool, labeled, big, books, rng, from)
        } else {
            serve(pool, labeled, small, books, rng, from)
        };
        check!(
            !(was_closed && outcome),
            "accepted after shutdown: {pool:?}"
        );
        return;
    }
    let d = deadline(rng, plan, from);
    // The clock can represent a deadline of 600 s or of a nanosecond, but not `Duration::MAX`.
    let act = act.without_end(d == Duration::MAX);
    let ticket = Ticket::new(books, act.0, bomb);
    if d.is_zero() {
        add(&books.zero);
    }
    let small = move || body(ticket, act);
    let accepted = if large {
        let big = move || {
            black_box(weight);
            small()
        };
        call(pool, labeled, big, d, act, books, rng, from)
    } else {
        call(pool, labeled, small, d, act, books, rng, from)
    };
    check!(
        !(was_closed && accepted),
        "accepted after shutdown: {pool:?}"
    );
}

/// With `serve` the result is dropped inside the task, so a panic of its drop is the task's panic.
fn serve<F: FnOnce() + Send + 'static>(
    pool: &Pool,
    labeled: bool,
    f: F,
    books: &Books,
    rng: &mut Rng,
    from: From,
) -> bool {
    let outcome = if labeled {
        pool.labeled(LABEL).serve(f)
    } else {
        pool.serve(f)
    };
    add(&PROGRESS);
    match outcome {
        Ok(()) => true,
        Err(refused) => {
            check_refusal(pool, refused.reason(), &books.plan, from);
            take_back(refused, books, rng);
            false
        }
    }
}

#[allow(clippy::too_many_arguments)]
fn call<F: FnOnce() -> Value + Send + 'static>(
    pool: &Pool,
    labeled: bool,
    f: F,
    d: Duration,
    act: Act,
    books: &Books,
    rng: &mut Rng,
    from: From,
) -> bool {
    let start = Instant::now();
    let outcome = if labeled {
        pool.labeled(LABEL).do_with_deadline(f, d)
    } else {
        pool.do_with_deadline(f, d)
    };
    let took = start.elapsed();
    add(&PROGRESS);
    if let Some(over) = took.checked_sub(d) {
        let over = u64::try_from(over.as_micros()).unwrap_or(u64::MAX);
        books.overshoot.fetch_max(over, Ordering::Relaxed);
    }
    match outcome {
        Ok(value) => {
            let arrived = value.arrived();
            check!(arrived == act.0, "another task's result: {pool:?}");
            check!(
                !matches!(
                    act.fault(),
                    Fault::Panics | Fault::PayloadExplodes | Fault::CaptureExplodes
                ),
                "a panic was lost: {pool:?}"
            );
            true
        }
        Err(DeadlineError::Panicked(panic)) => {
            check!(act.fault() != Fault::None, "an unmeant panic: {panic:?}");
            defuse(panic);
            true
        }
        Err(DeadlineError::TimedOut) => {
            check!(took >= d, "timed out {took:?} into {d:?}: {pool:?}");
            add(&books.timed_out);
            true
        }
        Err(DeadlineError::Expired(f)) => {
            check!(took >= d, "expired {took:?} into {d:?}: {pool:?}");
            add(&books.back);
            add(&books.back_expired);
            defuse(f);
            false
        }
        Err(DeadlineError::Refused(refused)) => {
            check_refusal(pool, refused.reason(), &books.plan, from);
            take_back(refused, books, rng);
            false
        }
    }
}

/// Serves some tasks through a group, perhaps cancels it, waits for it, and checks its counts.
fn group(pool: &Pool, books: &Arc<Books>, rng: &mut Rng, most: u64) {
    let plan = &books.plan;
    let limit = (!plan.careful && rng.one_in(3)).then(|| rng.below(most) as usize);
    let group = limit.map_or_else(|| pool.group(), |limit| pool.limited_group(limit));
    let count = 1 + rng.below(most);
    let cancel = !plan.careful && rng.one_in(4);
    let cancel_at = rng.below(count);
    let mut accepted = 0;
    let mut awaited = Vec::new();
    for n in 0..count {
        if cancel && n == cancel_at {
            group.cancel();
        }
        let act = Act::random(rng, plan, 0).without_end(true);
        let ticket = Ticket::new(books, act.0, act.bomb());
        let large = rng.one_in(10);
        // Only this thread submits to the group, so the group is never fuller than now.
        let pending = group.pending();
        check!(
            limit.is_none_or(|limit| pending <= limit),
            "{pending} of {limit:?} are pending"
        );
        let may_be_full = limit.is_some_and(|limit| pending >= limit);
        if rng.one_in(4) {
            let (witness, seen) = Witness::new();
            let task = move || {
                witness.run();
                body(ticket, act)
            };
            let served = if rng.one_in(2) {
                group.awaitable().serve(task)
            } else {
                handles::block_on(group.awaitable().serve_async(task))
            };
            match served {
                Ok(handle) => {
                    let is_member = true;
                    let told = Told {
                        act,
                        seen,
                        is_member,
                    };
                    awaited.push(Awaited { handle, told });
                }
                Err(refused) => refused_in_group(refused, pool, books, rng, may_be_full),
            }
            add(&PROGRESS);
            continue;
        }
        let small = move || drop(body(ticket, act));
        let weight = [act.0; 24];
        let ok = if large {
            let big = move || {
                black_box(weight);
                small();
            };
            serve_in(&group, pool, big, books, rng, may_be_full)
        } else {
            serve_in(&group, pool, small, books, rng, may_be_full)
        };
        accepted += usize::from(ok);
    }
    accepted += awaited.len();
    let other = group.clone();
    drop(group);
    while other.wait_timeout(rng.micros(2_000)).is_err() && rng.one_in(2) {}
    other.wait();
    add(&PROGRESS);
    let ended = other.completed() + other.panicked() + other.discarded();
    check!(
        other.pending() == 0 && ended == accepted,
        "{accepted} accepted: {other:?}, {pool:?}"
    );
    books
        .group_discards
        .fetch_add(other.discarded() as u64, Ordering::Relaxed);
    awaited.into_iter().for_each(|task| task.join(books));
}

fn serve_in<F: FnOnce() + Send + 'static>(
    group: &Group,
    pool: &Pool,
    f: F,
    books: &Books,
    rng: &mut Rng,
    may_be_full: bool,
) -> bool {
    let outcome = group.serve(f);
    add(&PROGRESS);
    match outcome {
        Ok(()) => true,
        Err(refused) => {
            refused_in_group(refused, pool, books, rng, may_be_full);
            false
        }
    }
}

fn refused_in_group<F: FnOnce() -> R, R>(
    refused: Refused<F>,
    pool: &Pool,
    books: &Books,
    rng: &mut Rng,
    may_be_full: bool,
) {
    match refused.reason() {
        Refusal::Cancelled => {}
        Refusal::GroupFull => check!(may_be_full, "full with space to spare: {pool:?}"),
        other => check_refusal(pool, other, &books.plan, From::Outside),
    }
    take_back(refused, books, rng);
}

/// Runs a scope whose tasks borrow.
fn scope(pool: &Pool, books: &Arc<Books>, rng: &mut Rng, from: From, depth: u32, most: u64) {
    let plan = &books.plan;
    let count = 1 + rng.below(most);
    let acts: Vec<Act> = (0..count)
        .map(|_| Act::random(rng, plan, depth).without_end(true))
        .collect();
    let ended = AtomicBool::new(false);
    let own_panic = !plan.careful && rng.one_in(20);
    let result = catch_unwind(AssertUnwindSafe(|| {
        pool.scope(|s| {
            for act in &acts {
                let ticket = Ticket::new(books, act.0, act.fault() == Fault::CaptureExplodes);
                let ended = &ended;
                let refused = s.serve(move || {
                    if ended.load(Ordering::SeqCst) {
                        add(&ticket.books.wrong);
                    }
                    drop(body(ticket, *act));
                });
                add(&PROGRESS);
                if let Err(refused) = refused {
                    check_refusal(pool, refused.reason(), &books.plan, from);
                    take_back(refused, books, rng);
                }
            }
            if own_panic {
                quiet_panic();
            }
        });
    }));
    // A task that still ran would see this change.
    ended.store(true, Ordering::SeqCst);
    add(&PROGRESS);
    if let Err(payload) = result {
        defuse(payload);
    }
}

/// Runs one submitter from start to end.
pub(crate) fn submitter(pool: &Pool, books: &Arc<Books>, number: u64, over: &AtomicBool) {
    let plan = &books.plan;
    let mut rng = Rng::new(plan.seed ^ (number + 1) << 20);
    let mut after_close = 0;
    // The number of tasks that this submitter may have in flight. With more, a careful load could
    // be refused.
    let share = ((plan.workers + plan.queue) / plan.submitters) as u64;
    let batch = if plan.careful { share } else { 20 };
    while !over.load(Ordering::Relaxed) {
        match rng.below(40) {
            0 => group(pool, books, &mut rng, batch),
            1 => scope(pool, books, &mut rng, From::Outside, 0, batch),
            2..10 => handles::one(pool, books, &mut rng, From::Outside, 0),
            _ => one(pool, books, &mut rng, From::Outside, 0),
        }
        if plan.pause_in > 0 && rng.one_in(plan.pause_in) {
            thread::sleep(rng.micros(plan.pause_micros.max(1)));
        }
        if pool.is_closed() {
            after_close += 1;
            if after_close > 20 {
                break;
            }
        }
    }
}

/// Asserts what must hold at every moment, and that counters only grow.
pub(crate) fn watch(pool: &Pool, books: &Books, over: &AtomicBool) {
    let fickle = books.plan.threads_fail;
    let mut last = pool.stats();
    while !over.load(Ordering::Relaxed) {
        let s = pool.stats();
        let max = pool.max_workers();
        let ended = s.completed + s.panicked + s.expired + s.discarded;
        check!(
            s.workers as u64 == s.spawned - s.retired
                && s.running <= max
                && s.idle <= s.workers
                && s.workers <= s.peak_workers
                && s.peak_workers <= max
                && s.queued <= pool.queue_capacity()
                && ended <= s.accepted,
            "figures that contradict each other: {s:?}"
        );
        let growing = |s: &lazypool::Stats| {
            [
                // If the OS refuses a thread, a queued task may have to come back.
                if fickle { 0 } else { s.accepted },
                s.refused,
                s.completed,
                s.panicked,
                s.expired,
                s.discarded,
                s.timed_out,
                s.spawned,
                s.retired,
                s.spawn_failures,
                s.hook_panics,
            ]
        };
        let shrunk = growing(&last)
            .into_iter()
            .zip(growing(&s))
            .any(|(a, b)| a > b);
        check!(!shrunk, "a counter went back: {last:?}, then {s:?}");
        let snapshots = pool.workers();
        check!(snapshots.len() <= max, "too many workers: {snapshots:?}");
        last = s;
        thread::sleep(Duration::from_micros(500));
    }
}

/// Asserts what must hold of a pool that is closed and has no worker left.
pub(crate) fn check_end(pool: &Pool, books: &Books) {
    let s = pool.stats();
    let ended = s.completed + s.panicked + s.expired + s.discarded;
    check!(
        s.accepted == ended && s.queued == 0 && s.running == 0,
        "the ledger does not balance: {s:?}\n{books:?}"
    );
    check_books(&s, books);
}

/// Asserts that the pool counted the events that its callers and tasks saw.
pub(crate) fn check_books(s: &lazypool::Stats, books: &Books) {
    let offered = get(&books.made) - get(&books.zero);
    let withdrawn = offered.wrapping_sub(s.accepted + s.refused);
    check!(
        withdrawn <= get(&books.left),
        "{offered} offered: {s:?}\n{books:?}"
    );
    check!(
        get(&books.ran) == s.completed + s.panicked,
        "ran: {s:?}\n{books:?}"
    );
    check!(
        get(&books.panics) == s.panicked,
        "panicked: {s:?}\n{books:?}"
    );
    check!(
        get(&books.timed_out) == s.timed_out,
        "timed out: {s:?}\n{books:?}"
    );
    let expired = get(&books.handles.expired);
    let told_late = get(&books.back_expired) - get(&books.zero) - s.refusals.expired + expired;
    check!(s.expired >= told_late, "expired: {s:?}\n{books:?}");
    // Tasks that a handle or group cancelled after their deadline count as expired (law 17).
    let late = s.expired - told_late;
    // A worker without a task may be in a hook, and may have panicked there without being counted
    // yet.
    let hook_panics = get(&books.hook_panics);
    check!(
        s.hook_panics == hook_panics || s.hook_panics < hook_panics && s.workers > 0,
        "hook panics: {s:?}\n{books:?}"
    );
    let most = get(&books.most_inside);
    check!(
        most <= books.plan.workers as u64,
        "{most} inside at once: {s:?}\n{books:?}"
    );
    let silent = get(&books.made) - get(&books.ran) - get(&books.back) - expired - withdrawn;
    let told = get(&books.group_discards) + get(&books.handles.discarded);
    check!(
        silent <= s.discarded + late && silent >= told,
        "{silent} dropped without a word: {s:?}\n{books:?}"
    );
    check_drops(books);
}

/// Asserts what must hold even if there is no pool to ask any more.
pub(crate) fn check_drops(books: &Books) {
    let books_balance = get(&books.wrong) == 0
        && get(&books.inside) == 0
        && get(&books.dropped) == get(&books.made)
        && get(&books.results_dropped) == get(&books.results_made)
        && get(&books.ran) + get(&books.back) <= get(&books.made);
    check!(books_balance, "drops: {books:?}");
}
