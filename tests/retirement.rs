//! Laws 6 (retirement) and 11 (idle cost): workers without a task.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{Pool, Shutdown};

fn pool(max: usize, queue: usize, idle: Duration) -> Pool {
    pool_with(max, queue, |b| b.idle_timeout(idle))
}

/// Idle workers have retired within twice the timeout, each once, down to `min_workers` and no
/// further, even if they were never used. The pool works again afterwards.
#[test]
fn law06_idle_workers_retire_down_to_min_workers() {
    let cases = [
        (0, 0, ms(400)),
        (0, 8, ms(400)),
        (0, 0, ms(20)),
        (0, 0, Duration::ZERO),
        (1, 4, ms(30)),
        (2, 4, Duration::ZERO),
        (6, 4, ms(30)),
    ];
    timed_each(cases, |(min, queue, idle)| {
        let pool = pool_with(6, queue, |b| b.min_workers(min).idle_timeout(idle));
        let none_retires = || thread::sleep(ms(if min > 0 { 150 } else { 0 }));
        none_retires();
        assert_stats!(pool.stats(), workers: min, spawned: min as u64, retired: 0);
        for _ in 0..2 {
            let from = pool.stats().spawned;
            run_at_once(&pool, 6);
            let end = Instant::now();
            await_workers(&pool, min);
            let took = end.elapsed();
            // The law allows twice the timeout; a busy machine gets two seconds more.
            assert!(took < 2 * idle + ms(2000), "{idle:?} took {took:?}");
            none_retires();
            let s = at_rest(&pool);
            assert!(s.spawned >= from + 6 - min as u64, "{s:?}");
            assert_stats!(s, workers: min, idle: min, retired: s.spawned - min as u64, refused: 0,
                peak_workers: 6);
            assert_eq!(pool.workers().len(), min);
        }
        let from = pool.stats().spawned;
        run_at_once(&pool, min);
        assert_eq!(pool.stats().spawned, from, "the remaining workers serve");
    });
}

/// If 0, 1, 2 or N workers have been idle for the timeout, exactly those retire, each once. See
/// ants 7.
#[test]
fn law06_all_and_only_the_idle_retire() {
    let cases = [(0, 0), (5, 1), (0, 2), (5, 2), (0, 6)];
    timed_each(cases, |(queue, stale)| {
        let pool = pool(6, queue, ms(60));
        let (busy, idle) = (Gate::new(), Gate::new());
        // The idle workers are not just the first or last ones.
        for i in 0..6 {
            let gate = if i * 5 % 6 < stale { &idle } else { &busy };
            must_serve(&pool, gate.task());
        }
        busy.wait_entered(6 - stale);
        idle.wait_entered(stale);
        idle.open();
        await_workers(&pool, 6 - stale);
        // None of the others retires in the next few sweeps.
        thread::sleep(ms(200));
        assert_stats!(pool.stats(), workers: 6 - stale, running: 6 - stale, retired: stale as u64,
            spawned: 6);
        assert_eq!(pool.workers().len(), 6 - stale);
        busy.open();
        await_workers(&pool, 0);
        assert_eq!(pool.stats().retired, 6);
    });
}

/// With a timeout of `Duration::MAX`, or one beyond the clock's range, no worker retires.
#[test]
fn law06_no_worker_retires_without_a_timeout() {
    timed_each([Duration::MAX.as_secs(), u64::MAX / 2, 1 << 40], |secs| {
        let pool = pool(4, 0, Duration::from_secs(secs));
        run_at_once(&pool, 4);
        thread::sleep(ms(60));
        assert_stats!(pool.stats(), workers: 4, idle: 4, retired: 0);
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    });
}

