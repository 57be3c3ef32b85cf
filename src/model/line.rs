//! A gate, and the lines of the submissions that wait for a permit, without a pool.

use crate::parts::completion::WakeUp;
use crate::parts::line::{Lines, Waits, POOL};
use crate::parts::{gate, line};
use crate::sync::{thread, Arc, AtomicBool, Ordering, Patience};
use std::task::Waker;

/// A gate alone.
#[derive(Debug)]
pub struct Gate(gate::Gate);

/// A permit of a [`Gate`]. It must be given back.
#[derive(Debug)]
pub struct Permit(gate::Permit);

impl Gate {
    /// Returns an open gate with `bound` permits.
    pub fn new(bound: usize) -> Self {
        Self(gate::Gate::new(bound))
    }

    /// Returns the gate of a pool without a worker.
    pub fn asleep(bound: usize) -> Self {
        Self(gate::Gate::new_asleep(bound))
    }

    /// Takes a permit. Also returns whether the gate was asleep at that step.
    pub fn take(&self) -> Option<(Permit, bool)> {
        let (permit, flags) = self.0.take().ok()?;
        Some((Permit(permit), flags.is_asleep()))
    }

    /// Gives a permit back. Returns `true` if the gate was closed and this was the last permit.
    pub fn give(&self, permit: Permit) -> bool {
        self.0.give(permit.0).is_over()
    }

    /// Returns how many permits are taken.
    pub fn taken(&self) -> u64 {
        self.0.taken()
    }

    /// Changes the bound. Returns how many permits came free.
    pub fn set_bound(&self, bound: usize) -> u64 {
        self.0.set_bound(bound).0
    }
}

impl Gate {
    /// Puts the gate to sleep for its last worker. A model has no lock for that.
    pub fn sleep(&self) -> bool {
        self.0.sleep(&mut gate::WorkersKey::default())
    }

    /// Wakes the gate for a first worker.
    pub fn wake(&self) {
        self.0.wake(&mut gate::WorkersKey::default());
    }
}

forward! { Gate:
    free() -> u64;
    close();
    assert_at_rest();
}

/// The number of the group of a [`Line`].
const GROUP: u64 = 7;

/// An entry of a line.
#[derive(Debug)]
struct Entry {
    group: Option<Arc<gate::Gate>>,
    /// The entry's permit of the group.
    of_group: Option<gate::Permit>,
}

impl Waits for Entry {
    fn group(&self) -> u64 {
        if self.group.is_some() {
            GROUP
        } else {
            0
        }
    }

    fn group_gate(&self) -> &gate::Gate {
        self.group.as_deref().expect("a member")
    }
}

/// The permits of an accepted task: one of the pool, and one of the group if it is a member.
#[derive(Debug)]
pub struct Grant {
    pool: gate::Permit,
    group: Option<gate::Permit>,
}

/// The lines of a pool and of one group, with their gates. An entry is answered with its permits, or
/// with `None` if it is turned away. The steps are those of `engine/line.rs`.
#[derive(Debug)]
pub struct Line {
    lines: Lines<Entry, Option<Grant>>,
    pool: gate::Gate,
    group: Arc<gate::Gate>,
    cancelled: AtomicBool,
}

/// The state of an entry at the moment when its owner leaves the line.
#[derive(Debug)]
pub enum Left {
    /// The entry had this answer.
    Answered(Option<Grant>),
    /// The entry had no answer.
    Unanswered,
    /// Another thread has taken the entry out, and is about to answer it.
    Taken,
}

impl Line {
    /// Returns empty lines of a pool and a group with these numbers of permits.
    pub fn new(pool: usize, group: usize) -> Self {
        Self {
            lines: Lines::new(),
            pool: gate::Gate::new(pool),
            group: Arc::new(gate::Gate::new(group)),
            cancelled: AtomicBool::new(false),
        }
    }

    /// Takes a permit of the pool for a submission that does not wait.
    pub fn take(&self) -> Option<Grant> {
        let (pool, _) = self.pool.take().ok()?;
        Some(Grant { pool, group: None })
    }

    /// Takes a permit of the group and one of the pool for a member that does not wait.
    pub fn take_as_member(&self) -> Option<Grant> {
        let (group, _) = self.group.take().ok()?;
        match self.pool.take() {
            Ok((pool, _)) => Some(Grant {
                pool,
                group: Some(group),
            }),
            Err(_) => {
                self.give_to_group(group);
                None
            }
        }
    }

    /// Gives permits back, and passes each of them to the first entry that waits for it.
    pub fn give(&self, grant: Grant) {
        if let Some(group) = grant.group {
            self.give_to_group(group);
        }
        if self.pool.give(grant.pool).is_waited_for() {
            self.pass();
        }
    }

    fn give_to_group(&self, permit: gate::Permit) {
        if self.group.give(permit).is_waited_for() {
            self.pass_in_group();
        }
    }

    /// Raises the pool's bound, and passes each permit that came free.
    pub fn raise(&self, bound: usize) {
        let (more, given) = self.pool.set_bound(bound);
        if given.is_waited_for() {
            (0..more).for_each(|_| self.pass());
        }
    }

