//! An HTTP service that keeps blocking and CPU work off its runtime: the parts.
//!
//! * [`offload`]: how async code awaits a task of the pool. Start here.
//! * [`app`]: the routes, and what each failure is in HTTP.
//! * [`settings`]: the service's settings file.
//! * [`client`]: a small blocking HTTP client, for the tests and the load run.

pub mod app;
pub mod client;
pub mod offload;
pub mod settings;
