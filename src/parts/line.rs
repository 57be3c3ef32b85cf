//! The line: submissions that wait for space, in the order in which they came.
//!
//! A submission that waits leaves its task here, and its thread or future sleeps. A thread that makes
//! space *serves* the line: it submits the first task by an ordinary attempt, and leaves the answer for
//! that task's owner.
//!
//! **Invariant.** While a task waits here, there is no space that no thread is about to give to it.
//! Three rules keep it:
//!
//! 1. A thread that makes space does so by a `SeqCst` step, *then* reads `waiting`. An owner that joins
//!    raises `waiting`, *then* serves the line. One of the two sees the other (P5).
//! 2. One thread serves at a time, so the order is exact. It holds no lock during an attempt, which may
//!    start a thread. Another thread that comes to serve meanwhile leaves an *event* and returns. So
//!    does the server itself, if space comes up within its own attempt.
//! 3. The server stops once the line is empty; or once an attempt has found no space, and no event
//!    has come since that attempt began.

use crate::parts::completion::WakeUp;
use crate::sync::{lock, AtomicU64, Mutex, Ordering};
use crossbeam_utils::CachePadded;
use std::collections::{HashMap, VecDeque};
use std::task::Waker;

/// `T`: what waits. `A`: the answer to it.
#[derive(Debug)]
pub(crate) struct Line<T, A> {
    /// Entries without an answer; written under the lock.
    waiting: CachePadded<AtomicU64>,
    list: Mutex<List<T, A>>,
}

#[derive(Debug)]
struct List<T, A> {
    next_ticket: u64,
    /// By ticket.
    entries: VecDeque<Entry<T>>,
    /// By ticket, until the owner fetches it.
    answers: HashMap<u64, A>,
    /// A thread serves the line.
    is_served: bool,
    /// Space may have come up since the server's last attempt began.
    has_event: bool,
}

#[derive(Debug)]
struct Entry<T> {
    ticket: u64,
    /// `None` while the server attempts to submit it.
    wanted: Option<T>,
    wake_up: WakeUp,
}

/// How an owner leaves the line.
#[derive(Debug)]
pub(crate) enum Left<T, A> {
    /// It had its answer.
    Answered(A),
    /// It had none: what it wanted.
    Unanswered(T),
    /// It has not left: the server attempts to submit its task at this moment.
    Served,
}

impl<T, A> List<T, A> {
    fn find(&self, ticket: u64) -> Option<usize> {
        self.entries
            .binary_search_by_key(&ticket, |entry| entry.ticket)
            .ok()
    }
}

impl<T, A> Line<T, A> {
    pub(crate) fn new() -> Self {
        Self {
            waiting: CachePadded::new(AtomicU64::new(0)),
            list: Mutex::new(List {
                next_ticket: 0,
                // The first to wait allocates nothing (law 12).
                entries: VecDeque::with_capacity(4),
                answers: HashMap::with_capacity(4),
                is_served: false,
                has_event: false,
            }),
        }
    }

    /// Returns how many entries have no answer yet.
    #[inline]
    pub(crate) fn waiting(&self) -> u64 {
        // ORDERING: P5: after space has been made.
        self.waiting.load(Ordering::SeqCst)
    }

    /// Joins the end of the line; returns the ticket. The caller serves the line next.
    pub(crate) fn join(&self, wanted: T, wake_up: WakeUp) -> u64 {
        let mut list = lock(&self.list);
        let ticket = list.next_ticket;
        list.next_ticket += 1;
        list.entries.push_back(Entry {
            ticket,
            wanted: Some(wanted),
            wake_up,
        });
        // ORDERING: P5: before this thread serves the line.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        ticket
    }

    /// Returns the answer, if it is there. Otherwise `waker`, if given, is to be woken in place of the
    /// one that was stored.
    pub(crate) fn fetch(&self, ticket: u64, waker: Option<&Waker>) -> Option<A> {
        // A waker's clone and drop are user code: not under the lock.
        let now = waker.cloned();
        let mut list = lock(&self.list);
        let answer = list.answers.remove(&ticket);
        let place = list.find(ticket);
        let before = match (place, now) {
            (Some(place), Some(now)) => {
                let stored = &mut list.entries[place].wake_up;
                Some(std::mem::replace(stored, WakeUp::Task(now)))
            }
            (_, unused) => unused.map(WakeUp::Task),
        };
        drop(list);
        drop(before);
        answer
    }

