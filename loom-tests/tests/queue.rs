//! Tasks that wait for a worker (`queue.rs`): each is taken out once, in every
//! way there is, and room is neither denied nor doubled.
#![cfg(lazypool_loom)]

use lazypool::model::{NotPushed, Queue};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use loom_tests::check;
use std::sync::Arc;

/// Pushes as `submit` does: "full" counts only where `is_full` agrees.
fn push_until_full(queue: &Queue, name: usize) -> Result<u64, NotPushed> {
    loop {
        match queue.push_withdrawable(name, 0) {
            Err(NotPushed::Full) if !queue.is_full() => loom::thread::yield_now(),
            pushed => return pushed,
        }
    }
}

/// Two producers who are two consumers, one with a plain and one with a
/// withdrawable task, over the edge of a lap. Excludes: a pop that says "empty"
/// while a push is half done, a push that says "full" while a pop is, a task
/// lost or popped twice, a task read before it was written. All interleavings.
#[test]
fn push_and_pop() {
    check(None, || {
        let queue = Queue::new(2);
        queue.push_plain(7).unwrap();
        assert_eq!(queue.pop(), Some(7));
        let queue = Arc::new(queue);
        let other = thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                queue.push_withdrawable(1, 0).expect("room for two");
                queue.pop().expect("two pushed, or one and its pop to come")
            }
        });
        queue.push_plain(2).expect("room for two");
        let mine = queue.pop().expect("as above");
        assert_eq!(mine + other.join().unwrap(), 3);
        assert_eq!(queue.pop(), None);
        assert!(queue.is_empty());
        queue.assert_at_rest();
    });
}

/// One cell, so each push waits for the pop of the lap before to let the cell
/// go; a producer that has seen its task popped finds room. Excludes: a cell
/// filled before it was emptied, "full" after room was made. All interleavings.
#[test]
fn the_same_cell_again() {
    same_cell_again(|queue| queue.push_plain(1));
}

/// The same with a task that may be withdrawn. All interleavings.
#[test]
fn the_same_cell_again_withdrawable() {
    same_cell_again(|queue| queue.push_withdrawable(1, 0));
}

fn same_cell_again(first: fn(&Queue) -> Result<u64, NotPushed>) {
    check(None, move || {
        let queue = Arc::new(Queue::new(1));
        let consumer = thread::spawn({
            let queue = Arc::clone(&queue);
            move || [queue.pop(), queue.pop()]
        });
        first(&queue).expect("empty");
        let second = push_until_full(&queue, 2);
        let popped = consumer.join().unwrap();
        let left = queue.pop();
        let mut seen: Vec<_> = popped.into_iter().flatten().chain(left).collect();
        seen.sort_unstable();
        assert_eq!(seen, if second.is_ok() { vec![1, 2] } else { vec![1] });
        queue.assert_at_rest();
    });
}

/// A caller at its deadline against a worker, and a task behind. Excludes: a
/// closure that ran and came back, or neither; a hole that hides what is behind
/// it. All interleavings.
#[test]
fn withdraw_against_pop() {
    check(None, || {
        let queue = Arc::new(Queue::new(2));
        let position = queue.push_withdrawable(1, 0).unwrap();
        queue.push_plain(2).unwrap();
        let worker = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.pop()
        });
        let back = queue.withdraw(position);
        match worker.join().unwrap() {
            Some(1) => assert_eq!((back, queue.pop()), (None, Some(2))),
            Some(2) => assert_eq!((back, queue.pop()), (Some(1), None)),
            other => panic!("popped {other:?}"),
        }
        assert!(queue.is_empty());
        queue.assert_at_rest();
    });
}

