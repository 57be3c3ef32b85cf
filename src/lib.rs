//! A bounded pool of worker threads, lazily started, for services that
//! must bound their blocking or CPU work and stop waiting for it in time.
//!
//! Work goes in by two verbs: [`Pool::serve`] hands a closure over and forgets
//! it, [`Pool::do_with_deadline`] runs it and waits for its value, but no longer
//! than it is told. A saturated pool refuses, and gives the closure back.
//!
//! ```
//! use lazypool::{Pool, Refused};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::builder().max_workers(4).queue_capacity(64).build()?;
//! pool.serve(|| println!("on a worker, or here")).or_else(Refused::caller_runs)?;
//! let answer = pool.do_with_deadline(|| 6 * 7, Duration::from_secs(1));
//! assert_eq!(answer?, 42);
//! # Ok(()) }
//! ```
//!
//! # Features
//!
//! All are off by default; without them the only dependency is `crossbeam-utils`.
//!
//! | feature | what it adds |
//! |---|---|
//! | `serde` | `PoolSettings`: settings from a file; `Stats` and its like as values to serialize |
//! | `metrics` | `Pool::publish_metrics`, and histograms of tasks by label, for the [`metrics`](https://docs.rs/metrics) facade |
//! | `tracing` | a span for each task, below its submitter's, and events, for the [`tracing`](https://docs.rs/tracing) facade |

// The house, from the ground up. Imports go down only.
//
// | folder | what it holds |
// |---|---|
// | `sync` | the switch between `std` and the model checkers |
// | `parts` | mechanisms: ring, slot, queue, completion, waiters, members, waiting |
// | `error`, `stats` | public values |
// | `work` | tasks with their types erased, their context, hooks and observers |
// | `engine` | how the pool works: one question a file; **the protocol page** |
// | `pool`, `builder`, `group`, `scope`, `settings`, `task` | the public rest |

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(feature = "tracing", doc = include_str!("tracing.md"))]

#[cfg(not(target_has_atomic = "64"))]
compile_error!("lazypool needs atomic operations of 64 bits, which this target does not have");

mod builder;
mod duration;
mod engine;
mod error;
mod group;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(any(lazypool_loom, lazypool_shuttle))]
#[doc(hidden)]
pub mod model;
mod parts;
mod pool;
mod scope;
#[cfg(feature = "serde")]
mod settings;
mod stats;
mod submitter;
mod sync;
pub mod task;
mod work;

pub use builder::Builder;
pub use error::{
    BuildError, DeadlineError, Panic, ParseSettingError, Refusal, Refused, TaskPanic, Unfinished,
    Unrun,
};
pub use group::{CancelGuard, Group};
pub use pool::Pool;
pub use scope::Scope;
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
pub use settings::PoolSettings;
pub use stats::{Refusals, Shutdown, ShutdownReport, Stats, WhenFull, WorkerSnapshot};
pub use submitter::Submitter;

/// The README's code blocks, run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
