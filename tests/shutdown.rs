//! Law 10 (shutdown), called on a thread that is no worker, or as the pool is dropped there. On its
//! own threads: `own_threads.rs`. Beside abandoned tasks: `abandoned.rs`.

mod common;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{task, Pool, Shutdown, WhenFull};

/// Asserts that every way to submit is refused as `Closed`, and that the closures come back without
/// having run.
#[track_caller]
fn assert_closed(pool: &Pool) {
    assert!(pool.is_closed());
    let before = pool.stats().refusals.closed;
    let ledger = Ledger::new(5);
    let task = |id| ledger.task(id);
    let view = pool.labeled("closed");
    for back in [
        pool.serve(task(0)).expect_err("closed"),
        view.serve(task(1)).expect_err("closed"),
        pool.group().serve(task(2)).expect_err("closed"),
        refused(pool.do_with_deadline(task(3), LONG)),
        refused(view.do_with_deadline(task(4), Duration::MAX)),
    ] {
        assert!(back.is_closed() && !back.is_saturated());
        assert_eq!(back.reason().as_str(), "closed");
        back.run_anyway();
    }
    ledger.assert_all_ran();
    pool.scope(|s| assert_eq!(reason(s.serve(|| ())), "closed"));
    assert_eq!(pool.stats().refusals.closed, before + 6);
}

/// Law 10: once `shutdown` is called, every submission is refused as `Closed`, those that wait for
/// space at once. That is so while tasks still run, in a full pool, and after the end.
#[test]
fn law10_a_closed_pool_refuses() {
    timed_each(product(MODES, [(1, 0), (2, 3)]), |(mode, (max, queue))| {
        let pool = pool_with(max, queue, |b| b.when_full(WhenFull::Block));
        assert!(!pool.is_closed());
        let gate = filled(&pool);
        thread::scope(|s| {
            let _opener = gate.opener();
            let pool = &pool;
            let serve = s.spawn(|| pool.serve(|| ()).unwrap_err().is_closed());
            let call = |d| refused(pool.do_with_deadline(|| (), d)).is_closed();
            let calls = [LONG, Duration::MAX].map(|d| s.spawn(move || call(d)));
            wait_in_line(pool, 3);
            assert!(!pool.shutdown(mode, Duration::ZERO).is_clean());
            // The gate is still shut.
            assert!(serve.join().unwrap());
            assert!(calls.map(|call| call.join().unwrap()).iter().all(|&it| it));
            assert_closed(pool);
        });
        assert!(pool.shutdown(mode, LIMIT).is_clean());
        assert_closed(&pool);
        assert_stats!(check_at_rest(&pool), refusals.closed: 15);
    });
    let unused = pool(4, 4);
    assert!(unused.shutdown(Shutdown::Drain, Duration::ZERO).is_clean());
    assert_closed(&unused);
    assert_eq!(unused.stats().spawned, 0);
}

/// Law 10: with `Drain` every accepted task runs, those in the queue included, even if the timeout
/// of the first call has passed. A queued call expires if its deadline passes meanwhile.
#[test]
fn law10_drain_runs_everything() {
    timed_each([(1, 0), (1, 40), (3, 40)], |(max, queue)| {
        let pool = pool(max, queue + 1);
        let gate = Gate::new();
        let ledger = Ledger::new(max + queue);
        for id in 0..max + queue {
            must_serve(&pool, after(&gate, ledger.task(id)));
        }
        gate.wait_entered(max);
        thread::scope(|s| {
            let _opener = gate.opener();
            let brief = s.spawn(|| expired(pool.do_with_deadline(|| (), ms(500))));
            await_queued(&pool, queue + 1);
            assert!(!pool.shutdown(Shutdown::Drain, ms(5)).is_clean());
            let down = s.spawn(|| pool.shutdown(Shutdown::Drain, Duration::MAX));
            brief.join().unwrap();
            assert!(!down.is_finished(), "returned with tasks unended");
            assert_eq!(ledger.total_runs(), 0);
            gate.open();
            let report = down.join().unwrap();
            assert!(report.is_clean());
            assert_eq!(report.discarded, 0);
        });
        ledger.assert_all_ran();
        let s = pool.stats();
        assert_stats!(s, completed: (max + queue) as u64, expired: 1, discarded: 0);
        assert_stats!(s, workers: 0, retired: s.spawned);
        assert!(pool.workers().is_empty());
    });
}

