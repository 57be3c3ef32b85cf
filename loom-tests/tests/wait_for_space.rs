//! Submissions that wait in a pool's line for space (`src/engine/wait/line.rs`,
//! `src/engine/wait/serving.rs`): threads that block, and futures. Laws 14, 20 and 22. `tests/line.rs`
//! models the line alone.
#![cfg(lazypool_loom)]

use lazypool::model::{refuse_threads, store_oldest_again};
use lazypool::{Builder, Pool, Refusal, Shutdown, WhenFull};
use loom::sync::atomic::{AtomicBool, Ordering};
use loom_tests::{
    beside, check, check_pool, check_tasks, cleaner, end, hold, poll, pool, quietly, serve_beside,
    serve_gated, shut_down_beside, two_serve, warm, Flag, Gate, Ran, Setup,
};
use std::future::Future;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Makes submissions block.
fn blocks(builder: Builder) -> Builder {
    builder.when_full(WhenFull::Block)
}

/// Returns the setup of a pool of one whose submissions block, and whose worker is idle.
fn one(queue_capacity: usize) -> Setup {
    warm(1, queue_capacity).with(blocks)
}

/// Explores a model of such a pool. Its worker runs a task until the gate is opened.
fn check_occupied(
    preemptions: usize,
    queue_capacity: usize,
    model: impl Fn(&Arc<Pool>, &Gate) + Send + Sync + 'static,
) {
    check_pool(preemptions, one(queue_capacity), move |pool| {
        model(pool, &hold(pool));
    });
}

// ---- threads -------------------------------------------------------------------------------

/// Two threads submit to one worker: the second submission waits until the worker is free.
/// Excludes: a submitter that sleeps although there is space. Preemptions: 2.
#[test]
fn blocked_against_space() {
    two_serve(2, one(0));
}

/// A submitter is blocked while the pool is shut down; the running task ends only once the
/// submitter has its answer. The entry may be in service as the pool closes. Excludes: a shutdown
/// that leaves the answer to the end of a task. Preemptions: 3.
#[test]
fn blocked_beside_shutdown() {
    check_occupied(3, 0, |pool, gate| {
        let closer = shut_down_beside(pool, Shutdown::Drain, Duration::ZERO);
        assert!(pool.serve(|| ()).is_err_and(|back| back.is_closed()));
        closer.join().unwrap();
        gate.open();
    });
}

/// A submitter waits, and a newcomer that must not wait comes, while a worker becomes free.
/// Excludes: space that neither gets; a submitter that sleeps on. Preemptions: 2.
#[test]
fn law20_blocked_against_refused() {
    check_tasks(2, one(0), |pool, ran| {
        let gate = hold(pool);
        let blocked = serve_beside(pool, ran.task());
        gate.open();
        let newcomer = pool.when_full(WhenFull::Refuse).serve(ran.task()).is_ok();
        blocked.join().unwrap();
        1 + usize::from(newcomer)
    });
}

/// A queue of two is full: the cell at `head` has a task, and the next cell is dead. Two submitters
/// wait; one pop makes space for both. Excludes: a submitter that sleeps although the cell at
/// `head` is dead. Preemptions: 1.
#[test]
fn space_for_two_by_one_pop() {
    check_occupied(1, 2, |pool, gate| {
        let group = pool.group();
        let next = quietly(|| {
            let next = serve_gated(pool);
            assert!(group.serve(|| ()).is_ok());
            group.cancel();
            next
        });
        let others = [(), ()].map(|()| serve_beside(pool, || ()));
        gate.open();
        for other in others {
            other.join().unwrap();
        }
        next.open();
    });
}

/// The handle of the only queued task is dropped while a submitter blocks. The worker is occupied
/// throughout. Excludes: a submitter that sleeps although the place in the queue was given back.
/// Preemptions: 3.
#[test]
fn blocked_against_a_dropped_handle() {
    check(Some(3), || {
        let pool = one(1).build();
        let gate = hold(&pool);
        let handle = quietly(|| pool.awaitable().serve(|| ()).unwrap());
        store_oldest_again(&pool);
        let other = serve_beside(&pool, || ());
        drop(handle);
        other.join().unwrap();
        gate.open();
        end(&pool);
        assert_eq!(pool.stats().discarded, 1);
    });
}

