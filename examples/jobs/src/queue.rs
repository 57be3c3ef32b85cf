//! Jobs in Redis: a stream with one consumer group, retries, dead letters, and the keys that are done.

use redis::{cmd, pipe, Cmd, Connection, ConnectionAddr, ErrorKind, IntoConnectionInfo};
use redis::{RedisError, RedisResult, ToRedisArgs};
use std::fmt;
use std::time::{Duration, Instant};

/// For how long to claim nothing once Redis answers: consumers that it was gone for, too, report
/// first.
const PAUSE: Duration = Duration::from_millis(500);
/// The limit of each socket call. A server that waits for its disk may be silent for a while.
const PATIENCE: Duration = Duration::from_secs(5);
/// No text about a job is longer: reasons, logs and `status` hold no payloads.
const SHORT: usize = 200;

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
#[derive(Clone, Default)]
pub struct Job {
    /// Of the entry.
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
    /// Its delivery count in Redis: 1000 * attempts + deliveries.
    pub times: u64,
    /// One more death makes it a dead letter: it begins when nothing else runs, and only then counts.
    pub alone: bool,
    /// Why it cannot be run.
    pub bad: Option<String>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, kind, attempt) = (short(&self.key), short(&self.kind), self.attempt + 1);
        write!(f, "{key} ({kind}), attempt {attempt}")
    }
}

/// Names and values in turn. They may be anything: other programs add them, too.
type Fields = Vec<Vec<u8>>;
/// An entry's id, its delivery count, and whether it runs alone.
type Delivery = (String, u64, bool, Fields);

impl Job {
    pub fn new(key: String, kind: &str, payload: &str) -> Self {
        let mut job = Self::default();
        (job.key, job.kind, job.payload) = (key, kind.to_owned(), payload.into());
        job
    }

    fn read((id, times, alone, mut fields): Delivery) -> Self {
        let mut field = |name: &str| {
            let mut names = fields.iter().step_by(2);
            let at = names.position(|field| field == name.as_bytes());
            at.and_then(|at| fields.get_mut(2 * at + 1).map(std::mem::take))
        };
        let mut bad = None;
        let mut text = |name: &str, bytes: Option<Vec<u8>>, default: &str| {
            let text = bytes.map_or(Ok(default.to_owned()), String::from_utf8);
            text.unwrap_or_else(|_| {
                bad = Some(format!("bad {name}: it is not UTF-8"));
                default.to_owned()
            })
        };
        let key = text("key", field("key"), &id);
        let kind = text("kind", field("kind"), "");
        let deadline = text("deadline_ms", field("deadline_ms"), "0").parse();
        if deadline.is_err() {
            bad = Some("bad deadline_ms: it is not a number".to_owned());
        }
        Self {
            key,
            kind,
            payload: field("payload").unwrap_or_default(),
            attempt: u32::try_from(times / 1000).unwrap_or(u32::MAX),
            deadline_ms: deadline.unwrap_or_default(),
            id,
            times,
            alone,
            bad,
        }
    }
}

/// Returns the beginning of a text.
pub fn short(text: &str) -> &str {
    text.char_indices()
        .nth(SHORT)
        .map_or(text, |(end, _)| &text[..end])
}