/// Law 10: with `Discard` and `Cancel`, started tasks run to their end and queued ones are
/// discarded. Waiting callers get their closures back, refused as `Closed`. See pond 138, 61.
#[test]
fn law10_discard_hands_queued_tasks_back() {
    let modes = [Shutdown::Discard, Shutdown::Cancel];
    timed_each(product(modes, [LONG, Duration::MAX]), |(mode, d)| {
        let (pool, gate) = (pool(2, 6), Gate::new());
        let ledger = Ledger::new(8);
        (0..2).for_each(|id| occupy_then(&pool, &gate, ledger.task(id)));
        thread::scope(|s| {
            let _opener = gate.opener();
            let calls = [2, 3, 4].map(|id| {
                let task = ledger.task(id);
                let pool = &pool;
                s.spawn(move || refused(pool.do_with_deadline(task, d)))
            });
            (5..8).for_each(|id| must_serve(&pool, ledger.task(id)));
            await_queued(&pool, 6);
            let report = pool.shutdown(mode, Duration::ZERO);
            assert_eq!((report.discarded, report.stragglers.len()), (6, 2));
            assert!(!report.is_clean());
            // These callers return before any worker is free again.
            for (id, call) in (2..5).zip(calls) {
                let back = call.join().unwrap();
                assert!(back.is_closed(), "{back:?}");
                assert_eq!(ledger.fate(id), (0, 0));
                back.run_anyway();
            }
            assert!((5..8).all(|id| ledger.fate(id) == (0, 1)));
        });
        let report = pool.shutdown(mode, LIMIT);
        assert!(report.is_clean());
        assert_eq!(report.discarded, 6, "by this pool's shutdowns so far");
        assert!((0..5).all(|id| ledger.fate(id) == (1, 1)));
        assert_stats!(check_at_rest(&pool), completed: 2, discarded: 6, refused: 0);
    });
}

/// Law 10: tasks that were handed over but have not started also run under `Discard` and `Cancel`,
/// and waiting callers get their values. See pond 138, 61.
#[test]
fn law10_tasks_handed_over_run() {
    timed_each(MODES, |mode| {
        let (pool, gate) = gated(2, 0, |b, gate| b.on_worker_start(gate.hook()));
        let ledger = Ledger::new(2);
        thread::scope(|s| {
            let _opener = gate.opener();
            // Without a queue, an accepted task has been handed over to a worker.
            must_serve(&pool, ledger.task(0));
            let call = s.spawn(|| pool.do_with_deadline(ledger.task(1), LONG));
            wait_until("both tasks to be handed over", || {
                let s = pool.stats();
                s.accepted == 2 && s.running == 2
            });
            let report = pool.shutdown(mode, ms(2));
            assert_eq!((report.discarded, report.stragglers.len()), (0, 2));
            assert_eq!(ledger.total_runs(), 0);
            gate.open();
            call.join().unwrap().expect("handed over, so it runs");
        });
        let report = pool.shutdown(mode, LIMIT);
        assert!(report.is_clean());
        assert_eq!(report.discarded, 0);
        ledger.assert_all_ran();
    });
}

/// Law 10: `Cancel` makes `task::is_cancelled()` return true in running tasks. `Drain` and
/// `Discard` do not, but a later `Cancel` does. Waiting callers get their values.
#[test]
fn law10_cancel_is_seen_by_running_tasks() {
    timed_each([LONG, Duration::MAX], |d| {
        let pool = pool(3, 0);
        let (tx, rx) = mpsc::channel();
        let task = || {
            let tx = tx.clone();
            move || {
                tx.send("started").unwrap();
                wait_until("the cancel", task::is_cancelled);
                tx.send("cancelled").unwrap();
                11
            }
        };
        thread::scope(|s| {
            let (serve, call, scoped) = (task(), task(), task());
            must_serve(&pool, move || drop(Box::new(serve())));
            let call = s.spawn(|| pool.do_with_deadline(call, d));
            let (pool, scoped) = (&pool, move || assert_eq!(scoped(), 11));
            s.spawn(move || pool.scope(|s| s.serve(scoped).unwrap()));
            assert_eq!([(); 3].map(|()| arrives("a task", &rx)), ["started"; 3]);
            for mode in [Shutdown::Drain, Shutdown::Discard] {
                assert!(!pool.shutdown(mode, ms(20)).is_clean());
                assert!(rx.try_recv().is_err(), "{mode:?} cancels");
            }
            assert!(pool.shutdown(Shutdown::Cancel, LIMIT).is_clean());
            assert_eq!([(); 3].map(|()| arrives("a task", &rx)), ["cancelled"; 3]);
            assert_eq!(call.join().unwrap().unwrap(), 11);
        });
        assert_eq!(pool.stats().timed_out, 0);
    });
}

/// Law 10: a `Discard` while a `Drain` waits discards the queue, and both report that.
#[test]
fn law10_a_stricter_mode_holds_at_once() {
    timed(|| {
        let (pool, gate) = held(3);
        let ledger = Ledger::new(3);
        (0..3).for_each(|id| must_serve(&pool, ledger.task(id)));
        thread::scope(|s| {
            let _opener = gate.opener();
            let drain = s.spawn(|| pool.shutdown(Shutdown::Drain, Duration::MAX));
            wait_until("the pool to close", || pool.is_closed());
            let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
            assert_eq!(report.discarded, 3);
            gate.open();
            let report = drain.join().unwrap();
            assert!(report.is_clean());
            assert_eq!(report.discarded, 3);
        });
        assert_eq!(ledger.total_runs(), 0);
    });
}

