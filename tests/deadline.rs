//! Law 3 (deadline).

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{task, DeadlineError, Pool, Shutdown, WhenFull};

fn pool(max: usize, queue: usize) -> Pool {
    Pool::builder()
        .max_workers(max)
        .queue_capacity(queue)
        .build()
        .expect("pool")
}

/// Law 3: the call returns `TimedOut` at its deadline, never before it, although the closure still
/// runs.
#[test]
fn law03_times_out_while_the_closure_runs() {
    timed(|| {
        for queue in [0, 2] {
            let pool = pool(1, queue);
            for d in [Duration::from_micros(300), ms(1), ms(20), ms(150)] {
                let gate = Gate::new();
                let key = gate.key();
                let start = Instant::now();
                let outcome = pool.do_with_deadline(gate.task(), d);
                let took = start.elapsed();
                // The gate is shut, so the closure cannot have ended.
                assert!(!key.is_open());
                match outcome {
                    Err(DeadlineError::TimedOut) => gate.wait_entered(1),
                    // The worker did not get a CPU before the deadline.
                    Err(DeadlineError::Expired(_)) if gate.entered() == 0 => {}
                    other => panic!("{other:?}"),
                }
                assert!(took >= d, "returned after {took:?}, before {d:?}");
                gate.open();
                settle(&pool);
            }
        }
    });
}

/// Law 3: a deadline that passes in the queue returns `Expired`, never before the deadline.
#[test]
fn law03_expires_in_the_queue() {
    timed(|| {
        let pool = pool(2, 3);
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        must_serve(&pool, gate.task());
        gate.wait_entered(2);
        for d in [Duration::from_micros(1), ms(1), ms(30), ms(120)] {
            let start = Instant::now();
            match pool.do_with_deadline(|| 7, d) {
                Err(DeadlineError::Expired(f)) => assert_eq!(f.run(), 7),
                other => panic!("{other:?}"),
            }
            let took = start.elapsed();
            assert!(took >= d, "returned after {took:?}, before {d:?}");
        }
    });
}

/// Law 3: one deadline covers the wait in the queue and the run. Its clock starts at the call.
#[test]
fn law03_the_deadline_counts_from_the_call_through_the_queue() {
    timed(|| {
        let pool = pool(1, 1);
        let d = Duration::from_secs(20);
        let started_with_the_call = || {
            let gate = Gate::new();
            must_serve(&pool, gate.task());
            gate.wait_entered(1);
            thread::scope(|s| {
                let call = s.spawn(|| {
                    let start = Instant::now();
                    let seen = pool.do_with_deadline(task::deadline, d).unwrap();
                    (start, seen.expect("a deadline"))
                });
                let _opener = gate.opener();
                wait_until("the call to queue", || pool.stats().queued == 1);
                let queued = Instant::now();
                thread::sleep(ms(30));
                gate.open();
                let (start, deadline) = call.join().unwrap();
                assert!(deadline >= start + d, "the deadline lies before the call's");
                deadline <= queued + d
            })
        };
        // The caller may be preempted between its call and its first look at the clock.
        wait_until("a clock that started with the call", started_with_the_call);
    });
}

/// Law 3: one deadline covers the wait for room as well.
#[test]
fn law03_the_deadline_counts_from_the_call_through_the_wait_for_room() {
    timed(|| {
        let pool = Pool::builder()
            .max_workers(1)
            .when_full(WhenFull::Block)
            .build()
            .unwrap();
        let d = Duration::from_secs(20);
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        thread::scope(|s| {
            let (about_to_call, called) = mpsc::channel();
            let pool = &pool;
            let call = s.spawn(move || {
                let start = Instant::now();
                about_to_call.send(()).unwrap();
                let seen = pool.do_with_deadline(task::deadline, d).unwrap();
                (start, seen.expect("a deadline"))
            });
            called.recv().unwrap();
            wait_until("the call to wait for room", || pool.stats().waiting == 1);
            let opened = Instant::now();
            gate.open();
            let (start, deadline) = call.join().unwrap();
            assert!(deadline >= start + d, "the deadline lies before the call's");
            assert!(
                deadline < opened + d,
                "the clock started when there was room"
            );
        });
    });
}

