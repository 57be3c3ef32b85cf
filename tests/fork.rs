//! Law 19 (fork): in a child, a pool of its parent refuses at once and ends at once, whatever
//! the parent's threads were doing; the parent notices nothing.
//!
//! | the pool at the fork | test: `law19_...` |
//! |---|---|
//! | never used | `a_pool_that_was_never_used` |
//! | all workers idle | `idle_workers` |
//! | all workers retired | `workers_that_have_all_retired` |
//! | full; submitters wait for room, callers for outcomes and groups | `a_full_pool_with_blocked_submitters_and_waiting_callers` |
//! | a thread is being started: the spawner is about to ask for it, or has it and holds the registry's lock | `beside_a_spawner` |
//! | a worker in its start hook, with a task or without | `beside_a_worker_in_its_start_hook` |
//! | a task handed over and not started (`Offered`): its caller may take it back | `beside_a_task_that_is_offered` |
//! | a worker in its stop hook, told to end by a sweep or a shutdown | `beside_a_worker_in_its_stop_hook` |
//! | a worker sweeps, under the registry's lock | `beside_a_worker_that_sweeps` |
//! | more workers than a lowered limit allows | `surplus_workers_of_a_lowered_limit` |
//! | a group just being cancelled, with queued tasks | `a_cancelled_group_with_queued_tasks` |
//! | a queue with dead cells | `a_queue_with_dead_cells` |
//! | another thread waits for its scope | `beside_a_scope_that_waits` |
//! | a shutdown waits, in each mode | `while_a_shutdown_waits` |
//! | a drop of the pool waits, in each mode | `while_a_drop_waits` |
//! | ended, in each mode | `a_pool_that_has_ended` |
//! | whatever other threads are at | `at_any_moment_of_other_threads` |
//! | another process's already | `a_fork_of_a_fork` |
//! | asked by a child handler that the program has registered | `an_earlier_child_handler` |
//! | the fork is made by a task | `a_task_that_forks_and_returns_in_both`, `a_task_asks_its_pool_in_the_child` |
//! | by the drop of a discarded task's captures | `discarded_captures_that_fork` |
//! | handles of tasks that have ended, run or are queued | `handles` |
//! | the fork is made by a handle's waker | `a_waker_that_forks` |
//! | within a scope | `a_scope_is_left_at_once_in_the_child` |
#![cfg(unix)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{
    task, Builder, DeadlineError, Group, Pool, Refusal, Refused, Shutdown, TaskError, WhenFull,
};

const MODES: [Shutdown; 3] = [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel];
const TASK_RAN: i32 = 77;

/// Holds the first thread that allocates so much at once: some steps of the pool are the only ones
/// that do.
struct Holding;

static HOLD_FROM: AtomicUsize = AtomicUsize::new(NOBODY);
static ONLY_SPAWNER: AtomicBool = AtomicBool::new(false);
static IS_HELD: AtomicBool = AtomicBool::new(false);
const NOBODY: usize = usize::MAX;

