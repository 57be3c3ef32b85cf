//! For the models in `loom-tests` and the scenarios in `shuttle-tests`: the crate's own
//! parts, behind thin wrappers.

use crate::parts::backoff::Backoff;
use crate::parts::{queue, ring};
use crate::pool::Pool;
use crate::sync::{lock, now};

#[cfg(lazypool_shuttle)]
pub use crate::sync::control::*;
#[cfg(lazypool_shuttle)]
pub use clock::Deadline;
pub use completion::{Call, Decision, Task};
pub use handle::{promise, Promise, Promised};
pub use line::{Left, Line};
pub use members::{Member, Members};
pub use slot::{Held, Slot, Told};
#[cfg(lazypool_loom)]
pub use time::{deadline, do_labeled_until, do_until, join_until, refuse_threads, Alarm, Deadline};
pub use words::Counts;

#[cfg(lazypool_shuttle)]
mod clock;
mod completion;
mod handle;
#[cfg(lazypool_shuttle)]
pub mod judge;
mod line;
mod members;
mod slot;
#[cfg(lazypool_loom)]
mod time;
mod words;

/// Asserts that a pool whose threads have ended has nothing left over: counts of
/// workers in flight, listings, queued tasks, submitters that wait.
pub fn assert_at_rest(pool: &Pool) {
    pool.core().assert_at_rest();
}

/// What the cleaner does each time it wakes: benches idle workers, and retires those whose
/// `idle_timeout` on the bench has passed.
pub fn sweep(pool: &Pool) {
    let core = pool.core();
    let _ = core.sweep(&mut lock(&core.registry), now());
}

/// The same as [`Queue::store_again`], for the oldest task in the queue of a pool.
#[cfg(lazypool_loom)]
pub fn store_oldest_again(pool: &Pool) {
    if let Some(queue) = &pool.core().queue {
        queue.stamp_again(queue.load_head());
    }
}

/// The ring of slot indices.
#[derive(Debug)]
pub struct Ring(ring::Ring);

impl Ring {
    /// Room for `capacity` indices, holding `0..filled`.
    pub fn new(capacity: usize, filled: usize) -> Self {
        Self(ring::Ring::new(capacity, filled))
    }

    /// Adds an index.
    ///
    /// # Errors
    /// It, if the ring was full.
    pub fn push(&self, index: usize) -> Result<(), usize> {
        self.0.push(index)
    }

    /// Takes the oldest index.
    pub fn pop(&self) -> Option<usize> {
        self.0.pop()
    }

    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of pushes.
    pub fn pushes(&self) -> u64 {
        self.0.pushes()
    }

    /// Whether it was empty, if `pushes` is the number of pushes before this and after.
    pub fn is_drained(&self, pushes: u64) -> bool {
        self.0.is_drained(pushes)
    }
}

/// A task of a [`Queue`]: its name, and its group.
#[derive(Debug)]
struct Named {
    name: usize,
    group: usize,
}

/// Why a push came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotPushed {
    /// No room, by this look alone.
    Full,
    /// No worker lives.
    Asleep,
    /// Closed.
    Closed,
}

/// What a pop found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Popped {
    /// A task of this name.
    Task(usize),
    /// Nothing.
    Empty,
    /// Another thread is between two steps.
    InProgress,
}

/// The queue, of named tasks.
#[derive(Debug)]
pub struct Queue(queue::Queue<Named>);

impl Queue {
    /// A queue of at most `capacity` tasks, whose worker lives.
    pub fn new(capacity: usize) -> Self {
        let queue = Self::asleep(capacity);
        queue.wake();
        queue
    }

    /// The same, without a worker.
    pub fn asleep(capacity: usize) -> Self {
        Self(queue::Queue::new(capacity))
    }

    /// Pushes a task, and returns its position.
    ///
    /// # Errors
    /// Full, asleep or closed.
    pub fn push(&self, name: usize) -> Result<u64, NotPushed> {
        self.push_of(name, 0)
    }

    /// Pushes a task of a group, and returns its position.
    ///
    /// # Errors
    /// Full, asleep or closed.
    pub fn push_of(&self, name: usize, group: usize) -> Result<u64, NotPushed> {
        let pushed = self.0.push(&mut Some(Named { name, group }));
        pushed.map_err(|why| match why {
            queue::NotPushed::Full => NotPushed::Full,
            queue::NotPushed::Asleep => NotPushed::Asleep,
            queue::NotPushed::Closed => NotPushed::Closed,
        })
    }

    /// Takes the oldest task, as far as that needs nobody else.
    pub fn try_pop(&self) -> Popped {
        let mut place = None;
        match self.0.try_pop(&mut place) {
            queue::Popped::Task(_) => Popped::Task(place.expect("popped").name),
            queue::Popped::Empty => Popped::Empty,
            queue::Popped::InProgress => Popped::InProgress,
        }
    }

    /// The same as a worker does it whose task has ended: with one look.
    pub fn try_pop_ready(&self) -> Option<usize> {
        let mut place = None;
        let position = self.0.try_pop_ready(&mut place);
        position.map(|_| place.expect("popped").name)
    }

    /// Takes the oldest task, as a worker that searches does.
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

    /// Takes the task at a position.
    pub fn take(&self, position: u64) -> Option<usize> {
        self.0.take(position).map(|task| task.name)
    }

    /// Takes the oldest task of the group.
    pub fn take_of_group(&self, group: usize) -> Option<usize> {
        let taken = (self.0).take_wanted(&mut self.0.first(), |task| task.group == group);
        taken.map(|task| task.name)
    }

    /// Refuses all further pushes.
    pub fn close(&self) {
        self.0.close();
    }

    /// The last worker is about to leave; `false` if there is something for it.
    pub fn sleep(&self) -> bool {
        self.0.sleep()
    }

    /// A worker lives.
    pub fn wake(&self) {
        self.0.wake();
    }

    /// Whether there is nothing to pop, as workers ask.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tasks ever accepted.
    pub fn pushed(&self) -> u64 {
        self.0.pushed()
    }

    /// loom takes a `SeqCst` load for one only if all words it may read were stored so: stores the
    /// state of a queued task's cell again.
    #[cfg(lazypool_loom)]
    pub fn store_again(&self, position: u64) {
        self.0.stamp_again(position);
    }

    /// For how many tasks there is space.
    pub fn space(&self) -> u64 {
        self.0.space()
    }

    /// Asserts, once nobody uses it, that it is empty.
    pub fn assert_at_rest(&self) {
        self.0.assert_at_rest();
    }

    /// Whether it was full at one moment, as a refusal asks.
    pub fn is_full(&self) -> bool {
        let pops = self.0.load_head();
        self.0.is_full(pops) && self.0.is_oldest_there(pops) && self.0.load_head() == pops
    }
}
