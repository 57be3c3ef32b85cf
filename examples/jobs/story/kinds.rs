//! What the jobs do: put your own here.

use crate::queue::{Failure, Job};
use lazypool::task;
use std::hash::{DefaultHasher, Hasher};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Runs a job on a worker of the pool; a second time, perhaps: see [`Job::key`].
pub fn run(job: &Job) -> Result<(), Failure> {
    match job.kind.as_str() {
        "hash" => {
            let mut hasher = DefaultHasher::new();
            for _ in 0..number(job)? {
                if task::is_cancelled() {
                    return Err(Failure::Cancelled);
                }
                (0..1000).for_each(|round| hasher.write_u64(round));
            }
            std::hint::black_box(hasher.finish());
        }
        "sleep" => {
            let end = Instant::now() + Duration::from_millis(number(job)?);
            while Instant::now() < end {
                if task::is_cancelled() {
                    return Err(Failure::Cancelled);
                }
                sleep(Duration::from_millis(5).min(end - Instant::now()));
            }
        }
        "flaky" if u64::from(job.attempt) < number(job)? => {
            return Err(Failure::Passing(format!(
                "failed: attempt {}",
                job.attempt + 1
            )));
        }
        "flaky" => {}
        "panic" => panic!("{}", String::from_utf8_lossy(&job.payload)),
        // Does not ask whether it should stop.
        "hang" => loop {
            sleep(Duration::from_secs(1));
        },
        // Takes its process along, as a job that uses up the memory does.
        "abort" => std::process::abort(),
        other => return Err(Failure::Lasting(format!("unknown kind: {other}"))),
    }
    Ok(())
}

fn number(job: &Job) -> Result<u64, Failure> {
    let text = String::from_utf8_lossy(&job.payload);
    (text.parse()).map_err(|_| Failure::Lasting(format!("bad payload: `{text}` is not a number")))
}
