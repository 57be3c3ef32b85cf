//! What a lowered limit does to the queue: a guarded `head`. Law 4.
#![cfg(lazypool_loom)]

use lazypool::model::{Popped, Queue};
use loom_tests::{beside, check};
use std::sync::Arc;

/// A pop is under way when the queue is guarded: it has taken its task by then, or it never does,
/// and what it found is left for who asks. Excludes: a pop that takes a task after a limit was
/// lowered, whatever it had seen before (Q3). All interleavings.
fn law04_guard_against_pop(revocable: bool) {
    check(None, move || {
        let queue = Arc::new(Queue::new(2));
        let pushed = match revocable {
            true => queue.push_revocable(1, 1),
            false => queue.push_plain(1),
        };
        assert!(pushed.is_ok());
        let worker = beside(&queue, |queue| queue.try_pop() == Popped::Task(1));
        queue.guard();
        let was_popped = queue.is_empty();
        assert_eq!(worker.join().unwrap(), was_popped);
        assert_ne!(queue.try_pop(), Popped::Task(1), "guarded");
        let left = queue.pop_guarded() == Some(1);
        assert_ne!(left, was_popped, "once");
        assert!(queue.is_empty());
    });
}

#[test]
fn law04_guard_against_pop_of_a_plain_task() {
    law04_guard_against_pop(false);
}

#[test]
fn law04_guard_against_pop_of_a_revocable_task() {
    law04_guard_against_pop(true);
}

/// The guard goes while a worker looks. Excludes: a task that is guarded for good. All
/// interleavings.
#[test]
fn the_guard_goes() {
    check(None, || {
        let queue = Arc::new(Queue::new(2));
        assert!(queue.push_plain(1).is_ok());
        queue.guard();
        let worker = beside(&queue, |queue| queue.try_pop() == Popped::Task(1));
        queue.unguard();
        let popped = worker.join().unwrap();
        assert_eq!(queue.try_pop() == Popped::Task(1), !popped);
        assert!(queue.is_empty());
    });
}
