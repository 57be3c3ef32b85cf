//! The queue, whose tasks have a name and a group.

use crate::parts::backoff::Backoff;
use crate::parts::queue;

/// A task of a [`Queue`].
#[derive(Debug)]
struct Named {
    name: usize,
    group: usize,
}

/// The reason why a push failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotPushed {
    /// There was no space, but another thread may have been about to make space by taking out the
    /// oldest task. [`Queue::is_full`] excludes that.
    Full,
    /// No worker lives, so a task in the queue would wait forever.
    Asleep,
    /// The queue is closed.
    Closed,
}

/// The result of a pop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Popped {
    /// The pop took the task of this name.
    Task(usize),
    /// The queue was empty.
    Empty,
    /// Another thread is between two steps, or the pop has skipped many dead cells. Try again.
    InProgress,
}

/// The queue. Its tasks have a name and a group.
#[derive(Debug)]
pub struct Queue(queue::Queue<Named>);

impl Queue {
    /// Returns a queue of at most `capacity` tasks that accepts pushes, as if a worker lived.
    pub fn new(capacity: usize) -> Self {
        let queue = Self::asleep(capacity);
        queue.wake();
        queue
    }

    /// Returns a queue of at most `capacity` tasks that is asleep, as if no worker lived.
    pub fn asleep(capacity: usize) -> Self {
        Self(queue::Queue::new(capacity))
    }

    /// Pushes a task, and returns its position.
    ///
    /// # Errors
    /// Fails if the queue is full, asleep or closed.
    pub fn push(&self, name: usize) -> Result<u64, NotPushed> {
        self.push_of(name, 0)
    }

    /// Pushes a task of a group, and returns its position.
    ///
    /// # Errors
    /// Fails if the queue is full, asleep or closed.
    pub fn push_of(&self, name: usize, group: usize) -> Result<u64, NotPushed> {
        let pushed = self.0.push(&mut Some(Named { name, group }));
        pushed.map_err(|why| match why {
            queue::NotPushed::Full => NotPushed::Full,
            queue::NotPushed::Asleep => NotPushed::Asleep,
            queue::NotPushed::Closed => NotPushed::Closed,
        })
    }

    /// Pops the oldest task, without waiting for another thread.
    pub fn try_pop(&self) -> Popped {
        let mut place = None;
        match self.0.try_pop(&mut place) {
            queue::Popped::Task(_) => Popped::Task(place.expect("popped").name),
            queue::Popped::Empty => Popped::Empty,
            queue::Popped::InProgress => Popped::InProgress,
        }
    }

    /// Pops the oldest task if it can be taken at once. A worker whose task has ended pops like
    /// this while it has a caller to release.
    pub fn try_pop_ready(&self) -> Option<usize> {
        let mut place = None;
        let position = self.0.try_pop_ready(&mut place);
        position.map(|_| place.expect("popped").name)
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

    /// Takes the task at a position out of the queue. Returns `None` if it is not there.
    pub fn take(&self, position: u64) -> Option<usize> {
        self.0.take(position).map(|task| task.name)
    }

    /// Takes the oldest task of the group out of the queue.
    pub fn take_of_group(&self, group: usize) -> Option<usize> {
        let take = |position| self.0.take_if(position, |task| task.group == group);
        self.0.positions().find_map(take).map(|task| task.name)
    }

    /// Stores the state of a queued task's cell once more, with a `SeqCst` store. loom orders a
    /// `SeqCst` load with other accesses only if `SeqCst` stores wrote all values that it may read.
    pub fn store_again(&self, position: u64) {
        self.0.stamp_again(position);
    }

    /// Returns `true` if the queue was full at one moment of this call. A submission must know that
    /// before it is refused.
    pub fn is_full(&self) -> bool {
        let pops = self.0.load_head();
        self.0.is_full(pops) && self.0.is_oldest_there(pops) && self.0.load_head() == pops
    }
}

forward! { Queue:
    close();
    sleep() -> bool;
    wake();
    is_empty() -> bool;
    pushed() -> u64;
    space() -> u64;
    assert_at_rest();
}
