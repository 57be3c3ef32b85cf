//! Tests the example of the guide to monitoring: its page has the pool's metrics, and counts each
//! request once, also if its client hangs up.

#[allow(dead_code)] // its `main`
#[path = "../examples/metrics.rs"]
mod metrics_page;

#[allow(dead_code)] // a service in a process
mod client;

use axum::{http::StatusCode, routing::post, Router};
use client::Client;
use lazypool::Pool;
use metrics_exporter_prometheus::PrometheusBuilder;
use metrics_page::with_metrics;
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn each_request_counts_once() {
    let exporter = PrometheusBuilder::new().install_recorder();
    let exporter = exporter.expect("the only one in this process");
    let pool = Pool::builder().max_workers(1).thread_name("page").build();
    let pool = Arc::new(pool.expect("a pool"));
    pool.serve(|| ()).expect("it is idle");
    let (tell, told) = mpsc::channel();
    let never = move || {
        tell.send(()).expect("the test waits");
        std::future::pending::<()>()
    };
    let app = Router::new()
        .route("/done", post(|| async {}))
        .route("/late", post(|| async { StatusCode::GATEWAY_TIMEOUT }))
        .route("/never", post(never));
    let app = with_metrics(app, Arc::clone(&pool), exporter.clone());
    // The page itself is not counted.
    let app = app.route("/page", post(move || async move { exporter.render() }));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });

    let alerts = include_str!("../alerts.yml");
    assert!(alerts.contains("rate(http_requests_total{status=~\"5..|none\"}[5m])"));
    let ask = move || {
        let mut client = Client::connect(address);
        let mut ask = |path| {
            client.send_post(path, 0, b"").expect("sent");
            client.read().expect("an answer")
        };
        for (path, status) in [("/done", 200), ("/late", 504), ("/late", 504)] {
            assert_eq!(ask(path).status, status);
        }
        let mut leaves = Client::connect(address);
        leaves.send_post("/never", 0, b"").expect("sent");
        told.recv_timeout(LIMIT).expect("it is asked");
        drop(leaves);
        let start = Instant::now();
        let page = loop {
            let page = ask("/page").body;
            if page.contains("status=\"none\"") {
                break page;
            }
            assert!(start.elapsed() < LIMIT, "{page}");
            std::thread::sleep(Duration::from_millis(1));
        };
        for (status, count) in [("200", 1), ("504", 2), ("none", 1)] {
            let line = format!("http_requests_total{{status=\"{status}\"}} {count}\n");
            assert!(page.contains(&line), "no {line} in {page}");
        }
        let mut scraper = Client::connect(address);
        scraper.send("GET /metrics", 0, b"").expect("sent");
        let page = scraper.read().expect("a page").body;
        assert!(
            page.contains("lazypool_tasks_accepted_total{pool=\"page\"} 1\n"),
            "{page}"
        );
    };
    spawn_blocking(ask).await.expect("no panic");
}
