//! Tasks, and the part of the pool that code in a task can see: the closure with its type erased,
//! the worker's context, hooks and observers.

pub(crate) mod context;
pub(crate) mod env;
pub(crate) mod job;
pub(crate) mod observe;
pub(crate) mod options;
pub(crate) mod panics;
pub(crate) mod record;
#[cfg(feature = "metrics")]
pub(crate) mod series;
pub(crate) mod thread;
