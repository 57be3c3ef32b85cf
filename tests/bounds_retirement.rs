//! Law 4 (bound), law 6 (retirement) and law 11 (idle cost).

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{DeadlineError, Pool, Shutdown, WhenFull};

fn pool(max: usize, queue: usize, idle: Duration) -> Pool {
    Pool::builder()
        .max_workers(max)
        .queue_capacity(queue)
        .idle_timeout(idle)
        .build()
        .expect("pool")
}

// ---------------------------------------------------------------------------------------------
// Law 4
// ---------------------------------------------------------------------------------------------

/// Law 4: a pool of one never runs two closures at once, whichever thread submits them and in
/// whichever way. See ants 374, 26, 154.
#[test]
fn law04_a_pool_of_one_runs_one_at_a_time() {
    timed(|| {
        for (queue, idle, policy) in [
            (0, Duration::MAX, WhenFull::Refuse),
            (0, Duration::ZERO, WhenFull::Refuse),
            (0, ms(1), WhenFull::Block),
            (4, ms(1), WhenFull::Refuse),
        ] {
            let pool = Pool::builder()
                .max_workers(1)
                .queue_capacity(queue)
                .idle_timeout(idle)
                .when_full(policy)
                .build()
                .unwrap();
            let gauge = Arc::new(Gauge::default());
            let start = Barrier::new(10);
            thread::scope(|s| {
                for seed in 0..10 {
                    let (pool, gauge, start) = (&pool, &gauge, &start);
                    s.spawn(move || {
                        let mut rng = Rng::new(seed);
                        start.wait();
                        for _ in 0..rounds(150) {
                            let gauge = Arc::clone(gauge);
                            let work = Duration::from_micros(rng.below(20));
                            let task = move || {
                                let _inside = gauge.enter();
                                spin(work);
                            };
                            if rng.below(2) == 0 {
                                let _ = pool.serve(task);
                            } else {
                                let d = Duration::from_micros(rng.below(100));
                                let _ = pool.do_with_deadline(task, d);
                            }
                            if rng.below(16) == 0 {
                                thread::sleep(Duration::from_micros(rng.below(2000)));
                            }
                        }
                    });
                }
            });
            let s = settle(&pool);
            assert_eq!(gauge.most(), 1, "tasks that ran at once");
            assert_eq!(s.peak_workers, 1, "{s:?}");
        }
    });
}

/// Law 4: never more than `max_workers` closures run at once, with abandoned tasks, panics and
/// retirement in between; and that many do.
#[test]
fn law04_never_more_than_max_workers_at_once() {
    timed(|| {
        for (max, queue) in [(2, 0), (3, 6), (5, 0)] {
            let pool = pool(max, queue, ms(1));
            let gauge = Arc::new(Gauge::default());
            thread::scope(|s| {
                for seed in 0..8 {
                    let (pool, gauge) = (&pool, &gauge);
                    s.spawn(move || {
                        let mut rng = Rng::new(seed);
                        for _ in 0..rounds(300) {
                            let gauge = Arc::clone(gauge);
                            let work = Duration::from_micros(rng.below(300));
                            let fails = rng.below(8) == 0;
                            let task = move || {
                                let _inside = gauge.enter();
                                thread::sleep(work);
                                if fails {
                                    quiet_panic("meant");
                                }
                            };
                            // Most of the callers leave before their task ends.
                            let d = Duration::from_micros(rng.below(150));
                            let _ = pool.do_with_deadline(task, d);
                        }
                    });
                }
            });
            settle(&pool);
            assert!(
                gauge.most() <= max,
                "{} at once, {max} allowed",
                gauge.most()
            );
            assert_cap_usable(&pool);
            assert!(pool.stats().peak_workers <= max);
        }
    });
}

