//! The least that a service needs: one function between async code and the pool.
//!
//! ```text
//! cargo run -p service --example minimal
//! curl -i localhost:8080/sum
//! ```

use axum::{extract::State, http::StatusCode, routing::get, Router};
use lazypool::{Pool, Shutdown, TaskError};
use std::{sync::Arc, time::Duration};
use tokio::{net::TcpListener, signal, task::spawn_blocking, time::timeout};

/// Runs `work` on the pool and awaits its value; no thread of the runtime waits for it.
pub(crate) async fn offload<T: Send + 'static>(
    pool: &Pool,
    deadline: Duration,
    takes: Duration, // with less time left, `work` is not started
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StatusCode> {
    let tasks = pool.with_deadline(deadline).min_remaining(takes);
    let task = tasks.labeled("offload").awaitable().serve(work);
    let task = task.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?; // saturated, or shut down
    match timeout(deadline, task).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(TaskError::Panicked(_))) => Err(StatusCode::INTERNAL_SERVER_ERROR),
        Ok(Err(TaskError::Discarded)) => Err(StatusCode::SERVICE_UNAVAILABLE), // by a shutdown
        _ => Err(StatusCode::GATEWAY_TIMEOUT), // never started, or still runs
    }
}

async fn sum(State(pool): State<Arc<Pool>>) -> Result<String, StatusCode> {
    let work = || (1..=1_000_000_u64).sum::<u64>();
    let (deadline, takes) = (Duration::from_millis(250), Duration::from_millis(20));
    let sum = offload(&pool, deadline, takes, work).await?;
    Ok(format!("{sum}\n"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::builder().max_workers(8).queue_capacity(256);
    // The drop of the last `Arc<Pool>` must not block a thread of the runtime.
    let pool = pool.shutdown_on_drop(Shutdown::Cancel, Duration::ZERO);
    let pool = Arc::new(pool.build()?);
    let app = Router::new().route("/sum", get(sum));
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    println!("http://{}", listener.local_addr()?);
    let stop = async { signal::ctrl_c().await.unwrap_or_default() };
    axum::serve(listener, app.with_state(Arc::clone(&pool)))
        .with_graceful_shutdown(stop)
        .await?;
    // All requests have been answered; what still runs, nobody waits for.
    let shutdown = move || pool.shutdown(Shutdown::Cancel, Duration::from_secs(5));
    println!("{:?}", spawn_blocking(shutdown).await?);
    Ok(())
}
