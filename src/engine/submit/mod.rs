//! A submission's options: those of a submitter, a group or a scope; and how a closure becomes a task
//! that has them, and comes back if it is refused.

pub(crate) mod call;
pub(crate) mod erase;
pub(crate) mod request;
