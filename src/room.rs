//! Submitters that wait for room (`WhenFull::Block`), first come first served.
//!
//! A submitter enters the list, *then* tries once more before it sleeps; whoever
//! makes room does so by a `SeqCst` read-modify-write, *then* reads `waiting`.
//! One of the two sees the other. An event takes one entry off the list; an
//! entry taken off while its submitter was succeeding anyway is passed on.
//!
//! Entries lie on the submitters' stacks, linked both ways: waiting allocates
//! nothing. Others touch an entry only under the list's lock and only while it is
//! on the list, and a submitter takes that lock before it lets its entry go.

use crate::deadline::Deadline;
use crate::sync::{lock, thread, AtomicBool, AtomicU64, Mutex, Ordering};
use crossbeam_utils::CachePadded;
use std::cell::{Cell, RefCell};
use std::ptr;

/// A submitter's place in the list.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Not on the list: taken off by an event. Written under the lock.
    notified: AtomicBool,
    // All of these only under the lock.
    thread: RefCell<Option<thread::Thread>>,
    next: Cell<*const Entry>,
    previous: Cell<*const Entry>,
}

impl Entry {
    pub(crate) fn new() -> Self {
        Self {
            notified: AtomicBool::new(false),
            thread: RefCell::new(None),
            next: Cell::new(ptr::null()),
            previous: Cell::new(ptr::null()),
        }
    }
}

/// Entries in order; null at both ends.
#[derive(Debug)]
struct List {
    first: *const Entry,
    last: *const Entry,
}

// SAFETY: the pointers are followed only under the lock around the list, while
// their entries are alive; see the module's doc.
unsafe impl Send for List {}

impl List {
    /// # Safety
    /// The entry is not on the list, and lives until it has been taken off.
    unsafe fn push(&mut self, entry: &Entry, in_front: bool) {
        let at: *const Entry = entry;
        let (previous, next) = if in_front {
            (ptr::null(), self.first)
        } else {
            (self.last, ptr::null())
        };
        entry.previous.set(previous);
        entry.next.set(next);
        // SAFETY: entries on the list are alive.
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
    }

    /// What follows `previous` is `after` from now on, what precedes `next` is
    /// `before`.
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

    /// Takes the first entry off, and returns whom to wake.
    fn pop(&mut self) -> Option<thread::Thread> {
        // SAFETY: an entry on the list is alive.
        let first = unsafe { self.first.as_ref() }?;
        // SAFETY: it is on the list.
        unsafe { self.remove(first) };
        let thread = first.thread.borrow_mut().take();
        // Relaxed, and the last touch: a submitter that reads it takes the lock
        // before it tries again or leaves.
        first.notified.store(true, Ordering::Relaxed);
        thread
    }
}

#[derive(Debug)]
pub(crate) struct Room {
    /// The length of the list; written under its lock.
    waiting: CachePadded<AtomicU64>,
    list: Mutex<List>,
}

/// A submitter on the list. Dropping it leaves.
#[derive(Debug)]
pub(crate) struct Blocked<'a> {
    room: &'a Room,
    entry: &'a Entry,
}

