//! The consumer: takes jobs while its pool has capacity for them, and reports what became of each.

use crate::kinds;
use crate::queue::{Failure, Job, Outcome, Place, Queue};
use lazypool::{Pool, Shutdown, WhenFull};
use redis::{RedisError, RedisResult};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long the loop waits for an event, at most: how late it sees a deadline or a signal.
const TICK: Duration = Duration::from_millis(20);
/// How long past its deadline a job may tell by itself how it ended.
const LATE: Duration = Duration::from_millis(50);
/// A job that runs for so long after it was reported as timed out has cost a worker.
const LOST: Duration = Duration::from_secs(1);

/// How long to wait between tries to reach Redis, at most; and for how long to claim nothing once
/// it answers: consumers that it was gone for, too, report first.
const PAUSE: Duration = Duration::from_millis(500);

/// `jobs --help` says what each is for.
#[derive(Clone, Debug)]
pub struct Settings {
    pub place: Place,
    pub workers: usize,
    pub queue: usize,
    pub deadline: Duration,
    pub attempts: u32,
    pub backoff: Duration,
    pub deaths: u64,
    pub lost: usize,
    pub grace: Duration,
    pub effects: Option<Arc<File>>,
}

enum Event {
    Came(RedisResult<Vec<Job>>),
    Started(String),
    Ended(String, Result<(), Failure>),
    NeverRan(String),
}

/// A job from its delivery to its acknowledgment.
struct Taken {
    job: Job,
    until: Instant,
    started: bool,
    ended: bool,
    outcome: Option<Outcome>,
}

/// Says that the pool dropped a job without having run it.
struct Ticket(Option<String>, Sender<Event>);

impl Ticket {
    fn used(mut self) {
        self.0 = None;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(id) = self.0.take() {
            let _ = self.1.send(Event::NeverRan(id)); // an error: the loop has ended
        }
    }
}

struct Consumer<'a> {
    s: &'a Settings,
    pool: &'a Pool,
    /// All that this process has taken and not acknowledged.
    ledger: HashMap<String, Taken>,
    /// What was reported as timed out and still runs, since when.
    hung: HashMap<String, Instant>,
    inbox: Vec<Job>,
    events: Receiver<Event>,
    sender: Sender<Event>,
    /// How many jobs to take, and whether to claim one whose consumer died.
    permits: Sender<(usize, bool)>,
    permit_out: bool,
    link: Option<Queue>,
    /// While Redis is gone: the pause between tries, and when the next one is due.
    pause: Duration,
    again: Instant,
    extended: Instant,
    stopping: bool,
}

/// Runs until `stop` is set, or too many workers are lost: then it returns `true`.
pub fn work(s: &Settings, pool: &Pool, stop: &AtomicBool) -> Result<bool, String> {
    let link = s.place.connect().map_err(|e| s.place.explain(&e))?;
    let ((sender, events), (permits, asked)) = (channel(), channel());
    let (place, replies, now) = (s.place.clone(), sender.clone(), Instant::now());
    thread::spawn(move || take(&place, &asked, &replies));
    let mut consumer = Consumer {
        s,
        pool,
        ledger: HashMap::new(),
        hung: HashMap::new(),
        inbox: Vec::new(),
        events,
        sender,
        permits,
        permit_out: false,
        link: Some(link),
        pause: Duration::ZERO,
        again: now,
        extended: now,
        stopping: false,
    };
    // Relaxed: the flag says all there is to know.
    while !stop.load(Ordering::Relaxed) && consumer.lost() < s.lost {
        consumer.turn();
    }
    let lost = consumer.lost();
    consumer.stop();
    Ok(lost >= s.lost)
}

/// Takes jobs for each permit, by a connection of its own: it may block.
fn take(place: &Place, permits: &Receiver<(usize, bool)>, events: &Sender<Event>) {
    let every = (place.visibility / 8).min(Duration::from_secs(1));
    let (mut link, mut cursor, mut claim_at) = (None, "0-0".to_owned(), Instant::now());
    for (count, may_claim) in permits {
        let mut take = |(queue, since): &mut (Queue, Instant)| {
            if may_claim && Instant::now() >= claim_at && since.elapsed() > PAUSE {
                let claimed = queue.claim(&mut cursor)?;
                if cursor == "0-0" {
                    claim_at = Instant::now() + every;
                }
                if claimed.is_some() {
                    return Ok(Vec::from_iter(claimed));
                }
            }
            queue.take(count, every.min(Duration::from_millis(200)))
        };
        let taken = match link.as_mut().map(&mut take) {
            Some(Ok(jobs)) => Ok(jobs),
            // Perhaps Redis was started again since.
            _ => (place.connect()).and_then(|queue| take(link.insert((queue, Instant::now())))),
        };
        if events.send(Event::Came(taken)).is_err() {
            return; // the loop has ended
        }
    }
}

