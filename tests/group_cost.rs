//! Law 20: the cancel of a group costs time for its own queued tasks, and none for those of others.
//!
//! Each test compares two runs of the same program on the same machine. A limit is many times the
//! expected cost. It is a small fraction of a cost that grows with everything that is queued.

mod common;

use std::time::{Duration, Instant};

use common::*;
use lazypool::{Group, Pool};

const MANY: usize = cut(30_000) as usize;
/// Added for a machine that is busy with other work.
const SLACK: Duration = ms(if cfg!(miri) { 100_000 } else { 500 });

/// Makes a pool and measures how long it takes to cancel `tasks` of its tasks, three times. Returns
/// the shortest time.
fn best<T>(tasks: usize, make: impl Fn(&Gate) -> (Pool, T), cancel: impl Fn(T)) -> Duration {
    let measure = |_| {
        let gate = Gate::new();
        let (pool, its) = make(&gate);
        let start = Instant::now();
        cancel(its);
        let took = start.elapsed();
        let s = pool.stats();
        assert_eq!(s.discarded as usize + s.abandoned, tasks, "{s:?}");
        gate.open();
        took
    };
    (0..3).map(measure).min().expect("three")
}

/// Groups of one queued task each are cancelled, oldest or newest first, while none of them is
/// dropped. This is as quick as taking the tasks out by their handles. Formerly, each cancel walked
/// the queue up to its task, and all groups cancelled before it.
#[test]
fn law20_many_groups_of_one_queued_task() {
    timed(|| {
        let with_handles = |gate: &Gate| {
            let pool = occupied(gate, MANY);
            let handles = (0..MANY).map(|_| must_await(pool.awaitable(), || ()));
            let handles: Vec<_> = handles.collect();
            (pool, handles)
        };
        let expected = best(MANY, with_handles, |handles| {
            handles.into_iter().rev().for_each(drop)
        });
        for newest_first in [false, true] {
            let with_groups = |gate: &Gate| {
                let pool = occupied(gate, MANY);
                let mut groups: Vec<_> = (0..MANY).map(|_| pool.group()).collect();
                groups.iter().for_each(|group| must_serve_in(group, || ()));
                if newest_first {
                    groups.reverse();
                }
                (pool, groups)
            };
            let took = best(MANY, with_groups, |groups| {
                groups.iter().for_each(Group::cancel)
            });
            let limit = 20 * expected + SLACK;
            assert!(took < limit, "{took:?}, by handles {expected:?}");
        }
    });
}

/// The cancel of a group without queued tasks does not look at the queue, however long that is.
#[test]
fn law20_a_group_that_has_nothing_queued() {
    const RUNNING: usize = cut(100) as usize;
    timed(|| {
        let beside = |queued: usize| {
            let with_running = |gate: &Gate| {
                let pool = pool(RUNNING, queued.max(1));
                let groups: Vec<_> = (0..RUNNING).map(|_| pool.group()).collect();
                (groups.iter()).for_each(|group| must_serve_in(group, gate.task()));
                gate.wait_entered(RUNNING);
                let others = pool.group();
                (0..queued).for_each(|_| must_serve_in(&others, || ()));
                (pool, (groups, others))
            };
            best(RUNNING, with_running, |(groups, _)| {
                groups.iter().for_each(Group::cancel)
            })
        };
        let (short, long) = (beside(0), beside(cut(200_000) as usize));
        let limit = 20 * short + SLACK / 5;
        assert!(long < limit, "{long:?}, without a queue {short:?}");
    });
}

/// Cancels groups, beside whatever `beside` adds to the pool, until all are cancelled or `limit`
/// has passed. Returns how long that took.
fn cancel_each(groups: &[Group], limit: Duration) -> Duration {
    let start = Instant::now();
    for (n, group) in groups.iter().enumerate() {
        group.cancel();
        let (took, all) = (start.elapsed(), groups.len());
        assert!(took < limit, "{n} of {all} cancels took {took:?}");
    }
    start.elapsed()
}

/// The cancel of a group with one submission in line does not look at what others have in line,
/// however long the line is.
#[test]
fn law20_groups_that_wait_in_a_long_line() {
    const OTHERS: usize = cut(200_000) as usize;
    timed(|| {
        let beside = |others: usize, limit: Duration| {
            let (pool, _gate) = held(0);
            let submit = |on: lazypool::Awaitable<'_>| {
                pending(on.serve_async(|| ()), std::task::Waker::noop())
            };
            let others = Vec::from_iter((0..others).map(|_| submit(pool.awaitable())));
            let groups = Vec::from_iter((0..cut(2_000)).map(|_| pool.group()));
            let its = Vec::from_iter(groups.iter().map(|group| submit(group.awaitable())));
            let took = cancel_each(&groups, limit);
            assert_eq!(pool.stats().waiting, others.len());
            drop(its);
            took
        };
        let short = beside(0, LIMIT);
        beside(OTHERS, 20 * short + SLACK);
    });
}

/// The cancel of a group with one queued task does not look at each worker that the pool may have.
#[test]
fn law20_groups_of_a_pool_that_may_have_many_workers() {
    const GROUPS: usize = cut(10_000) as usize;
    timed(|| {
        let with_workers = |max: usize, limit: Duration| {
            let pool = pool(max, GROUPS);
            pool.set_limit(1).unwrap();
            let _gate = hold(&pool, 1);
            let groups = Vec::from_iter((0..GROUPS).map(|_| pool.group()));
            groups.iter().for_each(|group| must_serve_in(group, || ()));
            let took = cancel_each(&groups, limit);
            assert_eq!(pool.stats().discarded as usize, GROUPS);
            took
        };
        let few = with_workers(1, LIMIT);
        with_workers(if cfg!(miri) { 64 } else { 65_536 }, 20 * few + SLACK);
    });
}

/// A task that is queued behind many cancelled ones starts as soon as a worker has passed over them, also behind a
/// million. The worker makes progress all the time, so it does not sleep meanwhile. An older task is queued before them:
/// otherwise the cancel itself would pass over them.
#[cfg(target_os = "linux")]
#[test]
fn law20_a_task_behind_many_cancelled_ones() {
    let cases = [(1, cut(1_000_000) as usize), (2, cut(200_000) as usize)];
    isolated_each(cases, |(workers, cancelled)| {
        let pool = pool(workers, 1 + cancelled + workers);
        let (busy, behind) = (hold(&pool, workers), Gate::new());
        let group = pool.group();
        must_serve(&pool, || ());
        let must_not_run = || unreachable!("cancelled");
        (0..cancelled).for_each(|_| must_serve_in(&group, must_not_run));
        group.cancel();
        assert_eq!((group.discarded(), group.pending()), (cancelled, 0));
        (0..workers).for_each(|_| must_serve(&pool, behind.task()));
        let (_, before) = os::others_activity();
        busy.open();
        behind.wait_entered(workers);
        let (_, after) = os::others_activity();
        let sleeps = after - before;
        assert!(sleeps < 100, "the workers slept {sleeps} times");
        behind.open();
        let s = at_rest(&pool);
        let (discarded, completed) = (cancelled as u64, 1 + 2 * workers as u64);
        assert_stats!(s, discarded: discarded, completed: completed, panicked: 0);
        assert_eq!(s.accepted, discarded + completed);
    });
}
