//! Law 1 (admission), law 2 (exactly once) and law 5 (lazy).

mod common;

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Barrier, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{task, Builder, DeadlineError, Pool, Refused, Shutdown, WhenFull};

fn pool(max: usize, queue: usize, idle: Duration) -> Pool {
    builder(max, queue, idle).build().expect("pool")
}

fn builder(max: usize, queue: usize, idle: Duration) -> Builder {
    Pool::builder()
        .max_workers(max)
        .queue_capacity(queue)
        .idle_timeout(idle)
}

// ---------------------------------------------------------------------------------------------
// Law 1
// ---------------------------------------------------------------------------------------------

const SHAPES: [(usize, usize); 9] = [
    (1, 0),
    (2, 0),
    (3, 0),
    (13, 0),
    (1, 1),
    (1, 5),
    (3, 4),
    (4, 100),
    (17, 3),
];

/// Law 1: the pool accepts exactly `max_workers + queue_capacity` tasks of a burst, whether it
/// never ran a task before or all its workers are idle. It refuses the next task, submitted by
/// either verb.
#[test]
fn law01_a_burst_fills_the_pool_to_the_brim() {
    timed(|| {
        for (max, queue) in SHAPES {
            let pool = pool(max, queue, Duration::MAX);
            for round in 0..4 {
                let gate = Gate::new();
                for i in 0..max + queue {
                    must_serve(&pool, gate.task());
                    let s = pool.stats();
                    assert!(s.queued + s.running > i, "round {round}: {s:?}");
                }
                for _ in 0..3 {
                    saturated(pool.serve(gate.task()));
                    // However far its deadline, a call does not wait for room in a pool that
                    // refuses.
                    for d in [ms(1000), LONG, Duration::MAX] {
                        match pool.do_with_deadline(gate.task(), d) {
                            Err(DeadlineError::Refused(r)) => assert!(r.is_saturated(), "{r:?}"),
                            other => panic!("the task beyond the cap: {other:?}"),
                        }
                    }
                }
                wait_until("every worker to have a task", || gate.entered() == max);
                gate.open();
                settle(&pool);
            }
            let s = pool.stats();
            assert_eq!(s.accepted, 4 * (max + queue) as u64, "{s:?}");
            assert_eq!(s.completed, s.accepted, "{s:?}");
            assert_eq!(s.refused, 4 * 3 * 4, "{s:?}");
            check_at_rest(&pool, &s);
        }
    });
}

/// Law 1: a burst is accepted in full while workers are ending or have just ended. Retirement and
/// respawn never cause a refusal.
#[test]
fn law01_a_burst_into_retirement_is_accepted() {
    burst_into_retirement(|builder| builder);
}

/// Law 1: a task that was queued because no slot was free does not take the thread that a later
/// task needs.
#[test]
fn law01_a_burst_into_retirement_is_accepted_with_a_start_hook() {
    burst_into_retirement(|builder| builder.on_worker_start(|_| thread::sleep(ms(1))));
}

/// Law 1: a burst is accepted in full if one worker is idle and the other slots have no thread.
#[test]
fn law01_a_burst_onto_an_idle_worker_is_accepted_with_a_start_hook() {
    timed(|| {
        for idle in 1..4 {
            let pool = builder(4, 100, Duration::MAX).on_worker_start(|_| thread::sleep(ms(5)));
            let pool = pool.build().expect("pool");
            for burst in [idle, 104] {
                let gate = Gate::new();
                for i in 0..burst {
                    if let Err(refused) = pool.serve(gate.task()) {
                        panic!("{idle} idle, task {i}: {refused:?}, {:?}", pool.stats());
                    }
                }
                gate.open();
                settle(&pool);
            }
        }
    });
}

fn burst_into_retirement(with: fn(Builder) -> Builder) {
    timed(move || {
        let mut rng = Rng::new(11);
        for (max, queue, idle) in [
            (1, 0, ms(1)),
            (3, 0, Duration::ZERO),
            (3, 0, ms(1)),
            (4, 4, Duration::ZERO),
            (4, 4, ms(1)),
        ] {
            let pool = with(builder(max, queue, idle)).build().expect("pool");
            for round in 0..rounds(60) {
                let gate = Gate::new();
                for i in 0..max + queue {
                    if let Err(refused) = pool.serve(gate.task()) {
                        panic!("round {round}, task {i}: {refused:?}, {:?}", pool.stats());
                    }
                }
                saturated(pool.serve(gate.task()));
                gate.open();
                settle(&pool);
                thread::sleep(Duration::from_micros(rng.below(2500)));
            }
        }
    });
}

