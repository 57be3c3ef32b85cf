//! Options of a submission: law 14 (policy), law 17 (deadlines for `serve`), law 18 (no start in
//! vain), and the options that groups and scopes take over.

mod common;

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{task, DeadlineError, Group, Pool, Refusal, Refused, Shutdown, Submitter, WhenFull};

fn pool(max: usize, queue: usize) -> Pool {
    Pool::builder()
        .max_workers(max)
        .queue_capacity(queue)
        .build()
        .expect("pool")
}

/// Returns a pool of one worker, which runs a task at the gate.
fn busy(queue: usize, gate: &Gate) -> Pool {
    let pool = pool(1, queue);
    must_serve(&pool, gate.task());
    gate.wait_entered(1);
    pool
}

#[test]
fn options_add_up_and_the_last_counts() {
    timed(|| {
        let pool = pool(1, 4);
        let seen = |s: Submitter<'_>| {
            let (tell, told) = mpsc::channel();
            s.serve(move || tell.send((task::label(), task::deadline())).unwrap_or(()))
                .map_err(Refused::without_closure)
                .expect("room");
            told.recv().expect("the task ran")
        };
        let both = pool.labeled("first").with_deadline(LONG).labeled("second");
        let copy = both;
        for submitter in [both, copy] {
            let (label, deadline) = seen(submitter);
            assert_eq!(label, Some("second"));
            assert!(deadline.expect("a deadline") > Instant::now() + LONG / 2);
        }
        assert_eq!(
            seen(both.with_deadline(Duration::MAX)),
            (Some("second"), None)
        );
        assert_eq!(
            seen(pool.min_remaining(LONG)),
            (None, None),
            "of no deadline"
        );
        assert_eq!(seen(pool.when_full(WhenFull::Refuse)), (None, None));
        check_at_rest(&pool, &settle(&pool));
        assert_eq!(pool.workers()[0].label, None);
    });
}

#[test]
fn groups_and_scopes_carry_the_options() {
    fn is_safe<T: UnwindSafe + RefUnwindSafe + Send + Sync>(_: &T) {}
    timed(|| {
        let pool = pool(1, 4);
        let submitter = pool.labeled("job").with_deadline(LONG);
        let group: Group = submitter.group();
        is_safe(&group);
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&told);
        let see = || {
            (
                task::label(),
                task::remaining().is_some_and(|left| left > LONG / 2),
            )
        };
        group
            .serve(move || tell.lock().unwrap().push(see()))
            .expect("room");
        group.wait();
        let mut in_scope = None;
        submitter.scope(|s| s.serve(|| in_scope = Some(see())).expect("room"));
        assert_eq!(*told.lock().unwrap(), [(Some("job"), true)]);
        assert_eq!(in_scope, Some((Some("job"), true)));
        let gate = Gate::new();
        submitter.group().serve(gate.task()).expect("room");
        gate.wait_entered(1);
        assert_eq!(pool.workers()[0].label, Some("job"));
    });
}

/// Law 14: a submitter's own policy overrides the builder's, also together with a deadline.
#[test]
fn law14_a_policy_of_its_own() {
    timed(|| {
        let gate = Gate::new();
        let pool = Arc::new(busy(0, &gate));
        let start = Instant::now();
        let briefly = pool.when_full(WhenFull::BlockFor(ms(30)));
        saturated(briefly.serve(|| ()));
        assert!(start.elapsed() >= ms(30));
        saturated(briefly.when_full(WhenFull::Refuse).serve(|| ()));
        let waits = pool.when_full(WhenFull::Block);
        let expired = waits.do_with_deadline(|| (), ms(20));
        assert!(
            matches!(expired, Err(DeadlineError::Expired(_))),
            "{expired:?}"
        );
        let group = waits.with_deadline(ms(20)).group();
        saturated(group.serve(|| ()));
        let blocked = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.when_full(WhenFull::Block).group().serve(|| ()).is_ok())
        };
        wait_until("a submitter to wait", || pool.stats().waiting == 1);
        gate.open();
        assert!(blocked.join().expect("no panic"));
        check_at_rest(&pool, &settle(&pool));
    });
}

