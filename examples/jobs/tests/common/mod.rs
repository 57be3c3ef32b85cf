//! What the files of tests share, beside [`jobs::story::process`].
#![allow(dead_code, unreachable_pub, unused_imports)] // each file of tests uses a part

pub use jobs::queue::Job;
pub use jobs::story::process::{until, Process, Site};
use std::process::Command;

/// No job is late, and no test waits until a job is claimed: what is given back is free at once.
pub const NEVER_LATE: &str = "--deadline-ms 60000 --visibility-ms 600000";

pub fn site(name: &str) -> Site {
    Site::new(name, env!("CARGO_BIN_EXE_jobs"), "").expect("redis-server")
}

pub fn job(key: &str, kind: &str, payload: &str) -> Job {
    Job::new(key.to_owned(), kind, payload)
}

pub fn some(count: usize, key: &str, kind: &str, payload: &str) -> Vec<Job> {
    let job = |n| job(&format!("{key}-{n}"), kind, payload);
    (0..count).map(job).collect()
}

pub fn query<T: redis::FromRedisValue>(site: &Site, words: &str) -> T {
    let mut queue = site.place.open().expect("a connection");
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().expect("a command"));
    let words: Vec<&str> = words.collect();
    command.arg(words).query(&mut queue.con).expect("an answer")
}

/// Returns the exit code, and what was written.
pub fn output(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).expect("text"))
}
