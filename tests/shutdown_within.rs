//! Law 10 (shutdown): the drop of a pool, and a shutdown or drop on one of its own workers, which
//! does not wait.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use common::gates::*;
use common::*;
use lazypool::{task, Shutdown};

/// Law 10: within a task, `shutdown` closes the pool and returns at once, with any timeout. Its own
/// worker is among the stragglers. See pond 49.
#[test]
fn law10_a_shutdown_inside_a_task() {
    timed(|| {
        for mode in MODES {
            for queue in [0, 3] {
                let pool = Arc::new(pool(2, queue));
                let gate = Gate::new();
                must_serve(&pool, gate.task());
                gate.wait_entered(1);
                let ledger = Ledger::new(queue);
                let books = ledger.clone();
                let report = on_worker(&pool, move |pool| {
                    (0..queue).for_each(|id| must_serve(pool, mark(&books, id)));
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
                check_at_rest(&pool, &pool.stats());
            }
        }
    });
}

/// Law 10: within the pool's hooks, which run on its workers, `shutdown` returns at once. No worker
/// joins itself.
#[test]
fn law10_a_shutdown_inside_a_hook() {
    timed(|| {
        for hook in 0..3 {
            let own = Own::default();
            let calls = Arc::new(AtomicUsize::new(0));
            let (hooked, count) = (own.clone(), Arc::clone(&calls));
            let close = move || {
                let Some(pool) = hooked.get() else { return };
                assert!(!pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
                count.fetch_add(1, Ordering::SeqCst);
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
            assert_eq!(calls.load(Ordering::SeqCst), 1, "hook {hook}");
            assert_eq!(pool.stats().hook_panics, 0);
        }
    });
}

/// Law 10: dropping the pool does what `shutdown_on_drop` says, and stops waiting at the timeout.
/// The tasks that still run are not affected.
#[test]
fn law10_a_drop_does_as_told() {
    timed(|| {
        for mode in MODES {
            let pool = builder(1, 4)
                .shutdown_on_drop(Shutdown::Drain, Duration::MAX)
                .shutdown_on_drop(mode, ms(40))
                .build()
                .expect("pool");
            let gate = Gate::new();
            let (wait, (tx, rx)) = (gate.task(), mpsc::channel());
            must_serve(&pool, move || {
                wait();
                tx.send(task::is_cancelled()).unwrap();
            });
            gate.wait_entered(1);
            let ledger = Ledger::new(4);
            (0..4).for_each(|id| must_serve(&pool, mark(&ledger, id)));
            let start = Instant::now();
            drop(pool);
            assert!(start.elapsed() >= ms(40), "gave up early");
            let discards = mode != Shutdown::Drain;
            for id in 0..4 {
                let fate = (ledger.runs(id), ledger.drops(id));
                assert_eq!(fate, (0, u32::from(discards)), "{mode:?}");
            }
            gate.open();
            assert_eq!(arrives("the task", &rx), mode == Shutdown::Cancel);
            wait_until("the remaining tasks to end", || {
                (0..4).all(|id| ledger.drops(id) == 1)
            });
            assert_eq!(ledger.total_runs(), if discards { 0 } else { 4 });
        }
    });
}

/// Law 10: by default, dropping the pool drains it: every accepted task has run when the drop
/// returns. With `Discard`, every task that has started has ended.
#[test]
fn law10_a_drop_waits_for_the_tasks() {
    timed(|| {
        for queue in [0, 20] {
            for _ in 0..rounds(30) {
                let pool = pool(2, queue);
                let ledger = Ledger::new(2 + queue);
                for id in 0..2 + queue {
                    let run = mark(&ledger, id);
                    must_serve(&pool, move || {
                        spin(Duration::from_micros(50));
                        run();
                    });
                }
                drop(pool);
                ledger.assert_all_ran();
            }
        }
        let builder = builder(1, 0).shutdown_on_drop(Shutdown::Discard, Duration::MAX);
        let pool = builder.build().expect("pool");
        let (ledger, gate) = (Ledger::new(1), Gate::new());
        let (wait, run) = (gate.task(), mark(&ledger, 0));
        must_serve(&pool, move || {
            wait();
            thread::sleep(ms(20));
            run();
        });
        gate.wait_entered(1);
        gate.open();
        drop(pool);
        ledger.assert_all_ran();
    });
}

/// Law 10: if the pool is dropped on one of its own workers, the drop does not wait, and no worker
/// joins itself. Tasks of other workers and of the queue end as the mode says. See pond 49.
#[test]
fn law10_dropped_by_its_own_task() {
    timed(|| {
        for mode in MODES {
            for queue in [0, 3] {
                let builder = builder(2, queue).shutdown_on_drop(mode, Duration::MAX);
                let pool = builder.thread_name("lp10o").build();
                let pool = Arc::new(pool.expect("pool"));
                let (other, start) = (Gate::new(), Gate::new());
                let ledger = Ledger::new(2 + queue);
                let (wait, run) = (other.task(), mark(&ledger, 0));
                must_serve(&pool, move || {
                    wait();
                    run();
                });
                let (wait, run) = (start.task(), mark(&ledger, 1));
                let (tx, rx) = mpsc::channel();
                let inner = Arc::clone(&pool);
                must_serve(&pool, move || {
                    wait();
                    drop(inner);
                    run();
                    tx.send(()).unwrap();
                });
                other.wait_entered(1);
                start.wait_entered(1);
                (2..2 + queue).for_each(|id| must_serve(&pool, mark(&ledger, id)));
                drop(pool);
                start.open();
                arrives("the drop to return", &rx);
                assert_eq!(ledger.runs(0), 0);
                other.open();
                wait_until("all tasks to end", || {
                    (0..2 + queue).all(|id| ledger.drops(id) == 1)
                });
                let queued = if mode == Shutdown::Drain { queue } else { 0 };
                assert_eq!(ledger.total_runs(), 2 + queued as u64, "{mode:?}");
                #[cfg(target_os = "linux")]
                wait_until("the workers to end", || os::workers_named("lp10o") == 0);
            }
        }
    });
}

/// Law 10: the last handle of a pool is dropped with a task's captures, or with its result that no
/// caller takes. See pond 49.
#[test]
fn law10_dropped_with_captures_or_results() {
    timed(|| {
        for turn in 0..rounds(40) {
            let builder = builder(2, 0).thread_name("lp10c");
            let pool = Arc::new(builder.build().expect("pool"));
            let gate = Gate::new();
            let task = || {
                let (wait, inner) = (gate.task(), Arc::clone(&pool));
                move || {
                    wait();
                    inner
                }
            };
            if turn % 8 == 0 {
                abandon(&pool, task);
            } else {
                let task = task();
                must_serve(&pool, move || drop(task()));
            }
            drop(pool);
            gate.open();
        }
        #[cfg(target_os = "linux")]
        wait_until("the workers to end", || os::workers_named("lp10c") == 0);
    });
}

/// Law 10: a waiter drops the pool as soon as it is released. The worker's last steps touch no freed
/// memory. See folly 2093.
#[test]
fn law10_dropped_by_the_released_waiter() {
    timed(|| {
        for turn in 0..rounds(800) {
            let idle = if turn % 3 == 0 { ms(1) } else { ms(10_000) };
            let builder = builder(1, turn as usize % 2 * 2).idle_timeout(idle);
            let pool = Arc::new(builder.build().expect("pool"));
            if turn % 4 == 0 {
                // The handle of another thread may be the last one.
                let own = Arc::clone(&pool);
                let call = move || own.do_with_deadline(move || turn, LONG).unwrap();
                let caller = thread::spawn(call);
                drop(pool);
                assert_eq!(caller.join().unwrap(), turn);
            } else {
                let value = pool.do_with_deadline(move || turn, LONG).unwrap();
                drop(pool);
                assert_eq!(value, turn);
            }
        }
    });
}
