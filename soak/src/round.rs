//! One round: a pool or two, a load, an end, and the assertions for that end.

use crate::books::{add, get, quiet_panic, Books, Ticket, PROGRESS};
use crate::load::{body, check, check_books, check_drops, check_end, submitter, watch, Act};
use crate::os;
use crate::plan::{Kind, Plan};
use crate::rng::{mix, Rng};
use lazypool::{BuildError, Pool, Refusal, Shutdown, WhenFull};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Linux keeps 15 bytes of a thread's name.
const NAME: &str = "pool";

/// A time far beyond any healthy end.
const LIMIT: Duration = Duration::from_secs(60);

/// The pools under test, for the messages of failures.
pub(crate) static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());

#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) offered: u64,
    pub(crate) ran: u64,
    pub(crate) back: u64,
    pub(crate) timed_out: u64,
    pub(crate) panicked: u64,
    pub(crate) overshoot: u64,
    pub(crate) pools: u64,
    pub(crate) handles: BTreeMap<&'static str, u64>,
}

impl Totals {
    fn take(&mut self, books: &Books) {
        self.offered += get(&books.made);
        self.ran += get(&books.ran);
        self.back += get(&books.back);
        self.timed_out += get(&books.timed_out);
        self.panicked += get(&books.panics);
        self.overshoot = self.overshoot.max(get(&books.overshoot));
        self.pools += 1;
        for (name, n) in books.handles.counts() {
            *self.handles.entry(name).or_default() += n;
        }
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        check!(start.elapsed() < LIMIT, "waited {LIMIT:?} for {what}");
        thread::sleep(Duration::from_micros(500));
    }
}

fn build(plan: &Plan, books: &Arc<Books>) -> Option<Arc<Pool>> {
    let mut rng = Rng::new(plan.seed ^ 77);
    let timeout = rng.pick(&[Duration::ZERO, Duration::from_millis(5), Duration::MAX]);
    let mut builder = Pool::builder()
        .max_workers(plan.workers)
        .min_workers(plan.min)
        .queue_capacity(plan.queue)
        .when_full(plan.policy)
        .idle_timeout(plan.idle)
        .thread_name(NAME)
        .shutdown_on_drop(plan.last_mode, timeout);
    if plan.kind == Kind::NoThreads {
        builder = builder.stack_size(1 << 46);
    }
    if plan.hooks {
        let turn = {
            let turns = AtomicU64::new(plan.seed);
            Arc::new(move || mix(turns.fetch_add(1, Ordering::Relaxed)))
        };
        let misbehave = {
            let (books, turn) = (Arc::clone(books), Arc::clone(&turn));
            Arc::new(move || match turn() % 8 {
                0 => {
                    add(&books.hook_panics);
                    quiet_panic();
                }
                1 => thread::sleep(Duration::from_micros(turn() % 1_000)),
                2 => thread::yield_now(),
                _ => {}
            })
        };
        let (start, stop, panicked, around) = (
            Arc::clone(&misbehave),
            Arc::clone(&misbehave),
            Arc::clone(&misbehave),
            misbehave,
        );
        // A worker in its start or stop hook counts as busy, so a careful load gets no such hooks:
        // it could be refused.
        if !plan.careful {
            builder = builder
                .on_worker_start(move |_| start())
                .on_worker_stop(move |_| stop());
        }
        builder = builder.on_panic(move |_| panicked()).around(move |task| {
            match turn() % 8 {
                0 => {}
                1 => {
                    task();
                    task();
                }
                2 => around(),
                _ => task(),
            }
            if turn() % 8 == 0 {
                around();
            }
        });
    }
    match builder.build() {
        Ok(pool) => {
            check!(
                pool.stats().workers >= plan.min,
                "fewer workers than the minimum: {pool:?}"
            );
            let pool = Arc::new(pool);
            let _ = books.own.set(Arc::downgrade(&pool));
            if let Ok(mut pools) = POOLS.lock() {
                pools.push(Arc::downgrade(&pool));
            }
            Some(pool)
        }
        Err(BuildError::Spawn(_)) if plan.threads_fail => None,
        Err(error) => crate::fail(&format!("{error}: {plan:?}")),
    }
}

/// Builds a pool and its books. Returns `None` if the OS refused a thread for the minimum.
fn prepare(plan: &Plan) -> Option<(Arc<Pool>, Arc<Books>)> {
    let books = Arc::new(Books::new(*plan));
    Some((build(plan, &books)?, books))
}

