//! What can go wrong, and how the closure comes back when it does.
//!
//! Three types carry a refusal. [`Refusal`] says why, [`Refused`] pairs that with the closure that was
//! not run, and [`DeadlineError`] adds what can happen to a caller that waits. [`BuildError`] is about
//! the builder, [`Panic`] and [`TaskPanic`] are about tasks that panicked, and [`Unfinished`] is about a
//! wait that ran out of time.
//!
//! Every error type here implements `Debug`, `Display` and [`Error`](std::error::Error) whatever closure
//! it carries.

mod build;
mod deadline;
mod hidden;
mod panic;
mod refused;
#[cfg(test)]
mod tests;
mod unfinished;

pub use build::BuildError;
pub use deadline::DeadlineError;
pub use panic::{Panic, TaskPanic};
pub use refused::{Refusal, Refused};
pub use unfinished::Unfinished;

/// The largest `max_workers` that [`Builder::build`](crate::Builder::build) accepts.
pub(crate) const MAX_WORKERS: usize = 65_536;

/// The largest `queue_capacity` that [`Builder::build`](crate::Builder::build) accepts.
pub(crate) const MAX_QUEUE: usize = 1 << 24;
