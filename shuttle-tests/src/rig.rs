//! A pool with a ledger beside it, and an oracle for refusals.
//!
//! **Refusals.** `Saturated` is right only if at some moment during the call `limit + queue_capacity`
//! other calls or tasks had not ended, or others waited in line. The oracle counts the calls that
//! were entered, less those that were refused and the tasks that have ended, and adds the dead
//! cells of the queue, which keep the permits of their tasks. For that it reads the pool between
//! two steps, whenever a call is entered. In between the number only falls, so its greatest value
//! during a call is known exactly. A call that has not returned yet counts as well: it may have a
//! permit. So the oracle never blames a refusal that was right.
//!
//! **Ledger.** Each closure carries a [`Ticket`](crate::Ticket), which records each run and the
//! drop of the closure.

use crate::ledger::{Books, Ledger};
use crate::{Dice, Team};
use lazypool::model::{self, peek};
use lazypool::{Builder, Pool, Refusal, Shutdown, WhenFull};
use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The modes of a shutdown.
const MODES: [Shutdown; 3] = [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel];

/// One tick of the clock that pools have under shuttle.
const TICK: Duration = Duration::from_micros(100);

/// Returns the time of `n` ticks.
pub fn ticks(n: u64) -> Duration {
    TICK * u32::try_from(n).expect("few")
}

/// Takes a step at which another thread may run.
pub fn step() {
    shuttle::thread::sleep(Duration::ZERO);
}

/// Raises a panic that a scenario wants. It does not reach the panic hook, which takes every panic
/// for a failure.
pub fn planned_panic() -> ! {
    resume_unwind(Box::new("planned"))
}

/// Once in `one_in` times, lets the OS refuse threads, at one of the rates. Sometimes lets a parked
/// thread wake up without a cause.
pub fn disturb_threads(dice: &mut Dice, one_in: u64, rates: &[u32]) {
    let refuses = if dice.one_in(one_in) {
        dice.of(rates)
    } else {
        0
    };
    let in_vain = if dice.one_in(6) { 8 } else { 0 };
    model::set_options(|o| (o.refuse_one_in, o.spurious_one_in) = (refuses, in_vain));
}

/// The threads of a scenario.
pub type Threads = Vec<model::JoinHandle<()>>;

/// A pool with its ledger and the oracle for its refusals.
#[derive(Debug)]
pub struct Rig {
    /// The pool. Calls that should be counted are made by the rig's own functions.
    pub pool: Pool,
    space: AtomicU64,
    /// `true` if the pool's submitters wait for space.
    pub(crate) blocks: bool,
    pub(crate) books: Arc<Books>,
}

thread_local! {
    static NEWEST: RefCell<Weak<Rig>> = const { RefCell::new(Weak::new()) };
}

/// Returns the figures of the newest pool, for the report of a failure.
pub(crate) fn report() -> Option<lazypool::Stats> {
    let rig = NEWEST.with_borrow(Weak::upgrade)?;
    let stats = peek(|| rig.pool.stats());
    std::mem::forget(rig); // Its drop would end the pool while the failure is being reported.
    stats
}

impl Rig {
    /// Returns a pool. If `blocks`, its submitters wait for space; otherwise it refuses a task for
    /// which there is none.
    pub fn new(
        blocks: bool,
        workers: u64,
        queue: u64,
        set: impl FnOnce(Builder) -> Builder,
    ) -> Arc<Self> {
        let policy = [WhenFull::Refuse, WhenFull::Block][usize::from(blocks)];
        let books = Books::new(workers as usize);
        let told = Arc::clone(&books);
        let builder = Pool::builder()
            .max_workers(workers as usize)
            .queue_capacity(queue as usize)
            .idle_timeout(Duration::MAX)
            .when_full(policy)
            .on_panic(move |panic| told.report(panic.slot));
        let rig = Arc::new(Self {
            pool: set(builder).build().expect("good settings"),
            space: AtomicU64::new(workers + queue),
            blocks,
            books,
        });
        model::judge::attend(&rig.pool);
        NEWEST.set(Arc::downgrade(&rig));
        rig
    }

    // ---- the oracle ---------------------------------------------------------------

