//! A service with a page of metrics: those of its pool, and the answers of its routes.
//!
//! ```text
//! cargo run -p service --example metrics
//! curl -X POST localhost:9185/mail
//! curl localhost:9185/metrics
//! ```

use axum::http::StatusCode;
use axum::middleware::{from_fn, Next};
use axum::{extract::Request, response::Response, routing, Router};
use lazypool::Pool;
use metrics::counter;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::{future::ready, mem, sync::Arc, time::Duration};
use tokio::{net::TcpListener, time::interval};

/// A request without an answer yet, or the status of its answer. Counts the request in its `Drop`,
/// because nothing else runs if the client hangs up: the future of the handler is dropped.
struct Counted(String);

impl Drop for Counted {
    fn drop(&mut self) {
        counter!("http_requests_total", "status" => mem::take(&mut self.0)).increment(1);
    }
}

async fn counted(request: Request, next: Next) -> Response {
    let mut counted = Counted("none".to_owned());
    let response = next.run(request).await;
    counted.0 = response.status().as_str().to_owned();
    response
}

/// Counts the answers of `app`, and adds the route `/metrics`.
pub(crate) fn with_metrics(app: Router, pool: Arc<Pool>, exporter: PrometheusHandle) -> Router {
    // A rate misses the first increase of a series that was not there before.
    for status in ["none", "500", "503", "504"] {
        counter!("http_requests_total", "status" => status).increment(0);
    }
    let page = move || {
        pool.publish_metrics(); // the histograms of tasks fill by themselves
        ready(exporter.render())
    };
    let app = app.layer(from_fn(counted));
    app.route("/metrics", routing::get(page))
}

/// Lets the exporter work off recorded values, which would pile up without it.
pub(crate) async fn upkeep(exporter: PrometheusHandle) {
    let mut every = interval(Duration::from_secs(5));
    loop {
        every.tick().await;
        exporter.run_upkeep();
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Once in a process, and before the pool runs tasks.
    let exporter = PrometheusBuilder::new().install_recorder()?;
    let pool = Pool::builder().max_workers(4).thread_name("mail");
    let pool = Arc::new(pool.track_ages(true).build()?);

    tokio::spawn(upkeep(exporter.clone()));
    let mail = Arc::clone(&pool);
    let send = move || match mail.labeled("send").serve(|| println!("sent")) {
        Ok(()) => ready(StatusCode::ACCEPTED),
        Err(_) => ready(StatusCode::SERVICE_UNAVAILABLE),
    };
    let app = Router::new().route("/mail", routing::post(send));
    let listener = TcpListener::bind("127.0.0.1:9185").await?;
    axum::serve(listener, with_metrics(app, pool, exporter)).await?;
    Ok(())
}