/// Laws 3 and 4: many tasks outlive their deadlines, one after the other. Their workers count as
/// occupied, the bound holds, and no extra thread appears. See fasthttp 200, 565.
#[test]
fn law03_law04_abandoned_tasks_occupy_their_workers() {
    timed(|| {
        let pool = Pool::builder()
            .max_workers(2)
            .thread_name("lp18")
            .idle_timeout(Duration::MAX)
            .build()
            .unwrap();
        for round in 0..rounds(30) {
            let gate = Gate::new();
            for i in 0..2 {
                match pool.do_with_deadline(gate.task(), ms(3)) {
                    Err(DeadlineError::TimedOut) => {}
                    // The task did not start within 3 ms. It must run long, even without a caller.
                    Err(DeadlineError::Expired(f)) => {
                        // The worker may not have finished its start yet.
                        wait_until("the worker to let go", || {
                            let s = pool.stats();
                            (s.running, s.idle) == (i, s.workers - i)
                        });
                        must_serve(&pool, f.into_inner());
                    }
                    other => panic!("{other:?}"),
                }
            }
            gate.wait_entered(2);
            let s = pool.stats();
            assert_eq!((s.running, s.workers), (2, 2), "round {round}: {s:?}");
            saturated(pool.serve(|| ()));
            match pool.do_with_deadline(|| (), ms(50)) {
                Err(DeadlineError::Refused(refused)) => assert!(refused.is_saturated()),
                other => panic!("{other:?}"),
            }
            let workers = pool.workers();
            assert!(workers.iter().all(|w| w.busy), "{workers:?}");
            #[cfg(target_os = "linux")]
            assert_eq!(os::workers_named("lp18"), 2);
            gate.open();
            settle(&pool);
        }
        let s = pool.stats();
        assert_eq!(s.spawned, 2, "{s:?}");
        assert!(s.timed_out > 0, "{s:?}");
    });
}

/// Law 4: a pool has no other threads than its workers, under every kind of work.
#[cfg(target_os = "linux")]
#[test]
fn law04_no_thread_beyond_workers() {
    isolated("law04_no_thread_beyond_workers", || {
        let before = os::thread_total();
        for (max, queue, policy) in [
            (1, 0, WhenFull::Refuse),
            (3, 0, WhenFull::Refuse),
            (3, 4, WhenFull::Block),
        ] {
            let pool = Pool::builder()
                .max_workers(max)
                .queue_capacity(queue)
                .when_full(policy)
                // The timeout is so long that no worker ends during the test: a thread that ends is
                // still listed for a moment.
                .idle_timeout(Duration::from_secs(3600))
                .build()
                .unwrap();
            let gate = Gate::new();
            for i in 0..max {
                match pool.do_with_deadline(gate.task(), ms(20)) {
                    Err(DeadlineError::TimedOut) => {}
                    // The task did not start in time. It must run, even without a caller.
                    Err(DeadlineError::Expired(f)) => {
                        wait_until("the worker to let go", || pool.stats().idle > 0);
                        must_serve(&pool, f.into_inner());
                    }
                    other => panic!("{other:?}"),
                }
                let now = os::thread_total();
                assert!(now <= before + i + 1, "{now} threads, {before} before, {i}");
            }
            gate.wait_entered(max);
            for _ in 0..50 {
                let _ = pool.do_with_deadline(|| (), ms(1));
            }
            let group = pool.group();
            let _ = group.wait_timeout(ms(5));
            let now = os::thread_total();
            assert!(now <= before + max, "{now} threads, {before} before");
            let report = pool.shutdown(Shutdown::Cancel, ms(20));
            assert!(!report.is_clean());
            let now = os::thread_total();
            assert!(now <= before + max, "{now} threads, {before} before");
            gate.open();
            assert!(pool.shutdown(Shutdown::Cancel, Duration::MAX).is_clean());
            drop(pool);
            wait_until("threads to end", || os::thread_total() == before);
        }
    });
}

/// Laws 4 and 6: a pool that never ran a task leaves no thread behind, whether it is dropped or
/// shut down first. See ants 212, 244.
#[cfg(target_os = "linux")]
#[test]
fn law04_law06_an_unused_pool_leaves_nothing() {
    isolated("law04_law06_an_unused_pool_leaves_nothing", || {
        let before = os::thread_total();
        for i in 0..60 {
            let pool = Pool::builder()
                .max_workers(4)
                .min_workers(i % 3)
                .queue_capacity(i % 4)
                .idle_timeout(if i % 5 == 0 { ms(1) } else { ms(10_000) })
                .build()
                .unwrap();
            if i % 2 == 0 {
                let report = pool.shutdown(Shutdown::Drain, Duration::MAX);
                assert!(report.is_clean());
                assert_eq!(report.discarded, 0);
                wait_until("threads to end", || os::thread_total() == before);
            }
            drop(pool);
            wait_until("threads to end", || os::thread_total() == before);
        }
    });
}

