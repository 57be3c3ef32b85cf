//! The consumer: takes jobs while its pool has capacity for them, and reports what became of each.

use crate::queue::{Failure, Job, Queue, Settings};
use lazypool::{Handle, Pool, Shutdown, TaskError, WhenFull};
use redis::RedisResult;
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
/// How long it waits in the server while it has none, in ms.
const IDLE: u64 = 300;
/// How long past its deadline a job may tell by itself how it ended.
const LATE: Duration = Duration::from_millis(50);
/// A job that runs for so long after it was reported as timed out has cost a worker.
const LOST: Duration = Duration::from_secs(1);
/// How long to wait between tries to reach Redis, at most.
const PAUSE: Duration = Duration::from_millis(500);
/// How much longer than the grace period a stop takes, at most: a socket call may be in the way.
const OVER: Duration = Duration::from_millis(700);

/// Runs a job on a worker of the pool; a second time, perhaps: see [`Job::key`].
pub type Run = Arc<dyn Fn(&Job) -> Result<(), Failure> + Send + Sync>;

/// A job from its delivery to its acknowledgment, and until it has ended.
struct Taken {
    job: Arc<Job>,
    until: Instant,
    run: Option<Handle<Result<(), Failure>>>,
    end: Option<Result<(), Failure>>,
    /// Since when it runs although its end was reported.
    hangs: Option<Instant>,
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
    /// When the grace period ends.
    end: Arc<OnceLock<Instant>>,
    taken: Vec<Taken>,
    link: Option<Queue>,
    /// Between tries, while Redis is gone.
    pause: Duration,
    extended: Instant,
}

/// Runs until `stop` is set, or too many workers are lost: then it returns `true`.
///
/// # Errors
/// If Redis or a key is not as it should be at the start.
pub fn work(s: &Settings, pool: &Arc<Pool>, run: Run, stop: &AtomicBool) -> RedisResult<bool> {
    let end = Arc::new(OnceLock::new());
    let mut consumer = Consumer {
        s: s.clone(),
        pool: Arc::clone(pool),
        run,
        end: Arc::clone(&end),
        taken: Vec::new(),
        link: None,
        pause: Duration::ZERO,
        extended: Instant::now(),
    };
    // On a thread of its own: no socket call, and no look-up of a name, holds up the end.
    let consumer = thread::spawn(move || consumer.work());
    while !consumer.is_finished() {
        // Relaxed: the flag says all there is to know.
        let asked = stop.load(Ordering::Relaxed);
        if asked && Instant::now() > *end.get_or_init(|| Instant::now() + s.grace) + OVER {
            pool.shutdown(Shutdown::Cancel, 10 * TICK);
            eprintln!("jobs: {}: stopped: Redis does not answer", s.consumer);
            return Ok(false);
        }
        thread::park_timeout(TICK);
    }
    consumer.join().unwrap_or_else(|panic| resume_unwind(panic))
}

impl Consumer {
    fn work(&mut self) -> RedisResult<bool> {
        let mut link = self.s.connect()?;
        link.extend(&[], true)?;
        self.link = Some(link);
        while self.end.get().is_none() && self.lost() < self.s.lost {
            self.turn();
        }
        let lost = self.lost() >= self.s.lost;
        self.stop();
        Ok(lost)
    }

    fn turn(&mut self) {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        self.taken.retain_mut(|taken| taken.look(&waker));
        let Err(e) = self.talk() else { return };
        if self.pause.is_zero() {
            self.say(format!("{e}; trying again"));
        }
        self.pause = (2 * self.pause).clamp(Duration::from_millis(50), PAUSE);
        thread::park_timeout(self.pause);
    }

    /// All that needs Redis. After an error nothing is lost: the next turn does it again.
    fn talk(&mut self) -> RedisResult<()> {
        let link = self.link.take();
        let mut link = link.map_or_else(|| self.s.connect(), Ok)?;
        self.settle(&mut link)?;
        if !self.pause.is_zero() || self.extended.elapsed() > self.s.visibility / 4 {
            let kept = Vec::from_iter(self.open().map(|taken| taken.job.id.as_str()));
            let complaint = link.extend(&kept, false)?;
            if !self.pause.is_zero() {
                self.say(format!("Redis is back; {} jobs were kept", kept.len()));
            } else if !complaint.is_empty() {
                self.say(complaint);
            }
            (self.pause, self.extended) = (Duration::ZERO, Instant::now());
        }
        self.take(&mut link)?;
        self.link = Some(link);
        Ok(())
    }

    /// Returns the jobs that are not reported.
    fn open(&self) -> impl Iterator<Item = &Taken> {
        self.taken.iter().filter(|taken| taken.hangs.is_none())
    }

