//! A load run. It starts the service, drives each route from many connections for a while, prints
//! the results, and at last sends SIGTERM under load.
//!
//! ```text
//! cargo build --release -p service
//! target/release/load [connections] [seconds per route]
//! ```
//!
//! The program talks to the loopback interface only, and stops by itself.

use service::client::{Client, Process};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The service's settings: few workers and a short queue, so that the run shows saturation.
const SETTINGS: &str = r#"
listen = "127.0.0.1:0"
deadline = "250ms"
linger = "500ms"

[pool]
max_workers = 8
queue_capacity = 1024
idle_timeout = "1s"
"#;

/// The requests that the run sends, each with the text that its line of results begins with.
const ROUTES: &[(&str, &str)] = &[
    ("/health", "no pool: the floor"),
    ("/sleep?ms=0", "one task"),
    ("/factorial?n=50&count=1", "a request of one task"),
    ("/factorial?n=50&count=1024", "a request of 16 tasks"),
    (
        "/factorial?n=1000&count=4096",
        "more than the machine can do",
    ),
    ("/sleep?ms=10", "8 workers: 800/s"),
    ("/sleep?ms=100", "8 workers: 80/s"),
];

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let connections = args.next().map_or(Ok(64), |a| a.parse())?;
    let seconds = args.next().map_or(Ok(3.0), |a| a.parse::<f64>())?;
    let span = Duration::from_secs_f64(seconds.clamp(0.1, 60.0));

    let settings = std::env::temp_dir().join(format!("load-{}.toml", std::process::id()));
    std::fs::write(&settings, SETTINGS)?;
    let service = start(&settings);
    std::fs::remove_file(&settings)?;
    let service = service?;

    println!("{connections} connections, {seconds} s each; latencies in ms\n");
    println!(
        "{:<30} {:>8} {:>8} {:>8} {:>8}  answers",
        "route", "per s", "p50", "p99", "max"
    );
    for (route, what) in ROUTES {
        let tally = drive(service.address, route, connections, Instant::now() + span);
        print_line(route, &tally);
        println!("    {what}");
    }
    overload(service.address, connections, span);
    let stats = Client::connect(service.address)?.get("/stats")?.body;
    println!("\n/stats: {stats}");

    let end = Instant::now() + Duration::from_secs(30);
    let address = service.address;
    let route = "/factorial?n=50&count=1024";
    let driver = thread::spawn(move || drive(address, route, connections, end));
    thread::sleep(span);
    service.terminate()?;
    let told = Instant::now();
    let tally = driver.join().map_err(|_| "a client panicked")?;
    let (status, log) = service.wait()?;
    println!(
        "\nSIGTERM under load: {status} after {:.1?}",
        told.elapsed()
    );
    print_line(route, &tally);
    println!("\n{log}");
    if tally.lost > 0 {
        return Err("requests were lost".into());
    }
    Ok(())
}

/// Asks for as much as the workers can do, then for far more. In the second part, the time that a
/// task needs to have left when it starts is the learned one, a fixed number, or zero. The number
/// is right for the first kind of tasks, and too small for the second, as if a backend had become
/// slower.
fn overload(address: SocketAddr, connections: usize, span: Duration) {
    for ms in [100, 130] {
        println!("\noverload: tasks of {ms} ms on 8 workers, deadline 250 ms");
        for (what, takes, connections) in [
            ("no overload", "", 8),
            ("learned", "", connections),
            ("a fixed number, 118 ms", "&takes=118", connections),
            ("none: started late", "&takes=0", connections),
        ] {
            let route = format!("/sleep?ms={ms}{takes}");
            let tally = drive(address, &route, connections, Instant::now() + span);
            print_line(&route, &tally);
            let good = tally.answers.get(&200).copied().unwrap_or_default();
            let goodput = good as f64 / tally.took.as_secs_f64();
            println!("\n    {what}, {connections} connections: {goodput:.0} in time a second");
        }
    }
}

fn start(settings: &Path) -> Outcome<Process> {
    // Both programs are built into the same folder.
    let program = std::env::current_exe()?.with_file_name("service");
    let program = program.with_extension(std::env::consts::EXE_EXTENSION);
    let hint = "; build the service first: cargo build --release -p service";
    Process::start(&program, settings)
        .map_err(|e| format!("{}: {e}{hint}", program.display()).into())
}

#[derive(Default)]
struct Tally {
    answers: BTreeMap<u16, u64>,
    lost: u64,
    latencies: Vec<Duration>,
    took: Duration,
}

/// Sends requests over several connections. Each sends the next one as soon as it has its answer,
/// until `end` or until the server says that it closes the connection.
fn drive(address: SocketAddr, route: &str, connections: usize, end: Instant) -> Tally {
    let start = Instant::now();
    let stop = AtomicBool::new(false);
    let ask = || {
        let mut tally = Tally::default();
        let Ok(mut client) = Client::connect(address) else {
            return tally;
        };
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            let asked = Instant::now();
            let Ok(answer) = client.get(route) else {
                tally.lost += 1;
                break;
            };
            tally.latencies.push(asked.elapsed());
            *tally.answers.entry(answer.status).or_default() += 1;
            if answer.close {
                break;
            }
        }
        tally
    };
    let mut all = Tally::default();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..connections).map(|_| scope.spawn(ask)).collect();
        for client in clients {
            let one = client.join().unwrap_or_default();
            all.lost += one.lost;
            all.latencies.extend(one.latencies);
            for (status, n) in one.answers {
                *all.answers.entry(status).or_default() += n;
            }
        }
    });
    all.took = start.elapsed();
    all.latencies.sort_unstable();
    all
}

fn print_line(route: &str, tally: &Tally) {
    let ms = |share: f64| {
        let last = tally.latencies.len().saturating_sub(1);
        let at = (last as f64 * share) as usize;
        let latency = tally.latencies.get(at).copied().unwrap_or_default();
        latency.as_secs_f64() * 1e3
    };
    let rate = tally.latencies.len() as f64 / tally.took.as_secs_f64();
    let answers: Vec<_> = tally
        .answers
        .iter()
        .map(|(s, n)| format!("{n} x {s}"))
        .collect();
    print!(
        "{route:<30} {rate:>8.0} {:>8.2} {:>8.2} {:>8.2}  {}, lost {}",
        ms(0.5),
        ms(0.99),
        ms(1.0),
        answers.join(", "),
        tally.lost
    );
}
