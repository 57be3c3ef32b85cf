use super::*;
use crate::parts::cut::cut;
use crate::parts::gate::Gate;
use std::sync::atomic::AtomicUsize;
use std::thread;

/// A task that has only a name and a group.
#[derive(Debug, PartialEq, Eq)]
struct Item {
    id: usize,
    group: usize,
}

/// Returns a position two laps before the wrap. Tests of the wrap start there.
fn before_wrap(capacity: usize) -> u64 {
    0_u64.wrapping_sub(2 * STEP * capacity.next_power_of_two() as u64)
}

fn item(id: usize) -> Item {
    Item { id, group: id % 2 }
}

fn push(queue: &Queue<Item>, id: usize) -> u64 {
    let mut task = Some(item(id));
    let position = queue.push(&mut task, Permit::of_taken_task());
    assert!(task.is_none());
    position
}

/// Returns how many tasks have been pushed into a queue whose first position was `first`.
fn pushed_since(first: u64, queue: &Queue<Item>) -> u64 {
    let laps = u128::from(u64::MAX / (queue.cells.index_mask() + 1)) + 1;
    let all = laps * u128::from(queue.cells.len());
    let pushed = u128::from(queue.pushed()) + all - u128::from(queue.number(first));
    (pushed % all) as u64
}

/// Gives the permits back, and returns how many there were.
fn count(mut freed: Freed) -> u64 {
    if freed.is_empty() {
        return 0;
    }
    let most = SKIPS as usize;
    let gate = Gate::new(most);
    for _ in 0..most {
        gate.take().expect("free").0.leave_with_task();
    }
    gate.give_all(&mut freed).0
}

/// Takes a task out, and returns it with the number of permits of cells that were passed.
fn take(queue: &Queue<Item>, position: u64) -> Option<(usize, u64)> {
    let mut freed = Freed::default();
    let task = queue.take_if(position, &mut freed, |_| true);
    let freed = count(freed);
    task.map(|task| (task.id, freed))
}

/// Pops a task, and returns it with the number of permits of cells that were passed.
fn pop_and_pass(queue: &Queue<Item>) -> (Option<usize>, u64) {
    let (mut place, mut freed) = (None, Freed::default());
    let id = match queue.try_pop(&mut place, &mut freed) {
        Popped::Task(_, permit) => {
            permit.leave_with_task();
            Some(place.expect("a task").id)
        }
        Popped::Empty => None,
        other => panic!("{other:?}"),
    };
    (id, count(freed))
}

fn pop(queue: &Queue<Item>) -> Option<usize> {
    pop_and_pass(queue).0
}

fn all(queue: &Queue<Item>) -> Vec<usize> {
    std::iter::from_fn(|| pop(queue)).collect()
}

#[test]
fn holds_as_many_as_it_has_cells_first_in_first_out() {
    for cells in [1, 2, 3, 5, 8] {
        for first in [0, before_wrap(cells)] {
            let queue = Queue::starting_at(first, cells);
            let mut next = 0;
            for _ in 0..20 {
                for n in 0..cells {
                    assert_eq!(queue.len(), n as u64);
                    push(&queue, next);
                    assert!(queue.is_filled() && !queue.is_empty());
                    next += 1;
                }
                assert_eq!(all(&queue), (next - cells..next).collect::<Vec<_>>());
                assert!(queue.is_empty() && !queue.is_filled() && pop(&queue).is_none());
            }
            assert_eq!(pushed_since(first, &queue), next as u64);
        }
    }
}

/// A thread that asks how full the queue is may be stopped between the loads of the two ends.
#[test]
fn a_head_that_has_passed_the_tail_that_was_read_leaves_nothing() {
    for cells in [1, 2, 3, 8] {
        for first in [0, before_wrap(cells)] {
            let queue = Queue::<Item>::starting_at(first, cells);
            let positions: Vec<_> = std::iter::successors(Some(first), |at| Some(queue.after(*at)))
                .take(5 * cells)
                .collect();
            for (i, head) in positions.iter().enumerate() {
                for (j, tail) in positions.iter().enumerate() {
                    let ahead = j.saturating_sub(i) as u64;
                    assert_eq!(queue.used_from(*head, *tail), ahead, "{cells}: {i} to {j}");
                }
            }
        }
    }
}

