//! A line-protocol sensor server on the standard library's sockets.
//!
//! ```text
//! cargo run --release --example tcp_server
//!     serves 127.0.0.1:7878 until SIGTERM; try it with `nc localhost 7878`
//! cargo run --release --example tcp_server -- 127.0.0.1:7878 initial=2 max=16 queue=32 idle_ms=250
//! ```
//!
//! The server speaks first. It says `READY`, or it says `BUSY` and closes if it has no room. Then
//! it replies to each line: `PUT sensor value`, `GET sensor`, `WAIT ms` (a slow sensor), `QUIT`.
//! `BYE` means that the server closes, and has not done any request sent after its last reply. So a
//! client always knows whether it was served or refused, at a shutdown too.

use lazypool::{task, Pool, Shutdown};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [] => serve("127.0.0.1:7878", Limits::DEFAULT),
        [address, limits @ ..] if !address.starts_with('-') => {
            serve(address, Limits::parse(limits)?)
        }
        _ => Err("usage: tcp_server [ADDRESS [KEY=VALUE]...]".into()),
    }
}

/// The limits of a server.
#[derive(Clone, Copy)]
struct Limits {
    /// The number of workers that start with the server and never retire.
    initial: usize,
    /// The number of connections served at once.
    max: usize,
    /// The number of connections that may wait. The next one is told `BUSY`.
    queue: usize,
    /// How long a worker waits for a connection before it retires.
    idle: Duration,
}

impl Limits {
    const DEFAULT: Self = Self {
        initial: 2,
        max: 16,
        queue: 32,
        idle: Duration::from_millis(250),
    };

    fn parse(args: &[&str]) -> Outcome<Self> {
        let mut limits = Self::DEFAULT;
        for arg in args {
            let (key, value) = arg.split_once('=').ok_or("settings are KEY=VALUE")?;
            let value: usize = value.parse().map_err(|e| format!("{key}: {e}"))?;
            match key {
                "initial" => limits.initial = value,
                "max" => limits.max = value,
                "queue" => limits.queue = value,
                "idle_ms" => limits.idle = Duration::from_millis(value as u64),
                _ => return Err(format!("no such setting: {key}").into()),
            }
        }
        Ok(limits)
    }
}

/// How long a thread reads from a connection before it checks whether the server stops.
const TICK: Duration = Duration::from_millis(20);
/// How long a client may be silent. After that, its worker goes to another client.
const SILENCE: Duration = Duration::from_secs(10);
/// The least time after SIGTERM during which new clients are still told `BUSY`.
const LINGER: Duration = Duration::from_millis(100);
const LONGEST_LINE: usize = 256;

/// The state that all connections share.
struct Server {
    sensors: Mutex<HashMap<String, f64>>,
    stopping: AtomicBool,
}

impl Server {
    /// Returns the reply to a line, or `None` if the client says `QUIT`.
    fn reply(&self, line: &[u8]) -> Option<String> {
        let line = String::from_utf8_lossy(line);
        let words: Vec<&str> = line.split_whitespace().collect();
        Some(match words.as_slice() {
            ["PUT", sensor, value] => match value.parse() {
                Ok(value) => {
                    lock(&self.sensors).insert((*sensor).to_owned(), value);
                    "OK".to_owned()
                }
                Err(_) => format!("ERR no number: {value}"),
            },
            ["GET", sensor] => match lock(&self.sensors).get(*sensor) {
                Some(value) => value.to_string(),
                None => "NONE".to_owned(),
            },
            ["WAIT", ms] => {
                let until = Instant::now() + Duration::from_millis(ms.parse().unwrap_or(0));
                while Instant::now() < until && !task::is_cancelled() {
                    thread::sleep(TICK.min(until.saturating_duration_since(Instant::now())));
                }
                "OK".to_owned()
            }
            ["QUIT"] => return None,
            _ => "ERR expected PUT, GET, WAIT or QUIT".to_owned(),
        })
    }
}