/// Law 1: if there are more submitters than room, exactly as many succeed as there is room for.
/// Fewer would mean that a submission was refused while the pool was not full.
#[test]
fn law01_a_burst_from_many_threads_fills_the_pool_to_the_brim() {
    timed(|| {
        for (max, queue, idle) in [
            (1, 0, Duration::MAX),
            (2, 0, ms(1)),
            (5, 0, Duration::MAX),
            (1, 3, Duration::MAX),
            (3, 5, ms(1)),
        ] {
            let pool = pool(max, queue, idle);
            for round in 0..rounds(40) {
                let cap = max + queue;
                let gate = Gate::new();
                let start = Barrier::new(cap + 3);
                let accepted = AtomicUsize::new(0);
                thread::scope(|s| {
                    for _ in 0..cap + 3 {
                        s.spawn(|| {
                            start.wait();
                            match pool.serve(gate.task()) {
                                Ok(()) => {
                                    accepted.fetch_add(1, Ordering::SeqCst);
                                }
                                Err(refused) => assert!(refused.is_saturated(), "{refused:?}"),
                            }
                        });
                    }
                });
                assert_eq!(
                    accepted.load(Ordering::SeqCst),
                    cap,
                    "round {round}, {max} workers, queue {queue}: {:?}",
                    pool.stats()
                );
                gate.open();
                settle(&pool);
            }
        }
    });
}

/// Law 1: at no moment are more accepted tasks unended than there are workers and places in the
/// queue.
#[test]
fn law01_never_more_unended_tasks_than_room() {
    timed(|| {
        for (max, queue) in [(1, 0), (2, 0), (1, 2), (2, 3)] {
            let pool = pool(max, queue, ms(1));
            // A task is counted late when accepted and early when ended, so the count is never too
            // high.
            let unended = Arc::new(AtomicI64::new(0));
            let cap = (max + queue) as i64;
            thread::scope(|s| {
                for seed in 0..4 {
                    let (pool, unended) = (&pool, &unended);
                    s.spawn(move || {
                        let mut rng = Rng::new(seed);
                        for _ in 0..rounds(1500) {
                            let work = Duration::from_micros(rng.below(20));
                            let end = Arc::clone(unended);
                            let outcome = pool.serve(move || {
                                spin(work);
                                end.fetch_sub(1, Ordering::SeqCst);
                            });
                            if outcome.is_ok() {
                                let now = unended.fetch_add(1, Ordering::SeqCst) + 1;
                                assert!(now <= cap, "{now} unended, room for {cap}");
                            }
                            drop(outcome);
                        }
                    });
                }
            });
            let s = settle(&pool);
            assert_eq!(unended.load(Ordering::SeqCst), 0);
            assert_eq!(s.completed, s.accepted);
        }
    });
}

/// There are as many callers as there is room, so no caller can ever meet a full pool.
fn callers_never_refused(max: usize, queue: usize, idle: Duration, turns: u64, pause_us: u64) {
    let pool = pool(max, queue, idle);
    let callers = max + queue;
    thread::scope(|s| {
        for caller in 0..callers {
            let pool = &pool;
            s.spawn(move || {
                let mut rng = Rng::new(caller as u64 + 1);
                for turn in 0..turns {
                    let kind = rng.below(8);
                    let outcome = pool.do_with_deadline(
                        move || match kind {
                            0 => quiet_panic("meant"),
                            1 => spin(Duration::from_micros(5)),
                            2 => thread::yield_now(),
                            _ => {}
                        },
                        if kind % 2 == 0 { Duration::MAX } else { LONG },
                    );
                    match outcome {
                        Ok(()) => assert_ne!(kind, 0),
                        Err(DeadlineError::Panicked(_)) => assert_eq!(kind, 0),
                        Err(other) => panic!(
                            "{callers} callers, {max} workers, queue {queue}, idle {idle:?}, \
                             turn {turn}: {other:?}, {:?}",
                            pool.stats()
                        ),
                    }
                    if pause_us > 0 {
                        let pause = Duration::from_micros(rng.below(pause_us));
                        if kind < 4 {
                            thread::sleep(pause);
                        } else {
                            spin(pause / 8);
                        }
                    }
                }
            });
        }
    });
    let s = pool.stats();
    assert_eq!(s.refused, 0, "{s:?}");
    assert_eq!(s.completed + s.panicked, turns * callers as u64, "{s:?}");
    check_at_rest(&pool, &s);
}

/// Law 1: a worker is free before its caller is released. So a pool of one never refuses
/// back-to-back calls.
#[test]
fn law01_back_to_back_calls_on_a_pool_of_one() {
    timed(|| callers_never_refused(1, 0, Duration::MAX, rounds(20_000), 0));
}

/// Law 1: as many callers as workers and places in the queue are never refused.
#[test]
fn law01_as_many_callers_as_room() {
    timed(|| {
        for (max, queue) in [(2, 0), (3, 0), (8, 0), (1, 1), (1, 3), (2, 2), (3, 5)] {
            callers_never_refused(max, queue, Duration::MAX, rounds(600), 0);
        }
    });
}

/// Laws 1 and 6: a submission that races the retirement of the only worker able to take it is
/// accepted, and runs. See pond 33, elasticsearch 124667.
#[test]
fn law01_law06_submission_races_retirement() {
    timed(|| {
        thread::scope(|s| {
            // The shapes sleep most of the time, so they run side by side and make ten times the
            // rounds.
            for (max, queue, idle) in [
                (1, 0, Duration::ZERO),
                (1, 0, Duration::ZERO),
                (1, 0, ms(1)),
                (1, 0, ms(1)),
                (1, 0, ms(2)),
                (1, 1, Duration::ZERO),
                (1, 1, ms(1)),
                (2, 0, ms(1)),
                (3, 2, ms(1)),
            ] {
                s.spawn(move || callers_never_refused(max, queue, idle, rounds(700), 3000));
            }
        });
    });
}

