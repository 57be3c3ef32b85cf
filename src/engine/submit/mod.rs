#![doc = include_str!("room.md")]

pub(crate) mod call;
pub(crate) mod erase;
pub(crate) mod request;
