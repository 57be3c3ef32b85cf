//! The least that a service needs: one function between async code and the pool.
//!
//! ```text
//! cargo run -p service --example minimal
//! curl -i localhost:8080/sum
//! ```

use axum::{extract::State, http::StatusCode, routing::get, Router};
use lazypool::{task, Pool};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::{sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::oneshot, time::timeout};

/// Runs `work` on the pool and awaits its value; no thread of the runtime waits for it.
pub(crate) async fn offload<T: Send + 'static>(
    pool: &Pool,
    deadline: Duration,
    takes: Duration, // with less time left, `work` is not started
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StatusCode> {
    let (reply, answer) = oneshot::channel();
    let submitter = pool.labeled("offload").with_deadline(deadline);
    let group = submitter.min_remaining(takes).group();
    let unwanted = group.drop_guard(); // cancels the task when the client hangs up
    let task = move || match catch_unwind(AssertUnwindSafe(work)) {
        Ok(_) if task::remaining() == Some(Duration::ZERO) => {} // past the deadline: nobody waits
        Ok(value) => drop(reply.send(Ok(value))),
        Err(panic) => {
            drop(reply.send(Err(StatusCode::INTERNAL_SERVER_ERROR)));
            resume_unwind(panic) // for the pool to count
        }
    };
    group
        .serve(task)
        .map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?; // saturated, or shut down
    match timeout(deadline, answer).await {
        Ok(Ok(result)) => {
            unwanted.disarm();
            result
        }
        Ok(Err(_)) if pool.is_closed() => Err(StatusCode::SERVICE_UNAVAILABLE), // discarded
        _ => Err(StatusCode::GATEWAY_TIMEOUT), // too late: never started, or sees `is_cancelled()`
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
    let pool = Arc::new(Pool::builder().max_workers(8).queue_capacity(256).build()?);
    let app = Router::new().route("/sum", get(sum)).with_state(pool);
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    println!("http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
