//! The parts of the guides in one service: two routes, one share of the pool for each tenant over both,
//! a line of limited length, metrics, and an end within a stated time.
//!
//! ```text
//! cargo run -p service --example tenants
//! curl -i -H 'x-tenant: ann' localhost:9186/read
//! curl -i -H 'x-tenant: ann' -X POST localhost:9186/write
//! curl localhost:9186/metrics
//! ```

#[allow(dead_code)] // its `main`
#[path = "metrics.rs"]
mod metrics_page;
#[allow(dead_code)] // its `main` and route
#[path = "minimal/main.rs"]
mod minimal;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::{get, post, Router};
use lazypool::{Group, Pool, Shutdown};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use metrics_page::{upkeep, with_metrics};
use minimal::offload::{offload_waiting, Failed};
use minimal::{asked_to_stop, serve};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::{thread, time::Duration};
use tokio::net::TcpListener;

/// How many tasks of a tenant the pool has at once: less than it has workers, so that no tenant can
/// occupy all of them.
const SHARE: usize = 2;
/// About how many requests of a tenant wait for a place.
const LINE: usize = 8;

/// The state of the routes.
pub(crate) struct Tenants {
    pool: Arc<Pool>,
    groups: Mutex<HashMap<String, Arc<Group>>>,
}

impl Tenants {
    /// Returns the tenant's group. The recipe "A share for each tenant" says what is kept.
    fn group(&self, tenant: &str) -> Arc<Group> {
        let mut groups = self.groups.lock().unwrap();
        if groups.len() > 1_000 {
            groups.retain(|_, group| Arc::get_mut(group).is_none_or(|group| group.pending() > 0));
        }
        let new = || Arc::new(self.pool.limited_group(SHARE));
        Arc::clone(groups.entry(tenant.to_owned()).or_insert_with(new))
    }

    /// Runs a request's work in its tenant's share. Waits for a place, but not in a long line.
    async fn run(
        &self,
        headers: &HeaderMap,
        route: &'static str,
        deadline: Duration,
        work: fn(),
    ) -> Result<(), Failed> {
        let tenant = headers.get("x-tenant").and_then(|name| name.to_str().ok());
        let group = self.group(tenant.unwrap_or_default());
        if group.pending() >= SHARE + LINE {
            return Err(Failed::TooMany);
        }
        offload_waiting(group.labeled(route), deadline, work).await
    }
}

async fn read(State(tenants): State<Arc<Tenants>>, headers: HeaderMap) -> Result<(), Failed> {
    let work = || thread::sleep(Duration::from_millis(5));
    let deadline = Duration::from_millis(400);
    tenants.run(&headers, "read", deadline, work).await
}

async fn write(State(tenants): State<Arc<Tenants>>, headers: HeaderMap) -> Result<(), Failed> {
    let work = || thread::sleep(Duration::from_millis(200));
    let deadline = Duration::from_millis(1_500);
    tenants.run(&headers, "write", deadline, work).await
}

/// Returns the service's routes and its page of metrics.
pub(crate) fn routes(pool: &Arc<Pool>, exporter: PrometheusHandle) -> Router {
    let tenants = Arc::new(Tenants {
        pool: Arc::clone(pool),
        groups: Mutex::default(),
    });
    let app = Router::new().route("/read", get(read));
    let app = app.route("/write", post(write)).with_state(tenants);
    with_metrics(app, Arc::clone(pool), exporter)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stop = asked_to_stop()?;
    let exporter = PrometheusBuilder::new().install_recorder()?;
    let pool = Pool::builder().max_workers(4).queue_capacity(16);
    let pool = pool.thread_name("tenants").track_ages(true);
    let pool = pool.shutdown_on_drop(Shutdown::Cancel, Duration::ZERO);
    let pool = Arc::new(pool.build()?);
    tokio::spawn(upkeep(exporter.clone()));
    let listener = TcpListener::bind("127.0.0.1:9186").await?;
    let app = routes(&pool, exporter);
    eprintln!("{}", serve(listener, app, pool, stop).await?);
    Ok(())
}
