//! Law 19 (fork): in a child, submissions to a pool of its parent are refused, and `shutdown` and
//! drop return at once, for each state of the parent's threads at the fork. The parent notices
//! nothing. The child uses nothing else of the parent's pools.
//!
//! | the pool at the fork | test: `law19_...` |
//! |---|---|
//! | never used | `a_pool_that_was_never_used` |
//! | all workers idle | `idle_workers` |
//! | all workers retired | `workers_that_have_all_retired` |
//! | full: threads and futures wait in line, callers wait for outcomes and groups | `a_full_pool_with_a_line_and_waiting_callers` |
//! | a worker in its start hook, with a task or without | `beside_a_worker_in_its_start_hook` |
//! | a worker in its stop hook, told to end by a sweep or a shutdown | `beside_a_worker_in_its_stop_hook` |
//! | a shutdown waits, in each mode | `while_a_shutdown_waits` |
//! | shut down, in each mode | `a_pool_that_has_ended` |
//! | made by the parent of the forking process | `a_fork_of_a_fork` |
//! | used by a child handler that the program has registered | `an_earlier_child_handler` |
//!
//! See `fork_locks.rs` for forks while other threads hold the pool's locks, and `fork_within.rs`
//! for forks made by a task, hook, waker or capture.
#![cfg(unix)]

mod common;

use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use common::fork::*;
use common::futures::{block_on, counted, poll};
use common::*;
use lazypool::{Builder, DeadlineError, Pool, Shutdown, WhenFull};

fn builder(max: usize, queue: usize) -> Builder {
    Pool::builder().max_workers(max).queue_capacity(queue)
}

#[test]
fn law19_a_pool_that_was_never_used() {
    isolated("law19_a_pool_that_was_never_used", || {
        for queue in [0, 4] {
            let pool = builder(2, queue).build().unwrap();
            let groups = [pool.group()];
            let pool = fork_beside(pool, &groups[0]);
            assert_eq!(pool.stats().refused, 0);
            assert_cap_usable(&pool);
            check_at_rest(&pool, &settle(&pool));
        }
    });
}

#[test]
fn law19_idle_workers() {
    isolated("law19_idle_workers", || {
        for queue in [0, 4] {
            let pool = builder(3, queue).min_workers(2).build().unwrap();
            wait_until("two workers to be idle", || pool.stats().idle == 2);
            let group = pool.group();
            group.serve(|| ()).unwrap();
            group.wait();
            let mut pool = pool;
            for _ in 0..5 {
                pool = fork_beside(pool, &group);
                assert_eq!(pool.do_with_deadline(|| 2, LONG).unwrap(), 2);
            }
            assert_eq!(group.completed(), 1);
            assert_cap_usable(&pool);
            let stats = settle(&pool);
            assert_eq!(stats.accepted, 6 + 3 + queue as u64);
            check_at_rest(&pool, &stats);
        }
    });
}

/// Waits in line by one of the three ways for a thread to do so. Returns `true` if the task was
/// accepted.
fn wait_in_line(pool: &Pool, turn: u64) -> bool {
    match turn {
        0 => pool.when_full(WhenFull::Block).serve(|| ()).is_ok(),
        1 => {
            let patient = pool.when_full(WhenFull::BlockFor(LONG));
            patient.serve(|| ()).is_ok()
        }
        _ => {
            let blocks = pool.when_full(WhenFull::Block);
            blocks.do_with_deadline(|| (), LONG).is_ok()
        }
    }
}

