//! Groups with a limit: at most that many of their tasks are accepted and unended, those in line
//! included.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use common::futures::{block_on, counted, poll};
use common::*;
use lazypool::{Refusal, Refused, Shutdown, WhenFull};

const POLICIES: [WhenFull; 3] = [WhenFull::Refuse, WhenFull::Block, WhenFull::BlockFor(LONG)];

#[track_caller]
fn is_full<F>(outcome: Result<(), Refused<F>>) -> Refused<F> {
    match outcome {
        Err(refused) if matches!(refused.reason(), Refusal::GroupFull) => refused,
        Err(refused) => panic!("expected GroupFull, got {refused:?}"),
        Ok(()) => panic!("expected GroupFull, got Ok"),
    }
}

/// Law 14: a full group hands the closure back at once, under every policy and for every way to
/// submit. The refusal is counted as `group_full`, and another try may succeed.
#[test]
fn law14_a_limit_of_zero_refuses_all() {
    timed(|| {
        let pool = pool(1, 4);
        let mut refused = 0;
        for policy in POLICIES {
            let on = pool.labeled("none").when_full(policy);
            for group in [pool.limited_group(0), on.limited_group(0)] {
                let back = is_full(group.serve(|| ()));
                assert!(back.is_retryable() && !back.is_saturated() && !back.is_closed());
                assert_eq!(back.reason().as_str(), "group_full");
                back.into_inner()();
                is_full(group.awaitable().serve(|| ()).map(drop));
                is_full(block_on(group.awaitable().serve_async(|| ())).map(drop));
                refused += 3;
                assert_eq!((group.pending(), group.discarded()), (0, 0));
                group.wait();
            }
        }
        let stats = pool.stats();
        assert_eq!((stats.accepted, stats.refused), (0, refused));
        assert_eq!(stats.refusals.group_full, refused, "{stats:?}");
        assert_eq!(stats.workers, 0, "no thread was started for them");
    });
}

/// A group accepts exactly as many tasks as its limit, running and queued. The pool still has room
/// for others, and each task that ends makes room for one.
#[test]
fn law14_a_limit_is_exact() {
    timed(|| {
        for policy in POLICIES {
            let (gate, next) = (Gate::new(), Gate::new());
            let pool = pool(2, 8);
            let group = pool.when_full(policy).limited_group(3);
            for _ in 0..2 {
                must_serve_in(&group, gate.task());
            }
            gate.wait_entered(2);
            let queued = must_await(group.awaitable(), next.task());
            for _ in 0..3 {
                is_full(group.serve(|| ()));
            }
            assert_eq!(group.pending(), 3);
            must_serve(&pool, || ());
            must_serve_in(&pool.limited_group(1), || ());
            drop(queued);
            assert_eq!((group.pending(), group.discarded()), (2, 1));
            must_serve_in(&group, || ());
            is_full(group.serve(|| ()));
            gate.open();
            group.wait();
            assert_eq!(
                (group.completed(), pool.stats().refusals.group_full),
                (3, 4)
            );
            check_at_rest(&pool, &settle(&pool));
        }
    });
}

/// Law 21: a thread that has a task's value finds its place in the group free.
#[test]
fn law21_a_place_is_free_once_the_value_is_there() {
    timed(|| {
        for queue in [0, 4] {
            let pool = pool(1, queue);
            let group = pool.limited_group(1);
            for n in 0..rounds(300) {
                let handle = must_await(group.awaitable(), move || n);
                assert_eq!(handle.join().unwrap(), n);
                let handle = block_on(group.awaitable().serve_async(move || n));
                assert_eq!(block_on(handle.unwrap()).unwrap(), n);
            }
            assert_eq!(pool.stats().refused, 0);
        }
    });
}

/// A panic also ends a task and frees its place.
#[test]
fn law14_every_end_makes_room() {
    timed(|| {
        let pool = pool(1, 4);
        let group = pool.limited_group(1);
        let ends: [fn(); 2] = [|| (), || quiet_panic("on purpose")];
        for end in ends.into_iter().cycle().take(20) {
            must_serve_in(&group, end);
            group.wait();
        }
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let late = pool.with_deadline(ms(1)).limited_group(1);
        must_serve_in(&late, || unreachable!("too late"));
        is_full(late.serve(|| ()));
        thread::sleep(ms(2));
        gate.open();
        late.wait();
        must_serve_in(&late, || ());
        assert_eq!((group.completed(), group.panicked()), (10, 10));
    });
}

