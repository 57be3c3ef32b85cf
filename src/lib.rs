//! A bounded thread pool for blocking and CPU work in services. When it is full it rejects new work
//! immediately and hands the closure back; callers stop waiting at their deadline.
//!
//! There are three ways to submit work. [`Pool::serve`] hands a closure to a worker and returns.
//! [`Pool::do_with_deadline`] runs a closure on a worker and waits for its value, but not beyond a
//! deadline. Through [`Pool::awaitable`], `serve` returns a [`Handle`]: a future of the task's
//! value, which a thread can also join. If every worker is busy and the queue is full, each of
//! these calls is refused and gives the closure back. [`WhenFull`] can make the calls wait for
//! space instead. In async code, wait for space with [`Awaitable::serve_async`], and read [what may
//! block](docs::async_code#what-may-block).
//!
//! ```
//! use lazypool::{Pool, Refused};
//! use std::time::Duration;
//!
//! let pool = Pool::builder().max_workers(4).queue_capacity(64).build()?;
//! pool.serve(|| println!("on a worker"))?;
//! pool.serve(|| println!("on a worker; on this thread if the pool is full")).or_else(Refused::caller_runs)?;
//! let answer = pool.do_with_deadline(|| 6 * 7, Duration::from_secs(1))?;
//! assert_eq!(answer, 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to look
//!
//! | question | answer |
//! |---|---|
//! | What does a refusal mean? What happens to a task that hangs? | [`docs::outcomes`] |
//! | How many workers, how long a queue? What to do when it is full? | [`docs::sizing`] |
//! | When is one process not enough? | [`docs::beyond_one_machine`] |
//! | Which metrics to watch? | [`docs::monitoring`] |
//! | How do I test code that uses a pool? | [`docs::testing`] |
//! | How do I get priorities, tasks in order, periodic work, retries? | [`docs::recipes`] |
//! | What can I rely on, and what not? | [`docs::guarantees`] |
//! | How does async code await a task? | [`docs::async_code`] |
//! | How does async code wait for space? | [`Awaitable::serve_async`]: [three lines](docs::async_code#waiting-for-space) |
//! | How does each tenant get a share? | [`Pool::limited_group`]: [an example](docs::recipes#a-share-for-each-tenant) |
//! | What replaces a call of another pool? | [`docs::migration`] |
//! | How fast is it? | [`docs::measurements`] |
//! | What is lock-free, and why is no task lost? | [`docs::protocol`] |
//! | How do I name tasks, or give each a policy or a deadline? | [`Submitter`] |
//! | How do I get the value of a task, in async code or later? | [`Handle`] |
//! | How do I wait for many tasks, or cancel them? | [`Group`] |
//! | How do I get results as the tasks end? | [an example](docs::recipes#results-in-the-order-of-completion) |
//! | How do tasks borrow? | [`Pool::scope`] |
//! | How does each worker get a connection or a buffer of its own? | [`task::slot`], [`Builder`](Builder#hooks) |
//! | How do I set affinity, niceness or signals of the threads? | [`Builder::on_worker_start`]: [an example](docs::recipes#attributes-of-threads) |
//! | How do I end a pool? | [`Pool::shutdown`] |
//!
//! # Features
//!
//! All features are off by default. Without them, the only dependency is `crossbeam-utils`.
//!
//! | feature | what it adds |
//! |---|---|
//! | `serde` | `PoolSettings`, which can be loaded from a file; [`Stats`], [`RefusalCounts`], [`WorkerSnapshot`] and [`ShutdownReport`] can be serialized |
//! | `metrics` | `Pool::publish_metrics`, and histograms of tasks by label, for the [`metrics`](https://docs.rs/metrics) facade |
//! | `tracing` | three warnings for an operator: a task panicked, a thread could not be started, a worker outlived a shutdown; for the [`tracing`](https://docs.rs/tracing) facade |

// The modules, from the lowest level to the highest. A module imports only from lower ones.
//
// | module | what it holds |
// |---|---|
// | `sync` | the switch between `std` and the model checkers |
// | `parts` | mechanisms: ring, slot, queue, line, completion, members, waiting |
// | `duration` | durations as people write them |
// | `error`, `stats` | public values |
// | `work` | tasks with their types erased, their context, hooks and observers |
// | `engine` | how the pool works, one topic in each file; **the protocol page** |
// | `pool`, `builder`, `group`, `handle`, `scope`, `settings`, `submitter`, `task` | the other public items |
// | `metrics` | the metrics of a pool, for the recorder of the `metrics` facade |
// | `docs` | guides: text only |
// | `model` | the parts that the models in `loom-tests` and the scenarios in `shuttle-tests` use |

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::too_many_lines)]
#![cfg_attr(feature = "tracing", doc = include_str!("tracing.md"))]

mod builder;
pub mod docs;
mod duration;
mod engine;
mod error;
mod group;
mod handle;
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
    BuildError, DeadlineError, LimitError, Panic, ParseSettingError, Refusal, Refused, TaskError,
    TaskPanic, Unfinished, Unrun,
};
pub use group::{CancelGuard, Group};
pub use handle::{Awaitable, Handle, ServeAsync};
pub use pool::Pool;
pub use scope::Scope;
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
pub use settings::PoolSettings;
pub use stats::{RefusalCounts, Shutdown, ShutdownReport, Stats, WhenFull, WorkerSnapshot};
pub use submitter::Submitter;

/// The README's code blocks, run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
