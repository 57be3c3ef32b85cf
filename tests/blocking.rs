//! Law 14 (blocking): submissions that wait for room, and those on a worker, which do not.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use common::gates::*;
use common::*;
use lazypool::{Pool, Refusal, Refused, WhenFull};

fn pool(max: usize, queue: usize, policy: WhenFull) -> Pool {
    let builder = builder(max, queue).when_full(policy);
    builder.build().expect("pool")
}

// ---------------------------------------------------------------------------------------------
// On threads that are no workers of the pool
// ---------------------------------------------------------------------------------------------

/// Law 14: `serve` waits for room. One place that becomes free lets one caller in; the others go on
/// waiting.
#[test]
fn law14_one_place_lets_one_caller_in() {
    timed(|| {
        for queue in [0, 2] {
            let pool = pool(2, queue, WhenFull::Block);
            let (held, first, later) = (Gate::new(), Gate::new(), Gate::new());
            must_serve(&pool, first.task());
            first.wait_entered(1);
            (0..=queue).for_each(|_| must_serve(&pool, held.task()));
            held.wait_entered(1);
            let entered = AtomicU64::new(0);
            thread::scope(|s| {
                let _openers = (held.opener(), later.opener());
                for _ in 0..4 {
                    s.spawn(|| {
                        must_serve(&pool, later.task());
                        entered.fetch_add(1, Ordering::SeqCst);
                    });
                }
                wait_in_line(&pool, 4);
                let s = pool.stats();
                assert_eq!((s.refused, s.accepted), (0, 2 + queue as u64), "{s:?}");
                first.open();
                wait_until("a caller to get in", || entered.load(Ordering::SeqCst) > 0);
                thread::sleep(ms(30));
                assert_eq!(entered.load(Ordering::SeqCst), 1, "more callers than room");
                assert_eq!(pool.stats().waiting, 3);
            });
            assert_eq!(settle(&pool).completed, 6 + queue as u64);
        }
    });
}

/// Law 14: with many more callers than room, no caller is refused and every task runs once.
#[test]
fn law14_every_waiting_caller_gets_in() {
    timed(|| {
        for (max, queue, idle) in [
            (1, 0, ms(1)),
            (2, 0, Duration::MAX),
            (1, 2, Duration::MAX),
            (2, 3, ms(1)),
        ] {
            let builder = builder(max, queue).idle_timeout(idle);
            let pool = builder.when_full(WhenFull::Block).build().expect("pool");
            let n = rounds(250) as usize;
            let ledger = Ledger::new(10 * n);
            thread::scope(|s| {
                for part in 0..10 {
                    let (pool, ledger) = (&pool, &ledger);
                    s.spawn(move || {
                        for id in part * n..(part + 1) * n {
                            let task = mark(ledger, id);
                            match part {
                                0 => pool.do_with_deadline(task, Duration::MAX).unwrap(),
                                1..5 => pool.do_with_deadline(task, LONG).unwrap(),
                                _ => must_serve(pool, task),
                            }
                        }
                    });
                }
            });
            let s = settle(&pool);
            ledger.assert_all_ran();
            assert_eq!((s.refused, s.completed), (0, 10 * n as u64), "{s:?}");
        }
    });
}

/// Law 14: `do_with_deadline` waits for room within its deadline, then returns `Expired`. The task
/// was never accepted, so it counts as refused.
#[test]
fn law14_do_with_deadline_waits_within_its_deadline() {
    timed(|| {
        for queue in [0, 2] {
            let pool = pool(1, queue, WhenFull::Block);
            let gate = Gate::new();
            fill(&pool, &gate);
            let ledger = Ledger::new(4);
            for (id, d) in [1, 5, 30].map(ms).into_iter().enumerate() {
                let start = Instant::now();
                let back = expired(pool.do_with_deadline(mark(&ledger, id), d));
                assert!(start.elapsed() >= d, "returned before its deadline");
                assert_eq!((ledger.runs(id), ledger.drops(id)), (0, 0));
                drop(back);
                let s = pool.stats();
                assert_eq!((s.refused, s.expired), (id as u64 + 1, 0), "{s:?}");
                assert_eq!(s.accepted, 1 + queue as u64, "{s:?}");
                check_at_rest(&pool, &s);
            }
            // If there is room in time, the task runs.
            thread::scope(|s| {
                let _opener = gate.opener();
                let call = s.spawn(|| pool.do_with_deadline(mark(&ledger, 3), LONG));
                wait_in_line(&pool, 1);
                gate.open();
                call.join().unwrap().unwrap();
            });
            assert_eq!((ledger.total_runs(), ledger.runs(3)), (1, 1));
        }
    });
}

