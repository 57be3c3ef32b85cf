//! Groups with a limit: at most that many of their tasks are accepted and unended. Beyond that, a
//! submission is refused or waits, as its policy says.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{Group, Refused, Shutdown, WhenFull};

const POLICIES: [WhenFull; 3] = [WhenFull::Refuse, WhenFull::Block, WhenFull::BlockFor(LONG)];

/// The number of submissions of [`reason_of`].
const WAYS: u64 = 5;

/// Submits a task in each way, all of which refuse, and returns the only reason.
#[track_caller]
fn reason_of(group: &Group) -> &'static str {
    let served = refused_at_once(group);
    let space_awaited = group.awaitable().serve_async(|| ());
    assert_eq!(served, reason(block_on(space_awaited)));
    served
}

/// Submits a task in the ways that refuse at once in a full group whose policy is to refuse.
#[track_caller]
fn refused_at_once(group: &Group) -> &'static str {
    let served = reason(group.serve(|| ()));
    assert_eq!(served, reason(group.awaitable().serve(|| ())));
    let called = refused(group.do_with_deadline(|| (), LONG));
    assert_eq!(served, called.reason().as_str());
    assert_eq!(served, reason(group.labeled("another").serve(|| ())));
    served
}

/// `{group:?}` tells why a wait for it does not end.
#[test]
fn debug_shows_who_is_inside() {
    let pool = pool(2, 2);
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let group = pool.limited_group(3);
    let task = group.serve(move || gate.recv().unwrap_or_default());
    task.expect("it is idle");
    let shown = format!("{group:?}");
    assert!(shown.contains("pending: 1"), "{shown}");
    assert!(
        shown.contains("inside: 1, permits: Some((1, 3, {}))"),
        "{shown}"
    );
    drop(open);
    group.wait();
    assert!(format!("{group:?}").contains("inside: 0, permits: Some((0, 3, {}))"));
    assert!(format!("{:?}", pool.group()).contains("permits: None"));
}

/// A limit of zero refuses all, under every policy and for every way to submit: it waits for nothing.
/// The refusal is counted as `group_full`, and another try may succeed.
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
        let n = 6 * (1 + WAYS);
        let s = assert_stats!(pool.stats(), accepted: 0, refused: n, refusals.group_full: n);
        assert_eq!(s.workers, 0, "no thread was started for them");
    });
}

/// A group accepts exactly as many tasks as its limit, running and queued. The pool still has space
/// for others, and each task that ends makes space for one.
#[test]
fn law14_a_limit_is_exact() {
    timed(|| {
        let (gate, next) = (Gate::new(), Gate::new());
        let pool = pool(2, 8);
        let group = pool.limited_group(3);
        (0..2).for_each(|_| must_serve_in(&group, gate.task()));
        gate.wait_entered(2);
        let queued = must_await(group.awaitable(), next.task());
        assert_eq!(
            (refused_at_once(&group), group.pending()),
            ("group_full", 3)
        );
        must_serve(&pool, || ());
        must_serve_in(&pool.limited_group(1), || ());
        drop(queued);
        assert_eq!((group.pending(), group.discarded()), (2, 1));
        must_serve_in(&group, || ());
        assert_eq!(refused_at_once(&group), "group_full");
        gate.open();
        group.wait();
        assert_eq!(group.completed(), 3);
        assert_eq!(at_rest(&pool).refusals.group_full, 8);
    });
}

/// A limit holds for the calls of all labels and deadlines together, and each that ends makes space
/// for one.
#[test]
fn law14_one_limit_for_calls_of_several_kinds() {
    timed(|| {
        let pool = pool(4, 4);
        let share = pool.limited_group(3);
        let gate = Gate::new();
        let kinds = [
            share.labeled("read").with_deadline(LONG),
            share.labeled("write"),
            share.run_limit(LONG).labeled("scan"),
        ];
        thread::scope(|s| {
            let _opener = gate.opener();
            for on in kinds {
                let task = gate.task();
                s.spawn(move || on.do_with_deadline(task, LONG).unwrap());
            }
            gate.wait_entered(3);
            for on in kinds {
                assert_eq!(reason(on.serve(|| ())), "group_full");
            }
            assert_eq!(
                (refused_at_once(&share), share.pending()),
                ("group_full", 3)
            );
            must_serve(&pool, || ());
            gate.open();
        });
        assert_eq!((share.pending(), share.completed()), (0, 3));
        at_rest(&pool);
    });
}

