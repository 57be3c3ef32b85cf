use super::*;
use crate::sync::thread;
use std::cell::Cell;
use std::sync::atomic::AtomicUsize;
use std::sync::Arc;
use std::task::Wake;

type Numbers = Line<u32, u32>;

fn join(line: &Numbers, number: u32) -> u64 {
    line.join(number, Some(WakeUp::Thread(thread::current())))
}

/// Serves the line with space for `space` entries, and answers each with its own number.
fn serve(line: &Numbers, mut space: usize) -> Option<Waker> {
    line.serve(|number| {
        let answer = (space > 0).then_some(*number);
        space = space.saturating_sub(1);
        answer
    })
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn entries_are_served_in_the_order_in_which_they_came() {
    let line = Line::new();
    let tickets = [10, 11, 12].map(|number| join(&line, number));
    assert_eq!(line.waiting(), 3);
    assert!(serve(&line, 2).is_none(), "threads have no waker");
    let answers = tickets.map(|ticket| line.fetch(ticket, None));
    assert_eq!(answers, [Some(10), Some(11), None]);
    assert_eq!((line.waiting(), line.fetch(tickets[0], None)), (1, None));
    serve(&line, 9);
    assert_eq!(line.fetch(tickets[2], None), Some(12));
    assert_eq!(line.waiting(), 0);
}

#[test]
fn an_entry_without_an_answer_leaves() {
    let line = Line::new();
    let [first, second] = [1, 2].map(|number| join(&line, number));
    assert!(matches!(line.leave(first), Left::Unanswered(1)));
    serve(&line, 1);
    assert!(matches!(line.leave(second), Left::Answered(2)));
    assert_eq!(line.waiting(), 0);
}

#[test]
fn an_entry_in_service_stays() {
    let line = Line::new();
    let ticket = join(&line, 1);
    line.serve(|_| {
        assert!(matches!(line.leave(ticket), Left::Served));
        assert_eq!((line.fetch(ticket, None), line.waiting()), (None, 1));
        None
    });
    assert!(matches!(line.leave(ticket), Left::Unanswered(1)));
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
    assert_eq!((attempts.get(), line.fetch(ticket, None)), (2, Some(1)));
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
fn a_future_is_woken_by_its_latest_waker() {
    let line = Line::new();
    let wakes: [Arc<Wakes>; 2] = Default::default();
    let [old, new] = wakes.each_ref().map(|wakes| Waker::from(Arc::clone(wakes)));
    let ticket = line.join(1, Some(WakeUp::Task(old)));
    assert_eq!(line.fetch(ticket, Some(&new)), None);
    serve(&line, 1).expect("a future").wake();
    let woken = wakes.map(|wakes| wakes.0.load(std::sync::atomic::Ordering::SeqCst));
    assert_eq!(woken, [0, 1]);
    assert_eq!(line.fetch(ticket, Some(&new)), Some(1));
}

#[test]
fn the_line_goes_on_once_a_future_is_woken() {
    let line = Line::new();
    let wakes: Arc<Wakes> = Arc::default();
    let future = || Some(WakeUp::Task(Waker::from(Arc::clone(&wakes))));
    let tickets = [1, 2, 3].map(|number| line.join(number, future()));
    for answered in [1, 2, 3] {
        serve(&line, 9).expect("a future").wake();
        assert_eq!(line.waiting(), 3 - answered);
    }
    assert!(serve(&line, 9).is_none());
    let answers = tickets.map(|ticket| line.fetch(ticket, None));
    assert_eq!(answers, [1, 2, 3].map(Some));
}

#[test]
fn those_turned_away_are_the_unwanted_ones() {
    let line = Line::new();
    let tickets = [1, 2, 3, 4].map(|number| join(&line, number));
    let wakers = line.turn_away(|number| number % 2 == 0, |number| 10 * number);
    assert!(wakers.is_empty());
    let answers = tickets.map(|ticket| line.fetch(ticket, None));
    assert_eq!(answers, [None, Some(20), None, Some(40)]);
    serve(&line, 9);
    assert_eq!(line.fetch(tickets[0], None), Some(1), "the order stays");
    assert_eq!(line.fetch(tickets[2], None), Some(3));
}

#[test]
fn one_in_service_is_not_turned_away_but_attempted_again() {
    let line = Line::new();
    let ticket = join(&line, 1);
    let is_cancelled = Cell::new(false);
    line.serve(|_| {
        if is_cancelled.replace(true) {
            return Some(99);
        }
        line.turn_away(|_| true, |_| unreachable!("it is in service"));
        None
    });
    assert_eq!(line.fetch(ticket, None), Some(99));
}