/// An accepted connection. Its client always learns whether it is served. A connection that is
/// dropped without being served says `BUSY`: a full pool refused it, or a shutdown discarded it. A
/// closure that captures it and the server's `Arc` has 16 bytes, so the pool allocates nothing.
struct Connection {
    stream: TcpStream,
    greeted: bool,
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        // If one of these calls fails, so does the first write or read.
        let _ = stream.set_nodelay(true);
        let _ = stream.set_read_timeout(Some(TICK));
        Self {
            stream,
            greeted: false,
        }
    }

    fn say(&self, text: &str) -> io::Result<()> {
        (&self.stream).write_all(format!("{text}\n").as_bytes())
    }

    /// Serves the connection to its end. Either side may end it.
    fn serve(mut self, server: &Server) {
        self.greeted = true;
        // An error means that the client has gone, so there is nothing to tell it.
        let _ = self.talk(server);
    }

    fn talk(&self, server: &Server) -> io::Result<()> {
        self.say("READY")?;
        let mut reader = BufReader::new(&self.stream);
        let mut line = Vec::new();
        let mut heard = Instant::now();
        while !server.stopping.load(Ordering::Relaxed) && heard.elapsed() < SILENCE {
            let room = LONGEST_LINE.saturating_sub(line.len()) as u64;
            match reader.by_ref().take(room).read_until(b'\n', &mut line) {
                Ok(_) if line.ends_with(b"\n") => {}
                Ok(_) if line.len() >= LONGEST_LINE => {
                    self.say("ERR line too long")?;
                    break;
                }
                Ok(_) => return Ok(()),
                // The read has timed out. `line` keeps the part that has come so far.
                Err(e) if is_timeout(&e) => continue,
                Err(e) => return Err(e),
            }
            let Some(reply) = server.reply(&line) else {
                break;
            };
            self.say(&reply)?;
            line.clear();
            heard = Instant::now();
        }
        self.say("BYE")?;
        // Closing a socket with unread bytes resets the connection, and the client might never see
        // `BYE`. So read until the client closes, too, but not for long.
        self.stream.shutdown(std::net::Shutdown::Write)?;
        let mut rest = [0; LONGEST_LINE];
        for _ in 0..16 {
            if (&self.stream).read(&mut rest)? == 0 {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.greeted {
            let _ = self.say("BUSY");
        }
    }
}

fn is_timeout(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the pool whose workers serve the connections.
fn pool(limits: Limits) -> Outcome<Pool> {
    Ok(Pool::builder()
        .min_workers(limits.initial)
        .max_workers(limits.max)
        .queue_capacity(limits.queue)
        .idle_timeout(limits.idle)
        // `stop` waits for the workers, so the drop need not.
        .shutdown_on_drop(Shutdown::Cancel, Duration::ZERO)
        .thread_name("sensors")
        .build()?)
}

/// Waits for the connections to end. Returns 0 if they have ended, 2 if they had to be cancelled,
/// and 3 if some have not ended.
fn stop(pool: &Pool) -> u8 {
    let grace = Duration::from_secs(2);
    if pool.shutdown(Shutdown::Discard, grace).is_clean() {
        return 0;
    }
    let report = pool.shutdown(Shutdown::Cancel, grace);
    for straggler in &report.stragglers {
        eprintln!("tcp_server: worker {} does not end", straggler.slot);
    }
    if report.is_clean() {
        2
    } else {
        3
    }
}

/// Runs a server until SIGTERM.
fn serve(address: &str, limits: Limits) -> Outcome<ExitCode> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&asked))?;
    }
    let pool = Arc::new(pool(limits)?);
    let server = Arc::new(Server {
        sensors: Mutex::default(),
        stopping: AtomicBool::new(false),
    });
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    println!("listening on {address}");

    let stopped = Arc::new(AtomicBool::new(false));
    let stopper = {
        let (pool, server, stopped) = (pool.clone(), server.clone(), stopped.clone());
        thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                thread::sleep(TICK);
            }
            // Every connection ends after its current reply. New ones are still accepted, refused
            // by the closed pool, and dropped, which tells their clients.
            server.stopping.store(true, Ordering::Relaxed);
            let told = Instant::now();
            let code = stop(&pool);
            // Wait, so that a client that was just between two connections is told, too.
            thread::sleep(LINGER.saturating_sub(told.elapsed()));
            stopped.store(true, Ordering::Release);
            // Only a connection makes `accept` return, so make one.
            let _ = TcpStream::connect(address);
            code
        })
    };

    while !stopped.load(Ordering::Acquire) {
        match listener.accept() {
            Ok((stream, _)) => {
                let (connection, server) = (Connection::new(stream), Arc::clone(&server));
                // A refusal returns the closure with the connection in it, which is dropped here.
                let _ = pool.serve(move || connection.serve(&server));
            }
            Err(e) => {
                // Most likely no descriptor is left. There will be one when a connection ends.
                eprintln!("tcp_server: accept: {e}");
                thread::sleep(TICK);
            }
        }
    }
    // Tell the clients whose connections the system has made but the loop has not accepted.
    listener.set_nonblocking(true)?;
    while let Ok((stream, _)) = listener.accept() {
        drop(Connection::new(stream));
    }
    drop(listener);
    let code = stopper.join().map_err(|_| "stopping panicked")?;
    Ok(ExitCode::from(code))
}
