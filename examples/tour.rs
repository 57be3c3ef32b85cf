//! A tour of `lazypool`. Whatever it prints, it has checked:
//!
//! ```text
//! cargo run --release --example tour [DIR]
//! ```
//!
//! The main job digests every file under DIR (default: this repository); each stop after it shows one
//! promise of the crate. Exit status: 0, all of it was so; 1, something was not; 2, no DIR to walk.

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

/// The whole tour takes less than this, and the walk at most so much of DIR to keep that promise.
const TOUR_LIMIT: Duration = Duration::from_secs(20);
const WALK_TIME: Duration = Duration::from_secs(2);
const FILE_BYTES: u64 = 64 << 20;
/// What a busy machine may add to a time that the pool promises.
const SLACK: Duration = Duration::from_secs(1);

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let start = Instant::now();
    let dir = directory_argument();
    // Should a stop hang, the tour ends all the same.
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
    // Resolved, for the walk passes over symlinks.
    match fs::read_dir(&dir).and_then(|_| fs::canonicalize(&dir)) {
        Ok(dir) if arguments.next().is_none() => return dir,
        Ok(_) => eprintln!("tour: one directory at most"),
        Err(error) => eprintln!("tour: cannot walk {dir:?}: {error}"),
    }
    eprintln!("usage: tour [DIR]");
    process::exit(2)
}

/// The main job: many short tasks, more of them than may wait at once.
fn digest_every_file(dir: PathBuf) -> Outcome {
    say(format!("1  Digest every file under {dir:?}"));
    let (files, left_out) = walk(dir);
    // `Block` makes `serve` wait for room: we cannot run ahead of the workers by more than the queue.
    let pool = builder("digest")
        .max_workers(thread::available_parallelism()?.get())
        .queue_capacity(256)
        .when_full(WhenFull::Block)
        .build()?;
    // It draws on a terminal only.
    let bar = ProgressBar::new(2 * files.len() as u64);
    let job = |(path, walked): &File, result: &mut Option<Digest>| {
        *result = digest(path, walked.0).ok();
        bar.inc(1);
    };
    let (mut pooled, mut plain) = (vec![None; files.len()], vec![None; files.len()]);

    // Tasks of a scope may borrow, here a place for their result; it returns when all have ended.
    let ((), pool_time) = timed(|| {
        pool.scope(|scope| {
            for (file, result) in files.iter().zip(&mut pooled) {
                // Should the system give no thread at all, the job comes back and runs here.
                let task = || job(file, result);
                scope.serve(task).unwrap_or_else(Refused::run);
            }
        });
    });
    let ((), plain_time) = timed(|| files.iter().zip(&mut plain).for_each(|(f, r)| job(f, r)));
    bar.finish_and_clear();

    let stats = pool.stats();
    let (workers, tasks) = (stats.peak_workers, stats.completed + stats.refused);
    let bytes = files.iter().map(|(_, (bytes, _))| bytes).sum();
    let each_once = tasks == files.len() as u64 && workers <= pool.max_workers();
    so(
        each_once,
        "files",
        format!("{tasks}, without .git and target"),
    )?;
    line("bytes", format!("{bytes} ({})", HumanBytes(bytes)));
    line("time, pool", format!("{pool_time:.1?}, {workers} workers"));
    line("time, plain loop", format!("{plain_time:.1?}"));
    if files.iter().map(|file| Some(file.1)).eq(plain.clone()) {
        so(pooled == plain, "digests", "the same from both")?;
    } else {
        // The plain loop disagrees with the walk before it: there is nothing to hold the pool to.
        line("digests", "not compared: files changed meanwhile");
    }
    if let Some(first) = left_out.first() {
        line("left out", format!("{}, such as {first}", left_out.len()));
    }
    Ok(())
}

/// Bytes and checksum.
type Digest = (u64, u32);
type File = (PathBuf, Digest);

/// Of no more than `limit` bytes: logs grow while they are read.
fn digest(path: &Path, limit: u64) -> io::Result<Digest> {
    let mut content = Vec::new();
    let mut input = fs::File::open(path)?.take(limit);
    let bytes = input.read_to_end(&mut content)?;
    Ok((bytes as u64, crc32fast::hash(&content)))
}