impl Room {
    pub(crate) fn new() -> Self {
        Self {
            waiting: CachePadded::new(AtomicU64::new(0)),
            list: Mutex::new(List {
                first: ptr::null(),
                last: ptr::null(),
            }),
        }
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Enters at the end.
    pub(crate) fn join<'a>(&'a self, entry: &'a Entry) -> Blocked<'a> {
        let blocked = Blocked { room: self, entry };
        blocked.enter(false);
        blocked
    }

    /// There is room for one more.
    #[inline]
    pub(crate) fn notify(&self) {
        if self.waiting.load(Ordering::SeqCst) != 0 {
            self.notify_one();
        }
    }

    #[cold]
    fn notify_one(&self) {
        let mut list = lock(&self.list);
        let Some(thread) = list.pop() else { return };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        drop(list);
        thread.unpark();
    }

    /// Everybody looks again: the pool or a group refuses from now on.
    pub(crate) fn notify_all(&self) {
        let mut list = lock(&self.list);
        // Those who come after this look at what has changed first.
        for _ in 0..self.waiting.load(Ordering::Relaxed) {
            let Some(thread) = list.pop() else { return };
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            thread.unpark();
        }
    }
}

#[cfg(lazypool_loom)]
impl Room {
    /// For models, once nobody waits.
    pub(crate) fn assert_at_rest(&self) {
        assert!(lock(&self.list).first.is_null(), "on the list");
        assert_eq!(self.waiting.load(Ordering::SeqCst), 0, "waiting");
    }
}

impl Blocked<'_> {
    fn enter(&self, in_front: bool) {
        let mut list = lock(&self.room.list);
        *self.entry.thread.borrow_mut() = Some(thread::current());
        // SAFETY: not on the list: new, or taken off. It is borrowed for as long
        // as `self` lives, whose drop takes it off.
        unsafe { list.push(self.entry, in_front) };
        self.room.waiting.fetch_add(1, Ordering::SeqCst);
        drop(list);
    }

    /// Back on the list, at its head, if it was taken off: before the next try.
    pub(crate) fn rejoin(&mut self) {
        // Relaxed: as in `pop`.
        if self.entry.notified.load(Ordering::Relaxed) {
            self.enter(true);
        }
    }

    /// Sleeps until taken off the list, or the deadline.
    pub(crate) fn sleep(&self, deadline: &Deadline) {
        // Relaxed: as in `pop`.
        while !self.entry.notified.load(Ordering::Relaxed) && !deadline.has_passed() {
            deadline.park();
        }
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        let mut list = lock(&self.room.list);
        if self.entry.notified.load(Ordering::Relaxed) {
            drop(list);
            // Taken off for room that this submitter does not use.
            self.room.notify();
        } else {
            // SAFETY: still on the list.
            unsafe { list.remove(self.entry) };
            self.room.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(all(test, not(lazypool_loom)))]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    fn notified(entry: &Entry) -> bool {
        entry.notified.load(Ordering::SeqCst)
    }

    #[test]
    fn first_come_first_served_and_back_at_the_head() {
        let room = Room::new();
        let (a, b, c) = (Entry::new(), Entry::new(), Entry::new());
        let mut first = room.join(&a);
        let _second = room.join(&b);
        let third = room.join(&c);
        room.notify();
        assert!(notified(&a) && !notified(&b));
        first.rejoin();
        assert!(!notified(&a));
        room.notify();
        assert!(notified(&a) && !notified(&b), "it was in front again");
        drop(third); // from the end
        room.notify();
        assert!(notified(&b));
        assert_eq!(room.waiting(), 0);
        room.notify(); // nobody
    }

    #[test]
    fn sleeps_until_notified_or_the_deadline() {
        let room = Room::new();
        let entry = Entry::new();
        let mut blocked = room.join(&entry);
        assert_eq!(room.waiting(), 1);
        let deadline = Deadline::from_now(Duration::from_millis(50));
        blocked.sleep(&deadline);
        assert!(deadline.has_passed() && !notified(&entry));
        // Notified before it sleeps: not at all, whatever the deadline.
        room.notify();
        blocked.sleep(&Deadline::never());
        blocked.rejoin();
        // And while it sleeps.
        thread::scope(|s| {
            s.spawn(|| room.notify());
            blocked.sleep(&Deadline::never());
        });
        assert!(notified(&entry));
    }

    #[test]
    fn room_not_used_is_passed_on() {
        let room = Room::new();
        let (a, b) = (Entry::new(), Entry::new());
        let first = room.join(&a);
        let second = room.join(&b);
        room.notify();
        drop(first);
        assert!(notified(&b));
        drop(second);
        assert_eq!(room.waiting(), 0);
        // One that nobody notified leaves without a word.
        let (a, b) = (Entry::new(), Entry::new());
        let first = room.join(&a);
        let _second = room.join(&b);
        drop(first);
        assert!(!notified(&b));
        room.notify_all();
        assert!(notified(&b));
    }
}
