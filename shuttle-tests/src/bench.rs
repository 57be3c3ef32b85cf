//! A pool with a ledger beside it, and an oracle for refusals.
//!
//! **Refusals.** `Saturated` is right only if at some moment during the call `max_workers +
//! queue_capacity` other calls or tasks had not ended. The oracle counts the calls that were
//! entered, less those that were refused and the tasks that have ended. For that it reads the
//! pool's own `stats` between two steps, whenever a call is entered. In between the number only
//! falls, so its greatest value during a call is known exactly. A call that has not returned yet
//! counts as well: it may be claiming a worker. So the oracle never blames a refusal that was
//! right.
//!
//! **Ledger.** Each closure carries a [`Ticket`], which records each run and the drop of the
//! closure.

use crate::ledger::{me, Books, Fate, Known, Ledger, Limit};
use crate::{Dice, Ticket};
use lazypool::model::{self, peek};
use lazypool::{Builder, DeadlineError, Group, Pool, Refusal, Refused, Shutdown};
use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// The modes of a shutdown.
pub const MODES: [Shutdown; 3] = [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel];

/// One tick of the clock that pools have under shuttle.
pub const TICK: Duration = Duration::from_micros(100);

/// Returns the time of `n` ticks.
pub fn ticks(n: u64) -> Duration {
    TICK * u32::try_from(n).expect("few")
}

/// Takes a step at which another thread may run.
pub fn step() {
    shuttle::thread::sleep(Duration::ZERO);
}

/// The payload of a planned panic. It is raised without the panic hook, which takes every panic for
/// a failure.
#[derive(Debug)]
pub struct Planned;

/// Raises a panic that a scenario wants.
pub fn planned_panic() -> ! {
    resume_unwind(Box::new(Planned))
}

/// A pool with its ledger and the oracle for its refusals.
#[derive(Debug)]
pub struct Bench {
    /// The pool. Calls that should be counted are made by the bench's own functions.
    pub pool: Pool,
    room: AtomicU64,
    /// `true` if the pool's submitters wait for space.
    blocks: bool,
    pub(crate) books: Arc<Books>,
}

thread_local! {
    static NEWEST: RefCell<Weak<Bench>> = const { RefCell::new(Weak::new()) };
}

/// Returns the figures of the newest pool, for the report of a failure.
pub(crate) fn report() -> Option<lazypool::Stats> {
    let bench = NEWEST.with_borrow(Weak::upgrade)?;
    let stats = peek(|| bench.pool.stats());
    std::mem::forget(bench); // Its drop would end the pool while the failure is being reported.
    stats
}

/// Runs a ticket and returns it as the task's value: it is dropped once, by the task's caller or
/// its worker.
fn whole(ticket: Ticket) -> Ticket {
    ticket.run(|| ());
    ticket
}

/// The object on which `serve` is called.
#[derive(Debug, Clone, Copy)]
pub enum Via<'a> {
    /// `serve` is called on the pool.
    Pool,
    /// `serve` is called on a group of the pool.
    Group(&'a Group),
}

impl Bench {
    /// Returns a pool that refuses a task for which there is no space.
    pub fn new(workers: usize, queue: usize, set: impl FnOnce(Builder) -> Builder) -> Arc<Self> {
        Self::with(workers, queue, false, set)
    }

    /// Returns a pool whose submitters wait for space.
    pub fn blocking(
        workers: usize,
        queue: usize,
        set: impl FnOnce(Builder) -> Builder,
    ) -> Arc<Self> {
        Self::with(workers, queue, true, set)
    }

