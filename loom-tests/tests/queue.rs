//! Tasks that wait for a worker (`src/parts/queue`): each is taken out once, however it is taken
//! out, and space is neither denied nor given twice.
#![cfg(lazypool_loom)]

use lazypool::model::{NotPushed, Popped, Queue};
use loom_tests::{beside, check, one_sees_the_other};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use Start::{DeadHead, Empty, Full};

/// The position of the task that is pushed first.
const FIRST: u64 = 0;

/// A queue of some capacity, as a model begins with it. The tasks are named 1 and 2, and are of the
/// groups 8 and 16.
#[derive(Clone, Copy)]
enum Start {
    Empty(usize),
    Full(usize),
    /// The queue has space for one task, and the cell at its head is dead.
    DeadHead,
}

/// Explores a model of a queue. Asserts that the queue is at rest at the end.
fn check_queue(preemptions: Option<usize>, start: Start, model: fn(&Arc<Queue>)) {
    check(preemptions, move || {
        let (capacity, tasks) = match start {
            Empty(capacity) => (capacity, 0),
            Full(capacity) => (capacity, capacity),
            DeadHead => (1, 1),
        };
        let queue = Arc::new(Queue::new(capacity));
        for name in 1..=tasks {
            queue.push_of(name, 8 * name).expect("empty");
        }
        if matches!(start, DeadHead) {
            assert_eq!(queue.take(FIRST), Some(1));
        }
        model(&queue);
        queue.assert_at_rest();
    });
}

/// Asserts that the tasks are 1 and, if `has_second`, 2, each of them once.
fn assert_each_once(tasks: impl IntoIterator<Item = Option<usize>>, has_second: bool) {
    let mut tasks: Vec<_> = tasks.into_iter().flatten().collect();
    tasks.sort_unstable();
    assert_eq!(tasks, if has_second { vec![1, 2] } else { vec![1] });
}

/// Asserts that each outcome of a model has occurred.
fn assert_all_occur(outcomes: &[AtomicBool]) {
    assert!(outcomes.iter().all(|seen| seen.load(Ordering::Relaxed)));
}

/// Pushes as `submit` does: trusts "full" only if `is_full` agrees.
fn push_until_full(queue: &Queue, name: usize) -> Result<u64, NotPushed> {
    loop {
        match queue.push(name) {
            Err(NotPushed::Full) if !queue.is_full() => loom::thread::yield_now(),
            pushed => return pushed,
        }
    }
}

/// Two threads each push and pop, over the end of a lap. Excludes: a pop that says "empty" while a
/// push is half done; a push that says "full" while a pop is half done; a task lost or popped
/// twice; a task read before it was written. All interleavings.
#[test]
fn push_and_pop() {
    check_queue(None, Empty(2), |queue| {
        queue.push(7).unwrap();
        assert_eq!(queue.pop(), Some(7));
        let other = beside(queue, |queue| {
            queue.push(1).expect("space for two");
            queue.pop().expect("two pushed, or one and its pop to come")
        });
        queue.push(2).expect("space for two");
        let mine = queue.pop().expect("as above");
        assert_eq!(mine + other.join().unwrap(), 3);
        assert_eq!(queue.pop(), None);
        assert!(queue.is_empty());
    });
}

/// A queue of one cell: each push needs the pop of the lap before. A producer that has seen its
/// task popped finds space. Excludes: a cell filled before its task was read; "full" after space
/// was made. All interleavings.
#[test]
fn the_same_cell_again() {
    check_queue(None, Empty(1), |queue| {
        let consumer = beside(queue, |queue| [queue.pop(), queue.pop()]);
        queue.push(1).expect("empty");
        let second = push_until_full(queue, 2);
        let [first, next] = consumer.join().unwrap();
        assert_each_once([first, next, queue.pop()], second.is_ok());
    });
}

/// A thread pops and then reads the free space, while another pushes as soon as there is space.
/// Excludes: a cell filled while the pop still reads it (M1). All interleavings.
#[test]
fn space_that_another_saw() {
    check_queue(None, Full(1), |queue| {
        let consumer = beside(queue, |queue| (queue.pop(), queue.space()));
        let other = beside(queue, |queue| push_until_full(queue, 2).is_ok());
        let pushed = other.join().unwrap();
        let (popped, space) = consumer.join().unwrap();
        assert_eq!(popped, Some(1));
        assert!(space == 1 || pushed);
        assert_eq!(queue.pop(), pushed.then_some(2));
    });
}

