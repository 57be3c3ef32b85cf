//! The line of the submissions that wait for space, without a pool.

use crate::parts::completion::WakeUp;
use crate::parts::line;
use crate::sync::thread;
use std::task::Waker;

/// The line. Its entries and its answers are numbers.
#[derive(Debug)]
pub struct Line(line::Line<u32, u32>);

/// The state of an entry at the moment when its owner leaves the line.
#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    /// The entry had this answer.
    Answered(u32),
    /// The entry, with this number, had no answer.
    Unanswered(u32),
    /// A thread that serves the line is attempting the entry.
    Served,
}

impl Line {
    /// Returns an empty line.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(line::Line::new())
    }

    /// Joins the line as a thread. Returns the ticket.
    pub fn join(&self, number: u32) -> u64 {
        self.0.join(number, Some(WakeUp::Thread(thread::current())))
    }

    /// Joins the line as a future that has not polled for its answer yet. Returns the ticket.
    pub fn join_as_future(&self, number: u32) -> u64 {
        self.0.join(number, None)
    }

    /// Serves the line if an entry waits, as a thread that has made space does. `attempt` returns
    /// the answer to an entry, or `None` if there is no space for it.
    pub fn serve(&self, mut attempt: impl FnMut(u32) -> Option<u32>) {
        if self.0.waiting() != 0 {
            while let Some(waker) = self.0.serve(|number| attempt(*number)) {
                waker.wake();
            }
        }
    }

    /// Answers the entries that are `unwanted`.
    pub fn turn_away(&self, unwanted: impl Fn(u32) -> bool, answer: u32) {
        let wakers = self.0.turn_away(|number| unwanted(*number), |_| answer);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns the answer if there is one. Otherwise stores the waker.
    pub fn fetch(&self, ticket: u64, waker: Option<&Waker>) -> Option<u32> {
        (self.0).fetch(ticket, &mut waker.cloned().map(WakeUp::Task))
    }

    /// Sleeps until the answer is there.
    pub fn wait(&self, ticket: u64) -> u32 {
        loop {
            if let Some(answer) = self.fetch(ticket, None) {
                return answer;
            }
            thread::park();
        }
    }

    /// Leaves the line, as the owner of an entry does.
    pub fn leave(&self, ticket: u64) -> Left {
        match self.0.leave(ticket) {
            line::Left::Answered(answer) => Left::Answered(answer),
            line::Left::Unanswered(number, _) => Left::Unanswered(number),
            line::Left::Served => Left::Served,
        }
    }
}

forward! { Line:
    assert_at_rest();
}
