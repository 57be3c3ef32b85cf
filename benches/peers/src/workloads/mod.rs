//! The workloads, by group.

mod batch;
mod burst;
mod direct;
mod footprint;
mod latency;
mod limits;
mod overshoot;
mod queue;
mod refusal;
mod scale;
mod timed;

use crate::harness::{Options, Table};
use crate::tally::Tally;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use footprint::{child, is_child};

/// A group of workloads: runs those that are asked for, and returns their
/// tables one by one as they are done.
pub(crate) type Group = fn(&Options, &mut dyn FnMut(Table));

/// All groups, in the order in which they run.
pub(crate) const ALL: &[Group] = &[
    limits::run,
    queue::run,
    direct::run,
    timed::run,
    batch::run,
    refusal::run,
    burst::run,
    latency::run,
    overshoot::run,
    scale::run,
    footprint::run,
];

/// Fits all queues: what may wait where a pool can bound it.
pub(crate) const QUEUE: usize = 1024;
/// One per core of the machine that the figures were first taken on.
pub(crate) const WORKERS: usize = 2;

/// Time that `producers` threads take for `n` tasks, each feeding its share, until
/// all of them have run.
fn served(producers: u64, n: u64, feed: impl Fn(u64) + Sync) -> Duration {
    let share = n.div_ceil(producers);
    let ready = Barrier::new(producers as usize);
    let tally = Tally::start();
    thread::scope(|s| {
        for _ in 1..producers {
            s.spawn(|| {
                ready.wait();
                feed(share);
            });
        }
        ready.wait();
        let start = Instant::now();
        feed(share);
        tally.wait(share * producers);
        start.elapsed()
    })
}