/// A permit that was given back twice is a bug. It does not overwrite a task.
#[test]
#[should_panic(expected = "more tasks are queued than there are permits")]
fn a_push_beyond_the_permits_panics() {
    let queue = Queue::new(3);
    (0..4).for_each(|id| _ = push(&queue, id));
}

#[test]
fn wanted_tasks_are_taken_out_and_the_others_stay() {
    for first in [0, before_wrap(6)] {
        let queue = Queue::starting_at(first, 6);
        for id in 0..6 {
            push(&queue, id);
        }
        assert_eq!(pop(&queue), Some(0));
        let wanted = || -> Vec<usize> {
            let mut freed = Freed::default();
            let take = |at| queue.take_if(at, &mut freed, |item| item.group == 0);
            let taken = queue.positions().filter_map(take).map(|item| item.id);
            let taken = taken.collect();
            assert_eq!(count(freed), 0, "an older task is queued before each");
            taken
        };
        assert_eq!(wanted(), [2, 4]);
        assert!(wanted().is_empty());
        assert_eq!(all(&queue), [1, 3, 5]);
    }
}

/// A dead cell keeps its permit until it is the oldest. Either the thread that has made it dead or the
/// one that pops the task before it passes it.
#[test]
fn a_dead_cell_keeps_its_permit_until_it_is_the_oldest() {
    for first in [0, before_wrap(4)] {
        let queue = Queue::starting_at(first, 4);
        let at: Vec<_> = (0..4).map(|id| push(&queue, id)).collect();
        assert_eq!(take(&queue, at[1]), Some((1, 0)));
        assert!(take(&queue, at[1]).is_none(), "taken once");
        assert_eq!(take(&queue, at[0]), Some((0, 2)), "it passes both");
        assert!(take(&queue, at[0]).is_none());
        assert_eq!(take(&queue, at[3]), Some((3, 0)));
        assert_eq!(
            pop_and_pass(&queue),
            (Some(2), 1),
            "the pop passes the last one"
        );
        assert!(queue.is_empty());
        assert_eq!(all(&queue), [0_usize; 0]);
    }
}

/// No step passes more than a limited number of dead cells. A step that stops there says so.
#[test]
fn one_step_passes_a_few_dead_cells_and_the_next_goes_on() {
    const LEN: usize = 4 * SKIPS as usize;
    for first in [0, before_wrap(LEN)] {
        let queue = Queue::starting_at(first, LEN);
        let at: Vec<_> = (0..LEN).map(|id| push(&queue, id)).collect();
        for at in &at[1..LEN - 1] {
            assert!(take(&queue, *at).is_some());
        }
        let (mut place, mut freed) = (None, Freed::default());
        let popped = queue.try_pop(&mut place, &mut freed);
        let Popped::Task(_, permit) = popped else {
            panic!("{popped:?}")
        };
        permit.leave_with_task();
        assert_eq!(place.take(), Some(item(0)));
        let mut passed = 0;
        let mut steps = 1;
        while std::mem::take(&mut freed.more) {
            passed += count(std::mem::take(&mut freed));
            assert!(passed <= steps * u64::from(SKIPS));
            queue.pass_dead(&mut freed);
            steps += 1;
        }
        passed += count(freed);
        assert_eq!((passed, steps > 2), (LEN as u64 - 2, true));
        assert_eq!(all(&queue), [LEN - 1]);
    }
}

