//! How the pool works. One question a file:
//!
//! | file | question |
//! |---|---|
//! | `admission` | who is asked in which order? |
//! | `line` | how does a submission wait for space, and who serves it? |
//! | `saturation` | when is a submission refused? |
//! | `waking` | who is woken for a queued task? |
//! | `threads` | how do threads start, and how are they told to end? |
//! | `worker` | what does a worker do, from its start to its end? |
//! | `limit` | how many workers may there be, and which are one too many? |
//! | `retirement` | the idle cleaner: which workers are surplus? |
//! | `shutdown` | how does a pool end? |
//! | `discard` | what becomes of queued tasks that are not to run? |
//! | `call` | how does a caller wait for its task? |
//! | `awaited` | how does a handle, which waits later, or not at all? |
//! | `revoke` | how is it taken back? |
//! | `groups` | what is a group's task? |
//! | `ledger`, `counts` | what is counted, and when? |
//! | `ages` | how old is what is queued? |
//! | `core`, `request` | what do all of these share? |
//! | `submit` | how does a closure become a task, and a closure again? |
#![doc = include_str!("protocol.md")]

pub(crate) mod admission;
mod ages;
pub(crate) mod awaited;
pub(crate) mod call;
pub(crate) mod core;
pub(crate) mod counts;
pub(crate) mod discard;
pub(crate) mod groups;
mod ledger;
pub(crate) mod limit;
mod line;
pub(crate) mod request;
pub(crate) mod retirement;
pub(crate) mod revoke;
pub(crate) mod saturation;
pub(crate) mod serving;
pub(crate) mod shutdown;
pub(crate) mod submit;
pub(crate) mod threads;
pub(crate) mod waking;
pub(crate) mod worker;

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests;
