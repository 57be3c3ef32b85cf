//! Law 20: what the cancel of a group costs: what of the group is queued, and nothing of others.
//!
//! Each measure compares two runs of one program on one machine. The limits are many times what is
//! expected, and a small part of what a cost in proportion to all that is queued would be.

mod common;

use std::time::{Duration, Instant};

use common::*;
use lazypool::{Group, Pool};

const MANY: usize = cut(30_000) as usize;
/// For a machine that is busy with other things.
const SLACK: Duration = limit(1);

const fn limit(half_seconds: u64) -> Duration {
    ms(if cfg!(miri) { 100_000 } else { 500 } * half_seconds)
}

/// Measures three times; the best counts.
fn best(measure: impl Fn() -> Duration) -> Duration {
    (0..3).map(|_| measure()).min().expect("three")
}

/// A pool whose queue holds so many groups with one task each.
fn with_groups(gate: &Gate) -> (Pool, Vec<Group>) {
    let pool = occupied(gate, MANY);
    let groups: Vec<_> = (0..MANY).map(|_| pool.group()).collect();
    groups.iter().for_each(|group| must_serve_in(group, || ()));
    (pool, groups)
}

/// What it costs to take as many tasks out by their handles.
fn handles() -> Duration {
    let gate = Gate::new();
    let pool = occupied(&gate, MANY);
    let handles: Vec<_> = (0..MANY)
        .map(|_| must_await(pool.awaitable(), || ()))
        .collect();
    let start = Instant::now();
    handles.into_iter().rev().for_each(drop);
    let took = start.elapsed();
    assert_eq!(pool.stats().discarded, MANY as u64);
    gate.open();
    took
}

/// Groups of one queued task each, cancelled oldest or newest first, and all of them still held. Once each
/// cancel walked the queue up to its task, and all groups that had been cancelled before.
#[test]
fn law20_many_groups_of_one_queued_task() {
    timed(|| {
        let expected = best(handles);
        for newest_first in [false, true] {
            let took = best(|| {
                let gate = Gate::new();
                let (pool, groups) = with_groups(&gate);
                let start = Instant::now();
                if newest_first {
                    groups.iter().rev().for_each(Group::cancel);
                } else {
                    groups.iter().for_each(Group::cancel);
                }
                let took = start.elapsed();
                assert_eq!(pool.stats().discarded, MANY as u64);
                gate.open();
                took
            });
            assert!(
                took < 20 * expected + SLACK,
                "{took:?}, by handles {expected:?}"
            );
        }
    });
}

/// Groups with one running task each, beside so many queued tasks of others.
fn running_beside(queued: usize) -> Duration {
    const RUNNING: usize = cut(100) as usize;
    let gate = Gate::new();
    let pool = pool(RUNNING, queued.max(1));
    let groups: Vec<_> = (0..RUNNING).map(|_| pool.group()).collect();
    groups
        .iter()
        .for_each(|group| must_serve_in(group, gate.task()));
    gate.wait_entered(RUNNING);
    let others = pool.group();
    (0..queued).for_each(|_| must_serve_in(&others, || ()));
    let start = Instant::now();
    groups.iter().for_each(Group::cancel);
    let took = start.elapsed();
    let stats = pool.stats();
    assert_eq!((stats.abandoned, stats.discarded), (RUNNING, 0));
    others.cancel();
    gate.open();
    took
}

/// A group that has nothing queued: its cancel looks at no queue, however long that is.
#[test]
fn law20_a_group_that_has_nothing_queued() {
    timed(|| {
        let short = best(|| running_beside(0));
        let long = best(|| running_beside(cut(200_000) as usize));
        assert!(
            long < 20 * short + SLACK / 5,
            "{long:?}, without a queue {short:?}"
        );
    });
}
