//! Law 13 (spawn failure). Each test says which start of a thread fails, and describes the state of
//! the pool at that time.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod common;
#[path = "common/shortage.rs"]
mod shortage;

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex, OnceLock};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{
    task, BuildError, DeadlineError, Handle, Pool, Refusal, Refused, Shutdown, WhenFull,
};
use shortage::{asked, Shortage};

/// Checks that the refusal is a `SpawnFailed` whose message ends with the system's error.
#[track_caller]
fn spawn_failed<F>(refused: Refused<F>) -> Refused<F> {
    let reason = refused.reason();
    assert!(matches!(reason, Refusal::SpawnFailed(_)), "{reason:?}");
    let source = refused.source().expect("the system's error").to_string();
    assert!(refused.to_string().ends_with(&source), "{refused}");
    refused
}

/// Fails to submit by each verb, and checks that the closures come back without having run.
#[track_caller]
fn fails_to_spawn(pool: &Pool) {
    let ledger = Ledger::new(3);
    spawn_failed(pool.serve(ledger.task(0)).expect_err("no thread")).run_anyway();
    for (id, d) in [(1, LONG), (2, Duration::MAX)] {
        let outcome = pool.do_with_deadline(ledger.task(id), d);
        spawn_failed(refused(outcome)).into_inner()();
    }
    ledger.assert_all_ran();
}

/// If there is no worker and no thread can be started, a task comes back as `SpawnFailed`, and slot
/// and counters are as before. Each submission tries again, and succeeds once threads can be
/// started. See folly 1428, tokio 2309 and 8406, blocking 79.
#[test]
fn law13_no_thread_at_all() {
    let cases = product([WhenFull::Refuse, WhenFull::Block], [(1, 0), (3, 4)]);
    timed_each(cases, |(policy, (max, queue))| {
        let pool = pool_with(max, queue, |b| b.when_full(policy));
        let shortage = Shortage::total();
        // More failures than there are slots: no slot may be lost.
        for i in 1..=2 * max as u64 + 2 {
            let before = asked();
            fails_to_spawn(&pool);
            assert!(asked() - before >= 3, "each submission tries");
            assert_stats!(pool.stats(), spawn_failures: 3 * i, refused: 3 * i, accepted: 0,
                queued: 0, running: 0, workers: 0, spawned: 0, retired: 0, idle: 0,
                peak_workers: 0);
            assert!(pool.workers().is_empty());
        }
        drop(shortage);
        pool.do_with_deadline(|| (), LONG).unwrap();
        if policy == WhenFull::Refuse {
            assert_cap_usable(&pool);
            assert_eq!(pool.stats().spawned, max as u64);
        }
        at_rest(&pool);
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    });
}

/// If no thread can be started, a task is queued while a worker exists, and that worker runs it.
/// Without space in the queue it comes back. Every such submission tries again to start a thread.
#[test]
fn law13_to_the_queue_while_a_worker_lives() {
    timed_each([0, 4], |queue| {
        let pool = pool(3, queue);
        let gate = hold(&pool, 1);
        let shortage = Shortage::total();
        let ledger = Ledger::new(queue);
        for id in 0..queue {
            let before = asked();
            must_serve(&pool, ledger.task(id));
            assert!(asked() > before, "tries for a thread");
            assert_stats!(pool.stats(), queued: id + 1, running: 1, spawn_failures: id as u64 + 1,
                refused: 0);
        }
        // The queue is full, but the pool is not saturated: some slots have no thread.
        let before = asked();
        fails_to_spawn(&pool);
        assert_eq!(pool.stats().refusals.spawn_failed, 3);
        assert!(asked() - before >= 3, "each submission tries");
        assert_eq!(ledger.total_runs(), 0);
        gate.open();
        assert_stats!(settle(&pool), spawned: 1, workers: 1, completed: 1 + queue as u64);
        ledger.assert_all_ran();
        drop(shortage);
        assert_cap_usable(&pool);
        assert_eq!(pool.stats().spawned, 3);
    });
}

