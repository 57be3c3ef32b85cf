//! All operations at once, with more threads than CPUs: laws 2, 4, 7, 9 and 10 under a mixed load.
//!
//! `LAZYPOOL_STRESS_SECS` says how long each shape runs (a fraction of a second by default).

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::gates::*;
use common::*;
use lazypool::{task, DeadlineError, Pool, Refused, Stats, WhenFull};

const SUBMITTERS: u64 = 16;

/// A count, without a record for each task, so that the load can run for hours.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// What happened to the closures, their results and the calls.
#[derive(Debug, Default)]
struct Totals {
    made: Count,
    ran: Count,
    dropped: Count,
    handed_back: Count,
    results_made: Count,
    results_dropped: Count,
    wrong: Count,
    inside: Gauge,

    served: Count,
    returned: Count,
    panicked: Count,
    expired: Count,
    timed_out: Count,
    refused: Count,
}

const NEW: u32 = 0;
const RAN: u32 = 1;
const DROPPED: u32 = 2;

/// Captured by each closure. It checks that the closure runs once, or is handed back or dropped
/// once.
struct Ticket {
    totals: Arc<Totals>,
    state: AtomicU32,
    check: u64,
}

impl Ticket {
    fn new(totals: &Arc<Totals>, check: u64) -> Self {
        totals.made.add();
        Self {
            totals: Arc::clone(totals),
            state: AtomicU32::new(NEW),
            check,
        }
    }

    fn run(&self, check: u64) {
        self.totals.ran.add();
        if self.state.swap(RAN, Ordering::SeqCst) != NEW || self.check != check {
            self.totals.wrong.add();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.totals.dropped.add();
        if self.state.swap(DROPPED, Ordering::SeqCst) == DROPPED {
            self.totals.wrong.add();
        }
    }
}

/// The result of a task.
struct Value {
    totals: Arc<Totals>,
    check: u64,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.totals.results_dropped.add();
    }
}

/// Counts the outcome of a `serve` while the pool is open.
fn count_served<F>(outcome: Result<(), Refused<F>>, totals: &Totals) {
    match outcome {
        Ok(()) => totals.served.add(),
        outcome => {
            saturated(outcome);
            totals.handed_back.add();
            totals.refused.add();
        }
    }
}

fn submit(pool: &Pool, totals: &Arc<Totals>, rng: &mut Rng, over: &AtomicBool) {
    let weight = [rng.below(1 << 40); 24];
    while !over.load(Ordering::Relaxed) {
        let check = rng.next();
        let ticket = Ticket::new(totals, check);
        let kind = rng.below(100);
        let work = match rng.below(50) {
            0 => Duration::from_micros(rng.below(3000)),
            1..10 => Duration::from_micros(rng.below(100)),
            _ => Duration::ZERO,
        };
        let books = Arc::clone(totals);
        let body = move || {
            ticket.run(check);
            let inside = books.inside.enter();
            if kind % 7 == 0 {
                thread::yield_now();
            }
            if work > Duration::from_micros(500) {
                let start = Instant::now();
                while start.elapsed() < work && !task::is_cancelled() {
                    thread::sleep(Duration::from_micros(200));
                }
            } else {
                spin(work);
            }
            drop(inside);
            if kind == 99 {
                quiet_panic("on purpose");
            }
            books.results_made.add();
            Value {
                totals: books,
                check,
            }
        };
        let d = match kind {
            0..5 => Duration::ZERO,
            5..10 => Duration::from_nanos(1),
            10..30 => Duration::from_micros(rng.below(100)),
            30..50 => Duration::from_micros(rng.below(3000)),
            50..70 => LONG,
            _ => Duration::MAX,
        };
        if kind % 20 == 0 {
            // This closure is too large for a slot.
            let body = move || {
                std::hint::black_box(weight);
                drop(body());
            };
            count_served(pool.serve(body), totals);
        } else if kind % 2 == 0 {
            count_served(pool.serve(move || drop(body())), totals);
        } else {
            let start = Instant::now();
            let outcome = pool.labeled("stress").do_with_deadline(body, d);
            let early = start.elapsed() < d;
            match outcome {
                Ok(value) => {
                    assert_eq!(value.check, check, "another task's result");
                    totals.returned.add();
                }
                Err(DeadlineError::Panicked(_)) => {
                    assert_eq!(kind, 99);
                    totals.panicked.add();
                }
                Err(DeadlineError::TimedOut) => {
                    assert!(!early, "TimedOut before {d:?}");
                    totals.timed_out.add();
                }
                Err(DeadlineError::Expired(_)) => {
                    assert!(!early, "Expired before {d:?}");
                    totals.handed_back.add();
                    if !d.is_zero() {
                        totals.expired.add();
                    }
                }
                Err(DeadlineError::Refused(refused)) => count_served(Err(refused), totals),
            }
        }
        if rng.below(200) == 0 {
            // Long enough for workers to retire.
            thread::sleep(Duration::from_micros(rng.below(6000)));
        }
    }
}

