//! Groups with a limit: at most that many of their tasks are accepted and unended, those in line
//! included.

mod common;

use std::task::Waker;
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{Group, Shutdown, WhenFull};

const POLICIES: [WhenFull; 3] = [WhenFull::Refuse, WhenFull::Block, WhenFull::BlockFor(LONG)];

/// Submits a task in each of the three ways, all of which refuse, and returns the only reason.
#[track_caller]
fn reason_of(group: &Group) -> &'static str {
    let on = group.awaitable();
    let served = reason(group.serve(|| ()));
    assert_eq!(served, reason(on.serve(|| ())));
    assert_eq!(served, reason(block_on(on.serve_async(|| ()))));
    served
}

/// A full group hands the closure back at once, under every policy and for every way to submit. The
/// refusal is counted as `group_full`, and another try may succeed.
#[test]
fn law14_a_limit_of_zero_refuses_all() {
    timed(|| {
        let pool = pool(1, 4);
        for policy in POLICIES {
            let on = pool.labeled("none").when_full(policy);
            for group in [pool.limited_group(0), on.limited_group(0)] {
                let back = group.serve(|| ()).unwrap_err();
                assert!(back.is_retryable() && !back.is_saturated() && !back.is_closed());
                back.into_inner()();
                assert_eq!(reason_of(&group), "group_full");
                assert_eq!((group.pending(), group.discarded()), (0, 0));
                group.wait();
            }
        }
        let s = assert_stats!(pool.stats(), accepted: 0, refused: 24, refusals.group_full: 24);
        assert_eq!(s.workers, 0, "no thread was started for them");
    });
}

/// A group accepts exactly as many tasks as its limit, running and queued. The pool still has room
/// for others, and each task that ends makes room for one.
#[test]
fn law14_a_limit_is_exact() {
    timed_each(POLICIES, |policy| {
        let (gate, next) = (Gate::new(), Gate::new());
        let pool = pool(2, 8);
        let group = pool.when_full(policy).limited_group(3);
        (0..2).for_each(|_| must_serve_in(&group, gate.task()));
        gate.wait_entered(2);
        let queued = must_await(group.awaitable(), next.task());
        assert_eq!((reason_of(&group), group.pending()), ("group_full", 3));
        must_serve(&pool, || ());
        must_serve_in(&pool.limited_group(1), || ());
        drop(queued);
        assert_eq!((group.pending(), group.discarded()), (2, 1));
        must_serve_in(&group, || ());
        assert_eq!(reason_of(&group), "group_full");
        gate.open();
        group.wait();
        assert_eq!(group.completed(), 3);
        assert_eq!(at_rest(&pool).refusals.group_full, 6);
    });
}

/// A task that waits in line takes a place of its group, whether a thread or a future submitted it.
/// The place is free again if the task leaves the line.
#[test]
fn law22_a_task_in_line_counts() {
    timed(|| {
        let (pool, gate) = held(0);
        let group = pool.when_full(WhenFull::Block).limited_group(2);
        let waits = group.clone();
        let blocked = thread::spawn(move || must_serve_in(&waits, || ()));
        wait_in_line(&pool, 1);
        let future = pending(group.awaitable().serve_async(|| 7), Waker::noop());
        assert_eq!((group.pending(), pool.stats().waiting), (2, 2));
        assert_eq!(reason_of(&group), "group_full");
        drop(future);
        assert_eq!((group.pending(), pool.stats().waiting), (1, 1));
        let future = pending(group.awaitable().serve_async(|| 8), Waker::noop());
        gate.open();
        blocked.join().unwrap();
        assert_eq!(value_of(future), 8);
        group.wait();
        assert_eq!(group.completed(), 2);
    });
}

/// If several reasons apply, the refusal names the strongest: the cancel, then the shutdown, then
/// the limit.
#[test]
fn law10_a_full_group_that_is_cancelled_or_closed_says_so() {
    timed(|| {
        let pool = pool(2, 4);
        let gate = Gate::new();
        let groups = [pool.limited_group(1), pool.limited_group(1)];
        for group in &groups {
            must_serve_in(group, gate.task());
            assert_eq!(reason_of(group), "group_full");
        }
        groups[0].cancel();
        assert_eq!(reason_of(&groups[0]), "cancelled");
        pool.shutdown(Shutdown::Drain, Duration::ZERO);
        assert_eq!(reason_of(&groups[0]), "cancelled");
        assert_eq!(reason_of(&groups[1]), "closed");
    });
}
