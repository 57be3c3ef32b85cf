use super::*;
use crate::parts::cut::cut;
use std::sync::atomic::AtomicUsize;
use std::thread;

/// A task that has only a name and a group.
#[derive(Debug, PartialEq, Eq)]
struct Item {
    id: usize,
    group: usize,
}

fn awake(capacity: usize) -> Queue<Item> {
    awake_at(0, capacity)
}

fn awake_at(first: u64, capacity: usize) -> Queue<Item> {
    let queue = Queue::starting_at(first, capacity);
    queue.wake();
    queue
}

/// Returns a position two laps before the wrap. Tests of the wrap start there.
fn before_wrap(capacity: usize) -> u64 {
    0_u64.wrapping_sub(2 * STEP * capacity.next_power_of_two() as u64)
}

fn item(id: usize) -> Item {
    Item { id, group: id % 2 }
}

fn push(queue: &Queue<Item>, id: usize) -> Result<u64, NotPushed> {
    let mut task = Some(item(id));
    let pushed = queue.push(&mut task);
    assert_eq!(task.is_none(), pushed.is_ok());
    pushed
}

/// Returns how many tasks have been pushed into a queue whose first position was `first`.
fn pushed_since(first: u64, queue: &Queue<Item>) -> u64 {
    (queue.pushed().wrapping_sub(first / STEP)) % (u64::MAX / STEP + 1)
}

fn is_full(queue: &Queue<Item>) -> bool {
    let pops = queue.load_head();
    queue.is_full(pops) && queue.is_oldest_there(pops)
}

fn take(queue: &Queue<Item>, position: u64) -> Option<usize> {
    Some(queue.take(position)?.id)
}

fn pop(queue: &Queue<Item>) -> Option<usize> {
    let mut place = None;
    match queue.try_pop(&mut place) {
        Popped::Task(_) => Some(place.expect("a task").id),
        nothing => {
            assert_eq!((nothing, place), (Popped::Empty, None));
            None
        }
    }
}

fn all(queue: &Queue<Item>) -> Vec<usize> {
    std::iter::from_fn(|| pop(queue)).collect()
}

#[test]
fn holds_exactly_its_capacity_first_in_first_out() {
    for capacity in [1, 2, 3, 5, 8] {
        for first in [0, before_wrap(capacity)] {
            let queue = awake_at(first, capacity);
            let mut next = 0;
            for _ in 0..20 {
                for _ in 0..capacity {
                    assert!(!is_full(&queue));
                    push(&queue, next).unwrap();
                    next += 1;
                }
                assert!(is_full(&queue) && !queue.is_empty());
                assert_eq!(queue.space(), 0);
                assert_eq!(push(&queue, 999), Err(NotPushed::Full));
                assert_eq!(all(&queue), (next - capacity..next).collect::<Vec<_>>());
                assert!(queue.is_empty() && pop(&queue).is_none());
            }
            assert_eq!(pushed_since(first, &queue), next as u64);
        }
    }
}

#[test]
fn room_is_where_a_push_finds_it_and_ample_where_several_do() {
    for (capacity, ample) in [(1, 1), (3, 1), (8, 2), (64, 16), (100, 16)] {
        let queue = awake(capacity);
        for id in 0..capacity {
            assert!(queue.room().is_some(), "{id} of {capacity}");
            assert_eq!(queue.has_ample_room(), capacity - id >= ample);
            push(&queue, id).unwrap();
            assert!(!queue.is_empty() && queue.is_filled_after(false));
        }
        assert!(queue.room().is_none() && !queue.has_ample_room());
        for popped in 1..=capacity {
            pop(&queue).unwrap();
            assert_eq!(queue.load_head(), popped as u64 * STEP);
            assert!(queue.room().is_some(), "{popped} popped");
            assert_eq!(queue.has_ample_room(), popped >= ample);
        }
        assert!(queue.is_empty() && !queue.is_filled_after(false));
    }
}

#[test]
fn a_lead_is_a_sixteenth_of_the_capacity() {
    for (capacity, lead) in [(1, 0), (8, 0), (16, 1), (100, 6), (1024, 64)] {
        let queue = awake(capacity);
        for id in 0..capacity {
            assert_eq!(queue.is_filled_after(true), id > lead, "{id} of {capacity}");
            push(&queue, id).unwrap();
        }
        assert!(queue.is_filled_after(true));
    }
}

#[test]
fn wanted_tasks_are_taken_out_and_the_others_stay() {
    for first in [0, before_wrap(6)] {
        let queue = awake_at(first, 6);
        for id in 0..6 {
            push(&queue, id).unwrap();
        }
        assert_eq!(pop(&queue), Some(0));
        let wanted = || -> Vec<_> {
            let take = |at| Some((at, queue.take_if(at, |item| item.group == 0)?));
            queue.positions().filter_map(take).collect()
        };
        let at = |id: usize| (first.wrapping_add(STEP * id as u64), item(id));
        assert_eq!(wanted(), [at(2), at(4)]);
        assert_eq!(wanted(), []);
        assert_eq!(all(&queue), [1, 3, 5]);
    }
}

#[test]
fn a_dead_cell_keeps_its_place_until_it_is_the_oldest() {
    for first in [0, before_wrap(3)] {
        let queue = awake_at(first, 3);
        let at: Vec<_> = (0..3).map(|id| push(&queue, id).unwrap()).collect();
        assert_eq!(take(&queue, at[1]), Some(1));
        assert!(take(&queue, at[1]).is_none(), "taken once");
        assert!(is_full(&queue), "an older task is queued before it");
        assert_eq!(push(&queue, 3), Err(NotPushed::Full));
        // The oldest task is taken out. The two oldest cells are now dead, and count as space.
        assert_eq!(take(&queue, at[0]), Some(0));
        assert!(!is_full(&queue));
        assert!(take(&queue, at[0]).is_none());
        for id in [3, 4] {
            push(&queue, id).unwrap();
        }
        assert_eq!((queue.space(), push(&queue, 5)), (0, Err(NotPushed::Full)));
        assert_eq!(all(&queue), [2, 3, 4]);
        assert_eq!((queue.space(), pushed_since(first, &queue)), (3, 5));
    }
}