/// Two threads submit to a pool without threads; the OS refuses the thread that the first one asks
/// for. The first one is refused, or its task is given to the other's worker. Excludes: a second
/// submitter that sleeps although the slot was given back; a second submitter that gets the first
/// one's refusal. Preemptions: 3.
#[test]
fn blocked_against_a_failed_start() {
    check_tasks(3, pool(1, 0).with(blocks), |pool, ran| {
        refuse_threads(1);
        let serve = |pool: &Pool, task| match pool.serve(task) {
            Ok(()) => 1,
            Err(why) => {
                assert!(matches!(why.reason(), Refusal::SpawnFailed(_)));
                0
            }
        };
        let task = ran.task();
        let other = beside(pool, move |pool| serve(pool, task));
        let accepted = serve(pool, ran.task()) + other.join().unwrap();
        assert_ne!(accepted, 0);
        accepted
    });
}

/// The only worker is retired while two threads submit, one of which waits. Excludes: a submitter
/// that sleeps although the slot of the ended worker is free. Preemptions: 2.
#[test]
fn blocked_against_retirement() {
    check_pool(2, one(0), |pool| {
        let cleaner = cleaner(pool);
        let other = serve_beside(pool, || ());
        assert!(pool.serve(|| ()).is_ok());
        other.join().unwrap();
        cleaner.join().unwrap();
    });
}

// ---- a group's cancel ----------------------------------------------------------------------

/// A group is cancelled while one of its submissions blocks, alone (preemptions: 3) or behind another
/// one in line (preemptions: 2). No space is made before the submission has returned. Its entry may
/// be in service. Excludes: a submitter that sleeps on, because its entry was in service, or because
/// it joined after the cancel had looked and is not the first that a server looks at; a task that is
/// accepted or runs.
#[test]
fn cancel_against_a_member_in_line() {
    for (preemptions, is_behind) in [(3, false), (2, true)] {
        check_occupied(preemptions, 0, move |pool, gate| {
            let mut before = pool.awaitable().serve_async(|| ());
            if is_behind {
                quietly(|| assert!(poll(&mut before, Waker::noop()).is_pending()));
            }
            let (group, ran) = (pool.group(), Ran::new());
            let canceller = beside(&group, |group| group.cancel());
            let back = group.serve(ran.task()).unwrap_err();
            assert!(matches!(back.reason(), Refusal::Cancelled));
            canceller.join().unwrap();
            assert_eq!((ran.times(), ran.alive(), group.pending()), (0, 1, 0));
            drop(before);
            gate.open();
        });
    }
}

/// Cancels a group while one of its submissions waits and space is made, in the queue or by a
/// worker. The submission is refused as `Cancelled`; or its task is accepted, and is then discarded
/// or runs once. Its worker may have asked before the cancel, and call the closure after it: then the
/// task sees `is_cancelled()`. Excludes: a task that stays queued; a task that stays pending for ever. Preemptions: 2.
#[test]
fn cancel_against_acceptance() {
    for queue_capacity in [0, 1] {
        check_occupied(2, queue_capacity, move |pool, gate| {
            if queue_capacity > 0 {
                quietly(|| assert!(pool.serve(|| ()).is_ok()));
            }
            let (group, ran) = (pool.group(), Ran::new());
            let has_returned = Arc::new(AtomicBool::new(false));
            let (task, flag) = (ran.task(), Arc::clone(&has_returned));
            let member = beside(&group, move |group| {
                let served = group.serve(move || {
                    if flag.load(Ordering::SeqCst) {
                        assert!(lazypool::task::is_cancelled());
                    }
                    task();
                });
                if let Err(back) = &served {
                    assert!(matches!(back.reason(), Refusal::Cancelled));
                }
                served.is_ok()
            });
            gate.open();
            group.cancel();
            has_returned.store(true, Ordering::SeqCst);
            let accepted = usize::from(member.join().unwrap());
            group.wait();
            assert_eq!(group.completed() + group.discarded(), accepted);
            assert_eq!(ran.times(), group.completed());
            // The captures of a discarded task may be dropped after its group has been told.
            assert!(ran.alive() <= group.discarded());
        });
    }
}

