//! Tests the server of the guide to async code. It answers under load, and it ends within its
//! stated time even if clients are slow and tasks hang. `offload.rs` tests its function `offload`.

#[allow(dead_code)] // its `main`
#[path = "../examples/minimal/main.rs"]
mod minimal;

#[allow(dead_code)] // a request of a tenant
mod client;

use client::Client;
#[cfg(unix)]
use client::Process;
use lazypool::{Pool, Shutdown, ShutdownReport};
use minimal::{FOR_CLIENTS, FOR_TASKS};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Far more time than any condition here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// A server on its own runtime.
struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: thread::JoinHandle<ShutdownReport>,
}

impl Server {
    fn start(pool: Arc<Pool>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (tell, address) = mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
                let address = listener.local_addr().expect("an address");
                tell.send(address).expect("the test waits for it");
                let stopped = async { stopped.await.unwrap_or_default() };
                let report = minimal::serve(listener, minimal::routes(&pool), pool, stopped).await;
                report.expect("a shutdown does not panic")
            })
        });
        let address = address.recv_timeout(LIMIT).expect("it listens");
        Self {
            address,
            stop,
            thread,
        }
    }

    /// Stops the server, and returns its report and the time that it took.
    fn stop(self) -> (ShutdownReport, Duration) {
        let start = Instant::now();
        self.stop.send(()).expect("it runs");
        let report = self.thread.join().expect("no panic");
        (report, start.elapsed())
    }
}

fn pool(workers: usize, queue: usize) -> Arc<Pool> {
    let builder = Pool::builder().max_workers(workers).queue_capacity(queue);
    let builder = builder.shutdown_on_drop(Shutdown::Cancel, Duration::ZERO);
    Arc::new(builder.build().expect("pool"))
}

/// The number of answers with each status and `Retry-After`.
type Answers = Mutex<BTreeMap<(u16, Option<String>), usize>>;

/// Sends request after request, until the server closes the connection between two of them.
fn ask_until_closed(mut client: Client, body: &[u8], answers: &Answers) {
    loop {
        let sent = client.send_post("/checksum", body.len(), body);
        match sent.and_then(|()| client.read()) {
            Ok(answer) => {
                let what = (answer.status, answer.retry_after);
                *answers.lock().unwrap().entry(what).or_default() += 1;
                if answer.close {
                    return;
                }
            }
            Err(error) => {
                use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
                let kinds = [
                    BrokenPipe,
                    ConnectionAborted,
                    ConnectionReset,
                    UnexpectedEof,
                ];
                assert!(kinds.contains(&error.kind()), "{error:?}");
                return;
            }
        }
    }
}

/// 32 connections that never pause share one worker, while another client sends one byte of its
/// body and stops. Each answer is one that the guide names. Each 503 says when to try again. The
/// end takes as long as the server waits for the slow client, and not much longer.
#[test]
fn under_load_and_with_a_slow_client_it_ends_in_its_stated_time() {
    let pool = pool(1, 2);
    let server = Server::start(Arc::clone(&pool));
    let address = server.address;
    let mut slow = Client::connect(address);
    slow.send_post("/checksum", 100, b"x").expect("sent");
    let body = vec![1; 64 << 10];
    let answers = Answers::default();
    let busy = || (503, Some(String::from("1")));
    // All of them are connected before the first asks: the end may come soon after that.
    let clients: Vec<_> = (0..32).map(|_| Client::connect(address)).collect();
    let (report, took) = thread::scope(|s| {
        for client in clients {
            s.spawn(|| ask_until_closed(client, &body, &answers));
        }
        let start = Instant::now();
        let seen = |what| answers.lock().unwrap().contains_key(&what);
        while !(seen((200, None)) && seen(busy())) {
            assert!(start.elapsed() < LIMIT, "{:?}", answers.lock());
            thread::sleep(Duration::from_millis(1));
        }
        server.stop()
    });
    let answers = answers.into_inner().unwrap();
    for answer in answers.keys() {
        let named = [(200, None), busy(), (504, None)];
        assert!(named.contains(answer), "{answers:?}");
    }
    // The server waits for the slow client until the end, and then closes its connection.
    assert!((FOR_CLIENTS..LIMIT).contains(&took), "{took:?}");
    assert!(slow.read().is_err());
    assert!(report.is_clean(), "{report:?}");
    // The pool's statistics agree: no accepted request is lost.
    let (stats, count) = (pool.stats(), |what| answers.get(&what).copied());
    assert!(
        stats.completed >= count((200, None)).unwrap_or(0) as u64,
        "{stats:?}"
    );
    assert!(
        stats.refused + stats.expired >= count(busy()).unwrap_or(0) as u64,
        "{stats:?}"
    );
    assert_eq!(
        (stats.queued, stats.running, stats.panicked),
        (0, 0, 0),
        "{stats:?}"
    );
}

