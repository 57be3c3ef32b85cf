//! The counts of workers in flight, without a pool.

use crate::parts::in_flight::{Awake, InFlight, Notice};

/// The counts of workers in flight: those that have no task and are in no ring.
#[derive(Debug)]
pub struct Counts(InFlight);

impl Counts {
    /// Returns counts that are all zero.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(InFlight::default())
    }

    /// Counts a worker that is told to look at the queue.
    pub fn notify(&self) {
        std::mem::forget(self.0.notify());
    }

    /// Counts a notified worker as awake, as it does when it begins to look at the queue.
    pub fn arrive(&self) {
        Awake::default().enter_notified(&self.0, Notice::of_model());
    }

    /// Removes a worker from the count `awake`, because it no longer watches the queue.
    pub fn stop_watching(&self) {
        let must_look = Awake::counted().leave(&self.0);
        must_look.expect("counted").ignore();
    }

    /// Returns `true` if a worker looks at the queue, or has been told to.
    pub fn is_any_counted(&self) -> bool {
        self.0.load().is_any_counted()
    }
}
