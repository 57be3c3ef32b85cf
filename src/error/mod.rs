//! The errors of the crate, and how a refused closure comes back.
//!
//! Four types carry a closure back, or say why. [`Refusal`] is the reason, [`Refused`] pairs it
//! with the closure that was not run, [`Unrun`] is a closure whose time ran out, and
//! [`DeadlineError`] adds what else can happen to a caller that waits. [`BuildError`] is about the
//! builder, [`LimitError`] about a pool's limit, [`ParseSettingError`] about words in settings,
//! [`TaskError`] is what a handle has in place of a value, [`Panic`] and [`TaskPanic`] are about
//! tasks that panicked, and [`Unfinished`] is about a wait that ran out of time.
//!
//! Every error type here implements `Debug`, `Display` and [`Error`](std::error::Error) whatever
//! closure it carries.

mod build;
mod deadline;
mod hidden;
mod limit;
mod panic;
mod refusal;
mod refused;
mod setting;
mod task;
#[cfg(test)]
mod tests;
mod unfinished;
mod unrun;

pub use build::BuildError;
pub(crate) use build::{MAX_QUEUE, MAX_WORKERS, MIN_STACK};
pub use deadline::DeadlineError;
pub use limit::LimitError;
pub use panic::{Panic, TaskPanic};
pub use refusal::Refusal;
pub use refused::Refused;
pub use setting::ParseSettingError;
pub use task::TaskError;
pub use unfinished::Unfinished;
pub use unrun::Unrun;
