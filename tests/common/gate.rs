//! Gates that hold tasks, so that a test knows that they run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::wait_until;

/// Holds tasks until it opens. It opens when it is dropped, so that a failing test does not hang.
///
/// Declare it after the pool: the pool's drop waits for the tasks that the gate holds.
#[derive(Debug, Default)]
pub struct Gate(Arc<GateState>);

#[derive(Debug, Default)]
struct GateState {
    open: Mutex<bool>,
    opened: Condvar,
    entered: AtomicUsize,
}

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn key(&self) -> Key {
        Key(Arc::clone(&self.0))
    }

    /// Returns a task that waits at the gate.
    pub fn task(&self) -> impl FnOnce() + Send + 'static {
        let key = self.key();
        move || key.pass()
    }

    pub fn open(&self) {
        *self.0.open.lock().unwrap() = true;
        self.0.opened.notify_all();
    }

    /// Returns a guard that opens the gate when it is dropped. Hold it inside a `thread::scope`,
    /// which would otherwise wait for the threads at the gate while a failed assertion unwinds.
    pub fn opener(&self) -> Opener<'_> {
        Opener(self)
    }

    /// Returns how many tasks have come to the gate so far.
    pub fn entered(&self) -> usize {
        self.0.entered.load(Ordering::SeqCst)
    }

    #[track_caller]
    pub fn wait_entered(&self, n: usize) {
        wait_until("tasks at the gate", || self.entered() >= n);
        assert_eq!(self.entered(), n, "more tasks started than expected");
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

#[derive(Debug)]
pub struct Opener<'a>(&'a Gate);

impl Drop for Opener<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

#[derive(Clone, Debug)]
pub struct Key(Arc<GateState>);

impl Key {
    pub fn pass(&self) {
        self.0.entered.fetch_add(1, Ordering::SeqCst);
        let mut open = self.0.open.lock().unwrap();
        while !*open {
            open = self.0.opened.wait(open).unwrap();
        }
    }

    pub fn is_open(&self) -> bool {
        *self.0.open.lock().unwrap()
    }
}