impl Consumer<'_> {
    fn turn(&mut self) {
        let mut next = self.events.recv_timeout(TICK).ok();
        while let Some(event) = next {
            self.note(event);
            next = self.events.try_recv().ok();
        }
        for taken in self.ledger.values_mut() {
            if taken.outcome.is_none() && Instant::now() > taken.until + LATE {
                taken.too_late(self.s);
            }
        }
        if let Err(e) = self.talk() {
            self.lost_link(&e);
        }
    }

    fn note(&mut self, event: Event) {
        let (id, result) = match event {
            Event::Came(jobs) => {
                self.permit_out = false;
                return match jobs {
                    Ok(jobs) => self.inbox.extend(jobs),
                    Err(e) => self.lost_link(&e),
                };
            }
            Event::Started(id) => {
                let taken = self.ledger.entry(id);
                taken.and_modify(|taken| taken.started = true);
                return;
            }
            Event::Ended(id, result) => (id, Some(result)),
            Event::NeverRan(id) => (id, None),
        };
        self.hung.remove(&id);
        let Some(taken) = self.ledger.get_mut(&id) else {
            return;
        };
        taken.ended = true;
        let late = Instant::now() >= taken.until;
        match result {
            Some(Ok(())) => taken.outcome = Some(Outcome::Done), // even after a timeout
            Some(Err(Failure::Cancelled)) | None if late => taken.too_late(self.s),
            Some(Err(Failure::Cancelled)) | None => taken.outcome = Some(Outcome::Released),
            Some(Err(why)) => taken.fail(self.s, why),
        }
    }

    /// All that needs Redis. After an error nothing is lost: the next turn does it again.
    fn talk(&mut self) -> RedisResult<()> {
        let now = Instant::now();
        if self.link.is_none() && now < self.again {
            return Ok(());
        }
        let mut link = match self.link.take() {
            Some(link) => link,
            None => self.s.place.connect()?,
        };
        self.settle(&mut link)?;
        if now > self.extended + self.s.place.visibility / 4 {
            link.extend(&Vec::from_iter(self.ledger.keys()))?;
            self.extended = now;
        }
        link.due()?;
        self.admit(&mut link)?;
        self.link = Some(link);
        if !self.pause.is_zero() {
            let kept = self.ledger.len();
            self.say(&format!("Redis is back; {kept} jobs were kept"));
            self.pause = Duration::ZERO;
        }
        let busy = self.ledger.len() + self.hung.len();
        let free = (self.s.workers + self.s.queue).saturating_sub(busy);
        if free > 0 && !self.permit_out && !self.stopping {
            // One at a time of those that lost a consumer: one of them may be what killed it.
            let may_claim = self.ledger.values().all(|taken| taken.job.deliveries < 2);
            self.permit_out = self.permits.send((free, may_claim)).is_ok();
        }
        Ok(())
    }

    fn settle(&mut self, link: &mut Queue) -> RedisResult<()> {
        let taken = self.ledger.values();
        let ended = taken.filter_map(|t| Some((&t.job, t.outcome.as_ref()?)));
        let ended = Vec::from_iter(ended);
        if ended.is_empty() {
            return Ok(());
        }
        link.settle(&ended)?;
        let (hung, now) = (&mut self.hung, Instant::now());
        self.ledger.retain(|id, taken| {
            if taken.outcome.is_some() && taken.started && !taken.ended {
                hung.insert(id.clone(), now);
            }
            taken.outcome.is_none()
        });
        Ok(())
    }

    /// Gives the pool the jobs that have come.
    fn admit(&mut self, link: &mut Queue) -> RedisResult<()> {
        self.inbox.retain(|job| !self.ledger.contains_key(&job.id));
        if self.inbox.is_empty() {
            return Ok(());
        }
        let done = link.done(&self.inbox)?;
        for (mut job, done) in std::mem::take(&mut self.inbox).into_iter().zip(done) {
            let deadline = match job.deadline_ms {
                0 => self.s.deadline,
                ms => Duration::from_millis(ms.into()),
            };
            if job.deliveries > self.s.deaths {
                let why = format!("consumers died: {}", job.deliveries - 1);
                job.bad = Some(Failure::Lasting(why));
            }
            let (until, bad) = (Instant::now() + deadline, job.bad.take());
            if !done && bad.is_none() {
                self.start(&job, deadline);
            }
            let (id, outcome) = (job.id.clone(), done.then_some(Outcome::Done));
            let (started, ended) = (false, false);
            let taken = Taken {
                job,
                until,
                started,
                ended,
                outcome,
            };
            let taken = self.ledger.entry(id).or_insert(taken);
            if let Some(why) = bad {
                taken.fail(self.s, why);
            }
        }
        Ok(())
    }

    fn start(&self, job: &Job, deadline: Duration) {
        let (job, effects, events) = (job.clone(), self.s.effects.clone(), self.sender.clone());
        let consumer = self.s.place.consumer.clone();
        let ticket = Ticket(Some(job.id.clone()), events.clone());
        let task = move || {
            ticket.used();
            let _ = events.send(Event::Started(job.id.clone()));
            let result = catch_unwind(AssertUnwindSafe(|| {
                kinds::run(&job)?;
                if let Some(mut file) = effects.as_deref() {
                    // One write, so that lines of several processes do not mix.
                    let line = format!("{} {consumer}\n", job.key);
                    let written = file.write_all(line.as_bytes());
                    written.expect("the effects can be written");
                }
                Ok(())
            }));
            let (result, panic) = match result {
                Ok(result) => (result, None),
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().map(String::as_str);
                    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                    let why = format!("panicked: {}", text.unwrap_or("no message"));
                    (Err(Failure::Passing(why)), Some(panic))
                }
            };
            let _ = events.send(Event::Ended(job.id, result));
            if let Some(panic) = panic {
                resume_unwind(panic) // for the pool to count
            }
        };
        // A worker that has just told of its last job is free a moment later.
        let pool = self.pool.when_full(WhenFull::BlockFor(TICK));
        // Refused: the task is dropped, and its ticket says so.
        let _ = pool.with_deadline(deadline).serve(task);
    }

    fn lost_link(&mut self, error: &RedisError) {
        if self.pause.is_zero() {
            self.say(&format!("{}; trying again", self.s.place.explain(error)));
        }
        self.link = None;
        self.pause = (2 * self.pause).clamp(Duration::from_millis(50), PAUSE);
        self.again = Instant::now() + self.pause;
    }

    /// How many workers do not come back.
    fn lost(&self) -> usize {
        let lost = self.hung.values().filter(|since| since.elapsed() > LOST);
        lost.count()
    }

    /// Takes no more, leaves to others what has not started, and waits for the rest.
    fn stop(&mut self) {
        self.stopping = true;
        let until = Instant::now() + self.s.grace;
        let report = self.pool.shutdown(Shutdown::Discard, Duration::ZERO);
        let (run, left) = (self.pool.stats().running, report.discarded);
        self.say(&format!(
            "stopping: {run} jobs run, {left} are left to others"
        ));
        while Instant::now() < until && (self.permit_out || !self.ledger.is_empty()) {
            self.turn();
        }
        let report = self.pool.shutdown(Shutdown::Cancel, 10 * TICK);
        self.turn(); // those that stopped when they were told to
        for taken in self.ledger.values_mut() {
            taken.outcome.get_or_insert(Outcome::Released);
        }
        self.turn();
        let (kept, busy) = (self.ledger.len(), report.stragglers.len());
        self.say(&format!(
            "stopped: {kept} jobs not reported, {busy} workers busy"
        ));
    }

    fn say(&self, what: &str) {
        let (name, hung) = (&self.s.place.consumer, self.pool.stats().abandoned);
        let all = self.s.workers;
        eprintln!("jobs: {name} ({hung} of {all} workers hang): {what}");
    }
}

impl Taken {
    fn too_late(&mut self, s: &Settings) {
        let why = if self.started { "timed out" } else { "expired" };
        self.fail(s, Failure::Passing(why.to_owned()));
    }

    /// Decides whether a job that failed is tried again.
    fn fail(&mut self, s: &Settings, why: Failure) {
        let (job, attempt) = (&self.job, self.job.attempt.saturating_add(1));
        let outcome = match why {
            Failure::Passing(why) if attempt < s.attempts => {
                Outcome::Retried(why, s.backoff * 2_u32.pow((attempt - 1).min(10)))
            }
            Failure::Passing(why) | Failure::Lasting(why) => Outcome::Dead(why),
            Failure::Cancelled => Outcome::Released,
        };
        let Job { key, kind, .. } = job;
        eprintln!("jobs: {key} ({kind}), attempt {attempt}: {outcome:?}");
        self.outcome.get_or_insert(outcome); // what was decided at the deadline stands
    }
}
