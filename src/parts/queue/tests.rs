use super::sweep::LOOKS;
use super::*;
use crate::parts::cut::cut;
use std::cell::RefCell;
use std::sync::atomic::AtomicUsize;
use std::thread;

/// A task that is nothing but its name and its group.
#[derive(Debug, PartialEq, Eq)]
struct Item {
    id: usize,
    group: usize,
    revocable: bool,
}

impl Queued for Item {
    type Worker = RefCell<Vec<Option<usize>>>;

    fn announce(next: Option<&Self>, worker: &Self::Worker) {
        worker.borrow_mut().push(next.map(|task| task.id));
    }

    fn is_revocable(&self) -> bool {
        self.revocable
    }
}

impl<T: Queued> Queue<T> {
    fn len(&self) -> u64 {
        let ahead = (self.load_tail() & !FLAGS).wrapping_sub(self.load_head());
        ahead / STEP - self.tombstones()
    }
}

fn awake(capacity: usize) -> Queue<Item> {
    awake_at(0, capacity)
}

fn awake_at(first: u64, capacity: usize) -> Queue<Item> {
    let queue = Queue::starting_at(first, capacity);
    queue.wake();
    queue
}

/// Where tests of the wrap start: two laps before it.
fn before_wrap(capacity: usize) -> u64 {
    0_u64.wrapping_sub(2 * STEP * capacity.next_power_of_two() as u64)
}

fn item(id: usize, revocable: bool) -> Item {
    let group = id % 2;
    Item {
        id,
        group,
        revocable,
    }
}

fn push(queue: &Queue<Item>, id: usize, revocable: bool) -> Result<u64, NotPushed> {
    let mut task = Some(item(id, revocable));
    let pushed = queue.push(&mut task);
    assert_eq!(task.is_none(), pushed.is_ok());
    pushed
}

fn withdraw(queue: &Queue<Item>, position: u64) -> Option<usize> {
    Some(queue.withdraw(position, || ())?.id)
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

fn pop_ready(queue: &Queue<Item>, place: &mut Option<Item>) -> Option<u64> {
    queue.try_pop_ready(place, &RefCell::default())
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
                    assert!(!queue.is_full());
                    push(&queue, next, false).unwrap();
                    next += 1;
                }
                assert!(queue.is_full() && !queue.is_empty());
                assert_eq!(queue.len(), capacity as u64);
                assert_eq!(push(&queue, 999, false), Err(NotPushed::Full));
                assert_eq!(all(&queue), (next - capacity..next).collect::<Vec<_>>());
                assert!(queue.is_empty() && pop(&queue).is_none());
            }
            assert_eq!(queue.pushed(), next as u64);
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
            push(&queue, id, false).unwrap();
            assert!(!queue.is_empty() && queue.is_next_there());
        }
        assert!(queue.room().is_none() && !queue.has_ample_room());
        for popped in 1..=capacity {
            pop(&queue).unwrap();
            assert_eq!(queue.pops(), popped as u64 * STEP);
            assert!(queue.room().is_some(), "{popped} popped");
            assert_eq!(queue.has_ample_room(), popped >= ample);
        }
        assert!(queue.is_empty() && !queue.is_next_there());
    }
}

/// As a push leaves it that has moved `tail` and not yet written the stamp; or a pop, or a
/// caller, that holds the oldest cell.
#[test]
fn a_pop_says_that_another_is_half_done_and_waits_for_nobody() {
    let queue = awake(4);
    queue.tail.fetch_add(STEP, Ordering::SeqCst);
    let mut place = None;
    assert_eq!(queue.try_pop(&mut place), Popped::InProgress);
    assert_eq!(pop_ready(&queue, &mut place), None);
    assert!(!queue.is_empty() && !queue.is_next_there());
    // SAFETY: reserved above.
    unsafe { queue.at(0).fill(&mut Some(item(7, true)), State::Empty) };
    assert!(queue.at(0).hold(State::Revocable));
    assert_eq!(queue.try_pop(&mut place), Popped::InProgress);
    assert_eq!(pop_ready(&queue, &mut place), None);
    // SAFETY: held above, with the task in it.
    unsafe { queue.at(0).write(State::Held, State::Revocable) };
    assert_eq!(pop_ready(&queue, &mut place), Some(0));
    assert_eq!(place, Some(item(7, true)));
    assert_eq!(pop_ready(&queue, &mut place), None);
}