/// Law 20: where the policy is to wait, a submission to a full group waits for a place of the group,
/// and holds up no other group. Where its time is up, it is refused as `GroupFull`.
#[test]
fn law20_a_full_group_waits_in_its_own_line() {
    timed_each(&POLICIES[1..], |policy| {
        let (pool, gate) = (pool(3, 4), Gate::new());
        let group = pool.when_full(*policy).limited_group(1);
        must_serve_in(&group, gate.task());
        gate.wait_entered(1);
        thread::scope(|s| {
            let _opener = gate.opener();
            let blocked = s.spawn(|| must_serve_in(&group, || ()));
            wait_in_line(&pool, 1);
            let future = pending(group.awaitable().serve_async(|| 7), Waker::noop());
            assert_eq!(pool.stats().waiting, 2);
            // Nobody else waits: neither the pool's own tasks, nor those of another full group.
            pool.do_with_deadline(|| (), LONG).unwrap();
            must_serve_in(&pool.limited_group(1), || ());
            let briefly = pool.when_full(WhenFull::BlockFor(ms(5))).limited_group(1);
            let held = Gate::new();
            must_serve_in(&briefly, held.task());
            assert_eq!(refused_at_once(&briefly), "group_full");
            let until = briefly.when_full(WhenFull::Block).with_deadline(ms(5));
            assert_eq!(reason(until.serve(|| ())), "group_full");
            held.open();
            // Others wait in the group's line, so a submission of the group that must not wait is
            // refused.
            assert!(!blocked.is_finished());
            gate.open();
            blocked.join().unwrap();
            assert_eq!(value_of(future), 7);
        });
        group.wait();
        assert_eq!((group.completed(), group.pending()), (3, 0));
        assert_stats!(at_rest(&pool), waiting: 0, refused: 5, refusals.group_full: 5);
    });
}

/// Law 20: those that wait for a group get its places in the order in which they came, threads and
/// futures in one line, and never more than the limit are accepted and unended.
#[test]
fn law20_a_groups_line_is_in_order() {
    timed_each([1, 2], |limit| {
        let (pool, gate) = (pool(4, 8), Gate::new());
        let group = pool.when_full(WhenFull::Block).limited_group(limit);
        (0..limit).for_each(|_| must_serve_in(&group, gate.task()));
        gate.wait_entered(limit);
        let order = Arc::new(Mutex::new(Vec::new()));
        let counts = Arc::<[AtomicUsize; 2]>::default();
        let task = |n: usize| {
            let (order, counts) = (Arc::clone(&order), Arc::clone(&counts));
            move || {
                let [running, most] = &*counts;
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                order.lock().unwrap().push(n);
                thread::sleep(ms(1));
                running.fetch_sub(1, Ordering::SeqCst);
            }
        };
        thread::scope(|s| {
            let _opener = gate.opener();
            let mut futures = Vec::new();
            for n in 0..6 {
                if n % 2 == 0 {
                    let (group, task) = (&group, task(n));
                    s.spawn(move || must_serve_in(group, task));
                } else {
                    let future = group.awaitable().serve_async(task(n));
                    futures.push(pending(future, Waker::noop()));
                }
                wait_in_line(&pool, n + 1);
            }
            gate.open();
            group.wait();
        });
        if limit == 1 {
            assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
        }
        assert!(counts[1].load(Ordering::SeqCst) <= limit);
        at_rest(&pool);
    });
}

/// Law 20: a task whose group has a place waits in the pool's line, where it keeps that place. The
/// place is free again if the task leaves the line.
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
        let refuses = pool.limited_group(0);
        assert_eq!(refused_at_once(&refuses), "group_full");
        // This one waits for a place of the group, and gets that of the future that leaves.
        let next = pending(group.awaitable().serve_async(|| 9), Waker::noop());
        assert_eq!(pool.stats().waiting, 3);
        drop(future);
        assert_eq!(pool.stats().waiting, 2);
        gate.open();
        blocked.join().unwrap();
        assert_eq!(value_of(next), 9);
        group.wait();
        assert_eq!(group.completed(), 2);
    });
}