/// Who took a task out of a full queue finds room for another, while a worker
/// pops. Excludes: "full" with room promised (a hole in nobody's count), a
/// capacity exceeded, a task lost in the hole it went into. All interleavings.
#[test]
fn a_hole_is_room() {
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        let position = queue.push_withdrawable(1, 0).unwrap();
        let worker = thread::spawn({
            let queue = Arc::clone(&queue);
            move || [queue.pop(), queue.pop()]
        });
        let back = queue.withdraw(position);
        let pushed = push_until_full(&queue, 2);
        let popped = worker.join().unwrap();
        assert!(pushed.is_ok() || back.is_none(), "withdrawn: room");
        let mut seen: Vec<_> = back
            .into_iter()
            .chain(popped.into_iter().flatten())
            .chain(queue.pop())
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, if pushed.is_ok() { vec![1, 2] } else { vec![1] });
        assert!(queue.is_empty());
        queue.assert_at_rest();
    });
}

/// Two submitters and one hole. Excludes: both in it, neither in it, a capacity
/// exceeded. All interleavings.
#[test]
fn one_hole_for_one() {
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        let position = queue.push_withdrawable(1, 0).unwrap();
        assert_eq!(queue.withdraw(position), Some(1));
        let other = thread::spawn({
            let queue = Arc::clone(&queue);
            move || push_until_full(&queue, 2).is_ok()
        });
        let mine = push_until_full(&queue, 3).is_ok();
        assert!(mine != other.join().unwrap(), "room for exactly one");
        assert_eq!(queue.pop(), Some(if mine { 3 } else { 2 }));
        assert_eq!(queue.pop(), None);
        queue.assert_at_rest();
    });
}

/// Two submitters and two holes. Excludes: a count of holes that loses one of
/// two changes at once (nobody could say any more that the queue is full). All
/// interleavings.
#[test]
fn two_holes_for_two() {
    check(None, || {
        let queue = Arc::new(Queue::new(2));
        let positions = [1, 2].map(|name| queue.push_withdrawable(name, 0).unwrap());
        for position in positions {
            assert!(queue.withdraw(position).is_some());
        }
        let other = thread::spawn({
            let queue = Arc::clone(&queue);
            move || push_until_full(&queue, 3).expect("two holes")
        });
        push_until_full(&queue, 4).expect("two holes");
        other.join().unwrap();
        assert!(queue.is_full());
        let mut left = [queue.pop(), queue.pop()];
        left.sort_unstable();
        assert_eq!((left, queue.pop()), ([Some(3), Some(4)], None));
        assert_eq!(queue.pushed(), 4);
        queue.assert_at_rest();
    });
}

/// One takes its task out of a full queue, then looks whether another has begun to
/// ask for room; that one says so and then asks. Excludes: "full" after the hole was
/// there. All interleavings.
#[test]
fn a_hole_is_seen() {
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        let asked = Arc::new(AtomicUsize::new(0));
        // Every write `SeqCst`, the first one, too: see the README.
        asked.store(0, Ordering::SeqCst);
        let position = queue.push_withdrawable(1, 0).unwrap();
        let other = thread::spawn({
            let (queue, asked) = (Arc::clone(&queue), Arc::clone(&asked));
            move || {
                asked.swap(1, Ordering::SeqCst);
                queue.is_full()
            }
        });
        assert_eq!(queue.withdraw(position), Some(1));
        let before = asked.load(Ordering::SeqCst) == 0;
        let full = other.join().unwrap();
        assert!(!(before && full), "there was room by then");
        assert_eq!(queue.pop(), None);
        queue.assert_at_rest();
    });
}

/// A hole made by one thread and filled by another, which knows of a hole of its
/// own. Excludes: a cell filled before its task was taken out of it. All
/// interleavings.
#[test]
fn a_hole_of_another() {
    check(None, || {
        let queue = Arc::new(Queue::new(2));
        let [own, others] = [1, 2].map(|name| queue.push_withdrawable(name, 0).unwrap());
        assert_eq!(queue.withdraw(own), Some(1));
        let other = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.withdraw(others)
        });
        assert!(queue.push_withdrawable(3, 0).is_ok(), "a hole");
        assert_eq!(other.join().unwrap(), Some(2));
        assert_eq!((queue.pop(), queue.pop()), (Some(3), None));
        queue.assert_at_rest();
    });
}

