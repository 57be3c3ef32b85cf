//! Jobs in Redis: a stream with one consumer group, retries, dead letters, and the keys that are done.

use redis::{cmd, pipe, Connection, RedisError, RedisResult, ToRedisArgs, Value};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// For how long to claim nothing once Redis answers: consumers that it was gone for, too, report
/// first.
const PAUSE: Duration = Duration::from_millis(500);

/// Of a stream: each with its id.
pub type Entries = Vec<(String, Fields)>;
pub type Fields = BTreeMap<String, Vec<u8>>;

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
    pub bad: Option<String>,
}

impl Job {
    pub fn new(key: String, kind: &str, payload: &str) -> Self {
        let mut job = Self::default();
        (job.key, job.kind, job.payload) = (key, kind.to_owned(), payload.into());
        job
    }

    fn read(id: String, mut fields: Fields, deliveries: u64) -> Self {
        let mut bad = None;
        let mut number = |name| {
            let number = text(&fields, name, "0").parse();
            number.unwrap_or_else(|_| {
                bad = Some(format!("bad payload: `{name}` is not a number"));
                0
            })
        };
        Self {
            attempt: number("attempt"),
            deadline_ms: number("deadline_ms"),
            key: text(&fields, "key", &id),
            kind: text(&fields, "kind", ""),
            payload: fields.remove("payload").unwrap_or_default(),
            id,
            deliveries,
            bad,
        }
    }

    fn fields(&self, attempt: u32) -> impl ToRedisArgs + '_ {
        let Self { key, kind, .. } = self;
        let named = ("key", key, "kind", kind, "payload", &self.payload);
        (named, "attempt", attempt, "deadline_ms", self.deadline_ms)
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

/// A field as text.
pub fn text(fields: &Fields, name: &str, default: &str) -> String {
    let value = fields.get(name).map(|value| String::from_utf8_lossy(value));
    value.unwrap_or(default.into()).into_owned()
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
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
        let functions = ("LOAD", "REPLACE", include_str!("jobs.lua"));
        cmd("FUNCTION").arg(functions).exec(&mut con)?;
        let group = ("CREATE", &self.stream, &self.group, "0", "MKSTREAM");
        let made = cmd("XGROUP").arg(group).exec(&mut con);
        let queue = Queue {
            place: self.clone(),
            con,
            claim_at: Instant::now() + PAUSE,
            cursor: "0-0".to_owned(),
        };
        match made {
            Err(e) if e.code() != Some("BUSYGROUP") => Err(e),
            _ => Ok(queue),
        }
    }

    pub fn explain(&self, error: &RedisError) -> String {
        let Self { url, stream, .. } = self;
        let what = match error.code() {
            Some("WRONGTYPE") => format!("`{stream}` (or a key that begins so) is no stream"),
            Some("NOGROUP") => format!("no group reads the stream `{stream}`"),
            Some(_) => format!("Redis at {url}"),
            None => format!("no Redis answers at {url}"),
        };
        format!("{what}: {error}")
    }

    /// In a Redis Cluster, write the stream's name in braces: then all are on one node.
    pub fn keys(&self) -> [String; 4] {
        ["", ":retry", ":dead", ":done"].map(|suffix| format!("{}{suffix}", self.stream))
    }

    /// The first arguments of each function.
    fn arguments(&self) -> impl ToRedisArgs + '_ {
        (4, self.keys().to_vec(), &self.group, &self.consumer)
    }

    /// How many entries are in each of the keys.
    pub fn counts(&self) -> RedisResult<[usize; 4]> {
        let mut all = pipe();
        all.atomic(); // a job goes from one to the other
        for (count, key) in ["XLEN", "ZCARD", "XLEN", "SCARD"].iter().zip(self.keys()) {
            all.cmd(count).arg(key);
        }
        all.query(&mut self.open()?)
    }

    /// How many jobs are pending with each consumer that has any.
    pub fn pending(&self) -> RedisResult<Vec<(String, usize)>> {
        type Summary = (usize, Value, Value, Option<Vec<(String, usize)>>);
        let group = (&self.stream, &self.group);
        let (.., consumers): Summary = cmd("XPENDING").arg(group).query(&mut self.open()?)?;
        Ok(consumers.unwrap_or_default())
    }

    /// For people: what waits, what is pending with whom, the last dead letters.
    pub fn status(&self) -> RedisResult<String> {
        let (pending, [stream, retries, dead, done]) = (self.pending()?, self.counts()?);
        let last = (&self.keys()[2], "+", "-", "COUNT", 10);
        let letters: Entries = cmd("XREVRANGE").arg(last).query(&mut self.open()?)?;
        let all = pending.iter().map(|(_, count)| count).sum();
        let waiting = stream.saturating_sub(all);
        let mut status = format!("waiting {waiting}, pending {all}, retries {retries}, ");
        status += &format!("done {done}, dead {dead}\n");
        for (consumer, count) in pending {
            status += &format!("pending with {consumer}: {count}\n");
        }
        for (_, letter) in letters {
            let [key, kind, why] = ["key", "kind", "reason"].map(|name| text(&letter, name, ""));
            status += &format!("dead: {key} ({kind}): {why}\n");
        }
        Ok(status)
    }
}

