//! The kinds of jobs that `jobs work`, the story and the tests run. Replace them by your own.

use crate::queue::{Failure, Job};
use lazypool::task;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Runs a job, and appends `key consumer` to the effects.
pub fn run(job: &Job, consumer: &str, effects: Option<&File>) -> Result<(), Failure> {
    act(job)?;
    if let Some(mut file) = effects {
        // Use one write, so that lines of several processes do not mix.
        let line = format!("{} {consumer}\n", job.key);
        let written = file.write_all(line.as_bytes());
        written.expect("the effects can be written");
    }
    Ok(())
}

fn act(job: &Job) -> Result<(), Failure> {
    match job.kind.as_str() {
        "hash" => {
            let mut hasher = DefaultHasher::new();
            for _ in 0..number(job)? {
                go_on()?;
                (0..1000).for_each(|round| hasher.write_u64(round));
            }
            std::hint::black_box(hasher.finish());
        }
        "sleep" => {
            let end = Instant::now() + Duration::from_millis(number(job)?);
            while Instant::now() < end {
                go_on()?;
                sleep(Duration::from_millis(5).min(end - Instant::now()));
            }
        }
        "flaky" if u64::from(job.attempt()) >= number(job)? => {}
        "flaky" => {
            let why = format!("failed: attempt {}", job.attempt() + 1);
            return Err(Failure::Passing(why));
        }
        "panic" => panic!("as it was told"),
        // This job never asks whether it should stop.
        "hang" => loop {
            sleep(Duration::from_secs(1));
        },
        // This job ends its process, as a job that uses up the memory does.
        "abort" => std::process::abort(),
        other => return Err(Failure::Lasting(format!("unknown kind: {other}"))),
    }
    Ok(())
}

fn go_on() -> Result<(), Failure> {
    let cancelled = task::is_cancelled().then_some(Failure::Cancelled);
    cancelled.map_or(Ok(()), Err)
}

fn number(job: &Job) -> Result<u64, Failure> {
    let text = String::from_utf8_lossy(&job.payload);
    (text.trim().parse())
        .map_err(|_| Failure::Lasting("bad payload: it is not a number".to_owned()))
}
