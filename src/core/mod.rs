//! The core: what `serve` and `do_with_deadline` need.
#![doc = include_str!("protocol.md")]
#![doc = include_str!("proofs.md")]
#![doc = include_str!("stopped.md")]

pub(crate) mod call;
pub(crate) mod host;
mod last_worker;
mod look_anyway;
#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod page_tests;
mod pay;
pub(crate) mod place;
pub(crate) mod submission;
pub(crate) mod worker;

use crate::parts::backoff::cores;
use crate::parts::gate::Gate;
use crate::parts::in_flight::InFlight;
use crate::parts::queue::Queue;
use crate::parts::ring::Ring;
use crate::parts::slot::{self, Slot};
use crate::work::env::Env;
use crate::work::job::Task;
use crate::work::record::Record;

/// The right to give a worker its next order.
pub(crate) type Claim<'a> = slot::Claim<'a, Task, Record>;

/// The right to hand a worker its next task.
pub(crate) type TaskClaim<'a> = slot::TaskClaim<'a, Task, Record>;

/// The state that submissions and workers share. No two of the parts share a cache line.
///
/// The pool around it is the [`Host`](host::Host). The core knows the host only by that trait, and by the [`Entrance`](call::Entrance) of a call.
#[repr(C)]
pub(crate) struct Core<H> {
    pub(crate) env: Env,
    pub(crate) slots: Box<[Slot<Task, Record>]>,
    /// How many tasks may wait for a worker. The queue has more cells than that.
    pub(crate) queue_capacity: usize,
    /// Set if this process may use more than one processor core. Only then can spinning pay off.
    pub(crate) parallel: bool,

    pub(crate) gate: Gate,
    /// Has a cell for each permit of the gate. In a pool whose `queue_capacity` is zero, a task lies
    /// here only while the worker that takes it is between two steps, starts, or calls user code; or if the
    /// host has withdrawn the worker that was idle as the permit was taken.
    pub(crate) queue: Queue<Task>,
    pub(crate) ready: Ring,
    pub(crate) free: Ring,
    pub(crate) in_flight: InFlight,

    pub(crate) host: H,
}

impl<H> Core<H> {
    /// Creates the core of a pool that has no worker yet. `host` is given the queue.
    pub(crate) fn new(
        env: Env,
        max_workers: usize,
        queue_capacity: usize,
        host: impl FnOnce(&Queue<Task>) -> H,
    ) -> Self {
        let permits = max_workers + queue_capacity;
        let queue = Queue::new(permits);
        Self {
            env,
            slots: (0..max_workers).map(|_| Slot::new(Record::new())).collect(),
            queue_capacity,
            parallel: cores() > 1,
            gate: Gate::new_asleep(permits),
            host: host(&queue),
            queue,
            ready: Ring::new(max_workers, 0),
            free: Ring::new(max_workers, max_workers),
            in_flight: InFlight::default(),
        }
    }

    /// Returns the number of slots: how many workers there may ever be at once.
    pub(crate) fn max_workers(&self) -> usize {
        self.slots.len()
    }

    /// Returns `true` if the pool was built with a queue.
    #[inline]
    pub(crate) fn has_queue(&self) -> bool {
        self.queue_capacity > 0
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl<H> Core<H> {
    /// Asserts that no count is raised, no permit taken and nothing queued. Returns the entries of the
    /// free ring. Models call it after all threads have ended.
    pub(crate) fn assert_at_rest(&self) -> Vec<usize> {
        self.in_flight.assert_at_rest();
        self.gate.assert_at_rest();
        self.queue.assert_at_rest();
        let all = |ring: &Ring| -> Vec<_> { std::iter::from_fn(|| ring.pop()).collect() };
        let listed = all(&self.ready);
        for (index, slot) in self.slots.iter().enumerate() {
            let times = listed.iter().filter(|&&l| l == index).count();
            assert!(times <= 1, "listed {times} times");
            slot.assert_at_rest(times == 1);
            slot.record.assert_at_rest();
        }
        all(&self.free)
    }
}
