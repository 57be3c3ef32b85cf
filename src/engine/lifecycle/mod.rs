#![doc = include_str!("room.md")]

pub(crate) mod discard;
mod leaving;
pub(crate) mod limit;
pub(crate) mod nudge;
pub(crate) mod retirement;
pub(crate) mod shutdown;
pub(crate) mod threads;