/// Law 3: one deadline covers the wait for room, the queue and the run. The caller is released at
/// the deadline while its closure still runs.
#[test]
fn law03_the_deadline_ends_the_call_wherever_it_is() {
    timed(|| {
        let pool = Pool::builder()
            .max_workers(1)
            .queue_capacity(1)
            .when_full(WhenFull::Block)
            .build()
            .unwrap();
        let first = Gate::new();
        let second = Gate::new();
        must_serve(&pool, first.task());
        must_serve(&pool, || ());
        first.wait_entered(1);
        let d = ms(700);
        thread::scope(|s| {
            let call = s.spawn(|| {
                let start = Instant::now();
                (pool.do_with_deadline(second.task(), d), start.elapsed())
            });
            thread::sleep(ms(50));
            first.open();
            let (outcome, took) = call.join().unwrap();
            assert!(!second.key().is_open());
            match outcome {
                Err(DeadlineError::TimedOut | DeadlineError::Expired(_)) => {}
                other => panic!("{other:?}"),
            }
            assert!(took >= d, "returned after {took:?}");
        });
    });
}

/// Law 3: the deadline also covers the start of a worker: a slow start hook cannot hold the caller
/// up.
#[test]
fn law03_the_deadline_covers_the_start_of_a_worker() {
    timed(|| {
        for queue in [0, 1] {
            let keys: Arc<Mutex<Option<Key>>> = Arc::default();
            let hook = Arc::clone(&keys);
            let pool = Pool::builder()
                .max_workers(1)
                .queue_capacity(queue)
                .on_worker_start(move |_| {
                    let key = hook.lock().unwrap().clone();
                    if let Some(key) = key {
                        key.pass();
                    }
                })
                .build()
                .unwrap();
            let gate = Gate::new();
            *keys.lock().unwrap() = Some(gate.key());
            let ledger = Ledger::new(2);
            let entry = ledger.entry(0);
            let start = Instant::now();
            let outcome = pool.do_with_deadline(move || entry.run(), ms(40));
            assert!(start.elapsed() >= ms(40));
            assert!(!gate.key().is_open());
            match outcome {
                Err(DeadlineError::Expired(f)) => drop(f),
                other => panic!("the worker has not started anything: {other:?}"),
            }
            gate.open();
            settle(&pool);
            assert_eq!((ledger.runs(0), ledger.drops(0)), (0, 1));
            let entry = ledger.entry(1);
            pool.do_with_deadline(move || entry.run(), Duration::MAX)
                .unwrap();
            let s = pool.stats();
            assert_eq!((s.accepted, s.expired, s.completed), (2, 1, 1), "{s:?}");
        }
    });
}

/// Law 3: a deadline of zero returns `Expired` at once. The call does not look at the pool and is
/// counted nowhere.
#[test]
fn law03_a_zero_deadline_looks_at_nothing() {
    timed(|| {
        let zero = |pool: &Pool, what: &str| {
            let before = pool.stats();
            for _ in 0..10 {
                match pool.do_with_deadline(|| 5, Duration::ZERO) {
                    Err(DeadlineError::Expired(f)) => assert_eq!(f.run(), 5),
                    other => panic!("{what}: {other:?}"),
                }
                match pool.labeled("zero").do_with_deadline(|| 5, Duration::ZERO) {
                    Err(DeadlineError::Expired(f)) => assert_eq!(f.run(), 5),
                    other => panic!("{what}: {other:?}"),
                }
            }
            assert_eq!(pool.stats(), before, "{what}: counted somewhere");
        };
        for policy in [WhenFull::Refuse, WhenFull::Block] {
            let pool = Pool::builder()
                .max_workers(1)
                .queue_capacity(1)
                .when_full(policy)
                .idle_timeout(Duration::MAX)
                .build()
                .unwrap();
            zero(&pool, "cold");
            pool.do_with_deadline(|| (), Duration::MAX).unwrap();
            zero(&pool, "idle");
            let gate = Gate::new();
            must_serve(&pool, gate.task());
            gate.wait_entered(1);
            zero(&pool, "occupied");
            must_serve(&pool, || ());
            zero(&pool, "full");
            gate.open();
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
            zero(&pool, "closed");
        }
        // The result is the same if the system has no thread to give.
        #[cfg(target_os = "linux")]
        {
            let pool = Pool::builder()
                .max_workers(1)
                .stack_size(IMPOSSIBLE_STACK)
                .build()
                .unwrap();
            zero(&pool, "no thread");
        }
        // The result is the same on a worker.
        let pool = Arc::new(pool(1, 0));
        let inner = Arc::clone(&pool);
        let outcome = pool.do_with_deadline(
            move || {
                matches!(
                    inner.do_with_deadline(|| (), Duration::ZERO),
                    Err(DeadlineError::Expired(_))
                )
            },
            Duration::MAX,
        );
        assert!(outcome.unwrap());
        let s = pool.stats();
        assert_eq!((s.accepted, s.refused, s.expired), (1, 0, 0), "{s:?}");
    });
}

