//! The program `jobs`. `jobs --help` explains its commands.

use jobs::admin::Letter;
use jobs::kinds;
use jobs::options::{end, Options};
use jobs::queue::Job;
use jobs::story;
use jobs::work::work;
use lazypool::Pool;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::exit;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::thread;
use std::time::UNIX_EPOCH;

const HELP: &str = "\
Durable jobs on Redis Streams: many processes, a bounded pool in each. Needs Redis 7.

jobs            the whole story in about twenty seconds: starts its own redis-server
jobs work       takes jobs and runs them until SIGTERM
jobs produce    adds jobs
jobs status     shows what waits, what is pending with whom, the last dead letters
jobs dead       lists the dead letters, sends them again or deletes them

options of all four, with their defaults
  --redis redis://127.0.0.1:6379/
  --stream jobs           also names STREAM:retry, STREAM:dead and STREAM:done;
                          in a cluster write it in braces
  --group workers         the only one of the stream: what is acknowledged is deleted

jobs work
  --name HOST-PID         of this consumer: no other has it at the same time. A process that has the
                          name of the one that it replaces has its jobs again at once
  --workers 4             jobs that run at once
  --queue 4               jobs taken ahead; each waits, within its deadline, for a worker
  --deadline-ms 5000      from delivery to end; a job may have its own
  --visibility-ms 15000   others claim the jobs of a consumer that was silent for so long. Longer than
                          the deadline, so that a job has ended by then, whatever silenced it
  --attempts 3            then to the dead letters
  --backoff-ms 200        before the second attempt; twice as long before each further one
  --bytes 268435456       of payloads that it has at once, running or not; the last one may exceed it
  --deaths 3              a job whose consumers died so often goes there, too: perhaps it kills them.
                          Before its last chance it waits, and runs alone in its process
  --lost WORKERS/2        exit with 3 when so many workers hang. No thread can be stopped from outside:
                          only a new process has all its workers again. With a higher number capacity
                          is missing for longer; with a lower one few bad jobs cause many restarts
  --grace-ms 5000         at SIGTERM: running jobs may go on for so long; others are given back
  --done-ms 86400000      keys that are done are skipped for so long; at most so many are kept:
  --done-keys 1000000
  --metrics ADDR          serves Prometheus metrics, for instance at 127.0.0.1:9100
  --effects FILE          appends `key consumer` for each job that ran, as a job's effect outside

jobs produce
  --kind hash             hash, sleep, flaky, panic, hang, abort
  --payload 1             thousands of rounds; milliseconds; attempts that fail; a message; -; -
  --count 1
  --key TIME              prefix of the idempotency keys: KEY-0, KEY-1, ... A key that is done is
                          skipped, so after an error run the same command again
  --job-deadline-ms N     of these jobs. It may be longer than the visibility timeout, which a
                          consumer extends for all that it has

jobs dead
  --send ID               adds this dead letter to the stream again; `all`: each
  --delete ID             deletes it; `all`: each

exit codes: 0 all is well, 1 an error, 2 bad options, 3 too many workers hang (start it again)
";

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        return print!("{HELP}");
    }
    let options = Options::read(words.get(1..).unwrap_or_default());
    let result = match words.first().map(String::as_str) {
        None => story::tell().map(|well| i32::from(!well)),
        Some("work") => run_work(options),
        Some("produce") => produce(options),
        Some("status") => status(options),
        Some("dead") => dead(options),
        Some(word) => end(2, format!("unknown command `{word}`; see --help")),
    };
    exit(result.unwrap_or_else(|e| end(1, e)));
}

