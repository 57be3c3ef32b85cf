//! The ages of queued tasks, in a pool that tracks them. In such a pool, submissions and starts do
//! not take their fast paths. Other pools pay nothing.

use crate::parts::queue::Queue;
use crate::sync::{AtomicU64, Ordering};
use crate::work::job::Task;

/// The bits of a note that have the time, in microseconds: enough for 142 years.
const TIME: u32 = 52;
/// The bits above have the end of the task's lap.
const LAPS: u64 = 1 << (64 - TIME);

/// For each cell of the queue: the lap of the latest task there, and when that task was submitted. Both
/// are in one word, so that no reader holds up a push. Zero: nothing is noted.
#[derive(Debug)]
pub(crate) struct Ages(Box<[AtomicU64]>);

impl Ages {
    pub(crate) fn new(queue: &Queue<Task>) -> Self {
        Self((0..queue.cells()).map(|_| AtomicU64::new(0)).collect())
    }

    /// Returns the note of a task: its lap, and when it was submitted, as returned by
    /// [`Env::nanos`](crate::work::env::Env::nanos).
    fn note_of(queue: &Queue<Task>, position: u64, submitted: u64) -> u64 {
        let micros = (submitted / 1000 + 1) & ((1 << TIME) - 1);
        (queue.lap_of(position) % LAPS) << TIME | micros
    }

    /// Notes when the task at a position was submitted.
    pub(crate) fn note(&self, queue: &Queue<Task>, position: u64, submitted: u64) {
        let note = Self::note_of(queue, position, submitted);
        // If the OS stops this thread before this step, another thread may note the next task of
        // the cell first. That newer note must not be overwritten.
        let is_newer = |old: u64| {
            let laps = (note >> TIME).wrapping_sub(old >> TIME) % LAPS;
            old == 0 || laps < LAPS / 2
        };
        let replace = |old| is_newer(old).then_some(note);
        let noted = &self.0[queue.cell_of(position)];
        // Relaxed: a figure. The word has all that belongs together.
        let _ = noted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, replace);
    }

    /// Returns the time when the oldest queued task was submitted, at most a microsecond too early. If
    /// that task has just been queued and is not noted yet, returns the time of a later task, which may
    /// have been taken out.
    pub(crate) fn oldest(&self, queue: &Queue<Task>) -> Option<u64> {
        queue.positions().find_map(|position| {
            // Relaxed: as in `note`.
            let noted = self.0[queue.cell_of(position)].load(Ordering::Relaxed);
            let micros = noted & ((1 << TIME) - 1);
            let is_its = noted >> TIME == queue.lap_of(position) % LAPS;
            (is_its && micros != 0).then(|| (micros - 1) * 1000)
        })
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;
    use crate::error::TaskError;
    use crate::parts::gate::{Freed, Gate};
    use crate::parts::queue::Popped;
    use crate::work::observe::Moment;

    fn push(queue: &Queue<Task>, gate: &Gate) -> u64 {
        let permit = gate.take().expect("free").0;
        queue.push(&mut Some(Task::new(Moment::default(), (), || ())), permit)
    }

    #[test]
    fn the_oldest_is_that_of_the_tasks_own_lap() {
        let (queue, gate) = (Queue::new(2), Gate::new(16));
        let ages = Ages::new(&queue);
        let first = push(&queue, &gate);
        assert_eq!(ages.oldest(&queue), None, "not noted yet");
        ages.note(&queue, first, 5_999);
        assert_eq!(ages.oldest(&queue), Some(5_000));
        let (mut place, mut freed) = (None, Freed::default());
        for _ in 0..2 {
            let Popped::Task(_, permit) = queue.try_pop(&mut place, &mut freed) else {
                panic!("a task is queued")
            };
            permit.leave_with_task();
            drop(
                place
                    .take()
                    .map(|task| task.discard(|| TaskError::Discarded)),
            );
            assert_eq!(ages.oldest(&queue), None);
            let next = push(&queue, &gate);
            assert_eq!(ages.oldest(&queue), None, "the note of the lap before");
            ages.note(&queue, next, 9_000);
            assert_eq!(ages.oldest(&queue), Some(9_000));
        }
        // The thread that has pushed the first task goes on only now.
        ages.note(&queue, first, 5_999);
        assert_eq!(ages.oldest(&queue), Some(9_000));
    }
}