/// Law 3: `Duration::MAX`, and any deadline beyond the clock's range, waits for as long as the task
/// takes.
#[test]
fn law03_far_deadlines_wait() {
    timed(|| {
        for queue in [0, 1] {
            let pool = pool(1, queue);
            for d in [
                Duration::MAX,
                Duration::MAX - Duration::from_nanos(1),
                Duration::from_secs(u64::MAX),
                Duration::from_secs(u64::MAX / 2),
                Duration::from_secs(i64::MAX as u64),
                Duration::from_secs(1 << 40),
            ] {
                let gate = Gate::new();
                let key = gate.key();
                thread::scope(|s| {
                    let call = s.spawn(|| {
                        let key = gate.key();
                        pool.do_with_deadline(
                            move || {
                                key.pass();
                                key.is_open()
                            },
                            d,
                        )
                    });
                    let _opener = gate.opener();
                    gate.wait_entered(1);
                    thread::sleep(ms(10));
                    assert!(
                        !call.is_finished(),
                        "a call with deadline {d:?} did not wait"
                    );
                    gate.open();
                    assert!(call.join().unwrap().unwrap(), "{d:?}");
                });
                assert!(key.is_open());
            }
        }
    });
}

/// Law 3: `task::deadline()` is `None` under `serve` and with `Duration::MAX`. Otherwise it is the
/// caller's deadline: never earlier than by the caller's clock, and the moment that `remaining`
/// counts down to.
#[test]
fn law03_what_a_task_sees_of_its_deadline() {
    timed(|| {
        for queue in [0, 4] {
            let pool = pool(2, queue);
            let (tx, rx) = mpsc::channel();
            must_serve(&pool, move || {
                tx.send((task::deadline(), task::remaining(), task::is_cancelled()))
                    .unwrap();
            });
            assert_eq!(rx.recv().unwrap(), (None, None, false));
            settle(&pool); // its worker may not be idle yet
            let look = || (task::deadline(), task::remaining(), task::is_cancelled());
            // These tasks run after one that had a deadline; nothing of it remains.
            for d in [Duration::MAX, LONG, Duration::MAX, ms(5000), Duration::MAX] {
                let start = Instant::now();
                let (deadline, remaining, cancelled) = pool.do_with_deadline(look, d).unwrap();
                let end = Instant::now();
                assert!(!cancelled);
                if d == Duration::MAX {
                    assert_eq!((deadline, remaining), (None, None));
                } else {
                    let deadline = deadline.expect("a deadline");
                    let remaining = remaining.expect("time left");
                    assert!(deadline >= start + d && deadline <= end + d);
                    assert!(remaining <= d && remaining >= deadline - end);
                }
                let (tx, rx) = mpsc::channel();
                must_serve(&pool, move || {
                    tx.send((task::deadline(), task::remaining())).unwrap();
                });
                assert_eq!(rx.recv().unwrap(), (None, None));
                settle(&pool);
            }
        }
    });
}

/// Law 3: a task that asks for its deadline only after its caller has left still gets the deadline
/// at which the caller left.
#[test]
fn law03_a_task_asks_for_a_deadline_that_has_passed() {
    timed(|| {
        for queue in [0, 2] {
            let pool = pool(1, queue);
            for d in [ms(1), ms(20)] {
                let (tx, rx) = mpsc::channel();
                let start = Instant::now();
                let outcome = pool.do_with_deadline(
                    move || {
                        wait_until("the caller to leave", task::is_cancelled);
                        tx.send((task::deadline(), task::deadline(), task::remaining()))
                            .unwrap();
                    },
                    d,
                );
                let end = Instant::now();
                if matches!(outcome, Err(DeadlineError::Expired(_))) {
                    // The machine was too busy to start the task in time. Its worker may still be
                    // starting and would count as busy.
                    settle(&pool);
                    continue;
                }
                assert!(
                    matches!(outcome, Err(DeadlineError::TimedOut)),
                    "{outcome:?}"
                );
                let (first, second, remaining) = rx.recv().unwrap();
                let deadline = first.expect("a deadline");
                assert!(start + d <= deadline && deadline <= end);
                assert_eq!((second, remaining), (first, Some(Duration::ZERO)));
                wait_until("the worker to be free", || pool.stats().running == 0);
            }
        }
    });
}

