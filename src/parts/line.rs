//! The lines: submissions that wait for a permit of a [`Gate`], in the order of their arrival. A pool
//! has one line, and each of its limited groups has one. A submission to a full group waits in the
//! group's line first, and then, if it must, in the pool's.
//!
//! A submission that waits leaves its task here, and its thread or future sleeps. That thread or
//! future is the *owner* of the entry, and knows it by a *ticket*. A thread that gives a permit back
//! *passes* it to the first entry: it takes the permit and the entry by one step under the lock, and
//! then places the task, or moves it to the next line. Last, it leaves the *answer* for the owner.
//! One permit serves one entry that is accepted. So no thread works for others beyond what it has freed
//! itself, but for entries that it has to refuse on the way (the room `wait`).
//!
//! **Invariant.** While entries are in line and permits are free, at least as many passes are owed as
//! there are free permits. A thread gives a permit back and reads `WAITING` in one step, *then* comes here.
//! An entry that is alone in its line sets `WAITING`, *then* takes a permit itself, if one is free, under the same hold of the lock
//! (S1). So the thread sees the entry, or the entry sees the permit. If none is free then, the flag stays set for as long as there are
//! entries, so each thread that gives a permit back sees it. A later entry has nothing to look for: it would serve the ones before it.
//!
//! All lines of a pool have one lock. So an entry that moves from one to the next is always found, and
//! a shutdown finds all entries. It is held for a few steps of a B-tree (a cancel and a shutdown let go
//! of it after every 64 entries), for no user code, no wake-up and no start of a thread. An entry leaves in logarithmic time, wherever it stands.

use super::backoff::IN_MODELS;
use super::gate::{Flags, Gate, LineKey, Permit};
use crate::parts::completion::WakeUp;
use crate::sync::{thread, AtomicU64, IsHeld, Ordering, Patience, ThreadNumber, TracedMutex};
use crossbeam_utils::CachePadded;
use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

/// The name of a pool's own line. A group's line has the group's number.
pub(crate) const POOL: u64 = 0;

/// A task that can wait in line.
pub(crate) trait Waits {
    /// Returns the number of the task's group, or zero.
    fn group(&self) -> u64;

    /// Returns the gate of the task's group. Called only while the task stands in that gate's line.
    fn group_gate(&self) -> &Gate;
}

/// Returns the gate of a line in which `task` stands. `pool` is the pool's gate.
fn gate_of<'a, T: Waits>(line: u64, task: &'a T, pool: &'a Gate) -> &'a Gate {
    match line {
        POOL => pool,
        _ => task.group_gate(),
    }
}

/// The lines of tasks `T`, whose owners wait for answers `A`. Most calls take the pool's gate.
#[derive(Debug)]
pub(crate) struct Lines<T, A> {
    /// The number of entries, for the pool's figures.
    waiting: CachePadded<AtomicU64>,
    lists: TracedMutex<Lists<T, A>>,
}

#[derive(Debug)]
struct Lists<T, A> {
    key: LineKey,
    next: u64,
    /// The tickets of the entries, by line and turn. Turns grow with each entry that joins.
    entries: BTreeMap<(u64, u64), u64>,
    /// The owners, by ticket.
    owners: BTreeMap<u64, Owner<T, A>>,
    /// The entries of each group, by group and ticket, in whichever line they are.
    of_groups: BTreeSet<(u64, u64)>,
}

#[derive(Debug)]
struct Owner<T, A> {
    place: Place<T, A>,
    /// The way to wake the owner. `None` for a future that has not stored its waker yet.
    wake_up: Option<WakeUp>,
}

#[derive(Debug)]
enum Place<T, A> {
    /// The entry is in this line, and has this turn.
    InLine {
        line: u64,
        turn: u64,
        task: T,
    },
    /// A thread has taken the entry out, and is about to answer it.
    Taken,
    Answered(A),
}

/// How many entries are taken out under one hold of the lock.
const SOME: usize = if IN_MODELS { 1 } else { 64 };

/// An entry that has been taken out of its line.
#[derive(Debug)]
pub(crate) struct Passed<T> {
    pub(crate) owner: Unanswered,
    pub(crate) task: T,
}

