//! Law 19 (fork): forks made by a task, hook, waker or capture. The child must exec or exit. If it
//! returns to the pool instead, no task of the parent runs in it. The parent notices nothing.
#![cfg(unix)]

mod common;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use common::fork::*;
use common::*;
use lazypool::{Builder, Group, Pool, Shutdown};

const TASK_RAN: i32 = 77;

/// Forks once. It remembers its process, so that it can tell the child from the parent.
#[derive(Clone)]
struct Child {
    id: Arc<AtomicI32>,
    parent: u32,
}

impl Child {
    /// Forks, unless it has done so already, and returns in both processes.
    fn fork(&self) {
        if !self.has_forked() {
            self.id.store(fork(), Ordering::SeqCst);
        }
    }

    fn has_forked(&self) -> bool {
        self.id.load(Ordering::SeqCst) != 0
    }

    fn is_here(&self) -> bool {
        std::process::id() != self.parent
    }

    /// Returns a task of the parent, which must not run in the child.
    fn bystander(&self) -> impl FnOnce() + Send + 'static {
        let child = self.clone();
        move || {
            if child.is_here() {
                exit(TASK_RAN);
            }
        }
    }
}

/// A waker that forks when it is woken.
impl Wake for Child {
    fn wake(self: Arc<Self>) {
        self.fork();
    }
}

/// A pool of one in which one piece of user code forks and returns in both processes.
struct Forks {
    pool: Pool,
    group: Group,
    gate: Gate,
    child: Child,
}

impl Forks {
    fn new(make: impl FnOnce(Builder, Child) -> Builder) -> Self {
        let (id, parent) = (Arc::default(), std::process::id());
        let child = Child { id, parent };
        let on_drop = |b: Builder| b.shutdown_on_drop(Shutdown::Drain, LIMIT);
        let pool = pool_with(1, 4, |b| make(on_drop(b), child.clone()));
        let (group, gate) = (pool.group(), Gate::new());
        Self {
            pool,
            group,
            gate,
            child,
        }
    }

    /// Returns one whose worker is occupied by a task at the gate.
    fn occupied() -> Self {
        let it = Self::new(|builder, _| builder);
        occupy(&it.pool, &it.gate, 1);
        it
    }

    /// Asserts that `tasks` tasks have ended, no other has run in the child, and the parent has
    /// noticed nothing.
    #[track_caller]
    fn assert_ended(self, tasks: u64) {
        self.gate.open();
        let stats = at_rest(&self.pool);
        let ended = stats.completed + stats.panicked + stats.discarded;
        assert_eq!(ended, tasks, "{stats:?}");
        drop(self.pool);
        assert!(self.child.has_forked(), "no fork");
        let code = code_of(self.child.id.load(Ordering::SeqCst));
        assert_ne!(code, TASK_RAN, "a task ran in the child");
        assert_eq!(code, 0);
    }
}

#[test]
fn law19_a_task_that_forks_and_returns_in_both() {
    let ways = ["serve", "group", "call", "scope"];
    isolated_each(product([false, true], ways), |(panics, way)| {
        let it = Forks::occupied();
        let child = it.child.clone();
        let forking = move || {
            child.fork();
            if panics {
                quiet_panic("in both");
            }
        };
        thread::scope(|s| {
            let pool = &it.pool;
            match way {
                "serve" => must_serve(pool, forking),
                "group" => must_serve_in(&pool.group(), forking),
                "call" => drop(s.spawn(|| pool.do_with_deadline(forking, LONG).is_ok())),
                _ => drop(s.spawn(|| {
                    let scope = || pool.scope(|s| s.serve(forking).unwrap());
                    catch_unwind(AssertUnwindSafe(scope)).is_ok()
                })),
            }
            await_queued(pool, 1);
            must_serve(pool, it.child.bystander());
            must_serve_in(&it.group, it.child.bystander());
            it.gate.open();
            it.group.wait();
        });
        assert_stats!(settle(&it.pool), panicked: u64::from(panics));
        it.assert_ended(4);
    });
}