/// The files under `dir`, each read once: both timed passes find it in the system's cache. Then what
/// was left out, and why.
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

/// A caller leaves at its deadline, whatever the task does; a task that asks can leave with it.
fn leave_at_the_deadline() -> Outcome {
    say("\n2  Leave at the deadline");
    let pool = builder("deadline").max_workers(2).build()?;
    let answer = pool.do_with_deadline(|| 6 * 7, SLACK)?;
    so(answer == 42, "in time", format!("Ok({answer})"))?;

    if cfg!(unix) {
        leave_a_read_that_never_answers(&pool)?;
    } else {
        line("blocking read", "skipped: no FIFO on this system");
    }

    let polite = || {
        while !task::is_cancelled() {
            thread::sleep(Duration::from_millis(1));
        }
    };
    let view = pool.labelled("polite");
    let outcome = view.do_with_deadline(polite, Duration::from_millis(100));
    let timed_out = matches!(outcome, Err(DeadlineError::TimedOut));
    let (ended, later) = timed(|| eventually(|| pool.stats().running == 0));
    let saw = format!("TimedOut, saw is_cancelled, ended {later:.1?} after its caller left");
    so(timed_out && ended, "polite task", saw)
}

/// Nobody writes to the FIFO: the read blocks as on a stuck device or network share.
fn leave_a_read_that_never_answers(pool: &Pool) -> Outcome {
    let path = env::temp_dir().join(format!("lazypool-tour-{}", process::id()));
    Command::new("mkfifo").arg(&path).status()?;
    // Opened for reading alone it would wait for a writer, here. Its name is not needed any more.
    let mut writer = fs::File::options().read(true).write(true).open(&path)?;
    fs::remove_file(&path)?;
    let mut reader = writer.try_clone()?;
    let deadline = Duration::from_millis(100);
    let view = pool.labelled("blocking read");
    let read = move || reader.read(&mut [0]);
    let (outcome, took) = timed(|| view.do_with_deadline(read, deadline));
    let timed_out = matches!(outcome, Err(DeadlineError::TimedOut));
    let in_time = (deadline..deadline + SLACK).contains(&took);
    let left = format!("TimedOut after {took:.1?} (deadline {deadline:?})");
    so(timed_out && in_time, "blocking read", left)?;
    let mut workers = pool.workers().into_iter();
    let held = workers.any(|w| w.abandoned && w.label == Some("blocking read"));
    let held = held && pool.stats().running == 1;
    so(held, "its worker", "still occupied: the cap holds")?;
    writer.write_all(b"!")?;
    let free = eventually(|| pool.stats().running == 0);
    so(free, "once answered", "the read ends, its worker is free")
}

/// A refusal gives the closure back, so the caller can run it: back-pressure without a queue.
fn run_what_a_full_pool_refuses() -> Outcome {
    say("\n3  Run what a full pool refuses");
    let pool = builder("full").max_workers(1).build()?;
    let (open, gate) = mpsc::channel::<()>();
    pool.serve(move || gate.recv().unwrap_or(()))?;

    let (sender, ran_on) = mpsc::channel();
    let job = move || sender.send(thread::current().id()).unwrap_or(());
    let refused = pool.serve(job.clone()).err();
    let refused = refused.ok_or("not so: a full pool refuses")?;
    so(refused.is_saturated(), "refused", &refused)?;
    refused.run();
    // The same in one expression, which stops at a shutdown:
    pool.serve(job).or_else(Refused::caller_runs)?;
    let here = thread::current().id();
    let by_caller = ran_on.try_iter().filter(|&id| id == here).count();
    drop(open);
    so(by_caller == 2, "run by the caller", "2 of 2")
}

/// Threads start when there is work for them, and end when there has been none for a while.
fn start_late_and_retire() -> Outcome {
    say("\n4  Start late, retire early");
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
    so(gone && took < 2 * idle + SLACK, "no more work", after)
}