    fn settle(&mut self, link: &mut Queue) -> RedisResult<()> {
        let ended = self
            .open()
            .filter_map(|taken| Some((&*taken.job, taken.end.as_ref()?)));
        let ended = Vec::from_iter(ended);
        if ended.is_empty() {
            return Ok(());
        }
        link.settle(&ended)?;
        for taken in self.taken.iter_mut().filter(|taken| taken.end.is_some()) {
            taken.hangs.get_or_insert_with(Instant::now);
        }
        self.taken
            .retain(|taken| taken.hangs.is_none() || taken.run.is_some());
        Ok(())
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
                jobs.extend(link.wait(due.min(IDLE))?);
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
        let same = self.taken.iter().find(|taken| taken.job.key == job.key);
        let hangs = same.map(|taken| taken.hangs.is_some());
        let deadline = match job.deadline_ms {
            0 => self.s.deadline,
            ms => Duration::from_millis(ms.into()),
        };
        let until = Instant::now() + deadline;
        // The worker that has just reported is free a moment later.
        let pool = self.pool.when_full(WhenFull::BlockFor(TICK));
        let (pool, run) = (pool.with_deadline_at(until), Arc::clone(&self.run));
        let (job, mut handle) = (Arc::new(job), None);
        let end = match (hangs, job.bad.clone()) {
            (_, Some(why)) => Some(Err(Failure::Lasting(why))),
            // Its key runs: the next extension gives it back.
            (Some(false), _) => return,
            (Some(true), _) => Some(passing("timed out")),
            (None, _) => {
                let job = Arc::clone(&job);
                handle = pool.awaitable().serve(move || run(&job)).ok();
                handle.is_none().then_some(Err(Failure::Cancelled))
            }
        };
        self.taken.push(Taken {
            job,
            until,
            run: handle,
            end,
            hangs: None,
        });
    }

    /// Returns how many workers do not come back.
    fn lost(&self) -> usize {
        let hangs = self.taken.iter().filter_map(|taken| taken.hangs);
        hangs.filter(|since| since.elapsed() > LOST).count()
    }

    /// Takes no more, leaves to others what has not started, and waits for the rest.
    fn stop(&mut self) {
        let until = *self.end.get_or_init(|| Instant::now() + self.s.grace);
        let left = self.pool.shutdown(Shutdown::Discard, Duration::ZERO);
        let (run, left) = (self.pool.stats().running, left.discarded);
        self.say(format!("stopping: {run} jobs run, {left} are given back"));
        while Instant::now() < until && self.open().next().is_some() {
            self.turn();
        }
        let report = self.pool.shutdown(Shutdown::Cancel, 10 * TICK);
        self.turn(); // those that stopped when they were told to
        for taken in &mut self.taken {
            taken.end.get_or_insert(Err(Failure::Cancelled));
        }
        self.turn();
        let (kept, busy) = (self.open().count(), report.stragglers.len());
        self.say(format!("stopped: {kept} not reported, {busy} workers busy"));
    }

    fn say(&self, what: String) {
        let (name, hung) = (&self.s.consumer, self.pool.stats().abandoned);
        eprintln!("jobs: {name} ({hung} workers hang): {what}");
    }
}

fn passing(why: &str) -> Result<(), Failure> {
    Err(Failure::Passing(why.to_owned()))
}

impl Taken {
    /// Decides how the job ended, once it has, or is past its deadline. Returns whether it is to be
    /// reported, or runs.
    fn look(&mut self, waker: &Waker) -> bool {
        let Some(run) = &mut self.run else {
            return true;
        };
        let (late, overdue) = (self.until <= Instant::now(), self.until.elapsed() > LATE);
        if overdue {
            run.cancel(); // if no worker has started it, none will
        }
        let ended = Pin::new(run).poll(&mut Context::from_waker(waker));
        if ended.is_ready() {
            self.run = None;
        }
        let end = match ended {
            Poll::Pending if !overdue => return true,
            Poll::Pending => passing("timed out"),
            Poll::Ready(Ok(Err(Failure::Cancelled))) if late => passing("timed out"),
            Poll::Ready(Ok(end)) => end,
            Poll::Ready(Err(TaskError::Panicked(panic))) => passing(&format!(
                "panicked: {}",
                panic.message().unwrap_or_default()
            )),
            Poll::Ready(Err(_)) if late => passing("expired"),
            Poll::Ready(Err(_)) => Err(Failure::Cancelled),
        };
        if end.is_ok() {
            // Even after a timeout was reported: then the next attempt is skipped.
            (self.end, self.hangs) = (Some(end), None);
        } else {
            self.end.get_or_insert(end);
        }
        self.hangs.is_none() || self.run.is_some()
    }
}
