//! The rooms around the [core](crate::core): what `serve` and `do_with_deadline` do not need.
//!
//! | room | question |
//! |---|---|
//! | `submit` | Which options has a submission? How does a closure become a task, and come back? |
//! | `wait` | What does a submission do that finds no space? |
//! | `handle` | How does a handle wait for its task, or cancel it? |
//! | `group` | What does a group add to a task? |
//! | `lifecycle` | How do workers start and end, and how many are there? How does a pool end? |
//! | `figures` | What is counted, and when? |
//! | `shared` | What state have these rooms beside the core's? |
//! | `host` | What does the core ask of the rooms? |

pub(crate) mod figures;
pub(crate) mod group;
pub(crate) mod handle;
mod host;
pub(crate) mod lifecycle;
pub(crate) mod shared;
pub(crate) mod submit;
pub(crate) mod wait;

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests;
