//! Law 4 with a limit set at run time.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{DeadlineError, Pool, Refusal, Shutdown, WhenFull};

/// Law 4: a number that cannot be a limit is an error and changes nothing.
#[test]
fn law04_limits_out_of_bounds() {
    let pool = pool(3, 0);
    assert_eq!(pool.limit(), 3);
    for given in [0, 4, usize::MAX] {
        let error = pool.set_limit(given).expect_err("out of bounds");
        assert_eq!((error.given(), error.max()), (given, 3));
        let text = format!("the limit is {given}; allowed: 1..=3");
        assert_eq!(error.to_string(), text);
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
    timed(|| {
        for queue in [0, 2] {
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
                let stats = pool.stats();
                assert_eq!((stats.running, stats.queued), (limit, queue), "{stats:?}");
                assert!(stats.workers <= limit, "{stats:?}");
                gate.open();
                check_at_rest(&pool, &settle(&pool));
            }
        }
    });
}

/// Law 4: idle surplus workers end at once, for every idle timeout.
#[test]
fn law04_idle_surplus_workers_end() {
    timed(|| {
        let pool = Pool::builder()
            .max_workers(4)
            .min_workers(3)
            .idle_timeout(Duration::MAX)
            .build()
            .expect("pool");
        assert_eq!(pool.stats().workers, 3);
        pool.set_limit(1).expect("limit");
        wait_until("all workers except one to end", || {
            pool.stats().workers == 1
        });
        assert!(matches!(pool.do_with_deadline(|| 1, LONG), Ok(1)));
        pool.set_limit(4).expect("limit");
        assert_cap_usable(&pool);
        assert_eq!(pool.stats().workers, 4);
    });
}

/// Law 4: occupied surplus workers end after their task and take no other task from the queue. The
/// workers that stay run those.
#[test]
fn law04_occupied_surplus_workers_end_after_their_task() {
    timed(|| {
        let pool = pool(4, 8);
        let (first, second) = (Gate::new(), Gate::new());
        for _ in 0..4 {
            must_serve(&pool, first.task());
        }
        first.wait_entered(4);
        for _ in 0..8 {
            must_serve(&pool, second.task());
        }
        pool.set_limit(2).expect("limit");
        assert_eq!(pool.stats().running, 4, "running tasks run on");
        first.open();
        wait_until("two workers to end", || pool.stats().workers == 2);
        wait_until("the other tasks to go on", || second.entered() == 2);
        thread::sleep(ms(20));
        assert_eq!(second.entered(), 2);
        let stats = pool.stats();
        assert_eq!((stats.running, stats.queued), (2, 6), "{stats:?}");
        second.open();
        let stats = settle(&pool);
        assert_eq!((stats.completed, stats.retired), (12, 2), "{stats:?}");
        check_at_rest(&pool, &stats);
    });
}

/// Law 4: a task submitted after `set_limit` has returned starts only while fewer others run than
/// the limit says, even if workers are between two tasks of the queue. Tasks queued before may have
/// been taken before: at most one by each surplus worker.
#[test]
fn law04_lowered_between_two_tasks_of_the_queue() {
    const WORKERS: usize = 4;
    timed(|| {
        for limit in (1..WORKERS).cycle().take(rounds(60) as usize) {
            let pool = pool(WORKERS, 512);
            let lowered = Arc::new(AtomicBool::new(false));
            let (running, before, after) = (Arc::default(), Arc::default(), Arc::default());
            let task = |excess: &Arc<AtomicUsize>| {
                let (lowered, excess) = (Arc::clone(&lowered), Arc::clone(excess));
                let running: Arc<AtomicUsize> = Arc::clone(&running);
                move || {
                    // Read in this order, so that a task is counted only if it started after the
                    // call.
                    let is_after = lowered.load(Ordering::SeqCst);
                    let others = running.fetch_add(1, Ordering::SeqCst);
                    if is_after && others >= limit {
                        excess.fetch_add(1, Ordering::SeqCst);
                    }
                    spin(Duration::from_micros(5));
                    running.fetch_sub(1, Ordering::SeqCst);
                }
            };
            // Either few tasks, so that they run out during the call, or many.
            for _ in 0..20 + 280 * usize::from(limit == 2) {
                must_serve(&pool, task(&before));
            }
            pool.set_limit(limit).expect("limit");
            lowered.store(true, Ordering::SeqCst);
            for _ in 0..100 {
                must_serve(&pool, task(&after));
            }
            let stats = settle(&pool);
            assert_eq!(stats.completed, stats.accepted, "{stats:?}");
            assert_eq!(after.load(Ordering::SeqCst), 0, "above {limit}");
            let before = before.load(Ordering::SeqCst);
            assert!(before <= WORKERS - limit, "{before} above {limit}");
        }
    });
}