thread_local! {
    static IS_SPAWNER: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is the one to hold; then no other is.
fn is_to_hold(bytes: usize) -> bool {
    bytes >= HOLD_FROM.load(Ordering::SeqCst)
        && (IS_SPAWNER.try_with(Cell::get) == Ok(true) || !ONLY_SPAWNER.load(Ordering::SeqCst))
        && HOLD_FROM.swap(NOBODY, Ordering::SeqCst) != NOBODY
}

// SAFETY: hands everything on to the system's allocator; it may take its time.
unsafe impl GlobalAlloc for Holding {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_to_hold(layout.size()) {
            IS_HELD.store(true, Ordering::SeqCst);
            while IS_HELD.load(Ordering::SeqCst) {
                thread::sleep(ms(1));
            }
        }
        // SAFETY: the caller's promise is the system's condition.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Holding = Holding;

/// While it lives, the first thread that allocates so much is held. Declare it after the pool.
struct Hold;

impl Hold {
    fn any(bytes: usize) -> Self {
        ONLY_SPAWNER.store(false, Ordering::SeqCst);
        HOLD_FROM.store(bytes, Ordering::SeqCst);
        Self
    }

    fn spawner(bytes: usize) -> Self {
        ONLY_SPAWNER.store(true, Ordering::SeqCst);
        HOLD_FROM.store(bytes, Ordering::SeqCst);
        Self
    }

    #[track_caller]
    fn wait(&self) {
        wait_until("a thread to be held", || IS_HELD.load(Ordering::SeqCst));
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        HOLD_FROM.store(NOBODY, Ordering::SeqCst);
        IS_HELD.store(false, Ordering::SeqCst);
    }
}

fn builder(max: usize, queue: usize) -> Builder {
    Pool::builder().max_workers(max).queue_capacity(queue)
}

fn fork() -> i32 {
    // SAFETY: each child here uses pools, the allocator (which the C library makes usable) and
    // `_exit`; what another thread may have locked is what these tests are about.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    child
}

fn exit(code: i32) -> ! {
    // SAFETY: ends the process without running anything of its parent's.
    unsafe { libc::_exit(code) }
}

/// The exit code of a child, which must not hang.
#[track_caller]
fn code_of(child: i32) -> i32 {
    let mut status = 0;
    let mut ended = false;
    let mut turns = 0;
    while !ended && turns < 1000 {
        // SAFETY: `status` is valid for the call, `child` our own and not waited for yet.
        ended = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child;
        turns += 1;
        if !ended {
            thread::sleep(ms(if turns < 50 { 1 } else { 30 }));
        }
    }
    if !ended {
        // SAFETY: as above.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    assert!(ended, "the child hangs");
    assert!(libc::WIFEXITED(status), "the child was killed: {status:#x}");
    libc::WEXITSTATUS(status)
}

/// Runs `body` in a child, and waits for it.
#[track_caller]
fn in_child(body: impl FnOnce()) {
    let child = fork();
    if child == 0 {
        let outcome = panic::catch_unwind(AssertUnwindSafe(body));
        exit(i32::from(outcome.is_err()));
    }
    assert_eq!(code_of(child), 0, "the child found something wrong");
}

#[track_caller]
fn is_forked<F>(outcome: Result<(), Refused<F>>) {
    let refused = outcome.expect_err("nothing is accepted in a child");
    assert!(matches!(refused.reason(), Refusal::Forked), "{refused:?}");
}

#[track_caller]
fn call_is_forked<F, R>(outcome: Result<R, DeadlineError<F>>) {
    match outcome {
        Err(DeadlineError::Refused(refused)) => is_forked(Err(refused)),
        _ => panic!("not refused as forked"),
    }
}

/// In a child: all that a pool, and groups of it, can be asked.
#[track_caller]
fn assert_refuses(pool: &Pool, groups: &[Group]) {
    let ran = Arc::new(AtomicUsize::new(0));
    let task = || {
        let ran = Arc::clone(&ran);
        move || {
            ran.fetch_add(1, Ordering::SeqCst);
        }
    };
    let refused_before = pool.stats().refused;
    is_forked(pool.serve(task()));
    call_is_forked(pool.do_with_deadline(task(), Duration::MAX));
    call_is_forked(pool.do_with_deadline(task(), Duration::from_nanos(1)));
    let at_once = pool.do_with_deadline(task(), Duration::ZERO);
    assert!(matches!(at_once, Err(DeadlineError::Expired(_))));
    drop(at_once);
    for policy in [WhenFull::Refuse, WhenFull::Block, WhenFull::BlockFor(LONG)] {
        let with = pool.labeled("child").when_full(policy);
        is_forked(with.serve(task()));
        is_forked(with.with_deadline(LONG).min_remaining(ms(1)).serve(task()));
        is_forked(with.with_deadline(Duration::ZERO).serve(task()));
        call_is_forked(with.do_with_deadline(task(), LONG));
        is_forked(with.group().serve(task()));
        with.scope(|s| is_forked(s.serve(task())));
    }
    let guarded = pool.group();
    drop(guarded.drop_guard());
    assert!(guarded.is_cancelled());
    is_forked(guarded.serve(task()));
    assert_groups_refuse(groups, task);

    let stats = pool.stats();
    check_at_rest(pool, &stats);
    assert_eq!((stats.workers, stats.running, stats.queued), (0, 0, 0));
    let calls = 3 + 3 * 6 + 1 + 2 * groups.len() as u64;
    assert_eq!(stats.refused - refused_before, calls, "{stats:?}");
    assert!(stats.refusals.forked >= calls, "{stats:?}");
    assert_eq!(stats.refusals.closed, 0, "{stats:?}");
    assert!(pool.workers().is_empty());
    assert!((1..=pool.max_workers()).contains(&pool.limit()));
    pool.set_limit(1).expect("in range");
    let _ = format!("{pool:?}");
    for mode in MODES {
        let report = pool.shutdown(mode, Duration::MAX);
        assert!(report.is_clean(), "{report:?}");
        assert!(pool.is_closed());
    }
    is_forked(pool.serve(task()));
    let ran = Arc::try_unwrap(ran).expect("each refused closure came back");
    assert_eq!(ran.into_inner(), 0, "a closure ran");
}

/// The same for groups: two refusals each.
#[track_caller]
fn assert_groups_refuse<F>(groups: &[Group], task: impl Fn() -> F)
where
    F: FnOnce() + Send + 'static,
{
    for group in groups {
        is_forked(group.serve(task()));
        let pending = group.pending();
        group.wait();
        match group.wait_timeout(LONG) {
            Ok(()) => assert_eq!(pending, 0),
            Err(unfinished) => assert_eq!(unfinished.pending(), pending),
        }
        // No more than the moment of the fork had.
        let _ = (group.completed(), group.panicked(), group.discarded());
        let _ = format!("{group:?}");
        group.cancel();
        assert!(group.is_cancelled());
        is_forked(group.serve(task()));
    }
}

/// In a child: all of it, the drops, and a pool of the child's own.
#[track_caller]
fn assert_child(pool: &mut Option<Pool>, groups: Vec<Group>) {
    let pool = pool.take().expect("the child's copy");
    assert_refuses(&pool, &groups);
    drop(pool);
    for group in &groups {
        is_forked(group.serve(|| ()));
    }
    drop(groups);
    assert_own_pool_works();
}

#[track_caller]
fn assert_own_pool_works() {
    let own = builder(2, 2).build().unwrap();
    assert_eq!(own.do_with_deadline(|| 1, LONG).unwrap(), 1);
    assert!(own.shutdown(Shutdown::Drain, LIMIT).is_clean());
}

/// Forks, and checks the child and then the parent's pool, which is given back.
#[track_caller]
fn fork_beside(pool: Pool, groups: &[Group]) -> Pool {
    let mut pool = Some(pool);
    in_child(|| assert_child(&mut pool, groups.to_vec()));
    pool.take().expect("the parent's")
}

#[track_caller]
fn fork_thrice(pool: Pool, group: &Group) -> Pool {
    (0..3).fold(pool, |pool, _| {
        fork_beside(pool, std::slice::from_ref(group))
    })
}

/// In the parent: all of the pool is of use, and ends.
#[track_caller]
fn assert_ends_well(pool: &Pool) {
    assert_cap_usable(pool);
    assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    check_at_rest(pool, &pool.stats());
}

#[test]
fn law19_a_pool_that_was_never_used() {
    isolated("law19_a_pool_that_was_never_used", || {
        for queue in [0, 4] {
            let pool = builder(2, queue).build().unwrap();
            let groups = [pool.group()];
            let pool = fork_beside(pool, &groups);
            assert_eq!(pool.stats().refused, 0);
            assert_cap_usable(&pool);
            check_at_rest(&pool, &settle(&pool));
        }
    });
}

#[test]
fn law19_idle_workers() {
    isolated("law19_idle_workers", || {
        for queue in [0, 4] {
            let pool = builder(3, queue).min_workers(2).build().unwrap();
            wait_until("two to idle", || pool.stats().idle == 2);
            let group = pool.group();
            group.serve(|| ()).unwrap();
            group.wait();
            let mut pool = pool;
            for _ in 0..5 {
                pool = fork_beside(pool, std::slice::from_ref(&group));
                assert_eq!(pool.do_with_deadline(|| 2, LONG).unwrap(), 2);
            }
            assert_eq!(group.completed(), 1);
            assert_cap_usable(&pool);
            let stats = settle(&pool);
            assert_eq!(stats.accepted, 6 + 3 + queue as u64);
            check_at_rest(&pool, &stats);
        }
    });
}

#[test]
fn law19_a_full_pool_with_blocked_submitters_and_waiting_callers() {
    isolated(
        "law19_a_full_pool_with_blocked_submitters_and_waiting_callers",
        || {
            for queue in [0, 2] {
                let pool = Arc::new(builder(2, queue).build().unwrap());
                let gate = Gate::new();
                let group = pool.group();
                for _ in 0..2 + queue {
                    group.serve(gate.task()).unwrap();
                }
                gate.wait_entered(2);
                let blocked: Vec<_> = (0..3)
                    .map(|n| {
                        let pool = Arc::clone(&pool);
                        thread::spawn(move || match n {
                            0 => pool.when_full(WhenFull::Block).serve(|| ()).is_ok(),
                            1 => pool
                                .when_full(WhenFull::BlockFor(LONG))
                                .serve(|| ())
                                .is_ok(),
                            _ => pool
                                .when_full(WhenFull::Block)
                                .do_with_deadline(|| (), LONG)
                                .is_ok(),
                        })
                    })
                    .collect();
                let waiting = {
                    let group = group.clone();
                    thread::spawn(move || group.wait())
                };
                wait_until("three to wait for room", || pool.stats().waiting == 3);
                for _ in 0..5 {
                    in_child(|| {
                        assert_refuses(&pool, std::slice::from_ref(&group));
                        // The child's copy of what the threads hold stays.
                        assert_eq!(group.pending(), 2 + queue);
                    });
                }
                let before = pool.stats();
                assert_eq!((before.running, before.queued), (2, queue));
                assert_eq!((before.waiting, before.refused), (3, 0));
                gate.open();
                for thread in blocked {
                    assert!(thread.join().unwrap(), "was taken in the end");
                }
                waiting.join().unwrap();
                assert_eq!(group.completed(), 2 + queue);
                let stats = settle(&pool);
                assert_eq!(stats.completed, 5 + queue as u64, "{stats:?}");
                check_at_rest(&pool, &stats);
            }
        },
    );
}

#[test]
fn law19_while_a_shutdown_waits() {
    isolated("law19_while_a_shutdown_waits", || {
        for mode in MODES {
            let pool = Arc::new(builder(2, 2).build().unwrap());
            let gate = Gate::new();
            for _ in 0..2 {
                must_serve(&pool, gate.task());
            }
            gate.wait_entered(2);
            let group = pool.group();
            group.serve(|| ()).unwrap();
            let ending = {
                let pool = Arc::clone(&pool);
                thread::spawn(move || pool.shutdown(mode, Duration::MAX))
            };
            wait_until("it to be closed", || pool.is_closed());
            for _ in 0..5 {
                in_child(|| assert_refuses(&pool, std::slice::from_ref(&group)));
            }
            gate.open();
            let report = ending.join().unwrap();
            assert!(report.is_clean(), "{report:?}");
            let discarded = u64::from(mode != Shutdown::Drain);
            assert_eq!(report.discarded, discarded);
            let stats = pool.stats();
            assert_eq!(stats.completed, 3 - discarded);
            check_at_rest(&pool, &stats);
        }
    });
}

#[test]
fn law19_while_a_drop_waits() {
    isolated("law19_while_a_drop_waits", || {
        for mode in MODES {
            let pool = builder(2, 2)
                .shutdown_on_drop(mode, Duration::MAX)
                .build()
                .unwrap();
            let gate = Gate::new();
            let (running, queued, probe) = (pool.group(), pool.group(), pool.group());
            for _ in 0..2 {
                running.serve(gate.task()).unwrap();
            }
            gate.wait_entered(2);
            queued.serve(|| ()).unwrap();
            let discarded = usize::from(mode != Shutdown::Drain);
            let dropped = drop_aside(pool);
            wait_until("it to be closed", || {
                let outcome = probe.serve(|| ());
                outcome.is_err_and(|why| why.is_closed()) && queued.discarded() == discarded
            });
            let groups = [running, queued];
            for _ in 0..5 {
                in_child(|| {
                    assert_groups_refuse(&groups, || || ());
                    assert_own_pool_works();
                });
            }
            let [running, queued] = groups;
            assert_eq!((running.pending(), queued.pending()), (2, 1 - discarded));
            assert_eq!(dropped.try_recv(), Err(TryRecvError::Empty), "{mode:?}");
            gate.open();
            assert_eq!(dropped.recv_timeout(LIMIT), Ok(()));
            assert_eq!((running.completed(), running.is_cancelled()), (2, false));
            assert_eq!(
                (queued.completed(), queued.discarded()),
                (1 - discarded, discarded)
            );
        }
    });
}

#[test]
fn law19_a_pool_that_has_ended() {
    isolated("law19_a_pool_that_has_ended", || {
        for mode in MODES {
            let mut pool = builder(2, 2).build().unwrap();
            let group = pool.group();
            for _ in 0..3 {
                group.serve(|| ()).unwrap();
            }
            group.wait();
            assert!(pool.shutdown(mode, LIMIT).is_clean());
            let before = pool.stats();
            pool = fork_thrice(pool, &group);
            assert_eq!(pool.stats(), before);
            assert!(pool.serve(|| ()).expect_err("it has ended").is_closed());
            assert_eq!((group.completed(), group.is_cancelled()), (3, false));
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        }
    });
}

#[test]
fn law19_workers_that_have_all_retired() {
    isolated("law19_workers_that_have_all_retired", || {
        for queue in [0, 4] {
            let mut pool = builder(2, queue)
                .idle_timeout(Duration::ZERO)
                .build()
                .unwrap();
            let group = pool.group();
            for round in 1..=3 {
                for _ in 0..2 {
                    group.serve(|| ()).unwrap();
                }
                group.wait();
                wait_until("all to retire", || pool.stats().workers == 0);
                pool = fork_beside(pool, std::slice::from_ref(&group));
                assert_eq!(group.completed(), 2 * round);
            }
            assert_eq!(pool.stats().refused, 0);
            assert_ends_well(&pool);
        }
    });
}

/// Before the system has given the thread; and with a thread that waits for its first order, and the
/// registry's lock held.
#[test]
fn law19_beside_a_spawner() {
    // The one takes a name as long; the other what the registry keeps of so many workers.
    let without_thread = (1, 2, 10_000, "n".repeat(10_000));
    let with_thread = (40, 2, 600, String::from("spawned"));
    isolated("law19_beside_a_spawner", move || {
        for (max, queue, bytes, name) in [without_thread, with_thread] {
            let mut pool = builder(max, queue).thread_name(&name).build().unwrap();
            let group = pool.group();
            let gate = Gate::new();
            let hold = Hold::spawner(bytes);
            let spawner = {
                let group = group.clone();
                let tasks: Vec<_> = (0..max).map(|_| gate.task()).collect();
                thread::spawn(move || {
                    IS_SPAWNER.set(true);
                    tasks.into_iter().for_each(|t| group.serve(t).unwrap());
                })
            };
            hold.wait();
            let submitted = group.pending();
            #[cfg(target_os = "linux")]
            if max > 1 {
                wait_until("its thread", || os::workers_named(&name) == submitted);
            }
            pool = fork_thrice(pool, &group);
            assert_eq!(group.pending(), submitted);
            assert!(gate.entered() < submitted, "the last has its order");
            drop(hold);
            spawner.join().unwrap();
            gate.wait_entered(max);
            assert_eq!((group.pending(), pool.stats().refused), (max, 0));
            gate.open();
            group.wait();
            assert_eq!(group.completed(), max);
            assert_ends_well(&pool);
        }
    });
}

/// The new worker has its first order, a task that is awaited, and is in its start hook.
#[test]
fn law19_beside_a_task_that_is_offered() {
    isolated("law19_beside_a_task_that_is_offered", || {
        for queue in [0, 4] {
            let gate = Gate::new();
            let key = gate.key();
            let pool = builder(1, queue)
                .on_worker_start(move |_| key.pass())
                .build()
                .unwrap();
            let pool = Arc::new(pool);
            let ran = Arc::new(AtomicUsize::new(0));
            let caller = {
                let (pool, ran) = (Arc::clone(&pool), Arc::clone(&ran));
                let task = move || ran.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || pool.do_with_deadline(task, LONG).map_err(|_| ()))
            };
            gate.wait_entered(1);
            for _ in 0..5 {
                in_child(|| assert_refuses(&pool, &[pool.group()]));
            }
            assert_eq!(ran.load(Ordering::SeqCst), 0);
            assert_eq!(pool.stats().refused, 0);
            gate.open();
            assert_eq!(caller.join().unwrap(), Ok(0));
            assert_cap_usable(&pool);
            check_at_rest(&pool, &settle(&pool));
        }
    });
}

/// With a task, and without one.
#[test]
fn law19_beside_a_worker_in_its_start_hook() {
    isolated("law19_beside_a_worker_in_its_start_hook", || {
        for (queue, with_task) in [(0, true), (4, true), (0, false), (4, false)] {
            let gate = Gate::new();
            let key = gate.key();
            let mut pool = builder(1, queue)
                .on_worker_start(move |_| key.pass())
                .build()
                .unwrap();
            let group = pool.group();
            let tasks = if with_task { 1 + queue } else { 0 };
            for _ in 0..tasks {
                group.serve(|| ()).unwrap();
            }
            if !with_task {
                let back = pool.do_with_deadline(|| (), ms(20));
                assert!(matches!(back, Err(DeadlineError::Expired(_))));
            }
            gate.wait_entered(1);
            pool = fork_thrice(pool, &group);
            assert_eq!((group.pending(), pool.stats().refused), (tasks, 0));
            gate.open();
            group.wait();
            assert_eq!(group.completed(), tasks);
            assert_ends_well(&pool);
        }
    });
}

/// One that retires, and one that a shutdown waits for.
#[test]
fn law19_beside_a_worker_in_its_stop_hook() {
    isolated("law19_beside_a_worker_in_its_stop_hook", || {
        for (queue, ends) in [(0, false), (4, false), (0, true), (4, true)] {
            let gate = Gate::new();
            let key = gate.key();
            let idle = if ends { Duration::MAX } else { Duration::ZERO };
            let mut pool = builder(1, queue)
                .idle_timeout(idle)
                .on_worker_stop(move |_| key.pass())
                .build()
                .unwrap();
            let group = pool.group();
            group.serve(|| ()).unwrap();
            group.wait();
            if ends {
                let report = pool.shutdown(Shutdown::Drain, Duration::ZERO);
                assert_eq!(report.stragglers.len(), 1);
            }
            gate.wait_entered(1);
            pool = fork_thrice(pool, &group);
            let stats = pool.stats();
            assert_eq!((stats.workers, stats.refused), (1, 0), "{stats:?}");
            gate.open();
            if !ends {
                // In its hook it is busy.
                wait_until("it to retire", || pool.stats().workers == 0);
                assert_eq!(pool.do_with_deadline(|| 2, LONG).unwrap(), 2);
                wait_until("it to retire", || pool.stats().workers == 0);
                assert_cap_usable(&pool);
            }
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
            check_at_rest(&pool, &pool.stats());
        }
    });
}

#[test]
fn law19_beside_a_worker_that_sweeps() {
    isolated("law19_beside_a_worker_that_sweeps", || {
        const WORKERS: usize = 200;
        let mut pool = builder(WORKERS, 4).idle_timeout(ms(100)).build().unwrap();
        let group = pool.group();
        let gate = Gate::new();
        for _ in 0..WORKERS {
            group.serve(gate.task()).unwrap();
        }
        gate.wait_entered(WORKERS);
        // It lists the workers that are idle: more than a thread that starts allocates.
        let hold = Hold::any(WORKERS * size_of::<usize>());
        gate.open();
        hold.wait();
        group.wait();
        pool = fork_thrice(pool, &group);
        assert_eq!((group.pending(), group.completed()), (0, WORKERS));
        drop(hold);
        wait_until("all to retire", || pool.stats().workers == 0);
        assert_eq!(pool.stats().refused, 0);
        assert_ends_well(&pool);
    });
}

#[test]
fn law19_surplus_workers_of_a_lowered_limit() {
    isolated("law19_surplus_workers_of_a_lowered_limit", || {
        for queue in [0, 2] {
            let mut pool = builder(3, queue)
                .idle_timeout(Duration::MAX)
                .build()
                .unwrap();
            let gate = Gate::new();
            let group = pool.group();
            for _ in 0..3 {
                group.serve(gate.task()).unwrap();
            }
            gate.wait_entered(3);
            for _ in 0..queue {
                group.serve(|| ()).unwrap();
            }
            pool.set_limit(1).unwrap();
            pool = fork_thrice(pool, &group);
            let stats = pool.stats();
            assert_eq!((stats.workers, stats.running, stats.queued), (3, 3, queue));
            assert_eq!((pool.limit(), stats.refused), (1, 0));
            gate.open();
            group.wait();
            assert_eq!(group.completed(), 3 + queue);
            wait_until("the surplus to end", || pool.stats().workers == 1);
            pool.set_limit(3).unwrap();
            assert_ends_well(&pool);
        }
    });
}

/// Its drop waits at the gate.
struct HeldInDrop(Key);

impl Drop for HeldInDrop {
    fn drop(&mut self) {
        self.0.pass();
    }
}

/// Who cancels is held up in the drop of the first task's captures: the others are still queued.
#[test]
fn law19_a_cancelled_group_with_queued_tasks() {
    isolated("law19_a_cancelled_group_with_queued_tasks", || {
        let mut pool = builder(1, 4).build().unwrap();
        let (running, dropping) = (Gate::new(), Gate::new());
        let (group, other) = (pool.group(), pool.group());
        group.serve(running.task()).unwrap();
        running.wait_entered(1);
        for _ in 0..3 {
            let held = HeldInDrop(dropping.key());
            group.serve(move || drop(held)).unwrap();
        }
        other.serve(|| ()).unwrap();
        let canceller = {
            let group = group.clone();
            thread::spawn(move || group.cancel())
        };
        dropping.wait_entered(1);
        let groups = [group, other];
        for _ in 0..3 {
            pool = fork_beside(pool, &groups);
        }
        let [group, other] = groups;
        let stats = pool.stats();
        assert_eq!((stats.running, stats.refused), (1, 0), "{stats:?}");
        assert_eq!((other.pending(), other.is_cancelled()), (1, false));
        dropping.open();
        canceller.join().unwrap();
        assert_eq!(dropping.entered(), 3);
        running.open();
        group.wait();
        other.wait();
        assert_eq!((group.completed(), group.discarded()), (1, 3));
        assert_eq!(other.completed(), 1);
        let refused = group.serve(|| ()).expect_err("it is cancelled");
        assert!(matches!(refused.reason(), Refusal::Cancelled));
        assert_ends_well(&pool);
    });
}

/// In the middle, and where the oldest task was, whose places take tasks again.
#[test]
fn law19_a_queue_with_dead_cells() {
    isolated("law19_a_queue_with_dead_cells", || {
        for (cancelled, free) in [([0, 2], 1), ([0, 1], 2), ([1, 2], 0), ([1, 3], 0)] {
            let mut pool = builder(1, 4).build().unwrap();
            let gate = Gate::new();
            let (group, other) = (pool.group(), pool.group());
            other.serve(gate.task()).unwrap();
            gate.wait_entered(1);
            for place in 0..4 {
                let of = if cancelled.contains(&place) {
                    &group
                } else {
                    &other
                };
                of.serve(|| ()).unwrap();
            }
            group.cancel();
            let groups = [group, other];
            for _ in 0..3 {
                pool = fork_beside(pool, &groups);
            }
            let [group, other] = groups;
            let stats = pool.stats();
            assert_eq!((stats.running, stats.queued, stats.refused), (1, 2, 0));
            assert_eq!((group.discarded(), other.pending()), (2, 3));
            for _ in 0..free {
                other.serve(|| ()).unwrap();
            }
            let full = other.serve(|| ()).expect_err("no older place is dead");
            assert!(full.is_saturated(), "{full:?}");
            gate.open();
            other.wait();
            assert_eq!(other.completed(), 3 + free);
            assert_ends_well(&pool);
        }
    });
}

#[test]
fn law19_beside_a_scope_that_waits() {
    isolated("law19_beside_a_scope_that_waits", || {
        for queue in [0, 4] {
            let pool = Arc::new(builder(2, queue).build().unwrap());
            let gate = Gate::new();
            let waits = Arc::new(AtomicBool::new(false));
            let caller = {
                let (pool, waits, key) = (Arc::clone(&pool), Arc::clone(&waits), gate.key());
                thread::spawn(move || {
                    let ran = AtomicUsize::new(0);
                    pool.scope(|s| {
                        for _ in 0..2 + queue {
                            let task = || {
                                key.pass();
                                ran.fetch_add(1, Ordering::SeqCst);
                            };
                            s.serve(task).unwrap();
                        }
                        waits.store(true, Ordering::SeqCst);
                    });
                    ran.into_inner()
                })
            };
            wait_until("it to wait", || waits.load(Ordering::SeqCst));
            gate.wait_entered(2);
            for _ in 0..5 {
                in_child(|| assert_refuses(&pool, &[pool.group()]));
            }
            let stats = pool.stats();
            assert_eq!((stats.running, stats.queued, stats.refused), (2, queue, 0));
            gate.open();
            assert_eq!(caller.join().unwrap(), 2 + queue, "each ran once");
            assert_cap_usable(&pool);
            check_at_rest(&pool, &settle(&pool));
        }
    });
}

/// Other threads keep the pool's locks busy: figures, hand-overs, starts and ends of threads,
/// lines of blocked submitters, cancelled groups, limits. Whatever a fork catches half-way, the
/// child waits for none of it.
#[test]
fn law19_at_any_moment_of_other_threads() {
    isolated("law19_at_any_moment_of_other_threads", || {
        let pool = Arc::new(
            builder(2, 2)
                .idle_timeout(Duration::ZERO)
                .when_full(WhenFull::BlockFor(ms(2)))
                .build()
                .unwrap(),
        );
        let group = pool.group();
        let stop = AtomicBool::new(false);
        let ran = Arc::new(AtomicU64::new(0));
        let accepted = AtomicU64::new(0);
        thread::scope(|s| {
            let (pool, group, stop, accepted) = (&*pool, &group, &stop, &accepted);
            for n in 0..4_u32 {
                let ran = Arc::clone(&ran);
                s.spawn(move || {
                    let task = |panics: bool| {
                        let ran = Arc::clone(&ran);
                        move || {
                            ran.fetch_add(1, Ordering::SeqCst);
                            if panics {
                                quiet_panic("on purpose");
                            }
                        }
                    };
                    for round in 0_u64.. {
                        if stop.load(Ordering::SeqCst) {
                            return;
                        }
                        let taken = match n {
                            0 => group.serve(task(round % 2 == 0)).is_ok(),
                            1 => pool.serve(task(false)).is_ok(),
                            2 => {
                                let other = pool.group();
                                let guard = other.drop_guard();
                                // Run or discarded: not in the ledger below.
                                let _ = other.serve(|| ());
                                drop(guard);
                                pool.do_with_deadline(task(false), LONG).is_ok()
                            }
                            _ => {
                                let _ = (pool.stats(), group.panicked(), pool.workers());
                                pool.set_limit(1 + (round % 2) as usize).unwrap();
                                false
                            }
                        };
                        accepted.fetch_add(u64::from(taken), Ordering::SeqCst);
                    }
                });
            }
            let stopped = panic::catch_unwind(AssertUnwindSafe(|| {
                for _ in 0..rounds(60) {
                    in_child(|| assert_refuses(pool, std::slice::from_ref(group)));
                }
            }));
            stop.store(true, Ordering::SeqCst);
            if let Err(payload) = stopped {
                panic::resume_unwind(payload);
            }
        });
        group.wait();
        let stats = settle(&pool);
        check_at_rest(&pool, &stats);
        assert_eq!(ran.load(Ordering::SeqCst), accepted.load(Ordering::SeqCst));
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    });
}

#[test]
fn law19_a_fork_of_a_fork() {
    isolated("law19_a_fork_of_a_fork", || {
        let pool = builder(2, 2).build().unwrap();
        pool.do_with_deadline(|| (), LONG).unwrap();
        let mut pool = Some(pool);
        in_child(|| {
            let mut own = Some(builder(2, 2).build().unwrap());
            own.as_ref().unwrap().do_with_deadline(|| (), LONG).unwrap();
            in_child(|| {
                assert_child(&mut pool, Vec::new());
                assert_child(&mut own, Vec::new());
            });
            let own = own.take().expect("still the child's");
            assert_eq!(own.do_with_deadline(|| 1, LONG).unwrap(), 1);
            assert_cap_usable(&own);
            assert!(own.shutdown(Shutdown::Drain, LIMIT).is_clean());
            assert_child(&mut pool, Vec::new());
        });
        let pool = pool.take().expect("the parent's");
        assert_cap_usable(&pool);
    });
}

/// Where a task or hook forks and returns in the child: what follows is the parent's alone.
struct Forks {
    pool: Option<Pool>,
    child: Arc<AtomicI32>,
    /// Tells processes apart.
    parent: u32,
}

/// Forks once, and returns in both processes.
fn fork_into(child: &AtomicI32) {
    if child.load(Ordering::SeqCst) == 0 {
        child.store(fork(), Ordering::SeqCst);
    }
}

impl Forks {
    fn new(make: impl FnOnce(Builder, Arc<AtomicI32>, u32) -> Builder) -> Self {
        let child = Arc::new(AtomicI32::new(0));
        let parent = std::process::id();
        let builder = builder(1, 4)
            .idle_timeout(Duration::MAX)
            .shutdown_on_drop(Shutdown::Drain, LIMIT);
        let pool = make(builder, Arc::clone(&child), parent).build().unwrap();
        Self {
            pool: Some(pool),
            child,
            parent,
        }
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("there until the end")
    }

    /// A task that must not run in the child.
    fn bystander(&self) -> impl FnOnce() + Send + 'static {
        let parent = self.parent;
        move || {
            if std::process::id() != parent {
                exit(TASK_RAN);
            }
        }
    }

    /// No other task has run in the child; the parent has noticed nothing.
    #[track_caller]
    fn assert_ended(mut self, tasks: u64) {
        let stats = settle(self.pool());
        assert_eq!(
            stats.completed + stats.panicked + stats.discarded,
            tasks,
            "{stats:?}"
        );
        check_at_rest(self.pool(), &stats);
        drop(self.pool.take());
        let child = self.child.load(Ordering::SeqCst);
        assert!(child > 0, "nobody forked");
        assert_ne!(code_of(child), TASK_RAN);
    }
}

#[test]
fn law19_a_task_that_forks_and_returns_in_both() {
    isolated("law19_a_task_that_forks_and_returns_in_both", || {
        for panics in [false, true] {
            for how in 0..4 {
                let it = Forks::new(|builder, _, _| builder);
                let gate = Gate::new();
                must_serve(it.pool(), gate.task());
                gate.wait_entered(1);
                let child = Arc::clone(&it.child);
                let (pool, group) = (it.pool(), it.pool().group());
                let forking = move || {
                    fork_into(&child);
                    if child.load(Ordering::SeqCst) == 0 {
                        assert_eq!((task::slot(), task::deadline()), (Some(0), None));
                    }
                    if panics {
                        quiet_panic("in both");
                    }
                };
                thread::scope(|s| {
                    match how {
                        0 => must_serve(pool, forking),
                        1 => group.serve(forking).unwrap(),
                        2 => drop(s.spawn(|| pool.do_with_deadline(forking, LONG).is_ok())),
                        _ => drop(s.spawn(|| {
                            let scope = || pool.scope(|s| s.serve(forking).unwrap());
                            let outcome = panic::catch_unwind(AssertUnwindSafe(scope));
                            assert_eq!(outcome.is_err(), panics);
                        })),
                    }
                    wait_until("it to be queued", || pool.stats().queued == 1);
                    must_serve(pool, it.bystander());
                    group.serve(it.bystander()).unwrap();
                    gate.open();
                    group.wait();
                });
                let stats = settle(pool);
                assert_eq!(stats.panicked, u64::from(panics), "{stats:?}");
                it.assert_ended(4);
            }
        }
    });
}

/// What a handle has in a child whose task has not ended in the parent.
#[track_caller]
fn is_nothing<R: std::fmt::Debug>(outcome: Result<R, TaskError>) {
    assert!(matches!(outcome, Err(TaskError::Discarded)), "{outcome:?}");
}

#[test]
fn law19_handles() {
    isolated("law19_handles", || {
        let pool = builder(1, 8).build().unwrap();
        let on = pool.awaitable();
        let ended = on.serve(|| 7).unwrap();
        wait_until("its end", || ended.is_finished());
        let gate = Gate::new();
        let running = on.serve(gate.task());
        gate.wait_entered(1);
        let mut queued: Vec<_> = (0..6).map(|n| Some(on.serve(move || n).unwrap())).collect();
        let mut polled = on.serve(|| 8).unwrap();
        let mut noop = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut polled).poll(&mut noop).is_pending());
        let (mut ended, mut running) = (Some(ended), Some(running.map_err(|_| ()).unwrap()));
        let mut polled = Some(polled);
        in_child(|| {
            assert_eq!(ended.take().unwrap().join().unwrap(), 7);
            is_nothing(running.take().unwrap().join());
            let mut queued = queued.drain(..).flatten();
            let mut next = || queued.next().unwrap();
            drop(next());
            next().detach();
            is_nothing(next().join_timeout(Duration::MAX).unwrap());
            let mut future = next();
            future.cancel();
            let mut noop = Context::from_waker(Waker::noop());
            match Pin::new(&mut future).poll(&mut noop) {
                Poll::Ready(outcome) => is_nothing(outcome),
                Poll::Pending => panic!("it waits"),
            }
            assert!(next().is_finished());
            is_forked(pool.awaitable().serve(|| ()).map(drop));
            is_forked(pool.group().awaitable().serve(|| ()).map(drop));
            drop(polled.take());
        });
        assert_eq!(ended.take().unwrap().join().unwrap(), 7);
        gate.open();
        running.take().unwrap().join().unwrap();
        for (n, handle) in queued.into_iter().flatten().enumerate() {
            assert_eq!(handle.join().unwrap(), n);
        }
        assert_eq!(polled.take().unwrap().join().unwrap(), 8);
        assert_ends_well(&pool);
    });
}