/// A pop or a push moves `head` past a task that its caller is taking out. Excludes: a cell filled
/// while the caller still reads it (M1). Preemptions: 3.
#[test]
fn take_against_skip_and_push() {
    check_queue(Some(3), Full(1), |queue| {
        let caller = beside(queue, |queue| queue.take(FIRST));
        let worker = beside(queue, |queue| queue.pop());
        let other = beside(queue, |queue| queue.push(2).is_ok());
        let pushed = other.join().unwrap();
        let taken = [caller.join().unwrap(), worker.join().unwrap(), queue.pop()];
        assert_each_once(taken, pushed);
    });
}

/// A caller at its deadline takes its task out while a worker pops; another task is behind it.
/// Excludes: a closure that ran and came back, or neither; a dead cell that hides the task behind
/// it. All interleavings.
#[test]
fn take_against_pop() {
    check_queue(None, Full(2), |queue| {
        let worker = beside(queue, |queue| queue.pop());
        let back = queue.take(FIRST);
        match worker.join().unwrap() {
            Some(1) => assert_eq!((back, queue.pop()), (None, Some(2))),
            Some(2) => assert_eq!((back, queue.pop()), (Some(1), None)),
            other => panic!("popped {other:?}"),
        }
        assert!(queue.is_empty());
    });
}

/// The only task of a full queue is taken out, while a worker pops. The thread that took it out
/// then finds space for another. Excludes: "full" although no older task is queued; more tasks than
/// the capacity; a lost task. Preemptions: 3.
#[test]
fn law01_a_dead_cell_at_the_head_is_space() {
    check_queue(Some(3), Full(1), |queue| {
        let worker = beside(queue, |queue| [queue.pop(), queue.pop()]);
        let back = queue.take(FIRST);
        let pushed = push_until_full(queue, 2);
        let [first, next] = worker.join().unwrap();
        assert!(pushed.is_ok() || back.is_none(), "taken back: space");
        assert_each_once([first, next, queue.pop(), back], pushed.is_ok());
        assert!(queue.is_empty());
    });
}

/// Two threads push into a full queue with one or two dead cells. Excludes: space for more tasks
/// than there are dead cells, or for fewer. All interleavings.
#[test]
fn two_dead_cells_for_two() {
    for dead in [1, 2] {
        check(None, move || {
            let queue = Arc::new(Queue::new(dead));
            for name in 0..dead {
                let position = queue.push(name).unwrap();
                assert!(queue.take(position).is_some());
            }
            let other = beside(&queue, |queue| push_until_full(queue, 3).is_ok());
            let pushed = [push_until_full(&queue, 4).is_ok(), other.join().unwrap()];
            assert_eq!(pushed.into_iter().filter(|it| *it).count(), dead);
            assert!(queue.is_full());
            let left: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
            assert_eq!(left.len(), dead, "{left:?}");
            assert!(left.iter().all(|name| *name > 2), "{left:?}");
            queue.assert_at_rest();
        });
    }
}

/// A push into a full queue skips the dead cell at `head`, while a worker pops that cell or the
/// task behind it. Excludes: a `head` that moves twice or not at all; a task that is lost or popped
/// before it was written. All interleavings.
#[test]
fn skip_by_push_against_skip_by_pop() {
    check_queue(None, Full(2), |queue| {
        assert_eq!(queue.take(FIRST), Some(1));
        let worker = beside(queue, |queue| queue.pop());
        push_until_full(queue, 3).expect("a dead cell at the head");
        assert_eq!(worker.join().unwrap(), Some(2));
        assert_eq!((queue.pop(), queue.pop()), (Some(3), None));
    });
}

/// The only task of a full queue is popped, or taken out, which leaves a dead cell at `head`, while
/// another thread announces itself and asks whether the queue is full. Excludes: "full" after that, to
/// a thread that the first one did not see (P2, P5). All interleavings.
#[test]
fn space_is_seen() {
    let ways: [fn(&Queue) -> Option<usize>; 2] = [Queue::pop, |queue| queue.take(FIRST)];
    for way in ways {
        check(None, move || {
            let queue = Arc::new(Queue::new(1));
            assert_eq!(queue.push(1), Ok(FIRST));
            queue.store_again(FIRST);
            let makes_space = |queue: &Queue| assert_eq!(way(queue), Some(1));
            let seen = one_sees_the_other(&queue, makes_space, |_| (), Queue::is_full);
            assert!(seen, "there was space by then");
            assert_eq!(queue.pop(), None);
            queue.assert_at_rest();
        });
    }
}

