//! Processes that die, and jobs that kill or hang them.

use crate::bed::{Bed, faulty, job, jobs, until};
use jobs::job::Fault;
use std::time::Duration;

/// SIGKILL in the middle of jobs, twice: others take the jobs, and each is done once.
#[tokio::test]
async fn a_killed_worker() {
    let bed = Bed::new(&[]).await;
    let fleet = bed.fleet(2);
    let jobs = jobs(100, 200);
    bed.add(&jobs, 5).await;
    for (process, done) in [(0, 20), (1, 40)] {
        bed.until_done(done).await;
        fleet.send(process, "KILL").expect("it runs");
    }
    bed.law(&jobs, &[]).await;
    bed.nothing_ran_twice().await;
    assert!(
        bed.last_attempt().await > 1,
        "the killed processes had held jobs"
    );
    assert_eq!(fleet.ended(), ["signal: 9 (SIGKILL)"; 2]);
}

/// A job that ends its process does so as often as it has attempts, then it is dead. Those beside it
/// have more attempts, and are done once.
#[tokio::test]
async fn a_poison_job() {
    let bed = Bed::new(&[("JOBS_DEAD_S", "3")]).await;
    let jobs = jobs(40, 20);
    bed.add(&[faulty("poison", Fault::Abort)], 3).await;
    bed.add(&jobs, 5).await;
    let fleet = bed.fleet(2);
    // No one waits for the backoff here: it would be half a minute.
    let hurried = "WITH hurried AS (UPDATE graphile_worker._private_jobs SET run_at = now()
                       WHERE locked_at IS NULL AND run_at > now())
                   SELECT count(*) FROM graphile_worker.jobs WHERE attempts >= max_attempts AND locked_at IS NULL";
    bed.until(hurried, 1).await;
    bed.law(&jobs, &[("poison", "recovered after worker interruption")])
        .await;
    bed.nothing_ran_twice().await;
    let ended = fleet.ended();
    assert_eq!(ended.len(), 3, "{ended:?}");
    assert!(
        ended.iter().all(|how| how.starts_with("signal: 6")),
        "{ended:?}"
    );
}

/// A job that hangs is dead after its attempts. The others run beside it. When half of the workers
/// hang, the process ends to be replaced, and the next jobs run in the new one.
#[tokio::test]
async fn a_hung_job() {
    let bed = Bed::new(&[
        ("JOBS_DEADLINE_S", "1"),
        ("JOBS_HUNG_S", "2"),
        ("JOBS_WORKERS", "4"),
    ])
    .await;
    let fleet = bed.fleet(1);
    bed.add(&[faulty("hang", Fault::Hang)], 2).await;
    let mut all = jobs(40, 20);
    bed.add(&all, 5).await;
    bed.law(&all, &[("hang", "timed out after 1s")]).await;
    until("the process ends", || !fleet.ended().is_empty()).await;
    assert_eq!(fleet.ended(), ["exit status: 75"]);
    let later = job("later", 20);
    bed.add(std::slice::from_ref(&later), 5).await;
    all.push(later);
    bed.law(&all, &[("hang", "timed out after 1s")]).await;
    bed.nothing_ran_twice().await;
    let (ended, _) = fleet.stop().expect("processes");
    assert_eq!(ended, ["exit status: 0"]);
}

/// A worker that was stopped for longer than the others wait runs its jobs beside theirs, but the
/// effects take place once. All of its jobs are past their deadline when it goes on; it stays.
#[tokio::test]
async fn a_worker_that_was_stopped() {
    let bed = Bed::new(&[("JOBS_DEADLINE_S", "2")]).await;
    let fleet = bed.fleet(2);
    let jobs = jobs(60, 300);
    bed.add(&jobs, 5).await;
    bed.until_done(8).await;
    fleet.send(0, "STOP").expect("it runs");
    // The other one, and what the stopped one has held.
    bed.until_done(60).await;
    fleet.send(0, "CONT").expect("it is stopped");
    bed.law(&jobs, &[]).await;
    tokio::time::sleep(Duration::from_secs(1)).await; // for what the stopped one may still do
    bed.law(&jobs, &[]).await;
    assert!(
        bed.last_attempt().await > 1,
        "the stopped process had held jobs"
    );
    assert_eq!(fleet.ended(), [""; 0]);
}

/// What fails or panics is tried again, and is dead with its reason in the end.
#[tokio::test]
async fn failures_and_panics() {
    let bed = Bed::new(&[]).await;
    let good = jobs(20, 10);
    bed.add(
        &[faulty("fail", Fault::Fail), faulty("panic", Fault::Panic)],
        2,
    )
    .await;
    bed.add(&good, 5).await;
    let fleet = bed.fleet(1);
    bed.law(
        &good,
        &[
            ("fail", "the mail server is down"),
            ("panic", "panicked: a bug"),
        ],
    )
    .await;
    let tries = "SELECT sum(attempts)::bigint FROM graphile_worker.jobs";
    assert_eq!(bed.number(tries).await, 4);
    assert_eq!(fleet.ended(), [""; 0]);
}
