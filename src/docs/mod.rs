//! Guides. They explain subjects that need more room than the documentation of one item.
//!
//! These modules contain text only.
//!
//! | page | what it answers |
//! |---|---|
//! | [`outcomes`] | How can a task end? What does a refusal mean? What happens to a task that hangs? |
//! | [`sizing`] | How many workers? How long a queue? What to do when the pool is full? |
//! | [`async_code`] | How does async code await a task of the pool, or space in it? |
//! | [`monitoring`] | Which metrics to watch, and which two to alert on? |
//! | [`recipes`] | How do I get priorities, a share for each tenant, tasks in order, attributes of threads, periodic work, retries? |
//! | [`testing`] | How do I test code that uses a pool? |
//! | [`guarantees`] | What can I rely on, and what not? |
//! | [`beyond_one_machine`] | When is one pool not enough? How does a durable queue feed many processes, without losing a job? |
//! | [`migration`] | How do I get here from threadpool, rayon, `spawn_blocking`, rusty_pool or Java's executors? |
//! | [`measurements`] | How fast is it, compared with what? What do the features cost? |
//! | [`protocol`] | How does a task reach a worker, what is lock-free, and why is no task lost? |

pub mod async_code {
    #![doc = include_str!("async_code.md")]
}

pub mod beyond_one_machine {
    #![doc = include_str!("beyond_one_machine.md")]
}

pub mod guarantees {
    #![doc = include_str!("guarantees.md")]
}

pub mod measurements {
    #![doc = include_str!("measurements.md")]
}

pub mod migration {
    #![doc = include_str!("migration.md")]
}

pub mod monitoring {
    #![doc = include_str!("monitoring.md")]
}

pub mod outcomes {
    #![doc = include_str!("outcomes.md")]
}

pub mod protocol {
    #![doc = include_str!("protocol.md")]
}

pub mod recipes {
    #![doc = include_str!("recipes.md")]
}

pub mod sizing {
    #![doc = include_str!("sizing.md")]
}

pub mod testing {
    #![doc = include_str!("testing.md")]
}
