//! Law 19 (fork): forks made by a task, hook, waker or capture. The child must exec or exit. If it
//! returns to the pool instead, no task of the parent runs in it. The parent notices nothing.
#![cfg(unix)]

mod common;

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use common::fork::*;
use common::futures::poll;
use common::*;
use lazypool::{Builder, Pool, Shutdown};

const TASK_RAN: i32 = 77;
const WENT_ON: i32 = 78;

/// A pool in which one piece of user code forks and returns in both processes.
struct Forks {
    pool: Pool,
    child: Child,
}

/// Forks once. It remembers its process, so that it can tell the child from the parent.
#[derive(Clone)]
struct Child {
    id: Arc<AtomicI32>,
    parent: u32,
}

impl Child {
    fn new() -> Self {
        Self {
            id: Arc::default(),
            parent: std::process::id(),
        }
    }

    /// Forks, unless it has done so already, and returns in both processes.
    fn fork(&self) {
        if self.id.load(Ordering::SeqCst) == 0 {
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

    /// Asserts that the child ended with exit code 0 and that no task ran in it.
    #[track_caller]
    fn assert_ended(&self) {
        assert!(self.has_forked(), "no fork");
        let code = code_of(self.id.load(Ordering::SeqCst));
        assert_ne!(code, TASK_RAN, "a task ran in the child");
        assert_eq!(code, 0);
    }
}

impl Forks {
    fn new(make: impl FnOnce(Builder, Child) -> Builder) -> Self {
        let child = Child::new();
        let builder = Pool::builder()
            .max_workers(1)
            .queue_capacity(4)
            .idle_timeout(Duration::MAX)
            .shutdown_on_drop(Shutdown::Drain, LIMIT);
        let pool = make(builder, child.clone()).build().unwrap();
        Self { pool, child }
    }

    /// Asserts that no other task has run in the child and that the parent has noticed nothing.
    #[track_caller]
    fn assert_ended(self, tasks: u64) {
        let stats = settle(&self.pool);
        let ended = stats.completed + stats.panicked + stats.discarded;
        assert_eq!(ended, tasks, "{stats:?}");
        check_at_rest(&self.pool, &stats);
        drop(self.pool);
        self.child.assert_ended();
    }
}

/// Submits a task in one of four ways. Returns once it is in the queue.
fn submit<'s>(
    s: &'s thread::Scope<'s, '_>,
    pool: &'s Pool,
    how: u32,
    task: impl FnOnce() + Send + 'static,
) {
    match how {
        0 => must_serve(pool, task),
        1 => must_serve_in(&pool.group(), task),
        2 => drop(s.spawn(|| pool.do_with_deadline(task, LONG).is_ok())),
        _ => drop(s.spawn(|| {
            let scope = || pool.scope(|s| s.serve(task).unwrap());
            panic::catch_unwind(AssertUnwindSafe(scope)).is_ok()
        })),
    }
    wait_until("the task to be queued", || pool.stats().queued == 1);
}

#[test]
fn law19_a_task_that_forks_and_returns_in_both() {
    isolated("law19_a_task_that_forks_and_returns_in_both", || {
        for (panics, how) in (0..8).map(|n| (n >= 4, n % 4)) {
            let it = Forks::new(|builder, _| builder);
            let gate = Gate::new();
            must_serve(&it.pool, gate.task());
            gate.wait_entered(1);
            let group = it.pool.group();
            let child = it.child.clone();
            let forking = move || {
                child.fork();
                if panics {
                    quiet_panic("in both");
                }
            };
            thread::scope(|s| {
                submit(s, &it.pool, how, forking);
                must_serve(&it.pool, it.child.bystander());
                must_serve_in(&group, it.child.bystander());
                gate.open();
                group.wait();
            });
            let stats = settle(&it.pool);
            assert_eq!(stats.panicked, u64::from(panics), "{stats:?}");
            it.assert_ended(4);
        }
    });
}

#[test]
fn law19_a_hook_that_forks_and_returns_in_both() {
    isolated("law19_a_hook_that_forks_and_returns_in_both", || {
        for hook in 0..3 {
            let it = Forks::new(|builder, child| match hook {
                0 => builder.on_worker_start(move |_| child.fork()),
                1 => builder.on_worker_stop(move |_| child.fork()),
                _ => builder.on_panic(move |_| child.fork()),
            });
            if hook == 2 {
                must_serve(&it.pool, || quiet_panic("on purpose"));
            }
            for _ in 0..3 {
                must_serve(&it.pool, it.child.bystander());
            }
            let tasks = it.pool.stats().accepted;
            settle(&it.pool);
            if hook == 1 {
                assert!(it.pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
            }
            it.assert_ended(tasks);
        }
    });
}

/// Does what a child may do: makes submissions, which are refused, and exits.
#[test]
fn law19_a_task_whose_child_asks_its_pool_and_exits() {
    isolated("law19_a_task_whose_child_asks_its_pool_and_exits", || {
        let pool = Arc::new(pool(2, 2));
        let (inner, group) = (Arc::clone(&pool), pool.group());
        let answer = pool.do_with_deadline(
            move || {
                in_child(|| assert_refuses(&inner, &[group]));
                inner.do_with_deadline(|| 1, LONG).map_err(|_| ()).unwrap() + 1
            },
            LONG,
        );
        assert_eq!(answer.unwrap(), 2);
        check_at_rest(&pool, &settle(&pool));
    });
}

/// A waker that forks when it is woken.
struct ForkingWaker(Child);

impl Wake for ForkingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fork();
    }
}