#[test]
fn a_pop_is_announced() {
    let queue = awake(4);
    let (plain, revocable) = (push(&queue, 0, false), push(&queue, 1, true));
    let tombstone = push(&queue, 2, true).expect("room");
    assert_eq!(withdraw(&queue, tombstone), Some(2));
    let last = push(&queue, 3, true);
    let (mut place, worker) = (None, RefCell::default());
    for (position, announced) in [(plain, None), (revocable, Some(1)), (last, Some(3))] {
        let popped = queue.try_pop_ready(&mut place, &worker);
        assert_eq!((popped, worker.take()), (position.ok(), vec![announced]));
    }
    assert_eq!(queue.try_pop_ready(&mut place, &worker), None);
    assert_eq!(worker.take(), []);
}

#[test]
fn what_is_wanted_is_taken_out_and_the_rest_left() {
    for first in [0, before_wrap(6)] {
        let queue = awake_at(first, 6);
        for id in 0..6 {
            push(&queue, id, true).unwrap();
        }
        assert_eq!(pop(&queue), Some(0));
        let mut from = queue.first();
        for id in [2, 4] {
            let task = queue.take_wanted(&mut from, |item| item.group == 0, || ());
            assert_eq!(task, Some(item(id, true)));
            assert_eq!(from, first.wrapping_add(STEP * (id as u64 + 1)));
        }
        assert!(queue
            .take_wanted(&mut from, |item| item.group == 0, || ())
            .is_none());
        assert_eq!(queue.len(), 3);
        assert_eq!(all(&queue), [1, 3, 5]);
    }
}

#[test]
fn a_tombstone_is_room_at_once_and_keeps_its_place() {
    for first in [0, before_wrap(3)] {
        let queue = awake_at(first, 3);
        let at: Vec<_> = (0..3).map(|id| push(&queue, id, true).unwrap()).collect();
        assert_eq!(withdraw(&queue, at[1]), Some(1));
        assert!(withdraw(&queue, at[1]).is_none(), "withdrawn once");
        assert!(!queue.is_full());
        assert_eq!((queue.len(), queue.pushed()), (2, 3));
        assert_eq!(push(&queue, 3, true), Ok(at[1]));
        assert!(queue.is_full());
        assert_eq!((queue.len(), queue.pushed()), (3, 4));
        assert_eq!(all(&queue), [0, 3, 2]);
        // Tombstones in front are skipped.
        let at = push(&queue, 4, true).unwrap();
        push(&queue, 5, false).unwrap();
        assert_eq!(withdraw(&queue, at), Some(4));
        assert_eq!(all(&queue), [5]);
        assert_eq!((queue.len(), queue.tombstones()), (0, 0));
    }
}

/// Not in place of one that was taken out, either.
#[test]
#[should_panic(expected = "a task to push")]
fn nothing_is_pushed_without_a_task() {
    let queue = awake(2);
    let at = push(&queue, 1, true).unwrap();
    push(&queue, 2, false).unwrap();
    assert_eq!(withdraw(&queue, at), Some(1));
    let _ = queue.push(&mut None);
}

#[test]
fn many_tombstones_are_filled_in_one_sweep() {
    const LEN: usize = 64;
    let queue = awake(LEN);
    let at: Vec<_> = (0..LEN).map(|id| push(&queue, id, true).unwrap()).collect();
    for at in &at[1..] {
        assert!(withdraw(&queue, *at).is_some());
    }
    let mut filled: Vec<_> = (1..LEN)
        .map(|id| push(&queue, 100 + id, false).unwrap())
        .collect();
    assert_eq!(push(&queue, 999, false), Err(NotPushed::Full));
    filled.sort_unstable();
    assert_eq!(filled, at[1..]);
    assert_eq!(all(&queue).len(), LEN);
}

