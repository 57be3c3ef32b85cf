//! Options of a submission: law 17 (deadlines for `serve`), law 18 (no start in vain), and the
//! options that groups and scopes take over. Policies: `blocking.rs`. Tasks that are cancelled
//! after their deadline: `handle_cancel.rs`.

mod common;

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{task, Group, Pool, Refused, Shutdown, Submitter, WhenFull};

/// Serves a task and returns its label, its deadline and the time that it has left.
#[track_caller]
fn seen(on: Submitter<'_>) -> (Option<&'static str>, Option<Instant>, Option<Duration>) {
    let (tell, told) = mpsc::channel();
    let task = move || {
        let seen = (task::label(), task::deadline(), task::remaining());
        tell.send(seen).unwrap();
    };
    must_serve_in(&on.group(), task);
    told.recv_timeout(LIMIT).expect("the task runs")
}

#[track_caller]
fn must_submit(on: Submitter<'_>, task: impl FnOnce() + Send + 'static) {
    on.serve(task)
        .map_err(Refused::without_closure)
        .expect("space");
}

/// Waits on a worker until its task is cancelled.
fn until_cancelled() {
    wait_until("a cancel", task::is_cancelled);
}

/// Options add up, the last of a kind counts, and groups and scopes take them over.
#[test]
fn options_add_up_and_the_last_counts() {
    fn is_safe<T: UnwindSafe + RefUnwindSafe + Send + Sync>(_: &T) {}
    timed(|| {
        let pool = pool(1, 4);
        let both = pool.labeled("first").with_deadline(LONG).labeled("second");
        let is_far = |deadline: Option<Instant>| deadline > Some(Instant::now() + LONG / 2);
        let (tell, told) = mpsc::channel();
        let look = || {
            let (tell, load) = (tell.clone(), [7_u64; 20]);
            move || {
                assert_eq!(load[19], 7, "a large closure");
                tell.send((task::label(), task::deadline())).unwrap();
            }
        };
        let group = both.group();
        is_safe(&group);
        must_submit(both, look());
        must_serve_in(&group, look());
        both.scope(|s| s.serve(look()).expect("space"));
        for _ in 0..3 {
            let (label, deadline) = told.recv_timeout(LIMIT).unwrap();
            assert_eq!(label, Some("second"));
            assert!(is_far(deadline), "{deadline:?}");
        }
        for (on, label) in [
            (both.with_deadline(Duration::MAX), Some("second")),
            (pool.min_remaining(LONG), None),
            (pool.when_full(WhenFull::Refuse), None),
            (pool.run_limit(LONG).run_limit(Duration::MAX), None),
        ] {
            assert_eq!(seen(on), (label, None, None), "{on:?}");
        }
        at_rest(&pool);
        assert_eq!(pool.workers()[0].label, None);
    });
}

/// `Pool`, `Group` and `Submitter` have the same options and verbs, in any order. What is submitted
/// through a group's submitter is in the group, and has the options of the group, too.
#[test]
fn pools_groups_and_submitters_have_the_same_options() {
    /// Calls, for each option, the type's own method and then another option's.
    macro_rules! each_option {
        ($it:expr, $at:expr) => {{
            let at: Instant = $at;
            [
                $it.labeled("x").with_deadline_at(at),
                $it.with_deadline_at(at).labeled("x"),
                $it.with_deadline(LONG).with_deadline_at(at).labeled("x"),
                $it.when_full(WhenFull::Block)
                    .labeled("x")
                    .with_deadline_at(at),
                $it.run_limit(2 * LONG).labeled("x").with_deadline_at(at),
                $it.min_remaining(ms(1)).with_deadline_at(at).labeled("x"),
            ]
        }};
    }
    timed(|| {
        let pool = pool(1, 4);
        let at = Instant::now() + LONG;
        let group = pool.group();
        let look = || (task::label(), task::deadline());
        let (tell, told) = mpsc::channel();
        let tells = || {
            let tell = tell.clone();
            move || tell.send(look()).unwrap()
        };
        let wanted = (Some("x"), Some(at));
        let inside = each_option!(group, at);
        let outside = each_option!(pool, at);
        let first = pool.labeled("first");
        let outside = outside.into_iter().chain(each_option!(first, at));
        let on = inside.map(|on| (on, true)).into_iter();
        let mut members = 0;
        for (on, is_member) in on.chain(outside.map(|on| (on, false))) {
            must_submit(on, tells());
            assert_eq!(told.recv_timeout(LIMIT).unwrap(), wanted);
            assert_eq!(on.do_with_deadline(look, Duration::MAX).unwrap(), wanted);
            let handle = must_await(on.awaitable(), look);
            assert_eq!(handle.join().unwrap(), wanted);
            assert_eq!(value_of(on.awaitable().serve_async(look)), wanted);
            members += 4 * usize::from(is_member);
            assert!(format!("{on:?}").contains(&format!("in_group: {is_member}")));
        }
        group.wait();
        assert_eq!((members, group.completed()), (24, members));
        // The options of the submitter that made the group stay, unless they are set again.
        let group = pool.labeled("old").with_deadline_at(at).group();
        let old = group.do_with_deadline(look, Duration::MAX);
        assert_eq!(old.unwrap(), (Some("old"), Some(at)));
        let new = group.labeled("new").do_with_deadline(look, Duration::MAX);
        assert_eq!(new.unwrap(), (Some("new"), Some(at)));
        group.wait();
        assert_eq!(group.completed(), 2);
        at_rest(&pool);
    });
}