/// Laws 1 and 6: a `serve` that races retirement is not refused while no worker is occupied, and
/// each accepted task runs. See pond 33, elasticsearch 124667.
#[test]
fn law01_law06_serve_races_retirement() {
    timed(|| {
        thread::scope(|s| {
            for (seed, queue, idle) in [
                (1, 0, Duration::ZERO),
                (2, 0, ms(1)),
                (3, 4, Duration::ZERO),
                (4, 4, ms(1)),
                (5, 0, Duration::MAX),
                (6, 4, Duration::MAX),
            ] {
                s.spawn(move || {
                    let pool = pool(1, queue, idle);
                    let ran = Arc::new(AtomicU64::new(0));
                    let mut rng = Rng::new(seed);
                    for turn in 0..rounds(700) {
                        let mark = Arc::clone(&ran);
                        must_serve(&pool, move || {
                            mark.fetch_add(1, Ordering::SeqCst);
                        });
                        let s = settle(&pool);
                        assert_eq!(ran.load(Ordering::SeqCst), turn + 1, "{s:?}");
                        thread::sleep(Duration::from_micros(rng.below(3000)));
                    }
                });
            }
        });
    });
}

/// Law 1: a worker that ends causes no refusal, unless a stop hook delays its end.
#[test]
fn law01_a_worker_that_ends_causes_no_refusal() {
    timed(|| {
        thread::scope(|s| {
            for (seed, max, queue) in [(1, 1, 0), (2, 1, 0), (3, 2, 0), (4, 1, 1), (5, 2, 3)] {
                s.spawn(move || {
                    let pool = pool(max, queue, Duration::ZERO);
                    let mut rng = Rng::new(seed);
                    for turn in 0..rounds(120) {
                        if turn % 2 == 0 {
                            pool.do_with_deadline(|| (), LONG).unwrap();
                        } else {
                            let gate = Gate::new();
                            for _ in 0..max + queue {
                                must_serve(&pool, gate.task());
                            }
                            gate.open();
                            settle(&pool);
                        }
                        thread::sleep(Duration::from_micros(rng.below(4000)));
                    }
                    assert_eq!(pool.stats().refused, 0);
                });
            }
        });
    });
}

/// Laws 1 and 3: a worker in its stop hook is busy, however long the hook takes. A submission that
/// must not wait is refused at once. One that may wait leaves at its deadline. A queued task runs
/// after the hook.
#[test]
fn law01_law03_a_stuck_stop_hook_holds_no_caller() {
    timed(|| {
        for queue in [0, 1] {
            let stuck: Arc<Mutex<Option<Key>>> = Arc::default();
            let hook = Arc::clone(&stuck);
            let pool = Pool::builder()
                .max_workers(1)
                .queue_capacity(queue)
                .idle_timeout(ms(1))
                .on_worker_stop(move |_| {
                    let key = hook.lock().unwrap().clone();
                    if let Some(key) = key {
                        key.pass();
                    }
                })
                .build()
                .unwrap();
            let gate = Gate::new();
            *stuck.lock().unwrap() = Some(gate.key());
            pool.do_with_deadline(|| (), LONG).unwrap();
            gate.wait_entered(1);
            let ledger = Ledger::new(3);
            let task = |id| {
                let entry = ledger.entry(id);
                move || entry.run()
            };
            // Without a queue the call waits for room; with a queue its task is queued.
            let waits = pool.when_full(WhenFull::Block);
            let start = Instant::now();
            let outcome = waits.do_with_deadline(task(0), ms(40));
            assert!(!gate.key().is_open());
            assert!(start.elapsed() >= ms(40));
            assert!(
                matches!(outcome, Err(DeadlineError::Expired(_))),
                "{outcome:?}"
            );
            drop(outcome);
            assert_eq!((ledger.runs(0), ledger.drops(0)), (0, 1));
            for _ in 0..queue {
                must_serve(&pool, task(1));
            }
            saturated(pool.serve(task(2)));
            match pool.do_with_deadline(|| (), LONG) {
                Err(DeadlineError::Refused(refused)) => assert!(refused.is_saturated()),
                other => panic!("{other:?}"),
            }
            assert!(!gate.key().is_open());
            gate.open();
            waits.do_with_deadline(|| (), LONG).unwrap();
            let s = settle(&pool);
            check_at_rest(&pool, &s);
            assert_eq!(s.completed, 2 + queue as u64, "{s:?}");
        }
    });
}

/// Law 1: the one free worker is found by every thread. Each task comes from a thread that the pool
/// has never seen, while all other workers are occupied.
#[test]
fn law01_every_thread_finds_the_one_free_place() {
    timed(|| {
        for idle in [Duration::MAX, ms(1)] {
            let pool = Arc::new(pool(3, 0, idle));
            let gate = Gate::new();
            must_serve(&pool, gate.task());
            must_serve(&pool, gate.task());
            for _ in 0..rounds(300) {
                let pool = Arc::clone(&pool);
                thread::spawn(move || pool.do_with_deadline(|| (), Duration::MAX).unwrap())
                    .join()
                    .unwrap();
            }
            // The one free place is handed around among threads that each remember a different
            // worker.
            let turn = Mutex::new(());
            thread::scope(|s| {
                for _ in 0..4 {
                    s.spawn(|| {
                        for _ in 0..rounds(300) {
                            let _mine = turn.lock().unwrap();
                            pool.do_with_deadline(|| (), Duration::MAX).unwrap();
                        }
                    });
                }
            });
            gate.open();
            assert_eq!(settle(&pool).refused, 0);
        }
    });
}

