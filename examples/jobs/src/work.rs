//! The consumer: takes jobs while its pool has capacity for them, and reports what became of each.

use crate::queue::{Failure, Job, Outcome, Place, Queue};
use lazypool::{Handle, Pool, Shutdown, TaskError};
use redis::RedisResult;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long the loop sleeps, at most: how late it sees a new job, a deadline or a signal.
const TICK: Duration = Duration::from_millis(20);
/// How long past its deadline a job may tell by itself how it ended.
const LATE: Duration = Duration::from_millis(50);
/// A job that runs for so long after it was reported as timed out has cost a worker.
const LOST: Duration = Duration::from_secs(1);
/// How long to wait between tries to reach Redis, at most.
const PAUSE: Duration = Duration::from_millis(500);

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
}

/// Runs a job on a worker of the pool; a second time, perhaps: see [`Job::key`].
pub type Run = Arc<dyn Fn(&Job) -> Result<(), Failure> + Send + Sync>;

type Running = Handle<Result<(), Failure>>;

/// A job from its delivery to its acknowledgment.
struct Taken {
    job: Job,
    until: Instant,
    /// Until it has ended.
    run: Option<Running>,
    outcome: Option<Outcome>,
}

/// Wakes the loop when a job ends.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

struct Consumer<'a> {
    s: &'a Settings,
    pool: &'a Pool,
    run: Run,
    waker: Waker,
    /// All that this process has taken and not acknowledged.
    ledger: HashMap<String, Taken>,
    /// What was reported as timed out and still runs, since when.
    hung: Vec<(Running, Instant)>,
    link: Option<Queue>,
    /// Between tries, while Redis is gone.
    pause: Duration,
    extended: Instant,
}

/// Runs until `stop` is set, or too many workers are lost: then it returns `true`.
pub fn work(s: &Settings, pool: &Pool, run: Run, stop: &AtomicBool) -> Result<bool, String> {
    let link = s.place.connect().map_err(|e| s.place.explain(&e))?;
    let mut consumer = Consumer {
        s,
        pool,
        run,
        waker: Arc::new(Unpark(thread::current())).into(),
        ledger: HashMap::new(),
        hung: Vec::new(),
        link: Some(link),
        pause: Duration::ZERO,
        extended: Instant::now(),
    };
    // Relaxed: the flag says all there is to know.
    while !stop.load(Ordering::Relaxed) && consumer.lost() < s.lost {
        consumer.turn();
    }
    let lost = consumer.lost();
    consumer.stop();
    Ok(lost >= s.lost)
}

impl Consumer<'_> {
    fn turn(&mut self) {
        if !self.look() {
            thread::park_timeout(self.pause.max(TICK));
            self.look();
        }
        if let Err(e) = self.talk() {
            if self.pause.is_zero() {
                self.say(&format!("{}; trying again", self.s.place.explain(&e)));
            }
            self.pause = (2 * self.pause).clamp(Duration::from_millis(50), PAUSE);
        }
    }

    /// Whether a job has ended since the last look.
    fn look(&mut self) -> bool {
        self.hung.retain(|(run, _)| !run.is_finished());
        let mut ended = false;
        for taken in self.ledger.values_mut() {
            ended |= taken.look(self.s, &self.waker);
        }
        ended
    }

    /// All that needs Redis. After an error nothing is lost: the next turn does it again.
    fn talk(&mut self) -> RedisResult<()> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => {
                let mut link = self.s.place.connect()?;
                link.give_away_unknown(&Vec::from_iter(self.ledger.keys()))?;
                link
            }
        };
        self.settle(&mut link)?;
        if self.extended.elapsed() > self.s.place.visibility / 4 {
            link.extend(&Vec::from_iter(self.ledger.keys()))?;
            self.extended = Instant::now();
        }
        self.take(&mut link)?;
        self.link = Some(link);
        if !self.pause.is_zero() {
            let kept = self.ledger.len();
            self.say(&format!("Redis is back; {kept} jobs were kept"));
            self.pause = Duration::ZERO;
        }
        Ok(())
    }

    fn settle(&mut self, link: &mut Queue) -> RedisResult<()> {
        let taken = self.ledger.values();
        let ended = taken.filter_map(|t| Some((&t.job, t.outcome.as_ref()?)));
        link.settle(&Vec::from_iter(ended))?;
        self.ledger.retain(|_, taken| {
            if taken.outcome.is_some() {
                let run = taken.run.take();
                self.hung.extend(run.map(|run| (run, Instant::now())));
            }
            taken.outcome.is_none()
        });
        Ok(())
    }

    /// Takes jobs, as many as there is capacity for, and gives them to the pool.
    fn take(&mut self, link: &mut Queue) -> RedisResult<()> {
        let busy = self.ledger.len() + self.hung.len();
        let capacity = self.pool.max_workers() + self.pool.queue_capacity();
        let free = capacity.saturating_sub(busy);
        if free == 0 || self.pool.is_closed() {
            return Ok(());
        }
        // One at a time of those that lost a consumer: one of them may be what killed it.
        let one = self.ledger.values().any(|taken| taken.job.deliveries > 1);
        let claimed = if one { None } else { link.claim()? };
        let jobs = match claimed {
            Some(job) => vec![job],
            None => link.take(free)?,
        };
        let done = link.done(&jobs)?;
        for (job, done) in jobs.into_iter().zip(done) {
            if self.ledger.contains_key(&job.id) {
                continue;
            }
            let (id, mut taken) = (job.id.clone(), Taken::new(job, self.s.deadline));
            taken.outcome = done.then_some(Outcome::Done);
            if !done {
                self.start(&mut taken);
            }
            self.ledger.insert(id, taken);
        }
        Ok(())
    }

    fn start(&self, taken: &mut Taken) {
        let mut job = taken.job.clone();
        let deaths = job.deliveries.saturating_sub(1);
        let killer = (deaths >= self.s.deaths).then(|| format!("consumers died: {deaths}"));
        if let Some(why) = killer.or(job.bad.take()) {
            return taken.fail(self.s, Failure::Lasting(why));
        }
        let pool = self.pool.with_deadline_at(taken.until).awaitable();
        let run = Arc::clone(&self.run);
        match pool.serve(move || run(&job)) {
            Ok(run) => taken.run = Some(run),
            Err(_refused) => taken.fail(self.s, Failure::Cancelled),
        }
    }

    /// How many workers do not come back.
    fn lost(&self) -> usize {
        let lost = self.hung.iter().filter(|(_, since)| since.elapsed() > LOST);
        lost.count()
    }

    /// Takes no more, leaves to others what has not started, and waits for the rest.
    fn stop(&mut self) {
        let until = Instant::now() + self.s.grace;
        let report = self.pool.shutdown(Shutdown::Discard, Duration::ZERO);
        let (run, left) = (self.pool.stats().running, report.discarded);
        let what = format!("stopping: {run} jobs run, {left} are left to others");
        self.say(&what);
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
        let what = format!("stopped: {kept} jobs not reported, {busy} workers busy");
        self.say(&what);
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
            job,
            until: Instant::now() + deadline,
            run: None,
            outcome: None,
        }
    }

    /// Decides what becomes of the job once it has ended, or is past its deadline.
    fn look(&mut self, s: &Settings, waker: &Waker) -> bool {
        let Some(run) = &mut self.run else {
            return false;
        };
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
            Poll::Pending if !overdue || self.outcome.is_some() => return false,
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
            None => self.outcome = Some(Outcome::Done), // even after a timeout
            Some(why) if self.outcome.is_none() => self.fail(s, why),
            Some(_) => {}
        }
        true
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
        self.outcome = Some(outcome);
    }
}
