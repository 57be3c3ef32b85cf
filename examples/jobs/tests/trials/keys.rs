//! Idempotency keys.

use crate::bed::{Bed, faulty, job};
use jobs::{admin, job::Fault, queue};

const WAITING: &str = "SELECT count(*) FROM graphile_worker.jobs WHERE locked_at IS NULL";

/// A key adds nothing before its job runs, while it runs, after it is done, and when it is dead.
#[tokio::test]
async fn a_key_that_is_known() {
    let bed = Bed::new(&[]).await;
    let slow = [job("slow", 3000)];
    bed.add(&slow, 5).await;
    assert_eq!(bed.try_add(&slow, 5).await.expect("before"), 0);
    assert_eq!(bed.number(WAITING).await, 1);
    let _fleet = bed.fleet(2);
    bed.until_held(1).await;
    assert_eq!(bed.try_add(&slow, 5).await.expect("while"), 0);
    assert_eq!(
        bed.number("SELECT count(*) FROM done_keys").await,
        0,
        "it still runs"
    );
    bed.law(&slow, &[]).await;
    assert_eq!(bed.try_add(&slow, 5).await.expect("after"), 0);
    let fails = [faulty("fails", Fault::Fail)];
    bed.add(&fails, 1).await;
    bed.law(&slow, &[("fails", "mail server")]).await;
    assert_eq!(bed.try_add(&fails, 5).await.expect("dead"), 0);
    bed.law(&slow, &[("fails", "mail server")]).await;
    bed.nothing_ran_twice().await;
    // A key that is forgotten is new again.
    assert_eq!(admin::forget(&bed.db, 0).await.expect("an answer"), 1);
    bed.add(&slow, 5).await;
    bed.until_done(1).await;
}

/// Two producers use a key at once: the second one waits for the first, and adds nothing.
#[tokio::test]
async fn a_key_that_two_producers_use_at_once() {
    let bed = Bed::new(&[]).await;
    let same = [job("same", 10)];
    for first_commits in [true, false] {
        let mut first = bed.db.begin().await.expect("a transaction");
        assert_eq!(queue::add(&mut first, &same, 5).await.expect("new"), 1);
        let db = bed.db.clone();
        let jobs = same.clone();
        let second = tokio::spawn(async move {
            let mut second = db.begin().await.expect("a transaction");
            let new = queue::add(&mut second, &jobs, 5).await.expect("an answer");
            second.commit().await.expect("a commit");
            new
        });
        bed.until(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
            1,
        )
        .await;
        assert!(!second.is_finished());
        if first_commits {
            first.commit().await.expect("a commit");
        } else {
            first.rollback().await.expect("a rollback");
        }
        let new = second.await.expect("no panic");
        assert_eq!(new, u64::from(!first_commits));
        assert_eq!(bed.number(WAITING).await, 1);
        bed.run("DELETE FROM graphile_worker._private_jobs").await;
    }
    let twice = [same[0].clone(), same[0].clone()];
    assert_eq!(bed.try_add(&twice, 5).await.expect("an answer"), 1);
    let _fleet = bed.fleet(1);
    bed.law(&same, &[]).await;
}

/// Two runs of a job that end at once have one effect. The trials' count of runs sees both.
#[tokio::test]
async fn two_runs_of_one_job() {
    let bed = Bed::new(&[]).await;
    let finish = |result| queue::finish(&bed.db, "same", result, 1);
    let (a, b) = tokio::join!(finish("a"), finish("b"));
    a.and(b).expect("both end");
    bed.law(&[job("same", 0)], &[]).await;
    assert_eq!(bed.number("SELECT count(*) FROM finishes").await, 2);
}

/// A transaction that is rolled back adds no job.
#[tokio::test]
async fn jobs_come_with_their_transaction() {
    let bed = Bed::new(&[]).await;
    let mut tx = bed.db.begin().await.expect("a transaction");
    assert_eq!(
        queue::add(&mut tx, &[job("no", 0)], 5).await.expect("new"),
        1
    );
    tx.rollback().await.expect("a rollback");
    assert_eq!(bed.number(WAITING).await, 0);
}