/// Law 1: the free worker is found although it is a different one all the time.
#[test]
fn law01_the_free_place_moves_and_is_found() {
    timed(|| {
        let pool = pool(3, 0, Duration::MAX);
        let mut gates: Vec<Gate> = (0..2).map(|_| Gate::new()).collect();
        for gate in &gates {
            must_serve(&pool, gate.task());
        }
        for turn in 0..rounds(2000) {
            pool.do_with_deadline(|| (), Duration::MAX)
                .unwrap_or_else(|e| panic!("turn {turn}: {e:?}"));
            let gate = Gate::new();
            must_serve(&pool, gate.task());
            let before = pool.stats().completed;
            let done = std::mem::replace(&mut gates[(turn % 2) as usize], gate);
            done.open();
            wait_until("the oldest task to end", || {
                let s = pool.stats();
                s.completed == before + 1 && s.running == 2
            });
        }
        drop(gates);
    });
}

/// Law 1: after a burst that saturates the pool, and a pause, the next submission succeeds and the
/// whole cap is usable. See pond 108, 115.
#[test]
fn law01_after_saturation_the_pool_takes_work_again() {
    timed(|| {
        for (max, queue) in [(2, 0), (3, 8)] {
            let pool = pool(max, queue, Duration::MAX);
            let gate = Gate::new();
            for _ in 0..max + queue {
                must_serve(&pool, gate.task());
            }
            let refused = AtomicU64::new(0);
            thread::scope(|s| {
                let _opener = gate.opener();
                for _ in 0..8 {
                    s.spawn(|| {
                        for _ in 0..rounds(400) {
                            if let Err(r) = pool.serve(|| spin(Duration::from_micros(10))) {
                                assert!(r.is_saturated(), "{r:?}");
                                refused.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                    });
                }
                // The burst first meets a full pool, then one that empties.
                wait_until("refusals", || refused.load(Ordering::SeqCst) > 100);
            });
            let s = settle(&pool);
            assert_eq!(s.refused, refused.load(Ordering::SeqCst));
            assert!(s.refused > 0, "the burst did not saturate: {s:?}");
            pool.do_with_deadline(|| (), Duration::MAX).unwrap();
            must_serve(&pool, || ());
            assert_cap_usable(&pool);
        }
    });
}

/// Law 1: the place of a queued task that has expired stays taken while an older task is queued
/// before it, and no longer. Once no task is queued, the whole queue is usable.
#[test]
fn law01_expired_tasks_leave_their_room() {
    timed(|| {
        for queue in [1_usize, 2, 3, 7] {
            let pool = pool(1, queue, Duration::MAX);
            let gate = Gate::new();
            must_serve(&pool, gate.task());
            gate.wait_entered(1);
            let expire = |turn: u64| {
                let d = Duration::from_micros(1 + turn % 2000);
                let outcome = pool.do_with_deadline(|| (), d);
                assert!(
                    matches!(outcome, Err(DeadlineError::Expired(_))),
                    "turn {turn}: {outcome:?}, {:?}",
                    pool.stats()
                );
            };
            // These are the oldest in the queue, so their places are free at once.
            (0..rounds(60)).for_each(|turn| expire(37 * turn));
            // There are as many callers as places. Each task expires, or finds the places taken by
            // expired ones.
            thread::scope(|s| {
                for seed in 0..queue {
                    let pool = &pool;
                    s.spawn(move || {
                        let mut rng = Rng::new(seed as u64);
                        for turn in 0..rounds(60) {
                            let d = Duration::from_micros(1 + rng.below(2000));
                            match pool.do_with_deadline(|| (), d) {
                                Err(DeadlineError::Expired(_)) => {}
                                Err(DeadlineError::Refused(why)) if why.is_saturated() => {}
                                other => panic!("turn {turn}: {other:?}, {:?}", pool.stats()),
                            }
                        }
                    });
                }
            });
            let s = pool.stats();
            assert_eq!((s.queued, s.running), (0, 1), "{s:?}");
            if queue > 1 {
                must_serve(&pool, || ());
                (1..queue as u64).for_each(&expire);
                // An older task is queued before each of the expired ones, so their places are
                // still taken.
                saturated(pool.serve(|| ()));
                gate.open();
                settle(&pool);
                let gate = Gate::new();
                must_serve(&pool, gate.task());
                gate.wait_entered(1);
                for _ in 0..queue {
                    must_serve(&pool, || ());
                }
                saturated(pool.serve(|| ()));
                gate.open();
            } else {
                must_serve(&pool, || ());
                saturated(pool.serve(|| ()));
                gate.open();
            }
            check_at_rest(&pool, &settle(&pool));
        }
    });
}

// ---------------------------------------------------------------------------------------------
// Law 2
// ---------------------------------------------------------------------------------------------

/// A value to capture, whose bytes must survive every move that the pool makes.
trait Load: Send + 'static {
    fn new(seed: u8) -> Self;
    fn intact(&self, seed: u8) -> bool;
}

macro_rules! load {
    ($name:ident, $align:literal) => {
        #[repr(align($align))]
        struct $name<const N: usize>([u8; N]);

        impl<const N: usize> Load for $name<N> {
            fn new(seed: u8) -> Self {
                let mut bytes = [0; N];
                for (i, byte) in bytes.iter_mut().enumerate() {
                    *byte = seed.wrapping_add(i as u8).wrapping_mul(31);
                }
                $name(bytes)
            }

            fn intact(&self, seed: u8) -> bool {
                std::ptr::from_ref(self).is_aligned() && self.0 == Self::new(seed).0
            }
        }
    };
}

load!(Plain, 1);
load!(A8, 8);
load!(A16, 16);
load!(A64, 64);
load!(A256, 256);

/// Returns a task that checks its load, marks its entry and returns the load.
fn carry<L: Load>(
    seed: u8,
    entry: Entry,
    spoilt: &Arc<AtomicU32>,
) -> impl FnOnce() -> L + Send + 'static {
    let load = L::new(seed);
    let spoilt = Arc::clone(spoilt);
    move || {
        entry.run();
        if !load.intact(seed) {
            spoilt.fetch_add(1, Ordering::SeqCst);
        }
        load
    }
}

