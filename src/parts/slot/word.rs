//! The status word of a slot: its states, its flags, and which steps are legal.

/// The state of a slot. It says what the worker does, and so which thread may take the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum State {
    /// The slot has no thread.
    Free = 0,
    /// One thread holds the slot and writes its next state.
    Held = 1,
    /// A task is in the mailbox and has not started. Its caller may still take it back.
    Offered = 2,
    /// A task is in the mailbox and can no longer be taken back, or the worker has it: runs it, or pays before or after it.
    Busy = 3,
    /// The worker has no task, and looks at the queue. It counts as awake, or does so in a moment.
    Searching = 4,
    /// The worker waits for an order.
    Idle = 5,
    /// The worker has been told to end, or has found that it must.
    Retiring = 6,
    /// The worker's task has ended. The worker pays others, and calls wakers. A thread may hand it its next task meanwhile.
    Calling = 7,
    /// The worker was told to look at the queue, and has not begun to. It counts as notified.
    Notified = 8,
    /// The worker has no task, and pays what it owes, asks whether it has to end, or is new and in the start hook. Then it searches. It is not counted, but for
    /// a moment before and after.
    Paying = 9,
}

use State::{Busy, Calling, Free, Held, Idle, Notified, Offered, Paying, Retiring, Searching};

impl State {
    /// Returns `true` if a worker in this state may run user code.
    pub(crate) const fn runs_user_code(self) -> bool {
        matches!(self, Held | Offered | Busy | Paying | Calling)
    }

    /// Returns the states to which a step may lead from this state. The protocol page says which
    /// thread takes each step. A test compares that page with this list.
    pub(super) const fn next(self) -> &'static [Self] {
        match self {
            Free => &[Held],
            Held => &[Free, Offered, Busy, Notified, Paying, Retiring],
            Offered => &[Busy, Held],
            Busy => &[Idle, Calling, Paying, Offered],
            Idle => &[Held, Searching],
            Searching => &[Idle, Busy, Paying],
            Retiring => &[Paying, Free],
            Calling => &[Held, Idle, Paying],
            Notified => &[Searching],
            Paying => &[Searching, Retiring],
        }
    }
}

const STATE: u64 = 15;
/// Set while the ready ring has an entry of the slot. Also set while the worker is about to push
/// that entry, and while a thread that has popped the entry has not yet cleared the flag.
pub(super) const LISTED: u64 = 1 << 4;
/// Set while the worker is parked. The thread that gives it an order unparks it.
pub(super) const PARKED: u64 = 1 << 5;
/// One unit of the generation, which is in the upper 58 bits. The generation counts the tasks that
/// were handed over. It wraps.
pub(super) const GENERATION: u64 = 1 << 6;

/// A reading of the status word. If two readings are equal, no other task
/// was handed to the slot in between.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(pub(super) u64);

impl Word {
    pub(crate) const fn state(self) -> State {
        match self.0 & STATE {
            0 => Free,
            1 => Held,
            2 => Offered,
            3 => Busy,
            4 => Searching,
            5 => Idle,
            6 => Retiring,
            7 => Calling,
            9 => Paying,
            state => {
                debug_assert!(state == Notified as u64);
                Notified
            }
        }
    }

    /// Returns how many tasks have been handed over.
    pub(crate) const fn generation(self) -> u64 {
        self.0 / GENERATION
    }

    pub(crate) const fn is_idle(self) -> bool {
        self.0 & STATE == Idle as u64
    }

    /// Returns `true` if the slot has a worker that has not been told to end.
    pub(crate) const fn is_in_service(self) -> bool {
        !matches!(self.state(), Free | Retiring)
    }

    /// Returns `true` if the worker is idle and on the bench, so not in the ready ring.
    pub(crate) const fn is_benched(self) -> bool {
        self.0 & (STATE | LISTED) == Idle as u64
    }

    /// Returns `true` if the worker takes a task from the thread that used it last: it is idle and
    /// not on the bench. A parked worker counts only if `even_parked`.
    pub(super) const fn is_ready(self, even_parked: bool) -> bool {
        let seen = self.0 & (STATE | LISTED | if even_parked { 0 } else { PARKED });
        seen == Idle as u64 | LISTED
    }

    pub(crate) const fn is_parked(self) -> bool {
        self.0 & PARKED != 0
    }

    pub(crate) const fn is_calling(self) -> bool {
        self.0 & STATE == Calling as u64
    }

    pub(super) const fn is_listed(self) -> bool {
        self.0 & LISTED != 0
    }

    pub(super) const fn is_listed_in(self, state: State) -> bool {
        self.0 & (STATE | LISTED) == state as u64 | LISTED
    }

    /// Returns `true` if the flags are legal in this state: only an idle worker may be parked.
    pub(super) const fn is_sound(self) -> bool {
        self.is_idle() || !self.is_parked()
    }

    /// Returns the word with the state `state`, and without `PARKED`.
    pub(super) const fn to(self, state: State) -> Self {
        Self(self.0 & !(STATE | PARKED) | state as u64)
    }

    pub(super) const fn without(self, flag: u64) -> Self {
        Self(self.0 & !flag)
    }

    /// Returns the word of a worker that does not sleep, that has gone idle after its `generation`-th task, and
    /// whose entry is still in the ready ring.
    pub(super) const fn idle_after(generation: u64) -> Self {
        Self(generation.wrapping_mul(GENERATION) | LISTED | Idle as u64)
    }
}

#[cfg(test)]
impl Word {
    pub(crate) const fn in_state(state: State) -> Self {
        Self(state as u64)
    }
}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.state())?;
        for (flag, name) in [(LISTED, "LISTED"), (PARKED, "PARKED")] {
            if self.0 & flag != 0 {
                write!(f, " {name}")?;
            }
        }
        write!(f, " #{}", self.generation())
    }
}

/// Asserts that a change of the word is legal. The change is a step, or a change of flags alone.
#[inline(always)]
#[cfg_attr(any(debug_assertions, lazypool_loom, lazypool_shuttle), track_caller)]
pub(super) fn assert_step(from: Word, to: Word) {
    debug_assert!(to.is_sound(), "{from:?} -> {to:?}");
    debug_assert!(
        from.state() == to.state() || from.state().next().contains(&to.state()),
        "{from:?} -> {to:?} is no step of a slot"
    );
}
