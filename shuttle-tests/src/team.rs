//! A group, whose figures must add up, and whose limit must hold.

use crate::{Adds, Dice, Held, Rig, Threads, Ticket};
use lazypool::model::judge::permits_of_group;
use lazypool::model::{judge_by, peek, JoinHandle};
use lazypool::{Group, Refusal};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A group. For each call under way it records the greatest number of pending tasks and other calls.
#[derive(Debug)]
pub struct Team {
    /// The group. Calls that should be counted are made by the team's own functions.
    pub group: Group,
    adds: Adds,
    limit: usize,
    /// `true` if the group will be cancelled. Its tasks may run until then.
    pub(crate) is_doomed: bool,
    /// Set once a cancel of the group has returned.
    pub(crate) cancelled: Arc<AtomicBool>,
    served: AtomicU64,
    /// Futures that were dropped in line, each of which may count as a task of the group.
    left: AtomicU64,
    calls: Mutex<Vec<(u64, usize)>>,
    next: AtomicU64,
}

impl Team {
    fn with(group: Group, adds: Adds, limit: usize, is_doomed: bool) -> Arc<Self> {
        Arc::new(Self {
            group,
            adds,
            limit,
            is_doomed,
            cancelled: Arc::default(),
            served: AtomicU64::new(0),
            left: AtomicU64::new(0),
            calls: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// Returns a new group. If `is_doomed`, the scenario must cancel it.
    pub fn new(rig: &Rig, adds: Adds, is_doomed: bool) -> Arc<Self> {
        let group = adds.to(&rig.pool).group();
        Self::with(group, adds, usize::MAX, is_doomed)
    }

    /// Returns a new group with a limit. From now on its permits and its pending tasks are counted
    /// before each step. Tasks that wait for space are pending, too. A call that is under way may have
    /// taken a permit for a task that is not pending yet.
    pub fn limited(rig: &Rig, limit: usize) -> Arc<Self> {
        let group = rig.pool.limited_group(limit);
        let it = Self::with(group, Adds::NOTHING, limit, false);
        let seen = Arc::downgrade(&it);
        judge_by(Box::new(move || {
            let Some(it) = seen.upgrade() else { return };
            let seen = peek(|| (permits_of_group(&it.group), it.group.pending()));
            if let Some((permits, pending)) = seen {
                let mut calls = it.calls.lock().expect("no panic");
                let (limit, under_way) = (it.limit, calls.len());
                assert!(
                    permits <= limit && permits <= pending + under_way,
                    "{permits} permits of {limit}, {pending} pending, {under_way} calls"
                );
                for (_, most) in calls.iter_mut() {
                    *most = (pending + under_way - 1).max(*most);
                }
            }
        }));
        it
    }

    /// Makes a call that submits to the group. Asserts that the group was full only if at one
    /// moment of the call as many other tasks were pending, or about to be, as the limit allows.
    pub fn during<R>(
        &self,
        call: impl FnOnce() -> R,
        why: impl FnOnce(&R) -> Option<&Refusal>,
    ) -> R {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let calls = || self.calls.lock().expect("no panic");
        calls().push((number, 0));
        let result = call();
        let at = calls().iter().position(|(n, _)| *n == number);
        let (_, most) = calls().swap_remove(at.expect("under way"));
        match why(&result) {
            Some(Refusal::GroupFull) => assert!(most >= self.limit, "full, with {most}"),
            Some(Refusal::Cancelled) => assert!(self.group.is_cancelled(), "without a cause"),
            _ => {}
        }
        result
    }

    /// Serves a task, which carries the ticket `number`.
    pub(crate) fn serve_task(
        &self,
        rig: &Rig,
        (number, task): (usize, impl FnOnce() -> Ticket + Send + 'static),
    ) {
        let was_cancelled = self.cancelled.load(Ordering::SeqCst);
        let submit = || rig.submit(number, self.adds, || drop(task()), |f| self.group.serve(f));
        if self.during(submit, |served| served.as_ref().err()).is_ok() {
            assert!(!was_cancelled, "served by a group that is cancelled");
            self.count();
        }
    }

    /// Serves a task that does `work`.
    pub fn serve(&self, rig: &Rig, work: impl FnOnce() + Send + 'static) {
        self.serve_task(rig, rig.task(work));
    }

    /// Submits a task that does `work` and returns its handle.
    pub fn handle(&self, rig: &Rig, work: impl FnOnce() + Send + 'static) -> Result<Held, Refusal> {
        let submit = || rig.handle(self.group.awaitable(), self.adds, work);
        let held = self.during(submit, |served| served.as_ref().err());
        held.inspect(|_| self.count())
    }

    /// Serves a task of any kind.
    pub fn act(&self, rig: &Arc<Rig>, dice: &mut Dice, depth: u32) {
        self.serve_task(rig, rig.any_task(self.adds, Some(self), dice, depth));
    }

    /// Counts a task of the group that was accepted.
    pub fn count(&self) {
        self.served.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a future that was dropped in line.
    pub fn leaves(&self) {
        self.left.fetch_add(1, Ordering::SeqCst);
    }

    /// Cancels the group, in one of two ways.
    pub fn cancel(&self, rig: &Rig, dice: &mut Dice) {
        rig.expect_discards();
        self.group.drop_guard().disarm();
        if dice.one_in(2) {
            self.group.cancel();
        } else {
            drop(self.group.drop_guard());
        }
        self.cancelled.store(true, Ordering::SeqCst);
        assert!(self.group.is_cancelled());
    }

    /// Spawns some threads that each make some calls. One call in four has nothing to do with the
    /// group; `act` makes the others.
    pub fn crowd(
        self: &Arc<Self>,
        rig: &Arc<Rig>,
        dice: &mut Dice,
        threads: RangeInclusive<u64>,
        act: fn(&Arc<Rig>, &Self, &mut Dice),
    ) -> Threads {
        let its = Arc::clone(self);
        rig.crowd(dice, threads, 1..=4, move |rig, dice| {
            if dice.one_in(4) {
                rig.act(None, dice, 0);
            } else {
                act(rig, &its, dice);
            }
        })
    }

    /// Once in two times, spawns a thread that cancels the group after fewer than `steps` steps.
    pub fn maybe_cancel(
        self: &Arc<Self>,
        rig: &Arc<Rig>,
        dice: &mut Dice,
        steps: u64,
    ) -> Option<JoinHandle<()>> {
        let its = Arc::clone(self);
        rig.maybe(dice, 2, steps, move |rig, dice| its.cancel(rig, dice))
    }

    /// Waits for the group's tasks for a while.
    pub fn wait_for(&self, time: Duration) {
        if let Err(left) = self.group.wait_timeout(time) {
            assert!(left.pending() > 0, "finished: {left:?}");
        }
    }

    /// Waits for the group's tasks, once no thread serves. Asserts that all accepted ones have
    /// ended, and at most as many more as futures were dropped in line.
    pub(crate) fn settle(&self) {
        self.group.wait();
        assert_eq!(self.group.pending(), 0);
        let ended = self.group.completed() + self.group.panicked() + self.group.discarded();
        let served = self.served.load(Ordering::SeqCst);
        let most = served + self.left.load(Ordering::SeqCst);
        let is_right = (served..=most).contains(&(ended as u64));
        assert!(is_right, "{served} to {most}: {:?}", self.group);
    }
}