#[test]
fn law19_a_full_pool_with_a_line_and_waiting_callers() {
    isolated("law19_a_full_pool_with_a_line_and_waiting_callers", || {
        for queue in [0, 2] {
            let pool = Arc::new(builder(2, queue).build().unwrap());
            let gate = Gate::new();
            let group = pool.group();
            for _ in 0..2 + queue {
                must_serve_in(&group, gate.task());
            }
            gate.wait_entered(2);
            let blocked = [0, 1, 2].map(|turn| {
                let pool = Arc::clone(&pool);
                thread::spawn(move || wait_in_line(&pool, turn))
            });
            let (_, waker) = counted();
            let mut future = pool.awaitable().serve_async(|| 7);
            assert!(matches!(poll(&mut future, &waker), Poll::Pending));
            let waits = group.clone();
            let waiting = thread::spawn(move || waits.wait());
            wait_until("four submissions to wait for room", || {
                pool.stats().waiting == 4
            });
            for _ in 0..5 {
                in_child(|| assert_refuses(&pool, std::slice::from_ref(&group)));
            }
            let before = pool.stats();
            assert_eq!((before.running, before.queued), (2, queue));
            assert_eq!((before.waiting, before.refused), (4, 0));
            gate.open();
            for thread in blocked {
                assert!(
                    thread.join().unwrap(),
                    "the submission was accepted in the end"
                );
            }
            assert_eq!(block_on(block_on(future).unwrap()).unwrap(), 7);
            waiting.join().unwrap();
            assert_eq!(group.completed(), 2 + queue);
            let stats = settle(&pool);
            assert_eq!(stats.completed, 6 + queue as u64, "{stats:?}");
            check_at_rest(&pool, &stats);
        }
    });
}

#[test]
fn law19_while_a_shutdown_waits() {
    isolated("law19_while_a_shutdown_waits", || {
        for mode in MODES {
            let pool = Arc::new(builder(2, 2).build().unwrap());
            let gate = Gate::new();
            for _ in 0..2 {
                must_serve(&pool, gate.task());
            }
            gate.wait_entered(2);
            let group = pool.group();
            group.serve(|| ()).unwrap();
            let ending = {
                let pool = Arc::clone(&pool);
                thread::spawn(move || pool.shutdown(mode, Duration::MAX))
            };
            wait_until("the pool to be closed", || pool.is_closed());
            for _ in 0..5 {
                in_child(|| assert_refuses(&pool, std::slice::from_ref(&group)));
            }
            gate.open();
            let report = ending.join().unwrap();
            assert!(report.is_clean(), "{report:?}");
            let discarded = u64::from(mode != Shutdown::Drain);
            assert_eq!(report.discarded, discarded);
            let stats = pool.stats();
            assert_eq!(stats.completed, 3 - discarded);
            check_at_rest(&pool, &stats);
        }
    });
}

#[test]
fn law19_a_pool_that_has_ended() {
    isolated("law19_a_pool_that_has_ended", || {
        for mode in MODES {
            let mut pool = builder(2, 2).build().unwrap();
            let group = pool.group();
            for _ in 0..3 {
                group.serve(|| ()).unwrap();
            }
            group.wait();
            assert!(pool.shutdown(mode, LIMIT).is_clean());
            let before = pool.stats();
            pool = fork_thrice(pool, &group);
            assert_eq!(pool.stats(), before);
            assert!(pool
                .serve(|| ())
                .expect_err("the pool is shut down")
                .is_closed());
            assert_eq!((group.completed(), group.is_cancelled()), (3, false));
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        }
    });
}

#[test]
fn law19_workers_that_have_all_retired() {
    isolated("law19_workers_that_have_all_retired", || {
        for queue in [0, 4] {
            let mut pool = builder(2, queue)
                .idle_timeout(Duration::ZERO)
                .build()
                .unwrap();
            let group = pool.group();
            for round in 1..=3 {
                for _ in 0..2 {
                    group.serve(|| ()).unwrap();
                }
                group.wait();
                wait_until("all workers to retire", || pool.stats().workers == 0);
                pool = fork_beside(pool, &group);
                assert_eq!(group.completed(), 2 * round);
            }
            assert_eq!(pool.stats().refused, 0);
            assert_ends_well(&pool);
        }
    });
}

/// The worker is started with a task, and without one.
#[test]
fn law19_beside_a_worker_in_its_start_hook() {
    isolated("law19_beside_a_worker_in_its_start_hook", || {
        for (queue, with_task) in [(0, true), (4, true), (0, false), (4, false)] {
            let gate = Gate::new();
            let key = gate.key();
            let mut pool = builder(1, queue)
                .on_worker_start(move |_| key.pass())
                .build()
                .unwrap();
            let group = pool.group();
            let tasks = if with_task { 1 + queue } else { 0 };
            for _ in 0..tasks {
                group.serve(|| ()).unwrap();
            }
            if !with_task {
                let back = pool.do_with_deadline(|| (), ms(20));
                assert!(matches!(back, Err(DeadlineError::Expired(_))));
            }
            gate.wait_entered(1);
            pool = fork_thrice(pool, &group);
            assert_eq!((group.pending(), pool.stats().refused), (tasks, 0));
            gate.open();
            group.wait();
            assert_eq!(group.completed(), tasks);
            assert_ends_well(&pool);
        }
    });
}

