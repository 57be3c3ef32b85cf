//! Regression tests, one for each fault: hooks that use their own pool, thread-local destructors,
//! slow start hooks, retirement, and the cost of operations on many tasks.

mod common;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{Builder, DeadlineError, Pool, Refusal, Refused, Shutdown, WhenFull};

// ---------------------------------------------------------------------------------------------
// Helpers: hooks that use their own pool, values that a thread drops when it ends
// ---------------------------------------------------------------------------------------------

/// A pool as seen by its own hooks.
#[derive(Clone, Debug, Default)]
struct Own(Arc<OnceLock<Weak<Pool>>>);

impl Own {
    fn build(&self, builder: Builder) -> Arc<Pool> {
        let pool = Arc::new(builder.build().expect("pool"));
        self.0.set(Arc::downgrade(&pool)).expect("built once");
        pool
    }

    /// Waits until `build` has returned. Returns `None` if the pool is gone.
    fn get(&self) -> Option<Arc<Pool>> {
        wait_until("the pool to be built", || self.0.get().is_some());
        self.0.get()?.upgrade()
    }
}

/// Returns a builder of pools whose drop does not wait, so that a failing test does not hang.
fn builder(max: usize, queue: usize) -> Builder {
    Pool::builder()
        .max_workers(max)
        .queue_capacity(queue)
        .shutdown_on_drop(Shutdown::Discard, Duration::ZERO)
}

struct AtThreadEnd(Option<Box<dyn FnOnce()>>);

impl Drop for AtThreadEnd {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

thread_local! {
    static AT_END: RefCell<Option<AtThreadEnd>> = const { RefCell::new(None) };
}

/// Stores `f` in a thread-local value of this thread, whose destructor runs it.
fn at_thread_end(f: impl FnOnce() + 'static) {
    AT_END.set(Some(AtThreadEnd(Some(Box::new(f)))));
}

/// Runs `f` on another thread and returns its result. Fails if that takes longer than [`LIMIT`].
#[track_caller]
fn returns<T: Send + 'static>(what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (tx, rx) = mpsc::channel();
    thread::spawn(move || tx.send(f()));
    arrives(what, &rx)
}

#[track_caller]
fn arrives<T>(what: &str, rx: &mpsc::Receiver<T>) -> T {
    match rx.recv_timeout(LIMIT) {
        Ok(value) => value,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Calls `do_with_deadline`. An error comes without the closure.
fn ask<R: Send + 'static>(
    pool: &Pool,
    f: impl FnOnce() -> R + Send + 'static,
    d: Duration,
) -> Result<R, DeadlineError<()>> {
    pool.do_with_deadline(f, d)
        .map_err(DeadlineError::without_closure)
}

/// Calls from another thread, and fails if the call does not return.
#[track_caller]
fn answer<R: Send + 'static>(
    pool: &Arc<Pool>,
    f: impl FnOnce() -> R + Send + 'static,
) -> Result<R, DeadlineError<()>> {
    let pool = Arc::clone(pool);
    returns("do_with_deadline", move || ask(&pool, f, LONG))
}

/// Calls with a deadline that must pass. The task expires, not before `d`, and does not wait for
/// the tasks or hooks that occupy the workers.
#[track_caller]
fn must_expire(pool: &Arc<Pool>, d: Duration) {
    let asked = Arc::clone(pool);
    let (outcome, took) = returns("do_with_deadline at its deadline", move || {
        let start = Instant::now();
        (ask(&asked, || (), d), start.elapsed())
    });
    assert!(
        matches!(outcome, Err(DeadlineError::Expired(_))),
        "{outcome:?}"
    );
    assert!(took >= d, "expired after {took:?} of {d:?}");
}

fn is_saturated<R>(outcome: &Result<R, DeadlineError<()>>) -> bool {
    matches!(outcome, Err(DeadlineError::Refused(r)) if r.is_saturated())
}

fn is_nested<R>(outcome: &Result<R, DeadlineError<()>>) -> bool {
    matches!(outcome, Err(DeadlineError::Refused(r)) if matches!(r.reason(), Refusal::OnWorker))
}

#[track_caller]
fn wait_all_retired(pool: &Pool) {
    wait_until("every worker to retire", || pool.stats().workers == 0);
}

// ---------------------------------------------------------------------------------------------
// Hooks
// ---------------------------------------------------------------------------------------------

