//! Law 12 (no allocation). This is a binary of its own because it counts what the whole process
//! allocates.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::Future;
use std::hint::black_box;
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{DeadlineError, Pool, WhenFull};

struct Counting;

static ALLOCATED: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicI64 = AtomicI64::new(0);

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

// SAFETY: passes every call on to the system's allocator and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_counted() {
            ALLOCATED.fetch_add(1, Ordering::SeqCst);
            LIVE.fetch_add(layout.size() as i64, Ordering::SeqCst);
        }
        // SAFETY: the caller upholds the conditions of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if is_counted() {
            FREED.fetch_add(1, Ordering::SeqCst);
            LIVE.fetch_sub(layout.size() as i64, Ordering::SeqCst);
        }
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const TURNS: u64 = 300;

/// The number of words of a closure's room that the feature `metrics` takes, as its documentation
/// says. Law 12's limits are lower by that.
const TAKEN: usize = cfg!(feature = "metrics") as usize;

/// Counts the allocations and frees of the whole process during `turns` calls of `op`, after a
/// warm-up.
fn count(pool: &Pool, turns: u64, mut op: impl FnMut()) -> (u64, u64) {
    for _ in 0..50 {
        op();
    }
    all_come_by(pool);
    let (allocated, freed) = (
        ALLOCATED.load(Ordering::SeqCst),
        FREED.load(Ordering::SeqCst),
    );
    for _ in 0..turns {
        op();
    }
    rest(pool);
    (
        ALLOCATED.load(Ordering::SeqCst) - allocated,
        FREED.load(Ordering::SeqCst) - freed,
    )
}

/// Runs one task on every worker. By then each worker has released the group and scope of its
/// earlier tasks, which may be freed only after the task has been counted.
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

/// Serves the closure, again and again until the pool accepts it: refusals must not allocate
/// either. A closure that costs an allocation is submitted to a pool at rest, so that exactly one
/// call is counted.
fn serve<F: FnOnce() + Send + 'static>(
    pool: &Pool,
    expect: (u64, u64),
    mut f: F,
    mut with: impl FnMut(F) -> Result<(), F>,
) {
    if expect != NONE {
        rest(pool);
    }
    while let Err(back) = with(f) {
        f = back;
        thread::yield_now();
    }
}

fn pool(max: usize, queue: usize, policy: WhenFull) -> Pool {
    Pool::builder()
        .max_workers(max)
        .queue_capacity(queue)
        .when_full(policy)
        .idle_timeout(Duration::MAX)
        .build()
        .expect("pool")
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

/// Checks one way to submit: how many allocations and frees each closure costs.
fn serve_within<F: FnOnce() + Send + Copy + 'static>(pool: &Pool, f: F, expect: (u64, u64)) {
    let size = size_of::<F>();
    let what = format!(
        "a closure of {size} bytes, {} workers, queue {}",
        pool.max_workers(),
        pool.queue_capacity()
    );
    assert_eq!(
        count(pool, TURNS, || serve(pool, expect, f, |f| pool
            .serve(f)
            .map_err(|refused| refused.into_inner()))),
        expect,
        "serve: {what}"
    );
}

fn view_within<F: FnOnce() + Send + Copy + 'static>(pool: &Pool, f: F, expect: (u64, u64)) {
    let view = pool.labeled("label");
    assert_eq!(
        count(pool, TURNS, || serve(pool, expect, f, |f| view
            .serve(f)
            .map_err(|refused| refused.into_inner()))),
        expect,
        "labeled serve: {} bytes",
        size_of::<F>()
    );
}

fn group_within<F: FnOnce() + Send + Copy + 'static>(pool: &Pool, f: F, expect: (u64, u64)) {
    let group = pool.group();
    // In the steady state a group has allocated the memory to note a place for every task that can
    // be queued.
    let all = pool.max_workers() + pool.queue_capacity();
    for tasks in [all, all / 3, all, all / 3, all] {
        rest(pool);
        let gate = Gate::new();
        (0..tasks).for_each(|_| must_serve_in(&group, gate.task()));
        gate.open();
        group.wait();
    }
    assert_eq!(
        count(pool, TURNS, || serve(pool, expect, f, |f| group
            .serve(f)
            .map_err(|refused| refused.into_inner()))),
        expect,
        "group serve: {} bytes",
        size_of::<F>()
    );
    group.wait();
}

