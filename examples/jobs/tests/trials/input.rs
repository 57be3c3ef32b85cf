//! Payloads, settings and databases that are wrong.

use crate::bed::{Bed, Process, job, jobs};
use jobs::job::{KIND, MAX_BYTES};
use std::net::TcpListener;

/// The size of a job that nobody should add.
const HUGE: usize = 50 << 20;

impl Bed {
    /// Adds a job as another program may: with any payload, an SQL expression.
    async fn add_raw(&self, key: &str, payload: &str) -> Result<(), sqlx::Error> {
        // Two attempts: a worker whose engine gets no connection in time, as beside a load, loses one.
        let add = format!(
            "SELECT 1 FROM graphile_worker.add_job('{KIND}', payload => {payload}, job_key => '{key}', max_attempts => 2)"
        );
        sqlx::query(sqlx::AssertSqlSafe(add))
            .execute(&self.db)
            .await
            .map(drop)
    }
}

/// What cannot be read is dead with the reason, the others are done.
#[tokio::test]
async fn payloads_that_are_malformed() {
    let bed = Bed::new(&[]).await;
    let error = bed
        .add_raw("no-json", "'{\"key\":'::json")
        .await
        .expect_err("no JSON");
    assert!(
        error
            .to_string()
            .contains("invalid input syntax for type json"),
        "{error}"
    );
    for (key, payload) in [
        ("string", r#"'"long"'::json"#),
        ("null", "'null'::json"),
        ("list", "'[1]'::json"),
        ("missing", r#"'{"key": "k"}'::json"#),
        ("newer", r#"'{"key": "k", "ms": 0, "since_v2": 1}'::json"#),
        ("type", r#"'{"key": "k", "ms": "long"}'::json"#),
        ("no-key", r#"'{"key": "", "ms": 0}'::json"#),
        (
            "long-key",
            "json_build_object('key', repeat('long', 100), 'ms', 0)",
        ),
    ] {
        bed.add_raw(key, payload).await.expect(key);
    }
    let good = jobs(20, 10);
    bed.add(&good, 5).await;
    let fleet = bed.fleet(1);
    let dead = [
        ("string", "expected"),
        ("null", "expected"),
        ("list", "expected"),
        ("missing", "missing field `ms`"),
        ("newer", "unknown field `since_v2`"),
        ("type", "expected u64"),
        ("no-key", "a key of 0 bytes: 1 to 200"),
        ("long-key", "a key of 400 bytes: 1 to 200"),
    ];
    bed.law(&good, &dead).await;
    assert_eq!(fleet.ended(), [""; 0]);
}

/// A job of 50 MB is refused. From another program it is dead with the reason, which is short.
#[tokio::test]
async fn payloads_that_are_huge() {
    let bed = Bed::new(&[]).await;
    let huge = job("x".repeat(HUGE), 0);
    let error = bed.try_add(&[huge], 5).await.expect_err("too large");
    assert!(
        error.to_string().contains(&format!("at most {MAX_BYTES}")),
        "{error}"
    );
    assert_eq!(
        bed.number("SELECT count(*) FROM graphile_worker.jobs")
            .await,
        0
    );
    let repeat = format!("repeat('x', {HUGE})");
    bed.add_raw("a-string", &format!("to_json({repeat})"))
        .await
        .expect("a job");
    bed.add_raw(
        "a-key",
        &format!("json_build_object('key', {repeat}, 'ms', 0)"),
    )
    .await
    .expect("a job");
    bed.add_raw(
        "a-field",
        &format!("json_build_object('key', 'k', 'ms', 0, {repeat}, 0)"),
    )
    .await
    .expect("a job");
    bed.add_raw(
        "a-fault",
        &format!("json_build_object('key', 'k', 'ms', 0, 'fault', {repeat})"),
    )
    .await
    .expect("a job");
    let good = jobs(20, 10);
    bed.add(&good, 5).await;
    let fleet = bed.fleet(1);
    let says = format!("at most {MAX_BYTES}");
    let dead = ["a-fault", "a-field", "a-key", "a-string"].map(|key| (key, &*says));
    bed.law(&good, &dead).await;
    assert!(
        bed.number("SELECT max(length(last_error))::bigint FROM graphile_worker.jobs")
            .await
            < 1000
    );
    assert_eq!(fleet.ended(), [""; 0], "the worker has survived them");
}

/// Runs a command that must fail. Returns its exit code and what it said.
fn fails(args: &[&str], environment: &[(&str, &str)]) -> (i32, String) {
    let (status, _, said) = Process::start(args, environment).end();
    (status.code().expect("no signal"), said)
}

/// A worker ends at once with the reason: it does not take a mistake for an outage.
#[tokio::test]
async fn settings_that_are_wrong() {
    let bed = Bed::new(&[]).await;
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("bound").to_string();
    let url = bed.server.url("postgres");
    for (name, value, says) in [
        (
            "JOBS_WORKERS",
            "0",
            "JOBS_WORKERS=0: must be a whole number from 1 to 1000",
        ),
        ("JOBS_WORKERS", "1001", "from 1 to 1000"),
        ("JOBS_WORKERS", "four", "JOBS_WORKERS=four: must be"),
        ("JOBS_DEADLINE_S", "1.5", "JOBS_DEADLINE_S=1.5: must be"),
        ("JOBS_ATTEMPTS", "-1", "JOBS_ATTEMPTS=-1: must be"),
        ("JOBS_GRACE_S", "", "JOBS_GRACE_S=: must be"),
        (
            "JOBS_DEAD_S",
            "5",
            "JOBS_DEAD_S must be at least three times JOBS_HEARTBEAT_S",
        ),
        ("JOBS_WORKER", "4", "JOBS_WORKER: there is no such setting"),
        ("JOBS_METRICS", "here", "JOBS_METRICS=here: no HOST:PORT"),
        ("JOBS_METRICS", &*taken, "JOBS_METRICS=127.0.0.1:"),
    ] {
        let (code, said) = fails(&["work"], &[("DATABASE_URL", &url), (name, value)]);
        assert!(
            code == 2 && said.contains(says),
            "{name}={value}: {code}: {said}"
        );
    }
}

#[tokio::test]
async fn databases_that_are_wrong() {
    let bed = Bed::new(&[]).await;
    bed.run("CREATE DATABASE empty; ").await;
    bed.run("CREATE DATABASE readable; ").await;
    bed.run("ALTER DATABASE readable SET default_transaction_read_only = on")
        .await;
    bed.run("CREATE ROLE nobody LOGIN").await;
    let url = |name| bed.server.url(name);
    let role = url("postgres").replacen("postgres@", "nobody@", 1);
    let unknown = url("postgres").replacen("postgres@", "unknown@", 1);
    for (url, says) in [
        (String::new(), "DATABASE_URL must be set"),
        (
            "mysql://localhost/jobs".into(),
            "DATABASE_URL must be set, to postgres://",
        ),
        (
            "postgres://localhost:port/jobs".into(),
            "DATABASE_URL: invalid port number",
        ),
        (url("nothing"), "database \"nothing\" does not exist"),
        (url("empty"), "run `jobs setup` first"),
        (url("readable"), "DATABASE_URL: the database is read-only"),
        (role, "permission denied"),
        (unknown, "role \"unknown\" does not exist"),
    ] {
        let (code, said) = fails(&["work"], &[("DATABASE_URL", &url)]);
        assert!(code == 2 && said.contains(says), "{url}: {code}: {said}");
    }
    let (code, said) = fails(&["setup"], &[("DATABASE_URL", &url("readable"))]);
    assert!(code == 2 && said.contains("read-only"), "{code}: {said}");
}

/// A worker waits for a server that does not answer; a command says so and ends.
#[tokio::test]
async fn databases_that_are_unreachable() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("bound");
    drop(free);
    let url = format!("postgres://postgres@{address}/postgres");
    let environment = [("DATABASE_URL", &*url)];
    let (code, said) = fails(&["status"], &environment);
    assert!(code == 1 && said.contains("refused"), "{code}: {said}");
    let mut process = Process::start(&["work"], &environment);
    process.says("trying again");
    process.signal("TERM");
    let (status, _, said) = process.end();
    assert_eq!(status.code(), Some(0), "{said}");
    // This one accepts, and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!(
        "postgres://postgres@{}/postgres",
        silent.local_addr().expect("bound")
    );
    let (code, said) = fails(&["status"], &[("DATABASE_URL", &*url)]);
    assert!(
        code == 1 && said.contains("no answer within 5s"),
        "{code}: {said}"
    );
}
