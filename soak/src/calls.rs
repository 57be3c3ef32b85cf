//! The calls of submitters and tasks, and the assertions for each call.

use crate::books::{add, defuse, get, quiet_panic, Act, Does, Explodes, Fate, Site, Ticket, Value};
use crate::faults::Fault;
use crate::rng::Rng;
use crate::PROGRESS;
use lazypool::{DeadlineError, Group, Handle, Pool, Refusal, Refused, Submitter};
use lazypool::{TaskError, WhenFull};
use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

pub(crate) const LABEL: &str = "soak";
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// The place from which a call is made. A call from another pool must not wait for long: a task of
/// this pool may be waiting for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    Outside,
    OwnWorker,
    OtherPool,
}

pub(crate) struct Caller<'a> {
    pub(crate) pool: &'a Arc<Pool>,
    pub(crate) site: &'a Arc<Site>,
    pub(crate) rng: Rng,
    pub(crate) from: From,
}

/// The expectations against which a handle's outcome is checked.
struct Told {
    act: Act,
    fate: Arc<Fate>,
    /// `true` if the task belongs to a group, which itself counts its discarded tasks.
    is_member: bool,
}

impl<'a> Caller<'a> {
    fn has(&self, fault: Fault) -> bool {
        self.site.plan.has(fault)
    }

    fn note(&self, fault: Fault) {
        self.site.seen.note(fault);
    }

    fn waits(&self) -> bool {
        self.from == From::Outside
    }

    /// Returns a task that does nothing.
    pub(crate) fn idle(&mut self) -> Act {
        let (does, explodes) = (Does::Nothing, Explodes::Nothing);
        Act {
            does,
            explodes,
            labeled: false,
            ..self.act().0
        }
    }

    /// Draws a task. Also returns `true` if the pool is closed already.
    fn act(&mut self) -> (Act, bool) {
        let mut act = Act::random(&mut self.rng, self.site, self.from);
        act.labeled = self.rng.one_in(3);
        (act, self.pool.is_closed())
    }

