//! Law 20: the cancel of a group costs time for its own queued tasks, and none for those of others.
//!
//! Each test compares two runs of the same program on the same machine. The limits are many times
//! the expected cost, and a small part of a cost in proportion to everything that is queued.

mod common;

use std::time::{Duration, Instant};

use common::*;
use lazypool::{Group, Pool};

const MANY: usize = cut(30_000) as usize;
/// Added for a machine that is busy with other work.
const SLACK: Duration = limit(1);

const fn limit(half_seconds: u64) -> Duration {
    ms(if cfg!(miri) { 100_000 } else { 500 } * half_seconds)
}

/// Measures three times and returns the shortest time.
fn best(measure: impl Fn() -> Duration) -> Duration {
    (0..3).map(|_| measure()).min().expect("three")
}

/// Returns a pool whose queue holds `MANY` groups with one task each.
fn with_groups(gate: &Gate) -> (Pool, Vec<Group>) {
    let pool = occupied(gate, MANY);
    let groups: Vec<_> = (0..MANY).map(|_| pool.group()).collect();
    groups.iter().for_each(|group| must_serve_in(group, || ()));
    (pool, groups)
}

/// Measures how long it takes to take `MANY` tasks out by their handles.
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

/// Groups of one queued task each are cancelled, oldest or newest first, while all of them are
/// held. Once, each cancel walked the queue up to its task, and all groups cancelled before it.
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

/// Measures the cancels of groups with one running task each, beside `queued` tasks of others.
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

/// The cancel of a group without queued tasks does not look at the queue, however long that is.
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
