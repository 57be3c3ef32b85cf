//! A tour of `lazypool`. It checks each promise that it prints:
//!
//! ```text
//! cargo run --release --example tour [DIR]
//! ```
//!
//! The main job digests every file under DIR (default: this repository), on a pool and one by one.
//! Each stop after it shows one promise of the crate. Exit status: 0, every check passed; 1, a
//! check failed; 2, there is no DIR to walk.

use std::hint::{black_box, spin_loop};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc, Barrier};
use std::time::{Duration, Instant};
use std::{env, error::Error, fmt::Display, fs, thread};

use crossbeam_utils::CachePadded;
use indicatif::{HumanBytes, ProgressBar};
use lazypool::{task, Builder, DeadlineError, Pool, Refused, Shutdown, WhenFull};

/// The whole tour takes less time than this, even on a busy machine. The next two constants bound
/// the part of DIR that it reads.
const TOUR_LIMIT: Duration = Duration::from_secs(60);
const WALK_TIME: Duration = Duration::from_secs(2);
const FILE_BYTES: u64 = 64 << 20;
/// The time that a disk or a distant server takes for a file, and the number of files that we have
/// the time to wait for.
const DISK_WAIT: Duration = Duration::from_millis(2);
const WAITING_FILES: usize = 200;
/// How long the plain loop is to compute. Starting a few threads takes much less than that.
const COMPUTE_TIME: Duration = Duration::from_millis(500);
/// The number of measurements of each kind. The best one counts, because other work on the machine
/// comes and goes.
const TURNS: u64 = 2;
const CALIBRATION: Duration = Duration::from_millis(200);
/// How long the costs are measured.
const MEASURING: Duration = Duration::from_secs(1);
/// How long the warm-up before that lasts. A processor takes about this long to speed up.
const WARM_UP: Duration = Duration::from_millis(300);
/// Far more time than a round trip takes between two threads that each have a core.
const BUSY_TRIP_NS: f64 = 2_000.0;
/// The time that a busy machine may add to a time that the pool promises.
const SLACK: Duration = Duration::from_secs(1);

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let start = Instant::now();
    let dir = directory_argument();
    // If a stop hangs, this thread ends the tour.
    thread::spawn(|| {
        thread::sleep(TOUR_LIMIT);
        eprintln!("Error: not so: the tour ends within {TOUR_LIMIT:?}");
        process::exit(1)
    });

    digest_every_file(dir)?;
    leave_at_the_deadline()?;
    run_what_a_full_pool_refuses()?;
    start_late_and_retire()?;
    shut_down_twice()?;
    time_the_two_verbs()?;

    say(format!("\nAll of it was so, in {:.1?}.", start.elapsed()));
    Ok(())
}

fn directory_argument() -> PathBuf {
    let mut arguments = env::args_os().skip(1);
    let dir = arguments.next();
    let dir = dir.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    // The walk skips symlinks, so resolve DIR in case it is one.
    match fs::read_dir(&dir).and_then(|_| fs::canonicalize(&dir)) {
        Ok(dir) if arguments.next().is_none() => return dir,
        Ok(_) => eprintln!("tour: one directory at most"),
        Err(error) => eprintln!("tour: cannot walk {dir:?}: {error}"),
    }
    eprintln!("usage: tour [DIR]");
    process::exit(2)
}

/// Does the main job twice. If its tasks wait, more threads help on any machine. If they compute,
/// more threads help up to the number of cores.
fn digest_every_file(dir: PathBuf) -> Outcome {
    say(format!("1  Read and digest every file under {dir:?}"));
    let (files, left_out) = walk(dir);
    let bytes = files.iter().map(|(_, (bytes, _))| bytes).sum();
    let size = HumanBytes(bytes);
    line("files", format!("{}, {size}", files.len()));
    if let Some(first) = left_out.first() {
        line("left out", format!("{}, such as {first}", left_out.len()));
    }

    if files.is_empty() {
        line("the job", "skipped: there is nothing to digest");
        return Ok(());
    }
    let some = &files[..files.len().min(WAITING_FILES)];
    let what = format!("{}, each waits {DISK_WAIT:?}, as for a disk", some.len());
    line("a job that waits", what);
    both_ways(some, 16, |(path, (bytes, _))| {
        thread::sleep(DISK_WAIT);
        digest(path, *bytes).ok()
    })?;

    let rounds = rounds_for(&files, COMPUTE_TIME);
    let what = format!("all of them, each read and digested {rounds} x");
    line("a job that computes", what);
    let cores = thread::available_parallelism()?.get();
    both_ways(&files, cores, |(path, (bytes, _))| {
        let mut result = None;
        for _ in 0..rounds {
            result = digest(path, *bytes).ok();
        }
        result
    })
}