/// A group or scope that a group's submitter makes takes the place of that group: its tasks have
/// the options, and are not members of the first group.
#[test]
fn a_task_is_a_member_of_one_group() {
    timed(|| {
        let pool = pool(1, 4);
        let none = pool.labeled("of none").limited_group(0);
        let on = none.when_full(WhenFull::Refuse);
        assert_eq!(reason(on.serve(|| ())), "group_full");
        let (group, limited) = (on.group(), on.limited_group(1));
        for group in [&group, &limited] {
            let label = group.do_with_deadline(task::label, LONG).unwrap();
            assert_eq!((label, group.completed()), (Some("of none"), 1));
        }
        let mut label = None;
        on.scope(|s| s.serve(|| label = task::label()).expect("space"));
        assert_eq!(label, Some("of none"));
        none.cancel();
        assert_eq!(reason(on.serve(|| ())), "cancelled");
        assert_eq!(group.do_with_deadline(|| 1, LONG).unwrap(), 1);
        on.scope(|s| s.serve(|| label = None).expect("a scope of its own"));
        assert_eq!((none.completed(), none.discarded()), (0, 0));
        at_rest(&pool);
    });
}

/// A task that no worker has started in time never starts, in a group or not. Its captures are
/// dropped once. A scope ends, too.
#[test]
fn law17_a_task_that_is_late_never_starts() {
    timed(|| {
        let ledger = Ledger::new(4);
        let (pool, gate) = held(8);
        let soon = pool.with_deadline(ms(10)).labeled("late");
        let group = soon.group();
        must_submit(soon, ledger.task(0));
        must_submit(pool.with_deadline(Duration::ZERO), ledger.task(1));
        must_submit(pool.with_deadline_at(Instant::now()), ledger.task(2));
        must_serve_in(&group, ledger.task(3));
        thread::sleep(ms(15));
        gate.open();
        group.wait();
        assert_stats!(at_rest(&pool), expired: 4, completed: 1, timed_out: 0, discarded: 0);
        assert_eq!((group.discarded(), group.completed()), (1, 0));
        ledger.assert_none_ran();
        let mut ran = false;
        let zero = pool.with_deadline(Duration::ZERO);
        zero.scope(|s| assert!(s.serve(|| ran = true).is_ok()));
        assert_eq!((ran, settle(&pool).expired), (false, 5));
        assert_cap_usable(&pool);
    });
}

/// A task that runs past its deadline sees that, counts as abandoned, and is counted as timed out.
#[test]
fn law17_running_past_the_deadline() {
    timed(|| {
        let (pool, gate) = (pool(2, 2), Gate::new());
        let (key, (tell, told)) = (gate.key(), mpsc::channel());
        let d = ms(1000); // enough to start a thread on a busy machine
        let start = Instant::now();
        must_submit(pool.with_deadline(d), move || {
            let at = task::deadline().expect("a deadline");
            let early = (task::is_cancelled(), Instant::now());
            until_cancelled();
            tell.send((at, early, Instant::now())).unwrap_or(());
            key.pass();
            quiet_panic("late");
        });
        let (at, (early, when), noticed) = told.recv().expect("the task saw the deadline pass");
        assert!(at >= start + d && noticed >= at);
        assert!(!early || when >= at);
        assert_stats!(pool.stats(), abandoned: 1, timed_out: 0);
        assert!(pool.workers().iter().any(|w| w.abandoned && w.busy));
        gate.open();
        assert_stats!(at_rest(&pool), panicked: 1, timed_out: 1, abandoned: 0);
        // The next task on the same worker sees nothing of the deadline.
        let look = || (task::is_cancelled(), task::deadline());
        let next = pool.do_with_deadline(look, Duration::MAX);
        assert_eq!(next.unwrap(), (false, None));
        must_submit(pool.with_deadline(LONG), || ());
        assert_eq!(settle(&pool).timed_out, 1, "in time");
    });
}

