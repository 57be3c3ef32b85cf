use super::*;
use crate::sync::thread;

/// A task with a number, and perhaps with a group.
struct Numbered<'a>(u32, Option<(u64, &'a Gate)>);

impl Waits for Numbered<'_> {
    fn group(&self) -> u64 {
        self.1.map_or(0, |(group, _)| group)
    }

    fn group_gate(&self) -> &Gate {
        self.1.expect("a group").1
    }
}

type Line<'a> = Lines<Numbered<'a>, u32>;

/// A pool's gate, all of whose permits are taken.
fn full(permits: usize) -> (Gate, Vec<Permit>) {
    let gate = Gate::new(permits);
    let taken = (0..permits).map(|_| gate.take().expect("free").0).collect();
    (gate, taken)
}

fn join<'a>(line: &Line<'a>, of: u64, pool: &Gate, task: Numbered<'a>) -> u64 {
    let wake_up = Some(WakeUp::Thread(thread::current()));
    joined(line.join(of, pool, task, wake_up, || false))
}

/// Returns the ticket of an entry that waits.
fn joined<T>(result: Result<(u64, Option<Turn<T>>), T>) -> u64 {
    let (ticket, turn) = result.map_err(|_| ()).expect("it is not over");
    assert!(turn.is_none(), "no permit is free");
    ticket
}

fn fetch(line: &Line<'_>, ticket: u64) -> Option<u32> {
    line.fetch(ticket, &mut None)
}

fn first_of<'a>(line: &Line<'a>, of: u64, pool: &Gate) -> Option<(Passed<Numbered<'a>>, Permit)> {
    let passed = line.pass(of, pool, Patience::Waits);
    let (passed, permit, _) = passed.expect("it has waited")?;
    Some((passed, permit))
}

/// Passes a permit, and answers the entry with its number. Returns the permit.
fn pass(line: &Line<'_>, of: u64, pool: &Gate) -> Option<Permit> {
    let (passed, permit) = first_of(line, of, pool)?;
    assert!(line.answer(passed.owner, passed.task.0).is_none());
    Some(permit)
}

#[test]
fn one_permit_goes_to_one_entry_in_the_order_in_which_they_came() {
    let (gate, mut taken) = full(2);
    let line = Line::new();
    let tickets = [10, 11, 12].map(|number| join(&line, POOL, &gate, Numbered(number, None)));
    assert_eq!(line.waiting(), 3);
    assert!(first_of(&line, POOL, &gate).is_none(), "no permit is free");
    for (n, ticket) in tickets.into_iter().enumerate() {
        let seen = gate.give(taken.pop().expect("one is taken"));
        assert!(seen.is_waited_for());
        assert!(gate.take().is_err(), "the first in line comes first");
        taken.push(pass(&line, POOL, &gate).expect("a permit"));
        assert!(pass(&line, POOL, &gate).is_none(), "that was the only one");
        assert_eq!(fetch(&line, ticket), Some(10 + n as u32));
        assert_eq!(line.waiting(), 2 - n as u64);
    }
    assert!(!gate.flags().is_waited_for());
    taken.into_iter().for_each(|permit| _ = gate.give(permit));
}

#[test]
fn an_entry_that_leaves_is_passed_over() {
    let (gate, mut taken) = full(1);
    let line = Line::new();
    let tickets = [1, 2, 3].map(|number| join(&line, POOL, &gate, Numbered(number, None)));
    match line.remove(tickets[0], &gate) {
        Left::Unanswered(of, task, wake_up) => {
            assert_eq!((of, task.0, wake_up.is_some()), (POOL, 1, true));
        }
        _ => panic!("it has no answer"),
    }
    let _ = gate.give(taken.pop().expect("one is taken"));
    let (passed, permit) = first_of(&line, POOL, &gate).expect("a permit");
    assert_eq!(passed.owner.0, tickets[1]);
    assert!(matches!(line.remove(tickets[1], &gate), Left::Taken));
    assert!(line.answer(passed.owner, 20).is_none());
    assert!(matches!(line.remove(tickets[1], &gate), Left::Answered(20)));
    assert!(matches!(
        line.remove(tickets[2], &gate),
        Left::Unanswered(..)
    ));
    assert!(!gate.flags().is_waited_for(), "the line is empty");
    let _ = gate.give(permit);
}

