//! Takes tasks out of the middle of a queue.

use super::cell::STEP;
use super::{CellState, Popped, Queue, FLAGS};
use crate::parts::backoff::Backoff;
use crate::sync::Ordering;

impl<T> Queue<T> {
    /// Returns the positions from that of the oldest task to that of the latest, after the dead
    /// cells at `head` have been skipped. The tasks at other positions may be gone, too.
    pub(crate) fn positions(&self) -> impl Iterator<Item = u64> {
        let mut head = self.load_head();
        while self.skip_dead(head) {
            head = self.load_head();
        }
        // ORDERING: P3, P4: a shutdown calls this after it has set `CLOSED`. A push that moves
        // `tail` after this read fails because of `CLOSED`. So the shutdown misses no task.
        let tail = self.tail.load(Ordering::SeqCst) & !FLAGS;
        // `tail` is not behind `head`, which was read first.
        (0..tail.wrapping_sub(head) / STEP).map(move |n| head.wrapping_add(n * STEP))
    }

    /// Takes out the task that was pushed at a position. Returns `None` if it has been taken
    /// already.
    #[must_use]
    pub(crate) fn take(&self, position: u64) -> Option<T> {
        self.take_if(position, |_| true)
    }

    /// Takes out the task that was pushed at a position, if it is `wanted`. Returns `None` if it is
    /// not, or has been taken already. Waits while another thread holds the cell, because that
    /// thread may put the task back, as this function does with a task that is not wanted.
    #[must_use]
    pub(crate) fn take_if(&self, position: u64, wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        let at = self.at(position);
        let mut backoff = Backoff::default();
        while !at.hold() {
            let is_passed = || self.load_head().wrapping_sub(position) as i64 > 0;
            if at.see() == at.stamp(CellState::Dead) || is_passed() {
                return None;
            }
            backoff.wait();
        }
        // SAFETY: this thread holds the cell, which was `Full`. The task is taken out, or stays
        // and the cell is `Full` again.
        unsafe {
            if at.look(wanted) {
                return Some(at.take());
            }
            at.publish(CellState::Held);
        }
        None
    }

    /// Moves the oldest task that is `wanted` into `place`. If only other tasks are queued, returns
    /// `InProgress`, because other threads are about to take those out.
    pub(crate) fn pop_wanted(&self, place: &mut Option<T>, wanted: impl Fn(&T) -> bool) -> Popped {
        for position in self.positions() {
            *place = self.take_if(position, &wanted);
            if place.is_some() {
                return Popped::Task(position);
            }
        }
        if self.is_empty() {
            Popped::Empty
        } else {
            Popped::InProgress
        }
    }
}
