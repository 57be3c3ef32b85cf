//! Laws 14 (blocking) and 20 (in line): submissions that wait for space, and those on a worker,
//! which do not.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Weak};
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{Builder, Pool, WhenFull};

fn pool(max: usize, queue: usize, policy: WhenFull) -> Pool {
    pool_with(max, queue, |b| b.when_full(policy))
}

// ---------------------------------------------------------------------------------------------
// Law 14, on threads that are no workers of the pool
// ---------------------------------------------------------------------------------------------

/// Law 14: `serve` waits for space. One place that becomes free lets one caller in; the others go on
/// waiting.
#[test]
fn law14_one_place_lets_one_caller_in() {
    timed_each([0, 2], |queue| {
        let pool = pool(2, queue, WhenFull::Block);
        let (held, first, later) = (Gate::new(), Gate::new(), Gate::new());
        occupy(&pool, &first, 1);
        (0..=queue).for_each(|_| must_serve(&pool, held.task()));
        held.wait_entered(1);
        let entered = Tally::default();
        thread::scope(|s| {
            let _openers = (held.opener(), later.opener());
            for _ in 0..4 {
                s.spawn(|| {
                    must_serve(&pool, later.task());
                    entered.add(1);
                });
            }
            wait_in_line(&pool, 4);
            assert_stats!(pool.stats(), refused: 0, accepted: 2 + queue as u64);
            first.open();
            wait_until("a caller to get in", || entered.get() > 0);
            thread::sleep(ms(30));
            assert_eq!(entered.get(), 1, "more callers than space");
            assert_eq!(pool.stats().waiting, 3);
        });
        assert_eq!(settle(&pool).completed, 6 + queue as u64);
    });
}

/// Law 14: with more callers than space, no caller is refused and every task runs once. Space that
/// comes up as a caller joins the line is not missed, even if no other caller looks for it.
#[test]
fn law14_every_waiting_caller_gets_in() {
    let cases = [
        (1, 0, ms(1), 10),
        (1, 0, Duration::MAX, 2),
        (2, 0, Duration::MAX, 10),
        (1, 0, Duration::MAX, 1),
        (1, 2, Duration::MAX, 10),
        (2, 3, ms(1), 10),
    ];
    timed_each(cases, |(max, queue, idle, callers)| {
        let blocks = |b: Builder| b.idle_timeout(idle).when_full(WhenFull::Block);
        let pool = pool_with(max, queue, blocks);
        // Beside few callers, tasks end at any moment of the next caller's attempt.
        let (tasks, most) = if callers > 2 { (3000, 1) } else { (15_000, 40) };
        let n = rounds(tasks) as usize / callers;
        let ledger = Ledger::new(callers * n);
        on_threads(callers, |caller, mut rng| {
            for id in caller * n..(caller + 1) * n {
                let work = Duration::from_micros(rng.below(most));
                let run = ledger.task(id);
                let task = move || {
                    spin(work);
                    run();
                };
                match caller {
                    2 => pool.do_with_deadline(task, Duration::MAX).unwrap(),
                    3..7 => pool.do_with_deadline(task, LONG).unwrap(),
                    _ => must_serve(&pool, task),
                }
            }
        });
        assert_stats!(settle(&pool), refused: 0, completed: (callers * n) as u64);
        ledger.assert_all_ran();
    });
}

/// Law 14: `do_with_deadline` waits for space within its deadline, then returns `Expired`. The task
/// was never accepted, so it counts as refused. `deadline.rs`: one that gets space in time.
#[test]
fn law14_do_with_deadline_waits_within_its_deadline() {
    timed_each([0, 2], |queue| {
        let pool = pool(1, queue, WhenFull::Block);
        let _gate = filled(&pool);
        let ledger = Ledger::new(3);
        for (id, d) in [1, 5, 30].map(ms).into_iter().enumerate() {
            let back = takes(d, || expired(pool.do_with_deadline(ledger.task(id), d)));
            assert_eq!(ledger.fate(id), (0, 0));
            drop(back);
            assert_stats!(check_at_rest(&pool), refused: id as u64 + 1, expired: 0,
                accepted: 1 + queue as u64);
        }
        ledger.assert_none_ran();
    });
}

/// Law 14: a queued task that expires at its turn makes space as one that runs does: each lets one
/// caller in.
#[test]
fn law14_a_task_that_does_not_start_makes_space_too() {
    timed(|| {
        let pool = pool(1, 2, WhenFull::Block);
        let (first, second) = (Gate::new(), Gate::new());
        occupy(&pool, &first, 1);
        thread::scope(|s| {
            let _openers = (first.opener(), second.opener());
            let late = pool.min_remaining(2 * LONG);
            let doomed = s.spawn(move || expired(late.do_with_deadline(|| (), LONG)));
            await_queued(&pool, 1);
            must_serve(&pool, second.task());
            let callers = [(); 2].map(|()| s.spawn(|| must_serve(&pool, || ())));
            wait_in_line(&pool, 2);
            first.open();
            second.wait_entered(1);
            for caller in callers {
                caller.join().unwrap();
            }
            doomed.join().unwrap();
            assert_eq!(pool.stats().queued, 2);
        });
        assert_stats!(settle(&pool), completed: 4, expired: 1);
    });
}

