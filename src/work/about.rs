//! The description of a worker's running task, which other threads may read at any time.
//!
//! The worker never waits for a reader, and a reader never waits for the worker: a reader that meets
//! the worker in the middle of a change gets nothing. This is a sequence lock (H.-J. Boehm, "Can
//! seqlocks get along with programming language memory models?", 2012) whose sequence number is the
//! number of the task.
//!
//! | pair | one side | the other side |
//! |---|---|---|
//! | I1 | the worker sets `WRITING`, *then* the fields, *then* the task's number | a reader reads the number, *then* the fields, *then* the number again |

use crate::sync::{fence, AtomicPtr, AtomicU64, Ordering};

/// The value of `task` while the fields change. No slot runs so many tasks.
const WRITING: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct About {
    /// How many tasks had ended on the slot before the described task began.
    task: AtomicU64,
    /// The label: its address, null if there is none, and its length in bytes.
    label: AtomicPtr<u8>,
    length: AtomicU64,
    /// The start of the task, as returned by [`Env::nanos`](crate::work::env::Env::nanos); zero if
    /// ages are not tracked.
    started: AtomicU64,
}

impl Default for About {
    fn default() -> Self {
        Self {
            task: AtomicU64::new(WRITING),
            label: AtomicPtr::new(std::ptr::null_mut()),
            length: AtomicU64::new(0),
            started: AtomicU64::new(0),
        }
    }
}

impl About {
    /// Describes the task that begins. Called by the slot's worker only.
    pub(crate) fn set(&self, task: u64, label: Option<&'static str>, started: Option<u64>) {
        // Relaxed: the fence orders it before the fields.
        self.task.store(WRITING, Ordering::Relaxed);
        // ORDERING: I1: a reader that reads one of the fields below reads `WRITING`, or a later
        // number, at its second reading.
        fence(Ordering::Release);
        let (address, length) = label.map_or((std::ptr::null(), 0), |label| {
            (label.as_ptr(), label.len() as u64)
        });
        // Relaxed: ordered by the fence and by the release below.
        self.label.store(address.cast_mut(), Ordering::Relaxed);
        self.length.store(length, Ordering::Relaxed);
        self.started.store(started.unwrap_or(0), Ordering::Relaxed);
        // ORDERING: I1: releases the fields.
        crate::sync::store_release(&self.task, task);
    }

    /// Returns the label and the start of a task. Returns `None` if another task is described, or
    /// none.
    pub(crate) fn get(&self, task: u64) -> Option<(Option<&'static str>, Option<u64>)> {
        // ORDERING: I1: acquires the fields.
        if self.task.load(Ordering::Acquire) != task {
            return None;
        }
        // Relaxed: ordered by the acquire above and by the fence.
        let address = self.label.load(Ordering::Relaxed);
        let length = self.length.load(Ordering::Relaxed);
        let started = self.started.load(Ordering::Relaxed);
        // ORDERING: I1: the number is read again after the fields.
        fence(Ordering::Acquire);
        // Relaxed: the fence orders it.
        if self.task.load(Ordering::Relaxed) != task {
            return None;
        }
        let label = (!address.is_null()).then(|| {
            // SAFETY: both readings of the number are equal, and each task has a number of its own.
            // So the address and the length are those of one label, which is `'static`.
            unsafe {
                let bytes = std::slice::from_raw_parts(address.cast_const(), length as usize);
                std::str::from_utf8_unchecked(bytes)
            }
        });
        Some((label, (started != 0).then_some(started)))
    }
}
