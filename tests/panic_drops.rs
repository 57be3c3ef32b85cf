//! Law 7 (panic) and law 8 (drops). Captures of discarded tasks: `discards.rs`.

mod common;

use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use common::*;
use lazypool::{DeadlineError, Shutdown};

/// A payload whose drop panics with a payload whose drop panics, and so on.
struct Nested(u32);

impl Drop for Nested {
    fn drop(&mut self) {
        if self.0 > 0 && !thread::panicking() {
            nested_panic(self.0 - 1);
        }
    }
}

fn nested_panic(depth: u32) -> ! {
    panic::resume_unwind(Box::new(Nested(depth)))
}

// ---------------------------------------------------------------------------------------------
// Law 7
// ---------------------------------------------------------------------------------------------

/// Law 7: every task of a full pool panics, again and again, then one call after the other. The
/// worker and its slot are usable at once. A call's panic is counted when it returns. See ants 146,
/// fasthttp 2219.
#[test]
fn law07_slots_are_usable_at_once() {
    timed_each([(1, 0), (3, 0), (4, 4)], |(max, queue)| {
        let pool = pool(max, queue);
        let room = max + queue;
        for _ in 0..=room {
            let gate = Gate::new();
            for _ in 0..room {
                must_serve(&pool, after(&gate, || quiet_panic("on purpose")));
            }
            saturated(pool.serve(|| ()));
            gate.open();
            settle(&pool);
        }
        let served = ((room + 1) * room) as u64;
        for i in 1..=rounds(200) {
            panicked(pool.do_with_deadline(|| quiet_panic("on purpose"), Duration::MAX));
            assert_eq!(pool.stats().panicked, served + i);
            assert_eq!(pool.do_with_deadline(|| 5, Duration::MAX).unwrap(), 5);
        }
        assert_cap_usable(&pool);
        assert_stats!(check_at_rest(&pool), spawned: max as u64, retired: 0);
    });
}

/// Law 7: the drop of a capture, of a payload that no caller takes, or of a result whose caller has
/// left panics. The task counts once, as panicked, and is reported once. A waiting caller gets the
/// payload of a capture's drop, and no value.
#[test]
fn law07_drops_that_panic() {
    timed_each([0, 2], |queue| {
        let reports = Tally::default();
        let seen = reports.clone();
        let pool = pool_with(1, queue, |b| b.on_panic(move |_| seen.add(1)));
        let check = |panicked: u64, timed_out: u64| {
            assert_stats!(at_rest(&pool), panicked: panicked, completed: 0, timed_out: timed_out);
            assert_eq!(reports.get(), panicked);
        };
        let ledger = Ledger::new(2);
        let task = |id| {
            let (bomb, run) = (Bomb("capture"), ledger.task(id));
            move || {
                let _captured = &bomb;
                run();
            }
        };
        let panic = panicked(pool.do_with_deadline(task(0), LONG));
        assert_eq!(panic.message().as_deref(), Some("capture"));
        check(1, 0);
        must_serve(&pool, task(1));
        check(2, 0);
        ledger.assert_all_ran();

        for depth in 1..5 {
            must_serve(&pool, move || nested_panic(depth));
            check(2 + u64::from(depth), 0);
        }
        let gate = Gate::new();
        abandon(&pool, || after(&gate, || nested_panic(3)));
        gate.open();
        check(7, 1);

        let gate = Gate::new();
        abandon(&pool, || after(&gate, || Bomb("result")));
        gate.open();
        check(8, 2);

        // A result that was delivered is dropped by the caller; its task has completed.
        let bomb = pool.do_with_deadline(|| Bomb("mine"), LONG).unwrap();
        assert!(panic::catch_unwind(AssertUnwindSafe(|| drop(bomb))).is_err());
        assert_stats!(pool.stats(), completed: 1, panicked: 8, spawned: 1, hook_panics: 0);
    });
}

