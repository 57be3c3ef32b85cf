//! Law 4 (bound): `max_workers`, and a limit that is set at run time.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[cfg(target_os = "linux")]
use common::os::thread_total;
use common::*;
use lazypool::{Pool, Shutdown, WhenFull};

/// Other systems do not tell it.
#[cfg(not(target_os = "linux"))]
fn thread_total() -> usize {
    0
}

/// A pool has no other threads than its workers, under every kind of work. Tasks that outlive their
/// deadlines, one after the other, occupy their workers (law 3). See fasthttp 200, 565.
#[test]
fn law03_law04_law05_no_thread_beyond_workers() {
    isolated(|| {
        let before = thread_total();
        for (max, queue, policy) in [
            (1, 0, WhenFull::Refuse),
            (3, 0, WhenFull::Refuse),
            (3, 4, WhenFull::Block),
        ] {
            // No worker ends during the test: a thread that ends is still listed for a moment.
            let pool = pool_with(max, queue, |b| {
                b.when_full(policy).idle_timeout(Duration::from_secs(3600))
            });
            let no_more_than = |workers| {
                let now = thread_total();
                assert!(now <= before + workers, "{now} threads, {before} before");
            };
            // Before its first task, a pool has no thread (law 5). The call is counted nowhere.
            is_expired(pool.do_with_deadline(|| (), Duration::ZERO));
            let looks = (pool.stats(), pool.workers());
            drop((looks, pool.labeled("x"), pool.group()));
            no_more_than(0);
            for round in 0..rounds(4) {
                let gate = Gate::new();
                for i in 0..max {
                    abandon(&pool, || gate.task());
                    no_more_than(if round == 0 { i + 1 } else { max });
                }
                assert_stats!(pool.stats(), running: max, workers: max);
                assert!(pool.workers().iter().all(|w| w.busy));
                for _ in 0..50 {
                    let outcome = pool.do_with_deadline(|| (), ms(1));
                    match policy {
                        WhenFull::Refuse => assert!(refused(outcome).is_saturated()),
                        _ => is_expired(outcome),
                    }
                }
                let _ = pool.group().wait_timeout(ms(5));
                no_more_than(max);
                gate.open();
                settle(&pool);
            }
            assert_eq!(pool.stats().spawned, max as u64);
            let gate = hold(&pool, max);
            assert!(!pool.shutdown(Shutdown::Cancel, ms(20)).is_clean());
            no_more_than(max);
            gate.open();
            assert!(pool.shutdown(Shutdown::Cancel, Duration::MAX).is_clean());
            drop(pool);
            wait_until("threads to end", || thread_total() == before);
        }
    });
}

/// A number that cannot be a limit is an error and changes nothing.
#[test]
fn law04_limits_out_of_bounds() {
    let pool = pool(3, 0);
    assert_eq!(pool.limit(), 3);
    for given in [0, 4, usize::MAX] {
        let error = pool.set_limit(given).expect_err("out of bounds");
        assert_eq!((error.given(), error.max()), (given, 3));
    }
    assert_eq!(pool.limit(), 3);
    for n in [1, 3, 2, 2, 3] {
        pool.set_limit(n).expect("within bounds");
        assert_eq!((pool.limit(), pool.max_workers()), (n, 3));
    }
    pool.shutdown(Shutdown::Drain, Duration::MAX);
    pool.set_limit(1).expect("a closed pool has a limit, too");
    assert!(pool.serve(|| ()).expect_err("closed").is_closed());
}

/// Laws 1 and 4: admission counts with the limit, both before any worker exists and afterwards.
#[test]
fn law04_admission_counts_with_the_limit() {
    timed_each([0, 2], |queue| {
        let pool = pool(4, queue);
        for limit in [2, 1, 4, 3] {
            pool.set_limit(limit).expect("limit");
            wait_until("surplus workers to end", || pool.stats().workers <= limit);
            let gate = Gate::new();
            for n in 0..limit + queue {
                assert!(pool.serve(gate.task()).is_ok(), "task {n} of limit {limit}");
            }
            saturated(pool.serve(gate.task()));
            gate.wait_entered(limit);
            let stats = assert_stats!(pool.stats(), running: limit, queued: queue);
            assert!(stats.workers <= limit, "{stats:?}");
            gate.open();
            at_rest(&pool);
        }
    });
}

/// Idle surplus workers end at once, for every idle timeout, also those of `min_workers`.
#[test]
fn law04_idle_surplus_workers_end() {
    timed(|| {
        let pool = pool_with(4, 0, |b| b.min_workers(3));
        assert_eq!(pool.stats().workers, 3);
        pool.set_limit(1).expect("limit");
        await_workers(&pool, 1);
        assert!(matches!(pool.do_with_deadline(|| 1, LONG), Ok(1)));
        pool.set_limit(4).expect("limit");
        assert_cap_usable(&pool);
        assert_eq!(pool.stats().workers, 4);
    });
}