    fn with(
        workers: usize,
        queue: usize,
        blocks: bool,
        set: impl FnOnce(Builder) -> Builder,
    ) -> Arc<Self> {
        let builder = Pool::builder()
            .max_workers(workers)
            .queue_capacity(queue)
            .idle_timeout(Duration::MAX);
        let builder = if blocks {
            builder.when_full(lazypool::WhenFull::Block)
        } else {
            builder
        };
        let books = Arc::new(Books {
            workers,
            book: Mutex::default(),
            gone: shuttle::sync::Condvar::new(),
            lock: shuttle::sync::Mutex::new(()),
        });
        let told = Arc::clone(&books);
        let builder = builder.on_panic(move |panic| told.report(panic.slot));
        let pool = set(builder).build().expect("good settings");
        let bench = Arc::new(Self {
            pool,
            room: AtomicU64::new((workers + queue) as u64),
            blocks,
            books,
        });
        model::judge::attend(&bench.pool);
        NEWEST.with_borrow_mut(|newest| *newest = Arc::downgrade(&bench));
        bench
    }

    /// Returns a ticket for one more closure.
    pub fn ticket(&self) -> Ticket {
        let mut book = self.books.book();
        book.undropped += 1;
        book.tickets.push(Known::default());
        Ticket {
            books: Arc::clone(&self.books),
            number: book.tickets.len() - 1,
        }
    }

    // ---- the oracle ---------------------------------------------------------------

    /// Returns `true` if this thread is a worker of this pool. A worker in a hook counts, too.
    pub(crate) fn is_on_worker(&self) -> bool {
        lazypool::task::slot().is_some() && !self.books.is_foreign_worker()
    }

    pub(crate) fn enter(&self) -> u64 {
        let stats = peek(|| self.pool.stats());
        let mut book = self.books.book();
        // If the pool could not be read at once, fewer tasks have ended for the oracle than for the
        // pool. That errs in the pool's favor.
        if let Some(stats) = stats {
            // Until its call has returned, a caller that gives up or cancels may still hold a
            // worker.
            let expired = stats.expired.saturating_sub(book.may_expire);
            let discarded = stats.discarded.saturating_sub(book.may_discard);
            let ended = stats.completed + stats.panicked + expired + discarded;
            book.ended = book.ended.max(ended);
            book.refused = book.refused.max(stats.refused);
        }
        book.entered += 1;
        let dead = model::judge::dead_places(&self.pool);
        let others = (book.entered - 1)
            .saturating_sub(book.ended + book.refused)
            .saturating_add(dead);
        for (_, most) in &mut book.open {
            *most = others.max(*most);
        }
        book.calls += 1;
        let call = book.calls;
        book.open.push((call, others));
        call
    }

    /// Runs `cancel`, which may cancel a task by its handle.
    pub fn cancelling<R>(&self, cancel: impl FnOnce() -> R) -> R {
        self.books.book().may_discard += 1;
        let result = cancel();
        self.books.book().may_discard -= 1;
        result
    }

    /// Ends a call. Returns the greatest number of other calls and tasks that had not ended during
    /// it.
    pub(crate) fn leave(&self, call: u64) -> u64 {
        let mut book = self.books.book();
        let at = book.open.iter().position(|(c, _)| *c == call);
        book.open.swap_remove(at.expect("entered")).1
    }

    pub(crate) fn judge(&self, refusal: &Refusal, most: u64, on_worker: bool, blocks: bool) {
        match refusal {
            // On a worker a call never waits, nor queues a task for which it would wait.
            Refusal::Saturated if on_worker => {}
            Refusal::Saturated => {
                assert!(!blocks, "refused where it is to wait");
                assert!(
                    most >= self.room.load(Ordering::Relaxed),
                    "refused beside {most} others, with room for {}: {:?}",
                    self.room.load(Ordering::Relaxed),
                    peek(|| self.pool.stats()),
                );
            }
            // Destructors of a worker's thread-locals run on that worker, too.
            Refusal::OnWorker => assert!(
                on_worker || self.books.may_be_worker(),
                "refused as if on a worker of the pool"
            ),
            _ => {}
        }
    }

