//! Law 19 (fork): in a child, submissions to a pool of its parent are refused, and `shutdown` and
//! drop of the pool return at once, for each state of the parent's threads at the fork. The parent
//! notices nothing. The child uses nothing else of the parent's pools.
//!
//! See `fork_within.rs` for forks made by a task, hook, waker or capture.
#![cfg(unix)]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use common::fork::*;
use common::*;
use lazypool::{Group, Pool, Shutdown, Submitter, WhenFull};

/// Pools that were never used, whose workers are idle or have retired, and that have ended.
#[test]
fn law19_a_pool_at_rest() {
    isolated_each(product([0, 4], 0..6), |(queue, state)| {
        let (min, idle) = match state {
            1 => (2, Duration::MAX),
            2 => (0, Duration::ZERO),
            _ => (0, Duration::MAX),
        };
        let pool = pool_with(3, queue, |b| b.min_workers(min).idle_timeout(idle));
        let group = pool.group();
        if state > 0 {
            (0..3).for_each(|_| must_serve_in(&group, || ()));
            group.wait();
        }
        match state {
            0 => {}
            1 => drop(settle(&pool)),
            2 => await_workers(&pool, 0),
            mode => assert!(pool.shutdown(MODES[mode - 3], LIMIT).is_clean()),
        }
        let before = pool.stats();
        let pool = fork_thrice(pool, &group);
        assert_eq!(pool.stats(), before);
        assert_eq!(group.completed() as u64, before.completed);
        assert!(!group.is_cancelled());
        if state < 3 {
            assert_ends_well(&pool);
        } else {
            assert_eq!(reason(pool.serve(|| ())), "closed");
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        }
    });
}

/// Threads and futures wait in line, callers wait for outcomes and groups.
#[test]
fn law19_a_full_pool_with_a_line_and_waiting_callers() {
    isolated_each([0, 2], |queue| {
        let pool = Arc::new(pool(2, queue));
        let gate = Gate::new();
        let group = pool.group();
        (0..2 + queue).for_each(|_| must_serve_in(&group, gate.task()));
        gate.wait_entered(2);
        fn blocks(pool: &Pool) -> Submitter<'_> {
            pool.when_full(WhenFull::Block)
        }
        let ways: [fn(&Pool) -> bool; 3] = [
            |pool| blocks(pool).serve(|| ()).is_ok(),
            |pool| (pool.when_full(WhenFull::BlockFor(LONG)).serve(|| ())).is_ok(),
            |pool| (blocks(pool).do_with_deadline(|| (), LONG)).is_ok(),
        ];
        let blocked = ways.map(|way| beside(&pool, way));
        let future = pending(pool.awaitable().serve_async(|| 7), Waker::noop());
        let waits = group.clone();
        let waiting = thread::spawn(move || waits.wait());
        wait_in_line(&pool, 4);
        for _ in 0..5 {
            in_child(|| assert_refuses(&pool, std::slice::from_ref(&group)));
        }
        let before = pool.stats();
        assert_eq!((before.running, before.queued), (2, queue));
        assert_eq!((before.waiting, before.refused), (4, 0));
        gate.open();
        assert_eq!(blocked.map(|thread| thread.join().unwrap()), [true; 3]);
        assert_eq!(value_of(future), 7);
        waiting.join().unwrap();
        assert_eq!(group.completed(), 2 + queue);
        assert_eq!(at_rest(&pool).completed, 6 + queue as u64);
    });
}

#[test]
fn law19_while_a_shutdown_waits() {
    isolated_each(MODES, |mode| {
        let pool = Arc::new(pool(2, 2));
        let (gate, group) = (Gate::new(), pool.group());
        occupy(&pool, &gate, 2);
        must_serve_in(&group, || ());
        let ending = beside(&pool, move |pool| pool.shutdown(mode, Duration::MAX));
        wait_until("the pool to be closed", || pool.is_closed());
        for _ in 0..5 {
            in_child(|| assert_refuses(&pool, std::slice::from_ref(&group)));
        }
        gate.open();
        let report = ending.join().unwrap();
        assert!(report.is_clean(), "{report:?}");
        let discarded = u64::from(mode != Shutdown::Drain);
        assert_eq!(report.discarded, discarded);
        assert_eq!(at_rest(&pool).completed, 3 - discarded);
    });
}

