//! Random pools under random loads and faults, for as long as one likes.
//!
//! `cargo run --release -p soak -- --seconds 60 --seed 7`
//!
//! Each round draws a pool, its faults and a load from its seed, and checks what must hold: the
//! outcome of each call, the ledger, the number of threads, live memory, and the processor time of
//! a pool at rest. A failure or a hang ends the process with the command that plays its round
//! again. The seed does not fix how threads interleave, so it may take some repetitions. Linux only.

mod books;
mod calls;
mod faults;
mod rng;
mod round;

use crate::books::get;
use crate::faults::Table;
use lazypool::Pool;
use soak::os;
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

#[global_allocator]
static ALLOCATOR: os::Counting = os::Counting;

/// The seconds without progress that count as a hang.
const PATIENCE: u64 = 30;
/// Counts steps of any thread. If it stands still, something hangs.
static PROGRESS: AtomicU64 = AtomicU64::new(0);
static ROUND: AtomicU64 = AtomicU64::new(0);
/// The pools under test, for the messages of failures.
static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());
static ARGS: OnceLock<Args> = OnceLock::new();

const HELP: &str = "\
Options:
  --seconds N   how long (60)
  --pairs N     so many pools, each fault in every other one, and a table of the pairs that met
  --seed S      where to begin (from the clock)
  --round K     only this round, again and again";

#[derive(Debug)]
struct Args {
    seconds: u64,
    pairs: u64,
    seed: u64,
    round: Option<u64>,
}

impl Args {
    /// Reads the arguments. Returns `None` if one is wrong.
    fn parse() -> Option<Self> {
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seed = clock.map_or(0, |d| d.as_nanos() as u64 % 1_000_000_007);
        let (seconds, pairs, round) = (60, 0, None);
        let mut args = Self {
            seconds,
            pairs,
            seed,
            round,
        };
        let given: Vec<String> = std::env::args().skip(1).collect();
        for pair in given.chunks(2) {
            let number = pair.get(1)?.parse().ok()?;
            match pair[0].as_str() {
                "--seconds" => args.seconds = number,
                "--pairs" => args.pairs = number,
                "--seed" => args.seed = number,
                "--round" => args.round = Some(number),
                _ => return None,
            }
        }
        Some(args)
    }
}

fn args() -> &'static Args {
    ARGS.get().expect("set first thing in main")
}

/// Prints all that is known about a failure and ends the process.
fn fail(message: &str) -> ! {
    static FAILED: AtomicBool = AtomicBool::new(false);
    if FAILED.swap(true, SeqCst) {
        // Only the first failure is reported; the others are often its consequences.
        loop {
            thread::park();
        }
    }
    let (args, round) = (args(), ROUND.load(SeqCst));
    eprintln!("\nFAILED: {message}");
    let pairs = match args.pairs {
        0 => String::new(),
        pools => format!(" --pairs {pools}"),
    };
    eprintln!("replay: soak --seed {} --round {round}{pairs}", args.seed);
    // A broken pool may not answer.
    let printer = thread::Builder::new().spawn(|| {
        let pools = POOLS.lock().map(|p| p.clone()).unwrap_or_default();
        for pool in pools.iter().filter_map(Weak::upgrade) {
            eprintln!("{:?}\n{:?}", pool.stats(), pool.workers());
            // Its drop might wait.
            std::mem::forget(pool);
        }
    });
    let start = Instant::now();
    while printer.as_ref().is_ok_and(|p| !p.is_finished()) && start.elapsed().as_secs() < 5 {
        thread::sleep(Duration::from_millis(10));
    }
    exit(1);
}

/// Turns a hang into a failure.
fn watchdog() {
    let mut last = (0, 0);
    let mut since = Instant::now();
    loop {
        thread::sleep(Duration::from_secs(1));
        let now = (PROGRESS.load(SeqCst), ROUND.load(SeqCst));
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed().as_secs() >= PATIENCE {
            fail(&format!("no progress for {:?}", since.elapsed()));
        }
    }
}

fn main() {
    let Some(args) = Args::parse() else {
        eprintln!("{HELP}");
        exit(2);
    };
    let args = ARGS.get_or_init(|| args);
    // Planned panics do not call the panic hook.
    std::panic::set_hook(Box::new(|info| {
        let trace = std::backtrace::Backtrace::force_capture();
        fail(&format!("{info}\n{trace}"));
    }));
    eprintln!("soak --seed {}", args.seed);
    // Waits until the watchdog runs: the OS may take a while to show a new thread in /proc.
    let watched = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            watched.store(true, SeqCst);
            watchdog();
        });
        while !watched.load(SeqCst) {
            thread::yield_now();
        }
        exit(rounds(args));
    });
}

/// Plays the rounds. Returns the exit code.
fn rounds(args: &Args) -> i32 {
    let start = Instant::now();
    let mut met = Table::new();
    let (mut played, mut reported, mut offered, mut ran) = (0, 0, 0, 0);
    // The first rounds fill thread-locals and caches.
    let mut first = None;
    loop {
        let seconds = start.elapsed().as_secs();
        let (live, resident) = (os::live_bytes(), os::resident());
        if played == 20 {
            first = Some((live, resident));
        }
        if let Some((live_then, resident_then)) = first {
            let grows = live - live_then > 64 << 10 || resident > resident_then + (1 << 10);
            let seen = format!("{live_then} to {live} bytes, {resident_then} to {resident} KiB");
            assert!(!grows, "memory grows: {seen}");
        }
        let is_over = match args.pairs {
            0 => seconds >= args.seconds,
            pools => played >= pools,
        };
        if seconds >= reported + 10 || is_over {
            reported = seconds;
            eprintln!("{seconds:4} s, {played} rounds, {offered} tasks offered, {ran} ran, {live} bytes live");
        }
        if is_over {
            break;
        }
        let round = args.round.unwrap_or(played);
        ROUND.store(round, SeqCst);
        let rare = if args.pairs > 0 { 0 } else { round % 4 };
        let site = round::play(rng::mix(args.seed ^ rng::mix(round)), rare);
        met.add(&site.seen);
        played += 1;
        offered += get(&site.books.made);
        ran += get(&site.books.ran);
    }
    if args.pairs == 0 {
        eprintln!("{played} rounds, nothing found");
        return 0;
    }
    println!("Of {played} pools, seed {}: {met}", args.seed);
    i32::from(!met.never().is_empty())
}
