//! Law 12 (no allocation). This is a binary of its own because it counts what the whole process
//! allocates, so it has one test, whose parts run one after the other.

#[path = "common/allocator.rs"]
mod allocator;
mod common;

use std::future::Future;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use allocator::Watched;
use common::*;
use lazypool::{Group, Pool, Submitter, WhenFull};

static ALLOCATED: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

/// The identity of the process's first thread, set at its first allocation.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// Returns `true` if the allocation belongs to the test or its pools. The process's first thread
/// only waits for the test. After a minute it prints that it still waits, which allocates.
fn is_counted() -> bool {
    let me = this_thread();
    let first = FIRST.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst);
    me == 0 || first.is_err_and(|first| first != me)
}

#[cfg(unix)]
fn this_thread() -> u64 {
    // SAFETY: `pthread_self` has no conditions.
    unsafe { libc::pthread_self() as u64 }
}

/// The thread is not known on this system, so all allocations are counted.
#[cfg(not(unix))]
fn this_thread() -> u64 {
    0
}

#[global_allocator]
static ALLOCATOR: Watched = Watched {
    allocates: |_| {
        if is_counted() {
            ALLOCATED.fetch_add(1, Ordering::SeqCst);
        }
    },
    frees: |_| {
        if is_counted() {
            FREED.fetch_add(1, Ordering::SeqCst);
        }
    },
};

const TURNS: u64 = 300;
const NONE: (u64, u64) = (0, 0);
/// One allocation and one free in each turn.
const ONE: (u64, u64) = (TURNS, TURNS);

/// The words that a served closure may have without an allocation. A word less if the feature
/// `metrics` takes one, as its documentation says.
const ROOM: usize = 6 - cfg!(feature = "metrics") as usize;

/// Returns how often the process has allocated and freed so far.
fn so_far() -> (u64, u64) {
    (
        ALLOCATED.load(Ordering::SeqCst),
        FREED.load(Ordering::SeqCst),
    )
}

fn since(before: (u64, u64)) -> (u64, u64) {
    let now = so_far();
    (now.0 - before.0, now.1 - before.1)
}

/// Counts the allocations and frees of the whole process during `turns` calls of `op`, after a
/// warm-up.
fn count(pool: &Pool, turns: u64, mut op: impl FnMut()) -> (u64, u64) {
    (0..50).for_each(|_| op());
    all_come_by(pool);
    let before = so_far();
    (0..turns).for_each(|_| op());
    all_come_by(pool);
    since(before)
}

/// Runs one task on every worker. By then each worker has released the node, the group and the scope
/// of its earlier tasks, which may be freed only after the task has been counted.
fn all_come_by(pool: &Pool) {
    static CAME: AtomicUsize = AtomicUsize::new(0);
    rest(pool);
    CAME.store(0, Ordering::SeqCst);
    let all = pool.max_workers();
    for _ in 0..all {
        let comes = move || {
            CAME.fetch_add(1, Ordering::SeqCst);
            while CAME.load(Ordering::SeqCst) < all {
                thread::yield_now();
            }
        };
        assert!(pool.serve(comes).is_ok(), "at rest");
    }
    rest(pool);
    assert_eq!(CAME.load(Ordering::SeqCst), all);
}

fn rest(pool: &Pool) {
    wait_until("the pool to come to rest", || {
        let s = pool.stats();
        s.running == 0 && s.queued == 0
    });
}

/// Lets as many tasks run and queue as there is space for, so that all workers are started.
fn fill_once(pool: &Pool) {
    filled(pool).open();
    rest(pool);
}

/// Returns a closure that captures `N` words.
fn words<const N: usize>() -> impl FnOnce() + Send + Copy + 'static {
    let load = [black_box(3_u64); N];
    move || {
        black_box(load);
    }
}

fn bytes<const N: usize>() -> impl FnOnce() + Send + Copy + 'static {
    let load = [black_box(3_u8); N];
    move || {
        black_box(load);
    }
}

