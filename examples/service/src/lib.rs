//! The parts of an HTTP service that keeps blocking and CPU work off its runtime.
//!
//! * [`app`]: the routes, how they await tasks of the pool, and the HTTP status of each failure. Start
//!   here.
//! * [`takes`]: how long a task of a route takes, learned from those that have run.
//! * [`settings`]: the service's settings file.

pub mod app;
pub mod settings;
pub mod takes;