/// A shutdown that ran out of time says who is left, and can be asked again.
fn shut_down_twice() -> Outcome {
    say("\n5  Shut down, twice");
    let pool = builder("export").max_workers(1).queue_capacity(3).build()?;
    let (open, gate) = mpsc::channel::<()>();
    let slow = move || gate.recv().unwrap_or(());
    pool.labelled("slow export").serve(slow)?;
    for _ in 0..3 {
        pool.serve(|| ())?; // waits for the slow one
    }

    let timeout = Duration::from_millis(100);
    let (report, took) = timed(|| pool.shutdown(Shutdown::Drain, timeout));
    let left = report.stragglers.iter();
    let names: Vec<_> = left.filter_map(|worker| worker.label).collect();
    let named = took >= timeout && took < timeout + SLACK && names == ["slow export"];
    let running = format!("after {took:.1?} still running: {names:?}");
    so(named, "first shutdown", running)?;
    let refused = pool.serve(|| ()).is_err_and(|refused| refused.is_closed());
    so(refused, "new work", "refused as Closed")?;

    drop(open);
    let report = pool.shutdown(Shutdown::Drain, SLACK);
    let drained = pool.stats().completed == 4 && report.discarded == 0;
    let clean = report.is_clean() && drained;
    so(clean, "second shutdown", "clean, 4 of 4 tasks ran")
}

/// The yardstick is what the machine charges for a question and its answer between two threads.
fn time_the_two_verbs() -> Outcome {
    say("\n6  What a call costs (medians; x: in round trips)");
    let direct = builder("direct").max_workers(1).build()?;
    let ask = || {
        let answer = direct.do_with_deadline(|| black_box(()), SLACK);
        answer.expect("an answer in time");
    };
    // As fast as the tasks run: the queue keeps us from running ahead. They capture 24 bytes, as in life.
    let queued = builder("queued").max_workers(1).queue_capacity(1024);
    let queued = queued.when_full(WhenFull::Block).build()?;
    let captured = [1_u64, 2, 3];
    let hand_over = || {
        let accepted = queued.serve(move || _ = black_box(captured));
        accepted.expect("a queue that waits for room");
    };

    let mut rounds = [const { Vec::new() }; 3];
    let start = Instant::now();
    // In turn, for the machine's own speed changes from one moment to the next.
    while start.elapsed() < SLACK {
        rounds[0].push(spinning_round_trip());
        rounds[1].push(ns_each(100, ask));
        rounds[2].push(ns_each(5_000, hand_over));
    }
    let [trip, call, task] = rounds.map(median);
    let row = |what, ns: f64| line(what, format!("{ns:>7.0} ns {:>7.2} x", ns / trip));
    row("spinning round trip", trip);
    row("do_with_deadline", call);
    row("serve, queued", task);
    if cfg!(debug_assertions) {
        line("note", "a debug build: figures need --release");
    }
    Ok(())
}

/// Nanoseconds for one cache line to go to another thread and come back changed.
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

/// Nanoseconds per operation; the median of short rounds, for some are interrupted.
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

/// Each pool of the tour has a name, and is not waited for if a failed check leaves a task stuck.
fn builder(name: &str) -> Builder {
    let builder = Pool::builder().thread_name(name);
    builder.shutdown_on_drop(Shutdown::Cancel, SLACK)
}

fn timed<T>(f: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (f(), start.elapsed())
}

/// Some things follow shortly, not at once.
fn eventually(is_so: impl Fn() -> bool) -> bool {
    let pause = |_: &i32| thread::sleep(Duration::from_millis(1));
    (0..2_000).inspect(pause).any(|_| is_so())
}

/// Prints what is so; the first thing that is not ends the tour.
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

/// As `println`, which would panic where nobody reads on, as in `tour | head -3`.
fn say(text: impl Display) {
    if let Err(error) = writeln!(io::stdout(), "{text}") {
        if error.kind() == io::ErrorKind::BrokenPipe {
            process::exit(0);
        }
        eprintln!("Error: {error}");
        process::exit(1);
    }
}
