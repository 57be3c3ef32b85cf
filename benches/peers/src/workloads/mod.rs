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
