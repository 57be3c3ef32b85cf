//! A pool's metrics on a Prometheus page.
//!
//! ```text
//! cargo run -p service --example metrics
//! ```

use lazypool::Pool;
use metrics_exporter_prometheus::PrometheusBuilder;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let exporter = PrometheusBuilder::new().install_recorder()?;
    let pool = Pool::builder().max_workers(4).thread_name("mail").build()?;
    let deadline = Duration::from_secs(1);
    pool.labeled("send").do_with_deadline(|| (), deadline)?;

    pool.publish_metrics(); // before each scrape; the histograms of tasks fill by themselves
    print!("{}", exporter.render());
    exporter.run_upkeep(); // every few seconds, or recorded values pile up
    Ok(())
}