    pub(crate) fn fate(&self, number: usize, fate: Fate) {
        let mut book = self.books.book();
        let known = &mut book.tickets[number];
        assert_eq!(known.fate, Fate::Unknown);
        known.fate = fate;
        match fate {
            Fate::Back => assert_eq!(known.runs, 0, "closure {number} came back, and ran"),
            Fate::Unknown | Fate::Accepted | Fate::Runs | Fate::Left => {}
        }
    }

    // ---- calls --------------------------------------------------------------------

    /// Makes a call of a `serve` with a closure that carries the ticket `number`.
    pub fn call<F>(
        &self,
        number: usize,
        closure: F,
        serve: impl FnOnce(F) -> Result<(), Refused<F>>,
    ) -> Result<(), Refusal> {
        self.call_as((None, self.blocks), number, closure, serve)
    }

    /// Makes such a call with a deadline and a policy of its own. From the tick `until` on a
    /// refusal is always right. If `blocks`, the call waits for space without a limit.
    pub(crate) fn call_as<F>(
        &self,
        (until, blocks): (Option<u64>, bool),
        number: usize,
        closure: F,
        serve: impl FnOnce(F) -> Result<(), Refused<F>>,
    ) -> Result<(), Refusal> {
        let on_worker = self.is_on_worker();
        let call = self.enter();
        let judged = model::judge::Call::begin(&self.pool);
        let answer = serve(closure);
        let most = self.leave(call).saturating_add(judged.taken_otherwise());
        drop(judged);
        match answer {
            Ok(()) => {
                self.fate(number, Fate::Accepted);
                Ok(())
            }
            Err(refused) => {
                if until.is_none_or(|until| model::ticks() < until) {
                    self.judge(refused.reason(), most, on_worker, blocks);
                }
                self.fate(number, Fate::Back);
                let (closure, why) = refused.into_parts();
                drop(closure);
                Err(why)
            }
        }
    }

    /// Serves a task that the dice choose. Returns `true` if it was accepted.
    pub fn serve(self: &Arc<Self>, via: Via<'_>, dice: &mut Dice, depth: u32) -> bool {
        let ticket = self.ticket();
        let number = ticket.number();
        if dice.one_in(2) {
            let closure = move || ticket.run(|| ());
            return match via {
                Via::Pool => self.call(number, closure, |f| self.pool.serve(f)),
                Via::Group(group) => self.call(number, closure, |f| group.serve(f)),
            }
            .is_ok();
        }
        let bench = Arc::clone(self);
        let mut dice = dice.fork();
        let closure = move || ticket.run(|| bench.work(&mut dice, depth));
        match via {
            Via::Pool => self.call(number, closure, |f| self.pool.serve(f)),
            Via::Group(group) => self.call(number, closure, |f| group.serve(f)),
        }
        .is_ok()
    }

    /// Stops judging refusals: from now on the scenario also submits without the bench.
    pub fn judge_no_refusal(&self) {
        self.room.store(0, Ordering::Relaxed);
    }

    /// Returns `true` if the pool's submitters wait for space.
    pub(crate) fn blocks(&self) -> bool {
        self.blocks
    }

    /// Tells the oracle that a shutdown may cancel running tasks.
    pub fn expect_cancel(&self) {
        self.books.book().may_cancel = true;
    }

    pub(crate) fn may_cancel(&self) -> bool {
        self.books.book().may_cancel
    }

    /// Tells the oracle that the limit may be as low as `least` from now on.
    pub fn expect_limit(&self, least: usize) {
        let room = least + self.pool.queue_capacity();
        self.room.fetch_min(room as u64, Ordering::Relaxed);
    }

    /// Sets the limit. From now on [`Limit`] asserts that it holds.
    pub fn limit_for_good(&self, limit: usize) {
        self.expect_limit(limit);
        self.pool.set_limit(limit).expect("within bounds");
        let mut book = self.books.book();
        book.limit = Some(Limit {
            limit,
            started: vec![false; self.pool.max_workers()],
            running_again: 0,
        });
    }

