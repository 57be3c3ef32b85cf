//! Groups: the parts of laws 2, 7, 8, 9, 10 and 14 about groups, and the documented properties of
//! the type.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{task, Group, Pool, Refusal, Refused, Shutdown, WhenFull};

#[track_caller]
fn must_join<F: FnOnce() + Send + 'static>(group: &Group, task: F) {
    if let Err(refused) = group.serve(task) {
        panic!("refused: {refused}");
    }
}

/// Returns `pending`, `completed`, `panicked` and `discarded`.
fn figures(group: &Group) -> [usize; 4] {
    [
        group.pending(),
        group.completed(),
        group.panicked(),
        group.discarded(),
    ]
}

/// Law 9: when a group's wait returns, its tasks are counted in the group and the pool, and their
/// workers are free: the whole cap can be used at once.
#[test]
fn law09_after_a_groups_wait_all_is_counted_and_free() {
    timed(|| {
        for (max, queue) in [(1, 0), (3, 0), (2, 6)] {
            let pool = pool(max, queue);
            let group = pool.group();
            let cap = max + queue;
            for round in 1..=rounds(300) as usize {
                let ran = Arc::new(AtomicU64::new(0));
                for i in 0..cap {
                    let mark = Arc::clone(&ran);
                    // Right after a wait no worker is occupied, so no task may be refused.
                    must_join(&group, move || {
                        mark.fetch_add(1, Ordering::SeqCst);
                        if i == 0 {
                            quiet_panic("meant");
                        }
                    });
                }
                if round % 2 == 0 {
                    group.wait();
                } else {
                    group.wait_timeout(LONG).unwrap();
                }
                assert_eq!(ran.load(Ordering::SeqCst), cap as u64);
                assert_eq!(Arc::strong_count(&ran), 1, "captures outlive the wait");
                let panicked = round;
                let completed = round * (cap - 1);
                assert_eq!(figures(&group), [0, completed, panicked, 0]);
                let s = pool.stats();
                assert_eq!((s.running, s.queued, s.idle), (0, 0, s.workers), "{s:?}");
                assert_eq!(
                    (s.completed, s.panicked),
                    (completed as u64, panicked as u64)
                );
                check_at_rest(&pool, &s);
            }
        }
    });
}

/// A group's wait waits for all tasks of that group and for no others.
#[test]
fn wait_waits_for_the_groups_own_tasks() {
    timed(|| {
        let pool = pool(4, 4);
        let (one, two) = (pool.group(), pool.group());
        // The group has no tasks, so the wait returns at once.
        one.wait();
        one.wait_timeout(Duration::ZERO).unwrap();
        one.wait_timeout(Duration::MAX).unwrap();
        let others = Gate::new();
        must_serve(&pool, others.task());
        must_join(&two, others.task());
        let mine = Gate::new();
        for _ in 0..3 {
            must_join(&one, mine.task());
        }
        assert_eq!((one.pending(), two.pending()), (3, 1));
        thread::scope(|s| {
            let _openers = (others.opener(), mine.opener());
            let waiters: Vec<_> = (0..3)
                .map(|i| {
                    let one = one.clone();
                    s.spawn(move || {
                        if i == 0 {
                            one.wait_timeout(LONG).unwrap();
                        } else {
                            one.wait();
                        }
                        one.completed()
                    })
                })
                .collect();
            thread::sleep(ms(20));
            assert!(waiters.iter().all(|w| !w.is_finished()));
            mine.open();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), 3);
            }
            // The gate of the other group's task is still shut.
            assert_eq!(two.pending(), 1);
        });
        two.wait();
        assert_eq!(figures(&two), [0, 1, 0, 0]);
    });
}

/// Law 14: a wait returns if at one moment of it no task was pending. Another waiter, which sees
/// the same moments, serves the next task at once.
#[test]
fn law14_a_wait_misses_no_moment_at_which_nothing_is_pending() {
    timed(|| {
        let pool = pool(2, 16);
        let group = pool.group();
        let nap = || must_join(&group, || thread::sleep(ms(1)));
        let (over, moments) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|s| {
            nap();
            s.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    group.wait();
                    moments.fetch_add(1, Ordering::SeqCst);
                    nap();
                }
            });
            for _ in 0..rounds(50) {
                let before = moments.load(Ordering::SeqCst);
                group.wait();
                let missed = moments.load(Ordering::SeqCst) - before;
                // The waiting thread may be slow to start and to wake.
                assert!(missed < 1_000, "{missed} moments missed");
            }
            over.store(true, Ordering::SeqCst);
        });
    });
}

