//! Tasks that are taken out of the middle of a queue.

use super::cell::STEP;
use super::{Popped, Queue, State, FLAGS};
use crate::parts::backoff::Backoff;
use crate::sync::Ordering;

impl<T> Queue<T> {
    /// Takes out the task at a position where it was pushed; `None` if a pop was faster.
    #[must_use]
    pub(crate) fn take(&self, position: u64) -> Option<T> {
        let at = self.at(position);
        // A canceller that only looks at the task gives it back; a pop takes it.
        // SAFETY: held, with a task in it.
        self.hold_full(position).then(|| unsafe { at.take() })
    }

    /// Moves the oldest task that is wanted into the place. The others are waited for: somebody is
    /// taking them out.
    pub(crate) fn pop_wanted(&self, place: &mut Option<T>, wanted: impl Fn(&T) -> bool) -> Popped {
        let mut from = self.first();
        *place = self.take_wanted(&mut from, wanted);
        match place {
            Some(_) => Popped::Task(from.wrapping_sub(STEP)),
            None if self.is_empty() => Popped::Empty,
            None => Popped::InProgress,
        }
    }

    /// Where a look through the queue begins. Dead cells before it are gone.
    pub(crate) fn first(&self) -> u64 {
        loop {
            let head = self.load_head();
            if !self.skip_dead(head) {
                return head;
            }
        }
    }

    /// Takes out the next task at `from` or behind it that is wanted, and moves `from` past it;
    /// `None` once none is left.
    #[must_use]
    pub(crate) fn take_wanted(&self, from: &mut u64, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let head = self.load_head();
        if is_before(*from, head) {
            *from = head;
        }
        // ORDERING: P3: after the group's flag was set; a push that moves it later sees the flag.
        let tail = self.tail.load(Ordering::SeqCst) & !FLAGS;
        while is_before(*from, tail) {
            let position = *from;
            *from = position.wrapping_add(STEP);
            let at = self.at(position);
            if !self.hold_full(position) {
                continue;
            }
            // SAFETY: held, with a task in it, which is taken out or left as it was.
            unsafe {
                if at.look(&wanted) {
                    return Some(at.take());
                }
                at.write(State::Held, State::Full);
            }
        }
        None
    }

    /// Holds the cell of a position that was pushed, if its task is still there; waits for a push or
    /// another owner that is half done.
    fn hold_full(&self, position: u64) -> bool {
        let at = self.at(position);
        let mut backoff = Backoff::default();
        loop {
            let now = at.see();
            if now == at.stamp(State::Full) {
                if at.hold() {
                    return true;
                }
            } else if now == at.stamp(State::Dead) || is_before(position, self.load_head()) {
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
