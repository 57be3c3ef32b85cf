//! Goodput over offered load: how many answers come in time, as more work is asked for than a pool
//! can do.
//!
//! ```text
//! cargo run --release -p peers --bin goodput -- benches/goodput.tsv
//! cargo run --release -p peers --bin figures # draws the figure
//! ```
//!
//! Clients call at fixed times, whatever becomes of earlier calls, as the clients of a service do.
//! Tasks sleep, so the figure depends on which tasks are started, and not on free cores.

use crossbeam_channel::bounded;
use lazypool::Pool;
use std::env;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

const WORKERS: u32 = 8;
const QUEUE: usize = 1024;
const TASK: Duration = Duration::from_millis(10);
const DEADLINE: Duration = Duration::from_millis(25);
/// The time for `min_remaining`: a fifth more than a task sleeps.
const TAKES: Duration = Duration::from_millis(12);
/// The offered loads, in percent of the workers' capacity.
const LOADS: [u32; 10] = [25, 50, 75, 90, 100, 110, 125, 150, 200, 300];
const ROUNDS: usize = 3;
const HEAD: &str = "# contender, offered load in percent, goodput in percent of each round\n";
/// Calls that begin earlier than this after the first one do not count.
const WARM_UP: Duration = Duration::from_millis(500);
const MEASURED: Duration = Duration::from_millis(1500);

/// A task. Once `over` is set, those that are left in a queue end at once.
#[derive(Clone)]
struct Task {
    over: Arc<AtomicBool>,
}

impl Task {
    fn run(self) {
        if !self.over.load(Relaxed) {
            thread::sleep(TASK);
        }
    }
}

/// Calls once. Returns `true` if the pool gave the value.
type Call = Box<dyn Fn(Task) -> bool + Send + Sync>;

fn ours(min_remaining: Duration) -> Call {
    let pool = Pool::builder().max_workers(WORKERS as usize);
    let pool = pool.queue_capacity(QUEUE).build().expect("in bounds");
    Box::new(move |task| {
        let calls = pool.min_remaining(min_remaining);
        calls.do_with_deadline(|| task.run(), DEADLINE).is_ok()
    })
}

/// The well-known way: the closure holds the permit, so that it is not free before the task ends.
/// `acquire` is how long a call may wait for its permit.
fn semaphore(acquire: Duration) -> Call {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build();
    let runtime = runtime.expect("the system gives threads");
    let permits = Arc::new(Semaphore::new(WORKERS as usize));
    Box::new(move |task| {
        let permits = Arc::clone(&permits);
        let value = async {
            let Ok(permit) = timeout(acquire, permits.acquire_owned()).await else {
                return false;
            };
            let work = move || {
                task.run();
                drop(permit);
            };
            spawn_blocking(work).await.is_ok()
        };
        runtime.block_on(async { timeout(DEADLINE, value).await.unwrap_or(false) })
    })
}

/// A pool with a queue without a bound, and a reply channel.
fn plain() -> Call {
    let pool = threadpool::ThreadPool::new(WORKERS as usize);
    let pool = std::sync::Mutex::new(pool); // it is not `Sync`
    Box::new(move |task| {
        let (reply, value) = bounded(1);
        let work = move || {
            task.run();
            // This fails if the caller has stopped waiting.
            let _ = reply.send(());
        };
        pool.lock().expect("no panic").execute(work);
        value.recv_timeout(DEADLINE).is_ok()
    })
}

type Build = fn() -> Call;

const CONTENDERS: [(&str, Build); 5] = [
    ("lazypool, min_remaining", || ours(TAKES)),
    ("lazypool", || ours(Duration::ZERO)),
    (
        "spawn_blocking, a semaphore, timeout for its permit",
        || semaphore(DEADLINE - TAKES),
    ),
    ("spawn_blocking, a semaphore", || semaphore(DEADLINE)),
    ("threadpool", plain),
];

/// Returns the calls that had their value in time, in percent of the workers' capacity.
fn goodput(call: &Call, load: u32) -> f64 {
    let capacity = f64::from(WORKERS) / TASK.as_secs_f64();
    let period = Duration::from_secs_f64(100.0 / f64::from(load) / capacity);
    // Enough clients for each to be back before its next call.
    let clients = (2 * DEADLINE).div_duration_f64(period).ceil() as u32;
    let task = Task {
        over: Arc::default(),
    };
    let good = AtomicU64::new(0);
    let first = Instant::now() + Duration::from_millis(50);
    let client = |number| {
        for turn in 0.. {
            let at = period * (number + turn * clients);
            if at > WARM_UP + MEASURED {
                return;
            }
            thread::sleep((first + at).saturating_duration_since(Instant::now()));
            let start = Instant::now();
            let in_time = call(task.clone()) && start.elapsed() < DEADLINE;
            good.fetch_add(u64::from(in_time && at > WARM_UP), Relaxed);
        }
    };
    thread::scope(|s| (0..clients).for_each(|n| drop(s.spawn(move || client(n)))));
    task.over.store(true, Relaxed);
    100.0 * good.load(Relaxed) as f64 / (MEASURED.as_secs_f64() * capacity)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = env::args().nth(1).ok_or("usage: goodput FILE")?;
    let mut figures = vec![Vec::new(); CONTENDERS.len() * LOADS.len()];
    // Contenders take turns in each round, so that a slow phase of the machine is none's alone.
    for round in 0..ROUNDS {
        for (at, load) in LOADS.into_iter().enumerate() {
            for (n, (name, build)) in CONTENDERS.into_iter().enumerate() {
                let percent = goodput(&build(), load);
                eprintln!("round {round}, {load} %, {name}: {percent:.1}");
                figures[n * LOADS.len() + at].push(percent);
            }
        }
    }
    let mut lines = String::from(HEAD);
    for (place, mut rounds) in figures.into_iter().enumerate() {
        let (name, load) = (
            CONTENDERS[place / LOADS.len()].0,
            LOADS[place % LOADS.len()],
        );
        rounds.sort_by(f64::total_cmp);
        let rounds: Vec<_> = rounds.iter().map(|x| format!("{x:.1}")).collect();
        writeln!(lines, "{name}\t{load}\t{}", rounds.join("\t"))?;
    }
    Ok(std::fs::write(file, lines)?)
}