/// Laws 1 and 14: a submission from a stop hook does not wait for the hook's own worker. With a
/// queue, `serve` queues the task and the worker runs it before it ends. All else is refused at
/// once. Once, such a submission waited for its own worker to end.
#[test]
fn law14_submissions_from_a_stop_hook_return() {
    timed(|| {
        for queue in [0, 4] {
            let own = Own::default();
            let (tx, rx) = mpsc::channel();
            let hook = {
                let own = own.clone();
                let first = AtomicBool::new(true);
                move |_| {
                    let Some(pool) = own.get() else { return };
                    if first.swap(false, Ordering::SeqCst) {
                        let served = pool.serve(|| ()).map_err(Refused::without_closure);
                        let _ = tx.send((served, ask(&pool, || (), LONG)));
                    }
                }
            };
            let pool = own.build(builder(1, queue).idle_timeout(ms(5)).on_worker_stop(hook));
            ask(&pool, || (), LONG).expect("the first task");
            let (served, asked) = arrives("the stop hook's submissions", &rx);
            if queue == 0 {
                let why = served.expect_err("there is no queue").into_parts().1;
                assert!(
                    matches!(why, Refusal::Saturated | Refusal::OnWorker),
                    "{why:?}"
                );
            } else {
                served.expect("there is a queue");
            }
            assert!(is_nested(&asked), "{asked:?}");
            wait_all_retired(&pool);
            let s = pool.stats();
            check_at_rest(&pool, &s);
            assert_eq!(s.completed, if queue == 0 { 1 } else { 2 }, "{s:?}");
            assert_eq!(s.hook_panics, 0, "{s:?}");
        }
    });
}

/// Law 14: from the start hook of a pool's only worker, `do_with_deadline` and `Scope::serve` are
/// refused at once, since only that worker could run the task. Once, both waited for it: the first
/// until its deadline, the second for good.
#[test]
fn law14_submissions_from_the_only_workers_start_hook_are_refused() {
    timed(|| {
        for queue in [0, 4] {
            let own = Own::default();
            let (tx, rx) = mpsc::channel();
            let hook = {
                let own = own.clone();
                move |_| {
                    let Some(pool) = own.get() else { return };
                    let asked = ask(&pool, || (), LONG);
                    let scoped = pool.scope(|s| s.serve(|| ()).map_err(Refused::without_closure));
                    let _ = tx.send((asked, scoped));
                }
            };
            let pool = own.build(builder(1, queue).on_worker_start(hook));
            must_serve(&pool, || ());
            let (asked, scoped) = arrives("the start hook's submissions", &rx);
            assert!(is_nested(&asked), "{asked:?}");
            nested(scoped);
            // Without a queue no other submission is accepted while the hook, or the task after it,
            // runs.
            settle(&pool);
            assert!(matches!(answer(&pool, || 7), Ok(7)));
            let s = settle(&pool);
            check_at_rest(&pool, &s);
            assert_eq!((s.completed, s.hook_panics), (2, 0), "{s:?}");
        }
    });
}

/// Law 14: a worker has been started to look at the queue while the only other worker is busy.
/// `do_with_deadline` from its start hook returns at once. Once, the worker counted itself as about
/// to be idle and waited for itself.
///
/// A worker is started like that only if a submitter finds the other worker between two tasks. For
/// that reason the test takes many rounds.
#[test]
fn law14_a_start_hook_does_not_wait_for_its_own_worker() {
    timed(|| {
        for _ in 0..rounds(100) {
            let own = Own::default();
            let (tx, rx) = mpsc::channel();
            let hook = {
                let own = own.clone();
                move |slot| {
                    if slot == 1 {
                        let Some(pool) = own.get() else { return };
                        let _ = tx.send(ask(&pool, || (), LONG));
                    }
                }
            };
            let pool = own.build(builder(2, 8).on_worker_start(hook));
            let gate = Gate::new();
            ask(&pool, || (), LONG).expect("the first task");
            must_serve(&pool, gate.task());
            must_serve(&pool, || ());
            let asked = arrives("do_with_deadline in the start hook", &rx);
            // The call succeeds if the other worker was idle for a moment.
            assert!(asked.is_ok() || is_nested(&asked), "{asked:?}");
        }
    });
}

/// Law 5: a worker that is started to look at the queue, and is in a slow start hook, does not keep
/// another from being started for the next task. Once, it was counted as about to take that task.
///
/// As above, the rounds are needed to meet the moment between two tasks.
#[test]
fn law05_a_worker_in_its_start_hook_stops_no_spawning() {
    timed(|| {
        for _ in 0..rounds(100) {
            let hook_gate = Gate::new();
            let key = hook_gate.key();
            let hook = move |slot| {
                if slot == 1 {
                    key.pass();
                }
            };
            let pool = Arc::new(builder(3, 8).on_worker_start(hook).build().expect("pool"));
            // Opens the gate before the pool is dropped.
            let _open = hook_gate.opener();
            let gate = Gate::new();
            ask(&pool, || (), LONG).expect("the first task");
            must_serve(&pool, gate.task());
            must_serve(&pool, || ());
            gate.wait_entered(1);
            hook_gate.wait_entered(1);
            let slot = answer(&pool, lazypool::task::slot);
            assert!(matches!(slot, Ok(Some(2))), "{slot:?}");
        }
    });
}