/// Law 14: a queued task that expires makes room as one that runs does: each lets one caller in.
#[test]
fn law14_a_task_that_does_not_start_makes_room_too() {
    timed(|| {
        let pool = pool(1, 2, WhenFull::Block);
        let (first, second) = (Gate::new(), Gate::new());
        must_serve(&pool, first.task());
        first.wait_entered(1);
        thread::scope(|s| {
            let _openers = (first.opener(), second.opener());
            // It is too late for this task when its turn comes, not before.
            let doomed = s.spawn(|| {
                let never = pool.min_remaining(2 * LONG);
                drop(expired(never.do_with_deadline(|| (), LONG)));
            });
            wait_until("the task to be queued", || pool.stats().queued == 1);
            must_serve(&pool, second.task());
            let blocked = [(); 2].map(|()| s.spawn(|| must_serve(&pool, || ())));
            wait_in_line(&pool, 2);
            first.open();
            second.wait_entered(1);
            for caller in blocked {
                caller.join().unwrap();
            }
            doomed.join().unwrap();
            assert_eq!(pool.stats().queued, 2);
        });
        let s = settle(&pool);
        assert_eq!((s.completed, s.expired), (4, 1), "{s:?}");
    });
}

/// Law 14: callers that give up take no room. It goes to a caller that still waits.
#[test]
fn law14_callers_that_give_up_take_no_room() {
    timed(|| {
        for queue in [0, 1] {
            let pool = pool(1, queue, WhenFull::Block);
            for round in 1..=rounds(30) {
                let gate = Gate::new();
                fill(&pool, &gate);
                thread::scope(|s| {
                    let _opener = gate.opener();
                    for i in 0..4 {
                        let pool = &pool;
                        let d = Duration::from_micros(200 + 300 * i);
                        let call = move || pool.do_with_deadline(|| (), d);
                        s.spawn(move || drop(expired(call())));
                    }
                    let stays = s.spawn(|| must_serve(&pool, || ()));
                    wait_until("the other callers to leave", || {
                        let s = pool.stats();
                        (s.refused, s.waiting) == (4 * round, 1)
                    });
                    gate.open();
                    stays.join().unwrap();
                });
                assert_eq!(settle(&pool).completed, round * (2 + queue as u64));
            }
        }
    });
}

/// Law 14: with `BlockFor`, `serve` waits that long for room and is then refused as `Saturated`.
/// `do_with_deadline` waits for that time or until its deadline, whichever is earlier. Both take
/// room that they get in time.
#[test]
fn law14_block_for_waits_only_so_long() {
    timed(|| {
        for queue in [0, 2] {
            let limit = ms(30);
            let pool = pool(1, queue, WhenFull::BlockFor(limit));
            let gate = Gate::new();
            fill(&pool, &gate);
            let start = Instant::now();
            saturated(pool.serve(|| ()));
            assert!(start.elapsed() >= limit, "refused too early");
            for d in [LONG, Duration::MAX] {
                let start = Instant::now();
                assert!(refused(pool.do_with_deadline(|| (), d)).is_saturated());
                assert!(start.elapsed() >= limit, "refused too early");
            }
            expired(pool.do_with_deadline(|| (), ms(1)));
            let at_once = pool.when_full(WhenFull::BlockFor(Duration::ZERO));
            saturated(at_once.serve(|| ()));
            let s = pool.stats();
            assert_eq!((s.refusals.saturated, s.refusals.expired), (4, 1), "{s:?}");
            assert_eq!((s.refused, s.waiting), (5, 0), "{s:?}");

            thread::scope(|s| {
                let _opener = gate.opener();
                let waits = pool.when_full(WhenFull::BlockFor(LONG));
                let serve = s.spawn(move || waits.serve(|| ()).is_ok());
                let call = s.spawn(move || waits.do_with_deadline(|| 7, Duration::MAX));
                wait_in_line(&pool, 2);
                gate.open();
                assert!(serve.join().unwrap());
                assert_eq!(call.join().unwrap().unwrap(), 7);
            });
            let s = settle(&pool);
            assert_eq!((s.waiting, s.refused), (0, 5), "{s:?}");
        }
    });
}

// ---------------------------------------------------------------------------------------------
// On workers
// ---------------------------------------------------------------------------------------------

