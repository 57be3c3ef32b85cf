//! Law 5 (lazy): when a thread is started, and when a task is queued.

mod common;

use std::sync::{mpsc, Arc, Barrier};
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{task, Pool, Shutdown};

/// Law 5: no worker exists before the first task. A sequential caller uses one worker, however many
/// are allowed, even if its tasks panic or its calls come from several threads.
#[test]
fn law05_a_sequential_caller_uses_one_worker() {
    timed_each([0, 16], |queue| {
        let pool = pool(8, queue);
        assert_stats!(pool.stats(), workers: 0, spawned: 0);
        let call = || pool.do_with_deadline(|| (), Duration::MAX).unwrap();
        for i in 0..rounds(2000) {
            match i % 20 {
                0 => thread::scope(|s| s.spawn(call).join().unwrap()),
                1..8 => {
                    panicked(pool.do_with_deadline(|| quiet_panic("on purpose"), LONG));
                }
                8 => {
                    must_serve(&pool, || ());
                    settle(&pool);
                }
                _ => call(),
            }
        }
        assert_stats!(pool.stats(), spawned: 1, workers: 1, peak_workers: 1, idle: 1, running: 0);
    });
}

/// Law 5: a task that calls its own pool again and again uses one worker besides its own. This
/// holds even if the pool has a queue, at which that worker looks after each call.
#[test]
fn law05_a_sequential_caller_on_a_worker_uses_one_more() {
    timed_each([0, 4], |queue| {
        let pool = Arc::new(pool(8, queue));
        let all = on_worker(&pool, |pool| {
            (0..rounds(1000)).all(|_| pool.do_with_deadline(|| (), Duration::MAX).is_ok())
        });
        assert!(all);
        assert_eq!(settle(&pool).spawned, 2, "queue {queue}");
    });
}

/// Law 5: a thread is always started before a task is queued.
#[test]
fn law05_a_thread_before_the_queue() {
    timed(|| {
        let pool = pool(5, 10);
        let gate = Gate::new();
        for i in 1..=5 {
            must_serve(&pool, gate.task());
            // The queue has room for all tasks; nevertheless each gets a thread.
            gate.wait_entered(i);
            assert_stats!(pool.stats(), spawned: i as u64, running: i, queued: 0);
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

/// Law 5: no thread is started while a worker is idle throughout the call. So `n` idle workers take
/// `n` tasks, submitted one after the other or all at once.
#[test]
fn law05_idle_workers_before_a_thread() {
    timed_each([0, 8, 64], |queue| {
        let pool = pool(9, queue);
        for round in 0..rounds(150) {
            let gate = Gate::new();
            let at_once = Barrier::new(if round % 2 == 0 { 1 } else { 4 });
            let serve = || {
                at_once.wait();
                must_serve(&pool, gate.task());
            };
            thread::scope(|s| match round % 2 {
                0 => (0..4).for_each(|_| serve()),
                _ => (0..4).for_each(|_| drop(s.spawn(serve))),
            });
            gate.wait_entered(4);
            let s = pool.stats();
            assert_eq!(s.spawned, 4, "round {round}, queue {queue}: {s:?}");
            gate.open();
            assert_eq!(settle(&pool).idle, 4);
        }
        let _gate = hold(&pool, 5);
        assert_eq!(pool.stats().spawned, 5);
    });
}

/// Law 5: a task stays queued only while every worker is occupied or one is being woken for it. No
/// wake-up is lost, and one free worker is enough.
#[test]
fn law05_no_queued_task_is_forgotten() {
    let cases = [
        (1, 0, Duration::MAX),
        (2, 0, Duration::MAX),
        (2, 0, ms(1)),
        (3, 2, Duration::MAX),
    ];
    timed_each(cases, |(max, occupied, idle)| {
        let pool = pool_with(max, 4, |b| b.idle_timeout(idle));
        let _gate = hold(&pool, occupied);
        let ran = Tally::default();
        let mut rng = Rng::new(max as u64);
        let mut served = 0;
        for _ in 0..rounds(3000) {
            // A few tasks at a time, around the moments at which workers go to sleep.
            for _ in 0..=rng.below(3) {
                let (run, work) = (ran.task(), Duration::from_micros(rng.below(8)));
                let outcome = pool.serve(move || {
                    spin(work);
                    run();
                });
                served += u64::from(outcome.is_ok());
                spin(Duration::from_micros(rng.below(12)));
            }
            wait_until("queued tasks to run", || ran.get() == served);
            spin(Duration::from_micros(rng.below(30)));
        }
    });
}

/// Law 5: the workers that `build` starts are idle when it returns, with their start hooks over.
/// They take the first tasks, and no other thread is started.
#[test]
fn law05_workers_started_by_build_take_the_first_tasks() {
    // A queue of 64 has space to spare, so a task for an idle worker may be queued.
    timed_each(product([8, 2], [0, 4, 64]), |(max, queue)| {
        let (hook_gate, ended) = (Gate::new(), Tally::default());
        let (key, ends) = (hook_gate.key(), ended.clone());
        let building = thread::spawn(move || {
            let pool = pool_with(max, queue, |b| {
                b.min_workers(2).on_worker_start(move |_| {
                    key.pass();
                    thread::sleep(ms(5));
                    ends.add(1);
                })
            });
            (ended.get(), pool.stats(), pool)
        });
        hook_gate.wait_entered(2);
        assert!(!building.is_finished(), "the start hooks are not over");
        hook_gate.open();
        let (ended, s, pool) = building.join().expect("a pool");
        assert_eq!(ended, 2);
        assert_stats!(s, spawned: 2, workers: 2, idle: 2);
        assert_eq!(pool.workers().len(), 2);
        let gate = Gate::new();
        let (tx, rx) = mpsc::channel();
        for _ in 0..2 {
            let (tx, wait) = (tx.clone(), gate.task());
            must_serve(&pool, move || {
                tx.send(task::slot()).unwrap();
                wait();
            });
        }
        let mut slots = [0, 1].map(|_| arrives("a task's slot", &rx));
        slots.sort();
        assert_eq!(slots, [Some(0), Some(1)]);
        assert_eq!(pool.stats().spawned, 2);
    });
}

/// Law 5: before the first task no thread exists except those of `min_workers`.
#[cfg(target_os = "linux")]
#[test]
fn law05_no_thread_before_the_first_task() {
    isolated(|| {
        let before = os::thread_total();
        let build = |n| pool_with(n, n % 3, |b| b.idle_timeout(ms(50)));
        let pools: Vec<Pool> = (1..=20).map(build).collect();
        for pool in &pools {
            let seen = (pool.stats(), pool.workers());
            let _ = (seen, pool.labeled("x"), pool.group());
            // This call is counted nowhere, so it starts no thread.
            let _ = pool.do_with_deadline(|| (), Duration::ZERO);
        }
        thread::sleep(ms(150));
        assert_eq!(os::thread_total(), before, "threads without a task");
        let busy = pool_with(8, 0, |b| b.min_workers(3));
        thread::sleep(ms(50));
        assert_eq!(os::thread_total(), before + 3);
        drop(busy);
        for pool in &pools {
            assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        }
        // The system may list a thread for a moment after it was joined.
        wait_until("threads to end", || os::thread_total() == before);
    });
}
