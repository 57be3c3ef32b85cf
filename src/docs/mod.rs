//! Guides. They explain subjects that need more space than the documentation of one item.
//!
//! These modules contain text only. [The crate's page](crate) says when not to use a pool of this
//! crate.
//!
//! | page | what it answers |
//! |---|---|
//! | [`outcomes`] | How can a task end? What does a refusal mean? What happens to a task that hangs? |
//! | [`sizing`] | How many workers? How long a queue? What to do when the pool is full? |
//! | [`async_code`] | How does async code await a task of the pool, or space in it? What does a whole service look like? |
//! | [`monitoring`] | Which metrics to watch, what to alert on, what does no counter show, and what does the dashboard show? |
//! | [`recipes`] | How do I get priorities, a share for each tenant, tasks in order, a parallel map, the first error, a cancellation token, attributes of threads, periodic work, retries? |
//! | [`testing`] | How do I test code that uses a pool? |
//! | [`guarantees`] | What can I rely on, and what not? |
//! | [`beyond_one_machine`] | When is one pool not enough? How does a durable queue feed many processes, without losing a job? |
//! | [`migration`] | How do I get here from threadpool, rayon, `spawn_blocking`, rusty_pool, Java's executors, Go or Python? |
//! | [`measurements`] | How fast is it, compared with what? What do the features cost? |
//! | [`protocol`] | How does a task reach a worker, what is lock-free, and why is no task lost? |

// The text is inside of its module, because its links start there. Rustdoc copies no files, so in
// front of a text that has a figure there is a definition of the figure as a URL: see
// `benches/peers/src/bin/figures.rs`.
macro_rules! pages {
    ($($(#[$attribute:meta])* $page:ident $(($figure:literal))?)+) => {
        $($(#[$attribute])* pub mod $page {
            $(#![doc = include_str!(concat!("figures/", $figure, ".md"))])?
            #![doc = include_str!(concat!(stringify!($page), ".md"))]
        })+
    };
}
pages! {
    async_code beyond_one_machine guarantees measurements("goodput") migration
    monitoring("dashboard") outcomes protocol("pool")
    #[doc(alias("map", "invokeAll", "CancellationToken", "priority"))]
    recipes
    sizing testing
}
