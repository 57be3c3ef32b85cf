//! Law 7 (panic) and law 8 (drops). Captures of discarded tasks: `discards.rs`.

mod common;

use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use common::*;
use lazypool::{Pool, Shutdown, TaskError};

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

/// Law 7: the drop of a capture, of a payload that no caller takes, or of a result whose caller or
/// handle has left panics. The task counts once, as panicked, and is reported once. A waiting caller gets the
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

        // Without its handle, the worker drops the value.
        let gate = Gate::new();
        drop(await_then(pool.awaitable(), &gate, || Bomb("value")));
        gate.open();
        check(9, 2);
        let captured = Bomb("capture");
        let handle = must_await(pool.awaitable(), move || {
            let _captured = &captured;
        });
        let error = handle.join().unwrap_err();
        assert_eq!(error.to_string(), "the task panicked: capture");
        check(10, 2);

        // A value that was delivered is dropped by its owner; its task has completed.
        let bomb = pool.do_with_deadline(|| Bomb("mine"), LONG).unwrap();
        assert!(panic::catch_unwind(AssertUnwindSafe(|| drop(bomb))).is_err());
        let handle = must_await(pool.awaitable(), || Bomb("mine"));
        wait_until("the task to end", || handle.is_finished());
        assert!(panic::catch_unwind(AssertUnwindSafe(|| drop(handle))).is_err());
        assert_stats!(pool.stats(), completed: 2, panicked: 10, spawned: 1, hook_panics: 0);
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
        for (n, label) in (0..30).zip(["brief", "far", "handle"].into_iter().cycle()) {
            let on = pool.labeled(label);
            let panic = match label {
                "brief" => panicked::<_, ()>(on.do_with_deadline(task, LONG)),
                "far" => panicked(on.do_with_deadline(task, Duration::MAX)),
                _ => match outcome_of(must_await::<_, ()>(on.awaitable(), task), n) {
                    Err(TaskError::Panicked(panic)) => panic,
                    other => panic!("{other:?}"),
                },
            };
            let report = reports.try_recv().expect("a report by now");
            let ran: ThreadId = *panic.downcast().unwrap();
            assert_eq!(report, (0, Some(label), Some(ran), ran));
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

/// Makes a call whose closure captures `N` words, and checks where its captures are dropped.
fn assert_gone<const N: usize>(pool: &Pool, panics: bool, d: Duration) {
    let (tx, rx) = mpsc::channel();
    let tell = on_drop(move || tx.send(thread::current().id()).unwrap());
    let weight = [0_u64; N];
    let task = move || {
        let _captured = std::hint::black_box((&tell, &weight));
        let here = thread::current().id();
        if panics {
            panic::resume_unwind(Box::new(here))
        }
        here
    };
    let outcome = pool.do_with_deadline(task, d);
    let dropped = rx.try_recv().expect("dropped by now");
    let ran: ThreadId = match outcome {
        Ok(ran) => ran,
        outcome => *panicked(outcome).downcast().unwrap(),
    };
    assert_eq!(dropped, ran);
    assert_ne!(ran, thread::current().id());
}

/// Law 8: captures are dropped on the worker before the caller is released. This holds if the
/// closure returns or panics, and fits a slot or not.
#[test]
fn law08_captures_are_gone_when_the_call_returns() {
    timed_each([0, 2], |queue| {
        let pool = pool(2, queue);
        for i in 0..rounds(100) {
            let panics = i % 3 == 0;
            assert_gone::<0>(&pool, panics, Duration::MAX);
            assert_gone::<40>(&pool, panics, LONG);
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
