//! Threads that wait for space, in the order in which they came.
//!
//! A thread joins the list, *then* tries once more before it sleeps. A thread that makes space does
//! so by a `SeqCst` step, *then* reads how many wait (P5). One of the two sees the other.
//!
//! An event takes the first entry off the list. The thread goes back to its place before it tries.
//! So an entry that is on the list when its thread leaves has used its event; one that is off the
//! list passes the event on.
//!
//! **Fair in the end.** A thread that has waited for [`AGE`] counts as aged until it leaves. Others
//! leave as much space as there are aged threads, even if an event for that space was theirs. So:
//!
//! * A thread that leaves while there are aged ones, or is aged, notifies the next.
//! * The first on the list tries again when it becomes aged: an event that it could not use was for
//!   those behind it. Others do not, so that aged threads are served in their order.

use crate::parts::deadline::Deadline;
use crate::sync::{lock, thread, AtomicU64, Mutex, Ordering, PlainU64};
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::time::Duration;

/// How long a thread may be overtaken.
#[cfg(not(lazypool_loom))]
pub(crate) const AGE: Duration = Duration::from_millis(1);
/// Models have no clock: all that sleep are aged.
#[cfg(lazypool_loom)]
pub(crate) const AGE: Duration = Duration::ZERO;

#[derive(Debug)]
pub(crate) struct Waiters {
    counts: CachePadded<Counts>,
    next_ticket: PlainU64,
    list: Mutex<List>,
}

/// By ticket: the thread to wake.
type List = VecDeque<(u64, thread::Thread)>;

#[derive(Debug)]
struct Counts {
    /// The length of the list; written under its lock.
    waiting: AtomicU64,
    /// Threads that have waited for `AGE`, on the list or off it for a try.
    aged: AtomicU64,
}

/// A thread that waits. Dropping it leaves.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    waiters: &'a Waiters,
    ticket: u64,
    /// `None`: it is aged.
    ages: Option<Deadline>,
}

impl Waiters {
    pub(crate) fn new() -> Self {
        Self::starting_at(0)
    }

    /// The same, with the first ticket: tests start near the wrap.
    pub(crate) fn starting_at(next_ticket: u64) -> Self {
        Self {
            counts: CachePadded::new(Counts {
                waiting: AtomicU64::new(0),
                aged: AtomicU64::new(0),
            }),
            next_ticket: PlainU64::new(next_ticket),
            // The first to wait allocates nothing (law 12).
            list: Mutex::new(VecDeque::with_capacity(4)),
        }
    }

    /// How many are on the list.
    pub(crate) fn waiting(&self) -> u64 {
        // ORDERING: P5: after space has been made.
        self.counts.waiting.load(Ordering::SeqCst)
    }

    /// How many have waited for [`AGE`].
    #[inline]
    pub(crate) fn aged(&self) -> u64 {
        // Relaxed: a newcomer may miss one for a moment. A thread on the list reads it after it has
        // held the lock: so it sees that an aged thread has left, or that thread notifies it.
        self.counts.aged.load(Ordering::Relaxed)
    }

    /// Enters at the end; to be followed by a try.
    pub(crate) fn join(&self) -> Waiting<'_> {
        let waiting = Waiting {
            waiters: self,
            // Relaxed: a number.
            ticket: self.next_ticket.fetch_add(1, Ordering::Relaxed),
            ages: Some(Deadline::from_now(AGE)),
        };
        waiting.rejoin();
        waiting
    }

    /// There is space for one more.
    #[inline]
    pub(crate) fn notify(&self) {
        if self.waiting() != 0 {
            self.notify_first();
        }
    }

    #[cold]
    fn notify_first(&self) {
        let first = self.take_off(&mut lock(&self.list));
        if let Some(thread) = first {
            thread.unpark();
        }
    }

    /// Everybody looks again: what they wait for can no longer come, or has come.
    #[cold]
    pub(crate) fn notify_all(&self) {
        // Under the lock: nobody is back before the last one is off.
        let mut list = lock(&self.list);
        while let Some(thread) = self.take_off(&mut list) {
            thread.unpark();
        }
    }

    fn take_off(&self, list: &mut List) -> Option<thread::Thread> {
        let (_, thread) = list.pop_front()?;
        // ORDERING: P5: under the lock; a thread that goes back counts itself again.
        self.counts.waiting.fetch_sub(1, Ordering::SeqCst);
        Some(thread)
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
impl Waiters {
    /// As a thread that is stopped within.
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        lock(&self.list)
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl Waiters {
    /// For models, once nobody waits.
    pub(crate) fn assert_at_rest(&self) {
        assert!(lock(&self.list).is_empty(), "on the list");
        assert_eq!(self.waiting(), 0, "waiting");
        assert_eq!(self.aged(), 0, "aged");
    }
}

impl Waiting<'_> {
    /// Its place on the list, or where that belongs. Tickets may wrap.
    fn find(&self, list: &List) -> Result<usize, usize> {
        list.binary_search_by_key(&0, |(other, _)| other.wrapping_sub(self.ticket) as i64)
    }

    /// Back to its place on the list, if an event has taken it off: before each try.
    pub(crate) fn rejoin(&self) {
        let mut list = lock(&self.waiters.list);
        if let Err(place) = self.find(&list) {
            list.insert(place, (self.ticket, thread::current()));
            // ORDERING: P5: before this thread looks for space again.
            self.waiters.counts.waiting.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Whether it has waited for [`AGE`].
    pub(crate) fn is_aged(&self) -> bool {
        self.ages.is_none()
    }

    /// Sleeps until an event, the deadline, or the moment at which it becomes aged and is the first.
    pub(crate) fn sleep(&mut self, deadline: &Deadline) {
        loop {
            let ages = self.ages.take_if(|ages| ages.has_passed());
            if ages.is_some() {
                // Relaxed: see `aged`.
                self.waiters.counts.aged.fetch_add(1, Ordering::Relaxed);
            }
            let place = self.find(&lock(&self.waiters.list));
            let is_to_try = ages.is_some() && place == Ok(0);
            if place.is_err() || is_to_try || deadline.has_passed() {
                return;
            }
            let ages = self.ages.as_ref();
            ages.map_or(deadline, |ages| ages.earlier(deadline)).park();
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // Relaxed: see `aged`; before this thread takes the lock.
        if self.is_aged() {
            self.waiters.counts.aged.fetch_sub(1, Ordering::Relaxed);
        }
        let mut list = lock(&self.waiters.list);
        // Under the lock: one that has aged and looked before is seen here, one that looks later finds
        // this one gone.
        let left_space = self.is_aged() || self.waiters.aged() != 0;
        let place = self.find(&list);
        if let Ok(place) = place {
            list.remove(place);
            // ORDERING: P5: as in `take_off`.
            self.waiters.counts.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        drop(list);
        if place.is_err() || left_space {
            self.waiters.notify();
        }
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "waiters_tests.rs"]
mod tests;
