//! The ages of queued tasks, in a pool that tracks them. In such a pool, submissions and starts do
//! not take their fast paths. Other pools pay nothing.

use crate::parts::queue::Queue;
use crate::sync::{lock, Mutex};
use crate::work::job::Task;

/// For each cell of the queue: the position of the latest task there, and when that task was
/// submitted, as returned by [`Env::nanos`](crate::work::env::Env::nanos).
#[derive(Debug)]
pub(crate) struct Ages(Box<[Mutex<(u64, u64)>]>);

impl Ages {
    pub(crate) fn new(queue: &Queue<Task>) -> Self {
        Self((0..queue.cells()).map(|_| Mutex::new((0, 0))).collect())
    }

    /// Notes when the task at a position was submitted.
    pub(crate) fn note(&self, queue: &Queue<Task>, position: u64, submitted: u64) {
        let mut noted = lock(&self.0[queue.cell_of(position)]);
        // If the OS stops this thread before this step, another thread may note the next task of
        // the cell first. That newer note must not be overwritten.
        if position.wrapping_sub(noted.0) as i64 >= 0 {
            *noted = (position, submitted);
        }
    }

    /// Returns the time when the oldest queued task was submitted. If that task has just been
    /// queued and is not noted yet, returns the time of a later task, which may have been taken out.
    pub(crate) fn oldest(&self, queue: &Queue<Task>) -> Option<u64> {
        queue.positions().find_map(|position| {
            let (noted, submitted) = *lock(&self.0[queue.cell_of(position)]);
            (noted == position && submitted != 0).then_some(submitted)
        })
    }
}