/// Law 4: a worker's task ends just as the limit is lowered, while another worker stays busy. The
/// first one starts at most one more task: the one that was just being given to it.
#[test]
fn law04_lowered_as_a_task_ends() {
    timed(|| {
        for _ in 0..rounds(200) {
            let pool = pool(2, 4);
            let gate = Gate::new();
            must_serve(&pool, gate.task());
            gate.wait_entered(1);
            let ended = Arc::new(AtomicBool::new(false));
            let tell = Arc::clone(&ended);
            must_serve(&pool, move || tell.store(true, Ordering::SeqCst));
            while !ended.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            pool.set_limit(1).expect("limit");
            let early = Arc::new(AtomicUsize::new(0));
            for _ in 0..3 {
                let (key, seen) = (gate.key(), Arc::clone(&early));
                must_serve(&pool, move || {
                    seen.fetch_add(usize::from(!key.is_open()), Ordering::SeqCst);
                });
            }
            wait_until("the surplus worker to end", || pool.stats().workers == 1);
            let early = early.load(Ordering::SeqCst);
            assert!(early <= 1, "{early} tasks of a surplus worker");
            gate.open();
            let s = settle(&pool);
            check_at_rest(&pool, &s);
            assert_eq!(s.completed, 5, "{s:?}");
        }
    });
}

/// Law 4: if the limit is lowered beside a worker in its start hook and an idle one, the first ends
/// after its hook, without a task, and the idle one stays. Once, the idle one was told to end.
#[test]
fn law04_a_worker_in_its_start_hook_ends_before_an_idle_one() {
    timed(|| {
        for queue in [0, 4] {
            let hook = Gate::new();
            let key = hook.key();
            let pool = Pool::builder()
                .max_workers(2)
                .queue_capacity(queue)
                .idle_timeout(Duration::MAX)
                .on_worker_start(move |slot| {
                    if slot == 1 {
                        key.pass();
                    }
                })
                .build()
                .expect("pool");
            let _open = hook.opener();
            let gate = Gate::new();
            must_serve(&pool, gate.task());
            gate.wait_entered(1);
            // The second worker is started for a call that leaves before the hook is over.
            let left = pool.do_with_deadline(|| (), ms(10));
            assert!(matches!(left, Err(DeadlineError::Expired(_))), "{left:?}");
            hook.wait_entered(1);
            gate.open();
            wait_until("an idle worker", || pool.stats().idle == 1);
            pool.set_limit(1).expect("limit");
            let s = pool.stats();
            assert_eq!((s.workers, s.idle), (2, 1), "{s:?}");
            // These tasks run at once, while the hook lasts.
            for _ in 0..3 {
                let slot = pool.do_with_deadline(lazypool::task::slot, LONG);
                assert_eq!(slot.expect("idle"), Some(0));
            }
            hook.open();
            wait_until("the other worker to end", || pool.stats().workers == 1);
            assert_eq!(pool.workers()[0].slot, 0);
            check_at_rest(&pool, &settle(&pool));
        }
    });
}

/// Law 4: raising the limit wakes submitters that wait for room, and starts workers for queued
/// tasks.
#[test]
fn law04_raising_the_limit_makes_room() {
    timed(|| {
        let pool = Arc::new(pool(3, 1));
        pool.set_limit(1).expect("limit");
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let blocked = {
            let (pool, task) = (Arc::clone(&pool), gate.task());
            thread::spawn(move || pool.when_full(WhenFull::Block).serve(task).is_ok())
        };
        wait_until("a submitter to wait", || pool.stats().waiting == 1);
        pool.set_limit(3).expect("limit");
        assert!(blocked.join().expect("no panic"));
        // No thread submits any more; the queued task gets a worker nevertheless.
        wait_until("all three tasks to run", || gate.entered() == 3);
        gate.open();
        check_at_rest(&pool, &settle(&pool));
    });
}

