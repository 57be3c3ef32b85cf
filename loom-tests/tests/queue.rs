//! Tasks that wait for a worker (`src/parts/queue`): each is taken out once, however it is taken
//! out, and space is neither denied nor given twice.
#![cfg(lazypool_loom)]

use lazypool::model::{Popped, Queue};
use loom_tests::{beside, check, one_sees_the_other};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use Start::{Empty, Full};

/// The position of the task that is pushed first.
const FIRST: u64 = 0;

/// A queue of some capacity, as a model begins with it. The tasks are named 1 and 2, and are of the
/// groups 8 and 16.
#[derive(Clone, Copy)]
enum Start {
    Empty(usize),
    Full(usize),
}

/// Explores a model of a queue. Asserts that the queue is at rest at the end.
fn check_queue(preemptions: Option<usize>, start: Start, model: fn(&Arc<Queue>)) {
    check(preemptions, move || {
        let (capacity, tasks) = match start {
            Empty(capacity) => (capacity, 0),
            Full(capacity) => (capacity, capacity),
        };
        let queue = Arc::new(Queue::new(capacity));
        for name in 1..=tasks {
            queue.push_of(name, 8 * name).expect("empty");
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
        let second = queue.push(2);
        let [first, next] = consumer.join().unwrap();
        assert_each_once([first, next, queue.pop()], second.is_some());
    });
}

/// A thread pops and then reads the free space, while another pushes as soon as there is space.
/// Excludes: a cell filled while the pop still reads it (M1). All interleavings.
#[test]
fn space_that_another_saw() {
    check_queue(None, Full(1), |queue| {
        let consumer = beside(queue, |queue| (queue.pop(), queue.space()));
        let other = beside(queue, |queue| queue.push(2).is_some());
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
        let other = beside(queue, |queue| queue.push(2).is_some());
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
/// then finds space for another. Excludes: more tasks than permits; a
/// permit that is lost or given back twice; a lost task. Preemptions: 3.
#[test]
fn law01_a_dead_cell_at_the_head_is_space() {
    check_queue(Some(3), Full(1), |queue| {
        let worker = beside(queue, |queue| [queue.pop(), queue.pop()]);
        let back = queue.take(FIRST);
        let pushed = queue.push(2);
        let [first, next] = worker.join().unwrap();
        assert_each_once([first, next, queue.pop(), back], pushed.is_some());
        assert!(queue.is_empty());
    });
}

/// A thread asks how many cells are in use, while another pushes, pops and pushes again. Excludes: an answer that was
/// never true, on which a task would be refused as beyond a queue that was not full (F1). All interleavings.
#[test]
fn the_queue_never_seems_fuller_than_it_was() {
    check(None, || {
        let queue = Arc::new(Queue::new(2));
        let reader = beside(&queue, |queue| queue.len());
        queue.push(1);
        assert_eq!(queue.pop(), Some(1));
        queue.push(2);
        let len = reader.join().unwrap();
        assert!(len <= 1, "at most one task is queued at any time");
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.pop(), Some(2));
        queue.assert_at_rest();
    });
}

/// The oldest task is taken out while a worker pops, and another task is behind it: the cell is dead at
/// `head`, or just as `head` arrives there (Q1). Then the cell's permit is free, before any later pop.
/// Excludes: a dead cell that neither thread passes; a permit given back twice. All interleavings.
#[test]
fn a_dead_cell_gives_its_permit_once() {
    for behind in [false, true] {
        check(None, move || {
            let queue = Arc::new(Queue::new(2));
            let positions = [1, 2].map(|name| queue.push(name).expect("empty"));
            positions
                .into_iter()
                .for_each(|position| queue.store_again(position));
            let taker = beside(&queue, move |queue| {
                queue.take(positions[usize::from(behind)])
            });
            let popped = queue.pop();
            let taken = taker.join().unwrap();
            let out = [popped, taken].into_iter().flatten().count();
            assert_eq!(
                queue.space(),
                out as u64,
                "no permit stays with a dead cell"
            );
            let rest = queue.pop();
            assert_each_once([popped, taken, rest], true);
            queue.assert_at_rest();
        });
    }
}

/// Two takers take two neighbors out. Excludes: a dead cell at `head` that neither passes, because
/// each leaves it to the other (Q1); a permit given back twice. All interleavings.
#[test]
fn two_dead_cells() {
    check_queue(None, Full(2), |queue| {
        let second = queue.positions()[1];
        [FIRST, second]
            .into_iter()
            .for_each(|position| queue.store_again(position));
        let first = beside(queue, |queue| queue.take(FIRST));
        assert_eq!(queue.take(second), Some(2));
        assert_eq!(first.join().unwrap(), Some(1));
        assert!(queue.is_empty(), "both are passed");
    });
}

/// A task is taken out while another thread pushes into its cell as soon as its permit is free.
/// Excludes: a cell filled while it is still read (M1); a permit that is given back before `head` has
/// passed the cell. All interleavings.
#[test]
fn the_permit_of_a_dead_cell_against_push() {
    check_queue(None, Full(1), |queue| {
        let taker = beside(queue, |queue| queue.take(FIRST));
        let pushed = queue.push(2);
        assert_eq!(taker.join().unwrap(), Some(1));
        assert_eq!(queue.pop(), pushed.map(|_| 2));
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
            assert_eq!(queue.push(1), Some(FIRST));
            queue.store_again(FIRST);
            let makes_space = |queue: &Queue| assert_eq!(way(queue), Some(1));
            let seen = one_sees_the_other(&queue, makes_space, |_| (), Queue::is_full);
            assert!(seen, "there was space by then");
            assert_eq!(queue.pop(), None);
            queue.assert_at_rest();
        });
    }
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
