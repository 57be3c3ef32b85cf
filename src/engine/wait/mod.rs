#![doc = include_str!("room.md")]

pub(crate) mod admission;
mod line;
pub(crate) mod serving;
