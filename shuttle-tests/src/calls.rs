//! Any verb with any options, and tasks that check what the pool tells them about themselves.

use crate::{planned_panic, step, ticks, Bench, Dice};
use lazypool::{task, Group, Refusal, Submitter, WhenFull};
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
    when_full: Option<WhenFull>,
}

impl Adds {
    /// The submitter adds no options.
    pub const NOTHING: Self = Self {
        label: None,
        deadline: Duration::MAX,
        least: Duration::ZERO,
        when_full: None,
    };

    /// Draws each option with some chance.
    pub fn any(dice: &mut Dice) -> Self {
        let mut adds = Self::NOTHING;
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

    fn to<'a>(&self, bench: &'a Bench) -> Submitter<'a> {
        let mut submitter = bench.pool.with_deadline(self.deadline);
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

    /// Returns the tick from which on a refusal is right, and `true` if the submission waits until
    /// then.
    fn patience(&self, bench: &Bench) -> (Option<u64>, bool) {
        let now = lazypool::model::ticks();
        let until = self
            .has_deadline()
            .then(|| now + self.deadline.as_nanos() as u64 / crate::TICK.as_nanos() as u64);
        match self.when_full {
            Some(policy) => (until, policy == WhenFull::Block),
            None => (until, bench.blocks()),
        }
    }
}

/// A group that will be cancelled. Its tasks may run until then.
#[derive(Debug, Clone)]
pub struct Doomed {
    group: Group,
    /// Set once a cancel of the group has returned.
    cancelled: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    adds: Adds,
}

impl Doomed {
    /// Returns a new group, whose tasks have the options `adds`.
    pub fn new(bench: &Bench, adds: Adds) -> Self {
        Self {
            group: adds.to(bench).group(),
            cancelled: Arc::default(),
            served: Arc::default(),
            adds,
        }
    }

    /// Cancels the group, in one of two ways.
    pub fn cancel(&self, dice: &mut Dice) {
        self.group.drop_guard().disarm();
        if dice.one_in(2) {
            self.group.cancel();
        } else {
            drop(self.group.drop_guard());
        }
        self.cancelled.store(true, Ordering::SeqCst);
        assert!(self.group.is_cancelled());
    }

    /// Waits for the group's tasks for a while.
    pub fn wait_for(&self, time: Duration) {
        if let Err(left) = self.group.wait_timeout(time) {
            assert!(left.pending() > 0, "finished: {left:?}");
        }
    }

    /// Waits for the group's tasks and asserts that its figures add up. To be called once no thread
    /// serves.
    pub fn settle(&self) {
        self.group.wait();
        let ended = self.group.completed() + self.group.panicked() + self.group.discarded();
        let served = self.served.load(Ordering::SeqCst);
        assert_eq!(ended as u64, served, "{:?}", self.group);
        assert_eq!(self.group.pending(), 0);
    }
}

/// The facts that a task knows about itself.
#[derive(Debug)]
struct Own {
    label: Option<&'static str>,
    has_deadline: bool,
    /// `true` if its group, a deadline or a shutdown may cancel it.
    may_be_cancelled: bool,
    cancelled: Option<Arc<AtomicBool>>,
    until_cancelled: bool,
    panics: bool,
    nests: bool,
}

impl Own {
    /// Asserts what must hold at any moment. Returns `true` if the task is cancelled.
    fn look(&self, was: bool) -> bool {
        assert_eq!(task::label(), self.label);
        assert_eq!(task::deadline().is_some(), self.has_deadline);
        assert_eq!(task::remaining().is_some(), self.has_deadline);
        let must_be = self
            .cancelled
            .as_ref()
            .is_some_and(|c| c.load(Ordering::SeqCst));
        let is = task::is_cancelled();
        assert!(is || !was, "cancelled, and later not cancelled");
        assert!(is || !must_be, "not cancelled, after a cancel has returned");
        assert!(!is || self.may_be_cancelled, "cancelled without a cause");
        is
    }

    /// Takes some steps, or goes on until the task is cancelled.
    fn work(&self, bench: &Arc<Bench>, dice: &mut Dice) {
        let slot = task::slot();
        let mut is = false;
        for _ in 0..dice.below(4) {
            is = self.look(is);
            step();
        }
        if self.nests {
            bench.act_with(None, dice, 0);
        }
        while self.until_cancelled && !is {
            shuttle::thread::yield_now();
            is = self.look(is);
        }
        self.look(is);
        assert_eq!(task::slot(), slot);
        if self.panics {
            planned_panic();
        }
    }
}

impl Bench {
    fn own(&self, adds: &Adds, doomed: Option<&Doomed>, dice: &mut Dice, depth: u32) -> Own {
        let has_deadline = adds.has_deadline();
        let may_be_cancelled = has_deadline || doomed.is_some();
        Own {
            label: adds.label,
            has_deadline,
            may_be_cancelled: may_be_cancelled || self.may_cancel(),
            cancelled: doomed.map(|doomed| Arc::clone(&doomed.cancelled)),
            until_cancelled: may_be_cancelled && dice.one_in(3),
            panics: dice.one_in(6),
            nests: depth > 0 && dice.one_in(3),
        }
    }

