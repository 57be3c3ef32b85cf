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
        "notifier; spawner without a task; caller that took its task back",
    ),
    (Offered, Busy, "worker: starts the task"),
    (Offered, Held, "caller: takes its task back"),
    (Busy, Idle, "worker: the task has ended, and none is queued"),
    (
        Busy,
        Searching,
        "worker: the task has ended, and the pool is closed or over its limit",
    ),
    (Idle, Held, "submitter or notifier: claims the worker"),
    (
        Idle,
        Searching,
        "worker: looks at the queue, or whether to end",
    ),
    (
        Idle,
        Retiring,
        "cleaner, shutdown, or whoever lowers the limit",
    ),
    (Searching, Idle, "worker: nothing is queued"),
    (Searching, Busy, "worker: has taken a queued task"),
    (
        Searching,
        Retiring,
        "worker: the pool is closed and its queue empty, or it is over its limit",
    ),
    (Retiring, Searching, "worker: it is needed, and stays"),
    (Retiring, Free, "worker: its last act on the slot"),
];

const STATE: u64 = 7;
/// An entry of the slot is in the ready ring, or in the hands of one popper.
pub(super) const LISTED: u64 = 1 << 3;
/// The worker is in its start hook, or on the way there: it carries no order out yet.
pub(super) const STARTING: u64 = 1 << 4;
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

    pub(crate) const fn is_starting(self) -> bool {
        self.0 & STARTING != 0
    }

    /// Its worker is out of its start hook, and has not been told to end.
    pub(crate) const fn is_in_service(self) -> bool {
        !self.is_starting() && !matches!(self.state(), Free | Retiring)
    }

    pub(crate) const fn is_starting_without_task(self) -> bool {
        self.is_starting() && self.0 & STATE == Searching as u64
    }

    /// Idle, and on the bench: out of the ready ring.
    pub(crate) const fn is_benched(self) -> bool {
        self.0 & (STATE | LISTED) == Idle as u64
    }

    /// Idle, and not on the bench; asleep only if `even_parked`.
    pub(super) const fn is_ready(self, even_parked: bool) -> bool {
        let seen = self.0 & (STATE | LISTED | if even_parked { 0 } else { PARKED });
        seen == Idle as u64 | LISTED
    }

    pub(crate) const fn is_parked(self) -> bool {
        self.0 & PARKED != 0
    }

    pub(super) const fn is_listed(self) -> bool {
        self.0 & LISTED != 0
    }

    /// Whether its flags go with its state: only a worker that is idle sleeps, and none that is
    /// in its start hook is idle.
    pub(super) const fn is_sound(self) -> bool {
        if self.is_idle() {
            !self.is_starting()
        } else {
            !self.is_parked()
        }
    }

    /// The word in another state: awake.
    pub(super) const fn to(self, state: State) -> Self {
        Self(self.0 & !(STATE | PARKED) | state as u64)
    }

    pub(super) const fn and(self, flag: u64) -> Self {
        Self(self.0 | flag)
    }

    pub(super) const fn without(self, flag: u64) -> Self {
        Self(self.0 & !flag)
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
            flag(self.is_starting(), " starting"),
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
