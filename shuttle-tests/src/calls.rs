//! Calls of any verb with any options, and tasks that check what the pool tells them about
//! themselves.

use crate::ledger::Fate;
use crate::{planned_panic, step, ticks, wait_until, Dice, Rig, Team, Ticket};
use lazypool::model::{self, peek};
use lazypool::{task, DeadlineError, Pool, Refusal, Refused, Submitter, WhenFull};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Labels of different lengths: a label that mixes the parts of two is none of them.
pub(crate) const LABELS: [&str; 3] = ["a", "bee", "a longer one"];

/// The options that a submitter adds to its tasks.
#[derive(Debug, Clone, Copy)]
pub struct Adds {
    label: Option<&'static str>,
    deadline: Duration,
    least: Duration,
    /// The policy for a pool without space, if it is not the pool's own.
    pub when_full: Option<WhenFull>,
}

impl Adds {
    /// The submitter adds no options.
    pub const NOTHING: Self = Self {
        label: None,
        deadline: Duration::MAX,
        least: Duration::ZERO,
        when_full: None,
    };

    /// Returns options that set only the policy for a pool without space.
    pub fn policy(policy: WhenFull) -> Self {
        Self {
            when_full: Some(policy),
            ..Self::NOTHING
        }
    }

    /// Returns options of a task that never starts, because its turn comes too late in any case.
    pub fn late() -> Self {
        Self {
            deadline: ticks(1_000_000),
            least: ticks(2_000_000),
            ..Self::NOTHING
        }
    }

    /// Draws no option, or each with some chance.
    pub fn any(dice: &mut Dice) -> Self {
        let mut adds = Self::NOTHING;
        if dice.one_in(2) {
            return adds;
        }
        if dice.one_in(3) {
            adds.label = Some(dice.of(&LABELS));
        }
        if dice.one_in(3) {
            adds.deadline = ticks(dice.between(1, 60));
        }
        if dice.one_in(4) {
            adds.least = ticks(dice.between(1, 20));
        }
        if dice.one_in(3) {
            let a_while = WhenFull::BlockFor(ticks(dice.below(30)));
            adds.when_full = Some(dice.of(&[WhenFull::Refuse, WhenFull::Block, a_while]));
        }
        adds
    }

    pub(crate) fn to<'a>(&self, pool: &'a Pool) -> Submitter<'a> {
        let mut submitter = pool.with_deadline(self.deadline);
        // If an option is set twice, the last one counts.
        if let Some(label) = self.label {
            submitter = submitter.labeled("none").labeled(label);
        }
        if let Some(policy) = self.when_full {
            submitter = submitter.when_full(policy);
        }
        submitter.min_remaining(self.least)
    }

    fn has_deadline(&self) -> bool {
        self.deadline != Duration::MAX
    }

    /// Returns `true` if a submission waits for space without a limit.
    fn blocks(&self, rig: &Rig) -> bool {
        let policy = self.when_full.map(|policy| policy == WhenFull::Block);
        policy.unwrap_or(rig.blocks)
    }
}

/// The facts that a task knows about itself.
struct Own {
    rig: Arc<Rig>,
    adds: Adds,
    /// Set once a cancel of its group has returned.
    cancelled: Option<Arc<AtomicBool>>,
    /// `true` if its group will be cancelled.
    is_doomed: bool,
    is_cancelled: bool,
    dice: Dice,
    depth: u32,
}

impl Own {
    /// Asserts what must hold at any moment. Returns `true` if the task is cancelled.
    fn look(&mut self) -> bool {
        let has_deadline = self.adds.has_deadline();
        assert_eq!(task::label(), self.adds.label);
        assert_eq!(task::deadline().is_some(), has_deadline);
        assert_eq!(task::remaining().is_some(), has_deadline);
        let cancelled = self.cancelled.as_ref();
        let must_be = cancelled.is_some_and(|cancelled| cancelled.load(Ordering::SeqCst));
        let is = task::is_cancelled();
        assert!(is || !self.is_cancelled, "cancelled, and later not");
        assert!(is || !must_be, "not cancelled, after a cancel has returned");
        let may_be = has_deadline || cancelled.is_some() || self.rig.books.book().may_cancel;
        assert!(!is || may_be, "cancelled without a cause");
        self.is_cancelled = is;
        is
    }

    /// Takes some steps, or goes on until the task is cancelled.
    fn work(mut self) {
        let slot = task::slot();
        for _ in 0..self.dice.below(4) {
            self.look();
            step();
        }
        if self.depth > 0 && self.dice.one_in(3) {
            let rig = Arc::clone(&self.rig);
            rig.act(None, &mut self.dice, self.depth - 1);
        }
        if (self.adds.has_deadline() || self.is_doomed) && self.dice.one_in(3) {
            wait_until(|| self.look());
        }
        self.look();
        assert_eq!(task::slot(), slot);
        if self.dice.one_in(6) {
            planned_panic();
        }
    }
}

