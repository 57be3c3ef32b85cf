//! A PostgreSQL server of its own, in a temporary folder, for the demo, the tests and the measurements.

use std::{
    env, fs,
    io::{self, Write},
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

/// What to do without PostgreSQL.
const INSTALL: &str = "\
no `initdb` found. Install PostgreSQL 12 or later (Debian, Ubuntu: apt install postgresql; Fedora: dnf install \
postgresql-server; macOS: brew install postgresql), or set DATABASE_URL, for example to a container: \
docker run -e POSTGRES_HOST_AUTH_METHOD=trust -p 127.0.0.1:5432:5432 postgres";

/// Runs the server, and ends it when its standard input says so, or is closed: also if the process that
/// started it was killed. Then it removes the folder.
const GUARD: &str = r#"
dir=$1; shift
"$@" > "$dir/log" 2>&1 < /dev/null & server=$!
while read -r signal; do
    kill -s "$signal" "$server"
    wait "$server"
    exit
done
kill -s INT "$server"
wait "$server"
rm -rf "$dir"
"#;

/// A server. Dropped, it ends, and its files are removed.
#[derive(Debug)]
pub struct Server {
    dir: PathBuf,
    bin: PathBuf,
    owner: Option<(u32, u32)>,
    guard: Option<Child>,
}

impl Server {
    /// Creates and starts a server. It listens on a socket in its folder only.
    pub fn start() -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let bin = find().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, INSTALL))?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed); // its only use: to differ
        let dir = env::temp_dir().join(format!("jobs-{}-{number}", std::process::id()));
        fs::create_dir(&dir)?;
        let mut server = Server {
            dir,
            bin,
            owner: None,
            guard: None,
        };
        server.create()?;
        server.run()?;
        Ok(server)
    }

    fn create(&mut self) -> io::Result<()> {
        fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o700))?;
        if id(&["-u"])? == 0 {
            // PostgreSQL refuses to run as root.
            let of = |flag| id(&[flag, "postgres"]).or_else(|_| id(&[flag, "nobody"]));
            let (user, group) = (of("-u")?, of("-g")?);
            chown(&self.dir, Some(user), Some(group))?;
            self.owner = Some((user, group));
        }
        let mut initdb = self.command(&self.bin.join("initdb"));
        initdb.arg("-D").arg(self.dir.join("data"));
        initdb.args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]);
        let output = initdb.output()?;
        if output.status.success() {
            Ok(())
        } else {
            Err(io::Error::other(String::from_utf8_lossy(&output.stderr)))
        }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.dir);
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    /// Starts the server again, after [`stop`](Self::stop).
    pub fn run(&mut self) -> io::Result<()> {
        let mut guard = self.command(Path::new("/bin/sh"));
        guard
            .args(["-c", GUARD, "guard"])
            .arg(&self.dir)
            .arg(self.bin.join("postgres"));
        guard
            .arg("-D")
            .arg(self.dir.join("data"))
            .arg("-k")
            .arg(&self.dir);
        guard.args(["-c", "listen_addresses=", "-c", "port=5432"]);
        // In a group of its own: Ctrl-C in a terminal is the demo's alone.
        guard
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0);
        self.guard = Some(guard.spawn()?);
        let ready = self.bin.join("pg_isready");
        let start = Instant::now();
        while !self
            .command(&ready)
            .arg("-q")
            .arg("-h")
            .arg(&self.dir)
            .status()?
            .success()
        {
            if start.elapsed() > Duration::from_secs(60) {
                return Err(io::Error::other(fs::read_to_string(self.dir.join("log"))?));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Returns the URL of a database. `postgres` is there from the start.
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgres://postgres@localhost/{database}?host={}",
            self.dir.display()
        )
    }

    /// Ends the server by a signal: `INT` for an orderly end, `QUIT` for a crash. Its files stay.
    pub fn stop(&mut self, signal: &str) -> io::Result<()> {
        if let Some(mut guard) = self.guard.take() {
            writeln!(guard.stdin.as_mut().expect("piped"), "{signal}")?;
            guard.wait()?;
        }
        Ok(())
    }

    /// Returns the numbers of the server's processes (Linux).
    pub fn processes(&self) -> io::Result<Vec<String>> {
        let file = fs::read_to_string(self.dir.join("data/postmaster.pid"))?;
        let first = file.lines().next().unwrap_or_default();
        let children = fs::read_to_string(format!("/proc/{first}/task/{first}/children"))?;
        Ok(std::iter::once(first)
            .chain(children.split_whitespace())
            .map(String::from)
            .collect())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        match self.guard.take() {
            Some(mut guard) => {
                drop(guard.stdin.take());
                let _ = guard.wait();
            }
            None => drop(fs::remove_dir_all(&self.dir)),
        }
    }
}

/// Sends a signal, such as `TERM`, to a process that this one has started.
pub fn send(signal: &str, process: &str) -> io::Result<()> {
    let kill = Command::new("/bin/sh")
        .args(["-c", r#"kill -s "$0" "$1""#, signal, process])
        .status()?;
    if kill.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("kill -s {signal} {process}")))
    }
}

fn id(args: &[&str]) -> io::Result<u32> {
    let output = Command::new("id").args(args).output()?;
    String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .map_err(|_| io::Error::other(format!("id {args:?}")))
}

/// Returns the folder of `initdb`: of the PATH, or where packages put it. The newest version.
fn find() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut packages = Vec::new();
    for (above, below) in [
        ("/usr/lib/postgresql", "bin"),
        ("/opt/homebrew/opt", "bin"),
        ("/usr/local/opt", "bin"),
    ] {
        let entries = fs::read_dir(above).into_iter().flatten().flatten();
        packages.extend(entries.map(|entry| entry.path().join(below)));
    }
    packages.sort_by_key(|dir| std::cmp::Reverse(version(dir)));
    let dirs = env::split_paths(&path)
        .chain(packages)
        .chain(["/usr/pgsql/bin".into()]);
    // A link in the PATH may stand alone: the other programs are beside what it leads to.
    dirs.filter_map(|dir| {
        Some(
            dir.join("initdb")
                .canonicalize()
                .ok()?
                .parent()?
                .to_path_buf(),
        )
    })
    .find(|dir| dir.join("postgres").is_file() && dir.join("pg_isready").is_file())
}

fn version(dir: &Path) -> u32 {
    let digits = |name: &str| {
        name.rsplit(|c: char| !c.is_ascii_digit())
            .find_map(|n| n.parse().ok())
    };
    dir.parent()
        .and_then(Path::file_name)
        .and_then(|name| digits(&name.to_string_lossy()))
        .unwrap_or(0)
}
