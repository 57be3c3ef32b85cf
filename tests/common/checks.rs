//! Waits for a pool's figures, and the checks of law 9.

use lazypool::{Pool, Stats};

use super::{saturated, wait_until, Gate};

/// Asserts figures of a pool by their names, and returns all of its figures:
/// `assert_stats!(pool.stats(), completed: 1, refusals.closed: 0)`.
macro_rules! assert_stats {
    ($stats:expr, $($($figure:ident).+: $expected:expr),+ $(,)?) => {{
        let stats: lazypool::Stats = $stats;
        $(assert_eq!(
            stats.$($figure).+,
            $expected,
            "{}: {stats:?}",
            stringify!($($figure).+)
        );)+
        stats
    }};
}
pub(crate) use assert_stats;

/// Waits until no task runs or is queued, then returns the pool's statistics.
#[track_caller]
pub fn settle(pool: &Pool) -> Stats {
    wait_until("the pool to come to rest", || {
        let s = pool.stats();
        // A worker that is being started, or that ends, is in `workers` and not in `idle`.
        s.running == 0 && s.queued == 0 && s.idle == s.workers
    });
    pool.stats()
}

/// Waits until no worker is being started or ends. Until then such a worker counts as busy.
#[track_caller]
pub fn await_started(pool: &Pool) {
    wait_until("workers to be started", || {
        let s = pool.stats();
        s.idle + s.running == s.workers
    });
}

/// Checks the invariants of law 9 that hold at every moment.
#[track_caller]
pub fn check_moment(pool: &Pool, s: &Stats) {
    let r = s.refusals;
    let by_state = r.saturated + r.closed + r.cancelled + r.spawn_failed + r.expired;
    let by_place = r.on_worker + r.forked + r.group_full;
    let ended = s.completed + s.panicked + s.expired + s.discarded;
    let max = pool.max_workers();
    for (holds, what) in [
        (s.refused == by_state + by_place, "refusals by reason"),
        (s.abandoned <= s.running, "abandoned <= running"),
        (s.spawned >= s.retired, "spawned >= retired"),
        (
            s.workers as u64 == s.spawned.wrapping_sub(s.retired),
            "workers",
        ),
        (s.running <= max, "running <= max_workers"),
        (s.idle <= s.workers, "idle <= workers"),
        (s.workers <= max, "workers <= max_workers"),
        (s.peak_workers <= max, "peak_workers <= max_workers"),
        (
            s.queued <= pool.queue_capacity(),
            "queued <= queue_capacity",
        ),
        (ended <= s.accepted, "no ending before its acceptance"),
    ] {
        assert!(holds, "{what}: {s:?}");
    }
    // A counter that went below zero shows as a number that no test reaches.
    let [a, b] = [s.spawn_failures, s.hook_panics];
    for n in [
        s.accepted,
        s.refused,
        ended,
        s.timed_out,
        s.spawned,
        s.retired,
        a,
        b,
    ] {
        assert!(n < u64::MAX / 2, "underflow: {s:?}");
    }
}

/// Checks law 9's balance, which holds while no call is under way, and returns the statistics.
#[track_caller]
pub fn check_at_rest(pool: &Pool) -> Stats {
    let s = pool.stats();
    check_moment(pool, &s);
    assert_eq!(
        s.accepted,
        s.completed + s.panicked + s.expired + s.discarded + s.queued as u64 + s.running as u64,
        "the ledger does not balance: {s:?}"
    );
    s
}

/// Checks that the whole cap is usable: the pool accepts exactly `max_workers + queue_capacity`
/// tasks, runs `max_workers` of them at once and refuses the next.
#[track_caller]
pub fn assert_cap_usable(pool: &Pool) {
    let gate = Gate::new();
    let before = settle(pool);
    let cap = pool.max_workers() + pool.queue_capacity();
    for i in 0..cap {
        if let Err(refused) = pool.serve(gate.task()) {
            panic!("task {i} of {cap} refused: {refused}; {:?}", pool.stats());
        }
    }
    let refused = pool
        .serve(gate.task())
        .expect_err("the task beyond the cap is refused");
    assert!(refused.is_saturated(), "{refused:?}");
    drop(refused);
    wait_until("every worker to take a task", || {
        gate.entered() == pool.max_workers()
    });
    let s = pool.stats();
    assert_eq!(s.running, pool.max_workers(), "{s:?}");
    assert_eq!(s.queued, pool.queue_capacity(), "{s:?}");
    gate.open();
    let after = settle(pool);
    assert_eq!(after.completed - before.completed, cap as u64, "{after:?}");
}

/// Waits until no task runs or is queued and the core's figures fit together, checks law 9's balance and returns
/// the statistics.
#[track_caller]
pub fn at_rest(pool: &Pool) -> Stats {
    settle(pool);
    wait_until("figures that fit together", || {
        format!("{pool:?}").contains("findings: []")
    });
    check_at_rest(pool)
}

/// Waits until `n` tasks are queued.
#[track_caller]
pub fn await_queued(pool: &Pool, n: usize) {
    wait_until("tasks to be queued", || pool.stats().queued == n);
}

/// Waits until the pool has `n` workers.
#[track_caller]
pub fn await_workers(pool: &Pool, n: usize) {
    wait_until("workers to start or end", || pool.stats().workers == n);
}