/// Cancels a group while one of its futures waits, and space is made in the queue. The future is
/// never polled again, and the worker is occupied. Excludes: a task that the line's server queues
/// beside the cancel, and that stays there. Preemptions: 3.
#[test]
fn cancel_against_a_future_that_is_accepted() {
    check_occupied(3, 1, |pool, gate| {
        let (group, ran) = (pool.group(), Ran::new());
        let mut waits = group.awaitable().serve_async(ran.task());
        let queued = quietly(|| {
            let queued = pool.awaitable().serve(|| ()).unwrap();
            assert!(poll(&mut waits, Waker::noop()).is_pending());
            queued
        });
        let canceller = beside(&group, |group| group.cancel());
        drop(queued);
        canceller.join().unwrap();
        assert_eq!((ran.times(), group.pending()), (0, 0));
        drop(waits);
        gate.open();
    });
}

// ---- futures -------------------------------------------------------------------------------

/// Polls a future until it is ready, each time that its waker was called.
fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    loop {
        let (flag, waker) = Flag::new();
        match poll(&mut future, &waker) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => flag.wait(),
        }
    }
}

/// A future is polled while space is made. Excludes: a future that is not woken; a task that is
/// lost or runs twice. Preemptions: 3.
#[test]
fn async_against_space() {
    check_occupied(3, 0, |pool, gate| {
        gate.open();
        let handle = block_on(pool.awaitable().serve_async(|| 7)).unwrap();
        assert_eq!(handle.join().unwrap(), 7);
    });
}

/// A future in line is dropped while space is made. Excludes: a task that ran and whose closure
/// came back; a closure that is dropped twice or never; a worker that stays claimed. Preemptions:
/// 3.
#[test]
fn async_drop_against_space() {
    check(Some(3), || {
        let (pool, ran) = (one(0).build(), Ran::new());
        let gate = hold(&pool);
        let mut future = pool.awaitable().serve_async(ran.task());
        quietly(|| assert!(poll(&mut future, Waker::noop()).is_pending()));
        gate.open();
        drop(future);
        assert!(pool.serve(|| ()).is_ok());
        end(&pool);
        assert_eq!(ran.alive(), 0);
        let stats = pool.stats();
        let accepted = stats.accepted as usize - 3;
        assert_eq!(ran.times() + stats.discarded as usize, accepted);
    });
}

/// Shuts a pool down while a future's task is accepted or refused. Excludes: a future that is not
/// woken; a task that is accepted and lost; a closure that neither ran nor came back. If the
/// shutdown drains, an accepted task runs. Preemptions: 1.
#[test]
fn async_shutdown_against_acceptance() {
    for mode in [Shutdown::Drain, Shutdown::Discard] {
        check(Some(1), move || {
            let (pool, ran) = (one(1).build(), Ran::new());
            let gate = hold(&pool);
            quietly(|| assert!(pool.serve(|| ()).is_ok()));
            let mut future = pool.awaitable().serve_async(ran.task());
            quietly(|| assert!(poll(&mut future, Waker::noop()).is_pending()));
            let closer = shut_down_beside(&pool, mode, Duration::ZERO);
            gate.open();
            match block_on(future) {
                Ok(handle) => {
                    let has_run = handle.join().is_ok();
                    assert!(has_run || mode == Shutdown::Discard);
                    // The closure of a discarded task may not be dropped yet.
                    assert_eq!(ran.times(), usize::from(has_run));
                }
                Err(back) => {
                    assert!(back.is_closed());
                    assert_eq!((ran.times(), ran.alive()), (0, 1));
                }
            }
            closer.join().unwrap();
            end(&pool);
            assert_eq!(ran.alive(), 0);
        });
    }
}