/// Law 17: a task that no worker has started in time never starts. Its captures are dropped once.
#[test]
fn law17_what_is_late_never_starts() {
    timed(|| {
        let ledger = Ledger::new(4);
        let gate = Gate::new();
        let pool = busy(8, &gate);
        let soon = pool.with_deadline(ms(10));
        let group = soon.labeled("late").group();
        let entries: Vec<_> = (0..4).map(|id| ledger.entry(id)).collect();
        for (id, entry) in entries.into_iter().enumerate() {
            let task = move || entry.run();
            let outcome = match id {
                0 => soon.serve(task),
                1 => soon.labeled("late").serve(task),
                2 => group.serve(task),
                _ => pool.with_deadline(Duration::ZERO).serve(task),
            };
            outcome.map_err(Refused::without_closure).expect("room");
        }
        thread::sleep(ms(15));
        gate.open();
        group.wait();
        let stats = settle(&pool);
        assert_eq!((stats.expired, stats.completed), (4, 1), "{stats:?}");
        assert_eq!((stats.timed_out, stats.discarded), (0, 0), "{stats:?}");
        check_at_rest(&pool, &stats);
        assert_eq!((group.discarded(), group.completed()), (1, 0));
        for id in 0..4 {
            assert_eq!((ledger.runs(id), ledger.drops(id)), (0, 1), "task {id}");
        }
        assert_cap_usable(&pool);
    });
}

/// Laws 15 and 17: a scope's task whose deadline has passed in the queue is dropped, and the scope
/// ends.
#[test]
fn law17_a_scopes_task_is_dropped_at_its_deadline() {
    timed(|| {
        let pool = pool(1, 4);
        let mut ran = false;
        let dropped = AtomicBool::new(false);
        struct Tell<'a>(&'a AtomicBool);
        impl Drop for Tell<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let tell = Tell(&dropped);
        let flag = &mut ran;
        pool.with_deadline(Duration::ZERO).scope(|s| {
            s.serve(move || {
                let _tell = tell;
                *flag = true;
            })
            .map_err(Refused::without_closure)
            .expect("room");
        });
        assert!(!ran && dropped.load(Ordering::SeqCst));
        assert_eq!(settle(&pool).expired, 1);
    });
}

/// Law 17: a task that runs past its deadline sees that, counts as abandoned, and is counted as
/// timed out.
#[test]
fn law17_running_past_the_deadline() {
    timed(|| {
        let pool = pool(2, 2);
        let gate = Gate::new();
        let key = gate.key();
        let (tell, told) = mpsc::channel();
        let d = ms(1000); // enough to start a thread on a busy machine
        let start = Instant::now();
        pool.with_deadline(d)
            .serve(move || {
                let at = task::deadline().expect("a deadline");
                let early = (task::is_cancelled(), Instant::now());
                while !task::is_cancelled() {
                    thread::yield_now();
                }
                tell.send((at, early, Instant::now())).unwrap_or(());
                key.pass();
                quiet_panic("late");
            })
            .map_err(Refused::without_closure)
            .expect("room");
        let (at, (early, when), noticed) = told.recv().expect("the task saw the deadline pass");
        assert!(at >= start + d && noticed >= at);
        assert!(!early || when >= at);
        let stats = pool.stats();
        assert_eq!((stats.abandoned, stats.timed_out), (1, 0), "{stats:?}");
        assert!(pool.workers().iter().any(|w| w.abandoned && w.busy));
        gate.open();
        let stats = settle(&pool);
        assert_eq!(
            (stats.panicked, stats.timed_out, stats.abandoned),
            (1, 1, 0)
        );
        check_at_rest(&pool, &stats);
        // The next task on the same worker sees nothing of the deadline.
        let next =
            pool.do_with_deadline(|| (task::is_cancelled(), task::deadline()), Duration::MAX);
        assert!(matches!(next, Ok((false, None))), "{next:?}");
        pool.with_deadline(LONG).serve(|| ()).expect("room");
        assert_eq!(settle(&pool).timed_out, 1, "in time");
    });
}

