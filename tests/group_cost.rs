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