fn every_path<L: Load>() {
    let ledger = Ledger::new(12);
    let spoilt = Arc::new(AtomicU32::new(0));
    let task = |id: usize| carry::<L>(id as u8, ledger.entry(id), &spoilt);
    let unit = |id: usize| {
        let f = task(id);
        move || drop(f())
    };
    let pool = pool(1, 2, Duration::MAX);

    // First a new worker takes the task, then an idle one. The result has the size of the captures.
    must_serve(&pool, unit(0));
    settle(&pool);
    let value = pool.do_with_deadline(task(1), Duration::MAX).expect("runs");
    assert!(value.intact(1));

    // One task goes through the queue. The next is refused by the full queue and run by the caller.
    let gate = Gate::new();
    must_serve(&pool, gate.task());
    gate.wait_entered(1);
    must_serve(&pool, unit(2));
    must_serve(&pool, unit(3));
    let back = saturated(pool.serve(unit(4)));
    assert_eq!(ledger.runs(4), 0);
    back.run_anyway();
    match pool.do_with_deadline(task(5), Duration::MAX) {
        Err(DeadlineError::Refused(refused)) => assert!(refused.into_inner()().intact(5)),
        _ => panic!("the pool is full"),
    }
    drop(saturated(pool.serve(unit(6))));
    assert_eq!((ledger.runs(6), ledger.drops(6)), (0, 1));
    gate.open();
    settle(&pool);

    // The task expires in the queue and is handed back.
    let gate = Gate::new();
    must_serve(&pool, gate.task());
    gate.wait_entered(1);
    match pool.do_with_deadline(task(7), ms(5)) {
        Err(DeadlineError::Expired(f)) => {
            assert_eq!((ledger.runs(7), ledger.drops(7)), (0, 0));
            assert!(f.run().intact(7));
        }
        _ => panic!("the task cannot have started"),
    }
    // The task expires, and its caller drops the closure that came back.
    match pool.do_with_deadline(task(8), ms(5)) {
        Err(DeadlineError::Expired(f)) => drop(f),
        _ => panic!("the task cannot have started"),
    }
    assert_eq!((ledger.runs(8), ledger.drops(8)), (0, 1));

    // The shutdown discards the task, or hands it back.
    must_serve(&pool, unit(9));
    let returned = thread::scope(|s| {
        let _opener = gate.opener();
        let caller = s.spawn(|| pool.do_with_deadline(task(10), LONG));
        wait_until("the call to queue", || pool.stats().queued == 2);
        let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
        assert_eq!(report.discarded, 2);
        caller.join().unwrap()
    });
    match returned {
        Err(DeadlineError::Refused(refused)) => {
            assert!(refused.is_closed());
            assert!(refused.run_anyway().intact(10));
        }
        _ => panic!("handed back by the shutdown"),
    }
    assert_eq!((ledger.runs(9), ledger.drops(9)), (0, 1));
    // The closed pool refuses the task.
    match pool.serve(unit(11)) {
        Err(refused) => {
            assert!(refused.is_closed());
            refused.into_inner()();
        }
        Ok(()) => panic!("closed"),
    }
    gate.open();
    assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    for id in 0..12 {
        let runs = u32::from(![6, 8, 9].contains(&id));
        assert_eq!(ledger.runs(id), runs, "task {id}");
        assert_eq!(ledger.drops(id), 1, "task {id}");
    }
    assert_eq!(
        spoilt.load(Ordering::SeqCst),
        0,
        "captures changed on the way"
    );
    let s = pool.stats();
    assert_eq!(s.completed, 6, "{s:?}");
    assert_eq!(s.expired, 2, "{s:?}");
    assert_eq!(s.discarded, 2, "{s:?}");
    assert_eq!(s.refused, 4, "{s:?}");
    check_at_rest(&pool, &s);
}