/// A connection.
#[allow(missing_debug_implementations)]
pub struct Queue {
    place: Place,
    con: Connection,
    /// When to look for jobs whose consumer died, and from where in the stream.
    claim_at: Instant,
    cursor: String,
}

impl Queue {
    /// Adds jobs. After an error nobody knows which: add all of them again, with the same keys.
    pub fn produce(&mut self, jobs: &[Job]) -> RedisResult<()> {
        for some in jobs.chunks(500) {
            let mut all = pipe();
            for job in some {
                let entry = (&self.place.stream, "*", job.fields(0));
                all.cmd("XADD").arg(entry);
            }
            all.exec(&mut self.con)?;
        }
        Ok(())
    }

    /// Takes up to `count` new jobs.
    pub fn take(&mut self, count: usize) -> RedisResult<Vec<Job>> {
        let (p, con) = (&self.place, &mut self.con);
        let who = ("GROUP", &p.group, &p.consumer, "COUNT", count);
        let new = (who, "STREAMS", &p.stream, ">");
        let reply: Option<Vec<(String, Entries)>> = cmd("XREADGROUP").arg(new).query(con)?;
        let entries = reply.into_iter().flatten().flat_map(|(_, entries)| entries);
        let jobs = entries.map(|(id, fields)| Job::read(id, fields, 1));
        Ok(jobs.collect())
    }

    /// Claims a job past its visibility timeout.
    pub fn claim(&mut self) -> RedisResult<Option<Job>> {
        if Instant::now() < self.claim_at {
            return Ok(None);
        }
        let (p, con) = (&self.place, &mut self.con);
        let (of, silent) = ((&p.stream, &p.group), millis(p.visibility));
        let next = (of, &p.consumer, silent, &self.cursor, "COUNT", 1);
        let (cursor, claimed, _): (_, Entries, Value) = cmd("XAUTOCLAIM").arg(next).query(con)?;
        self.cursor = cursor;
        if self.cursor == "0-0" {
            self.claim_at = Instant::now() + (p.visibility / 8).min(Duration::from_secs(1));
        }
        let Some((id, fields)) = claimed.into_iter().next() else {
            return Ok(None);
        };
        type Pending = Vec<(String, String, u64, u64)>;
        let pending: Pending = cmd("XPENDING").arg((of, &id, &id, 1)).query(con)?;
        let deliveries = pending.first().map(|entry| entry.3);
        Ok(deliveries.map(|deliveries| Job::read(id, fields, deliveries)))
    }

    /// Starts the visibility timeout of jobs again.
    pub fn extend(&mut self, ids: &[&String]) -> RedisResult<()> {
        let extend = ("jobs_extend", self.place.arguments(), ids);
        cmd("FCALL").arg(extend).exec(&mut self.con)
    }

    /// Leaves to others what was delivered to this consumer, except these: an answer can be lost
    /// with its connection.
    pub fn give_away_unknown(&mut self, known: &[&String]) -> RedisResult<()> {
        let of = (self.place.arguments(), millis(self.place.visibility));
        let unknown = ("jobs_unknown", of, known);
        cmd("FCALL").arg(unknown).exec(&mut self.con)
    }

    /// Which of these jobs were done before, under their keys.
    pub fn done(&mut self, jobs: &[Job]) -> RedisResult<Vec<bool>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<&String> = jobs.iter().map(|job| &job.key).collect();
        let done = (&self.place.keys()[3], keys);
        cmd("SMISMEMBER").arg(done).query(&mut self.con)
    }

    /// Writes down what became of jobs (after an error, do it again), and moves retries that are
    /// due into the stream.
    pub fn settle(&mut self, jobs: &[(&Job, &Outcome)]) -> RedisResult<()> {
        let (mut all, arguments) = (pipe(), self.place.arguments());
        for (job, outcome) in jobs {
            let (call, of) = (all.cmd("FCALL"), (&arguments, &job.id));
            let (attempt, visibility) = (job.attempt, millis(self.place.visibility));
            match outcome {
                Outcome::Done => call.arg(("jobs_done", of, &job.key)),
                Outcome::Retried(why, delay) => {
                    let next = job.fields(attempt + 1);
                    call.arg(("jobs_failed", of, millis(*delay), why, next))
                }
                Outcome::Dead(why) => call.arg(("jobs_failed", of, -1, why, job.fields(attempt))),
                Outcome::Released => call.arg(("jobs_released", of, visibility)),
            };
        }
        all.cmd("FCALL").arg(("jobs_due", arguments));
        all.exec(&mut self.con)
    }
}
