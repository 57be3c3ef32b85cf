//! Jobs in Redis: a stream with one consumer group, retries, dead letters, and the keys of jobs
//! that are done.

use redis::{cmd, pipe, Cmd, Connection, RedisResult, ToRedisArgs};
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::time::{Duration, Instant};

/// The time after a connection in which a consumer claims no job. If Redis was down, other
/// consumers use this time to report their jobs.
const PAUSE: Duration = Duration::from_millis(500);
/// The limit of each socket call. A server that waits for its disk may be silent for a while.
const PATIENCE: Duration = Duration::from_secs(5);

/// The place of the jobs, the name of this consumer, and the rules. `jobs --help` explains each.
#[derive(Clone, Debug)]
pub struct Settings {
    pub url: String,
    pub stream: String,
    pub group: String,
    pub consumer: String,
    pub visibility: Duration,
    pub deaths: u64,
    pub attempts: u32,
    pub backoff: Duration,
    pub keep: Duration,
    pub keys: usize,
    pub deadline: Duration,
    pub lost: usize,
    pub grace: Duration,
    pub bytes: usize,
}

/// The reason why a job did not succeed. The texts stand in the dead letters.
#[derive(Clone, Debug)]
pub enum Failure {
    /// Another attempt may help.
    Passing(String),
    /// No other attempt will help.
    Lasting(String),
    /// The job was told to stop, by its deadline or by a shutdown.
    Cancelled,
}

/// A job, as an entry of the stream holds it.
#[derive(Clone, Default)]
pub struct Job {
    /// The id of the entry.
    pub id: String,
    /// The idempotency key. A job can run twice, if its consumer dies between the work and the
    /// acknowledgment. So make its effects outside happen once for each key.
    pub key: String,
    pub kind: String,
    pub payload: Vec<u8>,
    /// The job's own deadline. 0: the job has the deadline of its consumer.
    pub deadline_ms: u32,
    /// The job's delivery count in Redis. It holds two numbers: 1000 * failed attempts + deliveries
    /// of this attempt.
    pub times: u64,
    /// The reason why the job cannot be run, if there is one.
    pub bad: Option<String>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, kind) = (short(&self.key), short(&self.kind));
        write!(f, "{key} ({kind}), attempt {}", self.attempt() + 1)
    }
}

/// Returns the beginning of a text, so that reasons and logs hold no payloads.
pub fn short(text: &str) -> &str {
    text.char_indices().nth(200).map_or(text, |(end, _)| &text[..end])
}

/// The names and values of an entry. They may be any bytes, because other programs add entries,
/// too.
type Fields = HashMap<Vec<u8>, Vec<u8>>;
/// The answer of Redis to a read of one stream, with one entry.
type New = [(String, [(String, Fields); 1]); 1];

impl Job {
    pub fn new(key: String, kind: &str, payload: &str) -> Self {
        Self { key, kind: kind.to_owned(), payload: payload.into(), ..Self::default() }
    }

    /// Returns the number of the attempt, from 0.
    pub fn attempt(&self) -> u32 {
        (self.times / 1000) as u32
    }

    fn read((id, times, mut fields): (String, u64, Fields)) -> Self {
        let mut job = Self { id: id.clone(), key: id, times, ..Self::default() };
        let mut read = || -> Result<(), Box<dyn Error>> {
            let mut field = |name: &str| fields.remove(name.as_bytes());
            job.payload = field("payload").unwrap_or_default();
            if let Some(key) = field("key") {
                job.key = String::from_utf8(key)?;
            }
            job.kind = String::from_utf8(field("kind").unwrap_or_default())?;
            let deadline = field("deadline_ms").unwrap_or(b"0".into());
            job.deadline_ms = String::from_utf8(deadline)?.parse()?;
            Ok(())
        };
        job.bad = read().err().map(|e| format!("bad field: {e}"));
        job
    }
}

/// A connection to the jobs in Redis.
#[allow(missing_debug_implementations)]
pub struct Queue {
    pub s: Settings,
    pub con: Connection,
    /// The SHA-1 digest by which the server knows `jobs.lua`.
    script: String,
    /// The time from which this connection may claim jobs whose consumer has died.
    claim_at: Instant,
}

