//! The mechanisms that a pool is built from. They are generic over the tasks that they carry, and
//! do not know pools, groups' rules or hooks.

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