/// Law 9: the invariants hold at every moment, and no counter goes back.
fn watch(pool: &Pool, over: &AtomicBool) {
    let counters = |s: &Stats| {
        let tasks = [s.accepted, s.refused, s.completed, s.panicked, s.expired];
        let late = [s.discarded, s.timed_out, s.hook_panics];
        let workers = [s.spawned, s.retired, s.peak_workers as u64];
        tasks.into_iter().chain(late).chain(workers)
    };
    let mut last = pool.stats();
    while !over.load(Ordering::Relaxed) {
        let now = pool.stats();
        check_moment(pool, &now);
        let mut pairs = counters(&last).zip(counters(&now));
        let back = pairs.any(|(before, after)| before > after);
        assert!(!back, "a counter went back: {last:?}, {now:?}");
        last = now;
        thread::sleep(ms(1));
    }
}

/// Runs the load in a pool that is open, and checks all counts.
fn load(pool: &Pool, totals: &Arc<Totals>, policy: WhenFull) {
    let length = match std::env::var("LAZYPOOL_STRESS_SECS") {
        Ok(secs) => Duration::from_secs_f64(secs.parse().expect("LAZYPOOL_STRESS_SECS")),
        Err(_) => ms(900),
    };
    let over = AtomicBool::new(false);
    thread::scope(|s| {
        let _over = on_drop(|| over.store(true, Ordering::Relaxed));
        for seed in 0..SUBMITTERS {
            let over = &over;
            s.spawn(move || submit(pool, totals, &mut Rng::new(seed + unique()), over));
        }
        s.spawn(|| watch(pool, &over));
        thread::sleep(length);
    });
    let (s, t) = (settle(pool), totals);
    check_at_rest(pool, &s);

    // The pool's counts agree with the outcomes that its callers saw.
    assert_eq!(s.refused + s.expired, t.refused.get() + t.expired.get());
    // A call that expired before its task was accepted counts as refused (law 14).
    assert!(s.expired <= t.expired.get(), "{s:?}, {t:?}");
    if policy == WhenFull::Block {
        assert_eq!(t.refused.get(), 0, "{s:?}, {t:?}");
    }
    assert_eq!(s.timed_out, t.timed_out.get(), "{s:?}, {t:?}");
    let ended = t.served.get() + t.returned.get() + t.panicked.get() + t.timed_out.get();
    assert_eq!(s.completed + s.panicked, ended, "{s:?}, {t:?}");
    assert!(s.completed > 0, "{s:?}");
    assert!(t.expired.get() + s.timed_out > 0, "{s:?}, {t:?}");

    // Every closure ran, came back or was dropped, once. Every result was dropped once.
    assert_eq!(t.wrong.get(), 0, "{t:?}");
    assert_eq!(t.ran.get(), s.completed + s.panicked, "{t:?}");
    assert_eq!(t.made.get(), t.ran.get() + t.handed_back.get(), "{t:?}");
    assert_eq!(t.dropped.get(), t.made.get(), "{t:?}");
    assert_eq!(t.results_made.get(), s.completed, "{t:?}");
    assert_eq!(t.results_dropped.get(), s.completed, "{t:?}");
    assert!(t.inside.most() <= pool.max_workers(), "{t:?}");
}

