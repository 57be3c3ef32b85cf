//! The worker process: the engine takes jobs from PostgreSQL, a lazypool runs them.

use crate::{
    job::{Job, KIND},
    queue,
    settings::{Error, Settings},
};
use futures_util::FutureExt;
use graphile_worker::{
    FailureReason, IntoTaskHandlerResult, JobRecovery, JobRecoveryContext, JobRecoveryResult,
    LocalQueueConfig, RefetchDelayConfig, TaskHandler, WorkerBuildError, WorkerContext,
    WorkerOptions,
};
use lazypool::{Pool, Shutdown, TaskError};
use metrics_exporter_prometheus::PrometheusBuilder;
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, types::chrono};
use std::{fmt, process, sync::Arc, thread, time::Duration};
use tokio::{
    select,
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

/// How long an idle process takes to see a job that became due by time. New ones are notified.
const POLL: Duration = Duration::from_secs(1);
/// At most [`POLL`], or the engine refuses it.
const REFETCH: Duration = Duration::from_millis(500);
/// What the end takes beyond the grace period: one second for the pool, two for the database.
const END: Duration = Duration::from_secs(3);

/// Why the worker has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A signal asked for it.
    Stopped,
    /// Half of the workers hang: the service manager should start the process again.
    Hung,
}

#[derive(Debug)]
struct Worker {
    settings: Settings,
    db: PgPool,
    pool: Pool,
}

/// What the engine hands over: any JSON. It would store serde's error, which may repeat all of it.
#[derive(Deserialize, Serialize)]
struct Payload(serde_json::Value);

/// Why an attempt has failed. The engine stores it as its `Debug` shows it: short.
struct Reason(String);

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.500}", self.0)
    }
}

impl TaskHandler for Payload {
    const IDENTIFIER: &'static str = KIND;

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let worker = context
            .get_ext::<Arc<Worker>>()
            .expect("`options` adds it")
            .clone();
        let result = worker.run(&self.0, *context.job().attempts()).await;
        result.map_err(Reason)
    }
}

impl Worker {
    async fn run(&self, payload: &serde_json::Value, attempt: i16) -> Result<(), String> {
        let job = Job::from_json(payload)?;
        let text = |error: Error| error.to_string();
        if queue::is_done(&self.db, &job.key).await.map_err(text)? {
            return Ok(());
        }
        let key = job.key.clone();
        let result = self.offload(job).await?;
        queue::finish(&self.db, &key, &result, attempt)
            .await
            .map_err(text)
    }

    /// Runs the job on the pool. Waits for space and for the result until the job's deadline. A job
    /// that is late is reported as failed and sees that it is cancelled, but may still run.
    async fn offload(&self, job: Job) -> Result<String, String> {
        let pool = self.pool.with_deadline(self.settings.deadline);
        let task = async {
            let task = pool.awaitable().serve_async(move || job.perform()).await;
            Ok::<_, String>(task.map_err(|refused| refused.to_string())?.await)
        };
        match timeout(self.settings.deadline, task).await {
            Err(_) => Err(format!("timed out after {:?}", self.settings.deadline)),
            Ok(Err(refused)) => Err(refused),
            Ok(Ok(Ok(result))) => result,
            Ok(Ok(Err(TaskError::Panicked(panic)))) => {
                Err(format!("panicked: {}", panic.message().unwrap_or_default()))
            }
            Ok(Ok(Err(never_ran))) => Err(never_ran.to_string()),
        }
    }

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
            if let Ok(Ok(status)) = timeout(queue::PATIENCE, queue::status(&self.db)).await {
                metrics::gauge!("jobs_dead_letters").set(status.dead as f64);
                metrics::gauge!("jobs_oldest_due_seconds").set(status.oldest_due);
            }
            sleep(Duration::from_secs(10)).await;
        }
    }

    fn options(self: &Arc<Self>, stop: impl Future<Output = ()> + Send + 'static) -> WorkerOptions {
        let Settings {
            workers,
            heartbeat,
            dead,
            grace,
            ..
        } = self.settings;
        let db = self.db.clone();
        // Without a local queue, a backlog is taken at `concurrency` jobs a poll. Without a delay, an
        // idle local queue asks the database all the time. Its jobs have used an attempt if the
        // process is killed, so it is small.
        let delay = RefetchDelayConfig::default().with_duration(REFETCH);
        let local = LocalQueueConfig::default()
            .with_size(workers)
            .with_refetch_delay(delay);
        WorkerOptions::default()
            .pg_pool(self.db.clone())
            .define_job::<Payload>()
            .add_extension(self.clone())
            .concurrency(workers)
            .poll_interval(POLL)
            .local_queue(local)
            .heartbeat_interval(heartbeat)
            .sweep_interval(heartbeat)
            .sweep_threshold(dead)
            .on(JobRecovery, move |context| recover(db.clone(), context))
            .listen_os_shutdown_signals(false)
            .shutdown_signal(stop)
            .shutdown_grace_period(grace)
            // By then this process, and with it the first run of the job, has ended.
            .shutdown_interrupted_job_retry_delay(END)
    }
}

/// Decides about a job whose process has ended. By default the engine gives the attempt back, so a
/// job that kills its process would do so for ever.
///
/// Jobs that died together do not come back together: the one that killed the others would do so
/// again, until all of them are dead letters. The time is the database's, as everywhere.
async fn recover(db: PgPool, context: JobRecoveryContext) -> JobRecoveryResult {
    if context.reason == FailureReason::ShutdownAborted {
        return JobRecoveryResult::Default; // it outlived the grace period: its attempt does not count
    }
    let attempts = *context.job.attempts();
    let later = "SELECT now() + (1 + random()) * exp(least($1, 10)) * interval '1 second'";
    let later = sqlx::query_scalar::<_, chrono::DateTime<chrono::Utc>>(later).bind(attempts);
    match later.fetch_one(&db).await {
        Ok(run_at) => JobRecoveryResult::Reschedule {
            run_at,
            attempts: Some(attempts),
        },
        Err(_) => JobRecoveryResult::FailWithBackoff,
    }
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
    // As many wait in the pool as run: the engine takes the next jobs while others still hang.
    let pool = Pool::builder()
        .max_workers(settings.workers)
        .queue_capacity(settings.workers)
        .thread_name("jobs");
    let pool = pool
        .build()
        .map_err(|error| Error::Settings(error.to_string()))?;
    let worker = Arc::new(Worker { settings, db, pool });
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
            let db = queue::open(settings).await;
            match db {
                Ok(db) => {
                    queue::status(&db).await?; // or `jobs setup` is missing
                    return Ok(db);
                }
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