/// Law 5: the workers that `build` starts are idle when it returns, with their start hooks over.
/// They take the first tasks, and no other thread is started. Once, they took no task before the
/// end of their hooks.
#[test]
fn law05_workers_started_by_build_take_the_first_tasks() {
    timed(|| {
        // A queue of 64 has space to spare, so a task for an idle worker may be queued.
        for (max, queue) in [(8, 0), (8, 4), (8, 64), (2, 0), (2, 4), (2, 64)] {
            let hook_gate = Gate::new();
            let (key, ended) = (hook_gate.key(), Arc::new(AtomicUsize::new(0)));
            let hook = {
                let ended = Arc::clone(&ended);
                move |_| {
                    key.pass();
                    thread::sleep(ms(5));
                    ended.fetch_add(1, Ordering::SeqCst);
                }
            };
            let building = thread::spawn(move || {
                let pool = builder(max, queue).min_workers(2).on_worker_start(hook);
                let pool = pool.build().expect("pool");
                (ended.load(Ordering::SeqCst), pool.stats(), pool)
            });
            hook_gate.wait_entered(2);
            assert!(
                !building.is_finished(),
                "the workers are in their start hooks"
            );
            hook_gate.open();
            let (ended, s, pool) = building.join().expect("a pool");
            assert_eq!((ended, s.spawned, s.idle), (2, 2, 2), "{s:?}");
            let gate = Gate::new();
            let (tx, rx) = mpsc::channel();
            for _ in 0..2 {
                let (tx, key) = (tx.clone(), gate.key());
                must_serve(&pool, move || {
                    tx.send(lazypool::task::slot()).unwrap();
                    key.pass();
                });
            }
            let mut slots = [0, 1].map(|_| arrives("a task's slot", &rx));
            slots.sort();
            assert_eq!(slots, [Some(0), Some(1)]);
            gate.open();
            settle(&pool);
            assert_eq!(pool.stats().spawned, 2);
        }
    });
}

/// Laws 1, 3 and 5: no deadline waits for a start hook. A worker in its start hook is busy: a
/// further call starts another thread; if none can be started, its task is queued or refused at
/// once.
///
/// Once, a worker whose task was taken back counted as idle at once and was told to retire. Then
/// submissions waited for the end of the hook, and each call started one more thread.
#[test]
fn law03_deadlines_hold_within_a_slow_start_hook() {
    timed(|| {
        for queue in [0, 1, 64] {
            let hook_gate = Gate::new();
            let key = hook_gate.key();
            let hook = move |slot| {
                if slot == 0 {
                    key.pass();
                }
            };
            let pool = Arc::new(
                builder(2, queue)
                    .idle_timeout(ms(5))
                    .on_worker_start(hook)
                    .build()
                    .expect("pool"),
            );
            let _open = hook_gate.opener();
            let gate = Gate::new();

            must_expire(&pool, ms(20));
            hook_gate.wait_entered(1);
            let s = pool.stats();
            assert_eq!((s.spawned, s.workers), (1, 1), "{s:?}");
            assert_eq!((s.idle, s.running), (0, 0), "{s:?}");

            // Another worker is started for this call, and retires afterwards.
            let slot = answer(&pool, lazypool::task::slot);
            assert!(matches!(slot, Ok(Some(1))), "{slot:?}");
            wait_until("the second worker to retire", || pool.stats().workers == 1);

            must_serve(&pool, gate.task());
            gate.wait_entered(1);
            if queue == 0 {
                let start = Instant::now();
                let asked = ask(&pool, || (), LONG);
                assert!(is_saturated(&asked), "{asked:?}");
                assert!(start.elapsed() < LIMIT);
            } else {
                must_expire(&pool, ms(30));
                must_expire(&pool, ms(1));
            }
            gate.open();
            wait_until("the second worker to retire", || pool.stats().workers == 1);
            hook_gate.open();
            let s = settle(&pool);
            let expired = if queue == 0 { 1 } else { 3 };
            assert_eq!((s.completed, s.expired), (2, expired), "{s:?}");
            check_at_rest(&pool, &s);
            wait_all_retired(&pool);
        }
    });
}