    /// Serves a task with a deadline of its own. Returns `true` if it was accepted.
    pub fn serve_within(&self, deadline: Duration, least: Duration, steps: u64) -> bool {
        self.books.book().timed = true;
        let ticket = self.ticket();
        let number = ticket.number();
        let closure = move || {
            ticket.run(|| {
                for _ in 0..steps {
                    let _ = lazypool::task::is_cancelled();
                    step();
                }
            });
        };
        let submitter = self.pool.with_deadline(deadline).min_remaining(least);
        // Past its deadline a submission does not wait: it is refused as saturated.
        let until = model::ticks() + deadline.as_nanos() as u64 / TICK.as_nanos() as u64;
        self.call_as((Some(until), self.blocks), number, closure, |f| {
            submitter.serve(f)
        })
        .is_ok()
    }

    /// Serves a task that does `work`. Returns `true` if it was accepted.
    pub fn serve_work(&self, via: Via<'_>, work: impl FnOnce() + Send + 'static) -> bool {
        self.serve_why(via, work).is_ok()
    }

    /// Serves a task that does `work`. Returns the reason if it was refused.
    pub fn serve_why(
        &self,
        via: Via<'_>,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), Refusal> {
        let ticket = self.ticket();
        let number = ticket.number();
        let closure = move || ticket.run(work);
        match via {
            Via::Pool => self.call(number, closure, |f| self.pool.serve(f)),
            Via::Group(group) => self.call(number, closure, |f| group.serve(f)),
        }
    }

    /// Serves a task that does `work`, and never waits for space. Returns `true` if it was
    /// accepted.
    pub fn serve_at_once(&self, work: impl FnOnce() + Send + 'static) -> bool {
        let ticket = self.ticket();
        let number = ticket.number();
        let submitter = self.pool.when_full(lazypool::WhenFull::Refuse);
        let closure = move || ticket.run(work);
        self.call_as((None, false), number, closure, |f| submitter.serve(f))
            .is_ok()
    }

    /// Does `work` as a task and waits for it without a limit. Returns `true` if it returned.
    pub fn wait_work(&self, work: impl FnOnce() + Send + 'static) -> bool {
        self.wait_work_for(Duration::MAX, work)
    }

    /// Does `work` as a task and waits for it at most for `limit`. Returns `true` if it returned in
    /// time.
    pub fn wait_work_for(&self, limit: Duration, work: impl FnOnce() + Send + 'static) -> bool {
        let ticket = self.ticket();
        let number = ticket.number();
        let closure = move || {
            ticket.run(work);
            ticket
        };
        self.do_call(number, closure, limit)
    }

    /// Serves a small task and waits for space for `limit`. Asserts that it is not refused earlier.
    pub fn serve_blocking_for(&self, limit: Duration) -> bool {
        let on_worker = self.is_on_worker();
        let ticket = self.ticket();
        let number = ticket.number();
        let before = model::ticks();
        let submitter = self.pool.when_full(lazypool::WhenFull::BlockFor(limit));
        let closure = move || ticket.run(|| ());
        let served = self.call_as((None, false), number, closure, |f| submitter.serve(f));
        if let (Err(Refusal::Saturated), false) = (&served, on_worker) {
            let passed = TICK * u32::try_from(model::ticks() - before).expect("short");
            assert!(passed >= limit, "{passed:?} of {limit:?} have passed");
        }
        served.is_ok()
    }

    /// Does a task that must not be started with less than `least` left.
    pub fn wait_not_in_vain(&self, limit: Duration, least: Duration) -> bool {
        let ticket = self.ticket();
        let number = ticket.number();
        self.do_guarded(number, move || whole(ticket), limit, least)
    }

