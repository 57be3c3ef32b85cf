//! A word that stands alone.

use crate::parts::in_flight::{InFlight, AWAKE, NOTIFIED, RETURNING};

/// The counts of workers that the rings do not show.
#[derive(Debug)]
pub struct Counts(InFlight);

impl Counts {
    /// Nobody yet.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(InFlight::new())
    }

    /// A worker is told to look at the queue.
    pub fn notify(&self) {
        self.0.add(NOTIFIED);
    }

    /// It is there.
    pub fn arrive(&self) {
        self.0.shift(NOTIFIED, AWAKE);
    }

    /// It is told to end.
    pub fn begin_end(&self) {
        self.0.add(RETURNING);
    }

    /// It watches the queue no more.
    pub fn stop_watching(&self) {
        self.0.sub(AWAKE);
    }

    /// Whether nobody was counted at one moment.
    pub fn is_nobody(&self) -> bool {
        self.0.see().is_nobody()
    }

    /// Whether somebody looks at the queue, or is on the way there.
    pub fn is_any_searching(&self) -> bool {
        self.0.see().is_any_searching()
    }
}
