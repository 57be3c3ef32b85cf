//! Two versions of the worker at once, and clocks that disagree.

use crate::bed::{Bed, Process, job, jobs};
use graphile_worker::{IntoTaskHandlerResult, TaskHandler, WorkerContext, WorkerOptions};
use jobs::queue;
use serde::{Deserialize, Serialize};
use std::{env, fs, process::Command};
use tokio::sync::oneshot;

/// The job of a newer worker.
#[derive(Deserialize, Serialize)]
struct JobV2 {
    key: String,
    recipients: Vec<String>,
}

impl TaskHandler for JobV2 {
    const IDENTIFIER: &'static str = "job.v2";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let attempt = *context.job().attempts();
        let db = context.get_ext::<sqlx::PgPool>().expect("added below");
        let to = self.recipients.join(", ");
        queue::finish(db, &self.key, &to, attempt)
            .await
            .map_err(|error| error.to_string())
    }
}

/// Old workers leave the jobs of a new version alone, and new ones those of the old version: none
/// loses an attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_versions_at_once() {
    let bed = Bed::new(&[]).await;
    let fleet = bed.fleet(1);
    let mut all = jobs(20, 10);
    bed.run(
        r#"SELECT graphile_worker.add_job('job.v2', json_build_object('key', 'v2-' || n, 'recipients', '["a"]'::json))
           FROM generate_series(1, 20) AS n"#,
    )
    .await;
    bed.add(&all, 5).await;
    bed.until_done(20).await;
    let untried = "SELECT count(*) FROM graphile_worker.jobs WHERE task_identifier = 'job.v2' AND attempts = 0";
    assert_eq!(bed.number(untried).await, 20);

    let (stop, stopped) = oneshot::channel::<()>();
    let newer = WorkerOptions::default()
        .pg_pool(bed.db.clone())
        .define_job::<JobV2>()
        .add_extension(bed.db.clone())
        .listen_os_shutdown_signals(false)
        .shutdown_signal(async move { drop(stopped.await) });
    let newer = newer.init().await.expect("a worker");
    let newer = tokio::spawn(async move { newer.run().await });
    let more: Vec<_> = (20..40).map(|n| job(n, 10)).collect();
    bed.add(&more, 5).await;
    all.extend(more);
    all.extend((1..=20).map(|n| job(format!("v2-{n}"), 0)));
    bed.law(&all, &[]).await;
    bed.nothing_ran_twice().await;
    assert_eq!(bed.last_attempt().await, 1);
    stop.send(()).expect("it runs");
    newer.await.expect("no panic").expect("an orderly end");
    assert_eq!(fleet.ended(), [""; 0]);
}

/// Moves the clock of a process by an hour.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>
__attribute__((constructor)) static void say(void) { (void)!write(2, "an hour ahead\n", 14); }
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += 3600;
    return result;
}
"#;

/// A worker whose clock is an hour ahead takes no job early, does not take the others for dead, and
/// retries when it is time: all times are the database's.
#[cfg(target_env = "gnu")]
#[tokio::test]
async fn a_clock_that_is_an_hour_ahead() {
    let dir = env::temp_dir().join(format!("jobs-clock-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a folder");
    let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
    fs::write(&source, CLOCK).expect("a file");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .status();
    assert!(
        compiled
            .expect("the C compiler, which Rust links with")
            .success()
    );

    let bed = Bed::new(&[]).await;
    let right = bed.fleet(1);
    let mut environment = bed.pairs();
    let library = library.to_str().expect("a name");
    environment.push(("LD_PRELOAD", library));
    let now = Command::new("date")
        .arg("+%s")
        .env("LD_PRELOAD", library)
        .output()
        .expect("date");
    let now: i64 = String::from_utf8_lossy(&now.stdout)
        .trim()
        .parse()
        .expect("seconds");
    assert!(
        (now - bed.number("SELECT extract(epoch FROM now())::bigint").await) >= 3000,
        "the clock is moved"
    );
    let mut ahead = Process::start(&["work"], &environment);
    ahead.says("an hour ahead");
    let beats = "SELECT count(*) FROM graphile_worker._private_workers";
    bed.until(beats, 2).await;

    bed.add(&[job("later", 0)], 5).await;
    bed.run("UPDATE graphile_worker._private_jobs SET run_at = now() + interval '30 minutes'")
        .await;
    let jobs = jobs(100, 100);
    bed.add(&jobs, 5).await;
    bed.until_done(100).await;
    assert_eq!(
        bed.last_attempt().await,
        1,
        "no one took the other for dead"
    );
    bed.nothing_ran_twice().await;
    let untried = "SELECT count(*) FROM graphile_worker.jobs WHERE key = 'later' AND attempts = 0";
    assert_eq!(bed.number(untried).await, 1);

    // It recovers the jobs of one that dies, and they wait for some seconds, not for an hour.
    let more: Vec<_> = (100..140).map(|n| job(n, 200)).collect();
    bed.add(&more, 5).await;
    bed.until_done(110).await;
    right.send(0, "KILL").expect("it runs");
    drop(right);
    bed.until_done(140).await;
    bed.nothing_ran_twice().await;
    assert!(
        bed.last_attempt().await > 1,
        "the killed process had held jobs"
    );
    ahead.signal("TERM");
    let (status, _, said) = ahead.end();
    assert_eq!(status.code(), Some(0), "{said}");
    fs::remove_dir_all(&dir).expect("the folder");
}
