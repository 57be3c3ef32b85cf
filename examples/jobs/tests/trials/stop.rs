//! SIGTERM: jobs are given back, and the process ends in time.

use crate::bed::{Bed, LIMIT, Process, job, jobs, until};
use std::time::{Duration, Instant};

/// The grace period of the trials, and what the end may take beyond it.
const IN_TIME: Duration = Duration::from_secs(3 + 3);
/// A machine may be busy.
const BUSY: Duration = Duration::from_secs(10);

/// Each process stops in time, and gives its jobs back, with the attempt that they have not had.
#[tokio::test]
async fn sigterm_under_load() {
    let bed = Bed::new(&[]).await;
    let fleet = bed.fleet(2);
    let jobs = jobs(160, 100);
    bed.add(&jobs, 5).await;
    for n in 0..6 {
        bed.until_done(20 * (n as i64 + 1)).await;
        let start = Instant::now();
        fleet.send(n % 2, "TERM").expect("it runs");
        until("it stops", || fleet.ended().len() > n).await;
        assert!(start.elapsed() < IN_TIME + BUSY, "{:?}", start.elapsed());
    }
    bed.law(&jobs, &[]).await;
    bed.nothing_ran_twice().await;
    assert_eq!(bed.last_attempt().await, 1);
    assert_eq!(fleet.ended(), ["exit status: 0"; 6]);
}

/// A job that outlives the grace period is given back with its attempt, and done by another process.
#[tokio::test]
async fn a_job_that_outlives_the_grace_period() {
    let bed = Bed::new(&[("JOBS_GRACE_S", "1")]).await;
    let fleet = bed.fleet(1);
    let slow = [job("slow", 6000)];
    bed.add(&slow, 5).await;
    bed.until_held(1).await;
    let start = Instant::now();
    fleet.send(0, "TERM").expect("it runs");
    until("it stops", || !fleet.ended().is_empty()).await;
    assert!(start.elapsed() < IN_TIME + BUSY, "{:?}", start.elapsed());
    assert_eq!(fleet.ended(), ["exit status: 0"]);
    assert_eq!(bed.number("SELECT count(*) FROM done_keys").await, 0);
    bed.law(&slow, &[]).await;
    bed.nothing_ran_twice().await;
    assert_eq!(bed.last_attempt().await, 1);
}

/// The second SIGTERM ends a process at once. Others take its jobs when it counts as dead.
#[tokio::test]
async fn a_second_sigterm() {
    let bed = Bed::new(&[("JOBS_GRACE_S", "60")]).await;
    let slow = [job("slow", 8000)];
    bed.add(&slow, 5).await;
    let mut process = Process::start(&["work"], &bed.pairs());
    bed.until_held(1).await;
    process.signal("TERM");
    process.says("stopping");
    process.signal("TERM");
    let (status, _, said) = process.end();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("stopped at once"), "{said}");
    assert_eq!(bed.number("SELECT count(*) FROM done_keys").await, 0);
    let _fleet = bed.fleet(1);
    bed.law(&slow, &[]).await;
    bed.nothing_ran_twice().await;
    assert_eq!(bed.last_attempt().await, 2);
}

/// The end has a limit also where the database is silent.
#[tokio::test]
async fn sigterm_while_the_server_is_silent() {
    let bed = Bed::new(&[]).await;
    let jobs = jobs(40, 200);
    bed.add(&jobs, 5).await;
    let process = Process::start(&["work"], &bed.pairs());
    bed.until_done(4).await;
    bed.signal("STOP");
    process.signal("TERM");
    let (status, took, said) = process.end();
    bed.signal("CONT");
    assert!(status.code().is_some(), "{status}: {said}");
    assert!(took < IN_TIME + BUSY, "{took:?}");
    let _fleet = bed.fleet(1);
    bed.law(&jobs, &[]).await;
    assert!(LIMIT > IN_TIME + BUSY);
}