/// A worker that becomes free while the system refuses the thread takes the task.
#[test]
fn law13_the_task_goes_to_another_worker() {
    timed_each(product([0, 2], [false, true]), |(queue, call)| {
        let pool = Arc::new(pool(2, queue));
        let gate = hold(&pool, 1);
        let watched = Arc::clone(&pool);
        let shortage = Shortage::when(move || {
            gate.open();
            wait_until("the worker to be idle", || watched.stats().idle == 1);
            true
        });
        let ran = Tally::default();
        if call {
            pool.do_with_deadline(ran.task(), LONG).unwrap();
        } else {
            must_serve(&pool, ran.task());
        }
        drop(shortage);
        assert_stats!(settle(&pool), completed: 2, spawn_failures: 1, refused: 0, spawned: 1);
        assert_eq!(ran.get(), 1);
    });
}

type Called = thread::JoinHandle<(Result<(), DeadlineError<()>>, u64)>;

/// Makes a call with the deadline `d` from a thread that can start `threads` threads. Returns the
/// call's outcome and the number of threads that it tried to start.
fn call_with_threads(pool: &Arc<Pool>, mut threads: u32, least: Duration, d: Duration) -> Called {
    beside(pool, move |pool| {
        let _few = Shortage::when(move || {
            let denied = threads == 0;
            threads = threads.saturating_sub(1);
            denied
        });
        let outcome = pool.min_remaining(least).do_with_deadline(|| (), d);
        (outcome.map_err(DeadlineError::without_closure), asked())
    })
}

/// Law 3: the start of a thread for another task holds no caller beyond its deadline. A caller that
/// takes its own task back starts no thread. A worker that starts a thread has no task in hand.
#[test]
fn law03_no_deadline_waits_for_a_thread_of_others() {
    timed(|| {
        let (hook, system) = (Gate::new(), Gate::new());
        let key = system.key();
        let (hooks, deny) = (hook.key(), move || {
            key.pass();
            true
        });
        // The first worker waits in its start hook. Later it gets no thread.
        let pool = Arc::new(pool_with(2, 8, |b| {
            b.on_worker_start(move |slot| {
                if slot == 0 {
                    hooks.pass();
                    std::mem::forget(Shortage::when(deny.clone()));
                }
            })
        }));
        let _open = (hook.opener(), system.opener());
        let first = call_with_threads(&pool, 1, Duration::ZERO, ms(1000));
        hook.wait_entered(1);
        let hour = Duration::from_secs(3600);
        let doomed = call_with_threads(&pool, 0, 2 * hour, hour);
        await_queued(&pool, 1);
        let second = call_with_threads(&pool, 0, Duration::ZERO, Duration::from_secs(5));
        await_queued(&pool, 2);
        let shortage = Shortage::total();
        must_serve(&pool, || ());
        drop(shortage);
        assert_eq!(pool.stats().queued, 3);

        let (outcome, asked) = first.join().unwrap();
        is_expired(outcome);
        assert_eq!(asked, 1, "threads asked for: its own worker's");
        // The worker takes the doomed task, which expires. Now it must start a thread for the others,
        // which blocks in the system. Meanwhile it has no task, so the second caller takes its own back.
        hook.open();
        system.wait_entered(1);
        is_expired(second.join().unwrap().0);
        is_expired(doomed.join().unwrap().0);
        system.open();
        assert_stats!(settle(&pool), completed: 1, expired: 3, timed_out: 0);
    });
}

/// Law 10: the timeout holds while the system is slow to start a thread, whose worker is then among
/// the stragglers.
#[test]
fn law10_a_slow_thread_start_is_a_straggler() {
    timed(|| {
        let pool = pool(2, 2);
        let system = Gate::new();
        thread::scope(|s| {
            let submitter = s.spawn(|| {
                let key = system.key();
                let _slow = Shortage::when(move || {
                    key.pass();
                    false
                });
                pool.serve(|| ()).expect("accepted before the shutdown");
            });
            system.wait_entered(1);
            for timeout in [Duration::ZERO, ms(20)] {
                let report = pool.shutdown(Shutdown::Drain, timeout);
                let slots: Vec<_> = report.stragglers.iter().map(|w| w.slot).collect();
                assert_eq!(slots, [0]);
            }
            assert_eq!((pool.stats().workers, pool.workers().len()), (0, 0));
            system.open();
            submitter.join().unwrap();
        });
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        assert_eq!(pool.stats().completed, 1);
    });
}