/// Returns `true` if a submission may be refused for this reason while it waits in line.
fn is_rare(why: &Refusal) -> bool {
    matches!(
        why,
        Refusal::Closed | Refusal::Cancelled | Refusal::SpawnFailed(_)
    )
}

impl Rig {
    // ---- tasks --------------------------------------------------------------------

    /// Returns a task that does `work`, and its number in the ledger. Its value is its ticket,
    /// which is dropped once, by the task's caller or its worker.
    pub(crate) fn task(
        &self,
        work: impl FnOnce() + Send + 'static,
    ) -> (usize, impl FnOnce() -> Ticket + Send + 'static) {
        let ticket = self.books.ticket();
        (ticket.number, move || {
            ticket.run(work);
            ticket
        })
    }

    /// Returns a task that checks what it is told about itself, and may panic or make calls.
    pub(crate) fn any_task(
        self: &Arc<Self>,
        adds: Adds,
        team: Option<&Team>,
        dice: &mut Dice,
        depth: u32,
    ) -> (usize, impl FnOnce() -> Ticket + Send + 'static) {
        let own = Own {
            rig: Arc::clone(self),
            adds,
            cancelled: team.map(|team| Arc::clone(&team.cancelled)),
            is_doomed: team.is_some_and(|team| team.is_doomed),
            is_cancelled: false,
            dice: dice.fork(),
            depth,
        };
        let (number, task) = self.task(|| own.work());
        let known = &mut self.books.book().tickets[number];
        (known.label, known.fused) = (adds.label, dice.one_in(6));
        (number, task)
    }

    // ---- calls --------------------------------------------------------------------

    /// Records that a submission other than a call got its closure back.
    pub(crate) fn has_refused(&self, number: usize, why: &Refusal) {
        self.books.book().back += u64::from(is_rare(why));
        self.books.fate(number, Fate::Back);
    }

    /// Submits a closure, which carries the ticket `number`, by a call of `serve`.
    pub(crate) fn submit<F, T>(
        &self,
        number: usize,
        adds: Adds,
        closure: F,
        serve: impl FnOnce(F) -> Result<T, Refused<F>>,
    ) -> Result<T, Refusal> {
        let (on_worker, began) = (self.is_on_worker(), model::ticks());
        self.books.book().timed += u64::from(adds.has_deadline());
        let call = self.enter();
        let judged = model::judge::Call::begin(&self.pool);
        let answer = serve(closure);
        let most = self.leave(call);
        let others_waited = judged.others_waited();
        drop(judged);
        let refused = match answer {
            Ok(value) => {
                self.books.fate(number, Fate::Accepted);
                return Ok(value);
            }
            Err(refused) => refused,
        };
        let passed = ticks(model::ticks() - began);
        // Past its deadline a submission does not wait: it is refused as saturated.
        if passed < adds.deadline {
            let blocks = adds.blocks(self);
            self.judge(refused.reason(), most, others_waited, on_worker, blocks);
        }
        if let (Some(WhenFull::BlockFor(limit)), Refusal::Saturated, false) =
            (adds.when_full, refused.reason(), on_worker)
        {
            let limit = limit.min(adds.deadline);
            assert!(passed >= limit, "{passed:?} of {limit:?}");
        }
        self.has_refused(number, refused.reason());
        let (closure, why) = refused.into_parts();
        drop(closure);
        Err(why)
    }

    /// Serves a task that does `work`.
    pub fn serve(&self, adds: Adds, work: impl FnOnce() + Send + 'static) -> Result<(), Refusal> {
        let (number, task) = self.task(work);
        let submitter = adds.to(&self.pool);
        self.submit(number, adds, || drop(task()), |f| submitter.serve(f))
    }

    /// Serves a task that does nothing except to count its run.
    pub fn serve_small(&self) -> Result<(), Refusal> {
        self.serve(Adds::NOTHING, || ())
    }

    /// Does `work` as a task and waits for it at most for `limit`. Returns `true` if it returned in
    /// time.
    pub fn wait(&self, limit: Duration, work: impl FnOnce() + Send + 'static) -> bool {
        let (number, task) = self.task(work);
        self.wait_for(number, Adds::NOTHING, limit, task)
    }

    /// Does a task that does nothing except to count its run, and waits for it.
    pub fn wait_small(&self, limit: Duration) -> bool {
        self.wait(limit, || ())
    }

