//! A tour of `lazypool`. Whatever it prints, it has checked:
//!
//! ```text
//! cargo run --release --example tour [DIR]
//! ```
//!
//! The main job digests every file under DIR (default: this repository); each stop after it shows one
//! promise of the crate. Exit status: 0, all of it was so; 1, something was not; 2, no DIR to walk.

use std::error::Error;
use std::fmt::Display;
use std::hint::{black_box, spin_loop};
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc, Arc, Barrier};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget};
use lazypool::{task, Builder, DeadlineError, Pool, Refused, Shutdown, WhenFull};

/// The whole tour takes less than this, and the walk at most so much of DIR to keep that promise.
const TOUR_LIMIT: Duration = Duration::from_secs(20);
const WALK_TIME: Duration = Duration::from_secs(3);
const WALK_FILES: usize = 20_000;
const WALK_BYTES: u64 = 128 << 20;
/// What a busy machine may add to a time that the pool promises.
const SLACK: Duration = Duration::from_secs(1);

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let start = Instant::now();
    let dir = directory_argument();
    end_in_time();

    digest_every_file(dir)?;
    leave_at_the_deadline()?;
    run_what_a_full_pool_refuses()?;
    start_late_and_retire()?;
    shut_down_twice()?;
    time_the_two_verbs()?;

    println!("\nAll of it was so, in {:.1?}.", start.elapsed());
    Ok(())
}

/// The main job: many short tasks, more of them than may wait at once.
fn digest_every_file(dir: PathBuf) -> Outcome {
    println!("1  Digest every file under {dir:?}");
    let walk = Walk::of(dir);
    // `Block` makes `serve` wait for room: we cannot run ahead of the workers by more than the queue.
    let pool = builder("digest")
        .max_workers(thread::available_parallelism()?.get())
        .queue_capacity(256)
        .when_full(WhenFull::Block)
        .build()?;
    // Tasks of a scope may borrow; it returns when all of them have ended.
    let (pooled, pool_time) = walk.pass(|digest| {
        pool.scope(|scope| {
            for file in &walk.files {
                let job = move || digest(file);
                // Should the system give no thread at all, the job comes back and runs here.
                scope.serve(job).unwrap_or_else(Refused::run);
            }
        });
    });
    let (plain, plain_time) = walk.pass(|digest| walk.files.iter().for_each(digest));

    let stats = pool.stats();
    let (workers, tasks) = (stats.peak_workers, stats.completed + stats.refused);
    check(workers <= pool.max_workers(), "the cap on workers holds")?;
    check(tasks == walk.files.len() as u64, "each file is one task")?;
    let [files, bytes, digest] = pooled;
    line("files", format!("{files}, without .git and target"));
    line("bytes", format!("{bytes} ({})", HumanBytes(bytes)));
    line("time, pool", format!("{pool_time:.1?}, {workers} workers"));
    line("time, plain loop", format!("{plain_time:.1?}"));
    if plain == walk.sum.total() {
        let both = format!("{digest:012x} from both");
        so(pooled == plain, "digest", both)?;
    } else {
        // The plain loop disagrees with the walk before it: there is nothing to hold the pool to.
        line("digest", "not compared: files changed meanwhile");
    }
    if let Some(first) = walk.unread.first() {
        let count = walk.unread.len();
        line("unreadable", format!("{count}, such as {first}"));
    }
    if walk.cut {
        let bytes = HumanBytes(WALK_BYTES);
        let limits = format!("{WALK_FILES} files, {bytes}, {WALK_TIME:?}");
        line("not all of DIR", format!("the tour reads at most {limits}"));
    }
    Ok(())
}

