//! Processes of the story and the tests. None outlives the process that started it.

use super::ledger::Ledger;
use crate::queue::{Job, Settings};
use std::error::Error;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Waits until a condition holds. Panics if that takes longer than it would on a slow machine.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        sleep(Duration::from_millis(10));
    }
}

/// A child process. Dropping this value kills it. A watcher kills it if this process is killed
/// itself.
#[derive(Debug)]
pub struct Process {
    child: Child,
    watcher: Child,
}

impl Process {
    /// Starts a child and its watcher. The watcher also removes the folder.
    pub fn start(command: &mut Command, folder: &Path) -> std::io::Result<Self> {
        let child = command.stdin(Stdio::null()).spawn()?;
        let mut watcher = Command::new("sh");
        watcher.args(["-c", "trap '' INT TERM; cat; kill -9 $0; rm -rf \"$1\""]);
        watcher.arg(child.id().to_string()).arg(folder);
        let watcher = watcher.stdin(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        Ok(Self { child, watcher })
    }

    /// Sends a signal: `KILL`, `TERM`, `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.is_ok_and(|sent| sent.success()), "kill -s {name} {id}");
    }

    /// Returns the child's status if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Sends `TERM` or `KILL`, and waits until the process has ended.
    pub fn end(&mut self, signal: &str) -> ExitStatus {
        self.signal(signal);
        until("a process ends", || self.ended().is_some());
        self.child.wait().expect("it has ended")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // End the watcher first. Once the child has ended, another process may get its id.
        for child in [&mut self.watcher, &mut self.child] {
            let _ = child.kill(); // fails if it has ended
            let _ = child.wait();
        }
    }
}

/// A redis-server on a free port, with its append-only file in a temporary folder, and its
/// consumers.
#[derive(Debug)]
pub struct Site {
    server: Option<Process>,
    /// The temporary folder. Dropping this value removes it.
    folder: PathBuf,
    pub s: Settings,
    exe: PathBuf,
    options: String,
    started: usize,
}

impl Site {
    /// Starts a server with more `options`.
    pub fn new(name: &str, exe: impl Into<PathBuf>, options: &str) -> Result<Self, Box<dyn Error>> {
        let folder = std::env::temp_dir().join(format!("jobs-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut s = Settings::default();
        (s.url, s.stream, s.group) = (format!("redis://{address}/"), "{it}".into(), "g".into());
        // `always` writes a change to the disk before Redis answers, so it survives if the machine
        // stops.
        let options = format!(
            "--bind 127.0.0.1 --port {} --appendonly yes --appendfsync always {options}",
            address.port()
        );
        let (server, exe, started) = (None, exe.into(), 0);
        let mut site = Self { server, folder, s, exe, options, started };
        site.start_again()?;
        Ok(site)
    }

    /// Starts the server again, with the data that it left.
    pub fn start_again(&mut self) -> Result<(), Box<dyn Error>> {
        let mut command = Command::new("redis-server");
        command.args(self.options.split_whitespace());
        command.args(["--save", "", "--dir"]).arg(&self.folder).stdout(Stdio::null());
        self.server = Some(Process::start(&mut command, &self.folder).map_err(|e| {
            format!(
                "cannot run redis-server ({e}). Install it: apt-get install redis-server (Debian, \
                 Ubuntu), dnf install redis (Fedora), brew install redis (macOS)"
            )
        })?);
        until("redis-server answers", || self.s.open().is_ok());
        Ok(())
    }

    pub fn server(&mut self) -> &mut Process {
        self.server.as_mut().expect("it was started")
    }

    /// Returns a command of `jobs` for this site. If an option is given again, the last one counts.
    pub fn jobs(&self, words: &str) -> Command {
        let (mut command, mut words) = (Command::new(&self.exe), words.split_whitespace());
        let Settings { url, stream, group, .. } = &self.s;
        command.args(words.next()).args(["--redis", url, "--stream", stream, "--group", group]);
        command.args(words);
        command
    }

    /// Starts a consumer, `w1`, `w2` and so on.
    pub fn worker(&mut self, options: &str) -> Process {
        self.started += 1;
        let (name, effects) = (format!("w{}", self.started), self.folder.join("effects"));
        let log = File::create(self.folder.join(&name)).expect("a log");
        let mut command = self.jobs(&format!(
            "work --deadline-ms 800 --visibility-ms 1000 --backoff-ms 20 --name {name} {options}"
        ));
        command.arg("--effects").arg(effects).stderr(log);
        Process::start(&mut command, &self.folder).expect("a worker")
    }

    /// Returns what the last consumer has written.
    pub fn log(&self) -> String {
        let file = self.folder.join(format!("w{}", self.started));
        fs::read_to_string(file).expect("a log")
    }

    pub fn produce(&self, jobs: &[Job]) {
        let added = self.s.connect().and_then(|mut queue| queue.produce(jobs));
        added.unwrap_or_else(|e| panic!("{}", self.s.explain(&e)));
    }

    pub fn ledger(&self) -> Ledger {
        Ledger::read(&self.s, &self.folder.join("effects")).expect("the ledger")
    }

    /// Waits until no job is left in the stream, and checks how many are done and how many are
    /// dead.
    pub fn settles(&self, done: usize, dead: usize) -> Ledger {
        until("all is settled", || self.ledger().unsettled == 0);
        let ledger = self.ledger();
        let counts = (ledger.done.len(), ledger.dead.len());
        assert_eq!(counts, (done, dead), "{:?}\n{}", ledger.dead, self.log());
        ledger
    }

    /// Returns how many jobs are pending with each consumer that has any.
    pub fn pending(&self) -> Vec<(String, usize)> {
        let status = self.s.open().and_then(|mut queue| queue.status());
        status.expect("an answer").4
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}