/// Runs `job` for each file in a plain loop and on a pool, by turns, and compares the results.
fn both_ways(
    files: &[File],
    workers: usize,
    job: impl Fn(&File) -> Option<Digest> + Sync,
) -> Outcome {
    // `Block` makes `serve` wait for space, so we cannot run ahead of the workers by more than the
    // queue.
    let pool = builder("digest")
        .max_workers(workers)
        .queue_capacity(256)
        .when_full(WhenFull::Block)
        .build()?;
    // The bar is drawn on a terminal only.
    let bar = ProgressBar::new(2 * TURNS * files.len() as u64);
    let work = |file: &File, result: &mut Option<Digest>| {
        *result = job(file);
        bar.inc(1);
    };
    let (mut pooled, mut plain) = (vec![None; files.len()], vec![None; files.len()]);

    let (mut plain_time, mut pool_time) = (Duration::MAX, Duration::MAX);
    for _ in 0..TURNS {
        let ((), took) = timed(|| files.iter().zip(&mut plain).for_each(|(f, r)| work(f, r)));
        plain_time = plain_time.min(took);
        // Tasks of a scope may borrow; here each borrows the place for its result. `scope` returns
        // when all have ended.
        let ((), took) = timed(|| {
            pool.scope(|scope| {
                for (file, result) in files.iter().zip(&mut pooled) {
                    let task = || work(file, result);
                    // If the system starts no thread at all, the task runs here.
                    scope.serve_or_run(task);
                }
            });
        });
        pool_time = pool_time.min(took);
    }
    bar.finish_and_clear();

    let stats = pool.stats();
    let workers = stats.peak_workers;
    line("   one by one", format!("{plain_time:.1?}"));
    let times = plain_time.as_secs_f64() / pool_time.as_secs_f64();
    let faster = format!("{pool_time:.1?} with {workers} workers: {times:.1} times as fast");
    let each_once = stats.completed + stats.refused == TURNS * files.len() as u64;
    so(
        each_once && workers <= pool.max_workers(),
        "   on the pool",
        faster,
    )?;
    if files.iter().map(|file| Some(file.1)).eq(plain.clone()) {
        so(pooled == plain, "   digests", "the same both ways")?;
    } else {
        // The plain loop disagrees with the walk before it, so the pool's results prove nothing.
        line("   digests", "not compared: files changed meanwhile");
    }
    Ok(())
}

/// Returns how often the plain loop must digest all files to take about `time`. The files are in
/// the system's cache by now.
fn rounds_for(files: &[File], time: Duration) -> u32 {
    let start = Instant::now();
    let seen = (files.iter())
        .take_while(|_| start.elapsed() < CALIBRATION)
        .filter(|(path, (bytes, _))| black_box(digest(path, *bytes)).is_ok())
        .count();
    let all = start.elapsed().as_secs_f64() / seen.max(1) as f64 * files.len() as f64;
    (time.as_secs_f64() / all).clamp(1.0, 10_000.0) as u32
}

/// The number of bytes of a file, and its checksum.
type Digest = (u64, u32);
type File = (PathBuf, Digest);

/// Digests at most `limit` bytes of a file, because logs grow while they are read.
fn digest(path: &Path, limit: u64) -> io::Result<Digest> {
    let mut content = Vec::new();
    let mut input = fs::File::open(path)?.take(limit);
    let bytes = input.read_to_end(&mut content)?;
    Ok((bytes as u64, crc32fast::hash(&content)))
}

