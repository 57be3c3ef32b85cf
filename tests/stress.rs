//! Laws 2, 3, 4, 7, 9, 10 and 21 under a mixed load with more threads than CPUs, and a shutdown
//! beside it. See gammazero 76, pond 43, 138 and 61, ants 374, 26, 154.
//!
//! `LAZYPOOL_STRESS_SECS` says how long each shape runs (a fraction of a second by default), one
//! pool after the other.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{DeadlineError, Group, Handle, Pool, Refused, Shutdown, TaskError, WhenFull};

const THREADS: usize = 16;
/// How many tasks each thread makes for one pool.
const EACH: usize = cut(1000) as usize;

/// What the submitter of a task was told about it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    /// The task was accepted. It may have been discarded since.
    Nothing,
    Ran,
    TimedOut,
    Refused,
    Expired,
    /// Cancelled or discarded.
    Discarded,
}

struct Load {
    pool: Pool,
    group: Group,
    ledger: Ledger,
    inside: Arc<Gauge>,
    waker: Waker,
    /// The shutdown has begun, or is about to.
    over: AtomicBool,
    made: Tally,
    retries: Tally,
}

impl Load {
    /// Makes a task, which returns its entry, and submits it in any way.
    fn submit(&self, id: usize, rng: &mut Rng) -> Told {
        let (entry, inside) = (self.ledger.entry(id), Arc::clone(&self.inside));
        let panics = rng.below(50) == 0;
        let work = match rng.below(50) {
            0 => Duration::from_micros(rng.below(3000)),
            1..10 => Duration::from_micros(rng.below(100)),
            _ => Duration::ZERO,
        };
        let task = move || {
            entry.run();
            let _inside = inside.enter();
            if work > Duration::from_micros(500) {
                thread::sleep(work);
            } else {
                spin(work);
            }
            if panics {
                quiet_panic("on purpose");
            }
            (id, entry)
        };
        match rng.below(4) {
            0 => self.serve(move || drop(task()), rng),
            1 => {
                let on = [self.pool.awaitable(), self.group.awaitable()][id % 2];
                let handle = on.serve(task).map_err(|refused| self.refused(&refused));
                handle.map_or_else(|told| told, |handle| self.end(handle, id, rng))
            }
            _ => {
                let d = match rng.below(20) {
                    0 => Duration::from_nanos(1),
                    1..6 => Duration::from_micros(rng.below(100) + 1),
                    6..10 => Duration::from_micros(rng.below(3000) + 1),
                    10..14 => LONG,
                    _ => Duration::MAX,
                };
                let start = Instant::now();
                let outcome = self.pool.labeled("stress").do_with_deadline(task, d);
                let is_late = start.elapsed() >= d;
                let (told, is_right) = match outcome {
                    Ok((its, _entry)) => (Told::Ran, its == id),
                    Err(DeadlineError::Panicked(_)) => (Told::Ran, panics),
                    Err(DeadlineError::TimedOut) => (Told::TimedOut, is_late),
                    Err(DeadlineError::Expired(_)) => (Told::Expired, is_late),
                    Err(DeadlineError::Refused(refused)) => (self.refused(&refused), true),
                };
                assert!(is_right, "{told:?}, deadline {d:?}");
                told
            }
        }
    }

    /// Ends a handle in any way.
    fn end(&self, mut handle: Handle<(usize, Entry)>, id: usize, rng: &mut Rng) -> Told {
        match rng.below(7) {
            0 => handle.detach(),
            1 => drop(handle),
            2 => drop(poll(&mut handle, &self.waker)),
            way => {
                if way == 3 {
                    handle.cancel();
                }
                return match outcome_of(handle, way) {
                    Ok((its, _entry)) => {
                        assert_eq!(its, id, "another's result");
                        Told::Ran
                    }
                    Err(TaskError::Panicked(_)) => Told::Ran,
                    Err(_) => Told::Discarded,
                };
            }
        }
        Told::Nothing
    }

    /// Serves a task. A closure that comes back may be submitted again.
    fn serve(&self, task: impl FnOnce() + Send + 'static, rng: &mut Rng) -> Told {
        let mut served = self.pool.serve(task);
        loop {
            match served {
                Ok(()) => return Told::Nothing,
                Err(refused) if refused.is_saturated() && rng.below(2) == 0 => {
                    self.retries.add(1);
                    served = self.pool.serve(refused.into_inner());
                }
                Err(refused) => return self.refused(&refused),
            }
        }
    }

    fn refused<F>(&self, refused: &Refused<F>) -> Told {
        let over = self.over.load(Ordering::SeqCst);
        match refused.reason().as_str() {
            "saturated" => {}
            "closed" | "cancelled" if over => {}
            _ => panic!("{refused:?}"),
        }
        Told::Refused
    }
}

