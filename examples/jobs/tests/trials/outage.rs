//! A server that goes away, comes back, is silent, or can only be read.

use crate::bed::{Bed, Process, job, jobs};
use jobs::server;
use std::{
    thread::panicking,
    time::{Duration, Instant},
};
use tokio::time::sleep;

impl Bed {
    /// Sends a signal to all processes of the server.
    pub(crate) fn signal(&self, signal: &str) {
        for process in self.server.processes().expect("a server") {
            let _ = server::send(signal, &process); // a session may just have ended
        }
    }
}

/// A server that is stopped would never end, nor would the trial that has failed.
impl Drop for Bed {
    fn drop(&mut self) {
        if panicking() {
            for process in self.server.processes().unwrap_or_default() {
                let _ = server::send("CONT", &process); // it may have ended
            }
        }
    }
}

/// The server crashes under load and is started again. A producer gets an error, and adds its job
/// again with the same key.
#[tokio::test]
async fn a_server_that_crashes() {
    let mut bed = Bed::new(&[]).await;
    let fleet = bed.fleet(2);
    let mut all = jobs(100, 100);
    bed.add(&all, 5).await;
    bed.until_done(20).await;
    bed.server.stop("QUIT").expect("it runs");
    let late = job("late", 10);
    bed.try_add(std::slice::from_ref(&late), 5)
        .await
        .expect_err("no server");
    bed.server.run().expect("it starts");
    bed.add(std::slice::from_ref(&late), 5).await;
    all.push(late);
    bed.law(&all, &[]).await;
    assert_eq!(fleet.ended(), [""; 0], "the workers wait for the server");
}

/// The server is silent for longer than a process counts as dead, and than an attempt to reach it
/// takes.
#[tokio::test]
async fn a_server_that_is_silent() {
    let bed = Bed::new(&[]).await;
    let fleet = bed.fleet(2);
    let jobs = jobs(100, 100);
    bed.add(&jobs, 5).await;
    bed.until_done(20).await;
    bed.signal("STOP");
    sleep(Duration::from_secs(7)).await; // the silence itself
    bed.signal("CONT");
    bed.law(&jobs, &[]).await;
    assert_eq!(fleet.ended(), [""; 0], "the workers wait for the server");
}

/// A worker that is started before its server waits for it.
#[tokio::test]
async fn a_server_that_starts_later() {
    let mut bed = Bed::new(&[]).await;
    let jobs = jobs(10, 10);
    bed.add(&jobs, 5).await;
    bed.server.stop("INT").expect("it runs");
    let mut process = Process::start(&["work"], &bed.pairs());
    process.says("trying again");
    bed.server.run().expect("it starts");
    bed.law(&jobs, &[]).await;
    process.signal("TERM");
    let (status, _, said) = process.end();
    assert_eq!(status.code(), Some(0), "{said}");
}

/// While the server can only be read, as after a failover to a standby, no job is done and none is
/// lost.
#[tokio::test]
async fn a_server_that_becomes_read_only() {
    let bed = Bed::new(&[]).await;
    let fleet = bed.fleet(2);
    let jobs = jobs(100, 100);
    bed.add(&jobs, 5).await;
    bed.until_done(20).await;
    bed.run("ALTER SYSTEM SET default_transaction_read_only = on")
        .await;
    bed.run("SELECT pg_reload_conf()").await;
    let start = Instant::now();
    let done = "SELECT count(*) FROM done_keys";
    let mut before = bed.number(done).await;
    loop {
        sleep(Duration::from_secs(1)).await; // a second without a job that is done
        let now = bed.number(done).await;
        if now == before {
            break;
        }
        assert!(start.elapsed() < crate::bed::LIMIT, "{now} are done");
        before = now;
    }
    assert!(before < 100, "it became read-only in the middle");
    bed.run("ALTER SYSTEM RESET default_transaction_read_only")
        .await; // which is no transaction's
    bed.run("SELECT pg_reload_conf()").await;
    bed.law(&jobs, &[]).await;
    assert_eq!(fleet.ended(), [""; 0], "the workers wait for the server");
}

/// A worker that reaches the server, but gets no answer from the queue, waits, too.
#[tokio::test]
async fn a_queue_that_is_locked() {
    let bed = Bed::new(&[]).await;
    bed.run("ALTER DATABASE postgres SET lock_timeout = '500ms'")
        .await;
    let jobs = jobs(10, 10);
    bed.add(&jobs, 5).await;
    let mut lock = bed.db.begin().await.expect("a transaction");
    sqlx::query("LOCK TABLE graphile_worker._private_jobs")
        .execute(&mut *lock)
        .await
        .expect("a lock");
    let mut process = Process::start(&["work"], &bed.pairs());
    process.says("trying again");
    lock.rollback().await.expect("an end");
    bed.law(&jobs, &[]).await;
    process.signal("TERM");
    let (status, _, said) = process.end();
    assert_eq!(status.code(), Some(0), "{said}");
}
