//! The measurements of the README: jobs a second, and what an idle worker asks.

use crate::{
    fleet::Fleet,
    job::Job,
    queue,
    server::Server,
    settings::{self, Error, Settings},
};
use sqlx::PgPool;
use std::{
    env,
    time::{Duration, Instant},
};
use tokio::time::sleep;

const JOBS: i64 = 20_000;
const IDLE: Duration = Duration::from_secs(20);

/// Measures, and prints one line for each figure.
pub async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::start()?;
    let url = server.url("postgres");
    let environment = [("DATABASE_URL", &*url)];
    let settings = Settings::from_pairs(&environment)?;
    let db = settings::open(&settings).await?;
    queue::set_up(&db).await?;
    let program = env::current_exe()?;

    // One connection that is outside of the pool's count, and asks twice only.
    let fleet = Fleet::start(&program, 1, &environment)?;
    sleep(Duration::from_secs(5)).await;
    let before = transactions(&db).await?;
    sleep(IDLE).await;
    let idle = transactions(&db).await? - before;
    fleet.stop()?;
    println!(
        "idle, one worker process: {:.1} transactions a second",
        idle as f64 / IDLE.as_secs_f64()
    );

    let jobs: Vec<_> = (0..JOBS)
        .map(|n| Job {
            key: n.to_string(),
            ms: 0,
            fault: None,
        })
        .collect();
    let start = Instant::now();
    for jobs in jobs.chunks(200) {
        let mut tx = db.begin().await?;
        queue::add(&mut tx, jobs, settings.attempts).await?;
        tx.commit().await?;
    }
    println!(
        "jobs added a second, 200 in a transaction: {:.0}",
        JOBS as f64 / start.elapsed().as_secs_f64()
    );
    let start = Instant::now();
    let fleet = Fleet::start(&program, 2, &environment)?;
    while done(&db).await? < JOBS {
        sleep(Duration::from_millis(100)).await;
    }
    let rate = JOBS as f64 / start.elapsed().as_secs_f64();
    println!(
        "{JOBS} empty jobs, two worker processes: {rate:.0} done a second, their start included"
    );
    fleet.stop()?;
    Ok(())
}

async fn done(db: &PgPool) -> Result<i64, Error> {
    Ok(sqlx::query_scalar("SELECT count(*) FROM results")
        .fetch_one(db)
        .await?)
}

/// Returns how many transactions the database has seen, a few of them this one's.
async fn transactions(db: &PgPool) -> Result<i64, Error> {
    let count = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    Ok(sqlx::query_scalar(count).fetch_one(db).await?)
}
