//! The debts of a thread that has taken a step: to other threads, and to code of users.
//!
//! A step of the engine holds a lock, a cell or another's slot. So it calls no user code, serves no other
//! submission and starts no second search. It notes here what is left to do. The thread pays it when
//! it holds none of these: by `Core::pay` (`core/pay.rs`), a worker by `Ctx::pay`.
//! User code comes last, once no count relies on the thread.
//!
//! An [`Owed`] that is dropped unpaid is a bug, and panics in debug builds and models.

use crate::parts::completion::{Remains, WakeUp};
use crate::parts::gate::{Freed, Gate, Given, Permit};
use crate::parts::line::POOL;
use crate::parts::members::{Gone, Leaving};
use crate::work::job::Captured;
use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::task::Waker;

/// What is left to do after a step.
#[derive(Debug, Default)]
#[must_use = "`Core::pay` does what is left to do"]
pub(crate) struct Owed {
    /// Set if anything may be owed.
    any: bool,
    /// Set if the queue's `head` may have stopped before a dead cell.
    has_dead: bool,
    /// Set if a worker must look at the queue, because this thread's step may have kept others from
    /// finding one.
    look: bool,
    /// Set if the last permit of a closed pool has been given back, so that idle workers can end.
    is_over: bool,
    /// How many permits of the pool this thread has given back while submissions were in line.
    space: u64,
    /// The lines of groups to which this thread has given a permit back, and lines whose pass is noted again.
    lines: Few<u64>,
    /// Tasks that must leave their groups under the groups' locks.
    leaving: Few<Leaving>,
    calls: Calls,
}

/// The kinds of debts in an [`Owed`], for a person who looks at a pool that hangs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kinds(pub(crate) u64);

const KINDS: [&str; 10] = [
    "dead cells",
    "look",
    "leaves",
    "passes",
    "over",
    "wakers",
    "values",
    "refused",
    "end",
    "upkeep",
];

impl Kinds {
    pub(crate) const NONE: Self = Self(0);
    /// All debts to other threads: those before the wakers.
    const OTHERS: Self = Self((1 << 5) - 1);
    pub(crate) const WAKERS: Self = Self(1 << 5);
    /// Values to drop: captures of tasks that did not run, and nodes and wake-ups of waiters that have left.
    pub(crate) const CAPTURES: Self = Self(1 << 6);
    /// Subscribers are told that the OS has refused a thread.
    pub(crate) const REFUSED: Self = Self(1 << 7);
    /// A worker asks whether it has to end, or ends.
    pub(crate) const END: Self = Self(1 << 8);
    /// An idle worker sweeps: it ends those that have been idle for long.
    pub(crate) const UPKEEP: Self = Self(1 << 9);

    /// Returns those of them that are debts to other threads.
    pub(crate) fn to_others(self) -> Self {
        Self(self.0 & Self::OTHERS.0)
    }

    /// Returns `true` if these are debts to code of users alone.
    pub(crate) fn is_user_code(self) -> bool {
        let others = Self::OTHERS.0 | Self::END.0 | Self::UPKEEP.0;
        self != Self::NONE && self.0 & others == 0
    }
}

impl std::fmt::Debug for Kinds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_owed = |bit: &usize| self.0 >> bit & 1 != 0;
        let names = (0..KINDS.len()).filter(is_owed).map(|bit| KINDS[bit]);
        f.debug_set().entries(names).finish()
    }
}

/// The debts of a submission. Most submissions have none, and make no [`Owed`].
pub(crate) type Debts = Option<Owed>;

/// Notes the last step of a task's leave from its group, if there is one, among a submission's debts.
pub(crate) fn exit_group(debts: &mut Debts, leaving: Option<Leaving>) {
    if leaving.is_some() {
        debts.get_or_insert_default().exit_group(leaving);
    }
}

/// The next thing that is owed to other threads, and may need a lock.
#[derive(Debug)]
#[must_use = "it is to be paid, or noted again"]
pub(crate) enum Due {
    /// Take a task out of its group.
    Leave(Leaving),
    /// Pass a permit of the pool, or of the group with this number, to the first submission in line.
    Pass(u64),
    /// Tell idle workers of the closed pool to end.
    Over,
    /// Make sure that a worker looks at the queue.
    Look,
}

