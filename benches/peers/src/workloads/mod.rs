//! The workloads, by group.

mod awaited;
mod batch;
mod burst;
mod direct;
mod footprint;
mod instructions;
mod latency;
mod limits;
mod original;
mod overload;
mod overshoot;
mod queue;
mod refusal;
mod scale;
mod services;
mod timed;

use crate::contenders::{visit_all, Contender, Visitor};
use crate::harness::{Options, Workload};
use crate::tally::Tally;
use crossbeam_utils::CachePadded;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use instructions::count as instructions;

/// Takes a workload that is to run.
pub(crate) type Add<'a> = &'a mut dyn FnMut(Box<dyn Workload>);

/// A group of workloads: lists those that are asked for.
pub(crate) type Group = fn(&Options, Add<'_>);

/// All groups, in the order in which they run.
pub(crate) const ALL: &[Group] = &[
    limits::list,
    queue::list,
    direct::list,
    timed::list,
    awaited::list,
    batch::list,
    refusal::list,
    burst::list,
    original::list,
    services::list,
    latency::list,
    overload::list,
    overshoot::list,
    scale::list,
    footprint::list,
];

/// Fits all queues: what may wait where a pool can bound it.
pub(crate) const QUEUE: usize = 1024;
/// One per core of the machine that the figures were first taken on.
pub(crate) const WORKERS: usize = 2;

/// The first argument of a process that this program starts to measure something in it;
/// then a contender, what to do, and how often if instructions are counted.
const CHILD: &str = "--child";

pub(crate) fn is_child(arg: &str) -> bool {
    arg == CHILD
}

/// What such a process does.
pub(crate) fn child(args: &mut impl Iterator<Item = String>) -> Option<ExitCode> {
    struct Child {
        name: String,
        what: String,
        operations: Option<u64>,
        done: bool,
    }
    impl Visitor for Child {
        fn visit<C: Contender>(&mut self) {
            if C::NAME == self.name {
                self.done = match self.operations {
                    Some(n) => instructions::perform::<C>(&self.what, n),
                    None => footprint::report::<C>(&self.what),
                };
            }
        }
    }
    let mut child = Child {
        name: args.next()?,
        what: args.next()?,
        operations: args.next().map(|n| n.parse()).transpose().ok()?,
        done: false,
    };
    let _observed = crate::observers::install();
    visit_all(&mut child);
    child.done.then_some(ExitCode::SUCCESS)
}

/// Time that `producers` threads take for `n` tasks, until all of them have run. They take from
/// what is left, so that none is done long before the others: it would wait on a core that the
/// pool's workers then lack.
fn served(producers: u64, n: u64, feed: impl Fn(u64) + Sync) -> Duration {
    let portion = (n / producers / 64).clamp(1, 256);
    let left = CachePadded::new(AtomicU64::new(n));
    let ready = Barrier::new(producers as usize);
    let produce = || loop {
        // Relaxed: a count.
        let taken = left.fetch_update(Relaxed, Relaxed, |left| {
            (left > 0).then(|| left.saturating_sub(portion))
        });
        match taken {
            Ok(before) => feed(before.min(portion)),
            Err(_) => break,
        }
    };
    let tally = Tally::start();
    thread::scope(|s| {
        for _ in 1..producers {
            s.spawn(|| {
                ready.wait();
                produce();
            });
        }
        ready.wait();
        let start = Instant::now();
        produce();
        tally.wait(n);
        start.elapsed()
    })
}