/// Returns the files under `dir`, and a list of those that were left out, with the reasons. Reads
/// each file once, so that both timed passes find it in the system's cache.
fn walk(dir: PathBuf) -> (Vec<File>, Vec<String>) {
    let start = Instant::now();
    let (mut files, mut left_out, mut ahead) = (Vec::new(), Vec::new(), vec![dir]);
    while let Some(path) = ahead.pop() {
        let mut visit = || {
            let found = fs::symlink_metadata(&path)?;
            if start.elapsed() > WALK_TIME || found.len() > FILE_BYTES {
                return Err(io::Error::other("more than the tour has time for"));
            }
            if found.is_dir() {
                for entry in fs::read_dir(&path)? {
                    let path = entry?.path();
                    let aside = path.ends_with(".git") || path.ends_with("target");
                    if !(aside && path.is_dir()) {
                        ahead.push(path);
                    }
                }
            } else if found.is_file() {
                files.push((path.clone(), digest(&path, found.len())?));
            }
            Ok(())
        };
        if let Err(error) = visit() {
            left_out.push(format!("{path:?}: {error}"));
        }
    }
    (files, left_out)
}

/// Shows that a caller leaves at its deadline even if its task hangs. A task that asks whether it
/// is cancelled can end as well.
fn leave_at_the_deadline() -> Outcome {
    say("\n2  A caller stops waiting at its deadline");
    let pool = builder("deadline").max_workers(1).build()?;
    let answer = pool.do_with_deadline(|| 6 * 7, SLACK)?;
    so(answer == 42, "a quick task", format!("Ok({answer})"))?;

    if cfg!(unix) {
        leave_a_read_that_never_answers(&pool)?;
    } else {
        line("a read that hangs", "skipped: no FIFO on this system");
    }

    let polite = || {
        while !task::is_cancelled() {
            thread::sleep(Duration::from_millis(1));
        }
    };
    let named = pool.labeled("polite");
    let outcome = named.do_with_deadline(polite, Duration::from_millis(100));
    let timed_out = matches!(outcome, Err(DeadlineError::TimedOut));
    let (ended, later) = timed(|| eventually(|| pool.stats().running == 0));
    let saw =
        format!("TimedOut; it saw task::is_cancelled() and ended {later:.1?} after its caller");
    so(timed_out && ended, "a task that asks", saw)
}

/// Lets a task read from a FIFO to which no process writes. The read blocks as on a stuck device or
/// network share.
fn leave_a_read_that_never_answers(pool: &Pool) -> Outcome {
    let path = env::temp_dir().join(format!("lazypool-tour-{}", process::id()));
    Command::new("mkfifo").arg(&path).status()?;
    // An `open` for reading alone would wait for a writer here. Once it is open, the FIFO needs no
    // name.
    let mut writer = fs::File::options().read(true).write(true).open(&path)?;
    fs::remove_file(&path)?;
    let mut reader = writer.try_clone()?;
    let deadline = Duration::from_millis(100);
    let named = pool.labeled("blocking read");
    let read = move || reader.read(&mut [0]);
    let (outcome, took) = timed(|| named.do_with_deadline(read, deadline));
    let timed_out = matches!(outcome, Err(DeadlineError::TimedOut));
    let in_time = (deadline..deadline + SLACK).contains(&took);
    let left = format!("TimedOut: its caller left after {took:.1?} (deadline {deadline:?})");
    so(timed_out && in_time, "a read that hangs", left)?;
    let mut workers = pool.workers().into_iter();
    let held = workers.any(|w| w.abandoned && w.label == Some("blocking read"));
    let held = held && pool.stats().running == 1;
    let still = "still in the read, and counted: no other thread takes its place";
    so(held, "its worker", still)?;

    // The only worker hangs, so this task cannot start.
    let patient = pool.when_full(WhenFull::Block);
    let next = patient.do_with_deadline(|| "the next task", deadline);
    let Err(DeadlineError::Expired(unrun)) = next else {
        return Err("not so: a task that no worker can start expires".into());
    };
    let back = format!(
        "Expired: it never ran, and came back; we ran it here: {:?}",
        unrun.run()
    );
    line("the next task", back);

    writer.write_all(b"!")?;
    let free = eventually(|| pool.stats().running == 0);
    so(free, "the read is answered", "its worker is free again")
}