/// The ticket of an owner whose entry has been taken out. [`Lines::answer`] uses it up, or
/// [`Lines::move_on`].
#[derive(Debug)]
#[must_use = "the owner waits for its answer"]
pub(crate) struct Unanswered(u64);

impl Unanswered {
    fn into_ticket(self) -> u64 {
        let ticket = self.0;
        std::mem::forget(self);
        ticket
    }
}

#[cfg(debug_assertions)]
impl Drop for Unanswered {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "an owner waits for ever");
    }
}

/// An entry that has a permit of the gate in whose line it stood, and has left that line; with the flags that were read as
/// the permit was taken.
pub(crate) type Turn<T> = (Passed<T>, Permit, Flags);

/// The result of an owner's call to leave the line.
#[derive(Debug)]
pub(crate) enum Left<T, A> {
    /// The entry has this answer.
    Answered(A),
    /// The entry has left the line that is named. This is its task, and the way to wake its owner. The
    /// drop of that may be user code.
    Unanswered(u64, T, Option<WakeUp>),
    /// Another thread has taken the entry out, and is about to answer it.
    Taken,
}

#[cfg(lazypool_shuttle)]
std::thread_local! {
    /// How often each thread has joined a line, by thread number. For shuttle's judge.
    static JOINS: std::cell::RefCell<BTreeMap<usize, u64>> = const { std::cell::RefCell::new(BTreeMap::new()) };
}

#[cfg(lazypool_shuttle)]
fn note_join() {
    JOINS.with_borrow_mut(|joins| *joins.entry(crate::sync::me()).or_default() += 1);
}

/// Returns how often a thread has joined a line.
#[cfg(lazypool_shuttle)]
pub(crate) fn joins_of(thread: usize) -> u64 {
    JOINS.with_borrow(|joins| joins.get(&thread).copied().unwrap_or(0))
}

impl<T: Waits, A> Lists<T, A> {
    /// Adds an entry at the end of a line, for an owner that is there. Returns the entry with a permit if it is the only one, and a permit is free.
    fn push(&mut self, line: u64, pool: &Gate, ticket: u64, task: T) -> Option<Turn<T>> {
        let is_first = self.first(line).is_none();
        let turn = self.next;
        self.next += 1;
        if task.group() != 0 {
            self.of_groups.insert((task.group(), ticket));
        }
        if is_first {
            gate_of(line, &task, pool).set_waiting(true, &mut self.key);
        }
        self.entries.insert((line, turn), ticket);
        self.owner(ticket).place = Place::InLine { line, turn, task };
        is_first.then(|| self.pass(line, pool)).flatten()
    }

    /// Returns the ticket of the first entry of a line.
    fn first(&self, line: u64) -> Option<u64> {
        let first = self.entries.range((line, 0)..).next();
        first.and_then(|(&(of, _), ticket)| (of == line).then_some(*ticket))
    }

    fn owner(&mut self, ticket: u64) -> &mut Owner<T, A> {
        let owner = self.owners.get_mut(&ticket);
        owner.expect("an owner stays until it has its answer")
    }

    /// Takes an entry out. If it was the last one of its line, lets submissions take permits again.
    /// Returns its line and its task. Returns `None` if it is in no line.
    fn take_out(&mut self, ticket: u64, pool: &Gate) -> Option<(u64, T)> {
        let owner = self.owner(ticket);
        let (line, turn, task) = match std::mem::replace(&mut owner.place, Place::Taken) {
            Place::InLine { line, turn, task } => (line, turn, task),
            elsewhere => {
                owner.place = elsewhere;
                return None;
            }
        };
        self.entries.remove(&(line, turn));
        if task.group() != 0 {
            self.of_groups.remove(&(task.group(), ticket));
        }
        if self.first(line).is_none() {
            gate_of(line, &task, pool).set_waiting(false, &mut self.key);
        }
        Some((line, task))
    }

    /// Takes a permit for the first entry of a line, and takes that entry out.
    fn pass(&mut self, line: u64, pool: &Gate) -> Option<Turn<T>> {
        let ticket = self.first(line)?;
        let (permit, flags) = match &self.owners[&ticket].place {
            Place::InLine { task, .. } => gate_of(line, task, pool).take_in_line(&mut self.key)?,
            _ => unreachable!("its entry is in line"),
        };
        let (_, task) = self.take_out(ticket, pool).expect("it is in line");
        let owner = Unanswered(ticket);
        Some((Passed { owner, task }, permit, flags))
    }