/// Law 2: a closure runs once, or is handed back or dropped once, and its captures are unchanged.
/// This is tried on every path, with each size around the limits of inline storage and each
/// alignment.
#[test]
fn law02_every_size_and_alignment_on_every_path() {
    timed(|| {
        every_path::<Plain<0>>();
        every_path::<Plain<1>>();
        every_path::<Plain<7>>();
        every_path::<Plain<15>>();
        every_path::<Plain<16>>();
        every_path::<Plain<17>>();
        every_path::<Plain<31>>();
        every_path::<Plain<40>>();
        every_path::<A8<8>>();
        every_path::<A8<16>>();
        every_path::<A8<24>>();
        every_path::<A8<32>>();
        every_path::<A8<40>>();
        every_path::<A8<48>>();
        every_path::<A8<200>>();
        every_path::<A16<16>>();
        every_path::<A16<32>>();
        every_path::<A64<0>>();
        every_path::<A64<64>>();
        every_path::<A256<1>>();
        every_path::<A256<1024>>();
        every_path::<Plain<5_000>>();
    });
}

/// Law 2: closures without captures run once.
#[test]
fn law02_closures_without_captures() {
    static RAN: AtomicU32 = AtomicU32::new(0);
    fn count() {
        RAN.fetch_add(1, Ordering::SeqCst);
    }
    timed(|| {
        let pool = pool(2, 4, Duration::MAX);
        for i in 1..=100 {
            pool.do_with_deadline(|| RAN.fetch_add(1, Ordering::SeqCst), Duration::MAX)
                .expect("runs");
            assert_eq!(RAN.load(Ordering::SeqCst), i);
        }
        for _ in 0..100 {
            while pool.serve(count).is_err() {
                thread::yield_now();
            }
        }
        settle(&pool);
        assert_eq!(RAN.load(Ordering::SeqCst), 200);
    });
}

/// Law 2: a refused closure comes back without having run and can be submitted again. Each runs
/// once. See JDK ThreadPoolExecutorTest.
#[test]
fn law02_refused_closures_can_be_retried() {
    timed(|| {
        for queue in [0, 3] {
            let n = rounds(1000) as usize;
            let pool = pool(2, queue, ms(1));
            let gate = Gate::new();
            for _ in 0..2 + queue {
                must_serve(&pool, gate.task());
            }
            gate.wait_entered(2);
            let ledger = Ledger::new(n);
            // Each closure is refused once while the pool is full, and then until there is room for
            // it.
            let tasks: Vec<_> = (0..n)
                .map(|id| {
                    let entry = ledger.entry(id);
                    saturated(pool.serve(move || entry.run())).into_inner()
                })
                .collect();
            assert_eq!(ledger.total_runs(), 0);
            gate.open();
            let tasks = Mutex::new(tasks);
            let refusals = AtomicU64::new(n as u64);
            thread::scope(|s| {
                for _ in 0..4 {
                    s.spawn(|| loop {
                        let Some(mut task) = tasks.lock().unwrap().pop() else {
                            return;
                        };
                        while let Err(refused) = pool.serve(task) {
                            refusals.fetch_add(1, Ordering::SeqCst);
                            assert!(refused.is_saturated(), "{refused:?}");
                            task = refused.into_inner();
                            thread::yield_now();
                        }
                    });
                }
            });
            let s = settle(&pool);
            ledger.assert_all_ran();
            assert_eq!(s.completed, (n + 2 + queue) as u64, "{s:?}");
            assert_eq!(s.refused, refusals.load(Ordering::SeqCst), "{s:?}");
        }
    });
}

/// Law 2: a closure that is refused and then run by the caller runs once, on the caller or in the
/// pool.
#[test]
fn law02_caller_runs() {
    timed(|| {
        let pool = pool(1, 1, Duration::MAX);
        let ledger = Ledger::new(2000);
        for id in 0..2000 {
            let entry = ledger.entry(id);
            pool.serve(move || entry.run())
                .or_else(Refused::caller_runs)
                .unwrap();
        }
        settle(&pool);
        ledger.assert_all_ran();
    });
}

/// Laws 2 and 3: a closure whose deadline passes in the queue never runs and comes back, and its
/// place is free at once. See holochain 3036.
#[test]
fn law02_law03_expired_in_the_queue() {
    timed(|| {
        let pool = pool(1, 1, Duration::MAX);
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let ledger = Ledger::new(201);
        for id in 0..200 {
            let entry = ledger.entry(id);
            match pool.do_with_deadline(move || entry.run(), ms(1)) {
                Err(DeadlineError::Expired(f)) => drop(f),
                other => panic!("{other:?}"),
            }
            let s = pool.stats();
            assert_eq!((s.expired, s.queued), (id as u64 + 1, 0), "{s:?}");
            assert_eq!((s.refused, s.accepted), (0, id as u64 + 2), "{s:?}");
        }
        let last = ledger.entry(200);
        must_serve(&pool, move || last.run());
        saturated(pool.serve(|| ()));
        gate.open();
        settle(&pool);
        assert_eq!(ledger.total_runs(), 1, "an expired closure ran");
        assert_eq!(ledger.runs(200), 1);
    });
}

// ---------------------------------------------------------------------------------------------
// Law 5
// ---------------------------------------------------------------------------------------------