/// Law 10: submissions race a shutdown. Each call runs its task or is refused with a reason. See
/// gammazero 76, pond 43, 138 and 61.
fn end(pool: &Pool, totals: &Arc<Totals>) {
    let over = AtomicBool::new(false);
    let before = totals.made.get();
    let mode = MODES[(unique() % 3) as usize];
    thread::scope(|s| {
        let _over = on_drop(|| over.store(true, Ordering::Relaxed));
        for seed in 0..4 {
            let over = &over;
            s.spawn(move || {
                let mut rng = Rng::new(seed);
                while !over.load(Ordering::Relaxed) {
                    let check = rng.next();
                    let ticket = Ticket::new(totals, check);
                    let body = move || ticket.run(check);
                    let refused = match rng.below(2) {
                        0 => pool.serve(body).err(),
                        _ => match pool.do_with_deadline(body, Duration::MAX) {
                            Ok(()) => None,
                            outcome => Some(refused(outcome)),
                        },
                    };
                    if let Some(refused) = refused {
                        assert!(refused.is_closed() || refused.is_saturated());
                        totals.handed_back.add();
                    }
                }
            });
        }
        wait_until("a submission", || totals.made.get() > before);
        thread::sleep(ms(5));
        let report = pool.shutdown(mode, LIMIT);
        assert!(report.is_clean());
        assert!(mode != lazypool::Shutdown::Drain || report.discarded == 0);
    });
    let (s, t) = (pool.stats(), totals);
    check_at_rest(pool, &s);
    assert_eq!((s.workers, s.spawned), (0, s.retired), "{s:?}");
    assert_eq!(t.wrong.get(), 0, "{t:?}");
    assert_eq!(t.dropped.get(), t.made.get(), "{t:?}");
}

#[derive(Clone, Copy)]
struct Shape {
    workers: usize,
    min: usize,
    queue: usize,
    idle: Duration,
    policy: WhenFull,
    hooks: bool,
}

const MANY_WORKERS: Shape = Shape {
    workers: 64,
    min: 0,
    queue: 0,
    idle: ms(1),
    policy: WhenFull::Refuse,
    hooks: false,
};

fn run(shape: Shape) {
    let mut builder = builder(shape.workers, shape.queue)
        .min_workers(shape.min)
        .idle_timeout(shape.idle)
        .when_full(shape.policy);
    if shape.hooks {
        builder = builder
            .around(|task| {
                if task::slot().is_some_and(|slot| slot % 2 == 0) {
                    task();
                }
            })
            .on_panic(|_| quiet_panic("hook"))
            .on_worker_start(move |slot| assert!(slot < shape.workers))
            .on_worker_stop(|_| quiet_panic("hook"));
    }
    let pool = builder.build().expect("pool");
    let totals = Arc::new(Totals::default());
    load(&pool, &totals, shape.policy);
    if shape.policy == WhenFull::Refuse {
        assert_cap_usable(&pool);
    }
    if shape.idle < ms(100) {
        wait_until("workers to retire", || pool.stats().workers == shape.min);
    }
    end(&pool, &totals);
}

/// Runs the shapes one after the other; with a time limit unless the length was chosen.
fn stress_all<const N: usize>(shapes: [Shape; N]) {
    let body = move || shapes.into_iter().for_each(run);
    if std::env::var_os("LAZYPOOL_STRESS_SECS").is_some() {
        body();
    } else {
        timed(body);
    }
}

#[test]
fn stress_many_workers() {
    stress_all([0, 32].map(|queue| Shape {
        queue,
        ..MANY_WORKERS
    }));
}

#[test]
fn stress_few_workers() {
    stress_all([0, 3].map(|queue| Shape {
        workers: 3,
        min: 1,
        queue,
        ..MANY_WORKERS
    }));
}

/// The submitters wait for room.
#[test]
fn stress_blocking() {
    stress_all([0, 5].map(|queue| Shape {
        workers: 4,
        queue,
        policy: WhenFull::Block,
        ..MANY_WORKERS
    }));
}

/// Hooks panic, and the wrapper does not call some tasks.
#[test]
fn stress_hooks() {
    stress_all([Shape {
        workers: 16,
        queue: 8,
        hooks: true,
        ..MANY_WORKERS
    }]);
}

/// No worker retires, so only the fast paths run.
#[test]
fn stress_without_retirement() {
    stress_all([Shape {
        workers: 2,
        queue: 256,
        idle: Duration::MAX,
        ..MANY_WORKERS
    }]);
}