// ---------------------------------------------------------------------------------------------
// Law 6
// ---------------------------------------------------------------------------------------------

/// Runs `n` tasks at once and waits for their end.
fn burst(pool: &Pool, n: usize) {
    let gate = Gate::new();
    for _ in 0..n {
        must_serve(pool, gate.task());
    }
    gate.wait_entered(n);
    gate.open();
    settle(pool);
}

/// Law 6: idle workers have retired within twice the timeout, each once, and the pool works again
/// afterwards.
#[test]
fn law06_idle_workers_retire() {
    timed(|| {
        for (queue, idle) in [(0, ms(400)), (8, ms(400)), (0, ms(20)), (0, Duration::ZERO)] {
            let pool = pool(5, queue, idle);
            for round in 1..=2 {
                let from = pool.stats().spawned;
                burst(&pool, 5);
                let end = Instant::now();
                wait_until("workers to retire", || pool.stats().workers == 0);
                let took = end.elapsed();
                // The law allows twice the timeout; a busy machine gets two seconds more.
                assert!(took < 2 * idle + ms(2000), "{idle:?} took {took:?}");
                let s = pool.stats();
                assert_eq!(s.spawned, s.retired, "round {round}: {s:?}");
                assert!(s.spawned >= from + 5, "{s:?}");
                assert_eq!((s.idle, s.refused, s.peak_workers), (0, 0, 5), "{s:?}");
                assert!(pool.workers().is_empty());
                check_at_rest(&pool, &s);
            }
        }
    });
}

/// Law 6: if 0, 1, 2 or N workers have been idle for the timeout, exactly those retire, each once.
/// See ants 7.
#[test]
fn law06_all_and_only_the_idle_retire() {
    timed(|| {
        for queue in [0, 5] {
            for stale in [0, 1, 2, 6] {
                let pool = pool(6, queue, ms(60));
                let busy = Gate::new();
                let idle = Gate::new();
                // The idle workers are not just the first or last ones.
                for i in 0..6 {
                    let gate = if i * 5 % 6 < stale { &idle } else { &busy };
                    must_serve(&pool, gate.task());
                }
                busy.wait_entered(6 - stale);
                idle.wait_entered(stale);
                idle.open();
                wait_until("the idle workers to retire", || {
                    pool.stats().retired == stale as u64
                });
                // None of the others retires in the next few sweeps.
                thread::sleep(ms(200));
                let s = pool.stats();
                assert_eq!(
                    (s.workers, s.retired, s.running, s.spawned),
                    (6 - stale, stale as u64, 6 - stale, 6),
                    "{stale} stale: {s:?}"
                );
                assert_eq!(pool.workers().len(), 6 - stale);
                busy.open();
                wait_until("all workers to retire", || pool.stats().workers == 0);
                assert_eq!(pool.stats().retired, 6);
            }
        }
    });
}

/// Law 6: workers retire down to `min_workers` and no further. If that is the maximum, none ever
/// retires.
#[test]
fn law06_min_workers_stay() {
    timed(|| {
        for (min, queue) in [(1, 0), (2, 4), (6, 0)] {
            let pool = Pool::builder()
                .max_workers(6)
                .min_workers(min)
                .queue_capacity(queue)
                .idle_timeout(ms(30))
                .build()
                .unwrap();
            for _ in 0..2 {
                burst(&pool, 6);
                wait_until("workers to retire", || pool.stats().workers == min);
                thread::sleep(ms(150));
                let s = pool.stats();
                assert_eq!((s.workers, s.idle), (min, min), "{s:?}");
            }
            let s = pool.stats();
            assert_eq!(s.retired, s.spawned - min as u64, "{s:?}");
            let from = s.spawned;
            burst(&pool, min);
            assert_eq!(pool.stats().spawned, from, "the remaining workers serve");
        }
    });
}

/// Law 6: the workers of `min_workers` never retire, even if they were never used or the timeout is
/// zero.
#[test]
fn law06_unused_min_workers_stay() {
    timed(|| {
        for idle in [Duration::ZERO, ms(10)] {
            let pool = Pool::builder()
                .max_workers(4)
                .min_workers(2)
                .idle_timeout(idle)
                .build()
                .unwrap();
            thread::sleep(ms(100));
            let s = pool.stats();
            assert_eq!((s.workers, s.spawned, s.retired), (2, 2, 0), "{s:?}");
        }
    });
}

