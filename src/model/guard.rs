//! A queue that a lowered limit guards.

use super::Queue;
use crate::parts::queue::Popped;

impl Queue {
    /// From now on only [`Queue::pop_guarded`] takes anything.
    pub fn guard(&self) {
        self.0.guard(true);
    }

    /// No longer.
    pub fn unguard(&self) {
        self.0.guard(false);
    }

    /// Takes the oldest task, by who guards the queue.
    pub fn pop_guarded(&self) -> Option<usize> {
        let mut place = None;
        match self.0.pop_guarded(&mut place) {
            Popped::Task(_) => place.map(|task| task.name),
            Popped::Empty | Popped::InProgress | Popped::Guarded => None,
        }
    }
}
