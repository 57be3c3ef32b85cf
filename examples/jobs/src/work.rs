//! The consumer: takes jobs while its pool has capacity for them, and reports what became of each.

use crate::queue::{Failure, Job, Outcome, Place, Queue};
use lazypool::{Handle, Pool, Shutdown, TaskError};
use redis::RedisResult;
use std::collections::HashMap;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long the loop sleeps, at most, while it has jobs: how late it sees a deadline.
const TICK: Duration = Duration::from_millis(20);
/// How long it waits in the server while it has none.
const IDLE: Duration = Duration::from_millis(300);
/// How long past its deadline a job may tell by itself how it ended.
const LATE: Duration = Duration::from_millis(50);
/// A job that runs for so long after it was reported as timed out has cost a worker.
const LOST: Duration = Duration::from_secs(1);
/// How long to wait between tries to reach Redis, at most.
const PAUSE: Duration = Duration::from_millis(500);
/// How much longer than the grace period a stop takes, at most: a socket call may be in the way.
const OVER: Duration = Duration::from_millis(700);

/// `jobs --help` says what each is for.
#[derive(Clone, Debug)]
pub struct Settings {
    pub place: Place,
    pub deadline: Duration,
    pub attempts: u32,
    pub backoff: Duration,
    pub deaths: u64,
    pub lost: usize,
    pub grace: Duration,
    pub bytes: usize,
    pub keep: (Duration, usize),
}

/// Runs a job on a worker of the pool; a second time, perhaps: see [`Job::key`].
pub type Run = Arc<dyn Fn(&Job) -> Result<(), Failure> + Send + Sync>;

/// A job from its delivery to its acknowledgment, and until it has ended.
struct Taken {
    job: Arc<Job>,
    /// Nothing else is taken meanwhile.
    alone: bool,
    until: Instant,
    run: Option<Handle<Result<(), Failure>>>,
    outcome: Option<Outcome>,
}

/// Wakes the loop when a job ends.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

struct Consumer {
    s: Settings,
    pool: Arc<Pool>,
    run: Run,
    waker: Waker,
    /// When the grace period ends.
    end: Arc<OnceLock<Instant>>,
    /// All that this process has taken and not acknowledged.
    ledger: HashMap<String, Taken>,
    /// What was reported as timed out and still runs, since when.
    hung: Vec<(Taken, Instant)>,
    link: Option<Queue>,
    /// Between tries, while Redis is gone.
    pause: Duration,
    extended: Instant,
    /// When to look for retries and jobs of dead consumers. Until then new jobs are waited for.
    look_at: Instant,
    complaint: String,
}

/// Runs until `stop` is set, or too many workers are lost: then it returns `true`.
///
/// # Errors
/// A sentence, if Redis or a key is not as it should be at the start.
pub fn work(s: &Settings, pool: &Arc<Pool>, run: Run, stop: &AtomicBool) -> Result<bool, String> {
    let (end, now) = (Arc::new(OnceLock::new()), Instant::now());
    let (settings, pool_of, asked) = (s.clone(), Arc::clone(pool), Arc::clone(&end));
    // On a thread of its own: no socket call, and no look-up of a name, holds up the end.
    let consumer = thread::spawn(move || {
        Consumer {
            waker: Arc::new(Unpark(thread::current())).into(),
            s: settings,
            pool: pool_of,
            run,
            end: asked,
            ledger: HashMap::new(),
            hung: Vec::new(),
            link: None,
            pause: Duration::ZERO,
            extended: now,
            look_at: now,
            complaint: String::new(),
        }
        .work()
    });
    while !consumer.is_finished() {
        // Relaxed: the flag says all there is to know.
        let asked = stop.load(Ordering::Relaxed);
        if asked && Instant::now() > *end.get_or_init(|| Instant::now() + s.grace) + OVER {
            pool.shutdown(Shutdown::Cancel, 10 * TICK);
            eprintln!("jobs: {}: stopped: Redis does not answer", s.place.consumer);
            return Ok(false);
        }
        thread::park_timeout(TICK);
    }
    consumer.join().unwrap_or_else(|panic| resume_unwind(panic))
}

impl Consumer {
    fn work(&mut self) -> Result<bool, String> {
        let place = self.s.place.clone();
        let link = place.connect().and_then(|mut link| {
            link.status()?; // all keys are of the right types
                            // What a former process of this name had counts as a death.
            link.extend(&[], 0, self.s.keep)?;
            Ok(link)
        });
        self.link = Some(link.map_err(|e| place.explain(&e))?);
        while self.end.get().is_none() && self.lost() < self.s.lost {
            self.turn();
        }
        let lost = self.lost() >= self.s.lost;
        self.stop();
        Ok(lost)
    }