    /// Takes an owner's answer, if there is one. The owner has left then.
    fn take_answer(&mut self, ticket: u64) -> Option<A> {
        if !matches!(self.owner(ticket).place, Place::Answered(_)) {
            return None;
        }
        match self.owners.remove(&ticket).map(|owner| owner.place) {
            Some(Place::Answered(answer)) => Some(answer),
            _ => unreachable!("it is answered"),
        }
    }

    /// Makes the maps keep memory for the first entries. So the first submissions that wait allocate
    /// nothing (law 12).
    fn warm(mut self) -> Self {
        let owner = Owner {
            place: Place::Taken,
            wake_up: None,
        };
        self.entries.insert((POOL, 0), 0);
        self.owners.insert(0, owner);
        self.of_groups.insert((0, 0));
        self.entries.pop_first();
        self.owners.pop_first();
        self.of_groups.pop_first();
        self
    }
}

impl<T: Waits, A> Lines<T, A> {
    pub(crate) fn new() -> Self {
        let lists = Lists {
            key: LineKey::default(),
            next: 1,
            entries: BTreeMap::new(),
            owners: BTreeMap::new(),
            of_groups: BTreeSet::new(),
        };
        Self {
            waiting: CachePadded::new(AtomicU64::new(0)),
            lists: TracedMutex::new(lists.warm()),
        }
    }

