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
//! `PoolSettings` (`src/settings.rs`) and the exporter of metrics (`src/metrics.rs`) import no module of this floor: the builder
//! gets the values of the one, and the other reads `Stats`. So neither is a room. Nor is there a room for tuning: spins, lingering and the
//! timer of yields are in `parts`, because the core calls them, and imports go down only.
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
//! | frames of user code (`work/user_code.rs`, `Frame`) | guarantees 10 and 21 | wakers and drops to which user code leads would nest: the stack would grow with the number of handles and futures that own one another, and a waker would run inside another one. A `shutdown` in such code would wait, perhaps for a drop that the same thread is still to make |
//! | separations, early yields (`core/last_worker.rs`, `parts/completion/node.rs`) | callers that share a core with their worker | no guarantee; measured in benchmarks only, as each came in. A caller that also parks at once: a timed wait took 0.62 to 0.88 of the time; one that parks but keeps its last worker: with two callers 2,600 to 3,300 ns instead of 200 to 700 (both 9830308c). Early yields: 5.2 us instead of 17.7 on one core (6d4e77ac) |
//! | waits without yields, after a yield that took long (`parts/completion/node.rs`) | guarantee 3: a call returns at its deadline, also beside threads that never yield | p99.9 of calls beside such a thread: 1 to 3.4 ms instead of 28 us (`late/watched`) |
//! | timed yields (`parts/yield_timer.rs`) | a service with more threads than cores | p99 of the example service is 1.5 times that of a semaphore, instead of 0.7 to 0.9 |
//! | adaptive spins (`parts/backoff.rs`) | calls 60 us to 1 ms apart | each sleeps and is woken: tens of microseconds |
//! | dead cells | guarantee 3: a queued task is back at its deadline | it would be back at its turn |
//! | ages | `Stats::oldest_queued`, `longest_running` | the operator would not see what hangs. Pools that do not ask for them pay nothing. The feature `metrics` stores the time of a submission in the task itself (`Contents::submitted`), where only the owner of the task may read it: a reader would have to hold the cell, and pops would wait for it. It also takes 8 bytes of each closure, which a pool without that feature keeps |

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
