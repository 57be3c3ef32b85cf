//! Threads that wait for room: not-full waiters, in the order in which they came.
//!
//! A thread joins the list, *then* tries once more before it sleeps; whoever makes room
//! does so by a `SeqCst` step, *then* reads how many wait (P7). One of the two sees the
//! other. An event takes one entry off the list. An entry that was taken off and does
//! not use its event passes it on; one that fails goes back to its place.
//!
//! **Fair in the end.** Newcomers may overtake, which is fast. Once an entry has waited
//! for [`AGE`], newcomers line up behind it, and sleep without a try of their own. While
//! somebody has lined up so, each entry that leaves notifies the next.
//!
//! Entries lie on their threads' stacks, linked both ways: waiting allocates nothing.
//! Others touch an entry only under the list's lock and only while it is on the list, and
//! a thread takes that lock before it lets its entry go.

use crate::parts::deadline::Deadline;
use crate::sync::{current_thread, lock, thread, AtomicBool, AtomicU64, Mutex, Ordering};
use crossbeam_utils::CachePadded;
use std::cell::{Cell, RefCell};
use std::ptr;
use std::time::Duration;

/// How long an entry is overtaken.
#[cfg(not(lazypool_loom))]
pub(crate) const AGE: Duration = Duration::from_millis(1);
/// Models have no clock: all that sleep are old.
#[cfg(lazypool_loom)]
pub(crate) const AGE: Duration = Duration::ZERO;

/// A thread's place in the list.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Not on the list: taken off by an event. Written under the lock.
    notified: AtomicBool,
    // All of these only under the lock, but that its own thread reads `can_park` without.
    thread: RefCell<Option<thread::Thread>>,
    next: Cell<*const Entry>,
    previous: Cell<*const Entry>,
    /// Its place in the order.
    ticket: Cell<u64>,
    /// It has lined up without a try.
    untried: Cell<bool>,
    /// Its thread has a handle; see [`Deadline::park`].
    can_park: Cell<bool>,
}

impl Entry {
    pub(crate) fn new() -> Self {
        Self {
            notified: AtomicBool::new(false),
            thread: RefCell::new(None),
            next: Cell::new(ptr::null()),
            previous: Cell::new(ptr::null()),
            ticket: Cell::new(0),
            untried: Cell::new(false),
            can_park: Cell::new(true),
        }
    }

    /// Also where the tickets have wrapped in between.
    fn came_after(&self, other: &Self) -> bool {
        self.ticket.get().wrapping_sub(other.ticket.get()) < 1 << 63
    }
}

/// Entries by ticket; null at both ends.
#[derive(Debug)]
struct List {
    first: *const Entry,
    last: *const Entry,
    next_ticket: u64,
    untried: usize,
}

// SAFETY: the pointers are followed only under the lock around the list, while their
// entries are alive; see the module's doc.
unsafe impl Send for List {}

impl List {
    /// Adds an entry behind all of smaller tickets.
    ///
    /// # Safety
    /// The entry is not on the list, and lives until it has been taken off.
    unsafe fn insert(&mut self, entry: &Entry) {
        let mut previous = self.last;
        // SAFETY: entries on the list are alive.
        while let Some(before) = unsafe { previous.as_ref() } {
            if entry.came_after(before) {
                break;
            }
            previous = before.previous.get();
        }
        // SAFETY: as above.
        let next = match unsafe { previous.as_ref() } {
            Some(previous) => previous.next.get(),
            None => self.first,
        };
        entry.previous.set(previous);
        entry.next.set(next);
        let at: *const Entry = entry;
        // SAFETY: as above.
        unsafe { self.link(previous, next, at, at) };
        // Relaxed: read by others under the lock.
        entry.notified.store(false, Ordering::Relaxed);
    }

    /// # Safety
    /// The entry is on this list.
    unsafe fn remove(&mut self, entry: &Entry) {
        let (previous, next) = (entry.previous.get(), entry.next.get());
        // SAFETY: its neighbours are on the list, and alive.
        unsafe { self.link(previous, next, next, previous) };
        if entry.untried.replace(false) {
            self.untried -= 1;
        }
    }

