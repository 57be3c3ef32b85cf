//! The queue's other end: the schema, the producer, done keys, dead letters.

use crate::{
    job::{Job, KIND},
    settings::{Error, Settings},
};
use graphile_worker::WorkerUtils;
use sqlx::{
    Connection, PgConnection, PgPool, Postgres, Row, Transaction,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::time::Duration;

/// How long one attempt to reach the database may take.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// What the jobs write, and which keys are done.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS done_keys (key text PRIMARY KEY, done_at timestamptz NOT NULL DEFAULT now());
    CREATE TABLE IF NOT EXISTS results (key text NOT NULL, result text NOT NULL, attempt smallint NOT NULL);
";

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        // A wrong user or password, no such database, not permitted, only readable.
        const SETTINGS: [&str; 7] = [
            "28000", "28P01", "3D000", "3F000", "42P01", "42501", "25006",
        ];
        let code = error.as_database_error().and_then(|error| error.code());
        match (&error, code) {
            (sqlx::Error::Configuration(what), _) => {
                Error::Settings(format!("DATABASE_URL: {what}"))
            }
            (_, Some(code)) if *code == *"42P01" => {
                Error::Settings(format!("{error}: run `jobs setup` first"))
            }
            (_, Some(code)) if SETTINGS.contains(&&*code) => Error::Settings(error.to_string()),
            _ => Error::Outage(error.to_string()),
        }
    }
}

/// Connects once, to learn what is wrong; returns connections that come back after an outage.
pub async fn open(settings: &Settings) -> Result<PgPool, Error> {
    let options: PgConnectOptions = settings.url.parse()?;
    let options = options.application_name("jobs");
    let look = async {
        let mut db = PgConnection::connect_with(&options).await?;
        let read_only = "SELECT current_setting('transaction_read_only') = 'on'";
        let read_only: bool = sqlx::query_scalar(read_only).fetch_one(&mut db).await?;
        db.close().await?;
        Ok::<_, Error>(read_only)
    };
    match tokio::time::timeout(PATIENCE, look).await {
        Err(_) => return Err(Error::Outage(format!("no answer within {PATIENCE:?}"))),
        Ok(Err(error)) => return Err(error),
        Ok(Ok(true)) => {
            return Err(Error::Settings(String::from(
                "DATABASE_URL: the database is read-only",
            )));
        }
        Ok(Ok(false)) => {}
    }
    // One for each job, the rest for the engine: its fetch, heartbeat, sweep and notifications.
    let pool = PgPoolOptions::new()
        .max_connections(u32::try_from(settings.workers).expect("at most 1000") + 5);
    Ok(pool.acquire_timeout(PATIENCE).connect_lazy_with(options))
}

/// Creates the engine's schema and our tables, or updates them.
pub async fn set_up(db: &PgPool) -> Result<(), Error> {
    let utils = WorkerUtils::new(db.clone(), "graphile_worker");
    utils
        .migrate()
        .await
        .map_err(|error| Error::Outage(error.to_string()))?;
    sqlx::raw_sql(TABLES).execute(db).await?;
    Ok(())
}

/// Adds jobs within the caller's transaction, beside the data that they belong to. Returns how many
/// are new: a key that is queued, running, dead or done adds nothing.
///
/// If the commit brings no answer, the caller cannot know whether the jobs are there, and adds them
/// again with the same keys.
pub async fn add(
    tx: &mut Transaction<'_, Postgres>,
    jobs: &[Job],
    attempts: i16,
) -> Result<u64, Error> {
    let json: Result<Vec<_>, _> = jobs.iter().map(Job::to_json).collect();
    let json = json.map_err(Error::Settings)?;
    let keys: Vec<_> = jobs.iter().map(|job| job.key.clone()).collect();
    // `add_job` counts `revision` up where the key is there already.
    let new: i64 = sqlx::query_scalar(
        "SELECT count(*) FILTER (WHERE added.revision = 0)
         FROM unnest($1::text[], $2::text[]) AS new (key, json),
             LATERAL graphile_worker.add_job(identifier => $3, payload => json::json, max_attempts => $4,
                 job_key => new.key, job_key_mode => 'unsafe_dedupe') AS added
         WHERE NOT EXISTS (SELECT FROM done_keys WHERE done_keys.key = new.key)",
    )
    .bind(keys)
    .bind(json)
    .bind(KIND)
    .bind(i32::from(attempts))
    .fetch_one(&mut **tx)
    .await?;
    Ok(new.unsigned_abs())
}