/// Law 7: `on_panic` runs on the worker before the caller gets the payload. It gets the task's
/// slot, label and payload.
#[test]
fn law07_on_panic_runs_before_the_caller_is_released() {
    timed_each([0, 2], |queue| {
        let (tx, reports) = mpsc::sync_channel(1);
        let pool = pool_with(1, queue, |b| {
            let b = b.on_panic(|_| panic!("replaced: a hook set twice counts once"));
            b.on_panic(move |panic| {
                // Long enough for the test to notice a caller that is released too early.
                thread::sleep(ms(2));
                let payload = panic.payload.downcast_ref::<ThreadId>().copied();
                let report = (panic.slot, panic.label, payload, thread::current().id());
                tx.send(report).unwrap();
            })
        });
        let task = || panic::resume_unwind(Box::new(thread::current().id()));
        for (label, d) in [("brief", LONG), ("far", Duration::MAX)] {
            for _ in 0..10 {
                let outcome = pool.labeled(label).do_with_deadline(task, d);
                let report = reports.try_recv().expect("a report by now");
                let ran: ThreadId = *panicked::<_, ()>(outcome).downcast().unwrap();
                assert_eq!(report, (0, Some(label), Some(ran), ran));
            }
        }
        must_serve(&pool, || quiet_panic("a message"));
        settle(&pool);
        let (_, label, payload, _) = reports.try_recv().expect("a report");
        assert_eq!((label, payload), (None, None));
        // A task that does not panic is not reported.
        pool.do_with_deadline(|| (), LONG).unwrap();
        assert!(reports.try_recv().is_err());
        assert_eq!(pool.stats().hook_panics, 0);
    });
}

/// Law 7: a panic of a hook ends no worker, changes no task's outcome and counts in `hook_panics`.
/// This holds for every hook, even if the drop of its payload panics.
#[test]
fn law07_hooks_panic() {
    timed_each([0, 2], |queue| {
        let pool = pool_with(2, queue, |b| {
            b.on_worker_start(|_| nested_panic(2))
                .on_worker_stop(|_| nested_panic(2))
                .on_panic(|_| nested_panic(2))
        });
        assert_eq!(pool.do_with_deadline(|| 1, LONG).unwrap(), 1);
        assert_eq!(pool.stats().hook_panics, 1, "on_worker_start");
        for i in 1..=10 {
            let panic = panicked(pool.do_with_deadline(|| quiet_panic("task"), LONG));
            assert_eq!(panic.message().as_deref(), Some("task"));
            assert_stats!(pool.stats(), panicked: i, hook_panics: 1 + i, spawned: 1, completed: i);
            assert_eq!(pool.do_with_deadline(|| 2, LONG).unwrap(), 2);
        }
        assert_cap_usable(&pool);
        assert_stats!(pool.stats(), spawned: 2, hook_panics: 12);
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        assert_stats!(check_at_rest(&pool), retired: 2, workers: 0, hook_panics: 14);
    });
}

// ---------------------------------------------------------------------------------------------
// Law 8
// ---------------------------------------------------------------------------------------------

/// Law 8: captures are dropped on the worker before the caller is released. This holds if the
/// closure returns or panics, and fits a slot or not.
#[test]
fn law08_captures_are_gone_when_the_call_returns() {
    timed_each([0, 2], |queue| {
        let pool = pool(2, queue);
        for i in 0..rounds(300) {
            let (tx, rx) = mpsc::channel();
            let tell = on_drop(move || tx.send(thread::current().id()).unwrap());
            let task = move || {
                let _captured = &tell;
                let here = thread::current().id();
                if i % 3 == 0 {
                    panic::resume_unwind(Box::new(here))
                }
                here
            };
            let outcome = if i % 2 == 0 {
                let outcome = pool.do_with_deadline(task, Duration::MAX);
                outcome.map_err(DeadlineError::without_closure)
            } else {
                let weight = [i; 40];
                let task = move || {
                    std::hint::black_box(weight);
                    task()
                };
                let outcome = pool.do_with_deadline(task, LONG);
                outcome.map_err(DeadlineError::without_closure)
            };
            let dropped = rx.try_recv().expect("dropped by now");
            let ran: ThreadId = match outcome {
                Ok(ran) => ran,
                outcome => *panicked(outcome).downcast().unwrap(),
            };
            assert_eq!(dropped, ran);
            assert_ne!(ran, thread::current().id());
        }
    });
}

/// Law 8: captures are dropped before the task is counted, and before its worker and its caller are
/// released. While the drop of a capture lasts, the task counts as running.
#[test]
fn law08_captures_drop_before_the_count_and_the_release() {
    timed_each([0, 2], |queue| {
        let pool = pool(1, queue);
        let gate = Gate::new();
        must_serve(&pool, dropping(gate.task()));
        gate.wait_entered(1);
        assert_stats!(pool.stats(), completed: 0, running: 1, idle: 0);
        gate.open();
        assert_eq!(settle(&pool).completed, 1);

        // The caller waits for the drop until its deadline.
        let gate = Gate::new();
        is_timed_out(pool.do_with_deadline(dropping(gate.task()), ms(1000)));
        gate.wait_entered(1);
        assert_stats!(pool.stats(), completed: 1, running: 1, timed_out: 1);
        gate.open();
        assert_eq!(settle(&pool).completed, 2);
    });
}
