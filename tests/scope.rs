//! Law 15 (scope), and the parts of laws 9 and 14 about scopes. Programs that must not compile
//! are documentation tests.

mod common;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use common::*;
use lazypool::{task, Pool, Scope, Shutdown, WhenFull};

/// Opens a scope whose end panics, and returns the panic's message.
#[track_caller]
fn panic_of<'env, T>(
    pool: &Pool,
    f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
) -> &'static str {
    let caught = catch_unwind(AssertUnwindSafe(|| drop(pool.scope(f))));
    let payload = caught.expect_err("raised again");
    *payload.downcast().expect("a message")
}

/// `scope` returns the result of its closure once every task served in it has ended and is counted,
/// and its worker is free. Tasks can borrow from outside, also mutably. They may be large.
#[test]
fn law09_law15_scope_waits_for_every_task() {
    timed_each([(1, 0), (2, 0), (3, 16)], |(max, queue)| {
        let pool = pool(max, queue);
        for _ in 0..rounds(200) {
            let (mut numbers, sum, drops) = ([0; 24], AtomicU64::new(0), Tally::default());
            let text = pool.scope(|scope| {
                for (i, number) in (1..).zip(&mut numbers) {
                    let (sum, load, captured) = (&sum, [i; 50], on_drop(drops.task()));
                    scope.serve_or_run(move || {
                        let _captured = captured;
                        assert_eq!((task::deadline(), task::label()), (None, None));
                        *number = i;
                        thread::yield_now();
                        sum.fetch_add(load.iter().sum(), Ordering::Relaxed);
                    });
                }
                "returned"
            });
            assert_eq!((text, drops.get()), ("returned", 24));
            assert_eq!((numbers.iter().sum(), sum.into_inner()), (300, 300 * 50));
            assert_stats!(check_at_rest(&pool), running: 0, queued: 0, panicked: 0);
        }
        assert_eq!(pool.scope(|_| 5), 5);
    });
}

/// Laws 7 and 15: if a task has panicked, and then the drop of the scope's value panics too, the
/// task's payload is raised.
#[test]
fn law15_a_value_that_panics_beside_a_task() {
    timed(|| {
        let pool = pool(2, 0);
        let message = panic_of(&pool, |scope| {
            scope.serve(|| quiet_panic("task")).unwrap();
            Bomb("value")
        });
        assert_eq!(message, "task");
    });
}

/// A panic in a task, in the drop of a capture, or in the scope's closure is raised in the caller,
/// with its payload, once all tasks have ended. Borrowed data is not touched after that.
#[test]
fn law15_a_panic_is_raised_after_all_tasks_have_ended() {
    let who = ["task", "capture", "closure", "task and closure"];
    timed_each(product(who, [0, 4]), |(who, queue)| {
        let pool = pool(2, queue);
        for _ in 0..rounds(30) {
            let (mut data, touched) = ([0_u8; 64], Tally::default());
            let message = panic_of(&pool, |scope| {
                let (left, right) = data.split_at_mut(32);
                for half in [left, right] {
                    let bomb = (who == "capture").then(|| Bomb("capture"));
                    let touched = &touched;
                    let task = move || {
                        let _captured = &bomb;
                        thread::sleep(ms(1));
                        half.fill(7);
                        touched.add(1);
                        if who.starts_with("task") {
                            quiet_panic("task");
                        }
                    };
                    scope.serve(task).unwrap();
                }
                touched.add(10); // the tasks' panics do not end the closure
                if who.ends_with("closure") {
                    quiet_panic("closure");
                }
            });
            assert!(who.contains(message), "{message}");
            assert_eq!((touched.get(), data), (12, [7; 64]));
            data.fill(0);
            thread::yield_now();
            assert_eq!(data, [0; 64], "the data was touched after the scope");
            let s = assert_stats!(check_at_rest(&pool), running: 0, queued: 0);
            let panicked = if who == "closure" { 0 } else { s.accepted };
            assert_eq!(s.panicked, panicked, "{s:?}");
        }
        assert_cap_usable(&pool);
    });
}

/// If the pool refuses a task, for any reason, `serve_or_run` runs it on the calling thread before
/// it returns. A panic of the task then unwinds through the scope like one of its closure.
#[test]
fn law15_serve_or_run_loses_nothing() {
    timed(|| {
        let here = thread::current().id();
        let (pool, gate) = held(0);
        let ran_on = || {
            let mut on = None;
            pool.scope(|scope| scope.serve_or_run(|| on = Some(thread::current().id())));
            on.expect("the task ran")
        };
        assert_eq!(ran_on(), here, "the pool is saturated");
        gate.open();
        settle(&pool);
        assert_ne!(ran_on(), here, "the pool has a free worker");
        pool.shutdown(Shutdown::Drain, LIMIT);
        assert_eq!(ran_on(), here, "the pool is closed");
        let message = panic_of(&pool, |scope| scope.serve_or_run(|| quiet_panic("here")));
        assert_eq!(message, "here");
    });
}

/// Tasks may serve further tasks into their scope, and scopes may be nested.
#[test]
fn law15_scopes_grow_and_nest() {
    fn spread<'scope>(scope: &'scope Scope<'scope, '_>, ran: &'scope AtomicU64, depth: u32) {
        ran.fetch_add(1, Ordering::SeqCst);
        if depth > 0 {
            for _ in 0..2 {
                scope.serve_or_run(move || spread(scope, ran, depth - 1));
            }
        }
    }
    timed_each([(1, 0), (3, 0), (2, 32)], |(max, queue)| {
        let pool = pool(max, queue);
        for _ in 0..rounds(30) {
            let ran = AtomicU64::new(0);
            pool.scope(|scope| spread(scope, &ran, 5));
            assert_eq!(ran.load(Ordering::SeqCst), 63);

            let log = Mutex::new(Vec::new());
            pool.scope(|outer| {
                let (pool, log) = (&pool, &log);
                outer.serve_or_run(move || {
                    pool.scope(|s| s.serve_or_run(|| log.lock().unwrap().push("inner")));
                    log.lock().unwrap().push("outer");
                });
            });
            assert_eq!(*log.lock().unwrap(), ["inner", "outer"]);
        }
    });
}

/// Law 14: a worker that opened a scope waits for each of its tasks. So none of these is queued or
/// waits for space, whichever thread serves it: that worker may be the only one. A new worker takes
/// a task; without one it is refused as `OnWorker` even though the queue has space.
#[test]
fn law14_nothing_queues_in_a_scope_that_a_worker_opened() {
    timed_each([WhenFull::Refuse, WhenFull::Block], |policy| {
        let pool = Arc::new(pool_with(2, 4, |b| b.when_full(policy)));
        on_worker(&pool, |pool| {
            let (other, gate) = (Pool::new(1).unwrap(), Gate::new());
            pool.scope(|scope| {
                let _opener = gate.opener();
                scope.serve(gate.task()).unwrap();
                let serve = || drop(nested(scope.serve(|| ())));
                serve();
                thread::scope(|s| s.spawn(serve).join().unwrap());
                other.scope(|s| s.serve(serve).unwrap());
                assert_eq!(pool.stats().queued, 0);
            });
        });
        assert_stats!(settle(&pool), spawned: 2, refused: 3, completed: 2);
    });
}