fn scope_within<F: FnOnce() + Send + Copy + 'static>(pool: &Pool, f: F, expect: (u64, u64)) {
    let counted = pool.scope(|scope| {
        count(pool, TURNS, || {
            serve(pool, expect, f, |f| {
                scope.serve(f).map_err(|refused| refused.into_inner())
            })
        })
    });
    assert_eq!(counted, expect, "scope serve: {} bytes", size_of::<F>());
}

fn call_within<F, R>(pool: &Pool, f: F, d: Duration, expect: (u64, u64))
where
    F: FnOnce() -> R + Send + Copy + 'static,
    R: Send + 'static,
{
    assert_eq!(
        count(pool, TURNS, || drop(black_box(
            pool.do_with_deadline(f, d).expect("room for one")
        ))),
        expect,
        "do_with_deadline: {} bytes in, {} out, queue {}",
        size_of::<F>(),
        size_of::<R>(),
        pool.queue_capacity()
    );
}

fn labeled_call_within<F>(pool: &Pool, f: F, expect: (u64, u64))
where
    F: FnOnce() + Send + Copy + 'static,
{
    let view = pool.labeled("label");
    assert_eq!(
        count(pool, TURNS, || view
            .do_with_deadline(f, LONG)
            .expect("room for one")),
        expect,
        "labeled do_with_deadline: {} bytes",
        size_of::<F>()
    );
}

/// Polls a future until it is ready, without allocating.
fn ready<F: Future>(future: &mut Pin<&mut F>) -> F::Output {
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::yield_now(),
        }
    }
}

/// Law 22: the handle's allocation is the only one, even if the task has to wait in line.
fn in_line_within(pool: &Pool) {
    static HOLDS: AtomicBool = AtomicBool::new(false);
    let all = pool.max_workers() + pool.queue_capacity();
    let turn = || {
        rest(pool);
        HOLDS.store(true, Ordering::SeqCst);
        for _ in 0..all {
            let hold = || {
                while HOLDS.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
            };
            assert!(pool.serve(hold).is_ok(), "at rest");
        }
        let mut future = pin!(pool.awaitable().serve_async(|| 7_u64));
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        HOLDS.store(false, Ordering::SeqCst);
        let mut handle = ready(&mut future).map_err(|_| ()).unwrap();
        assert_eq!(ready(&mut Pin::new(&mut handle)).unwrap(), 7);
    };
    assert_eq!(count(pool, TURNS, turn), ONE, "in line");
}

/// Law 21: one allocation a task and none for its waits, for captures and results of any kind.
fn awaited_within<F, R>(pool: &Pool, f: F)
where
    F: FnOnce() -> R + Send + Copy + 'static,
    R: Send + 'static,
{
    let all = pool.labeled("label").with_deadline(LONG).run_limit(LONG);
    let group = all.group();
    let (plain, all) = (pool.awaitable(), group.awaitable());
    for (what, on) in [("plain", plain), ("with all options", all)] {
        let serve = || on.serve(f).map_err(|_| ()).expect("room for one");
        let joined = || drop(black_box(serve().join().expect("a value")));
        assert_eq!(count(pool, TURNS, joined), ONE, "joined, {what}");
        let awaited = || {
            let (mut handle, waker) = (serve(), Waker::noop());
            let mut poll = || Pin::new(&mut handle).poll(&mut Context::from_waker(waker));
            while poll().is_pending() {
                thread::yield_now();
            }
        };
        assert_eq!(count(pool, TURNS, awaited), ONE, "awaited, {what}");
        let waits = || {
            let handle = match serve().join_timeout(Duration::from_nanos(1)) {
                Ok(_) => return,
                Err(handle) => handle,
            };
            drop(handle.join());
        };
        assert_eq!(count(pool, TURNS, waits), ONE, "with a limit, {what}");
        let space_awaited = || {
            let mut handle = ready(&mut pin!(on.serve_async(f))).map_err(|_| ()).unwrap();
            drop(black_box(
                ready(&mut Pin::new(&mut handle)).expect("a value"),
            ));
        };
        assert_eq!(count(pool, TURNS, space_awaited), ONE, "space, {what}");
    }
}

