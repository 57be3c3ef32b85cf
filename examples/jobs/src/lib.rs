#![doc = include_str!("../README.md")]

pub mod admin;
pub mod bench;
pub mod demo;
pub mod fleet;
pub mod job;
pub mod process;
pub mod queue;
pub mod server;
pub mod settings;
pub mod worker;
