//! The line: submissions that wait for space, in the order of their arrival.
//!
//! A submission that waits leaves its task here, and its thread or future sleeps. That thread or
//! future is the *owner* of the entry. A thread that makes space *serves* the line: it makes an
//! ordinary attempt to submit the first task, and leaves the answer for the owner.
//!
//! **Invariant.** While a task waits in line and there is space, some thread is about to serve the
//! line. Three rules keep this true:
//!
//! 1. A thread makes space by a `SeqCst` step, *then* reads `waiting`. An owner that joins raises
//!    `waiting`, *then* serves the line. So the thread sees the owner, or the owner finds the space
//!    (P5).
//! 2. Only one thread serves at a time, so tasks are submitted in the exact order of arrival. The
//!    server holds no lock during an attempt, because an attempt may start a thread. A second
//!    thread that comes to serve leaves an *event* and returns. The server itself also leaves an
//!    event if its own attempt makes space.
//! 3. The server stops when the line is empty. It also stops when an attempt has found no space and
//!    no event has come since that attempt began.

use crate::parts::completion::WakeUp;
use crate::sync::{lock, AtomicU64, Mutex, Ordering};
use crossbeam_utils::CachePadded;
use std::collections::{HashMap, VecDeque};
use std::task::Waker;

/// The line of tasks `T` that wait for answers `A`.
#[derive(Debug)]
pub(crate) struct Line<T, A> {
    /// The number of entries without an answer. Changes only under the lock of `list`.
    waiting: CachePadded<AtomicU64>,
    list: Mutex<List<T, A>>,
}

#[derive(Debug)]
struct List<T, A> {
    next_ticket: u64,
    /// Entries without an answer, in the order of their tickets.
    entries: VecDeque<Entry<T>>,
    /// Answers by ticket, each until its owner fetches it.
    answers: HashMap<u64, A>,
    /// `true` while a thread serves the line.
    is_served: bool,
    /// `true` if the server must make another attempt. `serve` and `turn_away` set this when they
    /// leave an *event*. The server also sets it after it has answered an entry,
    /// unless it stops to return a waker.
    has_event: bool,
}

#[derive(Debug)]
struct Entry<T> {
    ticket: u64,
    /// The task. `None` while the server attempts to submit it.
    wanted: Option<T>,
    /// The way to wake the owner. `None` for a future that has not stored its waker yet.
    wake_up: Option<WakeUp>,
}

/// The result of an owner's call to leave the line.
#[derive(Debug)]
pub(crate) enum Left<T, A> {
    /// The entry has left with this answer.
    Answered(A),
    /// The entry has left without an answer. This is its task, and the way to wake its owner. The
    /// drop of that may be user code.
    Unanswered(T, Option<WakeUp>),
    /// The entry is still in line, because the server is currently attempting to submit its task.
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
                // The first submissions that wait allocate nothing (law 12).
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
        // ORDERING: P5: read after this thread has made space.
        self.waiting.load(Ordering::SeqCst)
    }

    /// Adds an entry at the end of the line. Returns its ticket. The caller must serve the line next.
    pub(crate) fn join(&self, wanted: T, wake_up: Option<WakeUp>) -> u64 {
        let mut list = lock(&self.list);
        let ticket = list.next_ticket;
        list.next_ticket += 1;
        list.entries.push_back(Entry {
            ticket,
            wanted: Some(wanted),
            wake_up,
        });
        // ORDERING: P5: raised before this thread serves the line.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        ticket
    }

    /// Returns the answer if there is one. Otherwise exchanges `wake_up`, if given, for the stored
    /// one. The caller drops what it gets, which may be user code.
    pub(crate) fn fetch(&self, ticket: u64, wake_up: &mut Option<WakeUp>) -> Option<A> {
        let mut list = lock(&self.list);
        if let (Some(place), true) = (list.find(ticket), wake_up.is_some()) {
            std::mem::swap(&mut list.entries[place].wake_up, wake_up);
        }
        list.answers.remove(&ticket)
    }

    /// Takes an entry out of the line, unless the server is attempting to submit its task.
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
        // ORDERING: P5: lowered under the lock, as the entry leaves.
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        Left::Unanswered(wanted, entry.and_then(|entry| entry.wake_up))
    }

    /// Returns `true` while a thread serves the line.
    pub(crate) fn is_served(&self) -> bool {
        lock(&self.list).is_served
    }

    /// Submits the waiting tasks in order, each by a call of `attempt`, until an attempt finds no
    /// space. (The module's doc has the rules.) If the owner of an answered entry is a thread,
    /// wakes it. If the owner is a future, stops and returns its waker. The caller then repeats
    /// this call until it returns `None`, and only then calls the wakers, which are user code.
    #[cold]
    pub(crate) fn serve(&self, mut attempt: impl FnMut(&mut T) -> Option<A>) -> Option<Waker> {
        let mut waker = None;
        let mut list = lock(&self.list);
        list.has_event = true;
        if list.is_served {
            return None;
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
                    let entry = list.entries.pop_front();
                    let entry = entry.expect("it stays while it is served");
                    waker = self.answer(&mut list, entry, answer);
                    // The next entry gets its turn in this loop or, if there is a waker to return, in
                    // the caller's next call, which sets the flag again. So no event is lost.
                    list.has_event = waker.is_none();
                }
            }
        }
        list.is_served = false;
        waker
    }

    /// Answers all entries whose task is `unwanted`. Returns the wakers that the caller must call.
    /// Skips the entry whose task the server is currently attempting to submit, but leaves an
    /// event. So if that attempt finds no space, the server makes another one. The second attempt
    /// finds that the task is unwanted, and answers the entry.
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
                Some(wanted) => wakers.extend(self.answer(&mut list, entry, answer(wanted))),
            }
        }
        wakers
    }

    /// Stores the answer. Unparks the owner if it is a thread; returns the waker if it is a future.
    fn answer(&self, list: &mut List<T, A>, entry: Entry<T>, answer: A) -> Option<Waker> {
        list.answers.insert(entry.ticket, answer);
        // ORDERING: P5: lowered under the lock, as the entry is answered.
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        entry.wake_up.and_then(WakeUp::unpark)
    }
}

#[cfg(lazypool_loom)]
impl<T, A> Line<T, A> {
    /// Asserts that nothing is left in line. Models call it after every thread has ended.
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
    /// Holds the lock, as if a thread had been stopped within one of the calls above.
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        lock(&self.list)
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "line_tests.rs"]
mod tests;
