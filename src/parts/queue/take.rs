//! Takes tasks out of the middle of a queue.

use super::cell::STEP;
use super::{CellState, Popped, Queue, FLAGS};
use crate::parts::backoff::Backoff;
use crate::sync::Ordering;

impl<T> Queue<T> {
    /// Takes out the task that was pushed at a position. Returns `None` if it has been taken
    /// already.
    #[must_use]
    pub(crate) fn take(&self, position: u64) -> Option<T> {
        let at = self.at(position);
        // `hold_full` waits while another thread holds the cell, because that thread may put the
        // task back. A shutdown does so with a task that must run.
        // SAFETY: this thread holds the cell, which was `Full`.
        self.hold_full(position).then(|| unsafe { at.take() })
    }

    /// Moves the oldest task that is `wanted` into `place`. If only other tasks are queued, returns
    /// `InProgress`, because other threads are about to take those out.
    pub(crate) fn pop_wanted(&self, place: &mut Option<T>, wanted: impl Fn(&T) -> bool) -> Popped {
        let mut from = self.first();
        *place = self.take_wanted(&mut from, wanted);
        match place {
            Some(_) => Popped::Task(from.wrapping_sub(STEP)),
            None if self.is_empty() => Popped::Empty,
            None => Popped::InProgress,
        }
    }

    /// Skips the dead cells at `head`, and returns the position of the oldest cell that is left. A
    /// look through the queue begins there.
    pub(crate) fn first(&self) -> u64 {
        loop {
            let head = self.load_head();
            if !self.skip_dead(head) {
                return head;
            }
        }
    }

    /// Takes out the first `wanted` task at the position `from` or a later one, and moves `from`
    /// past that task. Returns `None` once no such task is left.
    #[must_use]
    pub(crate) fn take_wanted(&self, from: &mut u64, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let head = self.load_head();
        if is_before(*from, head) {
            *from = head;
        }
        // ORDERING: P3, P4: a shutdown calls this after it has set `CLOSED`. A push that moves
        // `tail` after this read fails because of `CLOSED`. So the shutdown misses no task.
        let tail = self.tail.load(Ordering::SeqCst) & !FLAGS;
        while is_before(*from, tail) {
            let position = *from;
            *from = position.wrapping_add(STEP);
            let at = self.at(position);
            if !self.hold_full(position) {
                continue;
            }
            // SAFETY: this thread holds the cell, which was `Full`. The task is taken out, or stays
            // and the cell is `Full` again.
            unsafe {
                if at.look(&wanted) {
                    return Some(at.take());
                }
                at.write(CellState::Held, CellState::Full);
            }
        }
        None
    }

    /// Holds the cell at `position`, which a push has reserved. Returns `false` if the task there
    /// is gone. Waits while another thread is between two steps at the cell.
    fn hold_full(&self, position: u64) -> bool {
        let at = self.at(position);
        let mut backoff = Backoff::default();
        loop {
            let now = at.see();
            if now == at.stamp(CellState::Full) {
                if at.hold() {
                    return true;
                }
            } else if now == at.stamp(CellState::Dead) || is_before(position, self.load_head()) {
                return false;
            } else {
                backoff.wait();
            }
        }
    }
}

fn is_before(position: u64, other: u64) -> bool {
    (other.wrapping_sub(position) as i64) > 0
}
