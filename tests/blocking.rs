//! Laws 14 (blocking) and 20 (in line).

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc, Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{Builder, DeadlineError, Pool, Refusal, Refused, WhenFull};

fn pool(max: usize, queue: usize, policy: WhenFull) -> Pool {
    Pool::builder()
        .max_workers(max)
        .queue_capacity(queue)
        .when_full(policy)
        .build()
        .expect("pool")
}

/// Fills the pool with tasks at the gate.
fn fill(pool: &Pool, gate: &Gate) {
    for _ in 0..pool.max_workers() + pool.queue_capacity() {
        must_serve(pool, gate.task());
    }
    gate.wait_entered(pool.max_workers());
}

/// Law 14: `serve` waits for room and takes it as soon as there is some.
#[test]
fn law14_serve_waits_for_room() {
    timed(|| {
        for (max, queue) in [(1, 0), (2, 0), (1, 2)] {
            for view in [false, true] {
                let pool = pool(max, queue, WhenFull::Block);
                let gate = Gate::new();
                fill(&pool, &gate);
                let one = Gate::new();
                thread::scope(|s| {
                    let _opener = gate.opener();
                    let call = s.spawn(|| {
                        let key = gate.key();
                        let outcome = if view {
                            pool.labeled("waits").serve(one.task())
                        } else {
                            pool.serve(one.task())
                        };
                        outcome.unwrap();
                        key.is_open()
                    });
                    thread::sleep(ms(40));
                    assert!(!call.is_finished(), "did not wait for room");
                    assert_eq!(one.entered(), 0);
                    let s = pool.stats();
                    assert_eq!((s.refused, s.accepted), (0, (max + queue) as u64), "{s:?}");
                    gate.open();
                    assert!(call.join().unwrap(), "there was no room yet");
                });
                one.wait_entered(1);
                one.open();
                let s = settle(&pool);
                assert_eq!(s.completed, (max + queue) as u64 + 1, "{s:?}");
            }
        }
    });
}

/// Law 14: one place that becomes free lets one waiting caller in; the others go on waiting.
#[test]
fn law14_one_place_lets_one_caller_in() {
    timed(|| {
        let pool = pool(2, 0, WhenFull::Block);
        let held = Gate::new();
        let first = Gate::new();
        must_serve(&pool, held.task());
        must_serve(&pool, first.task());
        held.wait_entered(1);
        first.wait_entered(1);
        let later = Gate::new();
        let entered = AtomicU64::new(0);
        thread::scope(|s| {
            let _openers = (held.opener(), later.opener());
            for _ in 0..4 {
                s.spawn(|| {
                    must_serve(&pool, later.task());
                    entered.fetch_add(1, Ordering::SeqCst);
                });
            }
            thread::sleep(ms(30));
            assert_eq!(entered.load(Ordering::SeqCst), 0);
            first.open();
            wait_until("one caller to get in", || {
                entered.load(Ordering::SeqCst) == 1
            });
            later.wait_entered(1);
            thread::sleep(ms(30));
            assert_eq!(entered.load(Ordering::SeqCst), 1, "more callers than room");
        });
        assert_eq!(settle(&pool).completed, 6);
    });
}