    /// Returns `true` if this thread is a worker of this pool. A worker in a hook counts, too.
    pub(crate) fn is_on_worker(&self) -> bool {
        lazypool::task::slot().is_some() && !self.books.is_foreign_worker()
    }

    /// Begins a call. Returns its number, for [`Rig::leave`].
    pub(crate) fn enter(&self) -> u64 {
        let stats = peek(|| self.pool.stats());
        let mut book = self.books.book();
        // If the pool could not be read at once, fewer tasks have ended for the oracle than for the
        // pool. That errs in the pool's favor.
        if let Some(stats) = stats {
            // Until its call has returned, a caller that gives up or cancels may still have the
            // permit of its task.
            let expired = stats.expired.saturating_sub(book.may_expire);
            let discarded = stats.discarded.saturating_sub(book.may_discard);
            let ended = stats.completed + stats.panicked + expired + discarded;
            book.ended = book.ended.max(ended);
            book.refused = book.refused.max(stats.refused);
        }
        book.entered += 1;
        let dead = model::judge::permits_of_dead_cells(&self.pool);
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

    /// Ends a call. Returns the greatest number of other calls and tasks that had not ended during
    /// it.
    pub(crate) fn leave(&self, call: u64) -> u64 {
        let mut book = self.books.book();
        let at = book.open.iter().position(|(c, _)| *c == call);
        book.open.swap_remove(at.expect("entered")).1
    }

    /// Judges a refusal: see [the module](self). `blocks` says that the call was to wait without a limit,
    /// `others_waited` that others waited in line during it.
    pub(crate) fn judge(
        &self,
        refusal: &Refusal,
        most: u64,
        others_waited: bool,
        on_worker: bool,
        blocks: bool,
    ) {
        match refusal {
            // On a worker a call never waits, nor queues a task for which it would wait.
            Refusal::Saturated if on_worker => {}
            Refusal::Saturated => {
                assert!(!blocks, "refused where it is to wait");
                let (space, stats) = (self.space.load(Ordering::Relaxed), || self.pool.stats());
                assert!(
                    most >= space || others_waited,
                    "refused beside {most} others, with space for {space}: {:?}",
                    peek(stats),
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

    /// Stops judging refusals: from now on the scenario also submits without the rig.
    pub fn judge_no_refusal(&self) {
        self.space.store(0, Ordering::Relaxed);
    }

    /// Sets the limit. From now on the oracle takes the lowest limit for the pool's size.
    pub fn set_limit(&self, limit: u64) {
        let space = limit + self.pool.queue_capacity() as u64;
        self.space.fetch_min(space, Ordering::Relaxed);
        self.pool.set_limit(limit as usize).expect("within bounds");
        assert!(self.pool.limit() <= self.pool.max_workers());
    }

    /// Tells the oracle that accepted tasks may be discarded.
    pub fn expect_discards(&self) {
        self.books.book().discards = true;
    }

    /// Runs `cancel`, which may cancel a task by its handle.
    pub fn cancelling<R>(&self, cancel: impl FnOnce() -> R) -> R {
        self.expect_discards();
        self.books.book().may_discard += 1;
        let result = cancel();
        self.books.book().may_discard -= 1;
        result
    }

    // ---- threads ------------------------------------------------------------------

    /// Spawns a thread that does `act`.
    pub fn beside(
        self: &Arc<Self>,
        dice: &mut Dice,
        act: impl FnOnce(&Arc<Self>, &mut Dice) + Send + 'static,
    ) -> model::JoinHandle<()> {
        let (rig, mut dice) = (Arc::clone(self), dice.fork());
        model::spawn(move || act(&rig, &mut dice))
    }

    /// Spawns some threads that each make some calls.
    pub fn crowd(
        self: &Arc<Self>,
        dice: &mut Dice,
        threads: RangeInclusive<u64>,
        calls: RangeInclusive<u64>,
        act: impl Fn(&Arc<Self>, &mut Dice) + Clone + Send + 'static,
    ) -> Threads {
        (0..dice.within(threads))
            .map(|_| {
                let (calls, act) = (calls.clone(), act.clone());
                self.beside(dice, move |rig, dice| {
                    (0..dice.within(calls)).for_each(|_| act(rig, dice));
                })
            })
            .collect()
    }

    /// Once in `one_in` times, spawns a thread that does `act` after fewer than `steps` steps.
    pub fn maybe(
        self: &Arc<Self>,
        dice: &mut Dice,
        one_in: u64,
        steps: u64,
        act: impl FnOnce(&Arc<Self>, &mut Dice) + Send + 'static,
    ) -> Option<model::JoinHandle<()>> {
        dice.one_in(one_in).then(|| {
            self.beside(dice, move |rig, dice| {
                dice.pause(steps);
                act(rig, dice);
            })
        })
    }

    /// Shuts the pool down in any mode. Asserts what the report promises: the shutdown did not give
    /// up early; after a clean report no task runs, none is left in the queue, and all are counted.
    pub fn shut_down(&self, dice: &mut Dice) {
        let (mode, limit, from) = (dice.of(&MODES), Self::limit(dice), model::ticks());
        {
            let mut book = self.books.book();
            book.discards |= mode != Shutdown::Drain;
            book.may_cancel |= mode == Shutdown::Cancel;
        }
        let report = self.pool.shutdown(mode, limit);
        let passed = ticks(model::ticks() - from);
        assert!(report.is_clean() || passed >= limit, "early: {report:?}");
        let stats = self.pool.stats();
        assert!(report.discarded <= stats.discarded, "{report:?}");
        if report.is_clean() {
            let left = (stats.running, stats.queued, stats.workers);
            assert_eq!(left, (0, 0, 0), "after a clean report: {stats:?}");
        }
    }

    /// Sets the limit a few times.
    pub fn move_limit(&self, dice: &mut Dice) {
        for _ in 0..dice.between(1, 4) {
            self.set_limit(dice.between(1, self.pool.max_workers() as u64));
            if dice.below(4) == 0 {
                self.pool.nudge();
            }
            dice.pause(40);
        }
    }

    /// Draws the time for a call or a shutdown: none, little, or no limit.
    pub fn limit(dice: &mut Dice) -> Duration {
        match dice.below(8) {
            0 => Duration::ZERO,
            1..4 => Duration::MAX,
            _ => ticks(dice.between(1, 40)),
        }
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

    /// Joins the threads, waits for the team and for every closure, ends the pool and asserts that
    /// all figures add up.
    pub fn end(&self, threads: Threads, team: Option<&Team>) {
        join_all(threads);
        if let Some(team) = team {
            team.settle();
        }
        self.wait_until_idle();
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
        let book = self.books.book();
        let (unrun, left) = book.balance();
        // The pool does not count a future that was dropped in line.
        let withdrawn = (book.entered)
            .checked_sub(stats.accepted + stats.refused)
            .unwrap_or_else(|| panic!("{}: {stats:?}", book.entered));
        assert!(withdrawn <= left, "{withdrawn} of {left}: {stats:?}");
        // Expired and late tasks of calls, and those that had deadlines of their own.
        let late = stats.timed_out - book.timed_out;
        let dropped = stats.expired - (book.expired - stats.refusals.expired);
        assert!(
            late + dropped <= book.timed,
            "{late} + {dropped}: {stats:?}"
        );
        assert_eq!(book.reported, stats.panicked, "each panic is reported once");
        let runs: u64 = book.tickets.iter().map(|t| u64::from(t.runs)).sum();
        assert_eq!(runs, stats.completed + stats.panicked, "{stats:?}");
        assert!(book.discards || stats.discarded == 0, "{stats:?}");
        // A future that was refused in line counts as refused, even if it was dropped unpolled.
        let why = stats.refusals;
        let refused = why.closed + why.cancelled + why.spawn_failed;
        assert_eq!(
            unrun + left + book.back + book.calls_back,
            withdrawn + refused + stats.discarded + dropped,
            "{unrun} and {left} did not run, {withdrawn} withdrawn: {stats:?}"
        );
        drop(book);
        model::assert_at_rest(&self.pool);
    }
}

/// Joins all threads, and asserts that none has panicked.
pub fn join_all(threads: Threads) {
    for thread in threads {
        thread.join().expect("no panic leaves a thread");
    }
}