/// A shutdown discards while a submission pushes into a full queue whose oldest cell is dead.
/// Excludes: a task accepted after the shutdown has emptied the queue. All interleavings.
#[test]
fn close_against_push_past_a_dead_cell() {
    check_queue(None, DeadHead, |queue| {
        let submitter = beside(queue, |queue| push_until_full(queue, 2));
        queue.close();
        let drained = queue.pop();
        assert_eq!(queue.pop(), None);
        match submitter.join().unwrap() {
            Ok(_) => assert_eq!(drained, Some(2)),
            Err(why) => assert_eq!((why, drained), (NotPushed::Closed, None)),
        }
        assert_eq!(queue.pop(), None);
    });
}

/// A group's cancel looks at every queued task, and holds the task's cell while it looks. The
/// caller of a task outside that group takes its task back meanwhile. Excludes: a caller that gives
/// up because the cell is held for a look (it would wait for a worker that never comes). All
/// interleavings.
#[test]
fn a_look_is_no_pop() {
    check_queue(None, Full(1), |queue| {
        let group = beside(queue, |queue| queue.take_of_group(16));
        assert_eq!(queue.take(FIRST), Some(1));
        assert_eq!(group.join().unwrap(), None);
        assert_eq!(queue.pop(), None);
    });
}

/// A group's cancel looks at the queue while a worker pops. Excludes: a task discarded and run, or
/// neither; a task of another group that is taken. All interleavings.
#[test]
fn cancel_against_pop() {
    check_queue(None, Full(2), |queue| {
        let worker = beside(queue, |queue| queue.pop());
        let taken = queue.take_of_group(16);
        let popped = worker.join().unwrap();
        let left = queue.pop();
        assert_eq!((taken, popped, left), (Some(2), Some(1), None));
    });
}

/// Two groups are cancelled at once; each cancel looks through a queue that has a task of each
/// group. Excludes: a cancel that skips a cell because the other holds it for a look. All
/// interleavings.
#[test]
fn two_looks() {
    check_queue(None, Full(2), |queue| {
        let other = beside(queue, |queue| queue.take_of_group(8));
        assert_eq!(queue.take_of_group(16), Some(2));
        assert_eq!(other.join().unwrap(), Some(1));
        assert_eq!(queue.pop(), None);
    });
}

/// A cancel looks through the queue while a push skips the dead cell where the look begins, and
/// fills that cell again. Excludes: a cancel that takes the new task for an older one, or waits for
/// it for ever. All interleavings.
#[test]
fn a_look_against_skip_and_push() {
    check_queue(None, DeadHead, |queue| {
        let group = beside(queue, |queue| queue.take_of_group(16));
        push_until_full(queue, 2).expect("a dead cell at the head");
        assert_eq!(group.join().unwrap(), None);
        assert_eq!((queue.pop(), queue.pop()), (Some(2), None));
    });
}

/// The last worker puts the queue to sleep while a task is pushed. Excludes: a task in a queue that
/// sleeps; a worker that stays although nothing is queued. Both outcomes occur. All interleavings.
#[test]
fn sleep_against_push() {
    static SEEN: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
    check_queue(None, Empty(1), |queue| {
        let worker = beside(queue, |queue| queue.sleep());
        let pushed = queue.push(1);
        let slept = worker.join().unwrap();
        SEEN[usize::from(slept)].store(true, Ordering::Relaxed);
        match pushed {
            Ok(_) => assert_eq!((slept, queue.pop()), (false, Some(1))),
            Err(why) => assert_eq!((slept, why), (true, NotPushed::Asleep)),
        }
        assert!(queue.is_empty());
    });
    assert_all_occur(&SEEN);
}

/// The last worker puts the queue to sleep while a task is pushed, just after the last task was
/// taken out. The worker or the push has to skip its dead cell. Excludes: a queue that sleeps with
/// a task in it. All interleavings.
#[test]
fn sleep_against_push_past_a_dead_cell() {
    check_queue(None, DeadHead, |queue| {
        let worker = beside(queue, |queue| (queue.pop(), queue.sleep()));
        let pushed = push_until_full(queue, 2);
        let (popped, slept) = worker.join().unwrap();
        let left = queue.pop();
        match pushed {
            Ok(_) => {
                assert_eq!(popped.or(left), Some(2));
                assert!(!(slept && left.is_some()), "queued, and asleep");
            }
            Err(why) => assert_eq!((why, popped, slept), (NotPushed::Asleep, None, true)),
        }
    });
}

