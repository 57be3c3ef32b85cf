//! A pool's own threads: a shutdown or drop on one of them, which does not wait, and their ends
//! with thread-local destructors. Laws 1, 3, 4, 6 and 10.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{task, Pool, Refused, Shutdown, ShutdownReport};

fn retiring(max: usize, queue: usize) -> Pool {
    pool_with(max, queue, |b| {
        let b = b.idle_timeout(ms(5)).thread_name("ends");
        // A failing test must not hang as it drops its pool.
        b.shutdown_on_drop(Shutdown::Discard, Duration::ZERO)
    })
}

fn drain(pool: &Pool) -> ShutdownReport {
    pool.shutdown(Shutdown::Drain, Duration::MAX)
}

/// Runs a task on a worker, whose thread-local destructors then call `f`.
#[track_caller]
fn leave(pool: &Pool, f: impl FnOnce() + Send + 'static) {
    let outcome = pool.do_with_deadline(|| at_thread_end(f), LONG);
    outcome.expect("the task");
}

/// Law 10: within a task, `shutdown` closes the pool and returns at once, with any timeout. Its own
/// worker is among the stragglers. See pond 49.
#[test]
fn law10_a_shutdown_inside_a_task() {
    timed_each(product(MODES, [0, 3]), |(mode, queue)| {
        let pool = Arc::new(pool(2, queue));
        let gate = hold(&pool, 1);
        let ledger = Ledger::new(queue);
        let books = ledger.clone();
        let report = on_worker(&pool, move |pool| {
            (0..queue).for_each(|id| must_serve(pool, books.task(id)));
            // The other worker is held at the gate, so the call cannot wait for it.
            let report = pool.shutdown(mode, Duration::MAX);
            assert!(pool.is_closed());
            assert!(pool.serve(|| ()).unwrap_err().is_closed());
            let own = task::slot().unwrap();
            assert!(report.stragglers.iter().any(|w| w.slot == own && w.busy));
            assert_eq!(task::is_cancelled(), mode == Shutdown::Cancel);
            report
        });
        assert!(!report.is_clean());
        assert_eq!(report.stragglers.len(), 2, "{report:?}");
        let gone = if mode == Shutdown::Drain { 0 } else { queue };
        assert_eq!(report.discarded, gone as u64);
        gate.open();
        assert!(pool.shutdown(mode, LIMIT).is_clean());
        assert_eq!(ledger.total_runs(), (queue - gone) as u64);
        check_at_rest(&pool);
    });
}