/// Asserts what it costs to submit a closure by `serve`. Submits it again until the pool accepts
/// it, because a refusal must not allocate either. If the closure costs an allocation, first waits
/// until the pool is at rest. Then the first call is accepted, so exactly one call is counted.
#[track_caller]
fn serve_costs<F: Copy>(pool: &Pool, f: F, expect: (u64, u64), serve: impl Fn(F) -> bool) {
    let counted = count(pool, TURNS, || {
        if expect != NONE {
            rest(pool);
        }
        while !serve(f) {
            thread::yield_now();
        }
    });
    assert_eq!(counted, expect, "{} bytes, {pool:?}", size_of::<F>());
}

#[track_caller]
fn call_costs<F, R>(on: Submitter<'_>, pool: &Pool, f: F, d: Duration, expect: (u64, u64))
where
    F: FnOnce() -> R + Send + Copy + 'static,
    R: Send + 'static,
{
    let call = || drop(black_box(on.do_with_deadline(f, d).expect("space for one")));
    let (from, to) = (size_of::<F>(), size_of::<R>());
    let counted = count(pool, TURNS, call);
    assert_eq!(counted, expect, "{from} bytes in, {to} out, {pool:?}");
}

/// Polls a future until it is ready, without allocating.
fn until_ready<F: Future + Unpin>(mut future: F) -> F::Output {
    loop {
        match poll(&mut future, Waker::noop()) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::yield_now(),
        }
    }
}

/// Law 22: the handle's allocation is the only one, even if the task has to wait in line.
fn in_line_costs_one(pool: &Pool) {
    static HOLDS: AtomicBool = AtomicBool::new(false);
    let turn = || {
        rest(pool);
        HOLDS.store(true, Ordering::SeqCst);
        for _ in 0..pool.max_workers() + pool.queue_capacity() {
            let hold = || {
                while HOLDS.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
            };
            assert!(pool.serve(hold).is_ok(), "at rest");
        }
        let future = pending(pool.awaitable().serve_async(|| 7_u64), Waker::noop());
        HOLDS.store(false, Ordering::SeqCst);
        let handle = until_ready(future).map_err(|_| ()).unwrap();
        assert_eq!(until_ready(handle).unwrap(), 7);
    };
    assert_eq!(count(pool, TURNS, turn), ONE, "in line");
}

/// Law 21: one allocation a task and none for its waits, for captures and results of any kind.
fn handles_cost_one<F, R>(pool: &Pool, f: F)
where
    F: FnOnce() -> R + Send + Copy + 'static,
    R: Send + 'static,
{
    let group = (pool.labeled("label").with_deadline(LONG).run_limit(LONG)).group();
    for on in [pool.awaitable(), group.awaitable()] {
        let serve = || on.serve(f).map_err(|_| ()).expect("space for one");
        let joined = || drop(black_box(serve().join().expect("a value")));
        assert_eq!(count(pool, TURNS, joined), ONE, "joined, {on:?}");
        let awaited = || drop(until_ready(serve()));
        assert_eq!(count(pool, TURNS, awaited), ONE, "awaited, {on:?}");
        let waits = || {
            if let Err(handle) = serve().join_timeout(Duration::from_nanos(1)) {
                drop(handle.join());
            }
        };
        assert_eq!(count(pool, TURNS, waits), ONE, "with a limit, {on:?}");
        let space_awaited = || {
            let handle = until_ready(on.serve_async(f)).map_err(|_| ()).unwrap();
            drop(black_box(until_ready(handle).expect("a value")));
        };
        assert_eq!(count(pool, TURNS, space_awaited), ONE, "space, {on:?}");
    }
}

