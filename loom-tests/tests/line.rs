//! The line of submissions that wait for space (`src/parts/line.rs`), without a pool: space is a
//! number here. Laws 20 and 22. In a pool: `tests/wait_for_space.rs`.
#![cfg(lazypool_loom)]

use lazypool::model::{Left, Line};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use loom_tests::{beside, check, Flag, TwoWakers};
use std::sync::Arc;

/// The answer of an entry that was turned away.
const TURNED_AWAY: u32 = 99;

/// Space that is made and taken by `SeqCst` steps, as a pool's space is.
struct Space {
    line: Line,
    free: AtomicUsize,
    /// The numbers of the entries that got space, in this order. Only the server writes it. If two
    /// threads serve at once, loom reports it.
    served: UnsafeCell<Vec<u32>>,
    /// Set once the entries are cancelled. An attempt reads it first, as an attempt of a pool reads
    /// the group's flag.
    cancelled: AtomicBool,
}

// SAFETY: `served` is written by one server at a time; loom reports it if not.
unsafe impl Send for Space {}
// SAFETY: `served` is written by one server at a time; loom reports it if not.
unsafe impl Sync for Space {}

impl Space {
    fn new() -> Arc<Self> {
        let free = AtomicUsize::new(0);
        let cancelled = AtomicBool::new(false);
        // Every write must be `SeqCst`, the first one included: see the README.
        free.store(0, Ordering::SeqCst);
        cancelled.store(false, Ordering::SeqCst);
        Arc::new(Self {
            line: Line::new(),
            free,
            served: UnsafeCell::new(Vec::new()),
            cancelled,
        })
    }

    /// Attempts to take space for an entry. The answer is the entry's number plus ten.
    fn attempt(&self, number: u32) -> Option<u32> {
        // SAFETY: the calling thread serves the line, and there is one server at a time.
        self.served.with_mut(|served| unsafe {
            if self.cancelled.load(Ordering::SeqCst) {
                return Some(TURNED_AWAY);
            }
            let less = |free: usize| free.checked_sub(1);
            let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
            self.free.fetch_update(set, fetch, less).ok()?;
            (*served).push(number);
            Some(number + 10)
        })
    }

    fn serve(&self) {
        self.line.serve(|number| self.attempt(number));
    }

    /// Makes space for one entry, and serves the line.
    fn make(&self) {
        self.free.fetch_add(1, Ordering::SeqCst);
        self.serve();
    }

    /// Joins the line as a thread, and serves it. Returns the ticket.
    fn join(&self, number: u32) -> u64 {
        let ticket = self.line.join(number);
        self.serve();
        ticket
    }

    /// Joins the line, and sleeps until the answer is there. Returns the answer.
    fn wait(&self, number: u32) -> u32 {
        let ticket = self.join(number);
        self.line.wait(ticket)
    }

    /// Leaves the line, once no server has the entry in hand. Returns the answer, if there is one.
    fn leave(&self, ticket: u64) -> Option<u32> {
        loop {
            match self.line.leave(ticket) {
                Left::Answered(answer) => return Some(answer),
                Left::Unanswered(_) => return None,
                Left::Served => thread::yield_now(),
            }
        }
    }

    fn cancel(&self, number: u32) {
        self.cancelled.swap(true, Ordering::SeqCst);
        self.line.turn_away(|one| one == number, TURNED_AWAY);
    }

    /// Asserts that no entry waits, that `free` places are left, and that the entries `served` got
    /// space, in this order.
    fn assert_end(&self, free: usize, served: &[u32]) {
        self.line.assert_at_rest();
        assert_eq!(self.free.load(Ordering::SeqCst), free);
        // SAFETY: no thread serves the line any more.
        self.served
            .with(|now| assert_eq!(unsafe { &**now }, served));
    }
}

/// A thread joins while another makes space. The joining thread may serve its own entry and find no
/// space yet; the other thread then finds it serving, and leaves an event. Excludes: a thread that
/// sleeps although there is space. All interleavings.
#[test]
fn join_against_make() {
    check(None, || {
        let space = Space::new();
        let other = beside(&space, |space| assert_eq!(space.wait(1), 11));
        space.make();
        other.join().unwrap();
        space.assert_end(0, &[1]);
    });
}