    /// Serves a task that does nothing except to count its run.
    pub fn serve_small(&self) -> Result<(), Refusal> {
        let ticket = self.ticket();
        let number = ticket.number();
        self.call(number, move || ticket.run(|| ()), |f| self.pool.serve(f))
    }

    /// The body of a task.
    fn work(self: &Arc<Self>, dice: &mut Dice, depth: u32) {
        for _ in 0..dice.below(4) {
            // Asked as its caller may be leaving.
            if dice.one_in(2) {
                let _ = lazypool::task::deadline();
            }
            step();
        }
        if depth > 0 && dice.one_in(3) {
            self.act(dice, depth - 1);
        }
        if dice.one_in(6) {
            planned_panic();
        }
    }

    /// Does a task that the dice choose and waits for it. Returns `true` if it returned in time.
    pub fn wait_for(self: &Arc<Self>, limit: Duration, dice: &mut Dice, depth: u32) -> bool {
        let ticket = self.ticket();
        let number = ticket.number();
        if dice.one_in(2) {
            let closure = move || whole(ticket);
            return self.do_call(number, closure, limit);
        }
        let bench = Arc::clone(self);
        let mut dice = dice.fork();
        let closure = move || {
            ticket.run(|| bench.work(&mut dice, depth));
            ticket
        };
        self.do_call(number, closure, limit)
    }

    /// Does a task that does nothing except to count its run, and waits for it.
    pub fn wait_small(&self, limit: Duration) -> bool {
        let ticket = self.ticket();
        let number = ticket.number();
        self.do_call(number, move || whole(ticket), limit)
    }

    fn do_call<F>(&self, number: usize, closure: F, limit: Duration) -> bool
    where
        F: FnOnce() -> Ticket + Send + 'static,
    {
        self.do_guarded(number, closure, limit, Duration::ZERO)
    }

    fn do_guarded<F>(&self, number: usize, closure: F, limit: Duration, least: Duration) -> bool
    where
        F: FnOnce() -> Ticket + Send + 'static,
    {
        let verb = |closure| {
            if least.is_zero() {
                self.pool.do_with_deadline(closure, limit)
            } else {
                (self.pool.min_remaining(least)).do_with_deadline(closure, limit)
            }
        };
        self.do_as((limit, least, self.blocks), number, closure, verb)
    }

    /// Makes a call of a `do_with_deadline`. Returns `true` if its closure returned in time.
    pub(crate) fn do_as<F>(
        &self,
        (limit, least, blocks): (Duration, Duration, bool),
        number: usize,
        closure: F,
        verb: impl FnOnce(F) -> Result<Ticket, DeadlineError<F>>,
    ) -> bool {
        let on_worker = self.is_on_worker();
        self.books.book().tickets[number].caller = Some(me());
        let before = model::ticks();
        // The pool does not count a call whose time is zero.
        let call = (!limit.is_zero()).then(|| self.enter());
        let may_expire = u64::from(call.is_some() && limit != Duration::MAX);
        self.books.book().may_expire += may_expire;
        let judged = model::judge::Call::begin(&self.pool);
        let answer = verb(closure);
        self.books.book().may_expire -= may_expire;
        let most = call.map_or(0, |call| self.leave(call));
        let most = most.saturating_add(judged.taken_otherwise());
        drop(judged);
        let known = self.books.book().tickets[number];
        let runs = known.runs;
        let error = match answer {
            Ok(value) => {
                assert_eq!((value.number(), runs), (number, 1), "another task's result");
                self.answered();
                self.fate(number, Fate::Runs);
                self.books.book().tickets[number].delivered = true;
                return true;
            }
            Err(error) => error,
        };
        let late = matches!(error, DeadlineError::Expired(_) | DeadlineError::TimedOut);
        if late {
            let passed = TICK * u32::try_from(model::ticks() - before).expect("short");
            assert!(
                passed + least >= limit,
                "{passed:?} of {limit:?} have passed"
            );
        }
        match &error {
            DeadlineError::Refused(refused) => {
                self.judge(refused.reason(), most, on_worker, blocks);
                if refused.is_closed() {
                    self.books.book().closed += 1;
                }
                self.fate(number, Fate::Back);
            }
            DeadlineError::Expired(_) => {
                self.books.book().expired += u64::from(call.is_some());
                self.fate(number, Fate::Back);
            }
            DeadlineError::TimedOut => {
                let mut book = self.books.book();
                book.timed_out += 1;
                book.tickets[number].abandoned = true;
                drop(book);
                self.fate(number, Fate::Runs);
            }
            DeadlineError::Panicked(_) => {
                assert_eq!(runs, 1, "a panic of another task");
                assert!(known.reported, "a panic before the hook has seen it");
                assert_eq!(known.drops, 1, "a panic before its closure is dropped");
                self.answered();
                self.fate(number, Fate::Runs);
            }
        }
        drop(error.into_inner());
        false
    }