const NONE: (u64, u64) = (0, 0);
/// One allocation and one free in each turn.
const ONE: (u64, u64) = (TURNS, TURNS);

/// Law 12: one part for each sentence of the law. The parts run one after the other because the
/// counts are those of the whole process. Each part has a time limit: on a busy machine many of the
/// turns wait for a time slice.
#[test]
fn law12_no_allocation_in_steady_state() {
    for (max, queue, policy) in [
        (1, 0, WhenFull::Refuse),
        (3, 0, WhenFull::Refuse),
        (1, 64, WhenFull::Refuse),
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
    let pool = pool(max, queue, policy);
    // In the steady state every worker exists, and its stack and thread-locals have been touched.
    assert_cap_usable_quietly(&pool);

    serve_within(&pool, || (), NONE);
    serve_within(&pool, bytes::<1>(), NONE);
    serve_within(&pool, bytes::<{ 47 - 8 * TAKEN }>(), NONE);
    serve_within(&pool, bytes::<{ 48 - 8 * TAKEN }>(), NONE);
    serve_within(&pool, words::<3>(), NONE);
    serve_within(&pool, words::<{ 6 - TAKEN }>(), NONE);
    serve_within(&pool, words::<{ 7 - TAKEN }>(), ONE);
    serve_within(&pool, words::<512>(), ONE);

    view_within(&pool, words::<0>(), NONE);
    view_within(&pool, words::<{ 4 - TAKEN }>(), NONE);
    view_within(&pool, words::<8>(), ONE);

    group_within(&pool, words::<{ 5 - TAKEN }>(), NONE);
    group_within(&pool, words::<8>(), ONE);
    scope_within(&pool, words::<{ 5 - TAKEN }>(), NONE);
    scope_within(&pool, words::<8>(), ONE);

    for d in [LONG, Duration::MAX] {
        call_within(&pool, || (), d, NONE);
        call_within(&pool, words::<1>(), d, NONE);
        call_within(&pool, words::<{ 4 - TAKEN }>(), d, NONE);
        call_within(&pool, bytes::<{ 32 - 8 * TAKEN }>(), d, NONE);
        call_within(&pool, words::<7>(), d, ONE);
        call_within(&pool, words::<256>(), d, ONE);
        // Results may be of any size.
        call_within(&pool, || 1_u8, d, NONE);
        call_within(&pool, || [black_box(1_u64); 9], d, NONE);
        call_within(&pool, || [black_box(1_u64); 2048], d, NONE);
        let load = [black_box(7_u64); 4 - TAKEN];
        call_within(&pool, move || (load, [1_u8; 777]), d, NONE);
    }
    in_line_within(&pool);
    awaited_within(&pool, words::<0>());
    awaited_within(&pool, words::<64>());
    awaited_within(&pool, || [black_box(1_u64); 99]);

    labeled_call_within(&pool, words::<0>(), NONE);
    labeled_call_within(&pool, words::<{ 2 - TAKEN }>(), NONE);

    // Callers and workers that have to sleep do not allocate either.
    let nap = || thread::sleep(Duration::from_micros(300));
    let counted = count(&pool, 40, || pool.do_with_deadline(nap, LONG).unwrap());
    assert_eq!(counted, NONE, "parked");
}

/// Does the work of `common::assert_cap_usable`, so that all workers are started.
fn assert_cap_usable_quietly(pool: &Pool) {
    let gate = Gate::new();
    for _ in 0..pool.max_workers() + pool.queue_capacity() {
        must_serve(pool, gate.task());
    }
    wait_until("every worker", || gate.entered() == pool.max_workers());
    gate.open();
    rest(pool);
}

/// Law 12 with several callers, each on a thread that has been warmed up.
fn everyone_at_once() {
    for (max, queue, policy) in [
        (4, 0, WhenFull::Refuse),
        (2, 2, WhenFull::Refuse),
        (1, 0, WhenFull::Block),
        (1, 3, WhenFull::Block),
    ] {
        let pool = pool(max, queue, policy);
        assert_cap_usable_quietly(&pool);
        let start = std::sync::Barrier::new(5);
        let gate = Gate::new();
        let blocks = policy == WhenFull::Block;
        if blocks {
            (0..max + queue).for_each(|_| must_serve(&pool, gate.task()));
        }
        let counted = thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    let turns = |n| {
                        for i in 0..n {
                            let load = [i; 4 - TAKEN];
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
            // The list of waiting callers grows to its final length.
            wait_until("all callers to wait", || {
                !blocks || pool.stats().waiting == 4
            });
            gate.open();
            start.wait();
            rest(&pool);
            let before = (
                ALLOCATED.load(Ordering::SeqCst),
                FREED.load(Ordering::SeqCst),
            );
            start.wait();
            start.wait();
            rest(&pool);
            let after = (
                ALLOCATED.load(Ordering::SeqCst),
                FREED.load(Ordering::SeqCst),
            );
            start.wait();
            (after.0 - before.0, after.1 - before.1)
        });
        assert_eq!(counted, NONE, "{max} workers, queue {queue}, {policy:?}");
    }
}

/// Law 12: refusals, expiries and time-outs do not allocate either.
fn the_other_outcomes() {
    let pool = pool(1, 1, WhenFull::Refuse);
    assert_cap_usable_quietly(&pool);
    let expired = |f: fn()| {
        matches!(
            pool.do_with_deadline(f, Duration::from_micros(300)),
            Err(DeadlineError::Expired(_))
        )
    };
    let gate = Gate::new();
    must_serve(&pool, gate.task());
    gate.wait_entered(1);
    let before = |n: u64| {
        for _ in 0..n {
            assert!(expired(|| ()));
        }
        (
            ALLOCATED.load(Ordering::SeqCst),
            FREED.load(Ordering::SeqCst),
        )
    };
    let warm = before(20);
    assert_eq!(before(50), warm, "expired in the queue");
    must_serve(&pool, || ());
    let refuse = |n: u64| {
        for _ in 0..n {
            assert!(pool.serve(words::<{ 6 - TAKEN }>()).is_err());
            assert!(pool
                .do_with_deadline(words::<{ 4 - TAKEN }>(), LONG)
                .is_err());
        }
        (
            ALLOCATED.load(Ordering::SeqCst),
            FREED.load(Ordering::SeqCst),
        )
    };
    let warm = refuse(20);
    assert_eq!(refuse(200), warm, "refused");
    gate.open();
    rest(&pool);
    let leave = |n: u64| {
        for _ in 0..n {
            let nap = || thread::sleep(ms(3));
            let _ = pool.do_with_deadline(nap, Duration::from_micros(700));
            rest(&pool);
        }
        (
            ALLOCATED.load(Ordering::SeqCst),
            FREED.load(Ordering::SeqCst),
        )
    };
    let mut warm = leave(10);
    while pool.stats().timed_out == 0 {
        warm = leave(1);
    }
    assert_eq!(leave(30), warm, "timed out");
}

/// Laws 8 and 12: a mebibyte captured by a task, in the closure itself or behind a pointer, is
/// freed before the task's caller returns. See pond 110.
fn captured_memory_is_gone() {
    let pool = pool(1, 1, WhenFull::Refuse);
    assert_cap_usable_quietly(&pool);
    pool.do_with_deadline(|| (), LONG).unwrap();
    let before = LIVE.load(Ordering::SeqCst);
    for _ in 0..20 {
        let memory = vec![1_u8; 1 << 20];
        pool.do_with_deadline(move || black_box(&memory).len(), LONG)
            .unwrap();
        assert_eq!(LIVE.load(Ordering::SeqCst), before, "behind a pointer");

        let memory = [1_u8; 10_000];
        pool.do_with_deadline(move || black_box(&memory).len(), LONG)
            .unwrap();
        assert_eq!(LIVE.load(Ordering::SeqCst), before, "in the closure");

        let memory = Arc::new(vec![1_u8; 1 << 20]);
        must_serve(&pool, move || drop(memory));
        rest(&pool);
        assert_eq!(LIVE.load(Ordering::SeqCst), before, "served");
    }
}