pub(crate) fn run(seed: u64, child: bool, totals: &mut Totals) {
    let plan = Plan::random(seed, child);
    let rng = &mut Rng::new(seed ^ 99);
    os::pin(plan.one_core);
    let threads = os::threads();
    let mut pools = Vec::new();
    if child {
        os::allow_threads(!rng.one_in(4));
    }
    pools.extend(prepare(&plan));
    // A second pool, so that the tasks of each submit to the other.
    if plan.nests && plan.kind == Kind::Mixed && rng.one_in(2) {
        let mut other = Plan::random(mix(seed), child);
        other.kind = Kind::Mixed;
        other.careful = false;
        other.closes_inside = false;
        other.threads_fail = child;
        other.nests = true;
        other.length = plan.length;
        other.submitters = other.submitters.div_ceil(2);
        pools.extend(prepare(&other));
    }
    if let [(a, of_a), (b, of_b)] = &pools[..] {
        let _ = of_a.peer.set((Arc::downgrade(b), Arc::downgrade(of_b)));
        let _ = of_b.peer.set((Arc::downgrade(a), Arc::downgrade(of_a)));
    }
    if child {
        os::allow_threads(true);
    }

    load(&pools, &plan, child, rng);

    // A task of either pool may be about to submit to the other, whose books would not balance
    // meanwhile. The tasks that it submits there submit nothing.
    if let [(a, _), (b, _)] = &pools[..] {
        [a, b, a].into_iter().for_each(|pool| settle(pool));
    }
    let mut kept = Vec::new();
    for (pool, books) in pools {
        kept.push(Arc::clone(&books));
        match plan.kind {
            Kind::Orphan => abandon(pool, &books, rng),
            Kind::Storm => {
                let report = pool.shutdown(Shutdown::Drain, Duration::MAX);
                check!(report.is_clean(), "not clean: {report:?}");
                check_end(&pool, &books);
            }
            _ => end(pool, &books, child, rng),
        }
    }
    wait_for("the pool's threads to end", || os::threads() == threads);
    for books in kept {
        check_drops(&books);
        totals.take(&books);
    }
    if let Ok(mut pools) = POOLS.lock() {
        pools.clear();
    }
}

/// Runs the load, and the storm of shutdowns if the plan has one.
fn load(pools: &[(Arc<Pool>, Arc<Books>)], plan: &Plan, child: bool, rng: &mut Rng) {
    let over = AtomicBool::new(false);
    thread::scope(|s| {
        for (pool, books) in pools {
            for number in 0..books.plan.submitters as u64 {
                let over = &over;
                s.spawn(move || submitter(pool, books, number, over));
            }
            s.spawn(|| watch(pool, books, &over));
            if plan.kind == Kind::Storm {
                for number in 0..plan.stormers as u64 {
                    s.spawn(move || storm(pool, books, number));
                }
            }
        }
        let start = Instant::now();
        while start.elapsed() < plan.length {
            if child {
                os::allow_threads(rng.one_in(2));
                thread::sleep(rng.micros(3_000));
            } else {
                thread::sleep(plan.length.saturating_sub(start.elapsed()));
            }
        }
        over.store(true, Ordering::SeqCst);
        // If a pool can get no thread, submitters that block would wait for ever.
        if child {
            os::allow_threads(true);
        }
    });
}

/// Shuts a pool down, first with short timeouts.
fn storm(pool: &Pool, books: &Books, number: u64) {
    let plan = &books.plan;
    let mut rng = Rng::new(plan.seed ^ (number + 1) << 32);
    thread::sleep(rng.micros(plan.length.as_micros() as u64));
    loop {
        let mode = match rng.below(6) {
            0..4 => plan.last_mode,
            4 => Shutdown::Discard,
            _ => Shutdown::Cancel,
        };
        let mode = if plan.last_mode == Shutdown::Drain {
            Shutdown::Drain
        } else {
            mode
        };
        let timeout = match rng.below(4) {
            0 => Duration::ZERO,
            1 => rng.micros(2_000),
            2 => rng.micros(100_000),
            _ => Duration::MAX,
        };
        let start = Instant::now();
        let report = pool.shutdown(mode, timeout);
        let took = start.elapsed();
        add(&PROGRESS);
        if report.is_clean() {
            let s = pool.stats();
            let ended = s.completed + s.panicked + s.expired + s.discarded;
            check!(
                s.workers == 0 && s.accepted == ended && s.discarded >= report.discarded,
                "a clean report, but {s:?}"
            );
            let quiet = plan.last_mode == Shutdown::Drain && !plan.closes_inside;
            check!(
                !quiet || report.discarded == 0,
                "a draining pool discarded: {report:?}"
            );
            return;
        }
        check!(
            took >= timeout,
            "back after {took:?} of {timeout:?}: {report:?}"
        );
        thread::sleep(rng.micros(500));
    }
}