impl Owed {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        !self.any
    }

    /// Gives a permit back to the pool's gate, and notes what that leads to.
    #[inline(always)]
    pub(crate) fn give(&mut self, gate: &Gate, permit: Permit) {
        let given = gate.give(permit);
        if given.needs_care() {
            self.note_given(1, given);
        }
    }

    /// Notes that permits of the pool have come free. `given` is the gate's answer to that.
    #[cold]
    pub(crate) fn note_given(&mut self, permits: u64, given: Given) {
        self.any = true;
        if given.is_waited_for() {
            self.space += permits;
        }
        self.is_over |= given.is_over();
    }

    /// Notes that a permit was given back while submissions wait for it in this line, if there is one.
    #[inline]
    pub(crate) fn pass_in(&mut self, group: Option<u64>) {
        if let Some(group) = group {
            self.any = true;
            self.lines.push(group);
        }
    }

    /// Notes the last step of a task's leave from its group, if there is one.
    #[inline]
    pub(crate) fn exit_group(&mut self, leaving: Option<Leaving>) {
        if let Some(leaving) = leaving {
            self.any = true;
            self.leaving.push(leaving);
        }
    }

    /// Notes a debt again, because the thread could not get the lock that it needs.
    pub(crate) fn note(&mut self, due: Due) {
        match due {
            Due::Leave(leaving) => self.exit_group(Some(leaving)),
            Due::Pass(line) => self.pass_in(Some(line)),
            Due::Look => self.look(),
            Due::Over => {
                self.any = true;
                self.is_over = true;
            }
        }
    }

    /// Notes what the end of a group's task leads to.
    pub(crate) fn note_gone(&mut self, gone: Gone) {
        self.pass_in(gone.line);
        self.exit_group(gone.leaving);
    }

    /// Notes that a worker must look at the queue.
    #[inline]
    pub(crate) fn look(&mut self) {
        self.any = true;
        self.look = true;
    }

    /// Gives the permits of dead cells back to the pool's gate, and notes what that leads to. A step of
    /// the queue has left them in `freed`. Called before the waiters of tasks that were taken out are
    /// told: a thread that learns that its task is out finds space.
    #[inline]
    pub(crate) fn give_freed(&mut self, gate: &Gate, freed: &mut Freed) {
        if !freed.is_empty() {
            self.give_permits(gate, freed);
        }
    }

    #[cold]
    fn give_permits(&mut self, gate: &Gate, freed: &mut Freed) {
        let (permits, given) = gate.give_all(freed);
        if given.needs_care() {
            self.note_given(permits, given);
        }
        let more = std::mem::take(&mut freed.more);
        self.has_dead |= more;
        self.any |= more;
    }

    /// Adds user code to call.
    pub(crate) fn calls(&mut self) -> &mut Calls {
        self.any = true;
        &mut self.calls
    }

    /// Notes the wake-up of a waiter that has left, to be dropped. It may own a further handle or future. So it is dropped with
    /// nothing else on the stack.
    pub(crate) fn drop_wake_up(&mut self, wake_up: Option<WakeUp>) {
        if let Some(wake_up) = wake_up {
            self.calls().drop_captured(Box::new(wake_up));
        }
    }

    /// Returns what kinds of debts there are.
    pub(crate) fn kinds(&self) -> Kinds {
        let is_owed = [
            self.has_dead,
            self.look,
            !self.leaving.is_empty(),
            !self.lines.is_empty() || self.space > 0,
            self.is_over,
            !self.calls.wakers.is_empty(),
            !self.calls.values.is_empty(),
            !self.calls.refused.is_empty(),
        ];
        let bits = (0..).zip(is_owed).map(|(bit, it)| u64::from(it) << bit);
        Kinds(bits.sum())
    }

    /// Returns `true` if anything is owed to other threads.
    pub(crate) fn is_owed_to_others(&self) -> bool {
        self.kinds().to_others() != Kinds::NONE
    }

    #[inline]
    pub(crate) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Returns `true` if dead cells are to be passed, and notes that this is being done.
    pub(crate) fn take_dead(&mut self) -> bool {
        std::mem::take(&mut self.has_dead)
    }

    /// Takes the next thing that is owed to other threads. Passes come last, but for the end of a closed pool.
    pub(crate) fn next(&mut self) -> Option<Due> {
        if std::mem::take(&mut self.look) {
            return Some(Due::Look);
        }
        if let Some(leaving) = self.leaving.pop() {
            return Some(Due::Leave(leaving));
        }
        if let Some(group) = self.lines.pop() {
            return Some(Due::Pass(group));
        }
        if self.space > 0 {
            self.space -= 1;
            return Some(Due::Pass(POOL));
        }
        if std::mem::take(&mut self.is_over) {
            return Some(Due::Over);
        }
        self.any = self.has_dead || self.has_calls();
        None
    }

    /// Notes what is left of the debts of another one, too.
    pub(crate) fn add(&mut self, mut rest: Self) {
        if self.is_empty() {
            *self = rest;
            return;
        }
        while let Some(due) = rest.next() {
            self.note(due);
        }
        self.has_dead |= rest.take_dead();
        self.add_calls(rest.take_calls());
    }

    /// Notes what is left of user code to call.
    pub(crate) fn add_calls(&mut self, mut rest: Calls) {
        if !rest.is_empty() {
            self.calls().take_from(&mut rest);
        }
    }

    /// Takes what is owed to user code. Everything else has been paid.
    pub(crate) fn take_calls(&mut self) -> Calls {
        #[cfg(debug_assertions)]
        assert!(!self.is_owed_to_others(), "others first: {self:?}");
        self.any = false;
        std::mem::take(&mut self.calls)
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_debts_have_names() {
        let mut owed = Owed::default();
        assert_eq!(format!("{:?}", owed.kinds()), "{}");
        owed.look();
        owed.note(Due::Over);
        owed.calls().wake(Waker::noop().clone());
        assert_eq!(
            format!("{:?}", owed.kinds()),
            r#"{"look", "over", "wakers"}"#
        );
        while owed.next().is_some() {}
        assert!(!owed.is_empty(), "a waker is left");
        drop(owed.take_calls());
        assert_eq!(owed.kinds(), Kinds::NONE);
        owed.look();
        assert!(!owed.is_empty() && owed.next().is_some());
        assert!(owed.next().is_none() && owed.is_empty(), "all is paid");
    }

    #[test]
    fn debts_that_are_noted_together_are_all_left() {
        let (mut owed, mut rest) = (Owed::default(), Owed::default());
        owed.note(Due::Pass(7));
        owed.calls().wake(Waker::noop().clone());
        rest.look();
        rest.note(Due::Over);
        (rest.any, rest.has_dead) = (true, true);
        rest.calls().tell_refused(io::Error::other("no thread"));
        let all = Kinds(owed.kinds().0 | rest.kinds().0);
        owed.add(rest);
        assert_eq!(owed.kinds(), all);
        assert!(owed.take_dead());
        let others: Vec<_> = std::iter::from_fn(|| owed.next()).collect();
        assert!(matches!(others[..], [Due::Look, Due::Pass(7), Due::Over]));
        let mut calls = owed.take_calls();
        assert!(calls.next_waker().is_some() && calls.next_refused().is_some());
        assert!(owed.is_empty());
    }

    #[test]
    fn only_debts_before_the_wakers_are_owed_to_others() {
        let mut owed = Owed::default();
        owed.calls().wake(Waker::noop().clone());
        assert!(owed.has_calls() && !owed.is_owed_to_others());
        owed.calls().tell_refused(io::Error::other("no thread"));
        assert!(!owed.is_owed_to_others());
        drop(owed.take_calls());
        owed.note(Due::Over);
        assert!(owed.is_owed_to_others());
        assert!(matches!(owed.next(), Some(Due::Over)));
        drop(owed.take_calls());
    }
}

