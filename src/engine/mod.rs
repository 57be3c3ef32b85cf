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

//!
//! # Mechanisms that stay, and whom they serve
//!
//! Each of these could go, and the pool would be smaller. The last column says what would be lost.
//!
//! | mechanism | for | without it |
//! |---|---|---|
//! | generations of forks (`sync/fork.rs`) | guarantee 19 | a child would hang in its parent's pool. The fast path pays nothing: one comparison answers this and three other questions (`Env::is_fast_path_open`). A list of pools for the child's handler would need a lock that each build, drop and fork takes |
//! | new workers (`Record::is_new`) | guarantees 4, 5 and 20 | tasks would rely on a worker whose start hook takes long, and such a worker would not count as surplus |
//! | threads in their stop hooks (`Registry::stopping`) | guarantee 10 | a clean report beside a hook that still runs |
//! | the bench (`lifecycle/retirement.rs`) | guarantee 6 | a trickle of tasks would keep all workers alive, because the ready ring hands them out in turn |
//! | the last worker of a thread (`core/last_worker.rs`) | guarantee 5: a sequential caller uses one worker | timed waits take 1.3 to 1.8 times as long |
//! | separations, early yields (`core/last_worker.rs`, `parts/completion/node.rs`) | callers that share a core with their worker | see `benches/NOTEBOOK.md` |
//! | timed yields (`parts/yield_timer.rs`) | a service with more threads than cores | p99 of the example service is 1.5 times that of a semaphore, instead of 0.7 to 0.9 |
//! | adaptive spins (`parts/backoff.rs`) | calls 60 us to 1 ms apart | each sleeps and is woken: tens of microseconds |
//! | dead cells | guarantee 3: a queued task is back at its deadline | it would be back at its turn |
//! | ages | `Stats::oldest_queued`, `longest_running` | the operator would not see what hangs. Pools that do not ask for them pay nothing |

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