/// A thread that takes out all queued tasks can use the whole queue at once.
#[test]
fn a_queue_whose_tasks_were_all_taken_out_has_all_its_space() {
    for (len, first) in [(3, 0), (200, 0), (200, before_wrap(200))] {
        let queue = awake_at(first, len);
        for _ in 0..3 {
            let at: Vec<_> = (0..len).map(|id| push(&queue, id).unwrap()).collect();
            assert!(is_full(&queue));
            // The youngest task goes first, and the oldest last.
            for at in at.iter().rev() {
                assert!(take(&queue, *at).is_some());
            }
            assert!(!is_full(&queue));
        }
        for id in 0..len {
            push(&queue, id).unwrap();
        }
        assert_eq!(push(&queue, len), Err(NotPushed::Full));
        assert_eq!(all(&queue), (0..len).collect::<Vec<_>>());
    }
}

/// Law 3: one pop skips a limited number of dead cells, because the worker may have a caller to
/// release first.
#[test]
fn one_pop_skips_a_few_dead_cells_and_the_next_goes_on() {
    const LEN: usize = 4 * SKIPS as usize;
    for first in [0, before_wrap(LEN)] {
        let queue = awake_at(first, LEN);
        let at: Vec<_> = (0..LEN).map(|id| push(&queue, id).unwrap()).collect();
        for at in &at[..LEN - 1] {
            assert!(take(&queue, *at).is_some());
        }
        let mut place = None;
        let mut pops = 1;
        while queue.try_pop(&mut place) == Popped::InProgress {
            assert_eq!(place, None);
            let skipped = queue.load_head().wrapping_sub(first) / STEP;
            assert!(
                skipped <= pops * (u64::from(SKIPS) + 1),
                "{skipped} by {pops}"
            );
            pops += 1;
        }
        assert_eq!(place, Some(item(LEN - 1)));
        assert!(pops > 1);
        assert!(queue.is_empty());
    }
}

#[test]
#[should_panic(expected = "a task to push")]
fn nothing_is_pushed_without_a_task() {
    let _ = awake(2).push(&mut None);
}

#[test]
fn a_closed_queue_refuses_pushes_and_keeps_its_tasks() {
    let queue = awake(3);
    push(&queue, 0).unwrap();
    let second = push(&queue, 1).unwrap();
    queue.close();
    assert_eq!(push(&queue, 2), Err(NotPushed::Closed));
    assert!(queue.room().is_none() && !queue.has_room_for(1));
    assert_eq!(take(&queue, second), Some(1));
    assert_eq!(push(&queue, 2), Err(NotPushed::Closed));
    assert_eq!(all(&queue), [0]);
}

#[test]
fn an_empty_queue_falls_asleep_and_takes_nothing_until_it_is_woken() {
    let queue: Queue<Item> = Queue::new(2);
    assert_eq!(push(&queue, 0), Err(NotPushed::Asleep));
    assert!(queue.room().is_none() && !queue.has_room_for(1) && queue.is_empty());
    queue.wake();
    push(&queue, 1).unwrap();
    assert!(!queue.sleep(), "a task is queued");
    assert_eq!(take(&queue, 0), Some(1));
    assert!(!queue.sleep(), "until the dead cell is skipped");
    assert!(pop(&queue).is_none());
    assert!(queue.sleep() && queue.sleep());
    assert_eq!(push(&queue, 2), Err(NotPushed::Asleep));
    queue.close();
    assert_eq!(push(&queue, 2), Err(NotPushed::Closed));
}

/// Two producers and two consumers share a queue, and the producers take tasks out of its middle.
/// Each task ends exactly once, and in the end the queue has all its space.
#[test]
fn loses_and_doubles_nothing() {
    const EACH: usize = cut(20_000) as usize;
    let first = before_wrap(5);
    let queue = awake_at(first, 5);
    let ended: Vec<_> = (0..2 * EACH).map(|_| AtomicUsize::new(0)).collect();
    let left = AtomicUsize::new(2 * EACH);
    let end = |item: Item| {
        ended[item.id].fetch_add(1, Ordering::SeqCst);
        left.fetch_sub(1, Ordering::SeqCst);
    };
    thread::scope(|s| {
        for part in 0..2 {
            let (queue, left, end) = (&queue, &left, &end);
            s.spawn(move || {
                for id in part * EACH..(part + 1) * EACH {
                    let mut task = Some(item(id));
                    let at = loop {
                        if let Ok(at) = queue.push(&mut task) {
                            break at;
                        }
                        thread::yield_now();
                    };
                    if id % 3 == 0 {
                        queue.take(at).into_iter().for_each(end);
                    }
                }
            });
            s.spawn(move || {
                let mut place = None;
                while left.load(Ordering::SeqCst) > 0 {
                    match queue.try_pop(&mut place) {
                        Popped::Task(_) => end(place.take().expect("a task")),
                        _ => thread::yield_now(),
                    }
                }
            });
        }
    });
    assert!(ended.iter().all(|n| n.load(Ordering::SeqCst) == 1));
    assert!(all(&queue).is_empty());
    let pushed = pushed_since(first, &queue);
    assert_eq!((queue.space(), pushed), (5, 2 * EACH as u64));
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