/// Law 17: a wait for room ends at the deadline. `do_with_deadline` obeys the earlier of its two
/// deadlines.
#[test]
fn law17_the_deadline_bounds_the_wait_and_the_call() {
    timed(|| {
        let gate = Gate::new();
        let pool = busy(0, &gate);
        let waits = pool.when_full(WhenFull::Block);
        let start = Instant::now();
        let refused = saturated(waits.with_deadline(ms(20)).serve(|| ()));
        assert!(matches!(refused.reason(), Refusal::Saturated));
        assert!(start.elapsed() >= ms(20));
        assert_eq!(pool.stats().refusals.saturated, 1);
        for (own, call) in [(ms(20), LONG), (LONG, ms(20)), (Duration::MAX, ms(20))] {
            let start = Instant::now();
            let outcome = waits.with_deadline(own).do_with_deadline(|| (), call);
            assert!(
                matches!(outcome, Err(DeadlineError::Expired(_))),
                "{outcome:?}"
            );
            assert!(start.elapsed() >= ms(20) && start.elapsed() < LIMIT);
        }
        let none = waits
            .with_deadline(Duration::ZERO)
            .do_with_deadline(|| 1, LONG);
        assert!(matches!(none, Err(DeadlineError::Expired(_))), "{none:?}");
        gate.open();
        check_at_rest(&pool, &settle(&pool));
    });
}

/// Law 18: a task with less than that time left is not started. Its caller gets it back when its
/// turn comes, before the deadline.
#[test]
fn law18_a_start_in_vain_is_none() {
    timed(|| {
        for queue in [0, 2] {
            let pool = pool(1, queue);
            let start = Instant::now();
            let outcome = pool
                .min_remaining(LONG + ms(1))
                .do_with_deadline(|| 5, LONG);
            let Err(DeadlineError::Expired(unrun)) = outcome else {
                panic!("{outcome:?}");
            };
            assert_eq!(unrun.run(), 5);
            assert!(
                start.elapsed() < LIMIT,
                "returned at the task's turn, not at its deadline"
            );
            let stats = settle(&pool);
            assert_eq!((stats.expired, stats.accepted), (1, 1), "{stats:?}");
            let sum = pool.min_remaining(ms(1)).do_with_deadline(|| 6, LONG);
            assert!(matches!(sum, Ok(6)), "{sum:?}");
            let never = pool
                .min_remaining(LONG)
                .do_with_deadline(|| 7, Duration::MAX);
            assert!(matches!(never, Ok(7)), "{never:?}");
            check_at_rest(&pool, &settle(&pool));
            assert_cap_usable(&pool);
        }
    });
}

/// Law 18: a queued task without enough time left is not started, and tasks that have enough time
/// run. The deadline may come from `with_deadline`.
#[test]
fn law18_in_the_queue() {
    timed(|| {
        let gate = Gate::new();
        let pool = Arc::new(busy(8, &gate));
        let ran = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = [true, false]
            .map(|in_vain| {
                let (pool, ran) = (Arc::clone(&pool), Arc::clone(&ran));
                thread::spawn(move || {
                    let least = if in_vain { LONG } else { ms(1) };
                    let task = move || in_vain && ran.swap(true, Ordering::SeqCst);
                    pool.min_remaining(least)
                        .do_with_deadline(task, LONG)
                        .is_ok()
                })
            })
            .into_iter()
            .collect();
        wait_until("both tasks to be queued", || pool.stats().queued == 2);
        let group = pool.with_deadline(LONG).min_remaining(LONG).group();
        let flag = Arc::clone(&ran);
        group
            .serve(move || flag.store(true, Ordering::SeqCst))
            .expect("room");
        // Lets at least one tick of the clock pass.
        thread::sleep(ms(2));
        gate.open();
        let got: Vec<_> = callers
            .into_iter()
            .map(|c| c.join().expect("no panic"))
            .collect();
        group.wait();
        assert_eq!(got, [false, true]);
        assert_eq!(group.discarded(), 1);
        assert!(!ran.load(Ordering::SeqCst));
        let stats = settle(&pool);
        assert_eq!((stats.expired, stats.completed), (2, 2), "{stats:?}");
        check_at_rest(&pool, &stats);
    });
}

