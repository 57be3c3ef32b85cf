//! Submitters that wait for room (`WhenFull::Block`), first come first served.
//!
//! A submitter enters the list, *then* tries once more before it sleeps; whoever
//! makes room does so by a `SeqCst` read-modify-write, *then* reads `waiting`.
//! One of the two sees the other. An event takes one entry off the list; an
//! entry taken off while its submitter was succeeding anyway is passed on.

use crate::deadline::Deadline;
use crate::sync::{dekker, lock, thread, Arc, AtomicBool, AtomicU64, Mutex, Ordering};
use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::collections::VecDeque;

#[derive(Debug)]
struct Entry {
    /// Not on the list: taken off by an event. Written under the list's lock.
    notified: AtomicBool,
    thread: thread::Thread,
}

thread_local! {
    /// This thread's entry, for the next time: waiting allocates nothing in the
    /// long run. Whoever took it off the list may hold it a moment longer, and
    /// then does no more than unpark this thread.
    static SPARE: Cell<Option<Arc<Entry>>> = const { Cell::new(None) };
}

#[derive(Debug)]
pub(crate) struct Room {
    /// The length of the list; written under its lock.
    waiting: CachePadded<AtomicU64>,
    list: Mutex<VecDeque<Arc<Entry>>>,
}

/// A submitter on the list. Dropping it leaves.
#[derive(Debug)]
pub(crate) struct Blocked<'a> {
    room: &'a Room,
    entry: Arc<Entry>,
}

impl Room {
    pub(crate) fn new() -> Self {
        Self {
            waiting: CachePadded::new(AtomicU64::new(0)),
            list: Mutex::new(VecDeque::new()),
        }
    }

    /// Enters at the end.
    pub(crate) fn join(&self) -> Blocked<'_> {
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        let entry = spare.unwrap_or_else(|| {
            Arc::new(Entry {
                notified: AtomicBool::new(false),
                thread: thread::current(),
            })
        });
        let mut list = lock(&self.list);
        entry.notified.store(false, Ordering::Relaxed);
        list.push_back(Arc::clone(&entry));
        self.waiting.fetch_add(1, Ordering::SeqCst);
        drop(list);
        dekker();
        Blocked { room: self, entry }
    }

    /// There is room for one more.
    #[inline]
    pub(crate) fn notify(&self) {
        dekker();
        if self.waiting.load(Ordering::SeqCst) != 0 {
            self.notify_one();
        }
    }

    #[cold]
    fn notify_one(&self) {
        let mut list = lock(&self.list);
        let Some(entry) = list.pop_front() else {
            return;
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        entry.take_off();
        drop(list);
        entry.thread.unpark();
    }

    /// Everybody looks again: the pool or a group refuses from now on.
    pub(crate) fn notify_all(&self) {
        let mut list = lock(&self.list);
        let entries = std::mem::take(&mut *list);
        self.waiting
            .fetch_sub(entries.len() as u64, Ordering::SeqCst);
        entries.iter().for_each(|e| e.take_off());
        drop(list);
        entries.iter().for_each(|e| e.thread.unpark());
    }
}

impl Entry {
    fn take_off(&self) {
        // Release: pairs with the Acquire in `sleep` and `rejoin`.
        self.notified.store(true, Ordering::Release);
    }
}

impl Blocked<'_> {
    /// Back on the list, at its head, if it was taken off: before the next try.
    pub(crate) fn rejoin(&mut self) {
        // Acquire: pairs with `take_off`.
        if !self.entry.notified.load(Ordering::Acquire) {
            return;
        }
        let mut list = lock(&self.room.list);
        self.entry.notified.store(false, Ordering::Relaxed);
        list.push_front(Arc::clone(&self.entry));
        self.room.waiting.fetch_add(1, Ordering::SeqCst);
        drop(list);
        dekker();
    }

    /// Sleeps until taken off the list, or the deadline.
    pub(crate) fn sleep(&self, deadline: &Deadline) {
        while !self.entry.notified.load(Ordering::Acquire) && !deadline.has_passed() {
            deadline.park();
        }
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        let mut list = lock(&self.room.list);
        let on_list = !self.entry.notified.load(Ordering::Relaxed);
        if on_list {
            list.retain(|e| !Arc::ptr_eq(e, &self.entry));
            self.room.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        drop(list);
        let _ = SPARE.try_with(|spare| spare.set(Some(Arc::clone(&self.entry))));
        if !on_list {
            // Taken off for room that this submitter does not use.
            self.room.notify();
        }
    }
}