struct ForkingWaker(Arc<AtomicI32>);

impl Wake for ForkingWaker {
    fn wake(self: Arc<Self>) {
        fork_into(&self.0);
    }
}

#[test]
fn law19_a_waker_that_forks() {
    isolated("law19_a_waker_that_forks", || {
        for queued in [0, 2] {
            let it = Forks::new(|builder, _, _| builder);
            let gate = Gate::new();
            let mut handle = it.pool().awaitable().serve(gate.task());
            let handle = handle.as_mut().map_err(|_| ()).unwrap();
            gate.wait_entered(1);
            for _ in 0..queued {
                must_serve(it.pool(), it.bystander());
            }
            let waker = Waker::from(Arc::new(ForkingWaker(Arc::clone(&it.child))));
            let mut context = Context::from_waker(&waker);
            assert!(Pin::new(&mut *handle).poll(&mut context).is_pending());
            gate.open();
            wait_until("a fork", || it.child.load(Ordering::SeqCst) != 0);
            must_serve(it.pool(), it.bystander());
            it.assert_ended(2 + queued);
            let Poll::Ready(outcome) = Pin::new(handle).poll(&mut context) else {
                panic!("it has ended")
            };
            outcome.unwrap();
        }
    });
}

#[test]
fn law19_a_task_asks_its_pool_in_the_child() {
    isolated("law19_a_task_asks_its_pool_in_the_child", || {
        let pool = Arc::new(builder(2, 2).build().unwrap());
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

/// Forks where it is dropped; the child must come back from the pool.
struct ForksInDrop(Arc<AtomicI32>, Arc<Mutex<Vec<u32>>>);

impl Drop for ForksInDrop {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(std::process::id());
        fork_into(&self.0);
    }
}

#[test]
fn law19_discarded_captures_that_fork() {
    isolated("law19_discarded_captures_that_fork", || {
        for by_shutdown in [false, true] {
            let pool = builder(1, 4).build().unwrap();
            let gate = Gate::new();
            must_serve(&pool, gate.task());
            gate.wait_entered(1);
            let group = pool.group();
            let child = Arc::new(AtomicI32::new(0));
            let drops = Arc::new(Mutex::new(Vec::new()));
            for _ in 0..3 {
                let capture = ForksInDrop(Arc::clone(&child), Arc::clone(&drops));
                group.serve(move || drop(capture)).unwrap();
            }
            let me = std::process::id();
            if by_shutdown {
                let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
                if std::process::id() == me {
                    assert_eq!((report.discarded, report.stragglers.len()), (3, 1));
                }
            } else {
                group.cancel();
            }
            if std::process::id() != me {
                let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
                    assert_refuses(&pool, &[group]);
                    drop(pool);
                }));
                exit(i32::from(outcome.is_err()));
            }
            assert_eq!(code_of(child.load(Ordering::SeqCst)), 0);
            assert_eq!(*drops.lock().unwrap(), [me; 3]);
            assert_eq!((group.discarded(), group.pending()), (3, 0));
            gate.open();
            check_at_rest(&pool, &settle(&pool));
        }
    });
}

