//! Calls of `do_with_deadline` in groups: they are members like any other task. They are counted,
//! limited, waited for and cancelled.

mod common;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::*;
use lazypool::{task, DeadlineError, Group, Shutdown, WhenFull};

/// Returns `pending`, `completed`, `panicked` and `discarded`.
fn figures(group: &Group) -> [usize; 4] {
    [
        group.pending(),
        group.completed(),
        group.panicked(),
        group.discarded(),
    ]
}

type Outcome<F, R> = Result<R, DeadlineError<F>>;

/// Calls in the group on another thread.
fn call<F, R>(group: &Group, d: Duration, f: F) -> JoinHandle<Outcome<F, R>>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let group = group.clone();
    thread::spawn(move || group.do_with_deadline(f, d))
}

/// Law 2: a queued call of a cancelled group comes back at once, and so does one that waits in
/// line. A running one sees the cancel, and its caller gets its value. Other calls notice nothing.
#[test]
fn law02_a_queued_call_of_a_cancelled_group_comes_back() {
    timed_each([Duration::MAX, LONG], |d| {
        let (pool, gate) = held(3);
        let ledger = Ledger::new(4);
        let plain = pool.when_full(WhenFull::Block).group();
        let with_options = pool
            .labeled("read")
            .run_limit(LONG)
            .when_full(WhenFull::Block);
        let with_options = with_options.group();
        let others = pool.group();
        let other = call(&others, d, || 7);
        await_queued(&pool, 1);
        let groups = [&plain, &with_options];
        let queued = [0, 1].map(|n| call(groups[n], d, ledger.task(n)));
        await_queued(&pool, 3);
        let in_line = [0, 1].map(|n| call(groups[n], d, ledger.task(2 + n)));
        wait_in_line(&pool, 2);
        for group in groups {
            assert_eq!(group.pending(), 2);
            group.cancel();
        }
        for caller in queued.into_iter().chain(in_line) {
            let back = refused(caller.join().unwrap());
            assert_eq!(back.reason().as_str(), "cancelled");
            assert!(!back.is_retryable());
        }
        for group in groups {
            group.wait();
            assert_eq!(
                figures(group),
                [0, 0, 0, 1],
                "the one in line was not accepted"
            );
        }
        ledger.assert_none_ran();
        let s = assert_stats!(pool.stats(), discarded: 2, refusals.cancelled: 2, queued: 1);
        check_moment(&pool, &s);
        gate.open();
        assert_eq!(other.join().unwrap().unwrap(), 7);
        assert_stats!(at_rest(&pool), expired: 0, completed: 2);
        let back = refused(plain.do_with_deadline(|| 1, d));
        assert_eq!(
            (back.reason().as_str(), back.run_anyway()),
            ("cancelled", 1)
        );
        is_expired(plain.do_with_deadline(|| (), Duration::ZERO));
        assert_stats!(pool.stats(), refusals.cancelled: 3, refused: 3);
    });
}

/// A running call of a cancelled group sees the cancel, and its caller still gets its value.
#[test]
fn law02_a_running_call_sees_the_cancel() {
    timed(|| {
        let pool = pool(2, 0);
        let group = pool.group();
        let gate = Gate::new();
        let key = gate.key();
        let caller = call(&group, Duration::MAX, move || {
            let before = task::is_cancelled();
            key.pass();
            (before, task::is_cancelled())
        });
        let other = call(
            &pool.group(),
            Duration::MAX,
            after(&gate, task::is_cancelled),
        );
        gate.wait_entered(2);
        group.cancel();
        assert_stats!(pool.stats(), abandoned: 1, running: 2);
        assert_eq!(figures(&group), [1, 0, 0, 0]);
        gate.open();
        assert_eq!(caller.join().unwrap().unwrap(), (false, true));
        assert!(!other.join().unwrap().unwrap());
        assert_eq!(figures(&group), [0, 1, 0, 0]);
        assert_stats!(at_rest(&pool), completed: 2, timed_out: 0, discarded: 0);
    });
}

/// Calls and a cancel at once: each call returns its value or comes back unrun as `Cancelled`, and
/// all counts agree.
#[test]
fn law02_calls_that_race_with_a_cancel_run_or_come_back() {
    timed_each([(1, 0), (2, 2)], |(max, queue)| {
        const CALLERS: usize = 3;
        let pool = pool(max, queue);
        for _ in 0..rounds(200) {
            let before = settle(&pool);
            let on = pool.when_full(WhenFull::Block);
            let group = on.group();
            let (ran, came_back) = (Tally::default(), Tally::default());
            thread::scope(|s| {
                for _ in 0..CALLERS {
                    s.spawn(|| loop {
                        match group.do_with_deadline(ran.task(), LONG) {
                            Ok(()) => {}
                            other => {
                                assert_eq!(refused(other).reason().as_str(), "cancelled");
                                came_back.add(1);
                                break;
                            }
                        }
                    });
                }
                wait_until("some calls", || ran.get() > 3);
                group.cancel();
            });
            group.wait();
            assert_eq!(came_back.get(), CALLERS as u64);
            let after = at_rest(&pool);
            let discarded = after.discarded - before.discarded;
            let refused = after.refusals.cancelled - before.refusals.cancelled;
            assert_eq!(discarded + refused, CALLERS as u64, "{after:?}");
            let [pending, completed, panicked, own] = figures(&group);
            assert_eq!((pending, panicked), (0, 0));
            assert_eq!((completed as u64, own as u64), (ran.get(), discarded));
        }
    });
}