/// Shows that a refusal gives the closure back. The caller runs it, which is back-pressure without
/// a queue.
fn run_what_a_full_pool_refuses() -> Outcome {
    say("\n3  A full pool refuses at once, and gives the task back");
    let pool = builder("full").max_workers(1).build()?;
    let (open, gate) = mpsc::channel::<()>();
    pool.serve(move || gate.recv().unwrap_or(()))?;
    line("the pool", "1 worker, no queue; the worker has a slow task");

    let (sender, ran_on) = mpsc::channel();
    let job = move || sender.send(thread::current().id()).unwrap_or(());
    let again = job.clone();
    let (outcome, took) = timed(|| pool.serve(job));
    let refused = outcome.err().ok_or("not so: a full pool refuses")?;
    let why = format!("refused after {took:.1?}: {refused}");
    so(refused.is_saturated(), "another task", why)?;
    refused.caller_runs()?;
    // Submit another task, and run it here if it is refused, in one expression:
    pool.serve(again).or_else(Refused::caller_runs)?;
    let here = thread::current().id();
    let by_caller = ran_on.try_iter().filter(|&id| id == here).count();
    drop(open);
    let ran = "it came back with the error, and we ran it on this thread";
    so(by_caller == 2, "its closure", ran)
}

/// Shows that threads start when there is work for them, and end when there has been none for a
/// while.
fn start_late_and_retire() -> Outcome {
    say("\n4  Threads start when they are needed, and end when they are not");
    let idle = Duration::from_millis(100);
    let pool = builder("lazy").max_workers(4).idle_timeout(idle).build()?;
    let workers = || pool.stats().workers;
    so(workers() == 0, "before the first task", "0 workers")?;
    for _ in 0..100 {
        pool.do_with_deadline(|| (), SLACK)?;
    }
    let peak = pool.stats().peak_workers;
    so(peak == 1, "100 calls in sequence", "1 worker")?;

    // Tasks that wait for each other, and for us, need a worker each.
    static MEETING: Barrier = Barrier::new(5);
    for _ in 0..4 {
        pool.serve(|| _ = MEETING.wait())?;
    }
    so(workers() == 4, "4 tasks at once", "4 workers")?;
    MEETING.wait();
    let (gone, took) = timed(|| eventually(|| workers() == 0));
    let after = format!("0 workers after {took:.1?} (idle_timeout {idle:?})");
    so(gone && took < 2 * idle + SLACK, "no more tasks", after)
}

/// Shows that a shutdown whose time is over names the tasks that still run, and can be repeated.
fn shut_down_twice() -> Outcome {
    say("\n5  A shutdown says who is left, and can be repeated");
    let pool = builder("export").max_workers(1).queue_capacity(3).build()?;
    let (open, gate) = mpsc::channel::<()>();
    let slow = move || gate.recv().unwrap_or(());
    pool.labeled("slow export").serve(slow)?;
    for _ in 0..3 {
        pool.serve(|| ())?; // waits for the slow one
    }
    let busy = "1 worker, at a task labeled \"slow export\"; 3 tasks wait in the queue";
    line("the pool", busy);

    let timeout = Duration::from_millis(100);
    let (report, took) = timed(|| pool.shutdown(Shutdown::Drain, timeout));
    let left = report.stragglers.iter();
    let names: Vec<_> = left.filter_map(|worker| worker.label).collect();
    let named = took >= timeout && took < timeout + SLACK && names == ["slow export"];
    let running = format!("gave up after {took:.1?}; still running: {names:?}");
    so(named, "shutdown, 100 ms", running)?;
    let refused = pool
        .serve(|| ())
        .err()
        .ok_or("not so: a closed pool refuses")?;
    so(
        refused.is_closed(),
        "a new task",
        format!("refused: {refused}"),
    )?;

    drop(open);
    let report = pool.shutdown(Shutdown::Drain, SLACK);
    let drained = pool.stats().completed == 4 && report.discarded == 0;
    let clean = report.is_clean() && drained;
    let ended = "clean: all 4 tasks ran, no thread is left";
    so(clean, "the export ends; again", ended)
}