/// Laws 1 and 3: no deadline waits for a stop hook, since its worker is busy. A submission that
/// must not wait is refused at once. That worker runs queued tasks after its hook, for which it
/// starts again.
#[test]
fn law03_deadlines_hold_within_a_slow_stop_hook() {
    timed(|| {
        for queue in [0, 1] {
            let gate = Gate::new();
            let key = gate.key();
            let pool = Arc::new(
                builder(1, queue)
                    .idle_timeout(ms(5))
                    .on_worker_stop(move |_| key.pass())
                    .build()
                    .expect("pool"),
            );
            let _open = gate.opener();
            ask(&pool, || (), LONG).expect("the first task");
            gate.wait_entered(1);
            if queue == 0 {
                let asked = answer(&pool, || ());
                assert!(is_saturated(&asked), "{asked:?}");
            } else {
                must_expire(&pool, ms(30));
                must_expire(&pool, ms(1));
                let served = Arc::clone(&pool);
                returns("serve", move || must_serve(&served, || ()));
                saturated(pool.serve(|| ()));
            }
            // A submission that may wait for the worker does so within its deadline.
            let asked = pool
                .when_full(WhenFull::Block)
                .do_with_deadline(|| (), ms(30));
            assert!(matches!(asked, Err(DeadlineError::Expired(_))), "{asked:?}");
            gate.open();
            wait_all_retired(&pool);
            assert!(matches!(answer(&pool, || 7), Ok(7)));
            wait_all_retired(&pool);
            let s = pool.stats();
            check_at_rest(&pool, &s);
            assert_eq!(s.completed, 2 + queue as u64, "{s:?}");
        }
    });
}

// ---------------------------------------------------------------------------------------------
// Thread-local destructors
// ---------------------------------------------------------------------------------------------

/// Law 10: thread-local destructors of a worker run on the worker, so `shutdown` there closes the
/// pool and returns at once. Once, it waited for its own thread to be joined, and the shutdown
/// outside, which did the join, waited for it.
#[test]
fn law10_shutdown_from_a_thread_local_destructor_returns() {
    timed(|| {
        for queue in [0, 1] {
            let pool = Arc::new(builder(1, queue).build().expect("pool"));
            let (tx, rx) = mpsc::channel();
            let own = Arc::clone(&pool);
            let leave = move || {
                at_thread_end(move || {
                    // Gives the shutdown outside time to begin its join.
                    thread::sleep(ms(50));
                    let _ = tx.send(own.shutdown(Shutdown::Drain, Duration::MAX));
                });
            };
            ask(&pool, leave, LONG).expect("the task");
            let outside = Arc::clone(&pool);
            let report = returns("shutdown outside", move || {
                outside.shutdown(Shutdown::Drain, Duration::MAX)
            });
            assert!(report.is_clean(), "{report:?}");
            // The destructor ended before the report outside was made, since its thread was joined.
            rx.try_recv().expect("shutdown in the destructor");
        }
    });
}

/// Law 10: a report of a shutdown from a worker's thread-local destructors is never clean, since
/// its own thread still exists. Once, it was clean, also while another worker's destructors ran.
#[test]
fn law10_a_shutdown_from_a_thread_local_destructor_is_never_clean() {
    timed(|| {
        for others in [0, 1] {
            let pool = Arc::new(builder(2, 0).idle_timeout(ms(1)).build().expect("pool"));
            let (gate, first) = (Gate::new(), Gate::new());
            let _open = gate.opener();
            let (tx, rx) = mpsc::channel();
            let (own, task) = (Arc::clone(&pool), first.task());
            must_serve(&pool, move || {
                task();
                at_thread_end(move || {
                    wait_until("no worker", || own.stats().workers == 0);
                    let _ = tx.send(own.shutdown(Shutdown::Drain, Duration::MAX));
                });
            });
            first.wait_entered(1);
            for _ in 0..others {
                let key = gate.key();
                ask(&pool, || at_thread_end(move || key.pass()), LONG).expect("the task");
            }
            if others == 0 {
                first.open();
            } else {
                // This worker leaves its slot before the other does, and so joins no thread.
                gate.wait_entered(1);
                gate.open();
                first.open();
            }
            let report = arrives("shutdown in the destructor", &rx);
            assert_eq!(report.stragglers.len(), 1, "{report:?}");
            assert_eq!(report.stragglers[0].slot, 0);
            assert!(!report.is_clean());
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        }
    });
}

