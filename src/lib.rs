//! A lock-free, lazily spawned, bounded pool of worker threads, for services that
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
//!
//! # The map
//!
//! | module | what it holds |
//! |---|---|
//! | `slot` | **the protocol**: a worker's status word, its states and transitions |
//! | `shared` | how work gets in; why none is lost and none refused in vain |
//! | `wait` | `do_with_deadline`: the two decisions between a caller and its task |
//! | `ring`, `queue` | slot indices, and tasks that wait for a worker |
//! | `worker`, `cleaner`, `shutdown` | a worker's life, retirement, the end |
//! | `task` | type-erased closures, and what the code in one can ask |
//! | `room` | submitters that wait for room |
//! | `park`, `deadline`, `sync` | waiting; the switch between `std` and loom |
//! | `duration` | durations as people write them |
//! | `observe` | what `metrics` and `tracing` see, and where their code may run |
//! | `members` | the tasks of a group or scope: counts, waiters, lifetime |
//! | `pool`, `builder`, `group`, `scope`, `error`, `stats` | the public rest |

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(feature = "tracing", doc = include_str!("tracing.md"))]

mod builder;
mod cleaner;
mod deadline;
mod duration;
mod error;
mod group;
mod members;
#[cfg(lazypool_loom)]
#[doc(hidden)]
pub mod model;
mod observe;
mod park;
mod pool;
mod queue;
mod ring;
mod room;
mod scope;
#[cfg(feature = "serde")]
mod settings;
mod shared;
mod shutdown;
mod slot;
mod stats;
mod sync;
pub mod task;
mod wait;
mod worker;

pub use builder::Builder;
pub use error::{
    BuildError, DeadlineError, Panic, ParseSettingError, Refusal, Refused, TaskPanic, Unfinished,
    Unrun,
};
pub use group::Group;
pub use pool::{Pool, View};
pub use scope::Scope;
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
pub use settings::PoolSettings;
pub use stats::{Refusals, Shutdown, ShutdownReport, Stats, WhenFull, WorkerSnapshot};

/// The README's code blocks, run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
