//! Tasks, which are closures with their type erased; and the parts of a pool that code in a task
//! can use: the worker's context, hooks and observers.

mod about;
pub(crate) mod context;
pub(crate) mod env;
pub(crate) mod job;
pub(crate) mod membership;
pub(crate) mod observe;
pub(crate) mod options;
pub(crate) mod owed;
pub(crate) mod record;
#[cfg(feature = "metrics")]
pub(crate) mod series;
pub(crate) mod thread;
pub(crate) mod user_code;