/// Law 10: a pool is dropped without waiting if its last owner is a thread-local value of one of
/// its workers, even while another worker is busy. Once, that drop waited for the other worker.
#[test]
fn law10_a_pool_dropped_by_a_thread_local_destructor_does_not_wait() {
    timed(|| {
        let pool = Pool::builder()
            .max_workers(2)
            .idle_timeout(ms(5))
            .build()
            .expect("pool");
        let pool = Arc::new(pool);
        let gate = Gate::new();
        let (ended, end) = mpsc::channel();
        let held = gate.task();
        must_serve(&pool, move || {
            held();
            let _ = ended.send(());
        });
        gate.wait_entered(1);
        let (dropped, drops) = mpsc::channel();
        let own = Arc::clone(&pool);
        let leave = move || {
            at_thread_end(move || {
                wait_until("the thread-local value to be the last owner", || {
                    Arc::strong_count(&own) == 1
                });
                drop(own);
                let _ = dropped.send(());
            });
        };
        ask(&pool, leave, LONG).expect("the task");
        drop(pool);
        arrives("the drop", &drops);
        assert!(end.try_recv().is_err(), "the other task still runs");
        gate.open();
        arrives("the other task, drained", &end);
    });
}

/// Law 3: a submission never waits for the thread-local destructors of a worker that has ended.
/// Once, the next user of the slot joined that thread. The test does not run on Windows: no thread
/// starts there while a thread-local destructor runs.
#[cfg(not(windows))]
#[test]
fn law03_no_submitter_waits_for_a_thread_local_destructor() {
    timed(|| {
        for queue in [0, 1] {
            let pool = Arc::new(builder(2, queue).idle_timeout(ms(5)).build().expect("pool"));
            let gate = Gate::new();
            let key = gate.key();
            ask(&pool, || at_thread_end(move || key.pass()), LONG).expect("the task");
            wait_all_retired(&pool);
            gate.wait_entered(1);

            let user = Arc::clone(&pool);
            returns("submissions", move || {
                for n in 0..3 {
                    assert!(matches!(ask(&user, move || n, LONG), Ok(m) if m == n));
                    let group = user.group();
                    group.serve(|| ()).expect("a worker is free");
                    group.wait();
                    let slot = ask(&user, lazypool::task::slot, LONG);
                    assert!(matches!(slot, Ok(Some(_))), "{slot:?}");
                    wait_all_retired(&user);
                }
            });
            assert_eq!(gate.entered(), 1, "the thread is still in the destructor");
            gate.open();
            let report = returns("shutdown", move || {
                pool.shutdown(Shutdown::Drain, Duration::MAX)
            });
            assert!(report.is_clean(), "{report:?}");
        }
    });
}

/// Returns two gates. One of two workers has ended its last task and is in a thread-local
/// destructor at the first gate. The other one runs a task at the second gate.
fn beside_a_destructor(pool: &Pool) -> (Gate, Gate) {
    let (destructor, task) = (Gate::new(), Gate::new());
    must_serve(pool, task.task());
    task.wait_entered(1);
    let key = destructor.key();
    ask(pool, || at_thread_end(move || key.pass()), LONG).expect("the task");
    destructor.wait_entered(1);
    (destructor, task)
}

/// Law 6: a worker's thread-local destructors do not delay the retirement of other workers.
#[test]
fn law06_no_retirement_waits_for_a_thread_local_destructor() {
    timed(|| {
        let pool = builder(2, 0).idle_timeout(ms(5)).build().expect("pool");
        let (destructor, task) = beside_a_destructor(&pool);
        // A sweep cannot be seen from outside; this is time for several.
        thread::sleep(ms(50));
        task.open();
        wait_all_retired(&pool);
        assert_eq!(
            destructor.entered(),
            1,
            "the thread is still in the destructor"
        );
        destructor.open();
    });
}

/// Laws 1, 4 and 9: a worker that has ended has left its slot and the counts, even while
/// destructors of a worker that ended earlier still run. Its thread may exist until those are done.
/// After a clean report no thread exists.
#[cfg(target_os = "linux")]
#[test]
fn law04_an_ended_worker_waits_for_no_other() {
    timed(|| {
        let pool = builder(2, 0).idle_timeout(ms(5)).thread_name("gone");
        let pool = pool.build().expect("pool");
        let (destructor, task) = beside_a_destructor(&pool);
        for round in 2..5 {
            // The ended worker's place is free, and no other place is.
            let gate = Gate::new();
            must_serve(&pool, gate.task());
            saturated(pool.serve(|| ()));
            gate.open();
            wait_until("the worker to retire", || pool.stats().workers == 1);
            let s = pool.stats();
            assert_eq!((s.running, s.retired, s.peak_workers), (1, round, 2));
        }
        // Left are the worker at its task, the worker in its destructor, and for a moment the last
        // one that ended, which the system still lists.
        wait_until("the workers' threads to be gone", || {
            os::workers_named("gone") <= 2
        });
        task.open();
        let (done, ended) = mpsc::channel();
        thread::scope(|s| {
            let _opener = destructor.opener();
            s.spawn(|| done.send(pool.shutdown(Shutdown::Drain, Duration::MAX)));
            wait_all_retired(&pool);
            assert!(ended.try_recv().is_err(), "a thread is left");
            destructor.open();
            let report = arrives("shutdown", &ended);
            assert!(report.is_clean(), "{report:?}");
            wait_until("all threads to be gone", || os::workers_named("gone") == 0);
        });
        assert_eq!(destructor.entered(), 1, "the destructor ran more than once");
    });
}