/// Law 14: with `BlockFor`, `serve` waits that long for space and is then refused as `Saturated`.
/// `do_with_deadline` waits for that time or until its deadline, whichever is earlier. Both take
/// space that they get in time.
#[test]
fn law14_block_for_waits_only_so_long() {
    timed_each([0, 2], |queue| {
        let limit = ms(30);
        let pool = pool(1, queue, WhenFull::BlockFor(limit));
        let gate = filled(&pool);
        takes(limit, || saturated(pool.serve(|| ())));
        for d in [LONG, Duration::MAX] {
            let refused = takes(limit, || refused(pool.do_with_deadline(|| (), d)));
            assert!(refused.is_saturated());
        }
        expired(pool.do_with_deadline(|| (), ms(1)));
        let at_once = pool.when_full(WhenFull::BlockFor(Duration::ZERO));
        saturated(at_once.serve(|| ()));
        assert_stats!(pool.stats(), refusals.saturated: 4, refusals.expired: 1, refused: 5,
            waiting: 0);

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
        assert_stats!(settle(&pool), waiting: 0, refused: 5);
    });
}

// ---------------------------------------------------------------------------------------------
// Law 14, on workers
// ---------------------------------------------------------------------------------------------

/// Law 14: on a worker of its own pool, nothing waits for space. `serve` may queue its task; beyond
/// the queue it is refused as `OnWorker`, or as `Saturated` where the policy would not wait.
/// `do_with_deadline` and `Scope::serve` never queue. See ants 197.
#[test]
fn law14_nothing_waits_for_space_on_a_worker_of_the_pool() {
    let cases = [
        WhenFull::Refuse,
        WhenFull::Block,
        WhenFull::BlockFor(LONG),
        WhenFull::BlockFor(Duration::ZERO),
    ];
    timed_each(product(cases, [0, 2]), |(policy, queue)| {
        let pool = Arc::new(pool(1, queue, policy));
        // The worker's thread exists now. While a thread is being started, no submission is
        // refused as `Saturated`.
        pool.do_with_deadline(|| (), LONG).unwrap();
        let ledger = Ledger::new(3 + queue);
        let books = ledger.clone();
        let served = on_worker(&pool, move |pool| {
            for d in [ms(5), Duration::MAX] {
                nested(Err(refused(pool.do_with_deadline(books.task(0), d))));
            }
            let mut ran = false;
            pool.scope(|s| nested(s.serve(|| ran = true)).caller_runs().ok());
            assert!(ran);
            (3..3 + queue).for_each(|id| must_serve(pool, books.task(id)));
            assert_eq!(pool.stats().queued, queue);
            let refused = pool.serve(books.task(1)).unwrap_err();
            let why = refused.reason().as_str();
            refused.run_anyway();
            assert_eq!(reason(pool.group().serve(|| ())), why);
            why
        });
        let at_once = [WhenFull::Refuse, WhenFull::BlockFor(Duration::ZERO)].contains(&policy);
        let expected = if at_once { "saturated" } else { "on_worker" };
        assert_eq!(served, expected, "{policy}");
        let saturated = 2 * u64::from(at_once);
        assert_stats!(at_rest(&pool), refused: 5, refusals.saturated: saturated,
            refusals.on_worker: 5 - saturated, completed: 2 + queue as u64);
        assert_eq!(ledger.total_runs(), 1 + queue as u64);
    });
}

/// Law 14: nested calls go to idle or new workers, down to as many levels as there are workers. The
/// call one level deeper is refused although the queue has space, and nothing hangs.
#[test]
fn law14_nested_calls_go_as_deep_as_there_are_workers() {
    fn nest(pool: &Weak<Pool>, depth: usize) -> usize {
        let (strong, weak) = (pool.upgrade().unwrap(), Weak::clone(pool));
        assert_eq!(strong.stats().queued, 0);
        match strong.do_with_deadline(move || nest(&weak, depth + 1), Duration::MAX) {
            Ok(deepest) => deepest,
            outcome => {
                nested(Err(refused(outcome)));
                depth
            }
        }
    }
    timed_each([(1, 0), (4, 0), (2, 8), (7, 5)], |(max, queue)| {
        let pool = Arc::new(pool(max, queue, WhenFull::Block));
        for round in 1..=rounds(30) {
            assert_eq!(nest(&Arc::downgrade(&pool), 0), max);
            assert_stats!(pool.stats(), running: 0, refused: round, spawned: max as u64);
        }
    });
}

// ---------------------------------------------------------------------------------------------
// Law 20. The order of the line: `serve_async.rs`, `line_crowd.rs`
// ---------------------------------------------------------------------------------------------