/// A thread that starts a worker wakes the queue while a second submitter pushes. Excludes: a push
/// that is lost as the flag changes; a push that is refused after that. All interleavings.
#[test]
fn wake_against_push() {
    check(None, || {
        let queue = Arc::new(Queue::asleep(2));
        let spawner = beside(&queue, |queue| {
            queue.wake();
            queue.push(1).expect("awake");
        });
        let pushed = queue.push(2);
        assert!(pushed.is_ok() || pushed == Err(NotPushed::Asleep));
        spawner.join().unwrap();
        assert_each_once([queue.pop(), queue.pop()], pushed.is_ok());
        assert_eq!(queue.pushed(), 1 + u64::from(pushed.is_ok()));
        queue.assert_at_rest();
    });
}

/// A shutdown closes the queue while the last worker puts it to sleep, or a new worker wakes it.
/// Excludes: one flag that is lost as the other changes. All interleavings.
#[test]
fn close_against_sleep_and_wake() {
    check_queue(None, Empty(1), |queue| {
        let worker = beside(queue, |queue| {
            assert!(queue.sleep(), "nobody pushes");
            queue.wake();
        });
        queue.close();
        assert_eq!(queue.push(1), Err(NotPushed::Closed));
        worker.join().unwrap();
        assert_eq!(queue.push(1), Err(NotPushed::Closed));
        assert!(queue.sleep() && queue.is_empty());
    });
}

/// A worker tries once to pop while a task is pushed. Excludes: a try that waits for a push that is
/// half done; it must say `InProgress` instead. Each of the three answers occurs. All
/// interleavings.
#[test]
fn try_pop_against_push() {
    static SEEN: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];
    check_queue(None, Empty(1), |queue| {
        let worker = beside(queue, |queue| queue.try_pop());
        queue.push(1).expect("empty");
        let answer = match worker.join().unwrap() {
            Popped::Empty => 0,
            Popped::InProgress => 1,
            Popped::Task(_) => 2,
        };
        SEEN[answer].store(true, Ordering::Relaxed);
        assert_eq!(queue.pop(), (answer < 2).then_some(1));
    });
    assert_all_occur(&SEEN);
}

/// A worker whose task has ended looks at the queue once while a task is pushed. Excludes: a task
/// taken before it was written; a task taken and left in the queue. All interleavings.
#[test]
fn try_pop_ready_against_push() {
    check_queue(None, Empty(2), |queue| {
        queue.push(1).unwrap();
        let looks = |queue: &Arc<Queue>| [queue.try_pop_ready(), queue.try_pop_ready()];
        let worker = beside(queue, looks);
        queue.push(2).expect("space for two");
        let [first, second] = worker.join().unwrap();
        assert_eq!(first, Some(1));
        assert_eq!(queue.pop(), if second.is_some() { None } else { Some(2) });
    });
}

/// A worker tries once to pop while a caller takes the oldest task back, with another task behind.
/// Excludes: "empty" because the oldest cell is held; a task popped twice. All interleavings.
#[test]
fn try_pop_against_take() {
    check_queue(None, Full(2), |queue| {
        let caller = beside(queue, |queue| queue.take(FIRST));
        let tried = queue.try_pop();
        let back = caller.join().unwrap();
        let left: Vec<_> = [queue.pop(), queue.pop()].into_iter().flatten().collect();
        match tried {
            Popped::Empty => panic!("there was always one"),
            Popped::Task(1) => assert_eq!((back, left), (None, vec![2])),
            Popped::Task(_) => assert_eq!((back, left), (Some(1), vec![])),
            Popped::InProgress => assert_eq!((back, left), (Some(1), vec![2])),
        }
    });
}

/// A thread reads the free space while `head` moves and a task is pushed. Excludes: more space than
/// the capacity. All interleavings.
#[test]
fn space_is_never_more_than_all() {
    check_queue(None, Full(1), |queue| {
        let worker = beside(queue, |queue| queue.pop());
        let looker = beside(queue, |queue| assert!(queue.space() <= 1));
        let _ = queue.push(2);
        looker.join().unwrap();
        let _ = worker.join().unwrap();
        while queue.pop().is_some() {}
        assert_eq!(queue.space(), 1);
    });
}