fn run_work(mut options: Options) -> Result<i32, Box<dyn Error>> {
    let (workers, queue) = (options.get("workers", 4_usize), options.get("queue", 4));
    let s = options.settings(workers);
    let append = |path: String| match File::options().append(true).create(true).open(&path) {
        Ok(file) => file,
        Err(e) => end(1, format!("{path}: {e}")),
    };
    let effects = options.0.remove("effects").map(append);
    let address = options.0.remove("metrics");
    options.none_left();
    let pool = Pool::builder().max_workers(workers).queue_capacity(queue);
    let pool = pool.thread_name("jobs").build();
    let pool = Arc::new(pool.unwrap_or_else(|e| end(2, e)));
    if s.deadline >= s.visibility {
        end(2, "--deadline-ms must be less than --visibility-ms");
    }
    if !(1..=workers).contains(&s.lost) {
        end(2, format!("--lost must be from 1 to --workers, {workers}"));
    }
    if let Some(address) = address {
        let listener = TcpListener::bind(&address).map_err(|e| format!("{address}: {e}"))?;
        let metrics = PrometheusBuilder::new().install_recorder()?;
        let pool = Arc::clone(&pool);
        thread::spawn(move || serve_metrics(&listener, &metrics, &pool));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let name = s.consumer.clone();
    let run = Arc::new(move |job: &Job| kinds::run(job, &name, effects.as_ref()));
    let lost = work(&s, &pool, run, &stop).map_err(|e| s.explain(&e))?;
    std::mem::forget(pool); // its drop could wait for jobs that hang
    Ok(if lost { 3 } else { 0 })
}

/// Answers every request with the page for Prometheus.
fn serve_metrics(listener: &TcpListener, metrics: &PrometheusHandle, pool: &Pool) {
    for mut stream in listener.incoming().flatten() {
        pool.publish_metrics();
        metrics.run_upkeep();
        let head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n";
        // A client that has gone needs no answer.
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all((head.to_owned() + &metrics.render()).as_bytes());
    }
}

fn produce(mut options: Options) -> Result<i32, Box<dyn Error>> {
    let (s, now) = (options.settings(1), UNIX_EPOCH.elapsed());
    let key = options.get("key", now.map_or(0, |now| now.as_nanos()).to_string());
    let kind = options.get("kind", "hash".to_owned());
    let payload = options.get("payload", "1".to_owned());
    let (count, deadline_ms) = (options.get("count", 1), options.get("job-deadline-ms", 0));
    options.none_left();
    let job = |n| Job { deadline_ms, ..Job::new(format!("{key}-{n}"), &kind, &payload) };
    let jobs: Vec<Job> = (0..count).map(job).collect();
    let added = s.connect().and_then(|mut queue| queue.produce(&jobs));
    added.map_err(|e| format!("{}; add them again with --key {key}", s.explain(&e)))?;
    println!("added {count} jobs, with the keys {key}-0 and so on");
    Ok(0)
}

/// Shows the jobs that wait, those pending with each consumer, and the last dead letters.
fn status(mut options: Options) -> Result<i32, Box<dyn Error>> {
    let s = options.settings(1);
    options.none_left();
    let found = s.open().and_then(|mut queue| {
        let mut letters = VecDeque::new();
        queue.letters("list", ("-", "+"), |letter| {
            letters.push_front(letter);
            letters.truncate(10);
        })?;
        Ok((queue.status()?, letters))
    });
    let ((stream, retries, dead, done, pending), letters) = found.map_err(|e| s.explain(&e))?;
    let all: usize = pending.iter().map(|(_, count)| count).sum();
    let waiting = stream.saturating_sub(all + retries);
    println!("waiting {waiting}, pending {all}, retries {retries}, done {done}, dead {dead}");
    for (consumer, count) in pending {
        println!("pending with {consumer}: {count}");
    }
    letters.iter().for_each(show);
    Ok(0)
}

fn show((id, key, kind, why): &Letter) {
    let [key, kind, why] = [key, kind, why].map(|text| String::from_utf8_lossy(text));
    println!("dead: {key} ({kind}): {why} [{id}]");
}

/// Lists dead letters, sends them again, or deletes them.
fn dead(mut options: Options) -> Result<i32, Box<dyn Error>> {
    let s = options.settings(1);
    let send = options.0.remove("send").map(|which| ("send", which));
    let delete = options.0.remove("delete").map(|which| ("delete", which));
    options.none_left();
    let (act, which) = send.or(delete).unwrap_or(("list", "all".to_owned()));
    // `all` means the letters until now: a job that is sent again may come back as a new letter.
    let now = UNIX_EPOCH.elapsed()?.as_millis().to_string();
    let (from, to) = match which.as_str() {
        "all" => ("-", now.as_str()),
        id => (id, id),
    };
    let mut count = 0;
    let told = s.open().and_then(|mut queue| {
        queue.letters(act, (from, to), |letter| {
            count += 1;
            show(&letter);
        })
    });
    told.map_err(|e| s.explain(&e))?;
    match act {
        "send" => println!("sent again: {count}"),
        "delete" => println!("deleted: {count}"),
        _ => {}
    }
    Ok(0)
}
