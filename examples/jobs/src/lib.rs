//! Durable jobs on Redis Streams. To copy from; `jobs --help` says how to run it, and the guide
//! `lazypool::docs::beyond_one_machine` why it is done so.
#![allow(missing_docs)]

pub mod admin;
pub mod kinds;
pub mod options;
pub mod queue;
#[path = "../story/mod.rs"]
pub mod story;
pub mod work;