/// Runs the load on a pool. In the middle of it, cancels the group and shuts the pool down. Returns
/// how many deadlines have passed, and how many tasks have completed. There may be no such task, if
/// the OS lets no worker run for the few milliseconds that the load lasts.
fn run(pool: Pool, mode: Shutdown) -> (u64, u64) {
    let (count, waker) = counted();
    let load = Load {
        group: pool.group(),
        pool,
        ledger: Ledger::new(THREADS * EACH),
        inside: Arc::default(),
        waker,
        over: AtomicBool::new(false),
        made: Tally::default(),
        retries: Tally::default(),
    };
    let told = Mutex::new(vec![Told::Nothing; THREADS * EACH]);
    let report = thread::scope(|s| {
        for me in 0..THREADS {
            let (load, told) = (&load, &told);
            s.spawn(move || {
                let mut rng = Rng::new(me as u64 + unique());
                let mine = me * EACH..(me + 1) * EACH;
                let submit = |id| {
                    if rng.below(200) == 0 {
                        // Long enough for workers to retire.
                        thread::sleep(Duration::from_micros(rng.below(6000)));
                    }
                    load.made.add(1);
                    load.submit(id, &mut rng)
                };
                let outcomes: Vec<_> = mine.clone().map(submit).collect();
                told.lock().unwrap()[mine].copy_from_slice(&outcomes);
            });
        }
        wait_until("half of the load", || {
            check_moment(&load.pool, &load.pool.stats());
            load.made.get() >= (THREADS * EACH / 2) as u64
        });
        load.over.store(true, Ordering::SeqCst);
        load.group.cancel();
        load.pool.shutdown(mode, LIMIT)
    });
    assert!(report.is_clean(), "{report:?}");
    assert!(mode != Shutdown::Drain || report.discarded == 0);
    let s = check_at_rest(&load.pool);
    assert_stats!(s, workers: 0, spawned: s.retired);

    let told = told.into_inner().unwrap();
    for (id, told) in told.iter().enumerate() {
        let (runs, drops) = load.ledger.fate(id);
        let is_right = match told {
            Told::Nothing => runs <= 1,
            Told::Ran | Told::TimedOut => runs == 1,
            _ => runs == 0,
        };
        assert!(is_right && drops == 1, "task {id}, {told:?}: {runs} runs");
    }
    let ran = load.ledger.total_runs();
    assert_eq!(ran, s.completed + s.panicked, "{s:?}");
    let count_of = |what| told.iter().filter(|told| **told == what).count() as u64;
    let (timed_out, expired) = (count_of(Told::TimedOut), count_of(Told::Expired));
    assert_stats!(s, timed_out: timed_out, expired: expired - s.refusals.expired);
    // A call whose task was discarded counts as discarded, and was told that it was refused.
    let refused = count_of(Told::Refused) + load.retries.get();
    let unrun = told.len() as u64 - ran - expired - count_of(Told::Refused);
    let refusals = s.refused - s.refusals.expired;
    assert_eq!(refused + unrun, refusals + s.discarded, "{s:?}");
    let most = load.inside.most();
    assert!(most <= load.pool.max_workers(), "{most} at once");
    assert_eq!(Arc::strong_count(&count), 2, "no waker is kept");
    (timed_out + expired, s.completed)
}

/// Each task runs at most once and is dropped once, its submitter is told what became of it, never
/// before its deadline, and the pool counts the same. Never more than `max_workers` run at once.
#[test]
fn law02_law03_law04_law21_a_mixed_load() {
    let length = match std::env::var("LAZYPOOL_STRESS_SECS") {
        Ok(secs) => Duration::from_secs_f64(secs.parse().expect("LAZYPOOL_STRESS_SECS")),
        Err(_) => ms(400),
    };
    let (soon, refuse, block) = (ms(1), WhenFull::Refuse, WhenFull::Block);
    let cases = [
        (64, 0, soon, refuse),
        (64, 32, soon, refuse),
        (16, 8, soon, refuse),
        (4, 0, soon, block),
        (4, 5, soon, block),
        (3, 3, soon, refuse),
        (2, 256, Duration::MAX, refuse), // only the fast paths run
        (1, 0, Duration::ZERO, refuse),
        (1, 4, soon, refuse),
        (1, 0, soon, block),
    ];
    let each = move |(max, queue, idle, policy)| {
        let (start, mut modes) = (Instant::now(), MODES.into_iter().cycle());
        let (mut late, mut completed) = (0, 0);
        while late == 0 || completed == 0 || start.elapsed() < length {
            let pool = pool_with(max, queue, |b| {
                let b = b.idle_timeout(idle).when_full(policy);
                b.min_workers(usize::from(max == 3))
            });
            let (passed, ran) = run(pool, modes.next().unwrap());
            (late, completed) = (late + passed, completed + ran);
        }
    };
    // The limit of `timed_each` is one for each shape.
    for case in cases {
        timed_each([case], each);
    }
}
