//! For the models in `loom-tests`: the crate's own parts, behind thin wrappers.

use crate::cleaner;
use crate::deadline;
use crate::error::DeadlineError;
use crate::pool::Pool;
use crate::sync::{thread, Arc, AtomicBool, Ordering};
use crate::task::{Ctx, End, Job, Release, Task};
use crate::{queue, ring, slot};
use std::time::Instant;

/// A deadline that passes when its [`Alarm`] goes off.
#[derive(Debug)]
pub struct Deadline(deadline::Deadline);

/// Makes a [`Deadline`] pass; meant for another thread.
#[derive(Debug)]
pub struct Alarm {
    passed: Arc<AtomicBool>,
    waiter: thread::Thread,
}

/// A deadline for a wait of this thread.
pub fn deadline() -> (Deadline, Alarm) {
    let passed = Arc::new(AtomicBool::new(false));
    let alarm = Alarm {
        passed: Arc::clone(&passed),
        waiter: thread::current(),
    };
    (Deadline(deadline::Deadline(Some(passed))), alarm)
}

impl Alarm {
    /// The deadline passes.
    pub fn go_off(self) {
        self.passed.swap(true, Ordering::SeqCst);
        self.waiter.unpark();
    }
}

/// [`Pool::do_with_deadline`] until `deadline`.
///
/// # Errors
/// As [`Pool::do_with_deadline`].
pub fn do_until<F, R>(pool: &Pool, f: F, deadline: &Deadline) -> Result<R, DeadlineError<F>>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    crate::wait::do_until(pool.shared(), None, f, &deadline.0)
}

/// The same as a task with a label, which its worker reads in its caller's block.
///
/// # Errors
/// As [`Pool::do_with_deadline`].
pub fn do_labelled_until<F, R>(
    pool: &Pool,
    f: F,
    deadline: &Deadline,
) -> Result<R, DeadlineError<F>>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    crate::wait::do_until(pool.shared(), Some("label"), f, &deadline.0)
}

/// Asserts that a pool whose threads have ended has nothing left over: counts of
/// workers in one state or another, listings, holes, submitters that wait.
pub fn assert_at_rest(pool: &Pool) {
    pool.shared().assert_at_rest();
}

/// The system gives none of the next `n` threads that a pool asks it for.
pub fn refuse_threads(n: u32) {
    thread::REFUSED.set(n);
}

/// What the cleaner knows.
#[derive(Debug, Default)]
pub struct Cleaner {
    since: Vec<Option<Instant>>,
}

impl Cleaner {
    /// What it does each time it wakes: benches idle workers, and retires those
    /// whose `idle_timeout` has passed since an earlier call.
    pub fn look_around(&mut self, pool: &Pool) {
        cleaner::look_around(pool.shared(), &mut self.since);
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

    /// The number of pushes, if pops had taken all of them.
    pub fn drained(&self) -> Option<u64> {
        self.0.drained()
    }
}

/// The label of a worker's running task, for snapshots.
#[derive(Debug)]
pub struct Label(slot::Label);

impl Label {
    /// None yet.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(slot::Label::new())
    }

    /// By one thread only.
    pub fn set(&self, label: Option<&'static str>) {
        self.0.set(label);
    }

    /// The label at some moment; `None` if it keeps changing.
    pub fn get(&self) -> Option<&'static str> {
        self.0.get()
    }
}

/// A task of the queue that is nothing but its name; `WITHDRAWABLE` as that of
/// a caller with a deadline, or plain.
struct Named<const WITHDRAWABLE: bool> {
    name: usize,
    group: usize,
}

impl<const W: bool> Job for Named<W> {
    const WITHDRAWABLE: bool = W;

    fn run(self, _: &Ctx<'_>, _: End<'_>) {
        unreachable!("taken apart by `name`")
    }

    fn discard(self) -> Release {
        Release::Nobody
    }

    fn group(&self) -> *const () {
        std::ptr::without_provenance(self.group)
    }
}

fn name(task: Task) -> usize {
    // SAFETY: `Queue` makes tasks of these two types only.
    unsafe {
        if task.is_withdrawable() {
            task.into_job::<Named<true>>().name
        } else {
            task.into_job::<Named<false>>().name
        }
    }
}

/// Why a push came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotPushed {
    /// No room, by this look alone.
    Full,
    /// Closed.
    Closed,
}

/// The queue, of named tasks.
#[derive(Debug)]
pub struct Queue(queue::Queue);

impl Queue {
    /// A queue of at most `capacity` tasks.
    pub fn new(capacity: usize) -> Self {
        Self(queue::Queue::new(capacity))
    }

    fn push(&self, task: Task) -> Result<u64, NotPushed> {
        let mut task = Some(task);
        self.0.push(&mut task).map_err(|why| {
            task.map(name);
            match why {
                queue::NotPushed::Full => NotPushed::Full,
                queue::NotPushed::Closed => NotPushed::Closed,
            }
        })
    }

    /// Pushes a plain task, and returns its position.
    ///
    /// # Errors
    /// Full or closed.
    pub fn push_plain(&self, name: usize) -> Result<u64, NotPushed> {
        // SAFETY: a number may go anywhere.
        self.push(unsafe { Task::new(Named::<false> { name, group: 0 }) })
    }

    /// Pushes a withdrawable task of a group, and returns its position.
    ///
    /// # Errors
    /// Full or closed.
    pub fn push_withdrawable(&self, name: usize, group: usize) -> Result<u64, NotPushed> {
        // SAFETY: a number may go anywhere.
        self.push(unsafe { Task::new(Named::<true> { name, group }) })
    }

    /// Takes the oldest task.
    pub fn pop(&self) -> Option<usize> {
        let mut place = None;
        self.0.pop(&mut place);
        place.map(name)
    }

    /// Takes the withdrawable task at a position.
    pub fn withdraw(&self, position: u64) -> Option<usize> {
        self.0.withdraw(position).map(name)
    }

    /// Takes a task of the group.
    pub fn take_of_group(&self, group: usize) -> Option<usize> {
        self.0
            .take_of_group(std::ptr::without_provenance(group), &mut 0)
            .map(name)
    }

    /// Refuses all further pushes.
    pub fn close(&self) {
        self.0.close();
    }

    /// Whether there is nothing to pop, as workers ask.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tasks ever accepted.
    pub fn pushed(&self) -> u64 {
        self.0.pushed()
    }

    /// Asserts, once nobody uses it, that it is empty and counts its holes right.
    pub fn assert_at_rest(&self) {
        self.0.assert_at_rest();
    }

    /// Whether it was full at one moment, as a refusal asks.
    pub fn is_full(&self) -> bool {
        let pops = self.0.pops();
        self.0.is_full() && self.0.pops() == pops
    }
}
