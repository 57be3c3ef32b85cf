//! A queue's flags: asleep while no worker lives, and closed for good.

use super::cell::STEP;
use super::{Queue, Queued, State, ASLEEP, CLOSED, FLAGS};
use crate::parts::backoff::Backoff;
use crate::sync::Ordering;

impl<T: Queued> Queue<T> {
    /// Refuses all further pushes. Where the tasks pushed so far end.
    pub(crate) fn close(&self) -> u64 {
        // ORDERING: P5: before who closes looks for idle workers.
        self.tail.fetch_or(CLOSED, Ordering::SeqCst) & !FLAGS
    }

    /// Whether the oldest task was pushed before `end`, and none or one is there.
    pub(crate) fn is_before(&self, end: u64) -> bool {
        (end.wrapping_sub(self.load_head()) as i64) > 0
    }

    /// The last worker, before it leaves: from now on a task needs a thread. `false` if
    /// there is something in the queue.
    #[must_use]
    pub(crate) fn sleep(&self) -> bool {
        loop {
            let tail = self.load_tail();
            if self.load_head() != tail & !FLAGS {
                return false;
            }
            // ORDERING: P6: against the push that this worker would have to see.
            let slept = self.tail.compare_exchange(
                tail,
                tail | ASLEEP,
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            if slept.is_ok() {
                return true;
            }
        }
    }

    /// A worker lives.
    pub(crate) fn wake(&self) {
        // ORDERING: P6: as `sleep`.
        self.tail.fetch_and(!ASLEEP, Ordering::SeqCst);
    }

    /// Adds a task to a closed queue, from which the caller has popped one: there is room.
    /// The caller sees to it that no worker puts the queue to sleep meanwhile.
    pub(crate) fn push_again(&self, task: T) {
        let mut backoff = Backoff::default();
        loop {
            let tail = self.load_tail();
            let position = tail & !FLAGS;
            debug_assert!(tail & CLOSED != 0 && !self.is_full_by(position, self.load_head()));
            let at = self.at(position);
            if at.see() == at.stamp(State::Empty) {
                // ORDERING: P1: as `push_at`.
                let next = tail.wrapping_add(STEP);
                let moved =
                    self.tail
                        .compare_exchange(tail, next, Ordering::SeqCst, Ordering::Relaxed);
                if moved.is_ok() {
                    // SAFETY: `tail` moved from this position: it is ours.
                    return unsafe { at.fill(&mut Some(task), State::Empty) };
                }
            }
            backoff.wait();
        }
    }
}