/// Laws 4 and 10: as on other threads, a destructor may wait for a destructor of a thread that ends
/// later. Once, a thread that ended first waited for all threads that had ended before it, and only
/// then ran its destructors. The test does not run on Windows, which runs the destructors of one
/// thread after those of another.
#[cfg(not(windows))]
#[test]
fn law10_a_destructor_may_wait_for_that_of_a_later_thread() {
    timed(|| {
        let pool = builder(1, 0).idle_timeout(ms(5)).build().expect("pool");
        let (later, earlier) = mpsc::channel::<()>();
        let first = move || at_thread_end(move || assert!(earlier.recv().is_err()));
        ask(&pool, first, LONG).expect("the first task");
        wait_all_retired(&pool);
        ask(&pool, || at_thread_end(move || drop(later)), LONG).expect("the second task");
        let report = returns("shutdown", move || {
            pool.shutdown(Shutdown::Drain, Duration::MAX)
        });
        assert!(report.is_clean(), "{report:?}");
    });
}

/// Law 10: no thread of the pool outlives a clean report, even if a thread-local destructor of a
/// worker that ended submits a task and so puts another worker into its slot. Once, the handle of
/// the new thread replaced that of the old one, which was never joined. The test does not run on
/// Windows, as above.
#[cfg(not(windows))]
#[test]
fn law10_a_worker_replaced_by_its_own_destructor_is_joined() {
    timed(|| {
        let pool = Arc::new(builder(1, 0).idle_timeout(ms(5)).build().expect("pool"));
        let gate = Gate::new();
        let gone = Arc::new(AtomicBool::new(false));
        let (tx, rx) = mpsc::channel();
        let leave = {
            let (own, key, gone) = (Arc::downgrade(&pool), gate.key(), Arc::clone(&gone));
            move || {
                at_thread_end(move || {
                    let Some(pool) = own.upgrade() else { return };
                    let served = pool.serve(|| ()).map_err(Refused::without_closure);
                    let _ = tx.send(served);
                    drop(pool);
                    key.pass();
                    thread::sleep(ms(20));
                    gone.store(true, Ordering::SeqCst);
                });
            }
        };
        ask(&pool, leave, LONG).expect("the task");
        arrives("serve in the destructor", &rx).expect("the worker's slot is free");
        wait_until("the second task", || pool.stats().completed == 2);

        let (ended, end) = mpsc::channel();
        let closing = Arc::clone(&pool);
        thread::spawn(move || {
            let report = closing.shutdown(Shutdown::Drain, Duration::MAX);
            let _ = ended.send(report.is_clean() && gone.load(Ordering::SeqCst));
        });
        wait_until("the shutdown", || pool.is_closed());
        wait_all_retired(&pool);
        assert!(end.try_recv().is_err(), "a thread is still to be joined");
        gate.open();
        assert!(arrives("shutdown", &end), "before the thread had ended");
    });
}

// ---------------------------------------------------------------------------------------------
// Workers: their number, their lifetime, their reports
// ---------------------------------------------------------------------------------------------

/// Law 5: a task that calls its own pool again and again, one call at a time, uses one worker
/// besides its own. With a queue, a worker first looks there after its task. Once, the next call
/// started another thread instead of waiting for that moment.
#[test]
fn law05_a_sequential_caller_on_a_worker_uses_one_more() {
    timed(|| {
        for queue in [0, 4] {
            let pool = Arc::new(
                builder(8, queue)
                    .idle_timeout(Duration::MAX)
                    .build()
                    .expect("pool"),
            );
            let inner = Arc::clone(&pool);
            let nested = answer(&pool, move || {
                (0..rounds(1000)).all(|_| ask(&inner, || (), Duration::MAX).is_ok())
            });
            assert!(matches!(nested, Ok(true)), "{nested:?}");
            let s = settle(&pool);
            assert!(s.spawned <= 2, "queue {queue}: {s:?}");
        }
    });
}