    /// Returns the pool with the label of a task, and with a policy that fits the caller.
    fn tasks(&self, act: Act) -> Submitter<'a> {
        // Without options, the builder's policy counts.
        let pool = self.pool.min_remaining(Duration::ZERO);
        let pool = if self.waits() {
            pool
        } else {
            pool.when_full(WhenFull::Refuse)
        };
        if act.labeled {
            pool.labeled(LABEL)
        } else {
            pool
        }
    }

    /// Makes one call of any kind.
    pub(crate) fn one(&mut self) {
        let in_line = self.has(Fault::AwaitsSpace) || self.has(Fault::FutureDropped);
        match self.rng.below(16) {
            0..6 => self.call(),
            6..8 => self.awaited(false),
            8 if in_line && self.waits() => self.awaited(true),
            9 if self.has(Fault::Scope) && self.from != From::OtherPool => self.scope(),
            _ => self.serve(),
        }
        PROGRESS.fetch_add(1, SeqCst);
    }

    fn call(&mut self) {
        let beyond = Duration::MAX - Duration::from_nanos(1);
        let (fault, d) = match self.rng.below(10) {
            0 if self.has(Fault::Zero) => (Some(Fault::Zero), Duration::ZERO),
            1 if self.has(Fault::Tiny) => (Some(Fault::Tiny), Duration::from_nanos(1)),
            2 if self.has(Fault::BeyondClock) && self.waits() => (Some(Fault::BeyondClock), beyond),
            3 | 4 if self.has(Fault::TakenBack) => (None, self.rng.micros(100)),
            5 if self.waits() => (None, LONG),
            6 if self.waits() => (None, Duration::MAX),
            _ if self.waits() => (None, Duration::from_millis(20)),
            _ => (None, self.rng.micros(5_000)),
        };
        fault.into_iter().for_each(|fault| self.note(fault));
        let (mut act, was_closed) = self.act();
        act.timed = (d < beyond).then_some(false);
        let (ticket, fate) = Ticket::new(self.site, act);
        let books = &self.site.books;
        if d.is_zero() {
            add(&books.zero);
        }
        let mut tasks = self.tasks(act);
        let is_vain = self.has(Fault::MinRemaining) && self.rng.one_in(4);
        if is_vain {
            self.site.seen.note(Fault::MinRemaining);
            tasks = tasks.min_remaining(Duration::from_millis(u64::from(act.tag % 25)));
        }
        let start = Instant::now();
        let outcome = tasks.do_with_deadline(move || ticket.run(act), d);
        let late = start.elapsed() >= d;
        let accepted = matches!(outcome, Ok(_) | Err(DeadlineError::TimedOut));
        assert!(!(was_closed && accepted), "accepted after shutdown");
        match outcome {
            Ok(value) => {
                assert_eq!(get(&fate.dropped), 1, "a value before its task's end");
                value.arrived(act);
            }
            Err(DeadlineError::Panicked(panic)) => {
                let meant = act.explodes != Explodes::Nothing;
                assert!(meant, "an unmeant panic: {panic:?}");
                defuse(panic);
            }
            Err(DeadlineError::TimedOut) => {
                assert!(late, "timed out before {d:?}: {:?}", self.pool);
                add(&books.timed_out);
            }
            Err(DeadlineError::Expired(unrun)) => {
                fate.check_unrun();
                assert!(late || is_vain, "expired before {d:?}: {:?}", self.pool);
                add(&books.back);
                add(&books.back_expired);
                defuse(unrun);
            }
            Err(DeadlineError::Refused(refused)) => self.refused(refused, &fate, false),
        }
    }

    /// Serves one task without a handle.
    pub(crate) fn serve(&mut self) {
        let (mut act, was_closed) = self.act();
        let short = self.rng.micros(2_000) + Duration::from_nanos(1);
        let choice = self.rng.below(8);
        let group = self.group(choice, &mut act);
        let fault = match choice {
            2 if self.waits() => Some(Fault::BlockFor),
            3 if self.waits() => Some(Fault::ServeDeadline),
            4 => Some(Fault::RunLimit),
            _ => None,
        };
        let fault = fault.filter(|&fault| self.has(fault));
        fault.into_iter().for_each(|fault| self.note(fault));
        if matches!(fault, Some(Fault::ServeDeadline | Fault::RunLimit)) {
            act.timed = Some(true);
        }
        let (ticket, fate) = Ticket::new(self.site, act);
        let task = move || drop(ticket.run(act));
        let tasks = self.tasks(act);
        let served = match (group, fault) {
            (Some(n), _) => self.groups()[n].0.serve(task),
            (_, Some(Fault::BlockFor)) => tasks.when_full(WhenFull::BlockFor(short)).serve(task),
            (_, Some(Fault::ServeDeadline)) => tasks.with_deadline(short).serve(task),
            (_, Some(_)) => tasks.run_limit(short).serve(task),
            (None, None) => tasks.serve(task),
        };
        let waits = fault.is_none() && self.waits();
        self.answered(served, &fate, group, waits, was_closed);
    }

    /// Returns the number of the group that this task is to be served through.
    fn group(&self, choice: u64, act: &mut Act) -> Option<usize> {
        let n = match choice {
            0 => 0,
            1 if self.has(Fault::GroupFull) => 1,
            _ => return None,
        };
        act.labeled = false;
        // A group has the builder's policy.
        (self.waits() || !self.site.blocks).then_some(n)
    }

    fn groups(&self) -> &'a [(Group, AtomicU64, AtomicU64); 2] {
        self.site.groups.get().expect("set first thing")
    }

    /// Checks the answer to a submission, and counts it. Returns the value of an accepted one.
    pub(crate) fn answered<T, F>(
        &self,
        served: Result<T, Refused<F>>,
        fate: &Fate,
        group: Option<usize>,
        waits: bool,
        was_closed: bool,
    ) -> Option<T> {
        match served {
            Ok(given) => {
                assert!(!was_closed, "accepted after shutdown: {:?}", self.pool);
                group.into_iter().for_each(|n| add(&self.groups()[n].1));
                Some(given)
            }
            Err(refused) => {
                match refused.reason() {
                    Refusal::GroupFull => {
                        assert_eq!(group, Some(1), "full without a limit");
                        self.note(Fault::GroupFull);
                    }
                    Refusal::Cancelled => assert!(group.is_some(), "cancelled without a group"),
                    _ => {}
                }
                self.refused(refused, fate, waits);
                None
            }
        }
    }

    /// Asserts that the pool may have refused for this reason. `waits` is `true` if the submission
    /// may wait for space without a limit.
    fn refused<F>(&self, refused: Refused<F>, fate: &Fate, waits: bool) {
        let (pool, reason) = (self.pool, refused.reason());
        let is_right = match reason {
            Refusal::Saturated => !(waits && self.site.blocks),
            Refusal::OnWorker => self.from == From::OwnWorker,
            Refusal::Closed => pool.is_closed(),
            Refusal::SpawnFailed(_) => self.has(Fault::NoThread),
            Refusal::Cancelled | Refusal::GroupFull => true,
            _ => false,
        };
        assert!(is_right, "refused as {reason:?}, {:?}: {pool:?}", self.from);
        fate.check_unrun();
        add(&self.site.books.back);
        defuse(refused);
    }

    /// Submits one task with a handle, in a group or not, and uses the handle in any way. If
    /// `in_line`, fills the pool first and submits the task as a future.
    fn awaited(&mut self, in_line: bool) {
        if in_line {
            self.fill();
        }
        let (mut act, was_closed) = self.act();
        let choice = self.rng.below(6);
        let group = self.group(choice, &mut act);
        let leaves = in_line
            && self.has(Fault::FutureDropped)
            && (!self.has(Fault::AwaitsSpace) || self.rng.one_in(2));
        // A task that waits for another task of its own pool may keep the worker that the other
        // needs.
        let waits = self.waits() && !leaves && self.rng.one_in(2);
        let expires = choice == 2 && waits && !in_line && !self.site.blocks;
        act.timed = expires.then_some(true);
        if !waits && act.explodes == Explodes::Result {
            // Whether that panic counts depends on when the handle is dropped.
            act.explodes = Explodes::Nothing;
        }
        let (ticket, fate) = Ticket::new(self.site, act);
        let mut tasks = self.tasks(act);
        if expires {
            tasks = tasks.with_deadline(self.rng.micros(2_000) + Duration::from_nanos(1));
        }
        let awaitable = match group {
            Some(n) => self.groups()[n].0.awaitable(),
            None => tasks.awaitable(),
        };
        let task = move || ticket.run(act);
        let served = if in_line {
            let future = awaitable.serve_async(task);
            let Some(served) = self.in_line(future, leaves) else {
                let has_run = fate.has_run();
                self.site.books.left.fetch_add((!has_run).into(), SeqCst);
                group.into_iter().for_each(|n| add(&self.groups()[n].2));
                return;
            };
            let saturated = served.as_ref().is_err_and(|refused| refused.is_saturated());
            assert!(!saturated, "a future waits for space: {:?}", self.pool);
            served
        } else {
            awaitable.serve(task)
        };
        let is_sure = !expires && self.waits();
        let is_member = group.is_some();
        if let Some(handle) = self.answered(served, &fate, group, is_sure, was_closed) {
            let told = Told {
                act,
                fate,
                is_member,
            };
            self.use_handle(handle, &told, waits);
        }
    }

    /// Serves tasks that take a while, until one is refused.
    fn fill(&mut self) {
        for _ in 0..8 {
            let act = Act {
                does: Does::Sleeps,
                ..self.idle()
            };
            let (ticket, fate) = Ticket::new(self.site, act);
            let tasks = self.pool.when_full(WhenFull::Refuse);
            let served = tasks.serve(move || drop(ticket.run(act)));
            if self.answered(served, &fate, None, false, false).is_none() {
                return;
            }
        }
    }

    /// Awaits space, or leaves the line.
    fn in_line<F: Future + Unpin>(&mut self, mut future: F, leaves: bool) -> Option<F::Output> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(served) => return Some(served),
                Poll::Pending if leaves => {
                    self.note(Fault::FutureDropped);
                    thread::sleep(self.rng.micros(300));
                    defuse(future);
                    return None;
                }
                Poll::Pending => {
                    self.note(Fault::AwaitsSpace);
                    thread::park();
                }
            }
        }
    }

    fn use_handle(&mut self, mut handle: Handle<Value>, told: &Told, waits: bool) {
        if self.has(Fault::HandleCancelled) && self.rng.one_in(4) {
            self.note(Fault::HandleCancelled);
            thread::sleep(self.rng.micros(100));
            handle.cancel();
        }
        match self.rng.below(4) {
            0 if waits => {
                let outcome = self.block_on(handle);
                return self.judge(outcome, told);
            }
            1 => match handle.join_timeout(self.rng.micros(300)) {
                Ok(outcome) => return self.judge(outcome, told),
                Err(back) => handle = back,
            },
            _ => {}
        }
        if waits {
            self.judge(handle.join(), told);
        } else {
            self.leave(handle, told);
        }
    }

    /// Awaits the handle as a future. Sometimes polls it without a wake-up; the wakers change.
    fn block_on<F: Future + Unpin>(&mut self, mut future: F) -> F::Output {
        let mut wakers = [(); 2].map(|()| Waker::from(Arc::new(Unpark(thread::current()))));
        loop {
            wakers.swap(0, 1);
            match Pin::new(&mut future).poll(&mut Context::from_waker(&wakers[0])) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending if self.rng.one_in(4) => thread::yield_now(),
                Poll::Pending => thread::park(),
            }
        }
    }

    /// Drops or detaches the handle without a wait, and may leave a waker with the task.
    fn leave(&mut self, mut handle: Handle<Value>, told: &Told) {
        let unpark = Arc::new(Unpark(thread::current()));
        if self.rng.one_in(2) {
            let waker = Waker::from(Arc::clone(&unpark));
            let polled = Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
            if let Poll::Ready(outcome) = polled {
                return self.judge(outcome, told);
            }
        }
        // If the value or payload is there, this thread drops it, and that drop may panic.
        if self.has(Fault::HandleLeft) && self.rng.one_in(2) {
            self.note(Fault::HandleLeft);
            defuse(handle);
        } else {
            catch_unwind(AssertUnwindSafe(|| handle.detach())).unwrap_or_else(defuse);
        }
        // A worker may still be calling the waker.
        while Arc::strong_count(&unpark) > 1 {
            thread::yield_now();
        }
    }

    /// Asserts that a handle's outcome is in accord with the events that the closure saw.
    fn judge(&self, outcome: Result<Value, TaskError>, told: &Told) {
        let (act, fate) = (told.act, &told.fate);
        let books = &self.site.books;
        let seen = (get(&fate.ran), get(&fate.dropped));
        let is_right = match &outcome {
            Ok(_) => seen == (1, 1) && !act.panics(),
            Err(TaskError::Panicked(_)) => seen == (1, 1) && act.panics(),
            Err(TaskError::Expired) => seen == (0, 1),
            // The closure of a discarded task may not be dropped yet.
            Err(_) => seen.0 == 0,
        };
        assert!(is_right, "its closure saw {seen:?}: {outcome:?}, {act:?}");
        match outcome {
            Ok(value) => value.arrived(act),
            Err(TaskError::Expired) => add(&books.told_expired),
            Err(TaskError::Panicked(panic)) => defuse(panic),
            Err(_) if told.is_member => {}
            Err(_) => add(&books.told_discarded),
        }
    }

    /// Runs a scope whose tasks borrow, and which may panic itself.
    fn scope(&mut self) {
        self.note(Fault::Scope);
        let acts = [(); 3].map(|()| self.act().0);
        let count = self.rng.below(4) as usize;
        let panics = self.has(Fault::Panics) && self.rng.one_in(8);
        let ended = AtomicBool::new(false);
        let scoped = catch_unwind(AssertUnwindSafe(|| {
            self.pool.scope(|s| {
                for act in &acts[..count] {
                    let act = Act {
                        labeled: false,
                        ..*act
                    };
                    let (ticket, fate) = Ticket::new(self.site, act);
                    let ended = &ended;
                    let served = s.serve(move || {
                        assert!(!ended.load(SeqCst), "a task after its scope");
                        drop(ticket.run(act));
                    });
                    self.answered(served, &fate, None, self.waits(), false);
                }
                if panics {
                    quiet_panic();
                }
            });
        }));
        ended.store(true, SeqCst);
        scoped.unwrap_or_else(defuse);
    }
}

/// A waker that unparks the thread that polls.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