/// Many threads submit at once: no more tasks than the limit ever run at once, and afterwards the
/// full limit can be used.
#[test]
fn law14_threads_share_a_limit() {
    timed(|| {
        const LIMIT_OF_IT: usize = 3;
        let pool = pool(4, 64);
        let group = pool.limited_group(LIMIT_OF_IT);
        let (gauge, accepted) = (Arc::new(Gauge::default()), AtomicUsize::new(0));
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..rounds(2_000) {
                        let gauge = Arc::clone(&gauge);
                        let task = move || drop(gauge.enter());
                        match group.serve(task) {
                            Ok(()) => drop(accepted.fetch_add(1, Ordering::SeqCst)),
                            refused => drop(is_full(refused)),
                        }
                    }
                });
            }
        });
        group.wait();
        assert!(gauge.most() <= LIMIT_OF_IT);
        assert_eq!(group.completed(), accepted.into_inner());
        let gate = Gate::new();
        for _ in 0..LIMIT_OF_IT {
            must_serve_in(&group, gate.task());
        }
        is_full(group.serve(|| ()));
        gate.open();
        check_at_rest(&pool, &settle(&pool));
    });
}

/// A task that waits in line takes a place of its group, whether a thread or a future submitted it.
/// The place is free again if the task leaves the line.
#[test]
fn law22_a_task_in_line_counts() {
    timed(|| {
        let gate = Gate::new();
        let pool = Arc::new(occupied(&gate, 0));
        let group = pool.when_full(WhenFull::Block).limited_group(2);
        let waits = group.clone();
        let blocked = thread::spawn(move || waits.serve(|| ()).is_ok());
        wait_until("the task to wait", || pool.stats().waiting == 1);
        let (_, waker) = counted();
        let mut future = group.awaitable().serve_async(|| 7);
        assert!(poll(&mut future, &waker).is_pending());
        assert_eq!((group.pending(), pool.stats().waiting), (2, 2));
        is_full(group.serve(|| ()));
        let mut refused = group.awaitable().serve_async(|| ());
        match poll(&mut refused, &waker) {
            Poll::Ready(outcome) => drop(is_full(outcome.map(drop))),
            Poll::Pending => panic!("the group is full: it does not wait"),
        }
        drop(future);
        assert_eq!((group.pending(), pool.stats().waiting), (1, 1));
        let mut future = group.awaitable().serve_async(|| 8);
        assert!(poll(&mut future, Waker::noop()).is_pending());
        gate.open();
        assert!(blocked.join().unwrap());
        assert_eq!(block_on(block_on(future).unwrap()).unwrap(), 8);
        group.wait();
        assert_eq!(group.completed(), 2);
    });
}

/// If several reasons apply, the refusal names the strongest: the cancel, then the shutdown, then
/// the limit.
#[test]
fn law10_a_full_group_that_is_cancelled_or_closed_says_so() {
    timed(|| {
        for cancels in [true, false] {
            let gate = Gate::new();
            let pool = pool(1, 4);
            let group = pool.limited_group(1);
            must_serve_in(&group, gate.task());
            gate.wait_entered(1);
            is_full(group.serve(|| ()));
            if cancels {
                group.cancel();
            } else {
                pool.shutdown(Shutdown::Drain, Duration::ZERO);
            }
            let refused = [
                group.serve(|| ()).map_err(Refused::without_closure),
                (group.awaitable().serve(|| ()).map(drop)).map_err(Refused::without_closure),
                (block_on(group.awaitable().serve_async(|| ())).map(drop))
                    .map_err(Refused::without_closure),
            ];
            for outcome in refused {
                let refused = outcome.expect_err("nothing is accepted");
                match refused.reason() {
                    Refusal::Cancelled => assert!(cancels),
                    Refusal::Closed => assert!(!cancels),
                    other => panic!("{other:?}"),
                }
            }
            gate.open();
        }
    });
}