/// `wait_timeout` returns at its timeout, never earlier, with the number of pending tasks.
#[test]
fn wait_timeout_ends_at_its_timeout() {
    timed(|| {
        let pool = pool(1, 3);
        let group = pool.group();
        let gate = Gate::new();
        for _ in 0..4 {
            must_join(&group, gate.task());
        }
        for d in [Duration::ZERO, ms(1), ms(40)] {
            let start = Instant::now();
            let unfinished = group.wait_timeout(d).unwrap_err();
            assert!(start.elapsed() >= d);
            assert_eq!(unfinished.pending(), 4);
            assert!(!unfinished.to_string().is_empty());
        }
        gate.open();
        group.wait_timeout(Duration::MAX).unwrap();
        assert_eq!(group.pending(), 0);
    });
}

/// Tasks may serve further tasks into their group; the group's wait includes those.
#[test]
fn tasks_extend_their_group() {
    fn spread(group: &Group, depth: u32, ran: &Arc<AtomicU64>) {
        ran.fetch_add(1, Ordering::SeqCst);
        if depth > 0 {
            for _ in 0..2 {
                let (inner, ran) = (group.clone(), Arc::clone(ran));
                let task = move || spread(&inner, depth - 1, &ran);
                // If the pool has no room, the caller runs the task.
                let served = group.serve(task).or_else(Refused::caller_runs);
                served.expect("neither closed nor cancelled");
            }
        }
    }
    timed(|| {
        for (max, queue) in [(1, 0), (2, 3), (4, 64)] {
            let pool = pool(max, queue);
            for _ in 0..rounds(20) {
                let group = pool.group();
                let ran = Arc::new(AtomicU64::new(0));
                spread(&group, 5, &ran);
                group.wait();
                assert_eq!(ran.load(Ordering::SeqCst), 63);
                assert_eq!(group.pending(), 0);
            }
        }
    });
}

/// A cancel is seen by `is_cancelled` in the group's own tasks only. Queued tasks are discarded on
/// the canceling thread, and later ones are refused as `Cancelled` for good. Laws 2, 8 and 9.
#[test]
fn cancel_is_for_good_and_for_this_group_only() {
    timed(|| {
        struct Tell(mpsc::Sender<thread::ThreadId>);
        impl Drop for Tell {
            fn drop(&mut self) {
                let _ = self.0.send(thread::current().id());
            }
        }
        for bomb in [false, true] {
            let pool = pool(2, 8);
            let (group, other) = (pool.group(), pool.group());
            let gate = Gate::new();
            let (tx, seen) = mpsc::channel();
            for group in [&group, &other] {
                let (key, tx) = (gate.key(), tx.clone());
                must_join(group, move || {
                    let before = task::is_cancelled();
                    key.pass();
                    tx.send((before, task::is_cancelled())).unwrap();
                });
            }
            gate.wait_entered(2);
            let (drops, dropped) = mpsc::channel();
            let ran = Arc::new(AtomicU64::new(0));
            for i in 0..8 {
                // Tasks of other groups are among them.
                match i % 4 {
                    3 => must_join(&other, || ()),
                    1 => must_serve(&pool, || ()),
                    n => {
                        let tell = Tell(drops.clone());
                        let bomb = (bomb && n == 0).then(|| Bomb("discarded"));
                        let mark = Arc::clone(&ran);
                        must_join(&group, move || {
                            drop((tell, bomb));
                            mark.fetch_add(1, Ordering::SeqCst);
                        });
                    }
                }
            }
            assert_eq!(group.pending(), 5);
            group.clone().cancel();
            assert_eq!(figures(&group), [1, 0, 0, 4]);
            let here = thread::current().id();
            assert_eq!(dropped.try_iter().collect::<Vec<_>>(), vec![here; 4]);
            let s = pool.stats();
            assert_eq!((s.discarded, s.queued, s.panicked), (4, 4, 0), "{s:?}");
            check_moment(&pool, &s);
            // The place of the oldest task is free at once. The other places become free once the
            // older tasks are gone.
            must_serve(&pool, || ());
            saturated(pool.serve(|| ()));

            let before = pool.stats().refused;
            let ledger = Ledger::new(1);
            let entry = ledger.entry(0);
            let refused = group.serve(move || entry.run()).unwrap_err();
            assert!(
                matches!(refused.reason(), Refusal::Cancelled),
                "{refused:?}"
            );
            assert!(!refused.is_saturated() && !refused.is_closed());
            refused.run_anyway();
            ledger.assert_all_ran();
            assert_eq!(pool.stats().refused, before + 1);
            group.cancel();

            gate.open();
            let mut seen: Vec<_> = seen.iter().take(2).collect();
            seen.sort_unstable();
            assert_eq!(seen, [(false, false), (false, true)]);
            group.wait();
            other.wait();
            assert_eq!(figures(&group), [0, 1, 0, 4]);
            assert_eq!(figures(&other), [0, 3, 0, 0]);
            assert_eq!(ran.load(Ordering::SeqCst), 0);
            settle(&pool);
            let refused = group.serve(|| ()).unwrap_err();
            assert!(matches!(refused.reason(), Refusal::Cancelled));
            must_join(&other, || assert!(!task::is_cancelled()));
            other.wait();
            assert_eq!(other.panicked(), 0);
            check_at_rest(&pool, &pool.stats());
            // The shutdown had nothing to discard.
            let report = pool.shutdown(Shutdown::Discard, LIMIT);
            assert!(report.is_clean());
            assert_eq!(report.discarded, 0, "by shutdowns");
            assert_eq!(pool.stats().discarded, 4);
        }
    });
}

