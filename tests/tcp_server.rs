//! Tests `examples/tcp_server.rs` from its clients' side: a separate process, real TCP, SIGTERM.
#![cfg(all(unix, not(miri)))]

mod common;

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{ChildStdin, ChildStdout};
use std::thread;
use std::time::Instant;

use common::programs::{program, Process};
use common::*;

struct Server {
    process: Process,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Server {
    fn start(kind: &str, limits: &[&str]) -> Self {
        let mut command = program("tcp_server");
        let command = command.args(["serve", kind, "127.0.0.1:0"]).args(limits);
        let mut process = Process(command.spawn().unwrap());
        let stdin = process.0.stdin.take().unwrap();
        let mut stdout = BufReader::new(process.0.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap();
        let address = address.parse().unwrap();
        Self {
            process,
            stdin,
            stdout,
            address,
        }
    }

    fn client(&self) -> Client {
        Client::connect(self.address).unwrap()
    }

    /// Returns how many threads are alive now and how many have been started so far.
    fn threads(&mut self) -> (usize, u64) {
        self.stdin.write_all(b"?\n").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let (alive, started) = line.trim().split_once(' ').unwrap();
        (alive.parse().unwrap(), started.parse().unwrap())
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn say(&mut self, line: &str) -> io::Result<()> {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes())
    }

    /// Returns the next line, or an empty string if the server has closed the connection.
    fn hear(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    fn ask(&mut self, line: &str) -> String {
        self.say(line).unwrap();
        self.hear().unwrap()
    }
}

#[test]
fn it_speaks_its_protocol() {
    let server = Server::start("pool", &["initial=0", "max=2"]);
    let mut client = server.client();
    assert_eq!(client.hear().unwrap(), "READY");
    for (line, reply) in [
        ("GET boiler", "NONE"),
        ("PUT boiler 71.5", "OK"),
        ("GET boiler", "71.5"),
        ("PUT boiler hot", "ERR no number: hot"),
        ("GET boiler", "71.5"),
        ("WAIT 1", "OK"),
        ("", "ERR expected PUT, GET, WAIT or QUIT"),
        ("EXPLODE", "ERR expected PUT, GET, WAIT or QUIT"),
    ] {
        assert_eq!(client.ask(line), reply, "{line}");
    }
    // A line that arrives in several pieces, with ticks of the server in between.
    for piece in [&b"GET"[..], b" boi", b"ler\n"] {
        client.0.get_mut().write_all(piece).unwrap();
        thread::sleep(ms(50));
    }
    assert_eq!(client.hear().unwrap(), "71.5");
    // Two lines in one piece.
    assert_eq!(client.ask("PUT a 1\nGET a"), "OK");
    assert_eq!(client.hear().unwrap(), "1");
    assert_eq!(client.ask("QUIT"), "BYE");
    assert_eq!(client.hear().unwrap(), "");

    let mut client = server.client();
    assert_eq!(client.hear().unwrap(), "READY");
    assert_eq!(client.ask(&"x".repeat(10_000)), "ERR line too long");
    assert_eq!(client.hear().unwrap(), "BYE");
}

#[test]
fn the_queue_waits_and_beyond_it_clients_are_refused() {
    let server = Server::start("pool", &["initial=0", "max=1", "queue=1"]);
    let mut served = server.client();
    assert_eq!(served.hear().unwrap(), "READY");
    let mut queued = server.client();
    // Connections are accepted in order, so this one is accepted after the previous one.
    let mut refused = server.client();
    assert_eq!(refused.hear().unwrap(), "BUSY");
    assert_eq!(refused.hear().unwrap(), "");
    assert_eq!(served.ask("QUIT"), "BYE");
    assert_eq!(queued.hear().unwrap(), "READY");
}

#[test]
fn workers_come_with_a_burst_and_go_in_the_quiet_after_it() {
    let mut server = Server::start("pool", &["initial=2", "max=8", "idle_ms=50"]);
    assert_eq!(server.threads(), (2, 2));
    let mut clients: Vec<_> = (0..8).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.hear().unwrap(), "READY");
    }
    assert_eq!(server.threads(), (8, 8));
    drop(clients);
    wait_until("idle workers to end", || server.threads().0 == 2);
    assert_eq!(server.threads().1, 8);
}

#[test]
fn sigterm_answers_those_served_and_refuses_those_queued() {
    let mut server = Server::start("pool", &["initial=0", "max=1", "queue=4"]);
    let mut served = server.client();
    assert_eq!(served.hear().unwrap(), "READY");
    served.say("WAIT 60000").unwrap();
    let mut queued = server.client();
    // Gives the server time to accept the connection.
    thread::sleep(ms(50));
    server.process.signal(libc::SIGTERM);
    assert_eq!(queued.hear().unwrap(), "BUSY");
    // The server still accepts connections and answers them while the others finish.
    assert_eq!(server.client().hear().unwrap(), "BUSY");
    // The connection is cancelled after its period of grace.
    assert_eq!(served.hear().unwrap(), "OK");
    assert_eq!(served.hear().unwrap(), "BYE");
    assert_eq!(server.process.wait().code(), Some(2));
}

/// Sends requests until the server refuses. Returns the number of answers; every other end is a
/// loss.
fn ask_until_refused(address: SocketAddr, stay: bool, ready: &Tally) -> Result<u64, String> {
    let mut answers = 0;
    let mut first = true;
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        let mut client = match Client::connect(address) {
            Ok(client) => client,
            // No process listens any more, which is as clear an answer as `BUSY`.
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => return Ok(answers),
            Err(e) => return Err(format!("connect: {e}")),
        };
        match client
            .hear()
            .map_err(|e| format!("greeting: {e}"))?
            .as_str()
        {
            "READY" => {}
            "BUSY" => return Ok(answers),
            other => return Err(format!("greeted with {other:?}")),
        }
        if std::mem::take(&mut first) {
            ready.add(1);
        }
        for turn in 0.. {
            let quit = turn == 3 && !stay;
            let (line, expected) = match (quit, turn % 2) {
                (true, _) => ("QUIT", "BYE"),
                (_, 0) => ("PUT boiler 71.5", "OK"),
                _ => ("GET boiler", "71.5"),
            };
            client.say(line).map_err(|e| format!("{line}: {e}"))?;
            let reply = client.hear().map_err(|e| format!("{line}: {e}"))?;
            match reply.as_str() {
                reply if reply == expected => answers += 1,
                "BYE" => return Ok(answers),
                other => return Err(format!("{line} was answered {other:?}")),
            }
            if quit {
                break;
            }
        }
    }
    Err("never refused".into())
}

/// Ten rounds each for the pool and for one thread per connection.
#[test]
fn sigterm_under_load_loses_no_connection() {
    const CLIENTS: u64 = 32;
    for round in 0..10 {
        for kind in ["pool", "threads"] {
            let mut server = Server::start(kind, &["initial=1", "max=32", "queue=64"]);
            let address = server.address;
            let ready = Tally::default();
            let outcomes: Vec<_> = thread::scope(|scope| {
                let ready = &ready;
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|i| scope.spawn(move || ask_until_refused(address, i % 2 == 0, ready)))
                    .collect();
                wait_until("all clients to be served", || ready.get() == CLIENTS);
                // Each round waits a little longer, so that the signal arrives at another moment of
                // the load.
                thread::sleep(ms(30 + 3 * round));
                server.process.signal(libc::SIGTERM);
                clients.into_iter().map(|c| c.join().unwrap()).collect()
            });
            for outcome in &outcomes {
                assert!(outcome.is_ok(), "{kind}, round {round}: {outcomes:?}");
            }
            assert_eq!(
                server.process.wait().code(),
                Some(0),
                "{kind}, round {round}"
            );
        }
    }
}