/// The worker ends because it retires, and because of a shutdown that waits for it.
#[test]
fn law19_beside_a_worker_in_its_stop_hook() {
    isolated("law19_beside_a_worker_in_its_stop_hook", || {
        for (queue, ends) in [(0, false), (4, false), (0, true), (4, true)] {
            let gate = Gate::new();
            let key = gate.key();
            let idle = if ends { Duration::MAX } else { Duration::ZERO };
            let mut pool = builder(1, queue)
                .idle_timeout(idle)
                .on_worker_stop(move |_| key.pass())
                .build()
                .unwrap();
            let group = pool.group();
            group.serve(|| ()).unwrap();
            group.wait();
            if ends {
                let report = pool.shutdown(Shutdown::Drain, Duration::ZERO);
                assert_eq!(report.stragglers.len(), 1);
            }
            gate.wait_entered(1);
            pool = fork_thrice(pool, &group);
            let stats = pool.stats();
            assert_eq!((stats.workers, stats.refused), (1, 0), "{stats:?}");
            gate.open();
            if !ends {
                // A worker in its stop hook is busy.
                wait_until("the worker to retire", || pool.stats().workers == 0);
                assert_eq!(pool.do_with_deadline(|| 2, LONG).unwrap(), 2);
                wait_until("the worker to retire", || pool.stats().workers == 0);
                assert_cap_usable(&pool);
            }
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
            check_at_rest(&pool, &pool.stats());
        }
    });
}

#[test]
fn law19_a_fork_of_a_fork() {
    isolated("law19_a_fork_of_a_fork", || {
        let pool = builder(2, 2).build().unwrap();
        pool.do_with_deadline(|| (), LONG).unwrap();
        let mut pool = Some(pool);
        in_child(|| {
            let mut own = Some(builder(2, 2).build().unwrap());
            own.as_ref().unwrap().do_with_deadline(|| (), LONG).unwrap();
            in_child(|| {
                assert_child(&mut pool, &[]);
                assert_child(&mut own, &[]);
            });
            let own = own.take().expect("the child still has its copy");
            assert_eq!(own.do_with_deadline(|| 1, LONG).unwrap(), 1);
            assert_cap_usable(&own);
            assert!(own.shutdown(Shutdown::Drain, LIMIT).is_clean());
            assert_child(&mut pool, &[]);
        });
        let pool = pool.take().expect("the parent's");
        assert_cap_usable(&pool);
    });
}

/// Child handlers run in the order of their registration. The program's own handler may run before
/// that of any pool.
#[test]
fn law19_an_earlier_child_handler() {
    static POOL: OnceLock<Mutex<Option<Pool>>> = OnceLock::new();
    extern "C" fn child() {
        let pool = POOL.get().and_then(|pool| pool.lock().unwrap().take());
        assert_child(&mut { pool }, &[]);
    }
    isolated("law19_an_earlier_child_handler", || {
        // SAFETY: the function exists as long as the program. That it is sound in a child is what
        // this test checks.
        assert_eq!(unsafe { libc::pthread_atfork(None, None, Some(child)) }, 0);
        for queue in [0, 4] {
            let pool = builder(1, queue).build().unwrap();
            pool.do_with_deadline(|| (), LONG).unwrap();
            let place = POOL.get_or_init(Mutex::default);
            *place.lock().unwrap() = Some(pool);
            assert_eq!(code_of(fork_and_exit()), 0);
            let pool = place.lock().unwrap().take().unwrap();
            check_at_rest(&pool, &settle(&pool));
        }
    });
}

fn fork_and_exit() -> i32 {
    let child = fork();
    if child == 0 {
        exit(0);
    }
    child
}
