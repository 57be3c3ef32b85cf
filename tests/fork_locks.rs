//! Law 19 (fork): forks while other threads hold the pool's locks, or are in the middle of a step.
//! The calls that the child may make do not wait for those threads.
#![cfg(unix)]

#[path = "common/allocator.rs"]
mod allocator;
mod common;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use allocator::Watched;
use common::fork::*;
use common::*;
use lazypool::{Group, Pool, Shutdown, WhenFull};

static IS_HELD: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The thread is held up, once, when it allocates a block of at least this size.
    static HOLD_FROM: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Holds up a thread that asks for it. Only a few steps of the pool allocate blocks of the sizes
/// used here.
#[global_allocator]
static ALLOCATOR: Watched = Watched {
    allocates: |size| {
        if HOLD_FROM.try_with(|from| size >= from.get()) == Ok(true) {
            HOLD_FROM.set(usize::MAX);
            IS_HELD.store(true, Ordering::SeqCst);
            while IS_HELD.load(Ordering::SeqCst) {
                thread::sleep(ms(1));
            }
        }
    },
    frees: |_| (),
};

/// Forks while another thread starts a worker: before the system has given the thread; and once it
/// has, while the new thread waits for its first order and the registry's lock is held.
#[test]
fn law19_beside_a_spawner() {
    // Sizes of the allocations to hold up: the first is that of the thread's name, the second that
    // of the registry's list of 40 workers.
    let without_thread = (1, 10_000, "n".repeat(10_000));
    let with_thread = (40, 600, String::from("spawned"));
    isolated_each([without_thread, with_thread], move |(max, bytes, name)| {
        let pool = pool_with(max, 2, |b| b.thread_name(&name));
        let group = pool.group();
        let gate = Gate::new();
        let hold = on_drop(|| IS_HELD.store(false, Ordering::SeqCst));
        let its = group.clone();
        let tasks: Vec<_> = (0..max).map(|_| gate.task()).collect();
        let spawner = thread::spawn(move || {
            HOLD_FROM.set(bytes);
            tasks.into_iter().for_each(|t| must_serve_in(&its, t));
        });
        wait_until("a thread to be held", || IS_HELD.load(Ordering::SeqCst));
        let submitted = group.pending();
        #[cfg(target_os = "linux")]
        if max > 1 {
            wait_until("the new worker's thread", || {
                os::workers_named(&name) == submitted
            });
        }
        let pool = fork_thrice(pool, &group);
        assert_eq!(group.pending(), submitted);
        assert!(gate.entered() < submitted, "the last one has no order yet");
        drop(hold);
        spawner.join().unwrap();
        gate.wait_entered(max);
        assert_eq!((group.pending(), pool.stats().refused), (max, 0));
        gate.open();
        group.wait();
        assert_eq!(group.completed(), max);
        assert_ends_well(&pool);
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
