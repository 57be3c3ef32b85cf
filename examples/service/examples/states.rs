//! Five services, for a look at the dashboard and the alerts: healthy, slow, overloaded, and two
//! that hang. All are healthy for the first third of the time.
//!
//! ```text
//! cargo run --release -p service --example states -- 600
//! ```
//!
//! This serves the metrics at <http://127.0.0.1:9184/metrics> for 600 seconds: let Prometheus scrape
//! them with `alerts.yml`, and import `dashboard.json` into Grafana. With the name of a file as the
//! second argument it also saves some metrics of each second there, for the guide's figure.

#[path = "minimal/offload.rs"]
mod offload;

use axum::{routing::get, Router};
use lazypool::{DeadlineError, Pool, Shutdown, Stats};
use metrics_exporter_prometheus::PrometheusBuilder;
use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, sleep_until, Instant};

const DEADLINE: Duration = Duration::from_millis(250);
/// A task that is started with less time left would be late. The slow tasks are late all the same.
const TAKES: Duration = Duration::from_millis(25);

/// The load of a service after its healthy time, and whether threads or futures call.
struct Service {
    name: &'static str,
    task: Duration,
    per_second: u32,
    /// `Some(n)`: one request in `n` never returns.
    hangs: Option<u64>,
    threads: bool,
}

const HEALTHY: Service = Service {
    name: "healthy",
    task: Duration::from_millis(20),
    per_second: 40,
    hangs: None,
    threads: false,
};

const SERVICES: [Service; 5] = [
    HEALTHY,
    Service {
        name: "slow",
        task: Duration::from_millis(300),
        ..HEALTHY
    },
    Service {
        name: "overloaded",
        per_second: 600, // three times what four workers can do
        ..HEALTHY
    },
    Service {
        name: "hung",
        hangs: Some(20),
        ..HEALTHY
    },
    Service {
        name: "hung, threads",
        hangs: Some(20),
        threads: true,
        ..HEALTHY
    },
];

/// Calls as the service's clients do, and never stops.
async fn load(service: Service, pool: Arc<Pool>, healthy: Duration) {
    let start = Instant::now();
    let mut next = start;
    for n in 0_u64.. {
        let now = match start.elapsed() < healthy {
            true => &HEALTHY,
            false => &service,
        };
        let (task, hangs) = (now.task, now.hangs.is_some_and(|one_in| n % one_in == 0));
        let work = move || match hangs {
            false => thread::sleep(task),
            true => loop {
                thread::park();
            },
        };
        let pool = Arc::clone(&pool);
        if service.threads {
            drop(spawn_blocking(move || {
                let requests = pool.labeled("request").min_remaining(TAKES);
                let called = requests.do_with_deadline(work, DEADLINE);
                called.map_err(DeadlineError::without_closure)
            }));
        } else {
            tokio::spawn(async move {
                let requests = pool.labeled("request").min_remaining(TAKES);
                offload::offload(requests, DEADLINE, work).await
            });
        }
        next += Duration::from_secs(1) / now.per_second;
        sleep_until(next).await;
    }
}

const COLUMNS: &str = "# second, service, accepted, refused, expired, timed_out, abandoned, \
    longest_running in seconds, oldest_queued in seconds\n";

fn line(second: u64, name: &str, stats: &Stats) -> String {
    let counters = [
        stats.accepted,
        stats.refused,
        stats.expired,
        stats.timed_out,
    ];
    let [accepted, refused, expired, timed_out] = counters;
    let ages = [stats.longest_running, stats.oldest_queued].map(Option::unwrap_or_default);
    let [running, queued] = ages.map(|age| age.as_secs_f64());
    let abandoned = stats.abandoned;
    format!(
        "{second}\t{name}\t{accepted}\t{refused}\t{expired}\t{timed_out}\t{abandoned}\t\
         {running:.3}\t{queued:.3}\n"
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let seconds = args.next().map_or(Ok(600), |n| n.parse::<u64>())?;
    let file = args.next();
    let exporter = PrometheusBuilder::new().install_recorder()?;
    let mut pools = Vec::new();
    for service in SERVICES {
        let pool = Pool::builder().max_workers(4).queue_capacity(16);
        let pool = pool.thread_name(service.name).track_ages(true);
        let pool = pool.shutdown_on_drop(Shutdown::Cancel, Duration::ZERO);
        let pool = Arc::new(pool.build()?);
        pools.push((service.name, Arc::clone(&pool)));
        tokio::spawn(load(service, pool, Duration::from_secs(seconds / 3)));
    }
    let scraped: Vec<_> = pools.iter().map(|(_, pool)| Arc::clone(pool)).collect();
    let page = move || {
        scraped.iter().for_each(|pool| pool.publish_metrics());
        std::future::ready(exporter.render())
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:9184").await?;
    let app = Router::new().route("/metrics", get(page));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let mut saved = COLUMNS.to_owned();
    for second in 0..seconds {
        for (name, pool) in &pools {
            saved += &line(second, name, &pool.stats());
        }
        sleep(Duration::from_secs(1)).await;
    }
    for (name, pool) in &pools {
        println!("{name}:\n{}\n", pool.stats());
    }
    if let Some(file) = file {
        std::fs::write(file, saved)?;
    }
    std::process::exit(0) // threads of the runtime may wait for tasks that hang
}
