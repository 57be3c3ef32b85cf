//! Threads that wait for each other.

use std::sync::{Arc, PoisonError};

/// A barrier: no thread goes on before all have arrived.
#[derive(Debug)]
pub struct Meeting {
    missing: shuttle::sync::Mutex<u64>,
    all: shuttle::sync::Condvar,
}

impl Meeting {
    /// Returns a barrier for `members` threads.
    pub fn of(members: u64) -> Arc<Self> {
        Arc::new(Self {
            missing: shuttle::sync::Mutex::new(members),
            all: shuttle::sync::Condvar::new(),
        })
    }

    /// Arrives at the barrier, and waits for the others.
    pub fn meet(&self) {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        *missing -= 1;
        self.all.notify_all();
        while *missing > 0 {
            missing = (self.all.wait(missing)).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