    fn pass(&self) {
        let passed = self.lines.pass(POOL, &self.pool, Patience::Waits);
        if let Some((passed, pool, _)) = passed.expect("it has waited") {
            self.grant(passed, pool);
        }
    }

    fn pass_in_group(&self) {
        let passed = self.lines.pass(GROUP, &self.pool, Patience::Waits);
        if let Some(turn) = passed.expect("it has waited") {
            self.has_turn_in_group(turn);
        }
    }

    fn has_turn_in_group(&self, (mut passed, permit, _): line::Turn<Entry>) {
        passed.task.of_group = Some(permit);
        match self.pool.take() {
            Ok((pool, _)) => self.grant(passed, pool),
            Err(_) => match self
                .lines
                .move_on(&self.pool, passed, || self.is_over(true))
            {
                Ok(Some((passed, pool, _))) => self.grant(passed, pool),
                Ok(None) => {}
                Err(passed) => self.refuse(passed),
            },
        }
    }

    fn grant(&self, passed: line::Passed<Entry>, pool: gate::Permit) {
        let group = passed.task.of_group;
        self.answer(passed.owner, Some(Grant { pool, group }));
    }

    fn refuse(&self, passed: line::Passed<Entry>) {
        if let Some(permit) = passed.task.of_group {
            self.give_to_group(permit);
        }
        self.answer(passed.owner, None);
    }

    fn answer(&self, owner: line::Unanswered, answer: Option<Grant>) {
        if let Some(waker) = self.lines.answer(owner, answer) {
            waker.wake();
        }
    }

    fn is_over(&self, is_member: bool) -> bool {
        self.pool.flags().is_closed() || is_member && self.cancelled.load(Ordering::SeqCst)
    }

    /// Joins the pool's line as a thread, or takes a permit that is free. Returns `None` if the pool is closed.
    pub fn join(&self) -> Option<u64> {
        let thread = WakeUp::Thread(thread::current());
        self.join_as(Some(thread), false)
    }

    /// Joins the group's line as a thread, or takes a permit that is free. Returns `None` if the pool is closed
    /// or the group is cancelled.
    pub fn join_as_member(&self) -> Option<u64> {
        let thread = WakeUp::Thread(thread::current());
        self.join_as(Some(thread), true)
    }

    /// Joins the pool's line as a future that has not stored its waker, or takes a permit that is free.
    pub fn join_as_future(&self) -> Option<u64> {
        self.join_as(None, false)
    }

    fn join_as(&self, wake_up: Option<WakeUp>, is_member: bool) -> Option<u64> {
        let entry = Entry {
            group: is_member.then(|| Arc::clone(&self.group)),
            of_group: None,
        };
        let line = if is_member { GROUP } else { POOL };
        let is_over = || self.is_over(is_member);
        let joined = self.lines.join(line, &self.pool, entry, wake_up, is_over);
        let (ticket, turn) = joined.ok()?;
        match turn {
            Some(turn) if is_member => self.has_turn_in_group(turn),
            Some((passed, pool, _)) => self.grant(passed, pool),
            None => {}
        }
        Some(ticket)
    }

    /// Closes the pool, and turns all entries away.
    pub fn close(&self) {
        self.pool.close();
        self.turn_away(None);
    }

    /// Cancels the group, and turns its entries away.
    pub fn cancel(&self) {
        self.cancelled.swap(true, Ordering::SeqCst);
        self.turn_away(Some(GROUP));
    }

    fn turn_away(&self, group: Option<u64>) {
        loop {
            let some = self.lines.take_some(group, &self.pool);
            if some.is_empty() {
                return;
            }
            some.into_iter().for_each(|passed| self.refuse(passed));
        }
    }

    /// Returns the answer if there is one. Otherwise stores the waker.
    pub fn fetch(&self, ticket: u64, waker: Option<&Waker>) -> Option<Option<Grant>> {
        (self.lines).fetch(ticket, &mut waker.cloned().map(WakeUp::Task))
    }

    /// Sleeps until the answer is there.
    pub fn wait(&self, ticket: u64) -> Option<Grant> {
        loop {
            if let Some(answer) = self.fetch(ticket, None) {
                return answer;
            }
            thread::park();
        }
    }

    /// Leaves the line, as the owner of an entry does. Gives the entry's permit of the group back.
    pub fn leave(&self, ticket: u64) -> Left {
        match self.lines.remove(ticket, &self.pool) {
            line::Left::Answered(answer) => Left::Answered(answer),
            line::Left::Taken => Left::Taken,
            line::Left::Unanswered(_, entry, _) => {
                if let Some(permit) = entry.of_group {
                    self.give_to_group(permit);
                }
                Left::Unanswered
            }
        }
    }

    /// Asserts that no entry is in line, and that no permit is taken.
    pub fn assert_at_rest(&self) {
        self.lines.assert_at_rest();
        self.pool.assert_at_rest();
        self.group.assert_at_rest();
    }
}
