//! The demo: two workers, one of which is killed; a job that ends its process, and one that hangs.

use crate::{
    admin,
    fleet::Fleet,
    job::{Fault, Job},
    queue,
    server::Server,
    settings::{self, Error, Settings},
};
use sqlx::{PgPool, Row};
use std::{
    env, io,
    time::{Duration, Instant},
};
use tokio::{
    select,
    signal::unix::{SignalKind, signal},
    time::sleep,
};

/// How many jobs have no fault.
const GOOD: usize = 200;

/// The attempts of a job that has a fault. The others have as many as by default.
const FEW: i16 = 3;

/// Short times, so that the demo takes less than a minute. `README.md` has those for production.
const TIMES: [(&str, &str); 4] = [
    ("JOBS_DEADLINE_S", "2"),
    ("JOBS_HEARTBEAT_S", "1"),
    ("JOBS_DEAD_S", "4"),
    ("JOBS_GRACE_S", "3"),
];

/// Runs the demo, on a server of its own unless `DATABASE_URL` is set.
pub async fn run() -> Result<(), Box<dyn std::error::Error>> {
    // From now on no signal ends this process before the server's files are removed.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (server, url) = match env::var("DATABASE_URL") {
        Ok(url) => (None, url),
        Err(_) => {
            println!(
                "starting a PostgreSQL server of its own in {}",
                env::temp_dir().display()
            );
            let server = Server::start()?;
            let url = server.url("postgres");
            (Some(server), url)
        }
    };
    let result = select! {
        result = story(&url) => result,
        _ = interrupt.recv() => Err("interrupted".into()),
        _ = terminate.recv() => Err("interrupted".into()),
    };
    if let Some(server) = server {
        drop(server);
        println!("the server has ended, and its files are removed");
    }
    result
}

async fn story(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut environment = TIMES.to_vec();
    environment.push(("DATABASE_URL", url));
    environment.push(("RUST_BACKTRACE", "0"));
    let settings = Settings::from_pairs(&environment)?;
    let db = settings::open(&settings).await?;
    queue::set_up(&db).await?;
    // In a database of yours, other jobs may be there, and those of an earlier demo.
    let run = format!("demo-{}", std::process::id());

    let start = Instant::now();
    let say = |text: String| println!("{:4.1} s  {text}", start.elapsed().as_secs_f64());
    let fleet = Fleet::start(&env::current_exe()?, 2, &environment)?;
    say(format!(
        "two workers have started: processes {}",
        fleet.processes().join(" and ")
    ));

    let job = |name: String, ms, fault| Job {
        key: format!("{run}-{name}"),
        ms,
        fault,
    };
    let jobs: Vec<_> = (0..GOOD).map(|n| job(n.to_string(), 100, None)).collect();
    let aborts = job("aborts".into(), 50, Some(Fault::Abort));
    let panics = job("panics".into(), 0, Some(Fault::Panic));
    let mut accepted = 0;
    let mut tx = db.begin().await?;
    accepted += queue::add(&mut tx, &jobs[..20], settings.attempts).await?;
    accepted += queue::add(&mut tx, &[aborts, panics], FEW).await?;
    accepted += queue::add(&mut tx, &jobs[20..], settings.attempts).await?;
    tx.commit().await?;
    say(format!(
        "{accepted} jobs are accepted: one aborts its process, one panics"
    ));
    let mut tx = db.begin().await?;
    let twice = queue::add(&mut tx, &jobs[..10], settings.attempts).await?;
    tx.commit().await?;
    say(format!(
        "10 of them were added again, by a producer that got no answer: {twice} new"
    ));

    until(&db, &run, |sum| sum.done >= GOOD as i64 / 4).await?;
    fleet.send(0, "KILL")?;
    say(format!(
        "SIGKILL to one worker, in the middle; {}",
        sum(&db, &run).await?
    ));
    let mut tx = db.begin().await?;
    let hangs = job("hangs".into(), 0, Some(Fault::Hang));
    accepted += queue::add(&mut tx, &[hangs], FEW).await?;
    tx.commit().await?;
    say("a job is added that hangs: no thread can be stopped, but its worker is counted".into());
    let mut told = Instant::now();
    loop {
        let now = sum(&db, &run).await?;
        if now.done + now.dead == i64::try_from(accepted)? {
            break;
        }
        if told.elapsed() > Duration::from_secs(5) {
            say(now.to_string());
            told = Instant::now();
        }
        if start.elapsed() > Duration::from_secs(180) {
            return Err(format!("not done within three minutes: {now}").into());
        }
        sleep(Duration::from_millis(100)).await;
    }
    let unplanned = fleet.ended();
    say(format!(
        "all jobs have ended; processes that were started again: {}",
        unplanned.join(", ")
    ));
    let (ended, took) = tokio::task::spawn_blocking(|| fleet.stop()).await??;
    say(format!(
        "SIGTERM to both workers: {} after {:.1} s",
        ended.join(", "),
        took.as_secs_f64()
    ));
    report(&db, &run, accepted).await
}

