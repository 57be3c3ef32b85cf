//! How long tasks have been queued, or have run: only in a pool that tracks ages. Such a pool's submissions
//! and starts leave their fast paths, so that all others pay nothing.

use crate::parts::queue::Queue;
use crate::sync::{lock, Mutex};
use crate::work::job::Task;

/// By the queue's cells: the position of the latest task there, and when it was submitted, as
/// [`Env::nanos`](crate::work::env::Env::nanos).
#[derive(Debug)]
pub(crate) struct Ages(Box<[Mutex<(u64, u64)>]>);

impl Ages {
    pub(crate) fn new(queue: &Queue<Task>) -> Self {
        Self((0..queue.cells()).map(|_| Mutex::new((0, 0))).collect())
    }
}

impl Ages {
    /// Notes when the task at a position was submitted.
    pub(super) fn note(&self, queue: &Queue<Task>, position: u64, submitted: u64) {
        let mut noted = lock(&self.0[queue.cell_of(position)]);
        // A thread that was stopped before this step may come after the next task in the cell.
        if position.wrapping_sub(noted.0) as i64 >= 0 {
            *noted = (position, submitted);
        }
    }

    /// Returns when the oldest queued task was submitted. One that was queued just now may not be noted yet.
    pub(super) fn oldest(&self, queue: &Queue<Task>) -> Option<u64> {
        queue.queued().find_map(|position| {
            let (noted, submitted) = *lock(&self.0[queue.cell_of(position)]);
            (noted == position && submitted != 0).then_some(submitted)
        })
    }
}
