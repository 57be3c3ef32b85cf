//! Awaits a task without tokio: a handle is a plain future, which any runtime can poll.
//!
//! ```text
//! cargo run -p service --example smol
//! ```

use async_io::Timer; // smol::Timer
use futures_lite::future; // smol::future
use lazypool::{Handle, Pool, TaskError};
use std::time::Duration;

/// Awaits the task, at most for `d`. `None`: it is too late, and the task is cancelled.
pub(crate) async fn within<T>(d: Duration, task: Handle<T>) -> Option<Result<T, TaskError>> {
    let too_late = async {
        Timer::after(d).await;
        None
    };
    future::or(async { Some(task.await) }, too_late).await
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::builder().max_workers(8).queue_capacity(256).build()?;
    let task = pool.awaitable().serve(|| 6 * 7)?;
    let value = future::block_on(within(Duration::from_secs(5), task));
    println!("{value:?}");
    Ok(())
}
