//! Processes of the story and the tests. None outlives the process that started it.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A child, killed when it is dropped, and by a watcher if this process is killed itself.
#[derive(Debug)]
pub struct Process {
    child: Child,
    watcher: Child,
}

impl Process {
    pub fn start(command: &mut Command) -> std::io::Result<Self> {
        let child = command.stdin(Stdio::null()).spawn()?;
        let mut watcher = Command::new("sh");
        watcher.args(["-c", "trap '' INT TERM; cat; kill -9 $0"]);
        watcher.arg(child.id().to_string());
        watcher
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Self {
            child,
            watcher: watcher.spawn()?,
        })
    }

    /// `KILL`, `TERM`, `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(
            sent.is_ok_and(|status| status.success()),
            "kill -s {name} {pid}"
        );
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Waits for its end; panics after so long.
    pub fn wait(&mut self, most: Duration) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(start.elapsed() < most, "still running after {most:?}");
            sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The watcher first: the child's id may be another's afterwards.
        for child in [&mut self.watcher, &mut self.child] {
            let _ = child.kill(); // an error: it has ended
            let _ = child.wait();
        }
    }
}

/// A redis-server on a free port, with its append-only file in a temporary folder.
#[derive(Debug)]
pub struct Server {
    process: Option<Process>,
    /// Removed when this is dropped.
    pub folder: PathBuf,
    port: u16,
}

impl Server {
    pub fn start(name: &str) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("jobs-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        drop(listener);
        let mut server = Self {
            process: None,
            folder,
            port,
        };
        server.start_again()?;
        Ok(server)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Starts it with the data that it left.
    pub fn start_again(&mut self) -> Result<(), String> {
        let mut command = Command::new("redis-server");
        command.args([
            "--bind",
            "127.0.0.1",
            "--port",
            &self.port.to_string(),
            "--save",
            "",
        ]);
        // `always`: what has been answered is on disk, also if the machine stops.
        command.args(["--appendonly", "yes", "--appendfsync", "always", "--dir"]);
        command.arg(&self.folder).stdout(log(&self.folder, "redis"));
        self.process = Some(Process::start(&mut command).map_err(|e| {
            format!(
                "cannot run redis-server ({e}). Install it: apt-get install redis-server (Debian, \
                     Ubuntu), dnf install redis (Fedora), brew install redis (macOS)"
            )
        })?);
        let start = Instant::now();
        let client = redis::Client::open(self.url()).map_err(|e| e.to_string())?;
        loop {
            let answer = client
                .get_connection()
                .and_then(|mut con| redis::cmd("PING").exec(&mut con));
            match answer {
                Ok(()) => return Ok(()),
                Err(e) if start.elapsed() > Duration::from_secs(20) => {
                    return Err(format!("redis-server does not answer: {e}"));
                }
                Err(_) => sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Ends it by `TERM` or `KILL`.
    pub fn stop(&mut self, signal: &str) {
        if let Some(mut process) = self.process.take() {
            process.signal(signal);
            process.wait(Duration::from_secs(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A file that output is appended to.
pub fn log(folder: &Path, name: &str) -> Stdio {
    let path = folder.join(format!("{name}.log"));
    let file = fs::File::options().append(true).create(true).open(path);
    file.expect("the temporary folder can be written").into()
}
