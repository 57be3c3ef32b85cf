//! Saturation: when nobody could be given a task, and when a submission is refused for it.
//!
//! The protocol page says why nothing is refused in vain. A worker that stopped being busy between the
//! two readings has entered the ready ring, and the pushes differ; or its entry was on the bench, or in
//! another submission's hands, which looks at its slot next: until then it counts as busy. A claim by
//! affinity leaves the entry of a busy worker in the ring: the submission takes it out, and looks again.
//!
//! Once full, the queue stays full as long as there are no pops and its oldest cell is not dead: so
//! there was a moment at which it was full and all workers busy. A saturated pool only reads all of
//! these words: a refusal moves no cache line.

use super::core::Core;
use crate::parts::backoff::{BoundedSpin, Step};
use crate::parts::queue::Queue;
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
    #[inline(always)]
    pub(super) fn all_busy(&self) -> Option<AllBusy> {
        let (ready, freed) = (self.ready.pushes(), self.free.pushes());
        let all_busy =
            self.is_none_in_flight() && self.ready.is_drained(ready) && self.free.is_drained(freed);
        all_busy.then_some(AllBusy { ready, freed })
    }

    /// Whether nothing has come into the rings since. If nobody is on the bench either, who was busy
    /// then looks at the queue after what this thread did since.
    ///
    /// A worker that looked before that has pushed an entry, or is on the bench, or has freed its slot; or
    /// another submission holds its entry, and claims it or finds it claimed.
    #[inline]
    pub(super) fn is_unchanged_since(&self, then: AllBusy) -> bool {
        self.ready.pushes() == then.ready && self.free.pushes() == then.freed
    }

    /// The bench, then the counts: who leaves the bench to end or to look at the queue is counted
    /// first. Who comes to it after this look has been in the ready ring: the pushes tell, or the next
    /// look at the bench.
    #[inline]
    fn is_none_in_flight(&self) -> bool {
        !self.is_any_benched() && self.in_flight.see().is_nobody()
    }

    /// Whether every worker was busy and the queue full at one moment during this call;
    /// see the module's doc.
    #[inline(always)]
    pub(super) fn is_saturated(&self, queue: Option<&Queue<Task>>) -> bool {
        let Some(queue) = queue else {
            return self.are_all_busy_while(|| true);
        };
        let pops = queue.load_head();
        // The oldest cell at the end: a dead one stays until `head` moves.
        self.are_all_busy_while(|| queue.is_full(pops))
            && queue.is_oldest_there(pops)
            && queue.load_head() == pops
    }

    #[inline(always)]
    fn are_all_busy_while(&self, full: impl Fn() -> bool) -> bool {
        let all_busy = self.all_busy();
        all_busy
            .is_some_and(|then| full() && self.is_none_in_flight() && self.is_unchanged_since(then))
    }

    /// Watches for space, which is a few short tasks' ends away, before it is worth the while
    /// to sleep for it; not in front of others who do.
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
