//! A server with the tables, and what every trial asks of it.

use jobs::{
    admin,
    fleet::Fleet,
    job::{Fault, Job},
    queue,
    server::Server,
    settings::{self, Settings},
};
use sqlx::PgPool;
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// The longest wait, in vain.
pub(crate) const LIMIT: Duration = Duration::from_secs(100);

/// The program with all commands.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_jobs");

/// Short times. A process counts as dead after four seconds.
const TIMES: [(&str, &str); 4] = [
    ("JOBS_DEADLINE_S", "30"),
    ("JOBS_HEARTBEAT_S", "1"),
    ("JOBS_DEAD_S", "4"),
    ("JOBS_GRACE_S", "3"),
];

/// Notes each run of a job that came to its end, also where the key was done already: a trigger
/// sees what `ON CONFLICT DO NOTHING` leaves out.
const FINISHES: &str = "
    CREATE TABLE finishes (key text NOT NULL);
    CREATE FUNCTION finishes() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO finishes VALUES (NEW.key); RETURN NEW; END $$;
    CREATE TRIGGER finishes BEFORE INSERT ON done_keys FOR EACH ROW EXECUTE FUNCTION finishes();
";

/// A server, and the settings of the workers.
pub(crate) struct Bed {
    pub(crate) server: Server,
    pub(crate) db: PgPool,
    pub(crate) environment: Vec<(&'static str, String)>,
}

/// A job without a fault.
pub(crate) fn job(key: impl ToString, ms: u64) -> Job {
    Job {
        key: key.to_string(),
        ms,
        fault: None,
    }
}

pub(crate) fn jobs(count: usize, ms: u64) -> Vec<Job> {
    (0..count).map(|n| job(n, ms)).collect()
}

pub(crate) fn faulty(key: &str, fault: Fault) -> Job {
    Job {
        fault: Some(fault),
        ..job(key, 0)
    }
}

impl Bed {
    /// Starts a server. These settings come before the trials' usual ones.
    pub(crate) async fn new(settings: &[(&'static str, &str)]) -> Self {
        let server = Server::start().unwrap_or_else(|error| panic!("{error}"));
        let mut environment = vec![("DATABASE_URL", server.url("postgres"))];
        environment.extend(
            settings
                .iter()
                .map(|(name, value)| (*name, (*value).into())),
        );
        for (name, value) in TIMES {
            if environment.iter().all(|(given, _)| *given != name) {
                environment.push((name, value.into()));
            }
        }
        let pairs: Vec<_> = environment.iter().map(|(k, v)| (*k, v.as_str())).collect();
        let db = settings::open(&Settings::from_pairs(&pairs).expect("settings"))
            .await
            .expect("a database");
        queue::set_up(&db).await.expect("tables");
        sqlx::raw_sql(FINISHES)
            .execute(&db)
            .await
            .expect("a trigger");
        Bed {
            server,
            db,
            environment,
        }
    }

    pub(crate) fn pairs(&self) -> Vec<(&str, &str)> {
        let pairs = self.environment.iter().map(|(k, v)| (*k, v.as_str()));
        pairs.collect()
    }

    /// Starts worker processes. They are started again when they end.
    pub(crate) fn fleet(&self, count: usize) -> Fleet {
        Fleet::start(Path::new(PROGRAM), count, &self.pairs()).expect("processes")
    }

    /// Adds jobs in one transaction. Returns how many are new.
    pub(crate) async fn try_add(
        &self,
        jobs: &[Job],
        attempts: i16,
    ) -> Result<u64, jobs::settings::Error> {
        let mut tx = self.db.begin().await?;
        let new = queue::add(&mut tx, jobs, attempts).await?;
        tx.commit().await?;
        Ok(new)
    }

    /// Adds jobs, all of which are new.
    pub(crate) async fn add(&self, jobs: &[Job], attempts: i16) {
        let new = self.try_add(jobs, attempts).await.expect("an answer");
        assert_eq!(new, jobs.len() as u64);
    }

    /// Runs statements.
    pub(crate) async fn run(&self, sql: &str) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))
            .execute(&self.db)
            .await
            .expect(sql);
    }