/// Leaves the last handles of a pool to its tasks.
fn abandon(pool: Arc<Pool>, books: &Arc<Books>, rng: &mut Rng) {
    let blocks = books.plan.policy == WhenFull::Block;
    for _ in 0..rng.below(6) {
        if blocks && pool.stats().running + pool.stats().queued > 0 {
            break;
        }
        let ticket = Ticket::new(books, Act::IDLE.0, false);
        let last = Arc::clone(&pool);
        let pause = rng.micros(1_500);
        let task = move || {
            thread::sleep(pause);
            drop(body(ticket, Act::IDLE));
            drop(last);
        };
        if let Err(refused) = pool.serve(task) {
            add(&books.back);
            drop(refused);
        }
    }
    if rng.one_in(3) {
        pool.shutdown(books.plan.last_mode, rng.micros(500));
    }
    let group = pool.group();
    drop(pool);
    if books.own.get().is_none_or(|own| own.strong_count() == 0) {
        let refused = group.serve(|| ()).err();
        check!(
            refused.is_some_and(|r| r.is_closed()),
            "a group outlived its pool and served"
        );
    }
}

/// Makes every check that needs a pool at rest, then ends the pool.
fn end(pool: Arc<Pool>, books: &Arc<Books>, child: bool, rng: &mut Rng) {
    let plan = &books.plan;
    settle(&pool);
    check_books(&pool.stats(), books);
    if plan.kind != Kind::NoThreads && plan.workers + plan.queue <= 300 && rng.one_in(2) {
        fill(&pool, books);
        settle(&pool);
    }
    let short = plan.idle <= Duration::from_millis(20);
    if short && rng.one_in(2) && !child {
        wait_for("retirement", || pool.stats().workers == plan.min);
    }
    // With a timer there is some work to do.
    let at_rest = pool.stats().workers == plan.min || plan.idle > Duration::from_secs(1);
    if at_rest && rng.one_in(4) {
        rest(&pool);
    }
    if rng.one_in(4) {
        check_books(&pool.stats(), books);
        drop(pool);
        return;
    }
    let report = pool.shutdown(plan.last_mode, Duration::MAX);
    check!(report.is_clean(), "not clean: {report:?}");
    check_end(&pool, books);
}

fn settle(pool: &Pool) {
    wait_for("the pool to come to rest", || {
        let s = pool.stats();
        let ended = s.completed + s.panicked + s.expired + s.discarded;
        s.running == 0 && s.queued == 0 && s.accepted == ended
    });
}

/// Asserts that the pool accepts as many tasks as its whole capacity, and no more. If workers may
/// be in their hooks, it accepts them once those are over.
fn fill(pool: &Pool, books: &Arc<Books>) {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let task = || {
        let gate = Arc::clone(&gate);
        let ticket = Ticket::new(books, Act::IDLE.0, false);
        move || {
            let (open, opened) = &*gate;
            let held = open.lock().expect("no panic under this lock");
            drop(opened.wait_while(held, |open| !*open));
            drop(body(ticket, Act::IDLE));
        }
    };
    let cap = books.plan.workers + books.plan.queue;
    let hooked = books.plan.hooks && !books.plan.careful;
    let is_taken = |n| match pool.serve(task()) {
        Ok(()) => true,
        Err(refused) if hooked && refused.is_saturated() => {
            add(&books.back);
            false
        }
        Err(refused) => crate::fail(&format!("task {n} of {cap}: {refused}; {pool:?}")),
    };
    (0..cap).for_each(|n| wait_for("the end of hooks", || is_taken(n)));
    if books.plan.policy == WhenFull::Refuse {
        match pool.serve(task()) {
            Ok(()) => crate::fail(&format!("one more than {cap} accepted: {pool:?}")),
            Err(refused) => {
                let reason = refused.reason();
                check!(matches!(reason, Refusal::Saturated), "{reason:?}: {pool:?}");
                add(&books.back);
            }
        }
    }
    *gate.0.lock().expect("no panic under this lock") = true;
    gate.1.notify_all();
}

/// Asserts that an idle pool uses no processor time.
fn rest(pool: &Pool) {
    let window = Duration::from_millis(60);
    let mut seen = Vec::new();
    // On a busy machine a worker may be late to fall asleep.
    for _ in 0..20 {
        thread::sleep(window / 4);
        let before = os::activity(NAME);
        thread::sleep(window);
        let after = os::activity(NAME);
        let used = after.0.saturating_sub(before.0);
        let woken = after.1.saturating_sub(before.1);
        if used < Duration::from_micros(200) && woken <= 1 {
            return;
        }
        seen.push((used, woken));
    }
    crate::fail(&format!(
        "an idle pool keeps running: {seen:?}; {pool:?}; {:?}",
        os::thread_names()
    ));
}
