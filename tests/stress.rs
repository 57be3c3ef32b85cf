//! Laws 2, 3, 4, 7, 9 and 10 under a mixed load with more threads than CPUs, and a shutdown beside
//! it. See gammazero 76, pond 43, 138 and 61.
//!
//! `LAZYPOOL_STRESS_SECS` says how long each shape runs (a fraction of a second by default).

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{task, Builder, DeadlineError, Pool, Shutdown, WhenFull};

/// Counts, without a record for each task, so that the load can run for hours.
#[derive(Debug, Default)]
struct Totals {
    made: AtomicU64,
    ran: AtomicU64,
    dropped: AtomicU64,
    wrong: AtomicU64,
    inside: Gauge,

    // The outcomes that the callers saw. Calls with a deadline of zero are not counted by the pool.
    ended: AtomicU64,
    timed_out: AtomicU64,
    expired: AtomicU64,
    uncounted: AtomicU64,
    refused: AtomicU64,
}

const NEW: u32 = 0;
const RAN: u32 = 1;
const DROPPED: u32 = 2;

/// Captured by each closure, and returned as its result. It checks that the closure runs at most
/// once, and that both are dropped once.
struct Ticket {
    totals: Arc<Totals>,
    state: AtomicU32,
    check: u64,
}

impl Ticket {
    fn new(totals: &Arc<Totals>, check: u64) -> Self {
        totals.made.fetch_add(1, Ordering::SeqCst);
        Self {
            totals: Arc::clone(totals),
            state: AtomicU32::new(NEW),
            check,
        }
    }

    fn step(&self, to: u32, is_right: impl FnOnce(u32) -> bool) {
        let before = self.state.swap(to, Ordering::SeqCst);
        let wrong = u64::from(!is_right(before));
        self.totals.wrong.fetch_add(wrong, Ordering::SeqCst);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.totals.dropped.fetch_add(1, Ordering::SeqCst);
        self.step(DROPPED, |before| before != DROPPED);
    }
}

/// Submits tasks until the load is over. After that, the pool may be closed.
fn submit(pool: &Pool, totals: &Arc<Totals>, rng: &mut Rng, over: &AtomicBool) {
    while !pool.is_closed() {
        let check = rng.next();
        let ticket = Ticket::new(totals, check);
        let kind = rng.below(100);
        let work = match rng.below(50) {
            0 => Duration::from_micros(rng.below(3000)),
            1..10 => Duration::from_micros(rng.below(100)),
            _ => Duration::ZERO,
        };
        let body = move || {
            let totals = Arc::clone(&ticket.totals);
            totals.ran.fetch_add(1, Ordering::SeqCst);
            ticket.step(RAN, |before| before == NEW && ticket.check == check);
            let inside = totals.inside.enter();
            if work > Duration::from_micros(500) {
                thread::sleep(work);
            } else {
                spin(work);
            }
            drop(inside);
            if kind == 99 {
                quiet_panic("on purpose");
            }
            ticket
        };
        let d = match kind {
            0..5 => Duration::ZERO,
            5..10 => Duration::from_nanos(1),
            10..30 => Duration::from_micros(rng.below(100)),
            30..50 => Duration::from_micros(rng.below(3000)),
            50..70 => LONG,
            _ => Duration::MAX,
        };
        let start = Instant::now();
        let outcome = if kind % 2 == 0 {
            let served = pool.serve(move || drop(body()));
            served.map_err(|refused| DeadlineError::Refused(refused.without_closure()))
        } else {
            let called = pool.labeled("stress").do_with_deadline(body, d);
            let called = called.map(|ticket| assert_eq!(ticket.check, check, "another's result"));
            called.map_err(DeadlineError::without_closure)
        };
        let early = start.elapsed() < d;
        let count = match outcome {
            Ok(()) => &totals.ended,
            Err(DeadlineError::Panicked(_)) => {
                assert_eq!(kind, 99);
                &totals.ended
            }
            Err(DeadlineError::TimedOut) => {
                assert!(!early, "TimedOut before {d:?}");
                &totals.timed_out
            }
            Err(DeadlineError::Expired(_)) => {
                assert!(!early, "Expired before {d:?}");
                match d {
                    Duration::ZERO => &totals.uncounted,
                    _ => &totals.expired,
                }
            }
            Err(DeadlineError::Refused(refused)) => {
                let closed = over.load(Ordering::SeqCst) && refused.is_closed();
                assert!(closed || refused.is_saturated(), "{refused:?}");
                &totals.refused
            }
        };
        count.fetch_add(1, Ordering::SeqCst);
        if rng.below(200) == 0 {
            // Long enough for workers to retire.
            thread::sleep(Duration::from_micros(rng.below(6000)));
        }
    }
}