/// Law 6: with a timeout of `Duration::MAX`, or one beyond the clock's range, no worker retires.
#[test]
fn law06_no_retirement() {
    timed(|| {
        for idle in [
            Duration::MAX,
            Duration::from_secs(u64::MAX),
            Duration::from_secs(u64::MAX / 2),
            Duration::from_secs(1 << 40),
        ] {
            let pool = pool(4, 0, idle);
            burst(&pool, 4);
            thread::sleep(ms(60));
            let s = pool.stats();
            assert_eq!((s.workers, s.idle, s.retired), (4, 4, 0), "{idle:?}: {s:?}");
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        }
    });
}

/// Law 6: a worker that was used a moment ago survives a sweep.
#[test]
fn law06_a_worker_in_use_survives_sweeps() {
    timed(|| {
        for queue in [0, 4] {
            let idle = ms(100);
            // If the machine stalls for a whole timeout, the worker rightly retires. Then the test
            // tries again.
            let valid = (0..20).any(|_| {
                let pool = pool(2, queue, idle);
                let mut longest = Duration::ZERO;
                let begin = Instant::now();
                pool.do_with_deadline(|| (), Duration::MAX).unwrap();
                let mut last = begin;
                while begin.elapsed() < 8 * idle {
                    thread::sleep(ms(5));
                    pool.do_with_deadline(|| (), Duration::MAX).unwrap();
                    let now = Instant::now();
                    longest = longest.max(now - last);
                    last = now;
                }
                let s = pool.stats();
                // Half the timeout, because a sweep may come a little later than it should.
                if longest < idle / 2 {
                    assert_eq!((s.spawned, s.retired), (1, 0), "{longest:?}, {s:?}");
                    true
                } else {
                    false
                }
            });
            assert!(valid, "the machine stalls too often to test this");
        }
    });
}

/// The threads that submit the trickle.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    OneThread,
    FourThreads,
    ANewThreadEach,
}

/// Law 6: after a burst up to the maximum, a trickle of tasks keeps alive the workers that it needs
/// and one more. The others retire, whichever threads submit the trickle. See jetty 4105, 8270.
#[test]
fn law06_a_trickle_does_not_keep_the_burst_alive() {
    timed(|| {
        thread::scope(|s| {
            for by in [By::OneThread, By::FourThreads, By::ANewThreadEach] {
                for queue in [0, 32] {
                    s.spawn(move || trickle(by, queue));
                }
            }
        });
    });
}

