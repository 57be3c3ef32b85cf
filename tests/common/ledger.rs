//! Records that tests keep of their tasks: how often each ran and was dropped, how many run at
//! once.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use super::{on_drop, wait_until, OnDrop};

/// Counts, for each task, how often its closure ran and how often its captures were dropped.
#[derive(Clone, Debug)]
pub struct Ledger(Arc<Vec<Line>>);

#[derive(Debug, Default)]
struct Line {
    runs: AtomicU32,
    drops: AtomicU32,
}

/// A task's entry in the ledger, to be captured by the closure of task `id`.
#[derive(Debug)]
pub struct Entry {
    id: usize,
    ledger: Arc<Vec<Line>>,
}

impl Ledger {
    pub fn new(tasks: usize) -> Self {
        Self(Arc::new((0..tasks).map(|_| Line::default()).collect()))
    }

    /// Returns the number of tasks.
    pub fn tasks(&self) -> usize {
        self.0.len()
    }

    pub fn entry(&self, id: usize) -> Entry {
        Entry {
            id,
            ledger: Arc::clone(&self.0),
        }
    }

    /// Returns task `id`, which only records that it runs.
    pub fn task(&self, id: usize) -> impl FnOnce() + Send + 'static {
        let entry = self.entry(id);
        move || entry.run()
    }

    pub fn runs(&self, id: usize) -> u32 {
        self.0[id].runs.load(Ordering::SeqCst)
    }

    pub fn drops(&self, id: usize) -> u32 {
        self.0[id].drops.load(Ordering::SeqCst)
    }

    /// Returns how often task `id` ran, and how often its captures were dropped.
    pub fn fate(&self, id: usize) -> (u32, u32) {
        (self.runs(id), self.drops(id))
    }

    pub fn total_runs(&self) -> u64 {
        (0..self.0.len()).map(|id| u64::from(self.runs(id))).sum()
    }

    /// Waits until the captures of every task have been dropped once.
    #[track_caller]
    pub fn wait_drops(&self) {
        wait_until("all tasks to end", || {
            (0..self.0.len()).all(|id| self.drops(id) == 1)
        });
    }

    /// Asserts that every task ran once and that its captures were dropped once.
    #[track_caller]
    pub fn assert_all_ran(&self) {
        for id in 0..self.0.len() {
            assert_eq!(self.fate(id), (1, 1), "task {id}");
        }
    }

    /// Asserts that no task ran and that the captures of each were dropped once.
    #[track_caller]
    pub fn assert_none_ran(&self) {
        for id in 0..self.0.len() {
            assert_eq!(self.fate(id), (0, 1), "task {id}");
        }
    }
}

impl Entry {
    pub fn run(&self) {
        let before = self.ledger[self.id].runs.fetch_add(1, Ordering::SeqCst);
        assert_eq!(before, 0, "task {} runs a second time", self.id);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.ledger[self.id].drops.fetch_add(1, Ordering::SeqCst);
    }
}

/// Counts how many tasks are inside at once, and the highest such count so far.
#[derive(Debug, Default)]
pub struct Gauge {
    inside: AtomicUsize,
    most: AtomicUsize,
}

impl Gauge {
    pub fn enter(&self) -> OnDrop<impl FnOnce() + '_> {
        let now = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        on_drop(|| _ = self.inside.fetch_sub(1, Ordering::SeqCst))
    }

    pub fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// A number that tasks of any thread add to.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<AtomicU64>);

impl Tally {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::SeqCst);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns a task that adds one.
    pub fn task(&self) -> impl FnOnce() + Send + 'static {
        let tally = self.clone();
        move || tally.add(1)
    }
}
