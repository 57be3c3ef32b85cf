//! Takes tasks out of the middle of a queue.

use super::{CellState, Freed, Queue};
use crate::parts::backoff::Backoff;
use crate::sync::Ordering;

impl<T> Queue<T> {
    /// Returns the positions from that of the oldest task to that of the latest. The tasks at some of
    /// these positions may be gone.
    pub(crate) fn positions(&self) -> impl Iterator<Item = u64> + '_ {
        let mut next = self.load_head();
        // ORDERING: P3: a shutdown calls this after it has set its flag. A push that moves `tail`
        // after this read finds the flag.
        let tail = self.tail.load(Ordering::SeqCst);
        // `tail` is not behind `head`, which was read first.
        std::iter::from_fn(move || {
            let position = (next != tail).then_some(next)?;
            next = self.after(next);
            Some(position)
        })
    }

    /// Takes out the task that was pushed at a position, if it is `wanted`. Returns `None` if it is not,
    /// or if it has been taken already. Adds the permits of cells that `head` can pass now to `freed`.
    /// `wanted` is called while this thread holds the cell, so before the task's permit can come free. It takes no lock,
    /// and calls no user code.
    /// Waits while another thread holds the cell, because that thread may put the task back, as this
    /// function does with a task that is not wanted.
    #[must_use]
    pub(crate) fn take_if(
        &self,
        position: u64,
        freed: &mut Freed,
        wanted: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let at = self.at(position);
        let mut backoff = Backoff::default();
        let held = loop {
            if let Some(held) = at.hold() {
                break held;
            }
            let is_passed = || self.load_head().wrapping_sub(position) as i64 > 0;
            if at.load() == at.stamp(CellState::Dead) || is_passed() {
                return None;
            }
            backoff.wait();
        };
        if !held.look(wanted) {
            held.put_back();
            return None;
        }
        let task = held.take_out();
        if self.load_head() == position {
            self.pass_dead(freed);
        }
        Some(task)
    }
}
