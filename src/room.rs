//! Submitters that wait for room (`WhenFull::Block`), first come first served.
//!
//! A submitter enters the list, *then* tries once more before it sleeps; whoever
//! makes room does so by a `SeqCst` read-modify-write, *then* reads `waiting`.
//! One of the two sees the other. An event takes one entry off the list; an
//! entry taken off while its submitter was succeeding anyway is passed on.

use crate::deadline::Deadline;
use crate::sync::{dekker, lock, thread, Arc, AtomicBool, AtomicU64, Mutex, Ordering};
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;

#[derive(Debug)]
struct Entry {
    notified: AtomicBool,
    thread: thread::Thread,
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
        let entry = Arc::new(Entry {
            notified: AtomicBool::new(false),
            thread: thread::current(),
        });
        let mut list = lock(&self.list);
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
        drop(list);
        entry.wake();
    }

    /// Everybody looks again: the pool or a group refuses from now on.
    pub(crate) fn notify_all(&self) {
        let mut list = lock(&self.list);
        let entries = std::mem::take(&mut *list);
        self.waiting
            .fetch_sub(entries.len() as u64, Ordering::SeqCst);
        drop(list);
        for entry in entries {
            entry.wake();
        }
    }
}

impl Entry {
    fn wake(&self) {
        // Release: pairs with the Acquire in `sleep`.
        self.notified.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Blocked<'_> {
    /// Back on the list, at its head, if it was taken off: before the next try.
    pub(crate) fn rejoin(&mut self) {
        // Acquire: pairs with `wake`.
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
        let before = list.len();
        list.retain(|e| !Arc::ptr_eq(e, &self.entry));
        if list.len() < before {
            self.room.waiting.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        drop(list);
        // Taken off for room that this submitter does not use.
        self.room.notify();
    }
}
