//! The word that decides which side gets the outcome of a task that has started.

use super::node::WaitNode;
use crate::parts::backoff::Backoff;
use crate::sync::{AtomicU64, Ordering};

// The states of the task whose id is in the word. The word is zero while the worker runs no task
// with a waiter, and while such a task's outcome is being delivered.

/// The task runs. Its caller has not left, and its handle has not cancelled it.
const RUNNING: u64 = 1;
/// The worker is reading the deadline in the caller's node, or a thread that leaves the task is
/// storing its deadline. A thread that waits for the end of this state waits for a few
/// instructions; or, if the caller has just submitted the task, until it has stored its deadline.
const PINNED: u64 = 2;
/// The caller has left, or the handle has cancelled the task.
const ABANDONED: u64 = 3;

/// The bits of the word that hold the state.
const STATE: u64 = 7;
/// A flag in the ids of tasks from the queue. No generation of a slot has this bit.
const QUEUED: u64 = 1 << 63;

/// The id of no task: the first task of a slot is of generation 1.
pub(crate) const NO_TASK: u64 = 0;

/// Returns the id of the task that was the slot's `generation`-th to be handed over.
#[inline]
pub(crate) fn mailbox_id(generation: u64) -> u64 {
    (generation * (STATE + 1)) & !QUEUED
}

/// Returns the id of the task at a queue position, whose low three bits are zero.
#[inline]
pub(crate) fn queue_id(position: u64) -> u64 {
    debug_assert_eq!(position & STATE, 0);
    position | QUEUED
}

/// Returns `true` if the id is that of a task from the queue.
#[inline]
pub(crate) fn is_queued(task_id: u64) -> bool {
    task_id & QUEUED != 0
}

/// The decision about the running task. It is a part of a worker's slot. It has the word, and the
/// deadline at which the task's caller left.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    word: AtomicU64,
    left_at: AtomicU64,
}

impl Decision {
    /// Returns `true` if the running task's caller has left, or its handle has cancelled the task.
    pub(crate) fn is_abandoned(&self) -> bool {
        // ORDERING: C2: acquires the deadline. A reader that misses the step finds it the next
        // time.
        self.word.load(Ordering::Acquire) & STATE == ABANDONED
    }

    /// Returns the deadline at which the running task's caller left. Returns `None` if it has not
    /// left, or if a handle cancelled the task.
    pub(crate) fn left_at(&self) -> Option<u64> {
        // Relaxed: the word was read with Acquire.
        let left_at = self
            .is_abandoned()
            .then(|| self.left_at.load(Ordering::Relaxed));
        left_at.filter(|left_at| *left_at != 0)
    }

    /// Returns `true` while the worker reads its caller's deadline, or a thread leaves the task.
    pub(crate) fn is_pinned(&self) -> bool {
        // Relaxed: a figure.
        self.word.load(Ordering::Relaxed) & STATE == PINNED
    }

    /// Starts the decision, as the worker is about to run the task.
    pub(crate) fn start(&self, task_id: u64) {
        // ORDERING: C1: comes after the worker has copied what it needs of the node. This is a swap
        // because loom reports a store that races a compare-and-swap as a data race.
        self.word.swap(task_id | RUNNING, Ordering::AcqRel);
    }

    /// Claims the outcome for the worker whose task has ended. The worker then writes the outcome
    /// into the caller's node. Returns `false` if the caller has left.
    #[must_use]
    pub(crate) fn complete(&self, task_id: u64) -> bool {
        self.step(task_id, 0)
    }

    /// Changes the word to `to` if the task is `RUNNING`. Returns `false` otherwise.
    fn step(&self, task_id: u64, to: u64) -> bool {
        // ORDERING: C1, C2: a thread that leaves acquires that the worker has read what it needs of
        // the node. A worker that loses acquires all that the thread did before it left. The
        // outcome is published by `done`, not here.
        (self.word)
            .compare_exchange(task_id | RUNNING, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Clears the word after an abandoned task has ended.
    pub(crate) fn forget(&self, task_id: u64) {
        self.await_left(task_id);
        // Relaxed: a thread that reads the zero relies on no other data.
        self.word.swap(0, Ordering::Relaxed);
    }

    /// Waits while a thread that leaves the task is between `PINNED` and `ABANDONED`.
    fn await_left(&self, task_id: u64) {
        let mut backoff = Backoff::default();
        // ORDERING: C2: acquires the deadline that the leaving thread has stored.
        while self.word.load(Ordering::Acquire) == task_id | PINNED {
            backoff.wait();
        }
    }

    /// Returns the deadline that the caller of the running task gave to
    /// [`WaitNode::set_deadline`], even if the caller has left since. The worker calls it during the
    /// task.
    ///
    /// # Safety
    /// The task has been started and not completed. `node` is the node of its caller, and is alive
    /// as long as the word says that the caller waits.
    pub(crate) unsafe fn deadline(&self, task_id: u64, node: *const WaitNode) -> u64 {
        if !self.step(task_id, task_id | PINNED) {
            self.await_left(task_id);
            // Relaxed: the word was read with Acquire.
            return self.left_at.load(Ordering::Relaxed);
        }
        // SAFETY: the word is pinned, so the caller cannot leave, and its node is alive.
        let deadline = unsafe { &*node }.await_deadline();
        // ORDERING: C1: ends `PINNED` after the node has been read.
        self.word.swap(task_id | RUNNING, Ordering::AcqRel);
        deadline
    }

    /// Leaves a running task, and stores `deadline` for the task to read. A caller stores its own
    /// deadline. A handle that cancels the task stores zero. Returns `false` if the task has not started, is currently reading its
    /// deadline or has been left before. Also returns `false` if the outcome is being delivered.
    #[must_use]
    pub(crate) fn abandon(&self, task_id: u64, deadline: u64) -> bool {
        let leaves = self.step(task_id, task_id | PINNED);
        if leaves {
            // Relaxed: the swap below publishes it.
            self.left_at.store(deadline, Ordering::Relaxed);
            // ORDERING: C2: releases the deadline.
            self.word.swap(task_id | ABANDONED, Ordering::AcqRel);
        }
        leaves
    }
}