/// After a burst up to the maximum, a trickle of tasks keeps alive the workers that it needs and
/// one more. The others retire, whichever threads submit the trickle. See jetty 4105, 8270.
#[test]
fn law06_a_trickle_does_not_keep_the_burst_alive() {
    timed(|| {
        thread::scope(|s| {
            let by = [(1, false), (4, false), (1, true)];
            for (by, queue) in product(by, [0, 32]) {
                s.spawn(move || trickle(by, queue));
            }
        });
    });
}

/// Runs a burst and then a trickle, which `threads` threads submit in turn. If `anew`, each task has
/// a thread of its own.
fn trickle((threads, anew): (usize, bool), queue: usize) {
    let idle = ms(300);
    let pool = pool(16, queue, idle);
    run_at_once(&pool, 16);
    let end = Instant::now();
    let (stop, turn) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|s| {
        // The tasks come one after the other in every case, so the trickle needs one worker.
        for me in 0..threads {
            let (pool, stop, turn) = (&pool, &stop, &turn);
            let call = move || pool.do_with_deadline(|| (), LONG).unwrap();
            s.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    thread::sleep(ms(3));
                    if turn.load(Ordering::SeqCst) % threads == me {
                        if anew {
                            thread::scope(|s| s.spawn(call).join().unwrap());
                        } else {
                            call();
                        }
                        turn.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        while pool.stats().workers > 2 && end.elapsed() < LIMIT {
            thread::sleep(ms(1));
        }
        let (took, before) = (end.elapsed(), pool.stats());
        thread::sleep(2 * idle);
        let later = pool.stats();
        stop.store(true, Ordering::SeqCst);
        // Three timeouts, and three seconds for a busy machine.
        let case =
            format!("{threads} threads, {anew}, queue {queue}: {took:?}, {before:?}, {later:?}");
        assert!(took < 3 * idle + ms(3000), "{case}");
        assert!(later.workers <= 2, "{case}");
        // A worker may have retired and been started again if the trickle itself stalled.
        assert!(later.spawned <= before.spawned + 2, "{case}");
    });
    assert_eq!(pool.stats().refused, 0);
    assert!(turn.load(Ordering::SeqCst) > 10, "no trickle");
}

/// When the last worker has retired, no thread is left. The next task starts a worker again.
#[cfg(target_os = "linux")]
#[test]
fn law06_no_thread_is_left_with_the_last_worker() {
    isolated(|| {
        let before = os::thread_total();
        for (queue, idle) in [(0, ms(30)), (4, ms(30)), (0, Duration::ZERO)] {
            let pool = pool(3, queue, idle);
            for _ in 0..4 {
                run_at_once(&pool, 3);
                wait_until("every thread to end", || os::thread_total() == before);
                let s = pool.stats();
                assert_stats!(s, workers: 0, spawned: s.retired);
            }
        }
    });
}

/// Waits for a second in which no other thread of the process uses the CPU or wakes, then asserts
/// that none does for a while. It takes a whole second, because on a busy machine a runnable thread
/// may have to wait for a CPU.
#[cfg(target_os = "linux")]
#[track_caller]
fn assert_asleep() {
    let rest = || activity_of_others(ms(1000)) == (0, 0);
    wait_until("the pools to fall asleep", rest);
    // Lasts longer in a stress run, like everything else.
    let seen = activity_of_others(ms(1200 * stress()));
    assert_eq!(seen, (0, 0), "processor time, and wake-ups");
}

/// Returns the processor time in nanoseconds and the wake-ups of other threads while this one
/// sleeps for `d`.
#[cfg(target_os = "linux")]
fn activity_of_others(d: Duration) -> (u64, u64) {
    let before = os::others_activity();
    thread::sleep(d);
    let (nanos, wakes) = os::others_activity();
    (nanos.wrapping_sub(before.0), wakes.wrapping_sub(before.1))
}

/// Law 11: an idle pool uses no CPU time. If no worker can expire, no timer wakes a thread. See
/// JDK-8065320, rayon 642, surrealdb 6979.
#[cfg(target_os = "linux")]
#[test]
fn law11_an_idle_pool_sleeps() {
    isolated(|| {
        let pools = [
            // This pool is never used.
            pool(4, 0, ms(10_000)),
            pool_with(4, 0, |b| b.min_workers(4)),
            // The workers of these pools cannot expire: there is no timeout, or they are the
            // minimum.
            pool(4, 0, Duration::MAX),
            pool(4, 16, Duration::MAX),
            pool_with(4, 0, |b| b.min_workers(4).idle_timeout(ms(1))),
            pool_with(6, 16, |b| b.min_workers(2).idle_timeout(ms(1))),
            // All workers of these pools have expired.
            pool(4, 0, ms(1)),
            pool(4, 0, Duration::ZERO),
        ];
        for pool in &pools[2..] {
            run_at_once(pool, pool.max_workers());
            for _ in 0..100 {
                pool.do_with_deadline(|| (), LONG).unwrap();
            }
        }
        for pool in &pools[4..] {
            await_workers(pool, pool.min_workers());
        }
        // This pool is shut down, and no thread of it is left.
        assert!(pools[3].shutdown(Shutdown::Drain, LIMIT).is_clean());
        assert_asleep();
        for pool in &pools[4..] {
            pool.do_with_deadline(|| (), Duration::MAX).unwrap();
        }
    });
}

/// Law 11: with the default timeout, workers can expire. Even then an idle pool uses very little
/// CPU time and hardly wakes.
#[cfg(target_os = "linux")]
#[test]
fn law11_an_expiring_pool_hardly_wakes() {
    isolated(|| {
        let builder = |queue| Pool::builder().max_workers(8).queue_capacity(queue);
        let pools = [0, 16].map(|queue| builder(queue).build().unwrap());
        pools.iter().for_each(|pool| run_at_once(pool, 8));
        // Workers stop spinning within moments. They may still wake for a sweep now and then.
        thread::sleep(ms(300));
        let (nanos, wakes) = activity_of_others(ms(1500));
        assert!(nanos < 15_000_000, "{nanos} ns of processor time");
        assert!(wakes <= 60, "{wakes} wake-ups of two idle pools in 1.5 s");
    });
}

/// Law 11: while a thread takes the registry's lock without a pause, only one worker tries to
/// sweep. Formerly, all of them tried every half millisecond, and together kept that thread off the
/// CPUs.
#[cfg(target_os = "linux")]
#[test]
fn law11_one_worker_waits_for_the_registrys_lock() {
    isolated(|| {
        const WORKERS: usize = 500;
        // A sweep comes after half the timeout, and no worker retires before the end of the test.
        let pool = pool(WORKERS, 0, Duration::from_secs(4));
        run_at_once(&pool, WORKERS);
        thread::sleep(ms(300));
        let (start, before) = (Instant::now(), os::others_activity());
        while start.elapsed() < ms(2500) {
            assert_eq!(pool.stats().workers, WORKERS);
        }
        let wakes = os::others_activity().1 - before.1;
        // Each worker wakes for the sweep; few of them wake more than twice.
        assert!(wakes <= 20 * WORKERS as u64, "{wakes} wake-ups");
    });
}

/// Law 11: an idle pool sleeps even if the limit was lowered to `min_workers` before any sweep,
/// which then has nothing to do.
#[cfg(target_os = "linux")]
#[test]
fn law11_an_idle_pool_below_its_former_limit_sleeps() {
    isolated_each([0, 16], |queue| {
        let pool = pool_with(2, queue, |b| b.min_workers(1).idle_timeout(ms(40)));
        let gate = hold(&pool, 2);
        pool.set_limit(1).unwrap();
        gate.open();
        await_workers(&pool, 1);
        wait_until("a thread to end", || os::workers_named("lazypool") == 1);
        thread::sleep(ms(300));
        let wakes = activity_of_others(ms(1500)).1;
        assert!(wakes <= 30, "{wakes} wake-ups of an idle pool in 1.5 s");
    });
}
