//! Jobs in Redis: a stream with one consumer group, retries, dead letters, and the keys that are done.

use redis::{Cmd, Connection, Pipeline, RedisError, RedisResult};
use std::collections::BTreeMap;
use std::time::Duration;

type Fields = Vec<(String, Vec<u8>)>;
type Entries = Vec<(String, Fields)>;
type Letters = Vec<(String, BTreeMap<String, Vec<u8>>)>;
type Pending = Vec<(String, String, u64, u64)>;

/// Why a job did not succeed; the texts are the reasons in the dead letters.
#[derive(Clone, Debug)]
pub enum Failure {
    /// Another attempt may help.
    Passing(String),
    /// None will.
    Lasting(String),
    /// It was told to stop: past its deadline, or by a shutdown.
    Cancelled,
}

/// A job, as an entry of the stream holds it.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// Of the entry; each attempt is an entry of its own.
    pub id: String,
    /// The idempotency key. A job can run twice, if its consumer dies between the work and the
    /// acknowledgment: let what it does outside be done once for each key.
    pub key: String,
    pub kind: String,
    pub payload: Vec<u8>,
    /// From 0.
    pub attempt: u32,
    /// Its own; 0: that of its consumer.
    pub deadline_ms: u32,
    /// How often this entry was delivered; more than once: a consumer died with it.
    pub deliveries: u64,
    /// Why it cannot be run.
    pub bad: Option<Failure>,
}

impl Job {
    pub fn new(key: String, kind: &str, payload: &str) -> Self {
        let mut job = Self::default();
        (job.key, job.kind, job.payload) = (key, kind.to_owned(), payload.into());
        job
    }

    fn read(id: String, fields: Fields, deliveries: u64) -> Self {
        let mut job = Self::default();
        (job.key, job.id, job.deliveries) = (id.clone(), id, deliveries);
        for (name, value) in fields {
            let text = String::from_utf8_lossy(&value).into_owned();
            let mut number = || {
                text.parse().unwrap_or_else(|_| {
                    let why = format!("bad payload: `{name}` is not a number");
                    job.bad = Some(Failure::Lasting(why));
                    0
                })
            };
            match name.as_str() {
                "attempt" => job.attempt = number(),
                "deadline_ms" => job.deadline_ms = number(),
                "key" => job.key = text,
                "kind" => job.kind = text,
                "payload" => job.payload = value,
                _ => {}
            }
        }
        job
    }

    fn write(&self, attempt: u32, cmd: &mut Cmd) {
        cmd.arg(&["key", &self.key, "kind", &self.kind]);
        cmd.arg("payload").arg(&self.payload);
        cmd.arg("attempt").arg(attempt);
        cmd.arg("deadline_ms").arg(self.deadline_ms);
    }
}

/// What becomes of a job that was taken.
#[derive(Clone, Debug)]
pub enum Outcome {
    Done,
    /// Why, and after how long.
    Retried(String, Duration),
    Dead(String),
    /// Left to other consumers.
    Released,
}

/// Where the jobs are, and who asks.
#[derive(Clone, Debug)]
pub struct Place {
    pub url: String,
    pub stream: String,
    pub group: String,
    pub consumer: String,
    pub visibility: Duration,
}

pub fn command(words: &[&str]) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg(words);
    cmd
}

impl Place {
    pub fn open(&self) -> RedisResult<Connection> {
        let client = redis::Client::open(self.url.as_str())?;
        // A server that waits for its disk may be silent for a while.
        let patience = Duration::from_secs(5);
        let con = client.get_connection_with_timeout(patience)?;
        con.set_read_timeout(Some(patience))?;
        con.set_write_timeout(Some(patience))?;
        Ok(con)
    }

    /// Connects, and makes the functions, the stream and the group.
    pub fn connect(&self) -> RedisResult<Queue> {
        let mut con = self.open()?;
        command(&["FUNCTION", "LOAD", "REPLACE", include_str!("jobs.lua")]).exec(&mut con)?;
        let Self { stream, group, .. } = self;
        let group = command(&["XGROUP", "CREATE", stream, group, "0", "MKSTREAM"]);
        match group.exec(&mut con) {
            Err(e) if e.code() != Some("BUSYGROUP") => Err(e),
            _ => Ok(Queue(self.clone(), con)),
        }
    }

    pub fn explain(&self, error: &RedisError) -> String {
        let Self { url, stream, .. } = self;
        match error.code() {
            Some("WRONGTYPE") => {
                format!("`{stream}` (or a key that begins so) is no stream: {error}")
            }
            Some("NOGROUP") => format!("no group reads the stream `{stream}`: {error}"),
            Some(_) => format!("Redis at {url}: {error}"),
            None => format!("no Redis answers at {url}: {error}"),
        }
    }

    /// In a Redis Cluster, write the stream's name in braces: then all are on one node.
    pub fn keys(&self) -> [String; 4] {
        ["", ":retry", ":dead", ":done"].map(|suffix| format!("{}{suffix}", self.stream))
    }

    fn call(&self, function: &str) -> Cmd {
        let mut cmd = command(&["FCALL", function, "4"]);
        cmd.arg(&self.keys()).arg(&[&self.group, &self.consumer]);
        cmd
    }

