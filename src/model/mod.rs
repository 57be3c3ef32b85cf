//! For the models in `loom-tests` and the scenarios in `shuttle-tests`: the crate's own
//! parts, behind thin wrappers.

use crate::engine::retirement;
use crate::parts::backoff::Backoff;
use crate::parts::{queue, ring, waiters};
use crate::pool::Pool;

#[cfg(lazypool_shuttle)]
pub use crate::sync::control::*;
#[cfg(lazypool_shuttle)]
pub use clock::Deadline;
pub use completion::{Call, Decision, Task};
pub use handle::{promise, Promise, Promised};
pub use members::{Member, Members};
pub use slot::{Held, Slot, Told};
#[cfg(lazypool_loom)]
pub use time::{deadline, do_labeled_until, do_until, join_until, refuse_threads, Alarm, Deadline};
pub use words::{Counts, Label};

#[cfg(lazypool_shuttle)]
mod clock;
mod completion;
mod guard;
mod handle;
#[cfg(lazypool_shuttle)]
pub mod judge;
mod members;
mod slot;
#[cfg(lazypool_loom)]
mod time;
mod words;

/// Asserts that a pool whose threads have ended has nothing left over: counts of
/// workers in flight, listings, tombstones, submitters that wait.
pub fn assert_at_rest(pool: &Pool) {
    pool.core().assert_at_rest();
}

/// What the cleaner knows.
#[derive(Debug, Default)]
pub struct Cleaner {
    marked: retirement::Marked,
}

impl Cleaner {
    /// What it does each time it wakes: marks idle workers, and retires those whose
    /// `idle_timeout` has passed since an earlier call.
    pub fn look_around(&mut self, pool: &Pool) {
        let _ = retirement::look_around(pool.core(), &mut self.marked);
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

    /// The number of pushes, if pops had taken all of them.
    pub fn drained(&self) -> Option<u64> {
        self.0.drained()
    }
}

/// A task of a [`Queue`]: its name, and its group.
#[derive(Debug)]
struct Named {
    name: usize,
    group: usize,
    revocable: bool,
}

impl Named {
    fn plain(name: usize) -> Self {
        Self {
            name,
            group: 0,
            revocable: false,
        }
    }
}

impl queue::Queued for Named {
    type Worker = ();

    fn announce(_: Option<&Self>, (): &()) {}

    fn is_revocable(&self) -> bool {
        self.revocable
    }
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

    /// A queue of one, full but for a tombstone, all of whose words have had `SeqCst` writes only:
    /// loom then models a `SeqCst` load as one.
    pub fn of_a_tombstone() -> Self {
        Self(queue::Queue::of_a_tombstone())
    }

    fn push(&self, task: Named) -> Result<u64, NotPushed> {
        let (mut task, sweep) = (Some(task), queue::Sweep::default());
        loop {
            match self.0.push_on(&mut task, &sweep) {
                Ok(position) => return Ok(position),
                Err(queue::NotPushed::Full) => return Err(NotPushed::Full),
                Err(queue::NotPushed::Asleep) => return Err(NotPushed::Asleep),
                Err(queue::NotPushed::Closed) => return Err(NotPushed::Closed),
                Err(queue::NotPushed::Looking) => {}
            }
        }
    }

    /// Pushes a plain task, and returns its position.
    ///
    /// # Errors
    /// Full, asleep or closed.
    pub fn push_plain(&self, name: usize) -> Result<u64, NotPushed> {
        self.push(Named::plain(name))
    }

    /// Pushes a revocable task of a group, and returns its position.
    ///
    /// # Errors
    /// Full, asleep or closed.
    pub fn push_revocable(&self, name: usize, group: usize) -> Result<u64, NotPushed> {
        self.push(Named {
            name,
            group,
            revocable: true,
        })
    }

    /// Pushes a task to a closed queue, from which the caller has popped one.
    pub fn push_again(&self, name: usize) {
        self.0.push_again(Named::plain(name));
    }

    /// Takes the oldest task, as far as that needs nobody else.
    pub fn try_pop(&self) -> Popped {
        let mut place = None;
        match self.0.try_pop(&mut place) {
            queue::Popped::Task(_) => Popped::Task(place.expect("popped").name),
            queue::Popped::Empty => Popped::Empty,
            // Guarded: by another, whose step is not done.
            queue::Popped::InProgress | queue::Popped::Guarded => Popped::InProgress,
        }
    }

    /// The same as a worker does it whose task has ended: with one look.
    pub fn try_pop_ready(&self) -> Option<usize> {
        let mut place = None;
        let position = self.0.try_pop_ready(&mut place, &());
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

    /// Takes the revocable task at a position.
    pub fn withdraw(&self, position: u64) -> Option<usize> {
        self.0.withdraw(position, || ()).map(|task| task.name)
    }

    /// Takes a task of the group.
    pub fn take_of_group(&self, group: usize) -> Option<usize> {
        let mut from = self.0.first();
        let taken = self
            .0
            .take_wanted(&mut from, |task| task.group == group, || ());
        taken.map(|task| task.name)
    }

    /// Refuses all further pushes. Where the tasks pushed so far end.
    pub fn close(&self) -> u64 {
        self.0.close()
    }

    /// Whether a task that was pushed before `end` may be left.
    pub fn is_before(&self, end: u64) -> bool {
        self.0.is_before(end)
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

    /// Asserts, once nobody uses it, that it is empty and counts its tombstones right.
    pub fn assert_at_rest(&self) {
        self.0.assert_at_rest();
    }

    /// Whether it was full at one moment, as a refusal asks.
    pub fn is_full(&self) -> bool {
        let pops = self.0.pops();
        self.0.is_full() && self.0.pops() == pops
    }
}

/// Threads that wait for room.
#[derive(Debug)]
pub struct Waiters(waiters::Waiters);

impl Waiters {
    /// Nobody yet.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(waiters::Waiters::new())
    }

    /// There is room for one more.
    pub fn notify(&self) {
        self.0.notify();
    }

    /// Everybody looks again.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits as a blocked submitter does, until `attempt` or the deadline: it lines up
    /// behind whoever has waited for long. Whether the attempt succeeded.
    pub fn wait_until(&self, deadline: &Deadline, attempt: impl FnMut() -> bool) -> bool {
        self.wait(&deadline.0, attempt)
    }

    /// The same without a deadline.
    pub fn wait_for(&self, attempt: impl FnMut() -> bool) {
        assert!(self.wait(&crate::parts::deadline::Deadline::never(), attempt));
    }

    fn wait(
        &self,
        deadline: &crate::parts::deadline::Deadline,
        mut attempt: impl FnMut() -> bool,
    ) -> bool {
        let entry = waiters::Entry::new();
        let mut waiting = if self.0.has_aged() {
            let (mut waiting, is_first) = self.0.line_up(&entry);
            if !is_first {
                waiting.sleep(deadline);
            }
            waiting
        } else {
            if attempt() {
                return true;
            }
            self.0.join(&entry)
        };
        loop {
            waiting.rejoin();
            if attempt() {
                return true;
            }
            if deadline.has_passed() {
                return false;
            }
            waiting.sleep(deadline);
        }
    }

    /// Asserts, once nobody waits, that nobody is counted.
    pub fn assert_at_rest(&self) {
        self.0.assert_at_rest();
    }
}
