//! The least that a service needs: one function between async code and the pool, which is in
//! `offload.rs`, an end within a stated time, and two signals, in `signals.rs`, for the night on which it hangs.
//!
//! ```text
//! cargo run -p service --example minimal
//! curl -i --data-binary @Cargo.toml localhost:8080/checksum
//! kill -USR1 PID
//! ```

pub(crate) mod offload;
#[cfg(unix)]
mod signals;

use axum::http::{header::RETRY_AFTER, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{body::Bytes, extract::State, routing::post, Router};
use lazypool::{Pool, Shutdown, ShutdownReport};
use offload::{offload, Failed};
use std::future::{Future, IntoFuture};
use std::{io, sync::Arc, time::Duration};
use tokio::task::{spawn_blocking, JoinError};
use tokio::{net::TcpListener, signal, sync::oneshot, time::timeout};

const WORKERS: usize = 8;
/// Workers that take the place of those which user code holds for good.
const SPARE: usize = 4;

/// After SIGTERM, clients may take this long to complete their requests and to read the answers.
/// Longer than the deadline of any route, so that only slow clients are left then.
pub(crate) const FOR_CLIENTS: Duration = Duration::from_secs(5);
/// After that, running tasks may take this long to notice that they are cancelled.
pub(crate) const FOR_TASKS: Duration = Duration::from_secs(2);

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        match self {
            // The work never ran. If the client asks again in a moment, it may succeed.
            Failed::Busy | Failed::Expired => {
                (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")]).into_response()
            }
            Failed::Closed => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            Failed::TooMany => StatusCode::TOO_MANY_REQUESTS.into_response(),
            // The work has begun, and may have an effect.
            Failed::TimedOut => StatusCode::GATEWAY_TIMEOUT.into_response(),
            Failed::Panicked => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

pub(crate) fn routes(pool: &Arc<Pool>) -> Router {
    let app = Router::new().route("/checksum", post(checksum));
    app.with_state(Arc::clone(pool))
}

async fn checksum(State(pool): State<Arc<Pool>>, body: Bytes) -> Result<String, Failed> {
    let work = move || body.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    // With less than 20 ms left, the work is not started.
    let sums = pool
        .labeled("checksum")
        .min_remaining(Duration::from_millis(20));
    let sum = offload(sums, Duration::from_millis(250), work).await?;
    Ok(format!("{sum}\n"))
}

/// Serves `app` until `stop` ends. Then it ends within `FOR_CLIENTS` + `FOR_TASKS`.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Router,
    pool: Arc<Pool>,
    stop: impl Future<Output = ()>,
) -> Result<ShutdownReport, JoinError> {
    let (hang_up, told) = oneshot::channel::<()>();
    let told = async { told.await.unwrap_or_default() };
    let server = axum::serve(listener, app).with_graceful_shutdown(told);
    let server = tokio::spawn(server.into_future());
    stop.await;
    // From here on there are no new connections, and each open one ends with its request.
    drop(hang_up);
    if timeout(FOR_CLIENTS, server).await.is_err() {
        eprintln!("some clients are not done"); // they are cut off when `main` returns
    }
    // Tasks that still run are told to stop. If the request of one came late, its client is answered.
    let shutdown = move || pool.shutdown(Shutdown::Cancel, FOR_TASKS);
    spawn_blocking(shutdown).await
}

/// Returns a future that ends at SIGTERM or Ctrl-C.
pub(crate) fn asked_to_stop() -> io::Result<impl Future<Output = ()>> {
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
    let pool = Pool::builder()
        .max_workers(WORKERS + SPARE)
        .queue_capacity(256);
    // The drop of the last `Arc<Pool>` must not block a thread of the runtime.
    let pool = pool.shutdown_on_drop(Shutdown::Cancel, Duration::ZERO);
    let pool = Arc::new(pool.build()?);
    pool.set_limit(WORKERS)?;
    #[cfg(unix)]
    signals::obey(&pool)?;
    let address = std::env::args().nth(1);
    let address = address.unwrap_or_else(|| String::from("127.0.0.1:8080"));
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    eprintln!("{}", serve(listener, routes(&pool), pool, stop).await?);
    Ok(())
}
