//! All operations at once, with more threads than CPUs: laws 2, 4, 7, 9 and 10 under a mixed load.
//!
//! `LAZYPOOL_STRESS_SECS` says how long each shape runs (a fraction of a second by default).

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{task, DeadlineError, Pool, Shutdown, Stats, WhenFull};

const SUBMITTERS: u64 = 16;
const WORKERS: usize = 64;

fn length() -> Duration {
    match std::env::var("LAZYPOOL_STRESS_SECS") {
        Ok(secs) => Duration::from_secs_f64(secs.parse().expect("LAZYPOOL_STRESS_SECS")),
        Err(_) => ms(900),
    }
}

/// Counts what happened to the closures, without a record for each task, so that it can run for
/// hours.
#[derive(Debug, Default)]
struct Totals {
    made: AtomicU64,
    ran: AtomicU64,
    dropped: AtomicU64,
    handed_back: AtomicU64,
    results_made: AtomicU64,
    results_dropped: AtomicU64,
    wrong: AtomicU64,
    inside: AtomicU64,
    most: AtomicU64,
}

impl Totals {
    fn add(field: &AtomicU64) {
        field.fetch_add(1, Ordering::SeqCst);
    }
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
        Totals::add(&totals.made);
        Self {
            totals: Arc::clone(totals),
            state: AtomicU32::new(NEW),
            check,
        }
    }

    fn run(&self, check: u64) {
        Totals::add(&self.totals.ran);
        if self.state.swap(RAN, Ordering::SeqCst) != NEW || self.check != check {
            Totals::add(&self.totals.wrong);
        }
        let now = self.totals.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.totals.most.fetch_max(now, Ordering::SeqCst);
    }

    fn end(&self) {
        self.totals.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        Totals::add(&self.totals.dropped);
        if self.state.swap(DROPPED, Ordering::SeqCst) == DROPPED {
            Totals::add(&self.totals.wrong);
        }
    }
}

struct Value {
    totals: Arc<Totals>,
    check: u64,
}

impl Drop for Value {
    fn drop(&mut self) {
        Totals::add(&self.totals.results_dropped);
    }
}

/// The outcomes that all submitters saw together.
#[derive(Debug, Default)]
struct Seen {
    served: AtomicU64,
    returned: AtomicU64,
    panicked: AtomicU64,
    expired: AtomicU64,
    timed_out: AtomicU64,
    refused: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    workers: usize,
    min: usize,
    queue: usize,
    idle: Duration,
    policy: WhenFull,
    hooks: bool,
}

fn submit(pool: &Pool, totals: &Arc<Totals>, seen: &Seen, rng: &mut Rng, over: &AtomicBool) {
    let weight = [rng.below(1 << 40); 24];
    while !over.load(Ordering::Relaxed) {
        // Every tenth closure is too large for a slot.
        let large = rng.below(10) == 0;
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
            ticket.end();
            if kind == 99 {
                quiet_panic("meant");
            }
            Totals::add(&books.results_made);
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
        let count = if kind % 2 == 0 {
            let outcome = if large {
                let body = move || {
                    std::hint::black_box(weight);
                    drop(body());
                };
                pool.serve(body).map_err(|refused| {
                    Totals::add(&totals.handed_back);
                    refused.is_saturated()
                })
            } else {
                pool.serve(move || drop(body())).map_err(|refused| {
                    Totals::add(&totals.handed_back);
                    refused.is_saturated()
                })
            };
            match outcome {
                Ok(()) => &seen.served,
                Err(true) => &seen.refused,
                Err(false) => panic!("refused for another reason than saturation"),
            }
        } else {
            let start = Instant::now();
            let outcome = pool.labeled("stress").do_with_deadline(body, d);
            let early = start.elapsed() < d;
            match outcome {
                Ok(value) => {
                    assert_eq!(value.check, check, "another task's result");
                    &seen.returned
                }
                Err(DeadlineError::Panicked(_)) => {
                    assert_eq!(kind, 99);
                    &seen.panicked
                }
                Err(DeadlineError::Expired(f)) => {
                    assert!(!early, "Expired before {d:?}");
                    Totals::add(&totals.handed_back);
                    drop(f);
                    if d.is_zero() {
                        continue;
                    }
                    &seen.expired
                }
                Err(DeadlineError::TimedOut) => {
                    assert!(!early, "TimedOut before {d:?}");
                    &seen.timed_out
                }
                Err(DeadlineError::Refused(refused)) => {
                    assert!(refused.is_saturated(), "{refused:?}");
                    Totals::add(&totals.handed_back);
                    &seen.refused
                }
            }
        };
        Totals::add(count);
        if rng.below(200) == 0 {
            // Long enough for workers to retire.
            thread::sleep(Duration::from_micros(rng.below(6000)));
        }
    }
}

