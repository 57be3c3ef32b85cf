//! Dead letters, old keys, and what to watch.

use crate::settings::Error;
use sqlx::PgPool;

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
    let dead = sqlx::query_as(
        "SELECT id, key, last_error FROM graphile_worker.jobs
         WHERE attempts >= max_attempts AND locked_at IS NULL ORDER BY id",
    );
    let dead = dead.fetch_all(db).await?.into_iter();
    Ok(dead
        .map(|(id, key, reason)| Dead { id, key, reason })
        .collect())
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
    let status = sqlx::query_as(
        "SELECT count(*) FILTER (WHERE locked_at IS NULL AND attempts < max_attempts),
             count(*) FILTER (WHERE locked_at IS NOT NULL),
             count(*) FILTER (WHERE locked_at IS NULL AND attempts >= max_attempts),
             greatest(0, extract(epoch FROM now() - min(run_at)
                 FILTER (WHERE locked_at IS NULL AND attempts < max_attempts)))::float8
         FROM graphile_worker.jobs",
    );
    let (waiting, held, dead, oldest_due) = status.fetch_one(db).await?;
    Ok(Status {
        waiting,
        held,
        dead,
        oldest_due,
    })
}

/// Forgets keys that were done so many days ago. No producer may ask again after that.
pub async fn forget(db: &PgPool, days: i32) -> Result<u64, Error> {
    let old =
        sqlx::query("DELETE FROM done_keys WHERE done_at < now() - make_interval(days => $1)");
    Ok(old.bind(days).execute(db).await?.rows_affected())
}
