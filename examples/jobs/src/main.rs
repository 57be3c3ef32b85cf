//! `jobs setup | work | add | status | dead | revive | forget | demo | bench`: see `README.md`.

use jobs::{
    admin, bench, demo, fleet,
    job::{Fault, Job},
    process::{self as work, Ended},
    queue,
    settings::{self, Error, Settings},
};
use std::{
    env, io,
    process::{self, ExitCode},
    thread,
};

const USAGE: &str = "\
usage: jobs COMMAND, with DATABASE_URL=postgres://USER@HOST/DATABASE

  setup              creates or updates the tables
  work               a worker process: run as many as you like
  add KEY [MS]       adds a job whose work takes MS milliseconds
  status             waiting, held and dead jobs, and the age of the oldest due one
  dead               lists the dead letters
  revive ID...       gives dead letters all their attempts again
  forget DAYS        forgets keys that were done so many days ago
  demo               shows all of it, on a server of its own without DATABASE_URL
  bench              measures rates, on a server of its own";

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args).await {
        // Without waiting for threads that hang.
        Ok(code) => process::exit(code),
        Err(error) => {
            eprintln!("{error}");
            let settings = error
                .downcast_ref()
                .is_some_and(|e| matches!(e, Error::Settings(_)));
            ExitCode::from(if settings { 2 } else { 1 })
        }
    }
}

/// Returns the exit code: 0, 75 for a process that is to be started again, 2 for a wrong use.
async fn run(args: &[&str]) -> Result<i32, Box<dyn std::error::Error>> {
    match *args {
        ["demo"] => return demo::run().await.map(|()| 0),
        ["bench"] => return bench::run().await.map(|()| 0),
        ["setup" | "work" | "status" | "dead"]
        | ["add" | "forget", _]
        | ["add", _, _]
        | ["revive", _, ..] => {}
        _ => {
            eprintln!("{USAGE}");
            return Ok(2);
        }
    }
    let settings = Settings::from_env()?;
    if args == ["work"] {
        if env::var_os(fleet::END_WITH_STDIN).is_some() {
            thread::spawn(|| {
                let _ = io::copy(&mut io::stdin(), &mut io::sink());
                process::exit(1);
            });
        }
        return Ok(match work::work(settings).await? {
            Ended::Stopped => 0,
            Ended::Hung => 75,
        });
    }
    let db = settings::open(&settings).await?;
    match *args {
        ["setup"] => queue::set_up(&db).await?,
        ["add", key, ref rest @ ..] => {
            let ms = rest
                .first()
                .map_or(Ok(100), |ms| ms.parse())
                .map_err(|_| "MS must be a number")?;
            // For the demo and the tests: what goes wrong with the job.
            let fault: Option<Fault> = match env::var("FAULT") {
                Ok(fault) => Some(serde_json::from_value(fault.into())?),
                Err(_) => None,
            };
            let job = Job {
                key: key.into(),
                ms,
                fault,
            };
            let mut tx = db.begin().await.map_err(Error::from)?; // here: your own writes, in the same transaction
            let new = queue::add(&mut tx, &[job], settings.attempts).await?;
            tx.commit().await.map_err(Error::from)?;
            println!(
                "{}",
                if new == 1 {
                    "added"
                } else {
                    "known: queued, running, dead or done"
                }
            );
        }
        ["status"] => {
            let status = admin::status(&db).await?;
            let (waiting, held, dead) = (status.waiting, status.held, status.dead);
            println!(
                "{waiting} wait, {held} held, {dead} dead, the oldest due for {:.0} s",
                status.oldest_due
            );
        }
        ["dead"] => {
            for dead in admin::dead(&db).await? {
                println!(
                    "{}  {}  {}",
                    dead.id,
                    dead.key.unwrap_or_default(),
                    dead.reason.unwrap_or_default()
                );
            }
        }
        ["revive", ref ids @ ..] => {
            let ids: Result<Vec<i64>, _> = ids.iter().map(|id| id.parse()).collect();
            println!(
                "{} revived",
                admin::revive(&db, &ids.map_err(|_| "an ID is a number")?).await?
            );
        }
        ["forget", days] => {
            let days = days.parse().map_err(|_| "DAYS must be a number")?;
            println!("{} forgotten", admin::forget(&db, days).await?);
        }
        _ => unreachable!("checked above"),
    }
    Ok(0)
}