/// `WorkerSnapshot::tasks` counts the tasks of this worker. Once, it included those of the worker
/// that had the slot before.
#[test]
fn a_snapshot_counts_its_own_workers_tasks() {
    timed(|| {
        let pool = builder(1, 1).idle_timeout(ms(5)).build().expect("pool");
        for round in 0..3 {
            // The worker may retire in between, but five tasks end in any case.
            for _ in 0..5 {
                ask(&pool, || (), LONG).expect("a task");
            }
            wait_all_retired(&pool);
            assert!(pool.workers().is_empty());

            let tasks = |what| {
                let workers = pool.workers();
                assert_eq!(workers.len(), 1, "{what}: {workers:?}");
                workers[0].tasks
            };
            let (first, second) = (Gate::new(), Gate::new());
            must_serve(&pool, first.task());
            must_serve(&pool, second.task());
            first.wait_entered(1);
            assert_eq!(tasks("in its first task"), 0);
            first.open();
            second.wait_entered(1);
            assert_eq!(tasks("in its second task"), 1);
            second.open();
            let s = settle(&pool);
            assert_eq!(s.completed, (round + 1) * 7, "{s:?}");
        }
    });
}

/// Law 6: workers retire even if they go to sleep or start a task just as the first sweep is due.
/// Once, the cleaner was a thread. While it was starting it could lose a wake-up, and then slept
/// for good.
#[test]
fn law06_workers_retire_however_the_cleaner_starts() {
    timed(|| {
        let mut rng = Rng::new(6);
        for _ in 0..rounds(40) {
            let pools: Vec<_> = (0..10)
                .map(|n| {
                    let pool = builder(1 + n % 2, 2).idle_timeout(ms(1));
                    let pool = pool.build().expect("pool");
                    let [busy, pause] = [(); 2].map(|()| Duration::from_micros(rng.below(100)));
                    let tasks = rng.below(4);
                    thread::scope(|s| {
                        // The first task starts the worker.
                        s.spawn(|| must_serve(&pool, || ()));
                        // Meanwhile the worker becomes idle and busy in turns.
                        wait_until("the first task", || pool.stats().accepted > 0);
                        for _ in 0..tasks {
                            spin(pause);
                            let _ = pool.serve(move || spin(busy));
                        }
                    });
                    pool
                })
                .collect();
            for pool in &pools {
                wait_all_retired(pool);
                let s = pool.stats();
                check_at_rest(pool, &s);
                assert_eq!((s.completed, s.retired), (s.accepted, s.spawned), "{s:?}");
            }
        }
    });
}

/// Returns how many of the addresses lie in memory that is mapped and writable.
#[cfg(target_os = "linux")]
fn mapped(addresses: &[usize]) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc/self/maps");
    let writable: Vec<_> = maps
        .lines()
        .filter_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let address = |s| usize::from_str_radix(s, 16).ok();
            rest.starts_with("rw")
                .then_some(address(from)?..address(to)?)
        })
        .collect();
    (addresses.iter())
        .filter(|a| writable.iter().any(|range| range.contains(a)))
        .count()
}

/// Law 6: retired workers leave nothing behind: their threads are joined and their stacks freed
/// while the pool lives. Once, both stayed until the slot was used again or the pool ended.
#[cfg(target_os = "linux")]
#[test]
fn law06_retired_workers_give_their_stacks_back() {
    const WORKERS: usize = 100;
    // Runs in another process, in which nothing else is mapped at the address of a former stack.
    isolated("law06_retired_workers_give_their_stacks_back", || {
        let pool = builder(WORKERS, 0)
            .idle_timeout(ms(20))
            // The C library keeps up to 40 MB of stacks for later threads.
            .stack_size(3 << 20)
            .build()
            .expect("pool");
        let gate = Gate::new();
        let (tx, rx) = mpsc::channel();
        for _ in 0..WORKERS {
            let (tx, key) = (tx.clone(), gate.key());
            must_serve(&pool, move || {
                let local = 0_u8;
                let _ = tx.send(std::ptr::from_ref(std::hint::black_box(&local)).addr());
                key.pass();
            });
        }
        let stacks: Vec<_> = (0..WORKERS).map(|_| arrives("a stack", &rx)).collect();
        assert_eq!(mapped(&stacks), WORKERS);
        gate.open();
        wait_all_retired(&pool);
        wait_until("the stacks to be given back", || {
            mapped(&stacks) <= WORKERS / 3
        });
    });
}

// ---------------------------------------------------------------------------------------------
// Operations on many tasks
// ---------------------------------------------------------------------------------------------