#[test]
fn law19_a_scope_is_left_at_once_in_the_child() {
    isolated("law19_a_scope_is_left_at_once_in_the_child", || {
        let pool = builder(2, 2).build().unwrap();
        let gate = Gate::new();
        let ran = AtomicUsize::new(0);
        let me = std::process::id();
        let mut child = 0;
        let key = gate.key();
        pool.scope(|s| {
            let task = || {
                key.pass();
                ran.fetch_add(1, Ordering::SeqCst);
            };
            s.serve(task).unwrap();
            gate.wait_entered(1);
            child = fork();
            if child == 0 {
                is_forked(s.serve(task));
            } else {
                gate.open();
            }
        });
        if std::process::id() != me {
            exit(ran.load(Ordering::SeqCst) as i32);
        }
        assert_eq!(code_of(child), 0, "no task ran in the child");
        assert_eq!(ran.load(Ordering::SeqCst), 1);
        check_at_rest(&pool, &settle(&pool));
    });
}

/// Child handlers run in the order of their registration, and the program's own may come before any
/// pool.
#[test]
fn law19_an_earlier_child_handler() {
    static POOL: OnceLock<Mutex<Option<Pool>>> = OnceLock::new();
    extern "C" fn child() {
        let pool = POOL.get().and_then(|pool| pool.lock().unwrap().take());
        assert_child(&mut { pool }, Vec::new());
    }
    isolated("law19_an_earlier_child_handler", || {
        // SAFETY: a function for the life of the program; what it does in a child is this test.
        assert_eq!(unsafe { libc::pthread_atfork(None, None, Some(child)) }, 0);
        for queue in [0, 4] {
            let pool = builder(1, queue).build().unwrap();
            pool.do_with_deadline(|| (), LONG).unwrap();
            let place = POOL.get_or_init(Mutex::default);
            *place.lock().unwrap() = Some(pool);
            assert_eq!(code_of(fork_and_exit()), 0);
            let pool = place.lock().unwrap().take().unwrap();
            check_at_rest(&pool, &settle(&pool));
        }
    });
}

fn fork_and_exit() -> i32 {
    let child = fork();
    if child == 0 {
        exit(0);
    }
    child
}
