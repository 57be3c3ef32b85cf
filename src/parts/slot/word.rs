//! The status word of a slot: its states, its flags, and which steps are legal.

use std::fmt;

/// Who a slot belongs to, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum State {
    /// No thread.
    Free = 0,
    /// One thread holds the slot and writes its next state.
    Held = 1,
    /// A task is in the mailbox; its caller may still take it back.
    Offered = 2,
    /// A task is in the mailbox for good, or runs.
    Busy = 3,
    /// The worker is awake without a task, and looks at the queue.
    Searching = 4,
    /// The worker waits for an order.
    Idle = 5,
    /// The worker has been told to end, by another or by itself.
    Retiring = 6,
}

use State::{Busy, Free, Held, Idle, Offered, Retiring, Searching};

/// A step that may be taken: from, to, by whom.
pub(crate) type Step = (State, State, &'static str);

/// The one source of what is legal. Each step asserts it in debug builds and in
/// models; the table of the protocol page is tested to equal it.
pub(crate) const LEGAL: &[Step] = &[
    (Free, Held, "spawner that popped the slot's free entry"),
    (Held, Free, "spawner that got no thread"),
    (
        Held,
        Offered,
        "submitter or spawner: hands over a task that its caller may take back",
    ),
    (
        Held,
        Busy,
        "submitter or spawner: hands over a task for good",
    ),
    (
        Held,
        Searching,
        "notifier or spawner: the worker is to look at the queue",
    ),
    (
        Held,
        Idle,
        "caller that took its task back; spawner of a worker without an order; submitter or notifier whose claim is one worker too many",
    ),
    (Offered, Busy, "worker: starts the task"),
    (Offered, Held, "caller: takes its task back at its deadline"),
    (
        Busy,
        Idle,
        "worker: the task has ended, and it saw none to pop",
    ),
    (Idle, Held, "submitter or notifier: claims the worker"),
    (
        Idle,
        Searching,
        "worker: has seen a queued task, or is new and has no order",
    ),
    (
        Idle,
        Retiring,
        "cleaner, shutdown, who lowers the limit or finds it lowered, caller that took its task back in a closed pool, or the worker itself",
    ),
    (Searching, Idle, "worker: nothing is queued"),
    (Searching, Busy, "worker: has taken a queued task"),
    (
        Retiring,
        Searching,
        "worker: a task is queued, or `min_workers` need it: it stays",
    ),
    (Retiring, Free, "worker: its last act on the slot"),
];

const STATE: u64 = 7;
/// An entry of the slot is in the ready ring, or in the hands of one popper.
pub(super) const LISTED: u64 = 1 << 3;
/// Idle for a while: claimed only if no other worker is idle, and retired if it
/// stays so.
pub(super) const MARKED: u64 = 1 << 4;
/// The worker sleeps; who gives it an order wakes it.
pub(super) const PARKED: u64 = 1 << 5;
/// The generation: how many tasks have been handed over. 58 bits, which wrap.
pub(super) const GENERATION: u64 = 1 << 6;

/// A reading of the status word. Two equal ones: the same task all the time.
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
            _ => unreachable!(),
        }
    }

    /// How many tasks have been handed over.
    pub(crate) const fn generation(self) -> u64 {
        self.0 / GENERATION
    }

    pub(crate) const fn is_idle(self) -> bool {
        self.0 & STATE == Idle as u64
    }

    /// It has a task, or another thread holds it: neither idle nor looking around by itself.
    pub(crate) const fn is_occupied(self) -> bool {
        matches!(self.state(), Held | Offered | Busy)
    }

    pub(crate) const fn is_marked(self) -> bool {
        self.0 & MARKED != 0
    }

    pub(crate) const fn is_parked(self) -> bool {
        self.0 & PARKED != 0
    }

    pub(super) const fn is_listed(self) -> bool {
        self.0 & LISTED != 0
    }

    /// Idle, and a first choice.
    pub(super) const fn is_fresh_idle(self) -> bool {
        self.0 & (STATE | MARKED) == Idle as u64
    }

    /// Whether its flags go with its state: who is idle can be found, and only who is idle
    /// is marked or asleep.
    pub(super) const fn is_sound(self) -> bool {
        if self.is_idle() {
            self.is_listed() || self.is_marked()
        } else {
            !self.is_marked() && !self.is_parked()
        }
    }

    /// The word in another state: awake and unmarked.
    pub(super) const fn to(self, state: State) -> Self {
        Self(self.0 & !(STATE | PARKED | MARKED) | state as u64)
    }

    pub(super) const fn and(self, flag: u64) -> Self {
        Self(self.0 | flag)
    }

    pub(super) const fn unlisted(self) -> Self {
        Self(self.0 & !LISTED)
    }

    /// An idle worker's word as it stands after its `generation`-th task, with its
    /// entry still in the ready ring.
    pub(super) const fn idle_after(generation: u64) -> Self {
        Self(generation.wrapping_mul(GENERATION) | LISTED | Idle as u64)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = |set, name| if set { name } else { "" };
        write!(
            f,
            "{:?}{}{}{} #{}",
            self.state(),
            flag(self.is_listed(), " listed"),
            flag(self.is_marked(), " marked"),
            flag(self.is_parked(), " parked"),
            self.generation()
        )
    }
}

/// Asserts that a step is legal, where assertions are on.
#[inline(always)]
#[cfg_attr(any(debug_assertions, lazypool_loom, lazypool_shuttle), track_caller)]
pub(super) fn assert_legal(from: State, to: State) {
    debug_assert!(
        LEGAL.iter().any(|&(f, t, _)| (f, t) == (from, to)),
        "{from:?} -> {to:?} is no step of a slot"
    );
}

/// Records a step that has been taken.
#[inline(always)]
pub(super) fn taken(_from: State, _to: State) {
    #[cfg(any(lazypool_loom, lazypool_shuttle, lazypool_steps))]
    {
        static MET: crate::parts::steps::Met = crate::parts::steps::Met::new("slot");
        MET.record(_from as u8, _to as u8, || format!("{_from:?} {_to:?}"));
    }
}
