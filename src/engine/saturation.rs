//! Saturation: how a submission proves that the pool has no space, before it is refused.
//!
//! Claim V of `proofs.md` has the proof. In short: the submission reads the numbers of pushes into
//! both rings, finds both rings empty, and reads the numbers again. If the numbers are equal, no
//! entry was pushed, so both rings stayed empty. Then a worker without a task must have been on the
//! bench or counted in flight. The submission looks at both, and finds no worker. If it also finds
//! the queue full between two equal readings of `head`, the queue was full at the same time.
//!
//! The proof only reads memory. So a saturated pool refuses a task without writing to the cache
//! lines of its workers.
//!
//! If a worker was claimed by affinity, its entry stays in the ready ring while the worker is busy,
//! so the ring is not empty. The submission then takes the entry out and tries again.

use super::core::Core;
use crate::parts::backoff::{BoundedSpin, Step};
use crate::parts::queue::Queue;
use crate::work::job::Task;

/// Proof that a submission saw all workers busy and no slot free. The fields are the numbers of
/// pushes into the two rings at that time.
#[derive(Debug, Clone, Copy)]
pub(super) struct AllBusy {
    ready: u64,
    freed: u64,
}

impl Core {
    /// Returns the numbers of pushes if no worker is idle, in flight or on the bench, and no slot
    /// is free (V1, steps 2 to 4). Reads only the two ends of each ring.
    #[inline(always)]
    pub(super) fn all_busy(&self) -> Option<AllBusy> {
        let (ready, freed) = (self.ready.pushes(), self.free.pushes());
        let all_busy = self.none_are_in_flight()
            && self.ready.is_drained(ready)
            && self.free.is_drained(freed);
        all_busy.then_some(AllBusy { ready, freed })
    }

    /// Returns `true` if no entry has been pushed into either ring since `then`.
    ///
    /// If the bench is empty, too, every worker that was busy `then` will look at the queue once
    /// more, and so finds a task that this thread has pushed since. A worker that has gone idle or
    /// ended since would have pushed an entry, would be on the bench, or would have freed its slot.
    /// There is one exception. A worker pushes no entry if another thread has popped its last entry
    /// and not yet cleared `LISTED`. That thread then claims the worker or finds it claimed. So the
    /// worker gets an order, and looks at the queue after it.
    #[inline]
    pub(super) fn is_unchanged(&self, then: AllBusy) -> bool {
        self.ready.pushes() == then.ready && self.free.pushes() == then.freed
    }

    /// Returns `true` if no worker is on the bench or counted in flight.
    ///
    /// The bench is read before the counts (V4), because a worker that leaves the bench to end or
    /// to search is counted before it leaves. In the other order, both readings could miss that
    /// worker.
    #[inline]
    fn none_are_in_flight(&self) -> bool {
        !self.is_any_benched() && self.in_flight.see().is_zero()
    }

    /// Returns `true` if at one moment during this call every worker was busy and the queue was
    /// full (claim V).
    #[inline(always)]
    pub(super) fn is_saturated(&self, queue: Option<&Queue<Task>>) -> bool {
        let Some(queue) = queue else {
            return self.are_all_busy_while(|| true);
        };
        let pops = queue.load_head();
        // The oldest cell is checked last, because a dead cell stays dead until `head` moves past
        // it. So a cell that is not dead now was not dead at that moment either.
        self.are_all_busy_while(|| queue.is_full(pops))
            && queue.is_oldest_there(pops)
            && queue.load_head() == pops
    }

    #[inline(always)]
    fn are_all_busy_while(&self, full: impl Fn() -> bool) -> bool {
        let all_busy = self.all_busy();
        all_busy.is_some_and(|then| full() && self.none_are_in_flight() && self.is_unchanged(then))
    }

    /// Spins for a moment, and returns `true` as soon as there is space. A few short tasks may end
    /// soon, and a sleep costs more than the spin. Does not spin while other submissions wait in
    /// line, because they get the space first.
    pub(super) fn spin_for_space(&self, spin: &mut BoundedSpin) -> bool {
        while self.line.waiting() == 0 && spin.step() != Step::Spent {
            let room = match &self.queue {
                Some(queue) => queue.has_ample_room(),
                None => !self.ready.is_empty(),
            };
            if room {
                return true;
            }
        }
        false
    }
}
