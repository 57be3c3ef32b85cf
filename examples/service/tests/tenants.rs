//! Tests the example of tenants: a tenant above its share waits, then gets 429; the others do not notice.

#[allow(dead_code)] // its `main`
#[path = "../examples/tenants.rs"]
mod tenants;

#[allow(dead_code)] // a service in a process
mod client;

use client::Client;
use lazypool::Pool;
use metrics_exporter_prometheus::PrometheusBuilder;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

/// Sends a request of a tenant, and returns the client, which has not read the answer.
fn ask(address: SocketAddr, what: &str, tenant: &str) -> Client {
    let mut client = Client::connect(address);
    client.send_as(what, tenant).expect("sent");
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_above_its_share_holds_up_nobody_else() {
    let exporter = PrometheusBuilder::new().install_recorder();
    let exporter = exporter.expect("the only one in this process");
    let pool = Pool::builder().max_workers(4).queue_capacity(16).build();
    let pool = Arc::new(pool.expect("a pool"));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let app = tenants::routes(&pool, exporter);
    tokio::spawn(async move { axum::serve(listener, app).await });
    let page = spawn_blocking(move || {
        let writes: Vec<_> = (0..100)
            .map(|_| ask(address, "POST /write", "ann"))
            .collect();
        let bob = ask(address, "GET /read", "bob").read().expect("an answer");
        assert_eq!(bob.status, 200, "he waits for no task of hers");
        let mut answers = BTreeMap::new();
        for mut write in writes {
            let answer = write.read().expect("an answer");
            *answers.entry(answer.status).or_insert(0) += 1;
        }
        // Some wait until one ends. Those that came when the line was long are refused.
        assert!(answers[&200] > 2 && answers[&429] > 0, "{answers:?}");
        let known = answers
            .keys()
            .all(|status| [200, 429, 503, 504].contains(status));
        assert!(known, "{answers:?}");
        ask(address, "GET /metrics", "")
            .read()
            .expect("a page")
            .body
    });
    let page = page.await.expect("no panic");
    for line in [
        "http_requests_total{status=\"429\"}",
        "lazypool_tasks_accepted_total",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    assert_eq!(
        pool.stats().refused,
        0,
        "a 429 of a long line is in no counter of the pool"
    );
}