    /// Asserts that a caller that has a value or a panic finds its task counted. Law 9.
    fn answered(&self) {
        let ended = peek(|| self.pool.stats()).map(|stats| stats.completed + stats.panicked);
        let mut book = self.books.book();
        book.answered += 1;
        let least = book.answered;
        assert!(
            ended.is_none_or(|ended| ended >= least),
            "{ended:?} of {least}"
        );
    }

    /// Stops the thread that runs at this step. Once all other threads have gone as far as they
    /// can, or have run for many steps, no caller may still sleep for a task that ended long ago.
    /// Excepted are the stopped thread's own call and the callers of the tasks that it runs. Law
    /// 20. Not judged while a thread serves the line: that thread has yet to tell the owners where
    /// their tasks are.
    pub fn stop_somebody(&self, step: u64) {
        let books = Arc::clone(&self.books);
        let is_line_served = model::judge::watch_line(&self.pool);
        crate::run::stop_at(step, move |stopped, until| {
            // It may hold the lock that stands here for a wake-up by the OS.
            if model::is_unparking(stopped) {
                return;
            }
            if is_line_served() {
                return;
            }
            for known in &books.book().tickets {
                let is_over = known.ended.is_some_and(|at| at < until);
                let waits =
                    known.fate == Fate::Unknown && known.caller.is_some_and(model::is_parked);
                let its_own = [known.worker, known.caller].contains(&Some(stopped));
                assert!(
                    its_own || !(is_over && waits),
                    "thread {stopped} holds up {known:?}"
                );
            }
        });
    }

    /// Draws a deadline: none, near, or past.
    pub fn limit(dice: &mut Dice) -> Duration {
        match dice.below(8) {
            0 => Duration::ZERO,
            1..4 => Duration::MAX,
            _ => ticks(dice.between(1, 40)),
        }
    }

    /// Makes one call of the pool, of either verb.
    pub fn act(self: &Arc<Self>, dice: &mut Dice, depth: u32) {
        if dice.one_in(2) {
            self.serve(Via::Pool, dice, depth);
        } else {
            let limit = Self::limit(dice);
            self.wait_for(limit, dice, depth);
        }
    }

    /// Spawns threads that each make some calls.
    pub fn submitters(
        self: &Arc<Self>,
        dice: &mut Dice,
        threads: u64,
        act: impl Fn(&Arc<Self>, &mut Dice) + Clone + Send + 'static,
    ) -> Vec<model::JoinHandle<()>> {
        (0..threads)
            .map(|_| {
                let (bench, mut dice, act) = (Arc::clone(self), dice.fork(), act.clone());
                model::spawn(move || act(&bench, &mut dice))
            })
            .collect()
    }

