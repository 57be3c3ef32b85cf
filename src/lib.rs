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
//! use lazypool::Pool;
//! use std::time::Duration;
//!
//! let pool = Pool::builder()
//!     .max_workers(4)
//!     .queue_capacity(64)
//!     .build()?;
//!
//! pool.serve(|| println!("hello"))?;
//!
//! // Full? The closure comes back.
//! let next = pool.serve(|| ());
//! if let Err(refused) = next {
//!     println!("503: {refused}");
//! }
//!
//! let n = pool.do_with_deadline(
//!     || 6 * 7,
//!     Duration::from_secs(1),
//! )?;
//! assert_eq!(n, 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A pool has **no queue** unless [`Builder::queue_capacity`] gives it one, and four workers per
//! core unless [`Builder::max_workers`] says otherwise. Share it in an [`Arc`](std::sync::Arc).
//!
//! **Do not use it** to split one computation over all cores (use rayon), to run futures, for tasks of
//! less than a microsecond or two (run them where you are), or to kill a computation: a task that
//! nobody waits for any more keeps its worker until it returns.
//!
//! # Where to look
//!
//! | question | answer |
//! |---|---|
//! | What does a refusal mean? What happens to a task that hangs? | [`outcomes`](docs::outcomes) |
//! | How many workers, how long a queue? What to do when it is full? | [`sizing`](docs::sizing) |
//! | How does async code await a task? | [`async_code`](docs::async_code) |
//! | How does async code wait for space? | [`serve_async`](Awaitable::serve_async): [three lines](docs::async_code#waiting-for-space) |
//! | How do I get the value of a task, in async code or later? | [`Handle`] |
//! | How do I name tasks, or give each a policy or a deadline? | [`Submitter`] |
//! | How do I wait for many tasks, or cancel them? | [`Group`] |
//! | How does each tenant get a share? | [`limited_group`](Pool::limited_group): [an example](docs::recipes#a-share-for-each-tenant), [fairness](docs::sizing#fairness-between-groups) |
//! | How do I end a pool? What does its drop wait for? | [`shutdown`](Pool::shutdown), [drop](Pool#dropping-a-pool) |
//! | Which metrics to watch, what to alert on? | [`monitoring`](docs::monitoring) |
//! | How do I test code that uses a pool? | [`testing`](docs::testing) |
//! | How do I get priorities, tasks in order, periodic work, retries? | [`recipes`](docs::recipes) |
//! | How do I get results as the tasks end? | [an example](docs::recipes#results-in-the-order-of-completion) |
//! | How do tasks borrow? | [`scope`](Pool::scope) |
//! | What replaces a call of another pool? | [`migration`](docs::migration) |
//! | How does each worker get a connection or a buffer of its own? | [an example](docs::recipes#a-connection-for-each-worker), [`task::slot`], [hooks](Builder#hooks) |
//! | How do I set affinity, niceness or signals of the threads? | [`on_worker_start`](Builder::on_worker_start): [an example](docs::recipes#attributes-of-threads) |
//! | What can I rely on, and what not? | [`guarantees`](docs::guarantees) |
//! | How fast is it? | [`measurements`](docs::measurements) |
//! | When is one process not enough? | [`beyond_one_machine`](docs::beyond_one_machine) |
//! | What is lock-free, and why is no task lost? | [`protocol`](docs::protocol) |
//!
//! # What a pool is made of
//!
#![doc = include_str!("docs/figures/pool.md")]
//! ![Submissions, the lines of those that wait, slots with their mailboxes, the two rings, the queue][pool-figure]
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
// | `parts` | mechanisms: gate, ring, slot, queue, completion; line, members, waiting |
// | `duration` | durations as people write them |
// | `error`, `stats` | public values |
// | `work` | tasks with their types erased, their context, hooks and observers |
// | `core` | what `serve` and `do_with_deadline` need; **the protocol page** |
// | `engine` | the rooms around the core: waiting, handles, groups, starts and ends, figures |
// | `pool`, `first_aid`, `builder`, `group`, `handle`, `scope`, `settings`, `submitter`, `task`, `testing` | the other public items |
// | `metrics` | the metrics of a pool, for the recorder of the `metrics` facade |
// | `docs` | guides: text only |
// | `model` | the parts that the models in `loom-tests` and the scenarios in `shuttle-tests` use |

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::too_many_lines)]
#![cfg_attr(feature = "tracing", doc = include_str!("tracing.md"))]

mod builder;
mod core;
pub mod docs;
mod duration;
mod engine;
mod error;
mod first_aid;
mod group;
mod handle;
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
#[cfg(not(any(lazypool_loom, lazypool_shuttle)))]
pub mod testing;
mod work;

// After `pool` and `submitter`: rustdoc shows the methods of `Pool` in the order of their modules.
#[cfg(feature = "metrics")]
mod metrics;

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