#[test]
fn law19_a_waker_that_forks_on_a_worker() {
    isolated("law19_a_waker_that_forks_on_a_worker", || {
        for queued in [0, 2] {
            let it = Forks::new(|builder, _| builder);
            let gate = Gate::new();
            let mut handle = must_await(it.pool.awaitable(), gate.task());
            gate.wait_entered(1);
            for _ in 0..queued {
                must_serve(&it.pool, it.child.bystander());
            }
            let waker = Waker::from(Arc::new(ForkingWaker(it.child.clone())));
            assert!(poll(&mut handle, &waker).is_pending());
            gate.open();
            wait_until("a fork", || it.child.has_forked());
            must_serve(&it.pool, it.child.bystander());
            let Poll::Ready(outcome) = poll(&mut handle, Waker::noop()) else {
                panic!("the task has ended")
            };
            outcome.unwrap();
            it.assert_ended(2 + queued);
        }
    });
}

/// In the child, exits: with an error unless exactly `expected` captures have been dropped.
fn exit_in(child: &Child, drops: &AtomicUsize, expected: usize) {
    if child.is_here() {
        let as_expected = drops.load(Ordering::SeqCst) == expected;
        exit(if as_expected { 0 } else { WENT_ON });
    }
}

/// A discarded task's waker forks on the thread that discards. The child drops no captures of the
/// parent's tasks and calls no other wakers of theirs.
#[test]
fn law19_a_waker_that_forks_on_a_discarding_thread() {
    isolated("law19_a_waker_that_forks_on_a_discarding_thread", || {
        for by_shutdown in [false, true] {
            let it = Forks::new(|builder, _| builder);
            let gate = Gate::new();
            must_serve(&it.pool, gate.task());
            gate.wait_entered(1);
            let group = it.pool.group();
            let drops = Arc::new(AtomicUsize::new(0));
            let waker = Waker::from(Arc::new(ForkingWaker(it.child.clone())));
            let handles = [(); 3].map(|()| {
                let drops = Arc::clone(&drops);
                let capture = OnDrop(Some(move || {
                    drops.fetch_add(1, Ordering::SeqCst);
                }));
                let mut handle = must_await(group.awaitable(), move || drop(capture));
                assert!(poll(&mut handle, &waker).is_pending());
                handle
            });
            if by_shutdown {
                it.pool.shutdown(Shutdown::Discard, Duration::ZERO);
            } else {
                group.cancel();
            }
            exit_in(&it.child, &drops, 0);
            assert_eq!(drops.load(Ordering::SeqCst), 3);
            assert!(handles.iter().all(|handle| handle.is_finished()));
            gate.open();
            it.assert_ended(4);
        }
    });
}

/// Forks when it is dropped, and records in which process that was.
struct ForksInDrop(Child, Arc<Mutex<Vec<u32>>>);

impl Drop for ForksInDrop {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(std::process::id());
        self.0.fork();
    }
}

#[test]
fn law19_discarded_captures_that_fork() {
    isolated("law19_discarded_captures_that_fork", || {
        for by_shutdown in [false, true] {
            let it = Forks::new(|builder, _| builder);
            let gate = Gate::new();
            must_serve(&it.pool, gate.task());
            gate.wait_entered(1);
            let group = it.pool.group();
            let drops = Arc::new(Mutex::new(Vec::new()));
            for _ in 0..3 {
                let capture = ForksInDrop(it.child.clone(), Arc::clone(&drops));
                must_serve_in(&group, move || drop(capture));
            }
            if by_shutdown {
                it.pool.shutdown(Shutdown::Discard, Duration::ZERO);
            } else {
                group.cancel();
            }
            if it.child.is_here() {
                let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
                    assert_eq!(
                        drops.lock().unwrap().len(),
                        1,
                        "no other capture is dropped here"
                    );
                    assert_refuses(&it.pool, &[group]);
                    drop(it.pool);
                }));
                exit(i32::from(outcome.is_err()));
            }
            assert_eq!(*drops.lock().unwrap(), [it.child.parent; 3]);
            assert_eq!((group.discarded(), group.pending()), (3, 0));
            gate.open();
            it.assert_ended(4);
        }
    });
}

/// A thread forks within a scope. The child's submissions are refused, and it exits.
#[test]
fn law19_a_scope_within_which_a_thread_forks() {
    isolated("law19_a_scope_within_which_a_thread_forks", || {
        let pool = pool(2, 2);
        let gate = Gate::new();
        let ran = AtomicUsize::new(0);
        let key = gate.key();
        pool.scope(|s| {
            let task = || {
                key.pass();
                ran.fetch_add(1, Ordering::SeqCst);
            };
            s.serve(task).unwrap();
            gate.wait_entered(1);
            in_child(|| is_forked(s.serve(task)));
            gate.open();
        });
        assert_eq!(ran.load(Ordering::SeqCst), 1);
        check_at_rest(&pool, &settle(&pool));
    });
}