/// Runs the load, then shuts the pool down beside it.
fn run(builder: Builder) {
    let length = match std::env::var("LAZYPOOL_STRESS_SECS") {
        Ok(secs) => Duration::from_secs_f64(secs.parse().expect("LAZYPOOL_STRESS_SECS")),
        Err(_) => ms(600),
    };
    let pool = builder.build().expect("pool");
    let totals = Arc::new(Totals::default());
    let over = AtomicBool::new(false);
    let mode = MODES[(unique() % 3) as usize];
    let report = thread::scope(|s| {
        for seed in 0..16 {
            let (pool, totals, over) = (&pool, &totals, &over);
            s.spawn(move || submit(pool, totals, &mut Rng::new(seed + unique()), over));
        }
        let start = Instant::now();
        while start.elapsed() < length {
            check_moment(&pool, &pool.stats());
            thread::sleep(ms(1));
        }
        over.store(true, Ordering::SeqCst);
        pool.shutdown(mode, LIMIT)
    });
    assert!(report.is_clean(), "{report:?}");
    assert!(mode != Shutdown::Drain || report.discarded == 0);
    let s = check_at_rest(&pool);
    assert_stats!(s, workers: 0, spawned: s.retired);
    assert!(s.completed > 0 && s.expired + s.timed_out > 0, "{s:?}");

    // Every closure was dropped once, and ran at most once.
    let get = |n: &AtomicU64| n.load(Ordering::SeqCst);
    let (made, ran) = (get(&totals.made), get(&totals.ran));
    assert_eq!(get(&totals.wrong), 0, "{totals:?}");
    assert_eq!(get(&totals.dropped), made, "{totals:?}");
    assert_eq!(ran, s.completed + s.panicked, "{totals:?}, {s:?}");

    // The pool's counts agree with the outcomes. A served task that was discarded counts as ended
    // here; a discarded call was handed back as refused.
    let [ended, refused] = [&totals.ended, &totals.refused].map(get);
    let [timed_out, expired] = [&totals.timed_out, &totals.expired].map(get);
    assert_eq!(s.timed_out, timed_out, "{totals:?}, {s:?}");
    assert_eq!(s.expired + s.refusals.expired, expired, "{totals:?}, {s:?}");
    let discarded = ended + timed_out - ran;
    let handed_back = s.discarded - discarded;
    let refusals = s.refusals.saturated + s.refusals.closed;
    assert_eq!(refused, refusals + handed_back, "{totals:?}, {s:?}");
    let back = expired + get(&totals.uncounted) + refused;
    assert_eq!(made, ran + discarded + back, "{totals:?}, {s:?}");
    assert!(totals.inside.most() <= pool.max_workers(), "{totals:?}");
}

/// Runs the pools one after the other; with a time limit unless the length was chosen.
fn stress_each<const N: usize>(builders: [Builder; N]) {
    let body = move || builders.into_iter().for_each(run);
    if std::env::var_os("LAZYPOOL_STRESS_SECS").is_some() {
        body();
    } else {
        timed(body);
    }
}

#[test]
fn stress_many_workers() {
    stress_each([0, 32].map(|queue| builder(64, queue).idle_timeout(ms(1))));
}

#[test]
fn stress_few_workers() {
    stress_each([0, 3].map(|queue| builder(3, queue).idle_timeout(ms(1)).min_workers(1)));
}

/// The submitters wait for room.
#[test]
fn stress_blocking() {
    stress_each([0, 5].map(|queue| {
        let builder = builder(4, queue).when_full(WhenFull::Block);
        builder.idle_timeout(ms(1))
    }));
}

/// Hooks panic, and the wrapper does not call some tasks.
#[test]
fn stress_hooks() {
    stress_each([builder(16, 8)
        .idle_timeout(ms(1))
        .around(|task| {
            if task::slot().is_some_and(|slot| slot % 2 == 0) {
                task();
            }
        })
        .on_panic(|_| quiet_panic("hook"))
        .on_worker_start(|slot| assert!(slot < 16))
        .on_worker_stop(|_| quiet_panic("hook"))]);
}

/// No worker retires, so only the fast paths run.
#[test]
fn stress_without_retirement() {
    stress_each([builder(2, 256)]);
}