fn trickle(by: By, queue: usize) {
    let idle = ms(300);
    let pool = Arc::new(pool(16, queue, idle));
    burst(&pool, 16);
    let end = Instant::now();
    let stop = AtomicBool::new(false);
    let turn = AtomicUsize::new(0);
    thread::scope(|s| {
        // The tasks come one after the other in every case, so the trickle needs one worker.
        let threads = if by == By::FourThreads { 4 } else { 1 };
        for me in 0..threads {
            let (pool, stop, turn) = (&pool, &stop, &turn);
            s.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    thread::sleep(ms(3));
                    if turn.load(Ordering::SeqCst) % threads != me {
                        continue;
                    }
                    if by == By::ANewThreadEach {
                        let pool = Arc::clone(pool);
                        thread::spawn(move || pool.do_with_deadline(|| (), LONG).unwrap())
                            .join()
                            .unwrap();
                    } else {
                        pool.do_with_deadline(|| (), LONG).unwrap();
                    }
                    turn.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let shrunk = (0..20_000).any(|_| {
            thread::sleep(ms(1));
            pool.stats().workers <= 2 || end.elapsed() > LIMIT
        });
        let took = end.elapsed();
        let s = pool.stats();
        let spawned = s.spawned;
        thread::sleep(2 * idle);
        let later = pool.stats();
        stop.store(true, Ordering::SeqCst);
        assert!(shrunk && s.workers <= 2, "{by:?}, queue {queue}: {s:?}");
        // Three timeouts, and three seconds for a busy machine.
        assert!(
            took < 3 * idle + ms(3000),
            "{by:?}, queue {queue}: {took:?}"
        );
        assert!(later.workers <= 2, "{later:?}");
        // A worker may have retired and been started again if the trickle itself stalled.
        assert!(later.spawned <= spawned + 2, "{by:?}: {later:?}");
    });
    let s = pool.stats();
    assert_eq!(s.refused, 0, "{s:?}");
    assert!(turn.load(Ordering::SeqCst) > 10, "no trickle");
}

/// Law 6: retirement loses no task and leaves none waiting, even if queued tasks meet workers that
/// are about to leave.
#[test]
fn law06_retirement_strands_no_task() {
    timed(|| {
        thread::scope(|s| {
            for (seed, max, queue, idle) in [
                (1, 1, 1, Duration::ZERO),
                (2, 1, 64, Duration::ZERO),
                (3, 2, 4, ms(1)),
                (4, 3, 64, ms(1)),
                (5, 4, 0, ms(1)),
            ] {
                s.spawn(move || {
                    let pool = pool(max, queue, idle);
                    let mut rng = Rng::new(seed);
                    let ran = Arc::new(AtomicU64::new(0));
                    let mut served = 0;
                    for _ in 0..rounds(500) {
                        for _ in 0..=rng.below((max + queue) as u64) {
                            let mark = Arc::clone(&ran);
                            let task = move || {
                                mark.fetch_add(1, Ordering::SeqCst);
                            };
                            must_serve(&pool, task);
                            served += 1;
                        }
                        // No further submission helps: a stranded task would stay in the queue.
                        wait_until("every task to run", || ran.load(Ordering::SeqCst) == served);
                        settle(&pool);
                        thread::sleep(Duration::from_micros(rng.below(2500)));
                    }
                    assert_eq!(pool.stats().refused, 0);
                });
            }
        });
    });
}

/// Law 6: when the last worker has retired, no thread is left. The next task starts a worker again.
#[cfg(target_os = "linux")]
#[test]
fn law06_no_thread_is_left_with_the_last_worker() {
    isolated("law06_no_thread_is_left_with_the_last_worker", || {
        let before = os::thread_total();
        for (queue, idle) in [(0, ms(30)), (4, ms(30)), (0, Duration::ZERO)] {
            let pool = pool(3, queue, idle);
            for _ in 0..4 {
                burst(&pool, 3);
                wait_until("every thread of the pool to end", || {
                    os::thread_total() == before
                });
                let s = pool.stats();
                assert_eq!((s.workers, s.spawned), (0, s.retired), "{s:?}");
            }
        }
    });
}

// ---------------------------------------------------------------------------------------------
// Law 11
// ---------------------------------------------------------------------------------------------

/// Waits for a second in which no other thread of the process uses the CPU or wakes, then asserts
/// that none does for a while. It takes a whole second, because on a busy machine a runnable thread
/// may have to wait for a CPU.
#[cfg(target_os = "linux")]
#[track_caller]
fn assert_asleep() {
    wait_until("the pools to fall asleep", || {
        let before = os::others_activity();
        thread::sleep(ms(1000));
        os::others_activity() == before
    });
    let before = os::others_activity();
    // Lasts longer in a stress run, like everything else.
    thread::sleep(ms(1200 * stress()));
    let after = os::others_activity();
    let (nanos, wakes) = (after.0 - before.0, after.1 - before.1);
    assert_eq!((nanos, wakes), (0, 0), "processor time, and wake-ups");
}

/// Law 11: an idle pool uses no CPU time. If no worker can expire, no timer wakes a thread. See
/// JDK-8065320, rayon 642, surrealdb 6979.
#[cfg(target_os = "linux")]
#[test]
fn law11_an_idle_pool_sleeps() {
    isolated("law11_an_idle_pool_sleeps", || {
        let builders = [
            // This pool is never used.
            Pool::builder().max_workers(4),
            Pool::builder().max_workers(4).min_workers(4),
            // The workers of these pools cannot expire: there is no timeout, or they are the
            // minimum.
            Pool::builder().max_workers(4).idle_timeout(Duration::MAX),
            Pool::builder()
                .max_workers(4)
                .queue_capacity(16)
                .idle_timeout(Duration::MAX),
            Pool::builder()
                .max_workers(4)
                .min_workers(4)
                .idle_timeout(ms(1)),
            Pool::builder()
                .max_workers(6)
                .min_workers(2)
                .queue_capacity(16)
                .idle_timeout(ms(1)),
            // All workers of this pool have expired.
            Pool::builder().max_workers(4).idle_timeout(ms(1)),
            Pool::builder().max_workers(4).idle_timeout(Duration::ZERO),
        ];
        let pools: Vec<Pool> = builders.into_iter().map(|b| b.build().unwrap()).collect();
        for pool in &pools[2..] {
            burst(pool, pool.max_workers());
            for _ in 0..100 {
                pool.do_with_deadline(|| (), LONG).unwrap();
            }
        }
        for pool in &pools[5..] {
            wait_until("workers to retire", || {
                pool.stats().workers == pool.min_workers()
            });
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
/// CPU time and hardly wakes. See JDK-8065320, rayon 642, surrealdb 6979.
#[cfg(target_os = "linux")]
#[test]
fn law11_an_expiring_pool_hardly_wakes() {
    isolated("law11_an_expiring_pool_hardly_wakes", || {
        let pools: Vec<Pool> = [0, 16]
            .iter()
            .map(|&queue| {
                Pool::builder()
                    .max_workers(8)
                    .queue_capacity(queue)
                    .build()
                    .unwrap()
            })
            .collect();
        for pool in &pools {
            burst(pool, 8);
        }
        // Workers stop spinning within moments. They may still wake for a sweep now and then.
        thread::sleep(ms(300));
        let before = os::others_activity();
        thread::sleep(ms(1500));
        let after = os::others_activity();
        let (nanos, wakes) = (after.0 - before.0, after.1 - before.1);
        assert!(nanos < 15_000_000, "{nanos} ns of processor time");
        assert!(wakes <= 60, "{wakes} wake-ups of two idle pools in 1.5 s");
    });
}

/// Law 11: while a thread takes the registry's lock without a pause, only one worker tries to
/// sweep. Once, all of them tried every half millisecond, and together kept that thread off the
/// CPUs.
#[cfg(target_os = "linux")]
#[test]
fn law11_one_worker_waits_for_the_registrys_lock() {
    isolated("law11_one_worker_waits_for_the_registrys_lock", || {
        const WORKERS: usize = 500;
        // A sweep comes after half the timeout, and no worker retires before the end of the test.
        let pool = pool(WORKERS, 0, Duration::from_secs(4));
        burst(&pool, WORKERS);
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
    isolated("law11_an_idle_pool_below_its_former_limit_sleeps", || {
        for queue in [0, 16] {
            let pool = Pool::builder()
                .max_workers(2)
                .min_workers(1)
                .queue_capacity(queue)
                .idle_timeout(ms(40))
                .build()
                .unwrap();
            let gate = Gate::new();
            must_serve(&pool, gate.task());
            must_serve(&pool, gate.task());
            gate.wait_entered(2);
            pool.set_limit(1).unwrap();
            gate.open();
            wait_until("a worker to end", || {
                pool.stats().workers == 1 && os::workers_named("lazypool") == 1
            });
            thread::sleep(ms(300));
            let before = os::others_activity();
            thread::sleep(ms(1500));
            let wakes = os::others_activity().1 - before.1;
            assert!(wakes <= 30, "{wakes} wake-ups of an idle pool in 1.5 s");
        }
    });
}

/// Law 11: callers that wait for a result or for room do not use the CPU either.
#[cfg(target_os = "linux")]
#[test]
fn law11_waiting_callers_sleep() {
    isolated("law11_waiting_callers_sleep", || {
        let pool = Pool::builder()
            .max_workers(1)
            .when_full(WhenFull::Block)
            .idle_timeout(Duration::MAX)
            .build()
            .unwrap();
        let gate = Gate::new();
        let group = pool.group();
        thread::scope(|s| {
            let _opener = gate.opener();
            s.spawn(|| pool.do_with_deadline(gate.task(), Duration::MAX).unwrap());
            gate.wait_entered(1);
            s.spawn(|| pool.do_with_deadline(|| (), Duration::MAX).unwrap());
            s.spawn(|| pool.serve(|| ()).unwrap());
            s.spawn(|| group.serve(|| ()).unwrap());
            assert_asleep();
        });
        settle(&pool);
    });
}
