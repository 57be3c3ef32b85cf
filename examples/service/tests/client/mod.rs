//! A small blocking HTTP/1.1 client, and a service started as a process.
//!
//! The client shares no code with the server.
#![allow(unreachable_pub)]

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Far more time than a healthy service takes to answer. After that, a request counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection that is kept open.
pub struct Client(BufReader<TcpStream>);

/// An answer to a request.
#[derive(Debug, Default)]
pub struct Answer {
    pub status: u16,
    /// `true` if the server closes the connection after the answer.
    pub close: bool,
    pub retry_after: Option<String>,
    pub body: String,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Self(BufReader::new(stream))
    }

    /// Sends a POST that announces a body of `length` bytes, and `part` of that body.
    pub fn send_post(&mut self, path: &str, length: usize, part: &[u8]) -> io::Result<()> {
        self.send(&format!("POST {path}"), length, part)
    }

    /// As [`send_post`](Self::send_post), with a method.
    pub fn send(&mut self, what: &str, length: usize, part: &[u8]) -> io::Result<()> {
        self.send_with(what, "", length, part)
    }

    /// Sends a request without a body, of this tenant.
    pub fn send_as(&mut self, what: &str, tenant: &str) -> io::Result<()> {
        self.send_with(what, &format!("x-tenant: {tenant}\r\n"), 0, b"")
    }

    /// As [`send`](Self::send), with further lines of the head.
    fn send_with(&mut self, what: &str, more: &str, length: usize, part: &[u8]) -> io::Result<()> {
        let head = format!("HTTP/1.1\r\nHost: localhost\r\n{more}Content-Length:");
        let request = format!("{what} {head} {length}\r\n\r\n");
        let request = [request.as_bytes(), part].concat();
        self.0.get_mut().write_all(&request)
    }

    /// Reads the answer to a request that was sent.
    pub fn read(&mut self) -> io::Result<Answer> {
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        let (mut answer, mut length) = (Answer::default(), 0);
        let status = self.line()?;
        let code = status.strip_prefix("HTTP/1.1 ").and_then(|s| s.get(..3));
        answer.status = code.and_then(|c| c.parse().ok()).ok_or_else(bad)?;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").ok_or_else(bad)?;
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().map_err(|_| bad())?,
                "connection" => answer.close = value.eq_ignore_ascii_case("close"),
                "retry-after" => answer.retry_after = Some(value.to_owned()),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        answer.body = String::from_utf8(body).map_err(|_| bad())?;
        Ok(answer)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

/// The service in its own process. Dropping this value kills the process if it has not ended.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: BufReader<ChildStderr>,
    pub address: SocketAddr,
}

impl Process {
    /// Starts the program with an argument, such as its settings file, and waits until it listens.
    /// If it ends instead, returns its status and its log.
    pub fn start(program: &Path, argument: impl AsRef<OsStr>) -> Result<Self, String> {
        let mut command = Command::new(program);
        let command = command.arg(argument).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("a program");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        match line.trim().strip_prefix("listening on http://") {
            Some(address) => {
                let address = address.parse().expect("an address");
                let log = BufReader::new(child.stderr.take().expect("it is piped"));
                Ok(Self {
                    child,
                    log,
                    address,
                })
            }
            None => {
                let output = child.wait_with_output().expect("it has ended");
                let log = String::from_utf8_lossy(&output.stderr);
                Err(format!("{}: {log}", output.status))
            }
        }
    }

    pub fn terminate(&self) {
        self.send("-TERM");
    }

    /// Sends a signal to the process.
    pub fn send(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.expect("a program").success());
    }

    /// Waits for the next line of the log, and returns it.
    pub fn read_log(&mut self) -> String {
        let mut line = String::new();
        self.log.read_line(&mut line).expect("text");
        line
    }

    /// Waits until the process has ended. Returns its status and the rest of its log.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        };
        let mut log = String::new();
        self.log.read_to_string(&mut log).expect("text");
        (status, log)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // `kill` fails if the process has ended. There is nothing to kill then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