/// Law 14: every caller that waits gets in. With many more callers than room, no caller is refused
/// and every task runs once.
#[test]
fn law14_every_waiting_caller_gets_in() {
    timed(|| {
        for (max, queue, idle) in [
            (1, 0, ms(1)),
            (2, 0, Duration::MAX),
            (1, 2, Duration::MAX),
            (2, 3, ms(1)),
        ] {
            let pool = Pool::builder()
                .max_workers(max)
                .queue_capacity(queue)
                .when_full(WhenFull::Block)
                .idle_timeout(idle)
                .build()
                .unwrap();
            let n = rounds(250) as usize;
            let ledger = Ledger::new(10 * n);
            thread::scope(|s| {
                for part in 0..10 {
                    let (pool, ledger) = (&pool, &ledger);
                    s.spawn(move || {
                        for id in part * n..(part + 1) * n {
                            let entry = ledger.entry(id);
                            if part % 2 == 0 {
                                must_serve(pool, move || entry.run());
                            } else {
                                let d = if part == 1 { Duration::MAX } else { LONG };
                                pool.do_with_deadline(move || entry.run(), d).unwrap();
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
        for (max, queue) in [(1, 0), (1, 2)] {
            let pool = pool(max, queue, WhenFull::Block);
            let gate = Gate::new();
            fill(&pool, &gate);
            let ledger = Ledger::new(5);
            for (i, d) in [1, 5, 30, 60].into_iter().map(ms).enumerate() {
                let entry = ledger.entry(i);
                let start = Instant::now();
                let outcome = pool.do_with_deadline(move || entry.run(), d);
                assert!(start.elapsed() >= d, "returned before its deadline");
                match outcome {
                    Err(DeadlineError::Expired(f)) => {
                        assert_eq!((ledger.runs(i), ledger.drops(i)), (0, 0));
                        drop(f);
                    }
                    other => panic!("{other:?}"),
                }
                let s = pool.stats();
                assert_eq!((s.refused, s.expired), (i as u64 + 1, 0), "{s:?}");
                assert_eq!(s.accepted, (max + queue) as u64, "{s:?}");
                check_at_rest(&pool, &s);
            }
            // If there is room in time, the task runs.
            thread::scope(|s| {
                let _opener = gate.opener();
                let entry = ledger.entry(4);
                let call = s.spawn(|| pool.do_with_deadline(move || entry.run(), LONG));
                thread::sleep(ms(20));
                assert_eq!(ledger.runs(4), 0);
                gate.open();
                call.join().unwrap().unwrap();
            });
            assert_eq!(ledger.total_runs(), 1);
        }
    });
}

/// Law 14: a queued task that expires makes room as one that runs does: each lets one caller in.
#[test]
fn law14_a_task_that_does_not_start_makes_room_too() {
    timed(|| {
        let pool = Arc::new(pool(1, 2, WhenFull::Block));
        let (first, second) = (Gate::new(), Gate::new());
        must_serve(&pool, first.task());
        first.wait_entered(1);
        let doomed = Arc::clone(&pool);
        let doomed = thread::spawn(move || {
            let never = doomed.min_remaining(Duration::from_secs(7200));
            let outcome = never.do_with_deadline(|| (), Duration::from_secs(3600));
            matches!(outcome, Err(DeadlineError::Expired(_)))
        });
        wait_until("a task without enough time", || pool.stats().queued == 1);
        must_serve(&pool, second.task());
        let blocked: Vec<_> = (0..2)
            .map(|_| {
                let pool = Arc::clone(&pool);
                thread::spawn(move || must_serve(&pool, || ()))
            })
            .collect();
        wait_until("two callers to wait for room", || pool.stats().waiting == 2);
        first.open();
        second.wait_entered(1);
        for caller in blocked {
            caller.join().unwrap();
        }
        assert!(doomed.join().unwrap(), "the closure came back");
        assert_eq!(pool.stats().queued, 2);
        second.open();
        let s = settle(&pool);
        assert_eq!((s.completed, s.expired), (4, 1), "{s:?}");
    });
}

/// Law 14: callers that give up take no room. It goes to callers that still wait.
#[test]
fn law14_callers_that_give_up_take_no_room() {
    timed(|| {
        for queue in [0, 1] {
            let pool = pool(1, queue, WhenFull::Block);
            for round in 1..=rounds(30) {
                let gate = Gate::new();
                fill(&pool, &gate);
                let ran = Arc::new(AtomicU64::new(0));
                thread::scope(|s| {
                    let _opener = gate.opener();
                    for i in 0..4 {
                        let pool = &pool;
                        s.spawn(move || {
                            let d = Duration::from_micros(200 + 300 * i);
                            let outcome = pool.do_with_deadline(|| (), d);
                            assert!(matches!(outcome, Err(DeadlineError::Expired(_))));
                        });
                    }
                    let stays = s.spawn(|| {
                        let mark = Arc::clone(&ran);
                        must_serve(&pool, move || {
                            mark.fetch_add(1, Ordering::SeqCst);
                        });
                    });
                    wait_until("the other callers to leave", || {
                        pool.stats().refused == 4 * round
                    });
                    thread::sleep(ms(3));
                    gate.open();
                    stays.join().unwrap();
                });
                settle(&pool);
                assert_eq!(ran.load(Ordering::SeqCst), 1);
            }
        }
    });
}

/// Law 14: with `BlockFor`, `serve` waits that long for room and is then refused as `Saturated`.
/// `do_with_deadline` waits for that time or until its deadline, whichever is earlier.
#[test]
fn law14_block_for_waits_only_so_long() {
    timed(|| {
        for (max, queue) in [(1, 0), (1, 2)] {
            let limit = ms(30);
            let pool = pool(max, queue, WhenFull::BlockFor(limit));
            let gate = Gate::new();
            fill(&pool, &gate);

            let start = Instant::now();
            let refused = pool.serve(|| ()).unwrap_err();
            assert!(start.elapsed() >= limit, "refused too early");
            assert!(matches!(refused.reason(), Refusal::Saturated));

            for d in [LONG, Duration::MAX] {
                let start = Instant::now();
                match pool.do_with_deadline(|| (), d) {
                    Err(DeadlineError::Refused(refused)) => assert!(refused.is_saturated()),
                    other => panic!("{other:?}"),
                }
                assert!(start.elapsed() >= limit, "refused too early");
            }
            let expired = pool.do_with_deadline(|| (), ms(1));
            assert!(matches!(expired, Err(DeadlineError::Expired(_))));

            let s = pool.stats();
            assert_eq!((s.refusals.saturated, s.refusals.expired), (3, 1), "{s:?}");
            assert_eq!((s.refused, s.waiting), (4, 0), "{s:?}");
            gate.open();
            settle(&pool);
        }
    });
}

/// Law 14: with `BlockFor`, a submission takes room that it gets in time. `Stats::waiting` counts
/// it while it waits.
#[test]
fn law14_block_for_takes_room_in_time() {
    timed(|| {
        for queue in [0, 1] {
            let pool = pool(1, queue, WhenFull::BlockFor(LONG));
            let gate = Gate::new();
            fill(&pool, &gate);
            thread::scope(|s| {
                let _opener = gate.opener();
                let serve = s.spawn(|| pool.serve(|| ()).is_ok());
                let call = s.spawn(|| pool.do_with_deadline(|| 7, Duration::MAX).unwrap());
                wait_until("both submissions to wait", || pool.stats().waiting == 2);
                gate.open();
                assert!(serve.join().unwrap());
                assert_eq!(call.join().unwrap(), 7);
            });
            let s = settle(&pool);
            assert_eq!((s.waiting, s.refused), (0, 0), "{s:?}");
        }
        // A wait of zero is like `Refuse`.
        let pool = pool(1, 0, WhenFull::BlockFor(Duration::ZERO));
        let gate = Gate::new();
        fill(&pool, &gate);
        let refused = pool.serve(|| ()).unwrap_err();
        assert!(matches!(refused.reason(), Refusal::Saturated));
        gate.open();
    });
}

/// Law 14: a call that would have to wait on a worker of its own pool is refused as `OnWorker`. A
/// `serve` with the policy `Refuse` would not wait, so it is refused as `Saturated` there as
/// anywhere.
#[test]
fn law14_what_would_wait_on_a_worker_is_refused_as_that() {
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
                let (serve, call, scoped) = on_worker(&pool, move |pool| {
                    let call = match pool.do_with_deadline(|| (), LONG) {
                        Err(DeadlineError::Refused(refused)) => refused.into_parts().1,
                        other => panic!("{other:?}"),
                    };
                    let mut ran = false;
                    let scoped = pool.scope(|s| {
                        let refused = s.serve(|| ran = true).unwrap_err();
                        matches!(refused.reason(), Refusal::OnWorker)
                            && refused.caller_runs().is_ok()
                    });
                    for _ in 0..queue {
                        must_serve(pool, || ());
                    }
                    let serve = pool.serve(|| ()).unwrap_err();
                    (serve.into_parts().1, call, scoped && ran)
                });
                assert!(matches!(call, Refusal::OnWorker), "{policy}: {call:?}");
                assert!(scoped, "{policy}");
                let saturated = match policy {
                    WhenFull::Refuse | WhenFull::BlockFor(Duration::ZERO) => {
                        assert!(matches!(serve, Refusal::Saturated), "{policy}: {serve:?}");
                        1
                    }
                    _ => {
                        assert!(matches!(serve, Refusal::OnWorker), "{policy}: {serve:?}");
                        0
                    }
                };
                let s = settle(&pool);
                let counts = (s.refusals.saturated, s.refusals.on_worker);
                assert_eq!(
                    (s.refused, counts),
                    (3, (saturated, 3 - saturated)),
                    "{s:?}"
                );
            }
        }
    });
}

/// Runs `f` on a worker of the pool and returns its result.
fn on_worker<R: Send + 'static>(
    pool: &Arc<Pool>,
    f: impl FnOnce(&Pool) -> R + Send + 'static,
) -> R {
    // Weak, so that the last handle is not dropped on the worker.
    let weak: Weak<Pool> = Arc::downgrade(pool);
    pool.do_with_deadline(move || f(&weak.upgrade().unwrap()), Duration::MAX)
        .unwrap()
}

/// Law 14: on a worker of its own pool a submission never waits for room, under any policy: a full
/// pool refuses it at once. See ants 197.
#[test]
fn law14_a_task_never_waits_for_room_in_its_own_pool() {
    timed(|| {
        for policy in [WhenFull::Refuse, WhenFull::Block] {
            for queue in [0, 2] {
                let pool = Arc::new(pool(1, queue, policy));
                let ledger = Ledger::new(2);
                let inner = ledger.clone();
                let refused = on_worker(&pool, move |pool| {
                    for _ in 0..queue {
                        // `serve` may queue its task, since the queue has room.
                        must_serve(pool, || ());
                    }
                    let entry = inner.entry(0);
                    let served = pool.serve(move || entry.run());
                    let served = match policy {
                        WhenFull::Refuse => saturated(served),
                        _ => nested(served),
                    };
                    let entry = inner.entry(1);
                    let mut all = Vec::new();
                    for d in [ms(5), LONG, Duration::MAX] {
                        match pool.do_with_deadline(|| (), d) {
                            Err(DeadlineError::Refused(r)) => all.push(r.reason().as_str()),
                            other => panic!("{other:?}"),
                        }
                    }
                    match pool
                        .labeled("inner")
                        .do_with_deadline(move || entry.run(), Duration::MAX)
                    {
                        Err(DeadlineError::Refused(r)) => all.push(r.reason().as_str()),
                        other => panic!("{other:?}"),
                    }
                    served.run_anyway();
                    all
                });
                assert_eq!(refused, ["on_worker"; 4]);
                assert_eq!((ledger.runs(0), ledger.runs(1)), (1, 0));
                assert_eq!(ledger.drops(1), 1);
                let s = settle(&pool);
                assert_eq!(s.refused, 5, "{s:?}");
                assert_eq!(s.completed, 1 + queue as u64, "{s:?}");
                check_at_rest(&pool, &s);
            }
        }
    });
}

/// Law 14: a task that a worker of the pool serves may wait in the queue. It runs once a worker is
/// free.
#[test]
fn law14_serve_on_a_worker_may_queue() {
    timed(|| {
        let pool = Arc::new(pool(1, 3, WhenFull::Block));
        let (tx, rx) = mpsc::channel();
        on_worker(&pool, move |pool| {
            for i in 0..3 {
                let tx = tx.clone();
                must_serve(pool, move || tx.send(i).unwrap());
            }
            assert_eq!(pool.stats().queued, 3);
        });
        let got: Vec<i32> = rx.iter().collect();
        assert_eq!(got.len(), 3);
    });
}

/// Law 14: `do_with_deadline` on a worker never queues. An idle or a new worker takes the task; if
/// there is neither, the call is refused even though the queue has room.
#[test]
fn law14_do_with_deadline_on_a_worker_never_queues() {
    timed(|| {
        for policy in [WhenFull::Refuse, WhenFull::Block] {
            let pool = Arc::new(pool(2, 8, policy));
            // The first call starts a worker; the next ones find it idle.
            for _ in 0..3 {
                let value = on_worker(&pool, |pool| {
                    pool.do_with_deadline(|| 6, Duration::MAX).unwrap() + 1
                });
                assert_eq!(value, 7);
            }
            assert_eq!(pool.stats().spawned, 2);
            // No worker is left for the third level, so that call is refused.
            let weak = Arc::downgrade(&pool);
            let refused = on_worker(&pool, move |pool| {
                pool.do_with_deadline(
                    move || {
                        let pool = weak.upgrade().unwrap();
                        let s = pool.stats();
                        assert_eq!((s.running, s.queued), (2, 0), "{s:?}");
                        match pool.do_with_deadline(|| (), LONG) {
                            Err(DeadlineError::Refused(r)) => {
                                matches!(r.reason(), Refusal::OnWorker)
                            }
                            other => panic!("{other:?}"),
                        }
                    },
                    LONG,
                )
                .unwrap()
            });
            assert!(refused);
            let s = settle(&pool);
            assert_eq!((s.refused, s.expired, s.discarded), (1, 0, 0), "{s:?}");
            assert_eq!(s.spawned, 2);
        }
    });
}

/// Law 14: nested calls succeed down to as many levels as there are workers. The call one level
/// deeper is refused, and nothing hangs.
#[test]
fn law14_nested_calls_go_as_deep_as_there_are_workers() {
    fn nest(pool: &Weak<Pool>, depth: usize) -> usize {
        let strong = pool.upgrade().unwrap();
        let weak = Weak::clone(pool);
        match strong.do_with_deadline(move || nest(&weak, depth + 1), Duration::MAX) {
            Ok(deepest) => deepest,
            Err(DeadlineError::Refused(r)) if matches!(r.reason(), Refusal::OnWorker) => depth,
            Err(other) => panic!("{other:?}"),
        }
    }
    timed(|| {
        for (max, queue) in [(1, 0), (4, 0), (7, 5)] {
            let pool = Arc::new(pool(max, queue, WhenFull::Block));
            for _ in 0..rounds(30) {
                assert_eq!(nest(&Arc::downgrade(&pool), 0), max);
                assert_eq!(pool.stats().running, 0);
            }
        }
    });
}

/// Law 14: a start hook waits for a task that waits for another task, and nothing hangs. Once, the
/// inner task was given to the worker whose hook waits.
#[test]
fn law14_a_start_hook_waits_for_a_task_that_waits() {
    timed(|| {
        for queue in [0, 4] {
            let (send, receive) = mpsc::channel();
            let (pool_to, pool_of) = mpsc::channel::<Weak<Pool>>();
            let pool_of = std::sync::Mutex::new(pool_of);
            let hook = move |slot| {
                if slot != 0 {
                    return;
                }
                let pool = pool_of.lock().unwrap().recv().unwrap().upgrade().unwrap();
                let inner = Arc::clone(&pool);
                let outer = move || {
                    let call = inner.do_with_deadline(|| (), Duration::MAX);
                    let scope = inner.scope(|s| s.serve(|| ()).map_err(Refused::without_closure));
                    (call.map_err(DeadlineError::without_closure), scope)
                };
                let seen = pool.do_with_deadline(outer, Duration::MAX);
                drop(pool);
                send.send(seen.map_err(DeadlineError::without_closure))
                    .unwrap();
            };
            let pool = Pool::builder()
                .max_workers(2)
                .queue_capacity(queue)
                .on_worker_start(hook)
                .build()
                .expect("pool");
            let pool = Arc::new(pool);
            pool_to.send(Arc::downgrade(&pool)).unwrap();
            must_serve(&pool, || ());
            let (call, scope) = receive
                .recv_timeout(LONG)
                .expect("the calls in the hook return")
                .unwrap();
            match (call, scope) {
                (Err(DeadlineError::Refused(call)), Err(scope)) => {
                    assert!(matches!(call.reason(), Refusal::OnWorker), "{call:?}");
                    assert!(matches!(scope.reason(), Refusal::OnWorker), "{scope:?}");
                }
                seen => panic!("both workers wait: {seen:?}"),
            }
        }
    });
}

/// Law 14: on a worker of another pool the policy holds as on any other thread.
#[test]
fn law14_a_worker_of_another_pool_waits() {
    timed(|| {
        let other = Arc::new(pool(1, 0, WhenFull::Block));
        let own = pool(1, 0, WhenFull::Block);
        let gate = Gate::new();
        fill(&other, &gate);
        thread::scope(|s| {
            let _opener = gate.opener();
            let inner = Arc::clone(&other);
            let key = gate.key();
            let call = s.spawn(|| {
                own.do_with_deadline(
                    move || {
                        let first = inner.serve(|| ()).map_err(Refused::without_closure);
                        let open = key.is_open();
                        let value = inner.do_with_deadline(|| 9, LONG);
                        drop(inner);
                        (first.is_ok(), open, value.ok())
                    },
                    Duration::MAX,
                )
            });
            thread::sleep(ms(40));
            assert!(!call.is_finished(), "did not wait for the other pool");
            gate.open();
            let seen = call.join().unwrap().unwrap();
            assert_eq!(seen, (true, true, Some(9)));
        });
    });
}

/// Law 14: the default policy is to refuse.
#[test]
fn law14_the_default_refuses() {
    timed(|| {
        let pool = Pool::builder().max_workers(1).build().unwrap();
        let gate = Gate::new();
        fill(&pool, &gate);
        saturated(pool.serve(|| ()));
        match pool.do_with_deadline(|| (), Duration::MAX) {
            Err(DeadlineError::Refused(refused)) => assert!(refused.is_saturated()),
            other => panic!("{other:?}"),
        }
    });
}

/// Returns a pool in which one hook waits at the gate on each worker.
fn hooked(max: usize, queue: usize, set: impl FnOnce(Builder) -> Builder) -> Pool {
    let builder = Pool::builder().max_workers(max).queue_capacity(queue);
    set(builder).build().expect("pool")
}

/// Returns the CPU time that the calling thread has used so far.
#[cfg(target_os = "linux")]
fn own_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for the call.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "the system measures the thread's CPU time");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Asserts that the call waits while the gate is shut, and hardly uses the CPU.
#[cfg(target_os = "linux")]
#[track_caller]
fn assert_sleeps(what: &str, gate: &Gate, call: impl FnOnce() + Send) {
    // About a thousand times as long as a submission may spin.
    const SHUT: Duration = ms(200);
    thread::scope(|s| {
        let _opener = gate.opener();
        let key = gate.key();
        let call = s.spawn(move || {
            let before = own_time();
            call();
            assert!(key.is_open(), "{what}: the call did not wait");
            own_time() - before
        });
        thread::sleep(SHUT);
        gate.open();
        let used = call.join().unwrap();
        assert!(used < SHUT / 4, "{what}: {used:?} of processor time");
    });
}

/// Law 20: a thread sleeps while it waits for room, for an outcome, or for the end of another
/// thread's task or hook.
#[cfg(target_os = "linux")]
#[test]
fn law20_who_waits_for_longer_does_not_spin() {
    timed(|| {
        for queue in [0, 2] {
            for with_value in [false, true] {
                let pool = pool(1, queue, WhenFull::Block);
                let gate = Gate::new();
                fill(&pool, &gate);
                assert_sleeps("for room", &gate, || match with_value {
                    false => pool.serve(|| ()).unwrap(),
                    true => pool.do_with_deadline(|| (), LONG).unwrap(),
                });
            }

            let pool = pool(1, queue, WhenFull::Refuse);
            let gate = Gate::new();
            assert_sleeps("for its outcome", &gate, || {
                pool.do_with_deadline(gate.task(), LONG).unwrap();
            });
        }

        let pool = pool(1, 2, WhenFull::Refuse);
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        assert_sleeps("in the queue", &gate, || {
            pool.do_with_deadline(|| (), LONG).unwrap();
        });
        let group = pool.group();
        let gate = Gate::new();
        group.serve(gate.task()).unwrap();
        assert_sleeps("for a group", &gate, || group.wait());
        let gate = Gate::new();
        assert_sleeps("for a scope", &gate, || {
            pool.scope(|s| s.serve(gate.task()).unwrap());
        });
    });
}

/// Law 20: a thread that waits for a worker in a hook sleeps.
#[cfg(target_os = "linux")]
#[test]
fn law20_who_waits_for_a_hook_does_not_spin() {
    timed(|| {
        for queue in [0, 2] {
            let gate = Gate::new();
            let key = gate.key();
            let pool = hooked(1, queue, |b| b.on_worker_start(move |_| key.pass()));
            assert_sleeps("for a start hook", &gate, || {
                pool.do_with_deadline(|| (), LONG).unwrap();
            });
            drop(pool);

            let gate = Gate::new();
            let key = gate.key();
            let pool = hooked(1, queue, |b| {
                b.on_worker_stop(move |_| key.pass())
                    .idle_timeout(Duration::ZERO)
                    .when_full(WhenFull::Block)
            });
            must_serve(&pool, || ());
            gate.wait_entered(1);
            // The only slot belongs to the worker in its stop hook, which is busy.
            assert_sleeps("for a stop hook", &gate, || {
                pool.do_with_deadline(|| (), LONG).unwrap();
            });
            assert_eq!(settle(&pool).completed, 2);
        }
    });
}

/// Law 20: the release of a finished task's caller waits for no thread except its worker. It does
/// not wait for workers in hooks, submitters that wait for room, or threads that discard tasks.
#[test]
fn law20_a_caller_is_released_whoever_else_is_held_up() {
    timed(|| {
        for queue in [0, 2] {
            let gate = Gate::new();
            // Each slot is held up at a different place. The caller's worker has slot 0.
            let (start, panicked) = (gate.key(), gate.key());
            let pool = hooked(4, queue, |b| {
                b.when_full(WhenFull::Block)
                    .idle_timeout(Duration::MAX)
                    .on_worker_start(move |slot| {
                        if slot == 1 {
                            start.pass();
                        }
                    })
                    .on_panic(move |_| panicked.pass())
            });
            let (started, running) = mpsc::channel();
            let (finish, finishing) = mpsc::channel::<()>();
            thread::scope(|s| {
                let _opener = gate.opener();
                let pool = &pool;
                let call = s.spawn(move || {
                    let task = move || {
                        started.send(lazypool::task::slot()).unwrap();
                        finishing.recv().is_ok()
                    };
                    pool.do_with_deadline(task, LONG).unwrap()
                });
                assert_eq!(running.recv().unwrap(), Some(0));
                // One worker is in its start hook, with a task; one is in the panic hook; one runs
                // a task.
                must_serve(pool, || ());
                gate.wait_entered(1);
                must_serve(pool, || quiet_panic("on purpose"));
                gate.wait_entered(2);
                must_serve(pool, gate.task());
                gate.wait_entered(3);
                for _ in 0..queue {
                    must_serve(pool, gate.task());
                }
                // Two submitters wait in line. The room that the caller's worker makes goes to the
                // first of them.
                for _ in 0..2 {
                    s.spawn(|| pool.serve(gate.task()).unwrap());
                }
                wait_until("two submitters to wait for room", || {
                    pool.stats().waiting == 2
                });
                finish.send(()).unwrap();
                wait_until("the caller's release", || call.is_finished());
                assert!(call.join().unwrap());
                assert!(!gate.key().is_open());
            });
            let stats = settle(&pool);
            assert_eq!((stats.completed, stats.panicked), (5 + queue as u64, 1));
            check_at_rest(&pool, &stats);
        }
    });
}

/// Law 20: submissions that wait get room exactly in the order in which they came, also those that
/// come while the line moves.
#[test]
fn law20_the_line_is_served_in_its_order() {
    const FIRST: usize = 4;
    timed(|| {
        for queue in [0, 2] {
            let pool = Arc::new(pool(1, queue, WhenFull::Block));
            let order = Arc::new(Mutex::new(Vec::new()));
            let (permit, permits) = mpsc::channel::<()>();
            let permits = Arc::new(Mutex::new(permits));
            let mut made = 0;
            let mut task = || {
                let (order, permits, id) = (Arc::clone(&order), Arc::clone(&permits), made);
                made += 1;
                move || {
                    order.lock().unwrap().push(id);
                    permits.lock().unwrap().recv().expect("a permit");
                }
            };
            for _ in 0..1 + queue {
                must_serve(&pool, task());
            }
            let mut submitters = Vec::new();
            let mut join = |waiting: usize, submitters: &mut Vec<_>| {
                let (own, task) = (Arc::clone(&pool), task());
                submitters.push(thread::spawn(move || must_serve(&own, task)));
                wait_until("the submitter to wait", || pool.stats().waiting == waiting);
            };
            for n in 0..FIRST {
                join(n + 1, &mut submitters);
            }
            for left in (0..2 * FIRST).rev() {
                permit.send(()).unwrap();
                let waiting = left.min(FIRST - 1);
                wait_until("a submitter to be served", || {
                    pool.stats().waiting == waiting
                });
                if left >= FIRST {
                    join(FIRST, &mut submitters);
                }
            }
            for _ in 0..1 + queue {
                permit.send(()).unwrap();
            }
            for submitter in submitters {
                submitter.join().unwrap();
            }
            let stats = settle(&pool);
            let all = 1 + queue + 2 * FIRST;
            assert_eq!(stats.completed, all as u64, "{stats:?}");
            assert_eq!(*order.lock().unwrap(), (0..all).collect::<Vec<_>>());
        }
    });
}

/// Sets the flag when it is dropped, so that a failing test ends its threads too.
struct SetsAtEnd<'a>(&'a AtomicBool);

impl Drop for SetsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Law 20: threads that do not wait, but retry in a loop, do not overtake a waiting submission
/// without end. Its turn comes within milliseconds.
#[test]
fn law20_who_waits_is_not_overtaken_by_those_who_retry() {
    // The retrying threads may get some places before the waiting task's turn comes and this thread
    // wakes. Without the guarantee they got hundreds of thousands.
    const MANY: u64 = 50_000;
    timed(|| {
        for (retry, queue) in [(1, 0), (1, 1), (2, 1), (2, 16)] {
            let pool = pool(1, queue, WhenFull::Block);
            let (over, taken) = (AtomicBool::new(false), AtomicU64::new(0));
            thread::scope(|s| {
                let _over = SetsAtEnd(&over);
                for _ in 0..retry {
                    s.spawn(|| {
                        let refusing = pool.when_full(WhenFull::Refuse);
                        while !over.load(Ordering::SeqCst) {
                            let served = refusing.serve(|| spin(Duration::from_micros(5)));
                            taken.fetch_add(u64::from(served.is_ok()), Ordering::SeqCst);
                        }
                    });
                }
                wait_until("the retrying threads to run", || {
                    taken.load(Ordering::SeqCst) > 100
                });
                for _ in 0..rounds(50) {
                    // Set after the submission has waited for 10 ms. Places taken before that do
                    // not count.
                    let before = AtomicU64::new(u64::MAX);
                    let served = AtomicBool::new(false);
                    let most = thread::scope(|s| {
                        s.spawn(|| {
                            thread::sleep(ms(10));
                            if !served.load(Ordering::SeqCst) {
                                before.store(taken.load(Ordering::SeqCst), Ordering::SeqCst);
                            }
                        });
                        must_serve(&pool, || ());
                        served.store(true, Ordering::SeqCst);
                        let now = taken.load(Ordering::SeqCst);
                        now.saturating_sub(before.load(Ordering::SeqCst))
                    });
                    assert!(most < MANY, "overtaken {most} times");
                }
            });
            check_at_rest(&pool, &settle(&pool));
        }
    });
}

/// Laws 1 and 20: neither `Refuse` nor `BlockFor` waits for the stop hook of a worker that ends
/// because the limit was lowered, since its end makes no room. Once, both waited for it.
#[test]
fn law20_no_policy_waits_for_the_hook_of_a_surplus_worker() {
    timed(|| {
        let hook = Gate::new();
        let key = hook.key();
        let pool = hooked(2, 0, |b| b.on_worker_stop(move |_| key.pass()));
        let _open = hook.opener();
        let (stays, ends) = (Gate::new(), Gate::new());
        must_serve(&pool, stays.task());
        must_serve(&pool, ends.task());
        stays.wait_entered(1);
        ends.wait_entered(1);
        pool.set_limit(1).unwrap();
        thread::scope(|s| {
            let _openers = (hook.opener(), stays.opener(), ends.opener());
            // This call begins to wait before the hook runs, and waits while it runs.
            let waits = s.spawn(|| {
                let start = Instant::now();
                let refused = pool.when_full(WhenFull::BlockFor(ms(1000))).serve(|| ());
                (saturated(refused).is_saturated(), start.elapsed())
            });
            wait_until("the submission to wait", || pool.stats().waiting == 1);
            ends.open();
            hook.wait_entered(1);
            saturated(pool.serve(|| ()));
            let (_, took) = waits.join().unwrap();
            assert!(took >= ms(1000), "{took:?}");
            saturated(pool.when_full(WhenFull::BlockFor(ms(5))).serve(|| ()));
            assert_eq!((pool.limit(), pool.stats().workers), (1, 2));
        });
        check_at_rest(&pool, &settle(&pool));
    });
}