/// Law 4: scopes and nested calls work within a limit.
#[test]
fn law04_scopes_within_a_limit() {
    timed(|| {
        let pool = pool(4, 2);
        pool.set_limit(1).expect("limit");
        let sum = AtomicUsize::new(0);
        pool.scope(|s| {
            for n in 0..10 {
                let sum = &sum;
                s.serve_or_run(move || {
                    sum.fetch_add(n, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(sum.load(Ordering::SeqCst), 45);
        assert_eq!(pool.stats().peak_workers, 1);
        let pool = Arc::new(pool);
        let inner = Arc::downgrade(&pool);
        let nested = pool.do_with_deadline(
            move || {
                inner
                    .upgrade()
                    .map(|pool| pool.do_with_deadline(|| (), LONG))
            },
            LONG,
        );
        let Ok(Some(Err(lazypool::DeadlineError::Refused(refused)))) = nested else {
            panic!("there is one worker: {nested:?}");
        };
        assert!(matches!(refused.reason(), Refusal::OnWorker));
    });
}

/// Law 4: a limit that changes under load loses no task, and bounds the tasks that start once it
/// has settled.
#[test]
fn law04_the_limit_changes_under_load() {
    timed(|| {
        let pool = Arc::new(
            Pool::builder()
                .max_workers(6)
                .queue_capacity(8)
                .idle_timeout(ms(1))
                .build()
                .expect("pool"),
        );
        let stop = Arc::new(AtomicBool::new(false));
        let served: Vec<_> = (0..3)
            .map(|_| {
                let (pool, stop) = (Arc::clone(&pool), Arc::clone(&stop));
                thread::spawn(move || {
                    let mut served = 0;
                    while !stop.load(Ordering::SeqCst) {
                        let blocks = pool.when_full(WhenFull::Block);
                        served +=
                            u64::from(blocks.serve(|| spin(Duration::from_micros(20))).is_ok());
                        let value = blocks.do_with_deadline(|| 7, LONG);
                        assert!(matches!(value, Ok(7)), "{value:?}");
                        served += 1;
                    }
                    served
                })
            })
            .collect();
        let mut rng = Rng::new(4);
        for _ in 0..rounds(150) {
            let limit = 1 + rng.below(6) as usize;
            pool.set_limit(limit).expect("limit");
            if rng.below(3) == 0 {
                let settle = || {
                    let spawned = pool.stats().spawned;
                    wait_until("surplus workers to end", || {
                        let stats = pool.stats();
                        stats.workers <= limit && stats.running <= limit
                    });
                    spawned
                };
                let (mut spawned, mut late) = (settle(), 0);
                for _ in 0..20 {
                    let stats = pool.stats();
                    check_moment(&pool, &stats);
                    if stats.running > limit {
                        // A thread whose start was under way when the limit was lowered may still
                        // run its task. Each submitter and worker may have started one.
                        late += 1;
                        let is_new = pool.stats().spawned > spawned;
                        assert!(is_new && late <= 3 + 6, "{limit}: {stats:?}");
                        spawned = settle();
                    }
                }
            } else {
                thread::sleep(Duration::from_micros(rng.below(500)));
            }
        }
        stop.store(true, Ordering::SeqCst);
        let served: u64 = served
            .into_iter()
            .map(|t| t.join().expect("no panic"))
            .sum();
        let stats = settle(&pool);
        check_at_rest(&pool, &stats);
        assert_eq!((stats.completed, stats.refused), (served, 0), "{stats:?}");
        pool.set_limit(6).expect("limit");
        assert_cap_usable(&pool);
        assert!(pool.shutdown(Shutdown::Drain, LONG).is_clean());
    });
}

/// Law 5: setting the limit to its present value starts no thread while the worker that was started
/// for a queued task is still in its start hook. Once, each such call started another thread.
#[test]
fn law05_a_limit_set_again_starts_no_thread() {
    timed(|| {
        let (busy, hook) = (Gate::new(), Gate::new());
        let (key, starts) = (hook.key(), AtomicUsize::new(0));
        let pool = Pool::builder()
            .max_workers(8)
            .queue_capacity(4)
            .idle_timeout(Duration::MAX)
            .on_worker_start(move |_| {
                // The first worker has the busy task.
                if starts.fetch_add(1, Ordering::SeqCst) > 0 {
                    key.pass();
                }
            })
            .build()
            .unwrap();
        let _openers = (busy.opener(), hook.opener());
        pool.set_limit(1).unwrap();
        must_serve(&pool, busy.task());
        busy.wait_entered(1);
        must_serve(&pool, || ());
        for _ in 0..6 {
            pool.set_limit(8).unwrap();
        }
        hook.wait_entered(1);
        assert_eq!(pool.stats().spawned, 2);
        hook.open();
        busy.open();
        assert_eq!(settle(&pool).completed, 2);
    });
}