/// Law 3: a deadline counts from the call, however long the system takes to start a thread.
#[test]
fn law03_a_deadline_counts_from_before_the_start_of_a_thread() {
    let asked = Arc::new(OnceLock::new());
    let then = asked.clone();
    let _slow = Shortage::when(move || {
        then.set(Instant::now()).unwrap();
        thread::sleep(ms(20));
        false
    });
    let due = pool(1, 0).do_with_deadline(task::deadline, LONG).unwrap();
    assert!(due.unwrap() <= *asked.get().unwrap() + LONG);
}

/// Laws 6 and 13: workers retire down to `min_workers` even if no thread can be started. Formerly,
/// the cleaner needed a thread, so no worker retired if the pool had the last thread that the
/// system gave.
#[test]
fn law06_retirement_needs_no_thread() {
    timed_each([(0, 0), (2, 0), (0, 1)], |(queue, min)| {
        let pool = pool_with(4, queue, |b| {
            b.min_workers(min)
                .idle_timeout(ms(40))
                .on_worker_start(|_| std::mem::forget(Shortage::total()))
        });
        for _ in 0..2 {
            let gate = Gate::new();
            (0..4).for_each(|_| must_serve(&pool, gate.task()));
            // A worker that tries to start another gets no thread, so its task stays queued.
            let arrived = || gate.entered() + pool.stats().queued;
            wait_until("tasks at the gate", || arrived() == 4);
            gate.open();
            settle(&pool);
            await_workers(&pool, min);
        }
        assert_stats!(pool.stats(), completed: 8, spawn_failures: 0);
    });
}

/// If `build` cannot start `min_workers`, it fails with the system's error, and none of the workers
/// that did start is left.
#[test]
fn law13_build_cannot_start_min_workers() {
    timed_each(0..4_u64, |failing| {
        let (starts, stops) = (Tally::default(), Tally::default());
        let (start, stop) = (starts.clone(), stops.clone());
        let mut attempts = 0..;
        let shortage = Shortage::when(move || attempts.next() == Some(failing));
        let builder = Pool::builder().max_workers(8).min_workers(4);
        let outcome = (builder.thread_name("lp13b"))
            .on_worker_start(move |_| start.add(1))
            .on_worker_stop(move |_| stop.add(1))
            .build();
        drop(shortage);
        assert!(matches!(outcome, Err(BuildError::Spawn(_))), "{outcome:?}");
        wait_until("started workers to end", || os::workers_named("lp13b") == 0);
        assert_eq!(starts.get(), stops.get(), "hooks come in pairs");
    });
}

