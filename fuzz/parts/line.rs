//! The line against a list of numbers, answers and wakers.

use crate::parts::completion::WakeUp;
use crate::parts::line::{Left, Line};
use crate::Step;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread;

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// What waits is a number in a box: the sanitizer counts them. The answer is the box.
type Number = Box<u64>;

struct Entry {
    ticket: u64,
    number: u64,
    /// Of a future.
    count: Option<Arc<Count>>,
}

#[derive(Default)]
struct Play {
    entries: VecDeque<Entry>,
    /// By ticket.
    answers: HashMap<u64, u64>,
    tickets: Vec<u64>,
    numbers: u64,
    space: u64,
}

pub fn play(_: u8, steps: &[Step]) {
    let line: Line<Number, Number> = Line::new();
    let mut play = Play::default();
    for &step in steps {
        play.step(&line, step);
        assert_eq!(line.waiting(), play.entries.len() as u64);
    }
}

impl Play {
    fn step(&mut self, line: &Line<Number, Number>, [what, with]: Step) {
        let picked = usize::from(with).checked_rem(self.tickets.len());
        match (what % 16, picked) {
            (0..5, _) => self.join(line, with & 1 == 0),
            (5..8, _) => {
                self.space += u64::from(with % 3);
                self.serve(line, with & 64 != 0);
            }
            (8..11, Some(at)) => self.fetch(line, self.tickets[at], with & 1 == 0),
            (11 | 12, Some(at)) => self.leave(line, self.tickets[at]),
            (13, _) => self.turn_away(line, u64::from(with % 4)),
            _ => {}
        }
    }

    fn join(&mut self, line: &Line<Number, Number>, is_future: bool) {
        self.numbers += 1;
        let count = is_future.then(Arc::<Count>::default);
        let wake_up = match &count {
            Some(count) => WakeUp::Task(Waker::from(Arc::clone(count))),
            None => WakeUp::Thread(thread::current()),
        };
        let ticket = line.join(Box::new(self.numbers), wake_up);
        self.tickets.push(ticket);
        self.entries.push_back(Entry {
            ticket,
            number: self.numbers,
            count,
        });
    }

    /// The attempts are made in order, until there is no space. `nests`: some space comes up within the
    /// first attempt, by the same thread.
    fn serve(&mut self, line: &Line<Number, Number>, mut nests: bool) {
        let mut served = Vec::new();
        let space = &mut self.space;
        let wakers = line.serve(|number| {
            let had = *space > 0;
            *space -= u64::from(had);
            if std::mem::take(&mut nests) {
                *space += 1;
                let nested = line.serve(|_| unreachable!("it is served"));
                assert!(nested.is_empty());
            }
            served.push((**number, had));
            had.then(|| number.clone())
        });
        let mut counts = Vec::new();
        let mut tried = served.into_iter().peekable();
        while let Some((number, had)) = tried.next() {
            let first = self.entries.front().expect("one that was tried");
            assert_eq!(number, first.number, "out of order");
            if !had {
                // Again after space has come up, or the last.
                assert!(tried.peek().is_none_or(|next| next.0 == number));
                continue;
            }
            let first = self.entries.pop_front().expect("as above");
            self.answers.insert(first.ticket, number);
            counts.extend(first.count);
        }
        assert!(self.entries.is_empty() || self.space == 0, "left over");
        wake(wakers, counts);
    }

    fn fetch(&mut self, line: &Line<Number, Number>, ticket: u64, polls: bool) {
        let new = Arc::<Count>::default();
        let waker = Waker::from(Arc::clone(&new));
        let answer = line.fetch(ticket, polls.then_some(&waker));
        let expected = self.answers.remove(&ticket);
        assert_eq!(answer.map(|number| *number), expected);
        let entry = self.entries.iter_mut().find(|it| it.ticket == ticket);
        if let (Some(entry), true) = (entry, polls) {
            entry.count = Some(new);
        }
        if expected.is_some() {
            self.tickets.retain(|it| *it != ticket);
        }
    }

    fn leave(&mut self, line: &Line<Number, Number>, ticket: u64) {
        let place = self.entries.iter().position(|it| it.ticket == ticket);
        match line.leave(ticket) {
            Left::Answered(number) => assert_eq!(Some(*number), self.answers.remove(&ticket)),
            Left::Unanswered(number) => {
                let entry = place.and_then(|place| self.entries.remove(place));
                assert_eq!(Some(*number), entry.map(|entry| entry.number));
            }
            Left::Served => panic!("it is not served"),
        }
        self.tickets.retain(|it| *it != ticket);
    }

    fn turn_away(&mut self, line: &Line<Number, Number>, which: u64) {
        let is_unwanted = |number: u64| number % 4 == which;
        let wakers = line.turn_away(|number| is_unwanted(**number), |number| number);
        let mut counts = Vec::new();
        for entry in std::mem::take(&mut self.entries) {
            if is_unwanted(entry.number) {
                self.answers.insert(entry.ticket, entry.number);
                counts.extend(entry.count);
            } else {
                self.entries.push_back(entry);
            }
        }
        wake(wakers, counts);
    }
}

/// The wakers of the futures that have an answer, and no others.
fn wake(wakers: Vec<Waker>, counts: Vec<Arc<Count>>) {
    assert_eq!(wakers.len(), counts.len());
    wakers.into_iter().for_each(Waker::wake);
    assert!(counts
        .iter()
        .all(|count| count.0.load(Ordering::SeqCst) == 1));
}