/// Measures the two verbs, and compares them with the time that the machine takes for a question
/// and its answer between two threads.
fn time_the_two_verbs() -> Outcome {
    say("\n6  What a call costs, beside a signal to another thread and back (medians)");
    let direct = builder("direct").max_workers(1).build()?;
    let ask = || {
        let answer = direct.do_with_deadline(|| black_box(()), SLACK);
        answer.expect("an answer in time");
    };
    // `serve` waits if the queue is full, so this measures how fast the tasks run. Each captures 24
    // bytes, as a real task might.
    let queued = builder("queued").max_workers(1).queue_capacity(1024);
    let queued = queued.when_full(WhenFull::Block).build()?;
    let captured = [1_u64, 2, 3];
    let hand_over = || {
        let accepted = queued.serve(move || _ = black_box(captured));
        accepted.expect("a queue that waits for space");
    };

    // Measure the three by turns, because the machine's speed changes from one moment to the next.
    let measured = |time: Duration| {
        let mut rounds = [const { Vec::new() }; 3];
        let start = Instant::now();
        while rounds[2].is_empty() || start.elapsed() < time {
            rounds[0].push(spinning_round_trip());
            rounds[1].push(ns_each(100, ask));
            rounds[2].push(ns_each(5_000, hand_over));
        }
        rounds.map(median)
    };
    measured(WARM_UP);
    let [trip, call, task] = measured(MEASURING);
    let row = |what, ns: f64| line(what, format!("{ns:>9.0} ns {:>7.2} x", ns / trip));
    row("there and back", trip);
    row("do_with_deadline", call);
    row("serve, in a queue", task);
    if trip > BUSY_TRIP_NS {
        line(
            "note",
            "other work has the cores: figures need a quiet machine",
        );
    }
    if cfg!(debug_assertions) {
        line("note", "a debug build: figures need --release");
    }
    Ok(())
}

/// Returns the nanoseconds that one cache line takes to go to another thread and come back changed.
fn spinning_round_trip() -> f64 {
    const END: u64 = u64::MAX;
    let shared = CachePadded::new(AtomicU64::new(0));
    let other_than = |mine: u64| loop {
        for _ in 0..128 {
            match shared.load(Ordering::Acquire) {
                found if found != mine => return found,
                _ => spin_loop(),
            }
        }
        // On a single core the other thread cannot answer while we spin.
        thread::yield_now();
    };
    let tell = |value| shared.store(value, Ordering::Release);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut question = other_than(0);
            while question != END {
                tell(question + 1);
                question = other_than(question + 1);
            }
        });
        let mut answer = 0;
        let trip = ns_each(100, || {
            tell(answer + 1);
            answer = other_than(answer + 1);
        });
        tell(END);
        trip
    })
}

/// Returns the nanoseconds per operation: the median of short rounds, because some are interrupted.
fn ns_each(operations: u32, mut operation: impl FnMut()) -> f64 {
    let begun = Instant::now();
    let mut rounds = Vec::new();
    while rounds.is_empty() || begun.elapsed() < Duration::from_millis(30) {
        let ((), took) = timed(|| (0..operations).for_each(|_| operation()));
        rounds.push(took.as_nanos() as f64 / f64::from(operations));
    }
    median(rounds)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns a builder for a pool of the tour. The pool has a name. Its drop waits at most `SLACK`,
/// in case a failed check leaves a task stuck.
fn builder(name: &str) -> Builder {
    let builder = Pool::builder().thread_name(name);
    builder.shutdown_on_drop(Shutdown::Cancel, SLACK)
}

fn timed<T>(f: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (f(), start.elapsed())
}

/// Returns `true` if `is_so` becomes true within some seconds.
fn eventually(is_so: impl Fn() -> bool) -> bool {
    let pause = |_: &i32| thread::sleep(Duration::from_millis(1));
    (0..2_000).inspect(pause).any(|_| is_so())
}

/// Prints the result of a check that has passed. Returns an error, which ends the tour, if it has
/// failed.
fn so(cond: bool, label: &str, value: impl Display) -> Outcome {
    if !cond {
        return Err(format!("not so: {label}: {value}").into());
    }
    line(label, value);
    Ok(())
}

fn line(label: &str, value: impl Display) {
    say(format!("   {label:<24}{value}"));
}

/// Prints a line, as `println` does. `println` would panic if the reader is gone, as in
/// `tour | head -3`.
fn say(text: impl Display) {
    if let Err(error) = writeln!(io::stdout(), "{text}") {
        if error.kind() == io::ErrorKind::BrokenPipe {
            process::exit(0);
        }
        eprintln!("Error: {error}");
        process::exit(1);
    }
}
