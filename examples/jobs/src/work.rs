//! The consumer: takes jobs while its pool has capacity for them, and reports the outcome of each.

use crate::queue::{Failure, Job, Queue, Settings};
use lazypool::{Handle, Pool, Shutdown, TaskError, WhenFull};
use redis::RedisResult;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The longest time that the loop sleeps while it has jobs. It sees a deadline this late.
const TICK: Duration = Duration::from_millis(20);
/// How long the loop waits in the server while it has no jobs, and between tries to reach Redis.
const IDLE: Duration = Duration::from_millis(300);
/// How long after its deadline a job may still report its own end. After that, it has cost a
/// worker.
const LATE: Duration = Duration::from_secs(1);
/// The longest time that a stop takes beyond the grace period, because of a socket call.
const OVER: Duration = Duration::from_millis(700);

/// Runs a job on a worker of the pool. A job may run a second time: see [`Job::key`].
pub type Run = Arc<dyn Fn(&Job) -> Result<(), Failure> + Send + Sync>;

/// A job from its delivery until it is both acknowledged and ended.
struct Taken {
    job: Arc<Job>,
    until: Instant,
    run: Option<Handle<Result<(), Failure>>>,
    end: Option<Result<(), Failure>>,
    /// `true` if the job's end has been reported. If the job still runs then, it counts as hung.
    told: bool,
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
    /// The end of the grace period, once the stop has begun.
    end: Arc<OnceLock<Instant>>,
    taken: Vec<Taken>,
    link: Option<Queue>,
    /// `true` while Redis does not answer.
    down: bool,
    extended: Instant,
}