/// What becomes of a job that was taken.
#[derive(Clone, Debug)]
pub enum Outcome {
    Done,
    /// Why, after how long, and as which attempt.
    Retried(String, Duration, u32),
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

/// What is known of the jobs: entries of each kind (those of the stream include the retries), and how
/// many are pending with each consumer that has any.
pub type Status = (usize, usize, usize, usize, Vec<(String, usize)>);

/// A dead letter: its id, and the key, kind and reason, shortened.
pub type Letter = (String, Vec<u8>, Vec<u8>, Vec<u8>);

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

impl Place {
    /// Connects, and follows a cluster to the node that has the stream.
    pub fn open(&self) -> RedisResult<Queue> {
        let mut info = self.url.as_str().into_connection_info()?;
        loop {
            let client = redis::Client::open(info.clone())?;
            let mut con = client.get_connection_with_timeout(PATIENCE)?;
            con.set_read_timeout(Some(PATIENCE))?;
            con.set_write_timeout(Some(PATIENCE))?;
            let Err(moved) = cmd("EXISTS").arg(&self.stream).exec(&mut con) else {
                let load = ("LOAD", include_str!("jobs.lua"));
                let script = cmd("SCRIPT").arg(load).query(&mut con)?;
                let (place, claim_at) = (self.clone(), Instant::now() + PAUSE);
                return Ok(Queue {
                    place,
                    con,
                    script,
                    claim_at,
                });
            };
            let node = moved
                .redirect_node()
                .and_then(|(node, _)| node.rsplit_once(':'));
            let Some((host, port)) = node else {
                return Err(moved);
            };
            let port = port.parse().unwrap_or_default();
            info = info.set_addr(ConnectionAddr::Tcp(host.to_owned(), port));
        }
    }

    /// Connects, and makes the stream and the group.
    pub fn connect(&self) -> RedisResult<Queue> {
        let mut queue = self.open()?;
        queue.step("open", "").exec(&mut queue.con)?;
        Ok(queue)
    }

    /// Says in one sentence what is wrong, and whose turn it is.
    pub fn explain(&self, error: &RedisError) -> String {
        let Self { url, stream, .. } = self;
        // Without a password.
        let server = url
            .rsplit_once('@')
            .map_or(url.as_str(), |(_, server)| server);
        let tls = url.starts_with("rediss:") || url.starts_with("valkeys:");
        let what = match (error.kind(), error.code()) {
            (ErrorKind::InvalidClientConfig, _) if tls => format!(
                "no TLS for {server}: build the crate `redis` with its feature `tls-rustls`"
            ),
            (ErrorKind::InvalidClientConfig, _) => {
                format!("bad URL {server}: it is written redis://HOST:PORT/")
            }
            (_, Some("WRONGTYPE")) => {
                format!("`{stream}`, or a key that begins so, is of the wrong type")
            }
            (_, Some("NOGROUP")) => format!("no group reads the stream `{stream}`"),
            (_, Some("OOM")) => {
                format!("Redis at {server} is full (maxmemory): it takes no new jobs")
            }
            (_, Some("CROSSSLOT")) => {
                format!("in a cluster write the stream in braces, {{{stream}}}")
            }
            _ if error.is_timeout() => format!("Redis at {server} is silent"),
            (ErrorKind::Io, _) => format!("no Redis answers at {server}"),
            _ => format!("Redis at {server}"),
        };
        format!("{what}: {error}")
    }

    /// In a Redis Cluster, write the stream's name in braces: then all are on one node.
    pub fn keys(&self) -> [String; 4] {
        ["", ":retry", ":dead", ":done"].map(|suffix| format!("{}{suffix}", self.stream))
    }
}

/// A connection.
#[allow(missing_debug_implementations)]
pub struct Queue {
    place: Place,
    pub con: Connection,
    /// The name of `jobs.lua` in the server.
    script: String,
    /// When to look for jobs whose consumer died.
    claim_at: Instant,
}

impl Queue {
    fn step(&self, step: &str, args: impl ToRedisArgs) -> Cmd {
        let (p, mut call) = (&self.place, cmd("EVALSHA"));
        call.arg(&self.script).arg(4).arg(&p.keys()).arg(step);
        call.arg((&p.group, &p.consumer, millis(p.visibility)))
            .arg(args);
        call
    }

    /// Adds jobs. After an error it is unknown which: add all of them again, with the same keys.
    pub fn produce(&mut self, jobs: &[Job]) -> RedisResult<()> {
        for some in jobs.chunks(500) {
            let mut all = pipe();
            for job in some {
                let named = ("key", &job.key, "kind", &job.kind, "payload", &job.payload);
                let entry = all.cmd("XADD").arg((&self.place.stream, "*", named));
                entry.arg(("deadline_ms", job.deadline_ms));
            }
            all.exec(&mut self.con)?;
        }
        Ok(())
    }