/// Returns a pool whose only worker runs a task at the gate.
fn held(queue: usize) -> (Pool, Gate) {
    let pool = builder(1, queue).build().expect("pool");
    let gate = Gate::new();
    must_serve(&pool, gate.task());
    gate.wait_entered(1);
    (pool, gate)
}

/// `Group::cancel` takes time in proportion to the queue's length. Once, it began at the queue's
/// front again for each task, and walked past the tasks that it had discarded.
#[test]
fn cancelling_a_long_queue_is_quick() {
    const TASKS: usize = 20_000;
    timed(|| {
        let (pool, gate) = held(TASKS);
        // Tasks of another group lie in between. They stay.
        let (group, other) = (pool.group(), pool.group());
        for n in 0..TASKS {
            let group = if n % 100 == 0 { &other } else { &group };
            group.serve(|| ()).expect("room in the queue");
        }
        let start = Instant::now();
        group.cancel();
        let took = start.elapsed();
        assert_eq!(group.discarded(), TASKS - TASKS / 100);
        assert_eq!(other.pending(), TASKS / 100);
        // Hundreds of times as long as it takes.
        assert!(took < Duration::from_secs(2), "{took:?}");
        gate.open();
        other.wait();
        assert_eq!(other.completed(), TASKS / 100);
        check_at_rest(&pool, &settle(&pool));
    });
}

/// Law 1: the place of a task that was taken out stays taken while an older task is queued before
/// it, and no longer. Filling many such places takes time in proportion to their number. Once, each
/// push searched for its place from the queue's front.
#[test]
fn law01_the_places_of_many_cancelled_tasks_are_filled_quickly() {
    const TASKS: usize = 40_000;
    timed(|| {
        let (pool, gate) = held(TASKS);
        let groups = [pool.group(), pool.group(), pool.group()];
        let [older, younger, late] = &groups;
        for n in 0..TASKS {
            let group = if n < TASKS / 2 { older } else { younger };
            group.serve(|| ()).expect("room in the queue");
        }
        younger.cancel();
        saturated(late.serve(|| ()));
        older.cancel();
        let start = Instant::now();
        for _ in 0..TASKS {
            late.serve(|| ()).expect("the whole queue");
        }
        let took = start.elapsed();
        saturated(late.serve(|| ()));
        // Hundreds of times as long as it takes.
        assert!(took < Duration::from_secs(4), "{took:?}");
        gate.open();
        late.wait();
        assert_eq!(late.completed(), TASKS);
        check_at_rest(&pool, &settle(&pool));
    });
}

/// The memory of a queue grows with its use, not with its length. Once, `build` wrote to every
/// cell.
#[cfg(target_os = "linux")]
#[test]
fn a_long_queue_takes_no_memory_before_it_is_used() {
    timed(|| {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
            let kib = line.and_then(|l| l.split_whitespace().next());
            kib.and_then(|n| n.parse::<u64>().ok()).expect("a number")
        };
        let before = resident();
        let pool = Pool::builder()
            .max_workers(1)
            .queue_capacity(1 << 22)
            .build()
            .unwrap();
        let grown = resident().saturating_sub(before);
        assert!(grown < 64 * 1024, "{grown} KiB of 256 MiB");
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let ledger = Ledger::new(1000);
        for id in 0..1000 {
            let entry = ledger.entry(id);
            must_serve(&pool, move || entry.run());
        }
        gate.open();
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        ledger.assert_all_ran();
    });
}

/// Law 1: once all tasks of a long queue have been taken out, a submission finds the whole queue
/// free, even on a worker of the pool.
#[test]
#[cfg_attr(miri, ignore = "the queue must be long, which takes minutes")]
fn law01_room_in_a_long_queue_is_found_by_a_worker_of_the_pool() {
    const LONG_QUEUE: usize = 1 << 17;
    timed(|| {
        let pool = Arc::new(builder(1, LONG_QUEUE).build().expect("pool"));
        let gate = Gate::new();
        let (own, key) = (Arc::clone(&pool), gate.key());
        let (tx, rx) = mpsc::channel();
        must_serve(&pool, move || {
            key.pass();
            let served = (0..=LONG_QUEUE).take_while(|_| own.serve(|| ()).is_ok());
            let _ = tx.send(served.count());
        });
        gate.wait_entered(1);
        let group = pool.group();
        for _ in 0..LONG_QUEUE {
            group.serve(|| ()).expect("room in the queue");
        }
        group.cancel();
        gate.open();
        assert_eq!(arrives("an answer", &rx), LONG_QUEUE);
        check_at_rest(&pool, &settle(&pool));
    });
}
