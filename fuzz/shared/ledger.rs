//! The fate of closures and results, counted for the fuzz targets.
#![allow(dead_code)]

use lazypool::Stats;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Books {
    made: AtomicU64,
    zero: AtomicU64,
    ran: AtomicU64,
    dropped: AtomicU64,
    back: AtomicU64,
    timed_out: AtomicU64,
    panics: AtomicU64,
    results_made: AtomicU64,
    results_dropped: AtomicU64,
    inside: AtomicU64,
    most: AtomicU64,
    wrong: AtomicU64,
}

fn add(n: &AtomicU64, by: bool) {
    n.fetch_add(u64::from(by), Ordering::SeqCst);
}

impl Books {
    pub fn handed_back(&self, yes: bool) {
        add(&self.back, yes);
    }

    pub fn uncounted(&self, yes: bool) {
        add(&self.zero, yes);
    }

    pub fn timed_out(&self) {
        add(&self.timed_out, true);
    }

    /// Asserts that the counts and the figures of a pool that has ended agree.
    pub fn check(&self, s: &Stats, workers: usize) {
        let get = |n: &AtomicU64| n.load(Ordering::SeqCst);
        let ended = s.completed + s.panicked + s.expired + s.discarded;
        assert_eq!(s.accepted, ended, "{s:?}, {self:?}");
        assert_eq!((s.queued, s.running, s.workers), (0, 0, 0), "{s:?}");
        assert_eq!(s.spawned, s.retired, "{s:?}");
        let offered = get(&self.made) - get(&self.zero);
        assert_eq!(offered, s.accepted + s.refused, "{s:?}, {self:?}");
        assert_eq!(get(&self.ran), s.completed + s.panicked, "{s:?}, {self:?}");
        assert_eq!(get(&self.panics), s.panicked, "{s:?}, {self:?}");
        assert_eq!(get(&self.timed_out), s.timed_out, "{s:?}, {self:?}");
        assert_eq!(get(&self.made), get(&self.dropped), "{s:?}, {self:?}");
        assert_eq!(get(&self.results_made), get(&self.results_dropped));
        let silent = get(&self.made) - get(&self.ran) - get(&self.back);
        assert!(silent <= s.discarded, "{s:?}, {self:?}");
        assert_eq!((get(&self.wrong), get(&self.inside)), (0, 0), "{self:?}");
        assert!(get(&self.most) <= workers as u64, "{self:?}");
    }
}

/// Raises a panic that the fuzzer's panic hook does not see.
pub fn explode() -> ! {
    resume_unwind(Box::new("meant"))
}

/// Drops a value whose drop may panic, and catches the panic.
pub fn defuse<T>(what: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(what)));
}

/// Captured by each closure, to count its fate.
#[derive(Debug)]
pub struct Entry {
    books: Arc<Books>,
    ran: AtomicBool,
    bomb: bool,
}

impl Entry {
    pub fn new(books: &Arc<Books>, bomb: bool) -> Self {
        add(&books.made, true);
        Self {
            books: Arc::clone(books),
            ran: AtomicBool::new(false),
            bomb,
        }
    }

    pub fn run(&self) {
        add(&self.books.wrong, self.ran.swap(true, Ordering::SeqCst));
        add(&self.books.ran, true);
        let inside = self.books.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.books.most.fetch_max(inside, Ordering::SeqCst);
    }

    /// Counts a panic of the task. To be called before the panic.
    pub fn panics(&self) {
        add(&self.books.panics, true);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        add(&self.books.dropped, true);
        let ran = self.ran.load(Ordering::SeqCst);
        if ran {
            self.books.inside.fetch_sub(1, Ordering::SeqCst);
        }
        if self.bomb && !std::thread::panicking() {
            add(&self.books.panics, ran);
            explode();
        }
    }
}

/// The result of a task.
#[derive(Debug)]
pub struct Value {
    books: Arc<Books>,
    bomb: bool,
}

impl Value {
    pub fn new(entry: &Entry, bomb: bool) -> Self {
        add(&entry.books.results_made, true);
        Self {
            books: Arc::clone(&entry.books),
            bomb,
        }
    }

    /// Defuses the result, as it has arrived: only a result that no caller takes may panic in its
    /// drop.
    pub fn arrived(mut self) {
        self.bomb = false;
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        add(&self.books.results_dropped, true);
        if self.bomb && !std::thread::panicking() {
            add(&self.books.panics, true);
            explode();
        }
    }
}
