//! The mechanisms from which a pool is built. They are generic over the tasks that they carry. They
//! do not know what a pool or a group is for; nor hooks, handles that users hold, or figures.
//!
//! The page of the core knows its host by what it asks of it only. Four words differ therefore. Its *reserve* is the *bench* here; *those who
//! wait* for a permit stand in a *line*; its *sets of tasks* are *groups*, which have *members*; its *host's lock* is that of the *registry*.

pub(crate) mod backoff;
pub(crate) mod completion;
#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "../../tests/common/cut.rs"]
pub(crate) mod cut;
pub(crate) mod deadline;
pub(crate) mod gate;
pub(crate) mod in_flight;
pub(crate) mod line;
pub(crate) mod members;
mod positions;
pub(crate) mod queue;
pub(crate) mod ring;
pub(crate) mod slot;
pub(crate) mod yield_timer;
