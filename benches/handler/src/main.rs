//! Compares three handlers, which `wrk` drives: the guide's, one on `spawn_blocking` and a
//! semaphore, and one that runs its task in place.
//!
//! ```text
//! apt-get install wrk
//! cargo run --release -p handler -- [ROUNDS [SECONDS]]
//! ```
//!
//! Each round has its own runtime and its own pool, and the contenders take turns. The program
//! talks to the loopback interface only, and stops by itself.

#[path = "../../../examples/service/examples/minimal/offload.rs"]
mod offload;

use axum::routing::{get, MethodRouter};
use axum::{extract::State, http::StatusCode, Router};
use lazypool::{Pool, Shutdown};
use std::future::IntoFuture;
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The name of a contender, and the route that runs a task with it.
type Contender = (&'static str, fn() -> MethodRouter<App>);

const WORKERS: usize = 4;
const QUEUE: usize = 256;
const DEADLINE: Duration = Duration::from_millis(250);
const TAKES: Duration = Duration::from_millis(1);
const CONTENDERS: [Contender; 3] = [
    ("lazypool", || get(on_the_pool)),
    ("semaphore and `spawn_blocking`", || {
        get(on_a_blocking_thread)
    }),
    // This one shows the costs of HTTP, the runtime and `wrk` alone.
    ("no pool", || get(in_place)),
];
/// The work of one task, in microseconds.
const WORKS: [u32; 2] = [0, 200];
const CONNECTIONS: [usize; 3] = [1, 4, 16];

#[derive(Clone)]
struct App {
    pool: Arc<Pool>,
    permits: Arc<Semaphore>,
    /// The number of turns of a task's loop.
    turns: u64,
}

/// Does the work of a task, in registers only. It is never inlined, so that no contender has a
/// better copy of it.
#[inline(never)]
fn work(turns: u64) -> u64 {
    let step = |sum: u64, turn| sum.wrapping_mul(6_364_136_223_846_793_005) ^ turn;
    black_box((0..black_box(turns)).fold(1, step))
}

async fn on_the_pool(State(app): State<App>) -> Result<String, StatusCode> {
    let work = move || work(app.turns);
    let tasks = app.pool.labeled("work").min_remaining(TAKES);
    // `wrk` makes a status other than 200 an error of the whole run.
    let value = offload::offload(tasks, DEADLINE, work).await;
    let value = value.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(format!("{value}\n"))
}

async fn on_a_blocking_thread(State(app): State<App>) -> Result<String, StatusCode> {
    let value = async {
        let permit = app.permits.acquire_owned().await.ok()?;
        let task = spawn_blocking(move || {
            let value = work(app.turns);
            drop(permit);
            value
        });
        task.await.ok()
    };
    let value = timeout(DEADLINE, value).await;
    let value = value.map_err(|_| StatusCode::GATEWAY_TIMEOUT)?;
    let value = value.ok_or(StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(format!("{value}\n"))
}

async fn in_place(State(app): State<App>) -> String {
    format!("{}\n", work(app.turns))
}

/// The figures that `wrk` prints for one run. Times are in microseconds.
#[derive(Debug, Clone, Copy)]
struct Said {
    rate: f64,
    p50: f64,
    p99: f64,
    /// The service's processor time for each request.
    cpu: f64,
}

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let rounds = args.next().map_or(Ok(5), |a| a.parse::<usize>())?.max(1);
    let seconds = args
        .next()
        .map_or(Ok(2), |a| a.parse::<u64>())?
        .clamp(1, 60);
    println!(
        "{WORKERS} workers, medians of {rounds} rounds of {seconds} s (smallest to largest)\n"
    );
    println!("| a task of | connections | | requests/s | p50, us | p99, us | processor time, us a request |");
    println!("|---|---|---|---|---|---|---|");
    for micros in WORKS {
        let turns = turns_for(Duration::from_micros(micros.into()));
        for connections in CONNECTIONS {
            let mut said = CONTENDERS.map(|_| Vec::new());
            for _ in 0..rounds {
                for ((_, route), said) in CONTENDERS.iter().zip(&mut said) {
                    said.push(measure(route(), turns, connections, seconds)?);
                }
            }
            for ((name, _), said) in CONTENDERS.iter().zip(&said) {
                println!("| {micros} us | {connections} | {name} | {} |", row(said));
            }
        }
    }
    Ok(())
}

fn row(said: &[Said]) -> String {
    let columns: [fn(&Said) -> f64; 4] = [|s| s.rate, |s| s.p50, |s| s.p99, |s| s.cpu];
    let cells = columns.map(|of| spread(said.iter().map(of).collect()));
    cells.join(" | ")
}

/// Returns the number of turns that take `span`, by the fastest of several tries.
fn turns_for(span: Duration) -> u64 {
    const TRIED: u64 = 100_000;
    let tries = (0..100).map(|_| {
        let start = Instant::now();
        black_box(work(TRIED));
        start.elapsed()
    });
    let fastest = tries.min().unwrap_or_default().as_secs_f64();
    (span.as_secs_f64() / fastest * TRIED as f64) as u64
}

fn measure(
    route: MethodRouter<App>,
    turns: u64,
    connections: usize,
    seconds: u64,
) -> Outcome<Said> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let pool = Pool::builder().max_workers(WORKERS).queue_capacity(QUEUE);
    let pool = Arc::new(pool.shutdown_on_drop(Shutdown::Cancel, DEADLINE).build()?);
    let permits = Arc::new(Semaphore::new(WORKERS));
    let app = App {
        pool,
        permits,
        turns,
    };
    let url = serve(&runtime, Router::new().route("/", route).with_state(app))?;
    run_wrk(&url, connections, 1)?; // threads start, connections open
    let before = processor_time()?;
    let (mut said, requests) = run_wrk(&url, connections, seconds)?;
    said.cpu = (processor_time()? - before).as_secs_f64() * 1e6 / requests;
    runtime.shutdown_timeout(DEADLINE);
    Ok(said)
}