/// A queued task that is past its deadline keeps its place until its turn comes. A dropped handle and
/// a call that returns at its deadline give it back at once.
#[test]
fn law17_an_expired_task_keeps_its_place_until_its_turn() {
    timed(|| {
        let (pool, gate) = held(8);
        let group = pool.limited_group(1);
        let late = must_await(group.awaitable(), || ());
        drop(late);
        assert_eq!((group.pending(), group.discarded()), (0, 1));
        is_expired(group.do_with_deadline(|| (), ms(1)));
        assert_eq!((group.pending(), group.discarded()), (0, 2));
        let on = group.with_deadline(ms(1));
        on.serve(|| unreachable!("too late"))
            .expect("space for one");
        std::thread::sleep(ms(5));
        assert_eq!(reason(group.serve(|| ())), "group_full");
        assert_stats!(pool.stats(), expired: 1, queued: 1);
        gate.open();
        group.wait();
        must_serve_in(&group, || ());
        group.wait();
        assert_eq!((group.completed(), group.discarded()), (1, 3));
        assert_stats!(at_rest(&pool), expired: 2, discarded: 1);
    });
}

/// Laws 10 and 20: a shutdown or the group's cancel answers those that wait for a place at once.
#[test]
fn law20_waits_for_a_group_end_with_it() {
    timed_each([false, true], |cancels| {
        let (pool, gate) = (pool(2, 4), Gate::new());
        let group = pool.when_full(WhenFull::Block).limited_group(1);
        must_serve_in(&group, gate.task());
        thread::scope(|s| {
            let _opener = gate.opener();
            let blocked = s.spawn(|| reason(group.serve(|| ())));
            wait_in_line(&pool, 1);
            let future = pending(group.awaitable().serve_async(|| ()), Waker::noop());
            let why = if cancels {
                group.cancel();
                "cancelled"
            } else {
                pool.shutdown(Shutdown::Drain, Duration::ZERO);
                "closed"
            };
            assert_eq!(blocked.join().unwrap(), why);
            assert_eq!(reason(block_on(future)), why);
            assert_stats!(pool.stats(), waiting: 0, refused: 2);
        });
        group.wait();
    });
}

/// Law 14: on a worker of its pool, a submission to a full group does not wait. `OnWorker` hides that
/// the group is full, so `caller_runs` exceeds the limit. With `Refuse` it does not.
#[test]
fn law14_a_worker_does_not_wait_for_a_group() {
    timed(|| {
        let (pool, gate) = (pool(2, 4), Gate::new());
        let group = pool.when_full(WhenFull::Block).limited_group(1);
        let (own, holds) = (group.clone(), gate.task());
        let why = pool.do_with_deadline(
            move || {
                must_serve_in(&own, holds);
                let full = reason(own.serve(|| ()));
                assert!(own.serve(|| ()).or_else(Refused::caller_runs).is_ok());
                let refuses = own.when_full(WhenFull::Refuse);
                let refused = refuses.serve(|| ()).or_else(Refused::caller_runs);
                assert_eq!(reason(refused), "group_full");
                (full, reason(block_on(own.awaitable().serve_async(|| ()))))
            },
            LONG,
        );
        gate.open();
        assert_eq!(why.unwrap(), ("on_worker", "on_worker"));
        group.wait();
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
            assert_eq!(refused_at_once(group), "group_full");
        }
        groups[0].cancel();
        assert_eq!(reason_of(&groups[0]), "cancelled");
        pool.shutdown(Shutdown::Drain, Duration::ZERO);
        assert_eq!(reason_of(&groups[0]), "cancelled");
        assert_eq!(reason_of(&groups[1]), "closed");
    });
}

/// A waker whose drop waits at a gate.
struct DropsSlowly(Key);

impl Wake for DropsSlowly {
    fn wake(self: Arc<Self>) {}
}

impl Drop for DropsSlowly {
    fn drop(&mut self) {
        self.0.pass();
    }
}

/// Law 21: the drop of a waker is user code. A future that leaves the line gives its place in its group
/// back first, and its task is no longer pending.
#[test]
fn law21_a_place_comes_back_before_the_waker_is_dropped() {
    timed(|| {
        let ((pool, gate), slow) = (held(0), Gate::new());
        let (_open, _slow) = (gate.opener(), slow.opener());
        let group = pool.limited_group(1);
        let future = Box::pin(group.awaitable().serve_async(|| ()));
        let waker = Waker::from(Arc::new(DropsSlowly(slow.key())));
        // It has a place of the group, and waits for space in the pool.
        let future = pending(future, &waker);
        drop(waker);
        assert_eq!(refused_at_once(&group), "group_full");
        thread::scope(|s| {
            s.spawn(move || drop(future));
            slow.wait_entered(1);
            wait_until("its end", || group.pending() == 0);
            assert_eq!(refused_at_once(&group), "saturated");
            slow.open();
        });
    });
}