/// One part for each sentence of the law. Each part has a time limit: on a busy machine many of the
/// turns wait for a time slice.
#[test]
fn law12_no_allocation_in_steady_state() {
    for (max, queue, policy) in [
        (1, 0, WhenFull::Refuse),
        (3, 64, WhenFull::Refuse),
        (2, 0, WhenFull::Block),
        (2, 4, WhenFull::Block),
    ] {
        timed(move || every_call(max, queue, policy));
    }
    timed(everyone_at_once);
    timed(the_other_outcomes);
    timed(captured_memory_is_gone);
}

fn every_call(max: usize, queue: usize, policy: WhenFull) {
    let pool = &pool_with(max, queue, |b| b.when_full(policy));
    fill_once(pool);

    serve_costs(pool, || (), NONE, |f| pool.serve(f).is_ok());
    serve_costs(pool, bytes::<{ 8 * ROOM }>(), NONE, |f| {
        pool.serve(f).is_ok()
    });
    serve_costs(pool, words::<ROOM>(), NONE, |f| pool.serve(f).is_ok());
    serve_costs(pool, words::<{ ROOM + 1 }>(), ONE, |f| {
        pool.serve(f).is_ok()
    });

    let on = pool.labeled("label");
    serve_costs(pool, words::<{ ROOM - 2 }>(), NONE, |f| on.serve(f).is_ok());
    serve_costs(pool, words::<8>(), ONE, |f| on.serve(f).is_ok());
    call_costs(on, pool, words::<{ ROOM - 4 }>(), LONG, NONE);

    let group = pool.group();
    note_all(pool, &group);
    serve_costs(pool, words::<{ ROOM - 1 }>(), NONE, |f| {
        group.serve(f).is_ok()
    });
    serve_costs(pool, words::<8>(), ONE, |f| group.serve(f).is_ok());
    // A group takes no space from the closure of a call.
    for on in [group.when_full(policy), group.labeled("label")] {
        call_costs(on, pool, words::<{ ROOM - 2 }>(), LONG, NONE);
        call_costs(on, pool, words::<7>(), LONG, ONE);
    }
    pool.scope(|s| serve_costs(pool, words::<{ ROOM - 1 }>(), NONE, |f| s.serve(f).is_ok()));
    pool.scope(|s| serve_costs(pool, words::<8>(), ONE, |f| s.serve(f).is_ok()));

    let plain = pool.when_full(policy);
    for d in [LONG, Duration::MAX] {
        call_costs(plain, pool, words::<{ ROOM - 2 }>(), d, NONE);
        call_costs(plain, pool, bytes::<{ 8 * ROOM - 16 }>(), d, NONE);
        call_costs(plain, pool, words::<7>(), d, ONE);
        // Results may be of any size.
        call_costs(plain, pool, || [black_box(1_u64); 2048], d, NONE);
        let load = [black_box(7_u64); ROOM - 2];
        call_costs(plain, pool, move || (load, [1_u8; 777]), d, NONE);
    }
    in_line_costs_one(pool);
    handles_cost_one(pool, words::<0>());
    handles_cost_one(pool, words::<64>());
    handles_cost_one(pool, || [black_box(1_u64); 99]);

    // Callers and workers that have to sleep do not allocate either.
    let nap = || thread::sleep(Duration::from_micros(300));
    let counted = count(pool, 40, || pool.do_with_deadline(nap, LONG).unwrap());
    assert_eq!(counted, NONE, "parked");
}

/// Brings a group into the steady state: its list of queue positions has space for all that there can
/// be. That is the queue's capacity and, while workers are between two tasks, one more for each. With the
/// queues here, a list that has grown beside an almost full queue has that space.
fn note_all(pool: &Pool, group: &Group) {
    let (max, queue) = (pool.max_workers(), pool.queue_capacity());
    let [first, then] = [Gate::new(), Gate::new()];
    let serve = |n, gate: &Gate| (0..n).for_each(|_| must_serve_in(group, gate.task()));
    rest(pool);
    serve(max, &first);
    wait_until("the workers to be busy", || pool.stats().queued == 0);
    serve(queue, &then);
    first.open();
    let more = max.min(queue);
    wait_until("each worker to take a task", || {
        pool.stats().queued == queue - more
    });
    serve(more, &then);
    then.open();
    group.wait();
}

