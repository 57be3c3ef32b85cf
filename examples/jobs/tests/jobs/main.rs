//! Tests the promises of the example against a real redis-server.

mod basics;
mod kills;
mod stuck;

use jobs::queue::{Failure, Job};
use jobs::story::process::{until, Process, Site};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Options with long times: no job is late, and no consumer claims a job. A test need not wait for
/// a claim, because jobs that are given back are free at once.
const NEVER_LATE: &str = "--deadline-ms 60000 --visibility-ms 600000";

fn site(name: &str, options: &str) -> Site {
    Site::new(name, env!("CARGO_BIN_EXE_jobs"), options).expect("redis-server")
}

/// Starts a Redis, adds these jobs, and then starts a consumer.
fn start(name: &str, options: &str, jobs: &[Job]) -> (Site, Process) {
    let mut site = site(name, "");
    site.produce(jobs);
    let worker = site.worker(options);
    (site, worker)
}

fn job(key: &str, kind: &str, payload: &str) -> Job {
    Job::new(key.to_owned(), kind, payload)
}

fn some(count: usize, key: &str, kind: &str, payload: &str) -> Vec<Job> {
    let job = |n| job(&format!("{key}-{n}"), kind, payload);
    (0..count).map(job).collect()
}

fn query<T: redis::FromRedisValue>(site: &Site, name: &str, args: impl redis::ToRedisArgs) -> T {
    let mut queue = site.s.open().expect("a connection");
    redis::cmd(name).arg(args).query(&mut queue.con).expect("an answer")
}

/// Runs a command, and checks its exit code and that it wrote this text. Returns its whole output.
fn says(mut command: Command, code: i32, text: &str) -> String {
    let output = command.output().expect("it runs");
    let said = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    assert_eq!(output.status.code(), Some(code), "{command:?}: {said}");
    assert_eq!(said.starts_with("jobs: "), code != 0, "{command:?}: {said}");
    assert!(said.contains(text), "{command:?}: {said}");
    said
}