    /// Returns how many entries are in line.
    #[inline]
    pub(crate) fn waiting(&self) -> u64 {
        // Relaxed: a figure.
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns the lines whose first entries could have a permit, and how many of them could. In a healthy pool,
    /// threads owe that many passes. Returns `None` if another thread holds the lock. If one does after some lines, leaves out
    /// the rest.
    pub(crate) fn passable(&self, pool: &Gate) -> Option<Vec<(u64, u64)>> {
        let (mut all, mut first, mut seen) = (Vec::new(), POOL, 0);
        let mut lists = self.lists.try_lock()?;
        while let Some((&(line, _), ticket)) = lists.entries.range((first, 0)..).next() {
            let Place::InLine { task, .. } = &lists.owners[ticket].place else {
                unreachable!("its entry is in line");
            };
            let free = gate_of(line, task, pool).free();
            let of_line = lists.entries.range((line, 0)..=(line, u64::MAX));
            let entries = of_line.take(free as usize).count() as u64;
            all.extend((entries > 0).then_some((line, entries)));
            (first, seen) = (line + 1, seen + 1);
            if seen % SOME == 0 {
                // Others wait for the lock meanwhile, and take longer to wake up than this thread to lock again.
                drop(lists);
                thread::yield_now();
                let Some(again) = self.lists.try_lock() else {
                    break;
                };
                lists = again;
            }
        }
        Some(all)
    }

    /// Returns the thread that has locked the lists last.
    pub(crate) fn locker(&self) -> ThreadNumber {
        self.lists.locker()
    }

    fn count(&self, entries: i64) {
        // Relaxed: a figure.
        self.waiting.fetch_add(entries as u64, Ordering::Relaxed);
    }

    /// Adds an entry at the end of a line, and returns its ticket. If the line was empty and a permit is free, the entry has it,
    /// and is returned, too. Gives the task back if `is_over`
    /// returns `true` under the lock: a thread that takes entries out for good sets a flag first.
    pub(crate) fn join(
        &self,
        line: u64,
        pool: &Gate,
        task: T,
        wake_up: Option<WakeUp>,
        is_over: impl FnOnce() -> bool,
    ) -> Result<(u64, Option<Turn<T>>), T> {
        let mut lists = self.lists.lock();
        if is_over() {
            drop(lists);
            return Err(task);
        }
        #[cfg(lazypool_shuttle)]
        note_join();
        let ticket = lists.next;
        let place = Place::Taken;
        lists.owners.insert(ticket, Owner { place, wake_up });
        let has_turn = lists.push(line, pool, ticket, task);
        self.count(i64::from(has_turn.is_none()));
        Ok((ticket, has_turn))
    }

    /// Adds an entry that has been passed to the end of the pool's line, as [`join`](Self::join) does.
    pub(crate) fn move_on(
        &self,
        pool: &Gate,
        passed: Passed<T>,
        is_over: impl FnOnce() -> bool,
    ) -> Result<Option<Turn<T>>, Passed<T>> {
        let mut lists = self.lists.lock();
        if is_over() {
            drop(lists);
            return Err(passed);
        }
        let Passed { owner, task } = passed;
        let has_turn = lists.push(POOL, pool, owner.into_ticket(), task);
        self.count(i64::from(has_turn.is_none()));
        Ok(has_turn)
    }

    /// Takes a permit for the first entry of a line, and takes that entry out. Returns `None` if the
    /// line is empty or no permit is free. If another thread holds the lock and this one only tries,
    /// returns the error.
    pub(crate) fn pass(
        &self,
        line: u64,
        pool: &Gate,
        patience: Patience,
    ) -> Result<Option<Turn<T>>, IsHeld> {
        let mut lists = self.lists.lock_by(patience)?;
        let passed = lists.pass(line, pool);
        self.count(-i64::from(passed.is_some()));
        Ok(passed)
    }

    /// Takes some entries of a group out, or of all lines (`None`): so few that the lock is held for a
    /// moment only. Returns none if there are no more.
    pub(crate) fn take_some(&self, group: Option<u64>, pool: &Gate) -> Vec<Passed<T>> {
        let mut lists = self.lists.lock();
        let tickets: Vec<u64> = match group {
            None => lists.entries.values().take(SOME).copied().collect(),
            Some(group) => {
                let of_group = lists.of_groups.range((group, 0)..=(group, u64::MAX));
                of_group.take(SOME).map(|(_, ticket)| *ticket).collect()
            }
        };
        self.count(-(tickets.len() as i64));
        let take = |ticket| {
            let (_, task) = lists.take_out(ticket, pool).expect("it is in line");
            let owner = Unanswered(ticket);
            Passed { owner, task }
        };
        tickets.into_iter().map(take).collect()
    }

    /// Leaves the answer for an entry's owner. Unparks the owner if it is a thread. If it is a future,
    /// returns its waker, which the caller must wake.
    #[must_use]
    pub(crate) fn answer(&self, owner: Unanswered, answer: A) -> Option<Waker> {
        let mut lists = self.lists.lock();
        let owner = lists.owner(owner.into_ticket());
        owner.place = Place::Answered(answer);
        let wake_up = owner.wake_up.take();
        drop(lists);
        wake_up.and_then(WakeUp::unpark)
    }

    /// Returns the answer if there is one. Otherwise exchanges `wake_up`, if given, for the stored
    /// one. The caller drops what it gets, which may be user code.
    pub(crate) fn fetch(&self, ticket: u64, wake_up: &mut Option<WakeUp>) -> Option<A> {
        let mut lists = self.lists.lock();
        let answer = lists.take_answer(ticket);
        if answer.is_none() && wake_up.is_some() {
            std::mem::swap(&mut lists.owner(ticket).wake_up, wake_up);
        }
        answer
    }

    /// Takes an entry out of its line for its owner, unless another thread has taken it.
    pub(crate) fn remove(&self, ticket: u64, pool: &Gate) -> Left<T, A> {
        let mut lists = self.lists.lock();
        if let Some(answer) = lists.take_answer(ticket) {
            return Left::Answered(answer);
        }
        let Some((line, task)) = lists.take_out(ticket, pool) else {
            return Left::Taken;
        };
        self.count(-1);
        let owner = lists.owners.remove(&ticket);
        Left::Unanswered(line, task, owner.and_then(|owner| owner.wake_up))
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl<T: Waits, A> Lines<T, A> {
    /// Asserts that nothing is left in line. Models call it after every thread has ended.
    pub(crate) fn assert_at_rest(&self) {
        let lists = self.lists.lock();
        assert!(lists.entries.is_empty() && lists.of_groups.is_empty());
        assert!(lists.owners.is_empty(), "an answer is left");
        assert_eq!(self.waiting(), 0, "waiting");
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
impl<T: Waits, A> Lines<T, A> {
    /// Holds the lock, as if a thread had been stopped within one of the calls above.
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.lists.lock()
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "line_tests.rs"]
mod tests;
