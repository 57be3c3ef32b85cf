//! What a reading of the core says: figures that do not add up, and who keeps others waiting.
//!
//! CONTRIBUTING.md, "When a pool hangs", has a row for each [`What`]. A test compares the two.

use super::inside::{Inner, Reading};
use crate::parts::queue::CellState;
use crate::parts::slot::State;
use crate::work::owed::Kinds;
use std::fmt;

/// Something that is to be seen in a reading of the core.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Finding {
    what: What,
    /// How many there are.
    pub(super) count: u64,
    /// The slot that it is about, if it is about one.
    slot: Option<usize>,
    /// How many tasks the slot has got, or the queue's `head`. Two readings with different ones are not about the same event.
    at: u64,
    /// What the worker of the slot pays.
    pays: Kinds,
    advice: Advice,
}

/// What to do about a finding: the words of the column "now" in CONTRIBUTING.md. Of several findings, the first one here comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Advice {
    /// User code hangs.
    Code,
    /// The worker's stack says what to do.
    Stack,
    /// First aid helps, if anything does.
    Aid,
    /// A thread is in the middle of a step.
    Wait,
}

/// The kinds of findings. Their names are those of the rows in CONTRIBUTING.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum What {
    UserCode,
    TaskBehindUserCode,
    LockOrUserCode,
    StartHook,
    StopHook,
    RegistryLocked,
    LinesLocked,
    ThreadsStarting,
    WorkersBeyondLimit,
    SlotHeld,
    OrderNotTaken,
    EndNotDone,
    OldestCellHeld,
    OldestCellNotFilled,
    DeadCellsNotPassed,
    QueueNotLookedAt,
    LookNotDone,
    ThreadsRefused,
    PermitsInHand,
    TasksWithoutPermit,
    AwakeUnitsInHand,
    AwakeUnitsMissing,
    NoticesInHand,
    NoticesMissing,
    ReadyEntriesInHand,
    FreePermitsBesideLine,
    AsleepBesideWorkers,
    ClosedAndNotOver,
}

impl What {
    /// Returns what to do about it, if no other finding says more.
    fn advice(self) -> Advice {
        match self {
            Self::UserCode | Self::TaskBehindUserCode | Self::StartHook | Self::StopHook => {
                Advice::Code
            }
            Self::LockOrUserCode | Self::WorkersBeyondLimit => Advice::Stack,
            Self::OrderNotTaken
            | Self::DeadCellsNotPassed
            | Self::QueueNotLookedAt
            | Self::LookNotDone
            | Self::ThreadsRefused
            | Self::AwakeUnitsInHand
            | Self::AwakeUnitsMissing
            | Self::NoticesInHand
            | Self::NoticesMissing
            | Self::ReadyEntriesInHand
            | Self::FreePermitsBesideLine
            | Self::ClosedAndNotOver => Advice::Aid,
            Self::RegistryLocked
            | Self::LinesLocked
            | Self::ThreadsStarting
            | Self::SlotHeld
            | Self::EndNotDone
            | Self::OldestCellHeld
            | Self::OldestCellNotFilled
            | Self::PermitsInHand
            | Self::TasksWithoutPermit
            | Self::AsleepBesideWorkers => Advice::Wait,
        }
    }
}

impl Finding {
    /// Returns `true` if a count of workers that look at the queue has a unit that no worker has.
    pub(super) fn is_lost_unit(&self) -> bool {
        matches!(self.what, What::AwakeUnitsInHand | What::NoticesInHand)
    }

    /// Returns `true` if nobody looks of those who are to.
    pub(super) fn is_look_not_done(&self) -> bool {
        self.what == What::LookNotDone
    }

    /// Returns what it is about. Two findings of one event may have other counts.
    pub(super) fn event(&self) -> (What, Option<usize>, u64) {
        (self.what, self.slot, self.at)
    }
}

impl fmt::Debug for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = match self.advice {
            Advice::Code => "code",
            Advice::Stack => "stack",
            Advice::Aid => "aid",
            Advice::Wait => "wait",
        };
        write!(f, "{advice}: {:?}", self.what)?;
        match self.slot {
            Some(slot) => write!(f, "(slot {slot})")?,
            None => write!(f, "({})", self.count)?,
        }
        if self.pays != Kinds::NONE {
            write!(f, " {:?}", self.pays)?;
        }
        Ok(())
    }
}

/// Returns what this reading says.
pub(super) fn of(it: &Reading) -> Vec<Finding> {
    let slots = it.slots.iter().filter_map(|(slot, its)| {
        let what = of_slot(its)?;
        Some(Finding {
            what,
            count: 1,
            slot: Some(*slot),
            at: its.word.generation().wrapping_add(its.taken),
            pays: its.pays,
            advice: what.advice(),
        })
    });
    let counted = |(what, count): (What, u64)| {
        (count > 0).then_some(Finding {
            what,
            count,
            slot: None,
            at: match what {
                What::OldestCellHeld
                | What::OldestCellNotFilled
                | What::DeadCellsNotPassed
                | What::QueueNotLookedAt
                | What::LookNotDone
                | What::ThreadsRefused => it.head,
                _ => 0,
            },
            pays: Kinds::NONE,
            advice: what.advice(),
        })
    };
    let of_pool = of_pool(it).into_iter().filter_map(counted);
    slots.chain(of_pool).collect()
}