    /// What follows `previous` is `after` from now on, what precedes `next` is `before`.
    ///
    /// # Safety
    /// `previous` and `next` are alive and on the list, or null.
    unsafe fn link(
        &mut self,
        previous: *const Entry,
        next: *const Entry,
        after: *const Entry,
        before: *const Entry,
    ) {
        // SAFETY: by this function's contract.
        match unsafe { previous.as_ref() } {
            Some(previous) => previous.next.set(after),
            None => self.first = after,
        }
        // SAFETY: by this function's contract.
        match unsafe { next.as_ref() } {
            Some(next) => next.previous.set(before),
            None => self.last = before,
        }
    }

    /// Takes the first entry off; whom to wake, if there was one.
    fn pop(&mut self) -> Option<Option<thread::Thread>> {
        // SAFETY: an entry on the list is alive.
        let first = unsafe { self.first.as_ref() }?;
        // SAFETY: it is on the list.
        unsafe { self.remove(first) };
        let thread = first.thread.borrow_mut().take();
        // Relaxed, and the last touch: a thread that reads it takes the lock before it
        // tries again or leaves.
        first.notified.store(true, Ordering::Relaxed);
        Some(thread)
    }
}

#[derive(Debug)]
pub(crate) struct Waiters {
    counts: CachePadded<Counts>,
    list: Mutex<List>,
}

#[derive(Debug)]
struct Counts {
    /// The length of the list; written under its lock.
    waiting: AtomicU64,
    /// Those who have waited for `AGE`, on the list or off it for a try.
    aged: AtomicU64,
}

/// A thread on the list. Dropping it leaves.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    waiters: &'a Waiters,
    entry: &'a Entry,
    ages: Option<Deadline>,
}

impl Waiters {
    pub(crate) fn new() -> Self {
        Self::starting_at(0)
    }

    /// The same, with the first ticket: tests start near the wrap.
    pub(crate) fn starting_at(ticket: u64) -> Self {
        Self {
            counts: CachePadded::new(Counts {
                waiting: AtomicU64::new(0),
                aged: AtomicU64::new(0),
            }),
            list: Mutex::new(List {
                first: ptr::null(),
                last: ptr::null(),
                next_ticket: ticket,
                untried: 0,
            }),
        }
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> u64 {
        // ORDERING: P7: after room has been made.
        self.counts.waiting.load(Ordering::SeqCst)
    }

    /// Whether a newcomer has to line up.
    #[inline]
    pub(crate) fn has_aged(&self) -> bool {
        self.aged() != 0
    }

    /// How many have aged, for who reads it together with another word.
    #[inline]
    pub(crate) fn aged(&self) -> u64 {
        // Relaxed: nothing is published by it; a newcomer may miss it for a moment.
        self.counts.aged.load(Ordering::Relaxed)
    }

    /// Enters at the end; to be followed by a try.
    pub(crate) fn join<'a>(&'a self, entry: &'a Entry) -> Waiting<'a> {
        self.enter_new(entry, false).0
    }

    /// Enters at the end, and says whether there is nobody ahead. If there is, the thread
    /// sleeps without a try: whoever leaves notifies it.
    pub(crate) fn line_up<'a>(&'a self, entry: &'a Entry) -> (Waiting<'a>, bool) {
        self.enter_new(entry, true)
    }

