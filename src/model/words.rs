//! Words that stand alone: what is counted, and a label.

use crate::parts::in_flight::{InFlight, TRANSIT};
use crate::parts::label;

/// The counts of workers that the rings do not show.
#[derive(Debug)]
pub struct Counts(InFlight);

impl Counts {
    /// Nobody yet.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(InFlight::new())
    }

    /// A worker is in transit from now on.
    pub fn enter_transit(&self) {
        self.0.add(TRANSIT);
    }

    /// No longer.
    pub fn leave_transit(&self) {
        self.0.sub(TRANSIT);
    }

    /// A worker is marked from now on.
    pub fn mark(&self) {
        self.0.mark();
    }

    /// No longer.
    pub fn unmark(&self) {
        self.0.unmark();
    }

    /// Whether nobody was counted at one moment.
    pub fn is_nobody_at_all(&self) -> bool {
        self.0.is_nobody_at_all()
    }

    /// Whether somebody is marked.
    pub fn is_any_marked(&self) -> bool {
        self.0.is_any_marked()
    }
}

/// The label of a worker's running task, for snapshots.
#[derive(Debug)]
pub struct Label(label::Label);

impl Label {
    /// None yet.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(label::Label::new())
    }

    /// By one thread only.
    pub fn set(&self, label: Option<&'static str>) {
        // SAFETY: by one thread. Else loom reports it.
        unsafe { self.0.set(label) };
    }

    /// The label at some moment; `None` if it keeps changing.
    pub fn get(&self) -> Option<&'static str> {
        self.0.get()
    }
}