/// Returns the CPU time that the calling thread has used so far.
#[cfg(target_os = "linux")]
fn own_time() -> Duration {
    let (tv_sec, tv_nsec) = (0, 0);
    let mut time = libc::timespec { tv_sec, tv_nsec };
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

/// Law 20: a thread sleeps while it waits for space, for an outcome, or for the end of another
/// thread's task or start hook.
#[cfg(target_os = "linux")]
#[test]
fn law20_a_thread_that_waits_for_longer_does_not_spin() {
    timed(|| {
        for queue in [0, 2] {
            let call = |pool: &Pool| pool.do_with_deadline(|| (), LONG).unwrap();
            let blocking = pool(1, queue, WhenFull::Block);
            for with_value in [false, true] {
                let gate = filled(&blocking);
                assert_sleeps("for space", &gate, || match with_value {
                    false => must_serve(&blocking, || ()),
                    true => call(&blocking),
                });
                settle(&blocking);
            }
            let gate = Gate::new();
            assert_sleeps("for its outcome", &gate, || {
                blocking.do_with_deadline(gate.task(), LONG).unwrap();
            });

            let (hooked, gate) = gated(1, queue, |b, gate| b.on_worker_start(gate.hook()));
            assert_sleeps("for a start hook", &gate, || call(&hooked));
        }
        let (pool, gate) = held(2);
        assert_sleeps("in the queue", &gate, || {
            pool.do_with_deadline(|| (), LONG).unwrap();
        });
        let (group, gate) = (pool.group(), Gate::new());
        must_serve_in(&group, gate.task());
        assert_sleeps("for a group", &gate, || group.wait());
        let gate = Gate::new();
        assert_sleeps("for a scope", &gate, || {
            pool.scope(|s| s.serve(gate.task()).unwrap());
        });
    });
}

/// Law 20: the release of a finished task's caller waits for no thread except its worker. It does
/// not wait for workers in hooks or at their tasks, or for submitters that wait for space.
#[test]
fn law20_a_caller_is_released_whoever_else_is_held_up() {
    timed_each([0, 2], |queue| {
        let gate = Gate::new();
        // Each slot is held up at a different place. The caller's worker has slot 0.
        let panicked = gate.key();
        let pool = pool_with(4, queue, |b| {
            b.when_full(WhenFull::Block)
                .on_worker_start(gate.hook_of(1))
                .on_panic(move |_| panicked.pass())
        });
        let own = Gate::new();
        thread::scope(|s| {
            let _openers = (gate.opener(), own.opener());
            let call = s.spawn(|| pool.do_with_deadline(own.task(), LONG).unwrap());
            own.wait_entered(1);
            must_serve(&pool, || ()); // in its start hook
            gate.wait_entered(1);
            must_serve(&pool, || quiet_panic("on purpose")); // in the panic hook
            gate.wait_entered(2);
            (0..=queue).for_each(|_| must_serve(&pool, gate.task()));
            gate.wait_entered(3);
            // Two submitters are in line. The first gets the space that the caller's worker
            // makes.
            for _ in 0..2 {
                s.spawn(|| must_serve(&pool, gate.task()));
            }
            wait_in_line(&pool, 2);
            own.open();
            wait_until("the caller's release", || call.is_finished());
            assert!(!gate.is_open());
        });
        assert_stats!(at_rest(&pool), completed: 5 + queue as u64, panicked: 1);
    });
}

/// Law 20: threads that do not wait, but retry in a loop, do not overtake a waiting submission
/// without end. Its turn comes within milliseconds.
#[test]
fn law20_threads_that_retry_do_not_overtake_the_line() {
    // The retrying threads may get some places before the waiting task's turn comes and this thread
    // wakes. Without the guarantee they got hundreds of thousands.
    const MANY: u64 = 50_000;
    timed_each([(1, 0), (1, 1), (2, 1), (2, 16)], |(retry, queue)| {
        let pool = pool(1, queue, WhenFull::Block);
        let (over, taken) = (AtomicBool::new(false), Tally::default());
        thread::scope(|s| {
            let _over = on_drop(|| over.store(true, Ordering::SeqCst));
            for _ in 0..retry {
                s.spawn(|| {
                    let refusing = pool.when_full(WhenFull::Refuse);
                    while !over.load(Ordering::SeqCst) {
                        let served = refusing.serve(|| spin(Duration::from_micros(5)));
                        taken.add(u64::from(served.is_ok()));
                    }
                });
            }
            wait_until("the retrying threads to run", || taken.get() > 100);
            for _ in 0..rounds(50) {
                let (told, served) = mpsc::channel();
                let waits = || {
                    must_serve(&pool, || ());
                    told.send(()).unwrap_or_default();
                };
                thread::scope(|s| {
                    s.spawn(waits);
                    // Places that are taken in the first 10 ms do not count.
                    if served.recv_timeout(ms(10)).is_ok() {
                        return;
                    }
                    let before = taken.get();
                    served.recv().unwrap();
                    let most = taken.get() - before;
                    assert!(most < MANY, "overtaken {most} times");
                });
            }
        });
        at_rest(&pool);
    });
}
