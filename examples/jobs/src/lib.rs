//! Durable jobs on Redis Streams, to copy from. `jobs --help` says how to run them. The guide
//! `lazypool::docs::beyond_one_machine` explains the design.
#![allow(missing_docs)]

pub mod admin;
pub mod kinds;
pub mod options;
pub mod queue;
#[path = "../story/mod.rs"]
pub mod story;
pub mod work;
