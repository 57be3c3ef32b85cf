//! Workers in their start hooks, and threads in their stop hooks: no deadline waits for them, and they may
//! use their own pool. Laws 1, 3, 5, 14 and 20. Law 16: the hook around each task.

mod common;

use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Mutex, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{task, DeadlineError, Pool, Refused, Shutdown, WhenFull};

/// The outcome of a call, without its closure.
type Asked = Result<(), DeadlineError<()>>;

fn ask(pool: &Pool) -> Asked {
    let outcome = pool.do_with_deadline(|| (), LONG);
    outcome.map_err(DeadlineError::without_closure)
}

/// Calls with a deadline that must pass: the task expires, not before its deadline, and does not
/// wait for workers.
#[track_caller]
fn must_expire(pool: &Pool, d: Duration) {
    takes(d, || expired(pool.do_with_deadline(|| (), d)));
}

/// Laws 1, 3 and 5: a worker in its start hook is not idle, however long the hook takes. A further
/// call starts another thread. If none can be started, its task waits within its deadline: the worker
/// in the hook has no task, so the pool has space.
#[test]
fn law03_deadlines_hold_within_a_slow_start_hook() {
    timed_each([0, 1, 64], |queue| {
        let (pool, hook_gate) = gated(2, queue, |b, gate| {
            b.idle_timeout(ms(5)).on_worker_start(gate.hook_of(0))
        });

        must_expire(&pool, ms(20));
        hook_gate.wait_entered(1);
        assert_stats!(pool.stats(), spawned: 1, workers: 1, idle: 0, running: 0);

        // Another worker is started for this call, and retires afterwards.
        assert_eq!(pool.do_with_deadline(task::slot, LONG).unwrap(), Some(1));
        wait_until("the second worker to retire", || pool.stats().workers == 1);

        let gate = hold(&pool, 1);
        must_expire(&pool, ms(30));
        must_expire(&pool, ms(1));
        gate.open();
        wait_until("the second worker to retire", || pool.stats().workers == 1);
        hook_gate.open();
        assert_stats!(at_rest(&pool), completed: 2, expired: 3);
        await_workers(&pool, 0);
    });
}

/// Law 5: a worker that is started to look at the queue, and is in a slow start hook, does not keep
/// another from being started for the next task.
///
/// A worker is started like that only if a submitter finds the other one between two tasks, so the
/// test takes many rounds.
#[test]
fn law05_a_worker_in_its_start_hook_stops_no_spawning() {
    timed_each(0..rounds(100), |_| {
        let (pool, hook_gate) = gated(3, 8, |b, gate| b.on_worker_start(gate.hook_of(1)));
        let gate = Gate::new();
        ask(&pool).unwrap();
        must_serve(&pool, gate.task());
        must_serve(&pool, || ());
        gate.wait_entered(1);
        hook_gate.wait_entered(1);
        assert_eq!(pool.do_with_deadline(task::slot, LONG).unwrap(), Some(2));
    });
}

/// Law 14: from the start hook of a pool's only worker, `do_with_deadline` and `Scope::serve` are
/// refused at once. In a pool of two workers, the hook of one may wait for a task on the other.
/// Calls by that task are then refused, because no task is given to the worker whose hook waits.
#[test]
fn law14_a_start_hook_waits_for_a_task_that_waits() {
    fn calls(pool: &Pool) -> (Asked, Result<(), Refused<()>>) {
        let scoped = pool.scope(|s| s.serve(|| ()).map_err(Refused::without_closure));
        (ask(pool), scoped)
    }
    timed_each([(1, 0), (1, 4), (2, 0), (2, 4)], |(workers, queue)| {
        let own = Own::default();
        let (tx, rx) = mpsc::channel();
        let hooked = own.clone();
        let pool = own.build(builder(workers, queue).on_worker_start(move |slot| {
            let (0, Some(pool)) = (slot, hooked.get()) else {
                return;
            };
            let inner = Arc::clone(&pool);
            let seen = match workers {
                1 => calls(&pool),
                _ => pool.do_with_deadline(move || calls(&inner), LONG).unwrap(),
            };
            tx.send(seen).unwrap();
        }));
        must_serve(&pool, || ());
        let (asked, scoped) = arrives("the calls in the hook", &rx);
        nested(Err(refused(asked)));
        nested(scoped);
        settle(&pool);
        ask(&pool).unwrap();
        assert_stats!(at_rest(&pool), completed: workers as u64 + 1, hook_panics: 0);
    });
}