/// Occupied surplus workers end after their task and take no other task from the queue. The workers
/// that stay run those.
#[test]
fn law04_occupied_surplus_workers_end_after_their_task() {
    timed(|| {
        let pool = pool(4, 8);
        let (first, second) = (Gate::new(), Gate::new());
        occupy(&pool, &first, 4);
        (0..8).for_each(|_| must_serve(&pool, second.task()));
        pool.set_limit(2).expect("limit");
        assert_eq!(pool.stats().running, 4, "running tasks run on");
        first.open();
        await_workers(&pool, 2);
        wait_until("the other tasks to go on", || second.entered() == 2);
        thread::sleep(ms(20));
        assert_eq!(second.entered(), 2);
        assert_stats!(pool.stats(), running: 2, queued: 6);
        second.open();
        assert_stats!(at_rest(&pool), completed: 12, retired: 2);
    });
}

/// Raising the limit wakes submitters that wait for space, and starts workers for queued tasks.
#[test]
fn law04_raising_the_limit_makes_space() {
    timed(|| {
        let pool = Arc::new(pool(3, 1));
        pool.set_limit(1).expect("limit");
        let gate = hold(&pool, 1);
        must_serve(&pool, gate.task());
        let task = gate.task();
        let serve = |pool: &Pool| pool.when_full(WhenFull::Block).serve(task).is_ok();
        let blocked = beside(&pool, serve);
        wait_in_line(&pool, 1);
        pool.set_limit(3).expect("limit");
        assert!(blocked.join().expect("no panic"));
        // No thread submits any more; the queued task gets a worker nevertheless.
        wait_until("all three tasks to run", || gate.entered() == 3);
        gate.open();
        at_rest(&pool);
    });
}

/// Law 5: setting the limit to its present value starts no thread while the worker that was started
/// for a queued task is still in its start hook. Formerly, each such call started another thread.
#[test]
fn law05_a_limit_set_again_starts_no_thread() {
    timed(|| {
        let (busy, hook) = (Gate::new(), Gate::new());
        let (key, starts) = (hook.key(), AtomicUsize::new(0));
        let pool = pool_with(8, 4, |b| {
            b.on_worker_start(move |_| {
                // The first worker has the busy task.
                if starts.fetch_add(1, Ordering::SeqCst) > 0 {
                    key.pass();
                }
            })
        });
        let _openers = (busy.opener(), hook.opener());
        pool.set_limit(1).unwrap();
        occupy(&pool, &busy, 1);
        must_serve(&pool, || ());
        (0..6).for_each(|_| pool.set_limit(8).unwrap());
        hook.wait_entered(1);
        assert_eq!(pool.stats().spawned, 2);
        hook.open();
        busy.open();
        assert_eq!(settle(&pool).completed, 2);
    });
}

/// Law 4: if the limit is lowered beside a worker in its start hook and an idle one, the first ends
/// after its hook, without a task, and the idle one stays. Formerly, the idle one was told to end.
#[test]
fn law04_a_worker_in_its_start_hook_ends_before_an_idle_one() {
    timed_each([0, 4], |queue| {
        let (pool, hook) = gated(2, queue, |b, gate| b.on_worker_start(gate.hook_of(1)));
        let gate = hold(&pool, 1);
        // The second worker is started for a call that leaves before the hook is over.
        is_expired(pool.do_with_deadline(|| (), ms(10)));
        hook.wait_entered(1);
        gate.open();
        wait_until("an idle worker", || pool.stats().idle == 1);
        pool.set_limit(1).expect("limit");
        assert_stats!(pool.stats(), workers: 2, idle: 1);
        // These tasks run at once, while the hook lasts.
        for _ in 0..3 {
            let slot = pool.do_with_deadline(lazypool::task::slot, LONG);
            assert_eq!(slot.expect("idle"), Some(0));
        }
        hook.open();
        await_workers(&pool, 1);
        assert_eq!(pool.workers()[0].slot, 0);
        at_rest(&pool);
    });
}

/// Law 4: a surplus worker takes no task that came after the limit was lowered. It was in a waker then.
#[test]
fn law04_a_surplus_worker_takes_no_task_that_came_during_a_waker() {
    timed(|| {
        let (waker, first, long) = (Gate::new(), Gate::new(), Gate::new());
        let pool = pool(2, 8);
        let _openers = (waker.opener(), first.opener(), long.opener());
        let key = waker.key();
        let handle = must_await(pool.awaitable(), first.task());
        let handle = pending(handle, &calling(move || key.pass()));
        first.wait_entered(1);
        occupy(&pool, &long, 1);
        let queued = must_await(pool.awaitable(), || ());
        first.open();
        waker.wait_entered(1);
        pool.set_limit(1).expect("limit");
        queued.cancel();
        must_serve(&pool, || ());
        waker.open();
        await_workers(&pool, 1);
        assert_stats!(pool.stats(), completed: 1, queued: 1, running: 1);
        drop(handle);
        long.open();
        assert_stats!(settle(&pool), completed: 3, discarded: 1);
    });
}