    /// Makes a call of `do_with_deadline`. Returns `true` if its closure returned in time.
    fn wait_for<F>(&self, number: usize, adds: Adds, limit: Duration, closure: F) -> bool
    where
        F: FnOnce() -> Ticket + Send + 'static,
    {
        let submitter = adds.to(&self.pool);
        let at_most = limit.min(adds.deadline);
        let (on_worker, before) = (self.is_on_worker(), model::ticks());
        // The pool does not count a call whose time is zero.
        let call = (!at_most.is_zero()).then(|| self.enter());
        let may_expire = u64::from(call.is_some() && at_most != Duration::MAX);
        self.books.book().may_expire += may_expire;
        let judged = model::judge::Call::begin(&self.pool);
        let answer = submitter.do_with_deadline(closure, limit);
        self.books.book().may_expire -= may_expire;
        let most = call.map_or(0, |call| self.leave(call));
        let others_waited = judged.others_waited();
        drop(judged);
        let known = self.books.book().tickets[number];
        let error = match answer {
            Ok(value) => {
                assert_eq!((value.number, known.runs), (number, 1), "another's result");
                self.answered();
                self.books.fate(number, Fate::Runs);
                self.books.book().tickets[number].delivered = true;
                return true;
            }
            Err(error) => error,
        };
        if let DeadlineError::Expired(_) | DeadlineError::TimedOut = error {
            let passed = ticks(model::ticks() - before);
            let is_over = passed + adds.least >= at_most;
            assert!(is_over, "{passed:?} of {at_most:?} have passed");
        }
        let fate = match &error {
            DeadlineError::Refused(refused) => {
                let blocks = adds.blocks(self);
                self.judge(refused.reason(), most, others_waited, on_worker, blocks);
                self.books.book().calls_back += u64::from(is_rare(refused.reason()));
                Fate::Back
            }
            DeadlineError::Expired(_) => {
                self.books.book().expired += u64::from(call.is_some());
                Fate::Back
            }
            DeadlineError::TimedOut => {
                let mut book = self.books.book();
                book.timed_out += 1;
                book.tickets[number].abandoned = true;
                Fate::Runs
            }
            DeadlineError::Panicked(_) => {
                assert_eq!(known.runs, 1, "a panic of another task");
                assert!(known.reported, "a panic before the hook has seen it");
                assert_eq!(known.drops, 1, "a panic before its closure is dropped");
                self.answered();
                Fate::Runs
            }
        };
        self.books.fate(number, fate);
        drop(error.into_inner());
        false
    }

    /// Asserts that a caller that has a value or a panic finds its task counted. Law 9.
    fn answered(&self) {
        let ended = peek(|| self.pool.stats()).map(|stats| stats.completed + stats.panicked);
        let mut book = self.books.book();
        book.answered += 1;
        let least = book.answered;
        let is_counted = ended.is_none_or(|ended| ended >= least);
        assert!(is_counted, "{ended:?} of {least}");
    }

    /// Makes one call, of any verb with any options; with a team, perhaps in its group. A task may
    /// make calls itself, `depth` deep.
    pub fn act(self: &Arc<Self>, team: Option<&Team>, dice: &mut Dice, depth: u32) {
        let adds = Adds::any(dice);
        match (dice.below(8), team) {
            (0, _) => self.scope(adds, dice),
            (1..4, Some(team)) => team.act(self, dice, depth),
            (n, _) if n % 2 == 1 => {
                let limit = Self::limit(dice);
                let deadline = limit.min(adds.deadline);
                let seen = Adds { deadline, ..adds };
                let (number, task) = self.any_task(seen, None, dice, depth);
                self.wait_for(number, adds, limit, task);
            }
            _ => {
                let (number, task) = self.any_task(adds, None, dice, depth);
                let submitter = adds.to(&self.pool);
                let _ = self.submit(number, adds, || drop(task()), |f| submitter.serve(f));
            }
        }
    }

    /// Runs a scope of a few tasks, which borrow. All that are accepted run before it ends.
    fn scope(self: &Arc<Self>, adds: Adds, dice: &mut Dice) {
        let (ran, mut accepted, mut numbers) = (AtomicU64::new(0), 0, Vec::new());
        let scope = catch_unwind(AssertUnwindSafe(|| {
            adds.to(&self.pool).scope(|s| {
                for _ in 0..dice.between(1, 3) {
                    let (number, task) = self.any_task(adds, None, dice, 0);
                    numbers.push(number);
                    let ran = &ran;
                    let task = move || {
                        ran.fetch_add(1, Ordering::SeqCst);
                        drop(task());
                    };
                    let served = self.submit(number, adds, task, |f| s.serve(f));
                    accepted += u64::from(served.is_ok());
                }
            });
        }));
        let book = self.books.book();
        let fails = |number: &usize| book.tickets[*number].may_have_panicked();
        assert!(
            scope.is_ok() || numbers.iter().any(fails),
            "no task panicked"
        );
        let ran = ran.load(Ordering::SeqCst);
        let is_all = ran == accepted || adds.has_deadline() && ran < accepted;
        assert!(is_all, "`Ok` means it runs: {ran} of {accepted}");
    }
}
