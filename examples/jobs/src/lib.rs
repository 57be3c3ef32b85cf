//! Durable jobs: PostgreSQL keeps them (`graphile_worker`), a lazypool runs them. `README.md` says
//! how to run this and what to change.
//!
//! To copy: [`job`], [`queue`], [`settings`] and [`worker`]. The rest is the demo's and the tests'.

#![warn(clippy::pedantic)]
#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate
)]

pub mod bench;
pub mod demo;
pub mod fleet;
pub mod job;
pub mod queue;
pub mod server;
pub mod settings;
pub mod worker;