/// Two futures are in line, the first of which may have a waker, which the server calls before it goes
/// on to serve. Two threads each make space for one and serve the line. Excludes: two attempts at
/// once; an entry that is served before an earlier one, twice, or never; a second future that waits
/// beside space, because the server stopped to call the waker while the other thread relied on it to
/// serve. All interleavings.
#[test]
fn two_servers() {
    for has_waker in [false, true] {
        check(None, move || {
            let space = Space::new();
            let tickets = [1, 2].map(|number| space.line.join_as_future(number));
            let (flag, waker) = Flag::new();
            if has_waker {
                assert_eq!(space.line.fetch(tickets[0], Some(&waker)), None);
            }
            let other = beside(&space, |space| space.make());
            space.make();
            other.join().unwrap();
            assert_eq!(flag.times(), usize::from(has_waker));
            for (ticket, answer) in tickets.into_iter().zip([11, 12]) {
                assert_eq!(space.line.fetch(ticket, None), Some(answer));
            }
            space.assert_end(0, &[1, 2]);
        });
    }
}

/// Space for two is made in two steps, beside two threads that join. Excludes: a thread that sleeps
/// although there is space, because an event that was left during one attempt is lost at the next.
/// Preemptions: 3.
#[test]
fn two_join_against_two_makes() {
    check(Some(3), || {
        let space = Space::new();
        let others = [1, 2].map(|number| {
            beside(&space, move |space| {
                assert_eq!(space.wait(number), number + 10)
            })
        });
        space.make();
        space.make();
        for other in others {
            other.join().unwrap();
        }
        space.line.assert_at_rest();
        assert_eq!(space.free.load(Ordering::SeqCst), 0);
    });
}

/// An owner leaves while another thread makes space, and may have the entry in hand. Excludes: an
/// owner that leaves without its answer although its entry got space; an answer that no owner
/// fetches. All interleavings.
#[test]
fn leave_against_serve() {
    check(None, || {
        let space = Space::new();
        let ticket = space.join(1);
        let maker = beside(&space, |space| space.make());
        let answer = space.leave(ticket);
        maker.join().unwrap();
        match answer {
            Some(answer) => {
                assert_eq!(answer, 11);
                space.assert_end(0, &[1]);
            }
            None => space.assert_end(1, &[]),
        }
    });
}

/// The first of two entries in line leaves while space for one is made. Excludes: space that is
/// lost with that entry, so that the second sleeps beside it. Preemptions: 3.
#[test]
fn space_of_one_that_leaves() {
    check(Some(3), || {
        let space = Space::new();
        let first = space.join(1);
        let second = beside(&space, |space| assert_eq!(space.wait(2), 12));
        let maker = beside(&space, |space| space.make());
        if space.leave(first).is_some() {
            space.make();
        }
        maker.join().unwrap();
        second.join().unwrap();
        space.line.assert_at_rest();
    });
}

/// An entry is turned away while a server has it in hand and finds no space. Excludes: an owner
/// that sleeps on, because the server's attempt read the flag before it was set, and the cancelling
/// thread skipped the entry as it was in service. All interleavings.
#[test]
fn turn_away_against_serve() {
    check(None, || {
        let space = Space::new();
        let canceller = beside(&space, |space| space.cancel(1));
        assert_eq!(space.wait(1), TURNED_AWAY);
        canceller.join().unwrap();
        space.assert_end(0, &[]);
    });
}

/// A future looks for its answer twice, with different wakers, while space is made. Excludes: a
/// lost wake-up; a call of the first waker once the second look has returned. All interleavings.
#[test]
fn fetch_against_the_answer() {
    check(None, || {
        let space = Space::new();
        let ticket = space.line.join_as_future(1);
        let maker = beside(&space, |space| space.make());
        let wakers = TwoWakers::new();
        let answer = wakers.poll(|waker| space.line.fetch(ticket, Some(waker)));
        assert_eq!(answer, 11);
        maker.join().unwrap();
        wakers.assert_end();
        space.assert_end(0, &[1]);
    });
}