    fn turn(&mut self) {
        self.look();
        let Err(e) = self.talk() else { return };
        if self.pause.is_zero() {
            self.say(&format!("{}; trying again", self.s.place.explain(&e)));
        }
        self.pause = (2 * self.pause).clamp(Duration::from_millis(50), PAUSE);
        thread::park_timeout(self.pause);
    }

    fn look(&mut self) {
        let hung = self.hung.iter_mut().map(|(taken, _)| taken);
        for taken in self.ledger.values_mut().chain(hung) {
            taken.look(&self.s, &self.waker);
        }
        for (taken, since) in std::mem::take(&mut self.hung) {
            if taken.run.is_some() {
                self.hung.push((taken, since));
            } else if matches!(taken.outcome, Some(Outcome::Done)) {
                // The next attempt is skipped, unless it is here.
                self.ledger.entry(taken.job.id.clone()).or_insert(taken);
            }
        }
    }

    /// All that needs Redis. After an error nothing is lost: the next turn does it again.
    fn talk(&mut self) -> RedisResult<()> {
        let reached = self.link.take().map_or_else(|| self.s.place.connect(), Ok);
        let mut link = reached?;
        self.settle(&mut link)?;
        if !self.pause.is_zero() || self.extended.elapsed() > self.s.place.visibility / 4 {
            let kept = Vec::from_iter(self.ledger.keys());
            let complaint = link.extend(&kept, 1, self.s.keep)?;
            if !self.pause.is_zero() {
                self.say(&format!("Redis is back; {} jobs were kept", kept.len()));
            }
            (self.pause, self.extended) = (Duration::ZERO, Instant::now());
            self.complain(complaint);
        }
        self.take(&mut link)?;
        self.link = Some(link);
        Ok(())
    }

    fn settle(&mut self, link: &mut Queue) -> RedisResult<()> {
        let taken = self.ledger.values();
        let ended = taken.filter_map(|taken| Some((&*taken.job, taken.outcome.as_ref()?)));
        let ended = Vec::from_iter(ended);
        if ended.is_empty() {
            return Ok(());
        }
        let complaint = link.settle(&ended)?;
        let ended = Vec::from_iter(ended.iter().map(|(job, _)| job.id.clone()));
        for taken in ended.iter().filter_map(|id| self.ledger.remove(id)) {
            if taken.run.is_some() {
                self.hung.push((taken, Instant::now()));
            }
        }
        self.complain(complaint);
        Ok(())
    }

    /// Takes jobs, as many as there is capacity for, and gives them to the pool.
    fn take(&mut self, link: &mut Queue) -> RedisResult<()> {
        self.begin(link)?;
        let capacity = self.pool.max_workers() + self.pool.queue_capacity();
        let held = self
            .ledger
            .values()
            .map(|taken| taken.job.payload.len())
            .sum();
        let room = self.s.bytes.saturating_sub(held);
        let free = capacity.saturating_sub(self.ledger.len() + self.hung.len());
        let alone = self.ledger.values().any(|taken| taken.alone);
        if free == 0 || room == 0 || alone || self.pool.is_closed() {
            thread::park_timeout(TICK);
            return Ok(());
        }
        let now = Instant::now();
        let jobs = if now >= self.look_at {
            let (complaint, due, jobs) = link.take(free, room, self.s.deaths)?;
            if jobs.is_empty() {
                let often = (self.s.place.visibility / 8).min(Duration::from_secs(2));
                self.look_at = now + due.min(often);
            }
            self.complain(complaint);
            jobs
        } else {
            let most = if self.ledger.is_empty() { IDLE } else { TICK };
            let job = link.wait(most.min(self.look_at - now).max(Duration::from_millis(1)))?;
            if job.is_some() {
                self.look_at = now; // perhaps there are more
            }
            job.into_iter().collect()
        };
        for job in jobs {
            self.add(job);
        }
        Ok(())
    }

    /// Begins the job that waits until nothing else runs.
    fn begin(&mut self, link: &mut Queue) -> RedisResult<()> {
        let waits = self.ledger.values().find(|taken| taken.job.alone);
        let Some(waits) = waits.filter(|_| self.ledger.len() == 1) else {
            return Ok(());
        };
        let (id, begins) = (waits.job.id.clone(), link.begin(&waits.job)?);
        let mut taken = self.ledger.remove(&id).expect("it was found");
        if begins {
            let mut job = Job::clone(&taken.job);
            job.alone = false;
            taken = Taken::new(job, self.s.deadline);
            taken.alone = true;
            self.start(&mut taken);
            self.ledger.insert(id, taken);
        }
        Ok(())
    }

