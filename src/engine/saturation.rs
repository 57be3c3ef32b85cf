//! Saturation: when nobody could be given a task, and when a submission is refused for it.
//!
//! **Never refused in vain.** A worker or slot that is neither occupied nor visible through
//! the rings is counted in flight or on the bench, *before* it leaves the rings and until it is
//! back. A submission refuses only if, between two equal readings of the rings' pushes and the
//! queue's pops, with nobody counted at either end, the free ring was empty, then the ready
//! ring, and then the queue full (P4). A worker can have become unoccupied in between only by
//! entering the ready ring (seen), by an entry that another submission held and followed
//! through (occupied by that), or by an entry that was left in the ring: by a claim by affinity,
//! or by a worker that claims itself or is told to end, and then stays. It is seen idle or on its
//! own, or its word has changed: a count that comes and goes between the two looks is no matter.
//! So at the moment at which the queue was found full, every worker was occupied. All of these
//! words are read-only in a saturated pool: a refusal moves no cache line.

use super::core::Core;
use crate::parts::backoff::{BoundedSpin, Step};
use crate::parts::queue::Queue;
use crate::parts::slot::Word;
use crate::work::job::Task;

/// What a submission saw before its push: nobody idle and no slot free, after so many pushes
/// into the two rings.
#[derive(Debug, Clone, Copy)]
pub(super) struct AllBusy {
    ready: u64,
    freed: u64,
}

impl Core {
    /// Nobody idle and no slot free, as far as that can be seen from the rings' ends; and
    /// nobody in flight.
    #[inline]
    pub(super) fn all_busy(&self) -> Option<AllBusy> {
        if !self.is_nobody_in_flight() {
            return None;
        }
        Some(AllBusy {
            ready: self.ready.drained()?,
            freed: self.free.drained()?,
        })
    }

    /// Whether nothing has come into the rings since, and nobody is on the bench: who was busy
    /// then looks at the queue after what this thread did since.
    ///
    /// A worker that looked before had come into the ready ring before, or to the bench, or has
    /// ended and its slot come into the free ring: in each case all the way, before it looked.
    #[inline]
    pub(super) fn is_still(&self, then: AllBusy) -> bool {
        !self.is_any_benched()
            && self.ready.pushes() == then.ready
            && self.free.pushes() == then.freed
    }

    /// Nobody is in flight, and nobody on the bench, at one moment. Who leaves the bench for its
    /// end is counted as both for a while, so one of the two is read before and after the other.
    #[inline]
    fn is_nobody_in_flight(&self) -> bool {
        self.in_flight.see().is_nobody()
            && !self.is_any_benched()
            && self.in_flight.see().is_nobody()
    }

    /// Whether more tasks than so many could be accepted now.
    pub(super) fn has_space_beyond(&self, needed: u64) -> bool {
        let queue = self.queue.as_ref().map_or(0, Queue::space);
        let others = queue + self.free.held().1 + u64::from(self.is_any_benched());
        // Claims by affinity leave the entries of busy workers behind.
        let (head, listed) = self.ready.held();
        let is_idle = |n: &u64| {
            let slot = self.ready.entry(head.wrapping_add(*n));
            slot.is_some_and(|slot| self.slots[slot].see().is_idle())
        };
        let missing = (needed + 1).saturating_sub(others) as usize;
        (0..listed).filter(is_idle).take(missing).count() == missing
    }

    /// Whether every worker was busy and the queue full at one moment during this call;
    /// see the module's doc.
    #[inline(always)]
    pub(super) fn is_saturated(&self, queue: Option<&Queue<Task>>) -> bool {
        let ready = self.ready.pushes();
        let freed = self.free.pushes();
        let pops = queue.map_or(0, Queue::pops);
        self.is_nobody_in_flight()
            && self.free.drained() == Some(freed)
            && self.is_nobody_ready_while(|| queue.is_none_or(Queue::is_full))
            && self.is_nobody_in_flight()
            && self.ready.pushes() == ready
            && self.free.pushes() == freed
            && queue.is_none_or(|q| q.pops() == pops)
    }

    #[cold]
    pub(super) fn is_saturated_now(&self, queue: Option<&Queue<Task>>) -> bool {
        self.is_saturated(queue)
    }

    /// Whether `full`, during which each worker in the ready ring was busy: there was none in
    /// it, or a few that claims by affinity had left there.
    #[inline(always)]
    fn is_nobody_ready_while(&self, full: impl Fn() -> bool) -> bool {
        match self.ready.held() {
            (_, 0) => full(),
            (head, few) => few <= 2 && self.are_busy_while(head, few == 2, full),
        }
    }

    /// One or two submitters with an affinity leave as many entries.
    #[inline(never)]
    fn are_busy_while(&self, head: u64, two: bool, full: impl Fn() -> bool) -> bool {
        let see = |position| {
            let slot = self.ready.entry(position)?;
            let seen = self.slots[slot].see();
            seen.is_busy().then_some((slot, seen))
        };
        let still = |(slot, seen): (usize, Word)| self.slots[slot].see() == seen;
        let Some(one) = see(head) else { return false };
        if !two {
            return full() && still(one);
        }
        let other = see(head.wrapping_add(1));
        other.is_some_and(|other| full() && still(one) && still(other))
    }

    /// Watches for space, which is a few short tasks' ends away, before it is worth the while
    /// to sleep for it; not in front of others who do.
    pub(super) fn may_make_room(&self, spin: &mut BoundedSpin) -> bool {
        while self.waiters.waiting() == 0 && spin.step() != Step::Spent {
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