/// A start that the system itself refuses, because of a stack that it cannot give, comes back as
/// `SpawnFailed`. A pool that never got a thread shuts down and drops like any other.
#[test]
fn law13_a_stack_the_system_cannot_give() {
    timed(|| {
        let builder = || Pool::builder().max_workers(2).stack_size(IMPOSSIBLE_STACK);
        match builder().min_workers(1).build() {
            Err(BuildError::Spawn(error)) => assert!(error.raw_os_error().is_some(), "{error}"),
            other => panic!("{other:?}"),
        }
        for ends in [false, true] {
            let pool = builder().build().unwrap();
            fails_to_spawn(&pool);
            assert!(!ends || pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        }
    });
}

const IN_LINE: usize = 20;

/// Returns a pool with a limit of one and a full queue, whose worker holds a task at the gate.
fn limited(gate: &Gate, queue: usize) -> Arc<Pool> {
    let pool = Arc::new(pool(2, queue));
    pool.set_limit(1).unwrap();
    occupy(&pool, gate, 1);
    (0..queue).for_each(|_| must_serve(&pool, || ()));
    pool
}

/// Lets threads and futures wait in line, then raises the limit by one worker while every start of
/// a thread fails except the `good`-th. Returns how many tasks of the line were accepted.
fn raise_without_threads(pool: &Arc<Pool>, good: usize) -> usize {
    fn failed<F>(refused: Refused<F>) {
        drop(spawn_failed(refused));
    }
    let (count, waker) = counted();
    let (mut threads, mut futures) = (Vec::new(), Vec::new());
    // A thread that has just joined the line may find the new space, and start a thread for the first in line.
    let asked = Arc::new(AtomicUsize::new(0));
    let deny = move || asked.fetch_add(1, Ordering::Relaxed) + 1 != good;
    for id in 0..IN_LINE {
        if id % 2 == 0 {
            let deny = deny.clone();
            threads.push(beside(pool, |pool| {
                let _shortage = Shortage::when(deny);
                pool.when_full(WhenFull::Block).serve(|| ()).map_err(failed)
            }));
        } else {
            futures.push(pending(pool.awaitable().serve_async(|| ()), &waker));
        }
        wait_in_line(pool, id + 1);
    }
    let shortage = Shortage::when(deny);
    pool.set_limit(2).expect("in range");
    drop(shortage);
    if good == 0 {
        wait_until("all to be refused", || {
            (pool.stats().waiting, count.woken()) == (0, IN_LINE / 2)
        });
    }
    let threads = threads.into_iter().map(|thread| thread.join().unwrap());
    let futures = futures
        .into_iter()
        .map(|future| block_on(future).map_err(failed));
    let futures = futures.map(|served| served.map(Handle::detach));
    threads.chain(futures).filter(Result::is_ok).count()
}

/// With a queue or without, all tasks in line come back if the system has no thread. Later
/// submissions try again to start one. If the third start succeeds, that worker runs the rest of
/// the line.
#[test]
fn law13_law20_a_line_without_a_thread_comes_back() {
    timed_each([(0, 0), (2, 0), (0, 3)], |(queue, good)| {
        let gate = Gate::new();
        let pool = limited(&gate, queue);
        let failed = if good == 0 { IN_LINE } else { good - 1 };
        assert_eq!(raise_without_threads(&pool, good), IN_LINE - failed);
        let s = assert_stats!(pool.stats(), refusals.spawn_failed: failed as u64);
        assert!(s.spawn_failures >= 1, "{s:?}");
        if good == 0 {
            assert_stats!(s, workers: 1, running: 1);
            occupy(&pool, &gate, 1);
        }
        gate.open();
        settle(&pool);
        assert_cap_usable(&pool);
        at_rest(&pool);
    });
}

/// Laws 1, 13 and 21: while a start fails for the queue, a future is submitted whose waker submits
/// with `Refuse`. If the future waits, its waker is answered, although it may run on a thread that was
/// starting another worker. Formerly, that thread waited for its own count for ever, and so did all
/// other submissions.
#[test]
fn law13_law21_a_waker_may_submit_where_a_start_has_failed() {
    timed(|| {
        let (gate, ledger) = (Gate::new(), Ledger::new(3));
        let pool = Arc::new(pool(2, 1));
        pool.set_limit(1).unwrap();
        occupy(&pool, &gate, 1);
        must_serve(&pool, ledger.task(0));
        let (its, entry) = (Arc::clone(&pool), Mutex::new(Some(ledger.entry(1))));
        let (tell, told) = mpsc::channel();
        let waker = calling(move || {
            let entry = entry.lock().unwrap().take().expect("woken once");
            let on = its.when_full(WhenFull::Refuse);
            tell.send(on.serve(move || entry.run()).is_ok()).unwrap();
        });
        // While the first thread is being started, the future joins the line. While the second one
        // is, the limit is lowered again.
        let (watched, future) = (Arc::clone(&pool), Arc::new(Mutex::new(None)));
        let (place, mut joins) = (Arc::clone(&future), Some(ledger.entry(2)));
        let deny = move || {
            let (place, waker, joins) = (Arc::clone(&place), waker.clone(), joins.take());
            let other = beside(&watched, move |pool| match joins {
                Some(entry) => {
                    let mut future = pool.awaitable().serve_async(move || entry.run());
                    if let Poll::Ready(served) = poll(&mut future, &waker) {
                        served.map_err(|_| ()).expect("space").detach();
                    } else {
                        *place.lock().unwrap() = Some(future);
                    }
                }
                None => pool.set_limit(1).unwrap(),
            });
            other.join().unwrap();
            true
        };
        let raised = Arc::clone(&pool);
        returns("`set_limit`", move || {
            let _shortage = Shortage::when(deny);
            raised.set_limit(2).unwrap();
        });
        pool.set_limit(1).unwrap();
        saturated(pool.serve(|| ()));
        gate.open();
        drop(future.lock().unwrap().take());
        settle(&pool);
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        ledger.wait_drops();
        let accepted = told.try_iter().any(|accepted| accepted);
        assert_eq!((ledger.runs(0), ledger.runs(1)), (1, u32::from(accepted)));
    });
}