    fn enter_new<'a>(&'a self, entry: &'a Entry, lines_up: bool) -> (Waiting<'a>, bool) {
        let thread = current_thread();
        let ages = Some(Deadline::from_now(AGE));
        let mut list = lock(&self.list);
        entry.ticket.set(list.next_ticket);
        list.next_ticket = list.next_ticket.wrapping_add(1);
        // An old one that has been taken off and has yet to wake is ahead, too. It leaves the
        // count before it takes the lock to leave: seen in the count, it will see this one.
        let is_first = list.first.is_null() && !self.has_aged();
        let waiting = Waiting {
            waiters: self,
            entry,
            ages,
        };
        if lines_up && !is_first {
            entry.untried.set(true);
            list.untried += 1;
        }
        waiting.enter(list, thread);
        (waiting, is_first)
    }

    /// There is room for one more.
    #[inline]
    pub(crate) fn notify(&self) {
        if self.waiting() != 0 {
            self.notify_one();
        }
    }

    #[cold]
    fn notify_one(&self) {
        let mut list = lock(&self.list);
        let Some(thread) = list.pop() else { return };
        // ORDERING: P7: under the lock; a thread that goes back counts itself again.
        self.counts.waiting.fetch_sub(1, Ordering::SeqCst);
        drop(list);
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    /// Everybody looks again: what they wait for can no longer come, or has come.
    #[cold]
    pub(crate) fn notify_all(&self) {
        let mut list = lock(&self.list);
        // Those who come after this look at what has changed first.
        for _ in 0..self.waiting() {
            let Some(thread) = list.pop() else { return };
            // ORDERING: P7: as in `notify_one`.
            self.counts.waiting.fetch_sub(1, Ordering::SeqCst);
            if let Some(thread) = thread {
                thread.unpark();
            }
        }
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
        let list = lock(&self.list);
        assert!(list.first.is_null() && list.untried == 0, "on the list");
        assert_eq!(self.waiting(), 0, "waiting");
        assert!(!self.has_aged(), "aged");
    }
}

impl Waiting<'_> {
    fn enter(&self, mut list: crate::sync::MutexGuard<'_, List>, thread: Option<thread::Thread>) {
        self.entry.can_park.set(thread.is_some());
        *self.entry.thread.borrow_mut() = thread;
        // SAFETY: not on the list: new, or taken off. It is borrowed for as long as `self`
        // lives, whose drop takes it off.
        unsafe { list.insert(self.entry) };
        // ORDERING: P7: before this thread looks for room again.
        self.waiters.counts.waiting.fetch_add(1, Ordering::SeqCst);
    }

    fn is_notified(&self) -> bool {
        // Relaxed: as in `List::pop`.
        self.entry.notified.load(Ordering::Relaxed)
    }

    /// Back to its place on the list, if it was taken off: before the next try. Whether it was.
    pub(crate) fn rejoin(&mut self) -> bool {
        let was_off = self.is_notified();
        if was_off {
            let thread = current_thread();
            self.enter(lock(&self.waiters.list), thread);
        }
        was_off
    }

    /// Sleeps until taken off the list, or the deadline.
    pub(crate) fn sleep(&mut self, deadline: &Deadline) {
        loop {
            self.grow_old();
            if self.is_notified() || deadline.has_passed() {
                return;
            }
            match &self.ages {
                Some(at) => at.park_within(deadline, self.entry.can_park.get()),
                None => deadline.park(self.entry.can_park.get()),
            }
        }
    }

    /// Counts it among the old ones once it is; also one that is notified before each sleep.
    fn grow_old(&mut self) {
        if self.ages.as_ref().is_some_and(Deadline::has_passed) {
            // Relaxed: see `has_aged`.
            self.waiters.counts.aged.fetch_add(1, Ordering::Relaxed);
            self.ages = None;
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.ages.is_none() {
            // Relaxed: see `has_aged`.
            self.waiters.counts.aged.fetch_sub(1, Ordering::Relaxed);
        }
        let mut list = lock(&self.waiters.list);
        let unused = self.is_notified();
        if !unused {
            // SAFETY: still on the list.
            unsafe { list.remove(self.entry) };
            // ORDERING: P7: as in `notify_one`.
            self.waiters.counts.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        let passes_on = unused || list.untried > 0;
        drop(list);
        if passes_on {
            self.waiters.notify();
        }
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "waiters_tests.rs"]
mod tests;