/// Runs until `stop` is set, or until too many workers are lost. Returns `true` in the second case.
/// Fails if Redis or a key is not as it should be at the start.
pub fn work(s: &Settings, pool: &Arc<Pool>, run: Run, stop: &AtomicBool) -> RedisResult<bool> {
    let end = Arc::new(OnceLock::new());
    let mut consumer = Consumer {
        s: s.clone(),
        pool: Arc::clone(pool),
        run,
        end: Arc::clone(&end),
        taken: Vec::new(),
        link: None,
        down: false,
        extended: Instant::now(),
    };
    // The consumer has its own thread, so no socket call and no look-up of a name holds up the end.
    let consumer = thread::spawn(move || consumer.work());
    while !consumer.is_finished() {
        // Relaxed: the flag publishes no other data.
        let asked = stop.load(Ordering::Relaxed);
        if asked && Instant::now() > *end.get_or_init(|| Instant::now() + s.grace) + OVER {
            pool.shutdown(Shutdown::Cancel, 10 * TICK);
            eprintln!("jobs: {}: stopped: Redis does not answer", s.consumer);
            return Ok(false);
        }
        thread::park_timeout(TICK);
    }
    consumer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Consumer {
    fn work(&mut self) -> RedisResult<bool> {
        let mut link = self.s.connect()?;
        link.extend(&[], true)?;
        self.link = Some(link);
        let is_lost = |me: &Self| me.taken.len() - me.open().count() >= me.s.lost;
        while self.end.get().is_none() && !is_lost(self) {
            self.turn();
        }
        let lost = is_lost(self);
        self.stop();
        Ok(lost)
    }

    fn turn(&mut self) {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        self.taken.iter_mut().for_each(|taken| taken.look(&waker));
        let Err(e) = self.talk() else { return };
        if !std::mem::replace(&mut self.down, true) {
            self.say(format!("{e}; trying again"));
        }
        thread::park_timeout(IDLE);
    }

    /// Does all steps that need Redis. After an error nothing is lost: the next turn does them
    /// again.
    fn talk(&mut self) -> RedisResult<()> {
        let mut link = self.link.take().map_or_else(|| self.s.connect(), Ok)?;
        let ended = self.open().filter_map(|taken| Some((&*taken.job, taken.end.as_ref()?)));
        link.settle(&Vec::from_iter(ended))?;
        self.taken.iter_mut().for_each(|taken| taken.told |= taken.end.is_some());
        self.taken.retain(|taken| !taken.told || taken.run.is_some());
        if self.down || self.extended.elapsed() > self.s.visibility / 4 {
            let kept = Vec::from_iter(self.open().map(|taken| taken.job.id.as_str()));
            let complaint = link.extend(&kept, false)?;
            if self.down {
                self.say(format!("Redis is back; {} jobs were kept", kept.len()));
            } else if !complaint.is_empty() {
                self.say(complaint);
            }
            (self.down, self.extended) = (false, Instant::now());
        }
        self.take(&mut link)?;
        self.link = Some(link);
        Ok(())
    }

    /// Returns the jobs that are not reported.
    fn open(&self) -> impl Iterator<Item = &Taken> {
        self.taken.iter().filter(|taken| !taken.told)
    }

    /// Takes jobs, as many as there is capacity for, and gives them to the pool.
    fn take(&mut self, link: &mut Queue) -> RedisResult<()> {
        let capacity = self.pool.max_workers() + self.pool.queue_capacity();
        let free = capacity.saturating_sub(self.taken.len());
        let held = self.open().map(|taken| taken.job.payload.len()).sum();
        let room = self.s.bytes.saturating_sub(held);
        let (alone, busy) = (self.s.deaths.max(2), self.open().count());
        let alone = self.open().any(|taken| taken.job.times % 1000 >= alone);
        if free > 0 && room > 0 && !alone && !self.pool.is_closed() {
            let (due, mut jobs) = link.take(free, room, busy)?;
            if jobs.is_empty() && busy == 0 {
                jobs.extend(link.wait(IDLE.min(Duration::from_millis(due)))?);
            }
            if busy == 0 || !jobs.is_empty() {
                jobs.into_iter().for_each(|job| self.add(job));
                return Ok(());
            }
        }
        thread::park_timeout(TICK);
        Ok(())
    }

    fn add(&mut self, job: Job) {
        let told = self.taken.iter().find(|taken| taken.job.key == job.key).map(|taken| taken.told);
        let end = match told {
            Some(false) => return, // its key already runs: the next `extend` gives it back
            Some(true) => Some(passing("timed out")),
            None => job.bad.clone().map(|why| Err(Failure::Lasting(why))),
        };
        let own = Duration::from_millis(job.deadline_ms.into());
        let until = Instant::now() + if own.is_zero() { self.s.deadline } else { own };
        let mut taken = Taken { job: Arc::new(job), until, run: None, end, told: false };
        if taken.end.is_none() {
            // A worker whose job has just been reported is free a moment later, so wait a little.
            let pool = self.pool.when_full(WhenFull::BlockFor(TICK)).with_deadline_at(until);
            let (run, job) = (Arc::clone(&self.run), Arc::clone(&taken.job));
            taken.run = pool.awaitable().serve(move || run(&job)).ok();
            taken.end = taken.run.is_none().then_some(Err(Failure::Cancelled));
        }
        self.taken.push(taken);
    }

    /// Takes no more jobs, leaves those that have not started to others, and waits for the rest.
    fn stop(&mut self) {
        let until = *self.end.get_or_init(|| Instant::now() + self.s.grace);
        let left = self.pool.shutdown(Shutdown::Discard, Duration::ZERO);
        let (run, left) = (self.pool.stats().running, left.discarded);
        self.say(format!("stopping: {run} jobs run, {left} are given back"));
        while Instant::now() < until && self.open().next().is_some() {
            self.turn();
        }
        let report = self.pool.shutdown(Shutdown::Cancel, 10 * TICK);
        self.turn(); // reports jobs that have stopped by now
        for taken in &mut self.taken {
            taken.end.get_or_insert(Err(Failure::Cancelled));
        }
        self.turn();
        let (kept, busy) = (self.open().count(), report.stragglers.len());
        self.say(format!("stopped: {kept} not reported, {busy} workers busy"));
    }

    fn say(&self, what: String) {
        eprintln!("jobs: {}: {what}", self.s.consumer);
    }
}

fn passing(why: &str) -> Result<(), Failure> {
    Err(Failure::Passing(why.to_owned()))
}

impl Taken {
    /// Decides how the job ended, once it has ended or is overdue.
    fn look(&mut self, waker: &Waker) {
        let Some(run) = &mut self.run else { return };
        let (late, overdue) = (self.until <= Instant::now(), self.until.elapsed() > LATE);
        if overdue {
            run.cancel(); // if no worker has started it, none will
        }
        let ended = Pin::new(run).poll(&mut Context::from_waker(waker));
        self.run = self.run.take().filter(|_| ended.is_pending());
        let end = match ended {
            Poll::Pending if !overdue => return,
            Poll::Pending => passing("timed out"),
            Poll::Ready(Ok(Err(Failure::Cancelled))) if late => passing("timed out"),
            Poll::Ready(Ok(end)) => end,
            Poll::Ready(Err(TaskError::Panicked(panic))) => {
                passing(&format!("panicked: {}", panic.message().unwrap_or_default()))
            }
            Poll::Ready(Err(_)) if late => passing("expired"),
            Poll::Ready(Err(_)) => Err(Failure::Cancelled),
        };
        // Report a success even after a timeout was reported, so that the next attempt is skipped.
        self.told &= end.is_err();
        self.end = self.end.take().filter(|_| end.is_err()).or(Some(end));
    }
}