/// A wait returns when the group is cancelled and its running tasks have ended.
#[test]
fn cancel_releases_waiters() {
    timed(|| {
        let pool = pool(1, 4);
        let group = pool.group();
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        for _ in 0..4 {
            must_join(&group, || ());
        }
        thread::scope(|s| {
            let _opener = gate.opener();
            let waiter = s.spawn(|| group.wait());
            thread::sleep(ms(10));
            assert!(!waiter.is_finished());
            group.cancel();
            // The gate is shut, so only the cancel can have ended the wait.
            waiter.join().unwrap();
        });
        assert_eq!(figures(&group), [0, 0, 0, 4]);
    });
}

/// A submission that waits for room when its group is cancelled is not accepted afterwards.
#[test]
fn cancel_and_a_submission_that_waits_for_room() {
    timed(|| {
        let pool = Pool::builder()
            .max_workers(1)
            .when_full(WhenFull::Block)
            .build()
            .unwrap();
        let group = pool.group();
        let gate = Gate::new();
        must_join(&group, gate.task());
        gate.wait_entered(1);
        thread::scope(|s| {
            let _opener = gate.opener();
            let call = s.spawn(|| group.serve(|| panic!("the task must not run")));
            thread::sleep(ms(30));
            assert!(!call.is_finished(), "did not wait for room");
            group.cancel();
            let refused = call.join().unwrap().unwrap_err();
            assert!(
                matches!(refused.reason(), Refusal::Cancelled),
                "{refused:?}"
            );
            gate.open();
        });
        group.wait();
        assert_eq!(figures(&group), [0, 1, 0, 0]);
    });
}