impl Settings {
    /// Connects to Redis.
    pub fn open(&self) -> RedisResult<Queue> {
        let client = redis::Client::open(self.url.as_str())?;
        let mut con = client.get_connection_with_timeout(PATIENCE)?;
        con.set_read_timeout(Some(PATIENCE))?;
        con.set_write_timeout(Some(PATIENCE))?;
        let load = ("LOAD", include_str!("jobs.lua"));
        Ok(Queue {
            s: self.clone(),
            script: cmd("SCRIPT").arg(load).query(&mut con)?,
            con,
            claim_at: Instant::now() + PAUSE,
        })
    }

    /// Connects, and makes the stream and the group.
    pub fn connect(&self) -> RedisResult<Queue> {
        let mut queue = self.open()?;
        queue.step("open", "").exec(&mut queue.con)?;
        Ok(queue)
    }

    pub fn redis_keys(&self) -> [String; 4] {
        ["", ":retry", ":dead", ":done"].map(|suffix| format!("{}{suffix}", self.stream))
    }
}

impl Queue {
    fn step(&self, step: &str, args: impl ToRedisArgs) -> Cmd {
        let (s, mut call) = (&self.s, cmd("EVALSHA"));
        let ms = [s.visibility, s.backoff, s.keep].map(|ms| ms.as_millis() as u64);
        let who = (step, &s.group, &s.consumer);
        call.arg((&self.script, 4, &s.redis_keys(), who, &ms, s.deaths, s.keys, args));
        call
    }

    /// Adds jobs. After an error it is unknown which of them are added. Add all of them again, with
    /// the same keys.
    pub fn produce(&mut self, jobs: &[Job]) -> RedisResult<()> {
        let mut all = pipe();
        for job in jobs {
            let named = ("key", &job.key, "kind", &job.kind, "payload", &job.payload);
            let entry = (&self.s.stream, "*", named, "deadline_ms", job.deadline_ms);
            all.cmd("XADD").arg(entry);
        }
        jobs.first().map_or(Ok(()), |_| all.exec(&mut self.con))
    }

    /// Takes up to `count` jobs, until they have `room` bytes. A consumer gets a job that must run
    /// alone only if it is `busy` with 0 others. Also returns in how many ms a retry is due.
    pub fn take(&mut self, count: usize, room: usize, busy: usize) -> RedisResult<(u64, Vec<Job>)> {
        let claims = u8::from(Instant::now() >= self.claim_at);
        let take = self.step("take", (count, room, busy, claims));
        let (due, taken): (_, Vec<_>) = take.query(&mut self.con)?;
        Ok((due, taken.into_iter().map(Job::read).collect()))
    }

    /// Waits in the server for a new job, and takes it.
    pub fn wait(&mut self, most: Duration) -> RedisResult<Option<Job>> {
        let (who, most) = ((&self.s.group, &self.s.consumer), most.as_millis() as u64 + 1);
        let mut new = cmd("XREADGROUP");
        new.arg(("GROUP", who, "COUNT", 1, "BLOCK", most, "STREAMS", &self.s.stream, ">"));
        let new: Option<New> = new.query(&mut self.con)?;
        let Some([(_, [(id, fields)])]) = new else { return Ok(None) };
        let job = Job::read((id, 1, fields));
        let skip = self.step("skip", (&job.id, &job.key));
        let is_done: bool = skip.query(&mut self.con)?;
        Ok((!is_done).then_some(job))
    }

    /// Restarts the visibility timeout of the `known` jobs. Gives back all other jobs of this
    /// consumer: jobs in an answer that was lost or, at the `start`, jobs of an earlier process.
    /// Returns a text if a key is of the wrong type.
    pub fn extend(&mut self, known: &[&str], start: bool) -> RedisResult<String> {
        self.step("extend", (u8::from(start), known)).query(&mut self.con)
    }

    /// Writes the outcomes of jobs to Redis. After an error, call this again.
    pub fn settle(&mut self, jobs: &[(&Job, &Result<(), Failure>)]) -> RedisResult<()> {
        let mut all = pipe();
        for (job, end) in jobs {
            let failed = |why, attempts: u32| {
                eprintln!("jobs: {job:?}: {}", short(why));
                self.step("failed", (&job.id, short(why), attempts))
            };
            all.add_command(match end {
                Ok(()) => self.step("done", (&job.id, &job.key)),
                Err(Failure::Passing(why)) => failed(why, self.s.attempts),
                Err(Failure::Lasting(why)) => failed(why, 0),
                Err(Failure::Cancelled) => self.step("released", &job.id),
            });
        }
        jobs.first().map_or(Ok(()), |_| all.exec(&mut self.con))
    }
}