/// Law 3: a task sees that its caller has left: `is_cancelled` becomes true, never before the
/// deadline, and `remaining` stays at zero. The next task on that worker sees nothing of it.
#[test]
fn law03_a_task_sees_that_its_caller_left() {
    timed(|| {
        for queue in [0, 2] {
            let pool = pool(1, queue);
            let (tx, rx) = mpsc::channel();
            let outcome = pool.do_with_deadline(
                move || {
                    let deadline = task::deadline().expect("a deadline");
                    let early = task::is_cancelled() && Instant::now() < deadline;
                    wait_until("the caller to leave", task::is_cancelled);
                    let late = Instant::now() >= deadline;
                    tx.send((!early && late, task::remaining())).unwrap();
                },
                ms(60),
            );
            match outcome {
                Err(DeadlineError::TimedOut) => {
                    let (in_order, remaining) = rx.recv_timeout(LIMIT).unwrap();
                    assert!(in_order, "cancelled before its deadline");
                    assert_eq!(remaining, Some(Duration::ZERO));
                }
                Err(DeadlineError::Expired(_)) => {} // the start took very long
                other => panic!("{other:?}"),
            }
            settle(&pool);
            let next = pool.do_with_deadline(task::is_cancelled, LONG);
            assert!(!next.unwrap());
        }
    });
}