/// Law 14: on a worker of its own pool, nothing waits for room. `serve` may queue its task; beyond
/// the queue it is refused as `OnWorker`, or as `Saturated` where the policy would not wait.
/// `do_with_deadline` and `Scope::serve` never queue. See ants 197.
#[test]
fn law14_nothing_waits_for_room_on_a_worker_of_the_pool() {
    timed(|| {
        for policy in [
            WhenFull::Refuse,
            WhenFull::Block,
            WhenFull::BlockFor(LONG),
            WhenFull::BlockFor(Duration::ZERO),
        ] {
            for queue in [0, 2] {
                let pool = Arc::new(pool(1, queue, policy));
                // The worker's thread exists now. While a thread is being started, no submission is
                // refused as `Saturated`.
                pool.do_with_deadline(|| (), LONG).unwrap();
                let ledger = Ledger::new(3 + queue);
                let books = ledger.clone();
                let served = on_worker(&pool, move |pool| {
                    for d in [ms(5), Duration::MAX] {
                        let refused = refused(pool.do_with_deadline(mark(&books, 0), d));
                        assert!(matches!(refused.reason(), Refusal::OnWorker), "{refused:?}");
                    }
                    let mut ran = false;
                    pool.scope(|s| nested(s.serve(|| ran = true)).caller_runs().ok());
                    assert!(ran);
                    (3..3 + queue).for_each(|id| must_serve(pool, mark(&books, id)));
                    assert_eq!(pool.stats().queued, queue);
                    let refused = pool.serve(mark(&books, 1)).unwrap_err();
                    let reason = refused.reason().as_str();
                    refused.run_anyway();
                    reason
                });
                let waits = !matches!(
                    policy,
                    WhenFull::Refuse | WhenFull::BlockFor(Duration::ZERO)
                );
                assert_eq!(
                    served,
                    if waits { "on_worker" } else { "saturated" },
                    "{policy}"
                );
                let s = settle(&pool);
                let saturated = u64::from(!waits);
                let refusals = (s.refusals.saturated, s.refusals.on_worker);
                assert_eq!(
                    (s.refused, refusals),
                    (4, (saturated, 4 - saturated)),
                    "{s:?}"
                );
                assert_eq!(s.completed, 2 + queue as u64, "{s:?}");
                assert_eq!(ledger.total_runs(), 1 + queue as u64);
                check_at_rest(&pool, &s);
            }
        }
    });
}

/// Law 14: nested calls go to idle or new workers, down to as many levels as there are workers. The
/// call one level deeper is refused although the queue has room, and nothing hangs.
#[test]
fn law14_nested_calls_go_as_deep_as_there_are_workers() {
    fn nest(pool: &Weak<Pool>, depth: usize) -> usize {
        let (strong, weak) = (pool.upgrade().unwrap(), Weak::clone(pool));
        assert_eq!(strong.stats().queued, 0);
        match strong.do_with_deadline(move || nest(&weak, depth + 1), Duration::MAX) {
            Ok(deepest) => deepest,
            outcome => {
                let refused = refused(outcome);
                assert!(matches!(refused.reason(), Refusal::OnWorker), "{refused:?}");
                depth
            }
        }
    }
    timed(|| {
        for (max, queue) in [(1, 0), (4, 0), (2, 8), (7, 5)] {
            let pool = Arc::new(pool(max, queue, WhenFull::Block));
            for round in 1..=rounds(30) {
                assert_eq!(nest(&Arc::downgrade(&pool), 0), max);
                let s = pool.stats();
                assert_eq!((s.running, s.refused), (0, round), "{s:?}");
                assert_eq!(s.spawned, max as u64, "{s:?}");
            }
        }
    });
}

/// Law 14: on a worker of another pool the policy holds as on any other thread.
#[test]
fn law14_a_worker_of_another_pool_waits() {
    timed(|| {
        let [other, own] = [(); 2].map(|()| Arc::new(pool(1, 0, WhenFull::Block)));
        let gate = Gate::new();
        fill(&other, &gate);
        thread::scope(|s| {
            let _opener = gate.opener();
            let (inner, key) = (Arc::clone(&other), gate.key());
            let call = s.spawn(|| {
                on_worker(&own, move |_| {
                    let first = inner.serve(|| ()).map_err(Refused::without_closure);
                    let value = inner.do_with_deadline(|| 9, LONG);
                    (first.is_ok(), key.is_open(), value.ok())
                })
            });
            wait_in_line(&other, 1);
            gate.open();
            assert_eq!(call.join().unwrap(), (true, true, Some(9)));
        });
    });
}