/// Law 10: `shutdown` returns at its timeout, never earlier, and reports the stragglers. A call
/// after the tasks have ended is clean. See ants 259.
#[test]
fn law10_returns_at_its_timeout_with_the_stragglers() {
    timed_each(MODES, |mode| {
        let pool = pool(3, 0);
        let gate = Gate::new();
        must_serve(&pool, || ());
        settle(&pool);
        pool.labeled("long").serve(gate.task()).unwrap();
        abandon(&pool, || gate.task());
        gate.wait_entered(2);
        for timeout in [0, 1, 40, 120].map(ms) {
            let report = takes(timeout, || pool.shutdown(mode, timeout));
            assert!(!report.is_clean());
            let busy = report.stragglers.iter().filter(|w| w.busy);
            let mut who: Vec<_> = busy.map(|w| (w.label, w.abandoned)).collect();
            who.sort_unstable();
            assert_eq!(who, [(None, true), (Some("long"), false)], "{report:?}");
        }
        gate.open();
        let report = pool.shutdown(mode, Duration::MAX);
        assert!(report.is_clean() && report.stragglers.is_empty());
        assert_eq!(pool.stats().completed, 3);
    });
}

/// Law 10: `shutdown` and the drop return once every worker has ended, one that never had a task
/// included. By then `on_worker_stop` and the thread-local destructors have run.
#[test]
fn law10_no_thread_outlives_a_clean_report() {
    timed_each(0..9, |n| {
        let (ended, stopped) = (Tally::default(), Tally::default());
        let stops = stopped.clone();
        let pool = pool_with(5, n % 2 * 8, |b| {
            let b = b.min_workers(5).thread_name("lp10t");
            b.on_worker_stop(move |_| stops.add(1))
        });
        let gate = Gate::new();
        for _ in 0..4 {
            let end = ended.task();
            let slow_end = move || {
                thread::sleep(ms(30));
                end();
            };
            occupy_then(&pool, &gate, || at_thread_end(slow_end));
        }
        gate.open();
        match MODES.get(n / 2) {
            Some(&mode) => assert!(pool.shutdown(mode, Duration::MAX).is_clean()),
            None => drop(pool),
        }
        assert_eq!((ended.get(), stopped.get()), (4, 5), "not joined");
        // The system may list a thread for a moment after it was joined.
        #[cfg(target_os = "linux")]
        wait_until("threads to be gone", || os::workers_named("lp10t") == 0);
    });
}

/// Law 10: dropping the pool does what `shutdown_on_drop` says, and stops waiting at the timeout.
/// The tasks that still run are not affected.
#[test]
fn law10_a_drop_does_as_told() {
    timed_each(MODES, |mode| {
        let pool = pool_with(1, 4, |b| {
            b.shutdown_on_drop(Shutdown::Drain, Duration::MAX)
                .shutdown_on_drop(mode, ms(40))
        });
        let gate = Gate::new();
        let task = await_then(pool.awaitable(), &gate, task::is_cancelled);
        let ledger = Ledger::new(4);
        (0..4).for_each(|id| must_serve(&pool, ledger.task(id)));
        takes(ms(40), || drop(pool));
        let discards = mode != Shutdown::Drain;
        for id in 0..4 {
            assert_eq!(ledger.fate(id), (0, u32::from(discards)), "{mode:?}");
        }
        gate.open();
        assert_eq!(task.join().unwrap(), mode == Shutdown::Cancel);
        ledger.wait_drops();
        assert_eq!(ledger.total_runs(), if discards { 0 } else { 4 });
    });
}

/// A pool that a panic drops waits for its tasks like any other, and its setting limits that wait.
#[test]
fn law10_a_drop_by_a_panic_waits_as_told() {
    timed(|| {
        for (mode, timeout) in [(Shutdown::Drain, Duration::MAX), (Shutdown::Cancel, ms(20))] {
            let (gate, ran) = (Gate::new(), Tally::default());
            let (tell, told) = mpsc::channel();
            let (key, done) = (gate.key(), ran.clone());
            let owner = thread::spawn(move || {
                let pool = pool_with(1, 0, |b| b.shutdown_on_drop(mode, timeout));
                must_serve(&pool, move || {
                    key.pass();
                    done.add(1);
                });
                tell.send(()).unwrap();
                quiet_panic("drops the pool");
            });
            arrives("the panic", &told);
            gate.wait_entered(1);
            if timeout == Duration::MAX {
                thread::sleep(ms(5));
                assert!(!owner.is_finished(), "the drop waits for the task");
                gate.open();
            }
            assert!(owner.join().is_err());
            assert_eq!(ran.get(), u64::from(timeout == Duration::MAX));
        }
    });
}
