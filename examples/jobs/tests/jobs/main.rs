//! What the example promises, against a real redis-server.

mod basics;
mod kills;
mod stuck;

pub use jobs::queue::Job;
pub use jobs::story::process::{until, Process, Site};

/// No job is late, and no test waits until a job is claimed: what is given back is free at once.
const NEVER_LATE: &str = "--deadline-ms 60000 --visibility-ms 600000";

fn site(name: &str) -> Site {
    Site::new(name, env!("CARGO_BIN_EXE_jobs"), "").expect("redis-server")
}

fn job(key: &str, kind: &str, payload: &str) -> Job {
    Job::new(key.to_owned(), kind, payload)
}

fn some(count: usize, key: &str, kind: &str, payload: &str) -> Vec<Job> {
    let job = |n| job(&format!("{key}-{n}"), kind, payload);
    (0..count).map(job).collect()
}

fn query<T: redis::FromRedisValue>(site: &Site, words: &str) -> T {
    let mut queue = site.s.open().expect("a connection");
    let words = Vec::from_iter(words.split(' '));
    let mut command = redis::cmd(words[0]);
    let command = command.arg(&words[1..]);
    command.query(&mut queue.con).expect("an answer")
}

/// Runs a command of `jobs` that succeeds. Returns what it wrote.
fn ok(site: &Site, words: &str) -> String {
    let (code, said) = run(site, words);
    assert_eq!(code, 0, "{words}: {said}");
    said
}

/// Runs a command of `jobs` that fails with 1 and this text.
fn fails(site: &Site, words: &str, text: &str) {
    let (code, said) = run(site, words);
    assert!(code == 1 && said.contains(text), "{words}: {said}");
}

/// Runs a command of `jobs`. Returns its exit code, and what it wrote.
fn run(site: &Site, words: &str) -> (i32, String) {
    let output = site.jobs(words).output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    let code = output.status.code().expect("a code");
    (code, String::from_utf8(text).expect("text"))
}