/// Laws 4 and 14: a thread in its stop hook has left its slot. So a submission from the hook starts
/// another worker. Neither verb waits for the hook's own thread.
#[test]
fn law14_submissions_from_a_stop_hook_return() {
    timed_each([0, 4], |queue| {
        let own = Own::default();
        let (tx, rx) = mpsc::channel();
        let (hooked, first) = (own.clone(), AtomicBool::new(true));
        let builder = builder(1, queue).idle_timeout(ms(5));
        let pool = own.build(builder.on_worker_stop(move |_| {
            let Some(pool) = hooked.get() else { return };
            if first.swap(false, Ordering::SeqCst) {
                let served = pool.do_with_deadline(|| 1, LONG).map_err(|e| e.to_string());
                let _ = tx.send((served, pool.serve(|| ()).map_err(Refused::without_closure)));
            }
        }));
        ask(&pool).unwrap();
        let (called, served) = arrives("the stop hook's submissions", &rx);
        assert_eq!(called, Ok(1));
        served.unwrap();
        await_workers(&pool, 0);
        assert_stats!(check_at_rest(&pool), completed: 3, hook_panics: 0, spawned: 2);
    });
}

/// Laws 1, 4 and 20: no policy waits for the stop hook of a worker that ends because the limit was
/// lowered, since its end makes no space.
#[test]
fn law20_no_policy_waits_for_the_hook_of_a_surplus_worker() {
    timed(|| {
        let (pool, hook) = gated(2, 0, |b, gate| b.on_worker_stop(gate.hook()));
        let (stays, ends) = (hold(&pool, 1), hold(&pool, 1));
        pool.set_limit(1).unwrap();
        thread::scope(|s| {
            let _openers = (hook.opener(), stays.opener(), ends.opener());
            // This call begins to wait before the hook runs, and waits while it runs.
            let briefly = pool.when_full(WhenFull::BlockFor(ms(1000)));
            let waits = s.spawn(move || takes(ms(1000), || saturated(briefly.serve(|| ()))));
            wait_in_line(&pool, 1);
            ends.open();
            hook.wait_entered(1);
            saturated(pool.serve(|| ()));
            waits.join().unwrap();
            saturated(pool.when_full(WhenFull::BlockFor(ms(5))).serve(|| ()));
            assert_eq!((pool.limit(), pool.stats().workers), (1, 1));
        });
        at_rest(&pool);
    });
}

// ---------------------------------------------------------------------------------------------
// Law 16: `around`
// ---------------------------------------------------------------------------------------------

/// Law 16: with any wrapper, each task runs once, at the latest right after the wrapper, and has
/// its own outcome. The wrapper's panics count as those of a hook. The task's panic never unwinds
/// into the wrapper, and a second call of its argument does nothing.
#[test]
fn law16_a_wrapper_loses_nothing() {
    type Wrapper = fn(&mut dyn FnMut());
    let wrappers: [(Wrapper, &[&str]); 6] = [
        (|task| task(), &["wrapper", "task", "returned"]),
        (|_| (), &["wrapper", "task"]),
        (
            |task| (0..2).for_each(|_| task()),
            &["wrapper", "task", "returned", "returned"],
        ),
        (|_| quiet_panic("before"), &["wrapper", "task"]),
        (
            |task| {
                task();
                panic::resume_unwind(Box::new(Bomb("a wrapper's payload")))
            },
            &["wrapper", "task", "returned"],
        ),
        (
            |task| {
                task();
                let _ = panic::catch_unwind(|| quiet_panic("inner"));
                task();
                quiet_panic("after")
            },
            &["wrapper", "task", "returned", "returned"],
        ),
    ];
    let cases = product(wrappers.into_iter().enumerate(), [0, 3]);
    timed_each(cases, |((n, (wrapper, expected)), queue)| {
        let log: Arc<Mutex<Vec<&str>>> = Arc::default();
        let sink = Arc::clone(&log);
        let pool = pool_with(1, queue, |b| {
            let b = b.around(|_| panic!("replaced: a hook set twice counts once"));
            b.around(move |task| {
                let note = |what| sink.lock().unwrap().push(what);
                note("wrapper");
                wrapper(&mut || {
                    task();
                    note("returned");
                });
            })
        });
        let task = |end: fn()| {
            let log = Arc::clone(&log);
            move || {
                log.lock().unwrap().push("task");
                end();
            }
        };
        pool.do_with_deadline(task(|| ()), LONG).unwrap();
        let fails = task(|| quiet_panic("task"));
        let panic = panicked(pool.do_with_deadline(fails, Duration::MAX));
        assert_eq!(panic.message().as_deref(), Some("task"));
        (0..=queue).for_each(|_| must_serve(&pool, task(|| ())));
        let s = at_rest(&pool);
        assert_eq!(*log.lock().unwrap(), expected.repeat(3 + queue));
        let tasks = 3 + queue as u64;
        assert_stats!(s, completed: tasks - 1, panicked: 1, spawned: 1);
        assert_stats!(s, hook_panics: if n < 3 { 0 } else { tasks });
    });
}