fn watch(pool: &Pool, over: &AtomicBool) {
    let mut last = pool.stats();
    while !over.load(Ordering::Relaxed) {
        let now = pool.stats();
        check_moment(pool, &now);
        let figures = |s: &Stats| {
            [
                s.accepted,
                s.refused,
                s.completed,
                s.panicked,
                s.expired,
                s.discarded,
                s.timed_out,
                s.spawned,
                s.retired,
                s.peak_workers as u64,
                s.hook_panics,
            ]
        };
        for (before, after) in figures(&last).into_iter().zip(figures(&now)) {
            assert!(before <= after, "a counter went back: {last:?}, {now:?}");
        }
        last = now;
        thread::sleep(ms(1));
    }
}

fn run(shape: Shape) {
    let builder = Pool::builder()
        .max_workers(shape.workers)
        .min_workers(shape.min)
        .queue_capacity(shape.queue)
        .idle_timeout(shape.idle)
        .when_full(shape.policy);
    let builder = if shape.hooks {
        builder
            .around(|task| {
                if task::slot().is_some_and(|slot| slot % 2 == 0) {
                    task();
                }
            })
            .on_panic(|_| quiet_panic("hook"))
            .on_worker_start(|slot| assert!(slot < WORKERS))
            .on_worker_stop(|_| quiet_panic("hook"))
    } else {
        builder
    };
    let pool = builder.build().expect("pool");
    let totals = Arc::new(Totals::default());
    let seen = Seen::default();
    let over = AtomicBool::new(false);
    thread::scope(|s| {
        for seed in 0..SUBMITTERS {
            let (pool, totals, seen, over) = (&pool, &totals, &seen, &over);
            s.spawn(move || {
                let mut rng = Rng::new(seed + shape.queue as u64 + unique());
                submit(pool, totals, seen, &mut rng, over);
            });
        }
        s.spawn(|| watch(&pool, &over));
        thread::sleep(length());
        over.store(true, Ordering::Relaxed);
    });
    let s = settle(&pool);
    check_at_rest(&pool, &s);
    let get = |n: &AtomicU64| n.load(Ordering::SeqCst);

    // The pool's counts agree with the outcomes that its callers saw.
    assert_eq!(
        s.refused + s.expired,
        get(&seen.refused) + get(&seen.expired)
    );
    // A call that expired before its task was accepted counts as refused (law 14).
    assert!(s.expired <= get(&seen.expired), "{s:?}, {seen:?}");
    if shape.policy == WhenFull::Block {
        assert_eq!(get(&seen.refused), 0, "{shape:?}: {s:?}, {seen:?}");
    }
    assert_eq!(s.timed_out, get(&seen.timed_out), "{s:?}, {seen:?}");
    let ended = get(&seen.served) + get(&seen.returned) + get(&seen.panicked);
    assert_eq!(
        s.completed + s.panicked,
        ended + get(&seen.timed_out),
        "{shape:?}: {s:?}, {seen:?}"
    );
    assert!(s.completed > 0, "{s:?}");
    assert!(get(&seen.expired) + s.timed_out > 0, "{s:?}, {seen:?}");

    // Every closure ran, came back or was dropped, once. Every result was dropped once.
    assert_eq!(get(&totals.wrong), 0, "{totals:?}");
    assert_eq!(get(&totals.ran), s.completed + s.panicked, "{totals:?}");
    assert_eq!(
        get(&totals.made),
        get(&totals.ran) + get(&totals.handed_back),
        "{shape:?}: {totals:?}, {s:?}"
    );
    assert_eq!(get(&totals.dropped), get(&totals.made), "{totals:?}");
    assert_eq!(get(&totals.results_made), s.completed, "{totals:?}");
    assert_eq!(get(&totals.results_dropped), get(&totals.results_made));
    assert!(get(&totals.most) <= shape.workers as u64, "{totals:?}");

    if shape.policy == WhenFull::Refuse {
        assert_cap_usable(&pool);
    }
    if shape.idle < ms(100) {
        wait_until("workers to retire", || pool.stats().workers == shape.min);
    }

    // Runs the load once more, into a shutdown that discards.
    let over = AtomicBool::new(false);
    let before = totals.made.load(Ordering::SeqCst);
    thread::scope(|s| {
        for seed in 0..4 {
            let (pool, totals, over) = (&pool, &totals, &over);
            s.spawn(move || {
                let mut rng = Rng::new(seed);
                while !over.load(Ordering::Relaxed) {
                    let check = rng.next();
                    let ticket = Ticket::new(totals, check);
                    let body = move || {
                        ticket.run(check);
                        ticket.end();
                    };
                    let outcome = match rng.below(2) {
                        0 => pool.serve(body).is_err(),
                        _ => match pool.do_with_deadline(body, Duration::MAX) {
                            Ok(()) => false,
                            Err(error) => error.into_inner().is_some(),
                        },
                    };
                    if outcome {
                        Totals::add(&totals.handed_back);
                    }
                }
            });
        }
        wait_until("a submission", || get(&totals.made) > before);
        thread::sleep(ms(5));
        let modes = [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel];
        let mode = modes[(unique() % 3) as usize];
        assert!(pool.shutdown(mode, LIMIT).is_clean());
        over.store(true, Ordering::Relaxed);
    });
    let s = pool.stats();
    check_at_rest(&pool, &s);
    assert_eq!((s.workers, s.spawned), (0, s.retired), "{s:?}");
    assert!(get(&totals.made) > before);
    assert_eq!(get(&totals.wrong), 0, "{totals:?}");
    assert_eq!(get(&totals.dropped), get(&totals.made), "{totals:?}");
    assert_eq!(get(&totals.inside), 0, "{totals:?}");
}