/// What has become of the demo's jobs.
struct Sum {
    done: i64,
    dead: i64,
    left: i64,
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} done, {} dead, {} wait or run",
            self.done, self.dead, self.left
        )
    }
}

async fn sum(db: &PgPool, run: &str) -> Result<Sum, Error> {
    let sum = "SELECT (SELECT count(*) FROM done_keys WHERE key LIKE $1) AS done,
                   count(*) FILTER (WHERE attempts >= max_attempts AND locked_at IS NULL) AS dead,
                   count(*) FILTER (WHERE attempts < max_attempts OR locked_at IS NOT NULL) AS left
               FROM graphile_worker.jobs WHERE key LIKE $1";
    let row = sqlx::query(sum)
        .bind(format!("{run}-%"))
        .fetch_one(db)
        .await?;
    Ok(Sum {
        done: row.get("done"),
        dead: row.get("dead"),
        left: row.get("left"),
    })
}

async fn until(db: &PgPool, run: &str, enough: impl Fn(&Sum) -> bool) -> Result<(), Error> {
    while !enough(&sum(db, run).await?) {
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn report(db: &PgPool, run: &str, accepted: u64) -> Result<(), Box<dyn std::error::Error>> {
    let like = format!("{run}-%");
    let counts =
        "SELECT count(*) FILTER (WHERE n = 1) AS once, count(*) FILTER (WHERE n > 1) AS twice,
                      count(*) FILTER (WHERE attempt > 1) AS again
                  FROM (SELECT key, count(*) AS n, max(attempt) AS attempt FROM results
                        WHERE key LIKE $1 GROUP BY key) AS done";
    let counts = sqlx::query(counts).bind(&like).fetch_one(db).await?;
    let (once, twice, again): (i64, i64, i64) =
        (counts.get("once"), counts.get("twice"), counts.get("again"));
    let dead: Vec<_> = admin::dead(db)
        .await?
        .into_iter()
        .filter(|d| d.key.as_ref().is_some_and(|k| k.starts_with(run)))
        .collect();
    let lost = i64::try_from(accepted)? - once - twice - i64::try_from(dead.len())?;
    println!("\naccepted          {accepted:5}");
    println!(
        "done once         {once:5}  ({again} of them were begun again, after their process had ended)"
    );
    println!("done twice        {twice:5}");
    println!("dead              {:5}", dead.len());
    for dead in &dead {
        println!(
            "    {}: {}",
            dead.key.as_deref().unwrap_or_default(),
            dead.reason.as_deref().unwrap_or_default()
        );
    }
    println!("lost              {lost:5}\n");
    if (once, twice, dead.len(), lost) == (i64::try_from(GOOD)?, 0, 3, 0) {
        Ok(())
    } else {
        Err(io::Error::other("not what the demo should show").into())
    }
}
