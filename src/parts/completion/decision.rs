//! The word that decides whether a started task's result is delivered.

use super::node::WaitNode;
use crate::parts::backoff::Backoff;
use crate::sync::{AtomicU64, Ordering};

/// What has been decided for the task with an id. Zero: there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum State {
    Running = 1,
    Completing = 2,
    Abandoned = 3,
    Pinned = 4,
    Leaving = 5,
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

/// What a caller at its deadline finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Leave {
    Left,
    /// It is being delivered.
    Outcome,
    /// The task is not yet started, or is reading the deadline.
    NotYet,
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
        // Relaxed: whoever reads it looks again.
        let state = self.word.load(Ordering::Relaxed) & STATE;
        state == State::Leaving as u64 || state == State::Abandoned as u64
    }

    /// The deadline at which the running task's caller left; `None`: not yet, or it was a handle.
    pub(crate) fn left_at(&self) -> Option<u64> {
        // ORDERING: C2: the deadline. Whoever reads it looks again.
        let is_over = self.word.load(Ordering::Acquire) & STATE == State::Abandoned as u64;
        // Relaxed: the word was read with Acquire.
        let left_at = is_over.then(|| self.left_at.load(Ordering::Relaxed));
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
        // ORDERING: C2: either way the loser acts on the word alone; the outcome itself is
        // published by `done`. Acquires what a caller that left did before.
        let won = self.word.compare_exchange(
            word(task_id, State::Running),
            word(task_id, State::Completing),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        won.is_ok()
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
        while self.word.load(Ordering::Acquire) == word(task_id, State::Leaving) {
            backoff.wait();
        }
    }

    /// Worker, during the task: the deadline that its caller has told it, as
    /// [`WaitNode::set_deadline`] has it.
    ///
    /// # Safety
    /// The task has been started and not completed. `node` is its caller's: alive as long as
    /// the word says that the caller waits, which has a deadline to tell.
    pub(crate) unsafe fn deadline(&self, task_id: u64, node: *const WaitNode) -> u64 {
        // ORDERING: C1: what the caller does next comes after this and before.
        let pinned = self.word.compare_exchange(
            word(task_id, State::Running),
            word(task_id, State::Pinned),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if pinned.is_err() {
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

    /// Handle, or the worker for it: nobody waits for the running task any more. `false`: it has
    /// ended, or this has been said before.
    pub(crate) fn abandon(&self, task_id: u64) -> bool {
        self.leave(task_id, 0) == Leave::Left
    }

    /// Caller: tries to leave a started task, with its deadline for the task to read; a handle has
    /// none, zero.
    pub(crate) fn leave(&self, task_id: u64, deadline: u64) -> Leave {
        let completing = word(task_id, State::Completing);
        // ORDERING: C1: the worker has read what it needs of the node.
        let seen = self.word.load(Ordering::Acquire);
        if seen != word(task_id, State::Running) {
            return if seen == completing {
                Leave::Outcome
            } else {
                Leave::NotYet
            };
        }
        // ORDERING: C2: what the caller did happens before the worker's drop of the result.
        let left = self.word.compare_exchange(
            seen,
            word(task_id, State::Leaving),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        match left {
            Ok(_) => {
                // Relaxed: published by what follows.
                self.left_at.store(deadline, Ordering::Relaxed);
                // ORDERING: C2: the deadline.
                self.word
                    .swap(word(task_id, State::Abandoned), Ordering::AcqRel);
                Leave::Left
            }
            Err(now) if now == completing => Leave::Outcome,
            Err(_) => Leave::NotYet, // pinned
        }
    }
}