fn serve(runtime: &Runtime, router: Router) -> Outcome<String> {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let url = format!("http://{}/", listener.local_addr()?);
    let serving = axum::serve(listener, router).into_future();
    runtime.spawn(async { serving.await.unwrap_or_default() });
    Ok(url)
}

fn run_wrk(url: &str, connections: usize, seconds: u64) -> Outcome<(Said, f64)> {
    let (connections, seconds) = (format!("-c{connections}"), format!("-d{seconds}s"));
    let mut wrk = Command::new("wrk");
    wrk.args(["-t1", "--latency", &connections, &seconds, url]);
    let out = wrk.output();
    let out = out.map_err(|why| format!("wrk (Debian: apt-get install wrk): {why}"))?;
    let text = String::from_utf8(out.stdout)?;
    parsed(&text).ok_or_else(|| format!("wrk said:\n{text}").into())
}

/// Reads the output of `wrk`. Returns `None` if a figure is missing, or if a request failed.
fn parsed(text: &str) -> Option<(Said, f64)> {
    if text.contains("Non-2xx") || text.contains("Socket errors") {
        return None;
    }
    let after = |name: &str| {
        let mut lines = text.lines().map(str::trim);
        lines.find_map(|line| line.strip_prefix(name).map(str::trim))
    };
    let mut lines = text.lines();
    let (requests, _) = lines.find_map(|line| line.split_once(" requests in "))?;
    let said = Said {
        rate: after("Requests/sec:")?.parse().ok()?,
        p50: micros(after("50%")?)?,
        p99: micros(after("99%")?)?,
        cpu: 0.0,
    };
    Some((said, requests.trim().parse().ok()?))
}

fn micros(text: &str) -> Option<f64> {
    let (figure, unit) = text.split_at(text.find(char::is_alphabetic)?);
    let times = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    Some(figure.parse::<f64>().ok()? * times)
}

/// Returns the processor time of this process. `wrk` is another process.
fn processor_time() -> Outcome<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name may have spaces, so read the fields after it: user and system time, in hundredths of
    // a second.
    let (_, fields) = stat.rsplit_once(')').ok_or("no name")?;
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: Result<Vec<u64>, _> = ticks.map(str::parse).collect();
    Ok(Duration::from_millis(10 * ticks?.iter().sum::<u64>()))
}

fn spread(mut all: Vec<f64>) -> String {
    all.sort_by(f64::total_cmp);
    let [median, min, max] = [all.len() / 2, 0, all.len() - 1].map(|at| shown(all[at]));
    format!("{median} ({min}-{max})")
}

fn shown(x: f64) -> String {
    if x < 100.0 {
        format!("{x:.1}")
    } else if x < 1000.0 {
        format!("{x:.0}")
    } else {
        let x = x.round() as u64;
        format!("{},{:03}", x / 1000, x % 1000)
    }
}