#[cfg(debug_assertions)]
impl Drop for Owed {
    fn drop(&mut self) {
        assert!(!self.any || std::thread::panicking(), "unpaid: {self:?}");
    }
}

/// A queue that keeps a single element without an allocation (law 12).
#[derive(Debug)]
pub(crate) struct Few<T> {
    first: Option<T>,
    rest: VecDeque<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self {
            first: None,
            rest: VecDeque::new(),
        }
    }
}

impl<T> Few<T> {
    pub(crate) fn push(&mut self, element: T) {
        match self.first {
            None => self.first = Some(element),
            Some(_) => self.rest.push_back(element),
        }
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let next = self.rest.pop_front();
        std::mem::replace(&mut self.first, next)
    }

    fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

/// User code to call: wakers, drops of values, and subscribers.
#[derive(Debug, Default)]
#[must_use = "they are to be called, or owed again"]
pub(crate) struct Calls {
    wakers: Few<Waker>,
    /// Values to drop: the captures of discarded closures, and the nodes of handles that are gone.
    values: Few<Value>,
    /// Starts of threads that the OS has refused, of which subscribers are to be told.
    refused: VecDeque<io::Error>,
}

/// A value whose drop is user code. It never leaves the thread that has taken its task out.
pub(crate) struct Value(#[expect(dead_code, reason = "it is only dropped")] Box<dyn Any>);

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Value")
    }
}

impl Calls {
    pub(crate) fn is_empty(&self) -> bool {
        self.wakers.is_empty() && self.values.is_empty() && self.refused.is_empty()
    }

    pub(crate) fn wake(&mut self, waker: Waker) {
        self.wakers.push(waker);
    }

    pub(crate) fn drop_captured(&mut self, captured: Captured) {
        self.values.push(Value(captured));
    }

    pub(crate) fn tell_refused(&mut self, error: io::Error) {
        self.refused.push_back(error);
    }

    /// Takes what is left of a waiter that has been told.
    pub(crate) fn finish(&mut self, Remains { waker, node }: Remains) {
        if let Some(waker) = waker {
            self.wake(waker);
        }
        if let Some(node) = node {
            self.values.push(Value(node));
        }
    }

    pub(crate) fn next_waker(&mut self) -> Option<Waker> {
        self.wakers.pop()
    }

    pub(crate) fn next_value(&mut self) -> Option<Value> {
        self.values.pop()
    }

    pub(crate) fn next_refused(&mut self) -> Option<io::Error> {
        self.refused.pop_front()
    }

    pub(crate) fn take_from(&mut self, other: &mut Self) {
        while let Some(waker) = other.next_waker() {
            self.wake(waker);
        }
        while let Some(value) = other.next_value() {
            self.values.push(value);
        }
        self.refused.append(&mut other.refused);
    }
}
