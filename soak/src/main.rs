//! Random pools under random loads, for as long as one likes.
//!
//! `cargo run --release -p soak -- --seconds 60 --seed 7`
//!
//! Each round draws a pool and a load from its seed and checks at the end what must hold: the
//! counts, every closure's fate, the number of threads, live memory, and the processor time of a
//! pool at rest. A failure or a hang ends the process with the command that plays its round again.
//! The seed does not fix how threads interleave, so it may take some repetitions. Linux only.

mod books;
mod handles;
mod load;
mod pairs;
mod plan;
mod round;

use crate::books::PROGRESS;
use crate::round::{Totals, POOLS};
use soak::{os, rng};
use std::process::{exit, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

#[global_allocator]
static ALLOCATOR: os::Counting = os::Counting;

const HELP: &str = "\
Options:
  --seconds N   how long (60)
  --seed S      where to begin (from the clock)
  --round K     only this round, again and again
  --patience N  seconds without progress that count as a hang (30)
  --hold        do not end after a failure: leave the process to a debugger
  --pairs N     so many pools under several faults each, and a table of the pairs met
  --child       as an ordinary user whose threads fail at times";

#[derive(Debug, Clone)]
struct Args {
    seconds: u64,
    seed: u64,
    round: Option<u64>,
    patience: u64,
    hold: bool,
    child: bool,
    pairs: u64,
}

impl Args {
    fn parse() -> Result<Self, String> {
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let mut args = Self {
            seconds: 60,
            seed: clock.map_or(0, |d| d.as_nanos() as u64 % 1_000_000_007),
            round: None,
            patience: 30,
            hold: false,
            child: false,
            pairs: 0,
        };
        let mut given = std::env::args().skip(1);
        while let Some(flag) = given.next() {
            let mut number = || {
                let value = given.next().ok_or(format!("{flag} needs a number"))?;
                value.parse().map_err(|e| format!("{flag} {value}: {e}"))
            };
            match flag.as_str() {
                "--seconds" => args.seconds = number()?,
                "--seed" => args.seed = number()?,
                "--round" => args.round = Some(number()?),
                "--patience" => args.patience = number()?,
                "--pairs" => args.pairs = number()?,
                "--hold" => args.hold = true,
                "--child" => args.child = true,
                _ => return Err(HELP.to_owned()),
            }
        }
        Ok(args)
    }
}

static ARGS: OnceLock<Args> = OnceLock::new();
static ROUND: AtomicU64 = AtomicU64::new(0);

fn args() -> &'static Args {
    ARGS.get().expect("set first thing in main")
}

fn round_seed(round: u64) -> u64 {
    rng::mix(args().seed ^ rng::mix(round))
}

/// Prints all that is known about a failure and ends the process.
fn fail(what: &str) -> ! {
    static FAILED: AtomicBool = AtomicBool::new(false);
    if FAILED.swap(true, Ordering::SeqCst) {
        // Only the first failure is reported; the others are often its consequences.
        loop {
            thread::park();
        }
    }
    let (args, round) = (args(), ROUND.load(Ordering::SeqCst));
    let mode = match (args.child, args.pairs) {
        (true, _) => " --child".to_owned(),
        (false, 0) => String::new(),
        (false, pools) => format!(" --pairs {pools}"),
    };
    eprintln!("\nFAILED: {what}");
    if args.pairs == 0 {
        let plan = plan::Plan::random(round_seed(round), args.child);
        eprintln!("plan: {plan:?}");
    }
    eprintln!("replay: soak --seed {} --round {round}{mode}", args.seed);
    // A broken pool may not answer.
    let printer = thread::Builder::new().spawn(|| {
        let pools = POOLS.lock().map(|p| p.clone()).unwrap_or_default();
        for pool in pools.iter().filter_map(std::sync::Weak::upgrade) {
            eprintln!("{:?}\n{:?}", pool.stats(), pool.workers());
            // Its drop might wait.
            std::mem::forget(pool);
        }
    });
    let start = Instant::now();
    while printer.as_ref().is_ok_and(|p| !p.is_finished()) && start.elapsed().as_secs() < 5 {
        thread::sleep(Duration::from_millis(10));
    }
    if args.hold {
        eprintln!("holding process {}", std::process::id());
        loop {
            thread::park();
        }
    }
    exit(1);
}

