//! A stream of values of a pool, with back-pressure: as many tasks as have space, and no refusals.
//!
//! ```text
//! cargo run -p service --example stream
//! ```

use futures_util::stream::{self, StreamExt, TryStreamExt};
use lazypool::Pool;
use std::error::Error;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let pool = Pool::builder().max_workers(4).queue_capacity(4);
    let pool = &pool.build()?;
    let squares = stream::iter(1..=10_000_u64).map(|n| async move {
        let task = pool.awaitable().serve_async(move || n * n).await?; // waits for space
        Outcome::Ok(task.await?) // waits for the value
    });
    // In the order of completion. `buffered(16)` keeps the order of the stream.
    let squares = squares.buffer_unordered(16);
    let sum = squares.try_fold(0, |sum, n| async move { Ok(sum + n) });
    println!("{}, {} refused", sum.await?, pool.stats().refused);
    Ok(())
}
