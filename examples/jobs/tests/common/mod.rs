//! A real redis-server, and real processes of `jobs work` beside it.
#![allow(dead_code, unreachable_pub)] // each file of tests uses a part

use jobs::queue::{Job, Place};
use jobs::story::ledger::Ledger;
use jobs::story::process::{log, Process, Server};
use std::io::{copy, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// Generous: machines of CI are slow.
pub const LONG: Duration = Duration::from_secs(60);

pub struct Site {
    pub server: Server,
    pub place: Place,
    started: usize,
}

pub fn jobs(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobs"));
    command.args(args);
    command
}

impl Site {
    pub fn new(name: &str) -> Self {
        let server = Server::start(name).expect("redis-server");
        let place = Place {
            url: server.url(),
            stream: "{it}".to_owned(),
            group: "g".to_owned(),
            consumer: "test".to_owned(),
            visibility: Duration::from_secs(1),
        };
        Self {
            server,
            place,
            started: 0,
        }
    }

    /// Starts a consumer; returns its name, too. Options may be given again: the last one counts.
    pub fn worker(&mut self, options: &str) -> (String, Process) {
        self.started += 1;
        let name = format!("w{}", self.started);
        let Place {
            url, stream, group, ..
        } = &self.place;
        let mut command = jobs(&["work", "--redis", url, "--stream", stream, "--group", group]);
        command.args("--deadline-ms 800 --visibility-ms 1000 --backoff-ms 20".split(' '));
        command
            .arg("--effects")
            .arg(self.server.folder.join("effects"));
        command
            .args(["--name", &name])
            .args(options.split_whitespace());
        command.stderr(log(&self.server.folder, &name));
        (name, Process::start(&mut command).expect("a worker"))
    }

    /// What a consumer has written.
    pub fn log(&self, name: &str) -> String {
        let file = self.server.folder.join(format!("{name}.log"));
        std::fs::read_to_string(file).expect("a log")
    }

    pub fn produce(&self, jobs: &[Job]) {
        let mut queue = self.place.connect().expect("a connection");
        queue.produce(jobs).expect("jobs are added");
    }

    pub fn ledger(&self) -> Ledger {
        Ledger::read(&self.place, &self.server.folder.join("effects")).expect("the ledger")
    }

    /// Waits until nothing waits, is pending, or will be tried again.
    pub fn settled(&self) -> Ledger {
        until("all is settled", || {
            Some(self.ledger()).filter(|ledger| ledger.unsettled == 0)
        })
    }

    pub fn query<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut con = self.place.open().expect("a connection");
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]).query(&mut con).expect("an answer")
    }

    /// Jobs pending with each consumer that has any.
    pub fn pending(&self) -> Vec<(String, usize)> {
        self.place.pending().expect("an answer")
    }
}

/// Waits for a condition.
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < LONG, "not within {LONG:?}: {what}");
        sleep(Duration::from_millis(10));
    }
}

pub fn some(count: usize, key: &str, kind: &str, payload: &str) -> Vec<Job> {
    (0..count)
        .map(|n| Job::new(format!("{key}-{n}"), kind, payload))
        .collect()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Another address of the server. The first connection that a job is delivered to is cut before
/// its consumer hears of it.
pub fn cut_at_delivery(place: &Place) -> String {
    let place = place.clone();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    spawn(move || {
        let mut cut = false;
        for client in listener.incoming() {
            let mut client = client.expect("a client");
            let server = place.url["redis://".len()..].trim_end_matches('/');
            let mut server = TcpStream::connect(server).expect("a connection");
            let mut from = client.try_clone().expect("its other half");
            let mut to = server.try_clone().expect("its other half");
            spawn(move || copy(&mut from, &mut to));
            let mut answer = [0; 4096];
            while let Ok(len @ 1..) = server.read(&mut answer) {
                // An error: the group is not made yet.
                let lose = !cut && place.pending().is_ok_and(|pending| !pending.is_empty());
                cut |= lose;
                if lose || client.write_all(&answer[..len]).is_err() {
                    break;
                }
            }
            for stream in [client, server] {
                let _ = stream.shutdown(Shutdown::Both); // an error: it is shut
            }
        }
    });
    format!("redis://{address}/")
}