/// A full queue, four times as long as one push looks, with one tombstone, as far from where a
/// look for it begins as can be; its position.
fn with_far_tombstone(first: u64) -> (Queue<Item>, u64) {
    const LEN: usize = 4 * LOOKS as usize;
    let queue = awake_at(first, LEN);
    let at: Vec<_> = (0..LEN).map(|id| push(&queue, id, true).unwrap()).collect();
    let far = at[LEN - 2];
    assert!(withdraw(&queue, far).is_some());
    // Behind the one that is filled first the queue ends: the next look begins at its head.
    assert!(withdraw(&queue, at[LEN - 1]).is_some());
    assert_eq!(push(&queue, LEN, true), Ok(at[LEN - 1]));
    (queue, far)
}

#[test]
fn a_push_looks_for_room_for_a_while_and_the_next_goes_on() {
    for first in [0, before_wrap(4 * LOOKS as usize)] {
        let (queue, far) = with_far_tombstone(first);
        let (mut task, sweep) = (Some(item(0, false)), Sweep::default());
        for part in 1..4 {
            let pushed = queue.push_on(&mut task, &sweep);
            assert_eq!(pushed, Err(NotPushed::Looking));
            assert_eq!(sweep.looks(), part * LOOKS);
            assert!(sweep.has_advanced() && sweep.take_advance());
            assert!(!sweep.has_advanced());
            // Others' tombstones, one after the other, do not lead it astray.
            let near = first.wrapping_add(part * STEP);
            assert!(withdraw(&queue, near).is_some());
            assert_eq!(push(&queue, 1, true), Ok(near));
        }
        assert_eq!(queue.push_on(&mut task, &sweep), Ok(far));
        assert!(queue.is_full());
    }
}

/// Its time may be up before it has found any.
#[test]
fn who_comes_after_a_push_that_has_looked_in_vain_goes_on_from_there() {
    let (queue, far) = with_far_tombstone(0);
    for _ in 1..4 {
        assert_eq!(push(&queue, 0, false), Err(NotPushed::Looking));
    }
    assert_eq!(push(&queue, 0, false), Ok(far));
}

/// As another push leaves it that has filled a tombstone and not yet counted it.
#[test]
fn a_queue_is_full_once_a_push_has_looked_at_all_of_it() {
    let (queue, far) = with_far_tombstone(0);
    let (mut task, sweep) = (Some(item(0, false)), Sweep::default());
    assert!(queue.at(far).hold(State::Tombstone));
    for _ in 0..2 {
        for _ in 1..4 {
            let pushed = queue.push_on(&mut task, &sweep);
            assert_eq!(pushed, Err(NotPushed::Looking));
        }
        sweep.take_advance();
        assert_eq!(queue.push_on(&mut task, &sweep), Err(NotPushed::Full));
        assert!(!sweep.has_advanced());
    }
    queue.tombstone_gone();
    assert_eq!(queue.push_on(&mut task, &sweep), Err(NotPushed::Full));
    assert!(!sweep.has_advanced());
}

#[test]
fn plain_tasks_stay_and_nothing_is_pushed_once_closed() {
    let queue = awake(2);
    let plain = push(&queue, 0, false).unwrap();
    assert!(withdraw(&queue, plain).is_none());
    let revocable = push(&queue, 1, true).unwrap();
    assert!(withdraw(&queue, revocable).is_some());
    let end = queue.close();
    assert_eq!(end, 2 * STEP);
    // Neither behind the last nor into the tombstone.
    assert_eq!(push(&queue, 2, false), Err(NotPushed::Closed));
    assert!(queue.room().is_none() && queue.is_before(end));
    // But by who closes.
    let mut place = None;
    assert_eq!(queue.try_pop(&mut place), Popped::Task(0));
    queue.push_again(place.expect("a task"));
    assert_eq!(queue.pushed(), 3);
    assert_eq!(all(&queue), [0]);
    assert!(!queue.is_before(end));
}

#[test]
fn an_empty_queue_falls_asleep_and_takes_nothing_until_it_is_woken() {
    let queue: Queue<Item> = Queue::new(2);
    assert_eq!(push(&queue, 0, false), Err(NotPushed::Asleep));
    assert!(queue.room().is_none() && !queue.has_room_for(1) && queue.is_empty());
    queue.wake();
    push(&queue, 1, true).unwrap();
    assert!(!queue.sleep(), "a task is queued");
    assert_eq!(withdraw(&queue, 0), Some(1));
    assert!(!queue.sleep(), "somebody might fill the tombstone");
    assert!(pop(&queue).is_none());
    assert!(queue.sleep() && queue.sleep());
    assert_eq!(push(&queue, 2, false), Err(NotPushed::Asleep));
    queue.close();
    assert_eq!(push(&queue, 2, false), Err(NotPushed::Closed));
}