    /// Leaves the line, unless the server has the entry in hand.
    pub(crate) fn leave(&self, ticket: u64) -> Left<T, A> {
        let mut list = lock(&self.list);
        if let Some(answer) = list.answers.remove(&ticket) {
            return Left::Answered(answer);
        }
        let place = list.find(ticket).expect("an entry without an answer");
        let Some(wanted) = list.entries[place].wanted.take() else {
            return Left::Served;
        };
        let entry = list.entries.remove(place);
        // ORDERING: P5: under the lock.
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        drop(list);
        // A waker's drop is user code.
        drop(entry);
        Left::Unanswered(wanted)
    }

    /// Makes attempts for the first entry as long as they succeed; see the module's doc. Wakes the threads
    /// that have an answer now, and returns the wakers of the futures.
    #[cold]
    pub(crate) fn serve(&self, mut attempt: impl FnMut(&mut T) -> Option<A>) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let mut list = lock(&self.list);
        list.has_event = true;
        if list.is_served {
            return wakers;
        }
        list.is_served = true;
        while std::mem::take(&mut list.has_event) {
            let first = list.entries.front_mut();
            let Some(mut wanted) = first.and_then(|first| first.wanted.take()) else {
                break;
            };
            drop(list);
            let answer = attempt(&mut wanted);
            list = lock(&self.list);
            match answer {
                None => list.entries[0].wanted = Some(wanted),
                Some(answer) => {
                    let entry = list
                        .entries
                        .pop_front()
                        .expect("it stays while it is served");
                    list.has_event = true;
                    let thread = self.answer(&mut list, entry, answer, &mut wakers);
                    drop(list);
                    thread.inspect(crate::sync::thread::Thread::unpark);
                    list = lock(&self.list);
                }
            }
        }
        list.is_served = false;
        wakers
    }

    /// Answers all entries that are `unwanted`, and returns the wakers to be called. One that the
    /// server has in hand is left to the server, which attempts once more.
    #[cold]
    pub(crate) fn turn_away(
        &self,
        unwanted: impl Fn(&T) -> bool,
        answer: impl Fn(T) -> A,
    ) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let mut list = lock(&self.list);
        list.has_event = true;
        for _ in 0..list.entries.len() {
            let mut entry = list.entries.pop_front().expect("as many as there were");
            match entry.wanted.take_if(|wanted| unwanted(wanted)) {
                None => list.entries.push_back(entry),
                Some(wanted) => {
                    let thread = self.answer(&mut list, entry, answer(wanted), &mut wakers);
                    thread.inspect(crate::sync::thread::Thread::unpark);
                }
            }
        }
        wakers
    }

    /// Stores the answer; returns the thread to be woken, if one waits for it.
    fn answer(
        &self,
        list: &mut List<T, A>,
        entry: Entry<T>,
        answer: A,
        wakers: &mut Vec<Waker>,
    ) -> Option<crate::sync::thread::Thread> {
        list.answers.insert(entry.ticket, answer);
        // ORDERING: P5: under the lock.
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        match entry.wake_up {
            WakeUp::Thread(thread) => Some(thread),
            WakeUp::Task(waker) => {
                wakers.push(waker);
                None
            }
        }
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl<T, A> Line<T, A> {
    /// For scenarios: whether a thread serves the line.
    #[cfg(lazypool_shuttle)]
    pub(crate) fn is_served(&self) -> bool {
        lock(&self.list).is_served
    }

    /// For models, once nothing waits.
    pub(crate) fn assert_at_rest(&self) {
        let list = lock(&self.list);
        assert!(
            list.entries.is_empty() && list.answers.is_empty(),
            "in line"
        );
        assert!(!list.is_served, "served");
        assert_eq!(self.waiting(), 0, "waiting");
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
impl<T, A> Line<T, A> {
    /// Holds the lock, as a thread does that is stopped within.
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        lock(&self.list)
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "line_tests.rs"]
mod tests;
