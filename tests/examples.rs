//! Runs the programs of `examples/` that people copy, each as a process: what it prints and how it
//! ends.
#![cfg(all(unix, not(miri)))]

mod common;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use common::programs::{program, Process};
use common::*;

/// Runs the program, which must succeed and print these lines. They are far less than a pipe holds,
/// so the program never waits for this process to read.
#[track_caller]
fn assert_prints(name: &str, lines: &[&str]) {
    let mut process = Process(program(name).spawn().unwrap());
    let status = process.wait();
    let mut said = String::new();
    let stdout = process.0.stdout.as_mut().unwrap();
    stdout.read_to_string(&mut said).unwrap();
    assert!(status.success(), "{status}: {said}");
    assert!(said.lines().eq(lines.iter().copied()), "{said}");
}

/// Finding 2 of the trial by new users: a call that never returns does not keep the process alive.
#[test]
fn slow_library_is_bounded_survived_and_ends() {
    let expected = [
        "healthy: 9",
        "hung call 1: Err(TimedOut)",
        "hung call 2: Err(TimedOut)",
        "lost: 2 of 2 workers",
        "  a worker is in Some(\"hang\")",
        "  a worker is in Some(\"hang\")",
        "bounded: the pool is saturated: all workers are busy, and there is no queue or no space in it",
        "survived: 9",
        "a task that was wanted has run",
        "the process ends",
    ];
    assert_prints("slow_library", &expected);
}

#[test]
fn migrate_computes_the_same_in_each_way() {
    let expected = [
        "threadpool: 22",
        "rayon::spawn: 22",
        "rayon::scope: 22",
        "spawn_blocking: 22",
        "the static pool has ended: true",
    ];
    assert_prints("migrate", &expected);
}

struct Server {
    process: Process,
    address: SocketAddr,
}

impl Server {
    fn start(max: usize, queue: usize) -> Self {
        let mut command = program("tcp_server");
        let command = command.args(["127.0.0.1:0", &max.to_string(), &queue.to_string()]);
        let mut process = Process(command.spawn().unwrap());
        let mut line = String::new();
        let stdout = process.0.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap();
        let address = address.parse().unwrap();
        Self { process, address }
    }

    fn client(&self) -> Client {
        Client::connect(self.address).unwrap()
    }

    /// Connects a client, and waits until a worker greets it.
    fn greeted(&self) -> Client {
        let mut client = self.client();
        assert_eq!(client.hear().unwrap(), "READY");
        client
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
fn tcp_server_speaks_its_protocol() {
    let server = Server::start(2, 32);
    let mut client = server.greeted();
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

    let mut client = server.greeted();
    assert_eq!(client.ask(&"x".repeat(10_000)), "ERR line too long");
    assert_eq!(client.hear().unwrap(), "BYE");
}

#[test]
fn tcp_server_refuses_clients_beyond_its_queue() {
    let server = Server::start(1, 1);
    let mut served = server.greeted();
    let mut queued = server.client();
    // Connections are accepted in order, so this one is accepted after the previous one.
    let mut refused = server.client();
    assert_eq!(refused.hear().unwrap(), "BUSY");
    assert_eq!(refused.hear().unwrap(), "");
    assert_eq!(served.ask("QUIT"), "BYE");
    assert_eq!(queued.hear().unwrap(), "READY");
}

#[test]
fn tcp_server_refuses_queued_clients_at_sigterm() {
    let mut server = Server::start(1, 4);
    let mut served = server.greeted();
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

/// Sends requests until the server refuses, says `BYE` or listens no more. Every other end fails.
fn ask_until_refused(address: SocketAddr, stays: bool, ready: &Tally) {
    for connection in 0.. {
        let mut client = match Client::connect(address) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => return,
            client => client.unwrap(),
        };
        match client.hear().unwrap().as_str() {
            "READY" => ready.add(u64::from(connection == 0)),
            "BUSY" => return,
            other => panic!("greeted with {other:?}"),
        }
        for (line, expected) in [("PUT boiler 71.5", "OK"), ("GET boiler", "71.5")]
            .into_iter()
            .cycle()
            .take(if stays { usize::MAX } else { 3 })
        {
            match client.ask(line).as_str() {
                "BYE" => return,
                reply => assert_eq!(reply, expected),
            }
        }
        assert_eq!(client.ask("QUIT"), "BYE");
    }
}

#[test]
fn tcp_server_loses_no_connection_at_sigterm_under_load() {
    timed_each(0..10, |round| {
        let mut server = Server::start(32, 64);
        let (address, ready) = (server.address, Tally::default());
        thread::scope(|s| {
            for i in 0..32 {
                let ready = &ready;
                s.spawn(move || ask_until_refused(address, i % 2 == 0, ready));
            }
            wait_until("all clients to be served", || ready.get() == 32);
            // Each round waits a little longer, so that the signal arrives at another moment of
            // the load.
            thread::sleep(ms(30 + 3 * round));
            server.process.signal(libc::SIGTERM);
        });
        assert_eq!(server.process.wait().code(), Some(0), "round {round}");
    });
}