#[test]
fn a_future_gets_its_answer_and_its_waker_comes_back() {
    let (gate, mut taken) = full(1);
    let line = Line::new();
    let ticket = joined(line.join(POOL, &gate, Numbered(7, None), None, || false));
    let mut waker = Some(WakeUp::Task(Waker::noop().clone()));
    assert!(line.fetch(ticket, &mut waker).is_none() && waker.is_none());
    let _ = gate.give(taken.pop().expect("one is taken"));
    let (passed, permit) = first_of(&line, POOL, &gate).expect("a permit");
    assert!(line.answer(passed.owner, passed.task.0).is_some());
    assert_eq!(fetch(&line, ticket), Some(7));
    let _ = gate.give(permit);
    let over = line.join(POOL, &gate, Numbered(8, None), None, || true);
    assert!(over.is_err_and(|task| task.0 == 8));
    assert!(!gate.flags().is_waited_for());
}

/// Law 20: a thread that turns a whole line away holds the lock for some entries at a time.
#[test]
fn a_crowd_is_turned_away_in_parts() {
    let (pool, taken) = full(1);
    let line = Line::new();
    for n in 0..100 {
        join(&line, POOL, &pool, Numbered(n, None));
    }
    let mut sizes = Vec::new();
    loop {
        let some = line.take_some(None, &pool);
        sizes.push(some.len());
        if some.is_empty() {
            break;
        }
        for passed in some {
            assert!(line.answer(passed.owner, 0).is_none());
        }
    }
    assert_eq!(sizes, [64, 36, 0]);
    assert!(!pool.flags().is_waited_for() && line.waiting() == 0);
    taken.into_iter().for_each(|permit| _ = pool.give(permit));
}

/// A full group holds up nothing else. Its entries move on to the pool's line, and all of them are
/// found there.
#[test]
fn a_groups_line_is_its_own() {
    let (pool, mut taken) = full(1);
    let (group, mut of_group) = full(1);
    let line = Line::new();
    let first = join(&line, 5, &pool, Numbered(1, Some((5, &group))));
    let second = join(&line, 5, &pool, Numbered(2, Some((5, &group))));
    assert!(!pool.flags().is_waited_for() && group.flags().is_waited_for());
    let _ = group.give(of_group.pop().expect("one is taken"));
    let (passed, permit) = first_of(&line, 5, &pool).expect("a permit of the group");
    assert_eq!(passed.owner.0, first);
    of_group.push(permit);
    let moved = line.move_on(&pool, passed, || false);
    assert!(moved.is_ok_and(|turn| turn.is_none()));
    assert!(pool.flags().is_waited_for());
    let other = join(&line, POOL, &pool, Numbered(3, None));
    let all = line.take_some(Some(5), &pool);
    let tickets: Vec<_> = all.iter().map(|passed| passed.owner.0).collect();
    assert_eq!(tickets, [first, second]);
    for passed in all {
        assert!(line.answer(passed.owner, 0).is_none());
    }
    assert!(!group.flags().is_waited_for() && line.waiting() == 1);
    let last = line.take_some(None, &pool).pop().expect("one more");
    assert_eq!(last.owner.0, other);
    assert!(line.answer(last.owner, 0).is_none() && !pool.flags().is_waited_for());
    taken.append(&mut of_group);
    taken.into_iter().for_each(Permit::leave_with_task);
}

/// A waiter needs the lock of the lines first of all. So it is unparked with the lock free: debug builds assert that.
#[test]
fn owners_are_answered_with_the_lock_free() {
    let (gate, mut taken) = full(1);
    let line = Line::new();
    let ticket = join(&line, POOL, &gate, Numbered(7, None));
    let _ = gate.give(taken.pop().expect("one is taken"));
    let permit = pass(&line, POOL, &gate).expect("a permit");
    assert_eq!(fetch(&line, ticket), Some(7));
    let _ = gate.give(permit);
}

/// The lines that could have a permit are read some at a time, and all are found.
#[test]
fn many_lines_that_could_have_a_permit() {
    let pool = Gate::new(1);
    let (groups, mut taken): (Vec<_>, Vec<_>) = (0..2 * SOME + 1).map(|_| full(1)).unzip();
    let line = Line::new();
    for (of, gate) in (1..).zip(&groups) {
        join(&line, of, &pool, Numbered(0, Some((of, gate))));
    }
    assert_eq!(line.passable(&pool), Some(Vec::new()));
    for (gate, taken) in groups.iter().zip(&mut taken) {
        let _ = gate.give(taken.pop().expect("one is taken"));
    }
    let all = (1..=groups.len() as u64).map(|of| (of, 1));
    assert_eq!(line.passable(&pool), Some(all.collect()));
}
