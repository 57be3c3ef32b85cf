//! Law 5 (lazy): when a thread is started, and when a task is queued.

mod common;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::*;

/// Law 5: no worker exists before the first task. A sequential caller uses one worker, however many
/// are allowed, even if its tasks panic, have handles or are in a group, or its calls come from several threads.
#[test]
fn law05_a_sequential_caller_uses_one_worker() {
    timed_each([0, 16], |queue| {
        let pool = pool(8, queue);
        assert_stats!(pool.stats(), workers: 0, spawned: 0);
        let call = || pool.do_with_deadline(|| (), Duration::MAX).unwrap();
        let group = pool.group();
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
                9..11 => group.do_with_deadline(|| (), Duration::MAX).unwrap(),
                11..13 => must_await(pool.awaitable(), || ()).join().unwrap(),
                13..15 => must_await(group.awaitable(), || ()).join().unwrap(),
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
            // The queue has space for all tasks; nevertheless each gets a thread.
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

/// Law 5: no thread is started while a worker is idle throughout the call: `n` idle workers take `n`
/// tasks.
#[test]
fn law05_idle_workers_before_a_thread() {
    timed_each([0, 8, 64], |queue| {
        let pool = pool(9, queue);
        for n in [4; 50].into_iter().chain([5]) {
            let gate = hold(&pool, n);
            assert_eq!(pool.stats().spawned, n as u64);
            gate.open();
            assert_eq!(settle(&pool).idle, n);
        }
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
        let ended = Tally::default();
        let ends = ended.clone();
        let pool = pool_with(max, queue, |b| {
            b.min_workers(2).on_worker_start(move |_| {
                // Long enough for the test to notice a `build` that returns too early.
                thread::sleep(ms(5));
                ends.add(1);
            })
        });
        assert_eq!(ended.get(), 2);
        assert_stats!(pool.stats(), spawned: 2, workers: 2, idle: 2);
        let slots: Vec<_> = pool.workers().iter().map(|w| w.slot).collect();
        assert_eq!(slots, [0, 1]);
        let _gate = hold(&pool, 2);
        assert_eq!(pool.stats().spawned, 2);
    });
}
