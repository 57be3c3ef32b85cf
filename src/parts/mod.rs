//! Mechanisms: each generic over what it carries, and knowing nothing of pools, tasks or
//! hooks.

pub(crate) mod backoff;
pub(crate) mod completion;
#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "../../tests/common/cut.rs"]
mod cut;
pub(crate) mod deadline;
pub(crate) mod in_flight;
pub(crate) mod line;
pub(crate) mod members;
pub(crate) mod queue;
pub(crate) mod ring;
pub(crate) mod slot;
pub(crate) mod stretch;