    /// Asks for one number.
    pub(crate) async fn ask(&self, sql: &str) -> Result<i64, sqlx::Error> {
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned()))
            .fetch_one(&self.db)
            .await
    }

    /// Asks for one number of a server that must answer.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.ask(sql).await.expect(sql)
    }

    /// Waits until a query returns at least this number. Meanwhile the server may be away.
    pub(crate) async fn until(&self, sql: &str, least: i64) {
        let start = Instant::now();
        loop {
            let now = self.ask(sql).await;
            if matches!(now, Ok(n) if n >= least) {
                return;
            }
            assert!(
                start.elapsed() < LIMIT,
                "{sql}: {now:?}, not {least}; {}",
                self.rows().await
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn until_done(&self, least: i64) {
        self.until("SELECT count(*) FROM done_keys", least).await;
    }

    pub(crate) async fn until_held(&self, least: i64) {
        let held = "SELECT count(*) FROM graphile_worker.jobs WHERE locked_at IS NOT NULL";
        self.until(held, least).await;
    }

    /// Returns what is in the queue, to explain a failure.
    async fn rows(&self) -> String {
        let rows = "SELECT coalesce(string_agg(concat_ws(' ', key, attempts, max_attempts, locked_by, run_at - now(),
                        left(last_error, 100)), E'\\n'), 'the queue is empty') FROM graphile_worker.jobs";
        let rows: Result<String, _> = sqlx::query_scalar(rows).fetch_one(&self.db).await;
        rows.unwrap_or_else(|error| error.to_string())
    }

    /// Waits until no job is left but these dead ones. Then asserts the law: these keys are done, once
    /// each; those are dead, with a reason that says this; nothing else.
    pub(crate) async fn law(&self, done: &[Job], dead: &[(&str, &str)]) {
        let left = "SELECT -count(*) FROM graphile_worker.jobs WHERE attempts < max_attempts OR locked_at IS NOT NULL";
        self.until(left, 0).await;
        let mut keys: Vec<&str> = done.iter().map(|job| &*job.key).collect();
        keys.sort_unstable();
        for table in ["results", "done_keys"] {
            let of = sqlx::AssertSqlSafe(format!(
                "SELECT key FROM {table} ORDER BY key COLLATE \"C\""
            ));
            let of: Vec<String> = sqlx::query_scalar(of)
                .fetch_all(&self.db)
                .await
                .expect("keys");
            assert_eq!(of, keys, "{table}");
        }
        let mut letters = admin::dead(&self.db).await.expect("dead letters");
        letters.sort_by(|a, b| a.key.cmp(&b.key));
        let letters: Vec<_> = letters
            .into_iter()
            .map(|dead| {
                (
                    dead.key.unwrap_or_default(),
                    dead.reason.unwrap_or_default(),
                )
            })
            .collect();
        let mut dead = dead.to_vec();
        dead.sort_unstable();
        assert_eq!(letters.len(), dead.len(), "{letters:?}");
        for ((key, reason), (want, says)) in letters.iter().zip(dead) {
            assert!(
                key == want && reason.contains(says),
                "{key}: {reason}, not {want}: {says}"
            );
        }
    }

    /// Asserts that no job came to its end twice.
    pub(crate) async fn nothing_ran_twice(&self) {
        let twice = "SELECT key FROM finishes GROUP BY key HAVING count(*) > 1";
        let twice: Vec<String> = sqlx::query_scalar(twice)
            .fetch_all(&self.db)
            .await
            .expect("keys");
        assert!(twice.is_empty(), "{twice:?}");
        let (finishes, done) = (
            self.number("SELECT count(*) FROM finishes").await,
            self.number("SELECT count(*) FROM done_keys").await,
        );
        assert_eq!(finishes, done);
    }

    /// Returns the highest attempt that a job was done at.
    pub(crate) async fn last_attempt(&self) -> i64 {
        self.number("SELECT max(attempt)::bigint FROM results")
            .await
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "in vain: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// One process whose messages the trial reads. Dropped, it is killed.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Process {
    /// Starts the program with these variables, and no others of its own.
    pub(crate) fn start(args: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(PROGRAM);
        let ours = |name: &str| name.starts_with("JOBS_") || name == "DATABASE_URL";
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(ours) {
                command.env_remove(name);
            }
        }
        command.args(args).envs(environment.iter().copied());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let (tell, lines) = channel();
        let out: [Box<dyn std::io::Read + Send>; 2] = [
            Box::new(child.stdout.take().expect("piped")),
            Box::new(child.stderr.take().expect("piped")),
        ];
        for out in out {
            let tell = tell.clone();
            thread::spawn(move || {
                BufReader::new(out)
                    .lines()
                    .map_while(Result::ok)
                    .for_each(|line| drop(tell.send(line)));
            });
        }
        Process {
            child,
            lines,
            said: Vec::new(),
        }
    }

    pub(crate) fn id(&self) -> String {
        self.child.id().to_string()
    }

    /// Waits until it says something.
    pub(crate) fn says(&mut self, what: &str) {
        let start = Instant::now();
        while !self.said.iter().any(|line| line.contains(what)) {
            match self
                .lines
                .recv_timeout(LIMIT.saturating_sub(start.elapsed()))
            {
                Ok(line) => self.said.push(line),
                Err(end) => panic!("{end}: has not said {what:?}, but {:?}", self.said),
            }
        }
    }

    pub(crate) fn signal(&self, signal: &str) {
        jobs::server::send(signal, &self.id()).expect("it runs");
    }

    /// Waits for its end. Returns how it ended, after how long, and all that it said.
    pub(crate) fn end(mut self) -> (ExitStatus, Duration, String) {
        let start = Instant::now();
        loop {
            match self
                .lines
                .recv_timeout(LIMIT.saturating_sub(start.elapsed()))
            {
                Ok(line) => self.said.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end: {:?}", self.said),
            }
        }
        let status = self.child.wait().expect("a child");
        (status, start.elapsed(), self.said.join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