/// A worker in its start hook, and one in its stop hook.
#[test]
fn law19_beside_a_worker_in_a_hook() {
    isolated_each(product([0, 4], [false, true]), |(queue, stops)| {
        let gate = Gate::new();
        let pool = pool_with(1, queue, |b| match stops {
            false => b.on_worker_start(gate.hook()),
            true => (b.idle_timeout(Duration::ZERO)).on_worker_stop(gate.hook()),
        });
        let group = pool.group();
        must_serve_in(&group, || ());
        gate.wait_entered(1);
        let pending = group.pending();
        let pool = fork_thrice(pool, &group);
        // A thread in its stop hook is no worker any more.
        assert_stats!(pool.stats(), workers: usize::from(!stops), refused: 0);
        assert_eq!(group.pending(), pending);
        gate.open();
        group.wait();
        assert_ends_well(&pool);
    });
}

#[test]
fn law19_a_fork_of_a_fork() {
    isolated(|| {
        let used = || {
            let pool = pool(2, 2);
            pool.do_with_deadline(|| (), LONG).unwrap();
            Some(pool)
        };
        let mut pool = used();
        in_child(|| {
            let mut own = used();
            in_child(|| {
                assert_child(&mut pool, &[]);
                assert_child(&mut own, &[]);
            });
            assert_ends_well(&own.expect("the child still has its copy"));
            assert_child(&mut pool, &[]);
        });
        assert_ends_well(&pool.expect("the parent's"));
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
    isolated(|| {
        // SAFETY: the function exists as long as the program. That it is sound in a child is what
        // this test checks.
        assert_eq!(unsafe { libc::pthread_atfork(None, None, Some(child)) }, 0);
        for queue in [0, 4] {
            let pool = pool(1, queue);
            pool.do_with_deadline(|| (), LONG).unwrap();
            let place = POOL.get_or_init(Mutex::default);
            *place.lock().unwrap() = Some(pool);
            in_child(|| ());
            at_rest(&place.lock().unwrap().take().unwrap());
        }
    });
}

/// Does what the `n`-th thread does in a round. Returns `true` if it submitted a counted task that
/// was accepted.
fn keep_busy(pool: &Pool, group: &Group, ran: &Tally, n: u32, round: u64) -> bool {
    match n {
        0 => {
            let run = ran.task();
            let panics = move || {
                run();
                quiet_panic("on purpose");
            };
            group.serve(panics).is_ok()
        }
        1 => {
            let _ = group.wait_timeout(Duration::from_micros(round % 50));
            pool.serve(ran.task()).is_ok()
        }
        2 => {
            let other = pool.group();
            let guard = other.drop_guard();
            // This task is run or discarded, so it is not in the ledger.
            let _ = other.serve(|| ());
            drop(guard);
            pool.do_with_deadline(ran.task(), LONG).is_ok()
        }
        3 => {
            let mut future = pool.awaitable().serve_async(|| ());
            drop(poll(&mut future, Waker::noop()));
            false
        }
        _ => {
            let _ = (pool.stats(), group.panicked(), pool.workers());
            pool.set_limit(1 + (round % 2) as usize).unwrap();
            false
        }
    }
}

/// Forks while other threads keep the pool's locks busy: figures, hand-overs, starts and ends of
/// threads, the line, groups, limits. The child waits for none of the steps that a fork interrupts.
#[test]
fn law19_at_any_moment_of_other_threads() {
    isolated(|| {
        let pool = pool_with(2, 2, |b| {
            b.idle_timeout(Duration::ZERO)
                .when_full(WhenFull::BlockFor(ms(2)))
        });
        let (group, stop) = (pool.group(), AtomicBool::new(false));
        let (ran, accepted) = (Tally::default(), Tally::default());
        thread::scope(|s| {
            let (pool, group, ran, stop, accepted) = (&pool, &group, &ran, &stop, &accepted);
            for n in 0..5 {
                s.spawn(move || {
                    for round in (0..).take_while(|_| !stop.load(Ordering::SeqCst)) {
                        let taken = keep_busy(pool, group, ran, n, round);
                        accepted.add(taken.into());
                    }
                });
            }
            let _stop = on_drop(|| stop.store(true, Ordering::SeqCst));
            for _ in 0..rounds(60) {
                in_child(|| assert_refuses(pool, std::slice::from_ref(group)));
            }
        });
        group.wait();
        at_rest(&pool);
        assert_eq!(ran.get(), accepted.get());
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    });
}

/// The body of a scope forks, while a task of the scope submits others and is refused.
#[test]
fn law19_in_the_body_of_a_scope() {
    isolated(|| {
        let (pool, stop) = (pool(1, 0), AtomicBool::new(false));
        pool.scope(|s| {
            let _stop = on_drop(|| stop.store(true, Ordering::SeqCst));
            let stop = &stop;
            let refused = move || {
                while !stop.load(Ordering::SeqCst) {
                    assert_eq!(reason(s.serve(|| ())), "on_worker");
                }
            };
            s.serve(refused).unwrap();
            for _ in 0..rounds(200) {
                in_child(|| is_forked(s.serve(|| ())));
            }
        });
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    });
}