fn shape(queue: usize) -> Shape {
    Shape {
        workers: WORKERS,
        min: 0,
        queue,
        idle: ms(1),
        policy: WhenFull::Refuse,
        hooks: false,
    }
}

/// Laws 2, 4, 7, 9, 10: a pool without a queue.
#[test]
fn stress_without_a_queue() {
    stress_timed(|| run(shape(0)));
}

/// Laws 2, 4, 7, 9, 10: a pool with a queue.
#[test]
fn stress_with_a_queue() {
    stress_timed(|| run(shape(32)));
}

/// Laws 2, 4, 7, 9, 10: a pool with few workers, and a short queue or none.
#[test]
fn stress_few_workers() {
    stress_timed(|| {
        for queue in [0, 3] {
            run(Shape {
                workers: 3,
                min: 1,
                ..shape(queue)
            });
        }
    });
}

/// Laws 2, 4, 7, 9, 10: a pool whose submitters wait for room.
#[test]
fn stress_blocking() {
    stress_timed(|| {
        for queue in [0, 5] {
            run(Shape {
                workers: 4,
                policy: WhenFull::Block,
                ..shape(queue)
            });
        }
    });
}

/// Laws 2, 4, 7, 9, 10: a pool whose hooks panic, and whose wrapper does not call some tasks.
#[test]
fn stress_hooks() {
    stress_timed(|| {
        run(Shape {
            workers: 16,
            hooks: true,
            ..shape(8)
        });
    });
}

/// Laws 2, 4, 7, 9, 10: a pool without retirement, so that only the fast paths run.
#[test]
fn stress_without_retirement() {
    stress_timed(|| {
        run(Shape {
            workers: 2,
            idle: Duration::MAX,
            ..shape(256)
        });
    });
}

/// Works like `timed`, for tests whose length can be chosen.
fn stress_timed(body: impl FnOnce() + Send + 'static) {
    if std::env::var_os("LAZYPOOL_STRESS_SECS").is_some() {
        body();
    } else {
        timed(body);
    }
}
