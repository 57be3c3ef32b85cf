//! How the pool works. Each file answers one question:
//!
//! | file | question |
//! |---|---|
//! | `admission` | In which order are the ways to a worker tried? |
//! | `line` | How does a submission wait for space, and which thread serves it? |
//! | `pay` | What does a thread do for others once it has taken a step? |
//! | `waking` | Which worker is woken for a queued task? |
//! | `threads` | How do threads start, and how are they told to end? |
//! | `worker`, `leaving` | What does a worker do, from its start to its end? |
//! | `limit` | How many workers may there be, and which workers exceed that number? |
//! | `retirement` | Which idle workers are surplus? (The idle cleaner.) |
//! | `shutdown` | How does a pool end? |
//! | `discard` | How is an accepted task taken out or back? What happens to tasks that are not to run? |
//! | `call` | How does the caller of `do_with_deadline` wait for its task? |
//! | `awaited` | How does a handle wait for its task, or cancel it? |
//! | `serving` | How does a future wait for space? |
//! | `groups` | What does a group add to a task? |
//! | `ledger`, `counts` | What is counted, and when? |
//! | `ages` | How old are the queued tasks? |
//! | `core`, `request` | What do the other files share? |
//! | `submit` | How does a closure become a task, and how does a refused closure come back? |
#![doc = include_str!("protocol.md")]
#![doc = include_str!("proofs.md")]

pub(crate) mod admission;
mod ages;
pub(crate) mod awaited;
pub(crate) mod call;
pub(crate) mod core;
pub(crate) mod counts;
pub(crate) mod discard;
pub(crate) mod groups;
mod leaving;
mod ledger;
pub(crate) mod limit;
mod line;
mod pay;
pub(crate) mod request;
pub(crate) mod retirement;
pub(crate) mod serving;
pub(crate) mod shutdown;
pub(crate) mod submit;
pub(crate) mod threads;
pub(crate) mod waking;
pub(crate) mod worker;

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod page_tests;
#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests;