/// When a call returns, its task is counted in the group and its worker is free. Back-to-back calls
/// in a group with a limit of one are never refused, on a pool of one worker. Laws 1 and 9.
#[test]
fn law09_a_call_is_counted_before_it_returns() {
    timed_each([0, 4], |queue| {
        let pool = pool(1, queue);
        let group = pool.labeled("one").limited_group(1);
        for n in 1..=rounds(2000) as usize {
            let label = group.do_with_deadline(task::label, LONG).unwrap();
            assert_eq!((label, figures(&group)), (Some("one"), [0, n, 0, 0]));
        }
        let fails = || quiet_panic("meant");
        let panic = panicked::<_, ()>(group.do_with_deadline(fails, LONG));
        assert_eq!(panic.message().as_deref(), Some("meant"));
        assert_eq!((group.pending(), group.panicked()), (0, 1));
        group.wait();
        at_rest(&pool);
    });
}

/// A call that expires or is discarded counts as discarded in its group. One whose caller has left
/// is pending until it ends, and the group's wait includes it.
#[test]
fn law03_a_call_counts_in_its_group_however_it_ends() {
    timed(|| {
        let (pool, gate) = held(4);
        let group = pool.group();
        is_expired(group.do_with_deadline(|| (), ms(1)));
        is_expired(group.min_remaining(LONG).do_with_deadline(|| (), ms(1)));
        assert_eq!(figures(&group), [0, 0, 0, 2]);
        let in_vain = group.clone();
        let in_vain = thread::spawn(move || {
            let on = in_vain.min_remaining(LONG);
            on.do_with_deadline(|| (), LONG)
        });
        await_queued(&pool, 1);
        thread::sleep(ms(2)); // at least one tick of the clock
        gate.open();
        is_expired(in_vain.join().unwrap());
        assert_eq!(figures(&group), [0, 0, 0, 3]);
        assert_stats!(at_rest(&pool), expired: 3, discarded: 0);

        let gate = Gate::new();
        abandon_in(&group, &gate);
        assert_eq!(group.pending(), 1);
        assert_eq!(group.wait_timeout(ms(1)).unwrap_err().pending(), 1);
        assert_stats!(pool.stats(), timed_out: 1, abandoned: 1);
        gate.open();
        group.wait();
        assert_eq!((group.pending(), group.completed()), (0, 1));
        at_rest(&pool);

        let gate = hold(&pool, 1);
        let before = group.discarded();
        let queued = call(&group, LONG, || ());
        await_queued(&pool, 1);
        pool.shutdown(Shutdown::Discard, Duration::ZERO);
        assert!(refused(queued.join().unwrap()).is_closed());
        assert_eq!((group.pending(), group.discarded()), (0, before + 1));
        assert!(refused(group.do_with_deadline(|| (), LONG)).is_closed());
        gate.open();
    });
}

/// Calls in the group until a worker has started the task and the caller has left.
#[track_caller]
fn abandon_in(group: &Group, gate: &Gate) {
    loop {
        match group.do_with_deadline(gate.task(), ms(50)) {
            Err(DeadlineError::TimedOut) => return,
            Err(DeadlineError::Expired(_)) => {}
            other => unexpected("a time-out", other),
        }
    }
}

/// A group outlives its pool, and a submitter that borrows the group refuses as `Closed`, whatever
/// its options.
#[test]
fn law10_a_call_in_a_group_without_its_pool_is_closed() {
    timed(|| {
        let pool = pool(1, 1);
        let group = pool.limited_group(2);
        let on = group.labeled("late").when_full(WhenFull::Block);
        assert_eq!(on.do_with_deadline(|| 1, LONG).unwrap(), 1);
        drop(pool);
        for policy in [WhenFull::Refuse, WhenFull::Block, WhenFull::BlockFor(LONG)] {
            let on = on.when_full(policy).with_deadline(LONG);
            for d in [LONG, Duration::MAX] {
                assert!(refused(on.do_with_deadline(|| (), d)).is_closed());
                assert!(refused(group.do_with_deadline(|| (), d)).is_closed());
            }
            assert_eq!(reason(on.serve(|| ())), "closed");
            assert_eq!(reason(on.awaitable().serve(|| ())), "closed");
            assert_eq!(reason(on.group().serve(|| ())), "closed");
        }
        assert_eq!(figures(&group), [0, 1, 0, 0]);
        group.wait();
    });
}

/// On a worker of the pool, a call in a group never queues, as any call there.
#[test]
fn law14_a_call_in_a_group_on_a_worker_does_not_queue() {
    timed(|| {
        let pool = Arc::new(pool(1, 4));
        for policy in [WhenFull::Refuse, WhenFull::Block] {
            let reason = on_worker(&pool, move |pool| {
                let group = pool.when_full(policy).limited_group(4);
                let back = refused(group.do_with_deadline(|| (), LONG));
                (back.reason().as_str(), figures(&group))
            });
            assert_eq!(reason, ("on_worker", [0; 4]));
        }
        at_rest(&pool);
    });
}
