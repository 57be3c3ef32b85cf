//! Tasks that wait for a worker (`src/parts/queue`): each is taken out once, in every
//! way there is, and room is neither denied nor doubled.
#![cfg(lazypool_loom)]

use lazypool::model::{NotPushed, Popped, Queue};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use loom_tests::{beside, check};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// Pushes as `submit` does: "full" counts only where `is_full` agrees.
fn push_until_full(queue: &Queue, name: usize) -> Result<u64, NotPushed> {
    loop {
        match queue.push_revocable(name, 0) {
            Err(NotPushed::Full) if !queue.is_full() => loom::thread::yield_now(),
            pushed => return pushed,
        }
    }
}

/// Two producers who are two consumers, one with a plain and one with a
/// revocable task, over the edge of a lap. Excludes: a pop that says "empty"
/// while a push is half done, a push that says "full" while a pop is, a task
/// lost or popped twice, a task read before it was written. All interleavings.
#[test]
fn push_and_pop() {
    check(None, || {
        let queue = Queue::new(2);
        queue.push_plain(7).unwrap();
        assert_eq!(queue.pop(), Some(7));
        let queue = Arc::new(queue);
        let other = beside(&queue, |queue| {
            queue.push_revocable(1, 0).expect("room for two");
            queue.pop().expect("two pushed, or one and its pop to come")
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
fn the_same_cell_again_revocable() {
    same_cell_again(|queue| queue.push_revocable(1, 0));
}

fn same_cell_again(first: fn(&Queue) -> Result<u64, NotPushed>) {
    check(None, move || {
        let queue = Arc::new(Queue::new(1));
        let consumer = beside(&queue, |queue| [queue.pop(), queue.pop()]);
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
/// closure that ran and came back, or neither; a tombstone that hides what is behind
/// it. All interleavings.
#[test]
fn withdraw_against_pop() {
    check(None, || {
        let queue = Arc::new(Queue::new(2));
        let position = queue.push_revocable(1, 0).unwrap();
        queue.push_plain(2).unwrap();
        let worker = beside(&queue, |queue| queue.pop());
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
/// pops. Excludes: "full" with room promised (a tombstone in nobody's count), a
/// capacity exceeded, a task lost in the tombstone it went into. All interleavings.
#[test]
fn a_tombstone_is_room() {
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        let position = queue.push_revocable(1, 0).unwrap();
        let worker = beside(&queue, |queue| [queue.pop(), queue.pop()]);
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

/// Two submitters and one tombstone. Excludes: both in it, neither in it, a capacity
/// exceeded. All interleavings.
#[test]
fn one_tombstone_for_one() {
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        let position = queue.push_revocable(1, 0).unwrap();
        assert_eq!(queue.withdraw(position), Some(1));
        let other = beside(&queue, |queue| push_until_full(queue, 2).is_ok());
        let mine = push_until_full(&queue, 3).is_ok();
        assert!(mine != other.join().unwrap(), "room for exactly one");
        assert_eq!(queue.pop(), Some(if mine { 3 } else { 2 }));
        assert_eq!(queue.pop(), None);
        queue.assert_at_rest();
    });
}

/// Two submitters and two tombstones. Excludes: a count of tombstones that loses one of
/// two changes at once (nobody could say any more that the queue is full). All
/// interleavings.
#[test]
fn two_tombstones_for_two() {
    check(None, || {
        let queue = Arc::new(Queue::new(2));
        let positions = [1, 2].map(|name| queue.push_revocable(name, 0).unwrap());
        for position in positions {
            assert!(queue.withdraw(position).is_some());
        }
        let other = beside(&queue, |queue| {
            push_until_full(queue, 3).expect("two tombstones")
        });
        push_until_full(&queue, 4).expect("two tombstones");
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
/// ask for room; that one says so and then asks. Excludes: "full" after the tombstone was
/// there. All interleavings.
#[test]
fn a_tombstone_is_seen() {
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        let asked = Arc::new(AtomicUsize::new(0));
        // Every write `SeqCst`, the first one, too: see the README.
        asked.store(0, Ordering::SeqCst);
        let position = queue.push_revocable(1, 0).unwrap();
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

/// One takes the only task, then looks whether another has begun to ask for room; that one
/// says so and then asks.
fn pop_is_seen(push: fn(&Queue) -> Result<u64, NotPushed>) {
    check(None, move || {
        let queue = Arc::new(Queue::new(1));
        let asked = Arc::new(AtomicUsize::new(0));
        // Every write `SeqCst`, the first one, too: see the README.
        asked.store(0, Ordering::SeqCst);
        push(&queue).unwrap();
        let other = thread::spawn({
            let (queue, asked) = (Arc::clone(&queue), Arc::clone(&asked));
            move || {
                asked.swap(1, Ordering::SeqCst);
                queue.is_full()
            }
        });
        assert_eq!(queue.pop(), Some(1));
        let before = asked.load(Ordering::SeqCst) == 0;
        let full = other.join().unwrap();
        assert!(!(before && full), "there was room by then");
        queue.assert_at_rest();
    });
}

/// Excludes: "full" after the task was gone (P4). All interleavings.
#[test]
fn a_pop_is_seen() {
    pop_is_seen(|queue| queue.push_plain(1));
}

/// The same with a task that may be withdrawn. All interleavings.
#[test]
fn a_pop_of_a_revocable_task_is_seen() {
    pop_is_seen(|queue| queue.push_revocable(1, 0));
}

/// A tombstone made by one thread and filled by another, which knows of a tombstone of its
/// own. Excludes: a cell filled before its task was taken out of it. All
/// interleavings.
#[test]
fn a_tombstone_of_another() {
    check(None, || {
        let queue = Arc::new(Queue::new(2));
        let [own, others] = [1, 2].map(|name| queue.push_revocable(name, 0).unwrap());
        assert_eq!(queue.withdraw(own), Some(1));
        let other = beside(&queue, move |queue| queue.withdraw(others));
        assert!(queue.push_revocable(3, 0).is_ok(), "a tombstone");
        assert_eq!(other.join().unwrap(), Some(2));
        assert_eq!((queue.pop(), queue.pop()), (Some(3), None));
        queue.assert_at_rest();
    });
}

/// A tombstone that is skipped while another is filled. Excludes: a tombstone that still
/// counts as room when it is none. All interleavings.
#[test]
fn a_tombstone_skipped_is_no_room() {
    check(None, || {
        let queue = Arc::new(Queue::new(2));
        let positions = [1, 2].map(|name| queue.push_revocable(name, 0).unwrap());
        for position in positions {
            assert!(queue.withdraw(position).is_some());
        }
        let worker = beside(&queue, |queue| queue.pop());
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
        queue.push_revocable(1, 0).unwrap();
        queue.push_revocable(2, 0).unwrap();
        let slow = beside(&queue, |queue| queue.pop());
        let popped = [queue.pop(), queue.pop(), slow.join().unwrap()];
        assert_eq!(popped.into_iter().flatten().sum::<usize>(), 3);
        queue.push_plain(3).expect("empty");
        assert_eq!(queue.pop(), Some(3));
        assert!(queue.is_empty());
        queue.assert_at_rest();
    });
}

/// A shutdown that discards against a submission into a tombstone. Excludes: a task
/// accepted after the queue was emptied for good. All interleavings.
#[test]
fn close_against_push() {
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        let position = queue.push_revocable(1, 0).unwrap();
        assert_eq!(queue.withdraw(position), Some(1));
        let submitter = beside(&queue, |queue| push_until_full(queue, 2));
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

/// The same, into a cell that was never a tombstone. All interleavings.
#[test]
fn close_against_plain_push() {
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        let submitter = beside(&queue, |queue| queue.push_plain(2));
        queue.close();
        let drained = queue.pop();
        let pushed = submitter.join().unwrap();
        assert_eq!(drained.is_some(), pushed.is_ok());
        assert_eq!(queue.pop(), None);
        queue.assert_at_rest();
    });
}

/// A group being cancelled looks at every task, and holds its cell for that, while
/// the caller of another withdraws it. Excludes: a withdrawal that gives up on a
/// cell that is held only for a look (its caller would wait for a worker that never
/// comes). All interleavings.
#[test]
fn a_look_is_no_pop() {
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        let position = queue.push_revocable(1, 8).unwrap();
        let group = beside(&queue, |queue| queue.take_of_group(16));
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
        queue.push_revocable(1, 8).unwrap();
        queue.push_revocable(2, 16).unwrap();
        let worker = beside(&queue, |queue| queue.pop());
        let taken = queue.take_of_group(16);
        let popped = worker.join().unwrap();
        let left = queue.pop();
        assert_eq!((taken, popped, left), (Some(2), Some(1), None));
        queue.assert_at_rest();
    });
}

/// A push into a tombstone, then a look at the group's flag; beside it the flag is set, then the
/// queue looked through (P3). Excludes: a cancel that reads the tombstone, beside a push that reads
/// that nothing is cancelled. All interleavings.
#[test]
fn cancel_against_push_into_a_tombstone() {
    check(None, || {
        let queue = Arc::new(Queue::of_a_tombstone());
        let flag = Arc::new(AtomicUsize::new(0));
        flag.store(0, Ordering::SeqCst);
        let cancelled = Arc::clone(&flag);
        let canceller = beside(&queue, move |queue| {
            cancelled.swap(1, Ordering::SeqCst);
            queue.take_of_group(16)
        });
        let _ = queue.push_revocable(1, 16).expect("room");
        let is_seen = flag.load(Ordering::SeqCst) != 0;
        let own = is_seen.then(|| queue.take_of_group(16)).flatten();
        let taken = canceller.join().unwrap();
        assert_eq!(own.or(taken), Some(1), "left in the queue");
    });
}

/// The last worker puts the queue to sleep while a task is pushed. Excludes: a task in a
/// queue that sleeps; a worker that stays, and nothing queued. Both outcomes come up. All
/// interleavings.
#[test]
fn sleep_against_push() {
    static SEEN: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        let worker = beside(&queue, |queue| queue.sleep());
        let pushed = queue.push_plain(1);
        let slept = worker.join().unwrap();
        SEEN[usize::from(slept)].store(true, std::sync::atomic::Ordering::Relaxed);
        match pushed {
            Ok(_) => assert_eq!((slept, queue.pop()), (false, Some(1))),
            Err(why) => assert_eq!((slept, why), (true, NotPushed::Asleep)),
        }
        assert!(queue.is_empty());
        queue.assert_at_rest();
    });
    for seen in &SEEN {
        assert!(seen.load(std::sync::atomic::Ordering::Relaxed));
    }
}

/// The same where the last task has just been taken out: a push may go into the tombstone,
/// behind it, or not at all. Excludes: a queue that sleeps with a tombstone that somebody
/// could fill. All interleavings.
#[test]
fn sleep_against_push_into_a_tombstone() {
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        let position = queue.push_revocable(1, 0).unwrap();
        assert_eq!(queue.withdraw(position), Some(1));
        let worker = beside(&queue, move |queue| {
            let first = queue.sleep();
            (first, queue.pop(), queue.sleep())
        });
        let pushed = push_until_full(&queue, 2);
        let (first, popped, slept) = worker.join().unwrap();
        assert!(!first, "a tombstone is in it");
        let left = queue.pop();
        match pushed {
            Ok(_) => {
                assert_eq!(popped.or(left), Some(2));
                assert!(!(slept && left.is_some()), "queued, and asleep");
            }
            Err(why) => assert_eq!((why, popped, slept), (NotPushed::Asleep, None, true)),
        }
        queue.assert_at_rest();
    });
}

/// A spawner wakes the queue while a second submitter pushes. Excludes: a push that is lost
/// with the flag; one that is refused afterwards. All interleavings.
#[test]
fn wake_against_push() {
    check(None, || {
        let queue = Arc::new(Queue::asleep(2));
        let spawner = beside(&queue, |queue| {
            queue.wake();
            queue.push_plain(1).expect("awake");
        });
        let pushed = queue.push_plain(2);
        assert!(pushed.is_ok() || pushed == Err(NotPushed::Asleep));
        spawner.join().unwrap();
        let mut seen: Vec<_> = [queue.pop(), queue.pop()].into_iter().flatten().collect();
        seen.sort_unstable();
        assert_eq!(seen, if pushed.is_ok() { vec![1, 2] } else { vec![1] });
        assert_eq!(queue.pushed(), seen.len() as u64);
        queue.assert_at_rest();
    });
}

/// A shutdown closes the queue while the last worker puts it to sleep, or a new one wakes
/// it. Excludes: one flag that is lost with the change of the other. All interleavings.
#[test]
fn close_against_sleep_and_wake() {
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        let worker = beside(&queue, |queue| {
            assert!(queue.sleep(), "nobody pushes");
            queue.wake();
        });
        queue.close();
        assert_eq!(queue.push_plain(1), Err(NotPushed::Closed));
        worker.join().unwrap();
        assert_eq!(queue.push_plain(1), Err(NotPushed::Closed));
        assert!(queue.sleep() && queue.is_empty());
    });
}

/// One try beside a push. Excludes: a try that waits for a push that is half done, in which
/// case it says so. Each of the three answers comes up. All interleavings.
#[test]
fn try_pop_against_push() {
    static SEEN: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        let worker = beside(&queue, |queue| queue.try_pop());
        queue.push_plain(1).expect("empty");
        let answer = match worker.join().unwrap() {
            Popped::Empty => 0,
            Popped::InProgress => 1,
            Popped::Task(_) => 2,
        };
        SEEN[answer].store(true, std::sync::atomic::Ordering::Relaxed);
        let left = (answer < 2).then_some(1);
        assert_eq!(queue.pop(), left);
        queue.assert_at_rest();
    });
    for seen in &SEEN {
        assert!(seen.load(std::sync::atomic::Ordering::Relaxed));
    }
}

/// What a worker does whose task has ended: one look, beside a push. Excludes: a task taken
/// before it was written, one taken and left. All interleavings.
#[test]
fn try_pop_ready_against_push() {
    check(None, || {
        let queue = Arc::new(Queue::new(2));
        queue.push_plain(1).unwrap();
        let worker = beside(&queue, |queue| {
            [queue.try_pop_ready(), queue.try_pop_ready()]
        });
        queue.push_revocable(2, 0).expect("room for two");
        let [first, second] = worker.join().unwrap();
        assert_eq!(first, Some(1));
        assert_eq!(queue.pop(), if second.is_some() { None } else { Some(2) });
        queue.assert_at_rest();
    });
}

/// One try beside a caller that takes its task back, with a task behind. Excludes: "empty"
/// because the oldest cell is held; a task popped twice. All interleavings.
#[test]
fn try_pop_against_withdraw() {
    check(None, || {
        let queue = Arc::new(Queue::new(2));
        let position = queue.push_revocable(1, 0).unwrap();
        queue.push_plain(2).unwrap();
        let caller = beside(&queue, move |queue| queue.withdraw(position));
        let tried = queue.try_pop();
        let back = caller.join().unwrap();
        let left: Vec<_> = [queue.pop(), queue.pop()].into_iter().flatten().collect();
        match tried {
            Popped::Empty => panic!("there was always one"),
            Popped::Task(1) => assert_eq!((back, left), (None, vec![2])),
            Popped::Task(_) => assert_eq!((back, left), (Some(1), vec![])),
            Popped::InProgress => assert_eq!((back, left), (Some(1), vec![2])),
        }
        queue.assert_at_rest();
    });
}

/// One try beside a group that looks at a task of another. Excludes: "empty" because the
/// cell is held for a look; a task lost in it. All interleavings.
#[test]
fn try_pop_against_a_look() {
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        queue.push_revocable(1, 8).unwrap();
        let group = beside(&queue, |queue| queue.take_of_group(16));
        let tried = queue.try_pop();
        assert_eq!(group.join().unwrap(), None);
        match tried {
            Popped::Empty => panic!("there was always one"),
            Popped::Task(name) => assert_eq!(name, 1),
            Popped::InProgress => assert_eq!(queue.pop(), Some(1)),
        }
        assert_eq!(queue.pop(), None);
        queue.assert_at_rest();
    });
}

/// One try beside a push into the tombstone at the oldest position. Excludes: a task in a
/// tombstone that is skipped; a tombstone counted when it is none. All interleavings.
#[test]
fn try_pop_against_revive() {
    check(None, || {
        let queue = Arc::new(Queue::new(1));
        let position = queue.push_revocable(1, 0).unwrap();
        assert_eq!(queue.withdraw(position), Some(1));
        let other = beside(&queue, |queue| {
            push_until_full(queue, 2).expect("a tombstone, or room")
        });
        let tried = queue.try_pop();
        other.join().unwrap();
        let left = queue.pop();
        match tried {
            Popped::Task(name) => assert_eq!((name, left), (2, None)),
            Popped::Empty | Popped::InProgress => assert_eq!(left, Some(2)),
        }
        queue.assert_at_rest();
    });
}

/// A discarding shutdown pushes a scope's task again behind the closed bit, while a worker
/// pops. Excludes: a task lost on the way, or run twice; one pushed again twice by the same
/// look. All interleavings.
#[test]
fn push_again_against_pop() {
    check(None, || {
        let queue = Arc::new(Queue::new(2));
        queue.push_plain(1).unwrap();
        queue.push_plain(2).unwrap();
        let end = queue.close();
        let worker = beside(&queue, |queue| queue.pop());
        let mut pushed = 0;
        while queue.is_before(end) {
            match queue.try_pop() {
                Popped::Task(name) => {
                    queue.push_again(name);
                    pushed += 1;
                }
                Popped::Empty => break,
                Popped::InProgress => thread::yield_now(),
            }
        }
        assert!(pushed <= 2);
        let popped = worker.join().unwrap();
        let mut seen: Vec<_> = [popped, queue.pop(), queue.pop()]
            .into_iter()
            .flatten()
            .collect();
        seen.sort_unstable();
        assert_eq!((seen, queue.pop()), (vec![1, 2], None));
        queue.assert_at_rest();
    });
}