/// A cancel races submissions and workers. Each task ran, was discarded, or came back, and the
/// counts agree.
#[test]
fn cancel_races_everything() {
    timed(|| {
        for turn in 0..rounds(80) {
            let pool = pool(2, (turn % 3) as usize * 4);
            let group = pool.group();
            let ledger = Ledger::new(400);
            let refusals = AtomicU64::new(0);
            thread::scope(|s| {
                for part in 0..4 {
                    let (group, ledger, refusals) = (&group, &ledger, &refusals);
                    s.spawn(move || {
                        for id in part * 100..(part + 1) * 100 {
                            let entry = ledger.entry(id);
                            if let Err(refused) = group.serve(move || entry.run()) {
                                assert_eq!((ledger.runs(id), ledger.drops(id)), (0, 0));
                                assert!(!refused.is_closed(), "{refused:?}");
                                refusals.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                    });
                }
                thread::sleep(Duration::from_micros(turn % 10 * 20));
                group.cancel();
            });
            group.wait();
            let refused = refusals.load(Ordering::SeqCst);
            let [pending, completed, panicked, discarded] = figures(&group);
            assert_eq!((pending, panicked), (0, 0));
            assert_eq!(completed as u64, ledger.total_runs());
            assert_eq!((completed + discarded) as u64 + refused, 400);
            for id in 0..400 {
                assert_eq!(ledger.drops(id), 1);
            }
            let s = pool.stats();
            assert_eq!(
                (s.completed, s.discarded),
                (completed as u64, discarded as u64)
            );
            assert_eq!(s.refused, refused, "{s:?}");
            check_at_rest(&pool, &s);
        }
    });
}

/// Law 10: a group of a closed pool refuses as `Closed`. A shutdown that discards the group's tasks
/// counts them in the group and ends its wait.
#[test]
fn law10_groups_and_shutdown() {
    timed(|| {
        let pool = pool(1, 4);
        let group = pool.group();
        let gate = Gate::new();
        must_join(&group, gate.task());
        gate.wait_entered(1);
        for _ in 0..3 {
            must_join(&group, || ());
        }
        let other = pool.group();
        must_join(&other, || ());
        let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
        assert_eq!(report.discarded, 4);
        assert_eq!(figures(&group), [1, 0, 0, 3]);
        other.wait();
        assert_eq!(figures(&other), [0, 0, 0, 1]);
        assert!(group.serve(|| ()).unwrap_err().is_closed());
        gate.open();
        group.wait();
        assert_eq!(figures(&group), [0, 1, 0, 3]);
        assert!(pool.shutdown(Shutdown::Discard, LIMIT).is_clean());
    });
}

/// A group that outlives its pool refuses as `Closed`. Its figures stay, and its wait returns.
#[test]
fn a_group_outlives_its_pool() {
    timed(|| {
        for timeout in [Duration::MAX, Duration::ZERO] {
            let pool = Pool::builder()
                .max_workers(2)
                .shutdown_on_drop(Shutdown::Drain, timeout)
                .build()
                .unwrap();
            let group = pool.group();
            let unused = pool.group();
            let gate = Gate::new();
            let key = gate.key();
            must_join(&group, move || key.pass());
            must_join(&group, || quiet_panic("meant"));
            if timeout == Duration::MAX {
                gate.open();
            }
            drop(pool);
            for group in [&group, &unused] {
                let refused = group.serve(|| ()).unwrap_err();
                assert!(refused.is_closed(), "{refused:?}");
            }
            gate.open();
            group.wait();
            group.cancel();
            assert_eq!(figures(&group), [0, 1, 1, 0]);
            unused.wait();
            let copy = group.clone();
            drop(group);
            assert!(copy.serve(|| ()).is_err());
        }
    });
}

/// Dropping a group and all of its clones does not wait, and its tasks run.
#[test]
fn dropping_a_group_does_not_wait() {
    timed(|| {
        let pool = pool(1, 3);
        let gate = Gate::new();
        let ledger = Ledger::new(3);
        let group = pool.group();
        must_join(&group, gate.task());
        for id in 0..3 {
            let entry = ledger.entry(id);
            must_join(&group.clone(), move || entry.run());
        }
        drop(group);
        assert!(!gate.key().is_open());
        gate.open();
        settle(&pool);
        ledger.assert_all_ran();
    });
}

/// Law 14: with `WhenFull::Block` a group's `serve` waits for room; on a worker of the pool it is
/// refused at once.
#[test]
fn law14_groups_wait_for_room_but_not_on_a_worker() {
    timed(|| {
        let pool = Arc::new(
            Pool::builder()
                .max_workers(1)
                .when_full(WhenFull::Block)
                .build()
                .unwrap(),
        );
        let group = pool.group();
        for _ in 0..rounds(300) {
            must_join(&group, || ());
        }
        group.wait();
        assert_eq!(group.completed() as u64, rounds(300));
        let inner = group.clone();
        let refused = pool.do_with_deadline(
            move || nested(inner.serve(|| ())).is_saturated(),
            Duration::MAX,
        );
        assert!(!refused.unwrap(), "saturated is another reason");
        assert_eq!(group.pending(), 0);
    });
}

/// Law 7: panics of a group's tasks count in the group, whether the closure panics or the drop of a
/// capture.
#[test]
fn law07_panics_count_in_the_group() {
    timed(|| {
        let pool = pool(1, 3);
        let group = pool.group();
        must_join(&group, || quiet_panic("closure"));
        let bomb = Bomb("capture");
        must_join(&group, move || {
            let _captured = &bomb;
        });
        must_join(&group, || ());
        group.wait();
        assert_eq!(figures(&group), [0, 1, 2, 0]);
        let s = pool.stats();
        assert_eq!((s.completed, s.panicked, s.spawned), (1, 2, 1), "{s:?}");
    });
}