/// Without a slow client, nothing holds up the end.
#[test]
fn idle_connections_do_not_hold_up_the_end() {
    let server = Server::start(pool(1, 0));
    let mut client = Client::connect(server.address);
    client.send_post("/checksum", 3, &[1, 2, 3]).expect("sent");
    let answer = client.read().expect("an answer");
    assert_eq!((answer.status, answer.body.as_str()), (200, "6\n"));
    let (report, took) = server.stop();
    assert!(report.is_clean(), "{report:?}");
    assert!(took < FOR_CLIENTS, "{took:?}");
}

/// A task that never returns delays the end by `FOR_TASKS`, and no longer. Neither the shutdown nor
/// the drop of the pool waits longer for it.
#[test]
fn a_task_that_hangs_does_not_hold_up_the_end() {
    let pool = pool(1, 0);
    let (open, gate) = mpsc::channel::<()>();
    let hangs = move || gate.recv().unwrap_or_default();
    pool.serve(hangs).expect("an idle pool");
    let server = Server::start(pool);
    let (report, took) = server.stop();
    assert_eq!(report.stragglers.len(), 1, "{report:?}");
    assert!((FOR_TASKS..LIMIT).contains(&took), "{took:?}");
    drop(open);
}

/// Starts the example as a process. `cargo test -p service` builds it. `--test minimal` does not: it tests the
/// example of an earlier build.
#[cfg(unix)]
fn start() -> Process {
    let tests = std::env::current_exe().expect("a path");
    let built = tests.ancestors().nth(2).expect("two folders up");
    let program = built.join("examples/minimal");
    assert!(
        program.exists(),
        "build it first: cargo build -p service --example minimal"
    );
    Process::start(&program, "127.0.0.1:0").expect("it starts")
}

/// One signal prints the pool, the other one also gives first aid. The process goes on, and ends at a SIGTERM.
#[cfg(unix)]
#[test]
fn signals_print_the_pool() {
    let mut service = start();
    let mut client = Client::connect(service.address);
    for (signal, says) in [("-USR1", "findings: []"), ("-USR2", "nudged")] {
        service.send(signal);
        let lines = [service.read_log(), service.read_log()];
        assert!(lines.iter().any(|line| line.contains(says)), "{lines:?}");
        assert!(
            lines.iter().any(|line| line.contains("findings: [")),
            "{lines:?}"
        );
        client.send_post("/checksum", 2, &[1, 2]).expect("sent");
        assert_eq!(client.read().expect("an answer").body, "3\n");
    }
    service.terminate();
    let (status, log) = service.wait();
    assert!(status.success(), "{status}: {log}");
}

/// Tests a real process with a real SIGTERM, and a client that sends one byte of its body.
#[cfg(unix)]
#[test]
fn sigterm_ends_the_process_although_a_client_sends_one_byte() {
    let service = start();
    let mut client = Client::connect(service.address);
    client.send_post("/checksum", 2, &[1, 2]).expect("sent");
    assert_eq!(client.read().expect("an answer").body, "3\n");
    let mut slow = Client::connect(service.address);
    slow.send_post("/checksum", 100, b"x").expect("sent");
    // Wait for an answer on a second connection. The first one has been accepted by then, too.
    let mut later = Client::connect(service.address);
    later.send_post("/checksum", 1, &[5]).expect("sent");
    assert_eq!(later.read().expect("an answer").body, "5\n");
    let start = Instant::now();
    service.terminate();
    let (status, log) = service.wait();
    let took = start.elapsed();
    assert!(status.success(), "{status}: {log}");
    assert!(log.contains("some clients are not done"), "{log}");
    assert!((FOR_CLIENTS..LIMIT).contains(&took), "{took:?}");
    assert!(slow.read().is_err());
}
