use super::*;
use crate::sync::thread;
use std::cell::Cell;

type Numbers = Line<u32, u32>;

fn join(line: &Numbers, number: u32) -> u64 {
    line.join(number, Some(WakeUp::Thread(thread::current())))
}

fn fetch(line: &Numbers, ticket: u64) -> Option<u32> {
    line.fetch(ticket, &mut None)
}

/// Serves the line with space for `space` entries, and answers each with its own number.
fn serve(line: &Numbers, mut space: usize) -> Option<Waker> {
    line.serve(|number| {
        let answer = (space > 0).then_some(*number);
        space = space.saturating_sub(1);
        answer
    })
}

#[test]
fn entries_are_served_in_the_order_in_which_they_came() {
    let line = Line::new();
    let tickets = [10, 11, 12].map(|number| join(&line, number));
    assert_eq!(line.waiting(), 3);
    assert!(serve(&line, 2).is_none(), "threads have no waker");
    let answers = tickets.map(|ticket| fetch(&line, ticket));
    assert_eq!(answers, [Some(10), Some(11), None]);
    assert_eq!((line.waiting(), fetch(&line, tickets[0])), (1, None));
    serve(&line, 9);
    assert_eq!(fetch(&line, tickets[2]), Some(12));
    assert_eq!(line.waiting(), 0);
}

#[test]
fn space_that_comes_up_within_an_attempt_is_not_lost() {
    let line = Line::new();
    let ticket = join(&line, 1);
    let attempts = Cell::new(0);
    line.serve(|number| {
        attempts.set(attempts.get() + 1);
        if attempts.get() == 1 {
            // A second call of `serve` leaves an event, because the line is being served.
            assert!(serve(&line, 9).is_none());
            return None;
        }
        Some(*number)
    });
    assert_eq!((attempts.get(), fetch(&line, ticket)), (2, Some(1)));
}

#[test]
fn an_attempt_in_vain_is_the_last_without_an_event() {
    let line = Line::new();
    join(&line, 1);
    let attempts = Cell::new(0);
    line.serve(|_| {
        attempts.set(attempts.get() + 1);
        None
    });
    assert_eq!(attempts.get(), 1);
}

#[test]
fn the_line_goes_on_once_a_future_is_woken() {
    let line = Line::new();
    let future = || Some(WakeUp::Task(Waker::noop().clone()));
    let tickets = [1, 2, 3].map(|number| line.join(number, future()));
    for answered in [1, 2, 3] {
        serve(&line, 9).expect("a future").wake();
        assert_eq!(line.waiting(), 3 - answered);
    }
    assert!(serve(&line, 9).is_none());
    let answers = tickets.map(|ticket| fetch(&line, ticket));
    assert_eq!(answers, [1, 2, 3].map(Some));
}

#[test]
fn those_turned_away_are_the_unwanted_ones() {
    let line = Line::new();
    let tickets = [1, 2, 3, 4].map(|number| join(&line, number));
    let wakers = line.turn_away(|number| number % 2 == 0, |number| 10 * number);
    assert!(wakers.is_empty());
    let answers = tickets.map(|ticket| fetch(&line, ticket));
    assert_eq!(answers, [None, Some(20), None, Some(40)]);
    serve(&line, 9);
    assert_eq!(fetch(&line, tickets[0]), Some(1), "the order stays");
    assert_eq!(fetch(&line, tickets[2]), Some(3));
}
