//! The word that decides whether a started task's result is delivered.

use super::node::WaitNode;
use crate::parts::backoff::Backoff;
use crate::sync::{AtomicU64, Ordering};

/// What has been decided for the task with an id. Zero: there is none, or its outcome is being
/// delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum State {
    Running = 1,
    /// The worker reads the caller's node, or who leaves writes its deadline: a few instructions.
    Pinned = 2,
    Abandoned = 3,
}

const STATE: u64 = 7;
/// Above the generations: ids of tasks from the queue.
const QUEUED: u64 = 1 << 63;

/// The id of the task handed over as the slot's `generation`-th.
#[inline]
pub(crate) fn mailbox_id(generation: u64) -> u64 {
    (generation * (STATE + 1)) & !QUEUED
}

/// The id of the task at a queue position, whose low three bits are zero.
#[inline]
pub(crate) fn queue_id(position: u64) -> u64 {
    debug_assert_eq!(position & STATE, 0);
    position | QUEUED
}

/// Whether the id is that of a task from the queue.
#[inline]
pub(crate) fn is_queued(task_id: u64) -> bool {
    task_id & QUEUED != 0
}

/// Part of a worker's slot: the word, and the deadline at which the running task's caller
/// left.
#[derive(Debug)]
pub(crate) struct Decision {
    word: AtomicU64,
    left_at: AtomicU64,
}

const fn word(task_id: u64, state: State) -> u64 {
    task_id | state as u64
}

impl Decision {
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            left_at: AtomicU64::new(0),
        }
    }

    /// Whether the running task's caller has left, or its handle has cancelled it.
    pub(crate) fn is_abandoned(&self) -> bool {
        // ORDERING: C2: the deadline. Whoever reads it looks again.
        self.word.load(Ordering::Acquire) & STATE == State::Abandoned as u64
    }

    /// The deadline at which the running task's caller left; `None`: not yet, or it was a handle.
    pub(crate) fn left_at(&self) -> Option<u64> {
        // Relaxed: the word was read with Acquire.
        let left_at = self
            .is_abandoned()
            .then(|| self.left_at.load(Ordering::Relaxed));
        left_at.filter(|left_at| *left_at != 0)
    }

    /// Worker: the task runs.
    pub(crate) fn start(&self, task_id: u64) {
        // ORDERING: C1: what was copied from the node was copied before. A swap, not a
        // store, for loom.
        self.word
            .swap(word(task_id, State::Running), Ordering::AcqRel);
    }

    /// Worker, whose task has run: tries to become the owner of the outcome, to be written into the caller's
    /// node. `false`: the caller has left.
    #[must_use]
    pub(crate) fn complete(&self, task_id: u64) -> bool {
        self.step(task_id, 0)
    }

    /// Moves the word of a running task on.
    fn step(&self, task_id: u64, to: u64) -> bool {
        let running = word(task_id, State::Running);
        // ORDERING: C1, C2: the worker has read what it needs of the node; what the caller did comes
        // before the worker's drop of the result. The outcome itself is published by `done`.
        (self.word)
            .compare_exchange(running, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Worker: an abandoned task has ended.
    pub(crate) fn forget(&self, task_id: u64) {
        self.await_left(task_id);
        // Relaxed: nobody acts on it.
        self.word.swap(0, Ordering::Relaxed);
    }

    /// Worker: waits for a caller that is just leaving.
    fn await_left(&self, task_id: u64) {
        let mut backoff = Backoff::default();
        // ORDERING: C2: the deadline that the caller has left.
        while self.word.load(Ordering::Acquire) == word(task_id, State::Pinned) {
            backoff.wait();
        }
    }

    /// Pins the word of a running task, for its worker or for who leaves.
    fn pin(&self, task_id: u64) -> bool {
        self.step(task_id, word(task_id, State::Pinned))
    }

    /// Worker, during the task: the deadline that its caller has told it, as
    /// [`WaitNode::set_deadline`] has it.
    ///
    /// # Safety
    /// The task has been started and not completed. `node` is its caller's: alive as long as
    /// the word says that the caller waits.
    pub(crate) unsafe fn deadline(&self, task_id: u64, node: *const WaitNode) -> u64 {
        if !self.pin(task_id) {
            self.await_left(task_id);
            // Relaxed: the word was read with Acquire.
            return self.left_at.load(Ordering::Relaxed);
        }
        // SAFETY: pinned: the caller cannot leave, its node is alive.
        let deadline = unsafe { &*node }.await_deadline();
        // ORDERING: C1: the node has been read.
        self.word
            .swap(word(task_id, State::Running), Ordering::AcqRel);
        deadline
    }

    /// Leaves a running task: its caller, with its deadline for the task to read; or its handle, or the
    /// worker for that, with zero. `false`: the task is not yet started, or reads the deadline; or its
    /// outcome is being delivered; or somebody has left it.
    #[must_use]
    pub(crate) fn leave(&self, task_id: u64, deadline: u64) -> bool {
        let leaves = self.pin(task_id);
        if leaves {
            // Relaxed: published by what follows.
            self.left_at.store(deadline, Ordering::Relaxed);
            // ORDERING: C2: the deadline.
            self.word
                .swap(word(task_id, State::Abandoned), Ordering::AcqRel);
        }
        leaves
    }
}