/// Law 17: a deadline, least remaining time or wait beyond the clock's range is as good as none,
/// and nothing overflows.
#[test]
fn law17_times_beyond_the_clock() {
    timed(|| {
        let pool = pool(1, 2);
        for far in [
            Duration::MAX,
            Duration::MAX - Duration::from_nanos(1),
            Duration::from_secs(u64::MAX),
            Duration::from_secs(u64::MAX / 2),
        ] {
            let submitter = pool.when_full(WhenFull::BlockFor(far)).with_deadline(far);
            let (tell, told) = mpsc::channel();
            let task = move || tell.send(task::remaining()).unwrap_or_default();
            let served = submitter.serve(task).map_err(Refused::without_closure);
            served.expect("room");
            let left = told.recv_timeout(LIMIT).expect("the task runs");
            assert!(left.is_none_or(|left| left > LONG), "{far:?}: {left:?}");
            assert!(matches!(submitter.do_with_deadline(|| 1, far), Ok(1)));
            // A task without a deadline always has enough time left; a task with any deadline never
            // has.
            let least = pool.min_remaining(far);
            assert!(matches!(least.do_with_deadline(|| 2, Duration::MAX), Ok(2)));
            let outcome = least.do_with_deadline(|| 3, LONG);
            assert!(
                matches!(outcome, Err(DeadlineError::Expired(_))),
                "{outcome:?}"
            );
        }
        let stats = settle(&pool);
        assert_eq!((stats.expired, stats.timed_out), (4, 0), "{stats:?}");
        check_at_rest(&pool, &stats);
    });
}

/// With any options, a closed pool refuses as `Closed` at once and hands the closure back.
#[test]
fn law10_options_on_a_closed_pool() {
    timed(|| {
        let pool = pool(1, 2);
        pool.shutdown(Shutdown::Drain, LONG);
        let ledger = Ledger::new(4 * 5);
        let options = [
            pool.labeled("late"),
            pool.when_full(WhenFull::Block),
            pool.when_full(WhenFull::BlockFor(LONG)),
            pool.with_deadline(Duration::ZERO),
            pool.with_deadline(LONG).min_remaining(LONG + LONG),
        ];
        for (n, submitter) in options.into_iter().enumerate() {
            let task = |k: usize| {
                let entry = ledger.entry(4 * n + k);
                move || entry.run()
            };
            let refused = submitter.serve(task(0)).expect_err("closed");
            assert!(refused.is_closed(), "{submitter:?}");
            refused.into_inner()();
            let refused = submitter.group().serve(task(1)).expect_err("closed");
            assert!(refused.is_closed(), "{submitter:?}");
            refused.into_inner()();
            let refused = submitter.scope(|s| s.serve(task(2)).expect_err("closed"));
            assert!(refused.is_closed(), "{submitter:?}");
            refused.into_inner()();
            match submitter.do_with_deadline(task(3), LONG) {
                Err(DeadlineError::Refused(refused)) => {
                    assert!(refused.is_closed(), "{submitter:?}");
                    refused.into_inner()();
                }
                // A deadline of zero is checked first of all.
                Err(DeadlineError::Expired(unrun)) if n == 3 => unrun.run(),
                other => panic!("{submitter:?}: {other:?}"),
            }
        }
        ledger.assert_all_ran();
        let stats = pool.stats();
        assert_eq!(
            (stats.refusals.closed, stats.refused),
            (19, 19),
            "{stats:?}"
        );
        assert_eq!(stats.accepted, 0);
    });
}

/// Law 2 under laws 17 and 18: each closure runs once, or is dropped or handed back once.
#[test]
fn law17_law18_exactly_once_under_load() {
    timed(|| {
        const EACH: usize = 400;
        let pool = pool(2, 4);
        let ledger = Ledger::new(4 * EACH);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (pool, ledger) = (&pool, &ledger);
                scope.spawn(move || {
                    let mut rng = Rng::new(thread as u64 + 17);
                    for n in 0..EACH {
                        let entry = ledger.entry(thread * EACH + n);
                        let pause = Duration::from_micros(rng.below(60));
                        let task = move || {
                            entry.run();
                            spin(pause);
                        };
                        let d = Duration::from_micros(rng.below(200));
                        let least = Duration::from_micros(rng.below(100));
                        let submitter = pool.with_deadline(d).min_remaining(least);
                        match rng.below(3) {
                            0 => drop(submitter.serve(task)),
                            1 => drop(submitter.when_full(WhenFull::Block).serve(task)),
                            _ => drop(submitter.do_with_deadline(task, ms(1))),
                        }
                    }
                });
            }
        });
        let stats = settle(&pool);
        check_at_rest(&pool, &stats);
        assert_eq!(ledger.total_runs(), stats.completed, "{stats:?}");
        for id in 0..4 * EACH {
            assert!(ledger.runs(id) <= 1 && ledger.drops(id) == 1, "task {id}");
        }
    });
}