/// A caller leaves at its deadline, whatever the task does; a task that asks can leave with it.
fn leave_at_the_deadline() -> Outcome {
    println!("\n2  Leave at the deadline");
    let pool = builder("deadline").max_workers(2).build()?;
    let answer = pool.do_with_deadline(|| 6 * 7, SLACK)?;
    so(answer == 42, "in time", format!("Ok({answer})"))?;

    #[cfg(unix)]
    leave_a_read_that_never_answers(&pool)?;
    #[cfg(not(unix))]
    line("blocking read", "skipped: no FIFO on this system");

    let (sender, left) = mpsc::channel();
    let polite = move || {
        while !task::is_cancelled() {
            thread::sleep(Duration::from_millis(1));
        }
        sender.send(task::label())
    };
    let view = pool.labelled("polite");
    let outcome = view.do_with_deadline(polite, Duration::from_millis(50));
    let caller_left = Instant::now();
    let timed_out = matches!(outcome, Err(DeadlineError::TimedOut));
    check(timed_out, "the polite task times out")?;
    let saw = left.recv_timeout(SLACK) == Ok(Some("polite"));
    let later = caller_left.elapsed();
    let ended = format!("saw is_cancelled, ended {later:.1?} after its caller");
    so(saw, "polite task", ended)
}

/// Nobody writes to the FIFO: the read blocks as on a stuck device or network share.
#[cfg(unix)]
fn leave_a_read_that_never_answers(pool: &Pool) -> Outcome {
    let fifo = Fifo::new()?;
    let path = fifo.0.clone();
    let view = pool.labelled("blocking read");
    let deadline = Duration::from_millis(100);
    let start = Instant::now();
    let outcome = view.do_with_deadline(move || fs::read(path), deadline);
    let took = start.elapsed();
    let timed_out = matches!(outcome, Err(DeadlineError::TimedOut));
    let in_time = deadline <= took && took < deadline + SLACK;
    let left = format!("TimedOut after {took:.1?} (deadline {deadline:?})");
    so(timed_out && in_time, "blocking read", left)?;
    let mut workers = pool.workers().into_iter();
    let held = workers.any(|w| w.abandoned && w.label == Some("blocking read"));
    let held = held && pool.stats().running == 1;
    so(held, "its worker", "still occupied: the cap holds")?;
    drop(fifo);
    let free = eventually(|| pool.stats().running == 0);
    so(free, "once answered", "the read ends, its worker is free")
}

#[cfg(unix)]
struct Fifo(PathBuf);

