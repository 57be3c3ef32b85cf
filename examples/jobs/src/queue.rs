//! The queue: its tables, the producer, and the keys of what is done.

use crate::{
    job::{Job, KIND},
    settings::Error,
};
use graphile_worker::WorkerUtils;
use sqlx::{PgPool, Postgres, Transaction};

/// What the jobs write, and which keys are done.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS done_keys (key text PRIMARY KEY, done_at timestamptz NOT NULL DEFAULT now());
    CREATE TABLE IF NOT EXISTS results (key text NOT NULL, result text NOT NULL, attempt smallint NOT NULL);
";

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
