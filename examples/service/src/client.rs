//! A small blocking HTTP/1.1 client, and a service started as a process, for the tests and the load
//! run.
//!
//! The client shares no code with the server. Unlike most load generators, it tells apart a request
//! that was refused, one that was answered, and one that was lost.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Far more time than a healthy service takes to answer. After that, a request counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection that is kept open.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

/// An answer to a request.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status of the answer.
    pub status: u16,
    /// `true` if the server closes the connection after the answer.
    pub close: bool,
    /// The `Retry-After` header.
    pub retry_after: Option<String>,
    /// The body of the answer.
    pub body: String,
}

impl Client {
    /// Connects to a server.
    ///
    /// # Errors
    /// Returns the system's errors.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends a request and does not wait for the answer.
    ///
    /// # Errors
    /// Returns the system's errors.
    pub fn send(&mut self, path: &str) -> io::Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.stream.get_mut().write_all(request.as_bytes())
    }

    /// Sends a POST that announces a body of `length` bytes, and `part` of that body.
    ///
    /// # Errors
    /// Returns the system's errors.
    pub fn send_post(&mut self, path: &str, length: usize, part: &[u8]) -> io::Result<()> {
        let mut request =
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n")
                .into_bytes();
        request.extend_from_slice(part);
        self.stream.get_mut().write_all(&request)
    }

    /// Sends a request and reads the answer.
    ///
    /// # Errors
    /// Returns the system's errors, and an error if the answer is not HTTP.
    pub fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.send(path)?;
        self.read()
    }

    /// Reads the answer to a request that was sent.
    ///
    /// # Errors
    /// Returns the system's errors, and an error if the answer is not HTTP.
    pub fn read(&mut self) -> io::Result<Answer> {
        let bad = |line: &str| io::Error::new(io::ErrorKind::InvalidData, line.to_owned());
        let status = self.line()?;
        let code = status.strip_prefix("HTTP/1.1 ").and_then(|s| s.get(..3));
        let mut answer = Answer {
            status: code
                .and_then(|c| c.parse().ok())
                .ok_or_else(|| bad(&status))?,
            close: false,
            retry_after: None,
            body: String::new(),
        };
        let mut length = 0;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| bad(&line))?;
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().map_err(|_| bad(&line))?,
                "connection" => answer.close = value.eq_ignore_ascii_case("close"),
                "retry-after" => answer.retry_after = Some(value.to_owned()),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        answer.body = String::from_utf8(body).map_err(|_| bad("a body that is no UTF-8"))?;
        Ok(answer)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
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
    /// The address at which the service listens.
    pub address: SocketAddr,
}

impl Process {
    /// Starts the program with an argument, such as its settings file, and waits until it listens.
    ///
    /// # Errors
    /// Returns the system's errors. If the program does not print its address, returns an error
    /// with the text that it has printed.
    pub fn start(program: &Path, argument: impl AsRef<OsStr>) -> io::Result<Self> {
        let mut child = Command::new(program)
            .arg(argument)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let address = line.trim().strip_prefix("listening on http://");
        match address.and_then(|a| a.parse().ok()) {
            Some(address) => Ok(Self { child, address }),
            None => {
                // The program has ended, or it is not our service.
                let _ = child.kill();
                let output = child.wait_with_output()?;
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                Err(io::Error::other(format!("{}: {said}", output.status)))
            }
        }
    }

    /// Sends SIGTERM to the process.
    ///
    /// # Errors
    /// Returns the system's errors.
    pub fn terminate(&self) -> io::Result<()> {
        let id = self.child.id().to_string();
        match Command::new("kill")
            .args(["-TERM", &id])
            .status()?
            .success()
        {
            true => Ok(()),
            false => Err(io::Error::other("kill failed")),
        }
    }

    /// Waits until the process has ended. Returns its status and its log.
    ///
    /// # Errors
    /// Returns the system's errors, and an error if the process does not end.
    pub fn wait(mut self) -> io::Result<(ExitStatus, String)> {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if start.elapsed() > PATIENCE {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not end"));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let mut log = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            stderr.read_to_string(&mut log)?;
        }
        Ok((status, log))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // `kill` fails if the process has ended. There is nothing to kill then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