/// Law 5: no worker exists before the first task. A sequential caller uses one worker, however many
/// are allowed, and even if each call comes from another thread.
#[test]
fn law05_a_sequential_caller_uses_one_worker() {
    timed(|| {
        for queue in [0, 16] {
            let pool = Arc::new(pool(8, queue, Duration::MAX));
            let s = pool.stats();
            assert_eq!((s.workers, s.spawned), (0, 0), "{s:?}");
            for i in 0..rounds(3000) {
                if i % 3 == 0 {
                    let _ = pool.do_with_deadline(|| quiet_panic("meant"), Duration::MAX);
                } else {
                    pool.do_with_deadline(|| (), LONG).unwrap();
                }
            }
            assert_eq!(pool.stats().spawned, 1, "do_with_deadline, queue {queue}");
            for _ in 0..rounds(500) {
                must_serve(&pool, || ());
                settle(&pool);
            }
            assert_eq!(pool.stats().spawned, 1, "serve, queue {queue}");
            for _ in 0..rounds(200) {
                let pool = Arc::clone(&pool);
                thread::spawn(move || pool.do_with_deadline(|| (), Duration::MAX).unwrap())
                    .join()
                    .unwrap();
            }
            let s = pool.stats();
            assert_eq!((s.spawned, s.workers, s.peak_workers), (1, 1, 1), "{s:?}");
            assert_eq!((s.idle, s.running), (1, 0), "{s:?}");
        }
    });
}

/// Law 5: a sequential caller soon uses one worker only, even if several workers are idle and wait
/// for its call.
#[test]
fn law05_a_sequential_caller_keeps_to_one_of_several() {
    timed(|| {
        for queue in [0, 4, 64] {
            let pool = pool(8, queue, Duration::MAX);
            // Other threads have started these workers; this thread has not submitted a task yet.
            thread::scope(|s| {
                s.spawn(|| {
                    let gate = Gate::new();
                    for _ in 0..8 {
                        must_serve(&pool, gate.task());
                    }
                    gate.wait_entered(8);
                    gate.open();
                });
            });
            settle(&pool);
            let used = || {
                let slots = (0..20).map(|round| {
                    // Sometimes the worker sleeps by the time of the next call.
                    thread::sleep(ms(if round % 4 == 0 { 2 } else { 0 }));
                    pool.do_with_deadline(task::slot, LONG).unwrap()
                });
                slots.collect::<HashSet<_>>().len()
            };
            // Another worker may still be awake and be faster, but not for long.
            wait_until("one worker to be used", || used() == 1);
        }
    });
}

/// Law 1: a start hook may submit tasks like any other code. Its task goes to a sleeping worker, a
/// new worker or the queue.
#[test]
fn law01_a_hook_finds_the_worker_that_sleeps() {
    timed(|| {
        static POOL: OnceLock<Pool> = OnceLock::new();
        let gate = Gate::new();
        let in_hook = Gate::new();
        let (key, hook) = (gate.key(), in_hook.key());
        let (tx, rx) = mpsc::channel();
        let pool = Pool::builder()
            .max_workers(3)
            .queue_capacity(16)
            .on_worker_start(move |slot| {
                if slot != 1 {
                    return;
                }
                hook.pass(); // until worker 0 has gone to sleep
                let pool = POOL.get().expect("set");
                let key = key.clone();
                must_serve(pool, move || key.pass());
                // A call by a worker is not queued, so a third worker takes it.
                let value = pool.do_with_deadline(|| 1, LONG);
                tx.send((value.ok(), pool.stats().workers)).unwrap();
            })
            .build()
            .unwrap();
        let pool = POOL.get_or_init(|| pool);
        let first = Gate::new();
        must_serve(pool, first.task());
        first.wait_entered(1);
        must_serve(pool, || ()); // starts worker 1
        in_hook.wait_entered(1);
        first.open();
        wait_until("worker 0 to be idle", || pool.stats().running == 1);
        thread::sleep(ms(50));
        in_hook.open();
        assert_eq!(rx.recv().unwrap(), (Some(1), 3));
        gate.wait_entered(1);
        gate.open();
        assert!(pool.shutdown(Shutdown::Drain, LONG).is_clean());
    });
}

/// Law 5: a thread is always started before a task is queued.
#[test]
fn law05_a_thread_before_the_queue() {
    timed(|| {
        let pool = pool(5, 10, Duration::MAX);
        let gate = Gate::new();
        for i in 1..=5 {
            must_serve(&pool, gate.task());
            // The queue has room for all tasks; nevertheless each must get a thread.
            gate.wait_entered(i);
            let s = pool.stats();
            assert_eq!((s.spawned, s.running, s.queued), (i as u64, i, 0), "{s:?}");
        }
        for i in 1..=10 {
            must_serve(&pool, gate.task());
            assert_eq!(pool.stats().queued, i);
        }
        assert_eq!(pool.stats().spawned, 5);
        gate.open();
        settle(&pool);
        assert_eq!(gate.entered(), 15);
    });
}