/// Starts a thread that turns a hang into a failure.
fn watchdog() {
    let mut last = (0, 0);
    let mut since = Instant::now();
    loop {
        thread::sleep(Duration::from_secs(1));
        let now = (
            PROGRESS.load(Ordering::Relaxed),
            ROUND.load(Ordering::SeqCst),
        );
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed().as_secs() >= args().patience {
            fail(&format!("no progress for {:?}", since.elapsed()));
        }
    }
}

/// Plays rounds in a process of its own, as an ordinary user.
fn run_child(seed: u64, seconds: u64) {
    let status = std::env::current_exe().and_then(|exe| {
        Command::new(exe)
            .args(["--child", "--seed", &seed.to_string()])
            .args(["--seconds", &seconds.to_string()])
            .args(["--patience", &args().patience.to_string()])
            .args(args().hold.then_some("--hold"))
            .status()
    });
    match status {
        Ok(status) if status.success() => {}
        other => {
            eprintln!("the child with seed {seed}: {other:?}");
            exit(1);
        }
    }
}

fn main() {
    let args = match Args::parse() {
        Ok(args) => ARGS.get_or_init(|| args),
        Err(message) => {
            eprintln!("{message}");
            exit(2);
        }
    };
    if args.child {
        os::drop_privileges();
    }
    // Planned panics do not call the panic hook.
    std::panic::set_hook(Box::new(|info| {
        let trace = std::backtrace::Backtrace::force_capture();
        fail(&format!("{info}\n{trace}"));
    }));
    let who = if args.child { "child " } else { "" };
    eprintln!("soak {who}--seconds {} --seed {}", args.seconds, args.seed);
    // Waits until the watchdog runs: the OS may take a while to show a new thread in /proc.
    let watched = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            watched.store(true, Ordering::SeqCst);
            watchdog();
        });
        while !watched.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        if args.pairs > 0 {
            exit(i32::from(!pairs::play(args.seed, args.pairs, args.round)));
        }
        rounds();
    });
}

fn rounds() -> ! {
    let args = args();
    let start = Instant::now();
    let mut totals = Totals::default();
    let mut round = args.round.unwrap_or(0);
    let mut reported = 0;
    let mut played = 0;
    // The first rounds fill thread-locals and caches.
    let mut first = None;
    while start.elapsed().as_secs() < args.seconds {
        ROUND.store(round, Ordering::SeqCst);
        round::run(round_seed(round), args.child, &mut totals);
        played += 1;
        let (live, resident) = (os::live_bytes(), os::resident());
        if played == 10 {
            first = Some((live, resident));
        }
        if let Some((live_then, resident_then)) = first {
            let leaked = live - live_then > 64 << 10;
            if leaked || resident > resident_then + (256 << 10) {
                fail(&format!(
                    "memory grows: {live_then} to {live} bytes, {resident_then} to {resident} KiB"
                ));
            }
        }
        let seconds = start.elapsed().as_secs();
        if seconds >= reported + 10 || seconds >= args.seconds {
            reported = seconds;
            eprintln!(
                "{seconds:4} s, round {round}: {totals:?}, {live} bytes live, {resident} KiB"
            );
        }
        let end = args.seconds.saturating_sub(seconds);
        if !args.child && args.round.is_none() && round % 100 == 40 && end > 0 {
            run_child(round_seed(round) >> 20, end.min(5));
            PROGRESS.fetch_add(1, Ordering::Relaxed);
        }
        if args.round.is_none() {
            round += 1;
        }
    }
    eprintln!("{played} rounds, nothing found");
    exit(0);
}