    /// Once in `one_in` times, spawns a thread that shuts the pool down after fewer than `steps`
    /// steps.
    pub fn may_shut_down(
        self: &Arc<Self>,
        dice: &mut Dice,
        one_in: u64,
        steps: u64,
    ) -> Option<model::JoinHandle<()>> {
        if !dice.one_in(one_in) {
            return None;
        }
        let mode = dice.of(&MODES);
        let closer = move |bench: &Arc<Self>, dice: &mut Dice| {
            dice.pause(steps);
            bench.pool.shutdown(mode, Self::limit(dice));
        };
        self.submitters(dice, 1, closer).pop()
    }

    // ---- the end ------------------------------------------------------------------

    /// Waits until no closure is left, without a call that could help: a task that no thread looks
    /// at is a deadlock here.
    pub fn wait_until_idle(&self) {
        self.books.wait_until_idle();
    }

    /// Returns the ledger, which outlives the pool.
    pub fn ledger(&self) -> Ledger {
        Ledger(Arc::clone(&self.books))
    }

    /// Ends the pool and asserts that all figures add up.
    pub fn finish(self: Arc<Self>, discards: bool) {
        // A pool that still has calls under way, or is not quiet yet, may go on for some steps
        // first: some scenarios have no cleaner.
        for _ in 0..100 {
            let calls = !self.books.book().open.is_empty();
            if calls || model::judge::is_quiet(&self.pool) {
                break;
            }
            step();
        }
        let report = self.pool.shutdown(Shutdown::Drain, Duration::MAX);
        assert!(report.is_clean(), "{report:?}");
        let stats = self.pool.stats();
        let ended = stats.completed + stats.panicked + stats.expired + stats.discarded;
        assert_eq!((stats.queued, stats.running), (0, 0), "left: {stats:?}");
        assert_eq!((stats.workers, stats.idle), (0, 0), "{stats:?}");
        assert_eq!(stats.accepted, ended, "{stats:?}");
        assert_eq!(stats.spawned, stats.retired, "{stats:?}");
        {
            let book = self.books.book();
            // The pool does not count a future that was dropped in line.
            let withdrawn = (book.entered)
                .checked_sub(stats.accepted + stats.refused)
                .unwrap_or_else(|| panic!("{}: {stats:?}", book.entered));
            let late = stats.timed_out - book.timed_out;
            assert!(late == 0 || book.timed, "{stats:?}");
            // Expired calls, without those that were refused; the other expired tasks had deadlines
            // of their own.
            let calls = book.expired - stats.refusals.expired;
            let dropped = stats.expired - calls;
            assert!(dropped == 0 || book.timed, "{stats:?}");
            assert_eq!(book.reported, stats.panicked, "each panic is reported once");
            let runs: u64 = book.tickets.iter().map(|t| u64::from(t.runs)).sum();
            assert_eq!(runs, stats.completed + stats.panicked, "{stats:?}");
            let (mut unrun, mut left) = (0, 0);
            for (number, ticket) in book.tickets.iter().enumerate() {
                assert_eq!(ticket.drops, 1, "closure {number}: {ticket:?}");
                match ticket.fate {
                    Fate::Accepted if ticket.runs == 0 => unrun += 1,
                    Fate::Accepted | Fate::Runs => assert_eq!(ticket.runs, 1),
                    Fate::Back => assert_eq!(ticket.runs, 0),
                    Fate::Left => left += u64::from(ticket.runs == 0),
                    Fate::Unknown => panic!("the call of closure {number} never returned"),
                }
            }
            assert!(withdrawn <= left, "{withdrawn} of {left}: {stats:?}");
            unrun += left - withdrawn;
            assert!(discards || stats.discarded == 0, "{stats:?}");
            let most = unrun + book.closed;
            assert!(
                (unrun..=most).contains(&(stats.discarded + dropped)),
                "{unrun} did not run: {stats:?}"
            );
        }
        model::assert_at_rest(&self.pool);
    }
}

/// Joins all threads, and asserts that none has panicked.
pub fn join_all(threads: Vec<model::JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("no panic leaves a thread");
    }
}