/// Two producers, two consumers, and tasks withdrawn from the middle: each ends in one place,
/// and the bound holds.
#[test]
fn loses_and_doubles_nothing() {
    const EACH: usize = cut(20_000) as usize;
    let queue = awake_at(before_wrap(5), 5);
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
                    let mut task = Some(item(id, id % 3 == 0));
                    let at = loop {
                        if let Ok(at) = queue.push(&mut task) {
                            break at;
                        }
                        thread::yield_now();
                    };
                    if id % 3 == 0 {
                        queue.withdraw(at, || ()).into_iter().for_each(end);
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
    assert_eq!((queue.len(), queue.tombstones()), (0, 0));
    assert_eq!(queue.pushed(), 2 * EACH as u64);
}

#[test]
fn a_guarded_queue_is_popped_by_leave_only() {
    for first in [0, before_wrap(4)] {
        let queue = awake_at(first, 4);
        let taken = |position: u64| Popped::Task(first.wrapping_add(position * STEP));
        for id in 0..4 {
            push(&queue, id, id % 2 == 1).expect("room");
        }
        let mut place = None;
        for round in 0..2 {
            queue.guard(true);
            queue.guard(true);
            assert_eq!(
                (queue.try_pop(&mut place), &place),
                (Popped::Guarded, &None)
            );
            assert_eq!((pop_ready(&queue, &mut place), &place), (None, &None));
            // A plain task, then a revocable one.
            for id in 2 * round..2 * round + 2 {
                assert_eq!(queue.pop_guarded(&mut place), taken(id as u64));
                assert_eq!(place.take(), Some(item(id, id % 2 == 1)));
            }
            if round == 1 {
                assert_eq!(queue.pop_guarded(&mut place), Popped::Empty);
            }
            queue.guard(false);
        }
        assert_eq!(queue.try_pop(&mut place), Popped::Empty);
    }
}

#[test]
fn a_tombstone_in_a_guarded_queue_is_passed_by_leave_only() {
    let queue = awake(4);
    let position = push(&queue, 1, true).expect("room");
    push(&queue, 2, false).expect("room");
    assert_eq!(withdraw(&queue, position), Some(1));
    queue.guard(true);
    let mut place = None;
    assert_eq!(queue.try_pop(&mut place), Popped::Guarded);
    assert_eq!(queue.tombstones(), 1);
    assert_eq!(queue.pop_guarded(&mut place), Popped::Task(position + STEP));
    assert_eq!(
        (place.take(), queue.tombstones()),
        (Some(item(2, false)), 0)
    );
    assert_eq!(queue.pop_guarded(&mut place), Popped::Empty);
}

#[test]
fn positions_are_before_or_after_an_end_also_around_the_wrap() {
    for first in [0, before_wrap(1)] {
        let queue = awake_at(first, 1);
        let mut ends = Vec::new();
        for id in 0..5 {
            push(&queue, id, false).expect("room");
            ends.push(first.wrapping_add((id as u64 + 1) * STEP));
            assert!(queue.is_before(ends[id]));
            assert_eq!(pop(&queue), Some(id));
            assert!(ends.iter().all(|&end| !queue.is_before(end)));
        }
    }
}

#[test]
fn a_stamp_is_of_one_lap() {
    for empty in [0, 8 * STEP, 0_u64.wrapping_sub(STEP)].map(Stamp) {
        for state in 1..STEP {
            let stamp = Stamp(empty.0.wrapping_add(state));
            assert!(stamp.is_behind(empty) && stamp.is_of_lap(empty));
            let next = Stamp(stamp.0.wrapping_add(STEP));
            assert!(!next.is_behind(empty) && !next.is_of_lap(empty));
        }
        assert!(!empty.is_behind(empty) && empty.is_of_lap(empty));
        assert!(!Stamp(empty.0.wrapping_add(STEP)).is_behind(empty));
    }
}