/// Law 3: a caller that left is counted, and its worker is shown as abandoned while the task runs.
/// The task's result is dropped once.
#[test]
fn law03_the_result_of_an_abandoned_task_is_dropped() {
    struct Dropped(Arc<AtomicU64>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    timed(|| {
        let pool = pool(2, 0);
        let drops = Arc::new(AtomicU64::new(0));
        let gate = Gate::new();
        let key = gate.key();
        let value = Dropped(Arc::clone(&drops));
        let outcome = pool.do_with_deadline(
            move || {
                key.pass();
                value
            },
            ms(1000),
        );
        match outcome {
            Err(DeadlineError::TimedOut) => {}
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("the gate is shut"),
        }
        let s = pool.stats();
        assert_eq!((s.timed_out, s.running, s.completed), (1, 1, 0), "{s:?}");
        let workers = pool.workers();
        assert_eq!(workers.len(), 1);
        assert!(workers[0].busy && workers[0].abandoned, "{workers:?}");
        assert_eq!(drops.load(Ordering::SeqCst), 0);
        gate.open();
        let s = settle(&pool);
        assert_eq!(
            drops.load(Ordering::SeqCst),
            1,
            "dropped before it is counted"
        );
        assert_eq!((s.timed_out, s.completed, s.expired), (1, 1, 0), "{s:?}");
        let workers = pool.workers();
        assert!(!workers[0].busy && !workers[0].abandoned, "{workers:?}");
        check_at_rest(&pool, &s);
    });
}

/// The outcomes that callers saw, to be compared with the pool's counts.
#[derive(Debug, Default)]
struct Seen {
    ok: AtomicU64,
    panicked: AtomicU64,
    expired: AtomicU64,
    timed_out: AtomicU64,
    refused: AtomicU64,
}

/// A result that counts its drops, whether or not it was delivered.
struct Outcome {
    id: usize,
    ledger: Ledger,
    _entry: Entry,
}

fn race(max: usize, queue: usize, callers: usize, turns: usize, longest: u64, policy: WhenFull) {
    let pool = Pool::builder()
        .max_workers(max)
        .queue_capacity(queue)
        .when_full(policy)
        .idle_timeout(ms(3))
        .build()
        .unwrap();
    let tasks = callers * turns;
    // The closure of task `n` has entry `n`; its result has entry `tasks + n`.
    let ledger = Ledger::new(2 * tasks);
    let seen = Seen::default();
    let handed_back = Mutex::new(Vec::new());
    thread::scope(|s| {
        for caller in 0..callers {
            let (pool, ledger, seen, handed_back) = (&pool, &ledger, &seen, &handed_back);
            s.spawn(move || {
                let mut rng = Rng::new(caller as u64 + longest);
                let mut back = Vec::new();
                for turn in 0..turns {
                    let id = caller * turns + turn;
                    let d = match rng.below(10) {
                        0 => Duration::from_nanos(1),
                        1 => ms(200),
                        _ => Duration::from_nanos(rng.below(longest * 1000)),
                    };
                    let work = Duration::from_nanos(rng.below(longest * 700));
                    let fails = rng.below(20) == 0;
                    let entry = ledger.entry(id);
                    let result = ledger.entry(tasks + id);
                    let books = ledger.clone();
                    let task = move || {
                        entry.run();
                        spin(work);
                        if fails {
                            quiet_panic("meant");
                        }
                        Outcome {
                            id,
                            ledger: books,
                            _entry: result,
                        }
                    };
                    let start = Instant::now();
                    let outcome = pool.do_with_deadline(task, d);
                    let took = start.elapsed();
                    let count = match outcome {
                        Ok(value) => {
                            assert_eq!(value.id, id, "another task's result");
                            assert_eq!(value.ledger.runs(id), 1);
                            assert_eq!(ledger.drops(id), 1, "captures outlive the call");
                            &seen.ok
                        }
                        Err(DeadlineError::Panicked(_)) => {
                            assert!(fails);
                            assert_eq!(ledger.drops(id), 1, "captures outlive the call");
                            &seen.panicked
                        }
                        Err(DeadlineError::Expired(f)) => {
                            assert!(took >= d, "Expired after {took:?}, before {d:?}");
                            assert_eq!((ledger.runs(id), ledger.drops(id)), (0, 0));
                            // The closures are kept until the end, so that a late run would be
                            // noticed.
                            back.push((id, f.into_inner()));
                            if d.is_zero() {
                                continue;
                            }
                            &seen.expired
                        }
                        Err(DeadlineError::TimedOut) => {
                            assert!(took >= d, "TimedOut after {took:?}, before {d:?}");
                            &seen.timed_out
                        }
                        Err(DeadlineError::Refused(refused)) => {
                            assert!(refused.is_saturated(), "{refused:?}");
                            assert_eq!((ledger.runs(id), ledger.drops(id)), (0, 0));
                            back.push((id, refused.into_inner()));
                            &seen.refused
                        }
                    };
                    count.fetch_add(1, Ordering::SeqCst);
                }
                let back: Vec<_> = back
                    .into_iter()
                    .map(|(id, f)| (id, Box::new(f) as Box<dyn std::any::Any + Send>))
                    .collect();
                handed_back.lock().unwrap().extend(back);
            });
        }
    });
    let s = settle(&pool);
    let get = |n: &AtomicU64| n.load(Ordering::SeqCst);
    check_at_rest(&pool, &s);
    assert_eq!(s.timed_out, get(&seen.timed_out), "{seen:?}, {s:?}");
    assert_eq!(
        s.completed + s.panicked,
        get(&seen.ok) + get(&seen.panicked) + get(&seen.timed_out),
        "{seen:?}, {s:?}"
    );
    // These expired while they waited for room. They were never accepted, so they count as refused
    // (law 14).
    assert_eq!(
        s.expired + s.refused,
        get(&seen.expired) + get(&seen.refused),
        "{seen:?}, {s:?}"
    );
    if policy == WhenFull::Block {
        assert_eq!(get(&seen.refused), 0, "{seen:?}");
    }
    let handed_back = handed_back.into_inner().unwrap();
    for (id, _) in &handed_back {
        assert_eq!(
            (ledger.runs(*id), ledger.drops(*id)),
            (0, 0),
            "task {id} was handed back and yet ran"
        );
    }
    let back = handed_back.len() as u64;
    drop(handed_back);
    assert_eq!(ledger.total_runs(), tasks as u64 - back, "each once");
    for id in 0..2 * tasks {
        assert_eq!(ledger.drops(id), 1, "drops of {id}");
    }
}

/// Laws 2 and 3: each call has exactly one outcome, and the pool's counts agree with what callers
/// saw. The results arrive just at the deadline; deadlines are zero, a nanosecond, or long. See
/// goapp.
#[test]
fn law03_exactly_one_outcome_without_a_queue() {
    timed(|| {
        let turns = rounds(1500) as usize;
        race(1, 0, 1, turns, 30, WhenFull::Refuse);
        race(2, 0, 2, turns, 50, WhenFull::Refuse);
        race(2, 0, 4, turns, 200, WhenFull::Refuse);
        race(1, 0, 3, turns, 100, WhenFull::Block);
    });
}

/// Laws 2 and 3: each call has exactly one outcome if its task goes through a queue.
#[test]
fn law03_exactly_one_outcome_with_a_queue() {
    timed(|| {
        let turns = rounds(1500) as usize;
        race(1, 1, 2, turns, 30, WhenFull::Refuse);
        race(1, 3, 4, turns, 80, WhenFull::Refuse);
        race(2, 8, 6, turns, 200, WhenFull::Refuse);
        race(1, 2, 5, turns, 100, WhenFull::Block);
    });
}

/// Law 3: deadlines of zero, one nanosecond and the maximum on a pool that is saturated, has no
/// thread yet, or is closing. See goapp.
#[test]
fn law03_extreme_deadlines() {
    timed(|| {
        let nano = Duration::from_nanos(1);
        for queue in [0, 1] {
            for _ in 0..rounds(100) {
                // The pool has no thread yet. It must start one, which takes longer than a
                // nanosecond.
                let pool = pool(1, queue);
                match pool.do_with_deadline(|| (), nano) {
                    Err(DeadlineError::Expired(_) | DeadlineError::TimedOut) | Ok(()) => {}
                    other => panic!("{other:?}"),
                }
                settle(&pool);
                pool.do_with_deadline(|| (), Duration::MAX).unwrap();
            }
            let pool = pool(1, queue);
            let gate = Gate::new();
            must_serve(&pool, gate.task());
            gate.wait_entered(1);
            for _ in 0..queue {
                must_serve(&pool, || ());
            }
            for d in [nano, ms(1), Duration::MAX] {
                match pool.do_with_deadline(|| (), d) {
                    Err(DeadlineError::Refused(refused)) => assert!(refused.is_saturated()),
                    // The deadline passed before the call looked at the pool.
                    Err(DeadlineError::Expired(_)) if d < LONG => {}
                    other => panic!("{other:?}"),
                }
            }
            pool.shutdown(Shutdown::Drain, Duration::ZERO);
            for d in [nano, ms(1), Duration::MAX] {
                match pool.do_with_deadline(|| (), d) {
                    Err(DeadlineError::Refused(refused)) => assert!(refused.is_closed()),
                    other => panic!("{other:?}"),
                }
            }
        }
    });
}

/// Law 3: of many callers at once, each is released at its own deadline.
#[test]
fn law03_every_caller_is_released_at_its_own_deadline() {
    timed(|| {
        let pool = pool(4, 12);
        let gate = Gate::new();
        let left = AtomicU64::new(0);
        let stuck = AtomicBool::new(false);
        thread::scope(|s| {
            for i in 0..16_u64 {
                let (pool, gate, left, stuck) = (&pool, &gate, &left, &stuck);
                s.spawn(move || {
                    // The deadlines are neither in the order of arrival nor in its reverse.
                    let d = ms(20 + (i * 7 % 16) * 10);
                    let start = Instant::now();
                    let outcome = pool.do_with_deadline(gate.task(), d);
                    assert!(start.elapsed() >= d);
                    match outcome {
                        Err(DeadlineError::TimedOut | DeadlineError::Expired(_)) => {}
                        _ => stuck.store(true, Ordering::SeqCst),
                    }
                    left.fetch_add(1, Ordering::SeqCst);
                });
            }
            let _opener = gate.opener();
            wait_until("all callers to leave", || left.load(Ordering::SeqCst) == 16);
            assert!(!gate.key().is_open());
        });
        assert!(!stuck.load(Ordering::SeqCst));
        let s = pool.stats();
        assert_eq!(s.timed_out + s.expired, 16, "{s:?}");
        settle(&pool);
        assert_eq!(s.timed_out, gate.entered() as u64, "{s:?}");
        assert_eq!(s.queued, 0, "{s:?}");
    });
}