    fn add(&mut self, job: Job) {
        if self.ledger.contains_key(&job.id) {
            return; // claimed from itself: this process stood still
        }
        let runs = self.ledger.values().any(|taken| taken.job.key == job.key);
        let hangs = self.hung.iter().any(|(taken, _)| taken.job.key == job.key);
        let mut taken = Taken::new(job, self.s.deadline);
        if runs {
            let (why, attempt) = ("its key is running".to_owned(), taken.job.attempt);
            taken.outcome = Some(Outcome::Retried(why, LOST, attempt));
        } else if hangs {
            taken.fail(&self.s, Failure::Passing("timed out".to_owned()));
        } else if !taken.alone {
            self.start(&mut taken);
        }
        self.ledger.insert(taken.job.id.clone(), taken);
    }

    fn start(&self, taken: &mut Taken) {
        if let Some(why) = taken.job.bad.clone() {
            return taken.fail(&self.s, Failure::Lasting(why));
        }
        let pool = self.pool.with_deadline_at(taken.until).awaitable();
        let (run, job) = (Arc::clone(&self.run), Arc::clone(&taken.job));
        match pool.serve(move || run(&job)) {
            Ok(run) => taken.run = Some(run),
            Err(_refused) => taken.fail(&self.s, Failure::Cancelled),
        }
    }

    fn complain(&mut self, complaint: String) {
        if !complaint.is_empty() && complaint != self.complaint {
            self.say(&complaint);
            self.complaint = complaint;
        }
    }

    /// How many workers do not come back.
    fn lost(&self) -> usize {
        let lost = self.hung.iter().filter(|(_, since)| since.elapsed() > LOST);
        lost.count()
    }

    /// Takes no more, leaves to others what has not started, and waits for the rest.
    fn stop(&mut self) {
        let until = *self.end.get_or_init(|| Instant::now() + self.s.grace);
        let report = self.pool.shutdown(Shutdown::Discard, Duration::ZERO);
        let (run, left) = (self.pool.stats().running, report.discarded);
        self.say(&format!(
            "stopping: {run} jobs run, {left} are left to others"
        ));
        while Instant::now() < until && !self.ledger.is_empty() {
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
        let all = self.pool.max_workers();
        eprintln!("jobs: {name} ({hung} of {all} workers hang): {what}");
    }
}

impl Taken {
    fn new(job: Job, deadline: Duration) -> Self {
        let deadline = match job.deadline_ms {
            0 => deadline,
            ms => Duration::from_millis(ms.into()),
        };
        Self {
            alone: job.alone,
            job: Arc::new(job),
            until: Instant::now() + deadline,
            run: None,
            outcome: None,
        }
    }

    /// Decides what becomes of the job once it has ended, or is past its deadline.
    fn look(&mut self, s: &Settings, waker: &Waker) {
        let Some(run) = &mut self.run else { return };
        let late = Instant::now() >= self.until;
        let overdue = Instant::now() > self.until + LATE;
        if overdue {
            run.cancel(); // if no worker has started it, none will
        }
        let passing = |why: &str| Some(Failure::Passing(why.to_owned()));
        let ended = Pin::new(run).poll(&mut Context::from_waker(waker));
        if ended.is_ready() {
            self.run = None;
        }
        let why = match ended {
            Poll::Pending if !overdue || self.outcome.is_some() => return,
            Poll::Pending => passing("timed out"),
            Poll::Ready(Ok(Ok(()))) => None,
            Poll::Ready(Ok(Err(Failure::Cancelled))) if late => passing("timed out"),
            Poll::Ready(Ok(Err(why))) => Some(why),
            Poll::Ready(Err(TaskError::Panicked(panic))) => {
                let text = panic.message().unwrap_or("no message".to_owned());
                passing(&format!("panicked: {text}"))
            }
            Poll::Ready(Err(_)) if late => passing("expired"),
            Poll::Ready(Err(_)) => Some(Failure::Cancelled),
        };
        match why {
            // Even after a timeout: then the next attempt is skipped.
            None => self.outcome = Some(Outcome::Done),
            Some(why) if self.outcome.is_none() => self.fail(s, why),
            Some(_) => {}
        }
    }

    /// Decides whether a job that failed is tried again.
    fn fail(&mut self, s: &Settings, why: Failure) {
        let attempt = self.job.attempt.saturating_add(1);
        let outcome = match why {
            Failure::Passing(why) if attempt < s.attempts => {
                let delay = s.backoff * 2_u32.pow((attempt - 1).min(10));
                Outcome::Retried(why, delay, attempt)
            }
            Failure::Passing(why) | Failure::Lasting(why) => Outcome::Dead(why),
            Failure::Cancelled => Outcome::Released,
        };
        eprintln!("jobs: {:?}: {outcome:?}", self.job);
        self.outcome = Some(outcome);
    }
}