    /// For people: what waits, what is pending with whom, the last dead letters.
    pub fn status(&self) -> RedisResult<String> {
        let ([stream, retry, dead, done], mut con) = (&self.keys(), self.open()?);
        let pending = command(&["XPENDING", stream, &self.group, "-", "+", "100000"]);
        let pending: Pending = pending.query(&mut con)?;
        let letters = command(&["XREVRANGE", dead, "+", "-", "COUNT", "10"]);
        let letters: Letters = letters.query(&mut con)?;
        let mut count = |what, key: &String| command(&[what, key]).query::<usize>(&mut con);
        let (stream, retry) = (count("XLEN", stream)?, count("ZCARD", retry)?);
        let (done, dead) = (count("SCARD", done)?, count("XLEN", dead)?);
        let (waiting, pending_now) = (stream.saturating_sub(pending.len()), pending.len());
        let mut text = format!("waiting {waiting}, pending {pending_now}, ");
        text += &format!("retries {retry}, done {done}, dead {dead}\n");
        let mut of = BTreeMap::<_, usize>::new();
        for (_, consumer, ..) in pending {
            *of.entry(consumer).or_default() += 1;
        }
        for (consumer, pending) in of {
            text += &format!("pending with {consumer}: {pending}\n");
        }
        for (_, letter) in letters {
            let field = |name| {
                letter
                    .get(name)
                    .map_or("".into(), |v| String::from_utf8_lossy(v))
            };
            let (key, kind, why) = (field("key"), field("kind"), field("reason"));
            text += &format!("dead: {key} ({kind}): {why}\n");
        }
        Ok(text)
    }
}

/// A connection.
#[allow(missing_debug_implementations)]
pub struct Queue(Place, Connection);

impl Queue {
    /// Adds jobs. After an error nobody knows which: add all of them again, with the same keys.
    pub fn produce(&mut self, jobs: &[Job]) -> RedisResult<()> {
        for some in jobs.chunks(500) {
            let mut pipe = Pipeline::new();
            for job in some {
                let mut cmd = command(&["XADD", &self.0.stream, "*"]);
                job.write(0, &mut cmd);
                pipe.add_command(cmd);
            }
            pipe.exec(&mut self.1)?;
        }
        Ok(())
    }

    /// Takes up to `count` new jobs; waits for the first one for up to `block`.
    pub fn take(&mut self, count: usize, block: Duration) -> RedisResult<Vec<Job>> {
        let mut cmd = command(&["XREADGROUP", "GROUP", &self.0.group, &self.0.consumer]);
        cmd.arg("COUNT").arg(count);
        cmd.arg("BLOCK").arg(block.as_millis() as u64);
        cmd.arg(&["STREAMS", &self.0.stream, ">"]);
        let reply: Option<Vec<(String, Entries)>> = cmd.query(&mut self.1)?;
        let entries = reply.into_iter().flatten().flat_map(|(_, entries)| entries);
        let jobs = entries.map(|(id, fields)| Job::read(id, fields, 1));
        Ok(jobs.collect())
    }

    /// Claims the next job past its visibility timeout, from `cursor` on, and moves the cursor.
    pub fn claim(&mut self, cursor: &mut String) -> RedisResult<Option<Job>> {
        let (place, con) = (&self.0, &mut self.1);
        let (stream, group) = (&place.stream, &place.group);
        let mut cmd = command(&["XAUTOCLAIM", stream, group, &place.consumer]);
        cmd.arg(place.visibility.as_millis() as u64);
        cmd.arg(&[&*cursor, "COUNT", "1"]);
        let (next, claimed, _deleted): (_, Entries, Vec<String>) = cmd.query(con)?;
        *cursor = next;
        let Some((id, fields)) = claimed.into_iter().next() else {
            return Ok(None);
        };
        let cmd = command(&["XPENDING", stream, group, &id, &id, "1"]);
        let pending: Pending = cmd.query(con)?;
        let job = pending.first().map(|job| Job::read(id, fields, job.3));
        Ok(job)
    }

    /// Starts the visibility timeout of jobs again.
    pub fn extend(&mut self, ids: &[&String]) -> RedisResult<()> {
        self.0.call("jobs_extend").arg(ids).exec(&mut self.1)
    }

    /// Moves retries that are due into the stream.
    pub fn due(&mut self) -> RedisResult<()> {
        self.0.call("jobs_due").exec(&mut self.1)
    }

    /// Which of these jobs were done before, under their keys.
    pub fn done(&mut self, jobs: &[Job]) -> RedisResult<Vec<bool>> {
        let keys: Vec<&String> = jobs.iter().map(|job| &job.key).collect();
        let mut cmd = command(&["SMISMEMBER", &self.0.keys()[3]]);
        cmd.arg(keys).query(&mut self.1)
    }

    /// Writes down what became of jobs. After an error, do it again.
    pub fn settle(&mut self, jobs: &[(&Job, &Outcome)]) -> RedisResult<()> {
        let mut pipe = Pipeline::new();
        for (job, outcome) in jobs {
            let mut cmd;
            match outcome {
                Outcome::Done => {
                    cmd = self.0.call("jobs_done");
                    cmd.arg(&[&job.id, &job.key]);
                }
                Outcome::Retried(why, delay) => {
                    cmd = self.0.call("jobs_failed");
                    cmd.arg(&job.id).arg(delay.as_millis() as u64).arg(why);
                    job.write(job.attempt + 1, &mut cmd);
                }
                Outcome::Dead(why) => {
                    cmd = self.0.call("jobs_failed");
                    job.write(job.attempt, cmd.arg(&[&job.id, "-1", why]));
                }
                Outcome::Released => {
                    cmd = self.0.call("jobs_released");
                    cmd.arg(&job.id).arg(self.0.visibility.as_millis() as u64);
                }
            }
            pipe.add_command(cmd);
        }
        pipe.exec(&mut self.1)
    }
}