/// Law 12 with several callers, each on a thread that has been warmed up.
fn everyone_at_once() {
    for (max, queue, policy) in [
        (4, 0, WhenFull::Refuse),
        (2, 2, WhenFull::Refuse),
        (1, 0, WhenFull::Block),
        (1, 3, WhenFull::Block),
    ] {
        let pool = pool_with(max, queue, |b| b.when_full(policy));
        fill_once(&pool);
        let (start, gate) = (Barrier::new(5), Gate::new());
        let blocks = policy == WhenFull::Block;
        if blocks {
            (0..max + queue).for_each(|_| must_serve(&pool, gate.task()));
        }
        let counted = thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    let turns = |n| {
                        for i in 0..n {
                            let load = [i; ROOM - 2];
                            let value = pool.do_with_deadline(move || load[1], LONG);
                            assert_eq!(value.unwrap(), i);
                        }
                    };
                    turns(200_u64);
                    start.wait();
                    start.wait();
                    turns(400);
                    start.wait();
                    // A thread that ends frees its memory, so it ends after the count.
                    start.wait();
                });
            }
            if blocks {
                wait_in_line(&pool, 4);
            }
            gate.open();
            start.wait();
            rest(&pool);
            let before = so_far();
            start.wait();
            start.wait();
            rest(&pool);
            let counted = since(before);
            start.wait();
            counted
        });
        assert_eq!(counted, NONE, "{pool:?}");
    }
}

/// Refusals, expiries and time-outs do not allocate either.
fn the_other_outcomes() {
    let pool = pool(1, 1);
    fill_once(&pool);
    let costs = |what: &str, op: &dyn Fn()| {
        (0..20).for_each(|_| op());
        let before = so_far();
        (0..50).for_each(|_| op());
        assert_eq!(since(before), NONE, "{what}");
    };
    let gate = hold(&pool, 1);
    let soon = Duration::from_micros(300);
    costs("expired", &|| {
        is_expired(pool.do_with_deadline(|| (), soon))
    });
    must_serve(&pool, || ());
    costs("refused", &|| {
        assert!(pool.serve(words::<ROOM>()).is_err());
        let called = pool.do_with_deadline(words::<{ ROOM - 2 }>(), LONG);
        assert!(called.is_err());
    });
    gate.open();
    rest(&pool);
    let leave = || {
        let _ = pool.do_with_deadline(|| thread::sleep(ms(3)), Duration::from_micros(700));
        rest(&pool);
    };
    while pool.stats().timed_out == 0 {
        leave();
    }
    costs("timed out", &leave);
}

/// Laws 8 and 12: the memory that a task captured, in the closure itself or behind a pointer, is
/// freed before the task's caller returns. See pond 110.
fn captured_memory_is_gone() {
    let pool = pool(1, 1);
    fill_once(&pool);
    pool.do_with_deadline(|| (), LONG).unwrap();
    let before = so_far();
    let is_gone = |what: &str| {
        let (allocated, freed) = since(before);
        assert_eq!(allocated, freed, "{what}");
    };
    for _ in 0..20 {
        let behind = vec![1_u8; 1 << 20];
        let uses = move || black_box(&behind).len();
        pool.do_with_deadline(uses, LONG).unwrap();
        is_gone("behind a pointer");

        let inside = [1_u8; 10_000];
        let uses = move || black_box(&inside).len();
        pool.do_with_deadline(uses, LONG).unwrap();
        is_gone("in the closure");

        let shared = Arc::new(vec![1_u8; 1 << 20]);
        must_serve(&pool, move || drop(shared));
        rest(&pool);
        is_gone("served");
    }
}