/// A wait for space ends at the deadline. `do_with_deadline` obeys the earlier of its two deadlines.
#[test]
fn law17_the_deadline_bounds_the_wait_and_the_call() {
    timed(|| {
        let (pool, gate) = held(0);
        let waits = pool.when_full(WhenFull::Block);
        takes(ms(20), || {
            saturated(waits.with_deadline(ms(20)).serve(|| ()))
        });
        assert_eq!(pool.stats().refusals.saturated, 1);
        let at = Instant::now() + ms(20);
        saturated(waits.with_deadline_at(at).group().serve(|| ()));
        assert!(Instant::now() >= at);
        for (own, call) in [(ms(20), LONG), (LONG, ms(20)), (Duration::MAX, ms(20))] {
            let start = Instant::now();
            let on = waits.with_deadline(own);
            takes(ms(20), || is_expired(on.do_with_deadline(|| (), call)));
            assert!(start.elapsed() < LIMIT);
        }
        // A moment that has passed is a deadline of zero: the call is counted nowhere.
        let refused = pool.stats().refused;
        let zero = waits.with_deadline(Duration::ZERO);
        for past in [zero, waits.with_deadline_at(at)] {
            is_expired(past.do_with_deadline(|| 1, LONG));
        }
        assert_eq!(pool.stats().refused, refused);
        gate.open();
        at_rest(&pool);
    });
}

/// A deadline given by the clock is exactly that moment, wherever the task asks for it.
#[test]
fn law17_a_deadline_by_the_clock() {
    timed(|| {
        let pool = pool(1, 4);
        let at = Instant::now() + LONG;
        let on = pool.with_deadline_at(at);
        for on in [
            on,
            on.labeled("by the clock"),
            on.run_limit(2 * LONG),
            pool.with_deadline(ms(1)).with_deadline_at(at),
        ] {
            assert_eq!(seen(on).1, Some(at));
            for (on, timeout) in product([on, on.min_remaining(ms(1))], [2 * LONG, Duration::MAX]) {
                let deadline = on.do_with_deadline(task::deadline, timeout);
                assert_eq!(deadline.unwrap(), Some(at), "{on:?}");
            }
        }
        let (tell, told) = mpsc::channel();
        let tells = move || tell.send(task::deadline()).unwrap();
        on.scope(|s| s.serve(tells).unwrap());
        assert_eq!(told.recv(), Ok(Some(at)));
        // The earlier deadline counts, and `Duration::MAX` removes the deadline.
        let earlier = on.do_with_deadline(task::deadline, LONG / 2).unwrap();
        assert!(earlier.expect("a deadline") < at);
        assert_eq!(seen(on.with_deadline(Duration::MAX)).1, None);
        at_rest(&pool);
    });
}

/// A run limit counts from the task's start, however long the task was queued.
#[test]
fn law17_a_run_limit_counts_from_the_start() {
    timed(|| {
        let (pool, gate) = held(8);
        let brief = pool.run_limit(ms(1));
        let group = brief.labeled("brief").group();
        let ran = Tally::default();
        let task = || {
            let ran = ran.clone();
            move || {
                let end = task::deadline().expect("a deadline");
                until_cancelled();
                assert!(Instant::now() >= end);
                ran.add(1);
            }
        };
        must_submit(brief, task());
        must_serve_in(&group, task());
        must_submit(brief.with_deadline(LONG), task());
        // A run limit is no deadline for `min_remaining`.
        must_submit(pool.run_limit(LONG).min_remaining(2 * LONG), || ());
        thread::sleep(ms(20)); // longer than their run limit
        gate.open();
        group.wait();
        brief.scope(|s| s.serve(task()).expect("space"));
        let stats = at_rest(&pool);
        assert_eq!((ran.get(), stats.expired), (4, 0), "{stats:?}");
        assert_stats!(stats, timed_out: 4, completed: 6);
        assert_eq!((group.completed(), group.discarded()), (1, 0));
        let next = pool.do_with_deadline(task::deadline, Duration::MAX);
        assert_eq!(next.unwrap(), None, "of the next task on the worker");
    });
}