#[test]
fn law19_a_hook_that_forks_and_returns_in_both() {
    isolated_each(0..5, |hook| {
        let it = Forks::new(|builder, child| match hook {
            0 => builder.on_worker_start(move |_| child.fork()),
            1 => builder.on_worker_stop(move |_| child.fork()),
            // The task runs in or after the wrapper.
            3 => builder.around(move |_| child.fork()),
            4 => builder.around(move |task| {
                child.fork();
                task();
            }),
            _ => builder.on_panic(move |_| child.fork()),
        });
        if hook == 2 {
            must_serve(&it.pool, || quiet_panic("on purpose"));
        }
        (0..3).for_each(|_| must_serve(&it.pool, it.child.bystander()));
        let tasks = it.pool.stats().accepted;
        settle(&it.pool);
        if hook == 1 {
            assert!(it.pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        }
        it.assert_ended(tasks);
    });
}

/// Does what a child may do: makes submissions, which are refused, and exits.
#[test]
fn law19_a_task_whose_child_asks_its_pool_and_exits() {
    isolated(|| {
        let pool = Arc::new(pool(2, 2));
        let answer = on_worker(&pool, |pool| {
            in_child(|| assert_refuses(pool, &[pool.group()]));
            pool.do_with_deadline(|| 1, LONG).unwrap()
        });
        assert_eq!(answer, 1);
        at_rest(&pool);
    });
}

/// The waker of a future in line, a discarded task's waker, or the first discarded capture forks on
/// the thread that discards. The child settles and drops nothing more, and calls no other waker.
#[test]
fn law19_a_discard_that_forks() {
    let cases = product([true, false], ["line", "waker", "capture"]);
    isolated_each(cases, |(by_shutdown, way)| {
        let it = Forks::occupied();
        let (drops, mut handles) = (Tally::default(), Vec::new());
        let waker = Waker::from(Arc::new(it.child.clone()));
        for _ in 0..3 {
            let (child, drops) = (it.child.clone(), drops.clone());
            let task = dropping(move || {
                drops.add(1);
                child.fork();
            });
            if way == "waker" {
                handles.push(pending(must_await(it.group.awaitable(), task), &waker));
            } else {
                must_serve_in(&it.group, task);
            }
        }
        must_serve_in(&it.group, || ());
        let in_line =
            (way == "line").then(|| pending(it.group.awaitable().serve_async(|| ()), &waker));
        let report = by_shutdown.then(|| it.pool.shutdown(Shutdown::Discard, Duration::ZERO));
        if !by_shutdown {
            it.group.cancel();
        }
        if it.child.is_here() {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                // All tasks are out, and handles are told, before any user code is called.
                assert_eq!(drops.get(), u64::from(way == "capture"));
                assert!(
                    report.is_none_or(|report| report.is_clean()),
                    "no worker is here"
                );
                assert_stats!(it.pool.stats(), queued: 0);
                assert_refuses(&it.pool, &[it.group]);
                drop(it.pool);
            }));
            exit(i32::from(outcome.is_err()));
        }
        assert_eq!(drops.get(), 3);
        assert!(handles.iter().all(|handle| handle.is_finished()));
        drop(in_line);
        assert_eq!((it.group.discarded(), it.group.pending()), (4, 0));
        it.assert_ended(5);
    });
}

/// The waker of a handle forks on the worker that has run the handle's task, which then is to sleep, or to run the next one.
#[test]
fn law19_a_waker_of_a_handle_that_forks() {
    isolated_each([0, 2], |next| {
        let it = Forks::occupied();
        let waker = Waker::from(Arc::new(it.child.clone()));
        let handle = pending(must_await(it.pool.awaitable(), || ()), &waker);
        (0..next).for_each(|_| must_serve(&it.pool, it.child.bystander()));
        it.gate.open();
        settle(&it.pool);
        assert!(handle.is_finished());
        it.assert_ended(2 + next);
    });
}

/// The waker of a future in line forks on a worker that has taken its next task, or on a thread
/// that raises the limit. The child starts no thread, also if new workers run a hook that takes long.
#[test]
fn law19_a_waker_in_line_that_forks() {
    isolated_each([(1, false), (3, false), (4, true)], |(limit, has_hook)| {
        let it = Forks::new(|builder, _| {
            let slow = move |slot| {
                if slot > 0 {
                    thread::sleep(ms(300));
                }
            };
            let builder = builder.max_workers(4);
            match has_hook {
                true => builder.on_worker_start(slow),
                false => builder,
            }
        });
        it.pool.set_limit(1).unwrap();
        occupy(&it.pool, &it.gate, 1);
        (0..4).for_each(|_| must_serve(&it.pool, it.child.bystander()));
        let waker = Waker::from(Arc::new(it.child.clone()));
        let future = it.pool.awaitable().serve_async(it.child.bystander());
        let future = pending(future, &waker);
        it.pool.set_limit(limit).unwrap();
        if it.child.is_here() {
            #[cfg(target_os = "linux")]
            exit(i32::from(os::thread_total() != 1));
            #[cfg(not(target_os = "linux"))]
            exit(0);
        }
        it.gate.open();
        settle(&it.pool);
        drop(future);
        it.assert_ended(6);
    });
}
