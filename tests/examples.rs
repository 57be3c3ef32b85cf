//! Runs the programs of `examples/` that people copy, each as a process: what it prints and how it
//! ends.
#![cfg(all(unix, not(miri)))]

mod common;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;

use common::programs::{program, Process};
use common::*;

/// Runs the command until it ends.
fn run(command: &mut Command) -> Output {
    output(Process(command.stderr(Stdio::piped()).spawn().unwrap()))
}

/// Returns what a program has printed, once it has ended. The programs print far less than a pipe
/// holds, so they never wait for this process to read.
fn output(mut process: Process) -> Output {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let status = process.wait();
    let child = &mut process.0;
    (child.stdout.take().unwrap().read_to_end(&mut stdout)).unwrap();
    if let Some(mut piped) = child.stderr.take() {
        piped.read_to_end(&mut stderr).unwrap();
    }
    Output {
        status,
        stdout,
        stderr,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the program, which must succeed and print these lines.
#[track_caller]
fn assert_prints(name: &str, lines: &[&str]) {
    let output = run(&mut program(name));
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    assert!(said.lines().eq(lines.iter().copied()), "{said}");
}

/// A new directory, removed when this is dropped.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        let name = format!("lazypool-examples-{}-{}", std::process::id(), unique());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(dir.join("below")).unwrap();
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn hash_tree_hashes_every_file() {
    let dir = Dir::new();
    // The check value of this checksum, as published with its definition.
    fs::write(dir.0.join("below/check"), "123456789").unwrap();
    fs::write(dir.0.join("empty"), "").unwrap();
    for n in 0..500 {
        fs::write(dir.0.join(format!("below/z{n:03}")), "123456789").unwrap();
    }
    let output = run(program("hash_tree").arg(&dir.0));
    assert!(output.status.success(), "{output:?}");
    let lines = text(&output.stdout);
    let lines: Vec<_> = lines.lines().collect();
    assert_eq!(lines.len(), 502);
    assert!(lines[0].starts_with("cbf43926            9 "), "{lines:?}");
    assert!(lines[0].ends_with("check"), "{lines:?}");
    let last = lines[501];
    assert!(last.starts_with("00000000            0 "), "{lines:?}");
    assert!(lines[1..501].iter().all(|l| l.starts_with("cbf43926")));
    assert!(lines.is_sorted_by_key(|l| &l[22..]), "{lines:?}");
    assert!(text(&output.stderr).contains("502 files, 4.40 KiB, 0 failed"));
}

#[test]
fn hash_tree_without_a_directory() {
    let output = run(program("hash_tree").arg("no such directory"));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("no such directory is no directory"));
}

/// Ctrl-C arrives while the program reads a file that would take hours, and many others wait.
#[test]
fn hash_tree_stops_at_ctrl_c() {
    let dir = Dir::new();
    for n in 0..100 {
        let file = File::create(dir.0.join(format!("{n}"))).unwrap();
        file.set_len(1 << 40).unwrap(); // sparse, so it takes no space
    }
    let mut command = program("hash_tree");
    let command = command.arg(&dir.0).stderr(Stdio::piped());
    let mut process = Process(command.spawn().unwrap());
    let mut said = String::new();
    let mut stderr = BufReader::new(process.0.stderr.take().unwrap());
    stderr.read_line(&mut said).unwrap();
    assert!(said.contains("Ctrl-C stops"), "{said}");
    process.signal(libc::SIGINT);
    let output = output(process);
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("stopping"), "{said}");
    assert!(said.contains("0 files, 0 B, 0 failed"), "{said}");
    assert_eq!(text(&output.stdout), "");
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
        "bounded: the pool is saturated: all workers are busy, no queue space is left",
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
    fn start(limits: &[&str]) -> Self {
        let mut command = program("tcp_server");
        let command = command.arg("127.0.0.1:0").args(limits);
        let mut process = Process(command.spawn().unwrap());
        let mut line = String::new();
        let stdout = process.0.stdout.take().unwrap();
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
    let server = Server::start(&["initial=0", "max=2"]);
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
    let server = Server::start(&["initial=0", "max=1", "queue=1"]);
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
    let mut server = Server::start(&["initial=0", "max=1", "queue=4"]);
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
        let mut server = Server::start(&["initial=1", "max=32", "queue=64"]);
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
