//! A job's way: the engine takes it from PostgreSQL, and a lazypool runs it.

use crate::{
    job::{Job, KIND},
    queue,
    settings::{Error, Settings},
};
use graphile_worker::{
    FailureReason, IntoTaskHandlerResult, JobRecovery, JobRecoveryContext, JobRecoveryResult,
    LocalQueueConfig, RefetchDelayConfig, TaskHandler, WorkerContext, WorkerOptions,
};
use lazypool::{Pool, TaskError};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, types::chrono};
use std::{fmt, sync::Arc, time::Duration};
use tokio::time::timeout;

/// How long an idle process takes to see a job that became due by time. New ones are notified.
const POLL: Duration = Duration::from_secs(1);
/// At most [`POLL`], or the engine refuses it.
const REFETCH: Duration = Duration::from_millis(500);
/// What the end of a process takes beyond the grace period: a second for the pool, two for the
/// database.
pub const END: Duration = Duration::from_secs(3);

/// What the jobs of a process share.
#[derive(Debug)]
pub struct Worker {
    /// The settings.
    pub settings: Settings,
    /// The database, also for the effects of the jobs.
    pub db: PgPool,
    /// The bound.
    pub pool: Pool,
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
    /// Builds the pool. As many jobs wait in it as run: the engine takes the next ones while others
    /// still hang.
    pub fn new(settings: Settings, db: PgPool) -> Result<Arc<Self>, Error> {
        let pool = Pool::builder()
            .max_workers(settings.workers)
            .queue_capacity(settings.workers)
            .thread_name("jobs");
        let pool = pool.build();
        let pool = pool.map_err(|error| Error::Settings(error.to_string()))?;
        Ok(Arc::new(Worker { settings, db, pool }))
    }

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

    /// Returns the engine's options, with an end that `stop` asks for.
    pub fn options(
        self: &Arc<Self>,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> WorkerOptions {
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