/// Law 17: a deadline given by the clock is exactly that moment, wherever the task asks for it.
#[test]
fn law17_a_deadline_by_the_clock() {
    timed(|| {
        let pool = pool(1, 4);
        let at = Instant::now() + LONG;
        let submitter = pool.with_deadline_at(at);
        let (tell, told) = mpsc::channel();
        let task = || {
            let tell = tell.clone();
            move || tell.send(task::deadline()).unwrap_or_default()
        };
        submitter.serve(task()).expect("room");
        submitter
            .labeled("by the clock")
            .serve(task())
            .expect("room");
        submitter
            .run_limit(LONG + LONG)
            .serve(task())
            .expect("room");
        submitter.group().serve(task()).expect("room");
        submitter.scope(|s| s.serve(task()).is_ok());
        for _ in 0..5 {
            assert_eq!(told.recv_timeout(LIMIT), Ok(Some(at)));
        }
        for timeout in [LONG + LONG, Duration::MAX] {
            let seen = submitter.do_with_deadline(task::deadline, timeout);
            assert_eq!(seen.expect("in time"), Some(at));
            let held = submitter.min_remaining(ms(1));
            let seen = held.run_limit(LONG + LONG);
            let seen = seen.do_with_deadline(task::deadline, timeout);
            assert_eq!(seen.expect("in time"), Some(at));
        }
        // The earlier deadline counts. Of two deadlines set on one submitter, the last one counts.
        let seen = submitter.do_with_deadline(task::deadline, LONG / 2);
        assert!(seen.expect("in time").expect("a deadline") < at);
        let none = submitter.with_deadline(Duration::MAX);
        assert_eq!(
            none.do_with_deadline(task::deadline, Duration::MAX)
                .unwrap(),
            None
        );
        let again = pool.with_deadline(ms(1)).with_deadline_at(at);
        assert_eq!(
            again
                .do_with_deadline(task::deadline, Duration::MAX)
                .unwrap(),
            Some(at)
        );
        check_at_rest(&pool, &settle(&pool));
    });
}

/// Law 17: a moment that has passed is a deadline of zero. A moment that comes during a wait ends
/// the wait.
#[test]
fn law17_a_moment_that_has_passed_expires_the_call_at_once() {
    timed(|| {
        let before = Instant::now();
        let gate = Gate::new();
        let pool = busy(1, &gate);
        let past = pool.when_full(WhenFull::Block).with_deadline_at(before);
        let called = past.do_with_deadline(|| 1, LONG);
        assert!(
            matches!(called, Err(DeadlineError::Expired(_))),
            "{called:?}"
        );
        assert_eq!(pool.stats().refused, 0, "counted nowhere");
        past.serve(|| unreachable!("too late")).expect("room");
        saturated(past.serve(|| ()));
        gate.open();
        let stats = settle(&pool);
        assert_eq!((stats.expired, stats.completed), (1, 1), "{stats:?}");
        check_at_rest(&pool, &stats);

        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let at = Instant::now() + ms(20);
        let soon = pool.when_full(WhenFull::Block).with_deadline_at(at);
        soon.serve(|| unreachable!("too late")).expect("room");
        saturated(soon.serve(|| ()));
        assert!(Instant::now() >= at);
        gate.open();
        assert_eq!(settle(&pool).expired, 2);
    });
}

/// Law 17: a run limit counts from the task's start, however long the task was queued.
#[test]
fn law17_a_run_limit_counts_from_the_start() {
    timed(|| {
        let gate = Gate::new();
        let pool = busy(8, &gate);
        let brief = pool.run_limit(ms(1));
        let group = brief.labeled("brief").group();
        let ran = Arc::new(Mutex::new(0));
        let task = || {
            let ran = Arc::clone(&ran);
            move || {
                let end = task::deadline().expect("a deadline");
                while !task::is_cancelled() {
                    thread::yield_now();
                }
                assert!(Instant::now() >= end);
                *ran.lock().unwrap() += 1;
            }
        };
        brief.serve(task()).expect("room");
        group.serve(task()).expect("room");
        brief.with_deadline(LONG).serve(task()).expect("room");
        pool.run_limit(LONG).serve(|| ()).expect("room");
        thread::sleep(ms(20)); // longer than their run limit
        gate.open();
        group.wait();
        brief.scope(|s| s.serve(task()).expect("room"));
        let stats = settle(&pool);
        assert_eq!((*ran.lock().unwrap(), stats.expired), (4, 0), "{stats:?}");
        assert_eq!((stats.timed_out, stats.completed), (4, 6), "{stats:?}");
        assert_eq!((group.completed(), group.discarded()), (1, 0));
        check_at_rest(&pool, &stats);
        let next = pool.do_with_deadline(task::deadline, Duration::MAX);
        assert_eq!(
            next.expect("the task runs"),
            None,
            "of the next task on the worker"
        );
    });
}