/// A call's task that exceeds its run limit is abandoned, but its caller waits until its own
/// deadline. The task is counted as timed out once, whether its caller stays or leaves.
#[test]
fn law17_a_run_limit_does_not_end_the_call() {
    timed(|| {
        let pool = Arc::new(pool(1, 0));
        for (turn, timeout) in [(1, Duration::MAX), (2, LONG), (3, ms(1000))] {
            let gate = Gate::new();
            let key = gate.key();
            let task = move || {
                until_cancelled();
                key.pass();
                7
            };
            let call = move |pool: &Pool| pool.run_limit(ms(1)).do_with_deadline(task, timeout);
            let caller = beside(&pool, call);
            gate.wait_entered(1);
            assert_stats!(pool.stats(), abandoned: 1, running: 1);
            let w = pool.workers().remove(0);
            assert!(w.abandoned && w.abandoned_for.is_some(), "{w:?}");
            if timeout < LONG {
                wait_until("the caller to leave", || pool.stats().timed_out == turn);
                gate.open();
                is_timed_out(caller.join().unwrap());
            } else {
                gate.open();
                assert_eq!(caller.join().unwrap().unwrap(), 7);
            }
            assert_stats!(at_rest(&pool), timed_out: turn, completed: turn, abandoned: 0);
        }
        // A task with a run limit of zero runs, and sees itself cancelled.
        let zero = pool.run_limit(Duration::ZERO);
        assert!(zero.do_with_deadline(task::is_cancelled, LONG).unwrap());
    });
}

/// A task with less than that time left is not started. Its caller gets it back when its turn
/// comes, before the deadline, which may come from `with_deadline`. Tasks that have enough time
/// run, and so do those without a deadline.
#[test]
fn law18_a_task_with_too_little_time_left_is_not_started() {
    timed_each([0, 2], |queue| {
        let pool = pool(1, queue);
        let least = pool.min_remaining(LONG + ms(1));
        // In turn, a new worker and an idle one would have to start the task.
        for _ in 0..2 {
            assert_eq!(expired(least.do_with_deadline(|| 5, LONG)).run(), 5);
            settle(&pool);
        }
        assert_eq!(least.do_with_deadline(|| 7, Duration::MAX).unwrap(), 7);
        assert_stats!(at_rest(&pool), expired: 2, accepted: 3);
    });
    timed(|| {
        let (pool, gate) = held(8);
        let ran = Tally::default();
        let call = |least| {
            let task = ran.task();
            beside(&pool, move |pool| {
                pool.min_remaining(least).do_with_deadline(task, LONG)
            })
        };
        let (in_vain, in_time) = (call(LONG), call(ms(1)));
        await_queued(&pool, 2);
        let group = pool.with_deadline(LONG).min_remaining(LONG).group();
        must_serve_in(&group, ran.task());
        // Lets at least one tick of the clock pass.
        thread::sleep(ms(2));
        gate.open();
        is_expired(in_vain.join().unwrap());
        in_time.join().unwrap().unwrap();
        group.wait();
        assert_eq!((group.discarded(), ran.get()), (1, 1));
        assert_stats!(at_rest(&pool), expired: 2, completed: 2);
    });
}

/// A task that is late by the time that a shutdown discards it counts as expired. So does one that
/// its group cancels.
#[test]
fn law17_a_late_task_that_is_discarded_counts_as_expired() {
    timed_each(
        [None, Some(Shutdown::Discard), Some(Shutdown::Cancel)],
        |mode| {
            let (pool, gate) = held(3);
            let ledger = Ledger::new(3);
            let [soon, later] = [ms(1), LONG].map(|d| pool.with_deadline(d).group());
            must_serve_in(&soon, ledger.task(0));
            must_serve_in(&later, ledger.task(1));
            must_serve_in(&soon, ledger.task(2));
            thread::sleep(ms(20));
            match mode {
                Some(mode) => drop(pool.shutdown(mode, Duration::ZERO)),
                None => [soon, later].iter().for_each(Group::cancel),
            }
            assert_stats!(pool.stats(), expired: 2, discarded: 1, queued: 0);
            gate.open();
            ledger.assert_none_ran();
            at_rest(&pool);
        },
    );
}