/// A pop finds dead cells at the head if the thread that has made the oldest one dead has not passed it yet.
/// Once the pop has passed some, that thread passes none. So the pop says that more are left.
#[test]
fn a_pop_that_stops_at_dead_cells_says_so() {
    const LEN: usize = 2 * SKIPS as usize;
    for first in [0, before_wrap(LEN)] {
        let queue = Queue::starting_at(first, LEN);
        let at: Vec<_> = (0..LEN).map(|id| push(&queue, id)).collect();
        for at in &at[1..] {
            assert!(take(&queue, *at).is_some());
        }
        let oldest = queue.at(at[0]);
        let held = oldest.hold().expect("a task");
        assert_eq!(held.take_out(), item(0));
        // The taker stands between its two steps.
        let (mut place, mut freed) = (None, Freed::default());
        let popped = queue.try_pop(&mut place, &mut freed);
        assert!(matches!(popped, Popped::Passed), "{popped:?}");
        assert!(freed.more, "the others keep their permits");
        let mut passed = 0;
        while std::mem::take(&mut freed.more) {
            passed += count(std::mem::take(&mut freed));
            queue.pass_dead(&mut freed);
        }
        assert_eq!(passed + count(freed), LEN as u64);
        assert!(queue.is_empty());
    }
}

#[test]
#[should_panic(expected = "a task to push")]
fn nothing_is_pushed_without_a_task() {
    Queue::<Item>::new(2).push(&mut None, Permit::of_taken_task());
}

/// Two producers and two consumers share a queue, and the producers take tasks out of its middle. A
/// gate bounds the tasks. Each task ends exactly once, and in the end all permits are free.
#[test]
fn loses_and_doubles_nothing() {
    const EACH: usize = cut(20_000) as usize;
    let first = before_wrap(5);
    let (queue, gate) = (Queue::starting_at(first, 5), Gate::new(5));
    let ended: Vec<_> = (0..2 * EACH).map(|_| AtomicUsize::new(0)).collect();
    let left = AtomicUsize::new(2 * EACH);
    let end = |item: Item| {
        ended[item.id].fetch_add(1, Ordering::SeqCst);
        left.fetch_sub(1, Ordering::SeqCst);
    };
    let give_all = |mut freed: Freed| {
        let _ = gate.give_all(&mut freed);
        while std::mem::take(&mut freed.more) {
            queue.pass_dead(&mut freed);
            let _ = gate.give_all(&mut freed);
        }
    };
    thread::scope(|s| {
        for part in 0..2 {
            let (queue, gate, left, end, give_all) = (&queue, &gate, &left, &end, &give_all);
            s.spawn(move || {
                for id in part * EACH..(part + 1) * EACH {
                    let permit = loop {
                        match gate.take() {
                            Ok((permit, _)) => break permit,
                            Err(_) => thread::yield_now(),
                        }
                    };
                    let at = queue.push(&mut Some(item(id)), permit);
                    if id % 3 == 0 {
                        let mut freed = Freed::default();
                        queue
                            .take_if(at, &mut freed, |_| true)
                            .into_iter()
                            .for_each(end);
                        give_all(freed);
                    }
                }
            });
            s.spawn(move || {
                let mut place = None;
                while left.load(Ordering::SeqCst) > 0 {
                    let mut freed = Freed::default();
                    match queue.try_pop(&mut place, &mut freed) {
                        Popped::Task(_, permit) => {
                            end(place.take().expect("a task"));
                            let _ = gate.give(permit);
                        }
                        _ => thread::yield_now(),
                    }
                    give_all(freed);
                }
            });
        }
    });
    assert!(ended.iter().all(|n| n.load(Ordering::SeqCst) == 1));
    assert!(all(&queue).is_empty());
    assert_eq!(gate.free(), 5);
    assert_eq!(pushed_since(first, &queue), 2 * EACH as u64);
}

#[test]
fn a_stamp_is_of_one_lap() {
    let queue = Queue::<Item>::new(1);
    for empty in [0, 8 * STEP, 0_u64.wrapping_sub(STEP)] {
        let at = queue.at(empty);
        for state in 1..STEP {
            let stamp = empty.wrapping_add(state);
            assert!(at.is_filled(stamp));
            assert!(!at.is_filled(stamp.wrapping_add(STEP)), "the next lap");
            assert!(!at.is_filled(stamp.wrapping_sub(STEP)), "the lap before");
        }
        assert!(!at.is_filled(empty) && !at.is_filled(empty.wrapping_add(STEP)));
    }
}