/// Law 16: the wrapper runs on the worker, and `task::*` works in it before and after the task.
#[test]
fn law16_task_functions_work_in_the_wrapper() {
    type Look = (Option<&'static str>, Option<usize>, Option<Instant>, bool);
    fn look() -> Look {
        let (label, deadline) = (task::label(), task::deadline());
        assert_eq!(task::remaining().is_some(), deadline.is_some());
        (label, task::slot(), deadline, task::is_cancelled())
    }
    timed(|| {
        let (tx, looks) = mpsc::sync_channel(2);
        let pool = pool_with(1, 0, |b| {
            b.around(move |task| {
                tx.send(look()).unwrap();
                task();
                tx.send(look()).unwrap();
            })
        });
        for (label, d) in [("brief", LONG), ("far", Duration::MAX)] {
            let inside = pool.labeled(label).do_with_deadline(look, d).unwrap();
            assert_eq!((inside.0, inside.1), (Some(label), Some(0)));
            assert_eq!((inside.2.is_some(), inside.3), (d == LONG, false));
            assert_eq!(Vec::from_iter(looks.try_iter()), [inside; 2]);
        }
    });
}

/// A thread in its stop hook learns nothing of the task that the next worker in its slot runs.
#[test]
fn a_stop_hook_learns_nothing_of_the_next_workers_task() {
    timed(|| {
        let (hook, gate) = (Gate::new(), Gate::new());
        let (key, (tell, told)) = (hook.key(), mpsc::channel());
        let pool = Arc::new(pool_with(1, 0, |b| {
            b.idle_timeout(ms(1)).on_worker_stop(move |slot| {
                key.pass();
                let known = (task::is_cancelled(), task::deadline());
                _ = tell.send((slot, task::slot(), known));
            })
        }));
        let _open = (hook.opener(), gate.opener());
        must_serve(&pool, || ());
        hook.wait_entered(1);
        let late = pool.run_limit(ms(1));
        late.serve(after(&gate, || ())).unwrap();
        gate.wait_entered(1);
        wait_until("its deadline", || pool.stats().abandoned == 1);
        hook.open();
        let known = told.recv_timeout(LIMIT).expect("the hook returns");
        assert_eq!(known, (0, Some(0), (false, None)));
        gate.open();
    });
}

/// Laws 1 and 4: a thread in its stop hook is no worker any more. However long the hook takes, the
/// pool starts another worker in its place, and refuses nothing because of it.
#[test]
fn law01_law04_a_thread_in_its_stop_hook_is_no_worker() {
    timed_each([(1, 0), (2, 3)], |(max, queue)| {
        let (hook, gate) = (Gate::new(), Arc::new(Gate::new()));
        let pool = Arc::new(pool_with(max, queue, |b| {
            b.idle_timeout(ms(1)).on_worker_stop(hook.hook())
        }));
        let _open = (hook.opener(), gate.opener());
        let first = hold(&pool, max);
        first.open();
        hook.wait_entered(max);
        assert_stats!(pool.stats(), workers: 0, idle: 0, retired: max as u64);
        assert!(pool.workers().is_empty());
        let (its, held) = (Arc::clone(&pool), Arc::clone(&gate));
        returns("a burst", move || {
            fill(&its, &held);
            saturated(its.serve(|| ()));
        });
        assert!(!hook.is_open());
        assert_stats!(pool.stats(), running: max, queued: queue, workers: max);
        hook.open();
        gate.open();
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        assert_stats!(pool.stats(), completed: (2 * max + queue) as u64);
    });
}

/// A report names a worker in its stop hook, and the next worker of its slot. The task is that of the second
/// one only.
#[test]
fn a_worker_in_its_stop_hook_has_no_task_in_a_report() {
    timed(|| {
        let (hook, gate) = (Gate::new(), Gate::new());
        let key = hook.key();
        let pool = pool_with(1, 0, |b| {
            b.idle_timeout(ms(1)).on_worker_stop(move |_| key.pass())
        });
        let _open = (hook.opener(), gate.opener());
        must_serve(&pool, || ());
        hook.wait_entered(1);
        pool.labeled("second").serve(gate.task()).unwrap();
        gate.wait_entered(1);
        let report = pool.shutdown(Shutdown::Drain, Duration::ZERO);
        let found: Vec<_> = (report.stragglers.iter())
            .map(|worker| (worker.slot, worker.busy, worker.label, worker.tasks))
            .collect();
        let expected = [(0, true, Some("second"), 0), (0, false, None, 1)];
        assert_eq!(found, expected);
        gate.open();
        hook.open();
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    });
}

/// Law 10: a hook may shut its own pool down. That shutdown does not wait for the worker that it is on, but names it.
#[test]
fn law10_a_hook_that_shuts_its_pool_down_does_not_wait() {
    for hook in ["start", "stop", "panic", "around"] {
        timed(move || {
            let (own, reports) = (Arc::new(OnceLock::<Weak<Pool>>::new()), mpsc::channel());
            let its = Arc::clone(&own);
            let shut_down = move || {
                let pool = its.get().and_then(Weak::upgrade);
                let report = pool.map(|pool| pool.shutdown(Shutdown::Drain, Duration::MAX));
                reports.0.send(report).unwrap();
            };
            let builder = Pool::builder().max_workers(1).idle_timeout(ms(1));
            let pool = Arc::new(
                match hook {
                    "start" => builder.on_worker_start(move |_| shut_down()),
                    "stop" => builder.on_worker_stop(move |_| shut_down()),
                    "panic" => builder.on_panic(move |_| shut_down()),
                    _ => builder.around(move |task| {
                        task();
                        shut_down();
                    }),
                }
                .build()
                .expect("a pool"),
            );
            own.set(Arc::downgrade(&pool)).expect("once");
            let (ran, has_run) = mpsc::channel();
            must_serve(&pool, move || {
                ran.send(()).unwrap();
                if hook == "panic" {
                    quiet_panic("on purpose");
                }
            });
            let report = reports.1.recv_timeout(LIMIT).expect("it does not wait");
            let left = report.expect("a pool").stragglers;
            assert_eq!(left.len(), 1, "{hook}: {left:?}");
            has_run.recv_timeout(LIMIT).expect("an accepted task runs");
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
            assert_stats!(pool.stats(), accepted: 1, workers: 0);
        });
    }
}

/// Law 5: after a limit is raised, no more threads are started than tasks are queued, although each new worker is in its start
/// hook for a while, where no thread can rely on it.
#[test]
fn law05_a_raised_limit_starts_no_more_workers_than_tasks_are_queued() {
    timed(|| {
        let pool = pool_with(64, 16, |b| {
            b.on_worker_start(|slot| thread::sleep(ms(10 * slot as u64)))
        });
        pool.set_limit(1).unwrap();
        let gate = hold(&pool, 1);
        let _open = gate.opener();
        let group = pool.group();
        (0..10).for_each(|_| must_serve_in(&group, || ()));
        pool.set_limit(64).unwrap();
        group.wait();
        // Also of those that the last tasks have started.
        gate.open();
        let spawned = settle(&pool).spawned;
        assert!(spawned <= 11, "{spawned} threads for 11 tasks");
    });
}

/// Law 21: a limit is raised beside queued tasks and a future in line, whose waker takes long. The waker holds up none of
/// them.
#[test]
fn law21_a_waker_holds_up_no_start_for_a_queued_task() {
    timed(|| {
        let (waker, last) = (Gate::new(), Gate::new());
        let pool = pool_with(4, 2, |b| b.on_worker_start(|_| ()));
        pool.set_limit(1).unwrap();
        let gate = hold(&pool, 1);
        let _openers = (gate.opener(), waker.opener(), last.opener());
        let group = pool.group();
        (0..2).for_each(|_| must_serve_in(&group, || ()));
        let key = waker.key();
        let in_line = pool.awaitable().serve_async(last.task());
        let in_line = pending(in_line, &calling(move || key.pass()));
        thread::scope(|s| {
            s.spawn(|| pool.set_limit(4).unwrap());
            let _open = waker.opener();
            assert!(group.wait_timeout(Duration::from_secs(20)).is_ok());
            waker.wait_entered(1);
        });
        drop(in_line);
    });
}

/// Law 21: a raised limit starts workers also for tasks beyond the queue's capacity, which were accepted as workers called
/// wakers.
#[test]
fn law21_a_raised_limit_starts_workers_for_tasks_beyond_the_capacity() {
    timed(|| {
        let pool = pool_with(4, 0, |b| b.on_worker_start(|_| ()));
        pool.set_limit(2).unwrap();
        let (first, waker) = (Gate::new(), Gate::new());
        let _openers = (waker.opener(), first.opener());
        let serve = |n| {
            let key = waker.key();
            let handle = must_await(pool.awaitable(), first.task());
            first.wait_entered(n);
            pending(handle, &calling(move || key.pass()))
        };
        let handles = [1, 2].map(serve);
        first.open();
        waker.wait_entered(2);
        let group = pool.group();
        thread::scope(|s| {
            (0..2).for_each(|_| drop(s.spawn(|| must_serve_in(&group, || ()))));
        });
        pool.set_limit(4).unwrap();
        assert!(group.wait_timeout(Duration::from_secs(20)).is_ok());
        waker.open();
        drop(handles);
    });
}
