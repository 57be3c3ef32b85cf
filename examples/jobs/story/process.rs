//! Processes of the story and the tests. None outlives the process that started it.

use super::ledger::Ledger;
use crate::queue::{Job, Place};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Generous: machines of CI are slow.
pub const LONG: Duration = Duration::from_secs(60);

/// Waits for a condition; panics if that takes long.
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
        watcher.arg(child.id().to_string()).stdin(Stdio::piped());
        let watcher = watcher
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child, watcher })
    }

    /// `KILL`, `TERM`, `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(
            sent.is_ok_and(|sent| sent.success()),
            "kill -s {name} {pid}"
        );
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    pub fn wait(&mut self) -> ExitStatus {
        until("a process ends", || self.ended())
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

/// A redis-server on a free port, with its append-only file in a temporary folder, and its consumers.
#[derive(Debug)]
pub struct Site {
    server: Option<Process>,
    /// Removed when this is dropped.
    pub folder: PathBuf,
    pub place: Place,
    pub exe: PathBuf,
    options: String,
    started: usize,
}

impl Site {
    pub fn new(name: &str, exe: impl Into<PathBuf>, options: &str) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("jobs-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = free.map_err(|e| e.to_string())?;
        let place = Place {
            url: format!("redis://{address}/"),
            stream: "{it}".to_owned(),
            group: "g".to_owned(),
            consumer: "test".to_owned(),
            visibility: Duration::from_secs(1),
        };
        let (exe, options) = (exe.into(), format!("{options} --port {}", address.port()));
        let mut site = Self {
            server: None,
            folder,
            place,
            exe,
            options,
            started: 0,
        };
        site.start_again()?;
        Ok(site)
    }

    /// Starts the server with the data that it left.
    pub fn start_again(&mut self) -> Result<(), String> {
        let mut command = Command::new("redis-server");
        command.args([
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "yes",
            "--dir",
        ]);
        command
            .arg(&self.folder)
            .args(self.options.split_whitespace());
        // `always`: what has been answered is on disk, also if the machine stops.
        command
            .args(["--appendfsync", "always"])
            .stdout(log(&self.folder, "redis"));
        self.server = Some(Process::start(&mut command).map_err(|e| {
            format!(
                "cannot run redis-server ({e}). Install it: apt-get install redis-server (Debian, \
                 Ubuntu), dnf install redis (Fedora), brew install redis (macOS)"
            )
        })?);
        let url = self.place.url.as_str();
        until("redis-server answers", || {
            let mut con = redis::Client::open(url).ok()?.get_connection().ok()?;
            redis::cmd("PING").exec(&mut con).ok()
        });
        Ok(())
    }

    pub fn server(&self) -> &Process {
        self.server.as_ref().expect("it runs")
    }

    /// Ends the server by `TERM` or `KILL`.
    pub fn stop(&mut self, signal: &str) {
        self.server().signal(signal);
        self.server.take().expect("it runs").wait();
    }

    /// Returns a command of `jobs` for this place.
    pub fn jobs(&self, words: &str) -> Command {
        let Place {
            url, stream, group, ..
        } = &self.place;
        let (mut command, (word, options)) = (
            Command::new(&self.exe),
            words.split_once(' ').unwrap_or((words, "")),
        );
        command.args([word, "--redis", url, "--stream", stream, "--group", group]);
        command.args(options.split_whitespace());
        command
    }

    /// Starts a consumer; returns its name, too. Options may be given again: the last one counts.
    pub fn worker(&mut self, options: &str) -> (String, Process) {
        self.started += 1;
        let name = format!("w{}", self.started);
        let mut command =
            self.jobs("work --deadline-ms 800 --visibility-ms 1000 --backoff-ms 20 --effects");
        command
            .arg(self.folder.join("effects"))
            .args(["--name", &name]);
        command
            .args(options.split_whitespace())
            .stderr(log(&self.folder, &name));
        (name, Process::start(&mut command).expect("a worker"))
    }

    /// Returns what a consumer has written.
    pub fn log(&self, name: &str) -> String {
        let file = self.folder.join(format!("{name}.log"));
        fs::read_to_string(file).expect("a log")
    }

    pub fn produce(&self, jobs: &[Job]) {
        let added = self
            .place
            .connect()
            .and_then(|mut queue| queue.produce(jobs));
        added.unwrap_or_else(|e| panic!("{}", self.place.explain(&e)));
    }

    pub fn ledger(&self) -> Ledger {
        Ledger::read(&self.place, &self.folder.join("effects")).expect("the ledger")
    }

    /// Waits until nothing waits, is pending, or will be tried again.
    pub fn settled(&self) -> Ledger {
        until("all is settled", || {
            Some(self.ledger()).filter(|ledger| ledger.unsettled == 0)
        })
    }

    /// Returns how many jobs are pending with each consumer that has any.
    pub fn pending(&self) -> Vec<(String, usize)> {
        self.place
            .open()
            .and_then(|mut queue| queue.status())
            .expect("an answer")
            .4
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns a file that output is appended to.
fn log(folder: &Path, name: &str) -> Stdio {
    let path = folder.join(format!("{name}.log"));
    let file = fs::File::options().append(true).create(true).open(path);
    file.expect("the temporary folder can be written").into()
}