/// Law 10: within the pool's hooks, which run on its workers, `shutdown` returns at once. No worker
/// joins itself.
#[test]
fn law10_a_shutdown_inside_a_hook() {
    timed_each(0..3, |hook| {
        let own = Own::default();
        let calls = Tally::default();
        let (hooked, count) = (own.clone(), calls.clone());
        let close = move || {
            let Some(pool) = hooked.get() else { return };
            assert!(!pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
            count.add(1);
        };
        let builder = builder(2, 0).idle_timeout(ms(10));
        let pool = own.build(match hook {
            0 => builder.on_panic(move |_| close()),
            1 => builder.around(move |task| {
                task();
                close();
            }),
            _ => builder.on_worker_stop(move |_| close()),
        });
        panicked(pool.do_with_deadline(|| quiet_panic("on purpose"), LONG));
        wait_until("the hook to close the pool", || pool.is_closed());
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        assert_eq!(calls.get(), 1, "hook {hook}");
        assert_eq!(pool.stats().hook_panics, 0);
    });
}

/// Laws 1, 3, 4, 6 and 9: a worker in a thread-local destructor has left its slot and the counts.
/// Neither a submission nor a worker that ends later waits for it. Only a shutdown does: its report
/// is clean once no thread is left. The test does not run on Windows: no thread starts there while
/// a thread-local destructor runs.
#[cfg(not(windows))]
#[test]
fn law04_nothing_but_a_shutdown_waits_for_a_destructor() {
    isolated_each([0, 1], |queue| {
        let pool = retiring(2, queue);
        let (gate, destructor) = (Gate::new(), Gate::new());
        occupy(&pool, &gate, 1);
        leave(&pool, destructor.task());
        destructor.wait_entered(1);
        for round in 2..5 {
            // The ended worker's place is free, and no other place is.
            let own = Gate::new();
            (0..=queue).for_each(|_| must_serve(&pool, own.task()));
            own.wait_entered(1);
            saturated(pool.serve(|| ()));
            own.open();
            let group = pool.group();
            wait_until("space for a task", || group.serve(|| ()).is_ok());
            group.wait();
            assert!(pool.do_with_deadline(task::slot, LONG).unwrap().is_some());
            wait_until("the worker to retire", || pool.stats().workers == 1);
            let s = assert_stats!(pool.stats(), running: 1, peak_workers: 2);
            assert!(s.retired >= round, "{s:?}");
        }
        // Left are the worker at its task, the worker in its destructor, and for a moment the
        // last one that ended, which the system still lists.
        #[cfg(target_os = "linux")]
        wait_until("threads to be gone", || os::workers_named("ends") <= 2);
        assert!(!destructor.is_open());
        gate.open();
        await_workers(&pool, 0);
        thread::scope(|s| {
            let _opener = destructor.opener();
            let report = s.spawn(|| drain(&pool));
            wait_until("the shutdown", || pool.is_closed());
            thread::sleep(ms(20));
            assert!(!report.is_finished(), "a thread is left");
            destructor.open();
            assert!(report.join().unwrap().is_clean());
        });
        #[cfg(target_os = "linux")]
        wait_until("all threads to be gone", || os::workers_named("ends") == 0);
        assert_eq!(destructor.entered(), 1, "the destructor ran twice");
    });
}

/// Laws 4 and 10: as on other threads, a thread-local destructor may wait for a destructor of a
/// thread that ends later. The test does not run on Windows, which runs the destructors of one
/// thread after those of another.
#[cfg(not(windows))]
#[test]
fn law10_a_destructor_may_wait_for_that_of_a_later_thread() {
    timed(|| {
        let pool = retiring(1, 0);
        let (later, earlier) = mpsc::channel::<()>();
        leave(&pool, move || assert!(earlier.recv().is_err()));
        await_workers(&pool, 0);
        leave(&pool, move || drop(later));
        let report = returns("shutdown", move || drain(&pool));
        assert!(report.is_clean(), "{report:?}");
    });
}

/// Law 10: no thread of the pool outlives a clean report, even if a thread-local destructor of a
/// worker that ended submits a task and so puts another worker into its slot. The test does not run
/// on Windows, as above.
#[cfg(not(windows))]
#[test]
fn law10_a_worker_replaced_by_its_own_destructor_is_joined() {
    timed(|| {
        let pool = Arc::new(retiring(1, 0));
        let gate = Gate::new();
        let gone = Arc::new(AtomicBool::new(false));
        let (own, wait, ends) = (Arc::downgrade(&pool), gate.task(), Arc::clone(&gone));
        let (tx, rx) = mpsc::channel();
        leave(&pool, move || {
            let pool = own.upgrade().expect("the test has it");
            let served = pool.serve(|| ()).map_err(Refused::without_closure);
            let _ = tx.send(served);
            drop(pool);
            wait();
            thread::sleep(ms(20));
            ends.store(true, Ordering::SeqCst);
        });
        arrives("serve in the destructor", &rx).expect("the worker's slot is free");
        wait_until("the second task", || pool.stats().completed == 2);
        thread::scope(|s| {
            let _opener = gate.opener();
            let report = s.spawn(|| (drain(&pool).is_clean(), gone.load(Ordering::SeqCst)));
            wait_until("the shutdown", || pool.is_closed());
            await_workers(&pool, 0);
            assert!(!report.is_finished(), "a thread is still to be joined");
            gate.open();
            assert_eq!(report.join().unwrap(), (true, true));
        });
    });
}

/// Law 10: a shutdown in a worker's thread-local destructor returns at once while another one,
/// which joins that thread, waits outside. The report inside is never clean, since its own thread
/// still exists.
#[test]
fn law10_a_shutdown_in_a_destructor_returns_and_is_never_clean() {
    timed_each([0, 1], |others| {
        let pool = Arc::new(retiring(2, 0));
        let (first, gate) = (Gate::new(), Gate::new());
        let (tx, rx) = mpsc::channel();
        let own = Arc::clone(&pool);
        let inside = move || {
            wait_until("no worker", || own.stats().workers == 0);
            // Gives the shutdown outside time to begin its join.
            thread::sleep(ms(20));
            let _ = tx.send(drain(&own));
        };
        occupy_then(&pool, &first, || at_thread_end(inside));
        for _ in 0..others {
            // This worker leaves its slot before the other does, and so joins no thread.
            leave(&pool, gate.task());
            gate.wait_entered(1);
            gate.open();
        }
        first.open();
        let outside = Arc::clone(&pool);
        let outside = returns("shutdown outside", move || drain(&outside));
        assert!(outside.is_clean(), "{outside:?}");
        // That report was made once the thread of the destructor had been joined.
        let inside = rx.try_recv().expect("a report in the destructor");
        assert!(!inside.is_clean());
        let slots: Vec<_> = inside.stragglers.iter().map(|w| w.slot).collect();
        assert_eq!(slots, [0], "{inside:?}");
    });
}

/// Law 10: a pool is dropped without waiting if its last owner is a thread-local value of one of
/// its workers, even while another worker is busy.
#[test]
fn law10_a_pool_dropped_by_a_thread_local_destructor_does_not_wait() {
    timed(|| {
        let pool = pool_with(2, 0, |b| b.idle_timeout(ms(5)));
        let (pool, gate) = (Arc::new(pool), Gate::new());
        let (ended, end) = mpsc::channel();
        occupy_then(&pool, &gate, move || ended.send(()).unwrap());
        let (dropped, drops) = mpsc::channel();
        let own = Arc::clone(&pool);
        leave(&pool, move || {
            wait_until("no other owner", || Arc::strong_count(&own) == 1);
            drop(own);
            let _ = dropped.send(());
        });
        drop(pool);
        arrives("the drop", &drops);
        assert!(end.try_recv().is_err(), "the other task still runs");
        gate.open();
        arrives("the other task, drained", &end);
    });
}

/// Law 6: retired workers leave nothing behind: their threads are joined and their stacks freed
/// while the pool lives.
#[cfg(target_os = "linux")]
#[test]
fn law06_retired_workers_give_their_stacks_back() {
    isolated(|| {
        let before = memory("VmData");
        // The C library keeps up to 40 MB of stacks for later threads.
        let pool = pool_with(100, 0, |b| b.stack_size(3 << 20).idle_timeout(ms(20)));
        let gate = filled(&pool);
        let stacks = memory("VmData") - before;
        assert!(stacks > 100 * (3 << 10), "{stacks} KiB");
        gate.open();
        await_workers(&pool, 0);
        let left = || memory("VmData") - before;
        wait_until("the stacks to be given back", || left() < stacks / 3);
    });
}

/// `WorkerSnapshot::tasks` counts the tasks of this worker, without those of the worker that had
/// the slot before.
#[test]
fn a_snapshot_counts_its_own_workers_tasks() {
    timed(|| {
        let pool = retiring(1, 1);
        for _ in 0..2 {
            let (first, second) = (Gate::new(), Gate::new());
            must_serve(&pool, first.task());
            must_serve(&pool, second.task());
            for (tasks, gate) in [first, second].iter().enumerate() {
                gate.wait_entered(1);
                let workers = pool.workers();
                assert_eq!((workers.len(), workers[0].tasks), (1, tasks as u64));
                gate.open();
            }
            await_workers(&pool, 0);
            assert!(pool.workers().is_empty());
        }
    });
}

/// Law 10: a worker whose thread-local destructors run is in the report of its own shutdown, beside the worker that has its
/// slot by then.
#[test]
fn law10_a_worker_without_its_slot_names_itself() {
    timed(|| {
        let pool = Arc::new(pool_with(1, 0, |b| b.idle_timeout(ms(5))));
        let (gate, (tell, told)) = (Gate::new(), mpsc::channel());
        let (its, own) = (gate.key(), Arc::clone(&pool));
        let at_end = move || {
            its.pass();
            tell.send(own.shutdown(Shutdown::Drain, Duration::ZERO))
                .unwrap();
        };
        must_serve(&pool, || at_thread_end(at_end));
        gate.wait_entered(1);
        let next = hold(&pool, 1);
        gate.open();
        let report = arrives("the report", &told);
        let of_slot: Vec<_> = report.stragglers.iter().map(|s| (s.slot, s.busy)).collect();
        assert_eq!(of_slot, [(0, true), (0, false)]);
        next.open();
    });
}