/// Law 5: no thread is started while a worker is idle throughout the call. So `k` idle workers take
/// the next `k` tasks, submitted one after the other or all at once.
#[test]
fn law05_idle_workers_before_a_thread() {
    timed(|| {
        for queue in [0, 8, 64] {
            let pool = pool(9, queue, Duration::MAX);
            let gate = Gate::new();
            for _ in 0..4 {
                must_serve(&pool, gate.task());
            }
            gate.wait_entered(4);
            gate.open();
            settle(&pool);
            assert_eq!(pool.stats().spawned, 4);
            for round in 0..rounds(150) {
                let gate = Gate::new();
                wait_until("four idle workers", || pool.stats().idle == 4);
                if round % 2 == 0 {
                    for _ in 0..4 {
                        must_serve(&pool, gate.task());
                    }
                } else {
                    let start = Barrier::new(4);
                    thread::scope(|s| {
                        for _ in 0..4 {
                            s.spawn(|| {
                                start.wait();
                                must_serve(&pool, gate.task());
                            });
                        }
                    });
                }
                gate.wait_entered(4);
                let s = pool.stats();
                assert_eq!(s.spawned, 4, "round {round}, queue {queue}: {s:?}");
                gate.open();
                settle(&pool);
            }
            let gate = Gate::new();
            for _ in 0..4 {
                must_serve(&pool, gate.task());
            }
            gate.wait_entered(4);
            must_serve(&pool, gate.task());
            gate.wait_entered(5);
            assert_eq!(pool.stats().spawned, 5);
        }
    });
}

/// Law 5: a task stays queued only while every worker is occupied or one is being woken for it. No
/// wake-up is lost.
#[test]
fn law05_no_queued_task_is_forgotten() {
    timed(|| {
        for (max, idle) in [(1, Duration::MAX), (2, Duration::MAX), (2, ms(1))] {
            let pool = pool(max, 4, idle);
            let ran = Arc::new(AtomicU64::new(0));
            let mut rng = Rng::new(max as u64);
            let mut served = 0;
            for _ in 0..rounds(3000) {
                // A few tasks at a time, around the moments at which workers go to sleep.
                for _ in 0..=rng.below(3) {
                    let mark = Arc::clone(&ran);
                    let work = Duration::from_micros(rng.below(8));
                    if pool
                        .serve(move || {
                            spin(work);
                            mark.fetch_add(1, Ordering::SeqCst);
                        })
                        .is_ok()
                    {
                        served += 1;
                    }
                    spin(Duration::from_micros(rng.below(12)));
                }
                wait_until("queued tasks to run", || {
                    ran.load(Ordering::SeqCst) == served
                });
                spin(Duration::from_micros(rng.below(30)));
            }
        }
    });
}

/// Law 5: a queued task is taken as soon as one worker is free, while the others stay occupied.
#[test]
fn law05_one_free_worker_empties_the_queue() {
    timed(|| {
        let pool = pool(3, 20, Duration::MAX);
        let held = Gate::new();
        let one = Gate::new();
        must_serve(&pool, held.task());
        must_serve(&pool, held.task());
        must_serve(&pool, one.task());
        let ledger = Ledger::new(20);
        for id in 0..20 {
            let entry = ledger.entry(id);
            must_serve(&pool, move || entry.run());
        }
        one.open();
        wait_until("the queue to be empty", || ledger.total_runs() == 20);
        drop(held);
    });
}

/// Law 5: when `build` returns, the workers of `min_workers` exist and are counted. The first tasks
/// go to them.
#[test]
fn law05_min_workers_are_there_at_once() {
    timed(|| {
        for min in [1, 3, 4] {
            let pool = Pool::builder()
                .max_workers(4)
                .min_workers(min)
                .build()
                .unwrap();
            let s = pool.stats();
            assert_eq!((s.workers, s.spawned), (min, min as u64), "{s:?}");
            assert_eq!(pool.workers().len(), min);
            wait_until("workers to be idle", || pool.stats().idle == min);
            let gate = Gate::new();
            for _ in 0..min {
                must_serve(&pool, gate.task());
            }
            gate.wait_entered(min);
            assert_eq!(pool.stats().spawned, min as u64);
        }
    });
}

/// Law 5: before the first task no thread exists except those of `min_workers`; the cleaner has
/// none either.
#[cfg(target_os = "linux")]
#[test]
fn law05_no_thread_before_the_first_task() {
    isolated("law05_no_thread_before_the_first_task", || {
        let before = os::thread_total();
        let pools: Vec<Pool> = (1..=20).map(|n| pool(n, n % 3, ms(50))).collect();
        for pool in &pools {
            let _ = (
                pool.stats(),
                pool.workers(),
                pool.labeled("x"),
                pool.group(),
            );
            // This call never counts as accepted, so it starts no thread.
            let _ = pool.do_with_deadline(|| (), Duration::ZERO);
        }
        thread::sleep(ms(150));
        assert_eq!(os::thread_total(), before, "threads without a task");
        let busy = Pool::builder()
            .max_workers(8)
            .min_workers(3)
            .build()
            .unwrap();
        thread::sleep(ms(50));
        assert_eq!(os::thread_total(), before + 3);
        drop(busy);
        for pool in &pools {
            assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        }
        drop(pools);
        // The system may list a thread for a moment after it was joined.
        wait_until("threads to end", || os::thread_total() == before);
    });
}
