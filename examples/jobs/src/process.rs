//! The process around a worker: its start, its metrics, its end.

use crate::{
    admin,
    settings::{self, Error, Settings},
    worker::{END, Worker},
};
use futures_util::FutureExt;
use graphile_worker::WorkerBuildError;
use lazypool::Shutdown;
use metrics_exporter_prometheus::PrometheusBuilder;
use sqlx::PgPool;
use std::{process, thread, time::Duration};
use tokio::{
    select,
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

/// Why the worker has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A signal asked for it.
    Stopped,
    /// Half of the workers hang: the service manager should start the process again.
    Hung,
}

/// Works until SIGTERM or Ctrl-C, or until the process should be replaced.
///
/// Waits for a database that does not answer, however long. Returns [`Error::Settings`] where another
/// attempt would fail, too: for a database that is read-only, for example.
pub async fn work(settings: Settings) -> Result<Ended, Error> {
    let (ask, asked) = watch::channel(None);
    let ended = move || {
        let mut asked = asked.clone();
        async move {
            asked
                .wait_for(Option::is_some)
                .await
                .map_or(Ended::Stopped, |ended| ended.expect("some"))
        }
    };
    tokio::spawn(signals(ask.clone(), settings.grace + END));
    let Some(db) = reach(&settings, ended()).await? else {
        return Ok(Ended::Stopped);
    };
    let worker = Worker::new(settings, db)?;
    if let Some(address) = worker.settings.metrics {
        let page = PrometheusBuilder::new()
            .with_http_listener(address)
            .install();
        page.map_err(|error| Error::Settings(format!("JOBS_METRICS={address}: {error}")))?;
        let worker = worker.clone();
        tokio::spawn(async move { worker.publish().await });
    }
    let watched = worker.clone();
    let limit = worker.settings.grace + END;
    tokio::spawn(async move {
        watched.half_hang().await;
        eprintln!("half of the workers hang: this process ends, to be started again");
        end_within(limit);
        ask.send_replace(Some(Ended::Hung));
    });

    while ended().now_or_never().is_none() {
        let stop = ended().map(|_| ());
        let outcome = match worker.options(stop).init().await {
            Err(WorkerBuildError::LocalQueueConfig(error)) => {
                return Err(Error::Settings(error.to_string()));
            }
            Err(error) => Err(error.to_string()),
            Ok(engine) => engine.run().await.map_err(|error| error.to_string()),
        };
        if let Err(error) = outcome {
            // Others take the jobs that it held, after `dead`.
            eprintln!("the database: {error}; trying again");
            select! { _ = ended() => {}, () = sleep(Duration::from_secs(1)) => {} }
        }
    }
    worker
        .pool
        .shutdown(Shutdown::Cancel, Duration::from_secs(1));
    Ok(ended().await)
}

/// Connects to the database. Returns `None` if it is to stop before that.
async fn reach(
    settings: &Settings,
    ended: impl Future<Output = Ended>,
) -> Result<Option<PgPool>, Error> {
    let reach = async {
        loop {
            let reached = async {
                let db = settings::open(settings).await?;
                admin::status(&db).await?; // or `jobs setup` is missing
                Ok(db)
            };
            match reached.await {
                Ok(db) => return Ok(db),
                Err(Error::Outage(error)) => eprintln!("the database: {error}; trying again"),
                Err(error) => return Err(error),
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    select! { db = reach => db.map(Some), _ = ended => Ok(None) }
}

/// Asks for an orderly end at the first SIGTERM or Ctrl-C. The second one ends the process at once.
async fn signals(ask: watch::Sender<Option<Ended>>, limit: Duration) {
    let terminate = signal(SignalKind::terminate())
        .and_then(|term| Ok((term, signal(SignalKind::interrupt())?)));
    let (mut terminate, mut interrupt) = terminate.expect("a runtime with signals");
    for first in [true, false] {
        select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        if first {
            eprintln!("stopping");
            end_within(limit);
            ask.send_replace(Some(Ended::Stopped));
        }
    }
    eprintln!("stopped at once; others take its jobs later");
    process::exit(1);
}

/// Ends the process after `limit`, also if the database is silent and the runtime waits for it.
fn end_within(limit: Duration) {
    thread::spawn(move || {
        thread::sleep(limit);
        eprintln!("not stopped within {limit:?}; others take its jobs later");
        process::exit(1);
    });
}

impl Worker {
    /// Returns when half of the workers have hung for `hung` seconds.
    ///
    /// The seconds are counted, not read from a clock. When the machine has been stopped for a while,
    /// all running jobs are past their deadlines at once, but the count begins at zero: they get
    /// that many seconds to end, and a healthy process stays.
    async fn half_hang(&self) {
        let mut tick = interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seconds = 0;
        while seconds < self.settings.hung {
            tick.tick().await;
            let hangs = self.pool.stats().abandoned * 2 >= self.pool.max_workers();
            seconds = if hangs { seconds + 1 } else { 0 };
        }
    }

    /// Updates the page that Prometheus reads, for ever.
    async fn publish(&self) {
        loop {
            self.pool.publish_metrics();
            if let Ok(Ok(status)) = timeout(settings::PATIENCE, admin::status(&self.db)).await {
                metrics::gauge!("jobs_dead_letters").set(status.dead as f64);
                metrics::gauge!("jobs_oldest_due_seconds").set(status.oldest_due);
            }
            sleep(Duration::from_secs(10)).await;
        }
    }
}