/// Puts those first that are to be acted on first. A worker that may wait for a lock is no case of its own if another thread has one.
pub(super) fn put_in_order(all: &mut [Finding]) {
    let is_lock = |it: &Finding| matches!(it.what, What::RegistryLocked | What::LinesLocked);
    if all.iter().any(is_lock) {
        for finding in all.iter_mut() {
            if finding.what == What::LockOrUserCode {
                finding.advice = Advice::Wait;
            }
        }
    }
    all.sort_by_key(|finding| finding.advice);
}

/// Returns what keeps a worker from its next step, if anything does but its task.
fn of_slot(its: &Inner) -> Option<What> {
    // Who gives a sleeping worker an order unparks it. An `Idle` worker has none.
    if its.sleeps && !its.word.is_idle() && its.word.state() != State::Held {
        return Some(What::OrderNotTaken);
    }
    if its.is_new && its.word.state() != State::Held {
        return Some(What::StartHook);
    }
    if its.pays.is_user_code() {
        let has_task = matches!(its.word.state(), State::Offered | State::Busy);
        let what = if has_task {
            What::TaskBehindUserCode
        } else {
            What::UserCode
        };
        return Some(what);
    }
    if its.pays != Kinds::NONE {
        return Some(What::LockOrUserCode);
    }
    match its.word.state() {
        State::Held => Some(What::SlotHeld),
        State::Idle if its.is_ending_task => Some(What::EndNotDone),
        State::Offered | State::Notified | State::Retiring => Some(What::OrderNotTaken),
        _ => None,
    }
}

/// Returns what the figures say of the pool as a whole, with a count of zero if they say nothing.
fn of_pool(it: &Reading) -> Vec<(What, u64)> {
    use What::{
        AwakeUnitsInHand, AwakeUnitsMissing, DeadCellsNotPassed, FreePermitsBesideLine,
        NoticesInHand, NoticesMissing, OldestCellHeld, OldestCellNotFilled, PermitsInHand,
        ReadyEntriesInHand, TasksWithoutPermit,
    };
    let told = in_state(it, State::Notified).count() as u64;
    let owners = it.slots.values().filter(|its| its.awake).count() as u64;
    let placed = it.tasks + it.cells_in_use;
    let oldest = |state| {
        if it.oldest_cell == state {
            it.cells_in_use
        } else {
            0
        }
    };
    let mut all = vec![
        (OldestCellHeld, oldest(CellState::Held)),
        (OldestCellNotFilled, oldest(CellState::Empty)),
        (DeadCellsNotPassed, oldest(CellState::Dead)),
        (PermitsInHand, it.permits_in_use.saturating_sub(placed)),
        (TasksWithoutPermit, placed.saturating_sub(it.permits_in_use)),
        (
            ReadyEntriesInHand,
            it.idle_listed.saturating_sub(it.ready_entries),
        ),
        (FreePermitsBesideLine, it.passable.unwrap_or(0)),
    ];
    if it.trusts_counts {
        // A thread that starts a worker for the queue has a notice.
        let starting = (it.registry.as_ref()).map_or(u64::MAX, |registry| registry.starting as u64);
        let notices = it.notified.saturating_sub(told);
        all.extend([
            (AwakeUnitsInHand, it.awake.saturating_sub(owners)),
            (AwakeUnitsMissing, owners.saturating_sub(it.awake)),
            (NoticesInHand, notices.saturating_sub(starting)),
            (NoticesMissing, told.saturating_sub(it.notified)),
        ]);
    }
    if let Some(why) = why_queued(it) {
        all.push((why, oldest(CellState::Full)));
    }
    all.push((What::LinesLocked, u64::from(it.passable.is_none())));
    all.extend(of_registry(it));
    all
}

fn in_state(it: &Reading, state: State) -> impl Iterator<Item = &Inner> {
    (it.slots.values()).filter(move |its| its.word.state() == state)
}

/// Returns why the oldest task in the queue still waits, unless all workers are busy.
fn why_queued(it: &Reading) -> Option<What> {
    // A worker that is not counted looks before it rests, unless it does something else first.
    let is_free = |its: &&Inner| its.pays == Kinds::NONE && !its.sleeps && !its.is_new;
    let searches = in_state(it, State::Searching).chain(in_state(it, State::Paying));
    let searching = searches.filter(is_free).count();
    let counted = if it.trusts_counts {
        it.awake + it.notified
    } else {
        0
    };
    let looks = counted + searching as u64;
    let benched = it.slots.values().filter(|its| its.word.is_benched());
    let idle = it.idle_listed + benched.count() as u64;
    if looks > 0 {
        return Some(What::LookNotDone);
    }
    if idle + it.free_entries == 0 {
        return None;
    }
    // If a thread was refused since the oldest task came, that task waits for a busy worker (F2).
    match idle == 0 && it.refused_at > it.popped {
        true => Some(What::ThreadsRefused),
        false => Some(What::QueueNotLookedAt),
    }
}

/// Returns what the registry's figures say.
fn of_registry(it: &Reading) -> Vec<(What, u64)> {
    let Some(registry) = &it.registry else {
        return vec![(What::RegistryLocked, 1)];
    };
    let live = registry.live as u64;
    let beyond = (registry.live + registry.starting).saturating_sub(registry.limit);
    let is_over = it.gate.is_closed() && it.permits_in_use == 0;
    vec![
        (What::ThreadsStarting, registry.starting as u64),
        (What::WorkersBeyondLimit, beyond as u64),
        (What::StopHook, registry.stopping.len() as u64),
        (
            What::AsleepBesideWorkers,
            if it.gate.is_asleep() { live } else { 0 },
        ),
        (What::ClosedAndNotOver, if is_over { live } else { 0 }),
    ]
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "findings_tests.rs"]
mod tests;