/// Law 17: of a run limit and a deadline, the earlier one counts.
#[test]
fn law17_the_earlier_of_run_limit_and_deadline_counts() {
    timed(|| {
        let pool = pool(1, 2);
        let left = |submitter: Submitter<'_>| {
            let (tell, told) = mpsc::channel();
            let task = move || tell.send(task::remaining()).unwrap_or_default();
            submitter
                .serve(task)
                .map_err(Refused::without_closure)
                .expect("room");
            let served = told.recv_timeout(LIMIT).expect("the task runs");
            let called = submitter.do_with_deadline(task::remaining, Duration::MAX);
            [served, called.expect("the task runs")]
        };
        let hour = Duration::from_secs(3600);
        let is_about = |left: [Option<Duration>; 2], d: Duration| {
            left.iter()
                .all(|left| left.is_some_and(|left| left <= d && left > d / 2))
        };
        assert!(is_about(left(pool.run_limit(hour)), hour));
        assert!(is_about(
            left(pool.run_limit(hour).with_deadline(4 * hour)),
            hour
        ));
        assert!(is_about(
            left(pool.run_limit(4 * hour).with_deadline(hour)),
            hour
        ));
        assert_eq!(left(pool.run_limit(Duration::MAX)), [None; 2]);
        assert_eq!(
            left(pool.run_limit(hour).run_limit(Duration::MAX)),
            [None; 2]
        );
        // A run limit is not a deadline for `min_remaining` either.
        for least in [4 * hour, Duration::MAX] {
            assert!(is_about(
                left(pool.run_limit(hour).min_remaining(least)),
                hour
            ));
        }
        let stats = settle(&pool);
        assert_eq!((stats.expired, stats.timed_out), (0, 0), "{stats:?}");
        let late = pool.run_limit(hour).min_remaining(hour);
        let late = late.do_with_deadline(|| (), hour / 2);
        assert!(matches!(late, Err(DeadlineError::Expired(_))), "{late:?}");
        check_at_rest(&pool, &settle(&pool));
    });
}

/// Law 17: a call's task that exceeds its run limit is abandoned, but its caller waits until its
/// own deadline. The task is counted as timed out once, whether its caller stays or leaves.
#[test]
fn law17_a_run_limit_does_not_end_the_call() {
    timed(|| {
        let pool = Arc::new(pool(1, 0));
        for (timeout, stays) in [(Duration::MAX, true), (LONG, true), (ms(1000), false)] {
            let before = pool.stats();
            let gate = Gate::new();
            let key = gate.key();
            let caller = {
                let pool = Arc::clone(&pool);
                thread::spawn(move || {
                    let task = move || {
                        while !task::is_cancelled() {
                            thread::yield_now();
                        }
                        key.pass();
                        7
                    };
                    pool.run_limit(ms(1)).do_with_deadline(task, timeout)
                })
            };
            gate.wait_entered(1);
            let stats = pool.stats();
            assert_eq!((stats.abandoned, stats.running), (1, 1), "{stats:?}");
            let worker = &pool.workers()[0];
            assert!(
                worker.abandoned && worker.abandoned_for.is_some(),
                "{worker:?}"
            );
            if !stays {
                wait_until("the caller to leave", || {
                    pool.stats().timed_out > before.timed_out
                });
            }
            gate.open();
            match caller.join().expect("no panic") {
                Ok(value) => assert!(stays && value == 7),
                Err(DeadlineError::TimedOut) => assert!(!stays),
                other => panic!("{other:?}"),
            }
            let stats = settle(&pool);
            assert_eq!(stats.timed_out - before.timed_out, 1, "{stats:?}");
            assert_eq!(stats.completed - before.completed, 1, "{stats:?}");
            assert_eq!(stats.abandoned, 0, "{stats:?}");
            check_at_rest(&pool, &stats);
        }
        // A task with a run limit of zero runs, and sees itself cancelled.
        let outcome = pool
            .run_limit(Duration::ZERO)
            .do_with_deadline(task::is_cancelled, LONG);
        assert!(matches!(outcome, Ok(true)), "{outcome:?}");
    });
}
