//! Hashes every file below a directory, and prints the checksums in the order of the names.
//!
//! ```text
//! cargo run --release --example hash_tree -- [DIR]
//! ```
//!
//! It shows:
//!
//! * a **group**: wait for all of its tasks, see how far they are, cancel them together;
//! * a **label**, which `Pool::workers` shows for a worker's task;
//! * **back-pressure**: the walk waits while the queue is full, however large the tree is;
//! * **Ctrl-C**: files that wait are left out, and tasks that read a file stop half-way;
//! * **progress**, drawn on a terminal only;
//! * **results** through a channel, sorted at the end.
//!
//! Exit status: 0, it read every file; 1, it could not read some; 2, DIR is no directory; 130,
//! Ctrl-C stopped it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::time::Duration;
use std::{env, error, thread};

use indicatif::{HumanBytes, ProgressBar};
use lazypool::{task, Group, Pool, Refused, Shutdown, WhenFull};

/// The time between two looks for Ctrl-C. The progress is drawn as often.
const BEAT: Duration = Duration::from_millis(50);

/// A file and its checksum, or the error that prevented it. `None` if the task was cancelled.
type Line = (PathBuf, io::Result<Option<Sum>>);

struct Sum {
    bytes: u64,
    crc: u32,
}

fn main() -> Result<ExitCode, Box<dyn error::Error>> {
    let dir = PathBuf::from(env::args_os().nth(1).unwrap_or_else(|| ".".into()));
    if !dir.is_dir() {
        eprintln!("hash_tree: {} is no directory", dir.display());
        return Ok(ExitCode::from(2));
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&interrupted))?;
    eprintln!("hashing {}; Ctrl-C stops", dir.display());

    let cores = thread::available_parallelism()?.get();
    let pool = Pool::builder()
        .max_workers(cores)
        .queue_capacity(16 * cores)
        .build()?;
    let hashing = pool
        .labeled("hash")
        .when_full(WhenFull::Block) // the walk waits for the workers
        .group();

    let (send, lines) = mpsc::channel();
    let walk = thread::spawn({
        let group = hashing.clone();
        move || walk(&dir, &group, &send)
    });
    watch(&pool, &hashing, &interrupted, || walk.is_finished());
    if walk.join().is_err() {
        return Err("the walk panicked".into());
    }

    // The iterator ends once every sender is gone. The tasks have ended, and so has the walk.
    let mut lines: Vec<Line> = lines.into_iter().collect();
    lines.sort_by(|a, b| a.0.cmp(&b.0));
    let (mut files, mut bytes, mut failed) = (0, 0, 0);
    for (path, outcome) in &lines {
        match outcome {
            Ok(Some(sum)) => {
                println!("{:08x} {:>12} {}", sum.crc, sum.bytes, path.display());
                (files, bytes) = (files + 1, bytes + sum.bytes);
            }
            Ok(None) => {}
            Err(error) => {
                eprintln!("hash_tree: {}: {error}", path.display());
                failed += 1;
            }
        }
    }
    eprintln!("{files} files, {}, {failed} failed", HumanBytes(bytes));
    // No task runs any more. The report would name the label of one that did.
    let report = pool.shutdown(Shutdown::Cancel, Duration::from_secs(1));
    for worker in &report.stragglers {
        eprintln!("worker {} is still at {:?}", worker.slot, worker.label);
    }
    Ok(ExitCode::from(match (hashing.is_cancelled(), failed) {
        (true, _) => 130,
        (false, 0) => 0,
        (false, _) => 1,
    }))
}

/// Waits for the walk and for its tasks. Cancels them at Ctrl-C.
fn watch(pool: &Pool, hashing: &Group, interrupted: &AtomicBool, walked: impl Fn() -> bool) {
    let bar = ProgressBar::new_spinner();
    loop {
        // Look at the walk before the group: once the walk has ended, no task can be added.
        let all_served = walked();
        let at_rest = hashing.wait_timeout(BEAT).is_ok();
        if at_rest && all_served {
            break;
        }
        if interrupted.load(Ordering::Relaxed) && !hashing.is_cancelled() {
            hashing.cancel();
            eprintln!("stopping");
        }
        if at_rest {
            thread::sleep(BEAT); // the walk has found nothing yet
        }
        let busy = pool
            .workers()
            .iter()
            .filter(|w| w.label == Some("hash"))
            .count();
        bar.set_message(format!("{} files, {busy} workers", hashing.completed()));
        bar.tick();
    }
    bar.finish_and_clear();
}

/// Submits one task for each file. Returns early once the group is cancelled.
fn walk(dir: &Path, hashing: &Group, send: &mpsc::Sender<Line>) {
    let mut ahead = vec![dir.to_owned()];
    while let Some(path) = ahead.pop() {
        let entry = path.symlink_metadata();
        match entry {
            Ok(entry) if entry.is_dir() => match fs::read_dir(&path) {
                // `flatten` leaves out an entry that cannot be read.
                Ok(entries) => ahead.extend(entries.flatten().map(|entry| entry.path())),
                Err(error) => report(send, path, Err(error)),
            },
            Ok(entry) if entry.is_file() => {
                let send = send.clone();
                let task = move || {
                    let outcome = sum(&path);
                    report(&send, path, outcome);
                };
                // If the system starts no thread, the task runs here. An error means that the group
                // is cancelled.
                if hashing.serve(task).or_else(Refused::caller_runs).is_err() {
                    return;
                }
            }
            Ok(_) => {} // links, pipes, devices
            Err(error) => report(send, path, Err(error)),
        }
    }
}

fn report(send: &mpsc::Sender<Line>, path: PathBuf, outcome: io::Result<Option<Sum>>) {
    // `main` holds the receiver until every sender is gone.
    send.send((path, outcome)).unwrap_or_default();
}

/// Returns the file's checksum, or `None` if the task was cancelled meanwhile.
fn sum(path: &Path) -> io::Result<Option<Sum>> {
    let (mut file, mut bytes) = (File::open(path)?, 0);
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        if task::is_cancelled() {
            return Ok(None);
        }
        match file.read(&mut buffer)? {
            0 => break,
            n => {
                hasher.update(&buffer[..n]);
                bytes += n as u64;
            }
        }
    }
    let crc = hasher.finalize();
    Ok(Some(Sum { bytes, crc }))
}