    /// Takes up to `count` jobs, until they have `room` bytes. Returns what is wrong with a key, how
    /// long until a retry is due, and the jobs.
    pub fn take(
        &mut self,
        count: usize,
        room: usize,
        deaths: u64,
    ) -> RedisResult<(String, Duration, Vec<Job>)> {
        let claims = u8::from(Instant::now() >= self.claim_at);
        let take = self.step("take", (count, room, deaths, claims));
        let (complaint, due, taken): (_, _, Vec<Delivery>) = take.query(&mut self.con)?;
        let jobs = taken.into_iter().map(Job::read);
        Ok((complaint, Duration::from_millis(due), jobs.collect()))
    }

    /// Waits in the server for a new job, and takes it.
    pub fn wait(&mut self, most: Duration) -> RedisResult<Option<Job>> {
        let p = &self.place;
        let who = (
            "GROUP",
            &p.group,
            &p.consumer,
            "COUNT",
            1,
            "BLOCK",
            millis(most),
        );
        let new = cmd("XREADGROUP")
            .arg((who, "STREAMS", &p.stream, ">"))
            .clone();
        let reply: Option<[(String, [(String, Fields); 1]); 1]> = new.query(&mut self.con)?;
        let Some([(_, [(id, fields)])]) = reply else {
            return Ok(None);
        };
        let job = Job::read((id, 1, false, fields));
        Ok(self.begin(&job)?.then_some(job))
    }

    /// Counts a delivery. Returns whether the job may begin: it is not done, and still this consumer's.
    pub fn begin(&mut self, job: &Job) -> RedisResult<bool> {
        let times = job.times + u64::from(job.alone);
        self.step("begin", (&job.id, times)).query(&mut self.con)
    }

    /// Starts the visibility timeout of these jobs again, and leaves to others what was delivered to
    /// this consumer besides: an answer can be lost with its connection. That is a death if `counted`
    /// is 0. Keeps keys that are done for so long, and so many.
    pub fn extend(
        &mut self,
        known: &[&String],
        counted: u8,
        keep: (Duration, usize),
    ) -> RedisResult<String> {
        let extend = self.step("extend", (counted, millis(keep.0), keep.1, known));
        extend.query(&mut self.con)
    }

    /// Writes down what became of jobs; after an error, do it again. Returns what is wrong with a key.
    pub fn settle(&mut self, jobs: &[(&Job, &Outcome)]) -> RedisResult<String> {
        let mut all = pipe();
        for (job, outcome) in jobs {
            let id = &job.id;
            all.add_command(match outcome {
                Outcome::Done => self.step("done", (id, &job.key)),
                Outcome::Retried(why, delay, attempt) => {
                    self.step("failed", (id, short(why), millis(*delay), attempt))
                }
                Outcome::Dead(why) => self.step("failed", (id, short(why), -1)),
                Outcome::Released => self.step("released", (id, u8::from(!job.alone))),
            });
        }
        let complaints: Vec<String> = all.query(&mut self.con)?;
        Ok(complaints.into_iter().max().unwrap_or_default())
    }

    pub fn status(&mut self) -> RedisResult<Status> {
        self.step("status", "").query(&mut self.con)
    }

    /// Applies `list`, `send` (again) or `delete` to the dead letters from one id to another, and tells
    /// each.
    pub fn letters(
        &mut self,
        act: &str,
        from: &str,
        to: &str,
        mut tell: impl FnMut(Letter),
    ) -> RedisResult<()> {
        let mut from = from.to_owned();
        loop {
            let step = self.step("letters", (act, &from, to));
            let letters: Vec<Letter> = step.query(&mut self.con)?;
            let Some((last, ..)) = letters.last() else {
                return Ok(());
            };
            from = format!("({last}");
            letters.into_iter().for_each(&mut tell);
        }
    }
}
