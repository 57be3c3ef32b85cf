//! A queue's flags: asleep while no worker lives, and closed for good.

use super::{Queue, ASLEEP, CLOSED, FLAGS};
use crate::sync::Ordering;

impl<T> Queue<T> {
    /// Refuses all further pushes.
    pub(crate) fn close(&self) {
        // ORDERING: P5: before who closes looks for idle workers.
        self.tail.fetch_or(CLOSED, Ordering::SeqCst);
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
}