/// Returns whether a job with this key has been done.
pub async fn is_done(db: &PgPool, key: &str) -> Result<bool, Error> {
    let done = sqlx::query_scalar("SELECT EXISTS (SELECT FROM done_keys WHERE key = $1)");
    Ok(done.bind(key).fetch_one(db).await?)
}

/// Stores the key, and the result unless another run of the job was faster: in one transaction, as
/// one statement is. Put your own writes beside the result's, or begin a transaction for them, which
/// costs two more round trips.
pub async fn finish(db: &PgPool, key: &str, result: &str, attempt: i16) -> Result<(), Error> {
    // A second transaction with the key waits here for the first one.
    let finish = sqlx::query(
        "WITH first AS (INSERT INTO done_keys (key) VALUES ($1) ON CONFLICT DO NOTHING RETURNING key)
         INSERT INTO results (key, result, attempt) SELECT key, $2, $3 FROM first",
    );
    let finish = finish.bind(key).bind(result).bind(attempt);
    finish.execute(db).await?;
    Ok(())
}

/// Forgets keys that were done so many days ago. No producer may ask again after that.
pub async fn forget(db: &PgPool, days: i32) -> Result<u64, Error> {
    let old =
        sqlx::query("DELETE FROM done_keys WHERE done_at < now() - make_interval(days => $1)");
    Ok(old.bind(days).execute(db).await?.rows_affected())
}

/// A job that will not be tried again.
#[derive(Debug)]
pub struct Dead {
    /// Its number in the queue.
    pub id: i64,
    /// Its key, unless it was added without one.
    pub key: Option<String>,
    /// Why its last attempt failed.
    pub reason: Option<String>,
}

/// Returns the dead letters, oldest first.
pub async fn dead(db: &PgPool) -> Result<Vec<Dead>, Error> {
    let dead = "SELECT id, key, last_error AS reason FROM graphile_worker.jobs
                WHERE attempts >= max_attempts AND locked_at IS NULL ORDER BY id";
    let rows = sqlx::query(dead).fetch_all(db).await?;
    let dead = rows.into_iter().map(|row| Dead {
        id: row.get("id"),
        key: row.get("key"),
        reason: row.get("reason"),
    });
    Ok(dead.collect())
}

/// Gives dead letters all their attempts again. Returns how many there were.
pub async fn revive(db: &PgPool, ids: &[i64]) -> Result<u64, Error> {
    let revive = "SELECT id FROM graphile_worker.reschedule_jobs(
                      ARRAY(SELECT id FROM graphile_worker.jobs
                            WHERE id = ANY($1) AND attempts >= max_attempts AND locked_at IS NULL),
                      run_at => now(), attempts => 0)";
    Ok(sqlx::query(revive).bind(ids).fetch_all(db).await?.len() as u64)
}

/// What to watch.
#[derive(Debug)]
pub struct Status {
    /// Jobs that wait for their turn, those with a later `run_at` included.
    pub waiting: i64,
    /// Jobs that a process holds.
    pub held: i64,
    /// Jobs that will not be tried again.
    pub dead: i64,
    /// How long the oldest due job has waited, in seconds. 0: none is due.
    pub oldest_due: f64,
}

/// Returns what to watch.
pub async fn status(db: &PgPool) -> Result<Status, Error> {
    let status = "SELECT count(*) FILTER (WHERE locked_at IS NULL AND attempts < max_attempts) AS waiting,
                      count(*) FILTER (WHERE locked_at IS NOT NULL) AS held,
                      count(*) FILTER (WHERE locked_at IS NULL AND attempts >= max_attempts) AS dead,
                      greatest(0, extract(epoch FROM now() - min(run_at)
                          FILTER (WHERE locked_at IS NULL AND attempts < max_attempts)))::float8 AS oldest_due
                  FROM graphile_worker.jobs";
    let row = sqlx::query(status).fetch_one(db).await?;
    Ok(Status {
        waiting: row.get("waiting"),
        held: row.get("held"),
        dead: row.get("dead"),
        oldest_due: row.get::<Option<f64>, _>("oldest_due").unwrap_or(0.0),
    })
}