/// A hole that is skipped while another is filled. Excludes: a hole that still
/// counts as room when it is none. All interleavings.
#[test]
fn a_hole_skipped_is_no_room() {
    check(None, || {
        let queue = Arc::new(Queue::new(2));
        let positions = [1, 2].map(|name| queue.push_withdrawable(name, 0).unwrap());
        for position in positions {
            assert!(queue.withdraw(position).is_some());
        }
        let worker = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.pop()
        });
        push_until_full(&queue, 3).expect("room for two");
        let popped = worker.join().unwrap();
        let queued = usize::from(popped.is_none());
        for name in queued..2 {
            push_until_full(&queue, 4 + name).expect("room for two");
        }
        assert!(queue.is_full());
    });
}

/// A pop that is slow to move `head`, while another thread helps and pops on.
/// Excludes: a `head` that falls back, where every later pop would wait for ever.
/// All interleavings.
#[test]
fn head_only_grows() {
    check(None, || {
        let queue = Arc::new(Queue::new(2));
        queue.push_withdrawable(1, 0).unwrap();
        queue.push_withdrawable(2, 0).unwrap();
        let slow = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.pop()
        });
        let popped = [queue.pop(), queue.pop(), slow.join().unwrap()];
        assert_eq!(popped.into_iter().flatten().sum::<usize>(), 3);
        queue.push_plain(3).expect("empty");
        assert_eq!(queue.pop(), Some(3));
        assert!(queue.is_empty());
        queue.assert_at_rest();
    });
}

/// A shutdown that discards against a submission into a hole. Excludes: a task
/// accepted after the queue was emptied for good. All interleavings.
#[test]
fn close_against_push() {
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        let position = queue.push_withdrawable(1, 0).unwrap();
        assert_eq!(queue.withdraw(position), Some(1));
        let submitter = thread::spawn({
            let queue = Arc::clone(&queue);
            move || push_until_full(&queue, 2)
        });
        queue.close();
        let drained = queue.pop();
        assert_eq!(queue.pop(), None);
        match submitter.join().unwrap() {
            Ok(_) => assert_eq!(drained, Some(2)),
            Err(why) => {
                assert_eq!(why, NotPushed::Closed);
                assert_eq!(drained, None);
            }
        }
        assert_eq!(queue.pop(), None);
        queue.assert_at_rest();
    });
}

/// The same, into a cell that was never a hole. All interleavings.
#[test]
fn close_against_plain_push() {
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        let submitter = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.push_plain(2)
        });
        queue.close();
        let drained = queue.pop();
        let pushed = submitter.join().unwrap();
        assert_eq!(drained.is_some(), pushed.is_ok());
        assert_eq!(queue.pop(), None);
        queue.assert_at_rest();
    });
}

/// A group being cancelled looks at every task, and locks it for that, while
/// the caller of another withdraws it. Excludes: a withdrawal that gives up on a
/// lock that is only a look (its caller would wait for a worker that never
/// comes). All interleavings.
#[test]
fn a_look_is_no_pop() {
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        let position = queue.push_withdrawable(1, 8).unwrap();
        let group = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.take_of_group(16)
        });
        assert_eq!(queue.withdraw(position), Some(1));
        assert_eq!(group.join().unwrap(), None);
        assert_eq!(queue.pop(), None);
        queue.assert_at_rest();
    });
}

/// A group being cancelled against a worker. Excludes: a task discarded and run,
/// or neither; a task of another group taken. All interleavings.
#[test]
fn cancel_against_pop() {
    check(None, || {
        let queue = Arc::new(Queue::new(2));
        queue.push_withdrawable(1, 8).unwrap();
        queue.push_withdrawable(2, 16).unwrap();
        let worker = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.pop()
        });
        let taken = queue.take_of_group(16);
        let popped = worker.join().unwrap();
        let left = queue.pop();
        assert_eq!((taken, popped, left), (Some(2), Some(1), None));
        queue.assert_at_rest();
    });
}
