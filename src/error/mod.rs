//! The errors of the crate, and how a refused closure comes back.
//!
//! Four types are about a closure that did not run. [`Refusal`] is the reason why a pool did not
//! take it. [`Refused`] pairs this reason with the closure. [`Unrun`] holds a closure that no
//! worker started in time. [`DeadlineError`] has these cases and all others in which a call with a
//! deadline returns no value.
//!
//! [`BuildError`] is about the builder, [`LimitError`] about a pool's limit, and
//! [`ParseSettingError`] about words in settings. A handle has a [`TaskError`] in place of a value.
//! [`Panic`] and [`TaskPanic`] are about tasks that panicked. [`Unfinished`] is about a wait that
//! ran out of time.
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