#[cfg(unix)]
impl Fifo {
    fn new() -> io::Result<Fifo> {
        use std::{ffi::CString, os::unix::ffi::OsStringExt, time::UNIX_EPOCH};
        let now = UNIX_EPOCH.elapsed().map_or(0, |now| now.as_nanos());
        let path = env::temp_dir().join(format!("lazypool-tour-{}-{now}", process::id()));
        let c_path = CString::new(path.clone().into_os_string().into_vec())?;
        // SAFETY: `c_path` is a NUL-terminated string that outlives the call.
        match unsafe { libc::mkfifo(c_path.as_ptr(), 0o600) } {
            0 => Ok(Fifo(path)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(unix)]
impl Drop for Fifo {
    /// Gives a blocked reader its end of file: also on failure neither thread nor file is left behind.
    fn drop(&mut self) {
        use std::os::unix::fs::OpenOptionsExt;
        let mut writer = fs::OpenOptions::new();
        // Should there be no reader, a plain open would wait for one.
        writer.write(true).custom_flags(libc::O_NONBLOCK);
        let _ = writer.open(&self.0);
        let _ = fs::remove_file(&self.0);
    }
}

/// A refusal gives the closure back, so the caller can run it: back-pressure without a queue.
fn run_what_a_full_pool_refuses() -> Outcome {
    println!("\n3  Run what a full pool refuses");
    let pool = builder("full").max_workers(1).build()?;
    let (open, gate) = mpsc::channel::<()>();
    let waiting = pool.serve(move || gate.recv().unwrap_or(()));
    check(waiting.is_ok(), "an idle pool accepts")?;

    let (sender, ran_on) = mpsc::channel();
    let job = move || sender.send(thread::current().id()).unwrap_or(());
    let Err(refused) = pool.serve(job.clone()) else {
        return check(false, "a full pool refuses");
    };
    so(refused.is_saturated(), "refused", &refused)?;
    refused.run();
    // The same in one expression:
    pool.serve(job).unwrap_or_else(Refused::run);
    let here = thread::current().id();
    let by_caller = ran_on.try_iter().filter(|&id| id == here).count();
    drop(open);
    so(by_caller == 2, "run by the caller", "2 of 2")
}

/// Threads start when there is work for them, and end when there has been none for a while.
fn start_late_and_retire() -> Outcome {
    println!("\n4  Start late, retire early");
    let idle = Duration::from_millis(100);
    let pool = builder("lazy").max_workers(4).idle_timeout(idle).build()?;
    let mut stats = pool.stats();
    so(stats.workers == 0, "before the first task", "0 workers")?;
    for _ in 0..100 {
        pool.do_with_deadline(|| (), SLACK)?;
    }
    stats = pool.stats();
    so(stats.peak_workers == 1, "100 calls in sequence", "1 worker")?;

    // Tasks that wait for each other, and for us, need a worker each.
    let meeting = Arc::new(Barrier::new(5));
    for _ in 0..4 {
        let meeting = Arc::clone(&meeting);
        let joining = pool.serve(move || {
            meeting.wait();
        });
        check(joining.is_ok(), "four tasks at once are accepted")?;
    }
    so(pool.stats().workers == 4, "4 tasks at once", "4 workers")?;
    meeting.wait();
    let start = Instant::now();
    let gone = eventually(|| pool.stats().workers == 0);
    let took = start.elapsed();
    let in_time = gone && took < 2 * idle + SLACK;
    let after = format!("0 workers after {took:.1?} (idle_timeout {idle:?})");
    so(in_time, "no more work", after)
}

/// A shutdown that ran out of time says who is left, and can be asked again.
fn shut_down_twice() -> Outcome {
    println!("\n5  Shut down, twice");
    let pool = builder("export").max_workers(1).queue_capacity(3).build()?;
    let (open, gate) = mpsc::channel::<()>();
    let slow = move || gate.recv().unwrap_or(());
    let running = pool.labelled("slow export").serve(slow).is_ok();
    let waiting = (0..3).all(|_| pool.serve(|| ()).is_ok());
    check(running && waiting, "one task runs and three wait")?;

    let timeout = Duration::from_millis(100);
    let start = Instant::now();
    let report = pool.shutdown(Shutdown::Drain, timeout);
    let took = start.elapsed();
    let in_time = timeout <= took && took < timeout + SLACK;
    check(in_time, "shutdown returns at its timeout")?;
    let left = report.stragglers.iter();
    let names: Vec<_> = left.filter_map(|worker| worker.label).collect();
    let named = !report.is_clean() && names == ["slow export"];
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
    println!("\n6  What a call costs (medians; x: in round trips)");
    let direct = builder("direct").max_workers(1).build()?;
    let mut unanswered = 0;
    let mut ask = |calls| {
        for n in 0..calls {
            let answer = direct.do_with_deadline(move || black_box(n), SLACK);
            unanswered += u64::from(!answer.is_ok_and(|answer| answer == n));
        }
    };
    // Per task that ran: a round ends with its last task. Closures capture 24 bytes, as they do in life.
    static RAN: AtomicU64 = AtomicU64::new(0);
    let queued = builder("queued").max_workers(1).queue_capacity(1024);
    let queued = queued.when_full(WhenFull::Block).build()?;
    let mut accepted = 0;
    let mut hand_over = |tasks| {
        for n in 0..tasks {
            let captured = [1, n, n];
            let job = move || {
                RAN.fetch_add(black_box(captured)[0], Ordering::Relaxed);
            };
            accepted += u64::from(queued.serve(job).is_ok());
        }
        while RAN.load(Ordering::Relaxed) < accepted {
            thread::yield_now();
        }
    };

    // In turn, for the machine's own speed changes from one moment to the next.
    let start = Instant::now();
    let (mut trips, mut calls, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
    while trips.is_empty() || (trips.len() < 11 && start.elapsed() < 3 * SLACK) {
        trips.push(spinning_round_trip());
        calls.push(ns_each(100, &mut ask));
        tasks.push(ns_each(5_000, &mut hand_over));
    }
    check(unanswered == 0, "every timed do_with_deadline is answered")?;
    let ran = || queued.stats().completed == accepted;
    let once = eventually(ran) && RAN.load(Ordering::Relaxed) == accepted;
    let once = once && queued.stats().refused == 0;
    check(once, "every timed serve ran, once")?;

    let limit = median(trips);
    let row = |what, ns: f64| line(what, format!("{ns:>7.0} ns {:>7.2} x", ns / limit));
    row("spinning round trip", limit);
    row("do_with_deadline", median(calls));
    row("serve, queued", median(tasks));
    if cfg!(debug_assertions) {
        line("note", "a debug build: figures need --release");
    }
    Ok(())
}

/// Nanoseconds for one cache line to go to another thread and come back changed.
fn spinning_round_trip() -> f64 {
    #[repr(align(128))]
    struct Line(AtomicU64);
    // Not on the stack, where a neighbour that one thread writes would slow the other.
    static LINE: Line = Line(AtomicU64::new(0));
    const END: u64 = u64::MAX;

    fn other_than(mine: u64) -> u64 {
        let mut spins = 0_u64;
        loop {
            spins += 1;
            match LINE.0.load(Ordering::Acquire) {
                found if found != mine => return found,
                // On a single core the other thread cannot answer while we spin.
                _ if spins % 128 == 0 => thread::yield_now(),
                _ => spin_loop(),
            }
        }
    }
    LINE.0.store(0, Ordering::Release);
    let partner = thread::spawn(|| {
        let mut question = other_than(0);
        while question != END {
            LINE.0.store(question + 1, Ordering::Release);
            question = other_than(question + 1);
        }
    });
    let mut answer = 0;
    let ns = ns_each(100, |trips| {
        for _ in 0..trips {
            LINE.0.store(answer + 1, Ordering::Release);
            answer = other_than(answer + 1);
        }
    });
    LINE.0.store(END, Ordering::Release);
    drop(partner.join());
    ns
}

/// Nanoseconds per operation; the median of short rounds, for some are interrupted.
fn ns_each(operations: u64, mut round: impl FnMut(u64)) -> f64 {
    let begun = Instant::now();
    let mut rounds = Vec::new();
    while rounds.is_empty() || begun.elapsed() < Duration::from_millis(30) {
        let start = Instant::now();
        round(operations);
        rounds.push(start.elapsed().as_nanos() as f64 / operations as f64);
    }
    median(rounds)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Each pool of the tour has a name, and is not waited for if a failed check leaves a task stuck.
fn builder(name: &str) -> Builder {
    Pool::builder()
        .thread_name(name)
        .shutdown_on_drop(Shutdown::Cancel, SLACK)
}

/// Files, bytes and checksums: the same in whatever order, and by whichever threads, files are added.
#[derive(Default)]
struct Sum([AtomicU64; 3]);

impl Sum {
    fn add(&self, file: &Found) -> io::Result<()> {
        let (path, size) = file;
        let mut content = Vec::new();
        // No more than there was, for logs grow.
        let mut input = fs::File::open(path)?.take(*size);
        let bytes = input.read_to_end(&mut content)? as u64;
        let more = [1, bytes, crc32fast::hash(&content).into()];
        for (total, more) in self.0.iter().zip(more) {
            total.fetch_add(more, Ordering::Relaxed);
        }
        Ok(())
    }

    fn total(&self) -> [u64; 3] {
        [0, 1, 2].map(|part: usize| self.0[part].load(Ordering::Relaxed))
    }
}

/// A path, and the size it had.
type Found = (PathBuf, u64);

/// What DIR holds, each file read once: both timed passes find it in the system's cache.
#[derive(Default)]
struct Walk {
    ahead: Vec<PathBuf>,
    files: Vec<Found>,
    bytes: u64,
    sum: Sum,
    unread: Vec<String>,
    cut: bool,
}

impl Walk {
    fn of(dir: PathBuf) -> Walk {
        let start = Instant::now();
        let mut walk = Walk::default();
        walk.ahead.push(dir);
        while let Some(path) = walk.ahead.pop() {
            if walk.files.len() == WALK_FILES || start.elapsed() > WALK_TIME {
                walk.cut = true;
                break;
            }
            if let Err(error) = walk.visit(&path) {
                walk.unread.push(format!("{path:?}: {error}"));
            }
        }
        walk
    }

    fn visit(&mut self, path: &Path) -> io::Result<()> {
        let found = fs::symlink_metadata(path)?;
        if found.is_dir() {
            for entry in fs::read_dir(path)? {
                if self.ahead.len() == WALK_FILES {
                    self.cut = true;
                    break;
                }
                let path = entry?.path();
                let aside = path.ends_with(".git") || path.ends_with("target");
                if !(aside && path.is_dir()) {
                    self.ahead.push(path);
                }
            }
        } else if found.is_file() && self.bytes + found.len() > WALK_BYTES {
            self.cut = true;
        } else if found.is_file() {
            self.bytes += found.len();
            let file = (path.to_path_buf(), found.len());
            let read = self.sum.add(&file);
            self.files.push(file);
            return read;
        }
        Ok(())
    }

    /// Times `run`, which calls its argument for each file. The bar draws on a terminal only.
    fn pass(&self, run: impl FnOnce(&(dyn Fn(&Found) + Sync))) -> ([u64; 3], Duration) {
        let bar = ProgressBar::new(self.files.len() as u64);
        if !io::stdout().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let sum = Sum::default();
        let start = Instant::now();
        run(&|file| {
            // What cannot be read is missing from every sum alike.
            let _ = sum.add(file);
            bar.inc(1);
        });
        let took = start.elapsed();
        bar.finish_and_clear();
        (sum.total(), took)
    }
}

fn directory_argument() -> PathBuf {
    let mut arguments = env::args_os().skip(1);
    let given = arguments.next();
    let dir = given.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    // Without this a symlink to a directory would be passed over, as those inside it are.
    let found = fs::read_dir(&dir).and_then(|_| fs::canonicalize(&dir));
    match (found, arguments.next()) {
        (Ok(dir), None) => return dir,
        (Err(error), _) => eprintln!("tour: cannot walk {dir:?}: {error}"),
        (_, Some(more)) => eprintln!("tour: one directory at most, not also {more:?}"),
    }
    eprintln!("usage: tour [DIR]");
    process::exit(2)
}

/// Should a stop of the tour hang, the tour ends all the same.
fn end_in_time() {
    thread::spawn(|| {
        thread::sleep(TOUR_LIMIT);
        eprintln!("Error: not so: the tour ends within {TOUR_LIMIT:?}");
        process::exit(1)
    });
}

/// Every claim of the tour goes through here; the first that fails ends it.
fn check(cond: bool, claim: &str) -> Outcome {
    match cond {
        true => Ok(()),
        false => Err(format!("not so: {claim}").into()),
    }
}

/// Prints a line if it is so.
fn so(cond: bool, label: &str, value: impl Display) -> Outcome {
    check(cond, &format!("{label}: {value}"))?;
    line(label, value);
    Ok(())
}

fn line(label: &str, value: impl Display) {
    println!("   {label:<24}{value}");
}

/// Some things follow shortly, not at once.
fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > 2 * SLACK {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}
