//! The queue, whose tasks have a name and a group.

use crate::parts::backoff::Backoff;
use crate::parts::gate::{Freed, Gate};
use crate::parts::queue;

/// A task of a [`Queue`].
#[derive(Debug)]
struct Named {
    name: usize,
    group: usize,
}

/// The result of a pop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Popped {
    /// The pop took the task of this name.
    Task(usize),
    /// The queue was empty.
    Empty,
    /// Another thread is between two steps, or the pop has passed many dead cells. Try again.
    InProgress,
}

/// The queue, with the gate that has a permit for each of its cells. Its tasks have a name and a
/// group.
#[derive(Debug)]
pub struct Queue {
    queue: queue::Queue<Named>,
    gate: Gate,
}

impl Queue {
    /// Returns a queue of so many cells.
    pub fn new(cells: usize) -> Self {
        Self {
            queue: queue::Queue::new(cells),
            gate: Gate::new(cells),
        }
    }

    /// Pushes a task, and returns its position. Returns `None` if no permit is free.
    pub fn push(&self, name: usize) -> Option<u64> {
        self.push_of(name, 0)
    }

    /// Pushes a task of a group, and returns its position. Returns `None` if no permit is free.
    pub fn push_of(&self, name: usize, group: usize) -> Option<u64> {
        let (permit, _) = self.gate.take().ok()?;
        Some(self.queue.push(&mut Some(Named { name, group }), permit))
    }

    /// Gives the permits of dead cells back, as `Core::pay` does.
    fn give_freed(&self, mut freed: Freed) {
        while !freed.is_empty() {
            let _ = self.gate.give_all(&mut freed);
            if std::mem::take(&mut freed.more) {
                self.queue.pass_dead(&mut freed);
            }
        }
    }

    /// Pops the oldest task, without waiting for another thread. Gives the task's permit back, as if
    /// the task had ended.
    pub fn try_pop(&self) -> Popped {
        let (mut place, mut freed) = (None, Freed::default());
        let popped = match self.queue.try_pop(&mut place, &mut freed) {
            queue::Popped::Task(_, permit) => {
                let _ = self.gate.give(permit);
                Popped::Task(place.expect("popped").name)
            }
            queue::Popped::Empty => Popped::Empty,
            queue::Popped::InProgress | queue::Popped::Passed => Popped::InProgress,
        };
        self.give_freed(freed);
        popped
    }

    /// Pops the oldest task, as a worker that searches does. Waits for a step of another thread if
    /// necessary. Returns `None` if the queue is empty.
    pub fn pop(&self) -> Option<usize> {
        let mut backoff = Backoff::default();
        loop {
            match self.try_pop() {
                Popped::Task(name) => return Some(name),
                Popped::Empty => return None,
                Popped::InProgress => backoff.wait(),
            }
        }
    }

    /// Returns the positions of the tasks from the oldest to the latest.
    pub fn positions(&self) -> Vec<u64> {
        self.queue.positions().collect()
    }

    /// Takes the task at a position out of the queue. Returns `None` if it is not there.
    pub fn take(&self, position: u64) -> Option<usize> {
        let mut freed = Freed::default();
        let taken = self.queue.take_if(position, &mut freed, |_| true);
        self.give_freed(freed);
        taken.map(|task| task.name)
    }

    /// Takes the oldest task of the group out of the queue.
    pub fn take_of_group(&self, group: usize) -> Option<usize> {
        let mut freed = Freed::default();
        let mut take =
            |position| (self.queue).take_if(position, &mut freed, |task| task.group == group);
        let taken = self.queue.positions().find_map(&mut take);
        self.give_freed(freed);
        taken.map(|task| task.name)
    }

    /// Stores the state of a queued task's cell once more, with a `SeqCst` store. loom orders a
    /// `SeqCst` load with other accesses only if `SeqCst` stores wrote all values that it may read.
    pub fn store_again(&self, position: u64) {
        self.queue.stamp_again(position);
    }

    /// Returns `true` if no permit is free.
    pub fn is_full(&self) -> bool {
        self.gate.free() == 0
    }

    /// Returns `true` if there is nothing to pop.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns how many cells are in use.
    pub fn len(&self) -> u64 {
        self.queue.len()
    }

    /// Returns how many tasks have ever been pushed.
    pub fn pushed(&self) -> u64 {
        self.queue.pushed()
    }

    /// Returns how many permits are free.
    pub fn space(&self) -> u64 {
        self.gate.free()
    }

    /// Asserts that the queue is empty and no permit is taken.
    pub fn assert_at_rest(&self) {
        self.queue.assert_at_rest();
        self.gate.assert_at_rest();
    }
}