    /// Makes one call, of any verb with any options.
    pub fn act_with(self: &Arc<Self>, doomed: Option<&Doomed>, dice: &mut Dice, depth: u32) {
        match (dice.below(5), doomed) {
            (0, _) => self.scope_with(Adds::any(dice), dice),
            (1 | 2, Some(doomed)) => self.serve_in(doomed, dice, depth),
            (3, _) => self.wait_with(Adds::any(dice), dice, depth),
            _ => self.serve_with(Adds::any(dice), dice, depth),
        }
    }

    fn timed(&self, adds: &Adds) {
        if adds.has_deadline() {
            self.books.book().timed = true;
        }
    }

    fn task(
        self: &Arc<Self>,
        own: Own,
        dice: &mut Dice,
    ) -> (usize, impl FnOnce() -> crate::Ticket + Send + 'static) {
        let ticket = self.ticket();
        let number = ticket.number();
        self.books.book().tickets[number].label = own.label;
        if dice.one_in(6) {
            ticket.fuse();
        }
        let (bench, mut dice) = (Arc::clone(self), dice.fork());
        let task = move || {
            ticket.run(|| own.work(&bench, &mut dice));
            ticket
        };
        (number, task)
    }

    fn serve_with(self: &Arc<Self>, adds: Adds, dice: &mut Dice, depth: u32) {
        self.timed(&adds);
        let own = self.own(&adds, None, dice, depth);
        let (number, task) = self.task(own, dice);
        let submitter = adds.to(self);
        let began = lazypool::model::ticks();
        let patience = adds.patience(self);
        let on_worker = self.is_on_worker();
        let served = self.call_as(patience, number, || drop(task()), |f| submitter.serve(f));
        if let (Some(WhenFull::BlockFor(limit)), Err(Refusal::Saturated), false) =
            (adds.when_full, served, on_worker)
        {
            let passed = ticks(lazypool::model::ticks() - began);
            assert!(
                passed >= limit.min(adds.deadline),
                "{passed:?} of {limit:?}"
            );
        }
    }

    fn serve_in(self: &Arc<Self>, doomed: &Doomed, dice: &mut Dice, depth: u32) {
        let adds = doomed.adds;
        self.timed(&adds);
        let own = self.own(&adds, Some(doomed), dice, depth);
        let (number, task) = self.task(own, dice);
        let was_cancelled = doomed.cancelled.load(Ordering::SeqCst);
        let patience = adds.patience(self);
        let group = &doomed.group;
        let served = self.call_as(patience, number, || drop(task()), |f| group.serve(f));
        match served {
            Ok(()) => {
                assert!(!was_cancelled, "served by a group that is cancelled");
                doomed.served.fetch_add(1, Ordering::SeqCst);
            }
            Err(Refusal::Cancelled) => assert!(group.is_cancelled(), "cancelled without a cause"),
            Err(_) => {}
        }
    }

    fn wait_with(self: &Arc<Self>, adds: Adds, dice: &mut Dice, depth: u32) {
        let limit = Self::limit(dice);
        let at_most = limit.min(adds.deadline);
        let adds_up = Adds {
            deadline: at_most,
            ..adds
        };
        let own = self.own(&adds_up, None, dice, depth);
        let (number, task) = self.task(own, dice);
        let submitter = adds.to(self);
        let (_, blocks) = adds.patience(self);
        self.do_as((at_most, adds.least, blocks), number, task, |f| {
            submitter.do_with_deadline(f, limit)
        });
    }

    /// Runs a scope of a few tasks, which borrow.
    fn scope_with(self: &Arc<Self>, adds: Adds, dice: &mut Dice) {
        self.timed(&adds);
        let (ran, mut accepted) = (AtomicU64::new(0), 0);
        let mut fails = false;
        let scope = catch_unwind(AssertUnwindSafe(|| {
            adds.to(self).scope(|s| {
                for _ in 0..dice.between(1, 2) {
                    let own = self.own(&adds, None, dice, 0);
                    let fused = |number: usize| self.books.book().tickets[number].fused;
                    let panics = own.panics;
                    let (number, task) = self.task(own, dice);
                    fails |= panics || fused(number);
                    let ran = &ran;
                    let task = move || {
                        ran.fetch_add(1, Ordering::SeqCst);
                        drop(task());
                    };
                    let patience = adds.patience(self);
                    let served = self.call_as(patience, number, task, |f| s.serve(f));
                    accepted += u64::from(served.is_ok());
                }
            });
        }));
        assert!(scope.is_ok() || fails, "nobody panicked");
        let ran = ran.load(Ordering::SeqCst);
        assert!(
            ran == accepted || adds.has_deadline() && ran < accepted,
            "`Ok` means it runs"
        );
    }
}
