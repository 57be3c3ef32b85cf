//! The least that a service needs: one function between async code and the pool, and an end within a
//! stated time.
//!
//! ```text
//! cargo run -p service --example minimal
//! curl -i --data-binary @Cargo.toml localhost:8080/checksum
//! ```

use axum::http::{header::RETRY_AFTER, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{body::Bytes, extract::State, routing::post, Router};
use lazypool::{Pool, Shutdown, ShutdownReport, TaskError};
use std::future::{Future, IntoFuture};
use std::{io, sync::Arc, time::Duration};
use tokio::{net::TcpListener, signal, sync::oneshot, task::spawn_blocking, time::timeout};

/// After SIGTERM, clients may take this long to complete their requests and to read the answers.
pub(crate) const FOR_CLIENTS: Duration = Duration::from_secs(5);
/// After that, running tasks may take this long to notice that they are cancelled.
pub(crate) const FOR_TASKS: Duration = Duration::from_secs(2);

/// Why a request gets no value.
#[derive(Debug, PartialEq)]
pub(crate) enum Failed {
    Busy,
    Closed,
    Late,
    Panicked,
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        match self {
            // If the client sends the request again in a moment, it may succeed.
            Failed::Busy => (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")]).into_response(),
            Failed::Closed => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            Failed::Late => StatusCode::GATEWAY_TIMEOUT.into_response(),
            Failed::Panicked => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

/// Runs `work` on the pool and awaits its value; no thread of the runtime waits for it.
pub(crate) async fn offload<T: Send + 'static>(
    pool: &Pool,
    deadline: Duration,
    takes: Duration, // with less time left, `work` is not started
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failed> {
    let tasks = pool.with_deadline(deadline).min_remaining(takes);
    let task = match tasks.labeled("offload").awaitable().serve(work) {
        Ok(task) => task,
        Err(refused) if refused.is_retryable() => return Err(Failed::Busy),
        Err(_) => return Err(Failed::Closed),
    };
    match timeout(deadline, task).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(TaskError::Panicked(_))) => Err(Failed::Panicked),
        Ok(Err(TaskError::Discarded)) => Err(Failed::Closed), // by a shutdown
        _ => Err(Failed::Late),                               // it never started, or it still runs
    }
}

async fn checksum(State(pool): State<Arc<Pool>>, body: Bytes) -> Result<String, Failed> {
    let work = move || body.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    let (deadline, takes) = (Duration::from_millis(250), Duration::from_millis(20));
    let sum = offload(&pool, deadline, takes, work).await?;
    Ok(format!("{sum}\n"))
}

/// Serves until `stop` ends. Then it ends within `FOR_CLIENTS` + `FOR_TASKS`.
pub(crate) async fn serve(
    listener: TcpListener,
    pool: Arc<Pool>,
    stop: impl Future<Output = ()>,
) -> Result<ShutdownReport, Box<dyn std::error::Error>> {
    let app = Router::new().route("/checksum", post(checksum));
    let app = app.with_state(Arc::clone(&pool));
    let (hang_up, told) = oneshot::channel::<()>();
    let told = async { told.await.unwrap_or_default() };
    let server = axum::serve(listener, app).with_graceful_shutdown(told);
    let server = tokio::spawn(server.into_future());
    stop.await;
    // From here on there are no new connections, and each open one ends with its request.
    drop(hang_up);
    if timeout(FOR_CLIENTS, server).await.is_err() {
        eprintln!("some clients are cut off"); // they send too slowly, or do not read
    }
    // A task that still runs has no caller.
    let shutdown = move || pool.shutdown(Shutdown::Cancel, FOR_TASKS);
    Ok(spawn_blocking(shutdown).await?)
}

/// Returns a future that ends at SIGTERM or Ctrl-C.
fn asked_to_stop() -> io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    let mut terminate = signal::unix::signal(signal::unix::SignalKind::terminate())?;
    Ok(async move {
        #[cfg(unix)]
        tokio::select! {
            _ = terminate.recv() => {}
            Ok(()) = signal::ctrl_c() => {}
        }
        #[cfg(not(unix))]
        signal::ctrl_c().await.unwrap_or_default()
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stop = asked_to_stop()?;
    let pool = Pool::builder().max_workers(8).queue_capacity(256);
    // The drop of the last `Arc<Pool>` must not block a thread of the runtime.
    let pool = pool.shutdown_on_drop(Shutdown::Cancel, Duration::ZERO);
    let pool = Arc::new(pool.build()?);
    let address = std::env::args().nth(1);
    let address = address.unwrap_or_else(|| String::from("127.0.0.1:8080"));
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    eprintln!("{:?}", serve(listener, pool, stop).await?);
    Ok(())
}
